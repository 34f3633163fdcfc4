//! Blocks: headers, their encoding and hashes, and the one transaction each may hold.

use crate::{fees, tx::SignedTx};
use alloy_rlp::{Encodable, Header as RlpHeader};
use revm::primitives::{Address, B256, Bytes, Log, alloy_primitives::Bloom, b256, keccak256};

/// keccak256 of the empty list: the uncles of every block.
pub(crate) const NO_UNCLES: B256 = b256!("1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347");
/// Root of a trie without items.
pub(crate) const EMPTY_ROOT: B256 = b256!("56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");

/// What varies in a block header; the rest is the same in all our blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) parent: B256,
    /// A running digest of every state change since block 0. It stands where Ethereum has a Merkle root.
    pub(crate) state_digest: B256,
    pub(crate) transactions_root: B256,
    pub(crate) receipts_root: B256,
    pub(crate) bloom: Bloom,
    pub(crate) number: u64,
    pub(crate) gas_used: u64,
    /// Seconds since the Unix epoch, never less than the parent's.
    pub(crate) timestamp: u64,
    /// The branch of an empty block that replaced another; empty else.
    pub(crate) extra: Bytes,
    /// Wei per gas.
    pub(crate) base_fee: u64,
}

impl Header {
    /// An empty header after `parent`.
    pub(crate) fn after(parent: &Block, timestamp: u64, branch: u64) -> Self {
        let number = parent.header.number + 1;
        let base_fee = fees::next_base_fee(parent.header.base_fee, parent.header.gas_used);
        let extra = if branch == 0 { Bytes::new() } else { branch.to_be_bytes().to_vec().into() };
        Self { parent: parent.hash, number, base_fee, extra, ..Self::first(timestamp) }
    }

    /// The header of block 0.
    pub(crate) fn first(timestamp: u64) -> Self {
        Self {
            parent: B256::ZERO,
            state_digest: B256::ZERO,
            transactions_root: EMPTY_ROOT,
            receipts_root: EMPTY_ROOT,
            bloom: Bloom::ZERO,
            number: 0,
            gas_used: 0,
            timestamp,
            extra: Bytes::new(),
            base_fee: fees::FIRST_BASE_FEE,
        }
    }

    /// What contracts see as `PREVRANDAO`: known in advance, so no source of chance.
    pub(crate) fn mix_hash(&self) -> B256 {
        keccak256(self.parent)
    }

    /// The consensus encoding of a Cancun header.
    pub(crate) fn rlp(&self) -> Vec<u8> {
        let mix_hash = self.mix_hash();
        let nonce = Bytes::from_static(&[0; 8]);
        list(&[
            &self.parent,
            &NO_UNCLES,
            &Address::ZERO, // fees go to nobody
            &self.state_digest,
            &self.transactions_root,
            &self.receipts_root,
            &self.bloom,
            &0u8, // difficulty
            &self.number,
            &fees::BLOCK_GAS_LIMIT,
            &self.gas_used,
            &self.timestamp,
            &self.extra,
            &mix_hash,
            &nonce,
            &self.base_fee,
            &EMPTY_ROOT, // withdrawals
            &0u8,        // blob gas used
            &0u8,        // excess blob gas
            &B256::ZERO, // parent beacon block root
        ])
    }
}

/// A mined block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) header: Header,
    pub(crate) hash: B256,
    /// Encoded length, bytes.
    pub(crate) size: u64,
    pub(crate) mined: Option<Mined>,
}

/// The transaction of a block and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Mined {
    pub(crate) tx: SignedTx,
    pub(crate) success: bool,
    pub(crate) gas_used: u64,
    /// Wei per gas paid.
    pub(crate) gas_price: u128,
    pub(crate) logs: Vec<Log>,
    /// The address of a created contract.
    pub(crate) created: Option<Address>,
}

impl Block {
    /// Seals `header` around `mined`: fills its roots, bloom and gas, then hashes it.
    pub(crate) fn seal(mut header: Header, mined: Option<Mined>) -> Self {
        if let Some(mined) = &mined {
            header.bloom = mined.logs.iter().fold(Bloom::ZERO, |mut bloom, log| {
                bloom.accrue_log(log);
                bloom
            });
            header.gas_used = mined.gas_used;
            header.transactions_root = single_item_root(&mined.tx.raw);
            header.receipts_root = single_item_root(&mined.receipt(&header.bloom));
        }
        let rlp = header.rlp();
        let body = mined.as_ref().map_or(0, |mined| mined.tx.raw.len());
        Self { hash: keccak256(&rlp), size: (rlp.len() + body + 4) as u64, header, mined }
    }

    /// The logs of the block, in order.
    pub(crate) fn logs(&self) -> &[Log] {
        self.mined.as_ref().map_or(&[], |mined| &mined.logs)
    }
}

impl Mined {
    /// The consensus encoding of the receipt.
    fn receipt(&self, bloom: &Bloom) -> Vec<u8> {
        let body = list(&[&self.success, &self.gas_used, bloom, &self.logs]);
        if self.tx.kind == 0 { body } else { [&[self.tx.kind][..], &body].concat() }
    }
}

/// The root of a Merkle-Patricia trie of one item under index 0: a single leaf. A block of ours never holds more.
fn single_item_root(item: &[u8]) -> B256 {
    // Index 0 encodes as the byte 0x80: an even number of nibbles, so a leaf's path is 0x20 and that byte.
    let path = Bytes::from_static(&[0x20, 0x80]);
    keccak256(list(&[&path, &Bytes::copy_from_slice(item)]))
}

fn list(items: &[&dyn Encodable]) -> Vec<u8> {
    let mut payload = Vec::new();
    for item in items {
        item.encode(&mut payload);
    }
    let mut out = Vec::with_capacity(payload.len() + 9);
    RlpHeader { list: true, payload_length: payload.len() }.encode(&mut out);
    out.extend_from_slice(&payload);
    out
}

/// A number as JSON-RPC writes it.
pub(crate) fn quantity(number: impl std::fmt::LowerHex) -> String {
    format!("{number:#x}")
}
