//! What may be otherwise than it was: the one list of changes, for whole pools and for single requests, and what each
//! does to what it is about.

use selion_api::lease::Priority;
use selion_api::slice::NodeSpec;
use selion_api::{Account, Address, BoxFeatures, LeaseRequest, Rate};
use selion_market::engine::Weighting;
use selion_market::{Group, Policy, Seat};

/// A price times a part: `+10%` is 1,100 permille.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Thousandths of what it was.
    pub permille: u32,
}

impl Scale {
    /// The rate, rounded down.
    #[must_use]
    pub fn of(self, rate: Rate) -> Rate {
        let scaled = u128::from(rate.0) * u128::from(self.permille) / 1_000;
        Rate(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// A time that the operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyField {
    /// Time for agents to accept a grant.
    HoldMs,
    /// Time for members to be ready.
    PrepareMs,
    /// Time for members to run.
    StartMs,
    /// Time for agents to confirm a stop.
    EndingMs,
    /// Time between vouchers.
    VoucherMs,
    /// Time that a lease runs before it may be stopped for one of a higher class.
    MinRunMs,
    /// Time after which half of past use has faded; 0: it does not count.
    HalfLifeMs,
}

impl PolicyField {
    /// Every field, by the name it has in the policy.
    pub const ALL: [(&str, Self); 7] = [
        ("hold_ms", Self::HoldMs),
        ("prepare_ms", Self::PrepareMs),
        ("start_ms", Self::StartMs),
        ("ending_ms", Self::EndingMs),
        ("voucher_ms", Self::VoucherMs),
        ("min_run_ms", Self::MinRunMs),
        ("half_life_ms", Self::HalfLifeMs),
    ];

    fn set(self, policy: &mut Policy, value: u64) {
        match self {
            Self::HoldMs => policy.hold_ms = value,
            Self::PrepareMs => policy.prepare_ms = value,
            Self::StartMs => policy.start_ms = value,
            Self::EndingMs => policy.ending_ms = value,
            Self::VoucherMs => policy.voucher_ms = value,
            Self::MinRunMs => policy.min_run_ms = value,
            Self::HalfLifeMs => policy.half_life_ms = value,
        }
    }
}

/// What the operator had set otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyChange {
    /// This time, in milliseconds.
    Time(PolicyField, u64),
    /// Whether room is kept for the head of the line.
    Bookings(bool),
    /// How places are scored.
    Weighting(Weighting),
    /// The part of the shadow price that is charged, in permille.
    Shadow(u16),
    /// The weight of an account beside its siblings.
    Weight(Account, u32),
    /// The group of an account, by its path; empty: none.
    Seat(Account, String),
    /// The weight of a group beside its siblings.
    GroupWeight(String, u32),
    /// The guaranteed part of the pool's GPU work of a group, in permille.
    Quota(String, u16),
}

impl PolicyChange {
    /// Sets it.
    pub fn apply(&self, policy: &mut Policy) {
        match self {
            Self::Time(field, ms) => field.set(policy, *ms),
            Self::Bookings(kept) => policy.bookings = *kept,
            Self::Weighting(weighting) => policy.weighting = *weighting,
            Self::Shadow(permille) => policy.shadow_permille = *permille,
            Self::Weight(account, weight) => seat(policy, *account, |seat| seat.weight = *weight),
            Self::Seat(account, path) => seat(policy, *account, |seat| seat.group.clone_from(path)),
            Self::GroupWeight(path, weight) => group(policy, path, |group| group.weight = *weight),
            Self::Quota(path, permille) => group(policy, path, |group| group.quota_permille = *permille),
        }
    }
}

fn seat(policy: &mut Policy, account: Account, set: impl FnOnce(&mut Seat)) {
    let at = policy.accounts.binary_search_by_key(&account, |seat| seat.account).unwrap_or_else(|at| {
        policy.accounts.insert(at, Seat { account, group: String::new(), weight: 1 });
        at
    });
    set(&mut policy.accounts[at]);
}

fn group(policy: &mut Policy, path: &str, set: impl FnOnce(&mut Group)) {
    let at = policy.groups.binary_search_by(|group| group.path.as_str().cmp(path)).unwrap_or_else(|at| {
        policy.groups.insert(at, Group { path: path.to_owned(), weight: 1, quota_permille: 0 });
        at
    });
    set(&mut policy.groups[at]);
}

/// Whose asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Everybody's.
    All,
    /// Those of the node with this address, or of all nodes of the provider with this address.
    Of(Address),
    /// Those for GPUs of this model.
    Model(String),
}

