//! Who calls. [`identify`] reads the `Authorization` header once; the extractors here are the only way for a handler
//! to learn who it is, and each refuses who may not be there.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use selion_api::{Account, NodeId};

use super::Problem;
use super::secrets::TokenFault;
use crate::App;

/// Whoever presents a good bearer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    Known(Caller),
}

/// Whose allowance a request is counted against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Renter(Account),
    Node(NodeId),
    /// Nobody we know: by the peer's address; `None` where the server gives none.
    Peer(Option<IpAddr>),
}

/// Middleware: puts the caller and the [`Subject`] beside the request.
pub(super) async fn identify(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let identity = match header.and_then(|text| scheme(text, "Bearer")) {
        None => Identity::Nobody,
        Some(token) => match app.secrets.verify(token, (app.clock)()) {
            Ok(caller) => Identity::Known(caller),
            Err(fault) => Identity::Bad(fault),
        },
    };
    let subject = match identity {
        Identity::Known(Caller::Renter(account)) => Subject::Renter(account),
        Identity::Known(Caller::Node(node)) => Subject::Node(node),
        Identity::Nobody | Identity::Bad(_) => Subject::Peer(peer(&request)),
    };
    request.extensions_mut().insert(identity);
    request.extensions_mut().insert(subject);
    next.run(request).await
}

fn peer(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip())
}

/// The credentials of an `Authorization` header of that scheme. Schemes are case-insensitive (RFC 9110 §11.1).
pub(super) fn scheme<'a>(header: &'a str, scheme: &str) -> Option<&'a str> {
    let (name, rest) = header.split_once(' ')?;
    name.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // A route outside `identify` knows nobody: it refuses.
        match parts.extensions.get::<Identity>() {
            Some(Identity::Known(caller)) => Ok(*caller),
            Some(Identity::Bad(fault)) => Err(Problem::BadToken(*fault)),
            Some(Identity::Nobody) | None => Err(Problem::NoToken),
        }
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
