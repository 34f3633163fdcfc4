//! How many leases accounts have: in the line, and of the last day.

use alloc::collections::{BTreeMap, BTreeSet};

use selion_api::lease::LeaseState;
use selion_api::{Account, LeaseId, TimeMs};
use selion_market::Policy;

use crate::finding::{Rule, Verdict, within};

/// A lease counts for so long after its end: a day in milliseconds.
const DAY_MS: u64 = 24 * selion_api::unit::MS_PER_HOUR;

/// The counts.
#[derive(Clone, Default)]
pub(crate) struct Limits {
    waiting: BTreeMap<Account, u64>,
    waiting_all: u64,
    known: BTreeMap<Account, u64>,
    known_all: u64,
    /// Ended leases, by when they count no more.
    over: BTreeSet<(TimeMs, LeaseId, Account)>,
}

impl Limits {
    /// Forgets what ended a day ago.
    pub(crate) fn pass_to(&mut self, now: TimeMs) {
        while let Some(first) = self.over.first().copied().filter(|(until, ..)| *until <= now) {
            self.over.remove(&first);
            let (_, _, renter) = first;
            down(&mut self.known, &mut self.known_all, renter);
        }
    }

    /// A lease is made. There must be room for it.
    pub(crate) fn born(&mut self, renter: Account, policy: &Policy) -> Verdict {
        let more = |counts: &BTreeMap<Account, u64>| counts.get(&renter).copied().unwrap_or(0) + 1;
        let verdicts = [
            within(Rule::Limits, more(&self.waiting), policy.max_waiting),
            within(Rule::Limits, self.waiting_all + 1, policy.max_waiting_all),
            within(Rule::Limits, more(&self.known), policy.max_leases),
            within(Rule::Limits, self.known_all + 1, policy.max_leases_all),
        ];
        up(&mut self.known, &mut self.known_all, renter);
        up(&mut self.waiting, &mut self.waiting_all, renter);
        verdicts.into_iter().collect()
    }

    /// A lease goes from one state to another.
    pub(crate) fn moved(&mut self, id: LeaseId, renter: Account, from: LeaseState, to: LeaseState, now: TimeMs) {
        if from == LeaseState::Waiting {
            down(&mut self.waiting, &mut self.waiting_all, renter);
        }
        match to {
            LeaseState::Waiting => up(&mut self.waiting, &mut self.waiting_all, renter),
            LeaseState::Ended => {
                self.over.insert((now.plus(DAY_MS), id, renter));
            }
            _ => {}
        }
    }
}

fn up(counts: &mut BTreeMap<Account, u64>, all: &mut u64, renter: Account) {
    *counts.entry(renter).or_default() += 1;
    *all += 1;
}

fn down(counts: &mut BTreeMap<Account, u64>, all: &mut u64, renter: Account) {
    if let Some(count) = counts.get_mut(&renter) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&renter);
        }
    }
    *all = all.saturating_sub(1);
}
