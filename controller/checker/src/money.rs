//! The purses of renters, and what the chain says came and went.

use alloc::collections::{BTreeMap, BTreeSet};

use selion_api::chain::ChainEvent;
use selion_api::{Account, Address, TimeMs};
use selion_market::{Pocket, Transfer};

use crate::finding::{Broken, Rule, Verdict, holds, within};

/// A key that may sign for a renter.
#[derive(Clone)]
struct Key {
    cap: u64,
    until: TimeMs,
    revoked: bool,
}

/// One renter's money.
#[derive(Clone, Default)]
pub(crate) struct Purse {
    free: u128,
    reserved: u128,
    thawing: u128,
    /// On its way back in all, as the chain says.
    asked_back: u128,
    /// From when on that may leave.
    ready: TimeMs,
    owed: BTreeMap<Account, u128>,
    /// What was ever made owed, by provider.
    pub raised: BTreeMap<Account, u128>,
    /// What was ever claimed, by provider, in the entries before this one.
    claimed: BTreeMap<Account, u128>,
    /// What is claimed in this entry, by provider.
    claims: BTreeMap<Account, u128>,
    /// What is kept for his present runs: that is what is reserved.
    pub runs: u128,
    /// What the chain took out of his reserve: claims above what was billed, and withdrawals.
    leaked: u128,
    key: Option<Key>,
}

impl Purse {
    /// What is promised to a provider when so much was claimed, and does not lie ready for it.
    fn lacks(&self, provider: &Account, claimed: u128) -> u128 {
        let of = |map: &BTreeMap<Account, u128>| map.get(provider).copied().unwrap_or(0);
        of(&self.raised).saturating_sub(claimed).saturating_sub(of(&self.owed))
    }

    fn claimed_before(&self, provider: &Account) -> u128 {
        self.claimed.get(provider).copied().unwrap_or(0)
    }

    /// What all providers together are promised and does not lie ready, with the claims of this entry.
    fn lacks_in_all(&self) -> u128 {
        let claimed =
            |provider: &Account| self.claimed_before(provider) + self.claims.get(provider).copied().unwrap_or(0);
        self.raised.keys().map(|provider| self.lacks(provider, claimed(provider))).sum()
    }
}

/// All purses, and what an entry still has to account for.
#[derive(Clone, Default)]
pub(crate) struct Money {
    purses: BTreeMap<Account, Purse>,
    inside: u128,
    /// Most that was inside in this entry.
    peak: u128,
    /// Deposits of this entry's block that are not in a purse yet.
    came: BTreeMap<Account, u128>,
    /// Claims and withdrawals of this entry's block that have not left a purse yet.
    went: BTreeMap<Account, u128>,
    /// Renters whose money or runs changed in this entry.
    changed: BTreeSet<Account>,
    /// Renters of whom more was to leave than they had free after the entry before, with the time from when on it may.
    short: BTreeMap<Account, TimeMs>,
}

impl Money {
    /// A renter's purse, to be changed.
    pub(crate) fn purse(&mut self, renter: Account) -> &mut Purse {
        self.changed.insert(renter);
        self.purses.entry(renter).or_default()
    }

