//! Table `dataset`: what each account added to the content store. Private: the log knows the tags only.

use selion_api::rest::Dataset;
use selion_api::{Account, Hash32, TimeMs};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlitePool};

use super::{fixed, int, uint};

/// Adds `dataset` to `account`'s; the second time nothing changes but a name that is given.
pub async fn add(writer: &SqlitePool, account: Account, dataset: &Dataset) -> sqlx::Result<()> {
    sqlx::query(
        "insert into dataset (account, cid, tag, name, bytes, blocks, added_ms) values ($1, $2, $3, $4, $5, $6, $7) \
         on conflict (account, cid) do update set name = excluded.name where excluded.name <> ''",
    )
    .bind(&account.0[..])
    .bind(&dataset.cid)
    .bind(&dataset.tag.0[..])
    .bind(&dataset.name)
    .bind(int(dataset.bytes))
    .bind(int(dataset.blocks))
    .bind(int(dataset.added_ms.0))
    .execute(writer)
    .await?;
    Ok(())
}

/// The dataset `cid`, if `account` added it.
pub async fn get(db: &SqlitePool, account: Account, cid: &str) -> sqlx::Result<Option<Dataset>> {
    let row = sqlx::query("select * from dataset where account = $1 and cid = $2")
        .bind(&account.0[..])
        .bind(cid)
        .fetch_optional(db)
        .await?;
    row.map(|row| read(&row)).transpose()
}

/// Takes the dataset `cid` from `account`. Tells whether it had it.
pub async fn remove(writer: &SqlitePool, account: Account, cid: &str) -> sqlx::Result<bool> {
    let done = sqlx::query("delete from dataset where account = $1 and cid = $2")
        .bind(&account.0[..])
        .bind(cid)
        .execute(writer)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Datasets of `account`, newest first; `after` is the last one of the page before.
pub async fn of_account(
    db: &SqlitePool,
    account: Account,
    limit: u32,
    after: Option<(TimeMs, &str)>,
) -> sqlx::Result<Vec<Dataset>> {
    let (added, cid) = after.map_or((i64::MAX, ""), |(added, cid)| (int(added.0), cid));
    let rows = sqlx::query(
        "select * from dataset where account = $1 and (added_ms < $2 or (added_ms = $2 and cid > $3)) \
         order by added_ms desc, cid limit $4",
    )
    .bind(&account.0[..])
    .bind(added)
    .bind(cid)
    .bind(limit)
    .fetch_all(db)
    .await?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> sqlx::Result<Dataset> {
    Ok(Dataset {
        cid: row.get("cid"),
        tag: Hash32(fixed(&row.get::<Vec<u8>, _>("tag"))?),
        name: row.get("name"),
        bytes: uint(row.get("bytes")),
        blocks: uint(row.get("blocks")),
        added_ms: TimeMs(uint(row.get("added_ms"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    const ME: Account = Account([1; 20]);

    fn dataset(cid: &str, added_ms: u64) -> Dataset {
        Dataset {
            cid: cid.to_owned(),
            tag: Hash32([1; 32]),
            name: String::new(),
            bytes: 10,
            blocks: 1,
            added_ms: TimeMs(added_ms),
        }
    }

    #[tokio::test]
    async fn pages_run_from_the_newest_and_skip_none_of_equal_age() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        for (cid, added) in [("a", 1), ("b", 2), ("c", 2), ("d", 3)] {
            add(&store.writer, ME, &dataset(cid, added)).await.unwrap();
        }
        let (mut seen, mut after) = (Vec::new(), None::<Dataset>);
        loop {
            let at = after.as_ref().map(|last| (last.added_ms, last.cid.as_str()));
            let page = of_account(&store.readers, ME, 2, at).await.unwrap();
            seen.extend(page.iter().map(|one| one.cid.clone()));
            match page.last() {
                Some(last) => after = Some(last.clone()),
                None => break,
            }
        }
        assert_eq!(seen, ["d", "b", "c", "a"]);
    }

    #[tokio::test]
    async fn a_dataset_is_seen_by_the_account_that_added_it_and_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let named = Dataset { name: "mnist".to_owned(), ..dataset("a", 1) };
        add(&store.writer, ME, &named).await.unwrap();
        add(&store.writer, ME, &dataset("a", 9)).await.unwrap();
        assert_eq!(get(&store.readers, ME, "a").await.unwrap(), Some(named));
        assert!(!remove(&store.writer, Account([2; 20]), "a").await.unwrap(), "it is another's");
        assert!(remove(&store.writer, ME, "a").await.unwrap());
        assert_eq!(get(&store.readers, ME, "a").await.unwrap(), None);
        assert_eq!(get(&store.readers, Account([2; 20]), "a").await.unwrap(), None);
        let empty = Dataset { blocks: 0, ..dataset("b", 1) };
        assert!(add(&store.writer, ME, &empty).await.is_err(), "a dataset has at least one block");
    }
}
