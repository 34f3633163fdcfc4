//! Health, readiness, the description of this interface.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use selion_api::rest::Health;

use crate::App;
use crate::http::Problem;
use crate::store::head;

/// Whether the process answers at all.
#[utoipa::path(get, path = "/healthz", tag = "system",
    responses((status = 200, description = "It does", body = Health)))]
pub(in crate::http) async fn healthz() -> Answer<Health> {
    Answer(Health { status: "ok".to_owned(), pid: std::process::id() })
}

/// Whether the controller can decide: database, log and the pool's terms are there.
#[utoipa::path(get, path = "/readyz", tag = "system", responses(
    (status = 200, description = "Ready", body = Health),
    (status = 503, description = "Not ready; `status` says what is missing", body = Health)))]
pub(in crate::http) async fn readyz(State(app): State<App>) -> Result<(StatusCode, Answer<Health>), Problem> {
    let missing = if head::newest(&app.store.readers).await.is_err() {
        Some("the database does not answer")
    } else {
        app.log.read(|state| match () {
            () if state.pool.is_none() => Some("the pool's first block is not final yet"),
            () if state.chain_broken => Some("the chain broke: a reorganisation went deeper than final"),
            () => None,
        })
    };
    let status = if missing.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Answer(Health { status: missing.unwrap_or("ok").to_owned(), pid: std::process::id() })))
}

/// This interface as OpenAPI 3.1.
#[utoipa::path(get, path = "/openapi.json", tag = "system",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
pub(in crate::http) async fn openapi_json() -> Answer<utoipa::openapi::OpenApi> {
    Answer(crate::http::openapi())
}
