//! What must hold of a lease that lasts longer than it did.

use selion_api::lease::{LeaseState, MAX_DURATION_MS};
use selion_api::unit::MS_PER_HOUR;
use selion_api::{LeaseId, TimeMs};
use selion_market::Input;

use super::Entry;
use crate::finding::{Rule, Verdict, equal, holds, within};
use crate::line;

/// Most extensions of one lease.
const MOST: u64 = 64;

impl Entry<'_> {
    pub(super) fn extended(&mut self, id: LeaseId, duration_ms: u64) {
        let halted = self.book.halted();
        let said = self.is_extended(id);
        let Some(lease) = self.book.leases.get_mut(&id) else {
            return self.tell(Some(id), holds(Rule::Lease, false));
        };
        let (waits, runs) = (lease.state == LeaseState::Waiting, lease.is_running());
        let had_ms = lease.request.duration_ms;
        let (for_ms, fresh) = match said {
            Some((for_ms, key)) => (for_ms, lease.extended.insert(key)),
            None => (0, false),
        };
        let count = lease.extended.len() as u64;
        if waits {
            self.book.line.leave(id, lease);
        }
        lease.request.duration_ms = duration_ms;
        lease.alike = line::alike(&lease.request);
        if waits {
            self.book.line.join(id, lease);
        }
        if let Some(since) = lease.active_since.filter(|_| lease.state == LeaseState::Active) {
            lease.until = since.plus(duration_ms);
        }
        self.tell(Some(id), holds(Rule::Extended, for_ms > 0 && fresh && (waits || runs)));
        self.tell(Some(id), equal(Rule::Extended, had_ms.saturating_add(for_ms), duration_ms));
        self.tell(Some(id), within(Rule::Extended, duration_ms, MAX_DURATION_MS));
        self.tell(Some(id), within(Rule::Extended, count, MOST));
        self.tell(Some(id), holds(Rule::Halted, !halted));
        if runs {
            self.runs_longer(id, duration_ms.saturating_sub(had_ms));
        }
    }

    /// By how much the entry says that the lease is made longer, and under which key; `None` if it is no such word of its
    /// renter that counts now.
    fn is_extended(&self, id: LeaseId) -> Option<(u64, selion_api::Hash32)> {
        let owner = self.book.leases.get(&id)?.request.renter;
        let Input::Extend { renter, lease, for_ms, key, said } = self.input else { return None };
        (*lease == id && *renter == owner && self.book.counts(said)).then_some((*for_ms, *key))
    }

    /// What it costs is kept, its renter can pay it, and nobody gets its places later.
    fn runs_longer(&mut self, id: LeaseId, more_ms: u64) {
        let book = &mut *self.book;
        let Some(lease) = book.leases.get_mut(&id) else {
            return;
        };
        let stands = |rank: u16, attempt: u32| book.fleet.standing.contains_key(&(id, attempt, rank));
        let parts = (0_u16..).zip(&lease.parts).filter(|(rank, part)| stands(*rank, part.attempt));
        let kept = |rate: u64| (u128::from(rate) * u128::from(more_ms)).div_ceil(MS_PER_HOUR.into());
        let costs = parts.map(|(_, part)| kept(part.rate.0).clamp(1, u64::MAX.into()));
        let cost = costs.fold(0_u128, u128::saturating_add).min(u64::MAX.into());
        lease.cost = lease.cost.saturating_add(cost).min(u64::MAX.into());
        lease.kept = lease.kept.saturating_add(cost);
        let (renter, end) = (lease.request.renter, lease.free_by(&book.policy).unwrap_or(TimeMs(u64::MAX)));
        let pays = book.money.pays(renter, cost, end);
        book.money.purse(renter).runs += cost;
        self.reserves.entry(renter).or_default().0 += cost;
        let until = TimeMs(end.0.saturating_sub(self.book.policy.ending_ms));
        let taken_back = self.is_due_before(id, until);
        let paid = self.is_paid_until(id, until);
        let delays = self.delays_booking(id, end, self.book.broken.contains(&id));
        for verdict in [pays, taken_back, paid, delays] {
            self.tell(Some(id), verdict);
        }
    }

    /// No owner takes a place of it back before that time.
    fn is_due_before(&self, id: LeaseId, until: TimeMs) -> Verdict {
        let mut back = self.book.fleet.due_back(TimeMs(until.0.saturating_sub(1)));
        let lease = self.book.leases.get(&id);
        let own = |run| lease.is_some_and(|lease| lease.attempts().any(|attempt| attempt == run));
        holds(Rule::Reclaim, !back.any(|(other, run)| other == id && own(run)))
    }

    /// None of its renter's money leaves before that time.
    fn is_paid_until(&self, id: LeaseId, until: TimeMs) -> Verdict {
        let (book, lease) = (&*self.book, self.book.leases.get(&id));
        let paid = lease.and_then(|lease| book.money.paid_until(lease.request.renter, book.policy.claim_margin_ms));
        within(Rule::Paid, until.0, paid.map_or(u64::MAX, |paid| paid.0))
    }
}
