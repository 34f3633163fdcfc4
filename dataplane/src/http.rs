//! A trustless gateway as seen by its client.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use cid::Cid;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url, redirect};

use crate::car;
use crate::dag::MAX_BLOCK;
use crate::source::{Source, SourceError};

/// Media type of one bare block.
pub const RAW_BLOCK: &str = "application/vnd.ipld.raw";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a refusal that are read.
const MAX_REASON: usize = 8 << 10;
/// Longest silence in the middle of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// An HTTP gateway that gives, and ours also takes, single blocks.
#[derive(Clone)]
pub struct HttpGateway {
    base: Url,
    client: Client,
    /// It knows single blocks only.
    singly: Arc<AtomicBool>,
}

/// Why a gateway client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum GatewayUrlError {
    /// Not a URL we can use.
    #[error("{url:?} is not a gateway address: {why}; give http://HOST[:PORT] or https://HOST[:PORT]")]
    BadUrl {
        /// As given, without user and password.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A token that no header can carry.
    #[error("the bearer token has characters that no HTTP header may carry")]
    BadToken,
    /// The HTTP client could not start.
    #[error("cannot start the HTTP client")]
    Client(#[source] reqwest::Error),
}

impl HttpGateway {
    /// A client of the gateway at `url` (blocks are at `{url}/ipfs/{cid}`), with `token` as bearer where it asks
    /// for one. Follows no redirect. Opens no connection yet.
    ///
    /// # Errors
    ///
    /// [`GatewayUrlError`], which never repeats a token or password.
    pub fn new(url: &str, token: Option<&str>) -> Result<Self, GatewayUrlError> {
        let mut base = parse(url)?;
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| GatewayUrlError::BadToken)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut client = Client::builder()
            .default_headers(headers)
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT);
        if is_loopback(&base) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(GatewayUrlError::Client)?;
        Ok(Self { base, client, singly: Arc::default() })
    }

    /// Whether the gateway has `cid`.
    ///
    /// # Errors
    ///
    /// [`SourceError`], but never [`SourceError::Absent`].
    pub async fn has(&self, cid: &Cid) -> Result<bool, SourceError> {
        let request = self.client.head(self.url(cid)).header(ACCEPT, RAW_BLOCK);
        match accept(request.send().await.map_err(failed)?).await {
            Ok(_) => Ok(true),
            Err(SourceError::Absent) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives the gateway a block. Not verified here: it verifies.
    ///
    /// # Errors
    ///
    /// [`SourceError::Refused`] also where the gateway takes no blocks.
    pub async fn put(&self, cid: &Cid, bytes: Bytes) -> Result<(), SourceError> {
        let request = self.client.put(self.url(cid)).header(CONTENT_TYPE, RAW_BLOCK).body(bytes);
        accept(request.send().await.map_err(failed)?).await.map(drop)
    }

    /// Which of these the gateway has not: one question for up to 1024.
    ///
    /// # Errors
    ///
    /// [`SourceError::Absent`] from a gateway that knows no such question.
    pub async fn absent(&self, cids: &[Cid]) -> Result<Vec<Cid>, SourceError> {
        let answer = self.ask("have", cids).await?;
        let bytes = within(answer, car::LONGEST).await?;
        let absent: Absent = serde_json::from_slice(&bytes).map_err(|error| SourceError::Failed(error.to_string()))?;
        let wanted: std::collections::HashSet<String> = absent.absent.into_iter().collect();
        Ok(cids.iter().filter(|cid| wanted.contains(&cid.to_string())).copied().collect())
    }

    /// Gives the gateway these blocks in one message, which must not be longer than one may be.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub async fn put_many(&self, blocks: &[(Cid, Bytes)]) -> Result<(), SourceError> {
        let mut car = car::Writer::new();
        blocks.iter().for_each(|(cid, bytes)| car.add(cid, bytes));
        let request = self.client.post(self.at("blocks")).header(CONTENT_TYPE, car::CAR).body(car.finish());
        accept(request.send().await.map_err(failed)?).await.map(drop)
    }

    async fn ask(&self, verb: &str, cids: &[Cid]) -> Result<Response, SourceError> {
        let cids: Vec<String> = cids.iter().map(ToString::to_string).collect();
        let body = serde_json::json!({ "cids": cids }).to_string();
        let request = self.client.post(self.at(verb)).header(CONTENT_TYPE, "application/json").body(body);
        accept(request.send().await.map_err(failed)?).await
    }

    fn at(&self, verb: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}ipfs/{verb}", self.base.path()));
        url
    }

    fn url(&self, cid: &Cid) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}ipfs/{cid}", self.base.path()));
        // The header alone would do; some gateways heed only the one, some caches only the other.
        url.set_query(Some("format=raw"));
        url
    }
}

