//! Table `relay`: requests that accounts signed, each beside its row of the outbox.

use selion_api::{Account, Address, Hash32, TimeMs};
use sqlx::sqlite::SqliteRow;
use sqlx::{Executor, Row, Sqlite, SqlitePool};

use super::outbox::{self, Order, Outgoing};
use super::{count, fixed, int, uint};
use crate::relay::judge::{Refusal, Since, Spent, Window};

/// A request to be kept.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// Whose call it is.
    pub account: Account,
    /// The contract that counts its nonces and is called: the forwarder, or for a permit the token.
    pub counter: Address,
    /// Its nonce there.
    pub nonce: u64,
    /// What was signed.
    pub digest: Hash32,
    /// The function.
    pub call: &'a str,
    /// The network address that brought it; empty if it is not known.
    pub peer: &'a str,
    /// The time.
    pub now: TimeMs,
}

/// A request that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Whose call it is.
    pub account: Account,
    /// Its nonce at the forwarder, or for a permit at the token.
    pub nonce: u64,
    /// The function.
    pub call: String,
    /// How far it is.
    pub row: Outgoing,
}

/// A question about requests with their rows of the outbox, which ends like this.
macro_rules! select {
    ($ends:literal) => {
        concat!(
            "select outbox.*, relay.account, relay.nonce as relay_nonce, relay.call, relay.digest \
             from relay join outbox on outbox.seq = relay.seq ",
            $ends
        )
    };
}

fn kept(row: &SqliteRow) -> sqlx::Result<Kept> {
    Ok(Kept {
        account: Account(fixed(row.try_get("account")?)?),
        nonce: count(row, "relay", "relay_nonce")?,
        call: row.try_get("call")?,
        row: outbox::outgoing(row)?,
    })
}

/// The request of this id.
///
/// # Errors
///
/// When SQLite fails.
pub async fn get(db: &SqlitePool, id: i64) -> sqlx::Result<Option<Kept>> {
    let row = sqlx::query(select!("where relay.seq = ?1")).bind(id).fetch_optional(db).await?;
    row.as_ref().map(kept).transpose()
}

/// The newest request under that nonce that did not fail, and whether it is this very one.
async fn under_nonce<'e>(
    db: impl Executor<'e, Database = Sqlite>,
    new: &New<'_>,
) -> sqlx::Result<Option<(Kept, bool)>> {
    let rows = sqlx::query(select!(
        "where relay.account = ?1 and relay.nonce = ?2 and outbox.target = ?3 order by relay.seq desc"
    ))
    .bind(&new.account.0[..])
    .bind(int(new.nonce))
    .bind(&new.counter.0[..])
    .fetch_all(db)
    .await?;
    for row in &rows {
        let found = kept(row)?;
        if !found.row.has_failed() {
            return Ok(Some((found, row.try_get::<&[u8], _>("digest")? == new.digest.0)));
        }
    }
    Ok(None)
}

/// This very request, if it is kept and did not fail.
///
/// # Errors
///
/// When SQLite fails.
pub async fn equal(db: &SqlitePool, new: &New<'_>) -> sqlx::Result<Option<Kept>> {
    Ok(under_nonce(db, new).await?.and_then(|(kept, equal)| equal.then_some(kept)))
}

/// What was relayed before `new` that counts against the same allowances. All that was taken counts, also what failed.
///
/// # Errors
///
/// When SQLite fails.
pub async fn spent<'e>(db: impl Executor<'e, Database = Sqlite>, new: &New<'_>) -> sqlx::Result<Spent> {
    let since = Since::before(new.now);
    let row = sqlx::query(
        "select count(*) as all_count, min(created_ms) as all_oldest, \
         count(*) filter (where account = ?2 and created_ms > ?4) as account_count, \
         min(created_ms) filter (where account = ?2 and created_ms > ?4) as account_oldest, \
         count(*) filter (where peer = ?3 and created_ms > ?4) as peer_count, \
         min(created_ms) filter (where peer = ?3 and created_ms > ?4) as peer_oldest \
         from relay where created_ms > ?1",
    )
    .bind(int(since.day.0))
    .bind(&new.account.0[..])
    .bind(new.peer)
    .bind(int(since.hour.0))
    .fetch_one(db)
    .await?;
    let window = |count: &str, oldest: &str| {
        let oldest: Option<i64> = row.try_get(oldest)?;
        let count = u32::try_from(row.try_get::<i64, _>(count)?).unwrap_or(u32::MAX);
        Ok::<_, sqlx::Error>(Window { count, oldest: TimeMs(oldest.map_or(0, uint)) })
    };
    Ok(Spent {
        account: window("account_count", "account_oldest")?,
        peer: window("peer_count", "peer_oldest")?,
        all: window("all_count", "all_oldest")?,
    })
}

/// Keeps a request and orders its transaction, in one go, unless its nonce is taken or `judge` says no. The order is at
/// the end of the queue of `signer` and is never overtaken.
///
/// # Errors
///
/// When SQLite fails; nothing is kept then.
pub async fn take(
    db: &SqlitePool,
    signer: Address,
    order: &Order,
    new: &New<'_>,
    judge: impl FnOnce(&Spent) -> Result<(), Refusal>,
) -> sqlx::Result<Result<Kept, Refusal>> {
    let mut tx = db.begin().await?;
    if let Some((kept, equal)) = under_nonce(&mut *tx, new).await? {
        let busy = Refusal::Busy { from: new.account, nonce: new.nonce, id: kept.row.seq };
        return Ok(if equal { Ok(kept) } else { Err(busy) });
    }
    if let Err(refusal) = judge(&spent(&mut *tx, new).await?) {
        return Ok(Err(refusal));
    }
    let seq = outbox::insert(&mut tx, signer, order, new.now).await?;
    sqlx::query(
        "insert into relay (seq, account, nonce, digest, call, peer, created_ms) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )
    .bind(seq)
    .bind(&new.account.0[..])
    .bind(int(new.nonce))
    .bind(&new.digest.0[..])
    .bind(new.call)
    .bind(new.peer)
    .bind(int(new.now.0))
    .execute(&mut *tx)
    .await?;
    // Who brought it is needed for an hour and kept no longer.
    sqlx::query("update relay set peer = '' where created_ms <= ?1 and peer <> ''")
        .bind(int(Since::before(new.now).hour.0))
        .execute(&mut *tx)
        .await?;
    let row = sqlx::query(select!("where relay.seq = ?1")).bind(seq).fetch_one(&mut *tx).await?;
    let kept = kept(&row)?;
    tx.commit().await?;
    Ok(Ok(kept))
}
