//! Tables `block` and `chain_event`: the chain as the mirror sees it. Only the mirror writes here.

use borsh::BorshDeserialize;
use selion_api::Hash32;
use selion_api::chain::ChainEvent;
use selion_market::state::BlockRef;
use sqlx::{Row, SqliteConnection, SqlitePool};

use crate::mirror::{Header, Seen};

fn integer(value: u64) -> i64 {
    // Heights stay far below 2^63; one that did not would be refused by the column's check.
    i64::try_from(value).unwrap_or(-1)
}

fn hash(bytes: &[u8]) -> sqlx::Result<Hash32> {
    let bytes = bytes.try_into().map_err(|_| sqlx::Error::Decode("a block hash is not 32 bytes".into()))?;
    Ok(Hash32(bytes))
}

/// The highest final block that the mirror got to, with or without events.
///
/// # Errors
///
/// When SQLite fails.
pub async fn newest_final(db: &SqlitePool) -> sqlx::Result<Option<BlockRef>> {
    let row = sqlx::query("select number, hash from block where final = 1 order by number desc limit 1")
        .fetch_optional(db)
        .await?;
    row.map(|row| {
        Ok(BlockRef {
            number: u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or_default(),
            hash: hash(row.try_get::<&[u8], _>(1)?)?,
        })
    })
    .transpose()
}

/// Drops every block above `base` that is not final and makes `base` the last final one. Done at start: what is above
/// is read again.
///
/// # Errors
///
/// When SQLite fails.
pub async fn restart(db: &SqlitePool, base: BlockRef) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    sqlx::query("delete from block where final = 0").execute(&mut *tx).await?;
    sqlx::query(
        "insert into block (number, hash, parent, final) values (?1, ?2, zeroblob(32), 1) on conflict do nothing",
    )
    .bind(integer(base.number))
    .bind(base.hash.0.as_slice())
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

/// Writes an unfinal block; blocks at its height and above that are not final leave.
///
/// # Errors
///
/// When SQLite fails, or a final block stands at that height.
pub async fn put(db: &SqlitePool, seen: &Seen) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    sqlx::query("delete from block where number >= ?1 and final = 0")
        .bind(integer(seen.header.number))
        .execute(&mut *tx)
        .await?;
    insert(&mut tx, seen, false).await?;
    tx.commit().await
}

async fn insert(db: &mut SqliteConnection, seen: &Seen, last: bool) -> sqlx::Result<()> {
    let Header { number, hash, parent, .. } = seen.header;
    sqlx::query("insert into block (number, hash, parent, final) values (?1, ?2, ?3, ?4)")
        .bind(integer(number))
        .bind(hash.0.as_slice())
        .bind(parent.0.as_slice())
        .bind(last)
        .execute(&mut *db)
        .await?;
    for (place, event) in (0_i64..).zip(&seen.events) {
        sqlx::query("insert into chain_event (number, place, body) values (?1, ?2, ?3)")
            .bind(integer(number))
            .bind(place)
            .bind(selion_api::commit::canonical(event))
            .execute(&mut *db)
            .await?;
    }
    Ok(())
}

/// Marks blocks up to `through` final, and forgets older final ones that hold no events (those just below: what lies
/// deeper was forgotten before).
///
/// # Errors
///
/// When SQLite fails.
pub async fn settle(db: &SqlitePool, through: u64) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    sqlx::query("update block set final = 1 where number <= ?1 and final = 0")
        .bind(integer(through))
        .execute(&mut *tx)
        .await?;
    forget(&mut tx, through).await?;
    tx.commit().await
}

async fn forget(db: &mut SqliteConnection, below: u64) -> sqlx::Result<()> {
    sqlx::query(
        "delete from block where final = 1 and number < ?1 and number >= ?1 - 8192 \
         and not exists (select 1 from chain_event where chain_event.number = block.number)",
    )
    .bind(integer(below))
    .execute(db)
    .await
    .map(drop)
}

/// Writes blocks that are final already, rising, as read far below the head; blocks that are not final leave.
///
/// # Errors
///
/// When SQLite fails, or another final block stands at one of their heights.
pub async fn put_final(db: &SqlitePool, blocks: &[Seen]) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    sqlx::query("delete from block where final = 0").execute(&mut *tx).await?;
    for seen in blocks {
        insert(&mut tx, seen, true).await?;
    }
    if let Some(last) = blocks.last() {
        forget(&mut tx, last.header.number).await?;
    }
    tx.commit().await
}

/// Events that are on chain but not final, by block, in order: to be shown as `unconfirmed`.
///
/// # Errors
///
/// When SQLite fails or an event does not decode.
pub async fn unconfirmed(db: &SqlitePool) -> sqlx::Result<Vec<(u64, ChainEvent)>> {
    let rows = sqlx::query(
        "select chain_event.number, body from chain_event join block using (number) where final = 0 \
         order by chain_event.number, place",
    )
    .fetch_all(db)
    .await?;
    rows.iter()
        .map(|row| {
            let number = u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or_default();
            let event = ChainEvent::try_from_slice(row.try_get::<&[u8], _>(1)?)
                .map_err(|error| sqlx::Error::Decode(error.to_string().into()))?;
            Ok((number, event))
        })
        .collect()
}
