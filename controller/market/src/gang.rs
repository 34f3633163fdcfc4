//! All members of a lease or none: a bounded search that touches nothing until every member has a place.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use selion_api::lease::NearestMiss;
use selion_api::{LeaseRequest, MemberWant, NodeId, Reason, SliceWant};

use crate::place::{Miss, Placed, World};

/// How many members, and how many choices of each, are varied when the greedy way fails.
const VARIED_MEMBERS: usize = 8;
const VARIED_CHOICES: usize = 3;

/// Why a lease cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoPlace {
    pub reason: Reason,
    pub nearest: Option<NearestMiss>,
}

/// Most scans of the fleet that one search for so many members takes.
pub(crate) fn most_scans(members: usize) -> usize {
    if members < 2 {
        return 1;
    }
    let ways = members.min(VARIED_MEMBERS).saturating_mul(VARIED_CHOICES).saturating_add(4);
    // Each member alone, and in each way once or, where a new node was looked for in vain, twice.
    members.saturating_mul(ways.saturating_mul(2).saturating_add(1))
}

/// One way of going through the members.
#[derive(Clone, Copy)]
struct Way {
    /// Easiest first instead of hardest first.
    reversed: bool,
    /// New nodes from the beginning, until there are enough, instead of only when they become necessary.
    spread_early: bool,
    /// At the member in this position, the choice of this number instead of the best.
    twist: Option<(usize, usize)>,
}

/// What a scan for one want found, for all members that want the same.
struct Alone<'a> {
    want: &'a MemberWant,
    /// Members that want it.
    members: usize,
    /// On how many GPUs one of them fits.
    gpus: usize,
    best: Option<Placed>,
    miss: Option<Miss>,
}

/// Finds a place for every member, in order of rank, at least on `min_nodes` nodes. Greedy, hardest member first;
/// where that fails a fixed number of other ways is tried, so that the work is bounded. Where counting shows that no
/// way can exist, none is tried.
pub(crate) fn place(world: &mut World<'_>) -> Result<Vec<Placed>, NoPlace> {
    let request = world.request;
    let members = u16::try_from(request.members.len()).unwrap_or(u16::MAX);
    let mut wants: Vec<Alone<'_>> = Vec::new();
    let mut alone = Vec::new();
    for (rank, want) in (0..members).zip(&request.members) {
        let known = wants.iter_mut().find(|known| known.want == want && world.is_first_run());
        let found = if let Some(known) = known {
            known.members += 1;
            known
        } else {
            let scan = world.scan(rank, false, 1);
            let best = scan.best.into_iter().next();
            wants.push(Alone { want, members: 1, gpus: scan.gpus, best, miss: scan.miss });
            let Some(last) = wants.last_mut() else { continue };
            last
        };
        match &found.best {
            Some(best) if members == 1 => return Ok(alloc::vec![best.clone()]),
            Some(_) => alone.push((found.gpus, rank)),
            None => {}
        }
    }
    if alone.len() < usize::from(members) {
        let nearest = wants.into_iter().filter(|want| want.best.is_none()).find_map(|want| want.miss);
        return Err(no_place(!alone.is_empty(), nearest));
    }
    if let Some(few) = wants.iter().find_map(Alone::too_few) {
        return Err(NoPlace { reason: Reason::GangIncomplete, nearest: Some(few) });
    }
    alone.sort_by_key(|(gpus, rank)| (*gpus, core::cmp::Reverse(size(world, *rank)), *rank));
    let order: Vec<u16> = alone.into_iter().map(|(_, rank)| rank).collect();
    let mut first_miss = None;
    for way in ways(request, wants.len(), order.len()) {
        world.placed.clear();
        match attempt(world, &order, way) {
            Ok(()) => {
                let mut placed = core::mem::take(&mut world.placed);
                placed.sort_by_key(|placed| placed.rank);
                return Ok(placed);
            }
            Err(miss) => first_miss = first_miss.or(Some(miss)),
        }
    }
    world.placed.clear();
    Err(NoPlace { reason: Reason::GangIncomplete, nearest: first_miss })
}

