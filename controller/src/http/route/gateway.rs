//! Content by CID and the agents' link: both are run by their own rooms, this is their door.

use axum::Router;
use axum::extract::ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use selion_dataplane::gateway;
use utoipa::OpenApi;

use crate::App;
use crate::http::Problem;
use crate::http::caller::Caller;
use crate::http::storage;

/// The content gateway, open to accounts and nodes with a token. A CID is not a secret, but who knows it may read.
pub(in crate::http) fn blocks(app: &App) -> Router {
    gateway::router(selion_dataplane::Store::clone(&app.content)).layer(from_fn_with_state(app.clone(), authenticated))
}

/// Says whose bytes an upload is, and how many he may have.
async fn authenticated(State(app): State<App>, caller: Caller, mut request: Request, next: Next) -> Response {
    if request.method() == Method::PUT || request.method() == Method::POST {
        request.extensions_mut().insert(storage::uploader(&app, caller));
    }
    next.run(request).await
}

/// An agent's link: a WebSocket. The agent proves its node key in its first message.
#[utoipa::path(get, path = "/v1/link", operation_id = "open_link", tag = "agents",
    responses((status = 101, description = "Switched to WebSocket")))]
pub(in crate::http) async fn link(
    State(app): State<App>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|_| Problem::Header("Upgrade", "is needed: this path speaks WebSocket only"))?;
    Ok(app.hub.upgrade(upgrade))
}

/// The operations of the gateway, whose router is the data plane's own.
#[derive(OpenApi)]
#[openapi(paths(get_block, head_block, put_block, have_blocks, want_blocks, put_blocks))]
pub(in crate::http) struct Described;

/// One block by CID: `?format=raw` or `Accept: application/vnd.ipld.raw`. Verify it against the CID.
#[utoipa::path(get, path = "/ipfs/{cid}", operation_id = "get_block", tag = "datasets", security(("bearer" = [])),
    params(("cid" = String, Path, description = "CID of the block"), ("format" = Option<String>, Query, description = "`raw`")),
    responses((status = 200, description = "The block", body = Vec<u8>, content_type = "application/vnd.ipld.raw")))]
#[expect(dead_code, reason = "describes an operation that the data plane's router answers")]
fn get_block() {}

/// Whether a block is here.
#[utoipa::path(head, path = "/ipfs/{cid}", operation_id = "head_block", tag = "datasets", security(("bearer" = [])),
    params(("cid" = String, Path, description = "CID of the block"), ("format" = Option<String>, Query, description = "`raw`")),
    responses((status = 200, description = "It is")))]
#[expect(dead_code, reason = "describes an operation that the data plane's router answers")]
fn head_block() {}

/// Gives the pool a block. It is taken only if it is what the CID names and the account's allowance of bytes has room, and
/// goes a day later if no dataset of the pool has it by then.
#[utoipa::path(put, path = "/ipfs/{cid}", operation_id = "put_block", tag = "datasets", security(("bearer" = [])),
    params(("cid" = String, Path, description = "CID of the block")),
    request_body(content((Vec<u8> = "application/vnd.ipld.raw"), (Vec<u8> = "application/octet-stream")),
        description = "At most 2 MiB"),
    responses((status = 200, description = "It was here already"), (status = 201, description = "It is new here")))]
#[expect(dead_code, reason = "describes an operation that the data plane's router answers")]
fn put_block() {}

/// CIDs of blocks: a question about many at once.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a body that the data plane's router reads")]
struct Cids {
    /// At most 1024.
    cids: Vec<String>,
}

/// Which of these blocks are not here.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a body that the data plane's router writes")]
struct Absent {
    /// Of those asked about.
    absent: Vec<String>,
}

/// Which of many blocks are not here.
#[utoipa::path(post, path = "/ipfs/have", operation_id = "have_blocks", tag = "datasets", security(("bearer" = [])), request_body(content = Cids),
    responses((status = 200, description = "Those of which no good copy is here", body = Absent)))]
#[expect(dead_code, reason = "describes an operation that the data plane's router answers")]
fn have_blocks() {}

/// Many blocks at once, as a CAR of version 1. Verify each against its CID; ask again for those that did not come.
#[utoipa::path(post, path = "/ipfs/want", operation_id = "want_blocks", tag = "datasets", security(("bearer" = [])), request_body(content = Cids),
    responses((status = 200, description = "Those that are here, in order, until some 4 MiB are reached", body = Vec<u8>,
        content_type = "application/vnd.ipld.car")))]
#[expect(dead_code, reason = "describes an operation that the data plane's router answers")]
fn want_blocks() {}

/// Gives the pool many blocks at once, as a CAR of version 1 of at most 1024 blocks and 6 MiB. The first that is not
/// taken ends it; those before it stay.
#[utoipa::path(post, path = "/ipfs/blocks", operation_id = "put_blocks", tag = "datasets", security(("bearer" = [])),
    request_body(content = Vec<u8>, content_type = "application/vnd.ipld.car"),
    responses((status = 201, description = "All of them are here")))]
#[expect(dead_code, reason = "describes an operation that the data plane's router answers")]
fn put_blocks() {}
