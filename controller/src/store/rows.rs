//! The rows that answer questions: each a deterministic fold of the log, its body the JSON that readers get.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use selion_api::lease::LeaseState;
use selion_api::{Account, Hash32, LeaseId, NodeId, Reason, rest};
use selion_market::{Answer, Effect, State, VoucherDue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::called::{self, Filter};
use super::{int, voucher};
use crate::project;
use crate::sequencer::Step;

/// Rows that a batch will write: the last word of each, gathered in memory while its steps run.
#[derive(Default)]
pub struct Pending {
    leases: BTreeMap<LeaseId, rest::Lease>,
    events: Vec<(LeaseId, u32, rest::LeaseEvent)>,
    answers: BTreeMap<Hash32, rest::Lease>,
    nodes: BTreeMap<NodeId, rest::NodeView>,
    accounts: BTreeMap<Account, rest::AccountView>,
    bills: Vec<(u64, u32, rest::BillView)>,
    vouchers: Vec<(VoucherDue, u64)>,
    /// Whether the registry changed: it is large, so it is written as it is in the end.
    registry: bool,
    created: u64,
}

/// How many rows of the kinds that only grow the fold has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Leases.
    pub leases: u64,
    /// Lease events.
    pub events: u64,
    /// Bill lines.
    pub bills: u64,
}

impl Pending {
    /// Notes what `step` changed; `state` is State right after it.
    pub fn note(&mut self, state: &State, step: &Step) {
        let touched = &step.outcome.touched;
        for id in &touched.leases {
            if let Some(view) = project::lease(state, *id) {
                self.leases.insert(*id, view);
            }
        }
        for id in &touched.nodes {
            if let Some(view) = project::node(state, *id) {
                self.nodes.insert(*id, view);
            }
        }
        for id in &touched.accounts {
            self.accounts.insert(*id, project::account(state, *id));
        }
        self.registry |= touched.registry;
        if let Answer::Created(id) = step.outcome.answer {
            self.created += 1;
            if let (Some(lease), Some(view)) = (state.leases.get(&id), project::lease(state, id)) {
                self.answers.insert(lease.request.idem, view);
            }
        }
        for (effect, index) in step.outcome.effects.iter().zip(0_u32..) {
            self.note_effect(state, step, index, effect);
        }
    }

    fn note_effect(&mut self, state: &State, step: &Step, index: u32, effect: &Effect) {
        let mut tell = |lease: &LeaseId, reached: LeaseState, reason: Option<Reason>, attempt: u32| {
            let placed = !matches!(reached, LeaseState::Waiting | LeaseState::Ended);
            let peers = state.leases.get(lease).filter(|_| placed).map(|lease| project::peers(state, lease));
            let event = rest::LeaseEvent {
                entry: step.seq,
                at_ms: step.at_ms,
                state: reached,
                reason,
                attempt,
                peers: peers.unwrap_or_default(),
            };
            self.events.push((*lease, index, event));
        };
        match effect {
            Effect::Moved { lease, state, reason, attempt } => tell(lease, *state, *reason, *attempt),
            // It stays active: a member was lost, and has another place.
            Effect::Broken { lease, attempt, .. } => {
                tell(lease, LeaseState::Active, Some(Reason::NodeLost), *attempt);
            }
            Effect::Repaired { lease, attempt } => tell(lease, LeaseState::Active, None, *attempt),
            Effect::Billed(line) => {
                self.bills.push((step.seq, index, rest::BillView { entry: step.seq, line: line.clone() }));
            }
            Effect::VoucherDue(due) => self.vouchers.push((due.clone(), step.seq + 1)),
            _ => {}
        }
    }

    /// Writes the rows and the counts; `state` is State after the last step.
    pub async fn write(self, db: &mut SqliteConnection, state: &State) -> sqlx::Result<()> {
        for (id, view) in &self.leases {
            sqlx::query(
                "insert into lease (id, seq, idx, renter, state, body) values ($1, $2, $3, $4, $5, $6) \
                 on conflict (id) do update set state = excluded.state, body = excluded.body",
            )
            .bind(id.to_string())
            .bind(int(id.seq))
            .bind(i64::from(id.index))
            .bind(&view.renter.0[..])
            .bind(view.state.code())
            .bind(json(view)?)
            .execute(&mut *db)
            .await?;
        }
        for (lease, index, event) in &self.events {
            sqlx::query("insert into lease_event (lease, entry, idx, body) values ($1, $2, $3, $4)")
                .bind(lease.to_string())
                .bind(int(event.entry))
                .bind(i64::from(*index))
                .bind(json(event)?)
                .execute(&mut *db)
                .await?;
        }
        for (idem, view) in &self.answers {
            sqlx::query(
                "insert into first_answer (idem, body) values ($1, $2) \
                 on conflict (idem) do update set body = excluded.body",
            )
            .bind(&idem.0[..])
            .bind(json(view)?)
            .execute(&mut *db)
            .await?;
        }
        self.write_rest(db, state).await
    }

