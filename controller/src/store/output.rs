//! Table `output`: what members left, as their nodes tell it. Private to the renter.

use std::collections::BTreeMap;

use selion_api::outputs::{OutputState, Outputs};
use selion_api::rest::LeaseOutput;
use selion_api::{Account, LeaseId, NodeId, TimeMs};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlitePool};

use super::{fixed, int, uint};

/// How long the pool keeps the content of outputs, counted from their last word, in milliseconds: 30 days, which is a
/// month to fetch them or to add them as a dataset.
pub const KEPT_MS: u64 = 30 * 24 * 3_600 * 1_000;
/// How long a node may take to send outputs, counted from its first word of them, in milliseconds: after 7 days they
/// are lost.
pub const UPLOAD_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whose they are.
    pub renter: Account,
    /// Who tells of them.
    pub node: NodeId,
    /// What was told last.
    pub outputs: Outputs,
    /// When the node told of them first.
    pub begun_ms: TimeMs,
    /// When it told of them last.
    pub told_ms: TimeMs,
    /// Whether their content may be gone.
    pub let_go: bool,
}

impl Told {
    /// Their state at `now`: a node that went silent in the middle has lost them.
    #[must_use]
    pub fn state(&self, now: TimeMs) -> OutputState {
        match self.outputs.state {
            OutputState::Uploading if now.since(self.begun_ms) > UPLOAD_MS => OutputState::Lost,
            said => said,
        }
    }

    /// As their renter sees them.
    #[must_use]
    pub fn view(&self, now: TimeMs) -> LeaseOutput {
        let Outputs { cid, bytes, files, skipped, named, why, .. } = self.outputs.clone();
        let state = self.state(now);
        let late = (state != self.outputs.state).then(|| "the node did not send them within 7 days".to_owned());
        let kept_until_ms = state.is_readable().then(|| self.told_ms.plus(KEPT_MS));
        LeaseOutput {
            rank: self.outputs.member,
            attempt: self.outputs.attempt,
            state,
            cid,
            bytes,
            files,
            skipped,
            skipped_first: named,
            why: why.or(late),
            kept_until_ms,
        }
    }
}

/// Notes what `node` says at `now`. A final word stays: what comes after it changes nothing. On the row as it is then,
/// [`get`] tells.
pub async fn put(db: &SqlitePool, renter: Account, node: NodeId, said: &Outputs, now: TimeMs) -> sqlx::Result<()> {
    let body = serde_json::to_string(said).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query(
        "insert into output (lease, attempt, member, renter, node, state, cid, body, begun_ms, told_ms) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9) on conflict (lease, attempt, member) do update \
         set state = excluded.state, cid = excluded.cid, body = excluded.body, told_ms = max(begun_ms, excluded.told_ms) \
         where output.state = 'uploading' and output.node = excluded.node",
    )
    .bind(said.lease.to_string())
    .bind(i64::from(said.attempt))
    .bind(i64::from(said.member))
    .bind(&renter.0[..])
    .bind(&node.0[..])
    .bind(said.state.code())
    .bind(&said.cid)
    .bind(body)
    .bind(int(now.0))
    .execute(db)
    .await?;
    Ok(())
}

/// The row of one member's run.
pub async fn get(db: &SqlitePool, lease: LeaseId, attempt: u32, member: u16) -> sqlx::Result<Option<Told>> {
    let row = sqlx::query("select * from output where lease = $1 and attempt = $2 and member = $3")
        .bind(lease.to_string())
        .bind(i64::from(attempt))
        .bind(i64::from(member))
        .fetch_optional(db)
        .await?;
    row.map(|row| read(&row)).transpose()
}

/// All of a lease, by run and rank.
pub async fn of_lease(db: &SqlitePool, lease: LeaseId) -> sqlx::Result<Vec<Told>> {
    Ok(of_leases(db, &[lease]).await?.remove(&lease).unwrap_or_default())
}

/// All of several leases, each by run and rank: one question for a page of them.
pub async fn of_leases(db: &SqlitePool, leases: &[LeaseId]) -> sqlx::Result<BTreeMap<LeaseId, Vec<Told>>> {
    let names: Vec<String> = leases.iter().map(ToString::to_string).collect();
    let names = serde_json::to_string(&names).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let rows = sqlx::query(
        "select output.* from json_each($1) as wanted join output on output.lease = wanted.value \
         order by output.lease, output.attempt, output.member",
    )
    .bind(names)
    .fetch_all(db)
    .await?;
    let mut all: BTreeMap<LeaseId, Vec<Told>> = BTreeMap::new();
    for row in &rows {
        let told = read(row)?;
        all.entry(told.outputs.lease).or_default().push(told);
    }
    Ok(all)
}

