//! The machines, from chain and link, and what stands on them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use selion_api::chain::ChainEvent;
use selion_api::lease::{Beside, MAX_STAGED, STAGED_MS, Within};
use selion_api::slice::Sandbox;
use selion_api::{
    Account, Amount, GpuId, GpuSpec, Hash32, IsolationClass, LeaseId, LeaseRequest, MemberWant, NodeId, NodeSpec, Rate,
    Slot, TimeMs,
};

use crate::finding::{Broken, Rule, Verdict, holds, within};
use crate::fit;

/// The pool's terms, as far as they decide who takes leases.
#[derive(Clone)]
pub(crate) struct Terms {
    allow_simulated: bool,
    allow_unsandboxed: bool,
    min_stake: Amount,
    pub epoch: u32,
}

/// One member of one run.
pub(crate) type Run = (LeaseId, u32, u16);

/// What one member of one run takes.
#[derive(Clone)]
pub(crate) struct Taken {
    pub run: Run,
    pub renter: Account,
    pub gpus: Vec<GpuId>,
    /// On each of them.
    pub slot: Slot,
    pub beside: Beside,
    /// First port and number of ports of the node when it was granted.
    pub ports: (u16, u16),
}

#[derive(Clone, Default)]
pub(crate) struct Machine {
    pub owner: Option<Account>,
    offer: Option<Hash32>,
    pub spec: Option<NodeSpec>,
    /// Hash of `spec`.
    shown: Option<Hash32>,
    linked: bool,
    /// How far it is from the controller, in microseconds there and back.
    rtt_us: Option<u32>,
    paused: bool,
    /// GPUs that their owner takes back, or the node (`None`), and when.
    reclaimed: BTreeMap<Option<GpuId>, TimeMs>,
    /// What the effects said last. A node of which they said nothing takes leases.
    pub told_closed: bool,
    pub taken: Vec<Taken>,
    /// When each dataset was last staged here.
    staged: BTreeMap<Hash32, TimeMs>,
    /// The highest number of its reports.
    last_seq: u64,
}

#[derive(Clone, Default)]
pub(crate) struct Fleet {
    pub now: TimeMs,
    pub machines: BTreeMap<NodeId, Machine>,
    stakes: BTreeMap<Account, Amount>,
    pub terms: Option<Terms>,
    /// Where each run's member stands.
    pub standing: BTreeMap<Run, NodeId>,
    /// Nodes of which something was said in this entry.
    pub changed: BTreeSet<NodeId>,
    /// What owners took back in this entry, or gave again (`None`), and no effect told yet.
    pub untold: BTreeMap<(NodeId, Option<GpuId>), Option<TimeMs>>,
}

/// What a node shares with others, as its owner states it: region, rack and id, as far as they count. `None` if a word
/// that counts is not stated.
fn shared(within: Within, spec: &NodeSpec) -> Option<(&str, &str, Option<NodeId>)> {
    let (region, rack) = (spec.region.as_str(), spec.rack.as_str());
    match within {
        Within::Pool => Some(("", "", None)),
        Within::Region => (!region.is_empty()).then_some((region, "", None)),
        Within::Rack => (!region.is_empty() && !rack.is_empty()).then_some((region, rack, None)),
        Within::Node => Some(("", "", Some(spec.node))),
    }
}

/// A place that is looked at for a member.
pub(crate) struct Place<'a> {
    pub node: NodeId,
    pub gpu: GpuId,
    pub slot: &'a Slot,
}

/// Who is to stand there.
pub(crate) struct Guest<'a> {
    pub lease: LeaseId,
    pub rank: u16,
    pub request: &'a LeaseRequest,
    pub want: &'a MemberWant,
}

/// Runs, by lease and attempt.
pub(crate) type Runs = BTreeSet<(LeaseId, u32)>;

/// What counts otherwise than it is.
pub(crate) struct Look<'a> {
    /// Runs that count as gone.
    pub gone: &'a Runs,
    /// What counts as taken on the node too.
    pub also: &'a [Taken],
}

impl Machine {
    /// The slots on one GPU, of those that are taken.
    fn slots_on<'s>(&self, gpu: GpuId, taken: impl Iterator<Item = &'s Taken>) -> Vec<&'s Slot> {
        taken.filter(|taken| taken.gpus.contains(&gpu)).map(|taken| &taken.slot).collect()
    }
}

