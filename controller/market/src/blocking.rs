//! What of a request stands in its way: a least set of its constraints without which it fits.

use alloc::vec::Vec;

use selion_api::blocking::{Blocking, Constraint, Shortfall};
use selion_api::lease::{LeaseState, Within};
use selion_api::slice::IsolationClass;
use selion_api::{BoxFeatures, LeaseId, LeaseRequest};

use crate::booking;
use crate::gang;
use crate::licence;
use crate::money;
use crate::place::{Room, World};
use crate::state::State;

/// Most slices on GPUs that are judged for one answer, by the most that the searches can take.
const MAX_JUDGED: usize = 8_000_000;
/// Most searches for one answer: three to see whether it fits as it is, two to begin with, and one a constraint.
const MAX_SEARCHES: usize = 5 + ORDER.len();
/// Reckoned slices of one GPU, when any will do.
const SLICES: usize = 16;

/// In the order in which they are put back. What comes late is rather reported: first what is a word in the request,
/// then what it needs, and what others hold only if nothing else helps.
const ORDER: [Constraint; 19] = [
    Constraint::Room,
    Constraint::Slice,
    Constraint::Gpus,
    Constraint::Net,
    Constraint::Disk,
    Constraint::Ram,
    Constraint::Cpu,
    Constraint::Within,
    Constraint::MaxLatency,
    Constraint::MinNodes,
    Constraint::NearData,
    Constraint::Gpu,
    Constraint::Node,
    Constraint::Regions,
    Constraint::Models,
    Constraint::Classes,
    Constraint::Needs,
    Constraint::MaxRate,
    Constraint::Licence,
];

impl State {
    /// The constraints of a waiting lease without which it would fit now, as few as possible: put any one back, and it
    /// does not. If it would not fit even into the empty fleet, those without which it would ever. Room kept by a
    /// booking counts as taken if the lease would end too late.
    ///
    /// Found by leaving all away and putting back one after the other what does not matter: at most 24 searches. For
    /// a gang it is as exact as the bounded search of its place.
    ///
    /// `None` if the lease does not wait, if leaving all away does not help (no node takes leases, or the pool's own
    /// terms are in the way), or if it would be too much work. No constraints: it fits, and waits for something else.
    #[must_use]
    pub fn blocking(&self, id: LeaseId) -> Option<Blocking> {
        let lease = self.leases.get(&id).filter(|lease| lease.state == LeaseState::Waiting)?;
        self.blocking_of(Some(id), &lease.request)
    }

    /// As [`State::blocking`], of a request that was turned away.
    #[must_use]
    pub fn blocking_request(&self, request: &LeaseRequest) -> Option<Blocking> {
        self.blocking_of(None, request)
    }

    fn blocking_of(&self, id: Option<LeaseId>, request: &LeaseRequest) -> Option<Blocking> {
        let judged_a_scan = MAX_SEARCHES + ORDER.len() * SLICES;
        let work = self.gpus().saturating_mul(gang::most_scans(request.members.len())).saturating_mul(judged_a_scan);
        let work = work.saturating_mul(gang::latency::rounds(request));
        if work > MAX_JUDGED {
            return None;
        }
        if licence::seats(self, id, request).is_ok() && booking::place_now(self, id, request).is_ok() {
            return Some(Blocking { now: true, constraints: Vec::new() });
        }
        // What could never fit is not helped by waiting: then room is no question.
        let now = self.fits_without(id, request, &[Constraint::Room]);
        let mut left: Vec<Constraint> = ORDER.into_iter().filter(|one| is_there(request, *one)).collect();
        if !self.fits_without(id, request, &left) {
            return None;
        }
        let always: &[Constraint] = if now { &[] } else { &[Constraint::Room] };
        for one in ORDER {
            if always.contains(&one) || !left.contains(&one) {
                continue;
            }
            let rest: Vec<Constraint> = left.iter().copied().filter(|other| *other != one).collect();
            if self.fits_without(id, request, &rest) {
                left = rest;
            }
        }
        left.retain(|one| !always.contains(one));
        left.reverse();
        Some(Blocking { now, constraints: left })
    }

    /// Why the members that a waiting lease needs have no places now. Room kept by a booking counts as free.
    ///
    /// `None` if it does not wait, if there is room for it, or if it would be too much work.
    #[must_use]
    pub fn shortfall(&self, id: LeaseId) -> Option<Shortfall> {
        let lease = self.leases.get(&id).filter(|lease| lease.state == LeaseState::Waiting)?;
        let scans = gang::most_scans(lease.request.min_members.into());
        let scans = scans.saturating_mul(gang::latency::rounds(&lease.request));
        if self.gpus().saturating_mul(scans) > MAX_JUDGED {
            return None;
        }
        let none = gang::place(&mut World::new(self, &lease.request, Some(id), Room::Now)).err()?;
        Some(Shortfall { proved: none.proved, nearest: none.nearest })
    }

