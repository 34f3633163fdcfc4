//! What must hold of each effect of an entry, and of all of them together.

mod bills;
mod extends;
mod grants;
mod pays;
mod reclaims;
mod repairs;
mod room;
mod stops;
mod uses;
mod words;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use selion_api::agent::MemberEvent;
use selion_api::lease::LeaseState;
use selion_api::{Account, LeaseId, NodeId, Reason};
use selion_market::{Effect, Input};

use crate::bundle;
use crate::check::{Checker, run_of};
use crate::fair::Shares;
use crate::finding::{Broken, Finding, Rule, Verdict, equal, holds, within};
use crate::fleet::Run;
use crate::leases::Lease;
use crate::line;

/// A run that is being granted.
struct Gang {
    lease: LeaseId,
    at: Option<usize>,
    nodes: BTreeSet<NodeId>,
    /// Members that are being repaired and have no place yet; `None` if it is a new run.
    lost: Option<BTreeSet<u16>>,
    /// For whom room was kept, itself or another.
    booked: Option<LeaseId>,
    /// Members that were granted here, in order.
    ranks: Vec<u16>,
    /// Who waits and comes before it, with both keys.
    passed: Vec<(LeaseId, u128, u128)>,
}

/// An entry under check.
pub(crate) struct Entry<'a> {
    book: &'a mut Checker,
    seq: u64,
    input: &'a Input,
    at: Option<usize>,
    findings: Vec<Finding>,
    gang: Option<Gang>,
    /// Shares before the next grant; worked out when first asked for. Within an entry nothing is freed after a grant.
    shares: Option<Shares>,
    /// By renter, what grants must keep, and what was kept.
    reserves: BTreeMap<Account, (u128, u128)>,
    /// Who was stopped, for whom, and by which effect.
    stops: Vec<(LeaseId, LeaseId, Option<usize>)>,
    /// Pairs for whom something was made owed and no voucher is due yet.
    unvouched: BTreeSet<(Account, Account)>,
    /// What was freed.
    freed: BTreeSet<Run>,
    /// Members that were lost, and whose last bill must come in this entry.
    unbilled: BTreeSet<Run>,
    /// Out of whose run money is being made owed.
    paying: Option<LeaseId>,
}

impl<'a> Entry<'a> {
    pub(crate) fn new(book: &'a mut Checker, seq: u64, input: &'a Input) -> Self {
        Self {
            book,
            seq,
            input,
            at: None,
            findings: Vec::new(),
            gang: None,
            shares: None,
            reserves: BTreeMap::new(),
            stops: Vec::new(),
            unvouched: BTreeSet::new(),
            freed: BTreeSet::new(),
            unbilled: BTreeSet::new(),
            paying: Self::told_of(input),
        }
    }

    /// The lease that the entry's report is about.
    fn told_of(input: &Input) -> Option<LeaseId> {
        match input {
            Input::Report(signed) => Some(signed.report.lease),
            _ => None,
        }
    }

    pub(crate) fn check(mut self, effects: &[Effect]) -> Vec<Finding> {
        for (at, effect) in effects.iter().enumerate() {
            if !matches!(effect, Effect::Granted(_)) {
                self.close_gang();
            }
            self.at = Some(at);
            match effect {
                Effect::Moved { lease, state, reason, attempt } => self.moved(*lease, *state, *reason, *attempt),
                Effect::Granted(grant) => self.granted(grant),
                Effect::Freed { lease, attempt, member } => self.freed((*lease, *attempt, *member)),
                Effect::Billed(line) => self.billed(line),
                Effect::Moneyed(transfer) => self.moneyed(transfer),
                Effect::VoucherDue(due) => self.voucher_due(due),
                Effect::NodeChanged { node, reason } => self.node_changed(*node, *reason),
                Effect::Booked { lease, at } => self.booked(*lease, *at),
                Effect::Preempted { lease, attempt, by } => self.preempted(*lease, *attempt, *by),
                Effect::Reclaimed { node, gpu, by } => self.reclaimed(*node, *gpu, *by),
                Effect::Extended { lease, duration_ms } => self.extended(*lease, *duration_ms),
                Effect::Broken { lease, attempt, member } => self.broken((*lease, *attempt, *member)),
                Effect::Repaired { lease, attempt } => self.repaired(*lease, *attempt),
                Effect::Joined { lease, attempt, member } => self.joined((*lease, *attempt, *member)),
                Effect::Illegal { lease, .. } => self.tell(Some(*lease), holds(Rule::Transition, false)),
                Effect::Refused(_) => {}
            }
        }
        self.close_gang();
        self.at = None;
        self.end(effects);
        self.findings
    }

