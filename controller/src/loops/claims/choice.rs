//! Which vouchers are claimed now: those with the most at risk first, and each of them in the end. Pure, so that a
//! property test can play years of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use selion_api::{Account, Amount, TimeMs};

/// Vouchers in one transaction at most: about 7 million gas if every pair is new.
pub const MOST: usize = 200;
/// Transactions ordered in one pass at most.
pub const ORDERS: usize = 12;
/// One place of so many goes to whoever waits longest, whatever it is worth.
const OLDEST: usize = 10;
/// What a claim costs, as a part of the sum that is worth one: less than this is dust, which calls for no claim by its value.
const DUST: u64 = 50;
/// How much sooner a voucher grows old whose renter is about to take his money or his key away.
const SOONER: u64 = 24;
/// Longest wait, in milliseconds, of such a voucher for its age, and after its first claim that moved nothing. The terms of a
/// pool with real GPUs give its provider a day at least.
const HOUR: u64 = 3_600_000;
/// Longest wait of a claim that moved nothing, as a multiple of the age at which every voucher is claimed.
const PATIENCE: u64 = 10;

/// What makes a claim due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What is owed to one provider, in token base units, when his vouchers are claimed.
    pub claim_min: Amount,
    /// Age at which a voucher is claimed whatever it is worth, in milliseconds.
    pub claim_ms: u64,
}

impl Rules {
    fn dust(&self) -> Amount {
        Amount((self.claim_min.0 / DUST).max(1))
    }

    /// Wait after the first claim that moved nothing.
    fn first_wait(&self, haste: Haste) -> u64 {
        let most = if haste == Haste::None { u64::MAX } else { HOUR };
        (self.claim_ms / SOONER).clamp(1, most)
    }
}

/// How much hurry there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// The renter's money stays where it is.
    #[default]
    None,
    /// The renter is thawing money or has revoked the pool's key, or the voucher is of an earlier epoch.
    Soon,
    /// Such a thing has just happened, or somebody asks for the claim, and none was tried since.
    Now,
}

/// What is owed by one renter to one provider and not claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// Who pays.
    pub renter: Account,
    /// Who earns.
    pub provider: Account,
    /// How much, in token base units; never nothing.
    pub amount: Amount,
    /// Since when.
    pub since: TimeMs,
    /// How much hurry there is.
    pub haste: Haste,
}

impl Owed {
    /// Whether this pair is claimed whatever else its provider is owed.
    fn is_due(&self, rules: &Rules, now: TimeMs) -> bool {
        let age = now.since(self.since);
        match self.haste {
            Haste::None => age >= rules.claim_ms,
            Haste::Soon => self.amount >= rules.dust() || age >= rules.first_wait(self.haste),
            Haste::Now => true,
        }
    }
}

/// One transaction: vouchers of these renters for one provider, those with the most at risk first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Who earns.
    pub provider: Account,
    /// What is claimed.
    pub items: Vec<Owed>,
}

impl Batch {
    fn haste(&self) -> Haste {
        self.items.iter().map(|owed| owed.haste).max().unwrap_or_default()
    }

    fn amount(&self) -> Amount {
        sum(&self.items)
    }

    fn since(&self) -> TimeMs {
        self.items.iter().map(|owed| owed.since).min().unwrap_or_default()
    }
}

fn sum<'a>(owed: impl IntoIterator<Item = &'a Owed>) -> Amount {
    owed.into_iter().fold(Amount::ZERO, |sum, one| sum.saturating_add(one.amount))
}

/// Chooses what is claimed now, one batch a provider: those in a hurry first, and of these the ones with the most at risk.
#[must_use]
pub fn choose(owed: &[Owed], rules: &Rules, now: TimeMs) -> Vec<Batch> {
    let mut by_provider: BTreeMap<Account, Vec<Owed>> = BTreeMap::new();
    for one in owed {
        by_provider.entry(one.provider).or_default().push(*one);
    }
    let batches = by_provider.into_iter().filter_map(|(provider, owed)| {
        let items = due(owed, rules, now);
        (!items.is_empty()).then_some(Batch { provider, items })
    });
    let risk = |batch: &Batch| (batch.haste(), batch.amount());
    first(batches.collect(), ORDERS, risk, Batch::since)
}

