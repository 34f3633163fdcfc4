//! One pass of the mirror: up to the head, then everything that became final into the log, in order, once.

use std::sync::Arc;

use selion_api::chain::Block;
use selion_market::state::BlockRef;
use selion_market::{Answer, Input};
use sqlx::SqlitePool;

use super::source::{At, ChainSource, Log, SourceError};
use super::window::{Header, Seen, Verdict, Window};
use crate::sequencer::SubmitError;
use crate::store::block;

/// Headers read in one pass at most, so that finality and shutdown get their turn during a long catch-up.
const HEADERS_A_PASS: usize = 1_024;
/// Unfinal blocks kept at most; beyond it the mirror waits for finality.
pub(super) const WINDOW: usize = 8_192;
/// Blocks that enter the log in one commit at most.
const COMMIT: usize = 256;
/// So many passes in a row must see the changed block before the log is told that the chain broke: one node of a
/// balanced address may be on a fork by itself.
pub(super) const SURE_AFTER: u32 = 3;

/// When a block is final, by the pool's terms on chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finality {
    /// With so many blocks on top.
    Depth(u64),
    /// When the chain's own `finalized` tag has reached it.
    Tag,
}

impl Finality {
    /// Reads the terms' number: `u32::MAX` stands for the tag.
    #[must_use]
    pub fn from_terms(depth: u32) -> Self {
        match depth {
            u32::MAX => Self::Tag,
            depth => Self::Depth(u64::from(depth)),
        }
    }
}

