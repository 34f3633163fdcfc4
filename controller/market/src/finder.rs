//! Where members fit best, without looking at every node: the engine's index over the market's own nodes. The nodes
//! that it names are those of [`World::scan`]'s best choices; it is kept beside the state, never written, and made anew
//! at any time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use selion_api::{Hash32, LeaseId, LeaseRequest, MemberWant, NodeId, TimeMs};

use crate::baseline::Draw;
use crate::busy::Busy;
use crate::engine::index::Index;
use crate::engine::terms::fill::Fill;
use crate::money;
use crate::place::{Room, World};
use crate::staged::{Holders, holders};
use crate::state::State;
use crate::ways::{Book, Looking};

/// Most different wants that are kept.
const WANTS: usize = 1024;
/// Most of them with their order at hand.
const CLASSES: usize = 256;
/// What is scored below this was named already: no score of a node is as low, none is higher that was charged `i32::MAX`.
const GONE: i32 = i32::MIN + (1 << 24);
/// Values of nodes that are remembered.
const REMEMBERED: usize = 1 << 14;
/// Most misses that are noted, over all wants: 8 bytes each.
const MISSES: usize = 1 << 22;
/// More choices than members and booked nodes that are looked for at once: those that a gang's search varies.
const SPARE: usize = 3;

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
    /// Known ends by rank, where they were asked for.
    busy: Vec<Option<Busy>>,
    desk: Option<Fill>,
    /// Nodes by dataset, once somebody asked for one.
    holders: Option<Holders>,
}

/// One room.
#[derive(Default)]
struct List {
    index: Option<Index>,
    books: BTreeMap<u32, Book>,
    /// What was found since a node last changed.
    found: BTreeMap<u32, Nodes>,
}

/// Where a want fits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Nodes {
    /// The nodes with its best places, best first; none if it fits nowhere.
    best: Vec<NodeId>,
    /// True if these are all.
    all: bool,
    /// For which end it was looked, by which mean life and which draw: the charge depends on them.
    times: Times,
}

type Times = ((TimeMs, TimeMs), u64, Option<Draw>);

/// What the index says of a want.
pub(crate) struct Found<'a> {
    ids: &'a [NodeId],
    nodes: &'a Nodes,
    book: &'a Book,
}

