//! For each class of requests, the nodes on which it fits, best first. The index knows nothing of nodes: a [`Judge`]
//! scores them, and [`Index::touch`] says which ones changed. Nodes are judged again only when the class is next
//! asked for, each once however often it changed.
//!
//! A node stands under a key within a *group*. What all nodes of a group share, such as the price of their model, is
//! an offset at decision time ([`Judge::offset`]), so that a new price touches no node.
//!
//! Per class and group the best few are a binary heap, in which stale entries stay until they reach the top: an entry
//! is true if the node's present ways say the same. When the heap runs dry, the ways of all nodes, one word each, are
//! read through for the next best few; no node is judged for that.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;

use super::recent::Recent;

/// Where a node stands in a class: its group, and its key there, the higher the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// What it shares its offset with.
    pub group: u16,
    /// Its score before the offset.
    pub key: i32,
    /// What the judge wants to know again when it charges this way ([`Index::best_charged`]). Orders nothing.
    pub note: u16,
}

/// The ways in which a node can take a request: two at most, of different groups. None: it does not fit.
pub type Ways = [Option<Entry>; 2];

/// Scores nodes. Equal answers for equal states of a node, until [`Index::forget`].
pub trait Judge {
    /// In which ways the node of that rank can take a request of that class.
    fn ways(&mut self, class: u32, rank: u32) -> Ways;

    /// What is subtracted from the keys of a group for a request of that class. May differ from call to call.
    fn offset(&self, class: u32, group: u16) -> i32;
}

/// The best node of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// Its rank: the lowest among equal scores.
    pub rank: u32,
    /// Its key less its group's offset.
    pub score: i32,
}

/// The limits of a key; what is beyond counts as the limit.
pub const KEYS: core::ops::RangeInclusive<i32> = -(1 << 19)..=(1 << 19) - 1;

const KEY_BITS: u32 = 20;
const KEY_MASK: u32 = (1 << KEY_BITS) - 1;
const ABSENT: u32 = u32::MAX;
/// How many of a group's best are kept ordered.
const KEPT: usize = 256;
/// How many changed nodes are judged in one go.
const BATCH: usize = 32;

/// A way as a word: group, then key. No group is so high that it meets [`ABSENT`].
fn packed(entry: Entry) -> u32 {
    let key = entry.key.clamp(*KEYS.start(), *KEYS.end()).saturating_sub(*KEYS.start()).cast_unsigned();
    u32::from(entry.group.min(MAX_GROUP)) << KEY_BITS | key & KEY_MASK
}

/// Groups are at most this.
pub const MAX_GROUP: u16 = (1 << (32 - KEY_BITS)) - 2;

fn group_of(word: u32) -> u16 {
    u16::try_from(word >> KEY_BITS).unwrap_or(MAX_GROUP)
}

/// Orders the nodes of a group: the highest is the highest key, then the lowest rank.
fn standing(word: u32, rank: u32) -> u64 {
    u64::from(word & KEY_MASK) << 32 | u64::from(!rank)
}

/// Key (as in the word) and rank of a standing.
fn stood(standing: u64) -> (u32, u32) {
    let low = u32::try_from(standing & u64::from(u32::MAX)).unwrap_or(0);
    (u32::try_from(standing >> 32).unwrap_or(0), !low)
}

#[derive(Clone, Debug, Default)]
struct Group {
    id: u16,
    /// Nodes in it.
    live: usize,
    /// All that stand at `floor` or above are in the heap, among others that no longer stand there.
    heap: BinaryHeap<u64>,
    floor: u64,
}

#[derive(Clone, Debug, Default)]
struct Class {
    /// Up to which change it has read.
    seen: u64,
    /// When it was last asked for.
    used: u64,
    /// The present ways of each rank; the second is empty until a node has two.
    now: [Vec<u32>; 2],
    /// The notes of the ways; empty as long as all are 0.
    notes: [Vec<u16>; 2],
    groups: Vec<Group>,
    /// Where in `groups` a group is, plus one.
    places: Vec<u16>,
}

impl Class {
    fn group(&mut self, id: u16) -> Option<&mut Group> {
        let at = usize::from(id);
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        let place = self.places.get_mut(at)?;
        if *place == 0 {
            self.groups.push(Group { id, floor: u64::MAX, ..Group::default() });
            *place = u16::try_from(self.groups.len()).ok()?;
        }
        self.groups.get_mut(usize::from(*place) - 1)
    }

    /// Sets the ways of a node whose first word was `was`.
    fn reset(&mut self, rank: u32, was: u32, ways: Ways) {
        let ways = match ways {
            // Two ways of one group: the better one counts.
            [Some(one), Some(two)] if one.group == two.group => [Some(if two.key > one.key { two } else { one }), None],
            ways => ways,
        };
        for (which, way) in ways.into_iter().enumerate() {
            self.set_note(which, rank, way.map_or(0, |way| way.note));
        }
        let [one, two] = ways.map(|way| way.map_or(ABSENT, packed));
        if one != was {
            self.set_way(0, rank, one);
        }
        if two != ABSENT || !self.now[1].is_empty() {
            if self.now[1].is_empty() {
                self.now[1].resize(self.now[0].len(), ABSENT);
            }
            self.set_way(1, rank, two);
        }
    }

