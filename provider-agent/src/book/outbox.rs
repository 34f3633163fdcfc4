//! Signed reports until the log has them.
//!
//! A report is on disk before it is sent, and sent again after a restart. Its number is the microsecond in which it was
//! made, or one more than the last where the clock stands or went back: so a copy of this file from a backup goes on above
//! every number that was signed since, whoever has seen it (`docs/adr/0035-no-number-twice.md`). The file keeps, beyond what
//! is unacknowledged, the newest report (its number) and the latest of every member that has not ended (what a crash
//! interrupted).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use selion_api::agent::{Outputs, Report, SignedReport, ToController};
use tokio::sync::watch;

use super::RESERVE;
use super::journal::Journal;
use super::reserve::Reserve;
use crate::member_key::MemberKey;

/// The file is written anew when it is longer than this, and than twice what it was after the last time.
const COMPACT_BYTES: u64 = 1 << 20;

/// Why a report could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The file system's.
    #[error("outbox {}: reports cannot be kept", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file holds something that is no report, or numbers that do not rise.
    #[error("outbox {} is damaged ({detail}); restore the state directory, or use a new one with a new node key", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The node key did not sign.
    #[error("cannot sign a report: {0}")]
    Sign(String),
}

/// The outbox. All calls are quick but [`add`](Outbox::add), which waits for the disk.
#[derive(Debug)]
pub struct Outbox {
    path: PathBuf,
    /// Microseconds since 1970 UTC.
    clock: fn() -> u64,
    inner: Mutex<Inner>,
    last_seq: watch::Sender<u64>,
    acked: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    journal: Journal,
    /// Kept reports, each with the outputs message that goes before it.
    entries: BTreeMap<u64, Entry>,
    acked: u64,
    last: u64,
    /// Length of the file above which it is written anew.
    compact_above: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    outputs: Option<Outputs>,
    report: SignedReport,
}

impl Entry {
    fn frames(&self) -> Result<Vec<Vec<u8>>, io::Error> {
        self.messages().iter().map(borsh::to_vec).collect()
    }

    fn messages(&self) -> Vec<ToController> {
        let outputs = self.outputs.clone().map(ToController::Outputs);
        outputs.into_iter().chain([ToController::Report(self.report.clone())]).collect()
    }

    fn key(&self) -> MemberKey {
        MemberKey::of_report(&self.report.report)
    }
}

impl Outbox {
    /// Opens the outbox at `path`.
    ///
    /// # Errors
    ///
    /// [`OutboxError`].
    pub fn open(path: &Path) -> Result<Self, OutboxError> {
        Self::open_at(path, wall_clock_us)
    }

    /// As [`open`](Self::open), by another clock.
    pub(super) fn open_at(path: &Path, clock: fn() -> u64) -> Result<Self, OutboxError> {
        let io = |source| OutboxError::Io { path: path.to_owned(), source };
        let (journal, frames) = Journal::open(path).map_err(io)?;
        let entries = read(&frames).map_err(|detail| OutboxError::Damaged { path: path.to_owned(), detail })?;
        let last = entries.keys().next_back().copied().unwrap_or(0);
        let outbox = Self {
            path: path.to_owned(),
            clock,
            inner: Mutex::new(Inner { journal, entries, acked: 0, last, compact_above: COMPACT_BYTES }),
            last_seq: watch::channel(last).0,
            acked: watch::channel(0).0,
        };
        Ok(outbox)
    }

    /// The reports in the outbox at `path`, which the controller has not acknowledged. Nothing is written: an agent may be using
    /// it.
    ///
    /// # Errors
    ///
    /// [`OutboxError`].
    pub fn kept(path: &Path) -> Result<Vec<SignedReport>, OutboxError> {
        let frames = Journal::look(path).map_err(|source| OutboxError::Io { path: path.to_owned(), source })?;
        let entries = read(&frames).map_err(|detail| OutboxError::Damaged { path: path.to_owned(), detail })?;
        Ok(entries.into_values().map(|entry| entry.report).collect())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the newest report; 0 if there is none.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.inner().last
    }

