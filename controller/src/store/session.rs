//! Tables `session`, `refresh_token` and `token_epoch`: what was opened by logging in, and how it ends.

use selion_api::{Account, Hash32, TimeMs};
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{fixed, int, uint};

/// Sessions that one account may have open at a time; the oldest end.
const OPEN: i64 = 64;

/// A session to be opened.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    /// Whose.
    pub account: Account,
    /// Its scopes, by a blank between them.
    pub scopes: &'a str,
    /// For people.
    pub name: &'a str,
    /// SHA-256 of its first refresh token.
    pub refresh: Hash32,
    /// When that token lapses.
    pub expires: TimeMs,
}

/// What a refresh token was good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// It was the newest; its successor is in its place.
    Rotated {
        /// The session.
        session: u64,
        /// Whose.
        account: Account,
        /// What it may do.
        scopes: String,
    },
    /// It had been used before. The session is over now.
    Reused {
        /// The session.
        session: u64,
        /// Whose.
        account: Account,
    },
    /// Unknown, lapsed, or of a session that ended.
    Unknown,
}

/// What was ended at one blow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The account's epoch from now on.
    pub epoch: u64,
    /// Sessions.
    pub sessions: Vec<u64>,
    /// API keys.
    pub keys: Vec<u64>,
}

/// Opens a session; returns its id and those that ended for being too many. Forgets sessions whose time is over.
pub async fn open(writer: &SqlitePool, new: &NewSession<'_>, now: TimeMs) -> sqlx::Result<(u64, Vec<u64>)> {
    let mut tx = writer.begin().await?;
    sqlx::query("delete from session where expires_ms <= $1").bind(int(now.0)).execute(&mut *tx).await?;
    let added =
        sqlx::query("insert into session (account, scopes, name, created_ms, expires_ms) values ($1, $2, $3, $4, $5)")
            .bind(&new.account.0[..])
            .bind(new.scopes)
            .bind(new.name)
            .bind(int(now.0))
            .bind(int(new.expires.0))
            .execute(&mut *tx)
            .await?;
    let id = added.last_insert_rowid();
    add_refresh(&mut tx, id, &new.refresh).await?;
    let ended = sqlx::query(
        "update session set ended_ms = max($2, created_ms) where account = $1 and ended_ms is null and id not in \
         (select id from session where account = $1 and ended_ms is null order by id desc limit $3) returning id",
    )
    .bind(&new.account.0[..])
    .bind(int(now.0))
    .bind(OPEN)
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok((uint(id), ids(&ended)))
}

async fn add_refresh(db: &mut SqliteConnection, session: i64, hash: &Hash32) -> sqlx::Result<()> {
    sqlx::query("insert into refresh_token (hash, session) values ($1, $2)")
        .bind(&hash.0[..])
        .bind(session)
        .execute(db)
        .await
        .map(drop)
}

/// Puts `new`, good until `expires`, in the place of the refresh token `old`.
pub async fn refresh(
    writer: &SqlitePool,
    old: &Hash32,
    new: &Hash32,
    now: TimeMs,
    expires: TimeMs,
) -> sqlx::Result<Refreshed> {
    let mut tx = writer.begin().await?;
    let row = sqlx::query(
        "select s.id, s.account, s.scopes, t.used_ms from refresh_token t join session s on s.id = t.session \
         where t.hash = $1 and s.ended_ms is null and s.expires_ms > $2",
    )
    .bind(&old.0[..])
    .bind(int(now.0))
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(Refreshed::Unknown) };
    let id: i64 = row.get("id");
    let account = Account(fixed(&row.get::<Vec<u8>, _>("account"))?);
    if row.get::<Option<i64>, _>("used_ms").is_some() {
        sqlx::query("update session set ended_ms = max($2, created_ms) where id = $1")
            .bind(id)
            .bind(int(now.0))
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        return Ok(Refreshed::Reused { session: uint(id), account });
    }
    sqlx::query("update refresh_token set used_ms = $2 where hash = $1")
        .bind(&old.0[..])
        .bind(int(now.0))
        .execute(&mut *tx)
        .await?;
    add_refresh(&mut tx, id, new).await?;
    sqlx::query("update session set expires_ms = max($2, expires_ms) where id = $1")
        .bind(id)
        .bind(int(expires.0))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(Refreshed::Rotated { session: uint(id), account, scopes: row.get("scopes") })
}

/// Ends one session. `false` if it was over.
pub async fn end(writer: &SqlitePool, id: u64, now: TimeMs) -> sqlx::Result<bool> {
    let ended = sqlx::query("update session set ended_ms = max($2, created_ms) where id = $1 and ended_ms is null")
        .bind(int(id))
        .bind(int(now.0))
        .execute(writer)
        .await?;
    Ok(ended.rows_affected() == 1)
}

/// Ends every session of `account`, and with `keys` every API key; raises its epoch.
pub async fn end_all(writer: &SqlitePool, account: Account, keys: bool, now: TimeMs) -> sqlx::Result<Ended> {
    let mut tx = writer.begin().await?;
    let epoch: i64 = sqlx::query(
        "insert into token_epoch (account, epoch) values ($1, 1) \
         on conflict (account) do update set epoch = epoch + 1 returning epoch",
    )
    .bind(&account.0[..])
    .fetch_one(&mut *tx)
    .await?
    .get("epoch");
    let sessions = sqlx::query(
        "update session set ended_ms = max($2, created_ms) where account = $1 and ended_ms is null returning id",
    )
    .bind(&account.0[..])
    .bind(int(now.0))
    .fetch_all(&mut *tx)
    .await?;
    let mut ended = Ended { epoch: uint(epoch), sessions: ids(&sessions), keys: Vec::new() };
    if keys {
        let revoked = sqlx::query(
            "update api_key set revoked_ms = max($2, created_ms) where account = $1 and revoked_ms is null returning id",
        )
        .bind(&account.0[..])
        .bind(int(now.0))
        .fetch_all(&mut *tx)
        .await?;
        ended.keys = ids(&revoked);
    }
    tx.commit().await?;
    Ok(ended)
}

