//! Log lines of members, beside the log: one file of JSON lines a lease under `<data_dir>/logs`, bounded, followed by
//! any number of readers, kept over a restart.

mod book;
mod follow;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{fs, io};

use futures::Stream;
use selion_api::LeaseId;
use selion_api::agent::LogChunk;
use selion_api::rest::LogLine;
use tracing::warn;

use self::book::Book;
pub(super) use self::book::end;
use super::registry::lock;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one lease's file; what comes after is dropped, and a last line says so.
    pub lease: u64,
    /// Bytes of all files; the oldest of leases that are over go first.
    pub total: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lease: 16 << 20, total: 1 << 30 }
    }
}

/// The log lines of all leases; cheap to clone.
#[derive(Clone)]
pub struct Logs {
    shared: Arc<Shared>,
}

struct Shared {
    dir: PathBuf,
    limits: Limits,
    /// Leases with a writer or a reader now.
    books: Mutex<BTreeMap<LeaseId, Arc<Book>>>,
}

impl Logs {
    /// Opens or makes the folder `logs` in `data_dir`.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn open(data_dir: &Path, limits: Limits) -> io::Result<Self> {
        let dir = data_dir.join("logs");
        fs::create_dir_all(&dir)?;
        let shared = Arc::new(Shared { dir, limits, books: Mutex::default() });
        Ok(Self { shared })
    }

    /// Keeps the lines that are new; returns the number of the line that should come next: those below it are in the
    /// file, or over the limit. Lines are known by their number within the member's run. They outlive this process,
    /// not a power cut: the file is not flushed.
    ///
    /// # Errors
    ///
    /// What the file system says; nothing of the chunk is kept then, and it may be sent again.
    pub fn append(&self, chunk: &LogChunk) -> io::Result<u64> {
        self.book(chunk.lease)?.append(chunk)
    }

    /// No more lines will come: followers end after the last.
    pub fn finish(&self, lease: LeaseId) {
        if let Some(book) = lock(&self.shared.books).get(&lease) {
            book.finish();
        }
    }

    /// The kept lines from number `from` on, each with its number; then new ones as they come, if the lease is `live`.
    pub fn follow(&self, lease: LeaseId, from: u64, live: bool) -> impl Stream<Item = (u64, LogLine)> + Send + use<> {
        let book = self.book(lease).inspect_err(|error| {
            warn!(%lease, %error, "the lease's log lines cannot be read");
        });
        let book = book.ok();
        if !live && let Some(book) = &book {
            book.finish();
        }
        follow::follow(book, from)
    }

    /// Ends followers of leases that are over and forgets books that nobody uses.
    pub fn tend(&self, live: impl Fn(LeaseId) -> bool) {
        let mut books = lock(&self.shared.books);
        books.retain(|lease, book| {
            let over = !live(*lease);
            if over {
                book.finish();
            }
            !(over && Arc::strong_count(book) == 1)
        });
    }

    /// Removes the oldest files above the total.
    pub fn trim(&self) {
        let books = lock(&self.shared.books);
        let removed = remove_oldest(&self.shared.dir, self.shared.limits.total, &books);
        if let Err(error) = removed {
            warn!(%error, "old log lines could not be removed");
        }
    }

    /// Where the lines of `lease` are.
    fn path(&self, lease: LeaseId) -> PathBuf {
        self.shared.dir.join(format!("{lease}.jsonl"))
    }

    /// Makes the lease's lines impossible to write, as on a full disk, until the value is dropped.
    #[cfg(test)]
    pub(super) fn block(&self, lease: LeaseId) -> Blocked {
        let path = self.path(lease);
        fs::create_dir(&path).unwrap();
        Blocked(path)
    }

    fn book(&self, lease: LeaseId) -> io::Result<Arc<Book>> {
        let mut books = lock(&self.shared.books);
        if let Some(book) = books.get(&lease) {
            return Ok(Arc::clone(book));
        }
        let book = Arc::new(Book::open(self.path(lease), self.shared.limits.lease)?);
        books.insert(lease, Arc::clone(&book));
        Ok(book)
    }
}

/// A folder where a lease's file should be.
#[cfg(test)]
pub(super) struct Blocked(PathBuf);

#[cfg(test)]
impl Drop for Blocked {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap();
    }
}