    /// Whether the members that it needs have seats: beside those who sit, or in an `empty` fleet, where nobody does.
    fn sits_in(&self, id: Option<LeaseId>, request: &LeaseRequest, empty: bool) -> bool {
        let seats = if empty { licence::covers(self, request, self.now) } else { licence::seats(self, id, request) };
        seats.is_ok()
    }

    fn gpus(&self) -> usize {
        self.nodes.values().filter_map(|node| Some(node.spec.as_ref()?.gpus.len())).sum()
    }

    /// Whether a request finds a place when these constraints do not count.
    fn fits_without(&self, id: Option<LeaseId>, request: &LeaseRequest, gone: &[Constraint]) -> bool {
        if !gone.contains(&Constraint::Licence) && !self.sits_in(id, request, gone.contains(&Constraint::Room)) {
            return false;
        }
        let relaxed = without(request, gone);
        let room = if gone.contains(&Constraint::Room) { Room::Empty } else { Room::Now };
        let mut world = World::new(self, &relaxed, id, room);
        world.any_slice = gone.contains(&Constraint::Slice);
        if room == Room::Now
            && let Some((booking, _)) = booking::binding(self, id, request)
            && money::latest_end(self, request, self.now) > booking.at
        {
            world.also = &booking.places;
        }
        gang::place(&mut world).is_ok()
    }
}

/// True if the request says so at all.
fn is_there(request: &LeaseRequest, one: Constraint) -> bool {
    let any = |says: fn(&selion_api::MemberWant) -> bool| request.members.iter().any(says);
    match one {
        Constraint::MaxRate => request.max_rate.is_some(),
        Constraint::Classes => request.classes != all_classes(),
        Constraint::Needs => request.needs != BoxFeatures::NONE,
        Constraint::Models => any(|want| !want.models.is_empty()),
        Constraint::Regions => !request.regions.is_empty(),
        Constraint::Node => any(|want| want.node.is_some()),
        Constraint::Gpu => any(|want| want.gpu.is_some()),
        Constraint::Within => request.within != Within::Pool,
        Constraint::MinNodes => request.min_nodes > 1,
        Constraint::NearData => request.near_data,
        Constraint::Licence => request.licence.is_some(),
        Constraint::MaxLatency => request.max_latency_us.is_some(),
        Constraint::Cpu => any(|want| want.cpu_milli > 0),
        Constraint::Ram => any(|want| want.ram_bytes > 0),
        Constraint::Disk => any(|want| want.disk_bytes > 0),
        Constraint::Net => any(|want| want.net_mbps > 0),
        Constraint::Gpus => any(|want| want.gpus > 1),
        Constraint::Slice | Constraint::Room => true,
    }
}

/// The request without these constraints. Slice and room are not words of it, and a licence bounds no place:
/// whoever searches leaves them away.
fn without(request: &LeaseRequest, gone: &[Constraint]) -> LeaseRequest {
    let mut relaxed = request.clone();
    for one in gone {
        match one {
            Constraint::MaxRate => relaxed.max_rate = None,
            Constraint::Classes => relaxed.classes = all_classes(),
            Constraint::Needs => relaxed.needs = BoxFeatures::NONE,
            Constraint::MinNodes => relaxed.min_nodes = 1,
            Constraint::NearData => relaxed.near_data = false,
            Constraint::MaxLatency => relaxed.max_latency_us = None,
            Constraint::Slice | Constraint::Room | Constraint::Licence => {}
            Constraint::Within => relaxed.within = Within::Pool,
            Constraint::Regions => relaxed.regions.clear(),
            Constraint::Models => relaxed.members.iter_mut().for_each(|want| want.models.clear()),
            Constraint::Node => relaxed.members.iter_mut().for_each(|want| want.node = None),
            Constraint::Gpu => relaxed.members.iter_mut().for_each(|want| want.gpu = None),
            Constraint::Gpus => relaxed.members.iter_mut().for_each(|want| want.gpus = 1),
            Constraint::Cpu => relaxed.members.iter_mut().for_each(|want| want.cpu_milli = 0),
            Constraint::Ram => relaxed.members.iter_mut().for_each(|want| want.ram_bytes = 0),
            Constraint::Disk => relaxed.members.iter_mut().for_each(|want| want.disk_bytes = 0),
            Constraint::Net => relaxed.members.iter_mut().for_each(|want| want.net_mbps = 0),
        }
    }
    relaxed
}

fn all_classes() -> u8 {
    IsolationClass::ALL.iter().fold(0, |set, class| set | class.bit())
}
