//! Sends what stands in the outbox: one queue of one key in the order of its nonces. The table is the truth, the nodes
//! are asked what became of it; so a pass may be cut off anywhere and repeated by another process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use selion_api::{Address, TimeMs};
use selion_contracts::Fees;
use sqlx::SqlitePool;
use tokio::sync::Notify;

use super::sender::{Mined, SendError, Sender, raised};
use crate::store::outbox::{self, Kind, Order, Outgoing, Status, Try};

/// Sent and not mined for this long: a dearer form replaces it.
const STALL_MS: u64 = 20_000;
/// Its nonce is used up, yet none of its forms was mined, for this long: somebody else used the key. Or a nonce below
/// it is nobody's for this long.
const LOST_MS: u64 = 60_000;
/// Transactions with the nodes at one time.
const IN_FLIGHT: usize = 16;
/// Gas of a transaction without any effect.
const TRANSFER_GAS: u64 = 21_000;
/// Most that a price is raised to, as a multiple of what gas costs now.
const DEAREST: u128 = 10;

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The chain.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The store.
    #[error("database: {0}")]
    Sql(#[from] sqlx::Error),
}

/// Orders transactions of one key.
#[derive(Clone)]
pub struct Desk {
    db: SqlitePool,
    signer: Address,
    nudge: Arc<Notify>,
}

impl Desk {
    /// The desk of `signer`; `nudge` wakes the loop that sends.
    #[must_use]
    pub fn new(db: SqlitePool, signer: Address, nudge: Arc<Notify>) -> Self {
        Self { db, signer, nudge }
    }

    /// Whether an order of that kind is on its way.
    ///
    /// # Errors
    ///
    /// When SQLite fails.
    pub async fn pending(&self, kind: Kind) -> sqlx::Result<Option<Outgoing>> {
        let live = outbox::live(&self.db, self.signer).await?;
        Ok(live.into_iter().rev().find(|row| row.order.kind == kind))
    }

    /// What the orders of that kind that are on their way are about.
    ///
    /// # Errors
    ///
    /// When SQLite fails.
    pub async fn subjects(&self, kind: Kind) -> sqlx::Result<Vec<String>> {
        let live = outbox::live(&self.db, self.signer).await?;
        Ok(live.into_iter().filter(|row| row.order.kind == kind).map(|row| row.order.subject).collect())
    }

    /// The newest order of that kind, if it failed.
    ///
    /// # Errors
    ///
    /// When SQLite fails.
    pub async fn failed(&self, kind: Kind) -> sqlx::Result<Option<Outgoing>> {
        let last = outbox::last(&self.db, self.signer, kind).await?;
        Ok(last.filter(|row| row.status == Status::Failed))
    }

    /// Puts an order into the queue.
    ///
    /// # Errors
    ///
    /// When SQLite fails; nothing is ordered then.
    pub async fn order(&self, order: &Order, now: TimeMs) -> sqlx::Result<i64> {
        let seq = outbox::push(&self.db, self.signer, order, now).await?;
        self.nudge.notify_one();
        Ok(seq)
    }
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Signed for the first time.
    pub signed: u32,
    /// Handed to a node.
    pub sent: u32,
    /// Found in a block.
    pub mined: u32,
    /// Over, well or not.
    pub over: u32,
}

/// Sends one key's transactions.
pub struct Outbox {
    db: SqlitePool,
    sender: Arc<dyn Sender>,
    /// Rows that this process has sent: the others may never have left the one before.
    sent: BTreeSet<i64>,
    /// Rows whose nonce somebody else used: in a block of that height at most.
    lost: BTreeMap<i64, u64>,
    gap: Option<Gap>,
}

/// Nonces below all of ours that nobody uses.
#[derive(Clone, Copy)]
struct Gap {
    since: TimeMs,
    /// The lowest of them.
    nonce: u64,
    /// What was offered to fill it.
    paid: Option<Fees>,
}

impl Outbox {
    /// Over the tables in `db`.
    #[must_use]
    pub fn new(db: SqlitePool, sender: Arc<dyn Sender>) -> Self {
        Self { db, sender, sent: BTreeSet::new(), lost: BTreeMap::new(), gap: None }
    }

