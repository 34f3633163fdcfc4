//! The one place where the score of a placement is formed, for every weighting: key less the price of its group, less
//! the charge for lease ends. A requirement is an early return; a preference is a term.

use super::busy::Busy;
use super::index::{Entry, Judge, KEYS, Ways};
use super::nodes::{Choice, Node, Nodes};
use super::rule::{Rule, mig_score, parts};
use super::terms::grain;
use super::terms::{Group, Weights, ends};
use super::view::{Shape, View, WHOLE, Want};

/// CPU, in thousandths of a core, and GPU, in milli, of the node by which best-fit measures what is left, as published.
const BEST_FIT_CPU: i64 = 128_000;
const BEST_FIT_GPU: i64 = 8_000;
/// Ways that a class has at most in the index, by group.
const KINDS: usize = 2;
/// In the index, nodes on which nothing has an end are groups of their own, by this bit: they are all charged alike,
/// so that the first of many that are equal is known without charging the others.
const IDLE: u16 = {
    assert!(Group::COUNT.is_power_of_two() && 2 * Group::COUNT <= super::index::MAX_GROUP as usize);
    Group::COUNT as u16
};

/// Scores placements on nodes as they are now.
pub(super) struct Scorer<'a> {
    pub nodes: &'a Nodes,
    pub wants: &'a [Want],
    pub busy: &'a Busy,
    pub rule: &'a mut Rule,
    /// When what is to be placed ends, in ms, if that matters to its score.
    pub end: Option<u64>,
}

/// A way to place a request on a node: the device, the MIG start, the key and what its price depends on.
#[derive(Clone, Copy, Debug)]
struct Way {
    device: u8,
    start: u8,
    entry: Entry,
}

impl Way {
    const fn plain(device: u8, key: i32) -> Self {
        Self { device, start: 0, entry: Entry { group: 0, key, note: 0 } }
    }

    fn entry(self) -> Entry {
        Entry { note: u16::from(self.device) << 3 | u16::from(self.start & 7), ..self.entry }
    }
}

/// The best way of each group, at most two groups: the higher key, then the lower device and start.
#[derive(Default)]
struct Found([Option<Way>; KINDS]);

impl Found {
    fn add(&mut self, way: Way) {
        for place in &mut self.0 {
            match place {
                None => return *place = Some(way),
                Some(best) if best.entry.group == way.entry.group => {
                    let higher = way.entry.key > best.entry.key;
                    let lower = (way.device, way.start) < (best.device, best.start);
                    if higher || (way.entry.key == best.entry.key && lower) {
                        *best = way;
                    }
                    return;
                }
                Some(_) => {}
            }
        }
    }
}

impl<'a> Scorer<'a> {
    /// For what has no end.
    pub fn new(nodes: &'a Nodes, wants: &'a [Want], busy: &'a Busy, rule: &'a mut Rule) -> Self {
        Self { nodes, wants, busy, rule, end: None }
    }

    /// For a request that ends then.
    pub fn until(self, end: Option<u64>, want: &Want) -> Self {
        Self { end: end.filter(|_| self.minds_ends(want)), ..self }
    }
}

