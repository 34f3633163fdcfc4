//! A look at one node: the ways to place a member on it, each with its score, and the few nodes at which a search has to
//! look where the index has looked already.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use selion_api::slice::{GpuSpec, NodeSpec};
use selion_api::{GpuId, MemberWant, NodeId, Rate, Reason, Slot, TimeMs};

use crate::bench::{self, Bench, Spot, Way};
use crate::busy::Busy;
use crate::engine::view::Shape;
use crate::geometry::{self, Fit};
use crate::money;
use crate::place::{Admitted, Machine, Miss, Piece, Placed, Room, Scan, Score, Stage, World, any_or, miss};
use crate::state::Node;

/// What a GPU says, or a node without any: every way to place the member on it, or what it misses. For several GPUs, what
/// those of one model say.
pub(crate) type Verdict = (Option<GpuId>, Result<Vec<Placed>, Miss>);

/// A GPU of a place: its rank in the node's spec, its id, its ask.
pub(crate) type Pick = (usize, GpuId, Rate);

impl World<'_> {
    /// What [`Self::scan`] finds, by a look at the nodes that the index names and those that the search itself changed.
    /// The best choices are on so many of the best nodes. `None` if the index has not looked, or nothing fits.
    ///
    /// The index knows nothing of datasets. Those nodes that have one of the request's are looked at too; of the others
    /// all lack the same, so the index's order is theirs.
    pub(crate) fn scan_few(&self, rank: u16, want: &MemberWant, fresh: bool, keep: usize) -> Option<Scan> {
        if self.request.near_data {
            return self.scan_near(rank, want, fresh, keep);
        }
        if !self.is_first_run() || self.without.is_some() || self.any_slice || self.among.is_some() {
            return None;
        }
        let found = self.state.finder.found(self.state, self.room, self.request, want)?;
        let mut changed: BTreeSet<NodeId> = self.placed.iter().map(|placed| placed.node).collect();
        changed.extend(self.also.iter().map(|(node, _)| *node));
        if let Some(id) = found.nearest().filter(|_| changed.is_empty()) {
            return self.scan_one(id, rank, want);
        }
        let mut nodes: Vec<NodeId> = found.nodes().filter(|id| !changed.contains(id)).take(keep).collect();
        if nodes.len() < keep && !found.is_all() {
            return None;
        }
        let gpus = found.gpus();
        if !self.request.datasets.is_empty() {
            let with_data = self.state.finder.with_some(&self.request.datasets)?;
            changed.extend(with_data.into_iter().filter(|id| found.gpus_on(*id) > 0 && !nodes.contains(id)));
        }
        let before: usize = nodes.iter().chain(&changed).map(|id| found.gpus_on(*id)).sum();
        nodes.extend(changed.into_iter().filter(|id| self.may_take(*id, want, fresh)));
        let mut scan = Scan { best: Vec::new(), gpus: gpus.saturating_sub(before), miss: None };
        self.look_at_some(nodes, rank, want, keep, &mut scan);
        (!scan.best.is_empty()).then_some(scan)
    }

    /// As [`Self::scan_few`] where only nodes with all datasets are in question. In any room, since it needs no index.
    fn scan_near(&self, rank: u16, want: &MemberWant, fresh: bool, keep: usize) -> Option<Scan> {
        let mut nodes = self.state.finder.with_all(&self.request.datasets)?;
        let among = |id: &NodeId| self.among.as_ref().is_none_or(|among| among.contains(id));
        nodes.retain(|id| among(id) && self.may_take(*id, want, fresh));
        let mut scan = Scan { best: Vec::new(), gpus: 0, miss: None };
        self.look_at_some(nodes, rank, want, keep, &mut scan);
        (!scan.best.is_empty()).then_some(scan)
    }

    /// True if the want is not for another node and, with `fresh`, no member is there.
    fn may_take(&self, id: NodeId, want: &MemberWant, fresh: bool) -> bool {
        want.node.is_none_or(|only| only == id) && (!fresh || self.placed.iter().all(|placed| placed.node != id))
    }

    fn look_at_some(&self, nodes: Vec<NodeId>, rank: u16, want: &MemberWant, keep: usize, scan: &mut Scan) {
        for (id, node) in nodes.into_iter().filter_map(|id| Some((id, self.state.nodes.get(&id)?))) {
            self.look_at(id, node, rank, want, &mut |_, verdict| {
                if let Ok(choices) = verdict {
                    scan.take(choices, keep);
                }
            });
        }
    }

    /// What [`Self::scan`] finds of a want that fits nowhere: the nearest miss, which is on that node.
    fn scan_one(&self, id: NodeId, rank: u16, want: &MemberWant) -> Option<Scan> {
        let mut scan = Scan { best: Vec::new(), gpus: 0, miss: None };
        self.look_at(id, self.state.nodes.get(&id)?, rank, want, &mut |gpu, verdict| scan.hear(id, gpu, verdict, 0));
        (scan.gpus == 0 && scan.miss.is_some()).then_some(scan)
    }

    /// Judges every GPU of a node that has the model asked for, and scores what fits.
    pub(crate) fn look_at(
        &self,
        id: NodeId,
        node: &Node,
        rank: u16,
        want: &MemberWant,
        tell: &mut dyn FnMut(Option<GpuId>, Result<Vec<Placed>, Miss>),
    ) {
        let busy = (self.room == Room::Now).then(|| self.busy(id, node));
        let away = node.lacks(&self.request.datasets, self.state.now);
        for (gpu, mut verdict) in self.ways(id, node, rank, want) {
            for placed in verdict.iter_mut().flatten() {
                placed.score.worth = Reverse(self.worth(id, &placed.way, busy.as_ref()));
                placed.score.spare = placed.way.spare;
                placed.score.away = away;
            }
            tell(gpu, verdict);
        }
    }

    /// When the request ends at the latest, if it is placed now.
    pub(crate) fn times(&self) -> (TimeMs, TimeMs) {
        (self.state.now, money::latest_end(self.state, self.request, self.state.now))
    }

    /// Known ends on the node, those of the gang's other members among them.
    fn busy(&self, id: NodeId, node: &Node) -> Busy {
        let mut busy = Busy::of(self.state, node);
        for placed in self.placed.iter().filter(|placed| placed.node == id) {
            if let Some(spec) = &node.spec {
                for piece in &placed.gpus {
                    busy.take(spec, piece.gpu, &placed.slot, self.times().1);
                }
            }
        }
        busy
    }

    fn worth(&self, node: NodeId, way: &Way, busy: Option<&Busy>) -> i32 {
        let charge = busy.map_or(0, |busy| self.charge(node, busy, way.shape, way.spot));
        way.key.saturating_sub(bench::price(self.state, way.shape, way.group)).saturating_sub(charge)
    }

    /// What a way costs now, whatever its group: for the end of the request, or by chance.
    pub(crate) fn charge(&self, node: NodeId, busy: &Busy, shape: Shape, spot: Spot) -> i32 {
        self.draw.map_or_else(|| bench::charge(self.state, busy, self.times(), shape, spot), |draw| draw.of_node(node))
    }

    /// Judges every GPU of a node that has the model asked for; scores are still to be made of the ways.
    pub(crate) fn ways(&self, id: NodeId, node: &Node, rank: u16, want: &MemberWant) -> Vec<Verdict> {
        let Some(spec) = &node.spec else {
            let reason = node.blocked.unwrap_or(Reason::NodeNotSchedulable);
            return alloc::vec![(None, Err(miss(Stage::Unknown, reason)))];
        };
        if !self.is_in_region(spec) {
            return Vec::new();
        }
        let machine = self.machine(id, node, rank);
        let mut bench: Option<Bench<'_>> = None;
        let mut verdicts = Vec::new();
        let of_several = if want.gpus > 1 { self.groups(spec, want) } else { Vec::new() };
        for gpus in of_several {
            let several = self.several((node, spec), &machine, want, gpus);
            let verdict = several.and_then(|(gpus, admitted)| {
                let bench = bench.get_or_insert_with(|| self.bench(spec, &machine, want));
                let fit = Fit { slot: Slot::Whole, rate: admitted.ask, frag: 0, left: 0 };
                let placed = self.placed_on(bench, (id, rank), &gpus, &admitted, fit);
                self.surcharged(&machine, spec, placed.into_iter().collect())
            });
            let first = verdict.iter().flatten().find_map(Placed::gpu);
            verdicts.push((first, verdict));
        }
        for (gpu_rank, gpu) in spec.gpus.iter().enumerate().filter(|(_, gpu)| want.gpus == 1 && self.named(want, gpu)) {
            let judge = |want: &MemberWant| self.judge(node, spec, &machine, gpu, want);
            let mut verdict = judge(want);
            if self.any_slice {
                for slice in geometry::slices(gpu) {
                    verdict = verdict.or_else(|_| judge(&MemberWant { slice, ..want.clone() }));
                }
            }
            let verdict = verdict.and_then(|(admitted, ways)| {
                let bench = bench.get_or_insert_with(|| self.bench(spec, &machine, want));
                let placed = |fit: Fit| {
                    let gpus = [(gpu_rank, gpu.gpu, fit.rate)];
                    self.placed_on(bench, (id, rank), &gpus, &admitted, fit)
                };
                self.surcharged(&machine, spec, ways.into_iter().filter_map(placed).collect())
            });
            verdicts.push((Some(gpu.gpu), verdict));
        }
        let placed = verdicts.iter_mut().filter_map(|(_, verdict)| verdict.as_mut().ok()).flatten();
        bench::choose(placed.map(|placed| (placed.rate, &mut placed.way)));
        verdicts
    }

    fn bench<'s>(&'s self, spec: &'s NodeSpec, machine: &Machine<'s>, want: &'s MemberWant) -> Bench<'s> {
        let [cpu, ram, ..] = spec.beside();
        let [used_cpu, used_ram, ..] = machine.beside;
        Bench {
            scoring: &self.scoring,
            learned: &self.state.learned,
            weighting: self.state.policy.weighting,
            draw: self.draw,
            desk: &self.desk,
            spec,
            uses: spec.gpus.iter().map(|gpu| machine.use_of(gpu)).collect(),
            beside: (cpu.saturating_sub(used_cpu), ram.saturating_sub(used_ram)),
            want,
        }
    }

    fn placed_on(
        &self,
        bench: &Bench<'_>,
        (node, rank): (NodeId, u16),
        gpus: &[Pick],
        admitted: &Admitted,
        fit: Fit,
    ) -> Option<Placed> {
        let Admitted { class, provider, port, .. } = *admitted;
        let way = bench.way(gpus, &fit)?;
        let start = match fit.slot {
            Slot::Mig { start, .. } => start,
            Slot::Whole | Slot::Share { .. } => 0,
        };
        let gpu_rank = gpus.first().map(|(gpu_rank, ..)| *gpu_rank)?;
        let piece = |(_, gpu, ask): &Pick| Piece { gpu: *gpu, ask: *ask, surcharge: Rate::ZERO };
        let gpus = gpus.iter().map(piece).collect();
        let score = Score { rate: fit.rate, away: 0, spare: false, worth: Reverse(0), node, gpu_rank, start };
        Some(Placed { rank, node, provider, gpus, slot: fit.slot, class, rate: fit.rate, port, score, way })
    }

    /// True if the member may stand on that GPU by the names in its want.
    pub(crate) fn named(&self, want: &MemberWant, gpu: &GpuSpec) -> bool {
        want.gpu.is_none_or(|only| only == gpu.gpu)
            && any_or(&want.models, &gpu.model)
            && (self.only.is_empty() || self.only.contains(&gpu.gpu))
    }
}
