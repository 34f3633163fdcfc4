//! A renter makes a lease last longer: it waits or runs, what that costs is covered, and nobody who was promised the place,
//! its owner or a booked lease, gets it later for that. What a lease that waits costs is reserved at its grant, as ever.

use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::lease::{LeaseState, MAX_DURATION_MS, NearestMiss, Refusal, Resource};
use selion_api::{Account, Amount, Hash32, LeaseId, NodeId, Reason, TimeMs};

use crate::booking;
use crate::effect::{Answer, Effect};
use crate::gang;
use crate::lease::is_running;
use crate::ledger::Pocket;
use crate::money;
use crate::place::{Room, World};
use crate::state::{Held, Lease, Progress, State};
use crate::step::{Step, Wake};

/// Most extensions of one lease.
pub const MAX_EXTENSIONS: usize = 64;

/// An extension that a lease had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Extension {
    /// Tells it from every other of the lease.
    pub key: Hash32,
    /// By so much, in milliseconds.
    pub for_ms: u64,
    /// The entry that said so.
    pub entry: u64,
}

/// What an extension comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extends {
    /// The lease has it already, by this entry.
    Already(u64),
    /// It would last so long in all, in milliseconds.
    To(u64),
}

/// What it takes to let a lease run longer.
struct Longer {
    /// Is reserved beside what is.
    cost: Amount,
    /// Where the booked lease goes then, if not where it was to go.
    moved: Option<Vec<(NodeId, Held)>>,
}

impl Lease {
    /// What stands in the way of an answer to a renter: the first place of the lease, and by how much.
    fn short(&self, reason: Reason, resource: Resource, need: u64, have: u64) -> Option<NearestMiss> {
        let resource = Some(resource);
        let first = self.members.first()?;
        Some(NearestMiss { node: first.node, gpu: first.gpus.first().copied(), reason, resource, need, have })
    }
}

impl State {
    /// How long the lease lasts in all with that extension. What it costs and whom it would delay is not looked at.
    ///
    /// # Errors
    ///
    /// The [`Reason`] for which it is refused.
    pub fn may_extend(&self, renter: Account, id: LeaseId, for_ms: u64, key: Hash32) -> Result<Extends, Reason> {
        let lease = self.leases.get(&id).ok_or(Reason::NoSuchLease)?;
        if lease.request.renter != renter {
            return Err(Reason::NotYours);
        }
        match lease.extended.iter().find(|known| known.key == key) {
            Some(same) if same.for_ms == for_ms => return Ok(Extends::Already(same.entry)),
            Some(_) => return Err(Reason::IdempotencyMismatch),
            None => {}
        }
        if lease.state != LeaseState::Waiting && !is_running(lease.state) {
            return Err(Reason::NotLive);
        }
        if for_ms == 0 {
            return Err(Reason::BadRequest);
        }
        let duration_ms = lease.request.duration_ms.saturating_add(for_ms);
        let is_long = duration_ms > MAX_DURATION_MS || lease.extended.len() >= MAX_EXTENSIONS;
        if is_long { Err(Reason::TooLong) } else { Ok(Extends::To(duration_ms)) }
    }

