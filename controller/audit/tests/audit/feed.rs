//! A controller's log over HTTP, page by page, and what is kept of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use selion_api::rest::{EntryPage, LoggedEntry};
use selion_audit::{AuditError, LogSource, Options, SourceError, audit};

use super::chain::World;

/// Entries a page: few, so that a small log has several.
const PAGE: usize = 4;

/// A controller that serves a log, up to an entry, and counts what it was asked for.
#[derive(Clone)]
struct Controller {
    log: Arc<Vec<LoggedEntry>>,
    /// How often the newest entry is served before its head is there.
    headless: Arc<AtomicU64>,
    dies_at: Arc<AtomicU64>,
    served: Arc<AtomicU64>,
}

#[derive(serde::Deserialize)]
struct Range {
    from: usize,
}

async fn entries(State(it): State<Controller>, Query(range): Query<Range>) -> Result<Json<EntryPage>, StatusCode> {
    if range.from as u64 >= it.dies_at.load(Ordering::SeqCst) {
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let end = it.log.len().min(range.from + PAGE);
    let mut entries = it.log[range.from.min(end)..end].to_vec();
    let waits = |left: u64| left.checked_sub(1);
    if end == it.log.len()
        && let Some(last) = entries.last_mut()
        && it.headless.fetch_update(Ordering::SeqCst, Ordering::SeqCst, waits).is_ok()
    {
        last.head = None;
    }
    it.served.fetch_add(entries.len() as u64, Ordering::SeqCst);
    Ok(Json(EntryPage { entries, next: (end < it.log.len()).then_some(end as u64) }))
}

/// A controller of a log, and its URL.
async fn serve(log: Vec<LoggedEntry>) -> (Controller, String) {
    let it = Controller {
        log: Arc::new(log),
        headless: Arc::default(),
        dies_at: Arc::new(AtomicU64::new(u64::MAX)),
        served: Arc::default(),
    };
    let router = Router::new().route("/v1/log/entries", get(entries)).with_state(it.clone());
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (it, url)
}

#[tokio::test]
async fn an_audit_that_was_cut_off_goes_on_where_it_was() {
    let mut world = World::start().await;
    world.anchor().await;
    let log = world.book.seal().unwrap();
    let size = log.len() as u64;
    let (controller, url) = serve(log).await;
    let dir = tempfile::tempdir().unwrap();
    let options = Options { cache: Some(dir.path().into()), ..world.options(LogSource::Url(url)) };
    controller.dies_at.store(8, Ordering::SeqCst);
    let error = audit(&options).await.unwrap_err();
    assert!(matches!(error, AuditError::Source(SourceError::Http { .. })), "{error}");
    assert_eq!(controller.served.swap(0, Ordering::SeqCst), 8);
    controller.dies_at.store(u64::MAX, Ordering::SeqCst);
    let report = audit(&options).await.unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!((report.entries, controller.served.swap(0, Ordering::SeqCst)), (size, size - 8));
    assert!(audit(&options).await.unwrap().ok);
    assert_eq!(controller.served.load(Ordering::SeqCst), 0, "all was kept");
}

#[tokio::test]
async fn a_controller_that_sends_other_entries_than_asked_for_is_named() {
    let world = World::start().await;
    let mut log = world.book.seal().unwrap();
    log.remove(PAGE);
    let (_, url) = serve(log).await;
    let error = audit(&world.options(LogSource::Url(url))).await.unwrap_err().to_string();
    assert!(error.contains(&format!("entry {PAGE} was asked for")), "{error}");
}

#[tokio::test]
async fn a_live_log_without_the_newest_final_block_is_caught_after_its_time() {
    let mut world = World::start().await;
    world.book.drafts.pop();
    let (_, url) = serve(world.book.seal().unwrap()).await;
    let report = audit(&world.options(LogSource::Url(url))).await.unwrap();
    let check = super::book::named(&report, "chain_blocks_in_log");
    assert!(!check.ok && check.detail.contains("not in the log"), "{}", check.detail);
}

#[tokio::test]
async fn a_head_that_follows_its_entries_by_a_moment_is_waited_for() {
    let world = World::start().await;
    let (controller, url) = serve(world.book.seal().unwrap()).await;
    controller.headless.store(1, Ordering::SeqCst);
    let report = audit(&world.options(LogSource::Url(url))).await.unwrap();
    assert!(report.ok && report.covered == report.entries, "{report:#?}");
}

#[tokio::test]
async fn a_controller_that_serves_no_head_over_its_newest_entry_is_caught_unless_that_is_allowed() {
    let world = World::start().await;
    let log = world.book.seal().unwrap();
    let last = log.len() - 1;
    let (controller, url) = serve(log).await;
    controller.headless.store(u64::MAX, Ordering::SeqCst);
    let options = world.options(LogSource::Url(url));
    super::book::assert_caught(&audit(&options).await.unwrap(), "covered_by_heads", last);
    let report = audit(&Options { allow_uncovered: 1, ..options }).await.unwrap();
    let check = super::book::named(&report, "covered_by_heads");
    assert!(report.ok && check.detail.contains("NOT AUDITED"), "{}", check.detail);
    assert_eq!((report.entries, report.covered), (last as u64 + 1, last as u64));
}

#[tokio::test]
async fn a_page_without_end_is_cut_off_and_its_server_named() {
    let world = World::start().await;
    let endless = || async {
        let piece = axum::body::Bytes::from(vec![b' '; 1 << 20]);
        let pieces = futures::stream::repeat_with(move || Ok::<_, std::convert::Infallible>(piece.clone()));
        axum::body::Body::from_stream(pieces)
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/log/entries", get(endless));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let error = audit(&world.options(LogSource::Url(url.clone()))).await.unwrap_err();
    assert!(matches!(error, AuditError::Source(SourceError::TooLong { at: 0, .. })), "{error}");
    assert!(error.to_string().contains(&url), "{error}");
}
