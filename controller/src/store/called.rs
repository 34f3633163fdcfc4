//! Tables `lease_name` and `lease_label`: what renters call their leases. Private.

use std::collections::BTreeMap;

use selion_api::rest::{Called, Lease};
use selion_api::{Account, LeaseId};
use sqlx::{QueryBuilder, Row, Sqlite, SqliteConnection, SqlitePool};

use super::int;

/// Which leases a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those called so.
    pub name: Option<String>,
    /// Those with this label, by key and value.
    pub label: Option<(String, String)>,
}

/// Keeps what a new lease is called.
pub async fn put(db: &mut SqliteConnection, renter: Account, id: LeaseId, called: &Called) -> sqlx::Result<()> {
    if let Some(name) = &called.name {
        sqlx::query("insert into lease_name (lease, seq, idx, renter, name) values ($1, $2, $3, $4, $5)")
            .bind(id.to_string())
            .bind(int(id.seq))
            .bind(i64::from(id.index))
            .bind(&renter.0[..])
            .bind(name)
            .execute(&mut *db)
            .await?;
    }
    for (key, value) in &called.labels {
        sqlx::query("insert into lease_label (lease, key, value, seq, idx, renter) values ($1, $2, $3, $4, $5, $6)")
            .bind(id.to_string())
            .bind(key)
            .bind(value)
            .bind(int(id.seq))
            .bind(i64::from(id.index))
            .bind(&renter.0[..])
            .execute(&mut *db)
            .await?;
    }
    Ok(())
}

/// What a lease is called.
pub async fn of(db: &SqlitePool, id: LeaseId) -> sqlx::Result<Called> {
    let text = id.to_string();
    let name = sqlx::query("select name from lease_name where lease = $1").bind(&text).fetch_optional(db).await?;
    let labels = sqlx::query("select key, value from lease_label where lease = $1").bind(&text).fetch_all(db).await?;
    Ok(Called {
        name: name.map(|row| row.get("name")),
        labels: labels.iter().map(|row| (row.get("key"), row.get("value"))).collect(),
    })
}

/// What leases of one page are called, by their ids as text.
pub async fn of_all(db: &SqlitePool, leases: &[Lease]) -> sqlx::Result<BTreeMap<String, Called>> {
    let mut all: BTreeMap<String, Called> = BTreeMap::new();
    if leases.is_empty() {
        return Ok(all);
    }
    let among = |start: &str| {
        let mut query = QueryBuilder::<Sqlite>::new(start);
        let mut ids = query.separated(", ");
        for lease in leases {
            ids.push_bind(lease.id.to_string());
        }
        ids.push_unseparated(")");
        query
    };
    for row in among("select lease, name from lease_name where lease in (").build().fetch_all(db).await? {
        all.entry(row.get("lease")).or_default().name = Some(row.get("name"));
    }
    for row in among("select lease, key, value from lease_label where lease in (").build().fetch_all(db).await? {
        all.entry(row.get("lease")).or_default().labels.insert(row.get("key"), row.get("value"));
    }
    Ok(all)
}

/// The lease of `renter` that is called so: the live one, else the newest; and whether it lives.
pub async fn named(db: &SqlitePool, renter: Account, name: &str) -> sqlx::Result<Option<(LeaseId, bool)>> {
    let row = sqlx::query(
        "select lease.id, lease.state <> 'ended' as live from lease_name join lease on lease.id = lease_name.lease \
         where lease_name.renter = $1 and lease_name.name = $2 \
         order by live desc, lease_name.seq desc, lease_name.idx desc limit 1",
    )
    .bind(&renter.0[..])
    .bind(name)
    .fetch_optional(db)
    .await?;
    let read = |row: sqlx::sqlite::SqliteRow| {
        let id: LeaseId = row.get::<&str, _>("id").parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        Ok((id, row.get("live")))
    };
    row.map(read).transpose()
}

/// A renter's leases of which `filter` is true, newest first, those before `before`: their rows as JSON.
pub async fn filtered(
    db: &SqlitePool,
    renter: Account,
    filter: &Filter,
    limit: u32,
    before: LeaseId,
) -> sqlx::Result<Vec<String>> {
    let mut query = QueryBuilder::<Sqlite>::new("select lease.body from lease");
    if filter.name.is_some() {
        query.push(" join lease_name n on n.lease = lease.id");
    }
    if filter.label.is_some() {
        query.push(" join lease_label l on l.lease = lease.id");
    }
    query.push(" where lease.renter = ").push_bind(renter.0.to_vec());
    if let Some(name) = &filter.name {
        query.push(" and n.renter = lease.renter and n.name = ").push_bind(name.clone());
    }
    if let Some((key, value)) = &filter.label {
        query.push(" and l.renter = lease.renter and l.key = ").push_bind(key.clone());
        query.push(" and l.value = ").push_bind(value.clone());
    }
    query.push(" and (lease.seq, lease.idx) < (").push_bind(int(before.seq));
    query.push(", ").push_bind(i64::from(before.index)).push(") order by lease.seq desc, lease.idx desc limit ");
    let rows = query.push_bind(limit).build().fetch_all(db).await?;
    Ok(rows.iter().map(|row| row.get("body")).collect())
}
