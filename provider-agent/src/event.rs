//! What the agent tells whoever runs it.

use selion_api::agent::MemberEvent;
use selion_api::slice::Sandbox;
use selion_api::{Account, Amount, NodeId, Reason};
use serde::Serialize;

use crate::cards::Cards;
use crate::member_key::MemberKey;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The agent is up, not yet linked.
    Up {
        /// The node.
        node: NodeId,
        /// Its owner.
        provider: Account,
        /// How members are kept apart.
        sandbox: Sandbox,
        /// GPUs on offer.
        gpus: usize,
    },
    /// Which cards are offered, told at the start.
    Cards(Cards),
    /// The controller accepted the hello.
    Linked,
    /// The link ended; the agent connects again.
    LinkLost {
        /// Why.
        why: String,
    },
    /// The controller will not have this node.
    Refused {
        /// Its reason.
        reason: Reason,
        /// What to do.
        detail: String,
    },
    /// A report was made.
    Member {
        /// About whom.
        member: MemberKey,
        /// `accepted`, `ready`, `running`, `metered`, `exited`, `stopped` or `failed`.
        what: &'static str,
        /// The meter in milliseconds.
        metered_ms: u64,
    },
    /// A voucher is on disk.
    Voucher {
        /// Who pays.
        renter: Account,
        /// The pair's total.
        cumulative: Amount,
    },
    /// The agent is stopping its members.
    Stopping,
}

/// The event's word.
#[must_use]
pub fn word(event: &MemberEvent) -> &'static str {
    match event {
        MemberEvent::Accepted => "accepted",
        MemberEvent::Ready => "ready",
        MemberEvent::Running => "running",
        MemberEvent::Metered => "metered",
        MemberEvent::Exited { .. } => "exited",
        MemberEvent::Stopped { .. } => "stopped",
        MemberEvent::Failed { .. } => "failed",
        MemberEvent::Limited { .. } => "limited",
    }
}
