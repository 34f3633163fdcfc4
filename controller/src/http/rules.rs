//! Who may call what: one table, and what it does not name is refused. The description of the interface takes its
//! security from here, and a test holds every route against every kind of caller that may not.

use axum::http::Method;
use selion_api::rest::Scope;

/// What a route asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: public, or the body or header proves what is needed.
    Nothing,
    /// Any good token, an account's or a node's.
    Token,
    /// An account's token with that scope. Whose object it is, is for the handler to say.
    Scope(Scope),
    /// The same, or a node's token.
    ScopeOrNode(Scope),
    /// The token of a session, not of an API key.
    Session,
    /// An operator's own login.
    Operator,
    /// Whoever watches over the controller: somebody on its machine, or any login of an operator.
    Watcher,
}

use Need::{Nothing, Operator, ScopeOrNode, Session, Token, Watcher};
const LEASE_READ: Need = Need::Scope(Scope::LeaseRead);
const LEASE_WRITE: Need = Need::Scope(Scope::LeaseWrite);
const DATA_READ: Need = Need::Scope(Scope::DataRead);
const DATA_WRITE: Need = Need::Scope(Scope::DataWrite);
const MONEY_READ: Need = Need::Scope(Scope::MoneyRead);
const NODE_WRITE: Need = Need::Scope(Scope::NodeWrite);
const LOGIN: Need = Need::Scope(Scope::Login);

/// Every route. Auditors need no login: log, heads and registry are public.
const RULES: &[(&str, &str, Need)] = &[
    ("GET", "/healthz", Nothing),
    ("GET", "/readyz", Nothing),
    ("GET", "/metrics", Watcher),
    ("GET", "/openapi.json", Nothing),
    ("GET", "/device", Nothing),
    ("GET", "/device.js", Nothing),
    ("GET", "/v1/link", Nothing),
    ("GET", "/v1/pool", Nothing),
    ("GET", "/v1/registry", Nothing),
    ("GET", "/log/checkpoint", Nothing),
    ("GET", "/log/tile/{level}/{index}", Nothing),
    ("GET", "/log/tile/entries/{index}", Nothing),
    ("GET", "/log/effects/{index}", Nothing),
    ("GET", "/log/long/{seq}", Nothing),
    // What the four above are one route of.
    ("GET", "/log/{*path}", Nothing),
    ("GET", "/v1/log/head", Nothing),
    ("GET", "/v1/log/entries", Nothing),
    ("POST", "/v1/relay", Nothing),
    ("GET", "/v1/relay/{id}", Nothing),
    ("POST", "/v1/auth/nonce", Nothing),
    ("POST", "/v1/auth/siwe", Nothing),
    ("POST", "/v1/auth/refresh", Nothing),
    ("POST", "/v1/auth/token", Nothing),
    ("POST", "/v1/auth/device", Nothing),
    ("POST", "/v1/auth/device/token", Nothing),
    ("POST", "/v1/auth/device/look", Nothing),
    ("POST", "/v1/auth/device/siwe", Nothing),
    ("POST", "/v1/auth/device/approve", LOGIN),
    ("POST", "/v1/auth/device/deny", LOGIN),
    ("POST", "/v1/auth/logout", Session),
    ("POST", "/v1/auth/logout-all", LOGIN),
    ("GET", "/v1/api-keys", LOGIN),
    ("POST", "/v1/api-keys", LOGIN),
    ("DELETE", "/v1/api-keys/{id}", LOGIN),
    ("POST", "/v1/operator/revoke", Operator),
    ("GET", "/v1/whoami", Token),
    ("GET", "/v1/offers", Token),
    ("GET", "/v1/shares", Token),
    ("GET", "/v1/nodes", Token),
    ("GET", "/v1/nodes/{id}", Token),
    ("POST", "/v1/nodes/{id}/pause", NODE_WRITE),
    ("POST", "/v1/nodes/{id}/resume", NODE_WRITE),
    ("POST", "/v1/nodes/{id}/reclaim", NODE_WRITE),
    ("GET", "/v1/account", MONEY_READ),
    ("GET", "/v1/bills", MONEY_READ),
    ("GET", "/v1/vouchers", MONEY_READ),
    ("GET", "/v1/leases", LEASE_READ),
    ("POST", "/v1/leases", LEASE_WRITE),
    ("GET", "/v1/leases/{id}", LEASE_READ),
    ("GET", "/v1/leases/{id}/wait", LEASE_READ),
    ("GET", "/v1/leases/{id}/placement", LEASE_READ),
    ("GET", "/v1/leases/{id}/outputs", LEASE_READ),
    ("GET", "/v1/leases/{id}/outputs/{rank}", LEASE_READ),
    ("GET", "/v1/leases/{id}/outputs/{rank}/{path}", LEASE_READ),
    // The route that answers the one above, whatever slashes the path has.
    ("GET", "/v1/leases/{id}/outputs/{rank}/{*path}", LEASE_READ),
    ("GET", "/v1/leases/{id}/logs", LEASE_READ),
    ("GET", "/v1/leases/{id}/events", LEASE_READ),
    ("POST", "/v1/leases/{id}/release", LEASE_WRITE),
    ("POST", "/v1/leases/{id}/extend", LEASE_WRITE),
    ("GET", "/v1/leases/{id}/secrets", LEASE_READ),
    ("PUT", "/v1/leases/{id}/secrets", LEASE_WRITE),
    ("GET", "/v1/licences", LEASE_READ),
    ("GET", "/v1/images", LEASE_WRITE),
    ("GET", "/v1/datasets", DATA_READ),
    ("POST", "/v1/datasets", DATA_WRITE),
    ("GET", "/v1/datasets/{cid}", DATA_READ),
    ("DELETE", "/v1/datasets/{cid}", DATA_WRITE),
    ("GET", "/ipfs/{cid}", ScopeOrNode(Scope::DataRead)),
    ("GET", "/ipfs/{cid}/{*path}", ScopeOrNode(Scope::DataRead)),
    ("PUT", "/ipfs/{cid}", ScopeOrNode(Scope::DataWrite)),
    ("POST", "/ipfs/have", ScopeOrNode(Scope::DataWrite)),
    ("POST", "/ipfs/want", ScopeOrNode(Scope::DataRead)),
    ("POST", "/ipfs/blocks", ScopeOrNode(Scope::DataWrite)),
];

/// The paths that can be read.
#[cfg(test)]
pub fn read_paths() -> impl Iterator<Item = &'static str> {
    RULES.iter().filter(|(verb, ..)| *verb == "GET").map(|(_, path, _)| *path)
}

/// What the route asks for; `None` if there is no such route. `HEAD` is `GET`.
#[must_use]
pub fn need(method: &Method, path: &str) -> Option<Need> {
    let method = if method == Method::HEAD { Method::GET } else { method.clone() };
    RULES.iter().find(|(verb, route, _)| *route == path && *verb == method.as_str()).map(|(_, _, need)| *need)
}

/// The methods that a path takes.
#[must_use]
pub fn methods(path: &str) -> Vec<&'static str> {
    let mut methods: Vec<_> = RULES.iter().filter(|(_, route, _)| *route == path).map(|(verb, ..)| *verb).collect();
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods
}