    /// Sets how long a lease lasts, and with that its end.
    fn set_duration(&mut self, id: LeaseId, duration_ms: u64) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        let end_before = booking::end_of(&self.policy, lease);
        lease.request.duration_ms = duration_ms;
        let (runs, expires) = (is_running(lease.state), lease.expires());
        if expires.is_some() && lease.state == LeaseState::Active {
            self.set_deadline(id, expires);
        }
        if runs {
            self.note_end(id, end_before);
        }
    }

    /// Whether a lease that lasts `for_ms` longer since just now may do so, and what it takes.
    fn lasts_longer(&self, id: LeaseId, lease: &Lease, for_ms: u64) -> Result<Longer, Refusal> {
        let refusal = |reason, nearest| Refusal { reason, nearest, lease: Some(id) };
        let all = lease.ends().and_then(|ends| booking::unless_taken_back(&self.policy, lease, ends));
        let Some(end) = all.filter(|_| is_running(lease.state)) else {
            return Ok(Longer { cost: Amount::ZERO, moved: None });
        };
        let runs_until = TimeMs(end.0.saturating_sub(self.policy.ending_ms));
        if let Some(notice) = lease.notice.filter(|notice| notice.by < runs_until) {
            let money = notice.reason == Reason::PaymentRequired;
            let reason = if money { Reason::MoneyLeaves } else { notice.reason };
            return Err(refusal(reason, lease.short(reason, Resource::TimeMs, runs_until.0, notice.by.0)));
        }
        let holds = lease.members.iter().filter(|member| member.progress != Progress::Gone);
        let cost = holds.map(|member| member.rate.reserve(for_ms)).fold(Amount::ZERO, Amount::saturating_add);
        money::covers_until(self, lease.request.renter, cost, end).map_err(|short| {
            let reason = short.means.reason();
            refusal(reason, lease.short(reason, short.means.resource(), short.need, short.have))
        })?;
        let moved = self.beside_longer(id, lease, end).map_err(|at| {
            let reason = Reason::BookedThen;
            refusal(reason, lease.short(reason, Resource::TimeMs, end.0, at.0))
        })?;
        Ok(Longer { cost, moved })
    }

    /// Where the booked lease goes at its time, if it has to go elsewhere since this one runs until `end`. The booked time
    /// if it fits nowhere then.
    fn beside_longer(&self, id: LeaseId, lease: &Lease, end: TimeMs) -> Result<Option<Vec<(NodeId, Held)>>, TimeMs> {
        let Some((booked, holder)) = booking::binding(self, Some(id), &lease.request) else {
            return Ok(None);
        };
        if end <= booked.at {
            return Ok(None);
        }
        let then = || World::new(self, &holder.request, Some(booked.lease), Room::At(booked.at));
        if booking::as_booked(then(), &booked.places).is_some() {
            return Ok(None);
        }
        let places = gang::place(&mut then()).map_err(|_| booked.at)?;
        Ok(Some(booking::taken(&holder.request, holder.attempt, &places)))
    }
}

impl Step<'_> {
    /// A renter makes a lease last longer. The same again changes nothing.
    pub(crate) fn extend(&mut self, renter: Account, id: LeaseId, for_ms: u64, key: Hash32) -> Answer {
        let duration_ms = match self.state.may_extend(renter, id, for_ms, key) {
            Ok(Extends::To(duration_ms)) => duration_ms,
            Ok(Extends::Already(_)) => return Answer::Done,
            Err(reason) => return self.refuse_extension(id, reason),
        };
        if let Some(reason) = self.halted() {
            return self.refuse_extension(id, reason);
        }
        let before_ms = self.state.leases.get(&id).map_or(0, |lease| lease.request.duration_ms);
        // The search sees the end of the lease as it would be; without a place it stays as it was.
        self.state.set_duration(id, duration_ms);
        let Some(lease) = self.state.leases.get(&id) else {
            return Answer::Done;
        };
        match self.state.lasts_longer(id, lease, for_ms) {
            Ok(longer) => {
                self.emit(Effect::Extended { lease: id, duration_ms });
                self.lengthen(id, Extension { key, for_ms, entry: self.seq }, longer);
                Answer::Done
            }
            Err(refusal) => {
                self.state.set_duration(id, before_ms);
                self.refuse(refusal)
            }
        }
    }

    fn refuse_extension(&mut self, id: LeaseId, reason: Reason) -> Answer {
        let lease = (reason != Reason::NoSuchLease).then_some(id);
        self.refuse(Refusal { lease, ..Refusal::plain(reason) })
    }

    /// Keeps the money, and tells the agents.
    fn lengthen(&mut self, id: LeaseId, extension: Extension, longer: Longer) {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        lease.extended.push(extension);
        lease.reserved = lease.reserved.saturating_add(longer.cost);
        let (renter, runs) = (lease.request.renter, is_running(lease.state));
        self.touched.leases.insert(id);
        self.transfer(Pocket::Free(renter), Pocket::Reserved(renter), longer.cost);
        if let (Some(places), Some(booked)) = (longer.moved, &mut self.state.booking) {
            booked.places = places;
        }
        if runs {
            self.touch_desired(id);
        }
        // A booking that stands lower may have to be for later.
        self.wake_up(if runs { Wake::All } else { Wake::Order });
    }
}
