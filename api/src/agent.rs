//! Messages between controller and agent, over the one WebSocket that the agent opens.
//!
//! The agent receives its *desired state*, whole, with a generation, and again at every reconnect. It answers with
//! reports that its node key signed; it keeps each until the controller acknowledges it, which happens only after
//! the log has it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::commit::{PoolId, Work, signing_digest};
use crate::id::{Account, Address, GpuId, Hash32, LeaseId, NodeId, Signature};
use crate::outputs::OutputState;
pub use crate::outputs::Outputs;
use crate::reason::Reason;
use crate::seal::{Sealed, SignedSealKey};
use crate::slice::{NodeSpec, Slot};
use crate::unit::{Amount, Rate, TimeMs};
use crate::usage::Usage;

/// Version of these messages; both sides refuse another. 2: an agent obeys only what the authority signed for it.
/// 3: a hello names the process that says it. 4: a report names the provider for whom the node works; an assignment its
/// renter, its rate and what was billed. 5: a member may end at a limit; readings of what it uses are told. 6: a node states a key to which secrets are
/// sealed, and is sent what was sealed.
pub const LINK_VERSION: u16 = 6;
/// An agent sends something at least this often, in milliseconds.
pub const HEARTBEAT_MS: u64 = 500;
/// A node that was silent for this long is lost, in milliseconds.
pub const SILENCE_MS: u64 = 2_000;
/// Largest message to an agent in bytes: the desired state of a node with many members.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Largest message to a controller in bytes, of whatever kind; see [`ToController::most_bytes`].
pub const MAX_TO_CONTROLLER: usize = 256 << 10;

/// Most bytes of one log record: a line up to here is one record, a longer one is several.
pub const MAX_RECORD: usize = 1 << 20;
/// Most bytes of records in one [`LogChunk`]. A longer record goes in parts, so that a slow link shows signs of life
/// in between.
pub const MAX_LOG_CHUNK: usize = 64 << 10;

/// Who may decide: compared in order, the higher wins. *epoch* is on chain, *term* in the controller's store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct Fence {
    /// Changes only when authority passes on chain.
    pub epoch: u32,
    /// Raised at every start of a controller under one epoch.
    pub term: u64,
}

/// A log head: what the controller promised to extend for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct Head {
    /// Entries covered.
    pub size: u64,
    /// RFC 6962 root over them.
    pub root: Hash32,
    /// Digest of State after the last of them.
    pub digest: Hash32,
    /// Under which fence it was signed.
    pub fence: Fence,
}

/// A head with the authority's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct SignedHead {
    /// The head.
    pub head: Head,
    /// By the authority, over [`Head::digest_to_sign`].
    pub signature: Signature,
}

impl Head {
    /// The 32 bytes that the authority signs (EIP-191).
    #[must_use]
    pub fn digest_to_sign(&self, pool: &PoolId) -> Hash32 {
        signing_digest(pool, "head", self)
    }
}

/// What the authority promises to the party whose input it entered: the entry stands in the log at this number, for
/// ever. A head over more than `seq` entries with another leaf there is a broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct Promise {
    /// To whom; the harmed one if it is broken.
    pub account: Account,
    /// Number of the entry.
    pub seq: u64,
    /// RFC 6962 hash of its leaf.
    pub leaf: Hash32,
    /// Under which fence it was entered.
    pub fence: Fence,
}

/// A promise with the authority's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct SignedPromise {
    /// The promise.
    pub promise: Promise,
    /// By the authority, over [`Promise::digest_to_sign`].
    pub signature: Signature,
}

impl Promise {
    /// The 32 bytes that the authority signs (EIP-191).
    #[must_use]
    pub fn digest_to_sign(&self, pool: &PoolId) -> Hash32 {
        signing_digest(pool, "promise", self)
    }
}

/// What the agent says first, after the challenge.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Hello {
    /// [`LINK_VERSION`].
    pub version: u16,
    /// The controller's nonce, given back.
    pub nonce: Hash32,
    /// The agent's own nonce, which the [`Welcome`] must carry: an older welcome proves nothing.
    pub challenge: Hash32,
    /// The machine.
    pub spec: NodeSpec,
    /// Highest fence this agent obeyed.
    pub fence: Fence,
    /// Highest head this agent was shown, if any.
    pub head: Option<SignedHead>,
    /// Sequence number of the last report it made; 0 if none.
    pub last_seq: u64,
    /// Random, another one for each start of the agent: two lives at once are two agents with one key.
    pub life: Hash32,
}

/// The bytes of a [`Hello`] with the node key's signature over `signing_digest(pool, "hello", &hello)`.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SignedHello {
    /// What is said.
    pub hello: Hello,
    /// By the node key.
    pub signature: Signature,
}