    /// One pass. Blocks up to `settled` are final, and what they did is known; `done` says why an order is not needed any
    /// more. It is asked of what was not signed yet, and of what somebody else's transaction took the nonce.
    ///
    /// # Errors
    ///
    /// [`OutboxError`]; the next pass continues.
    pub async fn pass(
        &mut self,
        now: TimeMs,
        settled: u64,
        done: impl Fn(&Order) -> Option<&'static str>,
    ) -> Result<Report, OutboxError> {
        let mut report = Report::default();
        let mut in_flight = 0;
        let live = outbox::live(&self.db, self.sender.address()).await?;
        for row in live.iter().filter(|row| row.status != Status::Queued) {
            if !self.pursue(row, now, settled, &done, &mut report).await? {
                in_flight += 1;
            }
        }
        self.fill(&live, now).await?;
        for row in live.iter().filter(|row| row.status == Status::Queued) {
            if let Some(reason) = done(&row.order) {
                outbox::mark_dropped(&self.db, row.seq, reason).await?;
                report.over += 1;
            } else if in_flight < IN_FLIGHT {
                in_flight += usize::from(self.start(row, now, &mut report).await?);
            }
        }
        Ok(report)
    }

    /// Looks what became of a signed row. `true` if it is mined or over.
    async fn pursue(
        &mut self,
        row: &Outgoing,
        now: TimeMs,
        settled: u64,
        done: &impl Fn(&Order) -> Option<&'static str>,
        report: &mut Report,
    ) -> Result<bool, OutboxError> {
        let tries = outbox::tries(&self.db, row.seq).await?;
        for one in &tries {
            let Some(mined) = self.sender.receipt(one.hash).await? else {
                continue;
            };
            let last = mined.at.number <= settled;
            // A node that stayed on a fork has receipts, too.
            if last && !self.sender.holds(mined.at).await? {
                continue;
            }
            self.mined(row, one, mined, report).await?;
            if last {
                outbox::mark_final(&self.db, row.seq).await?;
                self.sent.remove(&row.seq);
                report.over += 1;
            }
            return Ok(true);
        }
        if row.status == Status::Mined {
            tracing::info!(kind = row.order.kind.code(), "a transaction's block left the chain; it is sent again");
            outbox::mark_unmined(&self.db, row.seq).await?;
            self.sent.remove(&row.seq);
        }
        let (Some(newest), Some(nonce)) = (tries.last(), row.nonce) else {
            return Ok(false);
        };
        let Some(sent) = newest.sent.filter(|_| self.sent.contains(&row.seq)) else {
            self.hand_over(row, newest, now, report).await?;
            return Ok(false);
        };
        if self.sender.mined_nonce().await? > nonce {
            if now.since(sent) >= LOST_MS {
                return self.lose(row, settled, done(&row.order), report).await;
            }
            return Ok(false);
        }
        self.lost.remove(&row.seq);
        if now.since(sent) >= STALL_MS {
            self.replace(row, nonce, newest, now, report).await?;
        }
        Ok(false)
    }

    /// Notes where a form was mined, and why it did nothing if so.
    async fn mined(&self, row: &Outgoing, form: &Try, mined: Mined, report: &mut Report) -> Result<(), OutboxError> {
        if row.block == Some(mined.at) && row.tx_hash == Some(form.hash) {
            return Ok(());
        }
        let order = &row.order;
        let reason = match mined.ok {
            true => None,
            false => {
                let why = self.sender.why(order.target, &order.calldata, mined.at.number).await;
                tracing::warn!(kind = order.kind.code(), tx = %form.hash, why, "a transaction was reverted");
                Some(why)
            }
        };
        outbox::mark_mined(&self.db, row.seq, form.hash, mined.at, reason.as_deref()).await?;
        report.mined += 1;
        Ok(())
    }

    /// The row's nonce is used, and no form of it has a receipt. Once the block that used it is final, what it did is
    /// known: if it was not ours, the order gets another nonce. `true` if it is over.
    async fn lose(
        &mut self,
        row: &Outgoing,
        settled: u64,
        done: Option<&'static str>,
        report: &mut Report,
    ) -> Result<bool, OutboxError> {
        let head = self.sender.head().await?;
        if *self.lost.entry(row.seq).or_insert(head) > settled {
            return Ok(false);
        }
        self.lost.remove(&row.seq);
        self.sent.remove(&row.seq);
        outbox::release(&self.db, row.seq, done).await?;
        report.over += u32::from(done.is_some());
        match done {
            Some(done) => tracing::info!(kind = row.order.kind.code(), done, "a transaction's receipt was never seen"),
            None => tracing::error!(
                kind = row.order.kind.code(),
                nonce = row.nonce,
                "another program signs with the authority's key: its transaction took the nonce of one of ours, which \
                 is sent again; no other program may use this key"
            ),
        }
        Ok(true)
    }

