//! What must hold of members that are repaired while the others of their gang run on.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use selion_api::agent::MemberEvent;
use selion_api::lease::{LeaseState, OnNodeLoss, Within};
use selion_api::{LeaseId, Reason};
use selion_market::{INTERRUPTED_MS, Input};

use super::bills::{cost_of, reserve_of};
use super::{Entry, Gang};
use crate::check::run_of;
use crate::finding::{Rule, equal, holds, within};
use crate::fleet::{Guest, Look, Place, Run};
use crate::leases::{Lease, Stand};

impl Entry<'_> {
    /// A member that was lost with the node of this entry, or with its agent, by the agent's own word; it is billed here if
    /// it ran, and what was kept for the rest of its time is not kept any more.
    pub(super) fn broken(&mut self, run: Run) {
        let (id, _, rank) = run;
        let now = self.book.now;
        let (is_lost, is_interrupted) = (matches!(self.input, Input::Lost { .. }), self.is_interrupted(run));
        let Some(lease) = self.book.leases.get_mut(&id).filter(|lease| lease.runs(run)) else {
            return self.tell(Some(id), holds(Rule::Repair, false));
        };
        let (renter, rest_ms) = (lease.request.renter, lease.rest_ms(now));
        let asked = lease.request.on_node_loss == OnNodeLoss::Repair && lease.request.within != Within::Node;
        let (may, freed) = (asked && lease.state == LeaseState::Active, self.freed.contains(&run));
        let Some(part) = lease.parts.get_mut(usize::from(rank)) else {
            return;
        };
        part.stand = Stand::Lost;
        let long = part.since.is_some_and(|since| now.since(since) >= INTERRUPTED_MS);
        let lost = freed && (is_lost || is_interrupted && long);
        if part.since.is_some() {
            self.unbilled.insert(run);
        }
        let rest = cost_of(part.rate.0, rest_ms).min(lease.kept);
        lease.kept -= rest;
        let (needs, runs) = (lease.request.min_members, lease.ranks(Stand::With).count());
        self.book.broken.insert(id);
        let purse = self.book.money.purse(renter);
        purse.runs = purse.runs.saturating_sub(rest);
        self.tell(Some(id), holds(Rule::Repair, may && lost));
        self.tell(Some(id), within(Rule::Repair, needs, runs as u64));
    }

    /// Whether the entry's report says that the agent did not outlive this run: it failed, and not for what the agent could
    /// not make or fetch, nor for its owner, nor for want of payment.
    fn is_interrupted(&self, run: Run) -> bool {
        let Input::Report(signed) = self.input else { return false };
        let MemberEvent::Failed { reason } = signed.report.event else { return false };
        let otherwise = matches!(
            reason,
            Reason::StagingFailed
                | Reason::SecretsMissing
                | Reason::SliceFailed
                | Reason::OwnerReclaimed
                | Reason::PaymentRequired
        );
        run_of(&signed.report) == run && !otherwise
    }

    /// Lost members get other places, all of them, with the next number of a run.
    pub(super) fn repaired(&mut self, id: LeaseId, attempt: u32) {
        let halted = self.book.halted();
        let Some(lease) = self.book.leases.get_mut(&id) else {
            return self.tell(Some(id), holds(Rule::Lease, false));
        };
        let lost: BTreeSet<u16> = lease.ranks(Stand::Lost).collect();
        let next = equal(Rule::Lease, u64::from(lease.attempt) + 1, attempt.into());
        let may = lease.state == LeaseState::Active && !lost.is_empty();
        lease.attempt = attempt;
        let nodes = lease.nodes();
        self.gang = Some(Gang {
            lease: id,
            at: self.at,
            nodes,
            lost: Some(lost),
            booked: None,
            ranks: Vec::new(),
            passed: Vec::new(),
        });
        self.tell(Some(id), holds(Rule::Halted, !halted));
        self.tell(Some(id), next);
        self.tell(Some(id), holds(Rule::Repair, may));
    }

    /// A repaired member runs, by its node's word in this entry: it is billed from here on.
    pub(super) fn joined(&mut self, run: Run) {
        let (id, _, rank) = run;
        let now = self.book.now;
        let said = matches!(self.input, Input::Report(signed)
            if run_of(&signed.report) == run && signed.report.event == MemberEvent::Running);
        let lease = self.book.leases.get_mut(&id).filter(|lease| lease.runs(run) && lease.state == LeaseState::Active);
        let part = lease.and_then(|lease| lease.parts.get_mut(usize::from(rank)));
        let Some(part) = part.filter(|part| part.stand == Stand::Joins) else {
            return self.tell(Some(id), holds(Rule::Repair, false));
        };
        part.stand = Stand::With;
        (part.since, part.paid_at) = (Some(now), now);
        let whole =
            self.book.leases.get(&id).is_some_and(|lease| lease.ranks(Stand::With).count() == lease.parts.len());
        if whole {
            self.book.broken.remove(&id);
        }
        self.tell(Some(id), holds(Rule::Repair, said));
    }

    /// A lease of which one member was lost that comes before `other` and could have had this place. Not while room
    /// is kept for one of a higher class, or for another that lost a place.
    pub(super) fn repair_before(&self, other: &Lease, booked: Option<LeaseId>, place: &Place<'_>) -> Option<LeaseId> {
        let book = &*self.book;
        let first = |id: &&LeaseId| {
            let lease = book.leases.get(id)?;
            let mut lost = lease.ranks(Stand::Lost);
            let (rank, None) = (lost.next()?, lost.next()) else {
                return None;
            };
            let request = &lease.request;
            let stands = (request.priority, true);
            let binds = |holder: &Lease| (holder.request.priority, holder.is_broken()) >= stands;
            let kept = booked.and_then(|id| book.leases.get(&id)).is_some_and(binds);
            let want = request.members.get(usize::from(rank))?;
            let guest = Guest { lease: **id, rank, request, want };
            let (_, ask) = book.fleet.admits(place, &guest, &Look { gone: &BTreeSet::new(), also: &[] }).ok()?;
            let rate = ask.0.saturating_add(book.fleet.surcharge(place, book.policy.shadow_permille));
            let dear = want.gpus > 1 || request.max_rate.is_some_and(|max| rate > max.0); // or one GPU is not enough
            let rest_ms = lease.rest_ms(book.now);
            let cost = reserve_of(&book.policy, rate, rest_ms);
            let end = book.now.plus(rest_ms).plus(book.policy.ending_ms);
            let mut nodes = lease.nodes();
            nodes.insert(place.node);
            let fits = nodes.len() >= usize::from(request.min_nodes)
                && book.fleet.are_within(request.within, &nodes)
                && book.fleet.are_near(request.max_latency_us, &nodes).is_ok()
                && !dear;
            let pays = book.money.pays(request.renter, cost, end).is_ok() && book.may_sit(request, 1);
            (request.priority >= other.request.priority && !kept && fits && pays).then_some(())
        };
        book.broken.iter().find(|id| first(id).is_some()).copied()
    }
}
