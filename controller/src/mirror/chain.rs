//! [`ChainSource`] over the pool's node.

use async_trait::async_trait;
use selion_api::Hash32;
use selion_api::chain::ChainEvent;
use selion_contracts::{BlockTag, Bloom, Log, Pool, RpcError};
use selion_market::state::BlockRef;

use super::source::{At, ChainSource, SourceError};
use super::window::Header;

fn failed(error: impl std::fmt::Display) -> SourceError {
    SourceError::Node(error.to_string())
}

/// The logs of one block are of that block, and each is told once.
fn judge(block: Hash32, logs: &[Log]) -> Result<(), SourceError> {
    if let Some(log) = logs.iter().find(|log| log.block_hash != block) {
        return Err(SourceError::OtherBlock { asked: block.to_string(), told: log.block_hash.to_string() });
    }
    match logs.windows(2).find(|pair| pair[0].index >= pair[1].index) {
        Some(pair) => Err(SourceError::LogsRepeated { block, index: pair[1].index }),
        None => Ok(()),
    }
}

#[async_trait]
impl ChainSource for Pool {
    async fn same_chain(&self) -> Result<(), SourceError> {
        match self.rpc.chain_id().await.map_err(failed)? {
            found if found == self.chain_id => Ok(()),
            found => Err(SourceError::OtherChain { want: self.chain_id, found }),
        }
    }

    async fn header(&self, at: At) -> Result<Option<Header>, SourceError> {
        let tag = match at {
            At::Latest => BlockTag::Latest,
            At::Finalized => BlockTag::Finalized,
            At::Number(number) => BlockTag::Number(number),
        };
        let found = match self.rpc.header(tag).await {
            Ok(found) => found,
            Err(RpcError::NoBlock { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let ours = |bloom: &Bloom| self.addresses().into_iter().any(|address| bloom.may_hold(address));
        let silent = found.bloom.as_ref().is_some_and(|bloom| !ours(bloom));
        Ok(Some(Header { number: found.number, hash: found.hash, parent: found.parent, silent }))
    }

    async fn events(&self, block: Hash32) -> Result<Option<Vec<ChainEvent>>, SourceError> {
        let logs = self.rpc.logs_of_block(block, &self.addresses()).await.map_err(failed)?;
        judge(block, &logs)?;
        if !logs.is_empty() {
            return self.decode_all(&logs).map(Some).map_err(failed);
        }
        // Some nodes answer "no logs" for a block that they do not know, and some before they have indexed it. The
        // header says that there may be some; receipts say whether there are.
        let Some(receipts) = self.rpc.receipts_of_block(block).await.map_err(failed)? else {
            return Ok(None);
        };
        let mut logs = receipts.iter().flat_map(|receipt| &receipt.logs);
        match logs.any(|log| self.addresses().contains(&log.address)) {
            true => Err(SourceError::LogsMissing { block }),
            false => Ok(Some(Vec::new())),
        }
    }

    async fn event_blocks(&self, from: u64, through: u64) -> Result<Vec<BlockRef>, SourceError> {
        let logs = self.rpc.logs(from, through, &self.addresses()).await.map_err(failed)?;
        let mut blocks: Vec<BlockRef> =
            logs.iter().map(|log| BlockRef { number: log.block_number, hash: log.block_hash }).collect();
        blocks.dedup();
        if let Some(other) = blocks.iter().find(|at| !(from..=through).contains(&at.number)) {
            let asked = format!("blocks {from} to {through}");
            return Err(SourceError::OtherBlock { asked, told: other.number.to_string() });
        }
        Ok(blocks)
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
        .ok_or_else(|| SourceError::Node("it has no block 0; point --chain-rpc at a full node".into()))
}
