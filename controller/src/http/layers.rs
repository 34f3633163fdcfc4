//! What stands around every handler, from the outside in: request id, trace, Host and Origin, catch-panic, body limit,
//! timeout, who calls, rate limit, permission, room. No CORS: browsers of other origins have no business here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response as HttpResponse};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use governor::clock::DefaultClock;
use selion_api::rest::{self, BLOCK_HEADER, ENTRY_HEADER, HEAD_HEADER, STALE_HEADER};
use tower::timeout::TimeoutLayer;
use tower::{BoxError, ServiceBuilder};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, RequestId, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::trace::TraceLayer;

use super::caller::{Callers, authorise, identify};
use super::limits::{Limits, limit};
use super::origin;
use super::problem::render;
use super::room::{Caps, Room, Rooms, enter};
use super::{IMMUTABLE, JSON_LIMIT, Problem};
use crate::App;
use crate::sequencer::Position;

/// Longest time for a quick answer.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Quick requests at one time. One waits for its body at most, so a quarter for one caller is plenty.
const QUICK: Caps = Caps { all: 2_048, strangers: 1_024, one: 512, one_stranger: 256 };
/// Waits, streams and uploads at one time: a run has one or two, and a campaign some hundred.
const LONG: Caps = Caps { all: 4_096, strangers: 1_024, one: 512, one_stranger: 32 };
/// Blocks and tiles at one time: whoever fetches a folder asks for many side by side.
const BLOCKS: Caps = Caps { all: 4_096, strangers: 1_024, one: 512, one_stranger: 64 };
/// Bytes of answers that wait for their readers: pages have 1 MiB, blocks 2 MiB.
const BYTES: Caps = Caps { all: 512 << 20, strangers: 128 << 20, one: 64 << 20, one_stranger: 16 << 20 };
/// By so much the allowance of cheap requests is larger: health, the description, blocks and tiles, of which one
/// download makes thousands.
pub(super) const CHEAP: u32 = 20;

/// The rate limiter of a whole router.
pub(super) type Shared = Arc<Limits<DefaultClock>>;

/// What all routers share: who calls, and how many bytes are on their way.
pub(super) struct Stack<'a> {
    app: &'a App,
    callers: Callers,
    bytes: Arc<Room>,
}

impl<'a> Stack<'a> {
    pub fn new(app: &'a App) -> Self {
        Self { app, callers: Callers::new(app.clone()), bytes: Room::new(BYTES) }
    }

    fn rooms(&self, caps: Caps) -> Rooms {
        Rooms { app: self.app.clone(), requests: Room::new(caps), bytes: self.bytes.clone() }
    }

    /// Requests that are answered at once.
    pub fn quick(&self, router: Router, limits: &Shared) -> Router {
        let stack = ServiceBuilder::new()
            .layer(DefaultBodyLimit::max(JSON_LIMIT))
            .layer(middleware::from_fn(body_limit))
            .layer(HandleErrorLayer::new(turned_away))
            .layer(TimeoutLayer::new(TIMEOUT))
            .layer(middleware::from_fn_with_state(self.callers.clone(), identify))
            .layer(middleware::from_fn_with_state(limits.clone(), limit::<DefaultClock>))
            .layer(middleware::from_fn_with_state(self.app.clone(), authorise))
            .layer(middleware::from_fn_with_state(self.rooms(QUICK), enter));
        router.layer(stack)
    }

    /// Requests that may take long: waits, streams, uploads. No timeout; an upload has the operator's own limit.
    pub fn long(&self, router: Router, limits: &Shared) -> Router {
        self.open_ended(router.layer(DefaultBodyLimit::max(JSON_LIMIT)), limits, LONG)
    }

    /// Blocks and tiles: many small requests of one caller are the normal case.
    pub fn blocks(&self, router: Router, limits: &Shared) -> Router {
        self.open_ended(router.layer(DefaultBodyLimit::disable()), limits, BLOCKS)
    }

    fn open_ended(&self, router: Router, limits: &Shared, caps: Caps) -> Router {
        let stack = ServiceBuilder::new()
            .layer(middleware::from_fn_with_state(self.callers.clone(), identify))
            .layer(middleware::from_fn_with_state(limits.clone(), limit::<DefaultClock>))
            .layer(middleware::from_fn_with_state(self.app.clone(), authorise))
            .layer(middleware::from_fn_with_state(self.rooms(caps), enter));
        router.layer(stack)
    }
}

/// Around everything.
pub(super) fn outer(router: Router, app: &App) -> Router {
    let stack = ServiceBuilder::new()
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(SetSensitiveRequestHeadersLayer::new([AUTHORIZATION]))
        .layer(TraceLayer::new_for_http())
        .layer(middleware::from_fn_with_state(app.clone(), stand))
        .layer(middleware::from_fn_with_state(app.clone(), origin::guard))
        .layer(CatchPanicLayer::custom(panicked));
    router.layer(stack)
}

/// Refuses by the announced length before a byte is read; the extractors hold to the same limit while reading.
async fn body_limit(request: Request, next: Next) -> Response {
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > JSON_LIMIT as u64) {
        return Problem::TooLarge(JSON_LIMIT as u64).into_response();
    }
    next.run(request).await
}

async fn turned_away(error: BoxError) -> Problem {
    if error.is::<tower::timeout::error::Elapsed>() { Problem::Timeout } else { Problem::Internal(error.to_string()) }
}

fn panicked(cause: Box<dyn std::any::Any + Send + 'static>) -> HttpResponse<axum::body::Body> {
    let text = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    tracing::error!(panic = text, "a handler panicked");
    Problem::Panicked.into_response()
}

/// Says on every answer what it depends on, puts the request's id into problems, and counts the answer.
async fn stand(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let trace =
        request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok()).map(ToOwned::to_owned);
    let mut response = next.run(request).await;
    if let Some(mut problem) = response.extensions_mut().remove::<rest::Problem>() {
        problem.trace_id = trace;
        response = with_headers(render(response.status(), &problem), response.headers());
    }
    if response.headers().get(CACHE_CONTROL).is_none_or(|value| value != IMMUTABLE) {
        position_headers(response.headers_mut(), &app.log.position());
        let mirror = app.mirror.status();
        if mirror.trouble.is_some() {
            // What is wrong is the operator's to read: it may name his node.
            response.headers_mut().insert(HeaderName::from_static(STALE_HEADER), HeaderValue::from(mirror.settled));
        }
    }
    app.metrics.answered(route.as_deref().unwrap_or("none"), response.status().as_u16(), began.elapsed());
    response
}

/// `response` with what `headers` say besides.
fn with_headers(mut response: Response, headers: &HeaderMap) -> Response {
    for (name, value) in headers {
        if name != CONTENT_LENGTH {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    response
}

fn position_headers(headers: &mut HeaderMap, position: &Position) {
    headers.insert(HeaderName::from_static(ENTRY_HEADER), HeaderValue::from(position.entry));
    let head = position.head.map(|signed| format!("{}:{}", signed.head.size, signed.head.root));
    let block = position.block.map(|block| format!("{}:{}", block.number, block.hash));
    for (name, text) in [(HEAD_HEADER, head), (BLOCK_HEADER, block)] {
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}
