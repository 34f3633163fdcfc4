//! For each class of requests, the nodes on which it fits, best first. The index knows nothing of nodes: a [`Judge`]
//! scores them, and [`Index::touch`] says which ones changed. Nodes are judged again only when the class is next
//! asked for, each once however often it changed, and only for the classes that it could take before or
//! [may](Judge::may) take now: in a full fleet that is few.
//!
//! A node stands under a key within a *group*. What all nodes of a group share, such as the price of their model, is
//! an offset at decision time ([`Judge::offset`]), so that a new price touches no node.
//!
//! Per class and group the best few are kept in order. When none of them is left, the ways of all nodes, one word
//! each, are read through for the next best few; no node is judged for that.

mod class;
mod judge;
mod marks;

use alloc::vec::Vec;

pub use self::judge::{Best, Entry, Judge, KEYS, MAX_GROUP, Ways};

use self::class::{ABSENT, Class, beaten, group_of, least_word};
use self::marks::ones;
use super::recent::Recent;

/// How many changed nodes are judged in one go.
const BATCH: usize = 32;

/// Candidates by class, ordered by key.
#[derive(Clone, Debug)]
pub struct Index {
    recent: Recent,
    /// The last change of which the classes were told.
    told: u64,
    /// Where a class is kept, by its number.
    slots: Vec<Option<usize>>,
    kept: Vec<Class>,
    /// The number of each kept class.
    ids: Vec<u32>,
    /// By rank: the kept classes in which the node stands, one bit each, in `width` words.
    stands: Vec<u64>,
    width: usize,
    limit: usize,
    asked: u64,
    /// Kept for its memory.
    changed: Vec<u32>,
}

impl Index {
    /// For ranks below `ranks`; at most `limit` classes (at least one) are kept, the least recently asked for goes.
    #[must_use]
    pub fn new(ranks: u32, limit: usize) -> Self {
        Self {
            recent: Recent::new(ranks),
            told: 0,
            slots: Vec::new(),
            kept: Vec::new(),
            ids: Vec::new(),
            stands: Vec::new(),
            width: 0,
            limit: limit.max(1),
            asked: 0,
            changed: Vec::new(),
        }
    }

    /// The node of that rank changed.
    pub fn touch(&mut self, rank: u32) {
        self.recent.touch(rank);
    }

    /// The judge changed its mind on all nodes: every class starts afresh when it is next asked for.
    pub fn forget(&mut self) {
        self.slots.clear();
        self.kept.clear();
        self.ids.clear();
    }

    /// How many classes are kept now.
    #[must_use]
    pub fn active(&self) -> usize {
        self.kept.len()
    }

    /// The best node for the class, exactly what judging all nodes would find.
    pub fn best(&mut self, class: u32, judge: &mut impl Judge) -> Option<Best> {
        let class_id = class;
        let class = self.repaired(class, judge)?;
        class.settle();
        let mut best: Option<Best> = None;
        for group in class.groups() {
            let Some((key, rank)) = group.best_few().next() else { continue };
            let score = key.saturating_sub(judge.offset(class_id, group.id));
            if !beaten(score, rank, best) {
                best = Some(Best { rank, score });
            }
        }
        best
    }

    /// The best node for the class where each way is charged on top of its group's offset, by what no group shares.
    /// `charge` is asked with the ways that could still win, and must not be negative. This reads one word a node.
    pub fn best_charged<J: Judge>(
        &mut self,
        class: u32,
        judge: &mut J,
        mut charge: impl FnMut(&J, u32, Entry) -> i32,
    ) -> Option<Best> {
        let class_id = class;
        let class = self.repaired(class, judge)?;
        class.settle();
        let mut best: Option<Best> = None;
        // First the best few of each group, from the best group on: with a good one at hand, hardly any of the rest
        // needs to be charged.
        let offsets: Vec<i32> = class.groups().iter().map(|group| judge.offset(class_id, group.id)).collect();
        let tops = class.groups().iter().zip(&offsets).filter_map(|(group, offset)| {
            let (key, rank) = group.best_few().next()?;
            Some((core::cmp::Reverse(key.saturating_sub(*offset)), rank, group, *offset))
        });
        let mut tops: Vec<_> = tops.collect();
        tops.sort_unstable_by_key(|(score, rank, _, _)| (*score, *rank));
        for (_, _, group, offset) in &tops {
            for (key, rank) in group.best_few() {
                if beaten(key.saturating_sub(*offset), rank, best) {
                    break;
                }
                let word = least_word(group.id, key);
                class.consider(rank, word, *offset, &mut |entry| charge(judge, rank, entry), &mut best);
            }
        }
        // Then whatever below them could still win, if it were charged nothing.
        let score = best?.score;
        let mut least = alloc::vec![ABSENT; class.most_groups()];
        let mut open = false;
        for (_, _, group, offset) in &tops {
            let wins = |(key, rank): (i32, u32)| !beaten(key.saturating_sub(*offset), rank, best);
            if group.beyond().is_some_and(wins)
                && let Some(least) = least.get_mut(usize::from(group.id))
            {
                *least = least_word(group.id, score.saturating_add(*offset));
                open = true;
            }
        }
        if open {
            for (rank, word) in class.words() {
                let group = group_of(word);
                if least.get(usize::from(group)).is_some_and(|least| word >= *least) {
                    let offset = class.place(group).and_then(|place| offsets.get(place)).copied().unwrap_or(0);
                    class.consider(rank, word, offset, &mut |entry| charge(judge, rank, entry), &mut best);
                }
            }
        }
        best
    }