impl Found<'_> {
    /// The nodes with its best places, best first.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.best.iter().copied()
    }

    /// True if there are no others.
    pub(crate) fn is_all(&self) -> bool {
        self.nodes.all
    }

    /// Where it missed by least, if it fits nowhere and that is known.
    pub(crate) fn nearest(&self) -> Option<NodeId> {
        let nowhere = self.nodes.best.is_empty() && self.nodes.all;
        let rank = self.book.nearest(self.ids.len()).filter(|_| nowhere);
        rank.and_then(|rank| self.ids.get(rank).copied())
    }

    /// On how many GPUs it fits.
    pub(crate) fn gpus(&self) -> usize {
        self.book.sum
    }

    /// On how many of a node.
    pub(crate) fn gpus_on(&self, id: NodeId) -> usize {
        let rank = self.ids.binary_search(&id).ok();
        rank.and_then(|rank| self.book.gpus.get(rank)).map_or(0, |gpus| usize::from(*gpus))
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
        self.mark_ends(id);
    }

    /// The end of a lease on a node changed. Where something fits is as it was.
    pub(crate) fn mark_ends(&mut self, id: NodeId) {
        let rank = self.ids.binary_search(&id).ok();
        if let Some(busy) = rank.and_then(|rank| self.busy.get_mut(rank)) {
            *busy = None;
        }
        self.now.found.retain(|_, found| found.best.is_empty());
    }

    /// Prices changed.
    pub(crate) fn reprice(&mut self) {
        for list in [&mut self.now, &mut self.ever] {
            list.found.clear();
        }
    }

    /// An epoch began: every score is void.
    pub(crate) fn forget(&mut self) {
        self.reprice();
        self.desk = None;
        for list in [&mut self.now, &mut self.ever] {
            list.books.clear();
            list.index = None;
        }
    }

    /// What was found for a want of the request, if it was looked for since anything that it depends on last changed.
    pub(crate) fn found<'s>(
        &'s self,
        state: &State,
        room: Room,
        request: &LeaseRequest,
        want: &MemberWant,
    ) -> Option<Found<'s>> {
        let list = match room {
            Room::Now => &self.now,
            Room::Empty => &self.ever,
            Room::At(_) => return None,
        };
        if list.found.is_empty() {
            return None;
        }
        let class = self.wants.get(&bytes(request, want))?;
        let nodes = list.found.get(class)?;
        let fresh = room == Room::Empty || nodes.best.is_empty() || nodes.times == times(state, request);
        Some(Found { ids: &self.ids, nodes, book: list.books.get(class)? }).filter(|_| fresh)
    }

    /// The datasets that are known to be on a node changed.
    pub(crate) fn restage<'t>(&mut self, id: NodeId, before: &[Hash32], now: impl Iterator<Item = &'t Hash32>) {
        let Some(holders) = &mut self.holders else {
            return;
        };
        for tag in before {
            if let Some(nodes) = holders.get_mut(tag) {
                nodes.remove(&id);
                if nodes.is_empty() {
                    holders.remove(tag);
                }
            }
        }
        for tag in now {
            holders.entry(*tag).or_default().insert(id);
        }
    }

    /// Nodes that have one of these datasets at least, or had; `None` if that is not at hand.
    pub(crate) fn with_some(&self, tags: &[Hash32]) -> Option<BTreeSet<NodeId>> {
        let holders = self.holders.as_ref()?;
        Some(tags.iter().filter_map(|tag| holders.get(tag)).flatten().copied().collect())
    }

    /// Nodes that have all of these datasets, or had; `None` if that is not at hand.
    pub(crate) fn with_all(&self, tags: &[Hash32]) -> Option<Vec<NodeId>> {
        let holders = self.holders.as_ref()?;
        let Some(all) = tags.iter().map(|tag| holders.get(tag)).collect::<Option<Vec<_>>>() else {
            return Some(Vec::new());
        };
        let fewest = all.iter().min_by_key(|nodes| nodes.len())?;
        Some(fewest.iter().filter(|id| all.iter().all(|nodes| nodes.contains(id))).copied().collect())
    }

    fn find(&mut self, state: &State, request: &LeaseRequest, room: Room) {
        if self.ids.len() != state.nodes.len() || self.wants.len() > WANTS {
            let ids: Vec<NodeId> = state.nodes.keys().copied().collect();
            let busy = ids.iter().map(|_| None).collect();
            *self = Self { ids, busy, ..Self::default() };
        }
        if !request.datasets.is_empty() && self.holders.is_none() {
            self.holders = Some(holders(state));
        }
        if request.near_data {
            return; // few nodes are in question: see `with_all`
        }
        let list = if room == Room::Now { &mut self.now } else { &mut self.ever };
        let nodes = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        let index = list.index.get_or_insert_with(|| Index::new(nodes, CLASSES));
        let times = times(state, request);
        let booked = state.booking.as_ref().map_or(0, |booking| booking.places.len());
        let members = request.members.len();
        let few = if members > 1 { members + booked + SPARE } else { 1 + booked };
        if self.desk.is_none() {
            self.desk = state.scoring.tables().map(|tables| tables.fill.sharing(REMEMBERED));
        }
        for want in (0_u16..).zip(&request.members) {
            let next = u32::try_from(self.wants.len()).unwrap_or(u32::MAX);
            let class = *self.wants.entry(bytes(request, want.1)).or_insert(next);
            let good = |found: &Nodes| {
                let enough = found.all || found.best.len() >= few;
                found.best.is_empty() || (enough && (room == Room::Empty || found.times == times))
            };
            if list.found.get(&class).is_some_and(good) {
                continue;
            }
            let book = list.books.entry(class).or_default();
            let world = World::new(state, request, None, room);
            world.desk.replace(self.desk.take());
            let tells = self.ids.len().saturating_mul(self.wants.len()) <= MISSES;
            let mut looking = Looking { world, want, ids: &self.ids, book, tells };
            let mut best = Vec::new();
            let mut taken: Vec<u32> = Vec::new();
            while best.len() < few {
                let charge = |looking: &Looking<'_>, rank: u32, entry| match room {
                    _ if taken.contains(&rank) => i32::MAX,
                    Room::Now => looking.charge(&mut self.busy, rank, entry),
                    _ => 0,
                };
                let next = index.best_charged(class, &mut looking, charge).filter(|best| best.score > GONE);
                let Some((rank, id)) = next.and_then(|best| Some((best.rank, *self.ids.get(best.rank as usize)?)))
                else {
                    break;
                };
                taken.push(rank);
                best.push(id);
            }
            self.desk = looking.world.desk.take();
            if book.beyond {
                list.found.remove(&class);
            } else {
                list.found.insert(class, Nodes { all: best.len() < few, best, times });
            }
        }
    }
}

fn times(state: &State, request: &LeaseRequest) -> Times {
    let end = money::latest_end(state, request, state.now);
    ((state.now, end), state.learned.pace.mean_life_ms(), Draw::of(state, request))
}

fn bytes(request: &LeaseRequest, want: &MemberWant) -> Vec<u8> {
    selion_api::commit::canonical(&(want, request.max_rate, request.classes, request.needs, &request.regions))
}

impl State {
    /// Looks up where each want of a request fits; until a node changes, [`World::scan`] need not look at all of them.
    pub(crate) fn find(&mut self, request: &LeaseRequest, room: Room) {
        self.prepare();
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
