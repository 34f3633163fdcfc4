//! Claiming alone: what the vouchers in the state directory are worth, without the pool's controller.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use selion_api::agent::SignedVoucher;
use selion_api::{Account, Address, Amount, Hash32, TimeMs};
use selion_contracts::{BlockTag, Pool, PoolError, Rpc, Signer, Voucher};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::agent::PROVIDER_KEY;
use crate::book::Book;
use crate::config::{Claiming, Config};
use crate::courier::now;
use crate::error::chain;
use crate::guard;
use crate::join::JoinError;
use crate::staging::blocking;

/// Vouchers in one transaction at most.
const MOST: usize = 100;
/// The agent looks whether something would be lost this often.
const EVERY: Duration = Duration::from_secs(60);
/// A voucher that is worth nothing after less than this, in milliseconds, is claimed. The pool's controller claims as soon as
/// it hears of the reason, so that only what it left is claimed here.
const NEAR_MS: u64 = 6 * 3_600_000;
/// The controller has left a voucher alone for long after this, in milliseconds: it claims after a day by default.
const LONG_MS: u64 = 48 * 3_600_000;

/// What a claim brought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClaimReport {
    /// Vouchers that were above what the chain had paid.
    pub vouchers: usize,
    /// What the chain paid for them, before the operator's fee.
    pub claimed: Amount,
    /// What it did not pay: the renter's deposit is short, or the key is dead.
    pub left: Amount,
    /// The transactions.
    pub transactions: Vec<Hash32>,
}

/// Claims the vouchers of this state directory with the owner's key, which must be in it and have gas.
///
/// # Errors
///
/// [`JoinError`].
pub async fn claim(config: &Config) -> Result<ClaimReport, JoinError> {
    let controller = config.pool.ok_or(JoinError::NoPool)?;
    let pool = Pool::open(Rpc::new(&config.chain_rpc)?, controller).await?;
    // Not through the book: the agent that runs holds its lock.
    let path = config.state_dir.join(PROVIDER_KEY);
    if !path.exists() {
        return Err(JoinError::NoKey { path });
    }
    let signer = Signer::open_or_create(&path)?;
    Ok(claim_all(&pool, &Book::vouchers_in(&config.state_dir)?, &signer).await?)
}

/// Claims all of `vouchers` that the chain has not paid, the largest sums first. Anybody may send this; only the providers
/// that the vouchers name are credited.
///
/// # Errors
///
/// [`PoolError`]; what was claimed before stays claimed.
pub async fn claim_all(pool: &Pool, vouchers: &[SignedVoucher], signer: &Signer) -> Result<ClaimReport, PoolError> {
    let mut open = Vec::new();
    for voucher in vouchers {
        let paid = paid(pool, voucher).await?;
        if paid < voucher.cumulative {
            open.push((voucher.cumulative.saturating_sub(paid), voucher.clone()));
        }
    }
    open.sort_by_key(|(owed, _)| Reverse(*owed));
    let mut report = ClaimReport { vouchers: open.len(), ..ClaimReport::default() };
    for batch in open.chunks(MOST) {
        let batch: Vec<SignedVoucher> = batch.iter().map(|(_, voucher)| voucher.clone()).collect();
        let receipt = pool.send(signer, pool.claim_many(&batch)).await?;
        report.transactions.push(receipt.tx);
    }
    for (owed, voucher) in open {
        let left = voucher.cumulative.saturating_sub(paid(pool, &voucher).await?);
        report.left = report.left.saturating_add(left);
        report.claimed = report.claimed.saturating_add(owed.saturating_sub(left));
    }
    Ok(report)
}

/// What the chain has paid of the pair's total.
async fn paid(pool: &Pool, voucher: &SignedVoucher) -> Result<Amount, PoolError> {
    pool.claimed(voucher.provider, voucher.renter, BlockTag::Latest).await.map(|(claimed, _)| claimed)
}

/// Why a voucher would be lost if nobody claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peril {
    /// The renter's money may leave.
    Thaw,
    /// The renter's key will be dead.
    Revoked,
    /// The authority's epoch will count no more.
    Epoch,
    /// The controller claims nothing.
    Alone,
}

/// What the chain says of a voucher with something to claim.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// What is not claimed.
    owed: Amount,
    /// When money of the renter may leave, if any thaws.
    thaws: Option<TimeMs>,
    /// When the key that signed is dead, if it was revoked.
    dead_from: Option<TimeMs>,
    /// Through when the authority's signature counts.
    epoch_until: TimeMs,
    /// Since when the chain has paid nothing more of it.
    waits_since: TimeMs,
}

/// Why the agent claims the voucher now, if it does. What nobody can claim any more is left alone.
fn peril(facts: &Facts, least: Amount, now: TimeMs) -> Option<Peril> {
    let is_lost = |end: TimeMs| end <= now;
    if facts.owed < least.max(Amount(1)) || facts.dead_from.is_some_and(is_lost) || is_lost(facts.epoch_until) {
        return None;
    }
    let is_near = |end: TimeMs| end <= now.plus(NEAR_MS);
    if facts.thaws.is_some_and(is_near) {
        Some(Peril::Thaw)
    } else if facts.dead_from.is_some_and(is_near) {
        Some(Peril::Revoked)
    } else if is_near(facts.epoch_until) {
        Some(Peril::Epoch)
    } else {
        (now.since(facts.waits_since) >= LONG_MS).then_some(Peril::Alone)
    }
}

