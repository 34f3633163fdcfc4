//! Who calls. [`identify`] reads the `Authorization` header once, a token or an API key; [`authorise`] holds the request against the table of
//! [`rules`](super::rules); the extractors here are the only way for a handler to learn who it is, and each refuses who
//! may not be there.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, Request, State};
use axum::http::header::{ALLOW, AUTHORIZATION};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::DefaultClock;
use selion_api::rest::Scope;
use selion_api::{Account, NodeId, TimeMs};

use super::Problem;
use super::limits::Limits;
use super::login_fault::LoginFault;
use super::pass::{KeyText, Login, Pass, is_key, parse_key};
use super::rules::{self, Need};
use super::secrets::TokenFault;
use crate::App;
use crate::network::Network;
use crate::store::api_key;

/// Whoever presents a good bearer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// A person or a company: renter, provider or both.
    Renter(Account),
    /// A machine's agent.
    Node(NodeId),
}

/// A caller that is an account.
#[derive(Clone, Copy, Debug)]
pub struct Renter {
    /// The account.
    pub account: Account,
}

/// An operator of the pool, logged in by his own key.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// His account.
    pub account: Account,
}

/// A caller that is a node's agent.
#[derive(Clone, Copy, Debug)]
pub struct NodeToken {
    /// The node.
    pub node: NodeId,
}

/// What the `Authorization` header said.
#[derive(Clone, Copy, Debug)]
enum Identity {
    Nobody,
    Bad(TokenFault),
    /// Something that looks like an API key and is none that lives.
    BadKey,
    Known(Pass),
}

/// API keys that a network may present in a minute without being known from the minute before.
const KEYS_PER_MINUTE: u32 = 600;

/// What [`identify`] works with.
#[derive(Clone)]
pub(super) struct Callers {
    app: App,
    /// Bounds how often the database is asked for keys.
    keys: Arc<Limits>,
}

impl Callers {
    pub fn new(app: App) -> Self {
        Self { app, keys: Arc::new(Limits::new(KEYS_PER_MINUTE, DefaultClock::default())) }
    }

    /// Who presents that bearer token, or API key in its place.
    async fn identity(&self, bearer: &str, peer: Subject) -> Result<Identity, Problem> {
        let (app, now) = (&self.app, (self.app.clock)());
        let pass = if is_key(bearer) {
            let known = match parse_key(bearer) {
                None => None,
                Some(key) => match app.logins.recall(&key, now) {
                    Some(live) => Some(live),
                    None => self.look_up(key, peer, now).await?,
                },
            };
            match known {
                Some(pass) => pass,
                None => return Ok(Identity::BadKey),
            }
        } else {
            match app.secrets.verify(bearer, now) {
                Ok(pass) => pass,
                Err(fault) => return Ok(Identity::Bad(fault)),
            }
        };
        Ok(if app.logins.admit(&pass) { Identity::Known(pass) } else { Identity::Bad(TokenFault::Revoked) })
    }

    async fn look_up(&self, key: KeyText, peer: Subject, now: TimeMs) -> Result<Option<Pass>, Problem> {
        if let Some(seconds) = self.keys.count(peer).wait_s {
            return Err(Problem::RateLimited(seconds));
        }
        let store = &self.app.store;
        // Readers first: whoever guesses does not get to the one connection that writes.
        if !api_key::lives(&store.readers, key.id, &key.hash, now).await? {
            return Ok(None);
        }
        let live = api_key::take(&store.writer, key.id, &key.hash, now).await?;
        Ok(live.map(|live| self.app.logins.remember(key, &live, now)))
    }
}

/// Whose allowance a request is counted against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Renter(Account),
    Node(NodeId),
    /// Nobody we know: by the peer's network; `None` where the server gives no address.
    Peer(Option<Network>),
}

/// Middleware: puts the caller and the [`Subject`] beside the request.
pub(super) async fn identify(State(callers): State<Callers>, mut request: Request, next: Next) -> Response {
    let peer = Subject::Peer(peer_of(request.extensions()).map(Network::of));
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = header.and_then(|text| scheme(text, "Bearer")).map(ToOwned::to_owned);
    let identity = match bearer {
        None => Identity::Nobody,
        Some(bearer) => match callers.identity(&bearer, peer).await {
            Ok(identity) => identity,
            Err(problem) => return problem.into_response(),
        },
    };
    let subject = match identity {
        Identity::Known(Pass { caller, .. }) => caller.into(),
        Identity::Nobody | Identity::Bad(_) | Identity::BadKey => peer,
    };
    request.extensions_mut().insert(identity);
    request.extensions_mut().insert(subject);
    next.run(request).await
}

