//! Everything but leases as JSON: offers, nodes, shares, money, datasets, the registry, the log.

use alloc::string::String;
use alloc::vec::Vec;

use crate::agent::{Fence, SignedHead};
use crate::chain::ComponentKind;
use crate::commit::PoolId;
use crate::id::{Account, Address, GpuId, Hash32, LeaseId, NodeId, Signature};
use crate::lease::BillLine;
use crate::licence::Licence;
use crate::reason::Reason;
use crate::rest::Terms;
use crate::slice::{BoxFeature, BoxFeatures, GpuSpec, IsolationClass, Sandbox, Slot};
use crate::unit::{Amount, Rate, TimeMs};

/// `GET /v1/pool`: which pool this is and on what terms.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct PoolView {
    /// Chain and Controller contract.
    pub pool: PoolId,
    /// Vault contract.
    pub vault: Address,
    /// Token contract.
    pub token: Address,
    /// Who decides and countersigns.
    pub authority: Account,
    /// The key that the controller holds for delegated vouchers.
    pub delegate: Address,
    /// The fence in force.
    pub fence: Fence,
    /// Its terms, fixed when it was made.
    #[serde(flatten)]
    pub terms: Terms,
}

/// One thing that can be leased now, and its ask.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Offer {
    /// Node.
    pub node: NodeId,
    /// Owner.
    pub provider: Account,
    /// GPU.
    pub gpu: GpuId,
    /// Model.
    pub model: String,
    /// `whole`, a MIG profile name, or `share`.
    pub slice: String,
    /// How it is kept apart.
    pub class: IsolationClass,
    /// Ask per hour; for `share` the ask of the whole GPU in shares.
    pub rate: Rate,
    /// Memory of the slice in bytes; for `share` what is left.
    pub mem_bytes: u64,
    /// How many fit now; for `share` the permille left.
    pub available: u64,
    /// Region as stated by the owner.
    pub region: String,
}

/// A page of offers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct OfferPage {
    /// Offers in order of node, GPU, slice.
    pub offers: Vec<Offer>,
    /// Pass as `page_token` for the next page.
    pub next_page_token: Option<String>,
}

/// A place on a GPU that is in use.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct SlotView {
    /// The place.
    pub slot: Slot,
    /// Who holds it.
    pub lease: LeaseId,
    /// Rank of the member.
    pub member: u16,
}

/// A GPU and what is on it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct GpuView {
    /// As offered.
    pub spec: GpuSpec,
    /// In use.
    pub slots: Vec<SlotView>,
}

/// What signs a release, a pause or a resume. Both are given, or none: then the log marks the word as unsigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Word {
    /// When the account says it, by its own clock; at most five minutes from the controller's.
    #[serde(default)]
    pub said_ms: Option<TimeMs>,
    /// The account's signature over `signing_digest(pool, kind, statement)` with that time; each statement counts once.
    #[serde(default)]
    pub signature: Option<Signature>,
}

/// A renter makes a lease last longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// By so much, in milliseconds; with what it lasts so far at most 30 days.
    #[schema(minimum = 1, maximum = 2_592_000_000_u64)]
    pub for_ms: u64,
    /// As of [`Word`].
    #[serde(default)]
    pub said_ms: Option<TimeMs>,
    /// As of [`Word`].
    #[serde(default)]
    pub signature: Option<Signature>,
}

/// An owner takes a node back, or one GPU of it: it takes no lease from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reclaim {
    /// Only this GPU; the whole node if absent.
    #[serde(default)]
    pub gpu: Option<GpuId>,
    /// What is there may stay for so long, in milliseconds; 0 stops it at once.
    #[serde(default)]
    pub notice_ms: u64,
    /// As of [`Word`].
    #[serde(default)]
    pub said_ms: Option<TimeMs>,
    /// As of [`Word`].
    #[serde(default)]
    pub signature: Option<Signature>,
}

