//! What the chain says, and whether the log says the same.

mod money;
mod registry;

use std::collections::BTreeMap;

use selion_api::chain::{Block, ChainEvent};
use selion_contracts::rpc::{BlockTag, Log as ChainLog};
use selion_contracts::voucher::head_commitment;
use selion_contracts::{Pool, PoolError};
use selion_market::Input;

use crate::entries::Log;
use crate::finding::{Check, Finding};
use crate::heads::Anchor;

/// Blocks asked for at once.
const WINDOW: u64 = 2_000;

/// All final events of a pool, by block.
pub(crate) struct Facts {
    /// Last final block.
    pub last: u64,
    /// Blocks with events, by number.
    pub blocks: BTreeMap<u64, Block>,
}

impl Facts {
    /// Reads the pool's events from `first` to the newest final block. A pool that is in the log at all was created
    /// in the log's first block, which is checked; without it the chain is read from its beginning.
    pub(crate) async fn read(pool: &Pool, first: Option<u64>) -> Result<Self, PoolError> {
        let depth = pool.terms(BlockTag::Latest).await?.finality_depth;
        let last = pool.final_header(depth).await?.map_or(0, |header| header.number);
        let mut facts = Self { last, blocks: BTreeMap::new() };
        let mut from = first.unwrap_or(0);
        while from <= last {
            let to = last.min(from.saturating_add(WINDOW - 1));
            let logs = pool.rpc.logs(from, to, &pool.addresses()).await?;
            facts.take(pool, logs).await?;
            from = to + 1;
        }
        Ok(facts)
    }

    async fn take(&mut self, pool: &Pool, logs: Vec<ChainLog>) -> Result<(), PoolError> {
        for of_block in logs.chunk_by(|a, b| a.block_hash == b.block_hash) {
            let events = pool.decode_all(of_block)?;
            let Some(log) = of_block.first().filter(|_| !events.is_empty()) else {
                continue;
            };
            let header = pool.rpc.header(BlockTag::Number(log.block_number)).await?;
            let block = Block { number: log.block_number, hash: log.block_hash, parent: header.parent, events };
            self.blocks.insert(block.number, block);
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

/// The checks that need the chain.
pub(crate) async fn check(pool: &Pool, facts: &Facts, log: &Log) -> Result<Vec<Check>, PoolError> {
    let at = BlockTag::Number(facts.last);
    Ok(vec![
        Check::of("chain_blocks_in_log", blocks_match(facts, log)),
        Check::of("registry_from_events", registry::check(pool, facts, at).await?),
        Check::of("anchor_on_chain", anchor_stands(pool, facts, at).await?),
        Check::of("vault_covers", money::check_vault(pool, facts, at).await?),
        Check::of("money_conserved", money::check_books(facts)),
    ])
}

/// Every final block with events of the pool stands once in the log, with the same events, and no other does.
fn blocks_match(facts: &Facts, log: &Log) -> Result<String, Finding> {
    let opening = facts.blocks.values().next();
    let opened = |event: &ChainEvent| matches!(event, ChainEvent::PoolOpened { .. });
    if !opening.is_some_and(|block| block.events.iter().any(opened)) {
        // A pool is opened once, in the block that made it: whatever the log begins with, it left that out.
        return Err(Finding::plain("the log does not begin with the block that created the pool"));
    }
    let mut due = facts.blocks.values();
    for item in &log.items {
        let Input::Block(block) = &item.input else {
            continue;
        };
        let wrong = |detail: String| Err(Finding::at(item.seq, detail));
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

/// The contract holds the last anchor that its events tell.
async fn anchor_stands(pool: &Pool, facts: &Facts, at: BlockTag) -> Result<Result<String, Finding>, PoolError> {
    let held = pool.head(at).await?;
    let anchors = facts.anchors();
    let Some(last) = anchors.last() else {
        return Ok(match held.size {
            0 => Ok("nothing is anchored yet".into()),
            size => {
                Err(Finding::plain(format!("the contract holds an anchor over {size} entries that no event tells")))
            }
        });
    };
    let told = head_commitment(last.root, last.digest);
    Ok(if held.size == last.size && held.commitment == told {
        Ok(format!("the newest anchor covers {} entries", last.size))
    } else {
        Err(Finding::plain(format!(
            "the contract holds an anchor over {} entries, its last event tells one over {}",
            held.size, last.size
        )))
    })
}