/// Why a pass ended early. The next one starts over from what is stored.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The node does not answer.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The node's head is below what was final.
    #[error(
        "the chain's head is block {head}, but block {had} is final in the log; point --chain-rpc at a node that is in sync"
    )]
    Behind {
        /// Head of the node.
        head: u64,
        /// Last final block.
        had: u64,
    },
    /// The node contradicts itself, as a balanced address does while its nodes disagree.
    #[error("the chain node's answers do not fit together at block {0}; reading again")]
    Inconsistent(u64),
    /// A final block changed.
    #[error("block {number} was final and has changed; no new grants are made, leases run on and exits work", number = .had.number)]
    Broken {
        /// The final block.
        had: BlockRef,
    },
    /// The log does not take inputs now.
    #[error(transparent)]
    Log(#[from] SubmitError),
    /// The log turned a block away.
    #[error("the log refused block {number}: {answer:?}")]
    Refused {
        /// Height.
        number: u64,
        /// What it said.
        answer: Answer,
    },
    /// The store failed.
    #[error("database: {0}")]
    Sql(#[from] sqlx::Error),
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Highest block seen.
    pub seen: u64,
    /// Highest final block that was dealt with.
    pub settled: u64,
    /// Blocks entered into the log.
    pub entered: u64,
    /// True if there is more to read at once.
    pub more: bool,
}

/// Follows one pool's chain.
pub struct Follower {
    pub(super) source: Arc<dyn ChainSource>,
    log: Arc<dyn Log>,
    pub(super) db: SqlitePool,
    pub(super) finality: Finality,
    pub(super) window: Window,
    /// The first block that was ever read: another one there is another chain.
    birth: BlockRef,
    /// Passes in a row that saw the final block changed.
    changed: u32,
}

impl Follower {
    /// Resumes after the last final block in the store; `birth` is a block before the one that created the pool, used
    /// when there is none. The log may be ahead of the store by what a crash cut off: that is read again, so that the
    /// rows have it, and not entered again.
    ///
    /// # Errors
    ///
    /// When SQLite fails.
    pub async fn open(
        source: Arc<dyn ChainSource>,
        log: Arc<dyn Log>,
        db: SqlitePool,
        finality: Finality,
        birth: BlockRef,
    ) -> sqlx::Result<Self> {
        let base = block::newest_final(&db).await?.unwrap_or(birth);
        block::restart(&db, base).await?;
        Ok(Self { source, log, db, finality, window: Window::new(base, WINDOW), birth, changed: 0 })
    }

    /// Reads up to the head and enters what became final. May be cut short or repeated at any point.
    ///
    /// # Errors
    ///
    /// [`MirrorError`]; the next pass continues.
    pub async fn pass(&mut self) -> Result<Pass, MirrorError> {
        let latest = self.header(At::Latest).await?;
        let base = self.window.base();
        if latest.number < base.number {
            return Err(MirrorError::Behind { head: latest.number, had: base.number });
        }
        if self.log.broken() {
            return Err(MirrorError::Broken { had: base });
        }
        if latest.hash != self.window.tip().hash {
            self.source.same_chain().await?;
        }
        let mut pass = Pass::default();
        match self.advance(latest, &mut pass).await {
            Err(MirrorError::Broken { had }) => return Err(self.broken(had).await?),
            outcome => outcome?,
        }
        self.changed = 0;
        pass.seen = self.window.tip().number;
        pass.settled = self.window.base().number;
        Ok(pass)
    }

    async fn advance(&mut self, latest: Header, pass: &mut Pass) -> Result<(), MirrorError> {
        if self.jump(&latest, pass).await? {
            return Ok(());
        }
        pass.more |= self.climb(latest).await?;
        self.settle(&latest, pass).await
    }

    pub(super) async fn header(&self, at: At) -> Result<Header, MirrorError> {
        let header = self.source.header(at).await?;
        header.ok_or_else(|| SourceError::Node(format!("it has no block at {at:?}")).into())
    }

    /// Takes header after header until `latest` is the tip. `Ok(true)` if the bound of work was reached first.
    async fn climb(&mut self, latest: Header) -> Result<bool, MirrorError> {
        let mut header = latest;
        let mut turned_at = None;
        for _ in 0..HEADERS_A_PASS {
            let next = match self.window.judge(&header) {
                Verdict::Full => return Ok(false),
                Verdict::TooDeep { had, .. } => return Err(MirrorError::Broken { had }),
                Verdict::Gap { need } => {
                    // Up, down and up again over one block: the node tells two stories.
                    if turned_at == Some(need) {
                        return Err(MirrorError::Inconsistent(need));
                    }
                    need
                }
                Verdict::Known => {
                    turned_at = Some(header.number);
                    header.number.saturating_add(1)
                }
                Verdict::Extends | Verdict::Reorg { .. } => {
                    for seen in self.seen(vec![header]).await? {
                        block::put(&self.db, &seen).await?;
                        if let Verdict::Reorg { common } = self.window.advance(seen) {
                            tracing::info!(common, number = header.number, "the chain reorganised");
                        }
                    }
                    header.number.saturating_add(1)
                }
            };
            if next > latest.number {
                return Ok(false);
            }
            match self.source.header(At::Number(next)).await? {
                Some(found) if found.number == next => header = found,
                _ => return Err(MirrorError::Inconsistent(next)),
            }
        }
        Ok(true)
    }

    /// The blocks with their events, asked by their own hashes.
    pub(super) async fn seen(&self, headers: Vec<Header>) -> Result<Vec<Seen>, MirrorError> {
        let loud: Vec<Header> = headers.iter().filter(|header| !header.silent).copied().collect();
        let told = if loud.is_empty() { Vec::new() } else { self.source.events(&loud).await? };
        let mut told = told.into_iter();
        let seen = headers.into_iter().map(|header| {
            let events = if header.silent { Some(Vec::new()) } else { told.next().flatten() };
            let events = events.ok_or(MirrorError::Inconsistent(header.number))?;
            Ok(Seen { header, events })
        });
        seen.collect()
    }

    /// Enters what became final, lowest first.
    async fn settle(&mut self, latest: &Header, pass: &mut Pass) -> Result<(), MirrorError> {
        let tip = self.window.tip();
        let through = match self.finality {
            Finality::Depth(depth) => tip.number.checked_sub(depth),
            Finality::Tag => self.finalized(latest).await?.map(|header| header.number),
        };
        let Some(through) = through else {
            return Ok(());
        };
        let settled: Vec<Seen> = self.window.through(through).cloned().collect();
        let Some(last) = settled.last() else {
            return Ok(());
        };
        pass.entered += self.enter(&settled).await?;
        block::settle(&self.db, last.header.number).await?;
        self.window.settle(last.header.number);
        Ok(())
    }

    /// The chain's own final block; `None` if it has none, or if it is not on the chain that the window holds.
    async fn finalized(&self, latest: &Header) -> Result<Option<Header>, MirrorError> {
        let Some(header) = self.source.header(At::Finalized).await? else {
            return Ok(None);
        };
        if header.number > latest.number {
            return Ok(None);
        }
        let tip = self.window.tip();
        let fits = match self.window.hash_at(header.number) {
            Some(hash) => hash == header.hash,
            // Below our base nothing is to be done; above our tip, the tip must still be on the chain.
            None if header.number < tip.number => return Ok(None),
            None => self.header(At::Number(tip.number)).await?.hash == tip.hash,
        };
        Ok(fits.then_some(header))
    }

    /// Enters those of these final blocks, rising, that hold events and that the log does not have. Tells how many.
    pub(super) async fn enter(&self, blocks: &[Seen]) -> Result<u64, MirrorError> {
        let had = self.log.block();
        let other = |had: &BlockRef| {
            let at = |seen: &&Seen| seen.header.number == had.number;
            blocks.iter().find(at).is_some_and(|seen| seen.header.hash != had.hash)
        };
        if let Some(had) = had.filter(other) {
            return Err(MirrorError::Broken { had });
        }
        let new = |seen: &&Seen| !seen.events.is_empty() && had.is_none_or(|had| had.number < seen.header.number);
        let new: Vec<&Seen> = blocks.iter().filter(new).collect();
        for some in new.chunks(COMMIT) {
            let input = |seen: &&Seen| {
                let Header { number, hash, parent, .. } = seen.header;
                Input::Block(Block { number, hash, parent, events: seen.events.clone() })
            };
            let answers = self.log.enter(some.iter().map(input).collect()).await?;
            let mut told = some.iter().zip(answers);
            if let Some((seen, answer)) = told.find(|(_, answer)| *answer != Answer::Done) {
                return Err(MirrorError::Refused { number: seen.header.number, answer });
            }
        }
        Ok(new.len() as u64)
    }

    /// A final block changed: tells the log once, when it was seen often enough in a row.
    async fn broken(&mut self, had: BlockRef) -> Result<MirrorError, MirrorError> {
        self.source.same_chain().await?;
        let first = self.header(At::Number(self.birth.number)).await?;
        if first.hash != self.birth.hash {
            let (number, want, found) = (first.number, self.birth.hash, first.hash);
            return Err(SourceError::OtherGenesis { number, want, found }.into());
        }
        self.changed += 1;
        if self.changed >= SURE_AFTER && !self.log.broken() {
            // The log names a block that it holds itself, if that one changed too.
            let logged = self.log.block().unwrap_or(had);
            let now = self.header(At::Number(logged.number)).await?;
            let (had, has) = if now.hash == logged.hash {
                (had, self.header(At::Number(had.number)).await?.hash)
            } else {
                (logged, now.hash)
            };
            if had.hash != has {
                self.log.enter(vec![Input::ChainBroken { number: had.number, had: had.hash, has }]).await?;
            }
        }
        Ok(MirrorError::Broken { had })
    }
}
