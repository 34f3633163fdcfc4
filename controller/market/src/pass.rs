//! The scheduling pass: in the order of service, whoever fits is granted, and the order is made anew after each grant.
//! The first who does not fit is booked, and whoever comes after it is served beside its booking.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use selion_api::lease::{LeaseState, Priority};
use selion_api::{LeaseId, NodeId, Reason, TimeMs};

use crate::booking::{self, Booking, Denied};
use crate::effect::{Effect, Grant};
use crate::gang::NoPlace;
use crate::ledger::Pocket;
use crate::licence;
use crate::money;
use crate::order::{Shares, Turn};
use crate::place::Placed;
use crate::preempt;
use crate::quota;
use crate::request::{cost, uncovered};
use crate::state::{Held, Lease, Member, Progress, State};
use crate::step::{Step, Wake};
use crate::survey::Survey;

/// Most members placed in one step.
pub const MAX_PLACEMENTS: usize = 256;

/// Place in the line, lowest first: the class, in it who is booked, and then the order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    class: Reverse<Priority>,
    not_booked: bool,
    turn: Turn,
}

impl Rank {
    fn of(state: &State, shares: &Shares, id: LeaseId, lease: &Lease) -> Self {
        let booked = state.booking.as_ref().is_some_and(|booking| booking.lease == id);
        Self { class: Reverse(lease.request.priority), not_booked: !booked, turn: shares.turn(id, lease) }
    }

    pub(crate) fn lease(self) -> LeaseId {
        self.turn.lease()
    }
}

/// Everybody who waits, in the order in which they are tried.
pub(crate) fn line(state: &State, shares: &Shares) -> BTreeSet<Rank> {
    let waiting = state.waiting.iter().filter_map(|id| Some((*id, state.leases.get(id)?)));
    waiting.map(|(id, lease)| Rank::of(state, shares, id, lease)).collect()
}

/// What a pass has learnt so far.
pub(crate) struct Round {
    shares: Shares,
    /// Leases with lost members that have not been tried, the first in line last.
    broken: Vec<(Priority, Reverse<LeaseId>)>,
    survey: Survey,
    /// Who has not been tried yet.
    queue: BTreeSet<Rank>,
    /// What those who were tried are told.
    told: BTreeMap<LeaseId, NoPlace>,
    /// Wants that did not fit. Room only shrinks during a pass, so equal wants need not be tried again.
    hopeless: BTreeMap<Vec<u8>, NoPlace>,
    /// Wants for which no known end makes room.
    endless: BTreeSet<Vec<u8>>,
    /// Wants that fit, but not beside the booking. Forgotten when it changes.
    kept: BTreeMap<Vec<u8>, NoPlace>,
    /// The booking beside which `kept` was found.
    seen: Option<Booking>,
    /// True once somebody was tried beside the booking for the sake of its quota.
    claimed: bool,
    placements: usize,
}

