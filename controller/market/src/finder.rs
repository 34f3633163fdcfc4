//! Where a single member fits best, without looking at every node: the engine's index over the market's own nodes.
//! What it finds is what [`World::scan`] finds; it is kept beside the state, never written, and made anew at any time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use selion_api::{LeaseId, LeaseRequest, MemberWant, NodeId, Rate};

use crate::engine::index::{Entry, Index, Judge, Ways};
use crate::place::{Room, Score, World};
use crate::state::State;

/// Most different wants that are kept.
const WANTS: usize = 1024;
/// Most of them with their order at hand.
const CLASSES: usize = 256;
/// Most different asks for one want: each is a group, and their order has to fit above the keys of an [`Entry`].
const RATES: usize = 2000;
/// Binary digits of a key.
const KEY_BITS: u32 = 20;

/// The index, for the rooms that are asked for all the time. Equal to any other and empty when copied: it holds
/// nothing that the state does not.
#[derive(Default)]
pub struct Finder {
    /// Nodes by rank, in the order of their ids, which is that of ties.
    ids: Vec<NodeId>,
    /// Classes by want and filters, as canonical bytes.
    wants: BTreeMap<Vec<u8>, u32>,
    now: List,
    ever: List,
}

/// One room.
#[derive(Default)]
struct List {
    index: Option<Index>,
    books: BTreeMap<u32, Book>,
    /// What was found since a node last changed.
    found: BTreeMap<u32, Found>,
}

/// Where a want fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The node with its best place; `None` if it fits nowhere.
    pub node: Option<NodeId>,
    /// On how many GPUs it fits.
    pub gpus: usize,
}

/// What is noted for one class beside the index.
#[derive(Default)]
struct Book {
    /// Asks by group.
    rates: Vec<Rate>,
    /// By group: how many asks are lower, above the bits of a key.
    offsets: Vec<i32>,
    /// By rank: on how many GPUs it fits.
    gpus: Vec<u8>,
    sum: usize,
    /// A score did not fit into a key: this want is looked for everywhere.
    beyond: bool,
}

impl Book {
    fn group(&mut self, rate: Rate) -> Option<u16> {
        if let Some(at) = self.rates.iter().position(|known| *known == rate) {
            return u16::try_from(at).ok();
        }
        if self.rates.len() >= RATES {
            return None;
        }
        self.rates.push(rate);
        let lower = |rate: &Rate| self.rates.iter().filter(|other| *other < rate).count();
        self.offsets =
            self.rates.iter().map(|rate| i32::try_from(lower(rate) << KEY_BITS).unwrap_or(i32::MAX)).collect();
        u16::try_from(self.rates.len() - 1).ok()
    }

    fn entry(&mut self, score: &Score) -> Option<Entry> {
        let worth = u64::from(score.frag) * 1001 + u64::from(score.left.min(1000));
        let top = *crate::engine::index::KEYS.end();
        let key = i32::try_from(worth).ok().filter(|worth| worth >> KEY_BITS == 0)?;
        Some(Entry { group: self.group(score.rate)?, key: top - key, note: 0 })
    }

    fn count(&mut self, rank: u32, gpus: u8) {
        let at = rank as usize;
        if self.gpus.len() <= at {
            self.gpus.resize(at + 1, 0);
        }
        if let Some(old) = self.gpus.get_mut(at) {
            self.sum = (self.sum + usize::from(gpus)).saturating_sub(usize::from(*old));
            *old = gpus;
        }
    }
}

/// Judges the market's nodes for one want.
struct Looking<'a> {
    world: World<'a>,
    want: (u16, &'a MemberWant),
    ids: &'a [NodeId],
    book: &'a mut Book,
}

