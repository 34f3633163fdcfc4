//! What the mirror asks of a chain and of the log: small enough that a test can be both.

use async_trait::async_trait;
use selion_api::Hash32;
use selion_api::chain::ChainEvent;
use selion_market::state::BlockRef;
use selion_market::{Answer, Input};

use super::window::Header;
use crate::sequencer::{Sequencer, SubmitError};

/// Which block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The head, as this node sees it.
    Latest,
    /// What the chain itself calls final.
    Finalized,
    /// The canonical block of that height.
    Number(u64),
}

/// The chain did not answer, or not with sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("chain node: {0}")]
pub struct SourceError(pub String);

/// A chain node, as far as the pool's blocks and events go.
#[async_trait]
pub trait ChainSource: Send + Sync {
    /// The header there; `None` if the node has no such block (yet).
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the node cannot be reached or answers nonsense.
    async fn header(&self, at: At) -> Result<Option<Header>, SourceError>;

    /// Events of the pool's controller and vault in the block of that hash, in order; `None` if the node does not
    /// know the block, so that two forks never mix.
    ///
    /// # Errors
    ///
    /// As for [`ChainSource::header`], and if an event of ours cannot be decoded.
    async fn events(&self, block: Hash32) -> Result<Option<Vec<ChainEvent>>, SourceError>;

    /// Numbers of the blocks in `from..=through` that hold events of the pool, rising. Only for blocks that are final
    /// already: near the head a range may mix forks.
    ///
    /// # Errors
    ///
    /// As for [`ChainSource::header`].
    async fn event_blocks(&self, from: u64, through: u64) -> Result<Vec<u64>, SourceError>;
}

/// Where final blocks go.
#[async_trait]
pub trait Log: Send + Sync {
    /// The last block in the log.
    fn block(&self) -> Option<BlockRef>;

    /// Whether the log says that the chain broke.
    fn broken(&self) -> bool;

    /// Enters `input`; resolves after the commit.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; nothing happened then.
    async fn enter(&self, input: Input) -> Result<Answer, SubmitError>;
}

#[async_trait]
impl Log for Sequencer {
    fn block(&self) -> Option<BlockRef> {
        self.read(|state| state.block)
    }

    fn broken(&self) -> bool {
        self.read(|state| state.chain_broken)
    }

    async fn enter(&self, input: Input) -> Result<Answer, SubmitError> {
        let step = self.submit(input, None).await?;
        Ok(step.answer().clone())
    }
}
