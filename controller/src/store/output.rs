//! Table `output`: CIDs of outputs as agents told them, once they match the commitment in the log. Private.

use std::collections::BTreeMap;

use selion_api::LeaseId;
use sqlx::{Row, SqlitePool};

/// Keeps the CID of a member's outputs.
pub async fn put(db: &SqlitePool, lease: LeaseId, attempt: u32, member: u16, cid: &str) -> sqlx::Result<()> {
    sqlx::query(
        "insert into output (lease, attempt, member, cid) values ($1, $2, $3, $4) \
         on conflict (lease, attempt, member) do update set cid = excluded.cid",
    )
    .bind(lease.to_string())
    .bind(i64::from(attempt))
    .bind(i64::from(member))
    .bind(cid)
    .execute(db)
    .await?;
    Ok(())
}

/// The same of many leases at once. Leases without outputs are not in it.
pub async fn of_leases(db: &SqlitePool, leases: &[LeaseId]) -> sqlx::Result<BTreeMap<LeaseId, BTreeMap<u16, String>>> {
    let ids: Vec<String> = leases.iter().map(ToString::to_string).collect();
    let ids = serde_json::to_string(&ids).unwrap_or_default();
    let rows = sqlx::query(
        "select lease, member, cid from output as this where lease in (select value from json_each($1)) and attempt = \
         (select max(attempt) from output as other where other.lease = this.lease and other.member = this.member)",
    )
    .bind(ids)
    .fetch_all(db)
    .await?;
    let mut outputs: BTreeMap<LeaseId, BTreeMap<u16, String>> = BTreeMap::new();
    for row in rows {
        let lease = row.get::<String, _>("lease").parse().map_err(|_| sqlx::Error::Decode("no lease id".into()))?;
        let member = u16::try_from(row.get::<i64, _>("member")).unwrap_or_default();
        outputs.entry(lease).or_default().insert(member, row.get("cid"));
    }
    Ok(outputs)
}

/// CIDs by rank, each of the newest run of that member that has any: members that are repaired have higher numbers.
pub async fn of_lease(db: &SqlitePool, lease: LeaseId) -> sqlx::Result<BTreeMap<u16, String>> {
    let rows = sqlx::query(
        "select member, cid from output as this where lease = $1 and attempt = \
         (select max(attempt) from output as other where other.lease = $1 and other.member = this.member)",
    )
    .bind(lease.to_string())
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (u16::try_from(row.get::<i64, _>("member")).unwrap_or_default(), row.get("cid")))
        .collect())
}