    fn tell(&mut self, lease: Option<LeaseId>, verdict: Verdict) {
        if let Err(Broken { rule, need, have }) = verdict {
            self.findings.push(Finding { entry: self.seq, effect: self.at, rule, lease, need, have });
        }
    }

    fn state_of(&self, id: LeaseId) -> Option<LeaseState> {
        self.book.leases.get(&id).map(|lease| lease.state)
    }

    fn moved(&mut self, id: LeaseId, to: LeaseState, reason: Option<Reason>, attempt: u32) {
        let Some(lease) = self.book.leases.get(&id) else {
            return self.born(id, to, attempt);
        };
        let from = lease.state;
        let follows = holds(Rule::Transition, lease.may_go(to));
        let present = equal(Rule::Lease, u64::from(lease.attempt) + u64::from(to == LeaseState::Held), attempt.into());
        let for_another = matches!(reason, Some(Reason::Preempted | Reason::QuotaReclaimed));
        let stopped = holds(Rule::Preempt, !for_another || lease.stopped_for.is_some());
        self.tell(Some(id), follows);
        self.tell(Some(id), present);
        self.prepared(id, to, reason);
        if reason == Some(Reason::Released) && (to == LeaseState::Ending || from == LeaseState::Waiting) {
            let said = holds(Rule::Released, self.is_released(id));
            self.tell(Some(id), said);
        }
        if to == LeaseState::Ending {
            self.tell(Some(id), stopped);
            let due = reason != Some(Reason::OwnerReclaimed) || self.is_due(id);
            self.tell(Some(id), holds(Rule::Reclaim, due));
            let unpaid = reason != Some(Reason::PaymentRequired) || self.is_unpaid(id);
            self.tell(Some(id), holds(Rule::Paid, unpaid));
            let whole = reason != Some(Reason::Completed) || !self.book.broken.contains(&id);
            self.tell(Some(id), holds(Rule::Repair, whole));
            self.book.broken.remove(&id);
            let limited = reason.is_none_or(|reason| !reason.is_limit() || self.is_limited(id, reason));
            self.tell(Some(id), holds(Rule::Limit, limited));
        }
        match to {
            LeaseState::Held => self.open_gang(id),
            LeaseState::Ended | LeaseState::Waiting if from == LeaseState::Ending => {
                self.run_over(id);
                self.paying = Self::told_of(self.input);
            }
            _ => {}
        }
        let now = self.book.now;
        let Some(lease) = self.book.leases.get_mut(&id) else {
            return;
        };
        self.book.limits.moved(id, lease.request.renter, from, to, now);
        if from == LeaseState::Waiting {
            self.book.line.leave(id, lease);
        }
        if to == LeaseState::Waiting {
            self.book.line.join(id, lease);
        }
        match to {
            LeaseState::Active => {
                lease.active_since = Some(now);
                lease.parts.iter_mut().for_each(|part| (part.since, part.paid_at) = (Some(now), now));
            }
            LeaseState::Ending => lease.stopped = reason,
            LeaseState::Held => (lease.attempt, lease.granted) = (attempt, now),
            _ => {}
        }
        // Who was to wait again, and was released meanwhile, stops no later for that.
        let goes_on = (from, to) == (LeaseState::Ending, LeaseState::Ending);
        lease.state = to;
        lease.since = now;
        if !goes_on {
            lease.until = now.plus(lease.lasts_ms(&self.book.policy));
        }
    }

