//! Fetching from sources that lie, stumble and die.

use std::fs;
use std::sync::{Arc, Mutex};

use selion_dataplane::dag::{self, CHUNK, DagError};
use selion_dataplane::{
    Cid, FetchError, Fetcher, HttpGateway, Limits, Progress, Source, SourceError, Store, fetch, gateway, push,
};

use crate::support::{Lie, Server, Tampering, block_file, damage, pattern, store};

fn arc(source: Tampering) -> Arc<Tampering> {
    Arc::new(source)
}

/// A folder of two files, five leaves and seven blocks in all, and the third leaf of the large one.
fn dataset(store: &Store) -> (Cid, Cid) {
    let dir = tempfile::tempdir().unwrap();
    let large = pattern(4 * CHUNK);
    fs::write(dir.path().join("large"), &large).unwrap();
    fs::write(dir.path().join("small"), b"small").unwrap();
    (store.add_path(dir.path()).unwrap(), dag::cid_of(&large[2 * CHUNK..3 * CHUNK]))
}

#[tokio::test]
async fn a_folder_arrives_whole_and_reports_its_way() {
    let (_from_dir, from) = store();
    let (dir, to) = store();
    let (root, _) = dataset(&from);
    let seen: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let log = seen.clone();
    let fetcher = Fetcher::new(to.clone(), vec![Arc::new(from.clone())])
        .on_progress(move |progress| log.lock().unwrap().push(progress));
    let fetched = fetcher.fetch(&root).await.unwrap();
    assert_eq!((fetched.blocks, fetched.fetched_blocks), (7, 7));
    let total = 4 * CHUNK as u64 + 5;
    let last = *seen.lock().unwrap().last().unwrap();
    assert_eq!(last, Progress { done_bytes: total, known_bytes: total, blocks: 7 });
    assert_eq!(to.stat(&root, &Limits::default()).unwrap().bytes, total);
    to.export(&root, dir.path().join("out")).unwrap();
    assert_eq!(fs::read(dir.path().join("out/large")).unwrap(), pattern(4 * CHUNK));
}

#[tokio::test]
async fn repeated_chunks_are_fetched_once_and_counted_as_done() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let root = from.add_bytes(&vec![0; 5 * CHUNK]).unwrap();
    let seen: Arc<Mutex<Progress>> = Arc::default();
    let log = seen.clone();
    let fetcher = Fetcher::new(to, vec![Arc::new(from)]).on_progress(move |progress| *log.lock().unwrap() = progress);
    let fetched = fetcher.fetch(&root).await.unwrap();
    assert_eq!(fetched.fetched_blocks, 2);
    let last = *seen.lock().unwrap();
    assert_eq!((last.done_bytes, last.known_bytes), (5 * CHUNK as u64, 5 * CHUNK as u64));
}

#[tokio::test]
async fn a_flipped_bit_is_caught_and_the_source_banned_with_evidence() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let (root, _) = dataset(&from);
    let liar = arc(Tampering::new(&from, Lie::Flip(root)));
    let honest = arc(Tampering::new(&from, Lie::Nothing));
    let fetched = fetch(&to, &root, vec![liar.clone(), honest.clone()]).await.unwrap();
    to.stat(&root, &Limits::default()).unwrap();
    let [bad] = fetched.banned.as_slice() else { panic!("{:?}", fetched.banned) };
    assert_eq!((bad.cid, bad.source.as_str()), (root, "tampering"));
    assert_ne!(bad.found, root);
    assert_eq!(liar.asked(), 1, "it is asked nothing after the lie");
    assert_eq!(honest.asked(), 7);
}

#[tokio::test]
async fn with_only_a_liar_the_fetch_fails_and_names_the_lie() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let (root, leaf) = dataset(&from);
    let other = dag::cid_of(b"small");
    for lie in [Lie::Flip(leaf), Lie::Swap(leaf, other)] {
        let error = fetch(&to, &root, vec![arc(Tampering::new(&from, lie))]).await.unwrap_err();
        let FetchError::NoSource { banned, .. } = &error else { panic!("{error}") };
        assert_eq!(banned[0].cid, leaf);
        assert!(!to.has(&leaf), "the lie is not in the store");
        assert!(error.to_string().contains("was caught"), "{error}");
    }
}

#[tokio::test]
async fn a_dataset_that_is_not_what_its_cid_names_is_caught_at_the_root() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let asked = dag::cid_of(b"the dataset that was promised");
    let given = from.add_bytes(b"another one").unwrap();
    let error = fetch(&to, &asked, vec![arc(Tampering::new(&from, Lie::Swap(asked, given)))]).await.unwrap_err();
    let FetchError::NoSource { cid, banned, .. } = error else { panic!("{error}") };
    assert_eq!((*cid, banned[0].found), (asked, given));
    assert_eq!(to.usage().unwrap().blocks, 0);
}

