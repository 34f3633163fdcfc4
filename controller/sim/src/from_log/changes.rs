//! Some changes, at work on the inputs of one log.

use std::collections::{BTreeMap, BTreeSet};

use selion_api::chain::ChainEvent;
use selion_api::slice::NodeSpec;
use selion_api::{Account, Hash32};
use selion_market::{Input, Policy};

use super::change::{Asks, Change, PolicyChange, apply_to_policy, apply_to_request, apply_to_spec};
use super::{Asked, History};

/// A change that is about nothing in the log: it would make no difference, and not because the market says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuch {
    /// No node, provider or model of that name.
    #[error("no node of this log is or belongs to {asked}, or has such GPUs; the log has the models {models}")]
    Asks {
        /// What was named.
        asked: String,
        /// Models in the log.
        models: String,
    },
    /// No account in that group or below it.
    #[error("no account is in the group `{path}` or below it; the groups with accounts are {groups}")]
    Group {
        /// The group.
        path: String,
        /// Groups that have accounts.
        groups: String,
    },
    /// The account asked for nothing.
    #[error("{account} asked for nothing in this log, so its place in the order of service makes no difference")]
    Account {
        /// The account.
        account: Account,
    },
    /// The entry is no request.
    #[error("entry {entry} of this log is no request for a lease")]
    Request {
        /// Number of the entry.
        entry: u64,
    },
    /// A part of something that the request does not name.
    #[error("the lease of entry {entry} was asked for without a highest rate, so there is nothing to take a part of")]
    NoMaxRate {
        /// Number of the entry.
        entry: u64,
    },
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
        let specs = inputs.filter_map(spec_of);
        let offers = specs.map(|spec| (spec.hash(), apply_to_spec(list, spec).hash())).collect();
        Self { list: list.to_vec(), offers }
    }

    /// The input of entry `seq` as it would have been.
    pub(super) fn apply(&self, seq: u64, input: &Input) -> Input {
        let mut input = input.clone();
        match &mut input {
            Input::Opened { policy, .. } => apply_to_policy(&self.list, policy),
            Input::Linked(signed) => signed.hello.spec = apply_to_spec(&self.list, &signed.hello.spec),
            Input::Request(asked) => apply_to_request(&self.list, seq, &mut asked.request),
            Input::Block(block) => {
                for event in &mut block.events {
                    if let ChainEvent::OfferSet { spec_hash, .. } = event {
                        *spec_hash = self.offers.get(spec_hash).copied().unwrap_or(*spec_hash);
                    }
                }
            }
            _ => {}
        }
        input
    }
}

fn spec_of(input: &Input) -> Option<&NodeSpec> {
    match input {
        Input::Linked(signed) => Some(&signed.hello.spec),
        _ => None,
    }
}

/// Whether every change is about something that the log has.
///
/// # Errors
///
/// [`NoSuch`] for the first one that is not.
pub(crate) fn check(history: &History, list: &[Change]) -> Result<(), NoSuch> {
    let inputs = || history.entries().iter().map(|entry| &entry.input);
    let renters: BTreeSet<Account> = inputs().filter_map(renter_of).collect();
    let mut policies: Vec<Policy> = inputs().filter_map(policy_of).cloned().collect();
    policies.iter_mut().for_each(|policy| apply_to_policy(list, policy));
    let groups: BTreeSet<&str> = policies.iter().flat_map(|policy| &policy.accounts).map(|seat| &*seat.group).collect();
    list.iter().try_for_each(|change| match change {
        Change::Price(asks, _) => {
            let found = inputs().filter_map(spec_of).any(|spec| asks.gpus(spec) > 0);
            if found { Ok(()) } else { Err(no_asks(asks, inputs())) }
        }
        Change::Policy(PolicyChange::Weight(account, _) | PolicyChange::Seat(account, _))
            if !renters.contains(account) =>
        {
            Err(NoSuch::Account { account: *account })
        }
        Change::Policy(PolicyChange::GroupWeight(path, _) | PolicyChange::Quota(path, _)) => {
            let below = |group: &&str| group.strip_prefix(path.as_str()).is_some_and(is_below);
            let named = || groups.iter().filter(|group| !group.is_empty());
            match groups.iter().any(below) {
                true => Ok(()),
                false => Err(NoSuch::Group { path: path.clone(), groups: listed(named()) }),
            }
        }
        Change::Policy(_) => Ok(()),
        Change::Request(entry, asked) => {
            let request = history.entries().iter().find(|other| other.stamp.seq == *entry);
            match (request.map(|entry| &entry.input), asked) {
                (Some(Input::Request(was)), Asked::MaxRateBy(_)) if was.request.max_rate.is_none() => {
                    Err(NoSuch::NoMaxRate { entry: *entry })
                }
                (Some(Input::Request(_)), _) => Ok(()),
                _ => Err(NoSuch::Request { entry: *entry }),
            }
        }
    })
}

/// What follows the path of a group in the path of one below it, or of itself.
fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

fn renter_of(input: &Input) -> Option<Account> {
    match input {
        Input::Request(asked) => Some(asked.request.renter),
        _ => None,
    }
}

fn policy_of(input: &Input) -> Option<&Policy> {
    match input {
        Input::Opened { policy, .. } => Some(policy),
        _ => None,
    }
}

fn no_asks<'a>(asks: &Asks, inputs: impl Iterator<Item = &'a Input>) -> NoSuch {
    let asked = match asks {
        Asks::All => "anybody".to_owned(),
        Asks::Of(address) => address.to_string(),
        Asks::Model(model) => format!("`{model}`"),
    };
    let models: BTreeSet<&str> =
        inputs.filter_map(spec_of).flat_map(|spec| &spec.gpus).map(|gpu| &*gpu.model).collect();
    NoSuch::Asks { asked, models: listed(models.iter()) }
}

fn listed<'a>(names: impl Iterator<Item = &'a &'a str>) -> String {
    let all: Vec<&str> = names.copied().collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
