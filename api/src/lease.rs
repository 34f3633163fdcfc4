//! The lease: what a renter asks for, as the public log sees it, and the states it passes through.

use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::id::{Account, GpuId, Hash32, LeaseId, NodeId};
use crate::licence::Licence;
use crate::reason::Reason;
use crate::slice::{BoxFeatures, SliceWant};
use crate::unit::{Amount, Rate};

/// Most members of a gang.
pub const MAX_MEMBERS: usize = 64;
/// Most GPUs of one member.
pub const MAX_GPUS: u16 = 16;
/// Most models or regions that a request may name.
pub const MAX_NAMES: usize = 16;
/// Longest name of a model or region in bytes.
pub const MAX_NAME: usize = 64;
/// Most bytes of all names of models, profiles and regions in one request together: it is kept for a day after its end.
pub const MAX_NAMES_BYTES: usize = 8 << 10;
/// Most datasets of one request.
pub const MAX_DATASETS: usize = 64;
/// Of how many datasets it is known that a node has them: those used last.
pub const MAX_STAGED: usize = 64;
/// A dataset counts as staged for so long after it was last used on a node: 7 days in milliseconds. Agents delete nothing
/// by themselves, but nobody says when an owner did.
pub const STAGED_MS: u64 = 7 * 24 * crate::unit::MS_PER_HOUR;
/// Longest lease: 30 days in milliseconds.
pub const MAX_DURATION_MS: u64 = 30 * 24 * crate::unit::MS_PER_HOUR;
/// Longest wait for room: 7 days in milliseconds.
pub const MAX_WAIT_MS: u64 = 7 * 24 * crate::unit::MS_PER_HOUR;

/// One member of a lease, which is one process: a slice on one GPU, or several whole GPUs of one model on one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(deny_unknown_fields)
)]
pub struct MemberWant {
    /// The slice.
    pub slice: SliceWant,
    /// How many whole GPUs. More than one only where the slice is the whole GPU: CUDA opens at most one
    /// MIG instance in a process.
    #[cfg_attr(feature = "wire", serde(default = "one"), schema(minimum = 1, maximum = 16, default = 1))]
    pub gpus: u16,
    /// Only GPUs of one of these models; any if empty.
    #[cfg_attr(feature = "wire", serde(default), schema(max_items = 16))]
    pub models: Vec<String>,
    /// Only this node.
    #[cfg_attr(feature = "wire", serde(default))]
    pub node: Option<NodeId>,
    /// Only this GPU. Not together with more than one.
    #[cfg_attr(feature = "wire", serde(default))]
    pub gpu: Option<GpuId>,
    /// CPU beside the slice, in thousandths of a core.
    #[cfg_attr(
        feature = "wire",
        serde(default = "default_cpu_milli"),
        schema(default = 500, maximum = 4_294_967_295_u32)
    )]
    pub cpu_milli: u32,
    /// Memory beside the slice, in bytes.
    #[cfg_attr(
        feature = "wire",
        serde(default = "default_ram_bytes"),
        schema(default = 536_870_912, maximum = 9_223_372_036_854_775_807_i64)
    )]
    pub ram_bytes: u64,
    /// Disk beside the slice, in bytes: bounds what is staged for the member, and what is kept of its outputs. 0 books
    /// none; the bound is then 64 GiB.
    #[cfg_attr(feature = "wire", serde(default), schema(default = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub disk_bytes: u64,
    /// Network bandwidth beside the slice, in megabits a second.
    #[cfg_attr(feature = "wire", serde(default), schema(default = 0, maximum = 4_294_967_295_u32))]
    pub net_mbps: u32,
}

/// An amount of each thing that a node has beside its GPUs, in the order of [`BESIDE`].
pub type Beside = [u64; BESIDE.len()];

/// What a node has beside its GPUs: thousandths of a core, bytes, bytes, megabits a second.
pub const BESIDE: [&str; 4] = ["cpu", "ram", "disk", "net"];

