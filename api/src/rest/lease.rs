//! Leases as JSON.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::agent::{LogSource, Peer};
use crate::blocking::{Blocking, Shortfall};
use crate::commit::Work;
use crate::id::{Account, GpuId, Hash32, LeaseId, NodeId, Signature};
use crate::lease::{LeaseRequest, LeaseState, MemberWant, NearestMiss, OnNodeLoss, Priority, Within};
use crate::licence::Licence;
use crate::reason::{Party, Reason};
use crate::slice::{IsolationClass, Slot};
use crate::unit::{Amount, Rate, TimeMs};

/// A dataset to be mounted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetMount {
    /// CID of a dataset that was added to the pool before.
    #[schema(max_length = 128, example = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy")]
    pub cid: String,
    /// Folder name under `$SELION_DATA_DIR`: letters, digits, `.`, `_` and `-`.
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$", example = "data")]
    pub mount: String,
}

/// `POST /v1/leases`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLease {
    /// The members, in order of rank. One is a plain lease, more are a gang: all or nothing.
    #[schema(min_items = 1, max_items = 64)]
    pub members: Vec<MemberWant>,
    /// So many members must have a place, those of the lowest ranks; the others get one if there is room at the grant.
    /// All if absent.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 64)]
    pub min_members: Option<u16>,
    /// At least this many different nodes.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 64, default = 1)]
    pub min_nodes: u16,
    /// What all its nodes have in common.
    #[serde(default)]
    pub within: Within,
    /// Any two of its nodes are at most so far apart, in microseconds there and back: measured as the sum of the
    /// controller's round trips to both, which is never too little. Any if absent.
    #[serde(default)]
    #[schema(maximum = 4_294_967_295_u32)]
    pub max_latency_us: Option<u32>,
    /// Only nodes in one of these regions; any if empty.
    #[serde(default)]
    #[schema(max_items = 16)]
    pub regions: Vec<String>,
    /// Highest ask accepted for any member, all its GPUs together, token base units per hour.
    #[serde(default)]
    pub max_rate: Option<Rate>,
    /// Acceptable isolation classes; all if absent.
    #[serde(default = "all_classes")]
    #[schema(min_items = 1)]
    pub classes: Vec<IsolationClass>,
    /// The lease ends after this long in *active*, in milliseconds.
    #[schema(minimum = 1, maximum = 2_592_000_000_u64, example = 3_600_000)]
    pub duration_ms: u64,
    /// How long the request may wait for room, in milliseconds; 0 refuses instead.
    #[serde(default)]
    #[schema(maximum = 604_800_000, default = 0)]
    pub wait_ms: u64,
    /// When a node is lost: `end` is the default of a single member, `requeue` of a gang. `repair` keeps the other members
    /// running while at least `min_members` are left.
    #[serde(default)]
    pub on_node_loss: Option<OnNodeLoss>,
    /// Class of priority: a lease may be stopped for one of a higher class.
    #[serde(default)]
    pub priority: Priority,
    /// Each member takes a seat of this licence, which the caller's account holds on chain; none if absent.
    #[serde(default)]
    pub licence: Option<Licence>,
    /// Program and arguments; at most 256 KiB with the environment.
    #[schema(min_items = 1, example = json!(["nvidia-smi"]))]
    pub command: Vec<String>,
    /// Environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Datasets to be mounted read-only.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub datasets: Vec<DatasetMount>,
    /// Only nodes that have all of them staged, as far as the log tells: a hint, never a promise.
    #[serde(default)]
    #[schema(default = false)]
    pub near_data: bool,
    /// Salt of the work's commitment; the controller draws one if absent. Needed to sign.
    #[serde(default)]
    pub salt: Option<Hash32>,
    /// The renter's signature over `signing_digest(pool, "lease", request)`; without it the log marks the request
    /// as unsigned.
    #[serde(default)]
    pub signature: Option<Signature>,
}

fn one() -> u16 {
    1
}

fn all_classes() -> Vec<IsolationClass> {
    IsolationClass::ALL.to_vec()
}

impl NewLease {
    /// The private part.
    #[must_use]
    pub fn work(&self) -> Work {
        Work {
            command: self.command.clone(),
            env: self.env.clone().into_iter().collect(),
            datasets: self.datasets.iter().map(|data| (data.cid.clone(), data.mount.clone())).collect(),
        }
    }

    /// The public part, as it enters the log. `tags` are the keyed tags of the datasets in order, `salt` the salt
    /// in use.
    #[must_use]
    pub fn request(&self, renter: Account, idempotency_key: &str, salt: &Hash32, tags: Vec<Hash32>) -> LeaseRequest {
        LeaseRequest {
            renter,
            idem: crate::commit::sha256_of(&(renter, idempotency_key)),
            members: self.members.clone(),
            min_members: self.min_members.unwrap_or(u16::try_from(self.members.len()).unwrap_or(u16::MAX)),
            min_nodes: self.min_nodes,
            within: self.within,
            max_latency_us: self.max_latency_us,
            regions: self.regions.clone(),
            max_rate: self.max_rate,
            classes: self.classes.iter().fold(0, |set, class| set | class.bit()),
            duration_ms: self.duration_ms,
            wait_ms: self.wait_ms,
            on_node_loss: self.on_node_loss.unwrap_or(if self.members.len() > 1 {
                OnNodeLoss::Requeue
            } else {
                OnNodeLoss::End
            }),
            work: self.work().commitment(salt),
            datasets: tags,
            near_data: self.near_data,
            priority: self.priority,
            licence: self.licence,
        }
    }
}

