//! The head of the line has one booking: the time at which it fits at the latest, from the known ends of what runs.
//! Others are served meanwhile only where that does not delay it.
//!
//! Who is booked stays the head of the line until it is served, leaves, or cannot be met any more; only a lease that
//! stands higher takes over ([`standing_of`]). So newcomers with a smaller share cannot push it back for ever. A booking
//! ends at its own time: what is not served by then is looked at again, so that no room is kept for nothing.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::lease::{LeaseState, NearestMiss, Priority, Resource};
use selion_api::{LeaseId, LeaseRequest, NodeId, Reason, TimeMs};

use crate::gang::{self, NoPlace};
use crate::input::Policy;
use crate::licence;
use crate::money::{self, latest_end};
use crate::order::is_broken;
use crate::place::{Placed, Room, World};
use crate::request::cost;
use crate::state::{Held, Lease, State};

/// The end of what nobody knows the end of.
pub(crate) const NEVER: TimeMs = TimeMs(u64::MAX);

/// Room kept for one waiting lease.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Booking {
    /// Whose it is.
    pub lease: LeaseId,
    /// It fits then at the latest, if no node is lost, no controller starts again and all stops are confirmed in time.
    pub at: TimeMs,
    /// When it is looked at again by itself: at [`Self::at`], or before, when a lease of a lower class has run long
    /// enough to be stopped for it.
    pub look: TimeMs,
    /// Where, by rank.
    pub places: Vec<(NodeId, Held)>,
}

/// Who takes a booking over from whom: the higher class, and in it the repair of what lost a place. Not who was stopped
/// for another: it could take back the room that it was stopped for.
fn standing_of(lease: &Lease) -> (Priority, bool) {
    (lease.request.priority, lease.broken.is_some() || is_broken(lease))
}

/// When all slots of a lease's present run are free at the latest: the deadlines of the states that it still passes, and
/// its duration, or the time at which an owner takes a place of it back. That place takes nobody then; the gang's other
/// places do. A repair changes nothing of it. `None` if it holds nothing, or its stop is overdue, since nothing says when
/// it will be confirmed.
pub(crate) fn end_of(policy: &Policy, lease: &Lease) -> Option<TimeMs> {
    let end = unless_taken_back(policy, lease, lease.ends()?)?;
    Some(lease.notice.map_or(end, |notice| end.min(notice.by.plus(policy.ending_ms))))
}

pub(crate) fn unless_taken_back(policy: &Policy, lease: &Lease, ends: TimeMs) -> Option<TimeMs> {
    let lasts_ms = lease.request.duration_ms;
    let started = match lease.state {
        LeaseState::Waiting | LeaseState::Ended => return None,
        LeaseState::Ending => return Some(ends),
        LeaseState::Active => return Some(ends.plus(policy.ending_ms)),
        LeaseState::Held => ends.plus(policy.prepare_ms).plus(policy.start_ms),
        LeaseState::Preparing => ends.plus(policy.start_ms),
        LeaseState::Starting => ends,
    };
    Some(started.plus(lasts_ms).plus(policy.ending_ms))
}

/// When a slot is free at the latest; the end of time if that is not known.
pub(crate) fn known_end(state: &State, id: LeaseId, rank: u16, held: &Held) -> TimeMs {
    let lease = state.leases.get(&id).filter(|lease| lease.runs(rank, held.attempt));
    lease.and_then(|lease| end_of(&state.policy, lease)).unwrap_or(NEVER)
}

