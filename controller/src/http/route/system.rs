//! Health, readiness, the description of this interface.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use axum::Json as Answer;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use selion_api::rest::Health;

use crate::App;
use crate::http::Problem;
use crate::store::head;

/// A chain that was out of reach for so long is said to be silent: shorter pauses end by themselves.
const SILENT: Duration = Duration::from_secs(30);
/// Free bytes of the data directory below which a commit may soon fail: 64 MiB.
const FREE_BYTES: u64 = 64 << 20;

/// Whether the process answers at all.
#[utoipa::path(get, path = "/healthz", operation_id = "get_health", tag = "system",
    responses((status = 200, description = "It does", body = Health)))]
pub(in crate::http) async fn healthz() -> Answer<Health> {
    Answer(Health { status: "ok".to_owned() })
}

/// Whether the controller can decide and write: database, disk, chain and the pool's terms.
#[utoipa::path(get, path = "/readyz", operation_id = "get_readiness", tag = "system", responses(
    (status = 200, description = "Ready", body = Health),
    (status = 503, description = "Not ready; `status` says what is missing", body = Health)))]
pub(in crate::http) async fn readyz(State(app): State<App>) -> Result<(StatusCode, Answer<Health>), Problem> {
    let missing = missing(&app).await;
    let status = if missing.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Answer(Health { status: missing.unwrap_or("ok").to_owned() })))
}

/// What keeps the controller from its work, if anything does.
pub(in crate::http) async fn missing(app: &App) -> Option<&'static str> {
    if head::newest(&app.store.readers).await.is_err() {
        return Some("the database does not answer");
    }
    let (pool, broken) = app.log.read(|state| (state.pool.is_some(), state.chain_broken));
    let failed = app.log.unwritable().is_some();
    let disk = free_bytes(&app.config.data_dir).is_some_and(|free| free < FREE_BYTES);
    let silent = app.mirror.status().silent_for().is_some_and(|time| time >= SILENT);
    if !app.log.is_open() {
        Some("the agents are heard before anything is signed")
    } else if !pool {
        Some("the pool's first block is not final yet")
    } else if broken {
        Some("the chain broke: a reorganisation went deeper than final")
    } else if failed {
        Some("the log could not be written: the disk may be full; nothing that was acknowledged is lost")
    } else if disk {
        Some("the disk of the data directory is nearly full")
    } else if silent {
        Some("the chain does not answer: nothing new of it is known, and no money moves")
    } else {
        None
    }
}

/// Bytes that this user may still write below `path`; `None` where the system does not tell.
fn free_bytes(path: &Path) -> Option<u64> {
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    Some(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

/// This interface as OpenAPI 3.1.
#[utoipa::path(get, path = "/openapi.json", operation_id = "get_openapi", tag = "system",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
pub(in crate::http) async fn openapi_json() -> Response {
    /// Made once: it never changes while the process runs.
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| crate::http::openapi().to_json().unwrap_or_default().into());
    ([(CONTENT_TYPE, "application/json")], TEXT.clone()).into_response()
}
