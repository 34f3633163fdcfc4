//! Everything that can happen to the controller.

use alloc::boxed::Box;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::agent::{Fence, SignedHello, SignedReport};
use selion_api::chain::Block;
use selion_api::said::Said;
use selion_api::{Account, Address, GpuId, Hash32, LeaseId, LeaseRequest, NodeId, Signature, TimeMs};

use crate::accounts::{Group, Seat};
use crate::engine::Weighting;

/// Version of the rules that this crate carries.
pub const RULES: u16 = 1;

/// Where and when an input stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the entry; the first is 0.
    pub seq: u64,
    /// `max(previous, clock)` of the controller that entered it.
    pub at_ms: TimeMs,
    /// Under which fence it was entered.
    pub fence: Fence,
}

/// Numbers that the operator sets. A change enters the log.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Policy {
    /// A grant lapses unless every agent accepted it within this long, in milliseconds.
    pub hold_ms: u64,
    /// Then every member must be ready within this long.
    pub prepare_ms: u64,
    /// Then every member must run within this long.
    pub start_ms: u64,
    /// Agents must confirm a stop within this long; then slots of silent nodes stay taken until they answer.
    pub ending_ms: u64,
    /// What a command runs on after the end of its lease, while it is being stopped, is billed up to this long.
    pub grace_ms: u64,
    /// A grant reserves the price of at least this long, and of `grace_ms`.
    pub least_ms: u64,
    /// A voucher is due at least this often while a lease is active.
    pub voucher_ms: u64,
    /// What runs on money that thaws is stopped this long before that may leave. Within this time its last voucher is
    /// signed, claimed and mined: the interval of vouchers, that of claims, and the time until a block is final.
    pub claim_margin_ms: u64,
    /// A lease that became active runs at least this long before it may be stopped for one of a higher class.
    pub min_run_ms: u64,
    /// Room is kept for the head of the line, and leases of lower classes may be stopped for it. False, for comparing:
    /// whoever fits is served, and large gangs may starve.
    pub bookings: bool,
    /// Groups of accounts, sorted by path.
    pub groups: Vec<Group>,
    /// Where accounts stand in the order of service, sorted by account: one that is out of order is not found.
    pub accounts: Vec<Seat>,
    /// What an account held in the past counts beside what it holds, as a mean of which half has faded after this
    /// long, in milliseconds; 0: the past does not count.
    pub half_life_ms: u64,
    /// How places are scored; the ask comes before it.
    pub weighting: Weighting,
    /// The part of a slice's shadow price that its rate has beside the ask, in permille; 0: nothing is charged for
    /// fragmentation. See [`Fragmentation`](crate::dry_run::Fragmentation).
    pub shadow_permille: u16,
    /// Most leases of one account that wait.
    pub max_waiting: u32,
    /// Most leases of all accounts that wait.
    pub max_waiting_all: u32,
    /// Most leases of one account that are in State: those that live and those that ended within a day.
    pub max_leases: u32,
    /// Most leases of all accounts that are in State.
    pub max_leases_all: u32,
}

impl Policy {
    /// As this, without limits to how many leases there may be: for what-if and measures.
    #[must_use]
    pub fn unlimited(self) -> Self {
        let most = u32::MAX;
        Self { max_waiting: most, max_waiting_all: most, max_leases: most, max_leases_all: most, ..self }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            hold_ms: 10_000,
            prepare_ms: 600_000,
            start_ms: 30_000,
            ending_ms: 15_000,
            grace_ms: 5_000,
            least_ms: 60_000,
            voucher_ms: 60_000,
            claim_margin_ms: 7_200_000,
            min_run_ms: 300_000,
            bookings: true,
            groups: Vec::new(),
            accounts: Vec::new(),
            half_life_ms: 0,
            weighting: Weighting::Market,
            shadow_permille: 0,
            max_waiting: 1_000,
            max_waiting_all: 20_000,
            max_leases: 10_000,
            max_leases_all: 200_000,
        }
    }
}

