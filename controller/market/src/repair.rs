//! Repair in place: members of an active lease that were lost with their node get other places, while the others run on.
//!
//! A lost member is billed at once and its part of the reserve given back; the rank is noted in [`Broken`](crate::state::Broken). In the pass
//! such a lease comes first in its class, for all its lost ranks or none, for what is left of its time. The new members
//! have the next number of a run, are prepared and started without the gang waiting for anybody, and are billed from
//! their own `Running` on. Where no place is found in time, or one fails before it runs, the whole lease stops and waits
//! again: each try has an end, and only a further loss brings another.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use selion_api::lease::{LeaseState, OnNodeLoss, Priority, Within};
use selion_api::{Amount, LeaseId, LeaseRequest, NodeId, Reason};

use crate::booking::{self, Now};
use crate::effect::Effect;
use crate::gang::{self, latency};
use crate::input::Policy;
use crate::licence;
use crate::money;
use crate::pass::member;
use crate::place::{Placed, Room, World};
use crate::request::cost_of;
use crate::state::{Held, Lease, Progress, State};
use crate::step::{Step, Wake};

impl Lease {
    /// True if this is the present run of that rank, and it is not over.
    #[must_use]
    pub fn runs(&self, rank: u16, attempt: u32) -> bool {
        let member = self.members.get(usize::from(rank));
        member.is_some_and(|member| member.attempt == attempt && member.progress != Progress::Gone)
    }

    /// True if this rank was lost and does not run again yet.
    pub(crate) fn is_broken_at(&self, rank: u16) -> bool {
        self.broken.as_ref().is_some_and(|broken| broken.ranks.contains(&rank))
    }

    /// Lost ranks that have no other place yet.
    pub(crate) fn to_place(&self) -> Vec<u16> {
        let ranks = self.broken.iter().flat_map(|broken| &broken.ranks).copied();
        let gone = |rank: &u16| self.members.get(usize::from(*rank)).is_some_and(|it| it.progress == Progress::Gone);
        ranks.filter(gone).collect()
    }

    /// True if it can go on without these as well, until they have other places.
    fn can_lose(&self, lost: &BTreeSet<u16>) -> bool {
        let broken = self.broken.iter().flat_map(|broken| &broken.ranks).chain(lost).collect::<BTreeSet<_>>().len();
        self.state == LeaseState::Active
            && self.request.on_node_loss == OnNodeLoss::Repair
            && self.request.within != Within::Node
            && self.members.len().saturating_sub(broken) >= usize::from(self.request.min_members)
    }

    /// How long a repair may take from here on, in milliseconds.
    fn repair_lasts_ms(&self, policy: &Policy) -> u64 {
        if self.to_place().is_empty() {
            policy.hold_ms.saturating_add(policy.prepare_ms).saturating_add(policy.start_ms)
        } else {
            policy.prepare_ms
        }
    }
}

impl State {
    /// Leases with lost members that have no place, the first in line last: the higher class, then the older.
    pub(crate) fn to_be_repaired(&self) -> Vec<(Priority, Reverse<LeaseId>)> {
        let leases = self.broken.iter().filter_map(|id| Some((id, self.leases.get(id)?)));
        let lost = leases.filter(|(_, lease)| !lease.to_place().is_empty());
        let mut all: Vec<_> = lost.map(|(id, lease)| (lease.request.priority, Reverse(*id))).collect();
        all.sort_unstable();
        all
    }

    /// Places for the lost members of a lease that leave a booking that binds it its time, and what they cost for the
    /// rest of the lease, if the renter can pay that and they have seats.
    pub(crate) fn find_repair(&self, id: LeaseId, lease: &Lease) -> Option<(Now, Amount)> {
        let expires = lease.expires()?;
        if lease.to_place().len() > licence::free(self, Some(id), &lease.request) {
            return None;
        }
        let rest = LeaseRequest { duration_ms: expires.since(self.now), ..lease.request.clone() };
        let end = expires.plus(self.policy.ending_ms);
        let placed = self.beside_others(id, lease, &rest, &[])?;
        let again = |booked: &[_]| self.beside_others(id, lease, &rest, booked);
        let now = booking::beside_booking(self, Some(id), &rest, end, placed, again).ok()?;
        let total = cost_of(&self.policy, rest.duration_ms, &now.placed);
        money::covers_until(self, rest.renter, total, end).ok()?;
        Some((now, total))
    }

