//! The running chain: one writer, many readers. Plan, write to disk, apply, tell; in that order.

use crate::{
    chain::{Chain, Change, Refused},
    error::JournalError,
    journal::Journal,
    record::{Entry, Record},
};
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::broadcast;

/// Changes kept for a slow subscriber before it is cut off.
const CHANGES_KEPT: usize = 1024;

/// The chain, its journal and who listens.
#[derive(Debug)]
pub(crate) struct Node {
    chain: RwLock<Chain>,
    writer: Mutex<Writer>,
    changes: broadcast::Sender<Arc<Change>>,
}

#[derive(Debug)]
struct Writer {
    journal: Journal,
    /// The exact time asked for the next block, seconds.
    next_time: Option<u64>,
}

/// Why a record was not accepted. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubmitError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Node {
    /// Opens the journal in `dir` and replays it, or begins chain `chain_id` there.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with the directory or the journal, a journal of another chain id, or a record
    /// that gives another head than when it was written.
    pub(crate) fn open(dir: &Path, chain_id: u64) -> Result<Self, JournalError> {
        let (mut journal, entries) = Journal::open(dir)?;
        let chain = if entries.is_empty() {
            let timestamp = wall_clock();
            let chain = Chain::new(chain_id, timestamp);
            journal.append(&Entry { record: Record::Genesis { chain_id, timestamp }, head: chain.head().hash })?;
            chain
        } else {
            replay(entries, chain_id, journal.path())?
        };
        let (changes, _) = broadcast::channel(CHANGES_KEPT);
        Ok(Self { chain: RwLock::new(chain), writer: Mutex::new(Writer { journal, next_time: None }), changes })
    }

    /// The chain as it stands. Hold it briefly: the writer waits.
    pub(crate) fn chain(&self) -> RwLockReadGuard<'_, Chain> {
        // Under the write lock only in-memory inserts happen, which do not panic.
        self.chain.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every change of the list of blocks from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Arc<Change>> {
        self.changes.subscribe()
    }

    /// The time a block would have now, seconds: the chain's clock, never before the head.
    pub(crate) fn time(&self) -> u64 {
        self.block_time(&self.writer())
    }

    /// Accepts the record that `make` builds from the time of a block mined now. Returns once it is on disk
    /// and visible.
    pub(crate) fn submit(&self, make: impl FnOnce(u64) -> Record) -> Result<(), SubmitError> {
        let mut writer = self.writer();
        let record = make(self.block_time(&writer));
        if matches!(record, Record::Tx { .. } | Record::Mine { .. } | Record::Reorg { .. }) {
            self.accept(&mut writer, record)?;
            writer.next_time = None;
            return Ok(());
        }
        self.accept(&mut writer, record)
    }

    /// Moves the chain's clock `seconds` ahead, and returns how far it is from the wall clock now.
    pub(crate) fn increase_time(&self, seconds: u64) -> Result<i64, SubmitError> {
        let mut writer = self.writer();
        let offset = self.chain().clock_offset.saturating_add_unsigned(seconds);
        self.accept(&mut writer, Record::Clock { offset })?;
        Ok(offset)
    }

    /// Gives the next block the time `timestamp`, seconds; the clock runs on from there.
    pub(crate) fn set_next_time(&self, timestamp: u64) -> Result<(), SubmitError> {
        let mut writer = self.writer();
        let parent = self.chain().head().header.timestamp;
        if timestamp < parent || i64::try_from(timestamp).is_err() {
            return Err(Refused::Time { asked: timestamp, parent }.into());
        }
        let offset = timestamp.cast_signed().saturating_sub_unsigned(wall_clock());
        self.accept(&mut writer, Record::Clock { offset })?;
        writer.next_time = Some(timestamp);
        Ok(())
    }

    /// Ends the writing, after the record in progress if there is one, so that the journal can be opened again
    /// even while a connection still holds the node.
    pub(crate) fn close(&self) -> std::io::Result<()> {
        self.writer().journal.close()
    }

    fn accept(&self, writer: &mut Writer, record: Record) -> Result<(), SubmitError> {
        // Only the holder of the writer changes the chain, so the plan still fits when it is applied.
        let plan = self.chain().plan(record.clone())?;
        writer.journal.append(&Entry { record, head: plan.head })?;
        let change = self.chain.write().unwrap_or_else(PoisonError::into_inner).apply(plan);
        if !(change.added.is_empty() && change.removed.is_empty()) {
            // Fails only when nobody listens.
            let _ = self.changes.send(Arc::new(change));
        }
        Ok(())
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn block_time(&self, writer: &Writer) -> u64 {
        let chain = self.chain();
        let clock = writer.next_time.unwrap_or_else(|| wall_clock().saturating_add_signed(chain.clock_offset));
        clock.max(chain.head().header.timestamp)
    }
}

/// Seconds since the Unix epoch; 0 before it.
fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn replay(entries: Vec<Entry>, asked: u64, path: &Path) -> Result<Chain, JournalError> {
    let differs = |index, what: String| JournalError::Differs { path: path.to_owned(), index, what };
    let mut chain: Option<Chain> = None;
    for (index, Entry { record, head }) in entries.into_iter().enumerate() {
        let replayed = match (chain.take(), record) {
            (None, Record::Genesis { chain_id: found, .. }) if found != asked => {
                return Err(JournalError::OtherChain { path: path.to_owned(), found, asked });
            }
            (None, Record::Genesis { chain_id, timestamp }) => Chain::new(chain_id, timestamp),
            (None, _) => return Err(differs(index, "comes before the genesis".to_owned())),
            (Some(mut chain), record) => {
                let plan =
                    chain.plan(record).map_err(|refused| differs(index, format!("is refused now: {refused}")))?;
                chain.apply(plan);
                chain
            }
        };
        let now = replayed.head().hash;
        if now != head {
            return Err(differs(index, format!("gives head {now} where it gave {head}")));
        }
        chain = Some(replayed);
    }
    chain.ok_or_else(|| differs(0, "is missing".to_owned()))
}
