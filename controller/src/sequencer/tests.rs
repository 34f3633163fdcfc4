//! The promises of the sequencer, on a real SQLite file.

use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use selion_api::agent::Head;
use selion_api::chain::{Block, ChainEvent};
use selion_api::commit::PoolId;
use selion_api::{Account, Address, Amount, Hash32, Signature, TimeMs};
use selion_market::{Input, Pocket, Policy, State};
use sqlx::Row;
use tokio_util::sync::CancellationToken;

use super::{Parts, Sequencer, SubmitError};
use crate::store::{Store, entry, rows};

static NOW: AtomicU64 = AtomicU64::new(1_000_000);

fn tick() -> TimeMs {
    TimeMs(NOW.fetch_add(1, Ordering::Relaxed))
}

const RENTER: Account = Account([7; 20]);

async fn open(dir: &Path) -> (Sequencer, Store, CancellationToken, tokio::task::JoinHandle<()>) {
    open_signing(dir, |_| Signature([0; 65])).await
}

async fn open_signing(
    dir: &Path,
    sign: impl Fn(&Head) -> Signature + Send + Sync + 'static,
) -> (Sequencer, Store, CancellationToken, tokio::task::JoinHandle<()>) {
    let store = Store::open(dir).await.unwrap();
    let stop = CancellationToken::new();
    let parts = Parts {
        store: store.clone(),
        pool: PoolId { chain_id: 1, controller: Address([1; 20]) },
        epoch: 1,
        delegate: Address([2; 20]),
        policy: Policy::default(),
        sign: Arc::new(sign),
        clock: tick,
    };
    let (log, task) = Sequencer::start(parts, stop.clone()).await.unwrap();
    (log, store, stop, task)
}

fn block(number: u64, events: Vec<ChainEvent>) -> Input {
    Input::Block(Block { number, hash: Hash32([number as u8; 32]), parent: Hash32::ZERO, events })
}

fn deposit(number: u64) -> Input {
    block(number, vec![ChainEvent::Deposited { renter: RENTER, amount: Amount(5) }])
}

fn opened() -> Input {
    let event = ChainEvent::PoolOpened {
        token: Address([3; 20]),
        vault: Address([4; 20]),
        owner: Account([4; 20]),
        authority: Account([5; 20]),
        fee_bps: 200,
        allow_simulated: true,
        allow_unsandboxed: true,
        finality_depth: 0,
        min_stake: Amount(0),
    };
    block(1, vec![event])
}

async fn dump(store: &Store) -> Vec<String> {
    let mut all = Vec::new();
    for table in ["lease", "lease_event", "first_answer", "node", "account", "registry", "bill"] {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!("select body from {table} order by 1")))
            .fetch_all(&store.readers)
            .await
            .unwrap();
        all.extend(rows.iter().map(|row| format!("{table}: {}", row.get::<&str, _>("body"))));
    }
    all
}

#[tokio::test]
async fn what_was_answered_is_there_after_the_process_vanished() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _, _, task) = open(dir.path()).await;
    log.submit(opened(), None).await.unwrap();
    log.submit(deposit(2), None).await.unwrap();
    let before = log.read(|state| state.ledger.clone());
    task.abort(); // no farewell, no snapshot
    let (log, _, _, _) = open(dir.path()).await;
    assert_eq!(log.read(|state| state.ledger.clone()), before);
    assert_eq!(log.read(|state| state.fence.term), 2);
}

/// A head is signed between a commit and its publication: here for as long as it takes to look.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_refused_for_what_the_rows_show_mended() {
    const SIGNED_SLOWLY: u64 = 4;
    let dir = tempfile::tempdir().unwrap();
    let (reached, at_the_pen) = mpsc::channel();
    let (go_on, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let sign = move |head: &Head| {
        if head.size == SIGNED_SLOWLY {
            reached.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
        }
        Signature([0; 65])
    };
    let (log, store, ..) = open_signing(dir.path(), sign).await;
    log.submit(opened(), None).await.unwrap();
    let entering = tokio::spawn({
        let log = log.clone();
        async move { log.submit(deposit(2), None).await.map(drop) }
    });
    tokio::task::spawn_blocking(move || at_the_pen.recv()).await.unwrap().unwrap();
    assert_eq!(rows::account(&store.readers, RENTER).await.unwrap().unwrap().free, Amount(5));
    let free = |state: &State| state.means(RENTER).0;
    assert_eq!(log.read(free), Amount::ZERO, "the rows are ahead");
    let mut judged = pin!(log.judge(|state| if free(state) == Amount(5) { Ok(()) } else { Err("no deposit") }));
    tokio::select! {
        biased;
        judged = &mut judged => panic!("judged by what was before: {judged:?}"),
        () = std::future::ready(()) => {}
    }
    go_on.send(()).unwrap();
    assert_eq!(judged.await, Ok(()));
    entering.await.unwrap().unwrap();
}

