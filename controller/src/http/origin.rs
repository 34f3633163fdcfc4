//! The address by which callers know this controller: what a login message must name, and what a browser may.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::http::header::{HOST, ORIGIN, UPGRADE};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Problem;
use crate::App;
use crate::config::BadConfig;

/// Where this controller is, as wallets and browsers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Base URL without a slash at its end.
    url: String,
    /// Host and port in it.
    authority: Authority,
}

impl Origin {
    /// The configured URL, or else loopback at the port of `listen`.
    ///
    /// # Errors
    ///
    /// [`BadConfig`] if the URL is not one of http or https with a host, or has more than a path.
    pub fn of(public_url: Option<&str>, listen: SocketAddr) -> Result<Self, BadConfig> {
        let url = match public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if listen.ip().is_unspecified() => format!("http://127.0.0.1:{}", listen.port()),
            None => format!("http://{listen}"),
        };
        let bad =
            || BadConfig { what: format!("public_url is `{url}`; write http://HOST[:PORT] or https://HOST[:PORT]") };
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let web = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().filter(|authority| web && !authority.as_str().contains('@'));
        let authority = authority.filter(|_| uri.query().is_none()).cloned().ok_or_else(bad)?;
        Ok(Self { url, authority })
    }

    /// Base URL without a slash at its end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Whether `domain` is this controller. On loopback its names are one.
    #[must_use]
    pub fn is(&self, domain: &Authority) -> bool {
        *domain == self.authority
            || domain.port_u16() == self.authority.port_u16() && is_loopback(domain) && is_loopback(&self.authority)
    }

    /// Whether this controller is found on its own machine only.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.authority)
    }

    /// Whether a request may name `host`, where only this machine reaches the controller. Any port of loopback will do:
    /// a tunnel has its own.
    #[must_use]
    pub fn serves(&self, host: &str) -> bool {
        host.parse::<Authority>().is_ok_and(|host| is_loopback(&host) || host == self.authority)
    }

    /// Whether `uri` is a page of this controller.
    #[must_use]
    pub fn has(&self, uri: &str) -> bool {
        let Ok(parsed) = uri.parse::<Uri>() else { return false };
        let ours: Option<Uri> = self.url.parse().ok();
        let base = ours.as_ref().map_or("", Uri::path).trim_end_matches('/');
        let below = parsed.path().strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        below
            && parsed.scheme_str() == ours.as_ref().and_then(Uri::scheme_str)
            && parsed.authority().is_some_and(|authority| self.is(authority))
    }
}

/// Middleware: keeps browsers' pages of other sites out. A page whose name was bound to a loopback address tells its own
/// name as host; a page elsewhere tells its origin with everything that changes something.
pub(super) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    match foreign(&app, &request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// Why a request is none of this controller's, if it is not.
fn foreign(app: &App, request: &Request) -> Option<Problem> {
    let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST).or_else(|| request.uri().authority().map(Authority::as_str));
    if let Some(host) = host.filter(|host| app.config.listen.ip().is_loopback() && !app.origin.serves(host)) {
        return Some(Problem::ForeignHost(host.to_owned()));
    }
    let changes = !request.method().is_safe() || request.headers().contains_key(UPGRADE);
    let same = |origin: &str| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        app.origin.has(origin) || host.is_some() && authority == host
    };
    let origin = text(ORIGIN).filter(|origin| changes && !same(origin));
    origin.map(|origin| Problem::ForeignOrigin(origin.to_owned()))
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let ip = || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    host.eq_ignore_ascii_case("localhost") || ip()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: Option<&str>, listen: &str) -> Origin {
        Origin::of(url, listen.parse().unwrap()).unwrap()
    }

    #[test]
    fn an_origin_is_the_configured_url_or_loopback() {
        assert_eq!(origin(None, "127.0.0.1:7070").url(), "http://127.0.0.1:7070");
        assert_eq!(origin(None, "0.0.0.0:7070").url(), "http://127.0.0.1:7070");
        assert_eq!(origin(None, "[::]:7070").url(), "http://127.0.0.1:7070");
        let pool = origin(Some("https://pool.example/one/"), "127.0.0.1:7070");
        assert_eq!((pool.url(), pool.authority().as_str()), ("https://pool.example/one", "pool.example"));
        for bad in ["pool.example", "ftp://pool.example", "https://", "https://me:pw@pool.example", "https://h?a=b"] {
            let told = Origin::of(Some(bad), "127.0.0.1:1".parse().unwrap()).unwrap_err().what;
            assert!(told.contains("public_url") && told.contains("https://HOST"), "{told}");
        }
    }

    #[test]
    fn a_host_that_is_bound_to_loopback_by_somebody_else_is_not_served() {
        let here = origin(None, "127.0.0.1:7070");
        for host in ["127.0.0.1:7070", "localhost:9000", "[::1]:7070", "localhost"] {
            assert!(here.serves(host), "{host}");
        }
        let pool = origin(Some("https://pool.example"), "127.0.0.1:7070");
        assert!(pool.serves("pool.example") && pool.serves("127.0.0.1:7070"));
        for host in ["evil.example:7070", "127.0.0.1.evil.example", "", "a b"] {
            assert!(!here.serves(host) && !pool.serves(host), "{host}");
        }
    }

    #[test]
    fn names_of_loopback_are_one_at_one_port_and_nobody_elses() {
        let here = origin(None, "127.0.0.1:7070");
        for name in ["127.0.0.1:7070", "localhost:7070", "[::1]:7070"] {
            assert!(here.is(&name.parse().unwrap()), "{name}");
            assert!(here.has(&format!("http://{name}")) && here.has(&format!("http://{name}/device")), "{name}");
        }
        for name in ["127.0.0.1:7071", "localhost", "127.0.0.1.evil.example:7070", "evil.example:7070"] {
            assert!(!here.is(&name.parse().unwrap()), "{name}");
        }
        let pool = origin(Some("https://pool.example/one"), "127.0.0.1:7070");
        assert!(pool.is(&"POOL.example".parse().unwrap()) && !pool.is(&"pool.example:7070".parse().unwrap()));
        assert!(pool.has("https://pool.example/one") && pool.has("https://pool.example/one/device"));
        for other in ["http://pool.example/one", "https://pool.example/onetwo", "https://pool.example", "urn:x"] {
            assert!(!pool.has(other), "{other}");
        }
        assert!(!pool.is(&"localhost:7070".parse().unwrap()));
    }
}
