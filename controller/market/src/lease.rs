//! The life of a lease: which state may follow which, and what each transition does.

use selion_api::lease::{BillLine, LeaseState, OnNodeLoss};
use selion_api::{Amount, LeaseId, Reason, TimeMs};

use crate::booking;
use crate::effect::Effect;
use crate::input::Policy;
use crate::state::{Lease, Member, Progress};
use crate::step::{Step, Wake};

/// Ended leases are kept this long, so that late reports find them: a day in milliseconds.
pub const KEEP_ENDED_MS: u64 = 24 * selion_api::unit::MS_PER_HOUR;

/// A transition that is not in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal {
    /// Where the lease stood.
    pub from: LeaseState,
    /// Where it was to go.
    pub to: LeaseState,
}

/// `to`, if it may follow `from`.
///
/// # Errors
///
/// [`Illegal`] if it may not.
pub fn follow(from: LeaseState, to: LeaseState) -> Result<LeaseState, Illegal> {
    use LeaseState::{Active, Ended, Ending, Held, Preparing, Starting, Waiting};
    match (from, to) {
        (Waiting, Held | Ended)
        | (Held, Preparing | Ending)
        | (Preparing, Starting | Ending)
        | (Starting, Active | Ending)
        | (Active, Ending)
        | (Ending, Waiting | Ended) => Ok(to),
        (from, to) => Err(Illegal { from, to }),
    }
}

/// True while agents hold something for the lease and it is to go on.
#[must_use]
pub fn is_running(state: LeaseState) -> bool {
    use LeaseState::{Active, Held, Preparing, Starting};
    matches!(state, Held | Preparing | Starting | Active)
}

impl Lease {
    fn all(&self, at_least: Progress) -> bool {
        self.members.iter().all(|member| member.progress >= at_least)
    }

    /// When an active lease ends by itself, whatever comes before that.
    #[must_use]
    pub fn expires(&self) -> Option<TimeMs> {
        Some(self.active_since?.plus(self.request.duration_ms))
    }

    /// When its state ends by itself, whatever comes before that.
    #[must_use]
    pub fn ends(&self) -> Option<TimeMs> {
        let otherwise = self.notice.map(|notice| notice.otherwise);
        let expires = self.broken.as_ref().and_then(|_| self.expires());
        expires.or(otherwise).or(self.deadline)
    }

    /// Most milliseconds of a member that may be billed at `at`: the log's interval since its meter counts, and never
    /// more than the lease lasts and its command may take to be stopped.
    #[must_use]
    pub fn billable_cap_ms(&self, member: &Member, at: TimeMs, policy: &Policy) -> u64 {
        let until = self.expires().map(|expires| expires.plus(policy.grace_ms).min(at));
        until.zip(member.since).map_or(0, |(until, since)| until.since(since))
    }

    /// How long a member has from its own start to the end of the lease, in milliseconds.
    pub(crate) fn time_of_ms(&self, member: &Member) -> u64 {
        self.expires().zip(member.since).map_or(0, |(expires, since)| expires.since(since))
    }
}

