//! Who is stopped for a lease of a higher class, or for one of its own class within a guaranteed [`quota`]: whole leases,
//! as few as will do, and only where that helps.
//!
//! Why this ends, while no quotas count; with them, see there. A lease is stopped only for one of a strictly higher class,
//! so no two leases ever stop each other, not even by way of others. The room that comes free is booked for the one it was
//! freed for, and a booking goes only to who stands higher: what was stopped cannot take it back, however early or late
//! its members are gone. So between two inputs from outside each stop moves running work from a class to a higher one: the
//! numbers of running leases by class, highest first, only rise in the order of a dictionary, and leases are finitely
//! many. What was stopped and runs again has its `min_run_ms` again.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use selion_api::lease::{LeaseState, Priority};
use selion_api::{Amount, LeaseId, NodeId, Reason, TimeMs};

use crate::effect::Effect;
use crate::gang;
use crate::money;
use crate::place::{Placed, Room, World};
use crate::quota::{self, Claim};
use crate::request::cost;
use crate::state::{Lease, State};
use crate::step::Step;

/// Most leases that are looked at one by one: it bounds the work. Where more would have to be stopped, nobody is.
const MAX_VICTIMS: usize = 256;

/// From when on a lease may be stopped for one of a higher class, at the latest; `None`: never.
fn open_from(state: &State, lease: &Lease) -> Option<TimeMs> {
    let (policy, ends) = (&state.policy, lease.deadline?);
    let active = match lease.state {
        LeaseState::Active => lease.active_since?,
        LeaseState::Held => ends.plus(policy.prepare_ms).plus(policy.start_ms),
        LeaseState::Preparing => ends.plus(policy.start_ms),
        LeaseState::Starting => ends,
        LeaseState::Waiting | LeaseState::Ending | LeaseState::Ended => return None,
    };
    Some(active.plus(policy.min_run_ms))
}

/// What runs of the classes below `class`.
fn lower(state: &State, class: Priority) -> impl Iterator<Item = (LeaseId, &Lease)> {
    let ids = state.running.range(..class).flat_map(|(_, ends)| ends).map(|(_, id)| *id);
    ids.filter_map(|id| Some((id, state.leases.get(&id)?)))
}

/// What runs of this class.
fn equal(state: &State, class: Priority) -> impl Iterator<Item = (LeaseId, &Lease)> {
    let ids = state.running.get(&class).into_iter().flatten().map(|(_, id)| *id);
    ids.filter_map(|id| Some((id, state.leases.get(&id)?)))
}

/// When the next lease of a lower class than `class` will have run long enough, or of this one where quotas count.
pub(crate) fn next_open(state: &State, class: Priority) -> Option<TimeMs> {
    let same = equal(state, class).filter(|_| quota::count_for(state, class));
    let opens = lower(state, class).chain(same).filter_map(|(_, lease)| open_from(state, lease));
    opens.filter(|from| *from > state.now).min()
}

/// What stopping a lease costs: its class first, then the work it loses at its price. The id makes it unique.
fn loss(state: &State, id: LeaseId, lease: &Lease) -> (Priority, Amount, LeaseId) {
    let work_of = |member| lease.billable_cap_ms(member, state.now, &state.policy);
    let works = lease.members.iter().map(|member| member.rate.bill(work_of(member)));
    let work = works.fold(Amount::ZERO, Amount::saturating_add);
    (lease.request.priority, work, id)
}

/// The leases to be stopped so that `id` fits as soon as they are gone: none of them could stay. `None` if no such set
/// helps, or it would not be paid for, or gives up before.
pub(crate) fn victims(state: &State, id: LeaseId, lease: &Lease) -> Option<BTreeSet<LeaseId>> {
    let by = state.now.plus(state.policy.ending_ms);
    if lease.wait_until <= by {
        return None;
    }
    let open = |other: &Lease| {
        other.state == LeaseState::Active && open_from(state, other).is_some_and(|from| from <= state.now)
    };
    let class = lease.request.priority;
    let others = lower(state, class).filter(|(_, other)| open(other));
    let mut costs: Vec<_> = others.map(|(id, other)| loss(state, id, other)).collect();
    costs.sort_unstable();
    if let Some(mut claim) = Claim::of(state, lease) {
        let same = equal(state, class).filter(|(_, other)| open(other));
        let mut same: Vec<_> = same.map(|(id, other)| loss(state, id, other)).collect();
        same.sort_unstable();
        same.retain(|(.., id)| state.leases.get(id).is_some_and(|other| claim.take(*id, other)));
        costs.extend(same);
    }
    if costs.is_empty() {
        return None;
    }
    let cheapest = |count: usize| -> BTreeSet<LeaseId> { costs.iter().take(count).map(|(.., id)| *id).collect() };
    let fits = |gone: &BTreeSet<LeaseId>| -> Option<Vec<Placed>> {
        let mut world = World::new(state, &lease.request, Some(id), Room::At(by));
        world.without = Some(gone);
        gang::place(&mut world).ok()
    };
    // The fewest of the cheapest that are enough, by halving: room only grows with the number.
    let (mut few, mut enough) = (0, costs.len());
    let mut places = fits(&cheapest(enough))?;
    while few < enough {
        let middle = few + (enough - few) / 2;
        match fits(&cheapest(middle)) {
            Some(found) => (enough, places) = (middle, found),
            None => few = middle + 1,
        }
    }
    let mut gone = cheapest(enough);
    let near = beside(state, &places, &gone);
    if let Some(found) = fits(&near) {
        (gone, places) = (near, found);
    }
    if gone.len() > MAX_VICTIMS {
        return None;
    }
    // Reprieve, dearest first.
    for (.., one) in costs.iter().take(enough).rev() {
        if gone.remove(one) {
            match fits(&gone) {
                Some(found) => places = found,
                None => {
                    gone.insert(*one);
                }
            }
        }
    }
    let total = cost(&state.policy, &lease.request, &places);
    (!gone.is_empty() && money::covers(state, &lease.request, total, state.now).is_ok()).then_some(gone)
}

/// Those of `gone` that hold something where the places are.
fn beside(state: &State, places: &[Placed], gone: &BTreeSet<LeaseId>) -> BTreeSet<LeaseId> {
    let nodes: BTreeSet<NodeId> = places.iter().map(|placed| placed.node).collect();
    let held = nodes.iter().filter_map(|node| state.nodes.get(node)).flat_map(|node| node.held.keys());
    held.map(|(lease, _)| *lease).filter(|lease| gone.contains(lease)).collect()
}

impl Step<'_> {
    /// Stops leases of lower classes, or beyond quotas, for `id`, which would start at `at` by waiting, if it then starts
    /// earlier and its account has not used up what is free. True if any was stopped.
    pub(crate) fn preempt(&mut self, id: LeaseId, at: TimeMs) -> bool {
        let Some(lease) = self.state.leases.get(&id) else {
            return false;
        };
        if at <= self.at.plus(self.state.policy.ending_ms) {
            return false;
        }
        let class = lease.request.priority;
        let Some(gone) = victims(self.state, id, lease) else {
            return false;
        };
        if !self.count_stops(id, gone.iter()) {
            return false;
        }
        for one in gone {
            let Some((attempt, other)) =
                self.state.leases.get(&one).map(|lease| (lease.attempt, lease.request.priority))
            else {
                continue;
            };
            self.emit(Effect::Preempted { lease: one, attempt, by: id });
            let reason = if other < class { Reason::Preempted } else { Reason::QuotaReclaimed };
            self.end(one, reason, self.waits_again(one));
        }
        true
    }
}