impl Step<'_> {
    /// Grants what can be granted, then tells everybody who still waits why, and at which place.
    pub(crate) fn pass(&mut self) {
        if self.wake == Wake::None {
            return;
        }
        if self.state.waiting.is_empty() || self.halted().is_some() || !self.state.policy.bookings {
            self.set_booking(None);
        }
        if self.state.waiting.is_empty() && self.state.broken.is_empty() {
            return;
        }
        let mut round = Round {
            // One alone is first whatever it holds.
            shares: if self.state.waiting.len() > 1 { Shares::of(self.state) } else { Shares::default() },
            broken: if self.wake == Wake::All { self.state.to_be_repaired() } else { Vec::new() },
            survey: Survey::default(),
            queue: BTreeSet::new(),
            told: BTreeMap::new(),
            hopeless: BTreeMap::new(),
            endless: BTreeSet::new(),
            kept: BTreeMap::new(),
            seen: None,
            claimed: false,
            placements: 0,
        };
        if self.wake == Wake::All {
            self.state.look_again = None;
            self.look_at_booking();
        }
        round.seen.clone_from(&self.state.booking);
        let everybody = line(self.state, &round.shares);
        let effects = self.effects.len();
        round.queue = everybody
            .iter()
            .copied()
            .filter(|rank| match self.wake {
                Wake::All => true,
                // Nothing came free since the others were tried. But who is kept out by the booking may be let in as soon
                // as what that waits for is known to end earlier, as when a lease became active before its time.
                Wake::One(only) => rank.lease() == only || self.is_kept(rank.lease()),
                Wake::Order | Wake::None => false,
            })
            .collect();
        loop {
            self.survey(&mut round);
            let class = round.queue.first().map(|rank| rank.class.0);
            if let Some((_, Reverse(id))) = round.broken.pop_if(|(own, _)| class.is_none_or(|class| *own >= class)) {
                let members = self.state.leases.get(&id).map_or(0, |lease| lease.to_place().len());
                if self.is_too_much(members, id, &mut round) {
                    break;
                }
                self.repair(id, &mut round);
                self.heed_booking(&mut round);
                continue;
            }
            let Some(rank) = round.queue.pop_first() else {
                break;
            };
            let id = rank.lease();
            if !self.state.waiting.contains(&id) {
                continue; // it stood twice in the line, and was served
            }
            let members = self.state.leases.get(&id).map_or(0, |lease| lease.request.members.len());
            if self.is_too_much(members, id, &mut round) {
                break;
            }
            match self.try_one(id, &mut round) {
                Ok(()) => {
                    round.placements += members;
                    round.told.remove(&id);
                    self.rerank(id, &mut round);
                    self.try_capped_again(&mut round);
                }
                Err(denied) => self.denied(id, denied, &mut round),
            }
            self.heed_booking(&mut round);
        }
        round.shares.at_rest(self.state);
        // Without an effect nobody was served, stopped or booked: the line is what it was.
        let same = self.effects.len() == effects && !round.shares.grouped();
        let line = if same { everybody } else { line(self.state, &round.shares) };
        self.tell_positions(line, &round);
    }

    /// True if so many more members are too many for one step: all who were not tried are told so.
    fn is_too_much(&mut self, members: usize, id: LeaseId, round: &mut Round) -> bool {
        let too_much = round.placements > 0 && round.placements + members > MAX_PLACEMENTS;
        if too_much {
            self.more = true;
            let rest = round.queue.iter().map(|rank| rank.lease()).chain([id]);
            round.told.extend(rest.map(|id| (id, queued())));
        }
        too_much
    }

    fn heed_booking(&mut self, round: &mut Round) {
        if self.state.booking != round.seen {
            round.seen.clone_from(&self.state.booking);
            self.try_kept_again(round);
        }
    }

    /// Finds out who can get something now, where that matters for the order.
    fn survey(&self, round: &mut Round) {
        let line = round.queue.iter().map(|rank| rank.lease());
        if round.survey.update(self.state, &mut round.shares, line) {
            round.queue = round.queue.iter().filter_map(|rank| self.rank(rank.lease(), &round.shares)).collect();
        }
    }

    fn rank(&self, id: LeaseId, shares: &Shares) -> Option<Rank> {
        Some(Rank::of(self.state, shares, id, self.state.leases.get(&id)?))
    }

    fn is_kept(&self, id: LeaseId) -> bool {
        self.state.leases.get(&id).is_some_and(|lease| is_for_booking(lease.reason))
    }

    /// Why nothing at all is granted now.
    pub(crate) fn halted(&self) -> Option<Reason> {
        if self.state.chain_broken {
            return Some(Reason::ChainBroken);
        }
        // Where authority has passed on, what is granted here could be paid by nobody.
        let gone = self.state.pool.as_ref().is_some_and(|pool| pool.epoch != self.state.fence.epoch);
        gone.then_some(Reason::StaleFence)
    }

    /// After a grant: the turns of those of the same renter have moved, or of everybody if there are groups.
    fn rerank(&self, granted: LeaseId, round: &mut Round) {
        let Some(lease) = self.state.leases.get(&granted) else {
            return;
        };
        let renter = lease.request.renter;
        round.survey.changed(renter, &lease.members.iter().map(|member| member.node).collect());
        let theirs = |id| self.state.leases.get(&id).is_some_and(|lease| lease.request.renter == renter);
        let moved = |rank: &&Rank| round.shares.grouped() || theirs(rank.lease());
        let old: Vec<Rank> = round.queue.iter().filter(moved).copied().collect();
        for rank in old {
            round.queue.remove(&rank);
            round.queue.extend(self.rank(rank.lease(), &round.shares));
        }
    }

    /// Notes why a lease is not granted. Who finds no room may get the booking; who has it and cannot use it loses it.
    fn denied(&mut self, id: LeaseId, denied: Denied, round: &mut Round) {
        if let Some(lease) = self.state.leases.get(&id) {
            round.survey.failed(lease.request.renter, id);
        }
        let told = match denied {
            Denied::Full(mut none) => {
                if self.book(id, round) {
                    none.reason = Reason::WaitsForStop;
                }
                none
            }
            Denied::Kept(none) => none,
            Denied::Other(none) => {
                if self.state.booking.as_ref().is_some_and(|booking| booking.lease == id) {
                    self.set_booking(None);
                }
                none
            }
        };
        round.told.insert(id, told);
    }

    /// The booking changed: who was told that room is kept for it, or may lack a seat for it, is tried again.
    fn try_kept_again(&mut self, round: &mut Round) {
        round.kept.clear();
        round.broken = self.state.to_be_repaired();
        // Who could get nothing may find room now that it is kept elsewhere, and the other way round.
        round.survey = Survey::default();
        for id in &self.state.waiting {
            let Some(lease) = self.state.leases.get(id) else {
                continue;
            };
            let told = round.told.get(id).map_or(lease.reason, |none| Some(none.reason));
            if is_for_booking(told) {
                round.queue.insert(Rank::of(self.state, &round.shares, *id, lease));
            }
        }
    }

    /// Somebody was granted a slot. Where fragmentation is charged, what stands beside it now may cost less: who has a
    /// highest rate is tried again.
    fn try_capped_again(&mut self, round: &mut Round) {
        if self.state.policy.shadow_permille == 0 {
            return;
        }
        round.hopeless.clear();
        round.kept.clear();
        round.survey = Survey::default();
        let waiting = self.state.waiting.iter().filter_map(|id| Some((*id, self.state.leases.get(id)?)));
        for (id, lease) in waiting.filter(|(_, lease)| lease.request.max_rate.is_some()) {
            round.queue.insert(Rank::of(self.state, &round.shares, id, lease));
        }
    }

    fn tell_positions(&mut self, line: BTreeSet<Rank>, round: &Round) {
        for (at, rank) in line.into_iter().enumerate() {
            let id = rank.lease();
            let Some(lease) = self.state.leases.get_mut(&id) else {
                continue;
            };
            let position = at as u64 + 1;
            let mut changed = lease.position != position;
            lease.position = position;
            if let Some(why) = round.told.get(&id) {
                changed |= lease.reason != Some(why.reason) || lease.nearest != why.nearest;
                lease.reason = Some(why.reason);
                lease.nearest.clone_from(&why.nearest);
            }
            if changed {
                self.touched.leases.insert(id);
            }
        }
    }

    fn try_one(&mut self, id: LeaseId, round: &mut Round) -> Result<(), Denied> {
        let plain = |reason| Denied::Other(NoPlace::plain(reason));
        if let Some(reason) = self.halted() {
            return Err(plain(reason));
        }
        self.state.find_for(id);
        let Some(lease) = self.state.leases.get(&id) else {
            return Err(plain(Reason::NoSuchLease));
        };
        let request = &lease.request;
        licence::seats(self.state, Some(id), request).map_err(|short| plain(short.reason))?;
        let want = want(lease);
        // Who is booked is always tried: it may go where it is booked, also where the search finds nothing.
        let booked = self.state.booking.as_ref().is_some_and(|booking| booking.lease == id);
        if let Some(known) = want.as_ref().filter(|_| !booked).and_then(|want| round.hopeless.get(want)) {
            return Err(Denied::Full(known.clone()));
        }
        let late = |(booking, _): (&Booking, _)| money::latest_end(self.state, request, self.at) > booking.at;
        if booking::binding(self.state, Some(id), request).is_some_and(late)
            && let Some(known) = want.as_ref().and_then(|want| round.kept.get(want))
        {
            return Err(Denied::Kept(known.clone()));
        }
        let now = match booking::place_now(self.state, Some(id), request) {
            Ok(now) => now,
            Err(Denied::Full(none)) => {
                if let Some(want) = want {
                    round.hopeless.insert(want, none.clone());
                }
                return Err(Denied::Full(none));
            }
            Err(Denied::Kept(none)) => {
                if let Some(want) = want {
                    round.kept.insert(want, none.clone());
                }
                return Err(Denied::Kept(none));
            }
            Err(other) => return Err(other),
        };
        let total = cost(&self.state.policy, request, &now.placed);
        if let Err(short) = money::covers(self.state, request, total, self.at) {
            let nearest = uncovered(&now.placed, short);
            if short.means == money::Means::FreeUse {
                self.state.look_when_freed(request.renter, self.at);
            }
            return Err(Denied::Other(NoPlace { nearest, ..NoPlace::plain(short.means.reason()) }));
        }
        let outranks = booking::may_book(self.state, id, lease);
        self.grant(id, &now.placed, total, round);
        self.settle_booking(id, now.moved, outranks);
        Ok(())
    }

    /// After a grant beside the booking, at its own places, or without notice of it.
    fn settle_booking(&mut self, id: LeaseId, moved: Option<Vec<(NodeId, Held)>>, outranks: bool) {
        if let (Some(places), Some(booking)) = (moved, &mut self.state.booking) {
            booking.places = places;
        }
        match &self.state.booking {
            Some(booking) if booking.lease == id => self.state.booking = None,
            Some(_) if outranks => self.look_at_booking(),
            _ => {}
        }
    }

    /// Gives lost members of a lease other places, if there are any now.
    fn repair(&mut self, id: LeaseId, round: &mut Round) {
        let Some(lease) = self.state.leases.get(&id).filter(|_| self.halted().is_none()) else {
            return;
        };
        let renter = lease.request.renter;
        let outranks = booking::may_book(self.state, id, lease);
        let Some((now, total)) = self.state.find_repair(id, lease) else {
            return;
        };
        let attempt = self.renew(id, &now.placed, total);
        self.give_slots(id, attempt, &now.placed, round);
        self.transfer(Pocket::Free(renter), Pocket::Reserved(renter), total);
        self.settle_booking(id, now.moved, outranks);
        round.placements += now.placed.len();
        self.rerank(id, round);
    }

    /// Books the earliest known time for who finds no room now, if the booking is its own or it may take it. Before that
    /// it stops leases of lower classes or beyond quotas, if it then starts earlier; true if it did. For that the first in
    /// line within a quota may take the booking of one that is within none, for the moment that the others need to stop.
    /// Nothing of that comes of a licence that is over by then.
    fn book(&mut self, id: LeaseId, round: &mut Round) -> bool {
        let Some(lease) = self.state.leases.get(&id).filter(|_| self.state.policy.bookings) else {
            return false;
        };
        let may_book = booking::may_book(self.state, id, lease);
        if !may_book && (round.claimed || !quota::outranks_booking(self.state, &round.shares, lease)) {
            return false;
        }
        round.claimed |= !may_book;
        let want = want(lease);
        if want.as_ref().is_some_and(|want| round.endless.contains(want)) {
            return false;
        }
        let own = self.state.booking.as_ref().filter(|booking| booking.lease == id).map(|booking| booking.at);
        let found = match own {
            Some(at) => Some((at, None)),
            None => booking::earliest(self.state, id, lease, None).map(|(at, places)| (at, Some(places))),
        };
        let Some((at, places)) = found else {
            round.endless.extend(want);
            return false;
        };
        let stopped_by = self.at.plus(self.state.policy.ending_ms);
        let stops = licence::covers(self.state, &lease.request, stopped_by).is_ok() && self.preempt(id, at);
        if stops {
            self.book_at(id, None);
        } else if own.is_none() && may_book {
            self.book_at(id, places.map(|places| (at, places)));
        }
        stops
    }

    /// Keeps room for a lease: what was found, if it can pay for that; or, where others were just stopped for it and
    /// this was asked already, the earliest there is.
    fn book_at(&mut self, id: LeaseId, found: Option<(TimeMs, Vec<Placed>)>) {
        let booking = self.state.leases.get(&id).and_then(|lease| {
            let (at, places) = match found {
                None => booking::earliest(self.state, id, lease, None)?,
                Some((at, places)) => {
                    let total = cost(&self.state.policy, &lease.request, &places);
                    money::covers(self.state, &lease.request, total, self.at).ok()?;
                    (at, places)
                }
            };
            self.keep(id, lease, at, &places)
        });
        if booking.is_some() {
            self.set_booking(booking);
        }
    }

    /// The booking of a lease for `at`, if its licence is in force then.
    fn keep(&self, id: LeaseId, lease: &Lease, at: TimeMs, places: &[Placed]) -> Option<Booking> {
        licence::covers(self.state, &lease.request, at).ok()?;
        let places = booking::taken(&lease.request, lease.attempt, places);
        Some(Booking { lease: id, at, look: self.next_look(lease, at), places })
    }

    fn next_look(&self, lease: &Lease, at: TimeMs) -> TimeMs {
        preempt::next_open(self.state, lease.request.priority).map_or(at, |open| open.min(at))
    }

    /// Looks again at the booking: its lease may be gone, a node may be lost, room may have come free before its time.
    fn look_at_booking(&mut self) {
        let Some(booking) = &self.state.booking else {
            return;
        };
        let lease = self.state.leases.get(&booking.lease).filter(|lease| lease.state == LeaseState::Waiting);
        let again = lease.and_then(|lease| {
            let (at, places) = booking::earliest(self.state, booking.lease, lease, Some(booking))?;
            self.keep(booking.lease, lease, at, &places)
        });
        self.set_booking(again);
    }

    fn set_booking(&mut self, booking: Option<Booking>) {
        let old = core::mem::replace(&mut self.state.booking, booking);
        let told = |booking: &Option<Booking>| booking.as_ref().map(|booking| (booking.lease, booking.at));
        let (was, is) = (told(&old), told(&self.state.booking));
        if was == is {
            return;
        }
        if let Some((lease, _)) = was.filter(|(lease, _)| is.is_none_or(|(now, _)| now != *lease)) {
            self.touched.leases.insert(lease);
            self.emit(Effect::Booked { lease, at: None });
        }
        if let Some((lease, at)) = is {
            self.touched.leases.insert(lease);
            self.emit(Effect::Booked { lease, at: Some(at) });
        }
    }

    /// Gives all members their slots and keeps the money, in one step.
    fn grant(&mut self, id: LeaseId, placed: &[Placed], total: selion_api::Amount, round: &mut Round) {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        let renter = lease.request.renter;
        lease.attempt = lease.attempt.saturating_add(1);
        lease.reserved = total;
        lease.active_since = None;
        lease.granted = self.at;
        let attempt = lease.attempt;
        lease.members = placed.iter().map(|placed| member(attempt, placed)).collect();
        let until = self.at.plus(self.state.policy.hold_ms);
        self.enter(id, LeaseState::Held, None, Some(until));
        self.give_slots(id, attempt, placed, round);
        self.transfer(Pocket::Free(renter), Pocket::Reserved(renter), total);
    }

    fn give_slots(&mut self, id: LeaseId, attempt: u32, placed: &[Placed], round: &mut Round) {
        let Some(lease) = self.state.leases.get(&id) else {
            return;
        };
        let renter = lease.request.renter;
        let taken: Vec<(NodeId, Held)> = booking::taken(&lease.request, attempt, placed);
        for (place, (_, held)) in placed.iter().zip(taken) {
            let taken = self.state.hold(place.node, id, place.rank, held);
            round.shares.take(renter, &taken);
            self.touched.nodes.insert(place.node);
            self.touched.desired.insert(place.node);
            for piece in &place.gpus {
                self.emit(Effect::Granted(Grant {
                    lease: id,
                    attempt,
                    member: place.rank,
                    renter,
                    provider: place.provider,
                    node: place.node,
                    gpu: piece.gpu,
                    slot: place.slot.clone(),
                    class: place.class,
                    rate: piece.rate(),
                }));
            }
        }
    }
}

