//! The vault: paid + refunded + held = deposited, and the token is there.

use std::collections::{BTreeMap, BTreeSet};

use selion_api::Account;
use selion_api::chain::ChainEvent;
use selion_contracts::rpc::BlockTag;
use selion_contracts::{Pool, PoolError};

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
    providers: BTreeSet<Account>,
    /// Paid by pair of provider and renter.
    pairs: BTreeMap<(Account, Account), u64>,
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
            ChainEvent::Claimed { provider, renter, paid, .. } => {
                self.claimed += u128::from(paid.0);
                let total = self.pairs.entry((*provider, *renter)).or_default();
                *total = total.saturating_add(paid.0);
                *self.balances.entry(*renter).or_default() -= i128::from(paid.0);
                self.providers.insert(*provider);
            }
            ChainEvent::CashedOut { amount, .. } => self.cashed += u128::from(amount.0),
            ChainEvent::FeesCashedOut { amount } => self.fees_cashed += u128::from(amount.0),
            _ => {}
        }
    }
}

/// Paid + refunded + what renters still have = deposited, and nobody was paid out of somebody else's deposit.
pub(crate) fn check_books(facts: &Facts) -> Result<String, Finding> {
    let flows = Flows::of(facts);
    let mut pairs: BTreeMap<(Account, Account), u64> = BTreeMap::new();
    for event in facts.events() {
        if let ChainEvent::Claimed { provider, renter, cumulative, paid } = event {
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

/// Every balance that the vault answers is what the events give, and the token balance covers all of them.
pub(super) async fn check_vault(
    pool: &Pool,
    facts: &Facts,
    at: BlockTag,
) -> Result<Result<String, Finding>, PoolError> {
    let flows = Flows::of(facts);
    let mut owed = 0_u128;
    for (renter, told) in &flows.balances {
        let held = pool.account(*renter, at).await?.balance;
        if i128::from(held.0) != *told {
            return Ok(Err(Finding::plain(format!(
                "the vault holds {held} for renter {renter}, its events give {told}"
            ))));
        }
        owed += u128::from(held.0);
    }
    let mut earned = 0_u128;
    for provider in &flows.providers {
        let totals = pool.totals(*provider, at).await?;
        let claimed = u128::from(totals.earned.0) + u128::from(totals.fee.0);
        earned += claimed;
        owed += claimed - u128::from(totals.paid_out.0) - u128::from(totals.fee_out.0);
    }
    if earned != flows.claimed {
        return Ok(Err(Finding::plain(format!(
            "providers and operator earned {earned} by the vault's totals, {} by its events",
            flows.claimed
        ))));
    }
    for ((provider, renter), paid) in &flows.pairs {
        let (claimed, _) = pool.claimed(*provider, *renter, at).await?;
        if claimed.0 != *paid {
            return Ok(Err(Finding::plain(format!(
                "the vault says that provider {provider} claimed {claimed} of renter {renter}, its events give {paid}"
            ))));
        }
    }
    let there = pool.token_balance(pool.at.vault, at).await?;
    Ok(if there >= owed {
        Ok(format!("the vault has {there} and owes {owed}"))
    } else {
        Err(Finding::plain(format!("the vault has {there} and owes {owed}")))
    })
}
