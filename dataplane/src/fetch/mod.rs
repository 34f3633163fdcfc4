//! A whole DAG from sources nobody trusts into the store.
//!
//! The store is the only memory of a fetch: what it has, verified, is not asked for again, so a fetch that was
//! cut short goes on where it was. A source that sends one wrong block is asked nothing more, and named.

mod run;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cid::Cid;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::dag::{self, DagError, Limits};
use crate::source::{Source, SourceError, blocking};
use crate::store::{Durable, Store, StoreError};
use run::{Got, Run, Want};
use turns::{Tried, Turns};

/// Groups of blocks (a large one, or up to 128 small ones) on their way at once, unless told otherwise.
const PARALLEL: usize = 8;
/// Times every source is asked for a block while some fail in ways that may pass.
const ROUNDS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// How to fetch; made once, used for any number of roots.
pub struct Fetcher {
    store: Store,
    sources: Vec<Arc<dyn Source>>,
    limits: Limits,
    parallel: usize,
    on_progress: Option<Box<dyn Fn(Progress) + Send + Sync>>,
}

/// How far a fetch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of files that are in the store and verified.
    pub done_bytes: u64,
    /// Bytes of the files met so far: the total, once every folder has been read.
    pub known_bytes: u64,
    /// Blocks in the store and verified.
    pub blocks: u64,
}

/// What a finished fetch did. The DAG is whole, verified and on disk for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Different blocks of the DAG.
    pub blocks: u64,
    /// Of these, the ones that came from a source.
    pub fetched_blocks: u64,
    /// Their bytes.
    pub fetched_bytes: u64,
    /// Sources that were caught lying; each was asked nothing more.
    pub banned: Vec<BadBlock>,
}

/// Evidence: `source` answered a request for `cid` with other bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// What was asked for.
    pub cid: Cid,
    /// The CID of what came.
    pub found: Cid,
    /// [`Source::name`].
    pub source: String,
}

/// Why a DAG could not be fetched. Verified blocks stay, for the next try.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No source gave a good block.
    #[error("no source has a good copy of block {cid}{}", Tried(tried, banned))]
    NoSource {
        /// The block.
        cid: Box<Cid>,
        /// Every source asked for it, with its last answer.
        tried: Vec<(String, SourceError)>,
        /// Sources banned in this fetch.
        banned: Vec<BadBlock>,
    },
    /// The blocks match their CIDs and are still no file or folder that we accept.
    #[error(transparent)]
    Dag(#[from] DagError),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for FetchError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Dag(error) => Self::Dag(error),
            other => Self::Store(other),
        }
    }
}