fn remove_oldest(dir: &Path, total: u64, books: &BTreeMap<LeaseId, Arc<Book>>) -> io::Result<()> {
    let mut files = Vec::new();
    for file in fs::read_dir(dir)? {
        let file = file?;
        let about = file.metadata()?;
        files.push((about.modified()?, about.len(), file.path()));
    }
    let mut bytes: u64 = files.iter().map(|(_, len, _)| len).sum();
    files.sort();
    for (_, len, path) in files {
        if bytes <= total {
            break;
        }
        if books.values().all(|book| book.path() != path) {
            fs::remove_file(&path)?;
            bytes -= len;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use selion_api::agent::LogSource;

    use super::*;

    const LEASE: LeaseId = LeaseId { seq: 5, index: 0 };

    fn chunk(first_line: u64, lines: &[&str]) -> LogChunk {
        LogChunk {
            lease: LEASE,
            attempt: 1,
            member: 0,
            source: LogSource::Stdout,
            first_line,
            lines: lines.iter().map(|line| (*line).into()).collect(),
        }
    }

    async fn texts(logs: &Logs, from: u64) -> Vec<(u64, String)> {
        let lines = logs.follow(LEASE, from, false);
        lines.map(|(at, line)| (at, line.text)).collect().await
    }

    fn numbered(texts: &[&str]) -> Vec<(u64, String)> {
        let numbers = 0_u64..;
        numbers.zip(texts.iter().map(|text| (*text).into())).collect()
    }

    #[tokio::test]
    async fn lines_sent_again_after_a_broken_link_are_kept_once() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::open(dir.path(), Limits::default()).unwrap();
        assert_eq!(logs.append(&chunk(0, &["a", "b"])).unwrap(), 2);
        assert_eq!(logs.append(&chunk(0, &["a", "b"])).unwrap(), 2);
        assert_eq!(logs.append(&chunk(1, &["b", "c"])).unwrap(), 3);
        assert_eq!(logs.append(&chunk(0, &["a"])).unwrap(), 3);
        assert_eq!(texts(&logs, 0).await, numbered(&["a", "b", "c"]));
        assert_eq!(texts(&logs, 2).await, vec![(2, "c".into())]);
    }

    #[tokio::test]
    async fn lines_outlive_the_process_and_a_line_torn_by_a_crash_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::open(dir.path(), Limits::default()).unwrap();
        logs.append(&chunk(0, &["a", "b"])).unwrap();
        drop(logs);
        let path = dir.path().join("logs").join("lease-5-0.jsonl");
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_slice(b"{\"attempt\":1,\"mem");
        fs::write(&path, bytes).unwrap();
        let logs = Logs::open(dir.path(), Limits::default()).unwrap();
        assert_eq!(logs.append(&chunk(0, &[])).unwrap(), 2, "an agent that was restarted asks so");
        assert_eq!(logs.append(&chunk(1, &["b", "c"])).unwrap(), 3);
        assert_eq!(texts(&logs, 0).await, numbered(&["a", "b", "c"]));
    }

    #[tokio::test]
    async fn a_chunk_that_cannot_be_written_is_kept_when_it_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::open(dir.path(), Limits::default()).unwrap();
        let blocked = logs.block(LEASE);
        logs.append(&chunk(0, &["a"])).unwrap_err();
        drop(blocked);
        assert_eq!(logs.append(&chunk(0, &["a"])).unwrap(), 1);
        assert_eq!(texts(&logs, 0).await, numbered(&["a"]));
    }

    #[tokio::test]
    async fn a_follower_gets_new_lines_as_they_come_and_ends_with_the_lease() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::open(dir.path(), Limits::default()).unwrap();
        logs.append(&chunk(0, &["a"])).unwrap();
        let lines = logs.follow(LEASE, 0, true);
        tokio::pin!(lines);
        assert_eq!(lines.next().await.unwrap().1.text, "a");
        assert!(lines.next().now_or_never().is_none(), "nothing new yet");
        logs.append(&chunk(1, &["b"])).unwrap();
        assert_eq!(lines.next().await.unwrap().1.text, "b");
        logs.finish(LEASE);
        assert!(lines.next().await.is_none());
    }

    #[tokio::test]
    async fn a_lease_that_talks_too_much_is_cut_off_and_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { lease: 2_000, total: 4_000 };
        let logs = Logs::open(dir.path(), limits).unwrap();
        for line in (0..100).step_by(2) {
            let next = logs.append(&chunk(line, &["0123456789"; 2])).unwrap();
            assert_eq!(next, line + 2, "what is not kept is not sent again either");
        }
        let kept = texts(&logs, 0).await;
        assert!(kept.len() < 40, "{}", kept.len());
        assert!(kept.last().unwrap().1.contains("2000 bytes"));
        let size = fs::metadata(dir.path().join("logs/lease-5-0.jsonl")).unwrap();
        assert!(size.len() < 2_500);
    }

    #[test]
    fn above_the_total_the_oldest_files_of_leases_that_are_over_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { lease: 2_000, total: 500 };
        let logs = Logs::open(dir.path(), limits).unwrap();
        for seq in 0..5 {
            let one = LogChunk { lease: LeaseId { seq, index: 0 }, ..chunk(0, &["0123456789", "0123456789"]) };
            logs.append(&one).unwrap();
        }
        logs.tend(|lease| lease.seq == 0);
        logs.trim();
        let names: Vec<_> = fs::read_dir(dir.path().join("logs")).unwrap().collect();
        assert!(names.len() < 5, "{}", names.len());
        assert!(dir.path().join("logs/lease-0-0.jsonl").exists(), "it is live");
    }
}
