//! Who may sit on which licence, by the chain, and who does: counted anew from what stands on the machines.

use alloc::collections::BTreeMap;

use selion_api::chain::ChainEvent;
use selion_api::{Account, LeaseId, LeaseRequest, Licence, TimeMs};

use crate::check::Checker;
use crate::finding::{Rule, Verdict, within};

/// Seats of each licence and holder, and when they are over.
#[derive(Clone, Default)]
pub(crate) struct Licences(BTreeMap<(Licence, Account), (u32, TimeMs)>);

impl Licences {
    /// A fact of the chain.
    pub(crate) fn fold(&mut self, event: &ChainEvent) {
        if let ChainEvent::LicenceSet { issuer, holder, product, seats, until } = event {
            let licence = Licence { issuer: *issuer, product: *product };
            self.0.insert((licence, *holder), (*seats, *until));
        }
    }
}

impl Checker {
    /// Seats for members of a request that begin at `at`; `None` if they need none.
    pub(crate) fn seats_for(&self, request: &LeaseRequest, at: TimeMs) -> Option<u64> {
        let known = self.licences.0.get(&(request.licence?, request.renter));
        Some(known.map_or(0, |(seats, until)| if at < *until { u64::from(*seats) } else { 0 }))
    }

    /// Members that sit on the licence of a request.
    fn sitting(&self, request: &LeaseRequest) -> u64 {
        let whose = |request: &LeaseRequest| (request.licence, request.renter);
        let same = |id: &LeaseId| self.leases.get(id).is_some_and(|lease| whose(&lease.request) == whose(request));
        self.fleet.standing.keys().filter(|(id, ..)| same(id)).count() as u64
    }

    /// Nobody sits, after members of a request were granted, for whom there is no seat.
    pub(crate) fn all_sit(&self, request: &LeaseRequest) -> Verdict {
        let seats = self.seats_for(request, self.now);
        seats.map_or(Ok(()), |seats| within(Rule::Licence, self.sitting(request), seats))
    }

    /// Whether so many more members of a request find seats now.
    pub(crate) fn may_sit(&self, request: &LeaseRequest, members: u64) -> bool {
        let seats = self.seats_for(request, self.now);
        seats.is_none_or(|seats| self.sitting(request).saturating_add(members) <= seats)
    }

    /// Whether what a waiting lease needs finds seats now beside what is kept for another lease of its renter that is
    /// booked.
    pub(crate) fn may_sit_beside_booked(&self, id: LeaseId, request: &LeaseRequest) -> bool {
        let booked = self.booked.filter(|(booked, _)| *booked != id).and_then(|(booked, _)| self.leases.get(&booked));
        let same = |other: &LeaseRequest| (other.licence, other.renter) == (request.licence, request.renter);
        let kept = booked.filter(|other| same(&other.request)).map_or(0, |other| other.request.min_members);
        self.may_sit(request, u64::from(request.min_members) + u64::from(kept))
    }
}