#[async_trait]
impl Source for HttpGateway {
    fn name(&self) -> String {
        self.base.to_string()
    }

    async fn block(&self, cid: &Cid) -> Result<Bytes, SourceError> {
        let request = self.client.get(self.url(cid)).header(ACCEPT, RAW_BLOCK);
        within(accept(request.send().await.map_err(failed)?).await?, MAX_BLOCK).await
    }

    async fn blocks(&self, cids: &[Cid]) -> Result<Vec<(Cid, Bytes)>, SourceError> {
        if self.singly.load(Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        let answer = match self.ask("want", cids).await {
            Ok(answer) => answer,
            // A gateway of somebody else's, that gives single blocks only.
            Err(SourceError::Absent | SourceError::Refused { .. }) => {
                self.singly.store(true, Ordering::Relaxed);
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let message = within(answer, car::LONGEST).await?;
        car::read(message).ok_or_else(|| SourceError::Failed("its answer is no CAR".to_owned()))
    }
}

#[derive(serde::Deserialize)]
struct Absent {
    absent: Vec<String>,
}

/// The body, if it is not longer than `limit`.
async fn within(mut answer: Response, limit: usize) -> Result<Bytes, SourceError> {
    let announced = answer.content_length().unwrap_or(0);
    if announced > limit as u64 {
        return Err(SourceError::TooLarge);
    }
    let mut bytes = BytesMut::with_capacity(announced as usize);
    while let Some(chunk) = answer.chunk().await.map_err(failed)? {
        if bytes.len() + chunk.len() > limit {
            return Err(SourceError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// Shows no headers, so no token.
impl fmt::Debug for HttpGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpGateway").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

fn parse(url: &str) -> Result<Url, GatewayUrlError> {
    let bad = |url: String, why: &str| GatewayUrlError::BadUrl { url, why: why.to_owned() };
    let parsed = match Url::parse(url) {
        Ok(parsed) => parsed,
        // What does not parse may hold a password in any place.
        Err(error) => return Err(bad("(not shown)".to_owned(), &error.to_string())),
    };
    let shown = format!("{}://{}", parsed.scheme(), parsed.host_str().unwrap_or_default());
    if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
        return Err(bad(shown, "it is neither http nor https"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(bad(shown, "it holds a user or password; pass a token instead"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(bad(shown, "it has a query or fragment"));
    }
    Ok(parsed)
}

/// `localhost` or an address of this machine alone.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

async fn accept(answer: Response) -> Result<Response, SourceError> {
    let status = answer.status();
    match status {
        StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => Ok(answer),
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::PRECONDITION_FAILED => Err(SourceError::Absent),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            Err(SourceError::Failed(format!("status {status}")))
        }
        _ if status.is_client_error() => {
            Err(SourceError::Refused { status: status.as_u16(), why: reason(answer).await })
        }
        _ => Err(SourceError::Failed(format!("status {status}"))),
    }
}

/// What a refusal says, if it says it as a problem; the words of others go to nobody's terminal unchecked.
async fn reason(mut answer: Response) -> String {
    let mut body = BytesMut::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_REASON {
            break;
        }
    }
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |name: &str| problem.get(name).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
    match (text("detail"), text("suggestion")) {
        (detail, _) if detail.is_empty() => "check the token".to_owned(),
        (detail, suggestion) => format!("{detail}; {suggestion}").chars().filter(|one| !one.is_control()).collect(),
    }
}

fn failed(error: reqwest::Error) -> SourceError {
    SourceError::Failed(chain(&error))
}

/// The chain of causes in one line: reqwest's own message stops at "error sending request".
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
