//! What can go wrong on disk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use cid::Cid;

use super::added::Skipped;
use crate::dag::DagError;

/// Why a store did not do what it was asked. Nothing half done is visible after any of these.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The block is not here.
    #[error("block {cid} is not in the store")]
    Missing {
        /// The block.
        cid: Box<Cid>,
    },
    /// The file of a block holds other bytes. It is not served; a `put` or a fetch of the block replaces it.
    #[error("block {cid} is corrupt on disk ({}): fetch or add it again, and check the disk", path.display())]
    Corrupt {
        /// The block.
        cid: Box<Cid>,
        /// Its file.
        path: PathBuf,
    },
    /// Bytes that are not the block, or a DAG outside the rules.
    #[error(transparent)]
    Dag(#[from] DagError),
    /// The work was asked to stop, because nobody waits for it any more.
    #[error("stopped: nobody waits for it any more")]
    Stopped,
    /// Too many callers wait for long work.
    #[error("too much is asked of the store at once: try again in a moment")]
    Busy,
    /// An owner's bytes, loose and pinned, would pass what he may have.
    #[error(
        "{used} of the {allowance} bytes allowed are in use: remove a dataset, or wait until unused blocks are collected"
    )]
    OverAllowance {
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        allowance: u64,
    },
    /// No room.
    #[error("no room left on the disk of {}: free some space and try again", path.display())]
    Full {
        /// What was being written.
        path: PathBuf,
    },
    /// Entries that cannot be kept; nothing was added.
    #[error("{} holds what cannot be kept: {}", path.display(), Named(faults, *total))]
    NotAddable {
        /// The root as given.
        path: PathBuf,
        /// The first of them.
        faults: Vec<Skipped>,
        /// How many there are.
        total: u64,
    },
    /// A tree over the limits given.
    #[error("{} holds more than the {limit} {what} allowed", path.display())]
    OverLimit {
        /// Where the limit was passed.
        path: PathBuf,
        /// The limit.
        limit: u64,
        /// Of what.
        what: &'static str,
    },
    /// The destination of an export exists.
    #[error("{} exists already: remove it or choose another destination", path.display())]
    Exists {
        /// The destination.
        path: PathBuf,
    },
    /// An owner of pins that cannot be a folder name.
    #[error("pin owner {owner:?} must be 1 to 128 of a-z, A-Z, 0-9, '.', '_', '-', and not start with '.'")]
    BadOwner {
        /// The owner as given.
        owner: String,
    },
    /// Anything else the system refused.
    #[error("{}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The tail of [`StoreError::NotAddable`].
struct Named<'a>(&'a [Skipped], u64);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            write!(f, "{}{fault}", if index == 0 { "" } else { "; " })?;
        }
        match self.1.saturating_sub(self.0.len() as u64) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Says where an I/O error happened.
pub(super) trait At<T> {
    fn at(self, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, StoreError> {
        self.map_err(|error| at(path, error))
    }
}

pub(super) fn at(path: &Path, source: io::Error) -> StoreError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path },
        _ => StoreError::Io { path, source },
    }
}
