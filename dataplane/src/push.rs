//! A DAG from the store to a gateway that takes blocks, and to Kubo.

use async_trait::async_trait;
use bytes::Bytes;
use cid::Cid;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::car;
use crate::dag::Limits;
use crate::http::HttpGateway;
use crate::source::{SourceError, blocking};
use crate::store::{Store, StoreError};

/// Groups of blocks on their way at once: each up to 2 MiB of memory.
const PARALLEL: usize = 4;
/// Blocks of a group, which are asked about together.
const GROUP: usize = 256;

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

    /// Which of these it has not.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    async fn absent(&self, cids: &[Cid]) -> Result<Vec<Cid>, SourceError> {
        let mut absent = Vec::new();
        for cid in cids {
            if !self.has(cid).await? {
                absent.push(*cid);
            }
        }
        Ok(absent)
    }

    /// Gives it these blocks.
    ///
    /// # Errors
    ///
    /// See [`SourceError`].
    async fn put_many(&self, blocks: Vec<(Cid, Bytes)>) -> Result<(), SourceError> {
        for (cid, bytes) in blocks {
            self.put(&cid, bytes).await?;
        }
        Ok(())
    }
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
    let groups: Vec<Vec<Cid>> = blocks.chunks(GROUP).map(<[Cid]>::to_vec).collect();
    let below = stream::iter(groups)
        .map(|group| send(store, group, to))
        .buffer_unordered(PARALLEL)
        .try_fold(Pushed::default(), |sum, one| async move { Ok(sum.plus(one)) })
        .await?;
    match last {
        Some(cid) => Ok(below.plus(send(store, vec![cid], to).await?)),
        None => Ok(below),
    }
}

async fn send(store: &Store, group: Vec<Cid>, to: &dyn Sink) -> Result<Pushed, PushError> {
    let Some(first) = group.first().copied() else { return Ok(Pushed::default()) };
    let refused = |cid: Cid, source| PushError::Sink { sink: to.name(), cid: cid.into(), source };
    let absent = to.absent(&group).await.map_err(|source| refused(first, source))?;
    let mut pushed =
        Pushed { present_blocks: (group.len() - absent.len().min(group.len())) as u64, ..Pushed::default() };
    let mut rest = absent.as_slice();
    while let Some(first) = rest.first().copied() {
        let (store, wanted) = (store.clone(), rest.to_vec());
        let batch = blocking(move || full(&store, &wanted)).await?;
        rest = rest.get(batch.len()..).unwrap_or_default();
        pushed.sent_blocks += batch.len() as u64;
        pushed.sent_bytes += batch.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        to.put_many(batch).await.map_err(|source| refused(first, source))?;
    }
    Ok(pushed)
}

/// The first of these blocks, as many as one message holds, and at least one.
fn full(store: &Store, cids: &[Cid]) -> Result<Vec<(Cid, Bytes)>, StoreError> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for cid in cids {
        let block = store.get(cid)?;
        bytes += block.len();
        if bytes > car::FULL && !batch.is_empty() {
            break;
        }
        batch.push((*cid, block));
    }
    Ok(batch)
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

    async fn absent(&self, cids: &[Cid]) -> Result<Vec<Cid>, SourceError> {
        // For one block, what any gateway understands.
        if let [one] = cids {
            return Ok(if Sink::has(self, one).await? { Vec::new() } else { vec![*one] });
        }
        Self::absent(self, cids).await
    }

    async fn put_many(&self, blocks: Vec<(Cid, Bytes)>) -> Result<(), SourceError> {
        match <[_; 1]>::try_from(blocks) {
            Ok([(cid, bytes)]) => Self::put(self, &cid, bytes).await,
            Err(blocks) => Self::put_many(self, &blocks).await,
        }
    }
}
