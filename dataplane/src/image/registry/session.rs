//! One image's talk with one registry: requests, credentials, redirects, tries.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::challenge::Challenge;
use super::reach::{PrivateName, with_port};
use super::{Credentials, Inner};
use crate::http::{chain, is_loopback};
use crate::image::manifest::{ACCEPTED, Blob, within};
use crate::image::{Digest, ImageError, Reference, RegistryError, local, shown};

/// Most hosts that a blob may lead to, one after the other.
const MOST_HOPS: usize = 5;
/// Bytes of a refusal that are read.
const MOST_REASON: u64 = 8 << 10;
/// Bytes of a token's answer.
const MOST_TOKEN: u64 = 64 << 10;
/// The first wait before another try; each is twice the last.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Longest wait that a registry may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub(in crate::image) struct Session {
    pub(super) inner: Arc<Inner>,
    pub(super) host: String,
    repository: String,
    credentials: Credentials,
    /// What requests carry, once the registry has said what it wants.
    token: Mutex<Option<HeaderValue>>,
}

/// Why one try failed.
pub(super) enum Failure {
    /// Another try would end the same way.
    Final(ImageError),
    /// It may pass, after this time if one is given.
    Passing(RegistryError, Option<Duration>),
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        Self::Final(error.into())
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self::Final(error)
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub accept: &'a str,
    /// The first byte.
    pub from: u64,
    /// Whether it may be elsewhere.
    pub elsewhere: bool,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Session {
    pub(super) fn new(inner: Arc<Inner>, reference: &Reference, credentials: &Credentials) -> Self {
        Self {
            inner,
            host: reference.host().to_owned(),
            repository: reference.repository().to_owned(),
            credentials: credentials.clone(),
            token: Mutex::new(None),
        }
    }

    /// Blobs that are fetched at a time.
    pub fn parallel(&self) -> usize {
        self.inner.rules.parallel.max(1)
    }

    /// The document of a tag or digest, of at most `most` bytes, and its digest; verified against what is known of it.
    pub async fn manifest(
        &self,
        wanted: &str,
        digest: Option<Digest>,
        size: Option<u64>,
        most: u64,
    ) -> Result<(Vec<u8>, Digest), ImageError> {
        let url = self.url("manifests", wanted)?;
        let (bytes, headers) = self
            .tried(|| async {
                let wish = Wish { accept: ACCEPTED, from: 0, elsewhere: false };
                let answer = self.get(&url, wish, wanted).await?;
                self.is_json(&url, answer.headers())?;
                let headers = answer.headers().clone();
                Ok((self.body(answer, most, "manifest").await?, headers))
            })
            .await?;
        let said = headers.get("docker-content-digest").and_then(|text| text.to_str().ok()?.parse().ok());
        let found = Digest::of(&bytes);
        let wanted = digest.or(said).unwrap_or(found);
        local::verify("manifest", &Blob { digest: wanted, size: size.unwrap_or(bytes.len() as u64) }, &bytes)?;
        Ok((bytes, found))
    }

    /// A small blob, held in memory; verified.
    pub async fn small(&self, what: &'static str, blob: &Blob, most: u64) -> Result<Vec<u8>, ImageError> {
        within(blob.size, most, &format!("bytes of {what} {}", blob.digest))?;
        let name = blob.digest.to_string();
        let url = self.url("blobs", &name)?;
        let bytes = self
            .tried(|| async {
                let answer = self.get(&url, Wish { accept: "*/*", from: 0, elsewhere: true }, &name).await?;
                // One byte more than declared tells of a lie.
                self.body(answer, blob.size.saturating_add(1), what).await
            })
            .await?;
        local::verify(what, blob, &bytes)?;
        Ok(bytes)
    }

    pub(super) fn url(&self, kind: &str, name: &str) -> Result<Url, ImageError> {
        let text =
            format!("{}://{}/v2/{}/{kind}/{name}", self.inner.reach.scheme(&self.host), self.host, self.repository);
        Url::parse(&text)
            .map_err(|error| ImageError::BadReference { text: shown(self.host.as_bytes()), why: error.to_string() })
    }

    /// Tries until it is done, has failed for good, or has failed too often.
    async fn tried<T, F: Future<Output = Result<T, Failure>>>(&self, work: impl Fn() -> F) -> Result<T, ImageError> {
        let mut tries = 0;
        loop {
            match work().await {
                Ok(done) => return Ok(done),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(error, wait)) => self.pause(&mut tries, error, wait).await?,
            }
        }
    }

