//! The required members of a lease or none: a bounded search that touches nothing until every one has a place. And then
//! the others, as far as there is room.

mod count;
mod domain;
pub(crate) mod latency;
mod search;

use alloc::vec::Vec;
use core::cmp::Reverse;

use selion_api::lease::{NearestMiss, Within};
use selion_api::{LeaseRequest, MemberWant, Reason, SliceWant};

use crate::place::{Miss, Placed, Stage, World};
pub(crate) use domain::around;
use search::{Search, Told, Way};

/// Of so many members a search can vary each within its bound of work.
const VARIED_MEMBERS: usize = 8;

/// Why a lease cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoPlace {
    pub reason: Reason,
    pub nearest: Option<NearestMiss>,
    /// True if no place exists; false if none was found within the bound of work, or none was looked for.
    pub proved: bool,
}

impl NoPlace {
    /// A reason that is not about any place.
    pub(crate) fn plain(reason: Reason) -> Self {
        Self { reason, nearest: None, proved: false }
    }
}

/// Most scans of the fleet that one search for so many required members takes. Where it looks at several domains, each
/// scan looks at the nodes of one: together they take no more.
pub(crate) fn most_scans(members: usize) -> usize {
    // Each member alone, then to count it, once for its want and once more for each place taken, and to count nodes.
    if members < 2 { 1 } else { members.saturating_mul(4).saturating_add(most_searched(members, true)) }
}

/// Scans left for the search itself: four greedy ways and every choice of some members alone, each to its end. Where
/// members are to be spread, a scan may be one for a new node in vain and then another.
fn most_searched(members: usize, spreads: bool) -> usize {
    let ways = members.min(VARIED_MEMBERS).saturating_mul(search::CHOICES).saturating_add(4);
    members.saturating_mul(if spreads { ways.saturating_mul(2).saturating_sub(3) } else { ways })
}

/// What a scan for one want found, for all members that want the same.
struct Alone<'a> {
    want: &'a MemberWant,
    /// The lowest of their ranks.
    rank: u16,
    /// Members that want it.
    members: usize,
    /// On how many GPUs one of them fits; of several GPUs, in how many ways.
    gpus: usize,
    best: Option<Placed>,
    miss: Option<Miss>,
}

/// Why the members have no place in one domain.
struct Failure {
    none: NoPlace,
    /// How near it came, and how little it missed.
    near: (u8, Option<Stage>, Reverse<u64>),
}

/// Finds a place for every required member, in order of rank, on at least `min_nodes` nodes and all within one domain.
///
/// The best over the domains: the least sum of the rates, then of what else the score counts, then the first domain.
pub(crate) fn place(world: &mut World<'_>) -> Result<Vec<Placed>, NoPlace> {
    let bound = latency::bound(world.request);
    if world.request.within == Within::Pool && bound.is_none() {
        let placed = inside(world, u128::MAX).map_err(|failure| failure.none)?;
        return placed.ok_or_else(|| NoPlace::plain(Reason::GangIncomplete));
    }
    let mut best: Option<([u128; 4], Vec<Placed>)> = None;
    let mut nearest: Option<Failure> = None;
    let mut proved = true;
    let (domains, all) = match bound {
        Some(most_us) => latency::sets(world, most_us),
        None => (domain::all(world).collect(), true),
    };
    proved &= all;
    for nodes in domains {
        world.among = Some(nodes);
        // Where fragmentation is charged, a member may cost less beside others than alone.
        let known = best.as_ref().filter(|_| world.state.policy.shadow_permille == 0);
        let most = known.map_or(u128::MAX, |([rates, ..], _)| *rates);
        match inside(world, most) {
            Ok(None) => {}
            Ok(Some(placed)) => {
                let terms = sum_of(&placed);
                if best.as_ref().is_none_or(|(least, _)| terms < *least) {
                    best = Some((terms, placed));
                }
            }
            Err(failure) => {
                proved &= failure.none.proved;
                if nearest.as_ref().is_none_or(|known| known.near < failure.near) {
                    nearest = Some(failure);
                }
            }
        }
    }
    world.among = None;
    let no_domain = || NoPlace { proved: true, ..NoPlace::plain(Reason::NoMatchingSlice) };
    let none = || nearest.map_or_else(no_domain, |failure| NoPlace { proved, ..failure.none });
    let found = best.map(|(_, placed)| placed).ok_or_else(none);
    found.map_err(|none| if bound.is_some() { latency::or_too_far(world, none) } else { none })
}

/// The required members have their places in this world: gives the others theirs, in order of rank, up to the first that
/// finds none. The required ones stay where they are.
pub(crate) fn grow(mut world: World<'_>) -> Vec<Placed> {
    if world.request.within != Within::Pool {
        world.among = world.placed.first().map(|first| around(&world, first.node));
    }
    let around = world.among.clone();
    let members = u16::try_from(world.request.members.len()).unwrap_or(u16::MAX);
    for rank in world.request.min_members..members {
        if let Some(most_us) = latency::bound(world.request) {
            world.among = Some(latency::beside(&world, around.as_deref(), most_us));
        }
        let Some(placed) = world.scan(rank, false, 1).best.into_iter().next() else {
            break;
        };
        world.placed.push(placed);
    }
    world.placed
}

fn sum_of(placed: &[Placed]) -> [u128; 4] {
    placed.iter().fold([0; 4], |mut sum, placed| {
        for (sum, term) in sum.iter_mut().zip(placed.score.terms()) {
            *sum += u128::from(term);
        }
        sum
    })
}

