//! Tables `outbox` and `outbox_try`: transactions to be sent. A signed transaction is written here before it is sent,
//! so that a crash between any two statements neither loses nor doubles one.

use selion_api::{Address, Hash32, TimeMs};
use selion_market::state::BlockRef;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{count, count_if_any, fixed, int};

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anchors a log head; the subject is its size.
    Anchor,
    /// Claims vouchers of one provider; the subject is the provider.
    Claim,
    /// Registers the controller's endpoint; the subject is the endpoint.
    Register,
    /// Says that the authority is there; the subject is when.
    Renew,
    /// Makes a call that an account signed; the subject is the account and its nonce. See [`super::relay`].
    Relay,
}

impl Kind {
    /// As stored.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Anchor => "anchor",
            Self::Claim => "claim",
            Self::Register => "register",
            Self::Renew => "renew",
            Self::Relay => "relay",
        }
    }

    /// Whether a newer order of this kind says all that an older one said, whatever each is about. Of the others only one
    /// about the same subject does: a claim for one provider is none for another.
    #[must_use]
    pub fn overtakes(self) -> bool {
        match self {
            Self::Anchor | Self::Register | Self::Renew => true,
            Self::Claim | Self::Relay => false,
        }
    }

    fn read(text: &str) -> sqlx::Result<Self> {
        [Self::Anchor, Self::Claim, Self::Register, Self::Renew, Self::Relay]
            .into_iter()
            .find(|kind| kind.code() == text)
            .ok_or_else(|| sqlx::Error::Decode(format!("`{text}` is no kind of transaction").into()))
    }
}

/// How far a transaction is. `signed` and `mined` have a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It waits for its turn.
    Queued,
    /// It has a nonce and a signed form, and may be with the nodes.
    Signed,
    /// It is in a block that is not final.
    Mined,
    /// It is in a final block.
    Final,
    /// It was reverted, or refused before it was signed.
    Failed,
    /// A newer one overtook it before it was signed.
    Dropped,
}

impl Status {
    fn read(text: &str) -> sqlx::Result<Self> {
        Ok(match text {
            "queued" => Self::Queued,
            "signed" => Self::Signed,
            "mined" => Self::Mined,
            "final" => Self::Final,
            "failed" => Self::Failed,
            "dropped" => Self::Dropped,
            other => return Err(sqlx::Error::Decode(format!("`{other}` is no status").into())),
        })
    }
}

/// A transaction to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// What it does.
    pub kind: Kind,
    /// What it is about.
    pub subject: String,
    /// Contract to be called.
    pub target: Address,
    /// The call.
    pub calldata: Vec<u8>,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Place in the queue.
    pub seq: i64,
    /// What is to be done.
    pub order: Order,
    /// When it was ordered.
    pub created: TimeMs,
    /// How far it is.
    pub status: Status,
    /// Its nonce, once signed.
    pub nonce: Option<u64>,
    /// Gas it may use, once signed.
    pub gas_limit: Option<u64>,
    /// The form that was mined.
    pub tx_hash: Option<Hash32>,
    /// Where it was mined.
    pub block: Option<BlockRef>,
    /// Why it failed or was dropped.
    pub reason: Option<String>,
}

impl Outgoing {
    /// Whether it did nothing, and will not do anything any more unless its block leaves the chain.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match self.status {
            Status::Failed | Status::Dropped => true,
            Status::Mined => self.reason.is_some(),
            Status::Queued | Status::Signed | Status::Final => false,
        }
    }
}

/// A signed form of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// Transaction hash.
    pub hash: Hash32,
    /// The bytes to be sent.
    pub raw: Vec<u8>,
    /// Most it pays for a unit of gas, in wei.
    pub max_fee: u128,
    /// Most of that for the miner, in wei.
    pub priority_fee: u128,
    /// When it was signed.
    pub signed: TimeMs,
    /// When a node last took it.
    pub sent: Option<TimeMs>,
}