impl MemberWant {
    /// A member that asks for this slice anywhere, with the usual CPU and memory beside it.
    #[must_use]
    pub fn of(slice: SliceWant) -> Self {
        Self {
            slice,
            gpus: 1,
            models: Vec::new(),
            node: None,
            gpu: None,
            cpu_milli: default_cpu_milli(),
            ram_bytes: default_ram_bytes(),
            disk_bytes: 0,
            net_mbps: 0,
        }
    }

    /// What it takes beside its GPU.
    #[must_use]
    pub fn beside(&self) -> Beside {
        [self.cpu_milli.into(), self.ram_bytes, self.disk_bytes, self.net_mbps.into()]
    }
}

#[cfg(feature = "wire")]
fn one() -> u16 {
    1
}

/// Bytes that are staged for, and kept of, a member that declares no disk: enough for a model of thirty billion
/// parameters, and little enough that a node of an ordinary size is not filled by one lease.
pub const UNDECLARED_DISK_BYTES: u64 = 64 << 30;

/// CPU of a member that names none: half a core.
#[must_use]
pub fn default_cpu_milli() -> u32 {
    500
}

/// Memory of a member that names none: 512 MiB.
#[must_use]
pub fn default_ram_bytes() -> u64 {
    512 << 20
}

/// What becomes of a lease when a node under it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum OnNodeLoss {
    /// The lease ends.
    End = 0,
    /// The whole lease stops, is billed up to there, and waits again, first in line.
    Requeue = 1,
    /// The members that were lost get other places, first in line, while the others run on, as long as `min_members` of
    /// them do. Where that cannot be, as `requeue`.
    Repair = 2,
}

/// Who goes first, and who may be stopped for whom: a lease may take the room of leases of a lower class, never of its
/// own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Priority {
    /// May be stopped for any other class.
    Interruptible = 0,
    /// May be stopped for firm leases only.
    #[default]
    Standard = 1,
    /// Is never stopped for another lease.
    Firm = 2,
}

impl Priority {
    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Interruptible => "interruptible",
            Self::Standard => "standard",
            Self::Firm => "firm",
        }
    }
}

/// What the nodes of one lease have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Within {
    /// Nothing: members may be anywhere in the pool.
    #[default]
    Pool = 0,
    /// The region that their owners state.
    Region = 1,
    /// The region and the rack that their owner states: one switch apart.
    Rack = 2,
    /// The node: all GPUs in one machine.
    Node = 3,
}

impl Within {
    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Region => "region",
            Self::Rack => "rack",
            Self::Node => "node",
        }
    }
}

/// A request for a lease as it enters the log. Private matter stands in it as commitments and tags only.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct LeaseRequest {
    /// Who asks and pays.
    pub renter: Account,
    /// `SHA-256` of the account and its `Idempotency-Key`.
    pub idem: Hash32,
    /// The members, in order of rank.
    pub members: Vec<MemberWant>,
    /// So many members must have a place: those of the lowest ranks. The others get one if there is room at the grant.
    pub min_members: u16,
    /// At least this many different nodes.
    pub min_nodes: u16,
    /// What all its nodes have in common.
    pub within: Within,
    /// Any two of its nodes are at most so far apart, in microseconds there and back, by what the controller measured of
    /// its links to both. `None`: any.
    pub max_latency_us: Option<u32>,
    /// Only nodes in one of these regions; any if empty.
    pub regions: Vec<String>,
    /// Highest ask accepted for any member, all its GPUs together, per hour. `None`: any.
    pub max_rate: Option<Rate>,
    /// Acceptable isolation classes, one bit each.
    pub classes: u8,
    /// What the box of every member's node has to give and hold.
    pub needs: BoxFeatures,
    /// The lease ends after this long in *active*, in milliseconds.
    pub duration_ms: u64,
    /// How long the request may wait for room, in milliseconds; 0 refuses instead of waiting.
    pub wait_ms: u64,
    /// When a node is lost.
    pub on_node_loss: OnNodeLoss,
    /// [`Work::commitment`](crate::commit::Work::commitment).
    pub work: Hash32,
    /// Keyed tags of the datasets.
    pub datasets: Vec<Hash32>,
    /// Only nodes that have all of them staged, as far as the log tells.
    pub near_data: bool,
    /// Class of priority.
    pub priority: Priority,
    /// Each member takes a seat of this licence, of those that the renter holds, from its grant until it is freed.
    pub licence: Option<Licence>,
}

