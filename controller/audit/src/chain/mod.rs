//! What the chain says, and whether the log says the same.

pub(crate) mod agree;
mod answers;
mod code;
pub(crate) mod money;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use selion_api::chain::{Block, ChainEvent};
use selion_api::commit::sha256_of;
use selion_api::{Hash32, TimeMs};
use selion_contracts::header::Hashed;
use selion_contracts::history::History;
use selion_contracts::opened::Opened;
use selion_contracts::rpc::{BlockTag, Header, Log as ChainLog};
use selion_contracts::{Bloom, Pool, PoolError, Stored};
use tokio::time::Instant;

use crate::finding::{Check, Finding};
use crate::heads::Anchor;
use crate::progress::Progress;
use crate::report::Conviction;

/// How often a node that is behind is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
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
    /// The terms that the pool was opened with, and its parts.
    pub opened: Option<Opened>,
    /// Headers that were hashed.
    pub headers: u64,
    /// The first thing that no honest node tells of a chain.
    pub fault: Option<String>,
    /// The newest of the blocks with logs.
    pub newest: Option<Header>,
}

impl Facts {
    /// Reads the pool's events from `first` to the newest final block. A pool that is in the log at all was created
    /// in the log's first block, which is checked; without it the chain is read from its beginning.
    pub(crate) async fn read(pool: &Pool, first: Option<u64>, progress: &Progress) -> Result<Self, PoolError> {
        let mut facts = Self::told(BTreeMap::new());
        facts.read_from(pool, first.unwrap_or(0), progress).await?;
        Ok(facts)
    }

    /// Reads on from the last block that was read to the newest final one.
    pub(crate) async fn read_on(&mut self, pool: &Pool, progress: &Progress) -> Result<(), PoolError> {
        // Nothing was final before: the first block may still come.
        let from = self.last_hash.map_or(0, |_| self.last.saturating_add(1));
        self.read_from(pool, from, progress).await
    }

    /// Reads on, once the node has come to block `target` or had its time.
    pub(crate) async fn catch_up(
        &mut self,
        pool: &Pool,
        target: u64,
        patience: Duration,
        progress: &Progress,
    ) -> Result<(), PoolError> {
        if self.last >= target {
            return Ok(());
        }
        let depth = pool.terms(BlockTag::Latest).await?.finality_depth;
        let until = Instant::now() + patience;
        while pool.final_header(depth).await?.map_or(0, |header| header.number) < target && Instant::now() < until {
            tokio::time::sleep(ASK_AGAIN).await;
        }
        self.read_on(pool, progress).await
    }

    async fn read_from(&mut self, pool: &Pool, begin: u64, progress: &Progress) -> Result<(), PoolError> {
        let depth = pool.terms(BlockTag::Latest).await?.finality_depth;
        let Some(header) = pool.final_header(depth).await? else { return Ok(()) };
        let before = self.last_hash.map(|hash| (self.last, hash));
        if let Some((last, hash)) = before.filter(|(last, _)| header.number <= *last) {
            let other = header.number < last || header.hash != hash;
            self.doubt(|| other.then(|| format!("block {last} was final, and is not the last final one any more")));
            return Ok(());
        }
        let end = pool.rpc.hashed_header(BlockTag::Hash(header.hash)).await?;
        self.doubt(|| end.fault.clone());
        self.doubt(|| {
            (end.header != header).then(|| format!("the final block {} is told twice, and not the same", header.number))
        });
        (self.last, self.last_hash) = (header.number, Some(header.hash));
        self.now = TimeMs(header.time_s.saturating_mul(1000));
        let mut history = History::new(&pool.rpc, &pool.addresses());
        let mut from = begin;
        while from <= self.last {
            let told = history.next(from, self.last).await?;
            self.doubt(|| told.fault.clone());
            self.take(pool, told.logs).await?;
            // A node may name a block as high as numbers go.
            let Some(next) = told.to.checked_add(1) else { break };
            from = next;
            progress.chain(from - begin, self.last.saturating_add(1).saturating_sub(begin));
        }
        self.follow(&end.header);
        Ok(())
    }

    /// A chain that somebody tells.
    pub(crate) fn told(blocks: BTreeMap<u64, Block>) -> Self {
        let (last, last_hash) =
            blocks.last_key_value().map_or((0, None), |(number, block)| (*number, Some(block.hash)));
        Self {
            last,
            last_hash,
            now: TimeMs(0),
            blocks,
            logs: BTreeMap::new(),
            stored: Stored::default(),
            opened: None,
            headers: 0,
            fault: None,
            newest: None,
        }
    }

    async fn take(&mut self, pool: &Pool, logs: Vec<ChainLog>) -> Result<(), PoolError> {
        let of_blocks: Vec<&[ChainLog]> = logs.chunk_by(|a, b| a.block_number == b.block_number).collect();
        let numbers = of_blocks.iter().filter_map(|logs| logs.first()).map(|log| BlockTag::Number(log.block_number));
        let headers = stream::iter(numbers).map(|number| pool.rpc.hashed_header(number)).buffered(HEADERS);
        let headers: Vec<Hashed> = headers.try_collect().await?;
        for (of_block, Hashed { header, fault }) in of_blocks.into_iter().zip(headers) {
            self.doubt(|| fault);
            self.doubt(|| unlike(&header, of_block));
            self.follow(&header);
            self.headers += 1;
            let Some(first) = of_block.first() else { continue };
            let (number, hash) = (first.block_number, first.block_hash);
            for log in of_block {
                self.stored.take(&pool.at, log, TimeMs(header.time_s.saturating_mul(1000)))?;
                self.opened = self.opened.take().or_else(|| Opened::read(&pool.at, log));
            }
            let said: Vec<_> = of_block.iter().map(|log| (log.address, &log.topics, &log.data)).collect();
            self.logs.insert(number, sha256_of(&said));
            let events = pool.decode_all(of_block)?;
            if !events.is_empty() {
                self.blocks.insert(number, Block { number, hash, parent: header.parent, events });
            }
            self.newest = Some(header);
        }
        Ok(())
    }

