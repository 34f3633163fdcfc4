//! What accounts use without a bill, and its bound: in a day it is worth no more than the deposit.
//!
//! Free is the time in which agents prepare a run: from its grant until it is active, or until it is over for a reason of
//! its renter. Free is also what a lease has others stopped for. Either is reckoned at the rates granted, and forgiven as far
//! as the lease then pays itself. A day slides: what was used in the calendar day before counts by the part of it that lies within
//! the last 24 hours, as if it had been used evenly. Why so: `docs/adr/0020-what-is-free-is-bounded.md`.

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::lease::LeaseState;
use selion_api::{Account, Amount, LeaseId, Reason, TimeMs};

use crate::input::Policy;
use crate::ledger::Pocket;
use crate::money::{Means, Uncovered};
use crate::state::{Lease, State};
use crate::step::Step;

/// A day in milliseconds.
const DAY_MS: u64 = 24 * selion_api::unit::MS_PER_HOUR;

/// What an account used without a bill, in token base units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct FreeUse {
    /// Number of the calendar day of the last use.
    day: u64,
    /// On that day.
    today: Amount,
    /// On the day before it.
    before: Amount,
}

impl FreeUse {
    /// As of the day of `at`.
    fn on_day_of(self, at: TimeMs) -> Self {
        let day = at.0 / DAY_MS;
        match day.checked_sub(self.day) {
            Some(1) => Self { day, today: Amount::ZERO, before: self.today },
            Some(2..) => Self { day, today: Amount::ZERO, before: Amount::ZERO },
            Some(0) | None => self,
        }
    }

    /// What counts at `at`.
    #[must_use]
    pub fn worth(self, at: TimeMs) -> Amount {
        let now = self.on_day_of(at);
        let left_ms = DAY_MS.saturating_sub(at.0 % DAY_MS);
        now.today.saturating_add(part(now.before, left_ms))
    }

    fn add(self, at: TimeMs, worth: Amount) -> Self {
        let now = self.on_day_of(at);
        Self { today: now.today.saturating_add(worth), ..now }
    }

    fn forgive(self, at: TimeMs, worth: Amount) -> Self {
        let now = self.on_day_of(at);
        let more = worth.saturating_sub(now.today);
        Self { today: now.today.saturating_sub(worth), before: now.before.saturating_sub(more), ..now }
    }

    /// When no more than `most` counts, if nothing is added: at the latest when two days are over.
    fn falls_to(self, most: Amount, at: TimeMs) -> TimeMs {
        let now = self.on_day_of(at);
        let next_day = TimeMs(now.day.saturating_add(1).saturating_mul(DAY_MS));
        let left_ms =
            |most: Amount, of: Amount| u64::try_from(u128::from(most.0) * u128::from(DAY_MS) / u128::from(of.0.max(1)));
        let before = |day: TimeMs, left_ms: u64| TimeMs(day.0.saturating_sub(left_ms.min(DAY_MS)));
        if now.today <= most {
            let rest = most.saturating_sub(now.today);
            return before(next_day, left_ms(rest, now.before).unwrap_or(DAY_MS)).max(at);
        }
        before(next_day.plus(DAY_MS), left_ms(most, now.today).unwrap_or(DAY_MS))
    }
}

/// The part of a day's worth that falls into so many milliseconds of it.
fn part(worth: Amount, ms: u64) -> Amount {
    let exact = u128::from(worth.0) * u128::from(ms) / u128::from(DAY_MS);
    Amount(u64::try_from(exact).unwrap_or(u64::MAX))
}

impl State {
    /// What an account may use without a bill in a day: as much as it has in the vault, free or reserved.
    #[must_use]
    pub fn free_allowance(&self, renter: Account) -> Amount {
        self.ledger.holds(Pocket::Free(renter)).saturating_add(self.ledger.holds(Pocket::Reserved(renter)))
    }

    /// What an account used without a bill, as it counts at `at`.
    #[must_use]
    pub fn free_used(&self, renter: Account, at: TimeMs) -> Amount {
        self.free_use.get(&renter).map_or(Amount::ZERO, |used| used.worth(at))
    }

    /// Whether the account may have `more` held or stopped without a bill.
    pub(crate) fn may_use_free(&self, renter: Account, more: Amount, at: TimeMs) -> Result<(), Uncovered> {
        let (used, most) = (self.free_used(renter, at).saturating_add(more), self.free_allowance(renter));
        if used > most { Err(Uncovered { means: Means::FreeUse, need: used.0, have: most.0 }) } else { Ok(()) }
    }

    /// Sets when the line is looked at again for the sake of an account that has used up what is free.
    pub(crate) fn look_when_freed(&mut self, renter: Account, at: TimeMs) {
        let most = self.free_allowance(renter);
        if let Some(used) = self.free_use.get(&renter) {
            let then = used.falls_to(most, at).max(at.plus(1));
            self.look_again = Some(self.look_again.map_or(then, |old| old.min(then)));
        }
    }

    fn use_free(&mut self, renter: Account, change: impl FnOnce(FreeUse) -> FreeUse) {
        let used = self.free_use.entry(renter).or_default();
        *used = change(*used);
        if (used.today, used.before) == (Amount::ZERO, Amount::ZERO) {
            self.free_use.remove(&renter);
        }
    }
}

