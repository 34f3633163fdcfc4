//! An audit from end to end.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use selion_api::Address;
use selion_api::agent::SignedReport;
use selion_api::commit::PoolId;
use selion_api::rest::LoggedEntry;
use selion_contracts::{PoolError, Rpc, RpcError};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use crate::chain::{self, Facts, agree};
use crate::finding::{Check, Finding};
use crate::heads::Anchor;
use crate::pass::{Brief, PIECE, Passed, examine};
use crate::progress::Progress;
use crate::promise::KeptPromise;
use crate::proof::Proof;
use crate::report::Report;
use crate::source::{Feed, Lines, SourceError, block_of};
use crate::tiles::{TileSource, Tiles};

const ASK_AGAIN: Duration = Duration::from_millis(250);
/// Pages that wait to be looked at.
const PAGES: usize = 4;

/// Where the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// A controller's REST interface.
    Url(String),
    /// A file with one published entry a line, as JSON.
    File(PathBuf),
    /// A folder of static files.
    Folder(PathBuf),
    /// Static files below a URL: of a controller, or of a folder behind any web server.
    Static(String),
}

/// What to audit.
#[derive(Clone, Debug)]
pub struct Options {
    /// JSON-RPC of the chain. The first is the one whose answers the log is compared with; all have to agree.
    pub rpcs: Vec<String>,
    /// The pool's Controller contract.
    pub pool: Address,
    /// The log.
    pub log: LogSource,
    /// What parties keep of it.
    pub proofs: Vec<Proof>,
    /// What parties were promised.
    pub promises: Vec<KeptPromise>,
    /// Reports of nodes that parties hold.
    pub reports: Vec<SignedReport>,
    /// Entries that an anchor covers and that are trusted, as they were audited before; 0: none.
    pub from: u64,
    /// The newest entries that no signed head and no anchor need cover, at most.
    pub allow_uncovered: u64,
    /// A folder in which pages of a controller's log are kept, and those that were kept are found.
    pub cache: Option<PathBuf>,
    /// How long a controller or a node of the chain may be behind the last final block before that is told.
    pub patience: Duration,
    /// Told how far the audit is.
    pub progress: Arc<Progress>,
}