/// Claims by itself what would be lost, for as long as the agent lives.
pub(crate) struct Collector {
    book: Arc<Book>,
    chain_rpc: String,
    least: Amount,
    /// What the chain had paid of each renter's total when it was last seen to rise, and when that was seen.
    seen: BTreeMap<Account, (Amount, TimeMs)>,
    /// Totals that were claimed already: what the chain did not pay of them, it will not pay now.
    tried: BTreeSet<(Account, Amount)>,
    is_poor: bool,
}

impl Collector {
    /// `None` if the owner does not want it, or keeps his key elsewhere.
    pub(crate) fn new(config: &Config, book: Arc<Book>) -> Option<Self> {
        if config.claim == Claiming::Never || !book.dir().join(PROVIDER_KEY).exists() {
            return None;
        }
        let (chain_rpc, least) = (config.chain_rpc.clone(), Amount(config.claim_min));
        let (seen, tried) = (BTreeMap::new(), BTreeSet::new());
        Some(Self { book, chain_rpc, least, seen, tried, is_poor: false })
    }

    /// Looks again and again.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // The state belongs to no pool before the first link.
            if self.book.seen().pool.is_none() {
                continue;
            }
            match self.pass(now()).await {
                Ok(ClaimReport { vouchers: 0, .. }) => {}
                Ok(report) => tracing::info!(?report, "vouchers that would have been lost were claimed"),
                Err(error) => {
                    tracing::warn!(error = chain(&error), "vouchers cannot be looked after; the next look is soon")
                }
            }
        }
    }

    /// One look.
    pub(crate) async fn pass(&mut self, now: TimeMs) -> Result<ClaimReport, JoinError> {
        let book = Arc::clone(&self.book);
        let vouchers = blocking(move || book.all_vouchers()).await?;
        if vouchers.is_empty() {
            return Ok(ClaimReport::default());
        }
        let kept: BTreeSet<_> = vouchers.iter().map(|voucher| (voucher.renter, voucher.cumulative)).collect();
        self.tried.retain(|one| kept.contains(one));
        let pool = guard::open(&self.book, &self.chain_rpc).await?;
        let mut lost = Vec::new();
        for voucher in vouchers {
            let facts = self.facts(&pool, &voucher, now).await?;
            let Some(peril) = facts.and_then(|facts| peril(&facts, self.least, now)) else { continue };
            if !self.tried.contains(&(voucher.renter, voucher.cumulative)) {
                tracing::info!(renter = %voucher.renter, ?peril, "a voucher would be lost and is claimed");
                lost.push(voucher);
            }
        }
        if lost.is_empty() || !self.can_pay(&pool).await? {
            return Ok(ClaimReport::default());
        }
        let signer = Signer::open_or_create(&self.book.dir().join(PROVIDER_KEY))?;
        let report = claim_all(&pool, &lost, &signer).await?;
        self.tried.extend(lost.iter().map(|voucher| (voucher.renter, voucher.cumulative)));
        Ok(report)
    }

    /// What the chain says of the voucher; `None` if it is paid.
    async fn facts(&mut self, pool: &Pool, voucher: &SignedVoucher, now: TimeMs) -> Result<Option<Facts>, PoolError> {
        let SignedVoucher { renter, cumulative, epoch, .. } = *voucher;
        if self.seen.get(&renter).is_some_and(|(claimed, _)| *claimed >= cumulative) {
            return Ok(None);
        }
        let claimed = paid(pool, voucher).await?;
        let seen = self.seen.entry(renter).or_insert((claimed, now));
        if claimed > seen.0 {
            *seen = (claimed, now);
        }
        let waits_since = seen.1;
        if claimed >= cumulative {
            return Ok(None);
        }
        let (thawing, ready) = pool.thawing(renter, BlockTag::Latest).await?;
        let signer = Voucher::from(voucher).recover(&voucher.renter_signature, pool.chain_id, pool.at.vault);
        let key = match signer {
            Some(signer) => pool.key(renter, Address(signer.0), BlockTag::Latest).await?,
            None => None,
        };
        let (_, epoch_until) = pool.authority_of(epoch, BlockTag::Latest).await?;
        Ok(Some(Facts {
            owed: cumulative.saturating_sub(claimed),
            thaws: (thawing > Amount::ZERO).then_some(ready),
            dead_from: key.and_then(|key| key.dead_from),
            epoch_until,
            waits_since,
        }))
    }

    /// Whether the owner's account has gas; says once that it has none.
    async fn can_pay(&mut self, pool: &Pool) -> Result<bool, JoinError> {
        let owner = Signer::open_or_create(&self.book.dir().join(PROVIDER_KEY))?.account();
        let is_poor = pool.rpc.balance(owner).await? == 0;
        if is_poor && !self.is_poor {
            tracing::warn!(
                %owner,
                "vouchers would be lost, and the owner's account has no gas to claim them: send it some of the chain's coin"
            );
        }
        self.is_poor = is_poor;
        Ok(!is_poor)
    }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
