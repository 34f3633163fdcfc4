//! What renters ask: a lease, and its release.

use alloc::vec::Vec;

use selion_api::lease::{LeaseState, NearestMiss, Refusal, Resource};
use selion_api::{Account, Amount, LeaseId, LeaseRequest, Reason, TimeMs};

use crate::booking::{self, Denied};
use crate::effect::{Answer, Effect};
use crate::gang;
use crate::input::{Policy, RequestLease};
use crate::lease::is_running;
use crate::licence::{self, Seatless};
use crate::money;
use crate::place::{Placed, Room, World};
use crate::state::{FirstAnswer, Lease};
use crate::step::{Step, Wake};
use crate::tally::Bundle;

/// A repeat of a request that made a lease is answered with that lease for this long: a day in milliseconds. One that was
/// refused is judged again.
pub const REPEAT_MS: u64 = 24 * selion_api::unit::MS_PER_HOUR;

impl Step<'_> {
    /// A renter asks for a lease. The same request again gets the same lease again.
    pub(crate) fn request(&mut self, asked: &RequestLease) -> Answer {
        let request = &asked.request;
        match self.state.first_answer(request, self.at) {
            Some(Ok(id)) => return Answer::Repeated(id),
            Some(Err(refusal)) => return self.refuse(refusal),
            None => {}
        }
        let id = match self.consider(request) {
            Ok(size) => self.create(asked, size),
            Err(refusal) => return self.refuse(refusal),
        };
        let until = self.at.plus(REPEAT_MS);
        if let Some(old) =
            self.state.answers.insert(request.idem, FirstAnswer { body: request.body(), lease: id, until })
        {
            self.state.repeats.remove(&(old.until, request.idem));
        }
        self.state.repeats.insert((until, request.idem));
        Answer::Created(id)
    }

    /// Whether the request can be met by this fleet at all, with the renter's licence and money, and, if it may not wait,
    /// fits now. Tells what it takes.
    fn consider(&mut self, request: &LeaseRequest) -> Result<Bundle, Refusal> {
        self.state.may_ask(request).map_err(Refusal::plain)?;
        self.state.find(request, Room::Empty);
        let mut world = World::new(self.state, request, None, Room::Empty);
        let no_place = |none: gang::NoPlace| Refusal { reason: none.reason, nearest: none.nearest, lease: None };
        let places = gang::place(&mut world).map_err(no_place)?;
        let size = self.state.size_of(request, &places);
        let cheapest = cheapest(&world, places);
        let unseated = |short: Seatless| {
            let nearest = miss_at(&cheapest, short.reason, Resource::Seats, short.need, short.have);
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
        let total = cost(&self.state.policy, request, places);
        money::covers(self.state, request, total, self.at).map_err(|short| Refusal {
            reason: short.means.reason(),
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
            granted: TimeMs(0),
            unpaid: Amount::ZERO,
            active_since: None,
            fixed: Amount::ZERO,
            requeue: false,
            past: Vec::new(),
            extended: Vec::new(),
        };
        self.state.leases.insert(id, lease);
        self.state.load_of(asked.request.renter, |load| load.leases = load.leases.saturating_add(1));
        self.state.line_up(id);
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

/// What a grant of these places keeps: for the whole duration, but no less than the policy's least time.
pub(crate) fn cost(policy: &Policy, request: &LeaseRequest, places: &[Placed]) -> Amount {
    cost_of(policy, request.duration_ms.max(policy.least_ms), places)
}

/// What is kept for places that last so long.
pub(crate) fn cost_of(policy: &Policy, lasts_ms: u64, places: &[Placed]) -> Amount {
    let kept = |placed: &Placed| money::reserve(policy, placed.rate, lasts_ms);
    places.iter().map(kept).fold(Amount::ZERO, Amount::saturating_add)
}

/// The nearest miss of a request that cannot be paid, at its first place.
pub(crate) fn uncovered(places: &[Placed], short: money::Uncovered) -> Option<NearestMiss> {
    miss_at(places, short.means.reason(), short.means.resource(), short.need, short.have)
}

/// What falls short though there are places, told of the first of them.
fn miss_at(places: &[Placed], reason: Reason, resource: Resource, need: u64, have: u64) -> Option<NearestMiss> {
    let resource = Some(resource);
    places.first().map(|placed| NearestMiss { node: placed.node, gpu: placed.gpu(), reason, resource, need, have })
}

/// The cheapest place of each member by itself: no gang costs less.
pub(crate) fn cheapest(world: &World<'_>, places: Vec<Placed>) -> Vec<Placed> {
    if places.len() < 2 {
        return places;
    }
    places.into_iter().map(|placed| world.scan(placed.rank, false, 1).best.pop().unwrap_or(placed)).collect()
}