    /// Waits before another try, or gives up.
    pub(super) async fn pause(
        &self,
        tries: &mut u32,
        error: RegistryError,
        wait: Option<Duration>,
    ) -> Result<(), ImageError> {
        *tries += 1;
        if *tries >= self.inner.rules.tries.max(1) {
            return Err(error.into());
        }
        tracing::debug!(registry = self.host, %error, tries, "the registry failed and is asked again");
        let usual = FIRST_WAIT * 2_u32.saturating_pow((*tries).min(8) - 1);
        tokio::time::sleep(wait.unwrap_or(usual).min(LONGEST_WAIT)).await;
        Ok(())
    }

    /// One answer of success, with whatever credentials the registry wants and redirects that may be followed.
    pub(super) async fn get(&self, url: &Url, wish: Wish<'_>, what: &str) -> Result<Response, Failure> {
        let mut asked_again = false;
        loop {
            let sent = self.authorization().await?;
            let answer = self.follow(url, wish, sent.as_ref()).await?;
            if answer.status() != StatusCode::UNAUTHORIZED {
                return self.accept(answer, what, wish.from > 0).await;
            }
            if asked_again {
                return Err(self.not_let_in().into());
            }
            asked_again = true;
            self.authorise(answer.headers(), sent.as_ref()).await?;
        }
    }

