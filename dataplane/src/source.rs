//! Where blocks come from. A source is never believed: who asks verifies.

use async_trait::async_trait;
use bytes::Bytes;
use cid::Cid;

use crate::dag::MAX_BLOCK;
use crate::store::{Store, StoreError};

/// Somebody who may have blocks.
#[async_trait]
pub trait Source: Send + Sync {
    /// What to call it in errors and evidence: a URL, a path. Carries no secret.
    fn name(&self) -> String;

    /// The bytes it claims for `cid`, unverified, never more than [`MAX_BLOCK`].
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    async fn block(&self, cid: &Cid) -> Result<Bytes, SourceError>;

    /// Some of these blocks, unverified, in one message; none where it knows no such message. What does not come is
    /// asked for by itself.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    async fn blocks(&self, _cids: &[Cid]) -> Result<Vec<(Cid, Bytes)>, SourceError> {
        Ok(Vec::new())
    }
}

/// Why a source gave no block.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It says that it does not have it.
    #[error("it does not have the block")]
    Absent,
    /// It will not give it to us: no or a wrong token, not allowed.
    #[error("it refused with status {status}: {why}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it said, shortened.
        why: String,
    },
    /// It sends, or announces, more than a block may have.
    #[error("it sends more than {MAX_BLOCK} bytes for one block")]
    TooLarge,
    /// No answer, a broken one, or an error of its own: another try may succeed.
    #[error("it failed: {0}")]
    Failed(String),
    /// A store on this machine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SourceError {
    /// Whether asking the same again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

#[async_trait]
impl Source for Store {
    fn name(&self) -> String {
        self.describe()
    }

    async fn block(&self, cid: &Cid) -> Result<Bytes, SourceError> {
        let (store, cid) = (self.clone(), *cid);
        match blocking(move || store.get(&cid)).await {
            Err(StoreError::Missing { .. }) => Err(SourceError::Absent),
            other => Ok(other?),
        }
    }
}

/// Runs work on files or hashes off the async threads. A panic in it goes on here.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
