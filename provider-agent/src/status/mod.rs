//! What the running agent of a state directory is at: asked over a socket in it, and answered as it is at that moment.
//!
//! The agent reads nothing from who connects, so that there is nothing to say to it; only who may enter the state
//! directory can connect. What happened lately is in the diary, which is there also when no agent runs.

mod ask;
mod board;
mod diary;
mod gauge;
mod serve;

pub(crate) use ask::pid;
pub use ask::{StatusError, ask};
pub use diary::last_events;
pub use gauge::{Gauge, Use};

pub(crate) use board::Board;
pub(crate) use diary::Diary;
pub(crate) use gauge::Sample;
pub(crate) use serve::{Desk, listen};

use selion_api::{Account, Amount, GpuId, NodeSpec, Reason, TimeMs};
use serde::{Deserialize, Serialize};

use crate::cards::Cards;
use crate::gpus::Reading;
use crate::member_key::MemberKey;

/// The socket in the state directory.
pub(crate) const SOCKET: &str = "status.sock";

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Release of the agent.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// When it started, by its own clock.
    pub since_ms: TimeMs,
    /// When this was said.
    pub at_ms: TimeMs,
    /// Scheme, host and port of the controller.
    pub controller: String,
    /// The link to it.
    pub link: LinkStatus,
    /// What the node says it is: cards and asks, sandbox, features.
    pub spec: NodeSpec,
    /// Which cards are offered, and what became of the rest.
    pub cards: Cards,
    /// What each card on offer shows now.
    pub readings: Vec<(GpuId, Reading)>,
    /// Members that are not over.
    pub members: Vec<MemberStatus>,
    /// Money.
    pub earnings: Earnings,
}

/// The link to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Whether the controller takes this node for linked.
    pub linked: bool,
    /// Since when that is so.
    pub since_ms: TimeMs,
    /// Why not, as far as it is known.
    pub why: Option<String>,
    /// The controller's reason, if it will not have this node.
    pub refused: Option<Reason>,
}

/// A member on this node. Nothing of its command is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Which.
    pub member: MemberKey,
    /// Who pays.
    pub renter: Account,
    /// What was last stated of it: `accepted`, `ready`, `running` and so on.
    pub phase: String,
    /// Since when that is so.
    pub since_ms: TimeMs,
    /// Its meter, in milliseconds.
    pub metered_ms: u64,
    /// Its cards.
    pub gpus: Vec<GpuId>,
    /// Its place on each, as one word.
    pub slot: String,
    /// What it is held to.
    pub limits: InForce,
    /// What it uses; `None` before it runs.
    pub uses: Option<Use>,
}

/// Limits that are in force. One that the box does not hold here is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// Processor time, in thousandths of a core.
    pub cpu_milli: Option<u32>,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Bytes that may be written.
    pub disk_bytes: Option<u64>,
    /// Megabits a second in each direction.
    pub net_mbps: Option<u32>,
    /// Running time, in milliseconds.
    pub max_run_ms: u64,
}

/// What the owner is paid, and what he is owed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earnings {
    /// Vouchers in the state directory: one for each renter.
    pub vouchers: usize,
    /// What they promise in all, over all of the owner's nodes.
    pub promised: Amount,
    /// Worth of the use of this node that no voucher covers.
    pub unsigned: Amount,
    /// What the chain has of it; `None` if it did not answer in time.
    pub claimed: Option<Claimed>,
}

/// What the vault has of the owner, over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// Paid for vouchers, after the operator's fee.
    pub earned: Amount,
    /// The operator's fee beside it.
    pub fee: Amount,
    /// Taken out of the vault.
    pub paid_out: Amount,
}