#[tokio::test]
async fn every_row_deleted_comes_back_equal_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store, stop, task) = open(dir.path()).await;
    log.submit(opened(), None).await.unwrap();
    log.submit(deposit(2), None).await.unwrap();
    stop.cancel();
    task.await.unwrap();
    let before = dump(&store).await;
    assert!(before.iter().any(|row| row.starts_with("account: ")));
    let mut db = store.writer.acquire().await.unwrap();
    rows::clear(&mut db).await.unwrap();
    sqlx::query("delete from snapshot").execute(&mut *db).await.unwrap();
    drop(db);
    store.close().await;
    let (_, store, _, _) = open(dir.path()).await;
    assert_eq!(dump(&store).await, before);
}

#[tokio::test]
async fn rows_that_somebody_altered_are_written_again_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store, stop, task) = open(dir.path()).await;
    log.submit(opened(), None).await.unwrap();
    log.submit(deposit(2), None).await.unwrap();
    stop.cancel();
    task.await.unwrap();
    let mut before = dump(&store).await;
    let mut store = store;
    for lie in [
        "update account set body = replace(body, '\"deposited\":\"5\"', '\"deposited\":\"9\"')",
        "update registry set body = '{}'",
        "insert into bill (entry, idx, renter, provider, body) values (1, 0, x'00', x'00', '{}')",
        "insert into voucher values (zeroblob(20), zeroblob(20), 1000, 1, 1)",
        "delete from account",
    ] {
        let done = sqlx::query(lie).execute(&store.writer).await.unwrap();
        assert!(done.rows_affected() > 0, "{lie}");
        store.close().await;
        let (_, opened, stop, task) = open(dir.path()).await;
        stop.cancel();
        task.await.unwrap();
        store = opened;
        assert_eq!(dump(&store).await, before, "{lie}");
        let vouchers: i64 = sqlx::query_scalar("select count(*) from voucher").fetch_one(&store.readers).await.unwrap();
        assert_eq!(vouchers, 0, "{lie}");
        before = dump(&store).await;
    }
}

#[tokio::test]
async fn a_fence_that_somebody_lowered_is_raised_above_that_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    for lie in ["update fence set term = 0", "delete from fence", "update fence set term = 1"] {
        for _ in 0..3 {
            let (_, store, stop, task) = open(dir.path()).await;
            stop.cancel();
            task.await.unwrap();
            store.close().await;
        }
        let store = Store::open(dir.path()).await.unwrap();
        sqlx::query(lie).execute(&store.writer).await.unwrap();
        store.close().await;
        let (log, store, stop, task) = open(dir.path()).await;
        let before = log.position().fence;
        log.submit(deposit(2), None).await.unwrap();
        assert!(log.position().entry > 0 && before.term > 3, "{lie}: {before:?}");
        stop.cancel();
        task.await.unwrap();
        store.close().await;
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_told_until_it_can_and_needs_no_input_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store, _, _) = open(dir.path()).await;
    log.submit(opened(), None).await.unwrap();
    assert_eq!(log.unwritable(), None);
    sqlx::query("create trigger full before insert on entry begin select raise(abort, 'disk is full'); end")
        .execute(&store.writer)
        .await
        .unwrap();
    log.submit(deposit(2), None).await.unwrap_err();
    assert!(log.unwritable().is_some_and(|why| why.contains("disk is full")));
    sqlx::query("drop trigger full").execute(&store.writer).await.unwrap();
    let mut watch = log.watch_writable();
    watch.wait_for(Option::is_none).await.unwrap();
    assert_eq!(log.unwritable(), None);
}

#[tokio::test]
async fn a_snapshot_that_lies_is_dropped_and_the_log_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store, stop, task) = open(dir.path()).await;
    log.submit(opened(), None).await.unwrap();
    stop.cancel();
    task.await.unwrap();
    let honest = log.read(|state| state.digest());
    let mut lie = log.read(Clone::clone);
    lie.chain_broken = true;
    sqlx::query("update snapshot set state = $1")
        .bind(selion_api::commit::canonical(&lie))
        .execute(&store.writer)
        .await
        .unwrap();
    store.close().await;
    let (loaded, levels) = super::load::load(&Store::open(dir.path()).await.unwrap()).await.unwrap();
    assert_eq!(loaded.state.digest(), honest);
    assert_eq!(levels.root(), loaded.tree.root());
}

