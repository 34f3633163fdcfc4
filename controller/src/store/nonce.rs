//! Table `spent_nonce`: which nonces were used.

use selion_api::TimeMs;
use sqlx::SqlitePool;

use super::int;

/// Spends a nonce that lapses at `expires`; forgets those that lapsed. `false` if it was spent before.
pub async fn spend(writer: &SqlitePool, nonce: &str, now: TimeMs, expires: TimeMs) -> sqlx::Result<bool> {
    let mut tx = writer.begin().await?;
    sqlx::query("delete from spent_nonce where expires_ms <= $1").bind(int(now.0)).execute(&mut *tx).await?;
    let spent = sqlx::query("insert into spent_nonce (nonce, expires_ms) values ($1, $2) on conflict do nothing")
        .bind(nonce)
        .bind(int(expires.0))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(spent.rows_affected() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn a_nonce_counts_once_and_is_forgotten_when_it_has_lapsed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let (db, until) = (&store.writer, TimeMs(100));
        assert!(spend(db, "nonce001", TimeMs(1), until).await.unwrap());
        assert!(!spend(db, "nonce001", TimeMs(99), until).await.unwrap());
        assert!(spend(db, "nonce002", TimeMs(100), TimeMs(200)).await.unwrap());
        let (left,): (i64,) = sqlx::query_as("select count(*) from spent_nonce").fetch_one(db).await.unwrap();
        assert_eq!(left, 1);
    }
}
