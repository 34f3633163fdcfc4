//! What a lease costs: reserved at its grant, owed as it is used, the rest given back at its end.

use selion_api::lease::Resource;
use selion_api::{Account, Amount, LeaseId, LeaseRequest, Rate, Reason, TimeMs};

use crate::effect::{Effect, VoucherDue};
use crate::input::Policy;
use crate::ledger::{Pocket, Transfer};
use crate::state::State;
use crate::step::Step;

/// Which means of a renter falls short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// His free deposit, in token base units.
    Deposit,
    /// What the pool's key may still sign for, in token base units; nothing without a live grant.
    Grant,
    /// The end of that grant, in milliseconds UTC.
    GrantEnd,
    /// What he may use without a bill, in token base units: [`crate::free_use`].
    FreeUse,
}

impl Means {
    /// What a renter is told of it.
    pub(crate) fn reason(self) -> Reason {
        if self == Self::FreeUse { Reason::FreeUseSpent } else { Reason::PaymentRequired }
    }

    /// What its numbers count.
    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::Deposit => Resource::Deposit,
            Self::Grant => Resource::Grant,
            Self::GrantEnd => Resource::GrantUntilMs,
            Self::FreeUse => Resource::FreeUse,
        }
    }
}

/// What falls short, what is needed of it and what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uncovered {
    pub means: Means,
    pub need: u64,
    pub have: u64,
}

/// What a grant keeps for one member that lasts `lasts_ms`: that and the time it may take to be stopped, rounded up.
pub(crate) fn reserve(policy: &Policy, rate: Rate, lasts_ms: u64) -> Amount {
    rate.reserve(lasts_ms.saturating_add(policy.grace_ms))
}

/// The latest time at which a lease granted at `at` can still be running.
pub(crate) fn latest_end(state: &State, request: &LeaseRequest, at: TimeMs) -> TimeMs {
    let policy = &state.policy;
    at.plus(policy.hold_ms)
        .plus(policy.prepare_ms)
        .plus(policy.start_ms)
        .plus(request.duration_ms)
        .plus(policy.ending_ms)
}

/// Whether `total` can be kept for the request: from the free deposit, within what the delegated key may still sign
/// for, and before that grant ends. Without a live grant nothing is covered. And the
/// renter must not have used up what is free.
pub(crate) fn covers(state: &State, request: &LeaseRequest, total: Amount, at: TimeMs) -> Result<(), Uncovered> {
    covers_until(state, request.renter, total, latest_end(state, request, at))?;
    state.may_use_free(request.renter, Amount::ZERO, at)
}

/// As [`covers`], for what can still be running until `end`, whatever was free so far.
pub(crate) fn covers_until(state: &State, renter: Account, total: Amount, end: TimeMs) -> Result<(), Uncovered> {
    let within = |means, need, have| if need > have { Err(Uncovered { means, need, have }) } else { Ok(()) };
    let (free, signable, until) = state.means(renter);
    within(Means::Deposit, total.0, free.0)?;
    within(Means::Grant, total.0.max(1), signable.0)?;
    within(Means::GrantEnd, end.0, until.0)
}

impl State {
    /// What a renter can lease with: his free deposit, what the pool's key may still sign for, and when its grant ends.
    /// Nothing may be signed without a live grant.
    #[must_use]
    pub fn means(&self, renter: Account) -> (Amount, Amount, TimeMs) {
        let free = self.ledger.holds(Pocket::Free(renter));
        let Some(key) = self.grants.get(&renter).filter(|key| !key.revoked) else {
            return (free, Amount::ZERO, TimeMs(0));
        };
        let promised = self.ledger.owed_by(renter).saturating_add(self.unfunded(renter));
        let kept = self.ledger.holds(Pocket::Reserved(renter)).saturating_add(promised);
        (free, key.cap.saturating_sub(kept), key.until)
    }
}

impl Step<'_> {
    /// Moves money; false, and nothing moved, if the pocket does not hold it.
    pub(crate) fn transfer(&mut self, from: Pocket, to: Pocket, amount: Amount) -> bool {
        let transfer = Transfer { from, to, amount };
        if self.state.ledger.apply(transfer).is_err() {
            return false;
        }
        if amount > Amount::ZERO && from != to {
            for pocket in [from, to] {
                match pocket {
                    Pocket::Outside => {}
                    Pocket::Free(one) | Pocket::Reserved(one) | Pocket::Thawing(one) => {
                        self.touched.accounts.insert(one);
                    }
                    Pocket::Owed(renter, provider) => self.touched.accounts.extend([renter, provider]),
                }
            }
            self.emit(Effect::Moneyed(transfer));
        }
        true
    }

    /// Moves as much of `amount` as `from` holds, and tells how much.
    pub(crate) fn transfer_up_to(&mut self, from: Pocket, to: Pocket, amount: Amount) -> Amount {
        let part = amount.min(self.state.ledger.holds(from));
        if self.transfer(from, to, part) { part } else { Amount::ZERO }
    }

    /// Makes a member's use so far owed. Never more than was reserved: the reserve covers duration and grace, so
    /// only a deposit that left on chain while leases ran can make it short. False if it was short: such a lease may not run
    /// on.
    pub(crate) fn owe(&mut self, id: LeaseId, rank: u16) -> bool {
        let Some(lease) = self.state.leases.get(&id) else {
            return true;
        };
        let Some(member) = lease.members.get(usize::from(rank)) else {
            return true;
        };
        let (renter, provider) = (lease.request.renter, member.provider);
        let due = member.rate.bill(member.billable_ms).saturating_sub(member.vouched);
        let used_through = member.since.unwrap_or(self.at).plus(member.billable_ms);
        let paid =
            self.transfer_up_to(Pocket::Reserved(renter), Pocket::Owed(renter, provider), due.min(lease.reserved));
        let at = self.at;
        if let Some(lease) = self.state.leases.get_mut(&id) {
            lease.reserved = lease.reserved.saturating_sub(paid);
            if let Some(member) = lease.members.get_mut(usize::from(rank)) {
                member.vouched = member.vouched.saturating_add(paid);
                member.vouched_at = at;
            }
        }
        if paid > Amount::ZERO {
            let total = self.state.billed.entry((renter, provider)).or_default();
            *total = total.saturating_add(paid);
            let through = self.raised.entry((renter, provider)).or_default();
            *through = (*through).max(used_through.min(at));
        }
        paid == due
    }

    /// Calls for a voucher for every pair whose total rose.
    pub(crate) fn vouch(&mut self) {
        for ((renter, provider), used_through) in core::mem::take(&mut self.raised) {
            let cumulative = self.state.billed.get(&(renter, provider)).copied().unwrap_or_default();
            self.emit(Effect::VoucherDue(VoucherDue { renter, provider, cumulative, used_through }));
        }
    }

    /// Gives back `amount` of what a run of a lease has reserved and does not use.
    pub(crate) fn give_back(&mut self, id: LeaseId, amount: Amount) {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        let renter = lease.request.renter;
        let part = amount.min(lease.reserved);
        lease.reserved = lease.reserved.saturating_sub(part);
        self.transfer_up_to(Pocket::Reserved(renter), Pocket::Free(renter), part);
        self.apportion(renter);
    }
}
