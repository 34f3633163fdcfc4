//! What an agent must not forget: its keys, its unacknowledged reports, the highest fence and head it saw, its money.
//!
//! ```text
//! STATE/               mode 0700
//!   node.key           signs reports; its address is the node's id      0600
//!   provider.key       owns the stake, unless the owner keeps it elsewhere
//!   seal.json          keys to which secrets of leases are sealed, of two days     0600
//!   outbox             reports that the log may not have yet
//!   marks.json         pool, authority, highest fence, highest head
//!   reserve            room for the two above when a lease has filled the disk
//!   vouchers/          the latest voucher of every renter
//!   unsigned.json      what of renters' use no voucher covers
//!   content/           content store          leases/   rooms of members, and what holds their boxes
//!   found.json         what this machine's box gives, as it was found
//!   logs/              what members printed and the controller does not have yet
//!   outputs/           what members left, until the pool has it
//!   cards.json         cards on offer at the last start
//!   events.log         what happened lately      status.sock   where the owner asks how it is
//!   agent.toml         settings, if a unit was installed
//! ```

mod journal;
mod marks;
mod outbox;
mod reserve;
mod seal_keys;
mod vouchers;

pub use marks::Marks;
pub use outbox::{Outbox, OutboxError};
use reserve::Reserve;
pub(crate) use reserve::is_full;
pub use seal_keys::SealKeys;

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use selion_api::Account;
use selion_api::agent::{Desired, Fence, Head, SignedHead, SignedVoucher};
use selion_api::commit::PoolId;

use selion_contracts::{Signer, SignerError};

use crate::unsigned::Unsigned;

/// Why the agent's state cannot be used, or a message contradicts it.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The file system's.
    #[error("agent state at {}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] SignerError),
    /// The outbox cannot be used.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// A file is not what we wrote.
    #[error("{} is damaged ({detail}); restore the state directory, or remove the file if the pool is a new one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// Another agent runs on the same state.
    #[error("another agent uses {}; stop it, or give this one a --state-dir of its own", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The state belongs to another pool.
    #[error(
        "this state directory belongs to pool {} on chain {}, and {} on chain {} is asked for; use the right --pool and --controller, or a new --state-dir",
        had.controller, had.chain_id, got.controller, got.chain_id
    )]
    OtherPool {
        /// Pinned.
        had: PoolId,
        /// Offered.
        got: PoolId,
    },
    /// A decision of a controller that was replaced.
    #[error(
        "fence {got:?} is below {had:?}, which this node obeyed: another controller took over; the old one must stop"
    )]
    StaleFence {
        /// Obeyed.
        had: Fence,
        /// Offered.
        got: Fence,
    },
    /// The log shrank or was rewritten.
    #[error(
        "the controller shows log head {got} after {had}: its log is no extension of what this node was shown; restore the newest log before it may decide again"
    )]
    HeadBack {
        /// Seen, as size and root.
        had: String,
        /// Offered.
        got: String,
    },
}

/// The durable state of one agent.
#[derive(Debug)]
pub struct Book {
    dir: PathBuf,
    node: Signer,
    marks: std::sync::Mutex<Marks>,
    outbox: Outbox,
    seal_keys: SealKeys,
    reserve: Reserve,
    /// Held for the life of the agent.
    _lock: nix::fcntl::Flock<File>,
}

impl Book {
    /// The vouchers in a state directory, whoever holds its lock.
    ///
    /// # Errors
    ///
    /// [`BookError`].
    pub fn vouchers_in(dir: &Path) -> Result<Vec<SignedVoucher>, BookError> {
        let folder = dir.join("vouchers");
        if folder.exists() { vouchers::all(&folder) } else { Ok(Vec::new()) }
    }