impl LeaseRequest {
    /// Fingerprint of the request but for its `idem`: equal bodies have equal fingerprints.
    #[must_use]
    pub fn body(&self) -> Hash32 {
        crate::commit::sha256_of(&Self { idem: Hash32::ZERO, ..self.clone() })
    }

    /// What is wrong with the request in itself, before any fleet is looked at: the field and why.
    ///
    /// # Errors
    ///
    /// The first fault, as (JSON field, sentence).
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let members = self.members.len();
        if members == 0 || members > MAX_MEMBERS {
            return Err(("members", "a lease has 1 to 64 members"));
        }
        if usize::from(self.min_nodes) > members || self.min_nodes == 0 {
            return Err(("min_nodes", "min_nodes is 1 to the number of members"));
        }
        if usize::from(self.min_members) > members || self.min_members == 0 {
            return Err(("min_members", "min_members is 1 to the number of members"));
        }
        if self.min_nodes > self.min_members {
            return Err(("min_nodes", "min_nodes is at most min_members: the other members may get no place"));
        }
        if self.within == Within::Node && self.min_nodes > 1 {
            return Err(("within", "members within one node cannot be spread over min_nodes of them"));
        }
        if self.max_latency_us == Some(0) {
            return Err((
                "max_latency_us",
                "max_latency_us is at least 1; members within one node are asked for by within",
            ));
        }
        if !sound_names(&self.regions) {
            return Err(("regions", "regions are at most 16 different names of 1 to 64 bytes"));
        }
        if self.duration_ms == 0 || self.duration_ms > MAX_DURATION_MS {
            return Err(("duration_ms", "duration_ms is 1 to 2592000000 (30 days)"));
        }
        if self.wait_ms > MAX_WAIT_MS {
            return Err(("wait_ms", "wait_ms is at most 604800000 (7 days)"));
        }
        if self.classes == 0 || self.classes >= 1 << 6 {
            return Err(("classes", "at least one isolation class must be acceptable"));
        }
        if !self.needs.is_known() {
            return Err(("needs", "needs names a feature that no box of this release has"));
        }
        if self.datasets.len() > MAX_DATASETS {
            return Err(("datasets", "a lease has at most 64 datasets"));
        }
        if self.near_data && self.datasets.is_empty() {
            return Err(("near_data", "near_data is about datasets: name at least one"));
        }
        if self.names_bytes() > MAX_NAMES_BYTES {
            return Err(("members", "the names of models, profiles and regions have at most 8192 bytes together"));
        }
        for member in &self.members {
            if !sound_names(&member.models) {
                return Err(("models", "models are at most 16 different names of 1 to 64 bytes"));
            }
            if !(1..=MAX_GPUS).contains(&member.gpus) {
                return Err(("gpus", "gpus of a member is 1 to 16"));
            }
            if member.gpus > 1 && member.slice != SliceWant::Whole {
                return Err((
                    "gpus",
                    "only whole GPUs go together in one member: use several members for other slices",
                ));
            }
            if member.gpus > 1 && member.gpu.is_some() {
                return Err((
                    "gpu",
                    "a member of several GPUs cannot be pinned to one: pin its node, or use several members",
                ));
            }
            match &member.slice {
                SliceWant::Share { compute_permille, mem_bytes } => {
                    if !(1..=crate::slice::WHOLE_PERMILLE).contains(compute_permille) {
                        return Err(("compute_permille", "compute_permille is 1 to 1000"));
                    }
                    if *mem_bytes == 0 {
                        return Err(("mem_bytes", "mem_bytes of a share is at least 1"));
                    }
                }
                SliceWant::Mig { profile } if profile.is_empty() || profile.len() > 32 => {
                    return Err(("profile", "profile is a MIG profile name such as 1g.10gb"));
                }
                SliceWant::Mig { .. } | SliceWant::Whole => {}
            }
        }
        Ok(())
    }
}