impl Alone<'_> {
    /// Whole GPUs are not shared: more members than GPUs cannot be placed. Told at the best place of one.
    fn too_few(&self) -> Option<NearestMiss> {
        let short = self.want.slice == SliceWant::Whole && self.members > self.gpus;
        let best = self.best.as_ref().filter(|_| short)?;
        let (need, have) = (self.members as u64, self.gpus as u64);
        Some(NearestMiss { node: best.node, gpu: Some(best.gpu), reason: Reason::GangIncomplete, need, have })
    }
}

/// The ways to try, none twice: spreading does nothing for a gang that may stand on one node, nor the order for equal
/// members. Equal whole GPUs fit any way if they fit at all, since each takes the same of its node wherever it stands.
fn ways(request: &LeaseRequest, wants: usize, members: usize) -> impl Iterator<Item = Way> {
    let (spreads, equal) = (request.min_nodes > 1, wants == 1);
    let whole = request.members.iter().all(|want| want.slice == SliceWant::Whole);
    let base = [(false, false), (false, true), (true, false), (true, true)]
        .map(|(reversed, spread_early)| Way { reversed, spread_early, twist: None })
        .into_iter()
        .filter(move |way| (spreads || !way.spread_early) && (!equal || !way.reversed));
    let varied = if equal && whole && !spreads { 0 } else { members.min(VARIED_MEMBERS) };
    let twisted = (0..varied).flat_map(|at| {
        (1..=VARIED_CHOICES).map(move |choice| Way { reversed: false, spread_early: true, twist: Some((at, choice)) })
    });
    base.chain(twisted)
}

fn attempt(world: &mut World<'_>, order: &[u16], way: Way) -> Result<(), NearestMiss> {
    let min_nodes = usize::from(world.request.min_nodes);
    let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
    for at in 0..order.len() {
        let from = if way.reversed { order.len() - 1 - at } else { at };
        let Some(rank) = order.get(from).copied() else {
            break;
        };
        let missing = min_nodes.saturating_sub(nodes.len());
        let left = order.len() - at;
        let must_be_new = missing > 0 && (way.spread_early || missing >= left);
        let choice = way.twist.filter(|(position, _)| *position == at).map_or(0, |(_, choice)| choice);
        let mut scan = world.scan(rank, must_be_new, choice + 1);
        // A new node is only needed now if no later member can bring it.
        if scan.best.is_empty() && must_be_new && missing < left {
            scan = world.scan(rank, false, choice + 1);
        }
        let Some(placed) = scan.best.into_iter().nth(choice) else {
            let no_new_node = NearestMiss {
                node: nodes.last().copied().unwrap_or_default(),
                gpu: None,
                reason: Reason::GangIncomplete,
                need: min_nodes as u64,
                have: nodes.len() as u64,
            };
            return Err(scan.miss.map_or(no_new_node, |miss| miss.nearest));
        };
        nodes.insert(placed.node);
        world.placed.push(placed);
    }
    Ok(())
}

/// What a member asks for, for comparing members of one gang: permille of a GPU, or the name's compute slices.
fn size(world: &World<'_>, rank: u16) -> (u32, u64) {
    match world.request.members.get(usize::from(rank)).map(|want| &want.slice) {
        Some(SliceWant::Whole) => (1000, u64::MAX),
        Some(SliceWant::Share { compute_permille, mem_bytes }) => ((*compute_permille).into(), *mem_bytes),
        Some(SliceWant::Mig { profile }) => {
            let digits = profile.split('g').next().unwrap_or_default();
            (digits.parse::<u16>().map_or(0, |slices| u32::from(slices) * 125), 0)
        }
        None => (0, 0),
    }
}

fn no_place(some_fit: bool, miss: Option<Miss>) -> NoPlace {
    let reason = match miss.as_ref().map(|miss| miss.nearest.reason) {
        Some(Reason::PoolFull) if some_fit => Reason::GangIncomplete,
        Some(reason) => reason,
        None => Reason::NoMatchingSlice,
    };
    NoPlace { reason, nearest: miss.map(|miss| miss.nearest) }
}
