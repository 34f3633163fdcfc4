//! What may be changed in a log.

use std::collections::BTreeMap;

use selion_api::lease::Priority;
use selion_api::slice::NodeSpec;
use selion_api::{Account, Hash32, LeaseRequest, NodeId, Rate};
use selion_market::{Input, Policy, Seat};

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

/// A number of the operator's.
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
}

impl PolicyField {
    /// Every field, by the name it has in the policy.
    pub const ALL: [(&str, Self); 6] = [
        ("hold_ms", Self::HoldMs),
        ("prepare_ms", Self::PrepareMs),
        ("start_ms", Self::StartMs),
        ("ending_ms", Self::EndingMs),
        ("voucher_ms", Self::VoucherMs),
        ("min_run_ms", Self::MinRunMs),
    ];

    fn set(self, policy: &mut Policy, value: u64) {
        match self {
            Self::HoldMs => policy.hold_ms = value,
            Self::PrepareMs => policy.prepare_ms = value,
            Self::StartMs => policy.start_ms = value,
            Self::EndingMs => policy.ending_ms = value,
            Self::VoucherMs => policy.voucher_ms = value,
            Self::MinRunMs => policy.min_run_ms = value,
        }
    }
}

/// One thing that is otherwise than it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The operator's number was another one.
    Policy(PolicyField, u64),
    /// The account had this weight in the order of service.
    Weight(Account, u32),
    /// Asks were that much higher or lower, on one node or on all.
    Price(Option<NodeId>, Scale),
    /// The request that made the lease of this entry had another highest rate; `None`: any.
    MaxRate(u64, Option<Rate>),
    /// The request that made the lease of this entry asked for this duration, in milliseconds.
    Duration(u64, u64),
    /// The request that made the lease of this entry would wait this long, in milliseconds.
    Wait(u64, u64),
    /// The members of the request of this entry took this model; `None`: any.
    Model(u64, Option<String>),
    /// The members of the request of this entry took any node.
    AnyNode(u64),
    /// The request of this entry was content with so many different nodes.
    MinNodes(u64, u16),
    /// The request of this entry had this class of priority.
    Priority(u64, Priority),
    /// The request of this entry accepted these isolation classes, one bit each.
    Classes(u64, u8),
}

/// The default policy with the changes that are about it.
#[must_use]
pub fn policy(list: &[Change]) -> Policy {
    let mut policy = Policy::default();
    Changes { list: list.to_vec(), offers: BTreeMap::new() }.policy(&mut policy);
    policy
}

/// Some changes, ready to be applied to the inputs of one log.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    list: Vec<Change>,
    /// Hashes of specs whose price changed: an offer on chain commits to the new one.
    offers: BTreeMap<Hash32, Hash32>,
}

impl Changes {
    pub(super) fn new<'a>(list: &[Change], inputs: impl Iterator<Item = &'a Input>) -> Self {
        let mut changes = Self { list: list.to_vec(), offers: BTreeMap::new() };
        for input in inputs {
            if let Input::Linked { spec, .. } = input {
                let changed = changes.spec(spec);
                changes.offers.insert(spec.hash(), changed.hash());
            }
        }
        changes
    }

    /// The input of entry `seq` as it would have been.
    pub(super) fn apply(&self, seq: u64, input: &Input) -> Input {
        let mut input = input.clone();
        match &mut input {
            Input::Opened { policy, .. } => self.policy(policy),
            Input::Linked { spec, .. } => *spec = self.spec(spec),
            Input::Request(asked) => {
                for change in &self.list {
                    request(change, seq, &mut asked.request);
                }
            }
            Input::Block(block) => {
                for event in &mut block.events {
                    if let selion_api::chain::ChainEvent::OfferSet { spec_hash, .. } = event {
                        *spec_hash = self.offers.get(spec_hash).copied().unwrap_or(*spec_hash);
                    }
                }
            }
            _ => {}
        }
        input
    }

    fn policy(&self, policy: &mut Policy) {
        for change in &self.list {
            match change {
                Change::Policy(field, value) => field.set(policy, *value),
                Change::Weight(account, weight) => set_weight(policy, *account, *weight),
                _ => {}
            }
        }
    }

    fn spec(&self, spec: &NodeSpec) -> NodeSpec {
        let mut spec = spec.clone();
        for change in &self.list {
            let Change::Price(which, scale) = change else {
                continue;
            };
            if which.is_some_and(|node| node != spec.node) {
                continue;
            }
            for gpu in &mut spec.gpus {
                gpu.whole = gpu.whole.map(|rate| scale.of(rate));
                if let Some(share) = &mut gpu.share {
                    share.rate = scale.of(share.rate);
                }
                for profile in gpu.mig.iter_mut().flat_map(|table| &mut table.profiles) {
                    profile.rate = scale.of(profile.rate);
                }
            }
        }
        spec
    }
}

fn set_weight(policy: &mut Policy, account: Account, weight: u32) {
    match policy.accounts.binary_search_by_key(&account, |seat| seat.account) {
        Ok(at) => policy.accounts[at].weight = weight,
        Err(at) => policy.accounts.insert(at, Seat { account, group: String::new(), weight }),
    }
}

fn request(change: &Change, seq: u64, request: &mut LeaseRequest) {
    match change {
        Change::MaxRate(entry, max_rate) if *entry == seq => request.max_rate = *max_rate,
        Change::Duration(entry, ms) if *entry == seq => request.duration_ms = *ms,
        Change::Wait(entry, ms) if *entry == seq => request.wait_ms = *ms,
        Change::MinNodes(entry, nodes) if *entry == seq => request.min_nodes = *nodes,
        Change::Classes(entry, classes) if *entry == seq => request.classes = *classes,
        Change::Priority(entry, priority) if *entry == seq => request.priority = *priority,
        Change::Model(entry, model) if *entry == seq => {
            request.members.iter_mut().for_each(|member| member.models = model.iter().cloned().collect());
        }
        Change::AnyNode(entry) if *entry == seq => {
            request.members.iter_mut().for_each(|member| member.node = None);
        }
        _ => {}
    }
}
