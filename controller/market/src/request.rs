//! What renters ask: a lease, and its release.

use alloc::vec::Vec;

use selion_api::lease::{LeaseState, NearestMiss, Refusal};
use selion_api::{Account, Amount, LeaseId, LeaseRequest, Reason};

use crate::booking::{self, Denied};
use crate::effect::{Answer, Effect};
use crate::gang;
use crate::input::RequestLease;
use crate::lease::is_running;
use crate::licence::{self, Seatless};
use crate::money;
use crate::place::{Placed, Room, World};
use crate::state::{FirstAnswer, Lease};
use crate::step::{Step, Wake};
use crate::tally::Bundle;

/// A repeat of a request is answered with the first answer for this long: a day in milliseconds.
pub const REPEAT_MS: u64 = 24 * selion_api::unit::MS_PER_HOUR;

impl Step<'_> {
    /// A renter asks for a lease. The same request again gets the first answer again.
    pub(crate) fn request(&mut self, asked: &RequestLease) -> Answer {
        let request = &asked.request;
        let body = request.body();
        let first = self.state.answers.get(&request.idem);
        if let Some(first) = first.filter(|first| first.until > self.at) {
            let lease = first.answer.as_ref().ok().copied();
            return match first.answer.clone() {
                _ if first.body != body => {
                    self.refuse(Refusal { lease, ..Refusal::plain(Reason::IdempotencyMismatch) })
                }
                Ok(id) => Answer::Repeated(id),
                Err(refusal) => self.refuse(refusal),
            };
        }
        let answer = self.consider(request).map(|size| self.create(asked, size));
        let until = self.at.plus(REPEAT_MS);
        let kept = FirstAnswer { body, answer: answer.clone(), until };
        if let Some(old) = self.state.answers.insert(request.idem, kept) {
            self.state.repeats.remove(&(old.until, request.idem));
        }
        self.state.repeats.insert((until, request.idem));
        match answer {
            Ok(id) => Answer::Created(id),
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// Whether the request can be met by this fleet at all, with the renter's licence and money, and, if it may not wait,
    /// fits now. Tells what it takes.
    fn consider(&mut self, request: &LeaseRequest) -> Result<Bundle, Refusal> {
        if request.check().is_err() {
            return Err(Refusal::plain(Reason::BadRequest));
        }
        if self.state.chain_broken {
            return Err(Refusal::plain(Reason::ChainBroken));
        }
        self.state.find(request, Room::Empty);
        let mut world = World::new(self.state, request, None, Room::Empty);
        let no_place = |none: gang::NoPlace| Refusal { reason: none.reason, nearest: none.nearest, lease: None };
        let places = gang::place(&mut world).map_err(no_place)?;
        let size = self.state.size_of(request, &places);
        let cheapest = cheapest(&world, places);
        let unseated = |short: Seatless| {
            let nearest = miss_at(&cheapest, short.reason, short.need, short.have);
            Refusal { reason: short.reason, nearest, lease: None }
        };
        licence::covers(self.state, request, self.at).map_err(unseated)?;
        self.pays(request, &cheapest)?;
        self.state.learn(request, &cheapest);
        if request.wait_ms == 0 {
            licence::seats(self.state, None, request).map_err(unseated)?;
            self.state.find(request, Room::Now);
            let now = booking::place_now(self.state, None, request).map_err(|denied| match denied {
                Denied::Full(none) | Denied::Kept(none) | Denied::Other(none) => no_place(none),
            })?;
            self.pays(request, &now.placed)?;
        }
        Ok(size)
    }

    fn pays(&self, request: &LeaseRequest, places: &[Placed]) -> Result<(), Refusal> {
        let total = cost(request, places);
        money::covers(self.state, request, total, self.at).map_err(|short| Refusal {
            reason: Reason::PaymentRequired,
            nearest: uncovered(places, short),
            lease: None,
        })
    }

    fn create(&mut self, asked: &RequestLease, size: Bundle) -> LeaseId {
        let index = u32::try_from(self.effects.len()).unwrap_or(u32::MAX);
        let id = LeaseId { seq: self.seq, index };
        let until = self.at.plus(asked.request.wait_ms);
        let lease = Lease {
            request: asked.request.clone(),
            signed: asked.signature.is_some(),
            size,
            created: self.at,
            state: LeaseState::Waiting,
            since: self.at,
            deadline: Some(until),
            notice: None,
            broken: None,
            wait_until: until,
            reason: Some(Reason::Queued),
            nearest: None,
            position: 0,
            attempt: 0,
            members: Vec::new(),
            reserved: Amount::ZERO,
            active_since: None,
            fixed: Amount::ZERO,
            requeue: false,
            past: Vec::new(),
        };
        self.state.leases.insert(id, lease);
        self.state.waiting.insert(id);
        self.state.deadlines.insert((until, id));
        self.touched.leases.insert(id);
        self.emit(Effect::Moved { lease: id, state: LeaseState::Waiting, reason: Some(Reason::Queued), attempt: 0 });
        self.wake_up(Wake::One(id));
        id
    }

    /// A renter gives a lease back. Doing so twice is doing it once.
    pub(crate) fn release(&mut self, renter: Account, id: LeaseId) -> Answer {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return self.refuse(Refusal::plain(Reason::NoSuchLease));
        };
        let refusal = |reason| Refusal { lease: Some(id), ..Refusal::plain(reason) };
        if lease.request.renter != renter {
            return self.refuse(refusal(Reason::NotYours));
        }
        match lease.state {
            LeaseState::Ended => return self.refuse(refusal(Reason::NotLive)),
            LeaseState::Waiting => self.drop_waiting(id, Reason::Released),
            LeaseState::Ending if lease.requeue => {
                lease.requeue = false;
                lease.reason = Some(Reason::Released);
                let attempt = lease.attempt;
                self.touched.leases.insert(id);
                self.emit(Effect::Moved {
                    lease: id,
                    state: LeaseState::Ending,
                    reason: Some(Reason::Released),
                    attempt,
                });
            }
            state if is_running(state) => self.end(id, Reason::Released, false),
            _ => {}
        }
        Answer::Done
    }
}

/// What the whole duration costs at these asks.
pub(crate) fn cost(request: &LeaseRequest, places: &[Placed]) -> Amount {
    places.iter().fold(Amount::ZERO, |sum, placed| sum.saturating_add(placed.rate.bill(request.duration_ms)))
}

/// The nearest miss of a request that cannot be paid: at its first place, need and have in token base units.
pub(crate) fn uncovered(places: &[Placed], short: money::Uncovered) -> Option<NearestMiss> {
    miss_at(places, Reason::PaymentRequired, short.need, short.have)
}

/// What falls short though there are places, told of the first of them.
fn miss_at(places: &[Placed], reason: Reason, need: u64, have: u64) -> Option<NearestMiss> {
    places.first().map(|placed| NearestMiss { node: placed.node, gpu: placed.gpu(), reason, need, have })
}

/// The cheapest place of each member by itself: no gang costs less.
pub(crate) fn cheapest(world: &World<'_>, places: Vec<Placed>) -> Vec<Placed> {
    if places.len() < 2 {
        return places;
    }
    places.into_iter().map(|placed| world.scan(placed.rank, false, 1).best.pop().unwrap_or(placed)).collect()
}
