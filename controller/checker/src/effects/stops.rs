//! What must hold of a lease that is stopped for another.

use selion_api::LeaseId;
use selion_api::lease::{LeaseState, Priority};

use super::Entry;
use crate::finding::{Rule, holds, within};
use crate::fleet::{Guest, Runs};

impl Entry<'_> {
    pub(super) fn preempted(&mut self, id: LeaseId, attempt: u32, by: LeaseId) {
        let (now, least_ms) = (self.book.now, self.book.policy.min_run_ms);
        let taker = self.book.leases.get(&by).filter(|taker| taker.state == LeaseState::Waiting);
        let class = taker.map(|taker| taker.request.priority);
        // Where its own seats are what it lacks, no room helps it.
        let seated = taker.is_none_or(|taker| self.book.may_sit(&taker.request, taker.request.min_members.into()));
        self.tell(Some(by), holds(Rule::Licence, seated));
        // For a lease of the same class quotas decide, beside those who were stopped for it already.
        let own = self.book.leases.get(&id).map(|lease| lease.request.priority);
        let mut gives_way = false;
        if own == class && class < Some(Priority::Firm) {
            let before = self.stops.iter().filter(|(_, whom, _)| *whom == by).map(|(other, ..)| *other);
            gives_way = self.book.may_give_way(id, by, &before.collect());
            self.tell(Some(id), holds(Rule::Quota, gives_way));
        }
        self.used_a_stop(id, by);
        let Some(lease) = self.book.leases.get_mut(&id) else {
            return self.tell(Some(id), holds(Rule::Lease, false));
        };
        let runs = lease.state == LeaseState::Active && lease.attempt == attempt;
        let lower = class.is_some_and(|class| lease.request.priority < class);
        let ran_ms = lease.active_since.map_or(0, |since| now.since(since));
        lease.stopped_for = Some(by);
        self.stops.push((id, by, self.at));
        self.tell(Some(id), holds(Rule::Preempt, runs && (lower || gives_way)));
        self.tell(Some(id), within(Rule::Preempt, least_ms, ran_ms));
    }

    /// Each of those who were stopped did stop, and none of them could have stayed. That is looked at for one member
    /// only: for gangs it would be a search.
    pub(super) fn stops_were_needed(&mut self) {
        let stops = core::mem::take(&mut self.stops);
        for (id, by, at) in &stops {
            self.at = *at;
            let stopping = self.state_of(*id).is_some_and(|state| state != LeaseState::Active);
            self.tell(Some(*id), holds(Rule::Preempt, stopping));
            let Some(taker) = self.book.leases.get(by) else {
                continue;
            };
            // Where fragmentation is charged, who stays may make a place too dear.
            let capped = self.book.policy.shadow_permille > 0 && taker.request.max_rate.is_some();
            if let ([want], false) = (taker.request.members.as_slice(), capped) {
                let beside = stops.iter().filter(|(other, whom, _)| other != id && whom == by);
                let lease = |(id, ..): &(LeaseId, _, _)| Some((*id, self.book.leases.get(id)?));
                let runs =
                    beside.filter_map(lease).flat_map(|(id, it)| it.attempts().map(move |attempt| (id, attempt)));
                let gone: Runs = runs.collect();
                let guest = Guest { lease: *by, rank: 0, request: &taker.request, want };
                let fits = self.book.fleet.room_for(&guest, &gone, (1, 1)).0 > 0;
                self.tell(Some(*id), holds(Rule::Minimal, !fits));
            }
        }
    }
}
