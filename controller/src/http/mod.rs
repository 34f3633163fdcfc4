//! The REST surface: routes, who may call them, and the shape of every fault.
//!
//! [`router`] joins the endpoints of [`route`] with the layers of [`layers`]; [`openapi()`] is made from the same
//! routes. Handlers parse, submit to the sequencer or read rows, and answer; none of them writes a lease. The state
//! of all handlers is [`App`](crate::App), of which they use `config`, `pool`, `store`, `log`, `content`, `hub`,
//! `secrets` ([`Secrets`]), `logins`, `origin`, `heard`, `names`, `metrics` ([`Metrics`]) and `clock`.
//!
//! The router is served by [`serve`](crate::serve), which tells the peer's address (`ConnectInfo<SocketAddr>`): before
//! authentication callers are told apart by it, and without it all of them share one allowance.

mod caller;
mod explain;
mod input;
mod layers;
mod limits;
mod login_fault;
pub mod metrics;
pub mod named;
mod offers;
mod openapi;
pub mod origin;
mod page;
pub mod pass;
mod pieces;
mod problem;
mod promise;
mod recover;
mod refused;
mod request;
mod room;
mod route;
mod rules;
pub mod said;
mod schema;
pub mod secrets;
mod siwe;
pub mod storage;
#[cfg(test)]
mod tests;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::get;
use governor::clock::DefaultClock;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use caller::{Caller, NodeToken, Operator, Renter};
pub use login_fault::LoginFault;
pub use metrics::Metrics;
pub use problem::{PROBLEM_JSON, Problem};
pub use recover::{signed_by, signer_of};
pub use secrets::{Secrets, TOKEN_MS, TokenFault};

use crate::App;
use limits::Limits;
use route::{
    auth, datasets, device, gateway, images, leases, licences, log, money, nodes, outputs, pool, relay,
    secrets as sealed, streams, system, tiles, wait,
};

/// Largest JSON body in bytes: 1 MiB.
pub const JSON_LIMIT: usize = 1 << 20;
/// User codes of devices that a caller may try in a minute.
const CODES_PER_MINUTE: u32 = 30;
/// `Cache-Control` of what never changes. It depends on no state, so such an answer names none.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// Everything this controller answers.
pub fn router(app: App) -> Router {
    // Drafts of uploads that a crash left behind; nothing refers to them.
    let uploads = app.config.data_dir.join(datasets::UPLOADS);
    if let Err(error) = std::fs::remove_dir_all(&uploads)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %uploads.display(), %error, "old uploads could not be removed");
    }
    let limits = Arc::new(Limits::new(app.config.requests_per_minute, DefaultClock::default()));
    let tries = app.config.requests_per_minute.min(CODES_PER_MINUTE);
    let tries = Arc::new(Limits::new(tries, DefaultClock::default()));
    let with_app = |routes: OpenApiRouter<App>| routes.with_state::<()>(app.clone()).split_for_parts().0;
    let cheap = app.config.requests_per_minute.saturating_mul(layers::CHEAP);
    let cheap = Arc::new(Limits::new(cheap, DefaultClock::default()));
    let stack = layers::Stack::new(&app);
    let router = Router::new()
        .merge(stack.quick(with_app(open()), &cheap))
        .merge(stack.quick(with_app(quick()), &limits))
        .merge(stack.quick(with_app(codes()), &tries))
        .merge(stack.long(with_app(long()), &limits))
        .merge(stack.blocks(gateway::blocks(&app), &cheap))
        .merge(stack.blocks(tiles::files().with_state(app.clone()), &cheap))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    layers::outer(router, &app)
}

/// The description of all routes, as committed in `api/openapi.json`.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let routes = OpenApiRouter::with_openapi(openapi::Frame::openapi()).merge(open()).merge(quick());
    let routes = routes.merge(codes()).merge(long());
    let mut described = routes.into_openapi();
    described.merge(gateway::Described::openapi());
    described.merge(tiles::Described::openapi());
    described.merge(outputs::Described::openapi());
    openapi::finish(&mut described);
    described
}

/// For machines that watch over us, and for agents: a large allowance.
fn open() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(system::healthz))
        .routes(routes!(system::readyz))
        .routes(routes!(system::openapi_json))
        .routes(routes!(metrics::metrics))
        .routes(routes!(gateway::link))
}

fn quick() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(pool::pool))
        .routes(routes!(pool::list_offers))
        .routes(routes!(pool::shares))
        .routes(routes!(pool::registry))
        .routes(routes!(auth::nonce))
        .routes(routes!(auth::siwe))
        .routes(routes!(auth::refresh))
        .routes(routes!(auth::logout))
        .routes(routes!(auth::logout_all))
        .routes(routes!(auth::revoke_all))
        .routes(routes!(device::page))
        .routes(routes!(device::script))
        .routes(routes!(device::ask))
        .routes(routes!(device::token))
        .routes(routes!(auth::create_key, auth::list_keys))
        .routes(routes!(auth::revoke_key))
        .routes(routes!(auth::token))
        .routes(routes!(auth::whoami))
        .routes(routes!(money::account))
        .routes(routes!(money::bills))
        .routes(routes!(money::vouchers))
        .routes(routes!(leases::create, leases::list))
        .routes(routes!(leases::get))
        .routes(routes!(leases::placement))
        .routes(routes!(outputs::list))
        .routes(routes!(leases::release))
        .routes(routes!(leases::extend))
        .routes(routes!(sealed::get, sealed::give))
        .routes(routes!(licences::list))
        .routes(routes!(datasets::get, datasets::remove))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get))
        .routes(routes!(nodes::pause))
        .routes(routes!(nodes::resume))
        .routes(routes!(nodes::reclaim))
        .routes(routes!(relay::take))
        .routes(routes!(relay::get))
        .routes(routes!(log::newest_head))
        .routes(routes!(log::entries))
}

/// What takes a code that is short enough to be guessed: few tries a minute.
fn codes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(device::look))
        .routes(routes!(device::approve))
        .routes(routes!(device::deny))
        .routes(routes!(device::approve_signed))
}

/// Waits, streams and uploads.
fn long() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(wait::wait))
        .routes(routes!(images::resolve))
        .routes(routes!(streams::logs))
        .routes(routes!(streams::events))
        .routes(routes!(datasets::add, datasets::list))
        .routes(routes!(outputs::whole))
        .route("/v1/leases/{id}/outputs/{rank}/{*path}", get(outputs::part))
}

async fn no_route(uri: Uri) -> Problem {
    Problem::NoRoute(uri.path().to_owned())
}

async fn no_method(method: Method) -> Problem {
    Problem::MethodNotAllowed(method)
}