#[tokio::test]
async fn an_interrupted_fetch_asks_again_only_for_what_it_lacks() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let (root, _) = dataset(&from);
    let dying = arc(Tampering::new(&from, Lie::DieAfter(4)));
    let fetcher = Fetcher::new(to.clone(), vec![dying]).parallel(1);
    assert!(matches!(fetcher.fetch(&root).await, Err(FetchError::NoSource { .. })));
    assert_eq!(to.usage().unwrap().blocks, 4);
    let honest = arc(Tampering::new(&from, Lie::Nothing));
    let fetched = fetch(&to, &root, vec![honest.clone()]).await.unwrap();
    assert_eq!((fetched.blocks, fetched.fetched_blocks, honest.asked()), (7, 3, 3), "none was fetched twice");
}

#[tokio::test]
async fn a_block_damaged_on_disk_is_fetched_again() {
    let (_from_dir, from) = store();
    let (dir, to) = store();
    let (root, leaf) = dataset(&from);
    fetch(&to, &root, vec![Arc::new(from.clone())]).await.unwrap();
    damage(&block_file(dir.path(), &leaf));
    let honest = arc(Tampering::new(&from, Lie::Nothing));
    fetch(&to, &root, vec![honest.clone()]).await.unwrap();
    assert_eq!(*honest.asked_for.lock().unwrap(), [leaf]);
    to.stat(&root, &Limits::default()).unwrap();
}

#[tokio::test]
async fn a_source_that_stumbles_is_asked_again() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let root = from.add_bytes(b"patience").unwrap();
    let stumbling = arc(Tampering::new(&from, Lie::StumbleUntil(2)));
    fetch(&to, &root, vec![stumbling.clone()]).await.unwrap();
    assert_eq!(stumbling.asked(), 3);
}

#[tokio::test]
async fn a_block_that_nobody_has_is_named_with_every_answer() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let root = dag::cid_of(b"nowhere");
    let error = fetch(&to, &root, vec![Arc::new(from)]).await.unwrap_err();
    let FetchError::NoSource { cid, tried, .. } = &error else { panic!("{error}") };
    assert_eq!(**cid, root);
    assert!(matches!(tried[0].1, SourceError::Absent));
    assert!(error.to_string().contains("does not have the block"), "{error}");
    assert!(fetch(&to, &root, Vec::new()).await.unwrap_err().to_string().contains("no source was given"));
}

#[tokio::test]
async fn a_dag_over_the_limits_is_refused_before_its_bytes_are_fetched() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let root = from.add_bytes(&pattern(4 * CHUNK)).unwrap();
    let limits = Limits { bytes: 4 * CHUNK as u64 - 1, ..Limits::default() };
    let error = Fetcher::new(to.clone(), vec![Arc::new(from)]).within(limits).fetch(&root).await.unwrap_err();
    assert!(matches!(error, FetchError::Dag(DagError::TooLarge { .. })), "{error}");
    assert_eq!(to.usage().unwrap().blocks, 1, "only the root was taken");
}

#[tokio::test]
async fn a_parent_that_lies_about_its_child_is_caught() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let leaf = dag::leaf(b"four");
    from.put(&leaf.cid, b"four").unwrap();
    let (block, whole) = dag::file_node(&[leaf, dag::Part { size: 5, ..leaf }], None);
    from.put(&block.cid, &block.bytes).unwrap();
    let error = fetch(&to, &whole.cid, vec![Arc::new(from)]).await.unwrap_err();
    assert!(matches!(error, FetchError::Dag(DagError::WrongSize { declared: 5, found: 4, .. })), "{error}");
}

#[tokio::test]
async fn a_dag_pushed_to_a_gateway_is_fetched_from_it_by_another() {
    let (_from_dir, from) = store();
    let (served_dir, served) = store();
    let (_dir, to) = store();
    let (root, leaf) = dataset(&from);
    let server = Server::start(gateway::router(served.clone())).await;
    let client = HttpGateway::new(&server.url, None).unwrap();
    let pushed = push(&from, &root, &client).await.unwrap();
    assert_eq!((pushed.sent_blocks, pushed.present_blocks), (7, 0));
    let again = push(&from, &root, &client).await.unwrap();
    assert_eq!((again.sent_blocks, again.present_blocks), (0, 7));
    let fetched = fetch(&to, &root, vec![Arc::new(client.clone())]).await.unwrap();
    assert_eq!((fetched.fetched_blocks, fetched.banned.len()), (7, 0));
    damage(&block_file(served_dir.path(), &leaf));
    assert!(client.block(&leaf).await.is_err(), "a damaged block is not served");
    let mended = push(&from, &root, &client).await.unwrap();
    assert_eq!((mended.sent_blocks, mended.present_blocks), (1, 6), "and is mended by the next push");
    served.stat(&root, &Limits::default()).unwrap();
}

#[tokio::test]
async fn fetch_and_push_run_as_tasks_of_their_own() {
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let (root, _) = dataset(&from);
    let server = Server::start(gateway::router(to.clone())).await;
    let client = HttpGateway::new(&server.url, None).unwrap();
    let pushing = tokio::spawn(async move { push(&from, &root, &client).await.map(|_| from) });
    let from = pushing.await.unwrap().unwrap();
    let fetcher = Fetcher::new(to, vec![Arc::new(from)]);
    let fetching = tokio::spawn(async move { fetcher.fetch(&root).await });
    assert_eq!(fetching.await.unwrap().unwrap().fetched_blocks, 0);
}
