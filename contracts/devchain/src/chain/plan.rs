//! Working out what a record would do, without doing it.

use super::{Chain, Effect, Plan};
use crate::{
    block::{Block, Header, Mined},
    evm::{self, Purpose},
    fees,
    record::Record,
    tx::{BadTx, SignedTx},
};
use revm::{
    primitives::{AddressMap, B256, keccak256},
    state::Account,
};
use std::sync::Arc;

/// Most empty blocks of one request.
pub(crate) const MAX_MINE: u64 = 100_000;

/// Why a record cannot be applied. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    BadTx(#[from] BadTx),
    #[error("{0}")]
    Invalid(String),
    #[error("already known: transaction {hash:#x} was mined in block {number}")]
    Known { hash: B256, number: u64 },
    #[error("the block time {asked} is before its parent's, {parent}; ask for {parent} or later")]
    Time { asked: u64, parent: u64 },
    #[error("cannot mine {0} blocks at once; ask for 1 to {MAX_MINE}")]
    Count(u64),
    #[error("cannot reorg {depth} blocks of a chain whose head is {head}; ask for 1 to {head}")]
    Depth { depth: u64, head: u64 },
    #[error("a second genesis record")]
    Genesis,
}

impl Chain {
    /// Works out what `record` would do. The chain does not change.
    pub(crate) fn plan(&self, record: Record) -> Result<Plan, Refused> {
        let stay = |effect, digest, record| Plan { record, digest, effect, head: self.head().hash };
        match record {
            Record::Genesis { .. } => Err(Refused::Genesis),
            Record::Tx { timestamp, ref raw } => {
                let tx = SignedTx::decode(raw, self.chain_id)?;
                self.plan_tx(tx, timestamp, record)
            }
            Record::Mine { timestamp, count, interval, branch } => {
                let blocks = self.empty_blocks(timestamp, count, interval, branch)?;
                let head = blocks.last().map_or(self.head().hash, |block| block.hash);
                Ok(Plan {
                    record,
                    digest: self.digest,
                    effect: Effect::Blocks { blocks, changes: AddressMap::default() },
                    head,
                })
            }
            Record::SetBalance { address, balance } => {
                let digest =
                    keccak256([self.digest.as_slice(), address.as_slice(), &balance.to_be_bytes::<32>()].concat());
                Ok(stay(Effect::Balance(address, balance), digest, record))
            }
            Record::Clock { offset } => Ok(stay(Effect::Clock(offset), self.digest, record)),
            Record::Reorg { timestamp, depth } => {
                let chain = self.reorged(timestamp, depth)?;
                let (head, digest) = (chain.head().hash, chain.digest);
                Ok(Plan { record, digest, effect: Effect::Replace(Box::new(chain)), head })
            }
        }
    }

    fn plan_tx(&self, tx: SignedTx, timestamp: u64, record: Record) -> Result<Plan, Refused> {
        if let Some(number) = self.by_tx.get(&tx.hash) {
            return Err(Refused::Known { hash: tx.hash, number: *number });
        }
        let mut header = self.next_header(timestamp, 0)?;
        let run = evm::run(&self.world, &header, self.chain_id, tx.env(), Purpose::Mine);
        let ran = run.map_err(|refusal| Refused::Invalid(evm::explain(&refusal, tx.from)))?;
        let digest = digest_of(self.digest, &ran.state);
        header.state_digest = digest;
        let mined = Mined {
            success: ran.result.is_success(),
            gas_used: ran.result.tx_gas_used(),
            gas_price: fees::effective_price(tx.max_fee, tx.tip, header.base_fee),
            // A failed creation names its address too, as other nodes do.
            created: tx.to.is_create().then(|| tx.from.create(tx.nonce)),
            logs: if ran.result.is_success() { ran.result.into_logs() } else { Vec::new() },
            tx,
        };
        let block = Arc::new(Block::seal(header, Some(mined)));
        let head = block.hash;
        Ok(Plan { record, digest, effect: Effect::Blocks { blocks: vec![block], changes: ran.state }, head })
    }

    fn empty_blocks(&self, timestamp: u64, count: u64, interval: u64, branch: u64) -> Result<Vec<Arc<Block>>, Refused> {
        if !(1..=MAX_MINE).contains(&count) {
            return Err(Refused::Count(count));
        }
        let mut blocks: Vec<Arc<Block>> = Vec::new();
        for index in 0..count {
            let mut header = match blocks.last() {
                None => self.next_header(timestamp, branch)?,
                Some(parent) => Header::after(parent, timestamp.saturating_add(index.saturating_mul(interval)), branch),
            };
            header.state_digest = self.digest;
            blocks.push(Arc::new(Block::seal(header, None)));
        }
        Ok(blocks)
    }

    /// The header of the block after the head, still empty.
    pub(crate) fn next_header(&self, timestamp: u64, branch: u64) -> Result<Header, Refused> {
        let parent = self.head();
        if timestamp < parent.header.timestamp {
            return Err(Refused::Time { asked: timestamp, parent: parent.header.timestamp });
        }
        let mut header = Header::after(parent, timestamp, branch);
        header.state_digest = self.digest;
        Ok(header)
    }

    /// The chain with its last `depth` blocks replaced by empty ones of a new branch. Runs the kept history again.
    fn reorged(&self, timestamp: u64, depth: u64) -> Result<Self, Refused> {
        let head = self.head().header.number;
        let Some(keep) = head.checked_sub(depth).filter(|_| depth > 0) else {
            return Err(Refused::Depth { depth, head });
        };
        let [Record::Genesis { chain_id, timestamp: begun }, kept @ ..] = &self.history[..] else {
            return Err(Refused::Genesis);
        };
        let mut chain = Self::new(*chain_id, *begun);
        for record in kept {
            let room = keep - chain.head().header.number;
            let record = match record {
                Record::Tx { .. } | Record::Mine { .. } if room == 0 => break,
                Record::Mine { timestamp, count, interval, branch } => Record::Mine {
                    timestamp: *timestamp,
                    count: room.min(*count),
                    interval: *interval,
                    branch: *branch,
                },
                other => other.clone(),
            };
            let plan = chain.plan(record)?;
            chain.apply(plan);
        }
        chain.branch = self.branch + 1;
        // The clock is the operator's, not the branch's.
        chain.clock_offset = self.clock_offset;
        let mine = Record::Mine { timestamp, count: depth, interval: 0, branch: chain.branch };
        let plan = chain.plan(mine)?;
        chain.apply(plan);
        Ok(chain)
    }
}

/// The digest after `changes`, in an order that does not depend on the map.
fn digest_of(before: B256, changes: &AddressMap<Account>) -> B256 {
    let mut accounts: Vec<_> = changes.iter().filter(|(_, account)| account.is_touched()).collect();
    accounts.sort_unstable_by_key(|(address, _)| **address);
    let mut bytes = before.to_vec();
    for (address, account) in accounts {
        bytes.extend_from_slice(address.as_slice());
        bytes.push(u8::from(account.is_selfdestructed()));
        bytes.extend_from_slice(&account.info.nonce.to_be_bytes());
        bytes.extend_from_slice(&account.info.balance.to_be_bytes::<32>());
        bytes.extend_from_slice(account.info.code_hash.as_slice());
        let mut slots: Vec<_> = account.changed_storage_slots().collect();
        slots.sort_unstable_by_key(|(slot, _)| **slot);
        for (slot, value) in slots {
            bytes.extend_from_slice(&slot.to_be_bytes::<32>());
            bytes.extend_from_slice(&value.present_value().to_be_bytes::<32>());
        }
    }
    keccak256(bytes)
}
