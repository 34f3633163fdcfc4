//! What the log says of each lease.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use selion_api::lease::{LeaseState, OnNodeLoss};
use selion_api::{Account, Hash32, LeaseId, LeaseRequest, NodeId, Rate, Reason, TimeMs};
use selion_market::Policy;

use crate::bundle::Bundle;
use crate::fleet::Run;

/// How a member stands in its gang.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stand {
    /// With the others.
    With,
    /// It was lost, and the others run on.
    Lost,
    /// It has another place, and does not run there yet.
    Joins,
}

/// One member of the present run.
#[derive(Clone)]
pub(crate) struct Part {
    pub attempt: u32,
    pub node: NodeId,
    pub stand: Stand,
    /// Since when it is billed; `None` also once its last bill has come before that of the others.
    pub since: Option<TimeMs>,
    pub provider: Account,
    /// Of all its GPUs together.
    pub rate: Rate,
    /// How many it has so far.
    pub gpus: u16,
    /// Highest meter that its node signed, in milliseconds.
    pub metered_ms: u64,
    /// The same, each reading within the time that had passed.
    pub used_ms: u64,
    /// What was made owed for it so far.
    pub paid: u128,
    /// When that was last to be made so.
    pub paid_at: TimeMs,
    pub billed: bool,
}

#[derive(Clone)]
pub(crate) struct Lease {
    /// What was asked, for as long as it was extended to.
    pub request: LeaseRequest,
    /// Equal for requests between which only the order of service decides.
    pub alike: Hash32,
    /// What it takes, if that is the same wherever it stands.
    pub size: Option<Bundle>,
    pub state: LeaseState,
    pub attempt: u32,
    /// Members of the present run, by rank.
    pub parts: Vec<Part>,
    /// What the whole duration of the present run costs.
    pub cost: u128,
    /// What of that is still kept.
    pub kept: u128,
    /// When the present run was granted.
    pub granted: TimeMs,
    /// What was free for it, as far as it has not paid for as much.
    pub unpaid: u128,
    /// Sum of the lines of the present run.
    pub billed: u128,
    pub active_since: Option<TimeMs>,
    /// Since when it is in its state.
    pub since: TimeMs,
    /// When its state ends by itself, while it holds something.
    pub until: TimeMs,
    /// Why the last run was stopped.
    pub stopped: Option<Reason>,
    /// For whom it is to be stopped.
    pub stopped_for: Option<LeaseId>,
    /// Keys by which it was made longer.
    pub extended: BTreeSet<Hash32>,
}

impl Lease {
    pub(crate) fn new(request: LeaseRequest, alike: Hash32, size: Option<Bundle>, since: TimeMs) -> Self {
        Self {
            request,
            alike,
            size,
            state: LeaseState::Waiting,
            attempt: 0,
            parts: Vec::new(),
            cost: 0,
            kept: 0,
            granted: since,
            unpaid: 0,
            billed: 0,
            active_since: None,
            since,
            until: since,
            stopped: None,
            stopped_for: None,
            extended: BTreeSet::new(),
        }
    }

    /// True if it waits because a place under it was lost, with its node or to its owner.
    pub(crate) fn is_broken(&self) -> bool {
        self.attempt > 0 && matches!(self.stopped, Some(Reason::NodeLost | Reason::OwnerReclaimed))
    }

    /// True if this is the present run of that member.
    pub(crate) fn runs(&self, (_, attempt, rank): Run) -> bool {
        self.parts.get(usize::from(rank)).is_some_and(|part| part.attempt == attempt && part.stand != Stand::Lost)
    }

    /// The numbers of its members' present runs.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().filter(|part| part.stand != Stand::Lost).map(|part| part.attempt)
    }

    /// The ranks that stand so.
    pub(crate) fn ranks(&self, stand: Stand) -> impl Iterator<Item = u16> {
        let ranks = (0_u16..).zip(&self.parts);
        ranks.filter(move |(_, part)| part.stand == stand).map(|(rank, _)| rank)
    }

    /// Where its members stand or stood, but for those that were lost.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeId> {
        self.parts.iter().filter(|part| part.stand != Stand::Lost).map(|part| part.node).collect()
    }

    /// How long a member that began at `since` may have been billed for by `now`: from its own start to the end of the
    /// lease at most, and what it may take to be stopped then.
    pub(crate) fn billable_ms(&self, since: Option<TimeMs>, now: TimeMs, policy: &Policy) -> u64 {
        let last_ms = self.request.duration_ms.saturating_add(policy.grace_ms);
        let begun = self.active_since.zip(since);
        begun.map_or(0, |(active, since)| active.plus(last_ms).min(now).since(since))
    }

    /// What is left of its time, while it is active, in milliseconds.
    pub(crate) fn rest_ms(&self, now: TimeMs) -> u64 {
        self.active_since.map_or(0, |since| since.plus(self.request.duration_ms).since(now))
    }

    /// True while agents hold something for it and nobody stopped it.
    pub(crate) fn is_running(&self) -> bool {
        use LeaseState::{Active, Held, Preparing, Starting};
        matches!(self.state, Held | Preparing | Starting | Active)
    }

    /// How long its state lasts at most.
    pub(crate) fn lasts_ms(&self, policy: &Policy) -> u64 {
        match self.state {
            LeaseState::Held => policy.hold_ms,
            LeaseState::Preparing => policy.prepare_ms,
            LeaseState::Starting => policy.start_ms,
            LeaseState::Active => self.request.duration_ms,
            LeaseState::Ending => policy.ending_ms,
            LeaseState::Waiting | LeaseState::Ended => 0,
        }
    }

    /// When all that its present run holds is free at the latest, if its agents answer in time. `None` if it has no run:
    /// what is still held of an old one may stay for ever.
    pub(crate) fn free_by(&self, policy: &Policy) -> Option<TimeMs> {
        let Policy { prepare_ms, start_ms, ending_ms, .. } = *policy;
        let all = [prepare_ms, start_ms, self.request.duration_ms, ending_ms];
        let passed = match self.state {
            LeaseState::Waiting | LeaseState::Ended => return None,
            LeaseState::Held => 0,
            LeaseState::Preparing => 1,
            LeaseState::Starting => 2,
            LeaseState::Active => 3,
            LeaseState::Ending => 4,
        };
        Some(all.into_iter().skip(passed).fold(self.until, TimeMs::plus))
    }

    pub(crate) fn may_go(&self, to: LeaseState) -> bool {
        use LeaseState::{Active, Ended, Ending, Held, Preparing, Starting, Waiting};
        match self.state {
            Waiting => matches!(to, Held | Ended),
            Held => matches!(to, Preparing | Ending),
            Preparing => matches!(to, Starting | Ending),
            Starting => matches!(to, Active | Ending),
            Active => to == Ending,
            // A lease that was to wait again, and was released meanwhile, says so by ending once more.
            Ending if to == Waiting => self.request.on_node_loss != OnNodeLoss::End,
            Ending => matches!(to, Ending | Ended),
            Ended => false,
        }
    }
}
