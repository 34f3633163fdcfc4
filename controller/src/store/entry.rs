//! Table `entry`: the log itself.

use futures::TryStreamExt;
use futures::stream::BoxStream;
use selion_api::Hash32;
use selion_api::agent::SignedHead;
use selion_api::rest::LoggedEntry;
use selion_log::{Levels, leaf_hash};
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{count, fixed, int, undecodable};

/// Appends one entry.
pub async fn insert(
    db: &mut SqliteConnection,
    seq: u64,
    bytes: &[u8],
    leaf: &Hash32,
    effects: &[Vec<u8>],
) -> sqlx::Result<()> {
    sqlx::query("insert into entry (seq, bytes, leaf, effects) values ($1, $2, $3, $4)")
        .bind(int(seq))
        .bind(bytes)
        .bind(&leaf.0[..])
        .bind(selion_api::commit::canonical(&effects))
        .execute(db)
        .await?;
    Ok(())
}

/// Entries in the log.
pub async fn size(db: &SqlitePool) -> sqlx::Result<u64> {
    let row = sqlx::query("select coalesce(max(seq) + 1, 0) as size from entry").fetch_one(db).await?;
    count(&row, "entry", "size")
}

/// Canonical bytes of up to `limit` entries from `from` on.
pub async fn bytes(db: &SqlitePool, from: u64, limit: u32) -> sqlx::Result<Vec<Vec<u8>>> {
    let rows = sqlx::query("select bytes from entry where seq >= $1 order by seq limit $2")
        .bind(int(from))
        .bind(limit)
        .fetch_all(db)
        .await?;
    Ok(rows.into_iter().map(|row| row.get("bytes")).collect())
}

/// Canonical bytes of the entries, the newest first.
pub fn backwards(db: &SqlitePool) -> BoxStream<'_, sqlx::Result<Vec<u8>>> {
    sqlx::query_scalar("select bytes from entry order by seq desc").fetch(db)
}

/// Leaf hashes of up to `limit` entries from `from` on.
pub async fn leaves(db: &SqlitePool, from: u64, limit: u32) -> sqlx::Result<Vec<Hash32>> {
    let rows = sqlx::query("select leaf from entry where seq >= $1 order by seq limit $2")
        .bind(int(from))
        .bind(limit)
        .fetch_all(db)
        .await?;
    rows.into_iter().map(|row| fixed(&row.get::<Vec<u8>, _>("leaf")).map(Hash32)).collect()
}

/// The canonical lists of effect leaves of up to `limit` entries from `from` on.
pub async fn effects(db: &SqlitePool, from: u64, limit: u32) -> sqlx::Result<Vec<Vec<u8>>> {
    let rows = sqlx::query("select effects from entry where seq >= $1 order by seq limit $2")
        .bind(int(from))
        .bind(limit)
        .fetch_all(db)
        .await?;
    Ok(rows.into_iter().map(|row| row.get("effects")).collect())
}

/// The upper levels of the tree over all entries; or the first entry that is missing, or whose bytes are not those of
/// its leaf any more. Reads the whole log.
pub async fn levels(db: &SqlitePool) -> sqlx::Result<Result<Levels, u64>> {
    let mut rows = sqlx::query("select seq, bytes, leaf from entry order by seq").fetch(db);
    let mut levels = Levels::default();
    while let Some(row) = rows.try_next().await? {
        let (bytes, stored): (&[u8], &[u8]) = (row.get("bytes"), row.get("leaf"));
        let leaf = leaf_hash(bytes);
        if count(&row, "entry", "seq")? != levels.size() || leaf.0 != *stored {
            return Ok(Err(levels.size()));
        }
        levels.push(leaf);
    }
    Ok(Ok(levels))
}

/// How many bytes each of up to `limit` entries from `from` on has, its effects included.
pub async fn sizes(db: &SqlitePool, from: u64, limit: u32) -> sqlx::Result<Vec<u64>> {
    let rows =
        sqlx::query("select length(bytes) + length(effects) as size from entry where seq >= $1 order by seq limit $2")
            .bind(int(from))
            .bind(limit)
            .fetch_all(db)
            .await?;
    rows.iter().map(|row| count(row, "entry", "size")).collect()
}

/// Up to `limit` entries from `from` on, as published.
pub async fn page(db: &SqlitePool, from: u64, limit: u32) -> sqlx::Result<Vec<LoggedEntry>> {
    let rows = sqlx::query(
        "select seq, entry.bytes as bytes, effects, head.bytes as head from entry \
         left join head on head.size = entry.seq + 1 where seq >= $1 order by seq limit $2",
    )
    .bind(int(from))
    .bind(limit)
    .fetch_all(db)
    .await?;
    rows.into_iter()
        .map(|row| {
            let effects: Vec<Vec<u8>> = borsh::from_slice(&row.get::<Vec<u8>, _>("effects")).map_err(undecodable)?;
            let head: Option<SignedHead> = row
                .get::<Option<Vec<u8>>, _>("head")
                .map(|bytes| borsh::from_slice(&bytes).map_err(undecodable))
                .transpose()?;
            Ok(LoggedEntry {
                seq: count(&row, "entry", "seq")?,
                entry: hex::encode(row.get::<Vec<u8>, _>("bytes")),
                effects: effects.iter().map(hex::encode).collect(),
                head,
            })
        })
        .collect()
}
