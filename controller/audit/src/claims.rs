//! Vouchers and claims: nobody is made to pay, and nobody is paid, more than the log bills.

use std::collections::BTreeMap;

use selion_api::chain::ChainEvent;
use selion_api::lease::LeaseState;
use selion_api::{Account, Amount, LeaseId, TimeMs};
use selion_market::{Effect, Input, Pocket, Transfer};

use crate::effects::{GrantSeen, Run, Seen, add_up};
use crate::entries::Item;
use crate::finding::Finding;
use crate::pass::Watch;

type Pair = (Account, Account);

/// Every voucher total is what final bills come to, as far as there was money for them, and running use at most; no total falls, and no claim on chain is
/// above the pair's voucher total in the log at its time.
#[derive(Default)]
pub(crate) struct Claims {
    /// Members whose bill is not final, by pair and run.
    open: BTreeMap<Pair, BTreeMap<Run, GrantSeen>>,
    active: BTreeMap<(LeaseId, u32), TimeMs>,
    /// When members that were repaired began.
    joined: BTreeMap<Run, TimeMs>,
    billed: BTreeMap<Pair, u64>,
    /// What was taken out of the renter's reserve: less than the bills where his money left the vault while leases ran.
    moved: BTreeMap<Pair, u64>,
    due: BTreeMap<Pair, Amount>,
    claims: u64,
}

impl Watch for Claims {
    fn take(&mut self, item: &Item) -> Result<(), Finding> {
        if let Input::Block(block) = &item.input {
            block.events.iter().try_for_each(|event| self.claimed(item, event))?;
        }
        item.effects.iter().try_for_each(|leaf| self.effect(item, leaf))
    }

    fn said(&self) -> String {
        format!(
            "{} pairs of renter and provider, {} claims, none above what the log bills",
            self.due.len(),
            self.claims
        )
    }
}

impl Claims {
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

    /// Judges an effect of the entry.
    pub(crate) fn effect(&mut self, item: &Item, leaf: &[u8]) -> Result<(), Finding> {
        match Seen::read(leaf) {
            Some(Seen::Grant(grant)) => {
                add_up(self.open.entry((grant.renter, grant.provider)).or_default(), grant);
            }
            Some(Seen::Bill(bill)) => {
                let pair = (bill.renter, bill.provider);
                self.open.entry(pair).or_default().remove(&bill.run);
                self.joined.remove(&bill.run);
                let total = self.billed.entry(pair).or_default();
                *total = total.saturating_add(bill.amount.0);
            }
            Some(Seen::Other(effect)) => match *effect {
                Effect::Moved { lease, state: LeaseState::Active, attempt, .. } => {
                    self.active.insert((lease, attempt), item.at());
                }
                Effect::Joined { lease, attempt, member } => {
                    self.joined.insert((lease, attempt, member), item.at());
                }
                Effect::Moneyed(Transfer { from: Pocket::Reserved(_), to: Pocket::Owed(renter, provider), amount }) => {
                    let moved = self.moved.entry((renter, provider)).or_default();
                    *moved = moved.saturating_add(amount.0);
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
            .get(&pair)
            .into_iter()
            .flat_map(BTreeMap::values)
            .map(|grant| {
                let since = self.joined.get(&grant.run).or_else(|| self.active.get(&(grant.run.0, grant.run.1)));
                since.map_or(0, |since| grant.rate.bill(item.at().since(*since)).0)
            })
            .fold(0, u64::saturating_add);
        let billed = self.billed.get(&pair).copied().unwrap_or_default();
        let moved = self.moved.get(&pair).copied().unwrap_or_default();
        if cumulative.0 < billed.min(moved) {
            return Err(Finding::at(
                item.seq,
                format!(
                    "the voucher total of {renter} to {provider} is {cumulative}, final bills come to {billed}, and {moved} was moved \
                     for them"
                ),
            ));
        }
        let most = billed.saturating_add(running);
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
