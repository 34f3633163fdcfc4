//! Where one member goes: a requirement is one early return in `judge`, a preference one field of [`Score`].
//! This scan over all nodes is the reference: any index must return the same placement.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::cmp::Reverse;

use selion_api::lease::{BESIDE_RESOURCES, Beside, NearestMiss, Resource};
use selion_api::slice::{GpuSpec, IsolationClass, NodeSpec};
use selion_api::{Account, GpuId, LeaseId, LeaseRequest, MemberWant, NodeId, Rate, Reason, Slot, TimeMs};

use crate::baseline::Draw;
use crate::bench::Way;
use crate::booking;
use crate::engine::terms::fill::Fill;
use crate::fleet;
use crate::geometry::{self, Fit, Use};
use crate::lease::is_running;
use crate::scoring::Scoring;
use crate::state::{Held, Node, State};

/// Which of the things that are taken count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// None: could it ever fit?
    Empty,
    /// Those that are not known to be free by then: see [`crate::booking::known_end`].
    At(TimeMs),
    /// All.
    Now,
}

/// What a search looks at: the state, the request, and the members of the gang that have a place already.
pub(crate) struct World<'a> {
    pub state: &'a State,
    pub request: &'a LeaseRequest,
    /// The lease, if it exists already: what an earlier run still holds bars its node.
    pub lease: Option<LeaseId>,
    pub room: Room,
    /// Slots that count as taken too: those of a booking.
    pub also: &'a [(NodeId, Held)],
    /// Leases that count as gone: those that may be stopped for this one.
    pub without: Option<&'a BTreeSet<LeaseId>>,
    /// Any slice of a GPU will do, not only the one asked for.
    pub any_slice: bool,
    /// Only these GPUs, unless none are named: those of a place that was found before.
    pub only: &'a [GpuId],
    /// Only these nodes, in the order of their ids: those of one domain.
    pub among: Option<Vec<NodeId>>,
    pub placed: Vec<Placed>,
    pub scoring: Cow<'a, Scoring>,
    /// What chance says, where places are drawn.
    pub draw: Option<Draw>,
    /// Values that were worked out for scores.
    pub desk: RefCell<Option<Fill>>,
}

/// Lowest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    pub rate: Rate,          // the renter pays it
    pub away: u16,           // and waits for datasets that are not there yet
    pub spare: bool,         // of each kind of way on a node the best is enough
    pub worth: Reverse<i32>, // the objective, in buckets; of a MIG instance in thousandths of a slice
    pub node: NodeId,        // then a fixed order, so that the answer is unique
    pub gpu_rank: usize,     // in the order of the node's spec, of several GPUs the first
    pub start: u8,
}

impl Score {
    /// What adds up over the members of a gang, the first counting most. The first is the rate.
    pub(crate) fn terms(&self) -> [u64; 4] {
        let worth = u64::from(i32::MAX.abs_diff(self.worth.0)); // more is less worth
        [self.rate.0, self.away.into(), self.spare.into(), worth]
    }
}

/// One GPU of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub gpu: GpuId,
    pub ask: Rate,
    /// What the pool charges for fragmentation there.
    pub surcharge: Rate,
}

impl Piece {
    pub(crate) fn rate(&self) -> Rate {
        self.ask.saturating_add(self.surcharge)
    }
}

/// A member's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub rank: u16,
    pub node: NodeId,
    pub provider: Account,
    /// Its GPUs, in the order of the node's spec.
    pub gpus: Vec<Piece>,
    /// On each of them.
    pub slot: Slot,
    pub class: IsolationClass,
    /// All asks and surcharges together.
    pub rate: Rate,
    pub port: u16,
    pub score: Score,
    pub way: Way,
}

impl Placed {
    /// The first of its GPUs.
    pub(crate) fn gpu(&self) -> Option<GpuId> {
        self.gpus.first().map(|piece| piece.gpu)
    }

    pub(crate) fn gpu_ids(&self) -> Vec<GpuId> {
        self.gpus.iter().map(|piece| piece.gpu).collect()
    }
}

/// Why a candidate fell out. A later stage means that it came closer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    pub stage: Stage,
    pub nearest: NearestMiss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Unknown,
    Geometry,
    Node,
    Class,
    Machine,
    Data,
    Price,
    Room,
}

