//! Leases as JSON.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::agent::{LogSource, Peer};
use crate::blocking::{Blocking, Shortfall};
use crate::commit::{Expected, Network, Overrides, Root, Work};
use crate::id::{Account, GpuId, Hash32, LeaseId, NodeId, Signature};
use crate::lease::{LeaseRequest, LeaseState, MemberWant, NearestMiss, OnNodeLoss, Priority, Within};
use crate::licence::Licence;
use crate::outputs::{OutputState, SkippedEntry};
use crate::reason::{Party, Reason};
use crate::rest::Called;
use crate::slice::{BoxFeature, BoxFeatures, IsolationClass, Slot};
use crate::unit::{Amount, Rate, TimeMs};
use crate::usage::Used;

/// A dataset to be mounted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetMount {
    /// CID of a dataset that the account added to the pool before, or of outputs of one of its leases; or those outputs by
    /// `LEASE`, `LEASE:ATTEMPT` or `LEASE:ATTEMPT:RANK` (the newest run that left any, rank 0), which stand for their CID
    /// now. A signed request names CIDs only.
    #[schema(max_length = 128, example = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy")]
    pub cid: String,
    /// Folder name under `$SELION_DATA_DIR`: letters, digits, `.`, `_` and `-`.
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$", example = "data")]
    pub mount: String,
}

/// What the name of an image stands for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ImageView {
    /// As a request names it for good: by digest, or the CID.
    pub image: String,
    /// Under which the public log knows that the caller's leases run it; the last of a signed request's tags.
    pub tag: Hash32,
}