    async fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        if let Credentials::Bearer(token) = &self.credentials {
            return Ok(Some(secret(&format!("Bearer {token}"))?));
        }
        Ok(self.token.lock().await.clone())
    }

    /// Goes where the registry sends us, if that is allowed.
    async fn follow(&self, url: &Url, wish: Wish<'_>, sent: Option<&HeaderValue>) -> Result<Response, Failure> {
        let mut at = url.clone();
        for _ in 0..MOST_HOPS {
            let own = with_port(&at) == with_port(url) && at.scheme() == url.scheme();
            let answer = self.send(&at, wish, sent.filter(|_| own)).await?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
            let location = answer.headers().get(LOCATION).and_then(|text| text.to_str().ok()).unwrap_or_default();
            let next =
                at.join(location).map_err(|_| self.redirected(&at, "(no address)", "the address does not parse"))?;
            let moved = with_port(&next) != with_port(url);
            if moved && !wish.elsewhere {
                let why =
                    "a manifest comes from the registry itself; write that host into the image's name if you trust it";
                return Err(self.redirected(&at, &plain(&next), why).into());
            }
            if !self.inner.reach.scheme_fits(&next) || (at.scheme() == "https" && next.scheme() == "http") {
                return Err(self
                    .redirected(&at, &plain(&next), "it is not TLS; the registry has to be set up anew")
                    .into());
            }
            at = next;
        }
        Err(self.redirected(url, &plain(&at), "it led from host to host too often").into())
    }

    fn redirected(&self, from: &Url, to: &str, why: &'static str) -> RegistryError {
        RegistryError::Redirected { from: self.told(&plain(from)), to: self.told(to), why }
    }

    async fn send(&self, url: &Url, wish: Wish<'_>, sent: Option<&HeaderValue>) -> Result<Response, Failure> {
        self.inner.reach.address_fits(url)?;
        let client = if is_loopback(url) { &self.inner.direct } else { &self.inner.client };
        let mut request = client.get(url.clone()).header(ACCEPT, wish.accept);
        if let Some(value) = sent {
            request = request.header(AUTHORIZATION, value.clone());
        }
        if wish.from > 0 {
            request = request.header(RANGE, format!("bytes={}-", wish.from));
        }
        let silence = self.inner.rules.silence + self.inner.rules.connect;
        match tokio::time::timeout(silence, request.send()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failed(error)),
            Err(_) => Err(Failure::Passing(RegistryError::Silent { host: self.host.clone(), after: silence }, None)),
        }
    }

    /// What became of a request that has no answer, or whose answer broke off.
    pub(super) fn failed(&self, error: reqwest::Error) -> Failure {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(one) = cause {
            if let Some(PrivateName(host)) = one.downcast_ref() {
                return RegistryError::PrivateAddress { host: host.clone() }.into();
            }
            cause = one.source();
        }
        let host = self.host.clone();
        if error.is_timeout() && !error.is_connect() {
            return Failure::Passing(RegistryError::Silent { host, after: self.inner.rules.silence }, None);
        }
        Failure::Passing(RegistryError::Unreachable { host, why: chain(&error.without_url()) }, None)
    }

    /// Gets what the registry wants before it answers.
    async fn authorise(&self, headers: &HeaderMap, refused: Option<&HeaderValue>) -> Result<(), Failure> {
        let mut token = self.token.lock().await;
        if token.as_ref() != refused {
            // Another request has just got a new one.
            return Ok(());
        }
        if matches!(self.credentials, Credentials::Bearer(_)) {
            return Err(self.not_let_in().into());
        }
        let asked = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|text| text.to_str().ok());
        match (Challenge::of(asked), &self.credentials) {
            (Some(Challenge::Basic), Credentials::Basic { user, password }) => {
                if refused.is_some() {
                    return Err(self.not_let_in().into());
                }
                *token = Some(basic(user, password)?);
                Ok(())
            }
            (Some(Challenge::Bearer { realm, service }), _) => {
                *token = Some(self.fetch_token(&realm, service.as_deref()).await?);
                Ok(())
            }
            (Some(Challenge::Other(scheme)), _) => {
                let (host, scheme) = (self.host.clone(), self.told(&scheme));
                Err(RegistryError::UnknownChallenge { host, scheme }.into())
            }
            (Some(Challenge::Basic) | None, _) => Err(self.not_let_in().into()),
        }
    }

    /// A token to pull this repository, from the host that the registry names for that.
    async fn fetch_token(&self, realm: &str, service: Option<&str>) -> Result<HeaderValue, Failure> {
        let mut url = Url::parse(realm).map_err(|_| self.no_token("its realm is no address"))?;
        if !self.inner.reach.scheme_fits(&url) {
            return Err(self.redirected(&url, &plain(&url), "credentials are given to nobody without TLS").into());
        }
        url.query_pairs_mut().append_pair("scope", &format!("repository:{}:pull", self.repository));
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let shown = match &self.credentials {
            Credentials::Basic { user, password } => Some(basic(user, password)?),
            _ => None,
        };
        let wish = Wish { accept: "application/json", from: 0, elsewhere: false };
        let answer = self.send(&url, wish, shown.as_ref()).await?;
        if matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(self.not_let_in().into());
        }
        let answer = self.accept(answer, "token", false).await?;
        self.is_json(&url, answer.headers())?;
        let bytes = self.body(answer, MOST_TOKEN, "token").await?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|_| self.no_token("its answer is no token"))?;
        let token = token.token.or(token.access_token).ok_or_else(|| self.no_token("its answer has no token"))?;
        secret(&format!("Bearer {token}")).map_err(Failure::from)
    }

    fn no_token(&self, what: &str) -> RegistryError {
        RegistryError::NotARegistry { url: self.host.clone(), what: what.to_owned() }
    }

    fn not_let_in(&self) -> RegistryError {
        let (host, repository) = (self.host.clone(), self.repository.clone());
        match self.credentials {
            Credentials::Anonymous => RegistryError::CredentialsWanted { host, repository },
            _ => RegistryError::CredentialsRefused { host, repository },
        }
    }

    /// Takes an answer of success; one that a range is beyond the end only where a range was asked for.
    async fn accept(&self, answer: Response, what: &str, ranged: bool) -> Result<Response, Failure> {
        let (status, url) = (answer.status(), self.told(&plain(answer.url())));
        let (host, repository) = (self.host.clone(), self.repository.clone());
        if status.is_success() || (ranged && status == StatusCode::RANGE_NOT_SATISFIABLE) {
            return Ok(answer);
        }
        if is_page(answer.headers()) && !status.is_server_error() {
            return Err(RegistryError::NotARegistry { url, what: format!("a web page, status {status}") }.into());
        }
        let wait = answer.headers().get(RETRY_AFTER).and_then(|text| text.to_str().ok()?.parse().ok());
        match status {
            StatusCode::FORBIDDEN if matches!(self.credentials, Credentials::Anonymous) => {
                Err(RegistryError::CredentialsWanted { host, repository }.into())
            }
            StatusCode::FORBIDDEN => Err(RegistryError::Forbidden { host, repository }.into()),
            StatusCode::NOT_FOUND => {
                Err(RegistryError::NotFound { host, what: format!("{repository} {}", shown(what.as_bytes())) }.into())
            }
            _ => {
                let passing = status.is_server_error()
                    || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
                let why = self.reason(answer).await;
                let error = RegistryError::Refused { url, status: status.as_u16(), why };
                if passing { Err(Failure::Passing(error, wait.map(Duration::from_secs))) } else { Err(error.into()) }
            }
        }
    }

    fn is_json(&self, url: &Url, headers: &HeaderMap) -> Result<(), Failure> {
        let kind = headers.get(CONTENT_TYPE).and_then(|text| text.to_str().ok()).unwrap_or("json");
        if kind.contains("json") {
            return Ok(());
        }
        Err(RegistryError::NotARegistry { url: plain(url), what: format!("its type is {}", self.told(kind)) }.into())
    }

    /// The body, if it is not longer than `most` and comes in time.
    async fn body(&self, answer: Response, most: u64, what: &str) -> Result<Vec<u8>, Failure> {
        let after = self.inner.rules.document;
        let late = |_| Failure::Passing(RegistryError::Silent { host: self.host.clone(), after }, None);
        tokio::time::timeout(after, self.whole_body(answer, most, what)).await.map_err(late)?
    }

    async fn whole_body(&self, mut answer: Response, most: u64, what: &str) -> Result<Vec<u8>, Failure> {
        let what = format!("bytes of the {what} from {}", self.host);
        within(answer.content_length().unwrap_or(0), most, &what)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.failed(error))? {
            within(bytes.len() as u64 + chunk.len() as u64, most, &what)?;
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// What a refusal says, if it says it as registries do.
    async fn reason(&self, answer: Response) -> String {
        let body = self.body(answer, MOST_REASON, "refusal").await.unwrap_or_default();
        let said: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = said.pointer("/errors/0/message").and_then(|text| text.as_str());
        self.told(message.unwrap_or("it does not say why"))
    }

    /// A registry's words for an error, unless they repeat what it was shown.
    fn told(&self, text: &str) -> String {
        let token = self.token.try_lock().ok().and_then(|token| token.as_ref()?.to_str().ok().map(bare));
        let mut secrets: Vec<String> = token.into_iter().collect();
        match &self.credentials {
            Credentials::Anonymous => {}
            Credentials::Basic { user, password } => {
                secrets.extend([password.clone(), STANDARD.encode(format!("{user}:{password}"))]);
            }
            Credentials::Bearer(token) => secrets.push(token.clone()),
        }
        if secrets.iter().any(|secret| !secret.is_empty() && text.contains(secret.as_str())) {
            return "(left out: it repeats the credentials)".to_owned();
        }
        shown(text.as_bytes())
    }
}

/// Whether an answer is a page for people.
pub(super) fn is_page(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).and_then(|text| text.to_str().ok()).is_some_and(|kind| kind.contains("html"))
}

/// A URL without what may be secret in it: signed addresses carry their signature in the query.
pub(super) fn plain(url: &Url) -> String {
    shown(format!("{}://{}{}", url.scheme(), with_port(url), url.path()).as_bytes())
}

/// What follows the scheme.
fn bare(header: &str) -> String {
    header.split_once(' ').map_or(header, |(_, rest)| rest).to_owned()
}

fn basic(user: &str, password: &str) -> Result<HeaderValue, RegistryError> {
    secret(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

fn secret(text: &str) -> Result<HeaderValue, RegistryError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| RegistryError::BadCredentials)?;
    value.set_sensitive(true);
    Ok(value)
}
