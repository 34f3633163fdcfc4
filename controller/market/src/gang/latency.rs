//! How far apart the nodes of a lease may be, by measurement: sets of nodes of which any two are near enough.
//!
//! The controller knows its round trip to each node. The way over the controller is one between two nodes, so their sum
//! bounds what the two need from above: any pair within the bound is one. It follows that at most one node of a lease is
//! farther from the controller than half the bound.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use selion_api::lease::{NearestMiss, Resource};
use selion_api::{LeaseRequest, NodeId, Reason};

use super::{NoPlace, domain, place};
use crate::place::{Placed, World};
use crate::state::State;

/// Most nodes beyond half the bound that are tried with those near enough to them, the nearest first. Each may cost as
/// much as a look at the whole domain.
pub(crate) const FAR: usize = 16;

/// The bound, where it bounds anything: one member is at no distance from itself.
pub(crate) fn bound(request: &LeaseRequest) -> Option<u32> {
    request.max_latency_us.filter(|_| request.members.len() > 1)
}

/// How often a search looks at a node where another one looks once, at most: in the set of the near ones, with each far
/// one, by itself, and at any distance.
pub(crate) fn rounds(request: &LeaseRequest) -> usize {
    if bound(request).is_some() { FAR + 3 } else { 1 }
}

fn rtt(state: &State, id: NodeId) -> Option<u32> {
    state.nodes.get(&id)?.rtt_us
}

/// Within each domain: all nodes of which any two are near enough; each node beyond half the bound with those that are
/// near enough to it; and every other node by itself. True if none is left out.
pub(super) fn sets(world: &World<'_>, most_us: u32) -> (Vec<Vec<NodeId>>, bool) {
    let (mut sets, mut all) = (Vec::new(), true);
    for nodes in domain::all(world) {
        let measured = nodes.iter().filter_map(|id| Some((rtt(world.state, *id)?, *id)));
        let (near, mut far): (Vec<(u32, NodeId)>, Vec<_>) = measured.partition(|(rtt, _)| *rtt <= most_us / 2);
        far.sort_unstable();
        let mut alone: BTreeSet<NodeId> = nodes.into_iter().collect();
        alone.retain(|id| near.iter().all(|(_, near)| near != id));
        if !near.is_empty() {
            sets.push(near.iter().map(|(_, id)| *id).collect());
        }
        for (at, (rtt, id)) in far.into_iter().enumerate() {
            let left_us = most_us.saturating_sub(rtt);
            let mut with: Vec<NodeId> = near.iter().filter(|(rtt, _)| *rtt <= left_us).map(|(_, id)| *id).collect();
            if with.is_empty() || rtt > most_us {
                break; // those after it are farther
            }
            if at >= FAR {
                all = false;
                break;
            }
            alone.remove(&id);
            with.push(id);
            with.sort_unstable();
            sets.push(with);
        }
        sets.extend(alone.into_iter().map(|id| alloc::vec![id]));
    }
    (sets, all)
}

/// True if any two nodes of those placed are near enough.
pub(crate) fn are_near(world: &World<'_>) -> bool {
    bound(world.request)
        .is_none_or(|most_us| farthest(world.state, &world.placed).is_none_or(|(_, us)| us <= u64::from(most_us)))
}

/// The nodes that are near enough to all that are placed, those among them; of these only, if any are given.
pub(super) fn beside(world: &World<'_>, only: Option<&[NodeId]>, most_us: u32) -> Vec<NodeId> {
    near_to(world.state, &world.placed.iter().map(|placed| placed.node).collect(), only, most_us)
}

/// True if any two of these nodes are near enough.
pub(crate) fn all_near(state: &State, nodes: &BTreeSet<NodeId>, most_us: u32) -> bool {
    let rtts: Option<Vec<u32>> = nodes.iter().map(|id| rtt(state, *id)).collect();
    let sum = rtts.map(|mut rtts| {
        rtts.sort_unstable();
        rtts.iter().rev().take(2).map(|rtt| u64::from(*rtt)).sum::<u64>()
    });
    nodes.len() < 2 || sum.is_some_and(|sum| sum <= u64::from(most_us))
}

/// The nodes that are near enough to all of these, those among them; of `only`, if any are given.
pub(crate) fn near_to(state: &State, nodes: &BTreeSet<NodeId>, only: Option<&[NodeId]>, most_us: u32) -> Vec<NodeId> {
    let rtts: Option<Vec<u32>> = nodes.iter().map(|id| rtt(state, *id)).collect();
    let farthest = rtts.and_then(|rtts| rtts.into_iter().max());
    let near = |id: &NodeId| {
        let sum = farthest.zip(rtt(state, *id)).map(|(one, other)| u64::from(one) + u64::from(other));
        nodes.contains(id) || sum.is_some_and(|sum| sum <= u64::from(most_us))
    };
    let given = only.map(|only| only.iter().copied().collect::<BTreeSet<_>>());
    let asked = |id: &NodeId| given.as_ref().is_none_or(|given| given.contains(id));
    state.nodes.keys().copied().filter(|id| asked(id) && near(id)).collect()
}

/// The node farthest from the controller and its distance to the one farthest after it; the largest number if one of
/// several is not measured. `None` for one node.
fn farthest(state: &State, placed: &[Placed]) -> Option<(NodeId, u64)> {
    let nodes: BTreeSet<NodeId> = placed.iter().map(|placed| placed.node).collect();
    let far = |id: &NodeId| rtt(state, *id).map_or(u64::MAX, u64::from);
    let mut rtts: Vec<(u64, NodeId)> = nodes.iter().map(|id| (far(id), *id)).collect();
    rtts.sort_unstable();
    let (one, id) = rtts.pop()?;
    let (other, _) = rtts.pop()?;
    Some((id, one.saturating_add(other)))
}

/// Says that it is the distance where there are places at any distance.
pub(super) fn or_too_far(world: &World<'_>, none: NoPlace) -> NoPlace {
    let request = LeaseRequest { max_latency_us: None, ..world.request.clone() };
    let (scoring, desk) = (world.scoring.clone(), core::cell::RefCell::new(None));
    let mut anyhow = World { request: &request, among: None, placed: Vec::new(), scoring, desk, ..*world };
    let Some((node, have)) = place(&mut anyhow).ok().and_then(|placed| farthest(world.state, &placed)) else {
        return none;
    };
    let need = world.request.max_latency_us.unwrap_or_default().into();
    let resource = Some(Resource::LatencyUs);
    let nearest = NearestMiss { node, gpu: None, reason: Reason::TooFar, resource, need, have };
    NoPlace { reason: Reason::TooFar, nearest: Some(nearest), proved: none.proved }
}