/// The times to come at which something is known to be free, in order.
pub(crate) fn known_ends(state: &State) -> Vec<TimeMs> {
    let all = state.running.values().flatten().map(|(end, _)| *end);
    let mut ends: Vec<TimeMs> = all.filter(|end| *end > state.now && *end < NEVER).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// The last of [`known_ends`] before `time`, or at it if `with`.
fn last_end(state: &State, time: TimeMs, with: bool) -> Option<TimeMs> {
    let time = if with { time.plus(1) } else { time };
    let first = LeaseId { seq: 0, index: 0 };
    let last = |ends: &BTreeSet<(TimeMs, LeaseId)>| ends.range(..(time, first)).next_back().map(|(end, _)| *end);
    state.running.values().filter_map(last).max().filter(|end| *end > state.now && *end < NEVER)
}

/// The first of `ends` at which `fits` finds something, by halving: room only grows with time. The search for a gang
/// is bounded and may miss a way; then a later end is told, never one at which nothing was found.
pub(crate) fn first_fit<T>(ends: &[TimeMs], mut fits: impl FnMut(TimeMs) -> Option<T>) -> Option<(TimeMs, T)> {
    let (last, mut rest) = ends.split_last()?;
    let mut best = (*last, fits(*last)?);
    while !rest.is_empty() {
        let (low, high) = rest.split_at(rest.len() / 2);
        let Some((middle, high)) = high.split_first() else {
            break;
        };
        match fits(*middle) {
            Some(found) => {
                best = (*middle, found);
                rest = low;
            }
            None => rest = high,
        }
    }
    Some(best)
}

/// The booked places, if all of them are still free in this world. The search for a gang is bounded and could miss what
/// it once found; what was promised does not hang on that.
pub(crate) fn as_booked<'a>(mut world: World<'a>, places: &'a [(NodeId, Held)]) -> Option<Vec<Placed>> {
    for (rank, (id, held)) in (0_u16..).zip(places) {
        let (node, want) = (world.state.nodes.get(id)?, world.request.members.get(usize::from(rank))?);
        world.only = &held.gpus;
        let mut found = None;
        world.look_at(*id, node, rank, want, &mut |_, verdict| {
            let ways = verdict.into_iter().flatten();
            found = found.take().or_else(|| ways.into_iter().find(|way| way.slot == held.slot));
        });
        world.placed.push(found?);
    }
    // They are in one domain still: a node whose words change is closed in between, and with that the booking falls.
    // How far they are apart may change at any time.
    gang::latency::are_near(&world).then_some(world.placed)
}

/// The earliest known time at which a waiting lease fits, and how; `None` if it fits at none.
///
/// `before` is its booking so far: unless something broke, it still fits then.
pub(crate) fn earliest(
    state: &State,
    id: LeaseId,
    lease: &Lease,
    before: Option<&Booking>,
) -> Option<(TimeMs, Vec<Placed>)> {
    let world = |at| World::new(state, &lease.request, Some(id), Room::At(at));
    let fits = |at| gang::place(&mut world(at)).ok();
    let among = |from: TimeMs, to: TimeMs| {
        let mut ends = known_ends(state);
        ends.retain(|end| (from..=to).contains(end));
        first_fit(&ends, fits)
    };
    let Some(Booking { at, places, .. }) = before else {
        return among(state.now, NEVER);
    };
    let Some(found) = as_booked(world(*at), places).or_else(|| fits(*at)) else {
        return among(*at, NEVER);
    };
    let Some(last) = last_end(state, *at, true) else {
        return Some((*at, found)); // all that it waited for is gone: it fits now
    };
    // While what it waits for last still runs, an earlier time is not looked for: that costs a search that mostly fails,
    // and who is booked is tried now in every pass anyway.
    match last_end(state, last, false).filter(|_| last < *at) {
        Some(next) if fits(next).is_some() => among(state.now, next),
        _ => Some((last, found)),
    }
}

/// What a place takes of its node.
pub(crate) fn taken(request: &LeaseRequest, attempt: u32, places: &[Placed]) -> Vec<(NodeId, Held)> {
    let held = places.iter().filter_map(|placed| {
        let want = request.members.get(usize::from(placed.rank))?;
        let held = Held {
            renter: request.renter,
            attempt,
            gpus: placed.gpu_ids(),
            slot: placed.slot.clone(),
            beside: want.beside(),
            port: placed.port,
            licence: request.licence,
        };
        Some((placed.node, held))
    });
    held.collect()
}

/// A place that can be taken now.
pub(crate) struct Now {
    pub placed: Vec<Placed>,
    /// Where the booked lease goes then, if not where it was to go.
    pub moved: Option<Vec<(NodeId, Held)>>,
}

/// Why nothing can be taken now.
pub(crate) enum Denied {
    /// There is no room.
    Full(NoPlace),
    /// There is, but it is kept.
    Kept(NoPlace),
    /// It is not for want of room.
    Other(NoPlace),
}

