//! What counting alone says: how many equal members have room beside each other, before any search.

use alloc::vec::Vec;
use core::cell::RefCell;

use selion_api::lease::{NearestMiss, Resource};
use selion_api::{NodeId, Reason, Slot};

use super::Alone;
use crate::place::{Placed, World};

/// Why no way to place the required members can exist; `None` if counting does not say so.
///
/// For each want: how many of it fit over the nodes looked at, if nothing else of the gang stood there. And on how many
/// nodes any of them fits. Slots that bar a single rank from a node are left out of account: it rather counts too many.
pub(super) fn too_few(world: &World<'_>, wants: &[Alone<'_>]) -> Option<NearestMiss> {
    if world.any_slice || world.is_capped() {
        return None; // what fits beside each other are then not equal slices
    }
    let short = |best: &Placed, resource, need: usize, have: usize| {
        let (need, have, reason) = (need as u64, have as u64, Reason::GangIncomplete);
        NearestMiss { node: best.node, gpu: best.gpu(), reason, resource: Some(resource), need, have }
    };
    let (scoring, desk) = (world.scoring.clone(), RefCell::new(None));
    let mut bare = World { lease: None, among: None, placed: Vec::new(), scoring, desk, ..*world };
    for alone in wants {
        let Some(best) = &alone.best else { continue };
        let mut have = 0;
        for (id, _) in world.nodes() {
            have += on_node(&mut bare, *id, alone, alone.members - have);
            if have >= alone.members {
                break;
            }
        }
        if have < alone.members {
            return Some(short(best, Resource::Members, alone.members, have));
        }
    }
    let need = usize::from(world.request.min_nodes);
    if need < 2 {
        return None;
    }
    let any_fits = |id: &NodeId| wants.iter().any(|alone| on_node(&mut bare, *id, alone, 1) > 0);
    let have = world.nodes().map(|(id, _)| *id).filter(any_fits).take(need).count();
    let best = wants.iter().find_map(|alone| alone.best.as_ref()).filter(|_| have < need)?;
    Some(NearestMiss { gpu: None, ..short(best, Resource::Nodes, need, have) })
}

/// How many of these equal members fit on one node beside each other, up to `enough`. Exact: each takes the same of the
/// node, and MIG instances of one profile are most when each takes the lowest start there is.
fn on_node(bare: &mut World<'_>, id: NodeId, alone: &Alone<'_>, enough: usize) -> usize {
    bare.placed.clear();
    let node = bare.state.nodes.get(&id).filter(|_| alone.want.node.is_none_or(|only| only == id));
    while let Some(node) = node.filter(|_| bare.placed.len() < enough) {
        let mut lowest = None;
        bare.look_at(id, node, alone.rank, alone.want, &mut |_, verdict| {
            lowest = lowest.take().or_else(|| lowest_of(verdict.ok()?));
        });
        let Some(placed) = lowest else { break };
        bare.placed.push(placed);
    }
    bare.placed.len()
}

/// Of several ways on one GPU that with the lowest start.
pub(super) fn lowest_of(ways: Vec<Placed>) -> Option<Placed> {
    ways.into_iter().min_by_key(|way| match way.slot {
        Slot::Mig { start, .. } => start,
        Slot::Whole | Slot::Share { .. } => 0,
    })
}
