//! Quotes as JSON: what a lease would get and cost, before it is asked for.

use alloc::vec::Vec;

use super::lease::StagedView;
use crate::blocking::Blocking;
use crate::id::{Account, GpuId, NodeId};
use crate::lease::NearestMiss;
use crate::reason::Reason;
use crate::slice::{IsolationClass, Slot};
use crate::unit::{Amount, Rate, TimeMs};

/// `POST /v1/leases?dry_run=true`: what the request would get as of the entry in the response header. Nothing is kept
/// for it. One that would be refused gets the problem that it would get.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(tag = "would", rename_all = "snake_case")]
pub enum Quote {
    /// It would be placed at once.
    Start {
        /// What it costs.
        price: QuotedPrice,
        /// Where, in order of rank.
        places: Vec<QuotedPlace>,
    },
    /// It would wait.
    Wait {
        /// What it costs at least: in an empty fleet, each member at its cheapest.
        price: QuotedPrice,
        /// Place in the order of service, from 1.
        position: u64,
        /// Why.
        reason: Reason,
        /// The candidate that came closest.
        nearest: Option<NearestMiss>,
        /// When it is expected to start, as in the placement of a waiting lease.
        starts_ms: Option<TimeMs>,
        /// Least set of its constraints without which it would fit; absent if no such set is known.
        blocking: Option<Blocking>,
    },
}

/// What a lease costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct QuotedPrice {
    /// For the whole duration. Less is billed if it ends earlier.
    pub total: Amount,
    /// What is reserved of the deposit when it is placed: the total and the time that a stop may take, rounded up, for no
    /// less than the pool's least time. What is not billed comes back.
    pub reserve: Amount,
    /// Per hour, all members together.
    pub hourly: Rate,
    /// The operator's part of the total, rounded down.
    pub operator_fee: Amount,
}

/// Where a member would go.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct QuotedPlace {
    /// Rank.
    pub rank: u16,
    /// Node.
    pub node: NodeId,
    /// Its owner.
    pub provider: Account,
    /// Its GPUs, in the order of the node's spec.
    pub gpus: Vec<GpuId>,
    /// Place on each of them.
    pub slot: Slot,
    /// How it is kept apart.
    pub class: IsolationClass,
    /// What it costs, all its GPUs together: the asks and the surcharges.
    pub rate: Rate,
    /// What of the rate is charged for fragmentation: the pool's part of the shadow price. The owner gets it too.
    pub surcharge: Rate,
    /// What it does to what others could still be given on those GPUs: sums over them.
    pub fragmentation: FragmentationView,
    /// Datasets of the request that are known to be on the node.
    #[serde(default)]
    pub datasets: StagedView,
}

/// What a slice takes from those who come after it. Measure: memory slices' worth of legal MIG placements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct FragmentationView {
    /// Memory slices' worth of placements that become impossible, its own among them; 0 on a GPU without MIG.
    pub destroys: u32,
    /// Memory slices' worth of all placements of that GPU while it is idle.
    pub of: u32,
    /// Shadow price per hour: `floor(destroys * ask / of)`, `ask` being that of the whole GPU, or of its dearest profile
    /// where it is not offered whole.
    pub shadow_rate: Rate,
    /// Whether a part of the shadow price is charged.
    pub charged: bool,
}