pub(super) fn outgoing(row: &SqliteRow) -> sqlx::Result<Outgoing> {
    let number = count_if_any(row, "outbox", "block_number")?;
    let hash: Option<Vec<u8>> = row.try_get("block_hash")?;
    let block = match (number, hash) {
        (Some(number), Some(hash)) => Some(BlockRef { number, hash: Hash32(fixed(&hash)?) }),
        _ => None,
    };
    let tx_hash: Option<Vec<u8>> = row.try_get("tx_hash")?;
    Ok(Outgoing {
        seq: row.try_get("seq")?,
        order: Order {
            kind: Kind::read(row.try_get("kind")?)?,
            subject: row.try_get("subject")?,
            target: Address(fixed(row.try_get("target")?)?),
            calldata: row.try_get("calldata")?,
        },
        created: TimeMs(count(row, "outbox", "created_ms")?),
        status: Status::read(row.try_get("status")?)?,
        nonce: count_if_any(row, "outbox", "nonce")?,
        gas_limit: count_if_any(row, "outbox", "gas_limit")?,
        tx_hash: tx_hash.map(|bytes| fixed(&bytes).map(Hash32)).transpose()?,
        block,
        reason: row.try_get("reason")?,
    })
}

/// Puts an order at the end of the key's queue. An order of the same kind that has not been signed yet is dropped if the
/// newer one says all that it said: see [`Kind::overtakes`].
///
/// # Errors
///
/// When SQLite fails.
pub async fn push(db: &SqlitePool, signer: Address, order: &Order, now: TimeMs) -> sqlx::Result<i64> {
    let mut tx = db.begin().await?;
    sqlx::query(
        "update outbox set status = 'dropped', reason = 'a newer one overtook it' \
         where signer = ?1 and kind = ?2 and status = 'queued' and (?3 or subject = ?4)",
    )
    .bind(&signer.0[..])
    .bind(order.kind.code())
    .bind(order.kind.overtakes())
    .bind(&order.subject)
    .execute(&mut *tx)
    .await?;
    let seq = insert(&mut tx, signer, order, now).await?;
    tx.commit().await?;
    Ok(seq)
}