/// What a lease of `account` left at root `cid`, while its content is kept.
pub async fn left_by(db: &SqlitePool, account: Account, cid: &str) -> sqlx::Result<Option<Told>> {
    let row = sqlx::query(
        "select * from output where renter = $1 and cid = $2 and state in ('kept', 'partial') and let_go = 0 limit 1",
    )
    .bind(&account.0[..])
    .bind(cid)
    .fetch_optional(db)
    .await?;
    row.map(|row| read(&row)).transpose()
}

/// What run `attempt` of member `member` may go on from: the newest outputs of an earlier run, of its own rank or, where
/// that left none, of rank 0.
pub async fn before(db: &SqlitePool, lease: LeaseId, attempt: u32, member: u16) -> sqlx::Result<Option<Told>> {
    let row = sqlx::query(
        "select * from output where lease = $1 and attempt < $2 and member in ($3, 0) and state <> 'lost' \
         and let_go = 0 order by member = $3 desc, attempt desc limit 1",
    )
    .bind(lease.to_string())
    .bind(i64::from(attempt))
    .bind(i64::from(member))
    .fetch_optional(db)
    .await?;
    row.map(|row| read(&row)).transpose()
}

/// Up to `most` outputs of which the last word is older than [`KEPT_MS`].
pub async fn outlived(db: &SqlitePool, now: TimeMs, most: u32) -> sqlx::Result<Vec<Told>> {
    let rows = sqlx::query(
        "select * from output where let_go = 0 and state in ('kept', 'partial') and told_ms < $1 \
         order by told_ms limit $2",
    )
    .bind(int(now.0.saturating_sub(KEPT_MS)))
    .bind(most)
    .fetch_all(db)
    .await?;
    rows.iter().map(read).collect()
}

/// The node's own report says otherwise than it told: they are lost.
pub async fn disown(db: &SqlitePool, lease: LeaseId, attempt: u32, member: u16) -> sqlx::Result<()> {
    let Some(told) = get(db, lease, attempt, member).await? else { return Ok(()) };
    let why = Some("the node's report commits to other outputs than it sent".to_owned());
    let lost = Outputs { state: OutputState::Lost, cid: None, why, ..told.outputs };
    let body = serde_json::to_string(&lost).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query(
        "update output set state = 'lost', cid = null, body = $4 where lease = $1 and attempt = $2 and member = $3",
    )
    .bind(lease.to_string())
    .bind(i64::from(attempt))
    .bind(i64::from(member))
    .bind(body)
    .execute(db)
    .await?;
    Ok(())
}

/// Under which name the content store keeps the outputs of a lease.
#[must_use]
pub fn pin_owner(lease: LeaseId) -> String {
    lease.to_string()
}

/// Their content is not kept any more.
pub async fn let_go(db: &SqlitePool, outputs: &Outputs) -> sqlx::Result<()> {
    sqlx::query("update output set let_go = 1 where lease = $1 and attempt = $2 and member = $3")
        .bind(outputs.lease.to_string())
        .bind(i64::from(outputs.attempt))
        .bind(i64::from(outputs.member))
        .execute(db)
        .await?;
    Ok(())
}

/// Whether another run of the lease left the same content, and it is still kept.
pub async fn is_wanted(db: &SqlitePool, outputs: &Outputs) -> sqlx::Result<bool> {
    let found = sqlx::query("select 1 from output where lease = $1 and cid = $2 and let_go = 0 limit 1")
        .bind(outputs.lease.to_string())
        .bind(&outputs.cid)
        .fetch_optional(db)
        .await?;
    Ok(found.is_some())
}

