//! The sweeper: claims signed vouchers, one transaction a provider, so that an absent provider is paid too. What is at risk
//! decides what is claimed and when: see [`choice`].

pub mod choice;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use selion_api::agent::SignedVoucher;
use selion_api::chain::ChainEvent;
use selion_api::{Account, Amount, TimeMs};
use selion_contracts::voucher::batch_digest;
use selion_contracts::{Pool, Voucher};
use selion_market::{Input, State};

use self::choice::{Batch, Haste, Memory, Owed, Rules, choose};
use super::outbox::Desk;
use crate::keys::Keys;
use crate::sequencer::Step;
use crate::store::outbox::{Kind, Order};
use crate::store::signed_voucher::Kept;
use crate::store::{Store, signed_voucher};

/// What the chain paid of a pair's total, as far as the log has it. What is billed and lies in no pocket need not be paid: its
/// money may have left the vault, and the voucher is good for the renter's next deposit.
#[must_use]
pub fn claimed(state: &State, renter: Account, provider: Account) -> Amount {
    state.claimed.get(&(renter, provider)).copied().unwrap_or_default()
}

/// Whose vouchers are claimed without waiting. Clones share the list.
#[derive(Clone, Default)]
pub struct Urgent(Arc<Mutex<Told>>);

/// Who is in a hurry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Everybody: authority has passed, and the vouchers of its epoch will end.
    pub all: bool,
    /// Renters who thaw or who revoked the pool's key.
    pub renters: BTreeSet<Account>,
}

impl Urgent {
    /// Adds to the list.
    pub fn add(&self, more: Told) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.all |= more.all;
        told.renters.extend(more.renters);
    }

    /// Takes the list.
    #[must_use]
    pub fn take(&self) -> Told {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whose vouchers this entry makes urgent, if anybody's.
#[must_use]
pub fn urgent(step: &Step) -> Option<Told> {
    let Input::Block(block) = &step.input else {
        return None;
    };
    let mut told = Told::default();
    for event in &block.events {
        match event {
            ChainEvent::Thawed { renter, amount, .. } if *amount > Amount::ZERO => drop(told.renters.insert(*renter)),
            ChainEvent::KeyRevoked { renter, .. } => drop(told.renters.insert(*renter)),
            ChainEvent::AuthorityChanged { .. } => told.all = true,
            _ => {}
        }
    }
    (told != Told::default()).then_some(told)
}

/// What a pass is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    /// What makes a claim due.
    pub rules: Rules,
    /// Who is in a hurry.
    pub told: Told,
    /// The time.
    pub now: TimeMs,
}

/// Who signs a batch, and for which pool.
#[derive(Clone, Copy)]
pub struct Signing<'a> {
    /// The authority's keys.
    pub keys: &'a Keys,
    /// Their epoch.
    pub epoch: u32,
    /// The pool.
    pub pool: &'a Pool,
}

impl Signing<'_> {
    /// Whether the voucher can be what was kept: the authority's key signed it, or, in an earlier epoch, its total is no more
    /// than was billed.
    fn is_sound(&self, voucher: &SignedVoucher, billed: Amount) -> bool {
        if voucher.epoch != self.epoch {
            return voucher.epoch < self.epoch && voucher.cumulative <= billed;
        }
        let by = Voucher::from(voucher).recover(&voucher.authority_signature, self.pool.chain_id, self.pool.at.vault);
        by == Some(self.keys.authority())
    }

    /// One transaction that claims these vouchers of one provider, with one signature of the authority over all of them.
    fn claim(&self, provider: Account, vouchers: &[SignedVoucher]) -> Order {
        let (pool, plain) = (self.pool, vouchers.iter().map(Voucher::from).collect::<Vec<_>>());
        let digest = batch_digest(pool.chain_id, pool.at.vault, provider, self.epoch, &plain);
        let call = pool.claim_aggregated(provider, self.epoch, &self.keys.sign_batch(digest), vouchers);
        Order { kind: Kind::Claim, subject: provider.to_string(), target: call.to, calldata: call.data }
    }
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Transactions ordered.
    pub orders: u32,
    /// Vouchers in them.
    pub claimed: u32,
    /// True if something that is urgent was not ordered yet: another claim for the provider is on its way.
    pub waits: bool,
}

/// Claims what is due, and remembers what was tried.
#[derive(Default)]
pub struct Claims {
    memory: Memory,
}