impl Taken {
    /// What `run` takes of a machine for a want, with its first GPU.
    pub(crate) fn of(
        run: Run,
        renter: Account,
        machine: Option<&Machine>,
        place: &Place<'_>,
        want: &MemberWant,
    ) -> Self {
        let spec = machine.and_then(|machine| machine.spec.as_ref());
        Self {
            run,
            renter,
            gpus: alloc::vec![place.gpu],
            slot: place.slot.clone(),
            beside: want.beside(),
            ports: spec.map_or((0, 0), |spec| (spec.port_base, spec.ports)),
        }
    }
}

impl Fleet {
    fn touch(&mut self, node: NodeId) -> &mut Machine {
        self.changed.insert(node);
        self.machines.entry(node).or_default()
    }

    fn touch_all(&mut self) {
        self.changed.extend(self.machines.keys());
    }

    /// A fact of the chain.
    pub(crate) fn fold(&mut self, event: &ChainEvent) {
        match event {
            ChainEvent::PoolOpened { allow_simulated, allow_unsandboxed, min_stake, .. } => {
                self.terms.get_or_insert(Terms {
                    allow_simulated: *allow_simulated,
                    allow_unsandboxed: *allow_unsandboxed,
                    min_stake: *min_stake,
                    epoch: 1,
                });
                self.touch_all();
            }
            ChainEvent::ProviderRegistered { provider, stake, .. } => {
                self.stakes.insert(*provider, *stake);
                self.touch_all();
            }
            ChainEvent::StakeChanged { provider, stake } => {
                if let Some(known) = self.stakes.get_mut(provider) {
                    *known = *stake;
                }
                self.touch_all();
            }
            ChainEvent::NodeRegistered { node, provider } => self.touch(*node).owner = Some(*provider),
            ChainEvent::NodeRetired { node } => {
                let machine = self.touch(*node);
                (machine.owner, machine.offer) = (None, None);
            }
            ChainEvent::OfferSet { node, spec_hash, .. } => self.touch(*node).offer = Some(*spec_hash),
            ChainEvent::OfferClosed { node } => self.touch(*node).offer = None,
            ChainEvent::AuthorityChanged { epoch, .. } => {
                if let Some(terms) = &mut self.terms {
                    terms.epoch = *epoch;
                }
            }
            _ => {}
        }
    }

    pub(crate) fn linked(&mut self, spec: &NodeSpec, last_seq: u64) {
        let machine = self.touch(spec.node);
        machine.linked = true;
        machine.rtt_us = None;
        if last_seq < machine.last_seq {
            machine.staged.clear(); // its agent has lost what it had
        }
        machine.shown = Some(spec.hash());
        machine.spec = Some(spec.clone());
    }

    /// A report of that number came. Numbers rise; those that the log does not have concerned nothing on the node.
    pub(crate) fn numbered(&mut self, node: NodeId, seq: u64) {
        if let Some(machine) = self.machines.get_mut(&node) {
            machine.last_seq = machine.last_seq.max(seq);
        }
    }

