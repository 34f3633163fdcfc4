//! What must hold of a lease whose money leaves.

use alloc::collections::BTreeSet;

use selion_api::agent::MemberEvent;
use selion_api::chain::ChainEvent;
use selion_api::lease::LeaseState;
use selion_api::{LeaseId, Reason};
use selion_market::{Effect, Input};

use super::Entry;
use super::bills::cost_of;
use super::reclaims::MAX_DEADLINES;
use crate::finding::{Rule, holds};

impl Entry<'_> {
    /// True if a running lease is to be stopped for want of money now: its renter's key is revoked, what he has in the vault
    /// is about to leave, or what was kept for it is used up by what its node metered.
    pub(super) fn is_unpaid(&self, id: LeaseId) -> bool {
        let book = &*self.book;
        let Some(lease) = book.leases.get(&id) else {
            return false;
        };
        let (renter, margin_ms) = (lease.request.renter, book.policy.claim_margin_ms);
        let revoked = matches!(self.input, Input::Block(block) if block.events.iter().any(|event| {
            matches!(event, ChainEvent::KeyRevoked { renter: whose, key, .. } if (*whose, *key) == (renter, book.delegate))
        }));
        let leaves = book.money.paid_until(renter, margin_ms).is_some_and(|until| until <= book.now);
        // What this entry's block brings comes after what was due before it.
        let left = book.money.unpaid(margin_ms, book.now).any(|short| short == renter);
        let told = match self.input {
            Input::Report(signed) => signed.report.lease == id,
            Input::Lost { .. } => true,
            _ => false,
        };
        let used_up = told && (lease.kept == 0 || book.money.keeps_nothing(renter));
        // The agent ends by itself what no voucher covers, and says so.
        let by_agent = matches!(self.input, Input::Report(signed) if signed.report.lease == id
            && matches!(signed.report.event, MemberEvent::Failed { reason: Reason::PaymentRequired }));
        revoked || leaves || left || used_up || by_agent
    }

    /// Money was made owed for the member that the entry is about.
    pub(super) fn paid(&mut self, id: LeaseId, amount: u128) {
        let Input::Report(signed) = self.input else {
            return;
        };
        let rank = usize::from(signed.report.member);
        let lease = self.book.leases.get_mut(&id).filter(|_| signed.report.lease == id);
        if let Some(part) = lease.and_then(|lease| lease.parts.get_mut(rank)) {
            part.paid += amount;
        }
    }

    /// Nothing goes on running on money that is about to leave, and a lease whose use could not be made owed when it was due
    /// does not run on. To be asked when the renters' money is counted.
    pub(super) fn nothing_runs_unpaid(&mut self, effects: &[Effect]) {
        let book = &*self.book;
        let unpaid: BTreeSet<_> = book.money.unpaid(book.policy.claim_margin_ms, book.now).collect();
        let moves = effects.iter().filter(|effect| matches!(effect, Effect::Moved { .. })).count();
        if !unpaid.is_empty() && moves < MAX_DEADLINES {
            let runs = book.leases.iter().find(|(_, it)| it.is_running() && unpaid.contains(&it.request.renter));
            let runs = runs.map(|(id, _)| *id);
            self.tell(runs, holds(Rule::Paid, runs.is_none()));
        }
        let Input::Report(signed) = self.input else {
            return;
        };
        let report = &signed.report;
        let refused = effects.iter().any(|effect| matches!(effect, Effect::Refused(_)));
        if refused || report.event != MemberEvent::Metered {
            return;
        }
        let (now, voucher_ms) = (self.book.now, self.book.policy.voucher_ms);
        let lease = self.book.leases.get_mut(&report.lease).filter(|lease| lease.state == LeaseState::Active);
        let part = lease.and_then(|lease| lease.parts.get_mut(usize::from(report.member)));
        let Some(part) = part.filter(|part| part.attempt == report.attempt && now.since(part.paid_at) >= voucher_ms)
        else {
            return;
        };
        part.paid_at = now;
        let all = part.paid >= cost_of(part.rate.0, part.used_ms);
        self.tell(Some(report.lease), holds(Rule::Paid, all));
    }
}
