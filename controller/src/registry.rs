//! Registries of container images, asked for one thing: which digest a tag stands for now.

use std::sync::Arc;

use selion_dataplane::image::{Credentials, ImageError, Reference, Registry, RegistryRules};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

/// Registries that are asked at a time, for all callers together.
const AT_A_TIME: usize = 16;

/// How registries of images are reached: by TLS and at public addresses, but for those that are named here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistriesConfig {
    /// Hosts, with their port where it is not the usual, that are spoken to without TLS.
    pub plain_http: Vec<String>,
    /// Hosts, without a port, that may be on this machine or in a private network.
    pub private: Vec<String>,
}

/// Asks registries. Clones share its connections and its limit.
#[derive(Clone, Debug)]
pub struct Registries {
    registry: Registry,
    turns: Arc<Semaphore>,
}

/// Why a name was not resolved.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// So many are asked already.
    #[error("registries are asked for {AT_A_TIME} others now")]
    Busy,
    /// The registry, or the name.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl Registries {
    /// Opens no connection yet.
    ///
    /// # Errors
    ///
    /// [`ImageError::Registry`] if the HTTP client cannot start.
    pub fn new(config: &RegistriesConfig) -> Result<Self, ImageError> {
        let rules = RegistryRules {
            plain_http: config.plain_http.clone(),
            private: config.private.clone(),
            ..RegistryRules::default()
        };
        Ok(Self { registry: Registry::new(rules)?, turns: Arc::new(Semaphore::new(AT_A_TIME)) })
    }

    /// The image by digest. A name that has one already is written as agents take it, and nobody is asked.
    ///
    /// # Errors
    ///
    /// [`ResolveError`].
    pub async fn resolve(&self, name: &str) -> Result<String, ResolveError> {
        let reference: Reference = name.parse()?;
        if let Some(pinned) = reference.pinned() {
            return Ok(pinned.to_string());
        }
        let _turn = self.turns.try_acquire().map_err(|_| ResolveError::Busy)?;
        Ok(self.registry.resolve(&reference, &Credentials::Anonymous).await?.to_string())
    }
}
