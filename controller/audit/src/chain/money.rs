//! The vault's events: paid + refunded + held = deposited.

use std::collections::BTreeMap;

use selion_api::Account;
use selion_api::chain::ChainEvent;

use super::Facts;
use crate::finding::Finding;

/// Totals of the vault, from its events.
#[derive(Default)]
struct Flows {
    deposited: u128,
    withdrawn: u128,
    claimed: u128,
    cashed: u128,
    fees_cashed: u128,
    /// Left of each renter's deposit.
    balances: BTreeMap<Account, i128>,
}

impl Flows {
    fn of(facts: &Facts) -> Self {
        let mut flows = Self::default();
        for event in facts.events() {
            flows.fold(event);
        }
        flows
    }

    fn fold(&mut self, event: &ChainEvent) {
        match event {
            ChainEvent::Deposited { renter, amount } => {
                self.deposited += u128::from(amount.0);
                *self.balances.entry(*renter).or_default() += i128::from(amount.0);
            }
            ChainEvent::Withdrawn { renter, amount } => {
                self.withdrawn += u128::from(amount.0);
                *self.balances.entry(*renter).or_default() -= i128::from(amount.0);
            }
            ChainEvent::Claimed { renter, paid, .. } => {
                self.claimed += u128::from(paid.0);
                *self.balances.entry(*renter).or_default() -= i128::from(paid.0);
            }
            ChainEvent::CashedOut { amount, .. } => self.cashed += u128::from(amount.0),
            ChainEvent::FeesCashedOut { amount, .. } => self.fees_cashed += u128::from(amount.0),
            _ => {}
        }
    }
}

/// Paid + refunded + what renters still have = deposited, and nobody was paid out of somebody else's deposit.
pub(crate) fn check_books(facts: &Facts) -> Result<String, Finding> {
    let flows = Flows::of(facts);
    let mut pairs: BTreeMap<(Account, Account), u64> = BTreeMap::new();
    for event in facts.events() {
        if let ChainEvent::Claimed { provider, renter, cumulative, paid, .. } = event {
            let total = pairs.entry((*renter, *provider)).or_default();
            *total = total.saturating_add(paid.0);
            if *total > cumulative.0 {
                return Err(Finding::plain(format!(
                    "provider {provider} was paid {total} of renter {renter}, the voucher says {cumulative}"
                )));
            }
        }
    }
    if let Some((renter, left)) = flows.balances.iter().find(|(_, left)| **left < 0) {
        return Err(Finding::plain(format!("more left the deposit of {renter} than came in: {left}")));
    }
    if flows.cashed + flows.fees_cashed > flows.claimed {
        return Err(Finding::plain(format!(
            "{} was cashed out, {} was claimed",
            flows.cashed + flows.fees_cashed,
            flows.claimed
        )));
    }
    let held = flows.deposited - flows.withdrawn - flows.claimed;
    Ok(format!(
        "deposited {} = paid {} + refunded {} + still held {held}",
        flows.deposited, flows.claimed, flows.withdrawn
    ))
}