impl Asks {
    fn is_of(&self, spec: &NodeSpec) -> bool {
        match self {
            Self::All | Self::Model(_) => true,
            Self::Of(Address(id)) => *id == spec.node.0 || *id == spec.provider.0,
        }
    }

    /// How many GPUs of the spec are meant.
    pub(super) fn gpus(&self, spec: &NodeSpec) -> usize {
        spec.gpus.iter().filter(|gpu| self.is_of(spec) && self.is_model(&gpu.model)).count()
    }

    fn is_model(&self, model: &str) -> bool {
        !matches!(self, Self::Model(meant) if meant != model)
    }

    fn apply(&self, scale: Scale, spec: &mut NodeSpec) {
        if !self.is_of(spec) {
            return;
        }
        for gpu in spec.gpus.iter_mut().filter(|gpu| self.is_model(&gpu.model)) {
            gpu.whole = gpu.whole.map(|rate| scale.of(rate));
            if let Some(share) = &mut gpu.share {
                share.rate = scale.of(share.rate);
            }
            for profile in gpu.mig.iter_mut().flat_map(|table| &mut table.profiles) {
                profile.rate = scale.of(profile.rate);
            }
        }
    }
}

/// What a request could have said instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// This highest rate; `None`: any.
    MaxRate(Option<Rate>),
    /// The highest rate times that.
    MaxRateBy(Scale),
    /// This duration, in milliseconds.
    Duration(u64),
    /// This patience, in milliseconds.
    Wait(u64),
    /// This model for every member; `None`: any.
    Model(Option<String>),
    /// Any node for every member.
    AnyNode,
    /// At least so many nodes.
    MinNodes(u16),
    /// These isolation classes, one bit each.
    Classes(u8),
    /// What the boxes of its nodes have to give and hold.
    Needs(BoxFeatures),
    /// This class of priority.
    Priority(Priority),
}

impl Asked {
    fn apply(&self, request: &mut LeaseRequest) {
        match self {
            Self::MaxRate(rate) => request.max_rate = *rate,
            Self::MaxRateBy(scale) => request.max_rate = request.max_rate.map(|rate| scale.of(rate)),
            Self::Duration(ms) => request.duration_ms = *ms,
            Self::Wait(ms) => request.wait_ms = *ms,
            Self::Model(model) => {
                request.members.iter_mut().for_each(|member| member.models = model.iter().cloned().collect())
            }
            Self::AnyNode => request.members.iter_mut().for_each(|member| member.node = None),
            Self::MinNodes(nodes) => request.min_nodes = *nodes,
            Self::Classes(classes) => request.classes = *classes,
            Self::Needs(needs) => request.needs = *needs,
            Self::Priority(priority) => request.priority = *priority,
        }
    }
}

/// One thing that is otherwise than it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// What the operator had set.
    Policy(PolicyChange),
    /// Asks were that much higher or lower.
    Price(Asks, Scale),
    /// What the request of this entry said.
    Request(u64, Asked),
}

impl Change {
    /// True if it is about the pool as it was from its first entry on, not about one request.
    #[must_use]
    pub fn is_of_pool(&self) -> bool {
        !matches!(self, Self::Request(..))
    }
}

/// The default policy with the changes that are about it.
#[must_use]
pub fn policy(list: &[Change]) -> Policy {
    let mut policy = Policy::default();
    apply_to_policy(list, &mut policy);
    policy
}

pub(super) fn apply_to_policy(list: &[Change], policy: &mut Policy) {
    for change in list {
        if let Change::Policy(rule) = change {
            rule.apply(policy);
        }
    }
}

pub(super) fn apply_to_spec(list: &[Change], spec: &NodeSpec) -> NodeSpec {
    let mut spec = spec.clone();
    for change in list {
        if let Change::Price(asks, scale) = change {
            asks.apply(*scale, &mut spec);
        }
    }
    spec
}

pub(super) fn apply_to_request(list: &[Change], seq: u64, request: &mut LeaseRequest) {
    for change in list {
        if let Change::Request(entry, asked) = change
            && *entry == seq
        {
            asked.apply(request);
        }
    }
}
