//! One call: the request, its token, its answer.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use selion_api::TimeMs;
use selion_api::rest::{Problem, Refresh, Session, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use crate::ClientError;
use crate::login::{Keeper, now};
use crate::promise::{Headers, Promises};
use crate::trouble::{Trouble, Watcher};
use crate::word::Key;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a quick answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// A token that lapses within this is renewed first.
const RENEW_MS: u64 = 60_000;

/// A controller as seen by one account. Clones share the login.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    base: Url,
    http: reqwest::Client,
    held: RwLock<Held>,
    /// Held over a renewal, so that many calls at once renew once.
    renewing: Mutex<()>,
    keeper: RwLock<Option<Arc<dyn Keeper>>>,
    promised: std::sync::Mutex<Promises>,
    watcher: Watcher,
    key: RwLock<Option<Arc<Key>>>,
}

/// The login in use.
#[derive(Default)]
struct Held {
    proof: Proof,
    token: Option<Token>,
}

/// What the next token is made from.
#[derive(Clone, Default)]
enum Proof {
    #[default]
    Nothing,
    Key(String),
    Refresh(String),
}

fn is_fresh(expires: TimeMs) -> bool {
    expires.since(now()) > RENEW_MS
}

/// Whether a call shows who calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    Anyone,
    Me,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.inner.base.as_str()).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the controller at `base_url`. Opens no connection yet.
    ///
    /// # Errors
    ///
    /// [`ClientError::BadUrl`].
    pub fn new(base_url: &str) -> Result<Self, ClientError> {
        let bad = |why: String| ClientError::BadUrl { url: base_url.to_owned(), why };
        let mut base: Url = base_url.parse().map_err(|error| bad(format!("{error}")))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(bad("it is not an http or https URL with a host".to_owned()));
        }
        if !base.username().is_empty() || base.password().is_some() || base.query().is_some() {
            return Err(bad("it has a user, a password or a query".to_owned()));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT);
        if is_loopback(&base) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| bad(error.to_string()))?;
        let (held, renewing, keeper) = (RwLock::default(), Mutex::default(), RwLock::default());
        let promised = std::sync::Mutex::default();
        let (watcher, key) = (Watcher::default(), RwLock::default());
        let inner = Inner { base, http, held, renewing, keeper, promised, watcher, key };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The controller's address, ending in `/`.
    #[must_use]
    pub fn base_url(&self) -> &str {
        self.inner.base.as_str()
    }

    /// Uses `key` for every call from now on.
    pub fn set_api_key(&self, key: &str) {
        self.hold(Held { proof: Proof::Key(key.to_owned()), token: None });
    }

    /// Uses `session` for every call from now on, and renews it as needed.
    pub fn set_session(&self, session: &Session) {
        let token = Token { token: session.token.clone(), expires_ms: session.expires_ms };
        self.hold(Held { proof: Proof::Refresh(session.refresh_token.clone()), token: Some(token) });
    }

    /// Renews the session in turns with other processes, through `keeper`.
    pub fn set_keeper(&self, keeper: Arc<dyn Keeper>) {
        *self.inner.keeper.write().unwrap_or_else(PoisonError::into_inner) = Some(keeper);
    }

    /// `watch` is told while a call or a stream waits for a controller that does not answer; it must not block.
    pub fn set_watcher(&self, watch: impl Fn(&Trouble) + Send + Sync + 'static) {
        self.inner.watcher.set(Arc::new(watch));
    }

    pub(crate) fn set_key(&self, key: Arc<Key>) {
        *self.inner.key.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }

    /// What words are signed with.
    pub(crate) fn key(&self) -> Option<Arc<Key>> {
        self.inner.key.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn watcher(&self) -> &Watcher {
        &self.inner.watcher
    }

    pub(crate) fn forget_login(&self) {
        self.hold(Held::default());
    }

    fn hold(&self, held: Held) {
        *self.inner.held.write().unwrap_or_else(PoisonError::into_inner) = held;
    }

    /// A bearer token that is good for at least a minute; also for the content gateway under `/ipfs`.
    ///
    /// # Errors
    ///
    /// [`ClientError::NoLogin`] and what the token endpoint says.
    pub async fn bearer(&self) -> Result<String, ClientError> {
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let _turn = self.inner.renewing.lock().await;
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let proof = self.inner.held.read().unwrap_or_else(PoisonError::into_inner).proof.clone();
        match proof {
            Proof::Nothing => return Err(ClientError::NoLogin),
            Proof::Key(key) => {
                let request = self
                    .request(Method::POST, &["v1", "auth", "token"])
                    .header(AUTHORIZATION, secret(&format!("ApiKey {key}"))?)
                    .timeout(TIMEOUT);
                let token: Token = read(send(request).await?).await?;
                self.hold(Held { proof: Proof::Key(key), token: Some(token) });
            }
            Proof::Refresh(refresh_token) => self.renew(refresh_token).await?,
        }
        let held = self.inner.held.read().unwrap_or_else(PoisonError::into_inner);
        held.token.as_ref().map(|token| token.token.clone()).ok_or(ClientError::NoLogin)
    }

    fn fresh(&self) -> Option<String> {
        let held = self.inner.held.read().unwrap_or_else(PoisonError::into_inner);
        held.token.as_ref().filter(|token| is_fresh(token.expires_ms)).map(|token| token.token.clone())
    }

    /// Exchanges the refresh token, or takes over what another process exchanged it for.
    async fn renew(&self, mut refresh_token: String) -> Result<(), ClientError> {
        let keeper = self.inner.keeper.read().unwrap_or_else(PoisonError::into_inner).clone();
        let turn = match keeper {
            None => None,
            Some(keeper) => {
                let turn = tokio::task::spawn_blocking(move || keeper.turn()).await;
                Some(turn.map_err(|error| ClientError::Kept(error.to_string()))?.map_err(ClientError::Kept)?)
            }
        };
        // Told apart by the refresh token: a session that was kept and is ours was found wanting already.
        let other = turn.as_ref().and_then(|turn| turn.kept()).filter(|kept| kept.refresh_token != refresh_token);
        if let Some(kept) = other {
            self.set_session(&kept);
            if is_fresh(kept.expires_ms) {
                return Ok(());
            }
            refresh_token = kept.refresh_token;
        }
        let body = Refresh { refresh_token };
        let request = self.request(Method::POST, &["v1", "auth", "refresh"]).json(&body).timeout(TIMEOUT);
        let session: Session = read(send(request).await?).await?;
        self.set_session(&session);
        turn.map_or(Ok(()), |turn| turn.keep(&session)).map_err(ClientError::Kept)
    }

    pub(crate) fn promised(&self) -> &std::sync::Mutex<Promises> {
        &self.inner.promised
    }

    fn forget_token(&self) {
        self.inner.held.write().unwrap_or_else(PoisonError::into_inner).token = None;
    }

    /// A request to the path of these segments, each escaped.
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.inner.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        self.inner.http.request(method, url).header(ACCEPT, "application/json")
    }

    /// Sends what `make` makes, with a token where one is due, once more with a new token if the old one lapsed.
    pub(crate) async fn ask(&self, who: As, make: impl Fn() -> RequestBuilder) -> Result<Response, ClientError> {
        for last in [false, true] {
            let mut request = make();
            if who == As::Me {
                request = request.header(AUTHORIZATION, secret(&format!("Bearer {}", self.bearer().await?))?);
            }
            match send(request).await {
                Err(error) if !last && who == As::Me && is_over(&error) => self.forget_token(),
                other => return other,
            }
        }
        Err(ClientError::NoLogin)
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        who: As,
        path: &[&str],
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        let make = || self.request(Method::GET, path).query(query).timeout(TIMEOUT);
        read(self.watcher().over(TIMEOUT, self.ask(who, make)).await?).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        who: As,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.post_once(who, path, None, body).await
    }

    /// As [`post`](Self::post), under an `Idempotency-Key`.
    pub(crate) async fn post_once<T: DeserializeOwned>(
        &self,
        who: As,
        path: &[&str],
        key: Option<&str>,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let key = key.map(HeaderValue::from_str).transpose().map_err(|_| ClientError::Protocol {
            url: self.base_url().to_owned(),
            what: "the Idempotency-Key has characters that no header may carry".to_owned(),
        })?;
        let make = || {
            let request = self.request(Method::POST, path).json(body).timeout(TIMEOUT);
            match &key {
                Some(key) => request.header("Idempotency-Key", key.clone()),
                None => request,
            }
        };
        let response = self.watcher().over(TIMEOUT, self.ask(who, make)).await?;
        let headers = Headers::of(&response);
        let answer = read(response).await?;
        self.keep_promise(&headers, None)?;
        Ok(answer)
    }
}

