//! How fast work comes and how long it stays: what the slot price's horizon and the end charge are measured in.

use borsh::{BorshDeserialize, BorshSerialize};

/// Weight of the past: a new observation moves a mean by this part, and by its own share while there are fewer.
const PAST: u64 = 1 << 10;
/// Arrivals before a horizon is told.
const ENOUGH: u64 = 64;
/// Binary places of the means.
const PLACES: u32 = 8;

/// A mean that forgets, of milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
struct Mean {
    count: u64,
    value: u64, // times 2^PLACES
}

impl Mean {
    /// Moves by the difference over the number of observations, [`PAST`] at most; rounded towards the old mean.
    fn add(&mut self, observed_ms: u64) {
        let observed = observed_ms.min(u64::MAX >> PLACES) << PLACES;
        self.count = self.count.saturating_add(1);
        let part = self.count.min(PAST);
        self.value = if observed >= self.value {
            self.value.saturating_add((observed - self.value) / part)
        } else {
            self.value - (self.value - observed) / part
        };
    }
}

/// The learned pace of one fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Pace {
    last_ms: Option<u64>,
    gap: Mean,
    life: Mean,
}

impl Pace {
    /// Learns an arrival at `at_ms` that asks for `life_ms`, if it says so. A clock that goes back counts as standing.
    pub fn arrive(&mut self, at_ms: u64, life_ms: Option<u64>) {
        if let Some(last) = self.last_ms {
            self.gap.add(at_ms.saturating_sub(last));
        }
        self.last_ms = Some(self.last_ms.map_or(at_ms, |last| last.max(at_ms)));
        if let Some(life) = life_ms {
            self.stay(life);
        }
    }

    /// Learns that something stays so long.
    pub fn stay(&mut self, life_ms: u64) {
        self.life.add(life_ms);
    }

    /// Mean life in milliseconds; 0: not known.
    #[must_use]
    pub fn mean_life_ms(&self) -> u64 {
        self.life.value >> PLACES
    }

    /// A quarter of the arrivals of a mean life: for [`super::Terms::set_horizon`]. None until 64 arrivals and lives
    /// are seen, or where all come at once.
    #[must_use]
    pub fn horizon(&self) -> Option<u32> {
        if self.gap.count < ENOUGH || self.life.count < ENOUGH {
            return None;
        }
        let arrivals = self.life.value.checked_div(self.gap.value.saturating_mul(4))?;
        Some(u32::try_from(arrivals).unwrap_or(u32::MAX).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_arrivals_of_a_mean_life_is_the_horizon() {
        let mut pace = Pace::default();
        assert_eq!((pace.horizon(), pace.mean_life_ms()), (None, 0));
        for number in 0..200 {
            pace.arrive(number * 10, Some(if number % 2 == 0 { 40_000 } else { 120_000 }));
        }
        assert!(pace.mean_life_ms().abs_diff(80_000) < 500, "{}", pace.mean_life_ms());
        assert!(pace.horizon().is_some_and(|ahead| ahead.abs_diff(2000) < 15), "{:?}", pace.horizon());
    }

    #[test]
    fn the_pace_follows_a_change() {
        let mut pace = Pace::default();
        for number in 0..2000 {
            pace.arrive(number * 10, Some(1000));
        }
        for number in 0..10_000 {
            pace.arrive(20_000 + number * 10, Some(9000));
        }
        assert!(pace.mean_life_ms().abs_diff(9000) < 10, "{}", pace.mean_life_ms());
    }

    #[test]
    fn arrivals_at_once_clocks_that_go_back_and_endless_lives_do_not_overflow() {
        let mut pace = Pace::default();
        for number in 0..100_u64 {
            pace.arrive(u64::MAX - number, Some(u64::MAX));
        }
        assert_eq!(pace.horizon(), None, "all at once");
        pace.arrive(0, None);
        pace.arrive(u64::MAX, Some(0));
        assert!(pace.mean_life_ms() > 0);
    }
}