    fn set_note(&mut self, which: usize, rank: u32, note: u16) {
        let Some(notes) = self.notes.get_mut(which) else { return };
        if note != 0 && notes.is_empty() {
            notes.resize(self.now[0].len(), 0);
        }
        if let Some(old) = notes.get_mut(rank as usize) {
            *old = note;
        }
    }

    fn set_way(&mut self, which: usize, rank: u32, word: u32) {
        let Some(old) = self.now.get_mut(which).and_then(|now| now.get_mut(rank as usize)) else { return };
        let was = core::mem::replace(old, word);
        if was == word {
            return;
        }
        if was != ABSENT
            && let Some(group) = self.group(group_of(was))
        {
            group.live = group.live.saturating_sub(1);
        }
        if word != ABSENT
            && let Some(group) = self.group(group_of(word))
        {
            group.live += 1;
            let standing = standing(word, rank);
            if standing >= group.floor {
                group.heap.push(standing);
            }
        }
    }

    /// Orders the best of a group anew, and of all others of which none is in order.
    fn refill(&mut self, place: usize) {
        let dry = |group: &Group| group.floor > 0 && group.live > 0 && group.heap.is_empty();
        let mut found: Vec<Option<Vec<u64>>> = Vec::new();
        for (at, group) in self.groups.iter_mut().enumerate() {
            found.push((at == place || dry(group)).then(|| {
                let mut empty = core::mem::take(&mut group.heap).into_vec();
                empty.clear();
                empty
            }));
        }
        for now in &self.now {
            for (rank, word) in (0_u32..).zip(now).filter(|(_, word)| **word != ABSENT) {
                let at = self.places.get(usize::from(group_of(*word))).copied().unwrap_or(0);
                if let Some(Some(best)) = found.get_mut(usize::from(at).wrapping_sub(1)) {
                    best.push(standing(*word, rank));
                }
            }
        }
        for (group, best) in self.groups.iter_mut().zip(found) {
            let Some(mut best) = best else { continue };
            group.floor = 0;
            if best.len() > KEPT {
                let (_, least, _) = best.select_nth_unstable_by(KEPT - 1, |one, two| two.cmp(one));
                group.floor = *least;
                best.truncate(KEPT);
            }
            group.heap = BinaryHeap::from(best);
        }
    }

    /// Takes a way of a node for the best if it is, after its charge.
    fn consider(
        &self,
        rank: u32,
        word: u32,
        offset: i32,
        charge: &mut impl FnMut(Entry) -> i32,
        best: &mut Option<Best>,
    ) {
        let key = (word & KEY_MASK).cast_signed().saturating_add(*KEYS.start());
        let free = key.saturating_sub(offset);
        for (now, notes) in self.now.iter().zip(&self.notes) {
            let beaten = best.is_some_and(|best| (free, best.rank) <= (best.score, rank));
            if beaten || now.get(rank as usize) != Some(&word) {
                continue;
            }
            let note = notes.get(rank as usize).copied().unwrap_or(0);
            let score = free.saturating_sub(charge(Entry { group: group_of(word), key, note }));
            if best.is_none_or(|best| (score, best.rank) > (best.score, rank)) {
                *best = Some(Best { rank, score });
            }
        }
    }

    /// The best of a group: key and rank.
    fn top(&mut self, place: usize) -> Option<(i32, u32)> {
        let group = self.groups.get(place).filter(|group| group.live > 0)?;
        if group.heap.len() > 8 * KEPT {
            self.refill(place);
        }
        loop {
            let group = self.groups.get_mut(place)?;
            let Some(standing) = group.heap.peek() else {
                if group.floor == 0 {
                    return None;
                }
                self.refill(place);
                continue;
            };
            let (key, rank) = stood(*standing);
            let word = u32::from(group.id) << KEY_BITS | key;
            if self.now.iter().any(|way| way.get(rank as usize) == Some(&word)) {
                return Some((key.cast_signed().saturating_add(*KEYS.start()), rank));
            }
            group.heap.pop();
        }
    }

    fn able(&self) -> impl Iterator<Item = u32> + '_ {
        let [one, two] = &self.now;
        let second = move |rank: usize| two.get(rank).is_some_and(|word| *word != ABSENT);
        let able = one.iter().enumerate().filter(move |(rank, word)| **word != ABSENT || second(*rank));
        able.filter_map(|(rank, _)| u32::try_from(rank).ok())
    }
}

/// Candidates by class, ordered by key.
#[derive(Clone, Debug)]
pub struct Index {
    recent: Recent,
    classes: Vec<Option<Class>>,
    active: usize,
    limit: usize,
    asked: u64,
}

impl Index {
    /// For ranks below `ranks`; at most `limit` classes (at least one) are kept, the least recently asked for goes.
    #[must_use]
    pub fn new(ranks: u32, limit: usize) -> Self {
        Self { recent: Recent::new(ranks), classes: Vec::new(), active: 0, limit: limit.max(1), asked: 0 }
    }