/// What a lease wants, for knowing equal ones. A lease that ran before may be barred from a node where its own old run
/// still stops: it is tried by itself.
pub(crate) fn want(lease: &Lease) -> Option<Vec<u8>> {
    let request = &lease.request;
    (lease.attempt == 0).then(|| {
        let near = request.near_data.then_some(&request.datasets);
        let boxes = (request.classes, request.needs);
        let places = (request.within, &request.regions, request.max_rate, boxes, near, request.max_latency_us);
        selion_api::commit::canonical(&(&request.members, request.min_members, request.min_nodes, places))
    })
}

pub(crate) fn member(attempt: u32, placed: &Placed) -> Member {
    Member {
        attempt,
        node: placed.node,
        provider: placed.provider,
        gpus: placed.gpu_ids(),
        slot: placed.slot.clone(),
        class: placed.class,
        rate: placed.rate,
        port: placed.port,
        progress: Progress::Granted,
        since: None,
        billable_ms: 0,
        vouched: selion_api::Amount::ZERO,
        vouched_at: TimeMs(0),
        exit_code: None,
        outputs: None,
        away: placed.score.away,
    }
}

/// True if what is kept for a booking may be why it waits.
fn is_for_booking(reason: Option<Reason>) -> bool {
    matches!(reason, Some(Reason::KeptForBooking | Reason::NoSeat))
}

fn queued() -> NoPlace {
    NoPlace::plain(Reason::Queued)
}
