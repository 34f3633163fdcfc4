//! [`ChainSource`] over the pool's node.

use async_trait::async_trait;
use selion_api::Hash32;
use selion_api::chain::ChainEvent;
use selion_contracts::{BlockTag, Pool, PoolError, RpcError};
use selion_market::state::BlockRef;

use super::source::{At, ChainSource, SourceError};
use super::window::Header;

fn found(answer: Result<selion_contracts::Header, RpcError>) -> Result<Option<Header>, SourceError> {
    match answer {
        Ok(header) => Ok(Some(Header { number: header.number, hash: header.hash, parent: header.parent })),
        Err(RpcError::NoBlock { .. }) => Ok(None),
        Err(error) => Err(SourceError(error.to_string())),
    }
}

fn failed(error: PoolError) -> SourceError {
    SourceError(error.to_string())
}

#[async_trait]
impl ChainSource for Pool {
    async fn header(&self, at: At) -> Result<Option<Header>, SourceError> {
        let tag = match at {
            At::Latest => BlockTag::Latest,
            At::Finalized => BlockTag::Finalized,
            At::Number(number) => BlockTag::Number(number),
        };
        found(self.rpc.header(tag).await)
    }

    async fn events(&self, block: Hash32) -> Result<Option<Vec<ChainEvent>>, SourceError> {
        let events = self.events_of_block(block).await.map_err(failed)?;
        // Some nodes answer "no logs" for a block that they do not know.
        if events.is_empty() && found(self.rpc.header(BlockTag::Hash(block)).await)?.is_none() {
            return Ok(None);
        }
        Ok(Some(events))
    }

    async fn event_blocks(&self, from: u64, through: u64) -> Result<Vec<u64>, SourceError> {
        let logs = self.rpc.logs(from, through, &self.addresses()).await;
        let logs = logs.map_err(|error| SourceError(error.to_string()))?;
        let mut numbers: Vec<u64> = logs.iter().map(|log| log.block_number).collect();
        numbers.dedup();
        Ok(numbers)
    }
}

/// The chain's first block, from which a mirror without a past starts: every pool came after it.
///
/// # Errors
///
/// [`SourceError`] if the node does not have it.
pub async fn genesis(source: &dyn ChainSource) -> Result<BlockRef, SourceError> {
    let first = source.header(At::Number(0)).await?;
    first
        .map(|header| header.reference())
        .ok_or_else(|| SourceError("it has no block 0; point --chain-rpc at a full node".into()))
}
