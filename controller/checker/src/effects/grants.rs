//! What must hold of a run that is granted.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use selion_api::lease::Beside;
use selion_api::{LeaseId, Rate};
use selion_market::Grant;

use super::bills::cost_of;
use super::{Entry, Gang};
use crate::bundle::bundle;
use crate::fair::Shares;
use crate::finding::{Broken, Rule, equal, holds, within};
use crate::fleet::{Guest, Look, Place, Taken};
use crate::leases::Part;
use crate::line;

impl Entry<'_> {
    pub(super) fn open_gang(&mut self, id: LeaseId) {
        let halted = self.book.halted();
        self.tell(Some(id), holds(Rule::Halted, !halted));
        let passed = self.passed_over(id);
        if let Some(lease) = self.book.leases.get_mut(&id) {
            lease.parts.clear();
            (lease.cost, lease.kept, lease.billed) = (0, 0, 0);
            (lease.active_since, lease.stopped_for) = (None, None);
        }
        self.book.booked = self.book.booked.filter(|(booked, _)| *booked != id);
        self.gang = Some(Gang { lease: id, at: self.at, nodes: BTreeSet::new(), passed });
    }

    /// Who waits for the same as `id` and comes before it.
    pub(super) fn passed_over(&mut self, id: LeaseId) -> Vec<(LeaseId, u128, u128)> {
        let book = &*self.book;
        let Some(lease) = book.leases.get(&id) else {
            return Vec::new();
        };
        // The search for a gang is bounded. After a request only the new lease is tried, and for a gang it may then
        // find a way that was missed for others before: not a matter of order.
        if lease.request.members.len() > 1 && id.seq == self.seq {
            return Vec::new();
        }
        let (mut passed, mut between) = (Vec::new(), BTreeMap::new());
        for other in book.line.beside(id, lease) {
            let mut old = book.fleet.standing.range((other, 0, 0)..=(other, u32::MAX, u16::MAX));
            let Some(waiter) = book.leases.get(&other).filter(|_| old.next().is_none()) else {
                continue; // what its old run still holds may bar it from a node
            };
            let shares =
                self.shares.get_or_insert_with(|| Shares::of(&book.fleet, &book.leases, &book.policy, book.now));
            let size = lease.size.filter(|_| waiter.size == lease.size);
            let theirs = waiter.request.renter;
            let lies =
                *between.entry((theirs, size)).or_insert_with(|| shares.between(theirs, lease.request.renter, size));
            if line::comes_before((other, waiter), (id, lease), book.booked.map(|(id, _)| id), lies) {
                passed.push((other, shares.key(waiter.request.renter), shares.key(lease.request.renter)));
            }
        }
        passed
    }

    /// A member begins, or the last one gets one more of its GPUs.
    pub(super) fn granted(&mut self, grant: &Grant) {
        let id = grant.lease;
        let open = self.gang.as_ref().is_some_and(|gang| gang.lease == id);
        let lease = self.book.leases.get(&id).filter(|lease| open && lease.attempt == grant.attempt);
        let rank = usize::from(grant.member);
        let last = lease.filter(|lease| lease.parts.len() == rank + 1).and_then(|lease| lease.parts.last());
        let want = lease.and_then(|lease| lease.request.members.get(rank));
        if last.zip(want).is_some_and(|(last, want)| last.gpus < want.gpus) {
            return self.granted_more(grant);
        }
        self.has_all_gpus(id);
        let book = &*self.book;
        let lease = book.leases.get(&id).filter(|lease| open && lease.attempt == grant.attempt);
        // Members come in order of rank.
        let next = lease.filter(|lease| lease.parts.len() == rank);
        let Some((lease, want)) =
            next.and_then(|lease| Some((lease, lease.request.members.get(usize::from(grant.member))?)))
        else {
            return self.tell(Some(id), holds(Rule::Gang, false));
        };
        let machine = book.fleet.machines.get(&grant.node);
        let owner = machine.and_then(|machine| machine.owner);
        let spec = machine.and_then(|machine| machine.spec.as_ref());
        let party = holds(Rule::Party, grant.renter == lease.request.renter && Some(grant.provider) == owner);
        let place = Place { node: grant.node, gpu: grant.gpu, slot: &grant.slot };
        let guest = Guest { lease: id, rank: grant.member, request: &lease.request, want };
        let fits =
            book.fleet.admits(&place, &guest, &Look { gone: &BTreeSet::new(), also: &[] }).and_then(|(class, rate)| {
                equal(Rule::Class, class as u64, grant.class as u64)?;
                let more = book.fleet.surcharge(&place, book.policy.shadow_permille);
                equal(Rule::Rate, rate.0.saturating_add(more), grant.rate.0)?;
                within(Rule::MaxRate, grant.rate.0, lease.request.max_rate.map_or(u64::MAX, |max| max.0))
            });
        let taken = Taken::of((id, grant.attempt, grant.member), grant.renter, machine, &place, want);
        let gpu = spec.and_then(|spec| spec.gpus.iter().find(|gpu| gpu.gpu == grant.gpu));
        if let Some(shares) = &mut self.shares {
            shares.take(grant.renter, bundle(gpu, &taken.slot, taken.beside));
        }
        self.tell(Some(id), party);
        self.tell(Some(id), fits);
        self.book.fleet.put(grant.node, taken);
        if let Some(lease) = self.book.leases.get_mut(&id) {
            let Grant { provider, rate, .. } = *grant;
            lease.parts.push(Part { provider, rate, gpus: 1, metered_ms: 0, billed: false });
        }
        if let Some(gang) = &mut self.gang {
            gang.nodes.insert(grant.node);
        }
    }

    /// One more GPU for the last member.
    fn granted_more(&mut self, grant: &Grant) {
        let (id, run) = (grant.lease, (grant.lease, grant.attempt, grant.member));
        let book = &*self.book;
        let Some((lease, want)) =
            book.leases.get(&id).and_then(|lease| Some((lease, lease.request.members.get(usize::from(grant.member))?)))
        else {
            return;
        };
        let last = lease.parts.last();
        let rate = Rate(last.map_or(0, |last| last.rate.0).saturating_add(grant.rate.0));
        let parties = (grant.renter, Some(grant.provider)) == (lease.request.renter, last.map(|last| last.provider));
        let party = holds(Rule::Party, parties);
        let one_node = holds(Rule::Gpus, book.fleet.standing.get(&run) == Some(&grant.node));
        let place = Place { node: grant.node, gpu: grant.gpu, slot: &grant.slot };
        let guest = Guest { lease: id, rank: grant.member, request: &lease.request, want };
        let fits = one_node.and_then(|()| book.fleet.admits_more(&place, &guest, run)).and_then(|(class, ask)| {
            equal(Rule::Class, class as u64, grant.class as u64)?;
            let more = book.fleet.surcharge(&place, book.policy.shadow_permille);
            equal(Rule::Rate, ask.0.saturating_add(more), grant.rate.0)?;
            within(Rule::MaxRate, rate.0, lease.request.max_rate.map_or(u64::MAX, |max| max.0))
        });
        let spec = book.fleet.machines.get(&grant.node).and_then(|machine| machine.spec.as_ref());
        let gpu = spec.and_then(|spec| spec.gpus.iter().find(|gpu| gpu.gpu == grant.gpu));
        if let Some(shares) = &mut self.shares {
            shares.take(grant.renter, bundle(gpu, &grant.slot, Beside::default()));
        }
        self.tell(Some(id), party);
        self.tell(Some(id), fits);
        self.book.fleet.add(run, grant.gpu);
        if let Some(last) = self.book.leases.get_mut(&id).and_then(|lease| lease.parts.last_mut()) {
            last.rate = rate;
            last.gpus = last.gpus.saturating_add(1);
        }
    }

    /// The last member of a run has all the GPUs that it asked for.
    fn has_all_gpus(&mut self, id: LeaseId) {
        let lease = self.book.leases.get(&id);
        let last =
            lease.and_then(|lease| Some((lease.parts.last()?, lease.request.members.get(lease.parts.len() - 1)?)));
        let all = last.map_or(Ok(()), |(last, want)| equal(Rule::Gpus, want.gpus.into(), last.gpus.into()));
        self.tell(Some(id), all);
    }

    pub(super) fn close_gang(&mut self) {
        let Some(gang) = self.gang.take() else {
            return;
        };
        let now_at = core::mem::replace(&mut self.at, gang.at);
        self.has_all_gpus(gang.lease);
        self.at = now_at;
        let book = &mut *self.book;
        let Some(lease) = book.leases.get_mut(&gang.lease) else {
            return;
        };
        let duration_ms = lease.request.duration_ms;
        let costs = lease.parts.iter().map(|part| cost_of(part.rate.0, duration_ms));
        // Amounts end at the largest one.
        lease.cost = costs.fold(0_u128, u128::saturating_add).min(u64::MAX.into());
        let (renter, cost) = (lease.request.renter, lease.cost);
        lease.kept = cost;
        let (granted, most) = (lease.parts.len() as u64, lease.request.members.len() as u64);
        let whole = within(Rule::Gang, lease.request.min_members, granted);
        let known = within(Rule::Gang, granted, most);
        let one = holds(Rule::Within, book.fleet.are_within(lease.request.within, &gang.nodes));
        let near = book.fleet.are_near(lease.request.max_latency_us, &gang.nodes);
        let spread = within(Rule::MinNodes, lease.request.min_nodes, gang.nodes.len() as u64);
        let end = book.latest_end(duration_ms);
        let pays = book.money.pays(renter, cost, end);
        let payer_of = |id: &LeaseId| book.leases.get(id).map(|lease| lease.request.renter);
        let could_pay = |id: &LeaseId| payer_of(id).is_some_and(|renter| book.money.pays(renter, cost, end).is_ok());
        let passed: Vec<_> = gang.passed.into_iter().filter(|(id, ..)| could_pay(id)).collect();
        book.money.purse(renter).runs += cost;
        self.reserves.entry(renter).or_default().0 += cost;
        let delays = self.delays_booking(gang.lease, end);
        let now_at = core::mem::replace(&mut self.at, gang.at);
        self.tell(Some(gang.lease), whole);
        self.tell(Some(gang.lease), known);
        self.tell(Some(gang.lease), one);
        self.tell(Some(gang.lease), near);
        self.tell(Some(gang.lease), spread);
        self.tell(Some(gang.lease), pays);
        let shown = |key: u128| u64::try_from(key).unwrap_or(u64::MAX);
        for (id, need, have) in passed {
            self.tell(Some(id), Err(Broken { rule: Rule::Order, need: shown(need), have: shown(have) }));
        }
        self.tell(Some(gang.lease), delays);
        self.at = now_at;
    }
}
