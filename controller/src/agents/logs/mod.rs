//! What members print, beside the log: files under `<data_dir>/logs/<account>/<lease>`, bounded, followed by any number
//! of readers, kept over a restart.
//!
//! A lease's beginning and its newest records stay; what is between them goes first. Above the bounds of an account, or
//! of all, the account that has most makes room: what is over first, the oldest of it first. So nobody who has little
//! loses anything to somebody who has much.

mod book;
mod follow;
mod parts;
mod record;
mod shelf;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{fs, io};

use futures::Stream;
use futures::future::Either;
use selion_api::agent::LogChunk;
use selion_api::{Account, LeaseId};
use tokio::sync::Semaphore;
use tracing::warn;

pub(super) use self::book::end;
use self::book::{Book, Place};
pub(super) use self::parts::Parts;
pub use self::record::Record;
use self::shelf::Shelf;
use super::registry::lock;

/// Readers that look for last lines at one time.
const TAILS: usize = 4;

/// How much is kept, in bytes on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A file is closed from here on: the unit of making room.
    pub file: u64,
    /// One lease; a quarter of it is its beginning.
    pub lease: u64,
    /// All leases of an account.
    pub account: u64,
    /// All files.
    pub total: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file: 1 << 20, lease: 64 << 20, account: 256 << 20, total: 2 << 30 }
    }
}

/// What a reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// What a member printed.
    Record(Record),
    /// So many records were dropped before this one.
    LeftOut {
        /// How many.
        records: u64,
        /// Run of the record that follows.
        attempt: u32,
        /// Its member.
        member: u16,
        /// Its number.
        before: u64,
    },
}

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With the first that is kept.
    Start,
    /// With the last so many lines.
    Tail(usize),
}

/// The records of all leases; cheap to clone.
#[derive(Clone)]
pub struct Logs {
    shared: Arc<Shared>,
}

struct Shared {
    dir: PathBuf,
    limits: Limits,
    shelf: Mutex<Shelf>,
    tails: Semaphore,
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
        let shelf = Mutex::new(Shelf::open(&dir)?);
        Ok(Self { shared: Arc::new(Shared { dir, limits, shelf, tails: Semaphore::new(TAILS) }) })
    }

    /// Keeps the records of a lease of `account` that are new; returns the number of the one that should come next. Records
    /// are known by their number within the member's run. They outlive this process, not a power cut: nothing is flushed.
    ///
    /// # Errors
    ///
    /// What the file system says; nothing of the chunk is kept then, and it may be sent again.
    pub fn append(&self, account: Account, chunk: &LogChunk) -> io::Result<u64> {
        let (next, cost) = self.book(account, chunk.lease).append(chunk)?;
        lock(&self.shared.shelf).charge(account, chunk.lease, cost);
        self.make_room();
        Ok(next)
    }

    /// The lease is over: followers end after its members' last words.
    pub fn finish(&self, lease: LeaseId) {
        let book = lock(&self.shared.shelf).over(lease);
        if let Some(book) = book {
            book.finish();
        }
    }

    /// The link of the node that holds this member is gone: nobody waits for its last words.
    pub fn abandon(&self, lease: LeaseId, member: u16) {
        let book = lock(&self.shared.shelf).in_use(lease);
        if let Some(book) = book {
            book.abandon(member);
        }
    }

    /// What is kept of a lease of `account`; then, if asked, what comes, if the lease is `live`.
    pub async fn follow(
        &self,
        account: Account,
        lease: LeaseId,
        from: Begin,
        follow: bool,
        live: bool,
    ) -> impl Stream<Item = Kept> + Send + use<> {
        let book = self.book(account, lease);
        if !live {
            book.finish();
        }
        let begun = match from {
            Begin::Start => Ok(Place::default()),
            Begin::Tail(lines) => self.tail(&book, lines).await,
        };
        match begun.and_then(|place| follow::follow(book, place, follow)) {
            Ok(kept) => Either::Left(kept),
            Err(error) => {
                warn!(%lease, %error, "the lease's log records cannot be read");
                Either::Right(futures::stream::empty())
            }
        }
    }

    async fn tail(&self, book: &Arc<Book>, lines: usize) -> io::Result<Place> {
        // It is never closed.
        let _turn = self.shared.tails.acquire().await.map_err(io::Error::other)?;
        let book = Arc::clone(book);
        tokio::task::spawn_blocking(move || follow::tail(&book, lines)).await.map_err(io::Error::other)?
    }

    /// Ends followers of leases that are over and forgets books that nobody uses.
    pub fn tend(&self, live: impl Fn(LeaseId) -> bool) {
        let over = lock(&self.shared.shelf).tend(live);
        for book in over {
            book.finish();
        }
    }

    /// Makes room above the bounds.
    fn make_room(&self) {
        loop {
            let Some((account, lease, over)) = lock(&self.shared.shelf).who_makes_room(&self.shared.limits) else {
                return;
            };
            let left = self.book(account, lease).shed(over);
            lock(&self.shared.shelf).charge(account, lease, left);
        }
    }

    fn book(&self, account: Account, lease: LeaseId) -> Arc<Book> {
        let dir = self.shared.dir.join(account.to_string()).join(lease.to_string());
        lock(&self.shared.shelf).book(lease, || Book::new(dir, self.shared.limits))
    }

    /// Makes the lease's records impossible to write, as on a full disk, until the value is dropped.
    #[cfg(test)]
    pub(super) fn block(&self, account: Account, lease: LeaseId) -> Blocked {
        let folder = self.shared.dir.join(account.to_string());
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(lease.to_string());
        fs::write(&path, "").unwrap();
        Blocked(path)
    }
}

/// A file where a lease's folder should be.
#[cfg(test)]
pub(super) struct Blocked(PathBuf);

#[cfg(test)]
impl Drop for Blocked {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

#[cfg(test)]
mod tests;
