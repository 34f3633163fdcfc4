//! GPUs: what there is, and making and freeing slices of it.
//!
//! One trait, two bodies: [`Simulated`] devices from our own table of models, and [`NvmlGpus`] for real cards.

pub(crate) mod catalog;
mod device;
mod nvml;
mod simulated;

pub use catalog::{Model, ModelMig, ModelProfile, model, models, work_of};
pub use device::Device;
pub use nvml::NvmlGpus;
pub use simulated::Simulated;

use std::path::PathBuf;

use selion_api::{GpuId, IsolationClass, Slot};

/// Facts of one GPU, before its owner puts prices on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuFacts {
    /// UUID.
    pub gpu: GpuId,
    /// Its place among all of the machine, as `nvidia-smi` counts.
    pub index: u32,
    /// Model name, e.g. `H100 80GB`.
    pub model: String,
    /// Memory in bytes.
    pub mem_bytes: u64,
    /// Work in thousandths of an A100 80GB; `None` if neither our table nor the owner says it.
    pub work_milli: Option<u32>,
    /// True if there is no such device.
    pub simulated: bool,
    /// What MIG can make of it; `None` if MIG cannot be offered.
    pub mig: Option<ModelMig>,
    /// How shares are kept apart, and how many there may be; `None` if shares cannot be offered.
    pub share: Option<(IsolationClass, u16)>,
}

/// What a card shows now. What it does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Reading {
    /// Temperature of the chip in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Percent of the last sample period (1/6 s to 1 s, by product) in which any kernel ran; not the share of the chip in
    /// use. Source: NVML `nvmlDeviceGetUtilizationRates`.
    pub busy_percent: Option<u32>,
    /// Memory in use, in bytes.
    pub mem_used_bytes: Option<u64>,
    /// Power drawn, in milliwatts.
    pub power_mw: Option<u32>,
}

/// A slice that exists. It is given back with [`Gpus::free`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceHandle {
    /// The device.
    pub gpu: GpuId,
    /// The place on it.
    pub slot: Slot,
    /// Number of the slice within this agent's life; never reused.
    pub number: u64,
    /// Value of `CUDA_VISIBLE_DEVICES`: empty for a simulated GPU, so that it never reaches a real one.
    pub visible: String,
    /// Device nodes that the renter's process needs.
    pub devices: Vec<PathBuf>,
}

/// Why a GPU did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The NVML library cannot be loaded or has no driver below it.
    #[error("no NVIDIA driver here ({detail}); install one so that `nvidia-smi` works, or offer simulated GPUs")]
    NoDriver {
        /// What NVML said.
        detail: String,
    },
    /// NVML failed.
    #[error("NVML failed at {at}: {detail}")]
    Nvml {
        /// Which call.
        at: &'static str,
        /// What it said.
        detail: String,
    },
    /// The model is not in the table.
    #[error("no GPU model `{model}`; known are {known}")]
    UnknownModel {
        /// As asked.
        model: String,
        /// Those of the table.
        known: String,
    },
    /// No such device here.
    #[error("this node has no GPU {gpu}")]
    NoSuchGpu {
        /// As asked.
        gpu: GpuId,
    },
    /// The GPU cannot be cut so.
    #[error("{gpu} ({model}) cannot give {slot}: {why}")]
    BadSlot {
        /// The device.
        gpu: GpuId,
        /// Its model.
        model: String,
        /// The place, as [`slot_text`] writes it.
        slot: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something is there already.
    #[error("{slot} of {gpu} collides with {taken}, which is in use")]
    Taken {
        /// The device.
        gpu: GpuId,
        /// The place asked for.
        slot: String,
        /// What it collides with.
        taken: String,
    },
    /// A process still uses the slice.
    #[error("{slot} of {gpu} is still used by a process; stop it before freeing the slice")]
    Busy {
        /// The device.
        gpu: GpuId,
        /// The place.
        slot: String,
    },
    /// The handle names no slice that exists.
    #[error("slice {number} of {gpu} does not exist")]
    NoSuchSlice {
        /// The device.
        gpu: GpuId,
        /// Number in the handle.
        number: u64,
    },
}

