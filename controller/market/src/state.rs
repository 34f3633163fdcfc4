//! The whole world of the market. Only [`step`](crate::step()) changes it; everybody else reads.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::agent::{Fence, Phase};
use selion_api::chain::ComponentKind;
use selion_api::lease::{Beside, LeaseRequest, LeaseState, NearestMiss, Priority};
use selion_api::slice::{IsolationClass, NodeSpec};
use selion_api::{Account, Address, Amount, GpuId, Hash32, LeaseId, Licence, NodeId, Rate, Reason, Slot, TimeMs};

use crate::booking::{self, Booking};
use crate::extend::Extension;
use crate::finder::Finder;
use crate::free_use::FreeUse;
use crate::input::Policy;
use crate::learned::Learned;
use crate::ledger::Ledger;
use crate::licence::Seating;
use crate::scoring::Scoring;
use crate::staged::Staged;
use crate::tally::{Bundle, Tally};

/// Everything that decisions depend on. Equal logs give equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct State {
    /// Version of the rules in force; 0 before the first entry.
    pub rules: u16,
    /// Entries applied so far: the number of the next one.
    pub next_seq: u64,
    /// Time of the last entry.
    pub now: TimeMs,
    /// The fence in force.
    pub fence: Fence,
    /// The controller's key for delegated vouchers.
    pub delegate: Address,
    /// The operator's numbers.
    pub policy: Policy,
    /// Terms from the chain; `None` before the pool's first block.
    pub pool: Option<PoolTerms>,
    /// Last block in the log.
    pub block: Option<BlockRef>,
    /// Set once a reorganisation went too deep: no new grants.
    pub chain_broken: bool,
    /// Services on chain by owner, kind and endpoint, with the end of each entry.
    pub components: BTreeMap<(Account, ComponentKind, String), TimeMs>,
    /// Seats by licence and holder.
    pub licences: BTreeMap<(Licence, Account), Seating>,
    /// Owners by account.
    pub providers: BTreeMap<Account, Provider>,
    /// Machines by id, from chain and link.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Sums over the machines.
    pub tally: Tally,
    /// Leases by id: live ones, and ended ones for a day, so that late reports find them.
    pub leases: BTreeMap<LeaseId, Lease>,
    /// Leases that wait.
    pub waiting: BTreeSet<LeaseId>,
    /// Active leases of which members are being repaired.
    pub broken: BTreeSet<LeaseId>,
    /// What holds slots and is known to end: when at the latest, by class. A fold of leases and policy.
    pub running: BTreeMap<Priority, BTreeSet<(TimeMs, LeaseId)>>,
    /// Room kept for the head of the line.
    pub booking: Option<Booking>,
    /// What accounts used without a bill.
    pub free_use: BTreeMap<Account, FreeUse>,
    /// When the line is looked at again for an account that used up what is free.
    pub look_again: Option<TimeMs>,
    /// How many leases each account has in State; nothing that the leases do not say.
    pub loads: BTreeMap<Account, Load>,
    /// What a repeat of a request that made a lease is answered with, by the request's `idem`.
    pub answers: BTreeMap<Hash32, FirstAnswer>,
    /// Money.
    pub ledger: Ledger,
    /// What was ever billed, by renter and provider: the cumulative total of their voucher.
    pub billed: BTreeMap<(Account, Account), Amount>,
    /// What was ever claimed, by renter and provider, as the chain says. What is billed above it is promised.
    pub claimed: BTreeMap<(Account, Account), Amount>,
    /// Delegated keys of renters that name the pool's delegate: what is left of the cap, and when it ends.
    pub grants: BTreeMap<Account, KeyGrant>,
    /// Totals of the chain for the books: by renter deposited, claimed, withdrawn.
    pub books: BTreeMap<Account, Books>,
    /// Deadlines: leases by the time at which their state ends by itself.
    pub deadlines: BTreeSet<(TimeMs, LeaseId)>,
    /// Ended leases by the time at which they are forgotten.
    pub forget: BTreeSet<(TimeMs, LeaseId)>,
    /// First answers by the time at which their repeat protection ends.
    pub repeats: BTreeSet<(TimeMs, Hash32)>,
    /// True if the last step stopped at its bound of work.
    pub more: bool,
    /// What was learned of requests.
    pub learned: Learned,
    /// Tables made of that: nothing that the rest does not say.
    #[borsh(skip)]
    pub scoring: Scoring,
    /// An index over the nodes: nothing that the rest does not say.
    #[borsh(skip)]
    pub finder: Finder,
}