impl Lease {
    /// What its members cost in so many milliseconds.
    fn worth(&self, ms: u64) -> Amount {
        self.members.iter().map(|member| member.rate.bill(ms)).fold(Amount::ZERO, Amount::saturating_add)
    }
}

/// How long agents may prepare a run at most: more is the time of a controller that was away.
fn preparing_ms(policy: &Policy) -> u64 {
    policy.hold_ms.saturating_add(policy.prepare_ms).saturating_add(policy.start_ms)
}

impl Step<'_> {
    /// A lease is about to go to `to`. If its run was being prepared until now, that time was free: it counts, unless the
    /// run ends for no reason of its renter, or its agents did not even accept it.
    pub(crate) fn count_preparing(&mut self, id: LeaseId, to: LeaseState, reason: Option<Reason>) {
        use LeaseState::{Active, Ending, Held, Preparing, Starting};
        let Some(lease) = self.state.leases.get(&id) else {
            return;
        };
        let unheard = lease.state == Held && reason == Some(Reason::PrepareTimeout);
        let counts = to == Active || to == Ending && reason.is_some_and(Reason::counts_as_free_use) && !unheard;
        if !counts || !matches!(lease.state, Held | Preparing | Starting) {
            return;
        }
        let ms = self.at.since(lease.granted).min(preparing_ms(&self.state.policy));
        let (renter, worth, at) = (lease.request.renter, lease.worth(ms), self.at);
        self.state.use_free(renter, |used| used.add(at, worth));
        if let Some(lease) = self.state.leases.get_mut(&id).filter(|_| to == Active) {
            lease.unpaid = lease.unpaid.saturating_add(worth);
        }
    }

    /// Counts what `id` has others stopped for: for each as much as a lease runs at least before it may be stopped.
    /// False, and nothing counted, if its account has used up what is free.
    pub(crate) fn count_stops<'a>(&mut self, id: LeaseId, gone: impl Iterator<Item = &'a LeaseId>) -> bool {
        let policy = &self.state.policy;
        let least_ms = policy.min_run_ms.max(policy.least_ms);
        let stopped = gone.filter_map(|one| self.state.leases.get(one));
        let worth = stopped.map(|lease| lease.worth(least_ms)).fold(Amount::ZERO, Amount::saturating_add);
        let Some(renter) = self.state.leases.get(&id).map(|lease| lease.request.renter) else {
            return false;
        };
        if self.state.may_use_free(renter, worth, self.at).is_err() {
            return false;
        }
        let at = self.at;
        self.state.use_free(renter, |used| used.add(at, worth));
        if let Some(lease) = self.state.leases.get_mut(&id) {
            lease.unpaid = lease.unpaid.saturating_add(worth);
        }
        true
    }

    /// A run is over and billed: what was free for it is forgiven as far as it paid, or wholly if it ended for no reason of
    /// its renter.
    pub(crate) fn forgive(&mut self, id: LeaseId, reason: Reason, billed: Amount) {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        let paid = if reason.counts_as_free_use() { lease.unpaid.min(billed) } else { lease.unpaid };
        lease.unpaid = lease.unpaid.saturating_sub(paid);
        let (renter, at) = (lease.request.renter, self.at);
        if paid > Amount::ZERO {
            self.state.use_free(renter, |used| used.forgive(at, paid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: TimeMs = TimeMs(10 * DAY_MS + DAY_MS / 2);

    #[test]
    fn what_was_used_fades_evenly_over_the_day_after() {
        let used = FreeUse::default().add(NOON, Amount(1_000));
        let later = |ms: u64| used.worth(NOON.plus(ms));
        assert_eq!((later(0), later(DAY_MS / 2 - 1)), (Amount(1_000), Amount(1_000)));
        assert_eq!((later(DAY_MS), later(DAY_MS * 5 / 4)), (Amount(500), Amount(250)));
        assert_eq!((later(DAY_MS * 3 / 2), later(9 * DAY_MS)), (Amount::ZERO, Amount::ZERO));
    }

    #[test]
    fn it_falls_to_a_bound_exactly_when_it_says() {
        let used = FreeUse::default().add(TimeMs(NOON.0 - DAY_MS), Amount(600)).add(NOON, Amount(1_000));
        for most in [0, 1, 250, 999, 1_000, 1_100, 1_300, 5_000].map(Amount) {
            let then = used.falls_to(most, NOON);
            assert!(used.worth(then) <= most, "{most:?} at {then:?}");
            assert!(then == NOON || used.worth(TimeMs(then.0 - DAY_MS / 1_000)) >= most, "{most:?}: no earlier");
        }
    }

    #[test]
    fn what_is_forgiven_comes_off_today_first() {
        let used = FreeUse::default().add(TimeMs(NOON.0 - DAY_MS), Amount(600)).add(NOON, Amount(100));
        assert_eq!(used.forgive(NOON, Amount(300)).worth(NOON), Amount(200));
        assert_eq!(used.forgive(NOON, Amount(900)).worth(NOON), Amount::ZERO);
    }
}
