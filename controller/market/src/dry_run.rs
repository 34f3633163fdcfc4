//! What a request would get: a dry run is the run, thrown away.

use alloc::vec::Vec;

use selion_api::blocking::Blocking;
use selion_api::lease::{LeaseState, NearestMiss, Refusal};
use selion_api::slice::{GpuSpec, IsolationClass};
use selion_api::{Account, Amount, GpuId, LeaseId, LeaseRequest, NodeId, Rate, Reason, SliceWant, Slot, TimeMs};

use crate::effect::Answer;
use crate::gang;
use crate::geometry::{self, Use};
use crate::input::{Input, RequestLease, Stamp};
use crate::place::{Room, World};
use crate::request::{cheapest, cost};
use crate::state::{Lease, Member, State};
use crate::step::step;

/// Most further steps for a pass that stopped at its bound of work. Beyond that the answer is as of then: it waits.
const MAX_MORE: u64 = 8;

/// What a request would get now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// It starts, here.
    Starts {
        /// What it costs.
        price: Price,
        /// In order of rank.
        places: Vec<Place>,
    },
    /// It waits.
    Waits {
        /// What it costs at least: in an empty fleet, each member at its cheapest.
        least: Price,
        /// Place in the line, from 1.
        position: u64,
        /// Why.
        reason: Option<Reason>,
        /// The candidate that came closest.
        nearest: Option<NearestMiss>,
        /// See [`State::estimate`].
        starts: Option<TimeMs>,
        /// See [`State::blocking`].
        blocking: Option<Blocking>,
    },
    /// It is turned away.
    Refused(Refusal),
}

/// What a lease costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// For the whole duration, in token base units.
    pub total: Amount,
    /// What its grant reserves: that, and what it may take to stop, rounded up, for no less than the policy's least time.
    pub reserve: Amount,
    /// Of all members together.
    pub hourly: Rate,
    /// The operator's part of `total`, which its owners do not get: `floor(total * fee_bps / 10_000)`. The vault rounds
    /// down each claim by itself, so it may get a few base units less.
    pub fee: Amount,
}

/// Where a member would go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Rank.
    pub rank: u16,
    /// Node.
    pub node: NodeId,
    /// Its owner.
    pub provider: Account,
    /// GPUs, in the order of the node's spec.
    pub gpus: Vec<GpuId>,
    /// The place on each of them.
    pub slot: Slot,
    /// How it is kept apart.
    pub class: IsolationClass,
    /// What it costs, all of them together: the asks and the surcharges.
    pub rate: Rate,
    /// What of it the pool charges for fragmentation; its owner gets it too.
    pub surcharge: Rate,
    /// What it does to what others could still be given there, over all of them.
    pub effect: Fragmentation,
    /// How many of the request's datasets are known to be on the node.
    pub staged: u16,
}

/// What a slice takes from those who come after it, on its GPU: memory slices' worth of legal MIG placements. A GPU
/// without MIG has none, so nothing of it is destroyed. The market's own score goes by what is asked for; this does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Memory slices' worth of placements that were possible before and are not any more, those that it takes itself
    /// among them.
    pub destroys: u32,
    /// Memory slices' worth of all placements of that GPU while it is idle.
    pub of: u32,
    /// `floor(destroys * ask / of)`, `ask` being that of the whole GPU, or where it is not offered whole that of its
    /// dearest profile; 0 where `of` is 0. Those who fill an idle GPU until nothing fits any more bear its ask between
    /// them, each by what it destroys. The pool charges a part of it: [`Policy::shadow_permille`](crate::Policy).
    pub shadow: Rate,
}

/// Tells what `asked` would get at `stamp`: where and at which price, or why not, by a [`step`] of a copy of the state.
/// Nothing of it stays. A first answer kept under the request's `idem` is not looked at: what is asked is a new lease.
///
/// It costs a copy of the state, a step, and where the request waits what [`State::estimate`] and [`State::blocking`]
/// cost.
#[must_use]
pub fn dry_run(state: &State, stamp: &Stamp, asked: &RequestLease) -> DryRun {
    let mut world = state.clone();
    world.answers.remove(&asked.request.idem);
    world.repeats.retain(|(_, idem)| *idem != asked.request.idem);
    let told = step(&mut world, stamp, &Input::Request(asked.clone()));
    let id = match told.answer {
        Answer::Created(id) => id,
        Answer::Refused(refusal) => return DryRun::Refused(refusal),
        // Neither is an answer to a new request.
        Answer::Done | Answer::Repeated(_) => return DryRun::Refused(Refusal::plain(Reason::BadRequest)),
    };
    let waits = |world: &State| world.leases.get(&id).is_some_and(|lease| lease.state == LeaseState::Waiting);
    for more in 1..=MAX_MORE {
        if !world.more || !waits(&world) {
            break;
        }
        step(&mut world, &Stamp { seq: stamp.seq.saturating_add(more), ..*stamp }, &Input::Continue);
    }
    world.leases.get(&id).map_or_else(
        || DryRun::Refused(Refusal::plain(Reason::NoSuchLease)),
        |lease| {
            if lease.state == LeaseState::Waiting { waiting(&world, id, lease) } else { starting(&world, id, lease) }
        },
    )
}