/// Middleware: refuses whoever lacks what the table of rules asks for. What it does not name is not there. Goes inside
/// [`identify`].
pub(super) async fn authorise(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let Some(need) = rules::need(request.method(), path) else {
        let methods = rules::methods(path);
        if methods.is_empty() {
            return Problem::NoRoute(request.uri().path().to_owned()).into_response();
        }
        let mut response = Problem::MethodNotAllowed(request.method().clone()).into_response();
        if let Ok(allowed) = HeaderValue::from_str(&methods.join(",")) {
            response.headers_mut().insert(ALLOW, allowed);
        }
        return response;
    };
    let identity = request.extensions().get::<Identity>().copied().unwrap_or(Identity::Nobody);
    if need == Need::Watcher && is_local(&app, &request) {
        return next.run(request).await;
    }
    match admit(&app, identity, need) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Whether somebody on this machine asks, and not a proxy on it for somebody else: behind one a public URL is set.
fn is_local(app: &App, request: &Request) -> bool {
    const FORWARDED: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];
    let relayed = FORWARDED.iter().any(|name| request.headers().contains_key(*name));
    let loopback = peer_of(request.extensions()).is_some_and(|peer| peer.to_canonical().is_loopback());
    loopback && !relayed && app.origin.is_loopback()
}

fn admit(app: &App, identity: Identity, need: Need) -> Result<(), Problem> {
    if need == Need::Nothing {
        return Ok(());
    }
    let pass = known(identity)?;
    let account = match pass.caller {
        Caller::Renter(account) => Some(account),
        Caller::Node(_) => None,
    };
    let has = |scope: Scope| {
        if pass.scopes.has(scope) { Ok(()) } else { Err(LoginFault::MissingScope(scope).into()) }
    };
    match (need, account) {
        (Need::Nothing | Need::Token, _) | (Need::ScopeOrNode(_), None) => Ok(()),
        (Need::Scope(scope) | Need::ScopeOrNode(scope), Some(_)) => has(scope),
        (Need::Session, Some(_)) => match pass.login {
            Login::Session(_) => Ok(()),
            Login::Key(_) | Login::Link => Err(Problem::WrongCaller("the token of a session, not of an API key")),
        },
        (Need::Watcher, Some(account)) if app.is_operator(account) => Ok(()),
        (Need::Watcher, _) => {
            Err(Problem::WrongCaller("an operator's token or API key, or a caller on its own machine"))
        }
        (Need::Operator, Some(account)) => {
            has(Scope::Login)?;
            if app.is_operator(account) { Ok(()) } else { Err(Problem::WrongCaller("an operator's token")) }
        }
        (Need::Scope(_) | Need::Session | Need::Operator, None) => Err(Problem::WrongCaller("an account's token")),
    }
}

fn known(identity: Identity) -> Result<Pass, Problem> {
    match identity {
        Identity::Known(pass) => Ok(pass),
        Identity::Bad(fault) => Err(Problem::BadToken(fault)),
        Identity::BadKey => Err(Problem::BadApiKey),
        Identity::Nobody => Err(Problem::NoToken),
    }
}

fn peer_of(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip())
}

/// The network address of whoever asks, known or not; `None` where the server gives none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub Option<IpAddr>);

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(peer_of(&parts.extensions)))
    }
}

/// The credentials of an `Authorization` header of that scheme. Schemes are case-insensitive (RFC 9110 §11.1).
pub(super) fn scheme<'a>(header: &'a str, scheme: &str) -> Option<&'a str> {
    let (name, rest) = header.split_once(' ')?;
    name.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

impl<S: Sync> FromRequestParts<S> for Pass {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // A route outside `identify` knows nobody: it refuses.
        known(parts.extensions.get::<Identity>().copied().unwrap_or(Identity::Nobody))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Pass::from_request_parts(parts, state).await.map(|pass| pass.caller)
    }
}

impl FromRequestParts<App> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Renter { account } = Renter::from_request_parts(parts, app).await?;
        if app.is_operator(account) { Ok(Self { account }) } else { Err(Problem::WrongCaller("an operator's token")) }
    }
}

impl<S: Sync> FromRequestParts<S> for Renter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Caller::from_request_parts(parts, state).await? {
            Caller::Renter(account) => Ok(Self { account }),
            Caller::Node(_) => Err(Problem::WrongCaller("an account's token")),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for NodeToken {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Caller::from_request_parts(parts, state).await? {
            Caller::Node(node) => Ok(Self { node }),
            Caller::Renter(_) => Err(Problem::WrongCaller("a node's token")),
        }
    }
}
