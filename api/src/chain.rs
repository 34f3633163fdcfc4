//! Facts of the chain of record, as they enter the log: one input for each final block that has events of the pool.

use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::id::{Account, Address, Hash32, NodeId};
use crate::unit::{Amount, TimeMs};

/// A final block and the pool's events in it, in log order.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Block {
    /// Height.
    pub number: u64,
    /// Its hash.
    pub hash: Hash32,
    /// Hash of its parent.
    pub parent: Hash32,
    /// Events of the pool's controller and vault, in order.
    pub events: Vec<ChainEvent>,
}

/// What kind of service a component is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum ComponentKind {
    /// A controller's REST endpoint, which also serves the log.
    Controller = 0,
    /// A content gateway.
    Gateway = 1,
    /// A relay.
    Relay = 2,
}

/// One event of the pool's contracts.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum ChainEvent {
    /// The pool was created with these fixed terms (from the controller's constructor).
    PoolOpened {
        /// ERC-20 in which everything is paid.
        token: Address,
        /// The vault.
        vault: Address,
        /// First owner.
        owner: Account,
        /// First authority.
        authority: Account,
        /// Operator's fee in ten-thousandths.
        fee_bps: u16,
        /// Whether simulated GPUs may be leased.
        allow_simulated: bool,
        /// Whether nodes without a sandbox may be leased.
        allow_unsandboxed: bool,
        /// Blocks on top that make a block final; `u32::MAX` means the chain's own `finalized` tag.
        finality_depth: u32,
        /// Least stake of a provider whose nodes may be leased.
        min_stake: Amount,
    } = 0,
    /// A component is reachable at `endpoint` until `until`.
    ComponentRegistered {
        /// Who registered it.
        owner: Account,
        /// What it is.
        kind: ComponentKind,
        /// URL.
        endpoint: String,
        /// When the entry ends unless renewed.
        until: TimeMs,
    } = 1,
    /// An owner joined.
    ProviderRegistered {
        /// The owner.
        provider: Account,
        /// Who is paid.
        payout: Address,
        /// Stake held.
        stake: Amount,
    } = 2,
    /// The stake that counts is now `stake` (added, unbonding, slashed).
    StakeChanged {
        /// The owner.
        provider: Account,
        /// Stake that counts.
        stake: Amount,
    } = 3,
    /// A node's key signed for this owner.
    NodeRegistered {
        /// The node.
        node: NodeId,
        /// Its owner.
        provider: Account,
    } = 4,
    /// The owner withdrew the node.
    NodeRetired {
        /// The node.
        node: NodeId,
    } = 5,
    /// The node is on offer with the spec of this hash.
    OfferSet {
        /// The node.
        node: NodeId,
        /// [`NodeSpec::hash`](crate::slice::NodeSpec::hash).
        spec_hash: Hash32,
        /// Isolation classes offered, one bit each.
        classes: u8,
    } = 6,
    /// The node is no longer on offer.
    OfferClosed {
        /// The node.
        node: NodeId,
    } = 7,
    /// An epoch began.
    AuthorityChanged {
        /// The new epoch.
        epoch: u32,
        /// Its authority.
        authority: Account,
        /// Its owner.
        owner: Account,
    } = 8,
    /// A log head was anchored.
    Anchored {
        /// Epoch that signed it.
        epoch: u32,
        /// Entries in the log.
        size: u64,
        /// Root of the tree.
        root: Hash32,
        /// Digest of State after the last entry.
        digest: Hash32,
    } = 9,
    /// Money came in.
    Deposited {
        /// Whose.
        renter: Account,
        /// How much came.
        amount: Amount,
    } = 10,
    /// The renter's own session key.
    KeySet {
        /// Whose.
        renter: Account,
        /// The key; zero if none.
        key: Address,
        /// When it ends.
        until: TimeMs,
    } = 11,
    /// A delegated key may sign for the renter up to `cap`.
    KeyGranted {
        /// Whose money.
        renter: Account,
        /// The key.
        key: Address,
        /// Most it may spend from now on.
        cap: Amount,
        /// When it ends.
        until: TimeMs,
    } = 12,
    /// A key is no longer the renter's; claims of vouchers signed before stay good until `dead_from`.
    KeyRevoked {
        /// Whose.
        renter: Account,
        /// The key.
        key: Address,
        /// From when its vouchers count no more.
        dead_from: TimeMs,
    } = 13,
    /// The renter asked for money back; `amount` in all is thawing.
    Thawed {
        /// Whose.
        renter: Account,
        /// Thawing in all.
        amount: Amount,
        /// When it can be withdrawn.
        ready: TimeMs,
    } = 14,
    /// Thawed money left.
    Withdrawn {
        /// Whose.
        renter: Account,
        /// How much.
        amount: Amount,
    } = 15,
    /// A voucher was claimed: `paid` moved from the renter to the provider (fee included).
    Claimed {
        /// Who earned.
        provider: Account,
        /// Who paid.
        renter: Account,
        /// The pair's total after the claim.
        cumulative: Amount,
        /// Moved now.
        paid: Amount,
        /// The delegated key out of whose cap it came; `None` if a key of the renter's own signed.
        key: Option<Address>,
    } = 16,
    /// A provider took earnings out.
    CashedOut {
        /// Who.
        provider: Account,
        /// How much.
        amount: Amount,
    } = 17,
    /// The owner in an epoch took its fees out.
    FeesCashedOut {
        /// In which they were earned.
        epoch: u32,
        /// How much.
        amount: Amount,
    } = 18,
    /// `holder` may run `seats` members at once with the issuer's product, if they begin before `until`. No seats: the
    /// licence is withdrawn.
    LicenceSet {
        /// Who grants it.
        issuer: Account,
        /// Who may use it.
        holder: Account,
        /// Which of the issuer's products.
        product: Hash32,
        /// Members at once.
        seats: u32,
        /// No member begins from then on.
        until: TimeMs,
    } = 19,
    /// An account may take the authority over when it was silent for too long, or may not any more.
    StandbySet {
        /// Who.
        standby: Account,
        /// Whether it may.
        allowed: bool,
    } = 20,
    /// What an owner has at stake for what its authorities sign, and what of it is on its way back.
    BondChanged {
        /// Whose.
        owner: Account,
        /// At stake, and not on its way back.
        kept: Amount,
        /// On its way back, and at stake until it is taken.
        leaving: Amount,
        /// When that can be taken.
        ready: TimeMs,
    } = 21,
    /// The authority of an epoch contradicted itself, and its owner lost all that was at stake.
    Convicted {
        /// Who lost it.
        owner: Account,
        /// In which epoch it was signed.
        epoch: u32,
        /// How much.
        amount: Amount,
    } = 22,
    /// An owner gave up what was at stake, to disown anchors.
    Forfeited {
        /// Who.
        owner: Account,
        /// How much.
        amount: Amount,
    } = 23,
    /// A provider lost its stake: the node's key contradicted itself.
    StakeForfeited {
        /// Who lost it.
        provider: Account,
        /// Whose key it was.
        node: NodeId,
        /// How much.
        amount: Amount,
    } = 24,
    /// The authority is there, though it anchors nothing.
    Renewed {
        /// Its epoch.
        epoch: u32,
    } = 25,
    /// An account may become the owner.
    OwnerAnnounced {
        /// Who; zero if nobody may any more.
        next: Account,
        /// From when.
        ready: TimeMs,
    } = 26,
    /// What was anchored above this size does not count any more.
    AnchorsDisowned {
        /// The epoch that ends with this.
        epoch: u32,
        /// What is anchored now.
        size: u64,
    } = 27,
}
