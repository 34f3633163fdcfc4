//! Whom this node works for: nobody beyond the owner's cap of use without a voucher, and nobody whom the pool's vault does
//! not cover. A chain that does not answer is not the renter's fault: work goes on then, under the cap.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use selion_api::agent::Assignment;
use selion_api::{Account, Address, Amount, Rate};
use selion_contracts::{Pool, PoolError, Rpc};
use tokio::sync::OnceCell;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::book::{Book, BookError};
use crate::config::Config;
use crate::courier::now;
use crate::error::chain;
use crate::member_key::MemberKey;
use crate::staging::blocking;
use crate::unsigned::{Excess, Tabs};
use crate::vault::{self, Means};

/// Longest wait for the chain.
const ASK: Duration = Duration::from_secs(5);
/// Use of a renter that no voucher has covered, in milliseconds of running time, and that is not asked of the vault: a member
/// of a gang may run for as long before the others do, and nobody owes that.
const SLACK_MS: u64 = 30_000;
/// An answer of the vault counts for so many intervals, if the chain is silent then.
const STALE: u32 = 2;

/// Watches over what the owner is owed.
pub(crate) struct Guard {
    book: Arc<Book>,
    chain_rpc: String,
    provider: Account,
    cap_ms: u64,
    every: Duration,
    tabs: Mutex<Tabs>,
    /// Held while what is open is written down.
    writes: tokio::sync::Mutex<()>,
    pool: OnceCell<Pool>,
    vaults: Mutex<BTreeMap<Account, Vault>>,
    is_silent: AtomicBool,
}

/// What was learned of one renter.
#[derive(Clone, Copy, Debug)]
struct Vault {
    delegate: Address,
    said: Option<(Instant, Means)>,
    /// When a member of the renter last came.
    used: Instant,
}

impl Guard {
    /// With what an earlier life left open.
    ///
    /// # Errors
    ///
    /// [`BookError`].
    pub(crate) fn open(config: &Config, book: Arc<Book>, provider: Account) -> Result<Self, BookError> {
        let vouchers: Vec<_> = book.all_vouchers()?.iter().map(|one| (one.renter, one.cumulative)).collect();
        let tabs = Tabs::restore(&book.unsigned()?, &vouchers);
        Ok(Self {
            book,
            chain_rpc: config.chain_rpc.clone(),
            provider,
            cap_ms: config.unsigned_cap_ms,
            every: Duration::from_millis(config.vault_ms),
            tabs: Mutex::new(tabs),
            writes: tokio::sync::Mutex::default(),
            pool: OnceCell::new(),
            vaults: Mutex::default(),
            is_silent: AtomicBool::new(false),
        })
    }

    fn tabs(&self) -> MutexGuard<'_, Tabs> {
        self.tabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Worth of all use here that no voucher covers, in token base units.
    pub(crate) fn unsigned(&self) -> Amount {
        self.tabs().open_of_all()
    }

    fn vaults(&self) -> MutexGuard<'_, BTreeMap<Account, Vault>> {
        self.vaults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this node works for an assignment that is new.
    ///
    /// # Errors
    ///
    /// Why not, in words.
    pub(crate) async fn admit(&self, assignment: &Assignment) -> Result<(), String> {
        let Assignment { renter, delegate, rate, .. } = *assignment;
        let outbox = self.book.outbox();
        self.tabs().forget(outbox.acked(), outbox.now());
        self.within_cap(renter, rate)?;
        if rate == Rate::ZERO {
            return Ok(());
        }
        let fresh = {
            let mut vaults = self.vaults();
            let used = Instant::now();
            let vault = vaults.entry(renter).or_insert(Vault { delegate, said: None, used });
            (vault.delegate, vault.used) = (delegate, used);
            vault.said.is_some_and(|(at, _)| at.elapsed() < self.every)
        };
        if !fresh {
            self.look(renter, delegate).await;
        }
        self.is_covered(renter, rate, assignment.max_run_ms)
    }

    /// Whether a member goes on whose meter shows `metered_ms`.
    ///
    /// # Errors
    ///
    /// Why not, in words.
    pub(crate) fn judge(&self, assignment: &Assignment, metered_ms: u64) -> Result<(), String> {
        self.within_cap(assignment.renter, Rate::ZERO)?;
        if assignment.rate == Rate::ZERO {
            return Ok(());
        }
        self.is_covered(assignment.renter, Rate::ZERO, assignment.max_run_ms.saturating_sub(metered_ms))
    }

    fn within_cap(&self, renter: Account, more: Rate) -> Result<(), String> {
        match self.tabs().excess(renter, more, self.cap_ms) {
            None => Ok(()),
            Some(Excess { open, most }) => Err(format!(
                "no voucher covers {open} base units of what renter {renter} used on this node; its owner lets {most} stay open"
            )),
        }
    }

