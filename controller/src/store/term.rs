//! Table `fence`: who may write.

use selion_api::agent::Fence;
use sqlx::{SqliteConnection, SqlitePool};

use super::{count, int};

/// Starts a new term under `epoch` and returns the fence. A lower epoch than the stored one is not taken: `None`.
pub async fn raise(db: &SqlitePool, epoch: u32) -> sqlx::Result<Option<Fence>> {
    // A statement that returns rows has not committed when the row is here; on a full disk it never does.
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
    let row = sqlx::query(
        "insert into fence (one, epoch, term) values (1, $1, 1) \
         on conflict (one) do update set epoch = $1, term = term + 1 where epoch <= $1 \
         returning epoch, term",
    )
    .bind(i64::from(epoch))
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    row.map(|row| Ok(Fence { epoch, term: count(&row, "fence", "term")? })).transpose()
}

/// Starts a term above `above`, which the log has: the table was altered, or is of an older copy.
pub async fn raise_above(db: &SqlitePool, above: Fence) -> sqlx::Result<Fence> {
    let fence = Fence { term: above.term.saturating_add(1), ..above };
    sqlx::query("update fence set epoch = $1, term = $2")
        .bind(i64::from(fence.epoch))
        .bind(int(fence.term))
        .execute(db)
        .await?;
    Ok(fence)
}

/// Whether `fence` is still the one in force, within the caller's transaction.
pub async fn holds(db: &mut SqliteConnection, fence: Fence) -> sqlx::Result<bool> {
    let row = sqlx::query("select 1 from fence where epoch = $1 and term = $2")
        .bind(i64::from(fence.epoch))
        .bind(int(fence.term))
        .fetch_optional(db)
        .await?;
    Ok(row.is_some())
}