impl Scorer<'_> {
    fn found(&mut self, want: &Want, rank: u32) -> Found {
        let mut found = Found::default();
        let Some(node) = self.nodes.node(rank).filter(|node| self.nodes.hosts(rank, node, want)) else { return found };
        let lefts = self.nodes.left(rank, node);
        match want.shape {
            Shape::Whole(count) if node.free < count => return found,
            Shape::Share(milli) if node.most < milli => return found,
            Shape::Mig { table, profile } => {
                self.each_mig((rank, node), want, (table, profile), |way| found.add(way));
                return found;
            }
            _ => {}
        }
        match &mut *self.rule {
            Rule::Terms(rule) => {
                let view = View { model: node.model, cpu: node.cpu, ram: node.ram, left: lefts };
                for candidate in rule.terms.judge(&view, want).into_iter().flatten() {
                    let group = u16::try_from(candidate.group.number()).unwrap_or(u16::MAX);
                    let entry = Entry { group, key: candidate.bucket, note: 0 };
                    found.add(Way { device: candidate.device, start: 0, entry });
                }
            }
            Rule::Fgd(rule) => {
                let (mut best, mut device) = (i64::MIN, 0);
                let hosted = rule.hosted(rank);
                rule.frag.gradients(node, lefts, hosted, want, |_, gradient| best = best.max(gradient));
                // Devices whose gradients have one score are equal: the first of them is it.
                let score = rule.frag.score(best);
                if let Shape::Share(_) = want.shape {
                    let (least, mut first) = (rule.frag.least(score), None);
                    rule.frag.gradients(node, lefts, hosted, want, |at, gradient| {
                        first = first.or((gradient >= least).then_some(at));
                    });
                    device = first.unwrap_or(0);
                }
                found.add(Way::plain(device, score));
            }
            Rule::BestFit => {
                let (device, taken) = match want.shape {
                    Shape::Share(milli) => (tightest(lefts, milli), milli),
                    Shape::Whole(count) => (0, u16::from(count.min(64)) * WHOLE),
                    Shape::None | Shape::Mig { .. } => (0, 0),
                };
                let cpu = node.cpu.saturating_sub(want.cpu);
                found.add(Way::plain(device, best_fit(cpu, node.total.saturating_sub(taken))));
            }
            Rule::Random(draw) => {
                let device = match want.shape {
                    Shape::Share(milli) => {
                        let able = || (0_u8..).zip(lefts).filter(|(_, left)| **left >= milli);
                        let nth = (*draw >> 32).checked_rem(able().count() as u64).unwrap_or(0);
                        able().nth(usize::try_from(nth).unwrap_or(0)).map_or(0, |(device, _)| device)
                    }
                    _ => 0,
                };
                found.add(Way::plain(device, 0));
            }
        }
        found
    }

    /// Every place for a MIG instance on the node: devices ascending, then starts ascending.
    fn each_mig(&self, (rank, node): (u32, &Node), want: &Want, of: (u8, u8), mut tell: impl FnMut(Way)) {
        let (number, profile) = of;
        let Some(layout) = self.nodes.table(number).filter(|_| node.table == number) else { return };
        let lefts = self.nodes.left(rank, node);
        let opening = match &*self.rule {
            Rule::Fgd(rule) => {
                let mut gradient = 0;
                rule.frag.gradients(node, lefts, rule.hosted(rank), want, |_, found| gradient = found);
                parts(gradient.into(), rule.frag.weight())
            }
            _ => 0,
        };
        let devices = (0_u8..).zip(lefts.iter().zip(self.nodes.mig(rank).unwrap_or(&[])));
        for (device, (left, mask)) in devices.filter(|(_, (left, mask))| **mask != 0 || **left == WHOLE) {
            let opened = *left == WHOLE;
            for (start, after) in layout.ways(profile, *mask) {
                let (group, key) = match &*self.rule {
                    Rule::Terms(rule) => {
                        let group = Group::of(node.model, node.free, opened.into()).number();
                        let table = rule.mig.get(usize::from(number));
                        let worth = table.map_or(0, |table| table.worth(rule.terms.weights(), *mask, after));
                        // In thousandths of a slice: eight or four slices are few steps of anything coarser.
                        (u16::try_from(group).unwrap_or(0), grain::floor(worth, 1))
                    }
                    Rule::Fgd(rule) => {
                        let table = rule.mig.get(usize::from(number));
                        let worth = table.map_or(0, |table| table.worth(&Weights::NONE, *mask, after));
                        (0, mig_score(&rule.sigmoid, worth, layout.slices, if opened { opening } else { 0 }))
                    }
                    Rule::BestFit => (0, best_fit_mig(layout.free(*mask))),
                    Rule::Random(_) => (0, 0),
                };
                tell(Way { device, start, entry: Entry { group, key, note: 0 } });
            }
        }
    }

    /// The best placement of the request on the node, with its score; with several of one score, on the lowest device.
    pub fn on_node(&mut self, want: &Want, rank: u32) -> Option<(i32, Choice)> {
        let ways = self.found(want, rank).0;
        let scored = ways.into_iter().flatten().map(|way| {
            let charge = self.charge(want, rank, way.entry());
            (way.entry.key.saturating_sub(self.price(want, way.entry.group)).saturating_sub(charge), way)
        });
        let better = |one: &(i32, Way), two: &(i32, Way)| {
            (two.0, one.1.device, one.1.start) > (one.0, two.1.device, two.1.start)
        };
        let (score, way) = scored.reduce(|best, next| if better(&best, &next) { next } else { best })?;
        let devices = match want.shape {
            Shape::None => 0,
            Shape::Share(_) | Shape::Mig { .. } => 1_u64.checked_shl(way.device.into())?,
            Shape::Whole(count) => lowest_free(self.nodes.left(rank, self.nodes.node(rank)?), count),
        };
        Some((score, Choice { node: rank, devices, start: way.start }))
    }

    fn price(&self, want: &Want, group: u16) -> i32 {
        let Rule::Terms(rule) = &*self.rule else { return 0 };
        let price = Group::numbered(group & !IDLE).map_or(0, |group| rule.terms.price(want, group));
        match want.shape {
            Shape::Mig { table, .. } => {
                let slices = self.nodes.table(table).map_or(1, |layout| i32::from(layout.slices));
                let bucket = i32::try_from(rule.terms.weights().bucket.max(1)).unwrap_or(i32::MAX);
                price.saturating_mul(bucket).saturating_mul(slices)
            }
            _ => price,
        }
    }

    /// True if the end of the lease matters to its score.
    fn minds_ends(&self, want: &Want) -> bool {
        let Rule::Terms(rule) = &*self.rule else { return false };
        let weights = rule.terms.weights();
        match want.shape {
            Shape::None => false,
            Shape::Share(_) | Shape::Whole(_) => weights.end > 0,
            Shape::Mig { .. } => weights.mig_end > 0,
        }
    }

    /// What a way costs for keeping its node, or its MIG slices, busy longer, in the unit of its key: never less than 0.
    pub fn charge(&self, want: &Want, rank: u32, entry: Entry) -> i32 {
        let (Rule::Terms(rule), Some(new)) = (&*self.rule, self.end) else { return 0 };
        let (weights, device, busy) = (rule.terms.weights(), usize::from(entry.note >> 3), self.busy);
        if entry.group & IDLE != 0 {
            return 0; // it is in the group's offset
        }
        let charge = if let Shape::Mig { table, profile } = want.shape {
            let place = (profile, u8::try_from(entry.note & 7).unwrap_or(0));
            let table = rule.mig.get(usize::from(table));
            let ends = busy.slices(rank, device);
            let charge = table.map_or(0, |table| table.end_charge(weights, place, &ends, new, busy.mean_life()));
            grain::round(charge, 1)
        } else {
            self.end_charge(want, busy.node(rank))
        };
        charge.max(0)
    }

    /// What a place without MIG costs on a node that is busy until then.
    fn end_charge(&self, want: &Want, node: u64) -> i32 {
        let (Rule::Terms(rule), Some(new)) = (&*self.rule, self.end) else { return 0 };
        let charge = ends::charge(rule.terms.weights(), want, (new, node), self.busy.mean_life());
        grain::round(charge, rule.terms.weights().bucket)
    }

    /// The way in which the index sees a node.
    fn key_of_share(&self, want: &Want, rank: u32, milli: u16) -> Option<Ways> {
        let Rule::Fgd(rule) = &*self.rule else { return None };
        let node = self.nodes.node(rank)?;
        if node.most < milli || !self.nodes.hosts(rank, node, want) {
            return Some([None, None]);
        }
        let mut best = i64::MIN;
        let lefts = self.nodes.left(rank, node);
        rule.frag.gradients(node, lefts, rule.hosted(rank), want, |_, gradient| best = best.max(gradient));
        Some([Some(Entry { group: 0, key: rule.frag.score(best), note: 0 }), None])
    }
}