impl SignedHello {
    /// A hello that says only this, and that nobody signed: where the link is modelled.
    #[must_use]
    pub fn modelled(spec: NodeSpec, last_seq: u64) -> Self {
        let nothing = Hash32::ZERO;
        let hello = Hello {
            version: LINK_VERSION,
            nonce: nothing,
            challenge: nothing,
            spec,
            fence: Fence::default(),
            head: None,
            last_seq,
            life: nothing,
        };
        Self { hello, signature: Signature::ZERO }
    }
}

/// The controller's answer to a hello. Only the authority's signature makes it one: what follows on the link is obeyed
/// because of it.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Welcome {
    /// Who is welcome.
    pub node: NodeId,
    /// [`Hello::challenge`], given back.
    pub challenge: Hash32,
    /// Under which fence the controller decides.
    pub fence: Fence,
    /// Sequence number of the last report that the log has.
    pub last_seq: u64,
}

/// A welcome with the authority's signature.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SignedWelcome {
    /// The welcome.
    pub welcome: Welcome,
    /// By the authority of the fence's epoch, over [`Welcome::digest_to_sign`].
    pub signature: Signature,
}

impl Welcome {
    /// The 32 bytes that the authority signs (EIP-191).
    #[must_use]
    pub fn digest_to_sign(&self, pool: &PoolId) -> Hash32 {
        signing_digest(pool, "welcome", self)
    }
}

/// How far an assignment should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Phase {
    /// Make the slice, stage the data, then report `Ready`.
    Prepare = 0,
    /// Run the command.
    Start = 1,
}

/// Where another member of the gang is reached.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct Peer {
    /// Its rank.
    pub rank: u16,
    /// `host:port`.
    pub address: String,
    /// Which run of it: a higher one than before when it was repaired.
    pub attempt: u32,
}

/// One member that this node should hold. A member that is not in the desired state is to be stopped.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Assignment {
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// How far to go.
    pub phase: Phase,
    /// The GPUs, in the order of the node's spec. More than one only as a whole.
    pub gpus: Vec<GpuId>,
    /// The place on each of them.
    pub slot: Slot,
    /// CPU in thousandths of a core.
    pub cpu_milli: u32,
    /// Memory in bytes.
    pub ram_bytes: u64,
    /// Disk in bytes: bounds what is staged for the member, and what is kept of its outputs.
    pub disk_bytes: u64,
    /// Network bandwidth in megabits a second, to which a node that says so holds the member each way. 0 books none.
    pub net_mbps: u32,
    /// The port at which the member listens, if it wants to.
    pub port: u16,
    /// All members of the lease by rank, this one included. They change while it runs if one is repaired.
    pub peers: Vec<Peer>,
    /// What to run.
    pub work: Work,
    /// Salt of the work's commitment, also used to commit to outputs.
    pub salt: Hash32,
    /// What the log holds; the agent refuses work that does not match.
    pub commitment: Hash32,
    /// The agent stops the member by itself when its meter reaches this, in milliseconds.
    pub max_run_ms: u64,
    /// What an earlier run of the lease left for this one.
    pub resume: Resume,
    /// Who rents: whose vouchers pay for it.
    pub renter: Account,
    /// The pool's key, which signs vouchers for the renter.
    pub delegate: Address,
    /// What an hour of it costs, fixed at the grant.
    pub rate: Rate,
    /// What the log billed between the renter and the node's owner so far, on all nodes of that owner.
    pub billed: Amount,
}

/// What a member may go on from: outputs of an earlier run of its lease, of its own rank or, where that left none, of
/// rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Resume {
    /// There is none.
    #[default]
    Nothing = 0,
    /// A node is sending them to the pool; the desired state is sent again when they are there.
    Coming {
        /// Which run left them.
        attempt: u32,
    } = 1,
    /// The pool has them.
    From {
        /// Which run left them.
        attempt: u32,
        /// CID of the folder.
        cid: String,
    } = 2,
}

/// All that a node should hold.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Desired {
    /// Which node. Another node's desired state is nobody's order.
    pub node: NodeId,
    /// Who decided. An agent refuses a lower fence than it has seen.
    pub fence: Fence,
    /// Rises with every change under one fence; an older one is ignored.
    pub generation: u64,
    /// Everything this node should hold.
    pub assignments: Vec<Assignment>,
}

/// A desired state with the authority's signature: an agent obeys nothing else.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SignedDesired {
    /// What the node should hold.
    pub desired: Desired,
    /// By the authority of the fence's epoch, over [`Desired::digest_to_sign`].
    pub signature: Signature,
}

