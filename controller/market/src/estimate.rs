//! When a waiting lease will start, as things stand.

use alloc::vec::Vec;

use selion_api::{LeaseId, NodeId, TimeMs};

use crate::booking::{self, known_ends};
use crate::gang;
use crate::licence;
use crate::money::latest_end;
use crate::order::Shares;
use crate::pass;
use crate::place::{Room, World};
use crate::state::{Held, Lease, State};

/// Most leases in front of one whose start is estimated: it bounds the work.
const MAX_AHEAD: usize = 32;

/// Most GPUs that are judged for it, by the most that the searches can take: readers wait for nobody, but a writer waits
/// for readers.
const MAX_JUDGED: usize = 8_000_000;

/// What one in the line takes, from now until then.
struct Planned {
    until: TimeMs,
    places: Vec<(NodeId, Held)>,
}

impl State {
    /// When a waiting lease is expected to start: its booking's time, or the time at which it fits if everybody in
    /// front of it starts first and all run as long as they may. Late rather than early: room or a seat that comes free
    /// before its time is not foreseen. It says nothing of who comes later with a smaller share or a higher class, nor of those
    /// behind it that are served beside the booking. `None` if the lease does not wait, if no known end makes room for
    /// it, or if it would be too much work: more than 32 leases in front of it, or large gangs on a large fleet.
    #[must_use]
    pub fn estimate(&self, id: LeaseId) -> Option<TimeMs> {
        if let Some(booking) = self.booking.as_ref().filter(|booking| booking.lease == id) {
            return Some(booking.at);
        }
        let mut shares = Shares::of(self);
        shares.at_rest(self);
        let line = pass::line(self, &shares);
        let place = line.iter().position(|turn| turn.lease() == id)?;
        if place > MAX_AHEAD {
            return None;
        }
        let gpus: usize = self.nodes.values().filter_map(|node| Some(node.spec.as_ref()?.gpus.len())).sum();
        let mut left = MAX_JUDGED;
        let mut plan: Vec<Planned> = Vec::new();
        for turn in line.iter().take(place + 1) {
            let Some(lease) = self.leases.get(&turn.lease()) else {
                continue;
            };
            let scans = gang::most_scans(lease.request.members.len());
            let scans = scans.saturating_mul(gang::latency::rounds(&lease.request));
            let searches = known_ends(self).len().saturating_add(plan.len()).saturating_add(2).ilog2() as usize + 1;
            left = left.checked_sub(gpus.saturating_mul(scans).saturating_mul(searches))?;
            let Some((at, places)) = self.fits_after(turn.lease(), lease, &plan) else {
                if turn.lease() == id {
                    return None;
                }
                continue; // nothing known makes room for it, so it is in nobody's way
            };
            if turn.lease() == id {
                return Some(at);
            }
            plan.push(Planned { until: latest_end(self, &lease.request, at), places });
        }
        None
    }

    fn fits_after(&self, id: LeaseId, lease: &Lease, plan: &[Planned]) -> Option<(TimeMs, Vec<(NodeId, Held)>)> {
        let mut ends = known_ends(self);
        ends.extend(plan.iter().map(|planned| planned.until));
        ends.push(self.now);
        ends.retain(|at| licence::covers(self, &lease.request, *at).is_ok());
        ends.sort_unstable();
        ends.dedup();
        booking::first_fit(&ends, |at| {
            let taken =
                plan.iter().filter(|planned| planned.until > at).flat_map(|planned| planned.places.iter().cloned());
            let taken: Vec<(NodeId, Held)> = taken.collect();
            if !licence::seats_at(self, &lease.request, at, &taken) {
                return None;
            }
            let room = if at == self.now { Room::Now } else { Room::At(at) };
            let mut world = World::new(self, &lease.request, Some(id), room);
            world.also = &taken;
            gang::place(&mut world).ok().map(|places| booking::taken(&lease.request, lease.attempt, &places))
        })
    }
}
