//! Gangs: several members of one class, all of them or none, inside one topology domain where that is asked.
//!
//! Every domain in which all members fit is tried member by member, each on the best node of the domain as the members
//! before it left it; the domain with the highest sum of scores is taken, of equal ones the lowest. How many members a
//! domain could host is kept as a count, so that a domain without room costs nothing; the sum of a domain in which
//! nothing changed since it was last tried is kept too.

use alloc::vec::Vec;

use super::fleet::{ClassId, Fleet};
use super::index::{Judge, Ways};
use super::nodes::{Choice, Node, Nodes};
use super::recent::Recent;
use super::score::Scorer;
use super::view::{Shape, WHOLE, Want};

/// Where the members of a gang may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// On nodes of one domain, whichever.
    Domain,
    /// Anywhere.
    Fleet,
}

/// The score of a node on which the class does not fit.
const NOWHERE: i32 = i32::MIN;
/// Classes of gangs that are kept; the least recently asked for goes.
const KEPT_CLASSES: usize = 128;

/// Which nodes are in which domain.
#[derive(Clone, Debug)]
struct Domains {
    /// Ranks by domain, then rank.
    ranks: Vec<u32>,
    /// Where each domain begins, and the end.
    starts: Vec<usize>,
    /// By rank: its place in `ranks`, and its domain.
    places: Vec<(usize, usize)>,
}

impl Domains {
    fn new(nodes: &Nodes) -> Self {
        let domain = |rank: &u32| nodes.shape(*rank).map_or(0, |shape| shape.domain);
        let mut ranks: Vec<u32> = (0..nodes.len()).collect();
        ranks.sort_by_key(|rank| (domain(rank), *rank));
        let mut places = alloc::vec![(0, 0); ranks.len()];
        let mut starts = Vec::new();
        let mut last = None;
        for (at, rank) in ranks.iter().enumerate() {
            if last.replace(domain(rank)) != Some(domain(rank)) {
                starts.push(at);
            }
            if let Some(place) = places.get_mut(*rank as usize) {
                *place = (at, starts.len() - 1);
            }
        }
        starts.push(ranks.len());
        Self { ranks, starts, places }
    }

    fn range(&self, domain: usize) -> core::ops::Range<usize> {
        let end = self.starts.get(domain.saturating_add(1)).copied().unwrap_or(0);
        self.starts.get(domain).copied().unwrap_or(end)..end
    }

    fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }
}

/// A domain for one class.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// How many members would fit.
    members: u64,
    /// What was found for so many members, if it is still true.
    tried: Option<(u32, Option<i64>)>,
}

/// One class: places in the order of [`Domains::ranks`].
#[derive(Clone, Debug, Default)]
struct Class {
    seen: u64,
    used: u64,
    prices: u64,
    ways: Vec<Ways>,
    scores: Vec<i32>,
    members: Vec<u32>,
    rooms: Vec<Room>,
}

/// What is kept for gangs.
#[derive(Clone, Debug)]
pub(super) struct Gangs {
    domains: Domains,
    recent: Recent,
    prices: u64,
    asked: u64,
    classes: Vec<(u32, Class)>,
}

impl Gangs {
    pub fn new(nodes: &Nodes) -> Self {
        let recent = Recent::new(nodes.len());
        Self { domains: Domains::new(nodes), recent, prices: 0, asked: 0, classes: Vec::new() }
    }

    pub fn touch(&mut self, rank: u32) {
        self.recent.touch(rank);
    }

    pub fn forget(&mut self) {
        self.classes.clear();
    }

    pub fn reprice(&mut self) {
        self.prices = self.prices.saturating_add(1);
    }

    /// The class as it is now, taken out; to be put back.
    fn class(&mut self, id: u32, scorer: &mut Scorer<'_>) -> Option<Class> {
        self.asked = self.asked.saturating_add(1);
        let found = self.classes.iter().position(|(known, _)| *known == id);
        if found.is_none() && self.classes.len() >= KEPT_CLASSES {
            let oldest = (0..self.classes.len()).min_by_key(|at| self.classes.get(*at).map(|(_, class)| class.used));
            oldest.map(|oldest| self.classes.swap_remove(oldest));
        }
        let mut class = match found {
            Some(at) => {
                let mut class = self.classes.swap_remove(at).1;
                for rank in self.recent.since(class.seen) {
                    class.judge(&self.domains, scorer, id, rank);
                }
                class
            }
            None => {
                let nodes = self.domains.ranks.len();
                let mut class = Class { prices: self.prices, ..Class::default() };
                class.ways.resize(nodes, [None, None]);
                class.scores.resize(nodes, NOWHERE);
                class.members.resize(nodes, 0);
                class.rooms.resize(self.domains.count(), Room::default());
                for rank in &self.domains.ranks {
                    class.judge(&self.domains, scorer, id, *rank);
                }
                class
            }
        };
        if class.prices != self.prices {
            class.prices = self.prices;
            class.rooms.iter_mut().for_each(|room| room.tried = None);
            for (score, ways) in class.scores.iter_mut().zip(&class.ways) {
                *score = priced(scorer, id, ways);
            }
        }
        class.seen = self.recent.stamp();
        class.used = self.asked;
        Some(class)
    }
}

