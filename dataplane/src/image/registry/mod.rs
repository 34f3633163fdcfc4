//! Images from a registry, by the OCI distribution protocol.
//!
//! Nothing that a registry sends is believed or held without a bound, no redirect is followed for a document, a blob's
//! may lead elsewhere but never with credentials, and no address of a private network is called that the rules do not name.

mod challenge;
mod download;
mod reach;
mod session;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, redirect};

pub(super) use download::Target;
pub(super) use session::Session;

use self::reach::{PublicOnly, Reach};
use super::{ImageError, ImageLimits, Pinned, Reference, RegistryError};

/// How registries are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryRules {
    /// Hosts, with their port where it is not the usual, that are spoken to in plain HTTP. Everybody else only by TLS.
    pub plain_http: Vec<String>,
    /// Hosts, without a port, whose addresses may be of a private network or of this machine.
    pub private: Vec<String>,
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest silence before and in the middle of an answer.
    pub silence: Duration,
    /// Longest time for the whole of one document: a manifest, a configuration, a token, a refusal.
    pub document: Duration,
    /// How often in a row one request may fail in a way that may pass before it is given up.
    pub tries: u32,
    /// Blobs of one image that are fetched at a time.
    pub parallel: usize,
}

/// TLS and public addresses only, 10 s to connect, 30 s of silence, a minute a document, five tries, three blobs at a time.
impl Default for RegistryRules {
    fn default() -> Self {
        Self {
            plain_http: Vec::new(),
            private: Vec::new(),
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            document: Duration::from_secs(60),
            tries: 5,
            parallel: 3,
        }
    }
}

/// What a registry is shown. Held in memory only, and shown by nothing that prints it.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing.
    #[default]
    Anonymous,
    /// Given to the registry itself, or to the host that it names for tokens.
    Basic {
        /// The name.
        user: String,
        /// The password, or a token in its place.
        password: String,
    },
    /// Given to the registry itself with every request.
    Bearer(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic { .. }",
            Self::Bearer(_) => "Bearer(..)",
        })
    }
}

/// A client of registries. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    /// Without the machine's proxy: for this machine's own addresses.
    direct: Client,
    reach: Reach,
    rules: RegistryRules,
}

impl Registry {
    /// Opens no connection yet.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Client`] if the HTTP client cannot start.
    pub fn new(rules: RegistryRules) -> Result<Self, ImageError> {
        let build = |direct: bool| {
            let client = Client::builder()
                .redirect(redirect::Policy::none())
                .referer(false)
                .user_agent(concat!("selion/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(rules.connect)
                .read_timeout(rules.silence)
                .dns_resolver(PublicOnly::new(&rules.private));
            let client = if direct { client.no_proxy() } else { client };
            client.build().map_err(|error| RegistryError::Client(error.without_url().to_string()))
        };
        let inner = Inner { client: build(false)?, direct: build(true)?, reach: Reach::new(&rules), rules };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Asks once what the reference stands for. From then on the digest decides, wherever the tag moves.
    ///
    /// # Errors
    ///
    /// [`ImageError::Registry`]; [`ImageError::WrongDigest`] if the document is not what a written digest names;
    /// [`ImageError::OverLimit`].
    pub async fn resolve(&self, reference: &Reference, credentials: &Credentials) -> Result<Pinned, ImageError> {
        let session = self.session(reference, credentials);
        let most = ImageLimits::default().document_bytes;
        let (_, digest) = session.manifest(&reference.wanted(), reference.digest(), None, most).await?;
        Ok(Pinned { reference: reference.clone(), digest })
    }

    pub(super) fn session(&self, reference: &Reference, credentials: &Credentials) -> Session {
        Session::new(self.inner.clone(), reference, credentials)
    }
}
