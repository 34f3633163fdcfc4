//! The port: JSON-RPC over HTTP POST, and WebSocket upgrades on the same path.

use crate::{
    door::{DevMethods, Door},
    node::Node,
    rpc, ws,
};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Request, State, WebSocketUpgrade},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    middleware::{self, Next},
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
    methods: DevMethods,
    stop: CancellationToken,
}

/// The port's one service, whatever the path: `door` decides which is served. WebSocket connections end when `stop` is
/// cancelled.
pub(crate) fn router(node: Arc<Node>, methods: DevMethods, door: Door, stop: CancellationToken) -> Router {
    Router::new()
        .route("/", post(answer).get(upgrade))
        .route("/{*secret}", post(answer).get(upgrade))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(Arc::new(door), admit))
        .with_state(App { node, methods, stop })
}

async fn admit(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    match door.admit(request.uri().path(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

async fn answer(State(app): State<App>, headers: HeaderMap, body: Bytes) -> Response {
    // A page in a browser may post other types to loopback without asking; JSON it may not.
    let json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !json {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send JSON-RPC with the header content-type: application/json\n")
            .into_response();
    }
    // The EVM and the disk would hold up the runtime.
    match tokio::task::spawn_blocking(move || rpc::answer_body(&app.node, app.methods, &body)).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => {
            tracing::error!(%error, "a request failed");
            (StatusCode::INTERNAL_SERVER_ERROR, "the dev chain failed at this request; its log says why\n")
                .into_response()
        }
    }
}

async fn upgrade(State(app): State<App>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.max_message_size(MAX_BODY).on_upgrade(move |socket| ws::serve(socket, app.node, app.methods, app.stop))
}