/// The block, if a good copy is here.
fn found(store: &Store, cid: &Cid) -> Result<Option<Bytes>, StoreError> {
    match store.get(cid) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(StoreError::Missing { .. } | StoreError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Fetches `root` with the default limits and 8 blocks at a time.
///
/// # Errors
///
/// See [`FetchError`].
pub async fn fetch(store: &Store, root: &Cid, sources: Vec<Arc<dyn Source>>) -> Result<Fetched, FetchError> {
    Fetcher::new(store.clone(), sources).fetch(root).await
}

impl Fetcher {
    /// Fetches into `store`, asking `sources` in turn, so that a load is spread over them.
    pub fn new(store: Store, sources: Vec<Arc<dyn Source>>) -> Self {
        Self { store, sources, limits: Limits::default(), parallel: PARALLEL, on_progress: None }
    }

    /// Refuses a DAG over `limits`. Counts each block once; an export counts by path.
    #[must_use]
    pub fn within(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps up to `blocks` groups (at least 1) on their way: one large block, or small ones up to a few MiB.
    #[must_use]
    pub fn parallel(mut self, blocks: usize) -> Self {
        self.parallel = blocks.max(1);
        self
    }

    /// Calls `report` after every block.
    #[must_use]
    pub fn on_progress(mut self, report: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Box::new(report));
        self
    }

    /// Brings the whole DAG under `root` into the store. May be dropped at any time and called again.
    ///
    /// # Errors
    ///
    /// See [`FetchError`].
    pub async fn fetch(&self, root: &Cid) -> Result<Fetched, FetchError> {
        let mut run = Run::new(&self.limits, *root);
        let turns = Turns::new(self.sources.len());
        let mut flight = FuturesUnordered::new();
        loop {
            while flight.len() < self.parallel {
                let group = run.group();
                if group.is_empty() {
                    break;
                }
                flight.push(self.obtain(&turns, group));
            }
            let Some(group) = flight.next().await else {
                break;
            };
            for got in group? {
                run.take(got)?;
            }
            if let Some(report) = &self.on_progress {
                report(run.progress);
            }
        }
        // What was there already is not ours to sync: a torn block would not have verified, and a sync waits for
        // everything else that the file system has to write.
        if run.fetched.fetched_blocks > 0 {
            let store = self.store.clone();
            blocking(move || store.sync()).await?;
        }
        Ok(Fetched { blocks: run.progress.blocks, banned: turns.banned(), ..run.fetched })
    }

    /// Blocks that are wanted together: from the store where they are there and good, else from a source.
    async fn obtain(&self, turns: &Turns, wants: Vec<Want>) -> Result<Vec<Got>, FetchError> {
        let (store, cids) = (self.store.clone(), wants.iter().map(|want| want.cid).collect::<Vec<_>>());
        let there = blocking(move || cids.iter().map(|cid| found(&store, cid)).collect::<Result<Vec<_>, _>>()).await?;
        let (mut got, mut absent) = (Vec::new(), Vec::new());
        for (want, there) in wants.into_iter().zip(there) {
            match there {
                Some(bytes) => got.push(Got { want, node: dag::decode(&want.cid, bytes)?, fetched: None }),
                None => absent.push(want),
            }
        }
        let mut came = if absent.len() > 1 { self.ask_for_many(turns, &absent).await? } else { HashMap::new() };
        for want in absent {
            let bytes = match came.remove(&want.cid) {
                Some(bytes) => bytes,
                None => self.ask(turns, want.cid).await?,
            };
            let fetched = Some(bytes.len() as u64);
            got.push(Got { want, node: dag::decode(&want.cid, bytes)?, fetched });
        }
        Ok(got)
    }

    /// Asks one source for many blocks at once, and keeps what came and was wanted. One that fails is asked block by
    /// block, where its failures are told; one that lies is asked no more.
    async fn ask_for_many(&self, turns: &Turns, wants: &[Want]) -> Result<HashMap<Cid, Bytes>, FetchError> {
        let mut kept = HashMap::new();
        let wanted: Vec<Cid> = wants.iter().map(|want| want.cid).collect();
        let Some((index, source)) = turns
            .order()
            .filter(|index| !turns.is_out(*index))
            .find_map(|index| self.sources.get(index).map(|source| (index, source)))
        else {
            return Ok(kept);
        };
        for (cid, bytes) in source.blocks(&wanted).await.unwrap_or_default() {
            if !wanted.contains(&cid) || kept.contains_key(&cid) {
                continue;
            }
            match self.keep(cid, bytes).await? {
                Ok(good) => drop(kept.insert(cid, good)),
                Err(found) => {
                    turns.ban(index, BadBlock { cid, found, source: source.name() });
                    break;
                }
            }
        }
        Ok(kept)
    }

    /// Asks source after source until one sends the block, and keeps it.
    async fn ask(&self, turns: &Turns, cid: Cid) -> Result<Bytes, FetchError> {
        let mut tried = Vec::new();
        for round in 0..ROUNDS {
            if round > 0 {
                tokio::time::sleep(PAUSE * 2u32.pow(round)).await;
            }
            tried.clear();
            for index in turns.order() {
                if turns.is_out(index) {
                    continue;
                }
                let Some(source) = self.sources.get(index) else {
                    continue;
                };
                match source.block(&cid).await {
                    Err(error) => tried.push((source.name(), error)),
                    Ok(bytes) => match self.keep(cid, bytes).await? {
                        Ok(good) => return Ok(good),
                        Err(found) => turns.ban(index, BadBlock { cid, found, source: source.name() }),
                    },
                }
            }
            if !tried.iter().any(|(_, error)| error.is_transient()) {
                break;
            }
        }
        Err(FetchError::NoSource { cid: cid.into(), tried, banned: turns.banned() })
    }

    /// Verifies and writes; the inner error is what the bytes hash to instead.
    async fn keep(&self, cid: Cid, bytes: Bytes) -> Result<Result<Bytes, Cid>, FetchError> {
        let store = self.store.clone();
        blocking(move || match store.write(&cid, &bytes, Durable::AtSync) {
            Ok(_) => Ok(Ok(bytes)),
            Err(StoreError::Dag(DagError::HashMismatch { found, .. })) => Ok(Err(*found)),
            Err(error) => Err(error.into()),
        })
        .await
    }
}