    /// A nonce below all that we use, and that nobody's transaction takes, holds all of ours up: another program's
    /// transaction was counted and then lost. One without any effect takes its place.
    async fn fill(&mut self, live: &[Outgoing], now: TimeMs) -> Result<(), OutboxError> {
        let Some(lowest) = live.iter().filter(|row| row.status == Status::Signed).filter_map(|row| row.nonce).min()
        else {
            self.gap = None;
            return Ok(());
        };
        let nonce = self.sender.mined_nonce().await?;
        if nonce >= lowest || live.iter().any(|row| row.nonce == Some(nonce)) {
            self.gap = None;
            return Ok(());
        }
        let before = self.gap.unwrap_or(Gap { since: now, nonce, paid: None });
        let paid = before.paid.filter(|_| before.nonce == nonce);
        self.gap = Some(Gap { nonce, paid, ..before });
        if now.since(before.since) < LOST_MS {
            return Ok(());
        }
        let current = self.sender.fees().await?;
        let fees = paid.map_or(current, |paid| raised(paid, current));
        let fees = if fees.max > current.max.saturating_mul(DEAREST) { current } else { fees };
        let own = self.sender.address();
        let (_, raw) = self.sender.sign(own, &[], nonce, TRANSFER_GAS, fees)?;
        tracing::warn!(nonce, "a nonce of the authority's key was left out; an empty transaction takes it");
        match self.sender.send(&raw).await {
            Ok(()) | Err(SendError::Known | SendError::NonceTaken | SendError::Underpriced) => {}
            Err(error) => return Err(error.into()),
        }
        self.gap = Some(Gap { nonce, paid: Some(fees), ..before });
        Ok(())
    }

    /// Signs and sends a queued row. `true` if it is with the nodes now.
    async fn start(&mut self, row: &Outgoing, now: TimeMs, report: &mut Report) -> Result<bool, OutboxError> {
        let Order { target, calldata, .. } = &row.order;
        let gas = match self.sender.gas(*target, calldata).await {
            Ok(gas) => gas,
            Err(SendError::Reverted(why)) => {
                tracing::warn!(
                    kind = row.order.kind.code(),
                    subject = row.order.subject,
                    why,
                    "the contract refuses a call; it is not sent"
                );
                outbox::mark_failed(&self.db, row.seq, &why).await?;
                report.over += 1;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let fees = self.sender.fees().await?;
        let known = self.sender.next_nonce().await?;
        let nonce = known.max(outbox::next_nonce(&self.db, self.sender.address()).await?);
        let signed = self.signed(row, nonce, gas, fees, now)?;
        // On disk before it leaves.
        if outbox::sign(&self.db, row.seq, nonce, gas, &signed).await? {
            report.signed += 1;
            self.hand_over(row, &signed, now, report).await?;
        }
        Ok(true)
    }

    fn signed(&self, row: &Outgoing, nonce: u64, gas: u64, fees: Fees, now: TimeMs) -> Result<Try, SendError> {
        let (hash, raw) = self.sender.sign(row.order.target, &row.order.calldata, nonce, gas, fees)?;
        Ok(Try { hash, raw, max_fee: fees.max, priority_fee: fees.priority, signed: now, sent: None })
    }

    /// Sends a form that is on disk.
    async fn hand_over(
        &mut self,
        row: &Outgoing,
        signed: &Try,
        now: TimeMs,
        report: &mut Report,
    ) -> Result<(), OutboxError> {
        match self.sender.send(&signed.raw).await {
            // A used nonce: one of our forms was mined, as its receipt will say, or a stranger's was. A low price: a
            // dearer form follows when this one has stalled.
            Ok(()) | Err(SendError::Known | SendError::NonceTaken | SendError::Underpriced) => {
                outbox::mark_sent(&self.db, signed.hash, now).await?;
                self.sent.insert(row.seq);
                report.sent += 1;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Signs a dearer form with the same nonce.
    async fn replace(
        &mut self,
        row: &Outgoing,
        nonce: u64,
        last: &Try,
        now: TimeMs,
        report: &mut Report,
    ) -> Result<(), OutboxError> {
        let current = self.sender.fees().await?;
        let before = Fees { max: last.max_fee, priority: last.priority_fee };
        let fees = raised(before, current);
        let gas = row.gas_limit.unwrap_or_default();
        if fees.max > current.max.saturating_mul(DEAREST) {
            return self.hand_over(row, last, now, report).await;
        }
        tracing::info!(
            kind = row.order.kind.code(),
            nonce,
            max_fee = fees.max,
            "a transaction stalled; a dearer one replaces it"
        );
        let signed = self.signed(row, nonce, gas, fees, now)?;
        if outbox::sign(&self.db, row.seq, nonce, gas, &signed).await? {
            self.hand_over(row, &signed, now, report).await?;
        }
        Ok(())
    }
}