/// What an owner takes back.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ReclaimView {
    /// This GPU; absent for the whole node.
    pub gpu: Option<GpuId>,
    /// What is still there then is stopped.
    pub by_ms: TimeMs,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct NodeView {
    /// Its id.
    pub node: NodeId,
    /// Its owner.
    pub provider: Account,
    /// True if leases can be placed on it now.
    pub schedulable: bool,
    /// Why not, if not.
    pub reason: Option<Reason>,
    /// True while its link is up.
    pub linked: bool,
    /// How long a message to it and the answer take, in microseconds, measured by the controller; absent if not known.
    #[serde(default)]
    pub rtt_us: Option<u32>,
    /// Paused by its owner.
    pub paused: bool,
    /// What its owner takes back, until he resumes.
    #[serde(default)]
    pub reclaimed: Vec<ReclaimView>,
    /// Since when `linked` is what it is.
    pub since_ms: TimeMs,
    /// Sequence number of its last report in the log.
    pub last_seq: u64,
    /// How processes are kept apart; absent before the first hello.
    pub sandbox: Option<Sandbox>,
    /// What its box gives and holds.
    #[serde(default)]
    #[schema(value_type = Vec<BoxFeature>)]
    pub features: BoxFeatures,
    /// Host at which members are reached.
    pub address: String,
    /// Region as stated.
    pub region: String,
    /// Rack as stated.
    pub rack: String,
    /// CPU in all and leased, thousandths of a core.
    pub cpu_milli: u32,
    /// CPU leased.
    pub cpu_milli_used: u32,
    /// Memory in all, bytes.
    pub ram_bytes: u64,
    /// Memory leased.
    pub ram_bytes_used: u64,
    /// Disk in all, bytes.
    pub disk_bytes: u64,
    /// Disk leased.
    pub disk_bytes_used: u64,
    /// Network bandwidth in all, megabits a second.
    pub net_mbps: u32,
    /// Network bandwidth leased.
    pub net_mbps_used: u32,
    /// GPUs.
    pub gpus: Vec<GpuView>,
}

/// A page of nodes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct NodePage {
    /// Nodes in order of id.
    pub nodes: Vec<NodeView>,
    /// Pass as `page_token` for the next page.
    pub next_page_token: Option<String>,
}

/// Seats of a licence that an account holds, by the chain, and how many are taken.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct LicenceView {
    /// Issuer and product.
    pub licence: Licence,
    /// Who holds it.
    pub holder: Account,
    /// Members at once.
    pub seats: u32,
    /// Members that sit now. More than `seats` only where those were lowered while they ran.
    pub used: u32,
    /// No member begins from then on.
    pub until_ms: TimeMs,
    /// Whether that time has come, by the time of the last entry.
    pub over: bool,
}

/// `GET /v1/licences`: those that the caller holds and those that he issued, in order of issuer, product and holder.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct LicencePage {
    /// The rows.
    pub licences: Vec<LicenceView>,
    /// For the next page, if there is one.
    pub next_page_token: Option<String>,
}

/// One account's part of the pool.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ShareView {
    /// The account.
    pub account: Account,
    /// Path of its group, e.g. `lab/vision`; empty for an account that is in none.
    pub group: String,
    /// Its weight beside the other accounts of its group.
    pub weight: u32,
    /// Largest of its parts of any resource, divided by its weight, in millionths. Past use counts, where the pool
    /// has a half-life for it.
    pub dominant_share_ppm: u64,
    /// The resource of which it holds the largest part: `gpu_work`, `gpu_memory`, `cpu`, `ram`, `disk` or `net`.
    pub dominant_resource: String,
    /// Leases that hold slots.
    pub live: u64,
    /// Leases that wait.
    pub waiting: u64,
}

/// One group's part of the pool.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct GroupView {
    /// Names from the top, joined by `/`.
    pub path: String,
    /// Its weight beside its siblings.
    pub weight: u32,
    /// Guaranteed part of the GPU work of the pool, in permille.
    pub quota_permille: u16,
    /// What its accounts hold of the GPU work of the pool, in permille.
    pub gpu_work_permille: u64,
    /// Its share in millionths, as it is compared with its siblings while nothing comes free.
    pub dominant_share_ppm: u64,
}

/// `GET /v1/shares`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct SharesView {
    /// Accounts with leases, lowest share first: the order of service among those above their groups' quotas.
    pub shares: Vec<ShareView>,
    /// Groups of accounts, by path.
    pub groups: Vec<GroupView>,
}