fn priced(scorer: &Scorer<'_>, class: u32, ways: &Ways) -> i32 {
    let scores = ways.iter().flatten().map(|way| way.key.saturating_sub(scorer.offset(class, way.group)));
    scores.max().unwrap_or(NOWHERE)
}

/// How many members the node could host.
fn members(nodes: &Nodes, rank: u32, node: &Node, want: &Want) -> u32 {
    if !nodes.hosts(rank, node, want) {
        return 0;
    }
    let lefts = nodes.left(rank, node);
    let devices = match want.shape {
        Shape::None => u32::MAX,
        Shape::Share(milli) => lefts.iter().map(|left| u32::from(*left) / u32::from(milli.max(1))).sum(),
        Shape::Whole(count) => u32::from(node.free) / u32::from(count.max(1)),
        Shape::Mig { table, profile } => {
            let Some(layout) = nodes.table(table).filter(|_| node.table == table) else { return 0 };
            // All have one size: taking the lowest start each time gives the most.
            let room = |mask: u8| {
                let next = |mask: &u8| layout.ways(profile, *mask).next().map(|(_, after)| after);
                core::iter::successors(next(&mask), next).count()
            };
            let devices = lefts.iter().zip(nodes.mig(rank).unwrap_or(&[]));
            let able = devices.filter(|(left, mask)| **mask != 0 || **left == WHOLE).map(|(_, mask)| room(*mask));
            u32::try_from(able.sum::<usize>()).unwrap_or(u32::MAX)
        }
    };
    let host = |left: u32, need: u32| left.checked_div(need).unwrap_or(u32::MAX);
    devices.min(host(node.cpu, want.cpu)).min(host(node.ram, want.ram))
}

impl Class {
    fn judge(&mut self, domains: &Domains, scorer: &mut Scorer<'_>, id: u32, rank: u32) {
        let (Some((place, domain)), Some(want)) =
            (domains.places.get(rank as usize).copied(), scorer.wants.get(id as usize).copied())
        else {
            return;
        };
        let ways = scorer.ways(id, rank);
        let fit = scorer.nodes.node(rank).map_or(0, |node| members(scorer.nodes, rank, node, &want));
        if let (Some(kept), Some(score), Some(members), Some(room)) = (
            self.ways.get_mut(place),
            self.scores.get_mut(place),
            self.members.get_mut(place),
            self.rooms.get_mut(domain),
        ) {
            *kept = ways;
            *score = priced(scorer, id, &ways);
            room.members = room.members.saturating_sub((*members).into()).saturating_add(fit.into());
            room.tried = None;
            *members = fit;
        }
    }
}

impl Fleet {
    /// The best places for a gang of `members` of a class, in the order in which they were chosen; `None` if there is no
    /// room for all of them. Nothing is taken yet. Ends of leases are not looked at.
    pub fn choose_gang(&mut self, class: ClassId, members: u32, within: Within) -> Option<Vec<Choice>> {
        let want = *self.want(class)?;
        match within {
            Within::Fleet => self.gang_anywhere(class, &want, members),
            Within::Domain => self.gang_in_a_domain(class, &want, members),
        }
    }

    fn gang_anywhere(&mut self, class: ClassId, want: &Want, members: u32) -> Option<Vec<Choice>> {
        let mut chosen = Vec::new();
        let mut complete = true;
        for _ in 0..members {
            let Some(choice) = self.choose(class, None).filter(|choice| self.nodes.take(want, choice).is_ok()) else {
                complete = false;
                break;
            };
            self.touch(choice.node);
            chosen.push(choice);
        }
        for choice in chosen.iter().rev() {
            self.undo(want, choice);
            self.touch(choice.node);
        }
        complete.then_some(chosen)
    }

    /// Gives back what a trial took a moment ago.
    fn undo(&mut self, want: &Want, choice: &Choice) {
        let undone = self.nodes.release(want, choice);
        debug_assert!(undone.is_ok(), "a trial took it");
        self.rule.touch(&self.nodes, choice.node);
    }