/// Whether another token may help.
fn is_over(error: &ClientError) -> bool {
    matches!(error.code(), Some("token_expired" | "token_revoked" | "bad_token"))
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

fn secret(text: &str) -> Result<HeaderValue, ClientError> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| ClientError::Wallet("the API key or token has characters that no header may carry".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Sends, and turns everything that is not success into an error.
pub(crate) async fn send(request: RequestBuilder) -> Result<Response, ClientError> {
    let (client, request) = request.build_split();
    let request = request.map_err(|error| ClientError::BadUrl { url: String::new(), why: error.to_string() })?;
    let url = request.url().to_string();
    let response = client.execute(request).await.map_err(|error| ClientError::unreachable(&url, &error))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let bytes = response.bytes().await.map_err(|error| ClientError::unreachable(&url, &error))?;
    match problem(&bytes) {
        Some(problem) => Err(ClientError::Problem(Box::new(problem))),
        None => Err(ClientError::Protocol { url, what: format!("status {status} without a problem document") }),
    }
}

/// A problem document; one of the content gateway lacks some members.
fn problem(bytes: &[u8]) -> Option<Problem> {
    let mut value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let map = value.as_object_mut()?;
    map.entry("type").or_insert_with(|| "about:blank".into());
    serde_json::from_value(value).ok()
}

/// The answer's JSON.
pub(crate) async fn read<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    let url = response.url().to_string();
    let bytes = response.bytes().await.map_err(|error| ClientError::unreachable(&url, &error))?;
    serde_json::from_slice(&bytes).map_err(|error| ClientError::Protocol { url, what: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_no_controllers_is_refused_with_the_right_form() {
        for bad in ["", "ftp://host", "127.0.0.1:7070", "http://user:pw@host", "http://host/?a=b"] {
            let error = Client::new(bad).unwrap_err();
            assert!(error.to_string().contains("http://HOST[:PORT]"), "{error}");
        }
        assert_eq!(Client::new("http://host/pool").unwrap().base_url(), "http://host/pool/");
    }

    #[tokio::test]
    async fn an_unreachable_controller_is_named_with_a_remedy() {
        // Bound and closed again: nobody listens there.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = Client::new(&format!("http://127.0.0.1:{port}")).unwrap();
        let error = client.pool().await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{text}");
        assert!(
            text.contains(&format!(":{port}/v1/pool")) && text.contains("check that the controller runs"),
            "{text}"
        );
        assert!(error.is_retryable());
    }

    #[tokio::test]
    async fn a_call_that_needs_a_login_says_so_before_it_is_sent() {
        let client = Client::new("http://127.0.0.1:9").unwrap();
        assert!(matches!(client.account().await, Err(ClientError::NoLogin)));
    }

    #[test]
    fn a_problem_of_the_gateway_is_read_too() {
        let text = br#"{"title":"Not Found","status":404,"code":"block_absent","detail":"d","suggestion":"s","retryable":true}"#;
        assert_eq!(problem(text).unwrap().code, "block_absent");
        assert!(problem(b"<html>").is_none());
    }
}
