//! What must hold of a run that is granted.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use selion_api::lease::Beside;
use selion_api::{LeaseId, Rate, TimeMs};
use selion_market::Grant;

use super::bills::reserve_of;
use super::{Entry, Gang};
use crate::bundle::bundle;
use crate::fair::Shares;
use crate::finding::{Broken, Rule, equal, holds, within};
use crate::fleet::{Guest, Look, Place, Taken};
use crate::leases::{Part, Stand};
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
        let booked = self.book.booked.map(|(booked, _)| booked);
        self.book.booked = self.book.booked.filter(|(booked, _)| *booked != id);
        self.gang = Some(Gang {
            lease: id,
            at: self.at,
            nodes: BTreeSet::new(),
            lost: None,
            booked,
            ranks: Vec::new(),
            passed,
        });
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
            if !book.may_sit_beside_booked(other, &waiter.request) {
                continue;
            }
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
        let book = &*self.book;
        let open = self.gang.as_ref().filter(|gang| gang.lease == id);
        let lease = book.leases.get(&id).filter(|lease| open.is_some() && lease.attempt == grant.attempt);
        if lease.is_some() && self.lacks_gpus(id).is_some_and(|(rank, ..)| rank == grant.member) {
            return self.granted_more(grant);
        }
        self.has_all_gpus(id);
        let book = &*self.book;
        let open = self.gang.as_ref().filter(|gang| gang.lease == id);
        let lease = book.leases.get(&id).filter(|lease| open.is_some() && lease.attempt == grant.attempt);
        let lost = open.and_then(|gang| gang.lost.as_ref());
        // Members come in order of rank; of those that are repaired only what was lost.
        let next = lease.filter(|lease| match lost {
            None => lease.parts.len() == usize::from(grant.member),
            Some(lost) => lost.first() == Some(&grant.member),
        });
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
        let anew = open.filter(|gang| gang.lost.is_none());
        let before = anew.and_then(|gang| self.repair_before(lease, gang.booked, &place));
        self.tell(Some(id), party);
        self.tell(Some(id), fits);
        self.tell(before, holds(Rule::Order, before.is_none()));
        self.book.fleet.put(grant.node, taken);
        let Some((lease, gang)) = self.book.leases.get_mut(&id).zip(self.gang.as_mut()) else {
            return;
        };
        let part = Part {
            attempt: grant.attempt,
            node: grant.node,
            stand: if gang.lost.is_some() { Stand::Joins } else { Stand::With },
            since: None,
            provider: grant.provider,
            rate: grant.rate,
            gpus: 1,
            metered_ms: 0,
            used_ms: 0,
            paid: 0,
            paid_at: TimeMs(0),
            billed: false,
        };
        match &mut gang.lost {
            None => lease.parts.push(part),
            Some(lost) => {
                lost.pop_first();
                if let Some(old) = lease.parts.get_mut(usize::from(grant.member)) {
                    *old = part;
                }
            }
        }
        gang.ranks.push(grant.member);
        gang.nodes.insert(grant.node);
    }

    /// One more GPU for the member that was granted last.
    fn granted_more(&mut self, grant: &Grant) {
        let (id, run) = (grant.lease, (grant.lease, grant.attempt, grant.member));
        let rank = usize::from(grant.member);
        let book = &*self.book;
        let Some((lease, want)) =
            book.leases.get(&id).and_then(|lease| Some((lease, lease.request.members.get(rank)?)))
        else {
            return;
        };
        let last = lease.parts.get(rank);
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
        if let Some(last) = self.book.leases.get_mut(&id).and_then(|lease| lease.parts.get_mut(rank)) {
            last.rate = rate;
            last.gpus = last.gpus.saturating_add(1);
        }
    }

    /// The member that was granted last, how many GPUs it asked for and how many it has, if those are fewer.
    fn lacks_gpus(&self, id: LeaseId) -> Option<(u16, u16, u16)> {
        let rank = *self.gang.as_ref().filter(|gang| gang.lease == id)?.ranks.last()?;
        let lease = self.book.leases.get(&id)?;
        let (part, want) = (lease.parts.get(usize::from(rank))?, lease.request.members.get(usize::from(rank))?);
        (part.gpus < want.gpus).then_some((rank, want.gpus, part.gpus))
    }

    /// The member that was granted last has all the GPUs that it asked for.
    fn has_all_gpus(&mut self, id: LeaseId) {
        let all = self.lacks_gpus(id).map_or(Ok(()), |(_, need, have)| equal(Rule::Gpus, need.into(), have.into()));
        self.tell(Some(id), all);
    }

    pub(super) fn close_gang(&mut self) {
        let Some((id, at)) = self.gang.as_ref().map(|gang| (gang.lease, gang.at)) else {
            return;
        };
        let now_at = core::mem::replace(&mut self.at, at);
        self.has_all_gpus(id);
        self.at = now_at;
        let Some(gang) = self.gang.take() else {
            return;
        };
        let book = &mut *self.book;
        let Some(lease) = book.leases.get_mut(&gang.lease) else {
            return;
        };
        let whole_ms = lease.request.duration_ms.max(book.policy.least_ms);
        let lasts_ms = if gang.lost.is_some() { lease.rest_ms(book.now) } else { whole_ms };
        let parts = gang.ranks.iter().filter_map(|rank| lease.parts.get(usize::from(*rank)));
        let costs = parts.map(|part| reserve_of(&book.policy, part.rate.0, lasts_ms));
        // Amounts end at the largest one.
        let cost = costs.fold(0_u128, u128::saturating_add).min(u64::MAX.into());
        let (renter, repair) = (lease.request.renter, gang.lost.is_some());
        lease.cost = lease.cost.saturating_add(cost).min(u64::MAX.into());
        lease.kept = lease.kept.saturating_add(cost);
        let (granted, most) = (lease.parts.len() as u64, lease.request.members.len() as u64);
        let whole = within(Rule::Gang, lease.request.min_members, granted);
        let known = within(Rule::Gang, granted, most);
        let all = equal(Rule::Gang, 0, gang.lost.map_or(0, |lost| lost.len() as u64));
        let one = holds(Rule::Within, book.fleet.are_within(lease.request.within, &gang.nodes));
        let near = book.fleet.are_near(lease.request.max_latency_us, &gang.nodes);
        let spread = within(Rule::MinNodes, lease.request.min_nodes, gang.nodes.len() as u64);
        let duration_ms = lease.request.duration_ms;
        let expires = book.now.plus(lease.rest_ms(book.now));
        let end = if repair { expires.plus(book.policy.ending_ms) } else { book.latest_end(duration_ms) };
        let pays = book.money.pays(renter, cost, end);
        let sit = book.leases.get(&gang.lease).map_or(Ok(()), |lease| book.all_sit(&lease.request));
        let payer_of = |id: &LeaseId| book.leases.get(id).map(|lease| lease.request.renter);
        let may = |renter| book.money.pays(renter, cost, end).is_ok() && book.is_within_free_use(renter).is_ok();
        let could_pay = |id: &LeaseId| payer_of(id).is_some_and(may);
        let free_use = if repair { Ok(()) } else { book.is_within_free_use(renter) };
        let passed: Vec<_> = gang.passed.into_iter().filter(|(id, ..)| could_pay(id)).collect();
        book.money.purse(renter).runs += cost;
        self.reserves.entry(renter).or_default().0 += cost;
        let delays = self.delays_booking(gang.lease, end, repair);
        let now_at = core::mem::replace(&mut self.at, gang.at);
        self.tell(Some(gang.lease), whole);
        self.tell(Some(gang.lease), known);
        self.tell(Some(gang.lease), all);
        self.tell(Some(gang.lease), one);
        self.tell(Some(gang.lease), near);
        self.tell(Some(gang.lease), spread);
        self.tell(Some(gang.lease), pays);
        self.tell(Some(gang.lease), free_use);
        self.tell(Some(gang.lease), sit);
        let shown = |key: u128| u64::try_from(key).unwrap_or(u64::MAX);
        for (id, need, have) in passed {
            self.tell(Some(id), Err(Broken { rule: Rule::Order, need: shown(need), have: shown(have) }));
        }
        self.tell(Some(gang.lease), delays);
        self.at = now_at;
    }
}
