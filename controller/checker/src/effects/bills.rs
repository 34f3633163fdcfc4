//! What must hold of bills, transfers and vouchers.

use selion_api::LeaseId;
use selion_api::lease::{BillLine, LeaseState};
use selion_api::unit::MS_PER_HOUR;
use selion_market::{Pocket, Policy, Transfer, VoucherDue};

use super::Entry;
use crate::finding::{Rule, equal, holds, within};
use crate::leases::Stand;

impl Entry<'_> {
    pub(super) fn billed(&mut self, line: &BillLine) {
        self.paying = Some(line.lease);
        let now = self.book.now;
        let Some(lease) = self.book.leases.get_mut(&line.lease) else {
            return self.tell(Some(line.lease), holds(Rule::Lease, false));
        };
        let run = (line.lease, line.attempt, line.member);
        // The line of what was lost comes at once, of the others when all are over.
        let due = self.unbilled.remove(&run) || lease.state == LeaseState::Ending;
        let since = lease.parts.get(usize::from(line.member)).and_then(|part| part.since);
        let most_ms = lease.billable_ms(since, now, &self.book.policy);
        let part = lease.parts.get_mut(usize::from(line.member));
        let Some(part) = part.filter(|part| due && part.attempt == line.attempt) else {
            return self.tell(Some(line.lease), holds(Rule::Bill, false));
        };
        let begun = lease.active_since.zip(part.since);
        let same = (line.renter, line.provider) == (lease.request.renter, part.provider);
        let once = begun.is_some() && !part.billed;
        let most_ms = most_ms.min(part.metered_ms);
        let rate = equal(Rule::Bill, part.rate.0, line.rate.0);
        part.billed = true;
        if part.stand == Stand::Lost {
            part.since = None;
        }
        lease.billed += u128::from(line.amount.0);
        let exact = u64::try_from(cost_of(line.rate.0, line.billable_ms)).unwrap_or(u64::MAX);
        let sum = within(Rule::BillSum, lease.billed, lease.cost);
        for verdict in [
            holds(Rule::Bill, same && once),
            rate,
            equal(Rule::Bill, exact, line.amount.0),
            within(Rule::BillTime, line.billable_ms, most_ms),
            sum,
        ] {
            self.tell(Some(line.lease), verdict);
        }
    }

    /// A run is over: each member billed once if it ever was active, else not at all; what was kept for it is no longer.
    pub(super) fn run_over(&mut self, id: LeaseId) {
        let Some(lease) = self.book.leases.get_mut(&id) else {
            return;
        };
        let begun = || lease.parts.iter().filter(|part| part.since.is_some());
        let (due, lines) = (begun().count(), begun().filter(|part| part.billed).count());
        let renter = lease.request.renter;
        let kept = core::mem::take(&mut lease.kept);
        let purse = self.book.money.purse(renter);
        purse.runs = purse.runs.saturating_sub(kept);
        self.tell(Some(id), equal(Rule::Bill, due as u64, lines as u64));
        self.paid_for(id);
    }

    pub(super) fn moneyed(&mut self, transfer: &Transfer) {
        let verdict = self.book.money.apply(transfer);
        let done = verdict.is_ok();
        self.tell(self.paying, verdict);
        let amount = u128::from(transfer.amount.0);
        match (transfer.from, transfer.to) {
            (Pocket::Free(_), Pocket::Reserved(renter)) => {
                self.reserves.entry(renter).or_default().1 += amount;
            }
            (Pocket::Reserved(renter), Pocket::Owed(_, provider)) if done => {
                self.unvouched.insert((renter, provider));
                let Some(lease) = self.paying.and_then(|id| self.book.leases.get_mut(&id)) else {
                    return;
                };
                let used = amount.min(lease.kept);
                lease.kept -= used;
                let purse = self.book.money.purse(renter);
                purse.runs = purse.runs.saturating_sub(used);
                if let Some(id) = self.paying {
                    self.paid(id, amount);
                }
            }
            _ => {}
        }
    }

    pub(super) fn voucher_due(&mut self, due: &VoucherDue) {
        let (pair, now) = ((due.renter, due.provider), self.book.now);
        let purse = self.book.money.purse(due.renter);
        let raised = purse.raised.get(&due.provider).copied().unwrap_or(0);
        let rose = self.unvouched.remove(&pair);
        self.tell(None, holds(Rule::Voucher, rose));
        self.tell(None, equal(Rule::Voucher, u64::try_from(raised).unwrap_or(u64::MAX), due.cumulative.0));
        self.tell(None, within(Rule::Voucher, due.used_through.0, now.0));
    }
}

/// What a grant keeps for a member that lasts so long: the price of that and of the time to stop it, rounded up, at least
/// one unit, at most the largest amount.
pub(super) fn reserve_of(policy: &Policy, rate: u64, lasts_ms: u64) -> u128 {
    let ms = u128::from(lasts_ms.saturating_add(policy.grace_ms));
    (u128::from(rate) * ms).div_ceil(MS_PER_HOUR.into()).clamp(1, u64::MAX.into())
}

/// `floor(rate * ms / 3_600_000)`, at most the largest amount.
pub(super) fn cost_of(rate: u64, ms: u64) -> u128 {
    (u128::from(rate) * u128::from(ms) / u128::from(MS_PER_HOUR)).min(u64::MAX.into())
}