    async fn write_rest(self, db: &mut SqliteConnection, state: &State) -> sqlx::Result<()> {
        for (id, view) in &self.nodes {
            sqlx::query(
                "insert into node (id, provider, body) values ($1, $2, $3) \
                 on conflict (id) do update set provider = excluded.provider, body = excluded.body",
            )
            .bind(&id.0[..])
            .bind(&view.provider.0[..])
            .bind(json(view)?)
            .execute(&mut *db)
            .await?;
        }
        for (id, view) in &self.accounts {
            sqlx::query(
                "insert into account (id, body) values ($1, $2) on conflict (id) do update set body = excluded.body",
            )
            .bind(&id.0[..])
            .bind(json(view)?)
            .execute(&mut *db)
            .await?;
        }
        if self.registry {
            sqlx::query(
                "insert into registry (one, body) values (1, $1) \
                 on conflict (one) do update set body = excluded.body",
            )
            .bind(json(&project::registry(state))?)
            .execute(&mut *db)
            .await?;
        }
        for (entry, index, view) in &self.bills {
            sqlx::query("insert into bill (entry, idx, renter, provider, body) values ($1, $2, $3, $4, $5)")
                .bind(int(*entry))
                .bind(i64::from(*index))
                .bind(&view.line.renter.0[..])
                .bind(&view.line.provider.0[..])
                .bind(json(view)?)
                .execute(&mut *db)
                .await?;
        }
        for (due, log_size) in &self.vouchers {
            voucher::raise(db, due, *log_size).await?;
        }
        sqlx::query(
            "insert into fold (one, size, leases, events, bills) values (1, $1, $2, $3, $4) \
             on conflict (one) do update set size = excluded.size, leases = leases + excluded.leases, \
             events = events + excluded.events, bills = bills + excluded.bills",
        )
        .bind(int(state.next_seq))
        .bind(int(self.created))
        .bind(int(self.events.len() as u64))
        .bind(int(self.bills.len() as u64))
        .execute(db)
        .await?;
        Ok(())
    }
}

/// Deletes every row that the fold writes.
pub async fn clear(db: &mut SqliteConnection) -> sqlx::Result<()> {
    for table in TABLES {
        sqlx::query(sqlx::AssertSqlSafe(format!("delete from {table}"))).execute(&mut *db).await?;
    }
    Ok(())
}

/// Tables of the fold.
pub const TABLES: [&str; 9] =
    ["lease", "lease_event", "first_answer", "node", "account", "registry", "bill", "voucher", "fold"];

/// Whether the rows are those of a log of `size` entries, by number: `(counted by the fold, found)`.
pub async fn count(db: &SqlitePool, size: u64) -> sqlx::Result<(Option<Counts>, Counts)> {
    let row = sqlx::query("select size, leases, events, bills from fold").fetch_optional(db).await?;
    let counted = match row {
        Some(row) if super::count(&row, "fold", "size")? == size => Some(counts(&row)?),
        _ => None,
    };
    let row = sqlx::query(
        "select (select count(*) from lease) as leases, (select count(*) from lease_event) as events, \
         (select count(*) from bill) as bills",
    )
    .fetch_one(db)
    .await?;
    Ok((counted, counts(&row)?))
}

fn counts(row: &SqliteRow) -> sqlx::Result<Counts> {
    let of = |column| super::count(row, "fold", column);
    Ok(Counts { leases: of("leases")?, events: of("events")?, bills: of("bills")? })
}

/// One digest for each table of the fold, over every column of every row.
///
/// # Errors
///
/// When SQLite fails.
pub async fn digests(db: &mut SqliteConnection) -> sqlx::Result<BTreeMap<&'static str, Hash32>> {
    let mut digests = BTreeMap::new();
    for table in TABLES {
        let columns = sqlx::query("select name from pragma_table_info(?1) order by cid").bind(table);
        let columns: Vec<String> =
            columns.fetch_all(&mut *db).await?.iter().map(|row| row.try_get("name")).collect::<sqlx::Result<_>>()?;
        let quoted: Vec<String> = columns.iter().map(|column| format!("quote({column})")).collect();
        // SQLite's own literals: a text can hold no separator, and a blob is no text of the same letters.
        let line = quoted.join(" || ',' || ");
        let query = format!("select {line} as line from {table} order by line");
        let mut hasher = Sha256::new();
        let mut rows = sqlx::query(sqlx::AssertSqlSafe(query)).fetch(&mut *db);
        while let Some(row) = rows.try_next().await? {
            hasher.update(row.try_get::<&str, _>("line")?);
            hasher.update("\n");
        }
        drop(rows);
        digests.insert(table, Hash32(hasher.finalize().into()));
    }
    Ok(digests)
}