impl Miss {
    /// How near it came, as a number: the lower the nearer, equal only for equals. `None` if what is short is too much.
    pub(crate) fn distance(&self) -> Option<u64> {
        let gap = self.nearest.need.saturating_sub(self.nearest.have);
        let stage = 7_u64.saturating_sub(self.stage as u64);
        (gap >> 60 == 0).then_some(stage << 60 | gap)
    }

    /// The closer of two.
    pub(crate) fn closer(self, other: Option<Self>) -> Self {
        let gap = |miss: &Self| miss.nearest.need.saturating_sub(miss.nearest.have);
        match other {
            // The earlier candidate stays among equals, so that the answer is unique.
            Some(other) if other.stage > self.stage => other,
            Some(other) if other.stage == self.stage && gap(&other) <= gap(&self) => other,
            _ => self,
        }
    }
}

/// What a scan for one member found.
pub(crate) struct Scan {
    /// The best choices, best first, at most as many as asked for.
    pub best: Vec<Placed>,
    /// On how many GPUs it fits; of several GPUs, in how many ways.
    pub gpus: usize,
    /// The nearest miss, if it fits nowhere.
    pub miss: Option<Miss>,
}

impl Scan {
    /// What a GPU of a node says.
    pub fn hear(&mut self, id: NodeId, gpu: Option<GpuId>, verdict: Result<Vec<Placed>, Miss>, keep: usize) {
        match verdict {
            Ok(choices) => self.take(choices, keep),
            Err(mut miss) => {
                miss.nearest.node = id;
                miss.nearest.gpu = miss.nearest.gpu.or(gpu);
                self.miss = Some(miss.closer(self.miss.take()));
            }
        }
    }

    /// A GPU on which it fits, or several together.
    pub fn take(&mut self, choices: Vec<Placed>, keep: usize) {
        self.gpus += 1;
        self.best.extend(choices);
        self.best.sort_unstable_by_key(|choice| choice.score);
        self.best.truncate(keep);
    }
}

/// What is taken on a machine beside its GPUs.
pub(crate) struct Machine<'a> {
    pub beside: Beside,
    ports: BTreeSet<u16>,
    slots: Vec<(GpuId, &'a Slot)>,
    /// Slots that are only kept for a booking.
    kept: Vec<(GpuId, &'a Slot)>,
    /// The lease's own earlier run still holds this rank here.
    barred: bool,
}

/// What a GPU gives to a member as soon as there is room on it.
pub(crate) struct Admitted {
    pub class: IsolationClass,
    /// The lowest ask.
    pub ask: Rate,
    pub provider: Account,
    pub port: u16,
}

impl<'a> Machine<'a> {
    pub fn use_of(&self, gpu: &GpuSpec) -> Use<'a> {
        let mut used = self.standing(gpu);
        for (_, slot) in self.kept.iter().filter(|(taken, _)| *taken == gpu.gpu) {
            used.take(gpu, slot);
        }
        used
    }

    /// What is taken on a GPU beside what is only kept.
    pub fn standing(&self, gpu: &GpuSpec) -> Use<'a> {
        let mut used = Use::Idle;
        for (_, slot) in self.slots.iter().filter(|(taken, _)| *taken == gpu.gpu) {
            used.take(gpu, slot);
        }
        used
    }

    /// A member stands here: what it takes beside its GPUs, its port, its GPUs and the slot on each.
    fn stand(&mut self, beside: Beside, port: u16, gpus: impl Iterator<Item = GpuId>, slot: &'a Slot) {
        self.take(beside);
        self.ports.insert(port);
        self.slots.extend(gpus.map(|gpu| (gpu, slot)));
    }

    fn take(&mut self, more: Beside) {
        for (taken, more) in self.beside.iter_mut().zip(more) {
            *taken = taken.saturating_add(more);
        }
    }
}

impl<'a> World<'a> {
    pub(crate) fn new(state: &'a State, request: &'a LeaseRequest, lease: Option<LeaseId>, room: Room) -> Self {
        let scoring = match state.scoring.tables() {
            Some(_) => Cow::Borrowed(&state.scoring),
            None => Cow::Owned(Scoring::of(state)),
        };
        Self {
            state,
            request,
            lease,
            room,
            also: &[],
            without: None,
            any_slice: false,
            only: &[],
            among: None,
            placed: Vec::new(),
            scoring,
            draw: Draw::of(state, request),
            desk: RefCell::new(None),
        }
    }