/// As [`place`] on the nodes that the world looks at; `None` if that costs more than `most` an hour. Where counting
/// shows that no way can exist, none is tried; then the best place of each, hardest member first; then other ways.
fn inside(world: &mut World<'_>, most: u128) -> Result<Option<Vec<Placed>>, Failure> {
    let request = world.request;
    let members = request.min_members;
    let mut wants: Vec<Alone<'_>> = Vec::new();
    let mut alone = Vec::new();
    let mut least = 0_u128;
    for (rank, want) in (0..members).zip(&request.members) {
        let known = wants.iter().position(|known| known.want == want && world.is_first_run());
        let at = known.unwrap_or_else(|| {
            let scan = world.scan(rank, false, 1);
            let best = scan.best.into_iter().next();
            wants.push(Alone { want, rank, members: 0, gpus: scan.gpus, best, miss: scan.miss });
            wants.len() - 1
        });
        let Some(found) = wants.get_mut(at) else { continue };
        found.members += 1;
        match &found.best {
            Some(best) if members == 1 => return Ok(Some(alloc::vec![best.clone()])),
            Some(best) => {
                least += u128::from(best.rate.0);
                alone.push((found.gpus, rank));
            }
            None => {}
        }
    }
    if alone.len() < usize::from(members) {
        let miss = wants.into_iter().filter(|want| want.best.is_none()).find_map(|want| want.miss);
        return Err(Failure::nowhere(!alone.is_empty(), miss));
    }
    if least > most {
        return Ok(None);
    }
    if let Some(few) = count::too_few(world, &wants) {
        return Err(Failure::short(1, Some(few), request.max_rate.is_none() || takes_any_gpu(request)));
    }
    alone.sort_by_key(|(gpus, rank)| (*gpus, Reverse(size(world, *rank)), *rank));
    let order: Vec<u16> = alone.into_iter().map(|(_, rank)| rank).collect();
    let equal = wants.len() == 1 && !world.any_slice;
    let mut search = Search::new(world, &order, most_searched(order.len(), request.min_nodes > 1));
    let told = if ways(equal, request.min_nodes > 1).any(|way| search.greedy(way)) {
        Told::Placed
    } else if equal {
        Told::NotFound // not reached: what was counted fits
    } else {
        search.waves()
    };
    let miss = search.miss.take();
    let mut placed = core::mem::take(&mut world.placed);
    placed.sort_by_key(|placed| placed.rank);
    match told {
        Told::Placed => world.rated(placed).map(Some).map_err(Failure::too_dear),
        Told::Nothing => {
            let all = !world.any_slice && !world.is_capped() && takes_any_gpu(request);
            Err(Failure::short(2, miss, all))
        }
        Told::NotFound => Err(Failure::short(2, miss, false)),
    }
}

/// True if every GPU is a way of its own. Of several together only those of the lowest asks are looked at.
fn takes_any_gpu(request: &LeaseRequest) -> bool {
    request.members.iter().all(|want| want.gpus == 1)
}

/// The greedy ways, none twice: spreading does nothing for a gang that may stand on one node, nor the order for equal
/// members. Those fit one way if counting says that they fit: new nodes first, each as tight as can be.
fn ways(equal: bool, spreads: bool) -> impl Iterator<Item = Way> {
    let plain = Way { reversed: false, spread_early: false, tight: false };
    let early = Way { spread_early: true, ..plain };
    let tight = equal.then_some(Way { tight: true, ..early });
    [plain, early, Way { reversed: true, ..plain }, Way { reversed: true, ..early }]
        .into_iter()
        .filter(move |way| (spreads || !way.spread_early) && (!equal || !way.reversed))
        .chain(tight)
}

impl Failure {
    /// A member fits nowhere, even by itself.
    fn nowhere(some_fit: bool, miss: Option<Miss>) -> Self {
        let reason = match miss.as_ref().map(|miss| miss.nearest.reason) {
            Some(Reason::PoolFull) if some_fit => Reason::GangIncomplete,
            Some(reason) => reason,
            None => Reason::NoMatchingSlice,
        };
        let gap = miss.as_ref().map_or(u64::MAX, |miss| miss.nearest.need.saturating_sub(miss.nearest.have));
        let near = (0, miss.as_ref().map(|miss| miss.stage), Reverse(gap));
        Self { none: NoPlace { reason, nearest: miss.map(|miss| miss.nearest), proved: true }, near }
    }

    /// All have places, and one of them costs more there than it may.
    fn too_dear(miss: Miss) -> Self {
        let near = (2, Some(miss.stage), Reverse(miss.nearest.need.saturating_sub(miss.nearest.have)));
        let none = NoPlace { nearest: Some(miss.nearest), ..NoPlace::plain(Reason::PriceAboveMax) };
        Self { none, near }
    }

    /// Each member fits by itself, and not all of them.
    fn short(near: u8, nearest: Option<NearestMiss>, proved: bool) -> Self {
        let gap = nearest.as_ref().map_or(u64::MAX, |miss| miss.need.saturating_sub(miss.have));
        Self { none: NoPlace { reason: Reason::GangIncomplete, nearest, proved }, near: (near, None, Reverse(gap)) }
    }
}

/// What a member asks for, for comparing members of one gang: permille of a GPU, or the name's compute slices.
fn size(world: &World<'_>, rank: u16) -> (u32, u64) {
    match world.request.members.get(usize::from(rank)).map(|want| (&want.slice, want.gpus)) {
        Some((SliceWant::Whole, gpus)) => (1000 * u32::from(gpus), u64::MAX),
        Some((SliceWant::Share { compute_permille, mem_bytes }, _)) => ((*compute_permille).into(), *mem_bytes),
        Some((SliceWant::Mig { profile }, _)) => {
            let digits = profile.split('g').next().unwrap_or_default();
            (digits.parse::<u16>().map_or(0, |slices| u32::from(slices) * 125), 0)
        }
        None => (0, 0),
    }
}

#[cfg(test)]
#[path = "gang_tests.rs"]
mod tests;