    /// A member with these datasets is ready on the node. Of those that were used before, the latest are remembered.
    pub(crate) fn staged(&mut self, node: NodeId, datasets: &[Hash32]) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&node) else {
            return;
        };
        machine.staged.extend(datasets.iter().map(|tag| (*tag, now)));
        let mut by_use: Vec<(TimeMs, Hash32)> = machine.staged.iter().map(|(tag, used)| (*used, *tag)).collect();
        by_use.sort_unstable();
        for (_, tag) in by_use.iter().rev().skip(MAX_STAGED) {
            machine.staged.remove(tag);
        }
    }

    /// How many of these datasets count as being there.
    fn has(&self, machine: &Machine, datasets: &[Hash32]) -> u64 {
        let fresh = |used: &&TimeMs| self.now.since(**used) < STAGED_MS;
        datasets.iter().filter(|tag| machine.staged.get(tag).filter(fresh).is_some()).count() as u64
    }

    pub(crate) fn lost(&mut self, node: NodeId) {
        if self.machines.contains_key(&node) {
            let machine = self.touch(node);
            (machine.linked, machine.rtt_us) = (false, None);
        }
    }

    pub(crate) fn measured(&mut self, node: NodeId, rtt_us: u32) {
        if let Some(machine) = self.machines.get_mut(&node).filter(|machine| machine.linked) {
            machine.rtt_us = Some(rtt_us);
        }
    }

    /// Whether the way over the controller is short enough between each two of these nodes.
    pub(crate) fn are_near(&self, most_us: Option<u32>, nodes: &BTreeSet<NodeId>) -> Verdict {
        let Some(most_us) = most_us else {
            return Ok(());
        };
        let rtt = |node| self.machines.get(node).and_then(|machine| machine.rtt_us).map_or(u64::MAX, u64::from);
        for (at, one) in nodes.iter().enumerate() {
            for other in nodes.iter().skip(at + 1) {
                within(Rule::Latency, rtt(one).saturating_add(rtt(other)), most_us)?;
            }
        }
        Ok(())
    }

    pub(crate) fn paused(&mut self, provider: Account, node: NodeId, paused: bool) {
        if self.machines.get(&node).is_some_and(|machine| machine.owner == Some(provider)) {
            let machine = self.touch(node);
            machine.paused = paused;
            if !paused {
                let again = core::mem::take(&mut machine.reclaimed);
                self.untold.extend(again.into_keys().map(|gpu| ((node, gpu), None)));
            }
        }
    }

    /// The owner takes a node back, or one GPU that it showed. Of two times the earlier holds.
    pub(crate) fn reclaim(&mut self, provider: Account, node: NodeId, gpu: Option<GpuId>, by: TimeMs) {
        let shows = |machine: &Machine| {
            let mut gpus = machine.spec.iter().flat_map(|spec| &spec.gpus);
            gpu.is_none_or(|gpu| gpus.any(|known| known.gpu == gpu))
        };
        let his = |machine: &Machine| machine.owner == Some(provider) && shows(machine);
        if !self.machines.get(&node).is_some_and(his) {
            return;
        }
        let known = self.touch(node).reclaimed.entry(gpu).or_insert(TimeMs(u64::MAX));
        if by < *known {
            *known = by;
            self.untold.insert((node, gpu), Some(by));
        }
    }

    /// True if an owner takes this place back, at `time` or before.
    pub(crate) fn taken_back(&self, node: NodeId, gpu: GpuId, time: TimeMs) -> bool {
        let reclaimed = self.machines.get(&node).into_iter().flat_map(|machine| &machine.reclaimed);
        reclaimed.into_iter().any(|(what, by)| what.is_none_or(|what| what == gpu) && *by <= time)
    }

    /// Runs with a member on what its owner takes back by that time.
    pub(crate) fn due_back(&self, time: TimeMs) -> impl Iterator<Item = (LeaseId, u32)> {
        let taken = self.machines.iter().flat_map(|(node, machine)| machine.taken.iter().map(move |one| (*node, one)));
        let due = taken.filter(move |(node, one)| one.gpus.iter().any(|gpu| self.taken_back(*node, *gpu, time)));
        due.map(|(_, one)| (one.run.0, one.run.1))
    }

    /// True if chain and link agree that the node takes leases.
    pub(crate) fn open(&self, machine: &Machine) -> bool {
        let (Some(terms), Some(owner), Some(spec)) = (&self.terms, machine.owner, &machine.spec) else {
            return false;
        };
        machine.linked
            && !machine.paused
            && !machine.reclaimed.contains_key(&None)
            && self.stakes.get(&owner).is_some_and(|stake| *stake >= terms.min_stake)
            && spec.provider == owner
            && machine.offer.is_some()
            && machine.offer == machine.shown
            && (terms.allow_unsandboxed || spec.sandbox != Sandbox::None)
            && spec.gpus.iter().any(|gpu| terms.allow_simulated || !gpu.simulated)
    }

    /// True if these nodes have in common what was asked for.
    pub(crate) fn are_within(&self, within: Within, nodes: &BTreeSet<NodeId>) -> bool {
        let spec = |node| self.machines.get(node).and_then(|machine| machine.spec.as_ref());
        let shared: BTreeSet<_> = nodes.iter().map(|node| shared(within, spec(node)?)).collect();
        shared.len() <= 1 && !shared.contains(&None)
    }

    /// Whether the guest may stand there, as `look` has it, but for what stands on the GPU and for the sum of its rates;
    /// with the class and the ask on offer.
    fn offers<'s>(
        &'s self,
        place: &Place<'_>,
        guest: &Guest<'_>,
    ) -> Result<(&'s Machine, &'s NodeSpec, &'s GpuSpec, IsolationClass, Rate), Broken> {
        let missing = |rule| Broken { rule, need: 1, have: 0 };
        let machine = self.machines.get(&place.node).ok_or_else(|| missing(Rule::Schedulable))?;
        holds(Rule::Schedulable, self.open(machine))?;
        let spec = machine.spec.as_ref().ok_or_else(|| missing(Rule::Schedulable))?;
        let gpu = spec.gpus.iter().find(|gpu| gpu.gpu == place.gpu).ok_or_else(|| missing(Rule::Slot))?;
        holds(Rule::Reclaim, !machine.reclaimed.contains_key(&Some(place.gpu)))?;
        let Guest { request, want, .. } = guest;
        holds(Rule::Pinned, want.node.is_none_or(|only| only == place.node))?;
        holds(Rule::Pinned, want.gpu.is_none_or(|only| only == place.gpu))?;
        holds(Rule::Pinned, want.models.is_empty() || want.models.contains(&gpu.model))?;
        holds(Rule::Pinned, request.regions.is_empty() || request.regions.contains(&spec.region))?;
        holds(Rule::Within, shared(request.within, spec).is_some())?;
        if request.near_data {
            within(Rule::NearData, request.datasets.len() as u64, self.has(machine, &request.datasets))?;
        }
        let lacks = request.needs.iter().filter(|feature| !spec.features.has(*feature)).count();
        within(Rule::Needs, lacks as u64, 0_u8)?;
        holds(Rule::Slot, fit::answers(&want.slice, place.slot))?;
        let (class, rate) = fit::on_offer(gpu, place.slot).ok_or_else(|| missing(Rule::Slot))?;
        holds(Rule::Class, request.classes & class.bit() != 0)?;
        holds(Rule::Class, !gpu.simulated || self.terms.as_ref().is_some_and(|terms| terms.allow_simulated))?;
        Ok((machine, spec, gpu, class, rate))
    }

    /// Whether a member that has its first GPU may have this one too; with the class and the ask on offer.
    pub(crate) fn admits_more(
        &self,
        place: &Place<'_>,
        guest: &Guest<'_>,
        run: Run,
    ) -> Result<(IsolationClass, Rate), Broken> {
        let (machine, spec, gpu, class, rate) = self.offers(place, guest)?;
        let own = machine.taken.iter().find(|taken| taken.run == run);
        let own = own.ok_or(Broken { rule: Rule::Gpus, need: 1, have: 0 })?;
        holds(Rule::Gpus, !own.gpus.contains(&place.gpu))?;
        let first = spec.gpus.iter().find(|gpu| own.gpus.first() == Some(&gpu.gpu));
        holds(Rule::Gpus, first.is_some_and(|first| first.model == gpu.model))?;
        fit::stands(gpu, &machine.slots_on(place.gpu, machine.taken.iter()), place.slot)?;
        Ok((class, rate))
    }

    /// Whether the guest may stand there with its first GPU, as `look` has it; with the class and the ask on offer.
    pub(crate) fn admits(
        &self,
        place: &Place<'_>,
        guest: &Guest<'_>,
        look: &Look<'_>,
    ) -> Result<(IsolationClass, Rate), Broken> {
        let (machine, spec, gpu, class, rate) = self.offers(place, guest)?;
        let Guest { request, want, .. } = guest;
        within(Rule::MaxRate, rate.0, request.max_rate.map_or(u64::MAX, |max| max.0))?;

        let stays = |taken: &&Taken| look.gone.is_empty() || !look.gone.contains(&(taken.run.0, taken.run.1));
        let others = || machine.taken.iter().filter(stays).chain(look.also);
        let rules = [Rule::Cpu, Rule::Ram, Rule::Disk, Rule::Net];
        for (at, (rule, has)) in rules.into_iter().zip(spec.beside()).enumerate() {
            let of = |beside: Beside| u128::from(beside.get(at).copied().unwrap_or(u64::MAX));
            within(rule, others().map(|taken| of(taken.beside)).sum::<u128>() + of(want.beside()), has)?;
        }
        // Ports are not published. Those that were given out of the same range are different ones.
        let range = (spec.port_base, spec.ports);
        let usable = u32::from(spec.ports).min(65_536 - u32::from(spec.port_base));
        within(Rule::Ports, others().filter(|taken| taken.ports == range).count() as u64 + 1, usable)?;
        // A run of the same lease that still stops here bars its rank from this node.
        let own = others().any(|taken| taken.run.0 == guest.lease && taken.run.2 == guest.rank);
        holds(Rule::Overlap, !own)?;
        fit::stands(gpu, &machine.slots_on(place.gpu, others()), place.slot)?;
        Ok((class, rate))
    }

    /// What the pool charges at a place beside the ask: so many permille of the shadow price.
    pub(crate) fn surcharge(&self, place: &Place<'_>, permille: u16) -> u64 {
        let machine = self.machines.get(&place.node).filter(|_| permille > 0);
        let gpus = machine.and_then(|machine| machine.spec.as_ref()).into_iter().flat_map(|spec| &spec.gpus);
        let taken = machine.into_iter().flat_map(|machine| &machine.taken);
        let here = taken.filter(|taken| taken.gpus.contains(&place.gpu));
        let others: Vec<&Slot> = here.map(|taken| &taken.slot).collect();
        let gpu = gpus.into_iter().find(|gpu| gpu.gpu == place.gpu);
        gpu.map_or(0, |gpu| fit::surcharge(gpu, &others, place.slot, permille))
    }

    /// For how many guests like this one there is room, and on which nodes, when the runs of `gone` are gone; counted
    /// until there is room for `most` on `spread` nodes. Equal guests stand in each other's way no more than they must,
    /// so the first place that is free is as good as any.
    pub(crate) fn room_for(
        &self,
        guest: &Guest<'_>,
        gone: &Runs,
        (most, spread): (usize, usize),
    ) -> (usize, BTreeSet<NodeId>) {
        let (mut room, mut nodes) = (0, BTreeSet::new());
        // Nobody's: it bars none of the guest's own members.
        let nobody = (LeaseId { seq: u64::MAX, index: 0 }, 0, 0);
        for (node, machine) in self.machines.iter().filter(|(_, machine)| self.open(machine)) {
            let mut also: Vec<Taken> = Vec::new();
            while guest.want.gpus > 1 && also.len() < most {
                let Some(taken) = self.several(*node, machine, guest, &Look { gone, also: &also }) else { break };
                also.push(Taken { run: nobody, ..taken });
            }
            for gpu in machine.spec.iter().flat_map(|spec| &spec.gpus).filter(|_| guest.want.gpus == 1) {
                for slot in fit::answers_on(gpu, &guest.want.slice) {
                    let place = Place { node: *node, gpu: gpu.gpu, slot: &slot };
                    while also.len() < most && self.admits(&place, guest, &Look { gone, also: &also }).is_ok() {
                        also.push(Taken::of(nobody, guest.request.renter, Some(machine), &place, guest.want));
                    }
                }
            }
            room += also.len();
            nodes.extend((!also.is_empty()).then_some(*node));
            if room >= most && nodes.len() >= spread {
                break;
            }
        }
        (room, nodes)
    }

    /// GPUs of one model that a guest who wants several may have here: of the lowest asks, since it pays the sum.
    fn several(&self, node: NodeId, machine: &Machine, guest: &Guest<'_>, look: &Look<'_>) -> Option<Taken> {
        let spec = machine.spec.as_ref()?;
        let count = usize::from(guest.want.gpus);
        let most = guest.request.max_rate.map_or(u64::MAX, |max| max.0);
        let mut able: Vec<(&str, bool, u64, GpuId)> = Vec::new();
        for gpu in &spec.gpus {
            let place = Place { node, gpu: gpu.gpu, slot: &Slot::Whole };
            if let Ok((_, rate)) = self.admits(&place, guest, look) {
                able.push((&gpu.model, gpu.simulated, rate.0, gpu.gpu));
            }
        }
        able.sort_unstable();
        let alike = able.chunk_by(|one, two| (one.0, one.1) == (two.0, two.1)).find_map(|alike| {
            let lowest = alike.get(..count)?;
            let sum = lowest.iter().fold(0_u64, |sum, (_, _, rate, _)| sum.saturating_add(*rate));
            (sum <= most).then_some(lowest)
        })?;
        let gpus: Vec<GpuId> = alike.iter().map(|(.., gpu)| *gpu).collect();
        let place = Place { node, gpu: *gpus.first()?, slot: &Slot::Whole };
        let run = (guest.lease, 0, guest.rank);
        Some(Taken { gpus, ..Taken::of(run, guest.request.renter, Some(machine), &place, guest.want) })
    }

    /// Gives one more GPU of its node to a run's member.
    pub(crate) fn add(&mut self, run: Run, gpu: GpuId) {
        let node = self.standing.get(&run);
        let machine = node.and_then(|node| self.machines.get_mut(node));
        let taken = machine.and_then(|machine| machine.taken.iter_mut().find(|taken| taken.run == run));
        if let Some(taken) = taken {
            taken.gpus.push(gpu);
        }
    }

    /// Puts a run's member on a node.
    pub(crate) fn put(&mut self, node: NodeId, taken: Taken) {
        self.standing.insert(taken.run, node);
        self.machines.entry(node).or_default().taken.push(taken);
    }

    /// Takes away what a run's member holds, and tells where that was.
    pub(crate) fn free(&mut self, run: Run) -> Option<NodeId> {
        let node = self.standing.remove(&run)?;
        if let Some(machine) = self.machines.get_mut(&node) {
            machine.taken.retain(|taken| taken.run != run);
        }
        Some(node)
    }
}
