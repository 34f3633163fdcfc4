//! What the chain says, and whether the log says the same.

pub(crate) mod agree;
mod answers;
pub(crate) mod money;

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use selion_api::chain::{Block, ChainEvent};
use selion_api::commit::sha256_of;
use selion_api::{Hash32, TimeMs};
use selion_contracts::rpc::{BlockTag, Header, Log as ChainLog};
use selion_contracts::{Pool, PoolError, Stored};

use crate::finding::{Check, Finding};
use crate::heads::Anchor;

/// Blocks asked for at once.
const WINDOW: u64 = 2_000;
/// Headers asked for at one time.
const HEADERS: usize = 16;

/// All final events of a pool, by block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Last final block.
    pub last: u64,
    /// Its hash; `None` if there is none.
    pub last_hash: Option<Hash32>,
    /// Its time.
    pub now: TimeMs,
    /// Blocks with events, by number.
    pub blocks: BTreeMap<u64, Block>,
    /// What the logs of a block hash to. They tell more than the events in the pool's log.
    pub logs: BTreeMap<u64, Hash32>,
    /// What the contracts store, by the logs.
    pub stored: Stored,
}

impl Facts {
    /// Reads the pool's events from `first` to the newest final block. A pool that is in the log at all was created
    /// in the log's first block, which is checked; without it the chain is read from its beginning.
    pub(crate) async fn read(pool: &Pool, first: Option<u64>) -> Result<Self, PoolError> {
        let depth = pool.terms(BlockTag::Latest).await?.finality_depth;
        let header = pool.final_header(depth).await?;
        let last = header.as_ref().map_or(0, |header| header.number);
        let mut facts = Self {
            last,
            last_hash: header.as_ref().map(|header| header.hash),
            now: TimeMs(header.map_or(0, |header| header.time_s.saturating_mul(1000))),
            ..Self::told(BTreeMap::new())
        };
        let mut from = first.unwrap_or(0);
        while from <= last {
            let to = last.min(from.saturating_add(WINDOW - 1));
            let logs = pool.rpc.logs(from, to, &pool.addresses()).await?;
            facts.take(pool, logs).await?;
            from = to + 1;
        }
        Ok(facts)
    }

    /// A chain that somebody tells.
    pub(crate) fn told(blocks: BTreeMap<u64, Block>) -> Self {
        let (last, last_hash) =
            blocks.last_key_value().map_or((0, None), |(number, block)| (*number, Some(block.hash)));
        Self { last, last_hash, now: TimeMs(0), blocks, logs: BTreeMap::new(), stored: Stored::default() }
    }

    async fn take(&mut self, pool: &Pool, logs: Vec<ChainLog>) -> Result<(), PoolError> {
        let of_blocks: Vec<&[ChainLog]> = logs.chunk_by(|a, b| a.block_hash == b.block_hash).collect();
        let numbers = of_blocks.iter().filter_map(|logs| logs.first()).map(|log| BlockTag::Number(log.block_number));
        let headers = stream::iter(numbers).map(|number| pool.rpc.header(number)).buffered(HEADERS);
        let headers: Vec<Header> = headers.try_collect().await?;
        for (of_block, header) in of_blocks.into_iter().zip(headers) {
            let Some(first) = of_block.first() else { continue };
            let (number, hash) = (first.block_number, first.block_hash);
            for log in of_block {
                self.stored.take(&pool.at, log, TimeMs(header.time_s.saturating_mul(1000)))?;
            }
            let said: Vec<_> = of_block.iter().map(|log| (log.address, &log.topics, &log.data)).collect();
            self.logs.insert(number, sha256_of(&said));
            let events = pool.decode_all(of_block)?;
            if !events.is_empty() {
                self.blocks.insert(number, Block { number, hash, parent: header.parent, events });
            }
        }
        Ok(())
    }

    /// All events in order.
    pub(crate) fn events(&self) -> impl Iterator<Item = &ChainEvent> {
        self.blocks.values().flat_map(|block| &block.events)
    }

    /// Heads on chain, in order.
    pub(crate) fn anchors(&self) -> Vec<Anchor> {
        let of = |block: &Block| {
            let number = block.number;
            let anchors = block.events.iter().filter_map(move |event| match event {
                ChainEvent::Anchored { epoch, size, root, digest } => {
                    Some(Anchor { block: number, epoch: *epoch, size: *size, root: *root, digest: *digest })
                }
                _ => None,
            });
            anchors.collect::<Vec<_>>()
        };
        self.blocks.values().flat_map(of).collect()
    }
}

/// The checks of what the pool's contracts answer.
pub(crate) async fn check(pool: &Pool, facts: &Facts) -> Result<Vec<Check>, PoolError> {
    let mut checks = answers::check(pool, facts).await?;
    checks.push(Check::of("money_conserved", money::check_books(facts)));
    Ok(checks)
}

/// Every final block with events of the pool stands once in the log, with the same events, and no other does.
pub(crate) fn blocks_match(facts: &Facts, log: &[(u64, Block)]) -> Result<String, Finding> {
    let opening = facts.blocks.values().next();
    let opened = |event: &ChainEvent| matches!(event, ChainEvent::PoolOpened { .. });
    if !opening.is_some_and(|block| block.events.iter().any(opened)) {
        // A pool is opened once, in the block that made it: whatever the log begins with, it left that out.
        return Err(Finding::plain("the log does not begin with the block that created the pool"));
    }
    let mut due = facts.blocks.values();
    for (entry, block) in log {
        let wrong = |detail: String| Err(Finding::at(*entry, detail));
        if block.number > facts.last {
            // Final since we looked.
            break;
        }
        match due.next() {
            Some(expected) if expected == block => {}
            Some(expected) if expected.number == block.number => {
                return wrong(format!(
                    "block {} in the log has {} events and hash {}, on chain {} events and hash {}",
                    block.number,
                    block.events.len(),
                    block.hash,
                    expected.events.len(),
                    expected.hash
                ));
            }
            Some(expected) => {
                return wrong(format!(
                    "the log goes on with block {}, the chain's next block with events of the pool is {}",
                    block.number, expected.number
                ));
            }
            None => {
                return wrong(format!("block {} in the log has no events of the pool on chain", block.number));
            }
        }
    }
    match due.next() {
        Some(missing) => Err(Finding::plain(format!(
            "block {} with {} events of the pool is final and not in the log",
            missing.number,
            missing.events.len()
        ))),
        None => Ok(format!(
            "{} blocks with events up to block {} stand in the log as they are on chain",
            facts.blocks.len(),
            facts.last
        )),
    }
}