fn ids(rows: &[sqlx::sqlite::SqliteRow]) -> Vec<u64> {
    rows.iter().map(|row| uint(row.get("id"))).collect()
}

/// Every account's epoch; one that is not named has 0.
pub async fn epochs(db: &SqlitePool) -> sqlx::Result<Vec<(Account, u64)>> {
    let rows = sqlx::query("select account, epoch from token_epoch").fetch_all(db).await?;
    let read = |row: &sqlx::sqlite::SqliteRow| {
        Ok((Account(fixed(&row.get::<Vec<u8>, _>("account"))?), uint(row.get("epoch"))))
    };
    rows.iter().map(read).collect()
}

/// Sessions that ended after `since`, and when.
pub async fn ended_since(db: &SqlitePool, since: TimeMs) -> sqlx::Result<Vec<(u64, TimeMs)>> {
    let rows =
        sqlx::query("select id, ended_ms from session where ended_ms > $1").bind(int(since.0)).fetch_all(db).await?;
    Ok(rows.iter().map(|row| (uint(row.get("id")), TimeMs(uint(row.get("ended_ms"))))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, api_key};

    const ME: Account = Account([1; 20]);
    const OTHER: Account = Account([2; 20]);
    const FAR: TimeMs = TimeMs(1_000);

    async fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        (dir, store)
    }

    async fn log_in(store: &Store, account: Account, refresh: u8, now: u64) -> u64 {
        let new = NewSession { account, scopes: "login", name: "", refresh: Hash32([refresh; 32]), expires: FAR };
        open(&store.writer, &new, TimeMs(now)).await.unwrap().0
    }

    async fn turn(store: &Store, old: u8, new: u8, now: u64) -> Refreshed {
        refresh(&store.writer, &Hash32([old; 32]), &Hash32([new; 32]), TimeMs(now), FAR).await.unwrap()
    }

    #[tokio::test]
    async fn a_refresh_token_counts_once_and_its_second_use_ends_the_session() {
        let (_dir, store) = store().await;
        let (id, other) = (log_in(&store, ME, 1, 5).await, log_in(&store, ME, 9, 5).await);
        let rotated = Refreshed::Rotated { session: id, account: ME, scopes: "login".to_owned() };
        assert_eq!(turn(&store, 1, 2, 6).await, rotated);
        assert_eq!(turn(&store, 2, 3, 7).await, rotated);
        assert_eq!(turn(&store, 1, 4, 8).await, Refreshed::Reused { session: id, account: ME });
        assert_eq!(turn(&store, 3, 5, 9).await, Refreshed::Unknown, "the newest of the chain is dead too");
        assert_eq!(ended_since(&store.readers, TimeMs(7)).await.unwrap(), [(id, TimeMs(8))]);
        assert!(matches!(turn(&store, 9, 8, 9).await, Refreshed::Rotated { session, .. } if session == other));
    }

    #[tokio::test]
    async fn a_session_lapses_where_nobody_refreshes_it() {
        let (_dir, store) = store().await;
        log_in(&store, ME, 1, 5).await;
        assert_eq!(turn(&store, 1, 2, FAR.0).await, Refreshed::Unknown);
        assert_eq!(turn(&store, 7, 2, 6).await, Refreshed::Unknown, "nobody's token");
    }

    #[tokio::test]
    async fn everything_of_one_account_ends_at_one_blow_and_nothing_of_another() {
        let (_dir, store) = store().await;
        let (one, two) = (log_in(&store, ME, 1, 5).await, log_in(&store, ME, 2, 5).await);
        log_in(&store, OTHER, 3, 5).await;
        let key = api_key::NewKey { account: ME, hash: Hash32([7; 32]), name: "", scopes: "", expires: None };
        let key = api_key::add(&store.writer, &key, TimeMs(5)).await.unwrap().unwrap();
        let ended = end_all(&store.writer, ME, false, TimeMs(6)).await.unwrap();
        assert_eq!(ended, Ended { epoch: 1, sessions: vec![one, two], keys: Vec::new() });
        let ended = end_all(&store.writer, ME, true, TimeMs(7)).await.unwrap();
        assert_eq!(ended, Ended { epoch: 2, sessions: Vec::new(), keys: vec![key] });
        assert_eq!(epochs(&store.readers).await.unwrap(), [(ME, 2)]);
        assert_eq!(turn(&store, 1, 4, 8).await, Refreshed::Unknown);
        assert!(matches!(turn(&store, 3, 5, 8).await, Refreshed::Rotated { account: OTHER, .. }));
    }

    #[tokio::test]
    async fn an_account_has_sixty_four_sessions_at_most_and_the_oldest_ends() {
        let (_dir, store) = store().await;
        let first = log_in(&store, ME, 0, 5).await;
        for n in 1..64 {
            log_in(&store, ME, n, 5).await;
        }
        let new = NewSession { account: ME, scopes: "", name: "", refresh: Hash32([99; 32]), expires: FAR };
        assert_eq!(open(&store.writer, &new, TimeMs(6)).await.unwrap().1, [first]);
        assert!(end(&store.writer, first + 1, TimeMs(7)).await.unwrap());
        assert!(!end(&store.writer, first + 1, TimeMs(8)).await.unwrap());
    }
}
