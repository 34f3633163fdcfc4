//! A DAG from the store to a gateway that takes blocks, and to Kubo.

use async_trait::async_trait;
use bytes::Bytes;
use cid::Cid;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::dag::Limits;
use crate::http::HttpGateway;
use crate::source::{SourceError, blocking};
use crate::store::{Store, StoreError};

/// Blocks on their way at once.
const PARALLEL: usize = 8;

/// Somebody who takes blocks.
#[async_trait]
pub trait Sink: Send + Sync {
    /// What to call it in errors. Carries no secret.
    fn name(&self) -> String;

    /// Whether it has the block already. `false` where it cannot tell cheaply.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    async fn has(&self, cid: &Cid) -> Result<bool, SourceError>;

    /// Gives it the block.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    async fn put(&self, cid: &Cid, bytes: Bytes) -> Result<(), SourceError>;
}

/// What a finished push did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Blocks that were sent.
    pub sent_blocks: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Blocks that were there already.
    pub present_blocks: u64,
}

/// Why a push stopped. Pushing again goes on where it was.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The DAG here is not whole, or not readable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The other side did not take a block.
    #[error("{sink} did not take block {cid}")]
    Sink {
        /// [`Sink::name`].
        sink: String,
        /// The block.
        cid: Box<Cid>,
        /// Why.
        #[source]
        source: SourceError,
    },
}

/// Sends every block of the DAG under `root` that `to` has not; the root goes last, so that who sees it there may
/// expect the rest.
///
/// # Errors
///
/// See [`PushError`].
pub async fn push(store: &Store, root: &Cid, to: &dyn Sink) -> Result<Pushed, PushError> {
    let (reader, top) = (store.clone(), *root);
    let mut blocks = blocking(move || reader.blocks(&top, &Limits::default())).await?;
    let last = blocks.pop();
    let below = stream::iter(blocks)
        .map(|cid| send(store, cid, to))
        .buffer_unordered(PARALLEL)
        .try_fold(Pushed::default(), |sum, one| async move { Ok(sum.plus(one)) })
        .await?;
    match last {
        Some(cid) => Ok(below.plus(send(store, cid, to).await?)),
        None => Ok(below),
    }
}

async fn send(store: &Store, cid: Cid, to: &dyn Sink) -> Result<Pushed, PushError> {
    let refused = |source| PushError::Sink { sink: to.name(), cid: cid.into(), source };
    if to.has(&cid).await.map_err(refused)? {
        return Ok(Pushed { present_blocks: 1, ..Pushed::default() });
    }
    let store = store.clone();
    let bytes = blocking(move || store.get(&cid)).await?;
    let sent_bytes = bytes.len() as u64;
    to.put(&cid, bytes).await.map_err(refused)?;
    Ok(Pushed { sent_blocks: 1, sent_bytes, present_blocks: 0 })
}

impl Pushed {
    fn plus(self, other: Self) -> Self {
        Self {
            sent_blocks: self.sent_blocks + other.sent_blocks,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            present_blocks: self.present_blocks + other.present_blocks,
        }
    }
}

#[async_trait]
impl Sink for HttpGateway {
    fn name(&self) -> String {
        crate::source::Source::name(self)
    }

    async fn has(&self, cid: &Cid) -> Result<bool, SourceError> {
        match Self::has(self, cid).await {
            // A copy that is damaged there is answered with an error, and mended by sending it again.
            Err(SourceError::Failed(_)) => Ok(false),
            other => other,
        }
    }

    async fn put(&self, cid: &Cid, bytes: Bytes) -> Result<(), SourceError> {
        Self::put(self, cid, bytes).await
    }
}