impl LeaseRequest {
    fn names_bytes(&self) -> usize {
        let profile = |member: &MemberWant| match &member.slice {
            SliceWant::Mig { profile } => profile.len(),
            SliceWant::Whole | SliceWant::Share { .. } => 0,
        };
        let of =
            |member: &MemberWant| member.models.iter().map(String::len).sum::<usize>().saturating_add(profile(member));
        let regions: usize = self.regions.iter().map(String::len).sum();
        self.members.iter().map(of).fold(regions, usize::saturating_add)
    }
}

fn sound_names(names: &[String]) -> bool {
    let sound = |(at, name): (usize, &String)| {
        !name.is_empty() && name.len() <= MAX_NAME && names.iter().take(at).all(|other| other != name)
    };
    names.len() <= MAX_NAMES && names.iter().enumerate().all(sound)
}

/// Where a lease stands. Every state but `ended` has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum LeaseState {
    /// No room yet, or not its turn.
    Waiting = 0,
    /// Slots are kept; the agents have not answered yet.
    Held = 1,
    /// Agents make the slices and stage the data. Not billed.
    Preparing = 2,
    /// All members are ready; commands are being started.
    Starting = 3,
    /// All members run; the meter counts.
    Active = 4,
    // 5 is kept for `paused`, which no transition reaches in this version.
    /// Members are being stopped; no longer billed past their last report.
    Ending = 6,
    /// Over: bill and reason are final.
    Ended = 7,
}

impl LeaseState {
    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Preparing => "preparing",
            Self::Starting => "starting",
            Self::Active => "active",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }
}

/// What falls short, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Resource {
    /// CPU of the node, in thousandths of a core.
    CpuMilli = 0,
    /// Memory of the node, in bytes.
    RamBytes = 1,
    /// Disk of the node, in bytes.
    DiskBytes = 2,
    /// Network bandwidth of the node, in megabits a second.
    NetMbps = 3,
    /// Ports of the node.
    Ports = 4,
    /// GPUs.
    Gpus = 5,
    /// Memory of a GPU, in bytes.
    GpuMemBytes = 6,
    /// Compute of a GPU, in thousandths of it.
    ComputePermille = 7,
    /// Memory slices of a GPU in MIG mode.
    MigSlices = 8,
    /// Slices of the kind that is asked for.
    Slots = 9,
    /// Members of the gang.
    Members = 10,
    /// Nodes.
    Nodes = 11,
    /// Datasets that are on the node.
    Datasets = 12,
    /// Seats of the licence.
    Seats = 13,
    /// Time between nodes, there and back, in microseconds.
    LatencyUs = 14,
    /// Price: need is the ask, have the limit, in token base units an hour.
    Rate = 15,
    /// Free deposit, in token base units.
    Deposit = 16,
    /// What the grant of the pool's key may still sign for, in token base units.
    Grant = 17,
    /// End of that grant: need is the latest end of the lease, have the grant's, in milliseconds UTC.
    GrantUntilMs = 18,
    /// What was used in a day without a bill: need is that, have what the deposit allows, in token base units.
    FreeUse = 19,
    /// Time: need is the latest end of the lease, have the booked start, in milliseconds UTC.
    TimeMs = 20,
}

/// The beside of [`BESIDE`], in its order, as resources.
pub const BESIDE_RESOURCES: [Resource; BESIDE.len()] =
    [Resource::CpuMilli, Resource::RamBytes, Resource::DiskBytes, Resource::NetMbps];