fn starting(world: &State, id: LeaseId, lease: &Lease) -> DryRun {
    let places = (0_u16..).zip(&lease.members).map(|(rank, member)| Place {
        rank,
        node: member.node,
        provider: member.provider,
        gpus: member.gpus.clone(),
        slot: member.slot.clone(),
        class: member.class,
        rate: member.rate,
        surcharge: ask_of(world, lease, rank, member).map_or(Rate::ZERO, |ask| member.rate.saturating_sub(ask)),
        effect: fragmentation(world, id, lease, rank, member).unwrap_or_default(),
        staged: lease.staged(member),
    });
    let rates = lease.members.iter().map(|member| member.rate);
    DryRun::Starts { price: price(world, &lease.request, lease.reserved, rates), places: places.collect() }
}

fn waiting(world: &State, id: LeaseId, lease: &Lease) -> DryRun {
    DryRun::Waits {
        least: least(world, &lease.request),
        position: lease.position,
        reason: lease.reason,
        nearest: lease.nearest.clone(),
        starts: world.estimate(id),
        blocking: world.blocking(id),
    }
}

/// As it was judged when it was let into the line.
fn least(world: &State, request: &LeaseRequest) -> Price {
    let mut empty = World::new(world, request, None, Room::Empty);
    let places = gang::place(&mut empty).unwrap_or_default();
    let places = cheapest(&empty, places);
    let reserve = cost(&world.policy, request, &places);
    price(world, request, reserve, places.iter().map(|placed| placed.rate))
}

fn price(world: &State, request: &LeaseRequest, reserve: Amount, rates: impl Iterator<Item = Rate>) -> Price {
    let (mut total, mut hourly) = (Amount::ZERO, Rate::ZERO);
    for rate in rates {
        total = total.saturating_add(rate.bill(request.duration_ms));
        hourly = hourly.saturating_add(rate);
    }
    let bps = world.pool.as_ref().map_or(0, |pool| pool.fee_bps);
    let fee = u128::from(total.0) * u128::from(bps) / 10_000;
    Price { total, reserve, hourly, fee: Amount(u64::try_from(fee).unwrap_or(u64::MAX)) }
}

/// The effect of a member that holds its slot already: beside what others hold, and its own gang's lower ranks.
fn fragmentation(world: &State, id: LeaseId, lease: &Lease, rank: u16, member: &Member) -> Option<Fragmentation> {
    let node = world.nodes.get(&member.node)?;
    let want = &lease.request.members.get(usize::from(rank))?.slice;
    let mut sum = Fragmentation::default();
    for gpu in node.spec.as_ref()?.gpus.iter().filter(|gpu| member.gpus.contains(&gpu.gpu)) {
        let mut used = Use::Idle;
        let earlier = node.held.iter().filter(|((other, other_rank), _)| *other != id || *other_rank < rank);
        for (_, held) in earlier.filter(|(_, held)| held.gpus.contains(&gpu.gpu)) {
            used.take(gpu, &held.slot);
        }
        let one = effect(gpu, &used, want, &member.slot)?;
        sum.destroys = sum.destroys.saturating_add(one.destroys);
        sum.of = sum.of.saturating_add(one.of);
        sum.shadow = sum.shadow.saturating_add(one.shadow);
    }
    Some(sum)
}

/// What the owner asks for the slots of a member.
fn ask_of(world: &State, lease: &Lease, rank: u16, member: &Member) -> Option<Rate> {
    let spec = world.nodes.get(&member.node)?.spec.as_ref()?;
    let want = &lease.request.members.get(usize::from(rank))?.slice;
    let gpus = spec.gpus.iter().filter(|gpu| member.gpus.contains(&gpu.gpu));
    gpus.map(|gpu| Some(geometry::fits(gpu, &Use::Idle, want).ok()?.first()?.rate))
        .try_fold(Rate::ZERO, |sum, ask| Some(sum.saturating_add(ask?)))
}

/// What `slot`, a way to place `want`, does to a GPU that is `used` so far; `None` if it is no such way.
#[must_use]
pub fn effect(gpu: &GpuSpec, used: &Use<'_>, want: &SliceWant, slot: &Slot) -> Option<Fragmentation> {
    let way = geometry::fits(gpu, used, want).ok()?.into_iter().find(|way| way.slot == *slot)?;
    Some(Fragmentation { destroys: way.frag, of: geometry::all_placements(gpu), shadow: shadow_of(gpu, way.frag) })
}

/// The shadow price of so many memory slices' worth of placements.
pub(crate) fn shadow_of(gpu: &GpuSpec, destroys: u32) -> Rate {
    let dearest = gpu.mig.iter().flat_map(|table| &table.profiles).map(|profile| profile.rate).max();
    let ask = gpu.whole.or(dearest).unwrap_or(Rate::ZERO);
    let all = geometry::all_placements(gpu);
    let exact = (u128::from(destroys) * u128::from(ask.0)).checked_div(all.into()).unwrap_or(0);
    Rate(u64::try_from(exact).unwrap_or(u64::MAX))
}
