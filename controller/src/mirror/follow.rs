//! One pass of the mirror: up to the head, then everything that became final into the log, in order, once.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use selion_api::chain::{Block, ChainEvent};
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
const WINDOW: usize = 8_192;
/// So many final blocks behind, ranges are read instead of every header.
const FAR_BEHIND: u64 = 2_048;
/// Blocks in one range read.
const RANGE: u64 = 2_000;
/// Blocks asked for at one time, far below the head.
const AT_ONCE: usize = 16;
/// So many passes in a row must see the changed block before the log is told that the chain broke: one node of a
/// balanced address may be on a fork by itself.
const SURE_AFTER: u32 = 3;

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
    source: Arc<dyn ChainSource>,
    log: Arc<dyn Log>,
    db: SqlitePool,
    finality: Finality,
    window: Window,
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

    async fn header(&self, at: At) -> Result<Header, MirrorError> {
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
                    let seen = self.seen(header).await?;
                    block::put(&self.db, &seen).await?;
                    if let Verdict::Reorg { common } = self.window.advance(seen) {
                        tracing::info!(common, number = header.number, "the chain reorganised");
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

    /// The block with its events, asked by its own hash.
    async fn seen(&self, header: Header) -> Result<Seen, MirrorError> {
        if header.silent {
            return Ok(Seen { header, events: Vec::new() });
        }
        let events = self.source.events(header.hash).await?;
        let events = events.ok_or(MirrorError::Inconsistent(header.number))?;
        Ok(Seen { header, events })
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
        let before = self.window.base().number;
        while let Some(seen) = self.window.lowest() {
            if seen.header.number > through {
                break;
            }
            let (header, events) = (seen.header, seen.events.clone());
            pass.entered += u64::from(self.enter(header, events).await?);
            self.window.settle_lowest();
        }
        let settled = self.window.base().number;
        if settled > before {
            block::settle(&self.db, settled).await?;
        }
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

    /// Enters a final block with events unless the log has it. Tells whether it was new.
    async fn enter(&self, header: Header, events: Vec<ChainEvent>) -> Result<bool, MirrorError> {
        let Header { number, hash, parent, .. } = header;
        match self.log.block() {
            Some(had) if had.number == number && had.hash != hash => return Err(MirrorError::Broken { had }),
            Some(had) if had.number >= number => return Ok(false),
            _ if events.is_empty() => return Ok(false),
            _ => {}
        }
        let input = Input::Block(Block { number, hash, parent, events });
        match self.log.enter(input).await? {
            Answer::Done => Ok(true),
            answer => Err(MirrorError::Refused { number, answer }),
        }
    }

    /// Far behind, reads only blocks with events, by ranges that are final already. Tells whether it did.
    async fn jump(&mut self, latest: &Header, pass: &mut Pass) -> Result<bool, MirrorError> {
        let base = self.window.base();
        let through = match self.finality {
            Finality::Depth(depth) => latest.number.saturating_sub(depth),
            Finality::Tag => match self.source.header(At::Finalized).await? {
                Some(header) => header.number.min(latest.number),
                None => return Ok(false),
            },
        };
        if !self.window.is_empty() || through.saturating_sub(base.number) < FAR_BEHIND {
            return Ok(false);
        }
        // `climb` says whether a changed base is so for good.
        let Some(end) = self.far_end(base, through).await? else {
            return Ok(false);
        };
        let blocks = self.source.event_blocks(base.number + 1, end.number).await?;
        let read = futures::stream::iter(blocks).map(|at| self.far(at)).buffered(AT_ONCE);
        let mut seen: Vec<Seen> = read.try_collect().await?;
        // Nothing in a range is linked to what is below it. If another node took over meanwhile, none of it counts.
        self.source.same_chain().await?;
        if self.far_end(base, through).await? != Some(end) {
            return Err(MirrorError::Inconsistent(end.number));
        }
        if seen.last().is_none_or(|last| last.header.number < end.number) {
            seen.push(Seen { header: end, events: Vec::new() });
        }
        for Seen { header, events } in &seen {
            pass.entered += u64::from(self.enter(*header, events.clone()).await?);
        }
        block::put_final(&self.db, &seen).await?;
        self.window = Window::new(end.reference(), WINDOW);
        pass.more = true;
        Ok(true)
    }

    /// The last block of the range above `base`, if `base` is still on the chain and `through` is there, too.
    async fn far_end(&self, base: BlockRef, through: u64) -> Result<Option<Header>, MirrorError> {
        let end = self.header(At::Number(base.number + RANGE)).await?;
        self.header(At::Number(through)).await?;
        let unchanged = self.header(At::Number(base.number)).await?.hash == base.hash;
        Ok(unchanged.then_some(end))
    }

    /// A block of which a range said that it holds events.
    async fn far(&self, at: BlockRef) -> Result<Seen, MirrorError> {
        let header = self.header(At::Number(at.number)).await?;
        let seen = self.seen(header).await?;
        match header.reference() == at && !seen.events.is_empty() {
            true => Ok(seen),
            false => Err(MirrorError::Inconsistent(at.number)),
        }
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
                self.log.enter(Input::ChainBroken { number: had.number, had: had.hash, has }).await?;
            }
        }
        Ok(MirrorError::Broken { had })
    }
}