    /// A fact of the chain.
    pub(crate) fn fold(&mut self, event: &ChainEvent, delegate: Address) {
        match event {
            ChainEvent::Deposited { renter, amount } => *self.came.entry(*renter).or_default() += u128::from(amount.0),
            ChainEvent::Withdrawn { renter, amount } => {
                *self.went.entry(*renter).or_default() += u128::from(amount.0);
                // With a withdrawal nothing is asked back any more, though claims may have left less than was.
                self.purse(*renter).asked_back = 0;
            }
            ChainEvent::Claimed { renter, provider, paid, key, .. } => {
                *self.went.entry(*renter).or_default() += u128::from(paid.0);
                let purse = self.purse(*renter);
                *purse.claims.entry(*provider).or_default() += u128::from(paid.0);
                if *key == Some(delegate)
                    && let Some(held) = &mut purse.key
                {
                    held.cap = held.cap.saturating_sub(paid.0);
                }
            }
            ChainEvent::Thawed { renter, amount, ready } => {
                let purse = self.purse(*renter);
                (purse.asked_back, purse.ready) = (amount.0.into(), *ready);
            }
            ChainEvent::KeyGranted { renter, key, cap, until } if *key == delegate => {
                self.purse(*renter).key = Some(Key { cap: cap.0, until: *until, revoked: false });
            }
            ChainEvent::KeyRevoked { renter, key, .. } if *key == delegate => {
                if let Some(key) = &mut self.purse(*renter).key {
                    key.revoked = true;
                }
            }
            _ => {}
        }
    }

    /// Another key: grants that name the old one mean nothing.
    pub(crate) fn forget_keys(&mut self) {
        for purse in self.purses.values_mut() {
            purse.key = None;
        }
    }

    fn pocket(&mut self, pocket: Pocket) -> Option<&mut u128> {
        match pocket {
            Pocket::Outside => None,
            Pocket::Free(renter) => Some(&mut self.purse(renter).free),
            Pocket::Reserved(renter) => Some(&mut self.purse(renter).reserved),
            Pocket::Thawing(renter) => Some(&mut self.purse(renter).thawing),
            Pocket::Owed(renter, provider) => Some(self.purse(renter).owed.entry(provider).or_default()),
        }
    }

    /// Moves money, if there is a way and enough of it.
    pub(crate) fn apply(&mut self, transfer: &Transfer) -> Verdict {
        let Transfer { from, to, amount } = *transfer;
        let amount = u128::from(amount.0);
        if let (Pocket::Free(renter), Pocket::Reserved(_) | Pocket::Thawing(_)) = (from, to) {
            within(Rule::Promise, self.purse(renter).lacks_in_all(), 0_u8)?;
        }
        let expected = match (from, to) {
            (Pocket::Outside, Pocket::Free(renter)) => Some(self.came.entry(renter).or_default()),
            (Pocket::Free(a) | Pocket::Reserved(a) | Pocket::Thawing(a) | Pocket::Owed(a, _), Pocket::Outside) => {
                Some(self.went.entry(a).or_default())
            }
            (Pocket::Free(a), Pocket::Reserved(b) | Pocket::Thawing(b))
            | (Pocket::Reserved(a) | Pocket::Thawing(a), Pocket::Free(b))
            | (Pocket::Reserved(a), Pocket::Owed(b, _)) => {
                holds(Rule::Path, a == b)?;
                None
            }
            (Pocket::Free(a), Pocket::Owed(b, provider)) => {
                holds(Rule::Path, a == b)?;
                let purse = self.purse(a);
                // Claims of this entry may have come after it.
                within(Rule::Promise, amount, purse.lacks(&provider, purse.claimed_before(&provider)))?;
                None
            }
            _ => return holds(Rule::Path, false),
        };
        if let Some(expected) = expected {
            within(Rule::Chain, amount, *expected)?;
            *expected = expected.saturating_sub(amount);
        }
        if let Some(pocket) = self.pocket(from) {
            within(Rule::Short, amount, *pocket)?;
            *pocket = pocket.saturating_sub(amount);
        }
        if let Some(pocket) = self.pocket(to) {
            *pocket = pocket.saturating_add(amount);
        }
        match (from, to) {
            (Pocket::Outside, _) => {
                self.inside = self.inside.saturating_add(amount);
                self.peak = self.peak.max(self.inside);
            }
            (from, Pocket::Outside) => {
                self.inside = self.inside.saturating_sub(amount);
                if let Pocket::Reserved(renter) = from {
                    self.purse(renter).leaked += amount;
                }
            }
            (Pocket::Reserved(_), Pocket::Owed(renter, provider)) => {
                *self.purse(renter).raised.entry(provider).or_default() += amount;
            }
            _ => {}
        }
        Ok(())
    }

