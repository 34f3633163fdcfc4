//! What must hold of a lease that is booked, and of those who are served while room is kept for it.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use selion_api::lease::{LeaseState, Within};
use selion_api::{LeaseId, TimeMs};

use super::Entry;
use crate::check::Checker;
use crate::finding::{Broken, Rule, Verdict, holds, within};
use crate::fleet::{Guest, Runs};
use crate::leases::Lease;

impl Entry<'_> {
    pub(super) fn booked(&mut self, id: LeaseId, at: Option<TimeMs>) {
        let before = core::mem::replace(&mut self.book.booked, at.map(|at| (id, at)));
        let now = self.book.now;
        let waits = self.state_of(id) == Some(LeaseState::Waiting);
        let mine = before.is_some_and(|(booked, _)| booked == id);
        let well = if at.is_some() { waits && (mine || before.is_none()) } else { mine };
        self.tell(Some(id), holds(Rule::Booking, well));
        self.tell(Some(id), within(Rule::Booking, now.0, at.map_or(u64::MAX, |at| at.0)));
        let fits = at.is_none_or(|at| self.book.fits_at(id, at, None) != Some(false));
        self.tell(Some(id), holds(Rule::Booking, fits));
        let request = self.book.leases.get(&id).map(|lease| &lease.request);
        let seats = at.zip(request).and_then(|(at, request)| Some((self.book.seats_for(request, at)?, request)));
        self.tell(Some(id), seats.map_or(Ok(()), |(have, request)| within(Rule::Licence, request.min_members, have)));
    }

    /// Who is served while room is kept for another, of a class and standing that is not below his, ends before the
    /// booked time, or the other still fits then.
    pub(super) fn delays_booking(&self, id: LeaseId, end: TimeMs, repair: bool) -> Verdict {
        let book = &*self.book;
        let (Some((booked, at)), Some(lease)) = (book.booked, book.leases.get(&id)) else {
            return Ok(());
        };
        let Some(other) = book.leases.get(&booked).filter(|_| end > at) else {
            return Ok(());
        };
        // His present run is counted already.
        let broken = repair || lease.attempt > 1 && lease.is_broken();
        let below = (other.request.priority, other.is_broken()) < (lease.request.priority, broken);
        let late = !below && book.fits_at(booked, at, None) == Some(false);
        // It may be no fault of his: a node was lost, or a stop is overdue.
        if late && book.fits_at(booked, at, Some((id, lease.attempt))) != Some(false) {
            return Err(Broken { rule: Rule::Backfill, need: at.0, have: end.0 });
        }
        Ok(())
    }
}

impl Checker {
    /// Whether a waiting lease fits when all has gone whose end is known to come by `at`, and `beside` is not there.
    /// `None` where that would be a search: for members that belong together; and for those that want different things,
    /// only what each kind needs alone is looked at.
    fn fits_at(&self, id: LeaseId, at: TimeMs, beside: Option<(LeaseId, u32)>) -> Option<bool> {
        let lease = self.leases.get(&id)?;
        let ends = |lease: &Lease| lease.free_by(&self.policy).is_some_and(|end| end <= at);
        let gone = self.leases.iter().filter(|(_, lease)| ends(lease));
        let gone = gone.flat_map(|(id, lease)| lease.attempts().map(|attempt| (*id, attempt)));
        let back = TimeMs(at.0.saturating_sub(self.policy.ending_ms));
        // Who is stopped for an owner is stopped whole, its repaired members too.
        let stopped = self.fleet.due_back(back).flat_map(|(id, run)| {
            let whole = self.leases.get(&id).filter(|lease| lease.attempts().any(|attempt| attempt == run));
            let others = whole.into_iter().flat_map(Lease::attempts);
            others.chain([run]).map(move |attempt| (id, attempt))
        });
        // And whole is who is stopped before his money leaves.
        let margin_ms = self.policy.claim_margin_ms;
        let unpaid = |lease: &Lease| {
            lease.is_running()
                && self.money.paid_until(lease.request.renter, margin_ms).is_some_and(|until| until <= back)
        };
        let unpaid = self.leases.iter().filter(|(_, lease)| unpaid(lease));
        let unpaid = unpaid.flat_map(|(id, lease)| lease.attempts().map(|attempt| (*id, attempt)));
        let gone: Runs = gone.chain(stopped).chain(unpaid).chain(beside).collect();
        let wants = lease.request.members.get(..usize::from(lease.request.min_members))?;
        if lease.request.within != Within::Pool || lease.request.max_latency_us.is_some() {
            return None;
        }
        let mut kinds = Vec::new();
        for want in wants {
            if !kinds.contains(&want) {
                kinds.push(want);
            }
        }
        // What an old run still holds bars some of its members from some nodes.
        let first = self.fleet.standing.range((id, 0, 0)..=(id, u32::MAX, u16::MAX)).next().is_none();
        if !first && wants.len() > 1 {
            return None;
        }
        let (spread, mut all_on) = (usize::from(lease.request.min_nodes), BTreeSet::new());
        for want in &kinds {
            let guest = Guest { lease: id, rank: 0, request: &lease.request, want };
            let asked = wants.iter().filter(|other| other == want).count();
            let (room, on) = self.fleet.room_for(&guest, &gone, (asked, spread));
            if room < asked {
                return Some(false);
            }
            all_on.extend(on);
        }
        let spread = all_on.len() >= spread;
        (kinds.len() == 1 || !spread).then_some(spread)
    }
}