    /// Number up to which the log has every report; 0 until the pool says so.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.inner().acked
    }

    /// The number of a report that was made now, but for those that are newer by their numbers.
    #[must_use]
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Follows [`last_seq`](Self::last_seq).
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.last_seq.subscribe()
    }

    /// Resolves once every report made so far is acknowledged.
    pub async fn settled(&self) {
        let last = self.last_seq();
        // The sender lives as long as self.
        let _ = self.acked.subscribe().wait_for(|acked| *acked >= last).await;
    }

    /// Numbers `report`, has it signed, keeps it on disk, then lets it be sent. `outputs` goes before it.
    ///
    /// # Errors
    ///
    /// [`OutboxError`]; the number is not used then.
    pub fn add(
        &self,
        mut report: Report,
        outputs: Option<Outputs>,
        sign: impl FnOnce(&Report) -> Result<SignedReport, String>,
    ) -> Result<u64, OutboxError> {
        let mut inner = self.inner();
        let seq = (inner.last + 1).max((self.clock)());
        report.seq = seq;
        let report = sign(&report).map_err(OutboxError::Sign)?;
        let entry = Entry { outputs, report };
        let io = |source| OutboxError::Io { path: self.path.clone(), source };
        let frames = entry.frames().map_err(io)?;
        let reserve = Reserve::at(self.path.with_file_name(RESERVE));
        reserve.with_room(|| inner.journal.append(&frames)).map_err(io)?;
        inner.entries.insert(seq, entry);
        inner.last = seq;
        drop(inner);
        self.last_seq.send_replace(seq);
        Ok(seq)
    }

    /// The messages of every unacknowledged report above `after`, each with its number.
    #[must_use]
    pub fn after(&self, after: u64) -> Vec<(u64, Vec<ToController>)> {
        let inner = self.inner();
        let from = after.max(inner.acked) + 1;
        inner.entries.range(from..).map(|(seq, entry)| (*seq, entry.messages())).collect()
    }

    /// The log has everything up to `seq`. A number above our own (an older state directory was restored) moves ours
    /// there, so that no number is used twice.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Io`] if the file cannot be written anew.
    pub fn acknowledge(&self, seq: u64) -> Result<(), OutboxError> {
        let mut inner = self.inner();
        inner.acked = inner.acked.max(seq);
        if seq > inner.last {
            tracing::warn!(
                seq,
                ours = inner.last,
                "the log has reports that this state directory forgot; numbers go on from the log's"
            );
            inner.last = seq;
            self.last_seq.send_replace(seq);
        }
        inner.forget();
        self.acked.send_replace(inner.acked);
        if inner.journal.len > inner.compact_above {
            self.compact(&mut inner)?;
        }
        Ok(())
    }

    /// How many reports are not acknowledged.
    #[must_use]
    pub fn pending(&self) -> usize {
        let inner = self.inner();
        inner.entries.range(inner.acked + 1..).count()
    }

    /// Members whose latest report is not a last one, with that report: after a restart, what the crash ended. And
    /// members whose end is kept still.
    #[must_use]
    pub fn members(&self) -> (Vec<Report>, Vec<MemberKey>) {
        let inner = self.inner();
        let mut latest = BTreeMap::new();
        for entry in inner.entries.values() {
            latest.insert(entry.key(), &entry.report.report);
        }
        let (ended, open): (Vec<_>, Vec<_>) = latest.into_iter().partition(|(_, report)| report.event.is_last());
        (open.into_iter().map(|(_, report)| report.clone()).collect(), ended.into_iter().map(|(key, _)| key).collect())
    }

    /// Whether the disk is to blame, so that the same call may work later.
    pub(crate) fn is_full(error: &OutboxError) -> bool {
        matches!(error, OutboxError::Io { source, .. } if super::is_full(source))
    }

    fn compact(&self, inner: &mut Inner) -> Result<(), OutboxError> {
        let io = |source| OutboxError::Io { path: self.path.clone(), source };
        let beside = self.path.with_extension("new");
        let rewrite = || -> io::Result<Journal> {
            // Debris of an earlier try.
            let _ = fs::remove_file(&beside);
            let (mut journal, _) = Journal::open(&beside)?;
            let frames: io::Result<Vec<_>> = inner.entries.values().map(Entry::frames).collect();
            journal.append(&frames?.concat())?;
            fs::rename(&beside, &self.path)?;
            if let Some(folder) = self.path.parent() {
                fs::File::open(folder)?.sync_all()?;
            }
            Ok(journal)
        };
        match rewrite() {
            Ok(journal) => inner.journal = journal,
            // The file that is there says all; it is written anew when there is room.
            Err(error) if super::is_full(&error) => {
                tracing::warn!(%error, "the outbox is not written anew");
                drop(fs::remove_file(&beside));
            }
            Err(error) => return Err(io(error)),
        }
        inner.compact_above = COMPACT_BYTES.max(2 * inner.journal.len);
        Ok(())
    }
}

impl Inner {
    /// Drops what nobody needs: acknowledged, not the newest, not the latest of an open member.
    fn forget(&mut self) {
        let mut latest = BTreeMap::new();
        for (seq, entry) in &self.entries {
            latest.insert(entry.key(), *seq);
        }
        let (acked, last) = (self.acked, self.last);
        self.entries.retain(|seq, entry| {
            let open = latest.get(&entry.key()) == Some(seq) && !entry.report.report.event.is_last();
            *seq > acked || *seq == last || open
        });
    }
}

/// This machine's clock in microseconds since 1970 UTC. Such a number is exact in JSON until the year 2255.
fn wall_clock_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

fn read(frames: &[Vec<u8>]) -> Result<BTreeMap<u64, Entry>, String> {
    let mut entries = BTreeMap::new();
    let mut outputs = None;
    for frame in frames {
        match borsh::from_slice(frame) {
            Ok(ToController::Outputs(found)) => outputs = Some(found),
            Ok(ToController::Report(report)) => {
                let seq = report.report.seq;
                if entries.keys().next_back().is_some_and(|last| *last >= seq) {
                    return Err(format!("report {seq} stands after a later one"));
                }
                let outputs = outputs.take();
                entries.insert(seq, Entry { outputs, report });
            }
            Ok(_) => return Err("it holds a message that is no report".into()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(entries)
}