/// Why a lease is not placed yet.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Waiting {
    /// Place in the order of service, from 1.
    pub position: u64,
    /// Why.
    pub reason: Reason,
    /// The candidate that came closest.
    pub nearest: Option<NearestMiss>,
    /// When the request gives up.
    pub until_ms: TimeMs,
    /// When it starts at the latest, if room is booked for it; see the placement for an estimate for the others.
    #[serde(default)]
    pub booked_ms: Option<TimeMs>,
}

/// One member of a placed lease.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct LeaseMember {
    /// Rank.
    pub rank: u16,
    /// Which run of it: higher than that of the others once it was repaired in place.
    pub attempt: u32,
    /// Node.
    pub node: NodeId,
    /// Its GPUs, in the order of the node's spec.
    pub gpus: Vec<GpuId>,
    /// Place on each of them.
    pub slot: Slot,
    /// How it is kept apart.
    pub class: IsolationClass,
    /// The ask, frozen at the grant: of all its GPUs together.
    pub rate: Rate,
    /// Where this member is reached by its peers.
    pub address: String,
    /// Milliseconds billed so far in its run.
    pub billable_ms: u64,
    /// Amount so far in its run.
    pub amount: Amount,
    /// Exit code, once the command ended.
    pub exit_code: Option<i32>,
    /// Datasets of the lease that were known to be on the node when it was granted.
    #[serde(default)]
    pub datasets: StagedView,
}

/// Datasets that need not be fetched to a node, as far as the log tells: a hint, never a promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct StagedView {
    /// How many are there.
    pub staged: u16,
    /// Of so many.
    pub of: u16,
}

/// One run of a lease that is over.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Attempt {
    /// Counts from 1.
    pub attempt: u32,
    /// Why it ended.
    pub reason: Reason,
    /// What it cost.
    pub amount: Amount,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// Who holds it.
    pub renter: Account,
    /// Where it stands.
    pub state: LeaseState,
    /// Why it ended, or why it is ending; `node_lost` while members of an active lease are being repaired.
    pub reason: Option<Reason>,
    /// Whose side the reason lies on.
    pub party: Option<Party>,
    /// Filled while it waits.
    pub waiting: Option<Waiting>,
    /// Which run this is; 0 before the first grant. A repair of members gives them, and the lease, the next number.
    pub attempt: u32,
    /// Members of the current or last run.
    pub members: Vec<LeaseMember>,
    /// Runs that are over.
    pub attempts: Vec<Attempt>,
    /// What was asked.
    pub wants: Vec<MemberWant>,
    /// Longest time in *active*.
    pub duration_ms: u64,
    /// Highest ask accepted.
    pub max_rate: Option<Rate>,
    /// Class of priority.
    #[serde(default)]
    pub priority: Priority,
    /// The licence of which each member takes a seat.
    #[serde(default)]
    pub licence: Option<Licence>,
    /// When the request was made.
    pub created_ms: TimeMs,
    /// Since when it is in this state.
    pub since_ms: TimeMs,
    /// When this state ends by itself; absent once ended.
    pub deadline_ms: Option<TimeMs>,
    /// Deposit kept for it.
    pub reserved: Amount,
    /// Bill so far, all attempts.
    pub amount: Amount,
    /// Whether the request was signed by the renter's account.
    pub signed: bool,
    /// CIDs of the outputs by rank, once told by the agents and matching their reports. Private to the renter.
    #[serde(default)]
    pub outputs: BTreeMap<u16, String>,
    /// What may be done now: `release`.
    pub actions: Vec<String>,
}

/// A page of leases.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct LeasePage {
    /// Leases, newest first.
    pub leases: Vec<Lease>,
    /// Pass as `page_token` for the next page.
    pub next_page_token: Option<String>,
}

/// One candidate of a placement.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Candidate {
    /// Rank of the member that was judged.
    pub member: u16,
    /// Node.
    pub node: NodeId,
    /// The GPU that was judged. Of a member of several GPUs those that it could have; none if they are too few.
    pub gpus: Vec<GpuId>,
    /// The slot it could give now, on each of them.
    pub slot: Option<Slot>,
    /// The ask, of all of them together.
    pub rate: Option<Rate>,
    /// Why it could not, if it could not.
    pub reason: Option<Reason>,
}

/// `GET /v1/leases/{id}/placement`: how the candidates look as of the entry in the response header.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct PlacementView {
    /// The lease.
    pub lease: LeaseId,
    /// When it is expected to start if it waits: booked for the head of the line, estimated for those shortly behind.
    #[serde(default)]
    pub starts_ms: Option<TimeMs>,
    /// Least set of its constraints without which it would fit; absent if it does not wait or no such set is known.
    #[serde(default)]
    pub blocking: Option<Blocking>,
    /// Why it has no places now; absent if it does not wait, if there is room for it, or if it would be too much work.
    #[serde(default)]
    pub shortfall: Option<Shortfall>,
    /// Every GPU of the pool, judged for every different member; for one of several GPUs every node, by model.
    pub candidates: Vec<Candidate>,
}

/// A change of a lease, as a server-sent event of `GET /v1/leases/{id}/events`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct LeaseEvent {
    /// Log entry that caused it.
    pub entry: u64,
    /// When.
    pub at_ms: TimeMs,
    /// The state reached.
    pub state: LeaseState,
    /// Why.
    pub reason: Option<Reason>,
    /// Which run.
    pub attempt: u32,
    /// Where the members are, when placed.
    pub peers: Vec<Peer>,
}

/// A line of a member's output, as a server-sent event of `GET /v1/leases/{id}/logs`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct LogLine {
    /// Which run.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// Number of the line in the member's run.
    pub line: u64,
    /// Stream.
    pub source: LogSource,
    /// Text without its line end.
    pub text: String,
}
