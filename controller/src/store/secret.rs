//! Tables `sealed_secret` and `kept_secret`: what came for the members of live leases. Private.

use selion_api::commit::canonical;
use selion_api::seal::{Sealed, Secret};
use selion_api::{LeaseId, NodeId};
use sqlx::{Row, SqlitePool};
use zeroize::Zeroizing;

use super::{Store, undecodable};

/// One run of a member, on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The lease.
    pub lease: LeaseId,
    /// Which run.
    pub attempt: u32,
    /// Rank.
    pub member: u16,
    /// On which node.
    pub node: NodeId,
}

/// Keeps what was sealed for a run, in place of what was there for the member.
pub async fn put(db: &SqlitePool, run: &Run, sealed: &Sealed) -> sqlx::Result<()> {
    sqlx::query(
        "insert into sealed_secret (lease, member, attempt, node, body) values ($1, $2, $3, $4, $5)
         on conflict (lease, member) do update set attempt = excluded.attempt, node = excluded.node, body = excluded.body
         where excluded.attempt >= sealed_secret.attempt",
    )
    .bind(run.lease.to_string())
    .bind(i64::from(run.member))
    .bind(i64::from(run.attempt))
    .bind(&run.node.0[..])
    .bind(canonical(sealed))
    .execute(db)
    .await?;
    Ok(())
}

/// What was sealed for this run.
pub async fn get(db: &SqlitePool, run: &Run) -> sqlx::Result<Option<Sealed>> {
    let row =
        sqlx::query("select body from sealed_secret where lease = $1 and member = $2 and attempt = $3 and node = $4")
            .bind(run.lease.to_string())
            .bind(i64::from(run.member))
            .bind(i64::from(run.attempt))
            .bind(&run.node.0[..])
            .fetch_optional(db)
            .await?;
    row.map(|row| borsh::from_slice(&row.get::<Vec<u8>, _>("body")).map_err(undecodable)).transpose()
}

/// Keeps the secrets of a lease themselves.
pub async fn keep(store: &Store, lease: LeaseId, secrets: &[Secret]) -> sqlx::Result<()> {
    let id = lease.to_string();
    let plain = Zeroizing::new(canonical(&secrets));
    let body = store.at_rest.seal(("kept_secret", id.as_bytes()), &plain)?;
    sqlx::query(
        "insert into kept_secret (lease, body) values ($1, $2) on conflict (lease) do update set body = excluded.body",
    )
    .bind(id)
    .bind(body)
    .execute(&store.writer)
    .await?;
    Ok(())
}

/// The secrets of a lease that were kept.
pub async fn kept(store: &Store, lease: LeaseId) -> sqlx::Result<Option<Vec<Secret>>> {
    let id = lease.to_string();
    let row = sqlx::query("select body from kept_secret where lease = $1").bind(&id);
    let Some(row) = row.fetch_optional(&store.readers).await? else {
        return Ok(None);
    };
    let plain = store.at_rest.open_text(("kept_secret", id.as_bytes()), &row.get::<Vec<u8>, _>("body"))?;
    borsh::from_slice(&plain).map(Some).map_err(undecodable)
}

/// Forgets all of leases that are over.
pub async fn forget(store: &Store, is_live: impl Fn(LeaseId) -> bool) -> sqlx::Result<()> {
    let there = sqlx::query("select lease from sealed_secret union select lease from kept_secret")
        .fetch_all(&store.readers)
        .await?;
    for lease in there.iter().map(|row| row.get::<String, _>("lease")) {
        if lease.parse().is_ok_and(&is_live) {
            continue;
        }
        sqlx::query("delete from sealed_secret where lease = $1").bind(&lease).execute(&store.writer).await?;
        sqlx::query("delete from kept_secret where lease = $1").bind(&lease).execute(&store.writer).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use selion_api::Hash32;

    const RUN: Run = Run { lease: LeaseId { seq: 7, index: 0 }, attempt: 2, member: 1, node: NodeId([1; 20]) };

    fn sealed(byte: u8) -> Sealed {
        Sealed { to: Hash32([byte; 32]), enc: Hash32([2; 32]), ciphertext: vec![byte; 9] }
    }

    #[tokio::test]
    async fn what_was_sealed_is_of_one_run_and_a_later_run_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let get = async |run: Run| get(&store.readers, &run).await.unwrap();
        put(&store.writer, &RUN, &sealed(1)).await.unwrap();
        assert_eq!(get(RUN).await, Some(sealed(1)));
        assert_eq!(get(Run { attempt: 3, ..RUN }).await, None);
        assert_eq!(get(Run { node: NodeId([9; 20]), ..RUN }).await, None);
        let next = Run { attempt: 3, ..RUN };
        put(&store.writer, &next, &sealed(3)).await.unwrap();
        put(&store.writer, &RUN, &sealed(1)).await.unwrap();
        assert_eq!((get(RUN).await, get(next).await), (None, Some(sealed(3))));
    }

    #[tokio::test]
    async fn nothing_of_a_lease_that_is_over_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let secrets = vec![Secret { name: "a".into(), value: b"b".to_vec() }];
        put(&store.writer, &RUN, &sealed(1)).await.unwrap();
        keep(&store, RUN.lease, &secrets).await.unwrap();
        forget(&store, |_| true).await.unwrap();
        assert_eq!(kept(&store, RUN.lease).await.unwrap(), Some(secrets));
        forget(&store, |_| false).await.unwrap();
        assert_eq!((get(&store.readers, &RUN).await.unwrap(), kept(&store, RUN.lease).await.unwrap()), (None, None));
    }
}