/// A root file system that is no image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlainRoot {
    /// A small one of the node's own making: a shell and the usual tools.
    #[default]
    Base,
    /// The machine's programs and libraries, read-only, where its owner shows them.
    Machine,
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
    /// Program and arguments; at most 256 KiB with the environment. With an image that names a program, the arguments after
    /// it; none leaves the image's own. Without an image it names a program.
    #[serde(default)]
    #[schema(example = json!(["nvidia-smi"]))]
    pub command: Vec<String>,
    /// Container image: of a registry as `HOST/NAME@sha256:HEX`, or by tag, which is resolved once, now; or by the CID of an
    /// OCI layout or of what `docker save` wrote, that the account added to the pool. A signed request names no tag.
    #[serde(default)]
    #[schema(
        max_length = 512,
        example = "docker.io/library/debian@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    )]
    pub image: Option<String>,
    /// The root file system without an image.
    #[serde(default)]
    pub root: PlainRoot,
    /// The program and its first arguments in place of the image's, whose arguments then go too. Empty runs `command` alone.
    #[serde(default)]
    #[schema(max_items = 1024)]
    pub entrypoint: Option<Vec<String>>,
    /// Where the command starts, an absolute path inside; that of the image, else `$HOME`, if absent.
    #[serde(default)]
    #[schema(max_length = 4096)]
    pub working_dir: Option<String>,
    /// As whom, `USER[:GROUP]`, each a name or a number of the image; as the image says if absent.
    #[serde(default)]
    #[schema(max_length = 128)]
    pub user: Option<String>,
    /// Which limits the node has to hold the lease to, whatever else it does: of `cpu`, `memory`, `pids`, `disk`, `net`.
    #[serde(default)]
    #[schema(max_items = 5)]
    pub enforced: Vec<BoxFeature>,
    /// What the account calls the lease: 1 to 63 letters, digits, `.`, `_` and `-`, the first a letter or digit, not like an
    /// id. Of its live leases no other has it. Private, as labels are: neither log nor nodes are told.
    #[serde(default)]
    #[schema(max_length = 63)]
    pub name: Option<String>,
    /// Up to 16 labels: keys as names, values of at most 63 bytes.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Environment. The pool and the nodes can read it; what they must not, or need not, read goes as a secret.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of the secrets that a member needs before it starts, in `/run/secrets`: up to 64, of 1 to 64 letters, digits,
    /// `.`, `_` and `-`, none beginning with a `.` but `.registry`, the credentials for its image. What they are comes later,
    /// sealed to the node: see `/v1/leases/{id}/secrets`.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub secrets: Vec<String>,
    /// The pool may be given the secrets as they are: it keeps them encrypted while the lease lives, and seals them itself for
    /// every run. Without it each run of a member needs a client that seals anew.
    #[serde(default)]
    #[schema(default = false)]
    pub pool_may_keep_secrets: bool,
    /// Datasets to be mounted read-only.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub datasets: Vec<DatasetMount>,
    /// What the commands reach beside the members of their gang, whose ports they reach in any case; `none` if absent. It is
    /// part of what stays private, under the commitment; that the nodes have to be able to give it is not.
    #[serde(default)]
    pub network: Option<Network>,
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
            network: self.network(),
            root: self.root_of_work(),
            over: Overrides {
                entrypoint: self.entrypoint.clone(),
                working_dir: self.working_dir.clone(),
                user: self.user.clone(),
            },
            secrets: self.expected(),
        }
    }

    /// What comes sealed.
    #[must_use]
    pub fn expected(&self) -> Expected {
        let mut names = self.secrets.clone();
        names.sort_unstable();
        Expected { names, pool_may_keep: self.pool_may_keep_secrets }
    }

    /// What the account calls the lease.
    #[must_use]
    pub fn called(&self) -> Called {
        Called { name: self.name.clone(), labels: self.labels.clone() }
    }

    fn root_of_work(&self) -> Root {
        match (&self.image, self.root) {
            // Only a digest has an `@`, and nothing else than a name of a registry has it.
            (Some(image), _) if image.contains('@') => Root::Registry(image.clone()),
            (Some(image), _) => Root::Content(image.clone()),
            (None, PlainRoot::Machine) => Root::Machine,
            (None, PlainRoot::Base) => Root::Base,
        }
    }

    /// What the box of its nodes has to give and hold.
    #[must_use]
    pub fn needs(&self) -> BoxFeatures {
        let root = match self.root_of_work() {
            Root::Registry(_) | Root::Content(_) => Some(BoxFeature::Images),
            Root::Machine => Some(BoxFeature::MachineRoot),
            Root::Base => None,
        };
        let internet = (self.network() == Network::Internet).then_some(BoxFeature::Internet);
        let meets = self.members.len() > 1 && self.network() != Network::Apart;
        let gang = meets.then_some(BoxFeature::Gang);
        let secrets = (!self.secrets.is_empty()).then_some(BoxFeature::Secrets);
        self.enforced.iter().copied().chain(root).chain(internet).chain(gang).chain(secrets).collect()
    }

    /// What its commands reach beside each other.
    #[must_use]
    pub fn network(&self) -> Network {
        self.network.unwrap_or_default()
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
            needs: self.needs(),
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
    /// What it uses, as its node last told; absent while the node told nothing, and once the lease is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Used>,
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

/// What one run of one member left in its output folder.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct LeaseOutput {
    /// Rank of the member.
    pub rank: u16,
    /// Which run.
    pub attempt: u32,
    /// How far they are: `uploading` goes on after the end of the lease, unbilled.
    pub state: OutputState,
    /// CID of the folder, once the node knows it.
    pub cid: Option<String>,
    /// Bytes of the files kept.
    pub bytes: u64,
    /// Files kept.
    pub files: u64,
    /// Entries of the folder that were not kept.
    pub skipped: u64,
    /// The first 20 of them.
    pub skipped_first: Vec<SkippedEntry>,
    /// Why they are lost.
    pub why: Option<String>,
    /// Until when the pool keeps the content; absent while it does not have it.
    pub kept_until_ms: Option<TimeMs>,
}

/// `GET /v1/leases/{id}/outputs`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct LeaseOutputs {
    /// The lease.
    pub lease: LeaseId,
    /// Outputs of every run, by run and rank.
    pub outputs: Vec<LeaseOutput>,
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
    /// When the owner of a GPU under it takes that back, and the lease is stopped if it still runs; absent where nobody
    /// does.
    #[serde(default)]
    pub taken_back_ms: Option<TimeMs>,
    /// Until when it is paid, and it is stopped if it still runs then: what its renter asked back of his deposit may leave
    /// soon after. Absent where nothing that it needs thaws, or an owner stops it before that.
    #[serde(default)]
    pub paid_until_ms: Option<TimeMs>,
    /// Deposit kept for it.
    pub reserved: Amount,
    /// Bill so far, all attempts.
    pub amount: Amount,
    /// Whether the request was signed by the renter's account.
    pub signed: bool,
    /// Outputs of every run, by run and rank; none of members that left nothing. The list is the renter's alone; whoever
    /// has an account and knows a CID can read its content.
    #[serde(default)]
    pub outputs: Vec<LeaseOutput>,
    /// What may be done now: `release`.
    pub actions: Vec<String>,
    /// What its account calls it; only that account is told.
    #[serde(default)]
    pub name: Option<String>,
    /// Its labels, as private.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
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
    /// Text without its line end `\n`. What is not UTF-8 stands as U+FFFD.
    pub text: String,
    /// No line end was printed yet: the line goes on in the next event of the same member and stream. A line is shown so
    /// when it stays unfinished for 200 ms, or is longer than 1 MiB.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub partial: bool,
    /// The bytes of `text` as they were printed, in Base64 (RFC 4648 §4, padded); only where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_base64: Option<String>,
}

