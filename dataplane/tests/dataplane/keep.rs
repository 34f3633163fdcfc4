//! Who may keep how much, and what goes.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use selion_dataplane::dag::{self, Entry};
use selion_dataplane::{Cid, Collected, Limits, Stop, Store, StoreError};

use crate::support::{block_file, pattern, store};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Brings one leaf for `owner`.
fn bring(store: &Store, owner: &str, allowance: u64, bytes: &[u8]) -> Result<Cid, StoreError> {
    let cid = dag::leaf(bytes).cid;
    store.put_for(owner, allowance, &cid, bytes).map(|_| cid)
}

fn age(dir: &Path, cid: &Cid) {
    let file = File::options().write(true).open(block_file(dir, cid)).unwrap();
    file.set_modified(SystemTime::now() - 2 * DAY).unwrap();
}

fn collect(store: &Store) -> Collected {
    store.collect(DAY, &Stop::default()).unwrap()
}

#[test]
fn an_owner_brings_what_he_may_and_no_more_also_after_a_restart() {
    let (dir, store) = store();
    bring(&store, "alice", 1000, &[1; 600]).unwrap();
    bring(&store, "alice", 1000, &[1; 600]).unwrap();
    let again = Store::open(dir.path().join("store")).unwrap();
    for store in [&store, &again] {
        let error = bring(store, "alice", 1000, &[2; 600]).unwrap_err();
        assert!(matches!(error, StoreError::OverAllowance { used: 600, allowance: 1000 }), "{error}");
        assert_eq!(store.used_by("alice").unwrap(), 600, "the same block twice counts once");
    }
    assert!(!store.has(&dag::leaf(&[2; 600]).cid));
    bring(&again, "bob", 1000, &[2; 600]).unwrap();
}

#[test]
fn what_is_pinned_counts_against_who_pinned_it_and_is_loose_no_longer() {
    let (_dir, store) = store();
    let cid = bring(&store, "alice", 1000, &[1; 600]).unwrap();
    let keep = |allowance| store.keep("bob", &cid, &Limits::default(), allowance, &Stop::default());
    assert!(matches!(keep(500), Err(StoreError::OverAllowance { used: 0, allowance: 500 })));
    assert!(store.list().unwrap().is_empty(), "what was refused is not pinned");
    assert_eq!(keep(600).unwrap().stored, 600);
    assert_eq!((store.used_by("alice").unwrap(), store.used_by("bob").unwrap()), (0, 600));
    assert!(store.unpin("bob", &cid).unwrap());
    assert_eq!(store.used_by("bob").unwrap(), 600, "it counts until it is collected");
}

#[test]
fn what_nothing_pinned_reaches_is_collected_after_a_time_and_nothing_else() {
    let (dir, store) = store();
    let young = bring(&store, "alice", 1 << 20, b"young").unwrap();
    let old = bring(&store, "alice", 1 << 20, b"old and unwanted").unwrap();
    let inner = bring(&store, "alice", 1 << 20, b"old and wanted").unwrap();
    let again = bring(&store, "alice", 1 << 20, b"old and brought again").unwrap();
    let (folder, _) = dag::folder_node(vec![Entry { name: "f".to_owned(), cid: inner, tsize: 14 }], None).unwrap();
    store.put_for("bob", 1 << 20, &folder.cid, &folder.bytes).unwrap();
    store.pin("bob", &folder.cid).unwrap();
    // Brought by somebody else after the pin: the pin holds it all the same.
    for cid in [&old, &inner, &folder.cid, &again] {
        age(dir.path(), cid);
    }
    bring(&store, "alice", 1 << 20, b"old and brought again").unwrap();
    assert_eq!(collect(&store), Collected { blocks: 1, bytes: 16 });
    let there = [&young, &old, &inner, &folder.cid, &again].map(|cid| store.has(cid));
    assert_eq!(there, [true, false, true, true, true]);
    assert_eq!(collect(&store), Collected::default());
    assert!(store.unpin("bob", &folder.cid).unwrap());
    assert_eq!(collect(&store).blocks, 2, "the folder and the file in it");
    assert!(store.has(&young) && store.has(&again));
    let reopened = Store::open(dir.path().join("store")).unwrap();
    assert_eq!((reopened.used_by("bob").unwrap(), reopened.used_by("alice").unwrap()), (0, 26));
}

#[test]
fn a_root_that_two_want_stays_for_the_other() {
    let (dir, store) = store();
    let cid = bring(&store, "alice", 1 << 20, b"shared").unwrap();
    store.pin("alice", &cid).unwrap();
    store.pin("bob", &cid).unwrap();
    age(dir.path(), &cid);
    assert!(store.unpin("alice", &cid).unwrap());
    assert_eq!(collect(&store), Collected::default());
    assert!(store.has(&cid));
    assert!(store.unpin("bob", &cid).unwrap());
    assert_eq!(collect(&store).blocks, 1);
}

#[tokio::test]
async fn long_work_ends_when_its_caller_is_gone() {
    let (_dir, store) = store();
    let (began, begun) = tokio::sync::oneshot::channel();
    let (ended, over) = tokio::sync::oneshot::channel();
    let work = store.work(move |_, stop| {
        began.send(()).unwrap();
        while stop.check().is_ok() {
            std::thread::yield_now();
        }
        ended.send(()).unwrap();
        stop.check()
    });
    tokio::select! {
        _ = work => panic!("it ends by itself"),
        begun = begun => begun.unwrap(),
    }
    // The future is gone with the select; the work hears of it.
    over.await.unwrap();
    let root = store.add_bytes(&pattern(10)).unwrap();
    store.work(move |store, stop| store.stat_until(&root, &Limits::default(), stop)).await.unwrap();
}

#[test]
fn a_walk_that_is_stopped_says_so() {
    let (_dir, store) = store();
    let root = store.add_bytes(b"x").unwrap();
    let stop = Stop::default();
    drop(stop.on_drop());
    assert!(matches!(store.stat_until(&root, &Limits::default(), &stop), Err(StoreError::Stopped)));
}
