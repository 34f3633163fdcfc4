//! One simulated device: which slices may exist together.
//!
//! A MIG instance takes memory slices `start..start + size` and part of a second budget of compute slices; a profile
//! also has a most of its own. MIG, shares and the whole GPU exclude each other, as MIG mode changes only on an idle
//! card. Compute and memory of shares are capped by the whole.

use selion_api::Slot;
use selion_api::slice::WHOLE_PERMILLE;

use super::{GpuError, GpuFacts, ModelProfile, collide, slot_text};

/// A device and the slices on it.
#[derive(Clone, Debug)]
pub struct Device {
    facts: GpuFacts,
    slices: Vec<Held>,
}

#[derive(Clone, Debug)]
struct Held {
    number: u64,
    slot: Slot,
    busy: bool,
}

impl Device {
    /// An empty device.
    #[must_use]
    pub fn new(facts: GpuFacts) -> Self {
        Self { facts, slices: Vec::new() }
    }

    /// What it is.
    #[must_use]
    pub fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    /// Number and slot of every slice on it, oldest first.
    pub fn held(&self) -> impl Iterator<Item = (u64, &Slot)> {
        self.slices.iter().map(|held| (held.number, &held.slot))
    }

    /// Puts slice `number` at `slot`.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadSlot`] if the device never could; [`GpuError::Taken`] if it cannot now.
    pub fn make(&mut self, number: u64, slot: &Slot) -> Result<(), GpuError> {
        self.check(slot)?;
        self.slices.push(Held { number, slot: slot.clone(), busy: false });
        Ok(())
    }

    /// Notes whether a process uses slice `number`.
    ///
    /// # Errors
    ///
    /// [`GpuError::NoSuchSlice`].
    pub fn set_busy(&mut self, number: u64, busy: bool) -> Result<(), GpuError> {
        let at = self.find(number)?;
        self.slices[at].busy = busy;
        Ok(())
    }

    /// Takes slice `number` away.
    ///
    /// # Errors
    ///
    /// [`GpuError::Busy`]; [`GpuError::NoSuchSlice`].
    pub fn free(&mut self, number: u64) -> Result<(), GpuError> {
        let at = self.find(number)?;
        if self.slices[at].busy {
            return Err(GpuError::Busy { gpu: self.facts.gpu, slot: slot_text(&self.slices[at].slot) });
        }
        self.slices.remove(at);
        Ok(())
    }

    fn find(&self, number: u64) -> Result<usize, GpuError> {
        self.slices
            .iter()
            .position(|held| held.number == number)
            .ok_or(GpuError::NoSuchSlice { gpu: self.facts.gpu, number })
    }

    fn check(&self, slot: &Slot) -> Result<(), GpuError> {
        match slot {
            Slot::Whole => {}
            Slot::Mig { profile, start, size } => self.check_profile(slot, profile, *start, *size)?,
            Slot::Share { compute_permille, mem_bytes } => {
                if self.facts.share.is_none() {
                    return Err(self.bad(slot, "shares of it are not offered"));
                }
                if !(1..=WHOLE_PERMILLE).contains(compute_permille) || !(1..=self.facts.mem_bytes).contains(mem_bytes) {
                    return Err(self.bad(slot, "a share is 1 to 1000 permille and 1 byte to all memory"));
                }
            }
        }
        if let Some(held) = self.slices.iter().find(|held| collide(&held.slot, slot)) {
            return Err(self.taken(slot, slot_text(&held.slot)));
        }
        self.check_budget(slot)
    }

    fn check_profile(&self, slot: &Slot, name: &str, start: u8, size: u8) -> Result<(), GpuError> {
        let profile = self.profile(name).ok_or_else(|| self.bad(slot, "it has no such profile"))?;
        if size != profile.size {
            let why = format!("the profile takes {} memory slices, not {size}", profile.size);
            return Err(self.bad(slot, &why));
        }
        if !profile.starts.contains(&start) {
            let why = format!("the profile may start only at {:?}", profile.starts);
            return Err(self.bad(slot, &why));
        }
        Ok(())
    }

    /// The budgets beyond place: compute slices, instances of a profile, parts of shares.
    fn check_budget(&self, slot: &Slot) -> Result<(), GpuError> {
        match slot {
            Slot::Whole => Ok(()),
            Slot::Mig { profile, .. } => {
                let (Some(mig), Some(wanted)) = (&self.facts.mig, self.profile(profile)) else {
                    return Err(self.bad(slot, "it cannot do MIG"));
                };
                let profiles = || self.slices.iter().filter_map(|held| self.profile_of(&held.slot));
                let compute: u8 = profiles().map(|profile| profile.compute_slices).sum();
                if compute + wanted.compute_slices > mig.compute_slices {
                    let taken = format!("{compute} of {} compute slices", mig.compute_slices);
                    return Err(self.taken(slot, taken));
                }
                let same = profiles().filter(|held| held.name == wanted.name).count();
                if same >= usize::from(wanted.max_instances) {
                    let taken = format!("all {same} instances of {} that it can have", wanted.name);
                    return Err(self.taken(slot, taken));
                }
                Ok(())
            }
            Slot::Share { compute_permille, mem_bytes } => {
                let (mut compute, mut memory) = (u32::from(*compute_permille), u128::from(*mem_bytes));
                for held in &self.slices {
                    if let Slot::Share { compute_permille, mem_bytes } = &held.slot {
                        compute += u32::from(*compute_permille);
                        memory += u128::from(*mem_bytes);
                    }
                }
                let most = self.facts.share.map_or(0, |(_, most)| usize::from(most));
                if compute > u32::from(WHOLE_PERMILLE)
                    || memory > u128::from(self.facts.mem_bytes)
                    || self.slices.len() >= most
                {
                    let taken = format!("{} shares that leave too little", self.slices.len());
                    return Err(self.taken(slot, taken));
                }
                Ok(())
            }
        }
    }

    fn profile(&self, name: &str) -> Option<&ModelProfile> {
        let mig = self.facts.mig.as_ref()?;
        mig.profiles.iter().find(|profile| profile.name == name)
    }

    fn profile_of(&self, slot: &Slot) -> Option<&ModelProfile> {
        match slot {
            Slot::Mig { profile, .. } => self.profile(profile),
            Slot::Whole | Slot::Share { .. } => None,
        }
    }

    fn bad(&self, slot: &Slot, why: &str) -> GpuError {
        GpuError::BadSlot {
            gpu: self.facts.gpu,
            model: self.facts.model.clone(),
            slot: slot_text(slot),
            why: why.into(),
        }
    }

    fn taken(&self, slot: &Slot, taken: String) -> GpuError {
        GpuError::Taken { gpu: self.facts.gpu, slot: slot_text(slot), taken }
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