    /// Places for the lost members, each the best in order of rank, that have with the other members in common what was
    /// asked for, on as many nodes as were asked for: all or none. `also` counts as taken.
    fn beside_others(
        &self,
        id: LeaseId,
        lease: &Lease,
        rest: &LeaseRequest,
        also: &[(NodeId, Held)],
    ) -> Option<Vec<Placed>> {
        let ranks = lease.to_place();
        let others = (0_u16..).zip(&lease.members).filter(|(rank, _)| !ranks.contains(rank));
        let mut nodes: BTreeSet<NodeId> = others.map(|(_, member)| member.node).collect();
        let bound = latency::bound(rest);
        if bound.is_some_and(|most_us| !latency::all_near(self, &nodes, most_us)) {
            return None; // those that run have drifted apart
        }
        let mut world = World { also, ..World::new(self, rest, Some(id), Room::Now) };
        let near = nodes.first().filter(|_| rest.within != Within::Pool).map(|node| gang::around(&world, *node));
        for (at, rank) in ranks.iter().enumerate() {
            let missing = usize::from(rest.min_nodes).saturating_sub(nodes.len());
            let fresh = missing > 0 && missing >= ranks.len() - at;
            world.among = near.clone().or_else(|| fresh.then(|| self.nodes.keys().copied().collect()));
            if let Some(among) = world.among.as_mut().filter(|_| fresh) {
                among.retain(|node| !nodes.contains(node));
            }
            if let Some(most_us) = bound {
                world.among = Some(latency::near_to(self, &nodes, world.among.as_deref(), most_us));
            }
            let placed = world.scan(*rank, false, 1).best.into_iter().next()?;
            nodes.insert(placed.node);
            world.placed.push(placed);
        }
        Some(world.placed)
    }
}

impl Step<'_> {
    /// Members of a lease were lost with a node, and their slots are free.
    pub(crate) fn lose(&mut self, id: LeaseId, ranks: &BTreeSet<u16>) {
        if !self.state.leases.get(&id).is_some_and(|lease| lease.can_lose(ranks)) {
            return self.end_lost(id);
        }
        let mut paid = true;
        for rank in ranks {
            paid &= self.break_off(id, *rank);
        }
        self.vouch();
        self.state.broken.insert(id);
        self.await_repair(id);
        self.wake_up(Wake::All);
        if !paid {
            self.end(id, Reason::PaymentRequired, false);
        }
    }

    /// Bills a lost member, if it ran, and gives back what was kept for the rest of its time. False if its money had left.
    fn break_off(&mut self, id: LeaseId, rank: u16) -> bool {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return true;
        };
        let rest_ms = lease.expires().map_or(0, |expires| expires.since(self.at));
        let Some(lost) = lease.members.get(usize::from(rank)) else {
            return true;
        };
        let (attempt, rest) = (lost.attempt, lost.rate.bill(rest_ms));
        lease.broken.get_or_insert_default().ranks.insert(rank);
        lease.reason = Some(Reason::NodeLost);
        self.emit(Effect::Broken { lease: id, attempt, member: rank });
        let amount = self.bill(id, rank);
        let mut paid = true;
        if let Some(lease) = self.state.leases.get_mut(&id) {
            lease.fixed = lease.fixed.saturating_add(amount);
            if let Some(lost) = lease.members.get_mut(usize::from(rank)) {
                paid = lost.vouched >= amount;
                lost.since = None;
            }
        }
        self.give_back(id, rest);
        paid
    }

    /// Sets when the repair of a lease is given up, from now on and never earlier than it was.
    pub(crate) fn await_repair(&mut self, id: LeaseId) {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        let by = self.at.plus(lease.repair_lasts_ms(&self.state.policy));
        if let Some(broken) = &mut lease.broken {
            broken.by = broken.by.max(by);
        }
        let ends = lease.ends();
        self.state.set_deadline(id, ends);
        self.touched.leases.insert(id);
    }

    /// Lost members have other places: tells their run.
    pub(crate) fn renew(&mut self, id: LeaseId, placed: &[Placed], total: Amount) -> u32 {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return 0;
        };
        lease.attempt = lease.attempt.saturating_add(1);
        lease.reserved = lease.reserved.saturating_add(total);
        let attempt = lease.attempt;
        for placed in placed {
            if let Some(lost) = lease.members.get_mut(usize::from(placed.rank)) {
                *lost = member(attempt, placed);
            }
        }
        self.await_repair(id);
        self.touch_desired(id); // all are told where their peers are
        self.emit(Effect::Repaired { lease: id, attempt });
        attempt
    }

    /// A repaired member runs: it is billed from here on. With the last one the lease is whole again.
    pub(crate) fn joined(&mut self, id: LeaseId, rank: u16) {
        let at = self.at;
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        let ends = lease.ends();
        let Some((broken, joined)) = lease.broken.as_mut().zip(lease.members.get_mut(usize::from(rank))) else {
            return;
        };
        joined.since = Some(at);
        joined.vouched_at = at;
        let attempt = joined.attempt;
        broken.ranks.remove(&rank);
        if broken.ranks.is_empty() {
            lease.broken = None;
            lease.reason = None;
            self.state.broken.remove(&id);
            self.state.set_deadline(id, ends);
        }
        self.emit(Effect::Joined { lease: id, attempt, member: rank });
        self.touch_desired(id); // how long it may run is known to the millisecond from here on
    }
}