impl Claims {
    /// Orders what is due, one transaction a provider. One claim for a provider is on its way at a time. Who is told to be in a
    /// hurry is remembered until he is tried; after a restart State still says who should not wait long.
    ///
    /// # Errors
    ///
    /// When SQLite fails; what was ordered before stays ordered.
    pub async fn pass(
        &mut self,
        store: &Store,
        read: impl Fn(&mut dyn FnMut(&State)),
        desk: &Desk,
        signing: &Signing<'_>,
        when: When,
    ) -> sqlx::Result<Report> {
        let When { rules, told, now } = when;
        let kept = refreshed(store, &read, now).await?;
        self.memory.keep(now, |renter, provider| kept.contains_key(&(renter, provider)));
        for (pair, one) in &kept {
            if told.all {
                self.memory.hurry(pair.0, pair.1);
            } else if told.renters.contains(&pair.0) {
                self.memory.heed(*pair, one.voucher.cumulative.saturating_sub(one.claimed), &rules, now);
            }
        }
        let under_way: BTreeSet<String> = desk.subjects(Kind::Claim).await?.into_iter().collect();
        let mut owed = Vec::with_capacity(kept.len());
        read(&mut |state| owed = kept.values().map(|kept| weighed(state, kept, &self.memory)).collect());
        owed.retain(|one| {
            let claimed = kept.get(&(one.renter, one.provider)).map_or(Amount::ZERO, |kept| kept.claimed);
            self.memory.may_try(one, claimed, &rules, now) && !under_way.contains(&one.provider.to_string())
        });
        let mut report = Report::default();
        for Batch { provider, items } in choose(&owed, &rules, now) {
            let mut vouchers = Vec::with_capacity(items.len());
            for Owed { renter, .. } in items {
                let Some(kept) = kept.get(&(renter, provider)) else { continue };
                self.memory.tried(renter, provider, kept.claimed, now);
                let mut billed = Amount::ZERO;
                read(&mut |state| billed = state.billed.get(&(renter, provider)).copied().unwrap_or_default());
                if signing.is_sound(&kept.voucher, billed) {
                    vouchers.push(kept.voucher.clone());
                } else {
                    tracing::warn!(%renter, %provider, "a signed voucher in the database was altered; it is not claimed");
                }
            }
            if !vouchers.is_empty() {
                desk.order(&signing.claim(provider, &vouchers), now).await?;
                report.orders += 1;
                report.claimed += u32::try_from(vouchers.len()).unwrap_or(u32::MAX);
            }
        }
        report.waits = self.memory.has_hurry();
        Ok(report)
    }
}

/// Every voucher with something that is not claimed, after what the log knows of claims was written down.
async fn refreshed(
    store: &Store,
    read: &impl Fn(&mut dyn FnMut(&State)),
    now: TimeMs,
) -> sqlx::Result<BTreeMap<(Account, Account), Kept>> {
    let mut open = BTreeMap::new();
    for mut kept in signed_voucher::unclaimed(&store.writer).await? {
        let (renter, provider) = (kept.voucher.renter, kept.voucher.provider);
        let mut paid = Amount::ZERO;
        read(&mut |state| paid = claimed(state, renter, provider));
        if paid > kept.claimed {
            signed_voucher::mark_claimed(&store.writer, renter, provider, paid, now).await?;
            (kept.claimed, kept.unclaimed_since) = (paid, Some(now));
        }
        if kept.claimed < kept.voucher.cumulative {
            open.insert((renter, provider), kept);
        }
    }
    Ok(open)
}

/// What of a kept voucher is at risk, and how much hurry there is.
fn weighed(state: &State, kept: &Kept, memory: &Memory) -> Owed {
    let SignedVoucher { renter, provider, cumulative, epoch, .. } = kept.voucher;
    let thaws = state.books.get(&renter).is_some_and(|books| books.thawing > Amount::ZERO);
    let revoked = state.grants.get(&renter).is_some_and(|grant| grant.revoked);
    let passed = state.pool.as_ref().is_some_and(|pool| epoch < pool.epoch);
    let haste = if memory.is_in_hurry(renter, provider) {
        Haste::Now
    } else if thaws || revoked || passed {
        Haste::Soon
    } else {
        Haste::None
    };
    let amount = cumulative.saturating_sub(kept.claimed);
    Owed { renter, provider, amount, since: kept.unclaimed_since.unwrap_or_default(), haste }
}

#[cfg(test)]
#[path = "claims/pass_tests.rs"]
mod tests;