/// The candidate that came closest, and by how much it missed.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct NearestMiss {
    /// The node.
    pub node: NodeId,
    /// The GPU, if the miss is about one.
    pub gpu: Option<GpuId>,
    /// Why it missed.
    pub reason: Reason,
    /// What falls short, which names the unit of `need` and `have`; absent where nothing is counted.
    #[cfg_attr(feature = "wire", serde(default, skip_serializing_if = "Option::is_none"))]
    pub resource: Option<Resource>,
    /// What was asked.
    pub need: u64,
    /// What there was.
    pub have: u64,
}

/// A request that was turned away. It creates no lease.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The candidate that came closest.
    pub nearest: Option<NearestMiss>,
    /// The lease that is concerned, if one is.
    pub lease: Option<LeaseId>,
}

impl Refusal {
    /// A refusal with nothing but its reason.
    #[must_use]
    pub fn plain(reason: Reason) -> Self {
        Self { reason, nearest: None, lease: None }
    }
}

/// One line of a bill: what one member of one attempt costs its renter.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct BillLine {
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// Who pays.
    pub renter: Account,
    /// Who earns.
    pub provider: Account,
    /// The ask, frozen at the grant: of all its GPUs together.
    pub rate: Rate,
    /// Milliseconds billed: the node's signed meter, capped by the log's interval.
    pub billable_ms: u64,
    /// `floor(rate * billable_ms / 3_600_000)`.
    pub amount: Amount,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(member: MemberWant) -> LeaseRequest {
        LeaseRequest {
            renter: Account::ZERO,
            idem: Hash32::ZERO,
            members: alloc::vec![member],
            min_members: 1,
            min_nodes: 1,
            within: Within::Pool,
            max_latency_us: None,
            regions: Vec::new(),
            max_rate: None,
            classes: 1,
            needs: BoxFeatures::NONE,
            duration_ms: 1,
            wait_ms: 0,
            on_node_loss: OnNodeLoss::End,
            work: Hash32::ZERO,
            datasets: Vec::new(),
            near_data: false,
            priority: Priority::Standard,
            licence: None,
        }
    }

    #[test]
    fn several_gpus_are_whole_ones_at_most_sixteen_and_not_pinned() {
        let request = asking;
        let fault = |member| request(member).check().err().map(|(field, _)| field);
        let whole = |gpus| MemberWant { gpus, ..MemberWant::of(SliceWant::Whole) };
        assert_eq!([fault(whole(1)), fault(whole(8)), fault(whole(MAX_GPUS))], [None; 3]);
        assert_eq!((fault(whole(0)), fault(whole(MAX_GPUS + 1))), (Some("gpus"), Some("gpus")));
        let share = MemberWant::of(SliceWant::Share { compute_permille: 500, mem_bytes: 1 });
        assert_eq!(fault(share.clone()), None);
        assert_eq!(fault(MemberWant { gpus: 2, ..share }), Some("gpus"));
        let pinned = |gpus| MemberWant { gpu: Some(GpuId([1; 16])), ..whole(gpus) };
        assert_eq!((fault(pinned(1)), fault(pinned(2))), (None, Some("gpu")));
    }

    #[test]
    fn all_names_of_a_request_together_are_bounded() {
        let member = MemberWant {
            models: (0..16).map(|at| alloc::format!("{at:064}")).collect(),
            ..MemberWant::of(SliceWant::Whole)
        };
        let request =
            |members: usize| LeaseRequest { members: alloc::vec![member.clone(); members], ..asking(member.clone()) };
        assert_eq!(request(8).check(), Ok(()));
        assert_eq!(request(9).check().map_err(|(field, _)| field), Err("members"));
    }

    #[test]
    fn firm_stands_above_standard_and_standard_above_interruptible() {
        assert!(Priority::Firm > Priority::Standard && Priority::Standard > Priority::Interruptible);
        assert_eq!(Priority::default().code(), "standard");
    }
}
