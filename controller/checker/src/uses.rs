//! What accounts use without a bill: the preparing of runs, and the stops of others, over a sliding day.

use alloc::collections::BTreeMap;

use selion_api::{Account, TimeMs};

/// A day in milliseconds.
const DAY_MS: u64 = 24 * selion_api::unit::MS_PER_HOUR;

/// What was used, by account and number of the calendar day.
#[derive(Clone, Default)]
pub(crate) struct Uses(BTreeMap<(Account, u64), u128>);

impl Uses {
    /// As much was used.
    pub(crate) fn add(&mut self, renter: Account, now: TimeMs, worth: u128) {
        let today = now.0 / DAY_MS;
        let old = self.0.range((renter, 0)..(renter, today.saturating_sub(1))).map(|(key, _)| *key);
        for key in old.collect::<alloc::vec::Vec<_>>() {
            self.0.remove(&key);
        }
        *self.0.entry((renter, today)).or_default() += worth;
    }

    /// As much of it was paid for after all: the last used first.
    pub(crate) fn forgive(&mut self, renter: Account, now: TimeMs, worth: u128) {
        let today = now.0 / DAY_MS;
        let mut left = worth;
        for day in [Some(today), today.checked_sub(1)].into_iter().flatten() {
            if let Some(used) = self.0.get_mut(&(renter, day)) {
                let part = left.min(*used);
                *used -= part;
                left -= part;
            }
        }
    }

    /// What counts now: all of today, and of the day before the part that is less than 24 hours ago, if it was used evenly.
    pub(crate) fn of(&self, renter: Account, now: TimeMs) -> u128 {
        let today = now.0 / DAY_MS;
        let used = |day: Option<u64>| day.and_then(|day| self.0.get(&(renter, day))).copied().unwrap_or(0);
        let still_ms = u128::from(DAY_MS - now.0 % DAY_MS);
        used(Some(today)) + used(today.checked_sub(1)) * still_ms / u128::from(DAY_MS)
    }
}
