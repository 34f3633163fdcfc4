//! Real GPUs through NVML: whole cards, named by UUID.
//!
//! MIG instances and shares of real cards are not offered in this version, and asking for one is refused: the
//! wrapper's `possible_placements` answers with an empty list, and a share without a limiter would be a slice sold
//! as something it is not.

use std::path::PathBuf;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;
use selion_api::{GpuId, Slot};

use super::{GpuError, GpuFacts, Gpus, Reading, SliceHandle, catalog, slot_text};

/// Device nodes that every CUDA process needs beside its GPU's own.
const COMMON_NODES: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];

/// The real GPUs of this machine.
pub struct NvmlGpus {
    nvml: Nvml,
    held: Vec<(SliceHandle, bool)>,
    next: u64,
}

impl NvmlGpus {
    /// Loads the driver's library.
    ///
    /// # Errors
    ///
    /// [`GpuError::NoDriver`] if there is none; [`GpuError::Nvml`] if it does not start.
    pub fn open() -> Result<Self, GpuError> {
        let nvml = Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) | NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound => {
                GpuError::NoDriver { detail: error.to_string() }
            }
            other => failed("nvmlInit", &other),
        })?;
        Ok(Self { nvml, held: Vec::new(), next: 0 })
    }

    /// Version of the driver, for messages.
    ///
    /// # Errors
    ///
    /// [`GpuError::Nvml`].
    pub fn driver_version(&self) -> Result<String, GpuError> {
        let version = self.nvml.sys_driver_version();
        version.map_err(|error| failed("nvmlSystemGetDriverVersion", &error))
    }

    /// Cards in MIG mode, by index: they are not offered.
    ///
    /// # Errors
    ///
    /// [`GpuError::Nvml`].
    pub fn cut(&self) -> Result<Vec<u32>, GpuError> {
        let count = self.nvml.device_count().map_err(|error| failed("nvmlDeviceGetCount", &error))?;
        let mut cut = Vec::new();
        for index in 0..count {
            if self.is_cut(index)? {
                cut.push(index);
            }
        }
        Ok(cut)
    }

    /// Whether the card is in MIG mode: then it cannot be leased whole.
    fn is_cut(&self, index: u32) -> Result<bool, GpuError> {
        let device = self.nvml.device_by_index(index).map_err(|error| failed("nvmlDeviceGetHandleByIndex", &error))?;
        match device.mig_mode() {
            // 1 is NVML_DEVICE_MIG_ENABLE.
            Ok(mode) => Ok(mode.current == 1),
            Err(NvmlError::NotSupported) => Ok(false),
            Err(error) => Err(failed("nvmlDeviceGetMigMode", &error)),
        }
    }

    fn facts(&self, index: u32) -> Result<GpuFacts, GpuError> {
        let device = self.nvml.device_by_index(index).map_err(|error| failed("nvmlDeviceGetHandleByIndex", &error))?;
        let uuid = device.uuid().map_err(|error| failed("nvmlDeviceGetUUID", &error))?;
        let name = device.name().map_err(|error| failed("nvmlDeviceGetName", &error))?;
        let memory = device.memory_info().map_err(|error| failed("nvmlDeviceGetMemoryInfo", &error))?;
        Ok(GpuFacts {
            gpu: uuid
                .parse()
                .map_err(|error| GpuError::Nvml { at: "nvmlDeviceGetUUID", detail: format!("{error}") })?,
            index,
            work_milli: catalog::work_of(&name, memory.total),
            model: name.strip_prefix("NVIDIA ").unwrap_or(&name).to_owned(),
            mem_bytes: memory.total,
            simulated: false,
            mig: None,
            share: None,
        })
    }

    /// Device nodes of one GPU.
    fn nodes(&self, gpu: GpuId) -> Result<Vec<PathBuf>, GpuError> {
        let device = self.nvml.device_by_uuid(gpu.to_string()).map_err(|_| GpuError::NoSuchGpu { gpu })?;
        let minor = device.minor_number().map_err(|error| failed("nvmlDeviceGetMinorNumber", &error))?;
        let own = PathBuf::from(format!("/dev/nvidia{minor}"));
        let common = COMMON_NODES.iter().map(PathBuf::from);
        Ok(common.chain([own]).filter(|node| node.exists()).collect())
    }
}

impl Gpus for NvmlGpus {
    fn list(&mut self) -> Result<Vec<GpuFacts>, GpuError> {
        let count = self.nvml.device_count().map_err(|error| failed("nvmlDeviceGetCount", &error))?;
        let mut found = Vec::new();
        for index in 0..count {
            if !self.is_cut(index)? {
                found.push(self.facts(index)?);
            }
        }
        Ok(found)
    }

    fn read(&mut self, gpu: GpuId) -> Reading {
        let Ok(device) = self.nvml.device_by_uuid(gpu.to_string()) else { return Reading::default() };
        Reading {
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            busy_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
            mem_used_bytes: device.memory_info().ok().map(|memory| memory.used),
            power_mw: device.power_usage().ok(),
        }
    }

    fn make(&mut self, gpu: GpuId, slot: &Slot) -> Result<SliceHandle, GpuError> {
        let devices = self.nodes(gpu)?;
        if *slot != Slot::Whole {
            return Err(GpuError::BadSlot {
                gpu,
                model: "a real GPU".into(),
                slot: slot_text(slot),
                why: "this version leases real GPUs whole only".into(),
            });
        }
        if let Some((held, _)) = self.held.iter().find(|(held, _)| held.gpu == gpu) {
            return Err(GpuError::Taken { gpu, slot: slot_text(slot), taken: slot_text(&held.slot) });
        }
        let slice = SliceHandle { gpu, slot: Slot::Whole, number: self.next, visible: gpu.to_string(), devices };
        self.next += 1;
        self.held.push((slice.clone(), false));
        Ok(slice)
    }

    fn set_busy(&mut self, slice: &SliceHandle, busy: bool) -> Result<(), GpuError> {
        let at = self.find(slice)?;
        self.held[at].1 = busy;
        Ok(())
    }

    fn free(&mut self, slice: &SliceHandle) -> Result<(), GpuError> {
        let at = self.find(slice)?;
        if self.held[at].1 {
            return Err(GpuError::Busy { gpu: slice.gpu, slot: slot_text(&slice.slot) });
        }
        self.held.remove(at);
        Ok(())
    }

    fn held(&self) -> Vec<SliceHandle> {
        self.held.iter().map(|(slice, _)| slice.clone()).collect()
    }
}

impl NvmlGpus {
    fn find(&self, slice: &SliceHandle) -> Result<usize, GpuError> {
        self.held
            .iter()
            .position(|(held, _)| held.number == slice.number)
            .ok_or(GpuError::NoSuchSlice { gpu: slice.gpu, number: slice.number })
    }
}

fn failed(at: &'static str, error: &NvmlError) -> GpuError {
    GpuError::Nvml { at, detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_error_says_so_and_what_to_do() {
        // On a machine with a driver the same call must list cards instead.
        match NvmlGpus::open() {
            Err(error) => {
                assert!(matches!(error, GpuError::NoDriver { .. }), "{error}");
                assert!(error.to_string().contains("nvidia-smi"), "{error}");
            }
            Ok(mut gpus) => {
                let gpus = gpus.list().unwrap();
                assert!(gpus.iter().all(|gpu| !gpu.simulated && gpu.mem_bytes > 0));
            }
        }
    }
}
