//! One class in the index: how each node stands in it, and the best few of each group in order.

use alloc::vec::Vec;

use super::marks::Marks;
use super::{Best, Entry, KEYS, MAX_GROUP, Ways};

pub(super) const KEY_BITS: u32 = 20;
const KEY_MASK: u32 = (1 << KEY_BITS) - 1;
/// Above every way; no group is so high that it meets it.
pub(super) const ABSENT: u32 = u32::MAX;
/// How many of a group's best are put in order at a time, and how many at most are kept so.
const KEPT: usize = 1024;
const MOST: usize = 2 * KEPT;

/// A way as a word: group, then key.
fn packed(entry: Entry) -> u32 {
    let key = entry.key.clamp(*KEYS.start(), *KEYS.end()).saturating_sub(*KEYS.start()).cast_unsigned();
    u32::from(entry.group.min(MAX_GROUP)) << KEY_BITS | key & KEY_MASK
}

pub(super) fn group_of(word: u32) -> u16 {
    u16::try_from(word >> KEY_BITS).unwrap_or(MAX_GROUP)
}

/// The key in a word.
fn key_of(word: u32) -> i32 {
    (word & KEY_MASK).cast_signed().saturating_add(*KEYS.start())
}

/// The least word of a group whose key is at least that.
pub(super) fn least_word(group: u16, key: i32) -> u32 {
    let key = key.max(*KEYS.start()).saturating_sub(*KEYS.start()).cast_unsigned();
    u32::from(group) << KEY_BITS | key.min(KEY_MASK)
}

/// Orders the nodes of a group: the highest is the highest key, then the lowest rank.
fn standing(word: u32, rank: u32) -> u64 {
    u64::from(word & KEY_MASK) << 32 | u64::from(!rank)
}

/// Key and rank of a standing.
fn stood(standing: u64) -> (i32, u32) {
    let low = u32::try_from(standing & u64::from(u32::MAX)).unwrap_or(0);
    (key_of(u32::try_from(standing >> 32).unwrap_or(0)), !low)
}

/// The nodes of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub id: u16,
    /// How many there are.
    live: usize,
    /// Exactly those that stand at `floor` or above, the best last.
    front: Vec<u64>,
    floor: u64,
}

impl Group {
    fn add(&mut self, standing: u64) {
        self.live += 1;
        if standing < self.floor {
            return;
        }
        let at = self.front.partition_point(|other| *other < standing);
        self.front.insert(at, standing);
        if self.front.len() > MOST {
            self.front.drain(..MOST - KEPT);
            self.floor = self.front.first().copied().unwrap_or(0);
        }
    }

    fn remove(&mut self, standing: u64) {
        self.live = self.live.saturating_sub(1);
        if standing >= self.floor
            && let Ok(at) = self.front.binary_search(&standing)
        {
            self.front.remove(at);
        }
    }

    /// True if nodes are in it of which none is in order.
    fn dry(&self) -> bool {
        self.live > 0 && self.front.is_empty()
    }

    /// Key and rank of those that are in order, the best first.
    pub fn best_few(&self) -> impl Iterator<Item = (i32, u32)> + '_ {
        self.front.iter().rev().copied().map(stood)
    }

    /// Key and rank above which none stands that is out of order; `None`: all are in order.
    pub fn beyond(&self) -> Option<(i32, u32)> {
        (self.live > self.front.len()).then(|| stood(self.floor))
    }
}

/// One class.
#[derive(Clone, Debug, Default)]
pub(super) struct Class {
    /// The nodes that changed since they were judged for it.
    pub changed: Marks,
    /// When it was last asked for.
    pub used: u64,
    /// The present ways of each rank; the second is empty until a node has two.
    now: [Vec<u32>; 2],
    /// The notes of the ways; empty as long as all are 0.
    notes: [Vec<u16>; 2],
    groups: Vec<Group>,
    /// Where in `groups` a group is, plus one.
    places: Vec<u16>,
}

impl Class {
    /// One in which no node stands.
    pub fn new(ranks: u32) -> Self {
        let now = [alloc::vec![ABSENT; ranks as usize], Vec::new()];
        Self { changed: Marks::new(ranks), now, ..Self::default() }
    }

    /// The groups, in the order in which they were first seen.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// One more than the highest group.
    pub fn most_groups(&self) -> usize {
        self.places.len()
    }

    /// Where a group is among the groups.
    pub fn place(&self, id: u16) -> Option<usize> {
        self.places.get(usize::from(id)).and_then(|place| usize::from(*place).checked_sub(1))
    }

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

    /// The first of the ways of a node, as a word.
    pub fn first(&self, rank: u32) -> u32 {
        self.now[0].get(rank as usize).copied().unwrap_or(ABSENT)
    }

    /// Sets the ways of a node whose first word was `was`, and says whether it has any.
    pub fn reset(&mut self, rank: u32, was: u32, ways: Ways) -> bool {
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
        (one, two) != (ABSENT, ABSENT)
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
            group.remove(standing(was, rank));
        }
        if word != ABSENT
            && let Some(group) = self.group(group_of(word))
        {
            group.add(standing(word, rank));
        }
    }

    /// Puts the best few in order of every group of which none is.
    pub fn settle(&mut self) {
        if !self.groups.iter().any(Group::dry) {
            return;
        }
        let take = |group: &mut Group| group.dry().then(|| core::mem::take(&mut group.front));
        let mut found: Vec<Option<Vec<u64>>> = self.groups.iter_mut().map(take).collect();
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
            best.sort_unstable();
            group.front = best;
        }
    }

    /// Takes a way of a node for the best if it is, after its charge.
    pub fn consider(
        &self,
        rank: u32,
        word: u32,
        offset: i32,
        charge: &mut impl FnMut(Entry) -> i32,
        best: &mut Option<Best>,
    ) {
        let key = key_of(word);
        let free = key.saturating_sub(offset);
        if beaten(free, rank, *best) {
            return;
        }
        for (now, notes) in self.now.iter().zip(&self.notes) {
            if now.get(rank as usize) != Some(&word) {
                continue;
            }
            let note = notes.get(rank as usize).copied().unwrap_or(0);
            let score = free.saturating_sub(charge(Entry { group: group_of(word), key, note }));
            if !beaten(score, rank, *best) {
                *best = Some(Best { rank, score });
            }
        }
    }

    /// Every way of every node: rank and word.
    pub fn words(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let all = self.now.iter().flat_map(|now| (0_u32..).zip(now));
        all.map(|(rank, word)| (rank, *word)).filter(|(_, word)| *word != ABSENT)
    }

    /// The nodes that have a way, by rank.
    pub fn able(&self) -> impl Iterator<Item = u32> + '_ {
        let [one, two] = &self.now;
        let second = move |rank: usize| two.get(rank).is_some_and(|word| *word != ABSENT);
        let able = one.iter().enumerate().filter(move |(rank, word)| **word != ABSENT || second(*rank));
        able.filter_map(|(rank, _)| u32::try_from(rank).ok())
    }
}

/// True if a score on that rank does not win over the best: a higher score, or an equal one on a lower rank, does.
pub(super) fn beaten(score: i32, rank: u32, best: Option<Best>) -> bool {
    best.is_some_and(|best| (score, best.rank) <= (best.score, rank))
}
