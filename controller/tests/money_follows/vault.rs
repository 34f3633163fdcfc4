//! The vault as the contract has it, in small: what it holds, who may move it, and until when.

use std::collections::BTreeMap;

use selion_api::chain::ChainEvent;
use selion_api::{Account, Amount, TimeMs};

use crate::pool::DELEGATE;

/// A renter's deposit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deposit {
    pub balance: u64,
    pub thawing: u64,
    pub ready: u64,
}

/// The delegate's key for a renter.
#[derive(Clone, Copy, Debug)]
struct Key {
    cap: u64,
    until: u64,
    dead_from: Option<u64>,
}

/// A signed total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed {
    pub cumulative: u64,
    pub used_through: u64,
    pub epoch: u32,
}

pub struct Vault {
    pub thaw_ms: u64,
    grace_ms: u64,
    pub deposits: BTreeMap<Account, Deposit>,
    keys: BTreeMap<Account, Key>,
    pub claimed: BTreeMap<(Account, Account), u64>,
    pub epoch: u32,
    passed_at: u64,
}

impl Vault {
    pub fn new(thaw_ms: u64, grace_ms: u64) -> Self {
        let (deposits, keys, claimed) = Default::default();
        Self { thaw_ms, grace_ms, deposits, keys, claimed, epoch: 1, passed_at: 0 }
    }

    pub fn deposit(&mut self, renter: Account, amount: u64) -> ChainEvent {
        self.deposits.entry(renter).or_default().balance += amount;
        ChainEvent::Deposited { renter, amount: Amount(amount) }
    }

    /// What the key may still sign for, its end, and whether it is revoked.
    pub fn key(&self, renter: Account) -> Option<(u64, u64, bool)> {
        self.keys.get(&renter).map(|key| (key.cap, key.until, key.dead_from.is_some()))
    }

    /// What the key may still sign for, and its end; nothing of one that is revoked.
    pub fn left(&self, renter: Account) -> (u64, u64) {
        let lives = self.keys.get(&renter).filter(|key| key.dead_from.is_none());
        lives.map_or((0, 0), |key| (key.cap, key.until))
    }

    /// Grants the key as much as it may still sign for, or anew once a revoked one is dead. `None` if it reverts.
    pub fn grant(&mut self, renter: Account, cap: u64, until: u64, now: u64) -> Option<ChainEvent> {
        if let Some(old) = self.keys.get(&renter) {
            match old.dead_from {
                Some(dead_from) if now < dead_from => return None,
                None if cap < old.cap || until < old.until => return None,
                _ => {}
            }
        }
        self.keys.insert(renter, Key { cap, until, dead_from: None });
        Some(ChainEvent::KeyGranted { renter, key: DELEGATE, cap: Amount(cap), until: TimeMs(until) })
    }

    pub fn revoke(&mut self, renter: Account, now: u64) -> Option<ChainEvent> {
        let key = self.keys.get_mut(&renter).filter(|key| key.dead_from.is_none())?;
        let dead_from = now + self.thaw_ms;
        key.dead_from = Some(dead_from);
        Some(ChainEvent::KeyRevoked { renter, key: DELEGATE, dead_from: TimeMs(dead_from) })
    }

    pub fn thaw(&mut self, renter: Account, amount: u64, now: u64) -> ChainEvent {
        let deposit = self.deposits.entry(renter).or_default();
        deposit.thawing = amount.min(deposit.balance);
        deposit.ready = if deposit.thawing == 0 { 0 } else { now + self.thaw_ms };
        ChainEvent::Thawed { renter, amount: Amount(deposit.thawing), ready: TimeMs(deposit.ready) }
    }

    pub fn withdraw(&mut self, renter: Account, now: u64) -> Option<ChainEvent> {
        let deposit = self.deposits.get_mut(&renter).filter(|it| it.thawing > 0 && it.ready <= now)?;
        let amount = deposit.thawing.min(deposit.balance);
        deposit.balance -= amount;
        (deposit.thawing, deposit.ready) = (0, 0);
        Some(ChainEvent::Withdrawn { renter, amount: Amount(amount) })
    }

    pub fn pass_on(&mut self, now: u64) -> ChainEvent {
        self.epoch += 1;
        self.passed_at = now;
        ChainEvent::AuthorityChanged { epoch: self.epoch, authority: Account([3; 20]), owner: Account([4; 20]) }
    }

    /// Pays a voucher as far as epoch, key, cap and balance reach; nothing is paid of one that is void.
    pub fn claim(&mut self, renter: Account, provider: Account, voucher: Signed, now: u64) -> Vec<ChainEvent> {
        let last = voucher.epoch + 1 == self.epoch && now < self.passed_at + self.grace_ms;
        let before = self.claimed.get(&(renter, provider)).copied().unwrap_or(0);
        let (Some(deposit), Some(key)) = (self.deposits.get_mut(&renter), self.keys.get_mut(&renter)) else {
            return Vec::new();
        };
        let lives = voucher.used_through <= key.until && key.dead_from.is_none_or(|dead_from| now < dead_from);
        let paid = voucher.cumulative.saturating_sub(before).min(key.cap).min(deposit.balance);
        if !(voucher.epoch == self.epoch || last) || !lives || paid == 0 {
            return Vec::new();
        }
        deposit.balance -= paid;
        key.cap -= paid;
        let cumulative = before + paid;
        self.claimed.insert((renter, provider), cumulative);
        let (cumulative, paid, key) = (Amount(cumulative), Amount(paid), Some(DELEGATE));
        vec![ChainEvent::Claimed { provider, renter, cumulative, paid, key }]
    }
}