/// Puts an order at the end of the key's queue, beside all others.
///
/// # Errors
///
/// When SQLite fails.
pub(super) async fn insert(
    db: &mut SqliteConnection,
    signer: Address,
    order: &Order,
    now: TimeMs,
) -> sqlx::Result<i64> {
    let done = sqlx::query(
        "insert into outbox (signer, kind, subject, target, calldata, created_ms) values (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(&signer.0[..])
    .bind(order.kind.code())
    .bind(&order.subject)
    .bind(&order.target.0[..])
    .bind(&order.calldata)
    .bind(int(now.0))
    .execute(db)
    .await?;
    Ok(done.last_insert_rowid())
}

/// Everything of the key that is not over, in order.
///
/// # Errors
///
/// When SQLite fails.
pub async fn live(db: &SqlitePool, signer: Address) -> sqlx::Result<Vec<Outgoing>> {
    sqlx::query("select * from outbox where signer = ?1 and status in ('queued', 'signed', 'mined') order by seq")
        .bind(&signer.0[..])
        .fetch_all(db)
        .await?
        .iter()
        .map(outgoing)
        .collect()
}

/// The key's newest row of that kind.
///
/// # Errors
///
/// When SQLite fails.
pub async fn last(db: &SqlitePool, signer: Address, kind: Kind) -> sqlx::Result<Option<Outgoing>> {
    sqlx::query("select * from outbox where signer = ?1 and kind = ?2 order by seq desc limit 1")
        .bind(&signer.0[..])
        .bind(kind.code())
        .fetch_optional(db)
        .await?
        .as_ref()
        .map(outgoing)
        .transpose()
}

/// The newest rows of every key, newest first: for people and for reports.
///
/// # Errors
///
/// When SQLite fails.
pub async fn newest(db: &SqlitePool, limit: u32) -> sqlx::Result<Vec<Outgoing>> {
    sqlx::query("select * from outbox order by seq desc limit ?1")
        .bind(limit)
        .fetch_all(db)
        .await?
        .iter()
        .map(outgoing)
        .collect()
}

/// Signed forms of a row, oldest first.
///
/// # Errors
///
/// When SQLite fails.
pub async fn tries(db: &SqlitePool, seq: i64) -> sqlx::Result<Vec<Try>> {
    sqlx::query("select * from outbox_try where seq = ?1 order by signed_ms, max_fee")
        .bind(seq)
        .fetch_all(db)
        .await?
        .iter()
        .map(|row| {
            Ok(Try {
                hash: Hash32(fixed(row.try_get("hash")?)?),
                raw: row.try_get("raw")?,
                max_fee: u128::from_be_bytes(fixed(row.try_get("max_fee")?)?),
                priority_fee: u128::from_be_bytes(fixed(row.try_get("priority_fee")?)?),
                signed: TimeMs(count(row, "outbox_try", "signed_ms")?),
                sent: count_if_any(row, "outbox_try", "sent_ms")?.map(TimeMs),
            })
        })
        .collect()
}

/// The lowest nonce that no row of the key has used, as far as the table knows.
///
/// # Errors
///
/// When SQLite fails.
pub async fn next_nonce(db: &SqlitePool, signer: Address) -> sqlx::Result<u64> {
    let row = sqlx::query("select max(nonce) as nonce from outbox where signer = ?1")
        .bind(&signer.0[..])
        .fetch_one(db)
        .await?;
    Ok(count_if_any(&row, "outbox", "nonce")?.map_or(0, |nonce| nonce.saturating_add(1)))
}

/// Writes a signed form of a row under `nonce`. `false` if the row is over, or has another nonce.
///
/// # Errors
///
/// When SQLite fails, or another row has that nonce.
pub async fn sign(db: &SqlitePool, seq: i64, nonce: u64, gas_limit: u64, signed: &Try) -> sqlx::Result<bool> {
    let mut tx = db.begin().await?;
    let won = sqlx::query(
        "update outbox set status = 'signed', nonce = ?2, gas_limit = ?3 \
         where seq = ?1 and (status = 'queued' or (status = 'signed' and nonce = ?2))",
    )
    .bind(seq)
    .bind(int(nonce))
    .bind(int(gas_limit))
    .execute(&mut *tx)
    .await?
    .rows_affected()
        == 1;
    if won {
        sqlx::query(
            "insert into outbox_try (hash, seq, raw, max_fee, priority_fee, signed_ms) values (?1, ?2, ?3, ?4, ?5, ?6) \
             on conflict (hash) do nothing",
        )
        .bind(&signed.hash.0[..])
        .bind(seq)
        .bind(&signed.raw)
        .bind(&signed.max_fee.to_be_bytes()[..])
        .bind(&signed.priority_fee.to_be_bytes()[..])
        .bind(int(signed.signed.0))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
    }
    Ok(won)
}

/// A node took this form.
///
/// # Errors
///
/// When SQLite fails.
pub async fn mark_sent(db: &SqlitePool, hash: Hash32, now: TimeMs) -> sqlx::Result<()> {
    sqlx::query("update outbox_try set sent_ms = ?2 where hash = ?1")
        .bind(&hash.0[..])
        .bind(int(now.0))
        .execute(db)
        .await?;
    Ok(())
}

/// A form of the row was mined. `reverted` says why it did nothing; the row has failed once that is final.
///
/// # Errors
///
/// When SQLite fails.
pub async fn mark_mined(
    db: &SqlitePool,
    seq: i64,
    hash: Hash32,
    at: BlockRef,
    reverted: Option<&str>,
) -> sqlx::Result<()> {
    sqlx::query(
        "update outbox set status = 'mined', tx_hash = ?2, block_number = ?3, block_hash = ?4, reason = ?5 \
         where seq = ?1 and status in ('signed', 'mined')",
    )
    .bind(seq)
    .bind(&hash.0[..])
    .bind(int(at.number))
    .bind(&at.hash.0[..])
    .bind(reverted)
    .execute(db)
    .await?;
    Ok(())
}

/// The row's block is final, and with it what the row did, or that it was reverted.
///
/// # Errors
///
/// When SQLite fails.
pub async fn mark_final(db: &SqlitePool, seq: i64) -> sqlx::Result<()> {
    sqlx::query(
        "update outbox set status = case when reason is null then 'final' else 'failed' end \
         where seq = ?1 and status = 'mined'",
    )
    .bind(seq)
    .execute(db)
    .await?;
    Ok(())
}

/// The row's block left the chain: it is to be sent again as it was signed.
///
/// # Errors
///
/// When SQLite fails.
pub async fn mark_unmined(db: &SqlitePool, seq: i64) -> sqlx::Result<()> {
    sqlx::query(
        "update outbox set status = 'signed', tx_hash = null, block_number = null, block_hash = null, reason = null \
         where seq = ?1 and status = 'mined'",
    )
    .bind(seq)
    .execute(db)
    .await?;
    Ok(())
}

/// The row's nonce went to somebody else's transaction: it waits for its turn again, or is dropped if `done` says why it
/// is not needed any more. Its signed forms stay: their receipts are still looked for.
///
/// # Errors
///
/// When SQLite fails.
pub async fn release(db: &SqlitePool, seq: i64, done: Option<&str>) -> sqlx::Result<()> {
    sqlx::query(
        "update outbox set status = case when ?2 is null then 'queued' else 'dropped' end, reason = ?2, nonce = null \
         where seq = ?1 and status = 'signed'",
    )
    .bind(seq)
    .bind(done)
    .execute(db)
    .await?;
    Ok(())
}

/// The row failed: the contract refused it before it was signed.
///
/// # Errors
///
/// When SQLite fails.
pub async fn mark_failed(db: &SqlitePool, seq: i64, reason: &str) -> sqlx::Result<()> {
    sqlx::query("update outbox set status = 'failed', reason = ?2 where seq = ?1")
        .bind(seq)
        .bind(reason)
        .execute(db)
        .await?;
    Ok(())
}

/// What the row was for is done already. `false` if it was signed meanwhile.
///
/// # Errors
///
/// When SQLite fails.
pub async fn mark_dropped(db: &SqlitePool, seq: i64, reason: &str) -> sqlx::Result<bool> {
    let done = sqlx::query("update outbox set status = 'dropped', reason = ?2 where seq = ?1 and status = 'queued'")
        .bind(seq)
        .bind(reason)
        .execute(db)
        .await?;
    Ok(done.rows_affected() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    const KEY: Address = Address([1; 20]);

    fn order(kind: Kind, subject: &str) -> Order {
        Order { kind, subject: subject.into(), target: Address([2; 20]), calldata: vec![3] }
    }

    async fn subjects(db: &SqlitePool) -> Vec<String> {
        live(db, KEY).await.unwrap().into_iter().map(|row| row.order.subject).collect()
    }

    #[tokio::test]
    async fn a_relayed_call_does_not_overtake_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let db = Store::open(dir.path()).await.unwrap().writer;
        for subject in ["call one", "call two", "call one"] {
            push(&db, KEY, &order(Kind::Relay, subject), TimeMs(1)).await.unwrap();
        }
        assert_eq!(subjects(&db).await, ["call two", "call one"]);
    }

    #[tokio::test]
    async fn a_newer_anchor_overtakes_one_that_was_not_signed_yet() {
        let dir = tempfile::tempdir().unwrap();
        let db = Store::open(dir.path()).await.unwrap().writer;
        for size in ["10", "20"] {
            push(&db, KEY, &order(Kind::Anchor, size), TimeMs(1)).await.unwrap();
        }
        assert_eq!(subjects(&db).await, ["20"]);
    }

    #[tokio::test]
    async fn a_damaged_number_is_named_and_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let db = Store::open(dir.path()).await.unwrap().writer;
        let mut one = db.acquire().await.unwrap();
        push_one(&mut one).await;
        sqlx::query("pragma ignore_check_constraints = on").execute(&mut *one).await.unwrap();
        sqlx::query("update outbox set created_ms = -1").execute(&mut *one).await.unwrap();
        drop(one);
        let refused = live(&db, KEY).await.unwrap_err().to_string();
        assert!(refused.contains("outbox.created_ms is -1"), "{refused}");
    }

    async fn push_one(db: &mut SqliteConnection) {
        insert(db, KEY, &order(Kind::Anchor, "10"), TimeMs(1)).await.unwrap();
    }
}