/// A renter's request, and whether he signed it.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct RequestLease {
    /// What is asked.
    pub request: LeaseRequest,
    /// By the renter's account over `signing_digest(pool, "lease", request)`; `None` marks it as unsigned.
    pub signature: Option<Signature>,
}

/// One input. Variant numbers are for ever.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Input {
    /// The rules from here on. Entry 0 is always this.
    Rules {
        /// [`RULES`] of the release that entered it.
        version: u16,
        /// SHA-256 that names the rules' text (see `docs/ARCHITECTURE.md`, "Rules change").
        digest: Hash32,
    } = 0,
    /// A controller started or took over; the stamp carries its fence. Deadlines restart from here.
    Opened {
        /// The key that the controller holds for delegated vouchers.
        delegate: Address,
        /// The operator's numbers.
        policy: Policy,
    } = 1,
    /// A final block that has events of the pool.
    Block(Block) = 2,
    /// A reorganisation deeper than the finality rule: `number` was final with hash `had`, the chain now says `has`.
    ChainBroken {
        /// Height.
        number: u64,
        /// Hash in the log.
        had: Hash32,
        /// Hash on the chain.
        has: Hash32,
    } = 3,
    /// Nothing but time: a deadline is due.
    Tick = 4,
    /// The last step stopped at its bound of work; go on.
    Continue = 5,
    /// A renter asks for a lease.
    Request(RequestLease) = 6,
    /// A renter gives a lease back.
    Release {
        /// Who says so.
        renter: Account,
        /// Which.
        lease: LeaseId,
        /// When he said it, signed as [`Release`](selion_api::said::Release); `None` marks it as unsigned.
        said: Option<Said>,
    } = 7,
    /// The owner pauses or resumes a node: no new leases, running ones go on. Who resumes wants nothing back any more.
    SetPaused {
        /// Who says so.
        provider: Account,
        /// Which.
        node: NodeId,
        /// The new value.
        paused: bool,
        /// When he said it, signed as [`SetPaused`](selion_api::said::SetPaused); `None` marks it as unsigned.
        said: Option<Said>,
    } = 8,
    /// A node's link is up: its key answered the challenge, and this is what it says it is. The whole hello, since the
    /// signature is over all of it: the challenge's nonce, too, of which it is the one answer.
    Linked(Box<SignedHello>) = 9,
    /// A node's link fell silent.
    Lost {
        /// Which.
        node: NodeId,
        /// Sequence number of its last report in the log: the evidence up to which it is billed.
        last_seq: u64,
    } = 10,
    /// A node's signed statement.
    Report(SignedReport) = 11,
    /// The owner takes a node back, or one GPU of it, until [`Input::SetPaused`] with `paused: false`. From here on it
    /// takes no lease; what is still on it after `notice_ms` is stopped then. Asked again, the earlier time holds.
    Reclaim {
        /// Who says so.
        provider: Account,
        /// Which node.
        node: NodeId,
        /// Only this GPU; the whole node if `None`.
        gpu: Option<GpuId>,
        /// What is there may stay for so long from this entry on, in milliseconds.
        notice_ms: u64,
        /// When he said it, signed as [`Reclaim`](selion_api::said::Reclaim); `None` marks it as unsigned.
        said: Option<Said>,
    } = 12,
    /// The controller measured how long a message to a linked node and its answer take, and that differs from what the
    /// log has by a step.
    Measured {
        /// Which.
        node: NodeId,
        /// There and back, in microseconds; rounded up.
        rtt_us: u32,
    } = 13,
    /// A renter makes a lease that waits or runs last longer. Once for each key.
    Extend {
        /// Who says so.
        renter: Account,
        /// Which.
        lease: LeaseId,
        /// By so much, in milliseconds.
        for_ms: u64,
        /// Tells this extension of the lease from every other.
        key: Hash32,
        /// When he said it, signed as [`Extend`](selion_api::said::Extend); `None` marks it as unsigned.
        said: Option<Said>,
    } = 14,
}