    /// Whether an agent runs on the state in `dir`.
    ///
    /// # Errors
    ///
    /// [`BookError::Io`].
    pub fn is_in_use(dir: &Path) -> Result<bool, BookError> {
        let path = dir.join("lock");
        match File::open(&path) {
            Ok(lock) => match nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockSharedNonblock) {
                Ok(_) => Ok(false),
                Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(true),
                Err((_, errno)) => Err(at(&path, errno.into())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(at(&path, error)),
        }
    }

    /// Opens the state in `dir`, making it, and the node's key, where there is none.
    ///
    /// # Errors
    ///
    /// [`BookError`].
    pub fn open(dir: &Path) -> Result<Self, BookError> {
        make_private(dir)?;
        let lock_path = dir.join("lock");
        let lock = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|source| at(&lock_path, source))?;
        let lock = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusiveNonblock)
            .map_err(|_| BookError::InUse { path: dir.to_owned() })?;
        let book = Self {
            node: Signer::open_or_create(&dir.join("node.key"))?,
            marks: std::sync::Mutex::new(Marks::read(&dir.join("marks.json"))?),
            outbox: Outbox::open(&dir.join("outbox"))?,
            seal_keys: SealKeys::open(dir.join("seal.json"))?,
            reserve: Reserve::open(&dir.join(RESERVE)),
            dir: dir.to_owned(),
            _lock: lock,
        };
        for folder in [book.leases(), book.vouchers(), book.outputs()] {
            fs::create_dir_all(&folder).map_err(|source| at(&folder, source))?;
        }
        Ok(book)
    }

    /// Takes the room of the reserve again, after it was used.
    pub(crate) fn refill(&self) {
        if let Err(error) = self.reserve.fill() {
            tracing::warn!(%error, "the agent's reserve on the disk cannot be taken again");
        }
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The node's key.
    #[must_use]
    pub fn node_key(&self) -> &Signer {
        &self.node
    }

    /// To which secrets are sealed.
    #[must_use]
    pub fn seal_keys(&self) -> &SealKeys {
        &self.seal_keys
    }

    /// Reports on their way.
    #[must_use]
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Where members live.
    #[must_use]
    pub fn leases(&self) -> PathBuf {
        self.dir.join(LEASES)
    }

    /// Where what members print is kept.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Where images are kept.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        self.dir.join("images")
    }

    /// Where output folders wait to be sent.
    #[must_use]
    pub fn outputs(&self) -> PathBuf {
        self.dir.join(OUTPUTS)
    }

    /// The content store's folder.
    #[must_use]
    pub fn content(&self) -> PathBuf {
        self.dir.join("content")
    }

    fn vouchers(&self) -> PathBuf {
        self.dir.join("vouchers")
    }

    fn marks(&self) -> std::sync::MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What was seen so far.
    #[must_use]
    pub fn seen(&self) -> Marks {
        self.marks().clone()
    }

    /// Whether the state belongs to `pool` or, so far, to none.
    ///
    /// # Errors
    ///
    /// [`BookError::OtherPool`].
    pub fn fits_pool(&self, pool: PoolId) -> Result<(), BookError> {
        match self.marks().pool {
            Some(had) if had != pool => Err(BookError::OtherPool { had, got: pool }),
            _ => Ok(()),
        }
    }

    /// Binds the state to `pool`, if it belongs to it or, so far, to none.
    ///
    /// # Errors
    ///
    /// [`BookError::OtherPool`]; [`BookError::Io`].
    pub fn pin_pool(&self, pool: PoolId) -> Result<(), BookError> {
        let mut marks = self.marks();
        match marks.pool {
            Some(had) if had == pool => Ok(()),
            Some(had) => Err(BookError::OtherPool { had, got: pool }),
            None => marks.update(&self.dir.join("marks.json"), |marks| marks.pool = Some(pool)),
        }
    }

    /// Remembers on disk who signs in `epoch`, as the chain said, for times when the chain is silent.
    ///
    /// # Errors
    ///
    /// [`BookError::Io`].
    pub fn remember_authority(&self, epoch: u32, authority: Account) -> Result<(), BookError> {
        let mut marks = self.marks();
        if marks.authority.is_some_and(|(had, _)| had >= epoch) {
            return Ok(());
        }
        marks.update(&self.dir.join("marks.json"), |marks| marks.authority = Some((epoch, authority)))
    }

    /// Checks that `desired`, which the authority signed, comes from a controller that may still decide, and remembers its
    /// fence on disk.
    ///
    /// # Errors
    ///
    /// [`BookError::StaleFence`]; [`BookError::Io`].
    pub fn admit(&self, desired: &Desired) -> Result<(), BookError> {
        let mut marks = self.marks();
        let (had, got) = (marks.fence, desired.fence);
        if got < had {
            return Err(BookError::StaleFence { had, got });
        }
        if got > had {
            marks.update(&self.dir.join("marks.json"), |marks| marks.fence = got)?;
        }
        Ok(())
    }

    /// Checks that `head` extends, as far as sizes tell, the highest head seen, and remembers it on disk. A later epoch answers
    /// to the anchor that it began with, which may be shorter than what was signed before; an earlier one is over.
    ///
    /// # Errors
    ///
    /// [`BookError::HeadBack`]; [`BookError::Io`].
    pub fn see_head(&self, head: SignedHead) -> Result<(), BookError> {
        let mut marks = self.marks();
        if let Some(had) = marks.head.filter(|had| had.head.fence.epoch >= head.head.fence.epoch) {
            let earlier = head.head.fence.epoch < had.head.fence.epoch;
            let same_size = head.head.size == had.head.size;
            if earlier || head.head.size < had.head.size || (same_size && head.head.root != had.head.root) {
                let text =
                    |head: &Head| format!("{} entries, root {}, epoch {}", head.size, head.root, head.fence.epoch);
                return Err(BookError::HeadBack { had: text(&had.head), got: text(&head.head) });
            }
            if same_size {
                return Ok(());
            }
        }
        marks.update(&self.dir.join("marks.json"), |marks| marks.head = Some(head))
    }

    /// Keeps `voucher` if it is worth more than the one there is; on return it, or a better one, is on disk.
    ///
    /// # Errors
    ///
    /// [`BookError::Io`]; [`BookError::Damaged`].
    pub fn keep_voucher(&self, voucher: &SignedVoucher) -> Result<(), BookError> {
        vouchers::keep(&self.vouchers(), voucher)
    }

    /// What of renters' use no voucher covered, as it was written down last.
    ///
    /// # Errors
    ///
    /// [`BookError::Io`]; [`BookError::Damaged`].
    pub(crate) fn unsigned(&self) -> Result<Vec<Unsigned>, BookError> {
        let path = self.dir.join(UNSIGNED);
        match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| BookError::Damaged { path, detail: error.to_string() })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(at(&path, error)),
        }
    }

    /// Writes down what of renters' use no voucher covers.
    ///
    /// # Errors
    ///
    /// [`BookError::Io`].
    pub(crate) fn keep_unsigned(&self, unsigned: &[Unsigned]) -> Result<(), BookError> {
        let path = self.dir.join(UNSIGNED);
        let bytes = serde_json::to_vec_pretty(unsigned).map_err(|error| at(&path, error.into()))?;
        replace(&path, &bytes)
    }

    /// The latest voucher of every renter.
    ///
    /// # Errors
    ///
    /// [`BookError::Io`]; [`BookError::Damaged`].
    pub fn all_vouchers(&self) -> Result<Vec<SignedVoucher>, BookError> {
        vouchers::all(&self.vouchers())
    }
}

/// File of what no voucher covers.
const UNSIGNED: &str = "unsigned.json";

/// Folder of the members' rooms.
pub(crate) const LEASES: &str = "leases";

/// Folder of outputs that wait to be sent.
pub(crate) const OUTPUTS: &str = "outputs";

/// File of the reserve, beside those that it is for.
const RESERVE: &str = "reserve";

/// Makes `dir` and lets nobody but its owner in.
///
/// # Errors
///
/// [`BookError::Io`].
pub fn make_private(dir: &Path) -> Result<(), BookError> {
    fs::create_dir_all(dir).map_err(|source| at(dir, source))?;
    fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(|source| at(dir, source))
}

fn at(path: &Path, source: io::Error) -> BookError {
    BookError::Io { path: path.to_owned(), source }
}

/// Replaces the file at `path` whole or not at all, and survives a power cut on return.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), BookError> {
    let beside = path.with_extension("new");
    let write = || {
        let mut file = File::create(&beside)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    let written = Reserve::at(path.with_file_name(RESERVE)).with_room(write);
    written.map_err(|source| at(path, source))
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
