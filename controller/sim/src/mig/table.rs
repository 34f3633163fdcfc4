//! Where instances may lie on a GPU of eight memory slices, and the simple policies to compare with.

/// Memory slices of a GPU.
pub const SLICES: u8 = 8;

/// A kind of instance: how many memory slices it takes, and the slices at which it may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Memory slices.
    pub size: u8,
    /// First slices allowed.
    pub starts: &'static [u8],
}

/// The profiles of the A100, H100 and H200. The second has twice the memory of the first.
pub const PROFILES: [Profile; 6] = [
    Profile { name: "1g", size: 1, starts: &[0, 1, 2, 3, 4, 5, 6] },
    Profile { name: "1g double memory", size: 2, starts: &[0, 2, 4, 6] },
    Profile { name: "2g", size: 2, starts: &[0, 2, 4] },
    Profile { name: "3g", size: 4, starts: &[0, 4] },
    Profile { name: "4g", size: 4, starts: &[0] },
    Profile { name: "7g", size: 8, starts: &[0] },
];

/// An instance on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Which GPU.
    pub gpu: usize,
    /// Its slices.
    pub bits: u8,
}

impl Profile {
    /// The slices that it would take at each start that is free under `mask`, lowest start first.
    pub fn places(self, mask: u8) -> impl Iterator<Item = u8> {
        let block = if self.size >= SLICES { u8::MAX } else { (1u8 << self.size) - 1 };
        self.starts.iter().map(move |start| block << start).filter(move |bits| mask & bits == 0)
    }
}

/// Policies without the engine, to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The first GPU and the first start that fit.
    FirstFit,
    /// The GPU with the most slices taken, first start.
    MostUsed,
    /// Least growth of fragmentation under the mix met so far, then the GPU with the most slices taken.
    Gradient,
}

impl Baseline {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::FirstFit, Self::MostUsed, Self::Gradient];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstFit => "first-fit",
            Self::MostUsed => "most-used",
            Self::Gradient => "gradient-table",
        }
    }
}

/// GPUs under a baseline.
#[derive(Clone, Debug)]
pub struct Gpus {
    policy: Baseline,
    masks: Vec<u8>,
    met: [u64; PROFILES.len()],
    /// Fragmentation of every mask, in slices x tasks met; of the mix at the last rebuild.
    frag: Vec<u64>,
}

impl Gpus {
    /// So many free GPUs.
    pub fn new(policy: Baseline, gpus: usize) -> Self {
        Self { policy, masks: vec![0; gpus], met: [0; PROFILES.len()], frag: vec![0; 256] }
    }

    /// Learns that a task asked for the profile of that number, and finds a place for it.
    pub fn place(&mut self, profile: usize) -> Option<Instance> {
        self.met[profile] += 1;
        let met: u64 = self.met.iter().sum();
        // Often at first, then as often as the mix can have moved.
        if self.policy == Baseline::Gradient && (met.is_power_of_two() || met.is_multiple_of(512)) {
            self.learn();
        }
        let instance = self.choose(PROFILES[profile])?;
        self.masks[instance.gpu] |= instance.bits;
        Some(instance)
    }

    /// Gives the slices of `instance` back.
    pub fn release(&mut self, instance: Instance) {
        self.masks[instance.gpu] &= !instance.bits;
    }

    fn choose(&self, profile: Profile) -> Option<Instance> {
        let mut best: Option<((i64, u32), Instance)> = None;
        for (gpu, mask) in self.masks.iter().copied().enumerate() {
            for bits in profile.places(mask) {
                let free = mask.count_zeros();
                let key = match self.policy {
                    Baseline::FirstFit => (0, 0),
                    Baseline::MostUsed => (0, free),
                    Baseline::Gradient => (self.frag(mask | bits) - self.frag(mask), free),
                };
                if best.is_none_or(|(least, _)| key < least) {
                    best = Some((key, Instance { gpu, bits }));
                }
            }
        }
        best.map(|(_, instance)| instance)
    }

    fn frag(&self, mask: u8) -> i64 {
        self.frag[usize::from(mask)] as i64
    }

    /// Free slices that a profile cannot use, summed over the mix: all of them where it does not fit.
    fn learn(&mut self) {
        for mask in 0..=u8::MAX {
            let free = u64::from(mask.count_zeros());
            let lost = PROFILES.iter().zip(self.met).map(|(profile, met)| {
                let fits = profile.places(mask).next().is_some();
                if fits { 0 } else { met * free }
            });
            self.frag[usize::from(mask)] = lost.sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_engines() {
        let engine = selion_market::engine::mig::eight();
        assert_eq!(engine.profiles.len(), PROFILES.len());
        for (ours, theirs) in PROFILES.iter().zip(engine.profiles) {
            let starts = ours.starts.iter().fold(0, |all, start| all | 1 << start);
            assert_eq!((ours.size, starts), (theirs.size, theirs.starts), "{}", ours.name);
        }
    }

    #[test]
    fn each_baseline_chooses_as_it_says() {
        let place = |policy, masks: [u8; 3], profile: usize| {
            let mut gpus = Gpus { masks: masks.to_vec(), ..Gpus::new(policy, 3) };
            gpus.met = [1; 6];
            gpus.learn();
            gpus.choose(PROFILES[profile]).map(|found| (found.gpu, found.bits))
        };
        let masks = [0b0000_0000, 0b0000_0011, 0b0000_1111];
        assert_eq!(place(Baseline::FirstFit, masks, 0), Some((0, 0b1)));
        assert_eq!(place(Baseline::MostUsed, masks, 0), Some((2, 0b1_0000)));
        // On the third a 3g was still possible; the second has no place for a 4g or 7g to lose.
        assert_eq!(place(Baseline::Gradient, masks, 0), Some((1, 0b100)));
        assert_eq!(place(Baseline::Gradient, [0xff; 3], 0), None);
    }

    #[test]
    fn the_slices_come_back() {
        let mut gpus = Gpus::new(Baseline::MostUsed, 1);
        let seven = gpus.place(5).unwrap();
        assert_eq!(gpus.place(0), None);
        gpus.release(seven);
        assert!(gpus.place(0).is_some());
    }
}