impl Judge for Scorer<'_> {
    fn ways(&mut self, class: u32, rank: u32) -> Ways {
        let Some(want) = self.wants.get(class as usize).copied() else { return [None, None] };
        if let Shape::Share(milli) = want.shape
            && let Some(ways) = self.key_of_share(&want, rank, milli)
        {
            return ways;
        }
        let apart = matches!(&*self.rule, Rule::Terms(_)) && matches!(want.shape, Shape::Share(_) | Shape::Whole(_));
        let idle = if apart && self.busy.idle(rank) { IDLE } else { 0 };
        let seen = |entry: Entry| Entry { group: entry.group | idle, ..entry };
        self.found(&want, rank).0.map(|way| way.map(|way| seen(way.entry())))
    }

    fn offset(&self, class: u32, group: u16) -> i32 {
        let Some(want) = self.wants.get(class as usize) else { return 0 };
        let now = self.busy.now();
        let charge = if group & IDLE == 0 { 0 } else { self.end_charge(want, now).max(0) };
        self.price(want, group).saturating_add(charge)
    }

    fn may(&self, rank: u32) -> impl Fn(u32) -> bool {
        let node = self.nodes.node(rank).filter(|_| !self.nodes.is_closed(rank)).copied();
        let wants = self.wants;
        move |class| {
            let (Some(node), Some(want)) = (node, wants.get(class as usize)) else { return false };
            let devices = match want.shape {
                Shape::None => true,
                Shape::Share(milli) => node.most >= milli,
                Shape::Whole(count) => node.free >= count,
                Shape::Mig { table, .. } => node.table == table,
            };
            devices & (node.cpu >= want.cpu) & (node.ram >= want.ram) & (want.models >> (node.model & 63) & 1 == 1)
        }
    }

    fn alike(&self, rank: u32) -> Option<u16> {
        self.nodes.empty(rank).filter(|_| self.busy.idle(rank))
    }
}

/// By what is left of a node after it, in thousandths of a core and milli.
pub(crate) fn best_fit(cpu: u32, gpu: u16) -> i32 {
    let used = 50 * i64::from(cpu) + 50 * i64::from(gpu) * (BEST_FIT_CPU / BEST_FIT_GPU);
    i32::try_from((100 * BEST_FIT_CPU - used).div_euclid(BEST_FIT_CPU)).unwrap_or(i32::MIN).max(*KEYS.start())
}

/// By the slices that are free on the device before it.
pub(crate) fn best_fit_mig(free: u64) -> i32 {
    8 - i32::try_from(free).unwrap_or(8)
}

/// The first of the devices with least left that is enough.
fn tightest(lefts: &[u16], milli: u16) -> u8 {
    let able = (0_u8..).zip(lefts).filter(|(_, left)| **left >= milli);
    able.min_by_key(|(_, left)| **left).map_or(0, |(device, _)| device)
}

fn lowest_free(lefts: &[u16], count: u8) -> u64 {
    let free = (0_u32..).zip(lefts).filter(|(_, left)| **left == WHOLE);
    free.take(count.into()).filter_map(|(device, _)| 1_u64.checked_shl(device)).fold(0, |all, bit| all | bit)
}