impl Desired {
    /// The 32 bytes that the authority signs (EIP-191).
    #[must_use]
    pub fn digest_to_sign(&self, pool: &PoolId) -> Hash32 {
        signing_digest(pool, "desired", self)
    }
}

/// What happened to a member.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum MemberEvent {
    /// The assignment was received and is being prepared.
    Accepted = 0,
    /// Slice made, data staged and verified.
    Ready = 1,
    /// The command runs; the meter counts from here.
    Running = 2,
    /// A reading of the meter while the command runs.
    Metered = 3,
    /// The command ended by itself.
    Exited {
        /// Exit code; 128 + n for signal n.
        code: i32,
        /// `SHA-256(salt, CID text)` of the outputs, if there are any and the node knew their CID in time.
        outputs: Option<Hash32>,
    } = 4,
    /// The member was stopped because it was no longer desired or its time was up, and its slice is free.
    Stopped {
        /// As in `Exited`.
        outputs: Option<Hash32>,
    } = 5,
    /// The member could not be prepared or started, and its slice is free.
    Failed {
        /// `staging_failed`, `secrets_missing`, `slice_failed` or `runtime_failed`; `payment_required` if it was ended because nothing covers
        /// its use, whatever it was doing.
        reason: Reason,
    } = 6,
    /// The command reached a limit of its lease and was ended for it: an end of its own, as `Exited`.
    Limited {
        /// Which limit: `out_of_memory` or `disk_full`.
        reason: Reason,
        /// As in `Exited`.
        outputs: Option<Hash32>,
    } = 7,
}

impl MemberEvent {
    /// Whether nothing follows it: the member's slice is free.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Exited { .. } | Self::Stopped { .. } | Self::Failed { .. } | Self::Limited { .. })
    }

    /// What it commits to of the member's outputs.
    #[must_use]
    pub fn outputs(&self) -> Option<Hash32> {
        match self {
            Self::Exited { outputs, .. } | Self::Stopped { outputs } | Self::Limited { outputs, .. } => *outputs,
            Self::Accepted | Self::Ready | Self::Running | Self::Metered | Self::Failed { .. } => None,
        }
    }
}

/// A node's statement about one member of one lease. The court reads its first 78 canonical bytes, up to the member.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Report {
    /// Who states it.
    pub node: NodeId,
    /// For whom the node works: who loses his stake if its key contradicts itself.
    pub provider: Account,
    /// Rises with every report of the node and is signed once: the microsecond (since 1970 UTC) in which it was made, or
    /// one more than the last. The log has those that concern what the node holds.
    pub seq: u64,
    /// The fence under which the node acts.
    pub fence: Fence,
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// The GPUs that the node used, as in the assignment.
    pub gpus: Vec<GpuId>,
    /// The place on each of them.
    pub slot: Slot,
    /// What happened.
    pub event: MemberEvent,
    /// Milliseconds that the command has run, by the node's monotonic clock.
    pub metered_ms: u64,
}

/// A report with the node key's signature over `signing_digest(pool, "report", &report)`.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SignedReport {
    /// The statement.
    pub report: Report,
    /// By the node key.
    pub signature: Signature,
}

/// Which stream of a member a log line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum LogSource {
    /// The command's standard output.
    Stdout = 0,
    /// The command's standard error.
    Stderr = 1,
    /// The agent's own lines: staging progress, failures.
    Agent = 2,
}

/// What a member printed, as far as it was read at once: a line with its line end, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct LogRecord {
    /// Stream.
    pub source: LogSource,
    /// As printed. Without `\n` at its end the line goes on in the next record of the stream.
    pub bytes: Vec<u8>,
}

/// Log records of one member, in order. High-volume matter: it never enters the log.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct LogChunk {
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// Number of the first record within the member's run; records count from 0 over all streams. A number that is left
    /// out never comes.
    pub first: u64,
    /// So many bytes of the first record were in the chunks before this one.
    pub from: u32,
    /// The last record goes on in the next chunk.
    pub more: bool,
    /// At most [`MAX_LOG_CHUNK`] bytes of them.
    pub records: Vec<LogRecord>,
    /// Nothing of the member's run follows.
    pub end: bool,
}

