//! [`ChainSource`] over the pool's node.

use async_trait::async_trait;
use selion_api::Hash32;
use selion_api::chain::ChainEvent;
use selion_contracts::{BlockTag, Bloom, Log, Pool, Receipt, RpcError, rpc};
use selion_market::state::BlockRef;

use super::source::{At, ChainSource, SourceError};
use super::window::Header;

fn failed(error: impl std::fmt::Display) -> SourceError {
    SourceError::Node(error.to_string())
}

/// All logs of the block, in order, if its receipts are whole: the chain numbers a block's logs from 0 on, the header
/// names its transactions, and its bloom holds every log. Without a bloom, the last logs of the last receipt are believed.
fn whole(block: &Header, receipts: Vec<Receipt>) -> Result<Vec<Log>, SourceError> {
    let (hash, told) = (block.hash, receipts.len());
    let strange = |of: Hash32| SourceError::OtherBlock { asked: hash.to_string(), told: of.to_string() };
    if let Some(other) = receipts.iter().find(|receipt| receipt.block_hash != hash) {
        return Err(strange(other.block_hash));
    }
    let mut logs: Vec<Log> = receipts.into_iter().flat_map(|receipt| receipt.logs).collect();
    logs.sort_by_key(|log| log.index);
    for (place, log) in (0..).zip(&logs) {
        match log {
            Log { block_hash, .. } if *block_hash != hash => return Err(strange(*block_hash)),
            Log { index, .. } if *index > place => return Err(SourceError::LogsMissing { block: hash }),
            Log { index, .. } if *index < place => {
                return Err(SourceError::LogsRepeated { block: hash, index: *index });
            }
            _ => {}
        }
    }
    let filled = block.bloom.is_none_or(|bloom| Bloom::of(&logs).covers(&bloom));
    match filled && told >= block.transactions {
        true => Ok(logs),
        false => Err(SourceError::LogsMissing { block: hash }),
    }
}

fn header_of(pool: &Pool, told: rpc::Header) -> Header {
    let ours = |bloom: &Bloom| pool.addresses().into_iter().any(|address| bloom.may_hold(address));
    let silent = told.bloom.as_ref().is_some_and(|bloom| !ours(bloom));
    let rpc::Header { number, hash, parent, bloom, transactions, .. } = told;
    Header { number, hash, parent, silent, bloom, transactions }
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
        match self.rpc.header(tag).await {
            Ok(found) => Ok(Some(header_of(self, found))),
            Err(RpcError::NoBlock { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn headers(&self, from: u64, through: u64) -> Result<Vec<Header>, SourceError> {
        let found = self.rpc.headers(from, through).await.map_err(failed)?;
        Ok(found.into_iter().map(|told| header_of(self, told)).collect())
    }

    async fn events(&self, blocks: &[Header]) -> Result<Vec<Option<Vec<ChainEvent>>>, SourceError> {
        let hashes: Vec<Hash32> = blocks.iter().map(|block| block.hash).collect();
        let receipts = self.rpc.receipts_of_blocks(&hashes).await.map_err(failed)?;
        let read = |(block, receipts): (&Header, Option<Vec<Receipt>>)| {
            let logs = receipts.map(|receipts| whole(block, receipts)).transpose()?;
            logs.map(|logs| self.decode_all(&logs).map_err(failed)).transpose()
        };
        blocks.iter().zip(receipts).map(read).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use selion_api::Address;

    const BLOCK: Hash32 = Hash32([7; 32]);

    /// So many receipts of a transaction each, with two logs of their own.
    fn receipts(count: u8) -> Vec<Receipt> {
        let log = |index: u8| Log {
            address: Address([index; 20]),
            topics: vec![Hash32([index; 32])],
            data: Vec::new(),
            block_number: 9,
            block_hash: BLOCK,
            tx: Hash32([index / 2; 32]),
            index: index.into(),
        };
        let receipt = |at: u8| Receipt {
            tx: Hash32([at; 32]),
            block_number: 9,
            block_hash: BLOCK,
            success: true,
            gas_used: 1,
            created: None,
            logs: vec![log(2 * at), log(2 * at + 1)],
        };
        (0..count).map(receipt).collect()
    }

    fn header(receipts: &[Receipt], bloom: bool) -> Header {
        let logs = receipts.iter().flat_map(|receipt| &receipt.logs);
        let bloom = bloom.then(|| Bloom::of(logs));
        let transactions = receipts.len();
        Header { number: 9, hash: BLOCK, parent: Hash32([6; 32]), silent: false, bloom, transactions }
    }

    #[test]
    fn whole_receipts_are_taken_in_whatever_order_they_come() {
        let honest = receipts(3);
        for bloom in [true, false] {
            let mut told = honest.clone();
            told.rotate_left(1);
            let logs = whole(&header(&honest, bloom), told).unwrap();
            assert_eq!(logs.iter().map(|log| log.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn a_receipt_that_is_left_out_is_missed_with_or_without_a_bloom() {
        let honest = receipts(3);
        for (left, bloom) in (0..3).flat_map(|left| [(left, true), (left, false)]) {
            let mut told = honest.clone();
            told.remove(left);
            assert_eq!(whole(&header(&honest, bloom), told), Err(SourceError::LogsMissing { block: BLOCK }));
        }
        assert!(whole(&header(&honest, true), Vec::new()).is_err());
    }

    #[test]
    fn a_log_that_is_left_out_is_missed() {
        let honest = receipts(3);
        for (receipt, log) in (0..3).flat_map(|receipt| [(receipt, 0), (receipt, 1)]) {
            let mut told = honest.clone();
            told[receipt].logs.remove(log);
            let found = whole(&header(&honest, true), told);
            assert_eq!(found, Err(SourceError::LogsMissing { block: BLOCK }), "log {log} of {receipt}");
        }
    }

    #[test]
    fn logs_of_another_block_and_logs_told_twice_are_refused() {
        let honest = receipts(2);
        let mut told = honest.clone();
        told.push(honest[0].clone());
        let twice = Err(SourceError::LogsRepeated { block: BLOCK, index: 0 });
        assert_eq!(whole(&header(&honest, true), told), twice);
        for of_log in [true, false] {
            let mut told = honest.clone();
            match of_log {
                true => told[1].logs[0].block_hash = Hash32::ZERO,
                false => told[1].block_hash = Hash32::ZERO,
            }
            assert!(matches!(whole(&header(&honest, true), told), Err(SourceError::OtherBlock { .. })));
        }
    }
}
