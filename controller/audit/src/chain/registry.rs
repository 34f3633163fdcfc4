//! The registry, folded from events alone, equals what the contract answers.

use std::collections::BTreeMap;

use selion_api::chain::{ChainEvent, ComponentKind};
use selion_api::{Account, Address, Amount, Hash32, NodeId, TimeMs};
use selion_contracts::rpc::BlockTag;
use selion_contracts::{Pool, PoolError};

use super::Facts;
use crate::finding::Finding;

#[derive(Default)]
struct Registry {
    providers: BTreeMap<Account, (Address, Amount)>,
    nodes: BTreeMap<NodeId, (Option<Account>, Option<Hash32>)>,
    components: BTreeMap<(Account, ComponentKind), (String, TimeMs)>,
    authority: Option<(u32, Account)>,
}

impl Registry {
    fn fold(&mut self, event: &ChainEvent) {
        match event {
            ChainEvent::PoolOpened { authority, .. } => self.authority = Some((1, *authority)),
            ChainEvent::AuthorityChanged { epoch, authority } => {
                self.authority = Some((*epoch, *authority));
            }
            ChainEvent::ProviderRegistered { provider, payout, stake } => {
                self.providers.insert(*provider, (*payout, *stake));
            }
            ChainEvent::StakeChanged { provider, stake } => {
                self.providers.entry(*provider).or_default().1 = *stake;
            }
            ChainEvent::NodeRegistered { node, provider } => {
                self.nodes.entry(*node).or_default().0 = Some(*provider);
            }
            ChainEvent::NodeRetired { node } => {
                self.nodes.insert(*node, (None, None));
            }
            ChainEvent::OfferSet { node, spec_hash, .. } => self.nodes.entry(*node).or_default().1 = Some(*spec_hash),
            ChainEvent::OfferClosed { node } => self.nodes.entry(*node).or_default().1 = None,
            ChainEvent::ComponentRegistered { owner, kind, endpoint, until } => {
                self.components.insert((*owner, *kind), (endpoint.clone(), *until));
            }
            // To come with the contracts that answer for them: licences, standbys, bonds, accusations.
            ChainEvent::LicenceSet { .. }
            | ChainEvent::StandbySet { .. }
            | ChainEvent::BondChanged { .. }
            | ChainEvent::Slashed { .. }
            | ChainEvent::Accused { .. }
            | ChainEvent::Acquitted { .. }
            | ChainEvent::Renewed { .. } => {}
            // Money and keys: see `renters` and `money`.
            ChainEvent::Anchored { .. }
            | ChainEvent::Deposited { .. }
            | ChainEvent::KeySet { .. }
            | ChainEvent::KeyGranted { .. }
            | ChainEvent::KeyRevoked { .. }
            | ChainEvent::Thawed { .. }
            | ChainEvent::Withdrawn { .. }
            | ChainEvent::Claimed { .. }
            | ChainEvent::CashedOut { .. }
            | ChainEvent::FeesCashedOut { .. } => {}
        }
    }
}

/// Asks the contract for every provider, node, offer and component that the events name.
pub(super) async fn check(pool: &Pool, facts: &Facts, at: BlockTag) -> Result<Result<String, Finding>, PoolError> {
    let mut registry = Registry::default();
    facts.events().for_each(|event| registry.fold(event));
    let differs = |what: String| Ok(Err(Finding::plain(what)));
    let authority = pool.authority(at).await?;
    let epoch = pool.head(at).await?.epoch;
    if registry.authority != Some((epoch, authority)) {
        let told = registry.authority;
        return differs(format!("events tell authority {told:?}, the contract says {authority} in epoch {epoch}"));
    }
    for (provider, told) in &registry.providers {
        let held = pool.provider(*provider, at).await?;
        let held = held.map(|held| (held.payout, held.stake));
        if held != Some(*told) {
            return differs(format!("provider {provider}: events tell {told:?}, the contract says {held:?}"));
        }
    }
    for (node, told) in &registry.nodes {
        let owner = pool.node(*node, at).await?.provider;
        let offer = pool.offer(*node, at).await?.map(|offer| offer.spec_hash);
        if (owner, offer) != *told {
            return differs(format!("node {node}: events tell {told:?}, the contract says {:?}", (owner, offer)));
        }
    }
    for ((owner, kind), (endpoint, until)) in &registry.components {
        let held = pool.component(*owner, *kind, at).await?;
        // An empty endpoint is how a component is withdrawn.
        let told = (facts.now < *until && !endpoint.is_empty()).then(|| (endpoint.clone(), *until));
        if held != told {
            return differs(format!("{kind:?} of {owner}: events tell {told:?}, the contract says {held:?}"));
        }
    }
    Ok(Ok(format!(
        "{} providers, {} nodes and {} components, from events as from the contract",
        registry.providers.len(),
        registry.nodes.len(),
        registry.components.len()
    )))
}
