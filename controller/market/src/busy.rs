//! Until when a node and its GPUs are busy, as far as the ends of leases are known.

use alloc::vec::Vec;

use selion_api::slice::NodeSpec;
use selion_api::{Slot, TimeMs};

use crate::bench::Spot;
use crate::booking;
use crate::engine::terms::mig::SLICES;
use crate::engine::terms::{Weights, ends, grain, mig};
use crate::engine::view::{Shape, Want};
use crate::state::{Node, State};

/// The last known end on each memory slice of a GPU, in ms.
type Gpu = [u64; SLICES as usize];

/// The last known ends on a node, in ms; 0 where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Busy {
    last: u64,
    /// In the order of the spec, as far as anything with an end is there.
    gpus: Vec<Gpu>,
}

impl Busy {
    /// The ends of what is held on a node. What has no known end does not count.
    pub(crate) fn of(state: &State, node: &Node) -> Self {
        let mut busy = Self::default();
        if let Some(spec) = &node.spec {
            for ((lease, rank), held) in &node.held {
                let end = booking::known_end(state, *lease, *rank, held);
                if end < booking::NEVER {
                    for gpu in &held.gpus {
                        busy.take(spec, *gpu, &held.slot, end);
                    }
                }
            }
        }
        busy
    }

    /// A slot is taken until `end`.
    pub(crate) fn take(&mut self, spec: &NodeSpec, gpu: selion_api::GpuId, slot: &Slot, end: TimeMs) {
        self.last = self.last.max(end.0);
        let Some(at) = spec.gpus.iter().position(|spec| spec.gpu == gpu) else {
            return;
        };
        if self.gpus.len() <= at {
            self.gpus.resize(at + 1, Gpu::default());
        }
        let Some(gpu) = self.gpus.get_mut(at) else {
            return;
        };
        let (start, size) = match slot {
            Slot::Mig { start, size, .. } => (usize::from(*start), usize::from(*size)),
            Slot::Whole | Slot::Share { .. } => (0, usize::from(SLICES)),
        };
        for slice in gpu.iter_mut().skip(start).take(size) {
            *slice = (*slice).max(end.0);
        }
    }

    /// The charge for a way that ends at `end`, in the unit of its key.
    pub(crate) fn charge(
        &self,
        weights: &Weights,
        (now, end): (TimeMs, TimeMs),
        shape: Shape,
        spot: Spot,
        mean_life_ms: u64,
    ) -> i32 {
        if let Shape::Mig { .. } = shape {
            let gpu = self.gpus.get(usize::from(spot.gpu_rank)).copied().unwrap_or_default();
            let slices = gpu.map(|end| end.max(now.0));
            let run = (1_u32 << (spot.slices & 15)).wrapping_sub(1) << (spot.start & 7);
            let taken = u8::try_from(run & u32::from(u8::MAX)).unwrap_or(0);
            return grain::round(mig::end_charge(weights, taken, &slices, end.0, mean_life_ms), 1);
        }
        let want = Want { shape, cpu: 0, ram: 0, models: u64::MAX };
        let ends = (end.0, self.last.max(now.0));
        grain::round(ends::charge(weights, &want, ends, mean_life_ms), weights.bucket)
    }
}