    /// Keeps the first thing that is odd.
    fn doubt(&mut self, odd: impl FnOnce() -> Option<String>) {
        if self.fault.is_none() {
            self.fault = odd();
        }
    }

    /// The next header that counts is later than the one before, and names it as its parent if it is the next block.
    fn follow(&mut self, header: &Header) {
        let Some(before) = self.newest.as_ref().filter(|before| before.number < header.number) else { return };
        let odd = if header.number == before.number + 1 && header.parent != before.hash {
            let (number, parent, hash) = (header.number, header.parent, before.hash);
            Some(format!("block {number} names {parent} as its parent, the block before it is {hash}"))
        } else if header.time_s < before.time_s {
            let (number, time, then) = (header.number, header.time_s, before.time_s);
            Some(format!("block {number} is of second {time}, block {} before it of second {then}", before.number))
        } else {
            None
        };
        self.doubt(|| odd);
    }

    /// That the headers are what their hashes say, and that the logs fit them.
    pub(crate) fn check_headers(&self) -> Result<String, Finding> {
        match &self.fault {
            Some(fault) => Err(Finding::plain(fault)),
            None => Ok(format!(
                "{} headers of blocks with logs and the last final one hash to what the node says; their logs come once, in \
                 order, and are in their blooms",
                self.headers
            )),
        }
    }

    /// All events in order.
    pub(crate) fn events(&self) -> impl Iterator<Item = &ChainEvent> {
        self.blocks.values().flat_map(|block| &block.events)
    }

    /// Heads on chain, in order. Those that an owner disowned are none any more.
    pub(crate) fn anchors(&self) -> Vec<Anchor> {
        let mut anchors: Vec<Anchor> = Vec::new();
        for block in self.blocks.values() {
            for event in &block.events {
                match *event {
                    ChainEvent::Anchored { epoch, size, root, digest } => {
                        anchors.push(Anchor { block: block.number, epoch, size, root, digest });
                    }
                    ChainEvent::AnchorsDisowned { size, .. } => anchors.retain(|anchor| anchor.size <= size),
                    _ => {}
                }
            }
        }
        anchors
    }
}

impl Facts {
    /// What the court took, and what owners gave up with their anchors.
    pub(crate) fn convictions(&self) -> Vec<Conviction> {
        let of = |block: &Block| {
            let number = block.number;
            let one = move |who, epoch, node, amount| Conviction { who, epoch, node, block: number, amount };
            let told = block.events.iter().filter_map(move |event| match *event {
                ChainEvent::Convicted { owner, epoch, amount } => Some(one(owner, Some(epoch), None, amount)),
                ChainEvent::Forfeited { owner, amount } => Some(one(owner, None, None, amount)),
                ChainEvent::StakeForfeited { provider, node, amount } => Some(one(provider, None, Some(node), amount)),
                _ => None,
            });
            told.collect::<Vec<_>>()
        };
        self.blocks.values().flat_map(of).collect()
    }
}

/// How a block's logs do not fit its header.
fn unlike(header: &Header, logs: &[ChainLog]) -> Option<String> {
    let number = header.number;
    if let Some(log) = logs.iter().find(|log| log.block_hash != header.hash) {
        return Some(format!("a log of block {number} is of hash {}, the block's is {}", log.block_hash, header.hash));
    }
    match &header.bloom {
        None => Some(format!("the header of block {number} has no bloom")),
        Some(bloom) if !bloom.covers(&Bloom::of(logs)) => {
            Some(format!("the bloom of block {number} rules out a log that the node tells of it"))
        }
        Some(_) => None,
    }
}

/// The checks of what the pool's contracts answer.
pub(crate) async fn check(pool: &Pool, facts: &Facts) -> Result<Vec<Check>, PoolError> {
    let mut checks = vec![Check::of("headers_hashed", facts.check_headers())];
    checks.push(code::check(pool, facts).await?);
    checks.extend(answers::check(pool, facts).await?);
    checks.push(Check::of("money_conserved", money::check_books(facts)));
    Ok(checks)
}

/// Every final block with events of the pool up to number `demanded` stands once in the log, with the same events, and no other
/// does: what came while the log was read need not be in it yet.
pub(crate) fn blocks_match(facts: &Facts, log: &[(u64, Block)], demanded: u64) -> Result<String, Finding> {
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
            return wrong(format!(
                "the log has block {} as final, the chain's node calls block {} the last final one: it is behind, or hides \
                 what came since, or the log ran ahead; ask a node that follows the chain",
                block.number, facts.last
            ));
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
    match due.next().filter(|missing| missing.number <= demanded) {
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
