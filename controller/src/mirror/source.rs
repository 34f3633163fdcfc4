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

/// The chain did not answer, or not with sense. Nothing of a false answer is kept; the next pass asks again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No answer, or one that is none.
    #[error("chain node: {0}")]
    Node(String),
    /// It serves another chain.
    #[error("the node serves chain {found}, but the pool is on chain {want}; check --chain-rpc")]
    OtherChain {
        /// The pool's.
        want: u64,
        /// The node's.
        found: u64,
    },
    /// It serves another chain with the same id.
    #[error("the node's block {number} is {found}, but the pool's chain has {want} there; check --chain-rpc")]
    OtherGenesis {
        /// Height.
        number: u64,
        /// The pool's.
        want: Hash32,
        /// The node's.
        found: Hash32,
    },
    /// It left logs out.
    #[error(
        "the node left logs or transactions out of the receipts of block {block}, though the block's header tells of \
         them; use another node"
    )]
    LogsMissing {
        /// Which.
        block: Hash32,
    },
    /// It told a log twice.
    #[error("the node told log {index} of block {block} twice; use another node")]
    LogsRepeated {
        /// Which.
        block: Hash32,
        /// Place of the log.
        index: u64,
    },
    /// It told events of another block.
    #[error("asked for the events of {asked}, the node told those of {told}; it may be switching forks")]
    OtherBlock {
        /// Hash or heights.
        asked: String,
        /// Hash or height.
        told: String,
    },
}

/// A chain node, as far as the pool's blocks and events go.
#[async_trait]
pub trait ChainSource: Send + Sync {
    /// Whether the node serves the pool's chain.
    ///
    /// # Errors
    ///
    /// [`SourceError::OtherChain`], or as for [`ChainSource::header`].
    async fn same_chain(&self) -> Result<(), SourceError>;

    /// The header there; `None` if the node has no such block (yet).
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the node cannot be reached or answers nonsense.
    async fn header(&self, at: At) -> Result<Option<Header>, SourceError>;

    /// The headers of `from..=through`, rising. The node may mix forks: whether they are linked is the caller's to see.
    ///
    /// # Errors
    ///
    /// As for [`ChainSource::header`], also if one is not there.
    async fn headers(&self, from: u64, through: u64) -> Result<Vec<Header>, SourceError>;

    /// Events of the pool's contracts in each of these blocks, in order, asked by the block's hash so that two forks
    /// never mix, and judged by what its header says; `None` for a block that the node does not know.
    ///
    /// # Errors
    ///
    /// [`SourceError`] that says what is false in the answer, or that an event of ours cannot be decoded.
    async fn events(&self, blocks: &[Header]) -> Result<Vec<Option<Vec<ChainEvent>>>, SourceError>;
}

/// Where final blocks go.
#[async_trait]
pub trait Log: Send + Sync {
    /// The last block in the log.
    fn block(&self) -> Option<BlockRef>;

    /// Whether the log says that the chain broke.
    fn broken(&self) -> bool;

    /// Enters `inputs` in this order, all or none; resolves after the commit.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; nothing happened then.
    async fn enter(&self, inputs: Vec<Input>) -> Result<Vec<Answer>, SubmitError>;
}

#[async_trait]
impl Log for Sequencer {
    fn block(&self) -> Option<BlockRef> {
        self.read(|state| state.block)
    }

    fn broken(&self) -> bool {
        self.read(|state| state.chain_broken)
    }

    async fn enter(&self, inputs: Vec<Input>) -> Result<Vec<Answer>, SubmitError> {
        let steps = self.submit_all(inputs).await?;
        Ok(steps.iter().map(|step| step.answer().clone()).collect())
    }
}