    /// The node of that rank changed.
    pub fn touch(&mut self, rank: u32) {
        self.recent.touch(rank);
    }

    /// The judge changed its mind on all nodes: every class starts afresh when it is next asked for.
    pub fn forget(&mut self) {
        self.classes.clear();
        self.active = 0;
    }

    /// How many classes are kept now.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active
    }

    /// The best node for the class, exactly what judging all nodes would find.
    pub fn best(&mut self, class: u32, judge: &mut impl Judge) -> Option<Best> {
        let class_id = class;
        let class = self.repaired(class, judge)?;
        let mut best: Option<Best> = None;
        for place in 0..class.groups.len() {
            let Some((key, rank)) = class.top(place) else { continue };
            let group = class.groups.get(place).map_or(0, |group| group.id);
            let score = key.saturating_sub(judge.offset(class_id, group));
            if best.is_none_or(|best| (score, best.rank) > (best.score, rank)) {
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
        let mut best: Option<Best> = None;
        let mut offsets = Vec::new();
        // First the best few of each group: with a good one at hand, hardly any of the rest needs to be charged.
        for place in 0..class.groups.len() {
            let stands = class.top(place).is_some();
            let Some(group) = class.groups.get(place).filter(|_| stands) else {
                offsets.push(0);
                continue;
            };
            let offset = judge.offset(class_id, group.id);
            offsets.push(offset);
            for (key, rank) in group.heap.iter().copied().map(stood) {
                let word = u32::from(group.id) << KEY_BITS | key;
                class.consider(rank, word, offset, &mut |entry| charge(judge, rank, entry), &mut best);
            }
        }
        // Then whatever below them could still win, if it were charged nothing.
        let mut least = alloc::vec![ABSENT; class.places.len()];
        let mut open = false;
        for (group, offset) in class.groups.iter().zip(&offsets).filter(|(group, _)| group.floor > 0 && group.live > 0)
        {
            let (floor, _) = stood(group.floor);
            let score = best.map_or(i32::MIN, |best| best.score);
            let key = score.saturating_add(*offset).max(*KEYS.start()).saturating_sub(*KEYS.start()).cast_unsigned();
            if key <= floor
                && let Some(least) = least.get_mut(usize::from(group.id))
            {
                *least = u32::from(group.id) << KEY_BITS | key;
                open = true;
            }
        }
        if open {
            for now in &class.now {
                for (rank, word) in (0_u32..).zip(now) {
                    let group = usize::from(group_of(*word));
                    if least.get(group).is_some_and(|least| *word >= *least) && *word != ABSENT {
                        let place = class.places.get(group).map_or(0, |place| usize::from(*place).wrapping_sub(1));
                        let offset = offsets.get(place).copied().unwrap_or(0);
                        class.consider(rank, *word, offset, &mut |entry| charge(judge, rank, entry), &mut best);
                    }
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

    fn repaired(&mut self, id: u32, judge: &mut impl Judge) -> Option<&mut Class> {
        let at = id as usize;
        self.asked = self.asked.saturating_add(1);
        if self.classes.len() <= at {
            self.classes.resize_with(at.checked_add(1)?, || None);
        }
        if self.classes.get(at)?.is_none() {
            self.warm(id, judge);
        }
        let class = self.classes.get_mut(at)?.as_mut()?;
        class.used = self.asked;
        if class.seen < self.recent.stamp() {
            let mut changed = self.recent.since(class.seen);
            let mut batch = [(0, 0); BATCH];
            loop {
                // The words of a whole batch are read before any is judged, so that their cache misses overlap.
                let mut count = 0;
                for (slot, rank) in batch.iter_mut().zip(&mut changed) {
                    *slot = (rank, class.now[0].get(rank as usize).copied().unwrap_or(ABSENT));
                    count += 1;
                }
                for (rank, was) in batch.iter().take(count) {
                    class.reset(*rank, *was, judge.ways(id, *rank));
                }
                if count < BATCH {
                    break;
                }
            }
            drop(changed);
            class.seen = self.recent.stamp();
        }
        Some(class)
    }

    /// Judges all nodes for a class that is not kept.
    fn warm(&mut self, id: u32, judge: &mut impl Judge) {
        if self.active >= self.limit {
            let oldest = self.classes.iter_mut().filter(|class| class.is_some());
            if let Some(oldest) = oldest.min_by_key(|class| class.as_ref().map_or(u64::MAX, |class| class.used)) {
                *oldest = None;
                self.active -= 1;
            }
        }
        let ranks = self.recent.ranks();
        let now = [alloc::vec![ABSENT; ranks as usize], Vec::new()];
        let mut class = Class { seen: self.recent.stamp(), now, ..Class::default() };
        for rank in 0..ranks {
            class.reset(rank, ABSENT, judge.ways(id, rank));
        }
        if let Some(place) = self.classes.get_mut(id as usize) {
            *place = Some(class);
            self.active += 1;
        }
    }
}
