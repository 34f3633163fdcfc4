//! What of a request stands in its way.

use alloc::vec::Vec;

use crate::lease::NearestMiss;

/// A part of a request that bounds where it can go, named as its field is, and the room that others leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
pub enum Constraint {
    /// The cap of price. Without it: any ask.
    MaxRate,
    /// The isolation classes. Without them: all.
    Classes,
    /// What the boxes of its nodes have to give and hold. Without it: nothing.
    Needs,
    /// The models. Without them: any, for each member.
    Models,
    /// The node that a member is pinned to. Without it: any, for each member.
    Node,
    /// The GPU that a member is pinned to. Without it: any, for each member.
    Gpu,
    /// The regions. Without them: anywhere.
    Regions,
    /// That nodes must have the datasets staged. Without it: they are fetched wherever it goes.
    NearData,
    /// How far apart its nodes may be. Without it: any distance, known or not.
    MaxLatency,
    /// What the nodes must have in common. Without it: nothing.
    Within,
    /// Over how many nodes a gang is spread. Without it: one will do.
    MinNodes,
    /// CPU beside the slice. Without it: none.
    Cpu,
    /// Memory beside the slice. Without it: none.
    Ram,
    /// Disk beside the slice. Without it: none.
    Disk,
    /// Network bandwidth beside the slice. Without it: none.
    Net,
    /// The slice. Without it: any that a GPU offers, for members of one GPU.
    Slice,
    /// How many GPUs a member wants on one node. Without it: one, for each member.
    Gpus,
    /// The licence, of which each member needs a free seat. Without it: none is needed.
    Licence,
    /// What other leases hold, and what is kept for a booked one. Without it: an empty fleet.
    Room,
}

impl Constraint {
    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::MaxRate => "max_rate",
            Self::Classes => "classes",
            Self::Needs => "needs",
            Self::Models => "models",
            Self::Node => "node",
            Self::Gpu => "gpu",
            Self::Regions => "regions",
            Self::NearData => "near_data",
            Self::MaxLatency => "max_latency_us",
            Self::Within => "within",
            Self::MinNodes => "min_nodes",
            Self::Cpu => "cpu",
            Self::Ram => "ram",
            Self::Disk => "disk",
            Self::Net => "net",
            Self::Slice => "slice",
            Self::Gpus => "gpus",
            Self::Licence => "licence",
            Self::Room => "room",
        }
    }
}

/// A least set of constraints in the way of a lease that waits: without all of them it fits, with any one it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct Blocking {
    /// True: without them it fits now. False: as it is it fits nowhere even into the empty fleet; without them it would.
    pub now: bool,
    /// The constraints. None: it fits as it is, and waits for something else, such as its turn or money.
    pub constraints: Vec<Constraint>,
}

/// Why the members that a waiting lease needs have no places now, and how sure that is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct Shortfall {
    /// True: there are none, since a member fits nowhere, too few equal ones fit, or every way was tried. False: none
    /// were found within the bound of work.
    pub proved: bool,
    /// The candidate that came closest. Of reason `gang_incomplete` on a GPU it counts members that want the same: so many
    /// are needed, so many fit into the best region, rack or node; without a GPU it counts nodes.
    pub nearest: Option<NearestMiss>,
}
