//! What is used without a bill.

use selion_api::lease::LeaseState;
use selion_api::{LeaseId, Reason};

use super::Entry;
use super::bills::cost_of;
use crate::leases::Lease;

/// What all members of a lease cost in so many milliseconds.
fn worth(lease: &Lease, ms: u64) -> u128 {
    lease.parts.iter().map(|part| cost_of(part.rate.0, ms)).sum()
}

impl Entry<'_> {
    /// A run that was being prepared becomes active, or is over. It counts unless its renter is not why it is over; that
    /// a controller was away makes no more of it than may pass while one is there.
    pub(super) fn prepared(&mut self, id: LeaseId, to: LeaseState, reason: Option<Reason>) {
        let book = &mut *self.book;
        let Some(lease) = book.leases.get(&id) else {
            return;
        };
        let most_ms = [book.policy.hold_ms, book.policy.prepare_ms, book.policy.start_ms];
        let most_ms = most_ms.into_iter().fold(0, u64::saturating_add);
        let begun = matches!(lease.state, LeaseState::Preparing | LeaseState::Starting);
        let counts = match (to, reason) {
            (LeaseState::Active, _) => true,
            (LeaseState::Ending, Some(Reason::PrepareTimeout)) => begun,
            (LeaseState::Ending, Some(why)) => why.counts_as_free_use(),
            _ => false,
        };
        if !counts || !(begun || lease.state == LeaseState::Held) {
            return;
        }
        let used = worth(lease, book.now.since(lease.granted).min(most_ms));
        book.uses.add(lease.request.renter, book.now, used);
        if to == LeaseState::Active
            && let Some(lease) = book.leases.get_mut(&id)
        {
            lease.unpaid += used;
        }
    }

    /// A lease is stopped for `by`: what it costs while it could not have been stopped counts as used by that.
    pub(super) fn used_a_stop(&mut self, id: LeaseId, by: LeaseId) {
        let book = &mut *self.book;
        let least_ms = book.policy.min_run_ms.max(book.policy.least_ms);
        let used = book.leases.get(&id).map_or(0, |lease| worth(lease, least_ms));
        let Some(taker) = book.leases.get_mut(&by) else {
            return;
        };
        taker.unpaid += used;
        let renter = taker.request.renter;
        book.uses.add(renter, book.now, used);
        let verdict = book.is_within_free_use(renter);
        self.tell(Some(by), verdict);
    }

    /// A run is over: what it paid, or all if it is not over because of its renter, makes up for what was free for it.
    pub(super) fn paid_for(&mut self, id: LeaseId) {
        let book = &mut *self.book;
        let Some(lease) = book.leases.get_mut(&id) else {
            return;
        };
        let own_doing = lease.stopped.is_none_or(Reason::counts_as_free_use);
        let paid = if own_doing { lease.unpaid.min(lease.billed) } else { lease.unpaid };
        lease.unpaid -= paid;
        let renter = lease.request.renter;
        book.uses.forgive(renter, book.now, paid);
    }
}
