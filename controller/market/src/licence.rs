//! Licences with seats: each member of a lease that names one sits from its grant until its slot is freed, however that
//! comes. So what is taken is a fold of what nodes hold, a lost member's seat is free as soon as its slot is, and its
//! replacement needs one again.
//!
//! Seats of a licence are of one holder, the renter, so only his own leases contest them. A lease without a seat is passed
//! over as one without money is: it is not booked, nobody is stopped for it, it is in nobody's way, and nobody is stopped
//! because seats are fewer or over. What a booked lease needs is left to it by those of its renter's leases that may not
//! delay it.

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::{LeaseId, LeaseRequest, NodeId, Reason, TimeMs};

use crate::booking;
use crate::state::{Held, State};

/// What the chain says of one holder's licence, and how many members sit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Seating {
    /// Members at once.
    pub seats: u32,
    /// No member begins from then on.
    pub until: TimeMs,
    /// Members that sit now: above `seats` only where those were lowered.
    pub used: u32,
}

impl Seating {
    /// Seats that count for members that begin at `at`.
    fn in_force(&self, at: TimeMs) -> usize {
        if at < self.until { self.seats as usize } else { 0 }
    }
}

/// Seats are too few: so many members need one each, so many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seatless {
    pub reason: Reason,
    pub need: u64,
    pub have: u64,
}

fn enough(reason: Reason, request: &LeaseRequest, have: usize) -> Result<(), Seatless> {
    let need = request.min_members;
    if usize::from(need) <= have { Ok(()) } else { Err(Seatless { reason, need: need.into(), have: have as u64 }) }
}

fn seating(state: &State, request: &LeaseRequest) -> Option<Seating> {
    Some(state.licences.get(&(request.licence?, request.renter)).copied().unwrap_or_default())
}

/// Whether the members that a request needs could begin at `at` if nobody sat: its licence is in force, with so many seats.
pub(crate) fn covers(state: &State, request: &LeaseRequest, at: TimeMs) -> Result<(), Seatless> {
    let seating = seating(state, request);
    seating.map_or(Ok(()), |seating| enough(Reason::NoLicence, request, seating.in_force(at)))
}

/// How many members of a request may begin now.
pub(crate) fn free(state: &State, id: Option<LeaseId>, request: &LeaseRequest) -> usize {
    let Some(seating) = seating(state, request) else {
        return usize::MAX;
    };
    let whose = |other: &LeaseRequest| (other.licence, other.renter);
    let booked = booking::binding(state, id, request).filter(|(_, other)| whose(&other.request) == whose(request));
    let kept = booked.map_or(0, |(_, other)| usize::from(other.request.min_members));
    seating.in_force(state.now).saturating_sub(seating.used as usize).saturating_sub(kept)
}

/// Whether the members that a request needs may begin now.
pub(crate) fn seats(state: &State, id: Option<LeaseId>, request: &LeaseRequest) -> Result<(), Seatless> {
    covers(state, request, state.now)?;
    enough(Reason::NoSeat, request, free(state, id, request))
}

/// Whether they may at a time to come, beside `planned`, when all whose end is known to come by then is gone.
pub(crate) fn seats_at(state: &State, request: &LeaseRequest, at: TimeMs, planned: &[(NodeId, Held)]) -> bool {
    let Some(seating) = seating(state, request) else {
        return true;
    };
    let sits = |held: &Held| held.licence == request.licence && held.renter == request.renter;
    let held = state.nodes.values().flat_map(|node| &node.held).filter(|(_, held)| sits(held));
    let stays = held.filter(|((id, rank), held)| booking::known_end(state, *id, *rank, held) > at).count();
    let planned = planned.iter().filter(|(_, held)| sits(held)).count();
    let free = seating.in_force(at).saturating_sub(stays).saturating_sub(planned);
    usize::from(request.min_members) <= free
}

impl State {
    /// A member sits down with its slot.
    pub(crate) fn sit(&mut self, held: &Held) {
        if let Some(licence) = held.licence {
            let seating = self.licences.entry((licence, held.renter)).or_default();
            seating.used = seating.used.saturating_add(1);
        }
    }

    /// A member that held this is gone.
    pub(crate) fn stand_up(&mut self, held: &Held) {
        let seating = held.licence.and_then(|licence| self.licences.get_mut(&(licence, held.renter)));
        if let Some(seating) = seating {
            seating.used = seating.used.saturating_sub(1);
        }
    }
}
