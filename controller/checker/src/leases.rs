//! What the log says of each lease.

use alloc::vec::Vec;

use selion_api::lease::{LeaseState, OnNodeLoss};
use selion_api::{Account, Hash32, LeaseId, LeaseRequest, Rate, Reason, TimeMs};

/// One member of the present run.
#[derive(Clone)]
pub(crate) struct Part {
    pub provider: Account,
    pub rate: Rate,
    /// Highest meter that its node signed, in milliseconds.
    pub metered_ms: u64,
    pub billed: bool,
}

#[derive(Clone)]
pub(crate) struct Lease {
    pub request: LeaseRequest,
    /// Equal for requests between which only the order of service decides.
    pub alike: Hash32,
    pub state: LeaseState,
    pub attempt: u32,
    /// Members of the present run, by rank.
    pub parts: Vec<Part>,
    /// What the whole duration of the present run costs.
    pub cost: u128,
    /// What of that is still kept.
    pub kept: u128,
    /// Sum of the lines of the present run.
    pub billed: u128,
    pub active_since: Option<TimeMs>,
    /// Since when it is in its state.
    pub since: TimeMs,
    /// Why the last run was stopped.
    pub stopped: Option<Reason>,
    /// For whom it is to be stopped.
    pub stopped_for: Option<LeaseId>,
}

impl Lease {
    pub(crate) fn new(request: LeaseRequest, alike: Hash32, since: TimeMs) -> Self {
        Self {
            request,
            alike,
            state: LeaseState::Waiting,
            attempt: 0,
            parts: Vec::new(),
            cost: 0,
            kept: 0,
            billed: 0,
            active_since: None,
            since,
            stopped: None,
            stopped_for: None,
        }
    }

    /// True if it waits because a place under it was lost, with its node or to its owner.
    pub(crate) fn is_broken(&self) -> bool {
        self.attempt > 0 && matches!(self.stopped, Some(Reason::NodeLost | Reason::OwnerReclaimed))
    }

    /// True while agents hold something for it and nobody stopped it.
    pub(crate) fn is_running(&self) -> bool {
        use LeaseState::{Active, Held, Preparing, Starting};
        matches!(self.state, Held | Preparing | Starting | Active)
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
