//! Vouchers and claims: nobody is made to pay, and nobody is paid, more than the log bills.

use std::collections::BTreeMap;

use selion_api::chain::ChainEvent;
use selion_api::lease::LeaseState;
use selion_api::{Account, Amount, LeaseId, TimeMs};
use selion_market::{Effect, Input};

use crate::effects::{GrantSeen, Run, Seen, add_up};
use crate::entries::{Item, Log};
use crate::finding::Finding;

type Pair = (Account, Account);

#[derive(Default)]
struct Books {
    /// Members whose bill is not final, by run.
    open: BTreeMap<Run, GrantSeen>,
    active: BTreeMap<(LeaseId, u32), TimeMs>,
    /// When members that were repaired began.
    joined: BTreeMap<Run, TimeMs>,
    billed: BTreeMap<Pair, u64>,
    due: BTreeMap<Pair, Amount>,
    claims: u64,
}

/// Every voucher total is covered by final bills and running use, no total falls, and no claim on chain is above the
/// pair's voucher total in the log at its time.
pub(crate) fn check(log: &Log) -> Result<String, Finding> {
    let mut books = Books::default();
    for item in &log.items {
        if let Input::Block(block) = &item.input {
            for event in &block.events {
                books.claimed(item, event)?;
            }
        }
        for leaf in &item.effects {
            books.take(item, leaf)?;
        }
    }
    Ok(format!(
        "{} pairs of renter and provider, {} claims, none above what the log bills",
        books.due.len(),
        books.claims
    ))
}

impl Books {
    fn claimed(&mut self, item: &Item, event: &ChainEvent) -> Result<(), Finding> {
        let ChainEvent::Claimed { provider, renter, cumulative, .. } = event else {
            return Ok(());
        };
        self.claims += 1;
        let due = self.due.get(&(*renter, *provider)).copied().unwrap_or_default();
        if *cumulative > due {
            return Err(Finding::at(
                item.seq,
                format!("provider {provider} claimed {cumulative} of renter {renter}, the log had billed {due}"),
            ));
        }
        Ok(())
    }

    fn take(&mut self, item: &Item, leaf: &[u8]) -> Result<(), Finding> {
        match Seen::read(leaf) {
            Some(Seen::Grant(grant)) => {
                add_up(&mut self.open, grant);
            }
            Some(Seen::Bill(bill)) => {
                self.open.remove(&bill.run);
                let total = self.billed.entry((bill.renter, bill.provider)).or_default();
                *total = total.saturating_add(bill.amount.0);
            }
            Some(Seen::Other(effect)) => match *effect {
                Effect::Moved { lease, state: LeaseState::Active, attempt, .. } => {
                    self.active.insert((lease, attempt), item.at());
                }
                Effect::Joined { lease, attempt, member } => {
                    self.joined.insert((lease, attempt, member), item.at());
                }
                Effect::VoucherDue(due) => {
                    let pair = (due.renter, due.provider);
                    self.judge(item, pair, due.cumulative)?;
                    self.due.insert(pair, due.cumulative);
                }
                _ => {}
            },
            None => {}
        }
        Ok(())
    }

    fn judge(&self, item: &Item, pair: Pair, cumulative: Amount) -> Result<(), Finding> {
        let before = self.due.get(&pair).copied().unwrap_or_default();
        let (renter, provider) = pair;
        if cumulative < before {
            return Err(Finding::at(
                item.seq,
                format!("the voucher total of {renter} to {provider} falls from {before} to {cumulative}"),
            ));
        }
        let running: u64 = self
            .open
            .values()
            .filter(|grant| (grant.renter, grant.provider) == pair)
            .map(|grant| {
                let since = self.joined.get(&grant.run).or_else(|| self.active.get(&(grant.run.0, grant.run.1)));
                since.map_or(0, |since| grant.rate.bill(item.at().since(*since)).0)
            })
            .fold(0, u64::saturating_add);
        let most = self.billed.get(&pair).copied().unwrap_or_default().saturating_add(running);
        if cumulative.0 > most {
            return Err(Finding::at(
                item.seq,
                format!(
                    "the voucher total of {renter} to {provider} is {cumulative}, bills and running use give {most} at most"
                ),
            ));
        }
        Ok(())
    }
}