/// The pool's fixed terms and its authority.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct PoolTerms {
    /// Token.
    pub token: Address,
    /// Vault.
    pub vault: Address,
    /// Operator's fee in ten-thousandths.
    pub fee_bps: u16,
    /// Whether simulated GPUs may be leased.
    pub allow_simulated: bool,
    /// Whether nodes without a sandbox may be leased.
    pub allow_unsandboxed: bool,
    /// Blocks on top that make a block final.
    pub finality_depth: u32,
    /// Least stake of a provider whose nodes may be leased.
    pub min_stake: Amount,
    /// Current authority.
    pub authority: Account,
    /// Its epoch.
    pub epoch: u32,
    /// Size of the last anchored head that is final.
    pub anchored: u64,
}

/// A block by number and hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct BlockRef {
    /// Height.
    pub number: u64,
    /// Hash.
    pub hash: Hash32,
}

/// An owner, from the chain.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Provider {
    /// Who is paid.
    pub payout: Address,
    /// Stake that counts.
    pub stake: Amount,
}

/// A machine: what the chain says of it and what its link says.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Node {
    /// Its owner, from the chain; `None` if not registered or retired.
    pub provider: Option<Account>,
    /// Hash of the spec on offer, from the chain; `None` if there is no open offer.
    pub offer: Option<Hash32>,
    /// Hardware and asks, from its last hello.
    pub spec: Option<NodeSpec>,
    /// True while its link is up.
    pub linked: bool,
    /// Since when `linked` is what it is.
    pub since: TimeMs,
    /// How long a message to it over its present link and the answer take, in microseconds; `None` if not measured.
    pub rtt_us: Option<u32>,
    /// Paused by its owner.
    pub paused: bool,
    /// What its owner takes back, a GPU or (`None`) all of it: it takes nobody, and what is there is stopped then.
    pub reclaimed: BTreeMap<Option<GpuId>, TimeMs>,
    /// Sequence number of its last report in the log.
    pub last_seq: u64,
    /// Why it takes no new lease; `None` if it is schedulable. A fold of the fields above and the pool's terms.
    pub blocked: Option<Reason>,
    /// What is taken on it, by lease and rank.
    pub held: BTreeMap<(LeaseId, u16), Held>,
    /// Datasets that are on it, as far as the log tells.
    pub staged: Staged,
}

/// What a member takes from its node.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Held {
    /// Whose lease it is.
    pub renter: Account,
    /// Which run of the lease.
    pub attempt: u32,
    /// GPUs, in the order of the node's spec.
    pub gpus: Vec<GpuId>,
    /// Place on each of them.
    pub slot: Slot,
    /// What it takes beside them.
    pub beside: Beside,
    /// Port given to the member.
    pub port: u16,
    /// Of which licence of the renter it takes a seat.
    pub licence: Option<Licence>,
}

/// A delegated key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct KeyGrant {
    /// What it may still sign for in claims to come. What is reserved or owed counts against it already.
    pub cap: Amount,
    /// When it ends.
    pub until: TimeMs,
    /// Revoked: it pays for what ran, and for nothing new.
    pub revoked: bool,
}

/// What the chain says came and went for a renter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Books {
    /// Deposits.
    pub deposited: Amount,
    /// Claims of providers.
    pub claimed: Amount,
    /// Withdrawals.
    pub withdrawn: Amount,
    /// Thawing in all, as the chain says; the pocket may hold less while leases keep the rest.
    pub thawing: Amount,
    /// When what thaws may leave.
    pub ready: TimeMs,
    /// While more thaws than is free: until when what the renter runs is paid. A fold of the fields above, the pocket and
    /// the policy.
    pub paid_until: Option<TimeMs>,
}

/// How many leases of an account are in State.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Load {
    /// That wait.
    pub waiting: u32,
    /// In all: those that live and those that ended within a day.
    pub leases: u32,
}

