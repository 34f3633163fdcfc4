//! Table `device`: machines without a key that ask to be let in.

use selion_api::{Account, Hash32, TimeMs};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlitePool};

use super::{fixed, int, uint};

/// Devices that may wait at a time, of all callers together.
const OPEN: i64 = 10_000;
/// Devices that may wait at a time of one network: a laboratory behind one address, and no more.
const OPEN_OF_NETWORK: i64 = 50;
/// A code that lapsed is known for so long, to tell its device why.
const REMEMBERED_MS: u64 = 3_600_000;
/// By so much a device that asks too often has to slow down, in milliseconds.
const SLOWER_MS: i64 = 5_000;

/// A device that asks.
#[derive(Clone, Debug)]
pub struct NewDevice<'a> {
    /// SHA-256 of its secret.
    pub hash: Hash32,
    /// Eight letters.
    pub user_code: &'a str,
    /// What it calls itself.
    pub name: &'a str,
    /// The address that it asked from.
    pub origin: &'a str,
    /// The network that this address counts as.
    pub network: &'a str,
    /// When its codes lapse.
    pub expires: TimeMs,
    /// Least time between two questions, in milliseconds.
    pub pace_ms: u64,
}

/// A device that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What it calls itself.
    pub name: String,
    /// The address that it asked from.
    pub origin: String,
    /// When it asked.
    pub asked: TimeMs,
    /// When its codes lapse.
    pub expires: TimeMs,
}

/// How a device stands when it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Nobody decided yet.
    Pending,
    /// Nobody decided yet, and it asks too often.
    SlowDown,
    /// Approved by that account; the device is forgotten.
    Approved {
        /// Who approved it.
        account: Account,
        /// What it calls itself.
        name: String,
    },
    /// Denied; the device is forgotten.
    Denied,
    /// Its time is over.
    Expired,
    /// No such device, or it had its answer.
    Unknown,
}

/// What became of a device that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It waits.
    Waits,
    /// Its user code is taken: another may not be.
    Taken,
    /// Too many of its network wait.
    NetworkFull,
    /// Too many wait.
    Full,
}

/// Adds a device, unless too many wait. Those that lapsed wait no longer.
pub async fn add(writer: &SqlitePool, new: &NewDevice<'_>, now: TimeMs) -> sqlx::Result<Added> {
    let mut tx = writer.begin().await?;
    sqlx::query("delete from device where expires_ms + $2 <= $1")
        .bind(int(now.0))
        .bind(int(REMEMBERED_MS))
        .execute(&mut *tx)
        .await?;
    let waiting = sqlx::query(
        "select count(*) as all_of_them, count(*) filter (where network = $2) as of_network from device \
         where expires_ms > $1",
    )
    .bind(int(now.0))
    .bind(new.network)
    .fetch_one(&mut *tx)
    .await?;
    if waiting.get::<i64, _>("of_network") >= OPEN_OF_NETWORK {
        return Ok(Added::NetworkFull);
    }
    if waiting.get::<i64, _>("all_of_them") >= OPEN {
        return Ok(Added::Full);
    }
    let added = sqlx::query(
        "insert into device (hash, user_code, name, origin, created_ms, expires_ms, pace_ms, network) \
         values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing",
    )
    .bind(&new.hash.0[..])
    .bind(new.user_code)
    .bind(new.name)
    .bind(new.origin)
    .bind(int(now.0))
    .bind(int(new.expires.0))
    .bind(int(new.pace_ms))
    .bind(new.network)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(if added.rows_affected() == 1 { Added::Waits } else { Added::Taken })
}

/// The device of that code, while nobody decided on it.
pub async fn waiting(db: &SqlitePool, user_code: &str, now: TimeMs) -> sqlx::Result<Option<Waiting>> {
    let row = sqlx::query(
        "select name, origin, created_ms, expires_ms from device \
         where user_code = $1 and expires_ms > $2 and account is null and denied_ms is null",
    )
    .bind(user_code)
    .bind(int(now.0))
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| Waiting {
        name: row.get("name"),
        origin: row.get("origin"),
        asked: TimeMs(uint(row.get("created_ms"))),
        expires: TimeMs(uint(row.get("expires_ms"))),
    }))
}

/// Decides on the device of that code: `account` lets it in, nobody denies it. `false` if none waits.
pub async fn decide(writer: &SqlitePool, user_code: &str, account: Option<Account>, now: TimeMs) -> sqlx::Result<bool> {
    let decided = sqlx::query(
        "update device set account = $2, denied_ms = iif($2 is null, $3, null) \
         where user_code = $1 and expires_ms > $3 and account is null and denied_ms is null",
    )
    .bind(user_code)
    .bind(account.map(|account| account.0.to_vec()))
    .bind(int(now.0))
    .execute(writer)
    .await?;
    Ok(decided.rows_affected() == 1)
}

/// A device asks. Its last answer is given once.
pub async fn poll(writer: &SqlitePool, hash: &Hash32, now: TimeMs) -> sqlx::Result<Poll> {
    let mut tx = writer.begin().await?;
    let row = sqlx::query("select * from device where hash = $1").bind(&hash.0[..]).fetch_optional(&mut *tx).await?;
    let Some(row) = row else { return Ok(Poll::Unknown) };
    let poll = standing(&row, now)?;
    let change = if matches!(poll, Poll::Approved { .. } | Poll::Denied) {
        sqlx::query("delete from device where hash = $1").bind(&hash.0[..])
    } else {
        let slower = if poll == Poll::SlowDown { SLOWER_MS } else { 0 };
        sqlx::query("update device set polled_ms = $2, pace_ms = pace_ms + $3 where hash = $1")
            .bind(&hash.0[..])
            .bind(int(now.0))
            .bind(slower)
    };
    change.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(poll)
}

