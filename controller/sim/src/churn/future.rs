//! What a node will have left, from the known ends of what runs on it.

use selion_market::engine::nodes::Nodes;
use selion_market::engine::{Choice, Shape, Want};

use super::run::World;
use super::waiting::fits;

/// The node by itself at a time, when what ends by then has left.
#[derive(Clone, Debug)]
pub(super) struct Then(Nodes);

/// The same place on a node that is by itself.
fn there(choice: Choice) -> Choice {
    Choice { node: 0, ..choice }
}

impl Then {
    /// The node at `at`, if nothing is added.
    pub fn at(world: &World<'_>, node: u32, at: u64) -> Option<Self> {
        let mut nodes = Nodes::new(&[*world.fleet.nodes().shape(node)?], Vec::new());
        for offer in &world.on_node[node as usize] {
            let running = world.running[*offer].filter(|running| running.end > at);
            if let (Some(running), Some(want)) = (running, world.fleet.want(world.class(*offer))) {
                nodes.take(want, &there(running.choice)).ok()?;
            }
        }
        Some(Self(nodes))
    }

    /// Whether it has room for `booked` beside `added` at that place.
    pub fn has_room_beside(&self, booked: &Want, added: &Want, choice: Choice) -> bool {
        let mut with = self.0.clone();
        with.take(added, &there(choice)).is_ok() && with.view(0).is_some_and(|view| fits(&view, booked))
    }

    fn has_room(&self, want: &Want) -> bool {
        self.0.view(0).is_some_and(|view| fits(&view, want))
    }
}

/// When `want` could first start on `node`, if that is before `before`.
pub(super) fn possible(world: &World<'_>, want: &Want, node: u32, now: u64, before: u64) -> Option<u64> {
    let shape = world.fleet.nodes().shape(node)?;
    // Most nodes are too small for it however long one waits.
    let devices = match want.shape {
        Shape::None => 0,
        Shape::Whole(count) => count,
        Shape::Share(_) | Shape::Mig { .. } => 1,
    };
    let able = want.models >> shape.model & 1 == 1;
    if !able || shape.gpus < devices || shape.cpu < want.cpu || shape.ram < want.ram {
        return None;
    }
    let mut ends: Vec<(u64, usize)> = world.on_node[node as usize]
        .iter()
        .filter_map(|offer| Some((world.running[*offer]?.end, *offer)))
        .filter(|(end, _)| *end < before)
        .collect();
    ends.sort_unstable();
    let mut then = Then::at(world, node, now)?;
    if then.has_room(want) {
        return Some(now);
    }
    for (end, offer) in ends.into_iter().filter(|(end, _)| *end > now) {
        let gone = world.running[offer]?;
        then.0.release(world.fleet.want(world.class(offer))?, &there(gone.choice)).ok()?;
        if then.has_room(want) {
            return Some(end);
        }
    }
    None
}