    /// A lease is born waiting, of the request that its id names.
    fn born(&mut self, id: LeaseId, to: LeaseState, attempt: u32) {
        let here = id.seq == self.seq && Some(id.index as usize) == self.at;
        let Input::Request(asked) = self.input else {
            return self.tell(Some(id), holds(Rule::Lease, false));
        };
        self.tell(Some(id), holds(Rule::Lease, here && to == LeaseState::Waiting && attempt == 0));
        let grouped = !self.book.policy.groups.is_empty();
        let size = if grouped { bundle::size(&self.book.fleet, &asked.request) } else { None };
        let lease = Lease::new(asked.request.clone(), line::alike(&asked.request), size, self.book.now);
        self.book.line.join(id, &lease);
        self.book.leases.insert(id, lease);
        let room = self.book.limits.born(asked.request.renter, &self.book.policy);
        self.tell(Some(id), room);
    }

    /// Only the node that holds a slot gives it back: with its word, by being lost, or by coming back without it.
    fn freed(&mut self, run: Run) {
        let said = match self.input {
            Input::Lost { node, .. } => Some(*node),
            Input::Linked(signed) => {
                // It applies what it is told before it prepares anything: only what is over is gone by that.
                let lease = self.book.leases.get(&run.0);
                let over = lease.is_none_or(|lease| {
                    !lease.runs(run) || matches!(lease.state, LeaseState::Ended | LeaseState::Waiting)
                });
                over.then_some(signed.hello.spec.node)
            }
            Input::Report(signed) => {
                let report = &signed.report;
                (report.event.is_last() && run_of(report) == run).then_some(report.node)
            }
            _ => None,
        };
        let held = self.book.fleet.free(run);
        self.freed.insert(run);
        self.tell(Some(run.0), holds(Rule::Freed, held.is_some() && held == said));
    }

    /// Whether the input is a node's word that the lease's command reached this limit.
    fn is_limited(&self, id: LeaseId, limit: Reason) -> bool {
        matches!(self.input, Input::Report(signed) if signed.report.lease == id
            && matches!(signed.report.event, MemberEvent::Limited { reason, .. } if reason == limit))
    }

    fn node_changed(&mut self, node: NodeId, reason: Option<Reason>) {
        self.book.fleet.changed.insert(node);
        if let Some(machine) = self.book.fleet.machines.get_mut(&node) {
            machine.told_closed = reason.is_some();
        } else {
            self.tell(None, holds(Rule::Schedulable, false));
        }
    }

    /// What holds of the entry as a whole.
    fn end(&mut self, effects: &[Effect]) {
        for (need, have) in core::mem::take(&mut self.reserves).into_values() {
            self.tell(None, within(Rule::Reserve, need, have));
            self.tell(None, within(Rule::Reserve, have, need));
        }
        let balance = self.book.money.balance();
        self.tell(None, balance);
        let came = self.book.money.all_came();
        self.tell(None, came);
        let vouched = equal(Rule::Voucher, 0, self.unvouched.len() as u64);
        self.tell(None, vouched);
        let unbilled = equal(Rule::Bill, 0, self.unbilled.len() as u64);
        self.tell(None, unbilled);
        let fleet = &mut self.book.fleet;
        let changed = core::mem::take(&mut fleet.changed);
        let wrong = changed.iter().filter_map(|node| fleet.machines.get(node));
        let wrong = wrong.filter(|machine| fleet.open(machine) == machine.told_closed).count();
        let left = match self.input {
            Input::Lost { node, .. } => fleet.machines.get(node).map_or(0, |machine| machine.taken.len()),
            _ => 0,
        };
        self.tell(None, equal(Rule::Schedulable, 0, wrong as u64));
        self.tell(None, equal(Rule::Left, 0, left as u64));
        self.nothing_stays(effects);
        self.nothing_runs_unpaid(effects);
        self.stops_were_needed();
    }
}