/// What of a provider's vouchers is claimed now: those that are due; and where all together are worth a claim, all but dust.
fn due(mut owed: Vec<Owed>, rules: &Rules, now: TimeMs) -> Vec<Owed> {
    let dust = rules.dust();
    let worth = sum(owed.iter().filter(|one| one.amount >= dust));
    let all = worth >= rules.claim_min.max(dust);
    owed.retain(|one| all && one.amount >= dust || one.is_due(rules, now));
    first(owed, MOST, |one| (one.haste, one.amount), |one| one.since)
}

/// At most `most` of `all`: those with the most at risk, largest first, and behind them those that wait longest.
fn first<T, R: Ord>(mut all: Vec<T>, most: usize, risk: impl Fn(&T) -> R, since: impl Fn(&T) -> TimeMs) -> Vec<T> {
    all.sort_by_cached_key(|one| Reverse(risk(one)));
    if all.len() > most {
        let oldest = most.div_ceil(OLDEST);
        all[most - oldest..].sort_by_key(since);
        all.truncate(most);
    }
    all
}

/// Remembers which claims moved nothing, so that gas is not burnt for them again and again, and which pairs are in a hurry.
#[derive(Default)]
pub struct Memory {
    tried: BTreeMap<(Account, Account), Tried>,
    hurry: BTreeSet<(Account, Account)>,
    /// When pairs were last claimed in a hurry, for as long as that keeps their dust from another one.
    hurried: BTreeMap<(Account, Account), TimeMs>,
}

struct Tried {
    /// What the chain had paid of the pair's total before.
    claimed: Amount,
    at: TimeMs,
    /// Tries, this one included, since the chain paid anything.
    tries: u32,
}

impl Memory {
    /// The pair is claimed before all that are in no hurry, once, whatever became of its last claim. Only once: what can
    /// never be paid would keep its place before what can.
    pub fn hurry(&mut self, renter: Account, provider: Account) {
        self.hurry.insert((renter, provider));
    }

    /// There is news of the renter: the pair, of which so much is not claimed, is in a hurry. Dust is so once an hour at most:
    /// who thaws again and again would burn the gas of a claim for each of his providers each time.
    pub fn heed(&mut self, (renter, provider): (Account, Account), unclaimed: Amount, rules: &Rules, now: TimeMs) {
        let last = self.hurried.get(&(renter, provider));
        let lately = last.is_some_and(|at| now.since(*at) < rules.first_wait(Haste::Soon));
        if !lately || unclaimed >= rules.dust() {
            self.hurry(renter, provider);
        }
    }

    /// Whether the pair is in a hurry, and was not tried since.
    #[must_use]
    pub fn is_in_hurry(&self, renter: Account, provider: Account) -> bool {
        self.hurry.contains(&(renter, provider))
    }

    /// Whether any pair is.
    #[must_use]
    pub fn has_hurry(&self) -> bool {
        !self.hurry.is_empty()
    }

    /// Whether a claim of the pair may be tried, of which the chain has paid `claimed` so far. One that moved nothing waits
    /// twice as long each time.
    #[must_use]
    pub fn may_try(&self, one: &Owed, claimed: Amount, rules: &Rules, now: TimeMs) -> bool {
        let tried = self.tried.get(&(one.renter, one.provider)).filter(|tried| tried.claimed >= claimed);
        let Some(tried) = tried.filter(|_| one.haste != Haste::Now) else {
            return true;
        };
        let doubled = 1_u64.checked_shl(tried.tries.saturating_sub(1)).unwrap_or(u64::MAX);
        let most = rules.claim_ms.saturating_mul(PATIENCE).max(1);
        now.since(tried.at) >= rules.first_wait(one.haste).saturating_mul(doubled).min(most)
    }

    /// A claim of the pair is tried.
    pub fn tried(&mut self, renter: Account, provider: Account, claimed: Amount, now: TimeMs) {
        if self.hurry.remove(&(renter, provider)) {
            self.hurried.insert((renter, provider), now);
        }
        let before = self.tried.get(&(renter, provider)).filter(|tried| tried.claimed >= claimed);
        let tries = before.map_or(0, |tried| tried.tries).saturating_add(1);
        self.tried.insert((renter, provider), Tried { claimed, at: now, tries });
    }

    /// Forgets every pair but these, and what was claimed in a hurry an hour ago.
    pub fn keep(&mut self, now: TimeMs, still: impl Fn(Account, Account) -> bool) {
        self.hurried.retain(|_, at| now.since(*at) < HOUR);
        self.tried.retain(|(renter, provider), _| still(*renter, *provider));
        self.hurry.retain(|(renter, provider)| still(*renter, *provider));
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