    fn counts(&self, lease: LeaseId, rank: u16, held: &Held) -> bool {
        if self.without.is_some_and(|gone| gone.contains(&lease)) {
            return false;
        }
        match self.room {
            Room::Now => true,
            Room::Empty => false,
            Room::At(time) => booking::known_end(self.state, lease, rank, held) > time,
        }
    }

    pub(crate) fn machine<'s>(&'s self, id: NodeId, node: &'s Node, rank: u16) -> Machine<'s> {
        let (slots, kept) = (Vec::new(), Vec::new());
        let mut machine = Machine { beside: Beside::default(), ports: BTreeSet::new(), slots, kept, barred: false };
        let held = node.held.iter().filter(|((lease, rank), held)| self.counts(*lease, *rank, held));
        for ((lease, member), held) in held {
            machine.stand(held.beside, held.port, held.gpus.iter().copied(), &held.slot);
            machine.barred |= self.lease == Some(*lease) && *member == rank;
        }
        for (_, held) in self.also.iter().filter(|(node, _)| *node == id) {
            machine.take(held.beside);
            machine.ports.insert(held.port);
            machine.kept.extend(held.gpus.iter().map(|gpu| (*gpu, &held.slot)));
        }
        for placed in self.placed.iter().filter(|placed| placed.node == id) {
            let want = self.request.members.get(usize::from(placed.rank));
            let beside = want.map_or(Beside::default(), MemberWant::beside);
            machine.stand(beside, placed.port, placed.gpus.iter().map(|piece| piece.gpu), &placed.slot);
        }
        machine
    }