fn json<T: Serialize>(value: &T) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

fn read<T: DeserializeOwned>(row: &SqliteRow) -> sqlx::Result<T> {
    serde_json::from_str(row.get::<&str, _>("body")).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// One lease.
pub async fn lease(db: &SqlitePool, id: LeaseId) -> sqlx::Result<Option<rest::Lease>> {
    let row = sqlx::query("select body from lease where id = $1").bind(id.to_string()).fetch_optional(db).await?;
    row.as_ref().map(read).transpose()
}

/// A renter's leases of which `filter` is true, newest first, those before `before`.
pub async fn leases(
    db: &SqlitePool,
    renter: Account,
    limit: u32,
    before: Option<LeaseId>,
    filter: &Filter,
) -> sqlx::Result<Vec<rest::Lease>> {
    let before = before.unwrap_or(LeaseId { seq: i64::MAX as u64, index: u32::MAX });
    if *filter != Filter::default() {
        let bodies = called::filtered(db, renter, filter, limit, before).await?;
        let read = |body: &String| serde_json::from_str(body).map_err(|error| sqlx::Error::Decode(error.into()));
        return bodies.iter().map(read).collect();
    }
    let rows = sqlx::query(
        "select body from lease where renter = $1 and (seq, idx) < ($2, $3) order by seq desc, idx desc limit $4",
    )
    .bind(&renter.0[..])
    .bind(int(before.seq))
    .bind(i64::from(before.index))
    .bind(limit)
    .fetch_all(db)
    .await?;
    rows.iter().map(read).collect()
}

/// What happened to a lease after entry `after`, in order.
pub async fn lease_events(db: &SqlitePool, id: LeaseId, after: Option<u64>) -> sqlx::Result<Vec<rest::LeaseEvent>> {
    let rows = sqlx::query("select body from lease_event where lease = $1 and entry > $2 order by entry, idx")
        .bind(id.to_string())
        .bind(after.map_or(-1, int))
        .fetch_all(db)
        .await?;
    rows.iter().map(read).collect()
}

/// The lease as it was first answered to the request of this `idem`.
pub async fn first_answer(db: &SqlitePool, idem: Hash32) -> sqlx::Result<Option<rest::Lease>> {
    let row = sqlx::query("select body from first_answer where idem = $1").bind(&idem.0[..]).fetch_optional(db).await?;
    row.as_ref().map(read).transpose()
}

/// One node.
pub async fn node(db: &SqlitePool, id: NodeId) -> sqlx::Result<Option<rest::NodeView>> {
    let row = sqlx::query("select body from node where id = $1").bind(&id.0[..]).fetch_optional(db).await?;
    row.as_ref().map(read).transpose()
}

/// Nodes in order of id, those after `after`.
pub async fn nodes(db: &SqlitePool, limit: u32, after: Option<NodeId>) -> sqlx::Result<Vec<rest::NodeView>> {
    let after = after.map(|id| id.0.to_vec()).unwrap_or_default();
    let rows = sqlx::query("select body from node where id > $1 order by id limit $2")
        .bind(after)
        .bind(limit)
        .fetch_all(db)
        .await?;
    rows.iter().map(read).collect()
}

/// What the log knows of the chain.
pub async fn registry(db: &SqlitePool) -> sqlx::Result<Option<rest::RegistryView>> {
    sqlx::query("select body from registry").fetch_optional(db).await?.as_ref().map(read).transpose()
}

/// An account's money.
pub async fn account(db: &SqlitePool, id: Account) -> sqlx::Result<Option<rest::AccountView>> {
    let row = sqlx::query("select body from account where id = $1").bind(&id.0[..]).fetch_optional(db).await?;
    row.as_ref().map(read).transpose()
}

/// Bill lines that an account pays or earns, newest first, those before entry `before`.
pub async fn bills(
    db: &SqlitePool,
    who: Account,
    limit: u32,
    before: Option<u64>,
) -> sqlx::Result<Vec<rest::BillView>> {
    let rows = sqlx::query(
        "select body from bill where (renter = $1 or provider = $1) and entry < $2 \
         order by entry desc, idx desc limit $3",
    )
    .bind(&who.0[..])
    .bind(before.map_or(i64::MAX, int))
    .bind(limit)
    .fetch_all(db)
    .await?;
    rows.iter().map(read).collect()
}