    fn gang_in_a_domain(&mut self, id: ClassId, want: &Want, members: u32) -> Option<Vec<Choice>> {
        let mut scorer = Scorer::new(&self.nodes, &self.wants, &self.busy, &mut self.rule);
        let mut class = self.gangs.class(id.0, &mut scorer)?;
        let mut best: Option<(i64, usize)> = None;
        for domain in 0..class.rooms.len() {
            let room = class.rooms.get(domain).copied().unwrap_or_default();
            if room.members < u64::from(members) {
                continue;
            }
            let sum = match room.tried {
                Some((tried, sum)) if tried == members => sum,
                _ => {
                    let sum = self.try_domain((id.0, &mut class), want, members, domain).map(|(sum, _)| sum);
                    if let Some(room) = class.rooms.get_mut(domain) {
                        room.tried = Some((members, sum));
                    }
                    sum
                }
            };
            if let Some(sum) = sum.filter(|sum| best.is_none_or(|best| *sum > best.0)) {
                best = Some((sum, domain));
            }
        }
        let found = best.and_then(|(_, domain)| self.try_domain((id.0, &mut class), want, members, domain));
        self.gangs.classes.push((id.0, class));
        found.map(|(_, choices)| choices)
    }

    /// Places the members in the domain and takes them back: the sum of their scores, and where they were.
    fn try_domain(
        &mut self,
        (id, class): (u32, &mut Class),
        want: &Want,
        members: u32,
        domain: usize,
    ) -> Option<(i64, Vec<Choice>)> {
        let range = self.gangs.domains.range(domain);
        let ranks = self.gangs.domains.ranks.get(range.clone())?;
        let scores = class.scores.get_mut(range)?;
        let mut trial: Vec<(usize, i32, Choice)> = Vec::new();
        let mut sum = 0_i64;
        while trial.len() < members as usize {
            let Some((place, score)) = highest(scores) else { break };
            let Some(rank) = ranks.get(place).copied() else { break };
            let mut scorer = Scorer::new(&self.nodes, &self.wants, &self.busy, &mut self.rule);
            let Some((_, choice)) = scorer.on_node(want, rank) else { break };
            if self.nodes.take(want, &choice).is_err() {
                break;
            }
            self.rule.touch(&self.nodes, rank);
            let mut scorer = Scorer::new(&self.nodes, &self.wants, &self.busy, &mut self.rule);
            let ways = scorer.ways(id, rank);
            if let Some(kept) = scores.get_mut(place) {
                trial.push((place, core::mem::replace(kept, priced(&scorer, id, &ways)), choice));
            }
            sum = sum.saturating_add(score.into());
        }
        for (place, score, choice) in trial.iter().rev() {
            if let Some(kept) = scores.get_mut(*place) {
                *kept = *score;
            }
            self.undo(want, choice);
        }
        (trial.len() == members as usize).then(|| (sum, trial.into_iter().map(|(_, _, choice)| choice).collect()))
    }

    /// What [`Fleet::choose_gang`] must return within a domain, found by judging every node of every domain anew for
    /// every member.
    pub fn scan_gang(&mut self, class: ClassId, members: u32) -> Option<Vec<Choice>> {
        let want = *self.want(class)?;
        let domains = self.gangs.domains.clone();
        let mut best: Option<(i64, Vec<Choice>)> = None;
        for domain in 0..domains.count() {
            let (mut sum, mut chosen) = (0_i64, Vec::new());
            while chosen.len() < members as usize {
                let mut scorer = Scorer::new(&self.nodes, &self.wants, &self.busy, &mut self.rule);
                let ranks = domains.ranks.get(domains.range(domain))?;
                let able = ranks.iter().filter_map(|rank| scorer.on_node(&want, *rank));
                let next = able.reduce(|best, next| if next.0 > best.0 { next } else { best });
                let Some((score, choice)) = next.filter(|(_, choice)| self.nodes.take(&want, choice).is_ok()) else {
                    break;
                };
                self.rule.touch(&self.nodes, choice.node);
                sum = sum.saturating_add(score.into());
                chosen.push(choice);
            }
            chosen.iter().rev().for_each(|choice| self.undo(&want, choice));
            if chosen.len() == members as usize && best.as_ref().is_none_or(|best| sum > best.0) {
                best = Some((sum, chosen));
            }
        }
        best.map(|(_, chosen)| chosen)
    }
}

/// The first place with the highest score.
fn highest(scores: &[i32]) -> Option<(usize, i32)> {
    let highest = scores.iter().copied().max().filter(|score| *score != NOWHERE)?;
    scores.iter().position(|score| *score == highest).map(|place| (place, highest))
}
