//! What the nodes of a lease have in common: [`Within`], as sets of nodes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use selion_api::NodeId;
use selion_api::lease::Within;
use selion_api::slice::NodeSpec;

use crate::place::World;
use crate::state::State;

/// What a node stands in. The order is that of ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Domain<'a> {
    Pool,
    Region(&'a str),
    Rack(&'a str, &'a str),
    Node(NodeId),
}

impl<'a> Domain<'a> {
    /// `None` if the owner states none.
    fn of(spec: &'a NodeSpec, within: Within) -> Option<Self> {
        let region = Some(spec.region.as_str()).filter(|region| !region.is_empty());
        match within {
            Within::Pool => Some(Self::Pool),
            Within::Region => Some(Self::Region(region?)),
            Within::Rack if spec.rack.is_empty() => None,
            Within::Rack => Some(Self::Rack(region?, &spec.rack)),
            Within::Node => Some(Self::Node(spec.node)),
        }
    }

    fn of_node(state: &'a State, id: NodeId, within: Within) -> Option<Self> {
        Self::of(state.nodes.get(&id)?.spec.as_ref()?, within)
    }
}

/// The nodes of each domain, in its order, that all its nodes are in: every node is in one at most.
pub(super) fn all(world: &World<'_>) -> impl Iterator<Item = Vec<NodeId>> + use<> {
    let mut all: BTreeMap<Domain<'_>, Vec<NodeId>> = BTreeMap::new();
    for (id, node) in &world.state.nodes {
        let spec = node.spec.as_ref().filter(|spec| world.is_in_region(spec));
        if let Some(domain) = spec.and_then(|spec| Domain::of(spec, world.request.within)) {
            all.entry(domain).or_default().push(*id);
        }
    }
    all.into_values().collect::<Vec<_>>().into_iter()
}

/// The nodes of the domain in which a node stands.
pub(crate) fn around(world: &World<'_>, node: NodeId) -> Vec<NodeId> {
    let within = world.request.within;
    let here = Domain::of_node(world.state, node, within);
    let in_it = |id: &NodeId| here.is_some() && Domain::of_node(world.state, *id, within) == here;
    world.state.nodes.keys().copied().filter(in_it).collect()
}