fn standing(row: &SqliteRow, now: TimeMs) -> sqlx::Result<Poll> {
    if uint(row.get("expires_ms")) <= now.0 {
        return Ok(Poll::Expired);
    }
    if let Some(account) = row.get::<Option<Vec<u8>>, _>("account") {
        return Ok(Poll::Approved { account: Account(fixed(&account)?), name: row.get("name") });
    }
    if row.get::<Option<i64>, _>("denied_ms").is_some() {
        return Ok(Poll::Denied);
    }
    let early = |polled: i64| now.0 < uint(polled) + uint(row.get("pace_ms"));
    let slow = row.get::<Option<i64>, _>("polled_ms").is_some_and(early);
    Ok(if slow { Poll::SlowDown } else { Poll::Pending })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    const ME: Account = Account([1; 20]);
    const HASH: Hash32 = Hash32([7; 32]);

    fn new(hash: Hash32, user_code: &str) -> NewDevice<'_> {
        NewDevice {
            hash,
            user_code,
            name: "box",
            origin: "10.0.0.7",
            network: "10.0.0.7",
            expires: TimeMs(60_000),
            pace_ms: 5_000,
        }
    }

    async fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        assert_eq!(add(&store.writer, &new(HASH, "BCDFGHJK"), TimeMs(0)).await.unwrap(), Added::Waits);
        (dir, store)
    }

    async fn ask(store: &Store, now: u64) -> Poll {
        poll(&store.writer, &HASH, TimeMs(now)).await.unwrap()
    }

    #[tokio::test]
    async fn a_device_waits_at_its_pace_and_is_told_once_that_it_was_approved() {
        let (_dir, store) = store().await;
        assert_eq!(ask(&store, 1).await, Poll::Pending);
        assert_eq!(ask(&store, 5_000).await, Poll::SlowDown);
        assert_eq!(ask(&store, 14_999).await, Poll::SlowDown, "the pace is ten seconds now");
        assert_eq!(ask(&store, 29_999).await, Poll::Pending);
        let seen = waiting(&store.readers, "BCDFGHJK", TimeMs(1)).await.unwrap().unwrap();
        assert_eq!((seen.name.as_str(), seen.origin.as_str()), ("box", "10.0.0.7"));
        assert!(decide(&store.writer, "BCDFGHJK", Some(ME), TimeMs(30_000)).await.unwrap());
        assert!(!decide(&store.writer, "BCDFGHJK", None, TimeMs(30_001)).await.unwrap(), "decided already");
        assert_eq!(waiting(&store.readers, "BCDFGHJK", TimeMs(30_001)).await.unwrap(), None);
        assert_eq!(ask(&store, 30_001).await, Poll::Approved { account: ME, name: "box".to_owned() });
        assert_eq!(ask(&store, 30_002).await, Poll::Unknown);
    }

    #[tokio::test]
    async fn a_denied_and_a_lapsed_device_are_told_so() {
        let (_dir, store) = store().await;
        assert!(!decide(&store.writer, "ZZZZZZZZ", None, TimeMs(1)).await.unwrap());
        assert!(!decide(&store.writer, "BCDFGHJK", Some(ME), TimeMs(60_000)).await.unwrap(), "lapsed");
        assert_eq!(ask(&store, 60_000).await, Poll::Expired);
        assert!(decide(&store.writer, "BCDFGHJK", None, TimeMs(59_999)).await.unwrap());
        assert_eq!(ask(&store, 59_999).await, Poll::Denied);
        assert_eq!(ask(&store, 59_999).await, Poll::Unknown);
    }

    #[tokio::test]
    async fn one_code_names_one_device() {
        let (_dir, store) = store().await;
        assert_eq!(add(&store.writer, &new(Hash32([8; 32]), "BCDFGHJK"), TimeMs(1)).await.unwrap(), Added::Taken);
        assert_eq!(add(&store.writer, &new(Hash32([8; 32]), "BCDFGHJL"), TimeMs(1)).await.unwrap(), Added::Waits);
    }

    #[tokio::test]
    async fn a_network_has_its_part_of_the_line_and_who_lapsed_stands_in_it_no_more() {
        let (_dir, store) = store().await;
        let code = |number: u8| format!("{}{}GHJK", char::from(b'A' + number / 26), char::from(b'A' + number % 26));
        let ask = async |number: u8, network: &str, now: u64| {
            let code = format!("{}XX", code(number));
            let expires = TimeMs(now + 60_000);
            let new = NewDevice { network, expires, ..new(Hash32([number + 100; 32]), &code) };
            add(&store.writer, &new, TimeMs(now)).await.unwrap()
        };
        for number in 1..50 {
            assert_eq!(ask(number, "10.0.0.7", 1).await, Added::Waits, "{number}");
        }
        assert_eq!(ask(50, "10.0.0.7", 1).await, Added::NetworkFull);
        assert_eq!(ask(51, "10.0.0.8", 1).await, Added::Waits, "another network asks");
        assert_eq!(ask(50, "10.0.0.7", 60_001).await, Added::Waits, "all of it lapsed");
    }
}