impl Judge for Looking<'_> {
    fn ways(&mut self, _: u32, rank: u32) -> Ways {
        let (member, want) = self.want;
        let (mut best, mut gpus) = (None::<Score>, 0_u8);
        let node = self.ids.get(rank as usize).filter(|id| want.node.is_none_or(|only| only == **id));
        if let Some((id, node)) = node.and_then(|id| Some((*id, self.world.state.nodes.get(id)?))) {
            self.world.look_at(id, node, member, want, &mut |_, verdict| {
                let Ok(choices) = verdict else { return };
                gpus = gpus.saturating_add(1);
                best = choices.iter().map(|choice| choice.score).chain(best).min();
            });
        }
        self.book.count(rank, gpus);
        let entry = best.and_then(|best| self.book.entry(&best));
        self.book.beyond |= best.is_some() && entry.is_none();
        [entry, None]
    }

    fn offset(&self, _: u32, group: u16) -> i32 {
        self.book.offsets.get(usize::from(group)).copied().unwrap_or(i32::MAX)
    }
}

impl Finder {
    /// A node changed.
    pub(crate) fn mark(&mut self, id: NodeId) {
        // One that is new has no rank yet: `find` sees that there are more nodes than it knows.
        let rank = self.ids.binary_search(&id).ok().and_then(|at| u32::try_from(at).ok());
        for list in [&mut self.now, &mut self.ever] {
            list.found.clear();
            if let (Some(index), Some(rank)) = (&mut list.index, rank) {
                index.touch(rank);
            }
        }
    }

    /// What was found for a want of the request, if it was looked for since a node last changed.
    pub(crate) fn found(&self, room: Room, request: &LeaseRequest, want: &MemberWant) -> Option<Found> {
        let list = match room {
            Room::Now => &self.now,
            Room::Empty => &self.ever,
            Room::At(_) | Room::Stopped => return None,
        };
        if list.found.is_empty() {
            return None;
        }
        list.found.get(self.wants.get(&bytes(request, want))?).copied()
    }

    fn find(&mut self, state: &State, request: &LeaseRequest, room: Room) {
        if self.ids.len() != state.nodes.len() || self.wants.len() > WANTS {
            *self = Self { ids: state.nodes.keys().copied().collect(), ..Self::default() };
        }
        let list = if room == Room::Now { &mut self.now } else { &mut self.ever };
        let nodes = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        let index = list.index.get_or_insert_with(|| Index::new(nodes, CLASSES));
        for want in (0_u16..).zip(&request.members) {
            let next = u32::try_from(self.wants.len()).unwrap_or(u32::MAX);
            let class = *self.wants.entry(bytes(request, want.1)).or_insert(next);
            if list.found.contains_key(&class) {
                continue;
            }
            let book = list.books.entry(class).or_default();
            let mut looking = Looking { world: World::new(state, request, None, room), want, ids: &self.ids, book };
            let best = index.best(class, &mut looking);
            let node = best.and_then(|best| self.ids.get(best.rank as usize).copied());
            if !book.beyond {
                list.found.insert(class, Found { node, gpus: book.sum });
            }
        }
    }
}

fn bytes(request: &LeaseRequest, want: &MemberWant) -> Vec<u8> {
    selion_api::commit::canonical(&(want, request.max_rate, request.classes, &request.regions))
}

impl State {
    /// Looks up where each want of a request fits; until a node changes, [`World::scan`] need not look at all of them.
    pub(crate) fn find(&mut self, request: &LeaseRequest, room: Room) {
        let mut finder = core::mem::take(&mut self.finder);
        finder.find(self, request, room);
        self.finder = finder;
    }

    /// As [`find`](Self::find) for a waiting lease, unless slots of an earlier run bar it from nodes.
    pub(crate) fn find_for(&mut self, id: LeaseId) {
        let mut finder = core::mem::take(&mut self.finder);
        if let Some(lease) = self.leases.get(&id).filter(|lease| lease.attempt == 0) {
            finder.find(self, &lease.request, Room::Now);
        }
        self.finder = finder;
    }
}

impl Clone for Finder {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Finder {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Finder {}

impl fmt::Debug for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finder").field("nodes", &self.ids.len()).field("wants", &self.wants.len()).finish()
    }
}

#[cfg(test)]
#[path = "finder_tests.rs"]
mod tests;