impl Options {
    /// Of this pool by this node of the chain: everything judged, nothing kept, 15 s for who is behind.
    #[must_use]
    pub fn new(rpc: String, pool: Address, log: LogSource) -> Self {
        Self {
            rpcs: vec![rpc],
            pool,
            log,
            proofs: Vec::new(),
            promises: Vec::new(),
            reports: Vec::new(),
            from: 0,
            allow_uncovered: 0,
            cache: None,
            patience: Duration::from_secs(15),
            progress: Arc::default(),
        }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The chain could not be read.
    #[error(transparent)]
    Chain(#[from] PoolError),
    /// The chain could not be asked.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The log could not be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Nowhere to ask.
    #[error("no RPC of the chain is named")]
    NoRpc,
    /// Nothing on chain says what the log was at that size.
    #[error("no anchor covers {asked} entries{}", nearest.map_or_else(String::new, |size| format!(", the nearest covers {size}")))]
    NoAnchor {
        /// Entries that were to be trusted.
        asked: u64,
        /// The size of the nearest anchor.
        nearest: Option<u64>,
    },
    /// The work was stopped.
    #[error("the audit was stopped: {0}")]
    Stopped(#[from] tokio::task::JoinError),
}

/// Audits a pool from the chain and the log alone.
///
/// # Errors
///
/// [`AuditError`] if chain or log cannot be read; what is wrong *in* them is in the report.
pub async fn audit(options: &Options) -> Result<Report, AuditError> {
    let rpcs = distinct(&options.rpcs)?;
    let (pool, nodes) = agree::open(&rpcs, options.pool, options.patience).await?;
    let id = PoolId { chain_id: pool.chain_id, controller: options.pool };
    let mut log = Source::open(options, &id).await?;
    let mut heard = nodes.hear((log.first_block, options.patience), &options.progress).await?;
    let anchors = heard.facts.anchors();
    check_from(options.from, &anchors)?;
    let brief = Brief {
        pool: id,
        anchors,
        proofs: options.proofs.clone(),
        promises: options.promises.clone(),
        reports: options.reports.clone(),
        from: options.from,
        allow_uncovered: options.allow_uncovered,
        progress: Arc::clone(&options.progress),
    };
    let due = (heard.facts.blocks.keys().next_back().copied(), options.patience);
    let Passed { mut report, spine } = log.pass(brief, due).await?;
    (report.block, report.block_hash) = (Some(heard.facts.last), heard.facts.last_hash);
    // A live log goes on while it is read. What it calls final now, the chain has to call final too.
    let newest = spine.blocks.iter().map(|(_, block)| block.number).max().unwrap_or(0);
    let demanded = heard.facts.last.max(newest);
    let came = heard.read_on(newest, options.patience, &options.progress).await;
    let agree::Heard { facts, checks: on_chain, agreed, .. } = heard;
    report.checks.push(agreed);
    let in_log = match came {
        Ok(()) => chain::blocks_match(&facts, &spine.blocks, demanded),
        Err(error) => {
            Err(Finding::plain(format!("the log goes on to block {newest}, and the chain was not read on: {error}")))
        }
    };
    report.checks.push(Check::of("chain_blocks_in_log", in_log));
    report.checks.extend(on_chain);
    report.ok = report.checks.iter().all(|check| check.ok);
    report.convictions = facts.convictions();
    report.rpcs = rpcs.iter().map(|rpc| rpc.node().to_owned()).collect();
    Ok(report)
}

/// The nodes at these URLs. One that is named twice is one node.
fn distinct(urls: &[String]) -> Result<Vec<Rpc>, AuditError> {
    let mut seen = BTreeSet::new();
    let rpcs = urls.iter().filter(|url| seen.insert(url.trim_end_matches('/'))).map(|url| Rpc::new(url));
    let rpcs: Vec<Rpc> = rpcs.collect::<Result<_, RpcError>>()?;
    if rpcs.is_empty() { Err(AuditError::NoRpc) } else { Ok(rpcs) }
}

/// Only what an anchor covers can be trusted: without one nothing says which log was audited before.
fn check_from(asked: u64, anchors: &[Anchor]) -> Result<(), AuditError> {
    if asked == 0 || anchors.iter().any(|anchor| anchor.size == asked) {
        return Ok(());
    }
    let nearest = anchors.iter().map(|anchor| anchor.size).min_by_key(|size| size.abs_diff(asked));
    Err(AuditError::NoAnchor { asked, nearest })
}

/// A log whose first block is known, and that is read once from its beginning.
struct Source {
    from: From,
    first_block: Option<u64>,
}

enum From {
    File(PathBuf),
    /// Static files, whose tree was read.
    Tiles(Box<Tiles>),
    /// A controller, and the pages that were read to find the first block.
    Url(Box<Feed>, Vec<Vec<LoggedEntry>>),
}

impl Source {
    async fn open(options: &Options, pool: &PoolId) -> Result<Self, SourceError> {
        match &options.log {
            LogSource::File(path) => {
                let first_block = Lines::open(path)?.first_block()?;
                Ok(Self { from: From::File(path.clone()), first_block })
            }
            LogSource::Url(url) => {
                let mut feed = Feed::open(url, options.cache.as_deref(), pool)?;
                let (mut read, mut first_block) = (Vec::new(), None);
                while first_block.is_none()
                    && let Some(page) = feed.next().await?
                {
                    first_block = page.iter().find_map(block_of);
                    read.push(page);
                }
                first_block = first_block.or_else(|| feed.uncovered().iter().find_map(block_of));
                Ok(Self { from: From::Url(Box::new(feed), read), first_block })
            }
            LogSource::Folder(path) => Self::of_tiles(TileSource::Dir(path.clone())).await,
            LogSource::Static(url) => Self::of_tiles(TileSource::at_url(url).await?).await,
        }
    }

    async fn of_tiles(source: TileSource) -> Result<Self, SourceError> {
        let tiles = Tiles::open(source).await?;
        let mut first_block = None;
        let mut bundles = 0..tiles.bundles();
        while first_block.is_none()
            && let Some(bundle) = bundles.next()
        {
            first_block = tiles.entries(bundle).await?.iter().find_map(block_of);
        }
        Ok(Self { from: From::Tiles(Box::new(tiles)), first_block })
    }

    /// Looks at every entry.
    async fn pass(&mut self, brief: Brief, due: Due) -> Result<Passed, AuditError> {
        match &mut self.from {
            From::File(path) => {
                let lines = Lines::open(path)?;
                Ok(tokio::task::spawn_blocking(move || examine(lines, &brief)).await??)
            }
            From::Tiles(tiles) => {
                let (to, pages) = channel(PAGES);
                let pass = tokio::task::spawn_blocking(move || examine(Pages(pages), &brief));
                let fed = unroll(tiles, to).await;
                let passed = pass.await?;
                fed?;
                Ok(passed?)
            }
            From::Url(feed, read) => {
                let (to, pages) = channel(PAGES);
                let pass = tokio::task::spawn_blocking(move || examine(Pages(pages), &brief));
                let fed = pour(feed, std::mem::take(read), due, to).await;
                let passed = pass.await?;
                fed?;
                Ok(passed?)
            }
        }
    }
}

/// Pages as they come.
struct Pages(Receiver<Vec<LoggedEntry>>);

impl Iterator for Pages {
    type Item = Result<Vec<LoggedEntry>, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.blocking_recv().map(Ok)
    }
}

/// Hands over all bundles. A pass that has seen enough takes no more.
async fn unroll(tiles: &Tiles, to: Sender<Vec<LoggedEntry>>) -> Result<(), SourceError> {
    let mut pages = pin!(tiles.pages());
    while let Some(page) = pages.try_next().await? {
        if to.send(page).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The block that was final when the chain was read, which a live log must come to hold; and how long it has for that.
type Due = (Option<u64>, Duration);

/// Hands over all pages, until a head covers the log's end and the log holds the block that is due, or has had its time. A
/// pass that has seen enough takes no more.
async fn pour(
    feed: &mut Feed,
    read: Vec<Vec<LoggedEntry>>,
    (last, patience): Due,
    to: Sender<Vec<LoggedEntry>>,
) -> Result<(), SourceError> {
    let mut newest = None;
    let mut until = None;
    let mut read = read.into_iter();
    loop {
        let page = match read.next() {
            Some(page) => Some(page),
            None => feed.next().await?,
        };
        if let Some(page) = page {
            newest = page.iter().filter_map(block_of).next_back().or(newest);
            if to.send(page).await.is_err() {
                return Ok(());
            }
            continue;
        }
        let until = *until.get_or_insert_with(|| Instant::now() + patience);
        if Instant::now() >= until || to.is_closed() || (newest >= last && feed.uncovered().is_empty()) {
            // A pass that is over takes nothing more.
            let _ = to.send(feed.take_uncovered()).await;
            return Ok(());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// The checks that need the published entries only. `anchors` are the heads on chain, `proofs` what parties keep, as far
/// as they are at hand.
#[must_use]
pub fn check_log(pool: &PoolId, published: &[LoggedEntry], anchors: &[Anchor], proofs: &[Proof]) -> Report {
    check_from_anchor(pool, published, anchors, proofs, 0)
}

/// As [`check_log`], for a file with one published entry a line, of which little is in memory at a time.
///
/// # Errors
///
/// [`SourceError`] if the file cannot be read.
pub fn check_file(pool: &PoolId, path: &Path) -> Result<Report, SourceError> {
    let brief = brief(pool, &[], &[], 0);
    examine(Lines::open(path)?, &brief).map(|passed| passed.report)
}

/// As [`check_file`], for static files.
///
/// # Errors
///
/// [`AuditError::Source`] if they cannot be read.
pub async fn check_tiles(pool: &PoolId, files: TileSource) -> Result<Report, AuditError> {
    let mut log = Source::of_tiles(files).await?;
    log.pass(brief(pool, &[], &[], 0), (None, Duration::ZERO)).await.map(|passed| passed.report)
}

/// As [`check_log`]; entries before `from` were judged before and are replayed only.
#[must_use]
pub fn check_from_anchor(
    pool: &PoolId,
    published: &[LoggedEntry],
    anchors: &[Anchor],
    proofs: &[Proof],
    from: u64,
) -> Report {
    passed(pool, published, anchors, proofs, from).report
}

/// As [`check_log`], with promises that parties keep.
pub(crate) fn check_kept(
    pool: &PoolId,
    published: &[LoggedEntry],
    anchors: &[Anchor],
    proofs: &[Proof],
    promises: &[KeptPromise],
) -> Report {
    let brief = Brief { promises: promises.into(), ..brief(pool, anchors, proofs, 0) };
    let Ok(passed) = examine(pieces(published), &brief);
    passed.report
}

/// As [`check_log`], with a chain that is told: what its blocks say is compared with the log as well.
pub(crate) fn check_told(pool: &PoolId, published: &[LoggedEntry], facts: &Facts) -> Report {
    let Passed { mut report, spine } = passed(pool, published, &[], &[], 0);
    report.checks.push(Check::of("chain_blocks_in_log", chain::blocks_match(facts, &spine.blocks, facts.last)));
    report.checks.push(Check::of("money_conserved", chain::money::check_books(facts)));
    report.ok = report.checks.iter().all(|check| check.ok);
    report
}

fn brief(pool: &PoolId, anchors: &[Anchor], proofs: &[Proof], from: u64) -> Brief {
    let (anchors, proofs, promises, reports) = (anchors.into(), proofs.into(), Vec::new(), Vec::new());
    Brief { pool: *pool, anchors, proofs, promises, reports, from, allow_uncovered: 0, progress: Arc::default() }
}

fn passed(pool: &PoolId, published: &[LoggedEntry], anchors: &[Anchor], proofs: &[Proof], from: u64) -> Passed {
    let brief = brief(pool, anchors, proofs, from);
    let Ok(passed) = examine(pieces(published), &brief);
    passed
}

fn pieces(published: &[LoggedEntry]) -> impl Iterator<Item = Result<Vec<LoggedEntry>, Infallible>> {
    published.chunks(PIECE).map(|piece| Ok(piece.to_vec()))
}