impl Step<'_> {
    /// Moves a lease to `to`, with the time at which that state ends by itself.
    pub(crate) fn enter(&mut self, id: LeaseId, to: LeaseState, reason: Option<Reason>, ends: Option<TimeMs>) {
        let Some(lease) = self.state.leases.get(&id) else {
            return;
        };
        if let Err(Illegal { from, to }) = follow(lease.state, to) {
            // It changes nothing, and it is told: whoever reads the log sees that the machine was wrong.
            return self.emit(Effect::Illegal { lease: id, from, to });
        }
        self.count_preparing(id, to, reason);
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        let end_before = booking::end_of(&self.state.policy, lease);
        lease.state = to;
        lease.since = self.at;
        lease.reason = reason;
        if !is_running(to) {
            lease.notice = None;
            lease.broken = None;
            self.state.broken.remove(&id);
        }
        lease.position = 0;
        lease.nearest = None;
        let attempt = lease.attempt;
        self.state.set_deadline(id, ends);
        if to == LeaseState::Waiting {
            self.state.line_up(id);
        } else {
            self.state.leave_line(id);
        }
        self.state.note_end(id, end_before);
        self.touched.leases.insert(id);
        self.emit(Effect::Moved { lease: id, state: to, reason, attempt });
    }

    /// Goes as far as the members' progress allows.
    pub(crate) fn advance(&mut self, id: LeaseId) {
        use LeaseState::{Active, Held, Preparing, Starting};
        loop {
            let Some(lease) = self.state.leases.get(&id) else {
                return;
            };
            let policy = &self.state.policy;
            let (to, lasts_ms) = match lease.state {
                Held if lease.all(Progress::Accepted) => (Preparing, policy.prepare_ms),
                Preparing if lease.all(Progress::Ready) => (Starting, policy.start_ms),
                Starting if lease.all(Progress::Running) => (Active, lease.request.duration_ms),
                Active if lease.broken.is_none() && lease.all(Progress::Gone) => {
                    return self.end(id, Reason::Completed, false);
                }
                _ => return,
            };
            let ends = self.at.plus(lasts_ms);
            self.enter(id, to, None, Some(ends));
            match to {
                Starting => self.touch_desired(id),
                Active => self.start_meter(id),
                _ => {}
            }
        }
    }

    fn start_meter(&mut self, id: LeaseId) {
        let at = self.at;
        if let Some(lease) = self.state.leases.get_mut(&id) {
            lease.active_since = Some(at);
            for member in &mut lease.members {
                member.since = Some(at);
                member.vouched_at = at;
            }
        }
    }

    pub(crate) fn touch_desired(&mut self, id: LeaseId) {
        if let Some(lease) = self.state.leases.get(&id) {
            let here = lease.members.iter().filter(|member| member.progress != Progress::Gone);
            self.touched.desired.extend(here.map(|member| member.node));
        }
    }

    /// Stops what runs of a lease; it is over when every member is gone.
    pub(crate) fn end(&mut self, id: LeaseId, reason: Reason, requeue: bool) {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        if !is_running(lease.state) {
            return;
        }
        lease.requeue = requeue;
        let ends = self.at.plus(self.state.policy.ending_ms);
        self.touch_desired(id);
        self.enter(id, LeaseState::Ending, Some(reason), Some(ends));
        self.wake_up(Wake::All);
        self.finish_if_gone(id);
    }

    /// Ends a lease because a node under it was lost; it waits again if it asked for that.
    pub(crate) fn end_lost(&mut self, id: LeaseId) {
        self.end(id, Reason::NodeLost, self.waits_again(id));
        self.finish_if_gone(id);
    }

    /// True if the lease asked to wait again when it loses a place by no fault of its own.
    pub(crate) fn waits_again(&self, id: LeaseId) -> bool {
        self.state.leases.get(&id).is_some_and(|lease| lease.request.on_node_loss != OnNodeLoss::End)
    }

    /// Notes that a member is over and frees its slot.
    pub(crate) fn gone(&mut self, id: LeaseId, rank: u16) {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        let Some(member) = lease.members.get_mut(usize::from(rank)) else {
            return;
        };
        member.progress = Progress::Gone;
        let (node, attempt) = (member.node, member.attempt);
        self.touched.leases.insert(id);
        self.free_slot(node, id, rank, attempt);
        self.heed(id);
    }

    /// Frees what one run of a lease holds on a node, if it still does.
    pub(crate) fn free_slot(&mut self, node: selion_api::NodeId, id: LeaseId, rank: u16, attempt: u32) {
        if !self.state.unhold(node, id, rank, attempt) {
            return;
        }
        self.touched.nodes.insert(node);
        self.touched.desired.insert(node);
        self.wake_up(Wake::All);
        self.emit(Effect::Freed { lease: id, attempt, member: rank });
    }

    /// Ends a lease that is ending once all its members are gone.
    pub(crate) fn finish_if_gone(&mut self, id: LeaseId) {
        let done = self
            .state
            .leases
            .get(&id)
            .is_some_and(|lease| lease.state == LeaseState::Ending && lease.all(Progress::Gone));
        if done {
            self.finish(id);
        }
    }

    /// Fixes the bill of the run, gives back what is left of the reserve, and ends the lease or lets it wait again.
    /// A slot whose agent has not confirmed its stop stays taken.
    pub(crate) fn finish(&mut self, id: LeaseId) {
        let Some(lease) = self.state.leases.get(&id) else {
            return;
        };
        let Some(reason) = lease.reason.filter(|_| lease.state == LeaseState::Ending) else {
            return;
        };
        let (attempt, requeue) = (lease.attempt, lease.requeue);
        let amount = self.settle(id);
        self.forgive(id, reason, amount);
        let at = self.at;
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        lease.past.push((attempt, reason, amount));
        lease.requeue = false;
        if !requeue {
            self.enter(id, LeaseState::Ended, Some(reason), None);
            self.state.forget.insert((at.plus(KEEP_ENDED_MS), id));
            return;
        }
        let patience = match lease.request.wait_ms {
            0 => lease.request.duration_ms,
            wait_ms => wait_ms,
        };
        lease.wait_until = lease.wait_until.max(at.plus(patience));
        lease.members.clear();
        lease.active_since = None;
        let until = lease.wait_until;
        self.enter(id, LeaseState::Waiting, Some(reason), Some(until));
        self.wake_up(Wake::All);
    }

    /// The final bill of a run: one line for each member whose meter ever counted, but for those that have theirs. Tells
    /// the sum of all.
    fn settle(&mut self, id: LeaseId) -> Amount {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return Amount::ZERO;
        };
        let mut total = core::mem::take(&mut lease.fixed);
        let ranks = u16::try_from(lease.members.len()).unwrap_or(u16::MAX);
        for rank in 0..ranks {
            total = total.saturating_add(self.bill(id, rank));
        }
        self.vouch();
        let rest = self.state.leases.get(&id).map_or(Amount::ZERO, |lease| lease.reserved);
        self.give_back(id, rest);
        total
    }

    /// The final line of a member, if its meter ever counted: what it says is owed, as far as its money did not leave. Tells
    /// the amount.
    pub(crate) fn bill(&mut self, id: LeaseId, rank: u16) -> Amount {
        let Some(lease) = self.state.leases.get(&id) else {
            return Amount::ZERO;
        };
        let Some(member) = lease.members.get(usize::from(rank)).filter(|member| member.since.is_some()) else {
            return Amount::ZERO;
        };
        let amount = member.rate.bill(member.billable_ms);
        let line = BillLine {
            lease: id,
            attempt: member.attempt,
            member: rank,
            renter: lease.request.renter,
            provider: member.provider,
            rate: member.rate,
            billable_ms: member.billable_ms,
            amount,
        };
        self.emit(Effect::Billed(line));
        self.owe(id, rank);
        amount
    }

    /// A deadline of a lease has come.
    pub(crate) fn deadline(&mut self, id: LeaseId) {
        let Some(lease) = self.state.leases.get(&id) else {
            return;
        };
        if lease.deadline < lease.ends() {
            let notice = lease.notice.filter(|notice| Some(notice.by) == lease.deadline);
            let reason = notice.map_or(Reason::NodeLost, |notice| notice.reason);
            return self.end(id, reason, reason != Reason::PaymentRequired && self.waits_again(id));
        }
        match lease.state {
            LeaseState::Waiting => self.drop_waiting(id, Reason::WaitedTooLong),
            LeaseState::Held | LeaseState::Preparing => self.end(id, Reason::PrepareTimeout, false),
            LeaseState::Starting => self.end(id, Reason::StartTimeout, false),
            LeaseState::Active => self.end(id, Reason::Expired, false),
            LeaseState::Ending => self.finish(id),
            LeaseState::Ended => {}
        }
    }

    /// Ends a lease that waits: it holds nothing.
    pub(crate) fn drop_waiting(&mut self, id: LeaseId, reason: Reason) {
        self.enter(id, LeaseState::Ended, Some(reason), None);
        self.state.forget.insert((self.at.plus(KEEP_ENDED_MS), id));
        let booked = self.state.booking.as_ref().is_some_and(|booking| booking.lease == id);
        self.wake_up(if booked { Wake::All } else { Wake::Order });
    }
}
