//! A Kubo node on this machine, by its RPC.
//!
//! The client crate speaks plain HTTP with hyper 0.14 and runs on tokio like the rest. The RPC gives whoever
//! reaches it the whole node, so an address off this machine is refused. Kubo is an optional peer: what it sends
//! is verified like anything else.

use std::io::Cursor;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use cid::Cid;
use futures::TryStreamExt;
use ipfs_api_backend_hyper::request::{Add, BlockPut};
use ipfs_api_backend_hyper::{Error as RpcError, IpfsApi, IpfsClient, TryFromUri};
use reqwest::Url;

use crate::dag::{MAX_BLOCK, RAW};
use crate::http::is_loopback;
use crate::push::{Pushed, Sink, push};
use crate::source::{Source, SourceError};
use crate::store::Store;

/// Longest wait for one answer: Kubo looks for an absent block in the network until somebody stops it.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a pin, which walks the whole DAG.
const PIN_TIMEOUT: Duration = Duration::from_secs(600);

/// The RPC of a local Kubo.
#[derive(Clone)]
pub struct Kubo {
    client: IpfsClient,
    name: String,
    /// User and password of the RPC (`API.Authorizations`).
    login: Option<(String, String)>,
}

/// What went wrong with Kubo.
#[derive(Debug, thiserror::Error)]
pub enum KuboError {
    /// Not the address of an RPC on this machine.
    #[error(
        "{url:?} is not the RPC of a local Kubo: {why}; give http://127.0.0.1:PORT, or @FILE with http://USER:PASSWORD@127.0.0.1:PORT in it"
    )]
    BadUrl {
        /// As given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// Kubo answered with an error, or not at all.
    #[error("Kubo at {name} failed to {verb}: {why}; is `ipfs daemon` running?")]
    Rpc {
        /// Its address.
        name: String,
        /// What it was asked to do.
        verb: &'static str,
        /// What it said.
        why: String,
    },
    /// Kubo made another CID than we did for the same bytes.
    #[error("Kubo names the block {found} where we name it {cid}")]
    OtherCid {
        /// Ours.
        cid: Box<Cid>,
        /// Kubo's, as it wrote it.
        found: String,
    },
    /// A push to it failed.
    #[error(transparent)]
    Push(#[from] crate::push::PushError),
}

impl Kubo {
    /// A client of the RPC at `url`. Opens no connection yet. `@FILE` names a file that holds the URL: one with user and
    /// password stands in a file only, since a command line is read by everybody on the machine.
    ///
    /// # Errors
    ///
    /// [`KuboError::BadUrl`] unless it is `http` on a loopback address.
    pub fn new(url: &str) -> Result<Self, KuboError> {
        let file = url.strip_prefix('@');
        let shown = if file.is_none() && url.contains('@') { "http://USER:PASSWORD@.." } else { url };
        let bad = |why: &str| KuboError::BadUrl { url: shown.to_owned(), why: why.to_owned() };
        let held = match file {
            Some(path) => std::fs::read_to_string(path).map_err(|error| bad(&error.to_string()))?,
            None => url.to_owned(),
        };
        let mut parsed = Url::parse(held.trim()).map_err(|error| bad(&error.to_string()))?;
        let login = parsed.password().map(|password| (parsed.username().to_owned(), password.to_owned()));
        if login.is_some() && file.is_none() {
            return Err(bad("it holds a password, which everybody on this machine could read there"));
        }
        if parsed.scheme() != "http" {
            return Err(bad("it is not http"));
        }
        if !is_loopback(&parsed) {
            return Err(bad("its host is not this machine, and the RPC has no lock"));
        }
        // A hosts file may say anything about the name.
        if parsed.domain().is_some() {
            parsed.set_host(Some("127.0.0.1")).map_err(|error| bad(&error.to_string()))?;
        }
        let port = parsed.port().unwrap_or(5001);
        let name = format!("http://{}:{port}", parsed.host_str().unwrap_or("127.0.0.1"));
        let client = IpfsClient::from_str(&name).map_err(|error| bad(&error.to_string()))?;
        let client = match &login {
            Some((user, password)) => client.with_credentials(user, password),
            None => client,
        };
        Ok(Self { client, name, login })
    }

    /// Whether the RPC answers whoever asks. Then every process that reaches it, a leased command on this machine among
    /// them, reads and removes all that it holds, and stops it.
    ///
    /// # Errors
    ///
    /// [`KuboError::Rpc`] if it does not answer at all.
    pub async fn answers_strangers(&self) -> Result<bool, KuboError> {
        let verb = "say whether it wants a password";
        let failed = |error: reqwest::Error| self.failed(verb, error.to_string());
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(failed)?;
        let answer = client.post(format!("{}/api/v0/version", self.name)).send().await.map_err(failed)?;
        match answer.status().as_u16() {
            401 | 403 => Ok(false),
            200 => Ok(true),
            other => Err(self.failed(verb, format!("it answered with HTTP {other}"))),
        }
    }

    /// Its version, such as `0.43.1`.
    ///
    /// # Errors
    ///
    /// [`KuboError::Rpc`].
    pub async fn version(&self) -> Result<String, KuboError> {
        Ok(self.call("tell its version", TIMEOUT, self.client.version()).await?.version)
    }

    /// Its peer id.
    ///
    /// # Errors
    ///
    /// [`KuboError::Rpc`].
    pub async fn id(&self) -> Result<String, KuboError> {
        // Not by the client crate: it insists on a field that Kubo no longer sends (seen with 0.43).
        let failed = |error: reqwest::Error| self.failed("tell its id", error.to_string());
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(failed)?;
        let request = client.post(format!("{}/api/v0/id", self.name));
        let request = match &self.login {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        };
        let answer = request.send().await.and_then(|answer| answer.error_for_status());
        let answer: serde_json::Value = answer.map_err(failed)?.json().await.map_err(failed)?;
        match answer.get("ID").and_then(|id| id.as_str()) {
            Some(id) => Ok(id.to_owned()),
            None => Err(self.failed("tell its id", "the answer has no ID".to_owned())),
        }
    }

    /// Gives it one block and checks that it names it as we do.
    ///
    /// # Errors
    ///
    /// [`KuboError::OtherCid`]; [`KuboError::Rpc`].
    pub async fn put(&self, cid: &Cid, bytes: Bytes) -> Result<(), KuboError> {
        let format = if cid.codec() == RAW { "raw" } else { "dag-pb" };
        let options = BlockPut { format: Some(format), mhtype: Some("sha2-256"), ..BlockPut::default() };
        let put = self.client.block_put_with_options(Cursor::new(bytes), options);
        let found = self.call("take a block", TIMEOUT, put).await?.key;
        match found.parse::<Cid>() {
            Ok(same) if same.hash() == cid.hash() && same.codec() == cid.codec() => Ok(()),
            _ => Err(KuboError::OtherCid { cid: (*cid).into(), found }),
        }
    }

    /// Pins `root` and all below it there. Kubo looks for missing blocks in the network.
    ///
    /// # Errors
    ///
    /// [`KuboError::Rpc`].
    pub async fn pin(&self, root: &Cid) -> Result<(), KuboError> {
        self.call("pin", PIN_TIMEOUT, self.client.pin_add(&root.to_string(), true)).await.map(drop)
    }

    /// Sends the DAG under `root` and pins it there.
    ///
    /// # Errors
    ///
    /// [`KuboError::Push`]; [`KuboError::Rpc`].
    pub async fn import(&self, store: &Store, root: &Cid) -> Result<Pushed, KuboError> {
        let pushed = push(store, root, self).await?;
        self.pin(root).await?;
        Ok(pushed)
    }

    /// Has Kubo itself make a file of `bytes` by our profile, pinned; for comparing CIDs. Files up to 1 GiB: above,
    /// the RPC crate cannot ask for nodes 1024 wide.
    ///
    /// # Errors
    ///
    /// [`KuboError::Rpc`].
    pub async fn add(&self, bytes: Bytes) -> Result<Cid, KuboError> {
        let options = Add {
            cid_version: Some(1),
            raw_leaves: Some(true),
            chunker: Some("size-1048576"),
            hash: Some("sha2-256"),
            pin: Some(true),
            ..Add::default()
        };
        let added = self.call("add a file", PIN_TIMEOUT, self.client.add_with_options(Cursor::new(bytes), options));
        let hash = added.await?.hash;
        hash.parse().map_err(|_| self.failed("add a file", format!("it answered with {hash:?} for a CID")))
    }

    async fn call<T>(
        &self,
        verb: &'static str,
        limit: Duration,
        call: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, KuboError> {
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failed(verb, error.to_string())),
            Err(_) => Err(self.failed(verb, format!("no answer in {} s", limit.as_secs()))),
        }
    }

    fn failed(&self, verb: &'static str, why: String) -> KuboError {
        KuboError::Rpc { name: self.name.clone(), verb, why }
    }

    async fn read(&self, cid: &Cid) -> Result<Bytes, SourceError> {
        let cid = cid.to_string();
        let mut answer = self.client.block_get(&cid);
        let mut bytes = BytesMut::new();
        while let Some(chunk) = answer.try_next().await.map_err(said)? {
            if bytes.len() + chunk.len() > MAX_BLOCK {
                return Err(SourceError::TooLarge);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }
}

/// Kubo says "not found" in words only.
fn said(error: RpcError) -> SourceError {
    let text = error.to_string();
    if text.contains("not found") { SourceError::Absent } else { SourceError::Failed(text) }
}

#[async_trait]
impl Source for Kubo {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn block(&self, cid: &Cid) -> Result<Bytes, SourceError> {
        // Not found anywhere in time is as good as not there: other sources come next.
        tokio::time::timeout(TIMEOUT, self.read(cid)).await.unwrap_or(Err(SourceError::Absent))
    }
}

#[async_trait]
impl Sink for Kubo {
    fn name(&self) -> String {
        self.name.clone()
    }

    /// Asking for a block sends Kubo searching the network; writing one again costs less.
    async fn has(&self, _: &Cid) -> Result<bool, SourceError> {
        Ok(false)
    }

    async fn put(&self, cid: &Cid, bytes: Bytes) -> Result<(), SourceError> {
        Self::put(self, cid, bytes).await.map_err(|error| SourceError::Failed(error.to_string()))
    }
}