    /// How many nodes can take the class.
    pub fn count(&mut self, class: u32, judge: &mut impl Judge) -> usize {
        let Some(class) = self.repaired(class, judge) else { return 0 };
        class.able().count()
    }

    /// The `n`-th node, from 0 and by rank, that can take the class.
    pub fn nth(&mut self, class: u32, n: usize, judge: &mut impl Judge) -> Option<u32> {
        self.repaired(class, judge)?.able().nth(n)
    }

    /// Tells the kept classes of the nodes that changed, each the ones that matter to it.
    fn tell(&mut self, judge: &impl Judge) {
        for rank in self.recent.since(self.told) {
            let may = judge.may(rank);
            let first = rank as usize * self.width;
            let rows = self.stands.get(first..).unwrap_or(&[]).iter().take(self.width);
            for ((stands, ids), kept) in rows.zip(self.ids.chunks(64)).zip(self.kept.chunks_mut(64)) {
                let able = ids.iter().zip(0..).fold(0, |able, (id, bit)| able | u64::from(may(*id)) << bit);
                for bit in ones(stands | able) {
                    if let Some(class) = kept.get_mut(bit) {
                        class.changed.set(rank);
                    }
                }
            }
        }
        self.told = self.recent.stamp();
    }

    fn repaired(&mut self, id: u32, judge: &mut impl Judge) -> Option<&mut Class> {
        self.asked = self.asked.saturating_add(1);
        self.tell(judge);
        let slot = match self.slots.get(id as usize).copied().flatten() {
            Some(slot) => slot,
            None => self.warm(id, judge)?,
        };
        let Self { kept, stands, width, asked, changed, .. } = self;
        let class = kept.get_mut(slot)?;
        class.used = *asked;
        changed.clear();
        class.changed.drain_to(changed);
        for ranks in changed.chunks(BATCH) {
            // The words of a whole batch are read before any is judged, so that their cache misses overlap.
            let mut words = [0; BATCH];
            words.iter_mut().zip(ranks).for_each(|(word, rank)| *word = class.first(*rank));
            for (rank, was) in ranks.iter().zip(words) {
                let any = class.reset(*rank, was, judge.ways(id, *rank));
                note(stands, *width, (*rank, slot), any);
            }
        }
        Some(class)
    }

    /// Judges all nodes for a class that is not kept, and says where it is kept from now on.
    fn warm(&mut self, id: u32, judge: &mut impl Judge) -> Option<usize> {
        let ranks = self.recent.ranks();
        let slot = if self.kept.len() < self.limit { self.kept.len() } else { self.oldest()? };
        self.widen(slot);
        let mut class = Class::new(ranks);
        let mut alike: Vec<Option<Ways>> = Vec::new();
        for rank in 0..ranks {
            let ways = match judge.alike(rank).map(usize::from) {
                None => judge.ways(id, rank),
                Some(number) => {
                    if alike.len() <= number {
                        alike.resize(number + 1, None);
                    }
                    let ways = alike.get(number).copied().flatten().unwrap_or_else(|| judge.ways(id, rank));
                    alike.get_mut(number).into_iter().for_each(|known| *known = Some(ways));
                    ways
                }
            };
            let any = class.reset(rank, ABSENT, ways);
            note(&mut self.stands, self.width, (rank, slot), any);
        }
        match (self.kept.get_mut(slot), self.ids.get_mut(slot)) {
            (Some(kept), Some(known)) => {
                if let Some(gone) = self.slots.get_mut(*known as usize) {
                    *gone = None;
                }
                (*kept, *known) = (class, id);
            }
            _ => {
                self.kept.push(class);
                self.ids.push(id);
            }
        }
        if self.slots.len() <= id as usize {
            self.slots.resize(id as usize + 1, None);
        }
        *self.slots.get_mut(id as usize)? = Some(slot);
        Some(slot)
    }

    /// Where the class is that was not asked for longest.
    fn oldest(&self) -> Option<usize> {
        let used = |slot: &usize| self.kept.get(*slot).map_or(u64::MAX, |class| class.used);
        (0..self.kept.len()).min_by_key(used)
    }

    /// Makes room for the bit of a slot.
    fn widen(&mut self, slot: usize) {
        let width = self.width.max((slot / 64 + 1).next_power_of_two());
        if width > self.width {
            let mut wide = alloc::vec![0; self.recent.ranks() as usize * width];
            if self.width > 0 {
                for (to, from) in wide.chunks_mut(width).zip(self.stands.chunks(self.width)) {
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
            }
            (self.stands, self.width) = (wide, width);
        }
    }
}

/// Notes whether a node stands in a kept class.
fn note(stands: &mut [u64], width: usize, (rank, slot): (u32, usize), any: bool) {
    if let Some(word) = stands.get_mut(rank as usize * width + slot / 64) {
        let bit = 1 << (slot % 64);
        *word = if any { *word | bit } else { *word & !bit };
    }
}