/// `GET /v1/account`: the caller's money as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct AccountView {
    /// The caller.
    pub account: Account,
    /// Deposited in all, final on chain.
    pub deposited: Amount,
    /// Withdrawn in all.
    pub withdrawn: Amount,
    /// On its way out.
    pub thawing: Amount,
    /// Claimed by providers in all.
    pub claimed: Amount,
    /// Promised by vouchers and not yet claimed.
    pub promised: Amount,
    /// Kept for leases that are live.
    pub reserved: Amount,
    /// Free for new leases.
    pub free: Amount,
    /// What the delegated key may still sign for.
    pub delegated: Amount,
}

/// A bill line with its time.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct BillView {
    /// Log entry that fixed it.
    pub entry: u64,
    /// The line.
    #[serde(flatten)]
    pub line: BillLine,
}

/// A voucher.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct VoucherView {
    /// Who pays.
    pub renter: Account,
    /// Who earns.
    pub provider: Account,
    /// The pair's total.
    pub cumulative: Amount,
    /// Use up to here is covered.
    pub used_through_ms: TimeMs,
    /// The authority's epoch.
    pub epoch: u32,
    /// Size of the log that justifies it.
    pub log_size: u64,
    /// Both signatures given.
    pub signed: bool,
    /// Stored by the provider's agent.
    pub delivered: bool,
    /// Claimed on chain, as final blocks in the log tell.
    pub claimed: Amount,
}

/// The newest voucher of each pair that the caller is part of.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct VoucherPage {
    /// Vouchers, by renter and provider.
    pub vouchers: Vec<VoucherView>,
    /// Pass as `page_token` for the next page.
    #[serde(default)]
    pub next_page_token: Option<String>,
}

/// `POST /v1/datasets` with JSON: names a DAG whose blocks were put to the gateway before.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDataset {
    /// Root CID.
    pub cid: String,
    /// A name for people; empty if none.
    #[serde(default)]
    pub name: String,
}

/// A dataset of the caller.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Dataset {
    /// Root CID.
    pub cid: String,
    /// The keyed tag that stands for it in the log.
    pub tag: Hash32,
    /// Name for people.
    pub name: String,
    /// Size of all blocks in bytes.
    pub bytes: u64,
    /// Blocks; 0 where they were not counted, as of what a lease left.
    pub blocks: u64,
    /// When it was added.
    pub added_ms: TimeMs,
}

/// The caller's datasets.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct DatasetPage {
    /// Datasets, newest first.
    pub datasets: Vec<Dataset>,
    /// Pass as `page_token` for the next page.
    pub next_page_token: Option<String>,
}

/// A registered component of the pool.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ComponentView {
    /// Who registered it.
    pub owner: Account,
    /// What it is.
    pub kind: ComponentKind,
    /// URL.
    pub endpoint: String,
    /// When the entry ends.
    pub until_ms: TimeMs,
}

/// A registered provider.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ProviderView {
    /// The owner.
    pub provider: Account,
    /// Who is paid.
    pub payout: Address,
    /// Stake that counts.
    pub stake: Amount,
    /// Its nodes.
    pub nodes: Vec<NodeId>,
}

/// `GET /v1/registry`: what the log knows of the chain.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct RegistryView {
    /// Last final block in the log.
    pub block_number: u64,
    /// Its hash.
    pub block_hash: Hash32,
    /// Newest block seen; not final, so nothing was decided on it (`unconfirmed`).
    pub unconfirmed_block: Option<u64>,
    /// Components.
    pub components: Vec<ComponentView>,
    /// Providers.
    pub providers: Vec<ProviderView>,
}

/// `GET /v1/log/head`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct HeadView {
    /// Newest signed head.
    pub newest: Option<SignedHead>,
    /// Newest head on chain that is final.
    pub anchored_size: u64,
}

/// One entry as published.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct LoggedEntry {
    /// Its number; the first is 0.
    pub seq: u64,
    /// Canonical bytes, the leaf of the tree, in hex.
    pub entry: String,
    /// Canonical bytes of its effects in order, in hex: the leaves of its `effects_root`.
    pub effects: Vec<String>,
    /// The head signed after this entry, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<SignedHead>,
}

/// A page of the log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct EntryPage {
    /// Entries in order.
    pub entries: Vec<LoggedEntry>,
    /// Number to ask from next; absent at the end.
    pub next: Option<u64>,
}

/// `GET /healthz` and `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Health {
    /// `ok`, or what is missing.
    pub status: String,
}