fn read(row: &SqliteRow) -> sqlx::Result<Told> {
    let outputs =
        serde_json::from_str(&row.get::<String, _>("body")).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(Told {
        renter: Account(fixed(&row.get::<Vec<u8>, _>("renter"))?),
        node: NodeId(fixed(&row.get::<Vec<u8>, _>("node"))?),
        outputs,
        begun_ms: TimeMs(uint(row.get("begun_ms"))),
        told_ms: TimeMs(uint(row.get("told_ms"))),
        let_go: row.get::<i64, _>("let_go") != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use OutputState::{Kept, Lost, Partial, Uploading};

    const ME: Account = Account([1; 20]);
    const NODE: NodeId = NodeId([2; 20]);
    const LEASE: LeaseId = LeaseId { seq: 7, index: 0 };

    fn said(attempt: u32, member: u16, state: OutputState) -> Outputs {
        Outputs {
            lease: LEASE,
            attempt,
            member,
            state,
            cid: (state != Lost).then(|| format!("cid-{attempt}-{member}")),
            bytes: 3,
            files: 1,
            skipped: u64::from(state == Partial),
            named: Vec::new(),
            why: (state == Lost).then(|| "the disk was full".to_owned()),
        }
    }

    async fn open() -> (tempfile::TempDir, SqlitePool) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        (dir, store.writer)
    }

    #[tokio::test]
    async fn the_outputs_of_every_run_stay_listed() {
        let (_dir, db) = open().await;
        for (attempt, member, state) in [(2, 0, Kept), (1, 1, Lost), (1, 0, Partial)] {
            put(&db, ME, NODE, &said(attempt, member, state), TimeMs(5)).await.unwrap();
        }
        let all = of_lease(&db, LEASE).await.unwrap();
        let found: Vec<_> =
            all.iter().map(|one| (one.outputs.attempt, one.outputs.member, one.outputs.state)).collect();
        assert_eq!(found, [(1, 0, Partial), (1, 1, Lost), (2, 0, Kept)]);
        assert_eq!(all[0].view(TimeMs(6)).kept_until_ms, Some(TimeMs(5).plus(KEPT_MS)));
        assert!(of_leases(&db, &[LeaseId { seq: 8, index: 0 }]).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_last_word_stays_and_another_node_has_none() {
        let (_dir, db) = open().await;
        put(&db, ME, NODE, &said(1, 0, Uploading), TimeMs(1)).await.unwrap();
        put(&db, ME, NodeId([9; 20]), &said(1, 0, Kept), TimeMs(2)).await.unwrap();
        assert_eq!(get(&db, LEASE, 1, 0).await.unwrap().unwrap().outputs.state, Uploading);
        put(&db, ME, NODE, &said(1, 0, Kept), TimeMs(3)).await.unwrap();
        put(&db, ME, NODE, &said(1, 0, Lost), TimeMs(4)).await.unwrap();
        let told = get(&db, LEASE, 1, 0).await.unwrap().unwrap();
        assert_eq!((told.outputs.state, told.begun_ms, told.told_ms), (Kept, TimeMs(1), TimeMs(3)));
    }

    #[tokio::test]
    async fn an_upload_that_does_not_end_is_lost_after_seven_days() {
        let (_dir, db) = open().await;
        put(&db, ME, NODE, &said(1, 0, Uploading), TimeMs(10)).await.unwrap();
        let told = get(&db, LEASE, 1, 0).await.unwrap().unwrap();
        assert_eq!(told.view(TimeMs(10 + UPLOAD_MS)).state, Uploading);
        let late = told.view(TimeMs(11 + UPLOAD_MS));
        assert_eq!((late.state, late.why.is_some()), (Lost, true));
    }

    #[tokio::test]
    async fn a_run_goes_on_from_the_newest_of_its_own_rank_or_of_rank_0() {
        let (_dir, db) = open().await;
        for (attempt, member, state) in [(1, 0, Kept), (1, 1, Kept), (2, 0, Uploading), (3, 1, Lost)] {
            put(&db, ME, NODE, &said(attempt, member, state), TimeMs(1)).await.unwrap();
        }
        let from = async |attempt, member| {
            let found = before(&db, LEASE, attempt, member).await.unwrap();
            found.map(|told| (told.outputs.attempt, told.outputs.member))
        };
        assert_eq!(from(1, 0).await, None);
        assert_eq!(from(2, 0).await, Some((1, 0)));
        assert_eq!(from(4, 0).await, Some((2, 0)));
        assert_eq!(from(4, 1).await, Some((1, 1)), "its own, though older; what is lost is nobody's");
        assert_eq!(from(4, 2).await, Some((2, 0)));
    }

    #[tokio::test]
    async fn content_is_let_go_when_its_time_is_over_and_is_no_dataset_then() {
        let (_dir, db) = open().await;
        put(&db, ME, NODE, &said(1, 0, Kept), TimeMs(10)).await.unwrap();
        assert!(left_by(&db, ME, "cid-1-0").await.unwrap().is_some());
        assert!(left_by(&db, Account([3; 20]), "cid-1-0").await.unwrap().is_none());
        assert!(outlived(&db, TimeMs(10 + KEPT_MS), 9).await.unwrap().is_empty());
        let old = outlived(&db, TimeMs(11 + KEPT_MS), 9).await.unwrap();
        let_go(&db, &old[0].outputs).await.unwrap();
        assert!(outlived(&db, TimeMs(11 + KEPT_MS), 9).await.unwrap().is_empty());
        assert!(left_by(&db, ME, "cid-1-0").await.unwrap().is_none());
    }
}
