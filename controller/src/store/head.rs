//! Table `head`: signed heads.

use selion_api::agent::SignedHead;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{int, undecodable};

/// Keeps a head.
pub async fn insert(db: &mut SqliteConnection, head: &SignedHead) -> sqlx::Result<()> {
    sqlx::query("insert into head (size, bytes) values ($1, $2) on conflict (size) do nothing")
        .bind(int(head.head.size))
        .bind(selion_api::commit::canonical(head))
        .execute(db)
        .await?;
    Ok(())
}

/// The head of the largest size, if any was signed.
pub async fn newest(db: &SqlitePool) -> sqlx::Result<Option<SignedHead>> {
    one(sqlx::query("select bytes from head order by size desc limit 1").fetch_optional(db).await?)
}

/// The head of exactly this size.
pub async fn at(db: &SqlitePool, size: u64) -> sqlx::Result<Option<SignedHead>> {
    one(sqlx::query("select bytes from head where size = $1").bind(int(size)).fetch_optional(db).await?)
}

fn one(row: Option<sqlx::sqlite::SqliteRow>) -> sqlx::Result<Option<SignedHead>> {
    row.map(|row| borsh::from_slice(&row.get::<Vec<u8>, _>("bytes")).map_err(undecodable)).transpose()
}