    /// Whether the vault covers what is owed here and what comes due before the next look, as far as the vault answered
    /// lately. `more` is the rate of what is to run beside what runs, `left_ms` how long.
    fn is_covered(&self, renter: Account, more: Rate, left_ms: u64) -> Result<(), String> {
        let said = self.vaults().get(&renter).and_then(|vault| vault.said);
        let Some((_, means)) = said.filter(|(at, _)| at.elapsed() < self.every * STALE) else {
            return Ok(());
        };
        let next_ms = u64::try_from(self.every.as_millis()).unwrap_or(u64::MAX).min(left_ms);
        let (need, now) = (self.need(renter, means.claimed, more, next_ms), now());
        vault::judge(&means, need, now.plus(next_ms), now).map_err(|error| error.to_string())
    }

    /// What must be in the vault: vouchers that nobody claimed, use that no voucher covers, and the use of the next
    /// `next_ms`.
    fn need(&self, renter: Account, claimed: Amount, more: Rate, next_ms: u64) -> Amount {
        let tabs = self.tabs();
        let (open, rate) = tabs.of(renter);
        let open = open.saturating_sub(rate.bill(SLACK_MS));
        let next = rate.saturating_add(more).reserve(next_ms);
        tabs.covered(renter).saturating_sub(claimed).saturating_add(open).saturating_add(next)
    }

    /// Asks the vault about a renter. Without an answer what was said before stays.
    async fn look(&self, renter: Account, delegate: Address) {
        let asked = timeout(ASK, async {
            let pool = self.pool.get_or_try_init(|| open(&self.book, &self.chain_rpc)).await?;
            vault::ask(pool, renter, self.provider, delegate).await
        });
        let why = match asked.await {
            Ok(Ok(means)) => {
                if self.is_silent.swap(false, Ordering::AcqRel) {
                    tracing::info!("the chain answers again: renters' deposits are looked at");
                }
                if let Some(vault) = self.vaults().get_mut(&renter) {
                    vault.said = Some((Instant::now(), means));
                }
                return;
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {} s", ASK.as_secs()),
        };
        if !self.is_silent.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                why,
                cap_ms = self.cap_ms,
                "the vault cannot be asked: work goes on, and ends only for use that no voucher covers"
            );
        }
    }

    /// Asks the vault again and again about every renter whose members run.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let running = self.tabs().renters();
            for renter in running {
                let delegate = self.vaults().get(&renter).map(|vault| vault.delegate);
                if let Some(delegate) = delegate {
                    self.look(renter, delegate).await;
                }
            }
            let running = self.tabs().renters();
            let stale = self.every * STALE;
            self.vaults().retain(|renter, vault| running.contains(renter) || vault.used.elapsed() < stale);
        }
    }

    /// The end of every member that an earlier life left was stated.
    pub(crate) fn interrupted(&self) {
        let seq = self.book.outbox().last_seq();
        self.tabs().interrupted(seq);
    }

    /// A member that an earlier life began runs on.
    pub(crate) fn resume(&self, assignment: &Assignment) {
        let Assignment { renter, rate, billed, delegate, .. } = *assignment;
        self.tabs().resume(renter, MemberKey::of(assignment), rate, billed);
        let used = Instant::now();
        self.vaults().entry(renter).or_insert(Vault { delegate, said: None, used });
    }

    /// A member runs from now on.
    pub(crate) fn begin(&self, assignment: &Assignment) {
        let Assignment { renter, rate, billed, .. } = *assignment;
        self.tabs().begin(renter, MemberKey::of(assignment), rate, billed);
    }

    /// The meter of a running member.
    pub(crate) async fn meter(&self, assignment: &Assignment, metered_ms: u64) {
        self.tabs().meter(assignment.renter, MemberKey::of(assignment), metered_ms);
        self.write_down().await;
    }

    /// A member runs no more; its meter shows `metered_ms`. Its end is told once its outputs are safe.
    pub(crate) async fn stopped(&self, assignment: &Assignment, metered_ms: u64) {
        self.tabs().stopped(assignment.renter, MemberKey::of(assignment), metered_ms);
        self.write_down().await;
    }

    /// The report of the member's end was made.
    pub(crate) async fn end(&self, assignment: &Assignment) {
        let seq = self.book.outbox().last_seq();
        self.tabs().end(assignment.renter, MemberKey::of(assignment), seq);
        self.write_down().await;
    }

    /// A voucher was kept.
    pub(crate) async fn cover(&self, renter: Account, total: Amount) {
        let acked = self.book.outbox().acked();
        self.tabs().cover(renter, total, acked);
        self.write_down().await;
    }

    async fn write_down(&self) {
        let _writes = self.writes.lock().await;
        let Some(unsigned) = self.tabs().unwritten(self.cap_ms) else { return };
        let book = Arc::clone(&self.book);
        if let Err(error) = blocking(move || book.keep_unsigned(&unsigned)).await {
            tracing::warn!(
                error = chain(&error),
                "what no voucher covers cannot be written down; a restart would forget it"
            );
        }
    }
}

/// The pool that the state belongs to.
///
/// # Errors
///
/// [`PoolError`].
pub(crate) async fn open(book: &Book, chain_rpc: &str) -> Result<Pool, PoolError> {
    // The link pinned it before anything else could come.
    let controller = book.seen().pool.map_or(Address::ZERO, |pool| pool.controller);
    Pool::open(Rpc::new(chain_rpc)?, controller).await
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
