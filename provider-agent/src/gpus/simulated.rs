//! Simulated GPUs: geometry of the real models, no device behind it.

use std::collections::BTreeMap;

use selion_api::{GpuId, IsolationClass, Slot};
use sha2::{Digest, Sha256};

use super::{Device, GpuError, GpuFacts, Gpus, Reading, SliceHandle, catalog};

/// Most shares of one simulated GPU.
const MAX_SHARES: u16 = 16;

/// A set of simulated devices.
#[derive(Debug)]
pub struct Simulated {
    order: Vec<GpuId>,
    devices: BTreeMap<GpuId, Device>,
    next: u64,
}

impl Simulated {
    /// One device for each name of `models`. Their UUIDs follow from `node_key` (any bytes that name the node) and
    /// their index, so that the same node has the same GPUs after a restart.
    ///
    /// # Errors
    ///
    /// [`GpuError::UnknownModel`].
    pub fn new(models: &[String], node_key: &[u8]) -> Result<Self, GpuError> {
        let mut gpus = Self { order: Vec::new(), devices: BTreeMap::new(), next: 0 };
        for (index, name) in models.iter().enumerate() {
            let model = catalog::model(name)?;
            let gpu = uuid(node_key, index);
            let facts = GpuFacts {
                gpu,
                index: u32::try_from(index).unwrap_or(u32::MAX),
                model: model.model.clone(),
                mem_bytes: model.mem_bytes,
                work_milli: Some(model.work_milli),
                simulated: true,
                mig: model.mig.clone(),
                share: Some((IsolationClass::Simulated, MAX_SHARES)),
            };
            gpus.order.push(gpu);
            gpus.devices.insert(gpu, Device::new(facts));
        }
        Ok(gpus)
    }

    /// What the devices are, in order of index.
    pub fn facts(&self) -> impl Iterator<Item = &GpuFacts> {
        self.order.iter().filter_map(|gpu| self.devices.get(gpu)).map(Device::facts)
    }

    fn device(&mut self, gpu: GpuId) -> Result<&mut Device, GpuError> {
        self.devices.get_mut(&gpu).ok_or(GpuError::NoSuchGpu { gpu })
    }
}

impl Gpus for Simulated {
    fn list(&mut self) -> Result<Vec<GpuFacts>, GpuError> {
        Ok(self.facts().cloned().collect())
    }

    fn read(&mut self, _gpu: GpuId) -> Reading {
        Reading::default()
    }

    fn make(&mut self, gpu: GpuId, slot: &Slot) -> Result<SliceHandle, GpuError> {
        let number = self.next;
        self.device(gpu)?.make(number, slot)?;
        self.next += 1;
        Ok(handle(gpu, slot.clone(), number))
    }

    fn set_busy(&mut self, slice: &SliceHandle, busy: bool) -> Result<(), GpuError> {
        self.device(slice.gpu)?.set_busy(slice.number, busy)
    }

    fn free(&mut self, slice: &SliceHandle) -> Result<(), GpuError> {
        self.device(slice.gpu)?.free(slice.number)
    }

    fn held(&self) -> Vec<SliceHandle> {
        let mut held: Vec<_> = self
            .devices
            .iter()
            .flat_map(|(gpu, device)| device.held().map(|(number, slot)| handle(*gpu, slot.clone(), number)))
            .collect();
        held.sort_by_key(|slice| slice.number);
        held
    }
}

fn handle(gpu: GpuId, slot: Slot, number: u64) -> SliceHandle {
    SliceHandle { gpu, slot, number, visible: String::new(), devices: Vec::new() }
}

/// The first half of `SHA-256("selion simulated gpu", node key, index)`, marked as a version 8 UUID.
fn uuid(node_key: &[u8], index: usize) -> GpuId {
    let mut hasher = Sha256::new();
    hasher.update(b"selion simulated gpu");
    hasher.update(node_key);
    hasher.update((index as u64).to_le_bytes());
    let hash: [u8; 32] = hasher.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    GpuId(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::{free_all, make_all};
    use super::*;

    fn two() -> Simulated {
        Simulated::new(&["A100 80GB".into(), "A100 80GB".into()], b"node").unwrap()
    }

    #[test]
    fn the_same_node_has_the_same_gpus_and_another_node_has_others() {
        let ids = |key: &[u8]| -> Vec<GpuId> {
            let gpus = Simulated::new(&["A100 80GB".into(), "A100 80GB".into()], key).unwrap();
            gpus.facts().map(|facts| facts.gpu).collect()
        };
        assert_eq!(ids(b"node"), ids(b"node"));
        assert_ne!(ids(b"node"), ids(b"other"));
        assert_ne!(ids(b"node")[0], ids(b"node")[1]);
    }

    #[test]
    fn an_unknown_gpu_is_refused() {
        let gpu = GpuId([9; 16]);
        assert_eq!(two().make(gpu, &Slot::Whole), Err(GpuError::NoSuchGpu { gpu }));
    }

    #[test]
    fn several_are_made_together_or_not_at_all() {
        let mut gpus = two();
        let ids: Vec<_> = gpus.facts().map(|facts| facts.gpu).collect();
        let both = make_all(&mut gpus, &ids, &Slot::Whole).unwrap();
        assert_eq!((both[0].gpu, both[1].gpu, gpus.held()), (ids[0], ids[1], both.clone()));
        free_all(&mut gpus, &both).unwrap();
        assert!(free_all(&mut gpus, &both).is_err(), "only once");
        let second = gpus.make(ids[1], &Slot::Whole).unwrap();
        assert!(matches!(make_all(&mut gpus, &ids, &Slot::Whole), Err(GpuError::Taken { gpu, .. }) if gpu == ids[1]));
        assert_eq!(gpus.held(), [second], "the first is free again");
    }

    #[test]
    fn a_handle_frees_its_own_slice_and_only_once() {
        let mut gpus = two();
        let ids: Vec<_> = gpus.facts().map(|facts| facts.gpu).collect();
        let a = gpus.make(ids[0], &Slot::Whole).unwrap();
        let b = gpus.make(ids[1], &Slot::Whole).unwrap();
        assert_eq!(gpus.held(), [a.clone(), b.clone()]);
        gpus.free(&a).unwrap();
        assert!(gpus.free(&a).is_err());
        assert_eq!(gpus.held(), [b]);
    }
}