    /// At the end of an entry all deposits are in the books, but for those that would pass the largest amount.
    pub(crate) fn all_came(&mut self) -> Verdict {
        self.went.clear();
        let left: u128 = core::mem::take(&mut self.came).into_values().sum();
        if core::mem::replace(&mut self.peak, self.inside).saturating_add(left) > u128::from(u64::MAX) {
            return Ok(());
        }
        within(Rule::Chain, left, 0_u8)
    }

    /// At the end of an entry what is reserved is what runs keep, less what the chain took of it, and as much thaws as
    /// the renter asked for, as far as he has it free.
    pub(crate) fn balance(&mut self) -> Verdict {
        for renter in core::mem::take(&mut self.changed) {
            let Some(purse) = self.purses.get_mut(&renter) else {
                continue;
            };
            for (provider, paid) in core::mem::take(&mut purse.claims) {
                *purse.claimed.entry(provider).or_default() += paid;
            }
            if purse.asked_back > purse.thawing {
                self.short.insert(renter, purse.ready);
            } else {
                self.short.remove(&renter);
            }
            within(Rule::Reserve, purse.reserved, purse.runs)?;
            within(Rule::Reserve, purse.runs, purse.reserved + purse.leaked)?;
            within(Rule::Chain, purse.thawing, purse.asked_back)?;
            if purse.free > 0 {
                within(Rule::Chain, purse.asked_back, purse.thawing)?;
                within(Rule::Promise, purse.lacks_in_all(), 0_u8)?;
            }
        }
        Ok(())
    }

    /// Renters whose runs are paid no longer than until now: more is to leave than they have free, and that may be soon.
    pub(crate) fn unpaid(&self, margin_ms: u64, now: TimeMs) -> impl Iterator<Item = Account> {
        let past = move |ready: TimeMs| ready.0.saturating_sub(margin_ms) <= now.0;
        self.short.iter().filter(move |(_, ready)| past(**ready)).map(|(renter, _)| *renter)
    }

    /// Until when what a renter runs is paid, if more is to leave than he has free, as the effects so far have it.
    pub(crate) fn paid_until(&self, renter: Account, margin_ms: u64) -> Option<TimeMs> {
        let purse = self.purses.get(&renter).filter(|purse| purse.asked_back > purse.thawing)?;
        Some(TimeMs(purse.ready.0.saturating_sub(margin_ms)))
    }

    /// Whether nothing is kept for a renter's runs any more.
    pub(crate) fn keeps_nothing(&self, renter: Account) -> bool {
        self.purses.get(&renter).is_none_or(|purse| purse.reserved == 0)
    }

    /// What a renter has in the vault and did not ask back, free or reserved.
    pub(crate) fn means(&self, renter: Account) -> u128 {
        self.purses.get(&renter).map_or(0, |purse| purse.free + purse.reserved)
    }

    /// Whether `cost` can be kept for a lease of `renter` that ends by `end`: there is a live key, and it is free, within
    /// the cap, and before the key's end.
    pub(crate) fn pays(&self, renter: Account, cost: u128, end: TimeMs) -> Verdict {
        let short = Broken { rule: Rule::Payable, need: u64::try_from(cost).unwrap_or(u64::MAX), have: 0 };
        let Some((purse, key)) = self.purses.get(&renter).and_then(|purse| Some((purse, purse.key.as_ref()?))) else {
            return Err(short);
        };
        let promised = purse.reserved + purse.owed.values().sum::<u128>() + purse.lacks_in_all();
        if key.revoked {
            return Err(short);
        }
        let signable = u128::from(key.cap).saturating_sub(promised);
        within(Rule::Payable, cost, purse.free.min(signable))?;
        within(Rule::Payable, end.0, key.until.0)
    }
}