/// The GPUs of a node. Calls may block; the agent makes them off its async threads.
pub trait Gpus: Send {
    /// Every GPU once, in index order.
    ///
    /// # Errors
    ///
    /// [`GpuError::Nvml`] if a device cannot be read.
    fn list(&mut self) -> Result<Vec<GpuFacts>, GpuError>;

    /// What the card shows now. A simulated one shows nothing.
    fn read(&mut self, gpu: GpuId) -> Reading;

    /// Makes the slice.
    ///
    /// # Errors
    ///
    /// [`GpuError::NoSuchGpu`], [`GpuError::BadSlot`] or [`GpuError::Taken`]; nothing has changed then.
    fn make(&mut self, gpu: GpuId, slot: &Slot) -> Result<SliceHandle, GpuError>;

    /// Notes that a process uses the slice (`true`), or that none does any more.
    ///
    /// # Errors
    ///
    /// [`GpuError::NoSuchSlice`].
    fn set_busy(&mut self, slice: &SliceHandle, busy: bool) -> Result<(), GpuError>;

    /// Gives the slice back.
    ///
    /// # Errors
    ///
    /// [`GpuError::Busy`] while a process uses it; [`GpuError::NoSuchSlice`].
    fn free(&mut self, slice: &SliceHandle) -> Result<(), GpuError>;

    /// Every slice that exists, in order of number.
    fn held(&self) -> Vec<SliceHandle>;
}

/// Makes one slice on each of these GPUs, in their order: all or none.
///
/// # Errors
///
/// As [`Gpus::make`] of the first that fails; the others are free again then.
pub fn make_all(gpus: &mut dyn Gpus, on: &[GpuId], slot: &Slot) -> Result<Vec<SliceHandle>, GpuError> {
    let mut made = Vec::new();
    for gpu in on {
        match gpus.make(*gpu, slot) {
            Ok(slice) => made.push(slice),
            Err(error) => {
                // None is busy, and the first fault is the one to tell.
                made.iter().for_each(|slice| drop(gpus.free(slice)));
                return Err(error);
            }
        }
    }
    Ok(made)
}

/// Gives all these slices back, which no process uses any more.
///
/// # Errors
///
/// The first of [`Gpus::set_busy`] and [`Gpus::free`]; the others are tried all the same.
pub fn free_all(gpus: &mut dyn Gpus, slices: &[SliceHandle]) -> Result<(), GpuError> {
    let mut done = Ok(());
    for slice in slices {
        done = done.and(gpus.set_busy(slice, false).and_then(|()| gpus.free(slice)));
    }
    done
}

/// A slot as one word: `whole`, `mig:1g.10gb@2`, `share:250:4294967296`. Also the value of `SELION_SLICE`.
#[must_use]
pub fn slot_text(slot: &Slot) -> String {
    match slot {
        Slot::Whole => "whole".into(),
        Slot::Mig { profile, start, .. } => format!("mig:{profile}@{start}"),
        Slot::Share { compute_permille, mem_bytes } => format!("share:{compute_permille}:{mem_bytes}"),
    }
}

/// Whether two slots of one GPU cannot exist together, whatever else is on it. Two shares can.
#[must_use]
pub fn collide(a: &Slot, b: &Slot) -> bool {
    match (a, b) {
        (Slot::Mig { start: a, size: a_size, .. }, Slot::Mig { start: b, size: b_size, .. }) => {
            let end = |start: u8, size: u8| u16::from(start) + u16::from(size);
            u16::from(*a) < end(*b, *b_size) && u16::from(*b) < end(*a, *a_size)
        }
        (Slot::Share { .. }, Slot::Share { .. }) => false,
        _ => true,
    }
}
