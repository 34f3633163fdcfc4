//! The port: JSON-RPC over HTTP POST, and WebSocket upgrades on the same path.

use crate::{node::Node, rpc, ws};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, WebSocketUpgrade},
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_TYPE, ORIGIN},
    },
    response::{IntoResponse, Response},
    routing::post,
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Longest request body and WebSocket message, bytes.
const MAX_BODY: usize = 8 << 20;

/// What handlers share.
#[derive(Clone, Debug)]
struct App {
    node: Arc<Node>,
    stop: CancellationToken,
}

/// The routes of the port. WebSocket connections end when `stop` is cancelled.
pub(crate) fn router(node: Arc<Node>, stop: CancellationToken) -> Router {
    Router::new()
        .route("/", post(answer).get(upgrade))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(App { node, stop })
}

async fn answer(State(app): State<App>, headers: HeaderMap, body: Bytes) -> Response {
    // A page in a browser may post other types to loopback without asking; JSON it may not.
    let json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !json {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send JSON-RPC with the header content-type: application/json\n")
            .into_response();
    }
    // The EVM and the disk would hold up the runtime.
    match tokio::task::spawn_blocking(move || rpc::answer_body(&app.node, &body)).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => {
            tracing::error!(%error, "a request failed");
            (StatusCode::INTERNAL_SERVER_ERROR, "the dev chain failed at this request; its log says why\n")
                .into_response()
        }
    }
}

async fn upgrade(State(app): State<App>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    // Browsers let any page open a WebSocket to loopback, but they tell which page it is. Programs send no origin.
    if headers.contains_key(ORIGIN) {
        return (StatusCode::FORBIDDEN, "web pages may not open a WebSocket to the dev chain\n").into_response();
    }
    upgrade.max_message_size(MAX_BODY).on_upgrade(move |socket| ws::serve(socket, app.node, app.stop))
}