/// The booking that a request must not delay.
pub(crate) fn binding<'s>(
    state: &'s State,
    id: Option<LeaseId>,
    request: &LeaseRequest,
) -> Option<(&'s Booking, &'s Lease)> {
    let booking = state.booking.as_ref().filter(|booking| Some(booking.lease) != id)?;
    let holder = state.leases.get(&booking.lease)?;
    let own = id.and_then(|id| state.leases.get(&id)).map_or((request.priority, false), standing_of);
    (standing_of(holder) >= own).then_some((booking, holder))
}

/// True if the lease may take the booking: it is its own, or nobody's, or of one that stands lower.
pub(crate) fn may_book(state: &State, id: LeaseId, lease: &Lease) -> bool {
    binding(state, Some(id), &lease.request).is_none()
}

/// Places a request now so that the booked lease still starts in time: it ends before that, or leaves enough.
/// At first its best place is tried, then what is left when the booked places count as taken.
///
/// Members that are not required get a place if it leaves the booked places free, there is a seat of the request's licence
/// for them, and the renter can pay for it.
pub(crate) fn place_now(state: &State, id: Option<LeaseId>, request: &LeaseRequest) -> Result<Now, Denied> {
    let Now { mut placed, moved } = place_required(state, id, request)?;
    let required = placed.len();
    if required < request.members.len() {
        let late = |(booking, _): &(&Booking, _)| latest_end(state, request, state.now) > booking.at;
        let kept = binding(state, id, request).filter(late).map(|(booking, _)| &booking.places);
        let also: &[_] = moved.as_ref().or(kept).map_or(&[], Vec::as_slice);
        placed = gang::grow(World { also, placed, ..World::new(state, request, id, Room::Now) });
        let seats = licence::free(state, id, request);
        let pays =
            |placed: &[Placed]| money::covers(state, request, cost(&state.policy, request, placed), state.now).is_ok();
        while placed.len() > required && (placed.len() > seats || !pays(&placed)) {
            placed.pop();
        }
    }
    Ok(Now { placed, moved })
}

fn place_required(state: &State, id: Option<LeaseId>, request: &LeaseRequest) -> Result<Now, Denied> {
    let own = || state.booking.as_ref().filter(|booking| Some(booking.lease) == id);
    let placed = gang::place(&mut World::new(state, request, id, Room::Now));
    let placed = placed.or_else(|none| {
        let booked = own().and_then(|own| as_booked(World::new(state, request, id, Room::Now), &own.places));
        booked.ok_or(Denied::Full(none))
    })?;
    beside_booking(state, id, request, latest_end(state, request, state.now), placed, |booked| {
        let mut beside = World::new(state, request, id, Room::Now);
        beside.also = booked;
        gang::place(&mut beside).ok()
    })
}

/// A place that was found for what ends by `end`, if the booked lease still starts in time; else what `again` finds when
/// the booked places count as taken.
pub(crate) fn beside_booking(
    state: &State,
    id: Option<LeaseId>,
    request: &LeaseRequest,
    end: TimeMs,
    placed: Vec<Placed>,
    again: impl FnOnce(&[(NodeId, Held)]) -> Option<Vec<Placed>>,
) -> Result<Now, Denied> {
    let free = |placed| Ok(Now { placed, moved: None });
    let Some((booking, holder)) = binding(state, id, request) else {
        return free(placed);
    };
    let meets = |placed: &Placed| booking.places.iter().any(|(node, _)| *node == placed.node);
    if end <= booking.at || !placed.iter().any(meets) {
        return free(placed);
    }
    let held = taken(request, 0, &placed);
    let then = || {
        let world = World::new(state, &holder.request, Some(booking.lease), Room::At(booking.at));
        World { also: &held, ..world }
    };
    if as_booked(then(), &booking.places).is_some() {
        return free(placed);
    }
    if let Ok(places) = gang::place(&mut then()) {
        return Ok(Now { placed, moved: Some(taken(&holder.request, holder.attempt, &places)) });
    }
    again(&booking.places).ok_or_else(|| Denied::Kept(kept(booking, end))).and_then(free)
}

/// Told to who would end too late: need is its latest end, have the booked time.
fn kept(booking: &Booking, end: TimeMs) -> NoPlace {
    let reason = Reason::KeptForBooking;
    let first = booking.places.first().map(|(node, held)| NearestMiss {
        node: *node,
        gpu: held.gpus.first().copied(),
        reason,
        resource: Some(Resource::TimeMs),
        need: end.0,
        have: booking.at.0,
    });
    NoPlace { nearest: first, ..NoPlace::plain(reason) }
}
