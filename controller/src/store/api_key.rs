//! Table `api_key`: how a program proves for which account it acts, and what it may do.

use selion_api::rest::{ApiKeyView, Scope};
use selion_api::{Account, Hash32, TimeMs};
use sqlx::{Row, SqlitePool};

use super::{fixed, int, uint};

/// Live keys that one account may have.
pub const MOST: u32 = 100;

/// A key to be added.
#[derive(Clone, Copy, Debug)]
pub struct NewKey<'a> {
    /// Whose.
    pub account: Account,
    /// SHA-256 of its secret.
    pub hash: Hash32,
    /// For people.
    pub name: &'a str,
    /// What it may do: codes with a blank between them.
    pub scopes: &'a str,
    /// When it ends by itself.
    pub expires: Option<TimeMs>,
}

/// A live key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveKey {
    /// Whose.
    pub account: Account,
    /// What it may do: codes with a blank between them.
    pub scopes: String,
    /// When it ends by itself.
    pub expires: Option<TimeMs>,
}

/// Adds a key by its hash and returns its id; `None` if the account has [`MOST`] already.
pub async fn add(writer: &SqlitePool, new: &NewKey<'_>, now: TimeMs) -> sqlx::Result<Option<u64>> {
    let added = sqlx::query(
        "insert into api_key (account, hash, name, scopes, expires_ms, created_ms) \
         select $1, $2, $3, $4, $5, $6 where $7 > (select count(*) from api_key \
         where account = $1 and revoked_ms is null and coalesce(expires_ms > $6, true))",
    )
    .bind(&new.account.0[..])
    .bind(&new.hash.0[..])
    .bind(new.name)
    .bind(new.scopes)
    .bind(new.expires.map(|at| int(at.0)))
    .bind(int(now.0))
    .bind(MOST)
    .execute(writer)
    .await?;
    Ok((added.rows_affected() == 1).then(|| uint(added.last_insert_rowid())))
}

/// Whether that key lives.
pub async fn lives(db: &SqlitePool, id: u64, hash: &Hash32, now: TimeMs) -> sqlx::Result<bool> {
    let row = sqlx::query(
        "select 1 from api_key where id = $1 and hash = $2 and revoked_ms is null and coalesce(expires_ms > $3, true)",
    )
    .bind(int(id))
    .bind(&hash.0[..])
    .bind(int(now.0))
    .fetch_optional(db)
    .await?;
    Ok(row.is_some())
}

/// The live key of that id and hash, marked as used now. Looked up by both, so that only the hash decides.
pub async fn take(writer: &SqlitePool, id: u64, hash: &Hash32, now: TimeMs) -> sqlx::Result<Option<LiveKey>> {
    let row = sqlx::query(
        "update api_key set used_ms = $3 where id = $1 and hash = $2 and revoked_ms is null \
         and coalesce(expires_ms > $3, true) returning account, scopes, expires_ms",
    )
    .bind(int(id))
    .bind(&hash.0[..])
    .bind(int(now.0))
    .fetch_optional(writer)
    .await?;
    row.map(|row| {
        Ok(LiveKey {
            account: Account(fixed(&row.get::<Vec<u8>, _>("account"))?),
            scopes: row.get("scopes"),
            expires: time(row.get("expires_ms")),
        })
    })
    .transpose()
}

fn time(stored: Option<i64>) -> Option<TimeMs> {
    stored.map(|ms| TimeMs(uint(ms)))
}