/// The answer that every repeat gets.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct FirstAnswer {
    /// Fingerprint of the first body; another body under the same key is refused.
    pub body: Hash32,
    /// The lease that it made.
    pub lease: LeaseId,
    /// When the repeat protection ends.
    pub until: TimeMs,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Lease {
    /// What was asked, for as long as it was extended to.
    pub request: LeaseRequest,
    /// Whether the renter signed it.
    pub signed: bool,
    /// What it would take at its best place in an empty fleet, when it was asked: what quotas and shares reckon with
    /// before it has a place.
    pub size: Bundle,
    /// When it was asked.
    pub created: TimeMs,
    /// Where it stands.
    pub state: LeaseState,
    /// Since when.
    pub since: TimeMs,
    /// When this state ends by itself; `None` once ended.
    pub deadline: Option<TimeMs>,
    /// While it runs where an owner takes a place of it back, or on money that may leave.
    pub notice: Option<Notice>,
    /// While it is active and members of it are being repaired.
    pub broken: Option<Broken>,
    /// When waiting ends; kept over attempts.
    pub wait_until: TimeMs,
    /// Why it waits, is ending, or ended.
    pub reason: Option<Reason>,
    /// The candidate that came closest at the last try, while waiting.
    pub nearest: Option<NearestMiss>,
    /// Place in the order of service at the last pass, from 1, while waiting.
    pub position: u64,
    /// The highest number of a run that was given so far; 0 before the first grant.
    pub attempt: u32,
    /// Members of the current or last run, by rank; empty before the first grant.
    pub members: Vec<Member>,
    /// Deposit kept for the current run and not billed yet.
    pub reserved: Amount,
    /// When the current run was granted.
    pub granted: TimeMs,
    /// What was free for it so far, its preparing and the stops of others, as far as it has not paid for as much.
    pub unpaid: Amount,
    /// Since when the meter counts in the current run; `None` if it never became active.
    pub active_since: Option<TimeMs>,
    /// Final bills of members that were lost in the current run and repaired.
    pub fixed: Amount,
    /// After `ending`: go back to waiting instead of ended.
    pub requeue: bool,
    /// Runs that are over, the last one too once it ended: number, reason, amount billed.
    pub past: Vec<(u32, Reason, Amount)>,
    /// How it was extended.
    pub extended: Vec<Extension>,
}

/// A running lease is stopped before its time. Of several notices this is the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Notice {
    /// When.
    pub by: TimeMs,
    /// Why: `owner_reclaimed`, or `payment_required` where its money may leave.
    pub reason: Reason,
    /// When the state of the lease would end by itself otherwise.
    pub otherwise: TimeMs,
}

/// Members of an active lease that were lost and do not run again yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Broken {
    /// Their ranks: over, while they have no other place; else on their way to running there.
    pub ranks: BTreeSet<u16>,
    /// The repair is given up then.
    pub by: TimeMs,
}

/// One member of a run.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Member {
    /// Which run: that of the gang, or a higher one if it was repaired. No rank has the same number twice.
    pub attempt: u32,
    /// Node.
    pub node: NodeId,
    /// Owner at the grant; earns.
    pub provider: Account,
    /// GPUs, in the order of the node's spec.
    pub gpus: Vec<GpuId>,
    /// Place on each of them.
    pub slot: Slot,
    /// How it is kept apart.
    pub class: IsolationClass,
    /// The ask, frozen at the grant: of all its GPUs together.
    pub rate: Rate,
    /// Port given.
    pub port: u16,
    /// How far the agent reported to be.
    pub progress: Progress,
    /// Since when its meter counts; `None` before, and when its bill is final although the lease goes on.
    pub since: Option<TimeMs>,
    /// Milliseconds billable by its last report: its meter, capped by the log's interval since `since`.
    pub billable_ms: u64,
    /// Part of its bill that vouchers cover already.
    pub vouched: Amount,
    /// When a voucher last covered it.
    pub vouched_at: TimeMs,
    /// Exit code, once the command ended.
    pub exit_code: Option<i32>,
    /// Commitment to its outputs, if reported.
    pub outputs: Option<Hash32>,
    /// Datasets of the request that were not known to be on the node at the grant.
    pub away: u16,
}

/// How far a member is, by its agent's reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Progress {
    /// Granted; the agent has not answered.
    Granted = 0,
    /// The agent prepares.
    Accepted = 1,
    /// Slice made, data staged.
    Ready = 2,
    /// The command runs.
    Running = 3,
    /// Over, and its slot is free.
    Gone = 4,
}

/// One member that a node should hold now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredMember {
    /// The lease.
    pub lease: LeaseId,
    /// Which run.
    pub attempt: u32,
    /// Rank.
    pub member: u16,
    /// How far to go.
    pub phase: Phase,
}

impl State {
    /// An empty world, before the first entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// SHA-256 of the canonical bytes: equal for equal logs.
    #[must_use]
    pub fn digest(&self) -> Hash32 {
        selion_api::commit::sha256_of(self)
    }

    /// Notes when a lease ends at the latest; to be called after its state or deadline changed, with what it was before.
    pub(crate) fn note_end(&mut self, id: LeaseId, before: Option<TimeMs>) {
        let Some(lease) = self.leases.get(&id) else {
            return;
        };
        let ends = self.running.entry(lease.request.priority).or_default();
        if let Some(before) = before {
            ends.remove(&(before, id));
        }
        if let Some(end) = booking::end_of(&self.policy, lease) {
            ends.insert((end, id));
        }
        for member in &lease.members {
            self.finder.mark_ends(member.node);
        }
    }

    /// When a [`Tick`](crate::Input::Tick) is due, if ever.
    #[must_use]
    pub fn next_deadline(&self) -> Option<TimeMs> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let look = self.booking.as_ref().map(|booking| booking.look);
        deadline.into_iter().chain(look).chain(self.look_again).min()
    }
}
