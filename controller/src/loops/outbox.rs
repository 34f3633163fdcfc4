//! Sends what stands in the outbox: one queue of one key in the order of its nonces. The table is the truth, the nodes
//! are asked what became of it; so a pass may be cut off anywhere and repeated by another process.

use std::collections::BTreeSet;
use std::sync::Arc;

use selion_api::{Address, TimeMs};
use selion_contracts::Fees;
use sqlx::SqlitePool;
use tokio::sync::Notify;

use super::sender::{SendError, Sender, raised};
use crate::store::outbox::{self, Kind, Order, Outgoing, Status, Try};

/// Sent and not mined for this long: a dearer form replaces it.
const STALL_MS: u64 = 20_000;
/// Its nonce is used up, yet none of its forms was mined, for this long: somebody else used the key.
const LOST_MS: u64 = 60_000;
/// Transactions with the nodes at one time.
const IN_FLIGHT: usize = 16;
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
}

impl Outbox {
    /// Over the tables in `db`.
    #[must_use]
    pub fn new(db: SqlitePool, sender: Arc<dyn Sender>) -> Self {
        Self { db, sender, sent: BTreeSet::new() }
    }

    /// One pass. Blocks up to `settled` are final; `done` says why an order that was not signed yet is not needed any
    /// more.
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
            if !self.pursue(row, now, settled, &mut report).await? {
                in_flight += 1;
            }
        }
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
        report: &mut Report,
    ) -> Result<bool, OutboxError> {
        let tries = outbox::tries(&self.db, row.seq).await?;
        for one in &tries {
            let Some(mined) = self.sender.receipt(one.hash).await? else {
                continue;
            };
            if row.block != Some(mined.at) {
                let reason = match mined.ok {
                    true => None,
                    false => {
                        let (order, block) = (&row.order, mined.at.number);
                        let why = self.sender.why(order.target, &order.calldata, block).await;
                        tracing::warn!(kind = order.kind.code(), tx = %one.hash, why, "a transaction was reverted");
                        Some(why)
                    }
                };
                outbox::mark_mined(&self.db, row.seq, one.hash, mined.at, reason.as_deref()).await?;
                report.mined += 1;
            }
            if mined.at.number <= settled {
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
                let reason = format!(
                    "nonce {nonce} was used by a transaction that is not ours: another program signs with the authority's key"
                );
                tracing::error!(kind = row.order.kind.code(), reason, "a transaction was lost");
                outbox::mark_failed(&self.db, row.seq, &reason).await?;
                report.over += 1;
            }
        } else if now.since(sent) >= STALL_MS {
            self.replace(row, nonce, newest, now, report).await?;
        }
        Ok(false)
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
