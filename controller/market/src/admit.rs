//! What is turned away before anything is searched for: what contradicts itself, what nobody could pay, and more leases
//! than an account or the pool may have. The controller asks this before a request enters the log, so that strangers cost
//! the log and the state nothing; the step asks it again, since the line may have grown meanwhile.

use selion_api::lease::Refusal;
use selion_api::{Account, Amount, LeaseId, LeaseRequest, Reason, TimeMs};

use crate::state::{Load, State};

/// What becomes of a request before it enters the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is to be entered.
    Enter,
    /// The same request made this lease within a day: there is nothing to enter.
    Repeated(LeaseId),
    /// It is turned away, and nothing of it stays.
    Refused(Refusal),
}

impl State {
    /// Judges a request that would be entered at `at`, in time that does not grow with the fleet.
    #[must_use]
    pub fn admit(&self, request: &LeaseRequest, at: TimeMs) -> Admission {
        match self.first_answer(request, at) {
            Some(Ok(id)) => return Admission::Repeated(id),
            Some(Err(refusal)) => return Admission::Refused(refusal),
            None => {}
        }
        // What is to be forgotten by now counts no more, but only a step forgets: then the step judges the number.
        let stale = self.forget.first().is_some_and(|(due, _)| *due <= at);
        let asked = match self.may_ask(request) {
            Err(Reason::TooManyLeases | Reason::PoolAtLimit) if stale => Ok(()),
            asked => asked,
        };
        let judged = asked.and_then(|()| self.may_pay(request.renter, at));
        judged.map_or_else(|reason| Admission::Refused(Refusal::plain(reason)), |()| Admission::Enter)
    }

    /// What a repeat of a request is told: its lease, or that the key came with another body; `None` if it is no repeat.
    pub(crate) fn first_answer(&self, request: &LeaseRequest, at: TimeMs) -> Option<Result<LeaseId, Refusal>> {
        let first = self.answers.get(&request.idem).filter(|first| first.until > at)?;
        let lease = Some(first.lease);
        Some(match first.body == request.body() {
            true => Ok(first.lease),
            false => Err(Refusal { lease, ..Refusal::plain(Reason::IdempotencyMismatch) }),
        })
    }

    /// Whether the request makes sense and its account and the pool may have one lease more.
    pub(crate) fn may_ask(&self, request: &LeaseRequest) -> Result<(), Reason> {
        if request.check().is_err() {
            return Err(Reason::BadRequest);
        }
        if self.chain_broken {
            return Err(Reason::ChainBroken);
        }
        let own = self.loads.get(&request.renter).copied().unwrap_or_default();
        if own.waiting >= self.policy.max_waiting || own.leases >= self.policy.max_leases {
            return Err(Reason::TooManyLeases);
        }
        let full = |has: usize, most: u32| u32::try_from(has).is_ok_and(|has| has >= most);
        if full(self.waiting.len(), self.policy.max_waiting_all) || full(self.leases.len(), self.policy.max_leases_all)
        {
            return Err(Reason::PoolAtLimit);
        }
        Ok(())
    }

    /// Whether the account can pay anything at all: it has a free deposit and a live grant with something left, and
    /// has not used up what is free.
    fn may_pay(&self, renter: Account, at: TimeMs) -> Result<(), Reason> {
        let (free, signable, until) = self.means(renter);
        if free == Amount::ZERO || signable == Amount::ZERO || until <= at {
            return Err(Reason::PaymentRequired);
        }
        self.may_use_free(renter, Amount::ZERO, at).map_err(|short| short.means.reason())
    }

    /// Changes the count of an account's leases; one that has none is forgotten.
    pub(crate) fn load_of(&mut self, renter: Account, change: impl FnOnce(&mut Load)) {
        let load = self.loads.entry(renter).or_default();
        change(load);
        if *load == Load::default() {
            self.loads.remove(&renter);
        }
    }

    /// Puts a lease into the line.
    pub(crate) fn line_up(&mut self, id: LeaseId) {
        if self.waiting.insert(id) {
            self.count_waiting(id, |waiting| waiting.saturating_add(1));
        }
    }

    /// Takes a lease out of the line, if it is there.
    pub(crate) fn leave_line(&mut self, id: LeaseId) {
        if self.waiting.remove(&id) {
            self.count_waiting(id, |waiting| waiting.saturating_sub(1));
        }
    }

    fn count_waiting(&mut self, id: LeaseId, change: fn(u32) -> u32) {
        if let Some(renter) = self.leases.get(&id).map(|lease| lease.request.renter) {
            self.load_of(renter, |load| load.waiting = change(load.waiting));
        }
    }
}
