//! The bounded search for places of members that do not all want the same: limited discrepancy search.
//!
//! The best choice for each member in turn, hardest member first, is mostly right, and where it is not, it is wrong in
//! few places. So the ways that differ from it once are tried first, then those that differ twice, and so on (Harvey and
//! Ginsberg, "Limited discrepancy search", 1995; each wave only with the ways of its own number: Korf, "Improved limited
//! discrepancy search", 1996). A choice that comes late counts as several differences.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use selion_api::lease::{NearestMiss, Resource};
use selion_api::{NodeId, Reason};

use super::count::lowest_of;
use crate::place::{Placed, Scan, World};

/// So many choices after the best one are one difference; so many more are two.
pub(super) const CHOICES: usize = 3;

/// One way of going through the members.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// Easiest first instead of hardest first.
    pub reversed: bool,
    /// New nodes from the beginning, until there are enough, instead of only when they become necessary.
    pub spread_early: bool,
    /// On the GPU of the best choice, the lowest start: so most equal members fit.
    pub tight: bool,
}

/// How a search went.
pub(super) enum Told {
    /// Every member has its place in the world.
    Placed,
    /// Every choice of every member was tried.
    Nothing,
    /// None was found within the bound of work.
    NotFound,
}

pub(super) struct Search<'w, 'a> {
    pub world: &'w mut World<'a>,
    /// Ranks, hardest first.
    pub order: &'w [u16],
    /// Scans that may still be taken.
    pub scans: usize,
    /// What stood in the way first.
    pub miss: Option<NearestMiss>,
    /// The present wave left out a way that differs more.
    differs_more: bool,
    /// A way was left out that no wave would try.
    left_out: bool,
}

impl<'w, 'a> Search<'w, 'a> {
    pub(super) fn new(world: &'w mut World<'a>, order: &'w [u16], scans: usize) -> Self {
        Self { world, order, scans, miss: None, differs_more: false, left_out: false }
    }

    /// Goes through the members once, with the best choice for each. True if all have a place.
    pub(super) fn greedy(&mut self, way: Way) -> bool {
        self.world.placed.clear();
        for at in 0..self.order.len() {
            let from = if way.reversed { self.order.len() - 1 - at } else { at };
            let Some((rank, scan)) = self.look(from, at, way.spread_early, 1) else { return false };
            let best = scan.best.into_iter().next();
            let best = best.and_then(|best| if way.tight { self.lowest(rank, best) } else { Some(best) });
            let Some(placed) = best else {
                let nearest = scan.miss.map_or_else(|| self.no_new_node(), |miss| miss.nearest);
                self.miss.get_or_insert(nearest);
                return false;
            };
            self.world.placed.push(placed);
        }
        true
    }

    /// Tries what differs from the greedy way once, twice and so on, until the scans are used up.
    pub(super) fn waves(&mut self) -> Told {
        self.left_out = false;
        for differences in 1.. {
            self.world.placed.clear();
            self.differs_more = false;
            if self.wave(0, differences) {
                return Told::Placed;
            }
            if self.scans == 0 {
                return Told::NotFound;
            }
            if !self.differs_more {
                break;
            }
        }
        if self.left_out { Told::NotFound } else { Told::Nothing }
    }

    /// Tries the ways from the member in position `at` on that differ so often.
    fn wave(&mut self, at: usize, differences: usize) -> bool {
        let last = at + 1 >= self.order.len();
        if at == self.order.len() {
            return differences == 0;
        }
        if last && differences > 0 {
            return false; // an earlier wave came here, and would have taken any choice
        }
        let most = differences.saturating_mul(CHOICES);
        let Some((_, scan)) = self.look(at, at, true, most.saturating_add(2)) else { return false };
        self.differs_more |= scan.best.len() > most + 1;
        let mut choices: Vec<(usize, Placed)> = scan.best.into_iter().take(most + 1).enumerate().collect();
        // Those that differ here before those that differ further on: the order is least sure at the beginning.
        let same = choices.iter().take(1).count();
        choices.rotate_left(same);
        for (choice, placed) in choices {
            self.world.placed.push(placed);
            if self.wave(at + 1, differences - choice.div_ceil(CHOICES)) {
                return true;
            }
            self.world.placed.pop();
            if self.scans == 0 {
                return false;
            }
        }
        false
    }

    /// The best choices for the member `from` in the order when `at` members have a place; `None` when no scan is left.
    fn look(&mut self, from: usize, at: usize, spread_early: bool, keep: usize) -> Option<(u16, Scan)> {
        let rank = self.order.get(from).copied()?;
        let missing = usize::from(self.world.request.min_nodes).saturating_sub(self.nodes().len());
        let left = self.order.len() - at;
        let fresh = at > 0 && missing > 0 && (spread_early || missing >= left);
        self.scans = self.scans.checked_sub(1)?;
        let scan = self.world.scan(rank, fresh, keep);
        // A new node is only needed now if no later member can bring it.
        if !fresh || missing >= left {
            return Some((rank, scan));
        }
        if !scan.best.is_empty() {
            self.left_out = true;
            return Some((rank, scan));
        }
        self.scans = self.scans.checked_sub(1)?;
        Some((rank, self.world.scan(rank, false, keep)))
    }

    fn lowest(&self, rank: u16, best: Placed) -> Option<Placed> {
        let node = self.world.state.nodes.get(&best.node)?;
        let want = self.world.request.members.get(usize::from(rank))?;
        let mut lowest = None;
        self.world.look_at(best.node, node, rank, want, &mut |gpu, verdict| {
            if gpu == best.gpu() {
                lowest = verdict.ok().and_then(lowest_of);
            }
        });
        lowest
    }

    fn nodes(&self) -> BTreeSet<NodeId> {
        self.world.placed.iter().map(|placed| placed.node).collect()
    }

    fn no_new_node(&self) -> NearestMiss {
        let nodes = self.nodes();
        NearestMiss {
            node: nodes.last().copied().unwrap_or_default(),
            gpu: None,
            reason: Reason::GangIncomplete,
            resource: Some(Resource::Nodes),
            need: self.world.request.min_nodes.into(),
            have: nodes.len() as u64,
        }
    }
}