#[tokio::test]
async fn a_commit_that_fails_changes_nothing_and_the_next_one_works() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store, _, _) = open(dir.path()).await;
    log.submit(opened(), None).await.unwrap();
    sqlx::query("create trigger full before insert on entry begin select raise(abort, 'disk is full'); end")
        .execute(&store.writer)
        .await
        .unwrap();
    let before = log.read(|state| state.digest());
    let error = log.submit(deposit(2), None).await.unwrap_err();
    assert!(matches!(&error, SubmitError::Unavailable(why) if why.contains("disk is full")), "{error}");
    assert_eq!(log.read(|state| state.digest()), before);
    sqlx::query("drop trigger full").execute(&store.writer).await.unwrap();
    log.submit(deposit(2), None).await.unwrap();
    assert_eq!(log.read(|state| state.ledger.holds(Pocket::Free(RENTER))), Amount(5));
}

#[tokio::test]
async fn a_controller_that_was_taken_over_can_write_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let (old, _, old_stop, _) = open(dir.path()).await;
    let (new, store, _, _) = open(dir.path()).await;
    let error = old.submit(opened(), None).await.unwrap_err();
    assert!(matches!(error, SubmitError::Fenced(_)), "{error}");
    assert!(old_stop.is_cancelled());
    new.submit(opened(), None).await.unwrap();
    assert_eq!(entry::size(&store.readers).await.unwrap(), new.position().entry + 1);
}

#[tokio::test]
async fn an_entry_that_was_altered_on_disk_stops_the_start_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store, _, task) = open(dir.path()).await;
    log.submit(opened(), None).await.unwrap();
    log.submit(deposit(2), None).await.unwrap();
    task.abort();
    let seq = log.position().entry;
    let bytes = &entry::bytes(&store.readers, seq, 1).await.unwrap()[0];
    let mut altered = selion_log::Entry::read(bytes).unwrap();
    altered.input = selion_api::commit::canonical(&block(2, vec![]));
    sqlx::query("update entry set bytes = $1 where seq = $2")
        .bind(altered.bytes())
        .bind(seq as i64)
        .execute(&store.writer)
        .await
        .unwrap();
    let error = super::load::load(&store).await.err().unwrap().to_string();
    assert!(error.contains(&format!("entry {seq}")), "{error}");
}

#[tokio::test]
async fn many_at_once_are_committed_together_and_each_gets_its_own_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _, _, _) = open(dir.path()).await;
    log.submit(opened(), None).await.unwrap();
    let all = (2..50).map(|number| {
        let log = log.clone();
        tokio::spawn(async move { log.submit(block(number, vec![]), None).await.unwrap().seq })
    });
    let mut seqs = Vec::new();
    for one in all.collect::<Vec<_>>() {
        seqs.push(one.await.unwrap());
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (seqs[0]..seqs[0] + 48).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_entered_together_is_committed_as_one_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store, _, _) = open(dir.path()).await;
    log.submit(opened(), None).await.unwrap();
    let before = log.position().entry;
    // The last of so many does not fit: no earlier one may stand without it.
    sqlx::query(sqlx::AssertSqlSafe(format!(
        "create trigger full before insert on entry when new.seq = {} begin select raise(abort, 'disk is full'); end",
        before + 600
    )))
    .execute(&store.writer)
    .await
    .unwrap();
    let blocks = || (2..602).map(deposit).collect::<Vec<_>>();
    let error = log.submit_all(blocks()).await.unwrap_err();
    assert!(matches!(error, SubmitError::Unavailable(_)), "{error}");
    assert_eq!((log.position().entry, entry::size(&store.readers).await.unwrap()), (before, before + 1));
    sqlx::query("drop trigger full").execute(&store.writer).await.unwrap();
    let mut batches = log.subscribe();
    let steps = log.submit_all(blocks()).await.unwrap();
    let seqs: Vec<u64> = steps.iter().map(|step| step.seq).collect();
    assert_eq!(seqs, (before + 1..=before + 600).collect::<Vec<_>>());
    assert_eq!(batches.recv().await.unwrap().steps.len(), 600, "one commit");
    assert_eq!(log.read(|state| state.ledger.holds(Pocket::Free(RENTER))), Amount(3_000));
}