/// A voucher with both signatures: enough for the provider to claim alone.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct SignedVoucher {
    /// Who pays.
    pub renter: Account,
    /// Who earns.
    pub provider: Account,
    /// The pair's total so far.
    pub cumulative: Amount,
    /// Use up to here is covered.
    pub used_through: TimeMs,
    /// The authority's epoch.
    pub epoch: u32,
    /// Size of the log that justifies it.
    pub log_size: u64,
    /// By the renter's session key, over the EIP-712 digest.
    pub renter_signature: Signature,
    /// By the authority, over the same digest.
    pub authority_signature: Signature,
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum ToController {
    /// First message.
    Hello(Box<SignedHello>) = 0,
    /// Still here.
    Heartbeat {
        /// Sequence number of the last report made.
        last_seq: u64,
    } = 1,
    /// A statement; kept by the agent until acknowledged.
    Report(SignedReport) = 2,
    /// Log lines.
    Logs(LogChunk) = 3,
    /// What became of a member's outputs; first before the report of its end, then at every change until the
    /// controller has the last word down.
    Outputs(Outputs) = 4,
    /// The voucher was stored.
    VoucherStored {
        /// Whose.
        renter: Account,
        /// Up to which total.
        cumulative: Amount,
    } = 5,
    /// The answer to [`ToAgent::Echo`], at once.
    Echo {
        /// Given back.
        nonce: Hash32,
    } = 6,
    /// What a running member uses: at the pace of its meter, kept by nobody, so a lost one is not sent again.
    Usage(Usage) = 7,
    /// To which key secrets are to be sealed from now on; after each welcome, and when it changes.
    SealKey(SignedSealKey) = 8,
}

impl ToController {
    /// Most bytes of a message that begins with this byte; `None` if there is no such kind. A kind that a stranger can
    /// send at will has no more room than an honest agent needs.
    #[must_use]
    pub fn most_bytes(kind: u8) -> Option<usize> {
        Some(match kind {
            // A spec with every profile of every GPU.
            0 => 128 << 10,
            // Numbers, the GPUs of one member and a profile's name.
            2 => 1 << 10,
            // Lines as an agent cuts them into chunks.
            3 => MAX_TO_CONTROLLER,
            // A CID and what was left out, by name.
            4 => 16 << 10,
            1 | 5 | 6 | 7 => 128,
            // A node, a key, a time and a signature.
            8 => 256,
            _ => return None,
        })
    }
}

/// From the controller.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum ToAgent {
    /// Opens the link.
    Challenge {
        /// [`LINK_VERSION`].
        version: u16,
        /// The pool.
        pool: PoolId,
        /// To be signed in the hello.
        nonce: Hash32,
    } = 0,
    /// The hello was accepted.
    Welcome {
        /// Bearer token for the content gateway.
        token: String,
        /// The authority's word that it is the one who answers.
        signed: SignedWelcome,
        /// The newest signed head, if there is one.
        head: Option<SignedHead>,
    } = 1,
    /// All that the node should hold.
    Desired(SignedDesired) = 2,
    /// Reports up to this number are in the log.
    Ack {
        /// Sequence number.
        seq: u64,
    } = 3,
    /// The link is closed; the reason says why.
    Refused {
        /// Stable code.
        reason: Reason,
        /// For people: what was wrong and what to do.
        detail: String,
    } = 4,
    /// Money earned.
    Voucher(SignedVoucher) = 5,
    /// A newer head.
    Head(SignedHead) = 6,
    /// A fresh bearer token for the content gateway.
    Token(String) = 7,
    /// Records of this member below `next` are in the controller's file, or never will be (the node does not hold the
    /// member): the agent forgets them. Answers every [`LogChunk`]; one without records only asks for the number.
    LinesKept {
        /// The lease.
        lease: LeaseId,
        /// Which run of it.
        attempt: u32,
        /// Rank of the member.
        member: u16,
        /// Number of the first record that the controller does not have.
        next: u64,
        /// The chunk from `next` on could not be written, as on a full disk: the agent goes back there and sends again
        /// with its next heartbeat. Later chunks of the member are not taken before.
        again: bool,
    } = 8,
    /// Asks for the same bytes back: the controller measures how long that takes.
    Echo {
        /// Random.
        nonce: Hash32,
    } = 9,
    /// What was last said of these outputs is down, or never will be (the node did not hold the member): of a final
    /// state the agent need say nothing more. `Uploading`, where a final state was said, means that not all of it is
    /// here: the agent sends what is missing, and says so again.
    OutputsHeard {
        /// The lease.
        lease: LeaseId,
        /// Which run of it.
        attempt: u32,
        /// Rank of the member.
        member: u16,
        /// The state that is down.
        state: OutputState,
    } = 10,
    /// The secrets of a member, for the node alone: what the controller was given, as it was. Sent after the desired state
    /// in which the member is prepared. At most [`MAX_MESSAGE`] bytes, as every message.
    Secrets {
        /// The lease.
        lease: LeaseId,
        /// Which run of it.
        attempt: u32,
        /// Rank of the member.
        member: u16,
        /// What was sealed.
        sealed: Sealed,
    } = 11,
}