    /// The nodes that are looked at.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        let some = self.among.iter().flatten().filter_map(|id| Some((id, self.state.nodes.get(id)?)));
        let all = self.among.is_none().then_some(&self.state.nodes);
        all.into_iter().flatten().chain(some)
    }

    /// True if the node stands in a region that was asked for.
    pub(crate) fn is_in_region(&self, spec: &NodeSpec) -> bool {
        any_or(&self.request.regions, &spec.region)
    }

    /// Looks at every GPU for the member of rank `rank`. With `fresh`, only at nodes that no member has yet.
    pub(crate) fn scan(&self, rank: u16, fresh: bool, keep: usize) -> Scan {
        let mut scan = Scan { best: Vec::new(), gpus: 0, miss: None };
        let Some(want) = self.request.members.get(usize::from(rank)) else {
            return scan;
        };
        if let Some(scan) = self.scan_few(rank, want, fresh, keep) {
            return scan;
        }
        for (id, node) in self.nodes() {
            let used = fresh && self.placed.iter().any(|placed| placed.node == *id);
            if used || want.node.is_some_and(|only| only != *id) {
                continue;
            }
            self.look_at(*id, node, rank, want, &mut |gpu, verdict| scan.hear(*id, gpu, verdict, keep));
        }
        if !scan.best.is_empty() {
            scan.miss = None;
        }
        scan
    }

    /// True if no slots of an earlier run of the lease may bar its ranks from their nodes.
    pub(crate) fn is_first_run(&self) -> bool {
        self.lease.and_then(|id| self.state.leases.get(&id)).is_none_or(|lease| lease.attempt == 0)
    }

    /// Every way to put the slice on a GPU now.
    pub(crate) fn judge(
        &self,
        node: &Node,
        spec: &NodeSpec,
        machine: &Machine<'_>,
        gpu: &GpuSpec,
        want: &MemberWant,
    ) -> Result<(Admitted, Vec<Fit>), Miss> {
        let admitted = self.admit(node, spec, machine, gpu, want)?;
        let ways = geometry::fits(gpu, &machine.use_of(gpu), &want.slice);
        let ways =
            ways.map_err(|short| miss_by(Stage::Room, Reason::PoolFull, short.resource, short.need, short.have))?;
        Ok((admitted, ways))
    }

    /// Whether a GPU may take the member but for what is taken on that GPU.
    pub(crate) fn admit(
        &self,
        node: &Node,
        spec: &NodeSpec,
        machine: &Machine<'_>,
        gpu: &GpuSpec,
        want: &MemberWant,
    ) -> Result<Admitted, Miss> {
        let none = Reason::NoMatchingSlice;
        geometry::offers(gpu, &want.slice)
            .map_err(|short| miss_by(Stage::Geometry, none, short.resource, short.need, short.have))?;
        if let Some(reason) = node.blocked {
            return Err(miss(Stage::Node, reason));
        }
        if node.reclaimed.contains_key(&Some(gpu.gpu)) {
            return Err(miss(Stage::Node, Reason::OwnerReclaimed));
        }
        let terms = self.state.pool.as_ref().ok_or_else(|| miss(Stage::Node, Reason::NodeNotSchedulable))?;
        let class = gpu.class_of(&want.slice).ok_or_else(|| miss_by(Stage::Geometry, none, Resource::Slots, 1, 0))?;
        if !fleet::class_allowed(terms, gpu) {
            return Err(miss(Stage::Class, Reason::ClassNotAllowed));
        }
        if self.request.classes & class.bit() == 0 {
            return Err(miss(Stage::Class, none));
        }
        if !spec.features.covers(self.request.needs) {
            return Err(miss(Stage::Class, Reason::BoxTooWeak));
        }
        let all = spec.beside();
        let beside = BESIDE_RESOURCES.into_iter().zip(want.beside());
        let ports = ((Resource::Ports, 1), u64::from(spec.ports));
        for ((resource, need), have) in beside.clone().zip(all).chain([ports]) {
            if need > have {
                return Err(miss_by(Stage::Machine, none, resource, need, have));
            }
        }
        let tags = &self.request.datasets;
        let away = node.lacks(tags, self.state.now);
        if self.request.near_data && away > 0 {
            let need = tags.len() as u64;
            let have = need.saturating_sub(away.into());
            return Err(miss_by(Stage::Data, Reason::DataElsewhere, Resource::Datasets, need, have));
        }
        let ask = geometry::fits(gpu, &Use::Idle, &want.slice)
            .ok()
            .and_then(|ways| ways.first().map(|way| way.rate))
            .ok_or_else(|| miss_by(Stage::Geometry, none, Resource::Slots, 1, 0))?;
        if let Some(max) = self.request.max_rate.filter(|max| ask > *max) {
            return Err(miss_by(Stage::Price, Reason::PriceAboveMax, Resource::Rate, ask.0, max.0));
        }
        let full = |resource, need: u64, have: u64| miss_by(Stage::Room, Reason::PoolFull, resource, need, have);
        for (((resource, need), all), taken) in beside.zip(all).zip(machine.beside) {
            let have = all.saturating_sub(taken);
            if need > have {
                return Err(full(resource, need, have));
            }
        }
        if machine.barred {
            return Err(full(Resource::Slots, 1, 0));
        }
        let port = free_port(spec, &machine.ports).ok_or_else(|| full(Resource::Ports, 1, 0))?;
        let provider = node.provider.ok_or_else(|| miss(Stage::Node, Reason::UnknownNode))?;
        Ok(Admitted { class, ask, provider, port })
    }
}

/// True if the slot waits for its agent to confirm a stop: its lease is ending, or went on without it.
pub(crate) fn stopping(state: &State, lease: LeaseId, rank: u16, held: &Held) -> bool {
    state.leases.get(&lease).is_none_or(|lease| !lease.runs(rank, held.attempt) || !is_running(lease.state))
}

/// True if nothing is named, or this is.
pub(crate) fn any_or(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|named| named == name)
}

fn free_port(spec: &NodeSpec, taken: &BTreeSet<u16>) -> Option<u16> {
    (0..spec.ports).map_while(|offset| spec.port_base.checked_add(offset)).find(|port| !taken.contains(port))
}

/// A candidate that falls out where nothing is counted.
pub(crate) fn miss(stage: Stage, reason: Reason) -> Miss {
    // The scan fills in where it stood.
    let nearest = NearestMiss { node: NodeId::ZERO, gpu: None, reason, resource: None, need: 0, have: 0 };
    Miss { stage, nearest }
}

/// A candidate that falls short by so much.
pub(crate) fn miss_by(stage: Stage, reason: Reason, resource: Resource, need: u64, have: u64) -> Miss {
    let Miss { nearest, .. } = miss(stage, reason);
    Miss { stage, nearest: NearestMiss { resource: Some(resource), need, have, ..nearest } }
}
