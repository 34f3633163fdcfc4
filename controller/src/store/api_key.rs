//! Tables `auth_nonce` and `api_key`: how an account proves itself once, and then again.

use selion_api::rest::ApiKeyView;
use selion_api::{Account, Hash32, TimeMs};
use sqlx::{Row, SqlitePool};

use super::{fixed, int, uint};

/// Nonces that one account may have open at a time; the oldest go first.
const OPEN_NONCES: i64 = 16;

/// Keeps a nonce for `account`; drops those that lapsed.
pub async fn offer_nonce(
    writer: &SqlitePool,
    nonce: &Hash32,
    account: Account,
    now: TimeMs,
    expires: TimeMs,
) -> sqlx::Result<()> {
    let mut tx = writer.begin().await?;
    sqlx::query("delete from auth_nonce where expires_ms <= $1").bind(int(now.0)).execute(&mut *tx).await?;
    sqlx::query("insert into auth_nonce (nonce, account, expires_ms) values ($1, $2, $3)")
        .bind(&nonce.0[..])
        .bind(&account.0[..])
        .bind(int(expires.0))
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "delete from auth_nonce where account = $1 and nonce not in \
         (select nonce from auth_nonce where account = $1 order by expires_ms desc, nonce limit $2)",
    )
    .bind(&account.0[..])
    .bind(OPEN_NONCES)
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

/// Takes the nonce. `false` if it was never given to `account`, was taken before, or has lapsed.
pub async fn take_nonce(writer: &SqlitePool, nonce: &Hash32, account: Account, now: TimeMs) -> sqlx::Result<bool> {
    let taken = sqlx::query("delete from auth_nonce where nonce = $1 and account = $2 and expires_ms > $3")
        .bind(&nonce.0[..])
        .bind(&account.0[..])
        .bind(int(now.0))
        .execute(writer)
        .await?;
    Ok(taken.rows_affected() == 1)
}

/// Adds a key by its hash and returns its id.
pub async fn add(writer: &SqlitePool, account: Account, hash: &Hash32, name: &str, now: TimeMs) -> sqlx::Result<u64> {
    let added = sqlx::query("insert into api_key (account, hash, name, created_ms) values ($1, $2, $3, $4)")
        .bind(&account.0[..])
        .bind(&hash.0[..])
        .bind(name)
        .bind(int(now.0))
        .execute(writer)
        .await?;
    Ok(uint(added.last_insert_rowid()))
}

/// The account of a live key. Looked up by id and hash, so that only the hash decides.
pub async fn account_of(db: &SqlitePool, id: u64, hash: &Hash32) -> sqlx::Result<Option<Account>> {
    let row = sqlx::query("select account from api_key where id = $1 and hash = $2 and revoked_ms is null")
        .bind(int(id))
        .bind(&hash.0[..])
        .fetch_optional(db)
        .await?;
    row.map(|row| Ok(Account(fixed(&row.get::<Vec<u8>, _>("account"))?))).transpose()
}

/// The live keys of `account` with an id above `after`, in order of id.
pub async fn of_account(
    db: &SqlitePool,
    account: Account,
    limit: u32,
    after: Option<u64>,
) -> sqlx::Result<Vec<ApiKeyView>> {
    let rows = sqlx::query(
        "select id, name, created_ms from api_key \
         where account = $1 and revoked_ms is null and id > $2 order by id limit $3",
    )
    .bind(&account.0[..])
    .bind(int(after.unwrap_or_default()))
    .bind(limit)
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ApiKeyView {
            id: uint(row.get("id")),
            name: row.get("name"),
            created_ms: TimeMs(uint(row.get("created_ms"))),
        })
        .collect())
}

/// Revokes a key of `account`. `false` if it has no such live key.
pub async fn revoke(writer: &SqlitePool, account: Account, id: u64, now: TimeMs) -> sqlx::Result<bool> {
    let revoked = sqlx::query(
        "update api_key set revoked_ms = max($3, created_ms) \
         where id = $1 and account = $2 and revoked_ms is null",
    )
    .bind(int(id))
    .bind(&account.0[..])
    .bind(int(now.0))
    .execute(writer)
    .await?;
    Ok(revoked.rows_affected() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    const ME: Account = Account([1; 20]);
    const OTHER: Account = Account([2; 20]);

    #[tokio::test]
    async fn a_nonce_counts_once_for_its_account_and_in_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let (nonce, db) = (Hash32([7; 32]), &store.writer);
        offer_nonce(db, &nonce, ME, TimeMs(0), TimeMs(100)).await.unwrap();
        assert!(!take_nonce(db, &nonce, OTHER, TimeMs(1)).await.unwrap());
        assert!(!take_nonce(db, &nonce, ME, TimeMs(100)).await.unwrap());
        assert!(take_nonce(db, &nonce, ME, TimeMs(99)).await.unwrap());
        assert!(!take_nonce(db, &nonce, ME, TimeMs(99)).await.unwrap());
    }

    #[tokio::test]
    async fn an_account_has_sixteen_open_nonces_at_most() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        for n in 0..20 {
            let expires = TimeMs(100 + u64::from(n));
            offer_nonce(&store.writer, &Hash32([n; 32]), ME, TimeMs(0), expires).await.unwrap();
        }
        assert!(!take_nonce(&store.writer, &Hash32([3; 32]), ME, TimeMs(1)).await.unwrap());
        assert!(take_nonce(&store.writer, &Hash32([4; 32]), ME, TimeMs(1)).await.unwrap());
    }

    #[tokio::test]
    async fn a_revoked_key_opens_nothing_and_only_its_owner_revokes_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let (hash, db) = (Hash32([7; 32]), &store.writer);
        let id = add(db, ME, &hash, "laptop", TimeMs(5)).await.unwrap();
        assert_eq!(account_of(db, id, &hash).await.unwrap(), Some(ME));
        assert_eq!(account_of(db, id, &Hash32([8; 32])).await.unwrap(), None);
        assert_eq!(of_account(db, ME, 10, None).await.unwrap().len(), 1);
        assert!(!revoke(db, OTHER, id, TimeMs(9)).await.unwrap());
        assert!(revoke(db, ME, id, TimeMs(9)).await.unwrap());
        assert_eq!(account_of(db, id, &hash).await.unwrap(), None);
        assert!(!revoke(db, ME, id, TimeMs(9)).await.unwrap());
        assert!(of_account(db, ME, 10, None).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn the_schema_refuses_two_keys_of_one_hash() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        add(&store.writer, ME, &Hash32([7; 32]), "", TimeMs(0)).await.unwrap();
        assert!(add(&store.writer, OTHER, &Hash32([7; 32]), "", TimeMs(0)).await.is_err());
    }
}
