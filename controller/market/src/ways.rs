//! The market's nodes as the engine's index sees them: groups, keys and charges of one want.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use selion_api::{MemberWant, NodeId, Rate};

use crate::bench;
use crate::busy::Busy;
use crate::engine::index::{Entry, Judge, KEYS, MAX_GROUP, Ways};
use crate::engine::terms::Group;
use crate::engine::view::Shape;
use crate::place::{Miss, Placed, World};

/// Most different asks for one want: each is a group, and their order has to fit above the keys of an [`Entry`].
pub(crate) const RATES: usize = 2000;
/// No miss.
const FAR: u64 = u64::MAX;
/// Binary digits of a key, of its price and charge with it.
const KEY_BITS: u32 = 20;

/// What ways on different nodes share: the ask, and what their price depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub rate: Rate,
    pub group: Group,
    pub shape: Shape,
}

/// What is noted for one class beside the index.
#[derive(Default)]
pub(crate) struct Book {
    /// Kinds by group.
    kinds: Vec<Kind>,
    /// Groups by kind.
    groups: BTreeMap<Kind, u16>,
    /// By group: how many asks are lower, above the bits of a key.
    pub offsets: Vec<i32>,
    /// By rank: on how many GPUs it fits.
    pub gpus: Vec<u8>,
    pub sum: usize,
    /// By rank: how near the node came where it fits nowhere on it; `FAR` where it said nothing, or too far to tell.
    misses: Vec<u64>,
    /// A miss was too far to be told as a number.
    untold: bool,
    /// A score did not fit into a key: this want is looked for everywhere.
    pub beyond: bool,
}

impl Book {
    pub fn group(&mut self, kind: Kind) -> Option<u16> {
        if let Some(known) = self.groups.get(&kind) {
            return Some(*known);
        }
        let next = u16::try_from(self.kinds.len()).ok().filter(|next| *next < MAX_GROUP)?;
        let mut rates: Vec<Rate> = self.kinds.iter().map(|kind| kind.rate).chain([kind.rate]).collect();
        rates.sort_unstable();
        rates.dedup();
        if rates.len() > RATES {
            return None;
        }
        self.kinds.push(kind);
        self.groups.insert(kind, next);
        let lower = |kind: &Kind| rates.partition_point(|rate| *rate < kind.rate);
        self.offsets =
            self.kinds.iter().map(|kind| i32::try_from(lower(kind) << KEY_BITS).unwrap_or(i32::MAX)).collect();
        Some(next)
    }

    fn entry(&mut self, placed: &Placed) -> Option<Entry> {
        let way = &placed.way;
        let key = Some(way.key).filter(|key| KEYS.contains(key))?;
        let group = self.group(Kind { rate: placed.rate, group: way.group, shape: way.shape })?;
        Some(Entry { group, key, note: way.spot.note() })
    }

    /// The rank of the nearest miss: the first among equals. `None` if it cannot be told.
    pub fn nearest(&self, ranks: usize) -> Option<usize> {
        let near = self.misses.iter().enumerate().min_by_key(|(_, distance)| **distance);
        let (rank, distance) = near.filter(|_| self.misses.len() == ranks && !self.untold)?;
        (*distance < FAR).then_some(rank)
    }

    fn miss(&mut self, rank: u32, distance: u64) {
        let at = rank as usize;
        if self.misses.len() <= at {
            self.misses.resize(at + 1, FAR);
        }
        if let Some(known) = self.misses.get_mut(at) {
            *known = distance;
        }
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
pub(crate) struct Looking<'a> {
    pub world: World<'a>,
    pub want: (u16, &'a MemberWant),
    pub ids: &'a [NodeId],
    pub book: &'a mut Book,
    /// Whether misses are noted.
    pub tells: bool,
}

impl Looking<'_> {
    /// What a way costs for the end of the request.
    pub fn charge(&self, busy: &mut [Option<Busy>], rank: u32, entry: Entry) -> i32 {
        let (at, state) = (rank as usize, self.world.state);
        let (Some(busy), Some(kind)) = (busy.get_mut(at), self.book.kinds.get(usize::from(entry.group))) else {
            return 0;
        };
        let Some((id, node)) = self.ids.get(at).and_then(|id| Some((*id, state.nodes.get(id)?))) else {
            return 0;
        };
        let busy = busy.get_or_insert_with(|| Busy::of(state, node));
        self.world.charge(id, busy, kind.shape, bench::Spot::noted(entry.note))
    }
}

impl Judge for Looking<'_> {
    fn ways(&mut self, _: u32, rank: u32) -> Ways {
        let (member, want) = self.want;
        let node = self.ids.get(rank as usize).filter(|id| want.node.is_none_or(|only| only == **id));
        let node = node.and_then(|id| Some((*id, self.world.state.nodes.get(id)?)));
        let verdicts = node.map(|(id, node)| self.world.ways(id, node, member, want)).unwrap_or_default();
        let able = verdicts.iter().filter_map(|(_, verdict)| verdict.as_ref().ok());
        self.book.count(rank, u8::try_from(able.clone().count()).unwrap_or(u8::MAX));
        if self.tells {
            let misses = verdicts.iter().filter_map(|(_, verdict)| verdict.as_ref().err());
            let least = misses.map(Miss::distance).try_fold(FAR, |least, distance| Some(least.min(distance?)));
            self.book.untold |= least.is_none();
            self.book.miss(rank, least.unwrap_or(FAR));
        } else {
            self.book.untold = true;
        }
        let mut ways = [None; 2];
        for (way, placed) in ways.iter_mut().zip(able.flatten().filter(|placed| !placed.way.spare)) {
            *way = self.book.entry(placed);
            self.book.beyond |= way.is_none();
        }
        ways
    }

    fn offset(&self, _: u32, group: u16) -> i32 {
        let at = usize::from(group);
        let (Some(offset), Some(kind)) = (self.book.offsets.get(at), self.book.kinds.get(at)) else {
            return i32::MAX;
        };
        offset.saturating_add(bench::price(self.world.state, kind.shape, kind.group))
    }
}