/// Names the outputs of an earlier lease where a dataset's CID may stand: `lease-12-0`, `lease-12-0:2` for its second
/// run, `lease-12-0:2:1` for rank 1 of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputRef {
    /// The lease.
    pub lease: LeaseId,
    /// Which run; the newest that left something readable if absent.
    pub attempt: Option<u32>,
    /// Which rank; 0 if absent.
    pub rank: Option<u16>,
}

impl core::str::FromStr for OutputRef {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "outputs of a lease are named LEASE, LEASE:ATTEMPT or LEASE:ATTEMPT:RANK";
        let mut parts = text.split(':');
        let lease = parts.next().unwrap_or_default().parse().map_err(|_| FORM)?;
        let attempt = parts.next().map(str::parse).transpose().map_err(|_| FORM)?;
        let rank = parts.next().map(str::parse).transpose().map_err(|_| FORM)?;
        if parts.next().is_some() { Err(FORM) } else { Ok(Self { lease, attempt, rank }) }
    }
}

impl OutputRef {
    /// Whether `text` is meant as one: no CID begins so.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("lease-")
    }

    /// Those of `outputs` that it names, if they can be read.
    ///
    /// # Errors
    ///
    /// Why there are none, in words for people.
    pub fn choose<'a>(&self, outputs: &'a [LeaseOutput]) -> Result<&'a LeaseOutput, String> {
        let rank = self.rank.unwrap_or(0);
        let mut named =
            outputs.iter().filter(|one| one.rank == rank && self.attempt.is_none_or(|run| run == one.attempt));
        let readable = |one: &&LeaseOutput| one.state.is_readable() && one.cid.is_some();
        if let Some(found) = named.clone().rfind(readable) {
            return Ok(found);
        }
        let run = self.attempt.map(|run| alloc::format!(" in run {run}")).unwrap_or_default();
        Err(match named.next_back() {
            None => alloc::format!("rank {rank} of {} left no outputs{run}", self.lease),
            Some(one) => alloc::format!("the outputs of rank {rank} of {}{run} are {}", self.lease, one.state.code()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(attempt: u32, rank: u16, state: OutputState) -> LeaseOutput {
        LeaseOutput {
            rank,
            attempt,
            state,
            cid: Some(alloc::format!("cid-{attempt}-{rank}")),
            bytes: 0,
            files: 0,
            skipped: 0,
            skipped_first: Vec::new(),
            why: None,
            kept_until_ms: None,
        }
    }

    #[test]
    fn outputs_are_named_by_lease_run_and_rank() {
        let lease = LeaseId { seq: 12, index: 0 };
        let all = [
            ("lease-12-0", Some((None, None))),
            ("lease-12-0:2", Some((Some(2), None))),
            ("lease-12-0:2:1", Some((Some(2), Some(1)))),
            ("lease-12-0:2:1:0", None),
            ("lease-12-0:", None),
            ("lease-12-0:x", None),
            ("bafy", None),
        ];
        for (text, expected) in all {
            let expected = expected.map(|(attempt, rank)| OutputRef { lease, attempt, rank });
            assert_eq!(text.parse::<OutputRef>().ok(), expected, "{text}");
        }
    }

    #[test]
    fn without_a_run_the_newest_that_can_be_read_is_meant() {
        use OutputState::{Kept, Lost, Partial, Uploading};
        let outputs = [output(1, 0, Kept), output(1, 1, Lost), output(2, 0, Partial), output(3, 0, Uploading)];
        let chosen = |text: &str| {
            let found = text.parse::<OutputRef>().unwrap();
            found.choose(&outputs).map(|one| (one.attempt, one.rank))
        };
        assert_eq!(chosen("lease-12-0"), Ok((2, 0)));
        assert_eq!(chosen("lease-12-0:1"), Ok((1, 0)));
        assert!(chosen("lease-12-0:3").unwrap_err().contains("uploading"));
        assert!(chosen("lease-12-0:1:1").unwrap_err().contains("lost"));
        assert!(chosen("lease-12-0:9").unwrap_err().contains("no outputs in run 9"));
    }
}
