//! The chain in memory: blocks, state, and how a record changes them. Planning and doing are apart, so that a
//! record can be on disk before anybody sees its effect.

mod plan;

use crate::{
    block::{Block, Header},
    evm::World,
    record::Record,
};
pub(crate) use plan::Refused;
use revm::{
    DatabaseCommit, DatabaseRef,
    primitives::{Address, AddressMap, B256, B256Map, Bytes, U256},
    state::{Account, AccountInfo},
};
use std::{convert::Infallible, sync::Arc};

/// The chain as it stands after some records.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) chain_id: u64,
    pub(crate) world: World,
    /// Digest of all state changes so far.
    digest: B256,
    /// By number; never empty, block 0 is first.
    blocks: Vec<Arc<Block>>,
    by_hash: B256Map<u64>,
    by_tx: B256Map<u64>,
    /// The records that made this branch, without the reorgs and what they took away.
    history: Vec<Record>,
    /// How many reorgs there were.
    branch: u64,
    /// Seconds that the chain's clock runs ahead of the wall clock.
    pub(crate) clock_offset: i64,
}

/// What a record will do to the chain it was planned on.
#[derive(Debug)]
pub(crate) struct Plan {
    record: Record,
    digest: B256,
    effect: Effect,
    /// Head hash once done.
    pub(crate) head: B256,
}

#[derive(Debug)]
enum Effect {
    Blocks { blocks: Vec<Arc<Block>>, changes: AddressMap<Account> },
    Balance(Address, U256),
    Replace(Box<Chain>),
    Clock(i64),
}

/// What a done plan changed in the list of blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) removed: Vec<Arc<Block>>,
    pub(crate) added: Vec<Arc<Block>>,
}

impl Chain {
    /// A chain with block 0 only and no account.
    pub(crate) fn new(chain_id: u64, timestamp: u64) -> Self {
        let genesis = Block::seal(Header::first(timestamp), None);
        let mut chain = Self {
            chain_id,
            world: World::default(),
            digest: B256::ZERO,
            blocks: Vec::new(),
            by_hash: B256Map::default(),
            by_tx: B256Map::default(),
            history: vec![Record::Genesis { chain_id, timestamp }],
            branch: 0,
            clock_offset: 0,
        };
        chain.push(Arc::new(genesis));
        chain
    }

    /// The last block.
    pub(crate) fn head(&self) -> &Arc<Block> {
        // `new` puts block 0 there and nothing takes it away.
        &self.blocks[self.blocks.len() - 1]
    }

    /// The block of this number, if there is one.
    pub(crate) fn block(&self, number: u64) -> Option<&Arc<Block>> {
        self.blocks.get(usize::try_from(number).ok()?)
    }

    /// The block of this hash, on this branch.
    pub(crate) fn block_by_hash(&self, hash: B256) -> Option<&Arc<Block>> {
        self.block(*self.by_hash.get(&hash)?)
    }

    /// The block that holds the transaction of this hash.
    pub(crate) fn block_of_tx(&self, hash: B256) -> Option<&Arc<Block>> {
        self.block(*self.by_tx.get(&hash)?)
    }

    /// Nonce, balance in wei and code hash of an account; zero for one that is not there.
    pub(crate) fn account(&self, address: Address) -> AccountInfo {
        let Ok(info) = self.world.basic_ref(address);
        info.unwrap_or_default()
    }

    /// The deployed code of an account.
    pub(crate) fn code(&self, address: Address) -> Bytes {
        let Ok(code) = self.world.code_by_hash_ref(self.account(address).code_hash);
        code.original_bytes()
    }

    /// One storage slot of an account.
    pub(crate) fn slot(&self, address: Address, slot: U256) -> U256 {
        let Ok(value): Result<U256, Infallible> = self.world.storage_ref(address, slot);
        value
    }

    /// Does what was planned on this very state, and tells which blocks came and went.
    pub(crate) fn apply(&mut self, plan: Plan) -> Change {
        self.digest = plan.digest;
        match plan.effect {
            Effect::Replace(chain) => {
                let kept = self.blocks.iter().zip(&chain.blocks).take_while(|(old, new)| old.hash == new.hash).count();
                let change = Change { removed: self.blocks.split_off(kept), added: chain.blocks[kept..].to_vec() };
                *self = *chain;
                return change;
            }
            Effect::Blocks { blocks, changes } => {
                self.history.push(plan.record);
                self.world.commit(changes);
                for block in &blocks {
                    self.push(block.clone());
                }
                return Change { removed: Vec::new(), added: blocks };
            }
            Effect::Balance(address, balance) => {
                let mut account = self.account(address);
                account.balance = balance;
                self.world.insert_account_info(address, account);
            }
            Effect::Clock(offset) => self.clock_offset = offset,
        }
        self.history.push(plan.record);
        Change::default()
    }

    fn push(&mut self, block: Arc<Block>) {
        let number = block.header.number;
        self.world.cache.block_hashes.insert(U256::from(number), block.hash);
        self.by_hash.insert(block.hash, number);
        if let Some(mined) = &block.mined {
            self.by_tx.insert(mined.tx.hash, number);
        }
        self.blocks.push(block);
    }
}