/// The live keys of `account` with an id above `after`, in order of id.
pub async fn of_account(
    db: &SqlitePool,
    account: Account,
    limit: u32,
    after: Option<u64>,
    now: TimeMs,
) -> sqlx::Result<Vec<ApiKeyView>> {
    let rows = sqlx::query(
        "select id, name, scopes, created_ms, expires_ms, used_ms from api_key where account = $1 \
         and revoked_ms is null and coalesce(expires_ms > $4, true) and id > $2 order by id limit $3",
    )
    .bind(&account.0[..])
    .bind(int(after.unwrap_or_default()))
    .bind(limit)
    .bind(int(now.0))
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ApiKeyView {
            id: uint(row.get("id")),
            name: row.get("name"),
            scopes: row.get::<String, _>("scopes").split(' ').filter_map(Scope::of).collect(),
            created_ms: TimeMs(uint(row.get("created_ms"))),
            expires_ms: time(row.get("expires_ms")),
            used_ms: time(row.get("used_ms")),
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

/// Keys that were revoked after `since`, and when.
pub async fn revoked_since(db: &SqlitePool, since: TimeMs) -> sqlx::Result<Vec<(u64, TimeMs)>> {
    let rows = sqlx::query("select id, revoked_ms from api_key where revoked_ms > $1")
        .bind(int(since.0))
        .fetch_all(db)
        .await?;
    Ok(rows.iter().map(|row| (uint(row.get("id")), TimeMs(uint(row.get("revoked_ms"))))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    const ME: Account = Account([1; 20]);
    const OTHER: Account = Account([2; 20]);

    fn key(hash: u8) -> NewKey<'static> {
        NewKey { account: ME, hash: Hash32([hash; 32]), name: "ci", scopes: "lease:read data:read", expires: None }
    }

    #[tokio::test]
    async fn a_revoked_key_opens_nothing_and_only_its_owner_revokes_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let (hash, db) = (Hash32([7; 32]), &store.writer);
        let id = add(db, &key(7), TimeMs(5)).await.unwrap().unwrap();
        let live = LiveKey { account: ME, scopes: "lease:read data:read".to_owned(), expires: None };
        assert_eq!(take(db, id, &hash, TimeMs(6)).await.unwrap(), Some(live));
        assert_eq!(take(db, id, &Hash32([8; 32]), TimeMs(6)).await.unwrap(), None);
        let seen = of_account(db, ME, 10, None, TimeMs(6)).await.unwrap();
        assert_eq!(
            (seen[0].used_ms, seen[0].scopes.as_slice()),
            (Some(TimeMs(6)), &[Scope::LeaseRead, Scope::DataRead][..])
        );
        assert!(!revoke(db, OTHER, id, TimeMs(9)).await.unwrap());
        assert!(revoke(db, ME, id, TimeMs(9)).await.unwrap());
        assert_eq!(take(db, id, &hash, TimeMs(9)).await.unwrap(), None);
        assert!(!revoke(db, ME, id, TimeMs(9)).await.unwrap());
        assert!(of_account(db, ME, 10, None, TimeMs(9)).await.unwrap().is_empty());
        assert_eq!(revoked_since(db, TimeMs(8)).await.unwrap(), [(id, TimeMs(9))]);
    }

    #[tokio::test]
    async fn a_key_ends_by_itself_at_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let db = &store.writer;
        let id = add(db, &NewKey { expires: Some(TimeMs(100)), ..key(7) }, TimeMs(5)).await.unwrap().unwrap();
        assert!(take(db, id, &Hash32([7; 32]), TimeMs(99)).await.unwrap().is_some());
        assert!(take(db, id, &Hash32([7; 32]), TimeMs(100)).await.unwrap().is_none());
        assert!(of_account(db, ME, 10, None, TimeMs(100)).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_account_has_a_hundred_live_keys_at_most() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let db = &store.writer;
        for n in 0..100 {
            assert!(add(db, &key(n), TimeMs(5)).await.unwrap().is_some());
        }
        assert_eq!(add(db, &key(100), TimeMs(5)).await.unwrap(), None);
        assert!(add(db, &NewKey { account: OTHER, ..key(100) }, TimeMs(5)).await.unwrap().is_some());
        assert!(revoke(db, ME, 1, TimeMs(6)).await.unwrap());
        assert!(add(db, &key(101), TimeMs(6)).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_database_of_before_scopes_is_brought_up_to_date_with_its_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("sqlite://{}?mode=rwc", dir.path().join("selion.db").display());
        let old = SqlitePool::connect(&path).await.unwrap();
        let all = sqlx::migrate!("./migrations");
        let before = all.iter().filter(|migration| migration.version < 4).cloned().collect();
        sqlx::migrate::Migrator::with_migrations(before).run(&old).await.unwrap();
        sqlx::query("insert into api_key (account, hash, name, created_ms) values ($1, $2, 'old', 5)")
            .bind(&ME.0[..])
            .bind(&[7_u8; 32][..])
            .execute(&old)
            .await
            .unwrap();
        old.close().await;
        let store = Store::open(dir.path()).await.unwrap();
        let key = take(&store.writer, 1, &Hash32([7; 32]), TimeMs(6)).await.unwrap().unwrap();
        let could: Vec<&str> = Scope::ALL.into_iter().filter(|scope| *scope != Scope::Login).map(Scope::code).collect();
        assert_eq!((key.account, key.scopes), (ME, could.join(" ")));
    }

    #[tokio::test]
    async fn the_schema_refuses_two_keys_of_one_hash() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        add(&store.writer, &key(7), TimeMs(0)).await.unwrap();
        assert!(add(&store.writer, &NewKey { account: OTHER, ..key(7) }, TimeMs(0)).await.is_err());
    }
}
