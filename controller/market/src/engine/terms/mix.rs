//! The learned mix: how often each want arrived, with the old slowly forgotten.

use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::engine::view::Want;

/// What one arrival adds to its count: a count can be halved ten times before the last arrival is forgotten.
pub const ARRIVAL: u64 = 1 << 10;
/// Arrivals remembered: at an epoch, counts of twice as many are halved.
pub const MEMORY: u64 = 1 << 16;
/// Most kinds of wants kept over an epoch: the commonest.
pub const MOST_KINDS: usize = 2048;
/// Kinds after which a new one is not learned until the next epoch.
const CROWDED: usize = 2 * MOST_KINDS;

/// How often each want arrived.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Mix {
    kinds: Vec<(Want, u64)>, // by want
    total: u64,
    memory: u64,
    fixed: bool,
}

impl Default for Mix {
    fn default() -> Self {
        Self::remembering(MEMORY)
    }
}

impl Mix {
    /// An empty mix that remembers `arrivals` (at least one) to twice as many.
    #[must_use]
    pub fn remembering(arrivals: u64) -> Self {
        Self { kinds: Vec::new(), total: 0, memory: arrivals.max(1), fixed: false }
    }

    /// A mix that is known and learns nothing: the oracle of the published experiment.
    #[must_use]
    pub fn oracle(known: &[(Want, u64)]) -> Self {
        let mut mix = Self::default();
        for &(want, count) in known {
            mix.add(want, count.saturating_mul(ARRIVAL));
        }
        mix.fixed = true;
        mix
    }

    /// Counts one arrival, placed or refused.
    pub fn arrive(&mut self, want: &Want) {
        if !self.fixed {
            self.add(*want, ARRIVAL);
        }
    }

    fn add(&mut self, want: Want, count: u64) {
        match self.kinds.binary_search_by(|(known, _)| known.cmp(&want)) {
            Ok(at) => {
                if let Some((_, known)) = self.kinds.get_mut(at) {
                    *known = known.saturating_add(count);
                }
            }
            Err(at) if self.kinds.len() < CROWDED => self.kinds.insert(at, (want, count)),
            Err(_) => return,
        }
        self.total = self.total.saturating_add(count);
    }

    /// Forgets: halves every count (rounded down, nothing left: gone) while the mix holds twice what it remembers, then
    /// keeps the [`MOST_KINDS`] commonest kinds. Called at epochs.
    pub fn fade(&mut self) {
        if self.fixed {
            return;
        }
        while self.total >= self.memory.saturating_mul(2 * ARRIVAL) {
            for (_, count) in &mut self.kinds {
                *count /= 2;
            }
            self.settle();
        }
        if self.kinds.len() > MOST_KINDS {
            self.kinds.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
            self.kinds.truncate(MOST_KINDS);
            self.kinds.sort_unstable_by_key(|kind| kind.0);
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.kinds.retain(|&(_, count)| count > 0);
        self.total = self.kinds.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count));
    }

    /// Every want seen with its count, in order of wants. Counts are relative: [`ARRIVAL`] is one fresh arrival.
    #[must_use]
    pub fn kinds(&self) -> &[(Want, u64)] {
        &self.kinds
    }

    /// Sum of the counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::view::Shape;

    fn share(milli: u16) -> Want {
        Want { shape: Shape::Share(milli), cpu: 1000, ram: 1024, models: u64::MAX }
    }

    #[test]
    fn counts_are_halved_when_the_mix_holds_twice_what_it_remembers() {
        let mut mix = Mix::remembering(4);
        for _ in 0..7 {
            mix.arrive(&share(1));
        }
        mix.fade();
        assert_eq!(mix.kinds(), [(share(1), 7 * ARRIVAL)], "seven of eight: nothing is forgotten yet");
        mix.arrive(&share(2));
        mix.fade();
        assert_eq!(mix.kinds(), [(share(1), 7 * ARRIVAL / 2), (share(2), ARRIVAL / 2)]);
        assert_eq!(mix.total(), 4 * ARRIVAL);
    }

    #[test]
    fn a_want_that_no_longer_comes_is_forgotten() {
        let mut mix = Mix::remembering(4);
        mix.arrive(&share(1));
        for _ in 0..11 {
            for _ in 0..8 {
                mix.arrive(&share(2));
            }
            mix.fade();
        }
        assert_eq!(mix.kinds().len(), 1);
    }

    #[test]
    fn the_commonest_kinds_are_kept_when_there_are_too_many() {
        let mut mix = Mix::default();
        let want = |cpu| Want { cpu, ..share(1) };
        for cpu in 0..5000 {
            mix.arrive(&want(cpu));
        }
        mix.arrive(&want(CROWDED as u32 - 1));
        mix.fade();
        assert_eq!(mix.kinds().len(), MOST_KINDS);
        assert!(mix.kinds().iter().any(|(kind, _)| *kind == want(CROWDED as u32 - 1)));
        assert_eq!(mix.total(), mix.kinds().iter().map(|kind| kind.1).sum::<u64>());
    }

    #[test]
    fn an_oracle_learns_nothing_and_forgets_nothing() {
        let mut mix = Mix::oracle(&[(share(2), 3_000_000), (share(1), 1)]);
        let before = mix.kinds().to_vec();
        mix.arrive(&share(3));
        mix.fade();
        assert_eq!(mix.kinds(), before);
        assert_eq!(before, [(share(1), ARRIVAL), (share(2), 3_000_000 * ARRIVAL)]);
    }
}
