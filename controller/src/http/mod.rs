//! The REST surface: routes, who may call them, and the shape of every fault.
//!
//! [`router`] joins the endpoints of [`route`] with the layers of [`layers`]; [`openapi`] is made from the same
//! routes. Handlers parse, submit to the sequencer or read rows, and answer; none of them writes a lease. The state
//! of all handlers is [`App`](crate::App), of which they use `config`, `pool`, `store`, `log`, `content`, `hub`,
//! `secrets` ([`Secrets`]), `metrics` ([`Metrics`]) and `clock`.
//!
//! Serve the router with `into_make_service_with_connect_info::<SocketAddr>()`: before authentication callers are told
//! apart by their peer address, and without it all of them share one allowance.

mod caller;
mod input;
mod layers;
mod limits;
pub mod metrics;
mod offers;
mod openapi;
mod page;
mod problem;
mod recover;
mod request;
mod route;
pub mod secrets;
#[cfg(test)]
mod tests;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use governor::clock::DefaultClock;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use caller::{Caller, NodeToken, Renter};
pub use metrics::Metrics;
pub use problem::{PROBLEM_JSON, Problem};
pub use recover::{signed_by, signer_of};
pub use secrets::{Secrets, TOKEN_MS, TokenFault};

use crate::App;
use limits::Limits;
use route::{auth, datasets, gateway, leases, log, money, nodes, pool, streams, system, wait};

/// Largest JSON body in bytes: 1 MiB.
pub const JSON_LIMIT: usize = 1 << 20;

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
    let with_app = |routes: OpenApiRouter<App>| routes.with_state::<()>(app.clone()).split_for_parts().0;
    let router = Router::new()
        .merge(with_app(open()))
        .merge(layers::quick(with_app(quick()), &app, &limits))
        .merge(layers::long(with_app(long()), &app, &limits))
        .merge(layers::blocks(gateway::blocks(&app), &app))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    layers::outer(router, &app)
}

/// The description of all routes, as committed in `api/openapi.json`.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let routes = OpenApiRouter::with_openapi(openapi::Frame::openapi()).merge(open()).merge(quick()).merge(long());
    let mut described = routes.into_openapi();
    described.merge(gateway::Described::openapi());
    openapi::finish(&mut described);
    described
}

/// For machines that watch over us, and for agents: no token, no allowance.
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
        .routes(routes!(leases::release))
        .routes(routes!(datasets::get))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get))
        .routes(routes!(nodes::pause))
        .routes(routes!(nodes::resume))
        .routes(routes!(nodes::reclaim))
        .routes(routes!(log::newest_head))
        .routes(routes!(log::entries))
}

/// Waits, streams and uploads.
fn long() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(wait::wait))
        .routes(routes!(streams::logs))
        .routes(routes!(streams::events))
        .routes(routes!(datasets::add, datasets::list))
}

async fn no_route(uri: Uri) -> Problem {
    Problem::NoRoute(uri.path().to_owned())
}

async fn no_method(method: Method) -> Problem {
    Problem::MethodNotAllowed(method)
}
