//! Blocks on disk, named by their hash: nothing is visible before it is verified, nothing is served unverified.
//!
//! ```text
//! DIR/blocks/e9/1220...e9      one block; the file name is its multihash in hex, the folder its last byte
//! DIR/tmp/                     blocks being written; debris of a crash, older than an hour, goes at the next open
//! DIR/pins/OWNER/CID           OWNER wants CID, which takes so many bytes: their number in decimal
//! ```
//!
//! Any number of processes may use one store: a block appears by rename, and its name says all of its content.
//! What no pin reaches is collected where somebody asks for it ([`Store::collect`]), and only if it came by
//! [`Store::put_for`].

mod add;
mod added;
mod error;
mod export;
mod links;
mod parallel;
mod pins;
mod quota;
mod stop;
mod tree;
mod walk;
mod work;

pub use added::{AddRules, Added, Faults, Links, Skipped};
pub use error::StoreError;
pub use export::ExportRules;
pub use pins::Pin;
pub use quota::Collected;
pub use stop::{Stop, StopOnDrop};
pub use walk::Stat;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cid::Cid;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::dag::{self, DagError, MAX_BLOCK, Node};
use error::{At, at};

/// Bytes from which on a block is sent to the disk as it is written, not at the next sync.
const EAGER: usize = 256 << 10;
/// Debris younger than this may be another process at work.
const DEBRIS_AGE: Duration = Duration::from_secs(3600);

/// A content store in a folder. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    blocks: PathBuf,
    tmp: PathBuf,
    pins: PathBuf,
    /// Whether a sync is one.
    lasting: bool,
    next_tmp: AtomicU64,
    loose: quota::Ledger,
    /// Held while a root is pinned and while blocks are collected.
    gate: Mutex<()>,
    walks: work::Gate,
    questions: work::Gate,
}

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of all blocks.
    pub bytes: u64,
}

/// When a block must survive a power cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durable {
    /// Before the call returns.
    Now,
    /// At the next [`Store::sync`]; until then a crash may leave a torn block, which reads as corrupt.
    AtSync,
}

impl Store {
    /// Opens the store in `dir`, making it if it is not there.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if the folder cannot be made or read.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_as(dir.as_ref(), true)
    }

    /// [`open`](Self::open) for blocks on their way to somewhere else: nothing here promises to survive a power cut, and
    /// nothing waits for the disk. A block that one tore reads as corrupt, as ever.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn scratch(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_as(dir.as_ref(), false)
    }

    fn open_as(dir: &Path, lasting: bool) -> Result<Self, StoreError> {
        let inner = Inner {
            blocks: dir.join("blocks"),
            tmp: dir.join("tmp"),
            pins: dir.join("pins"),
            lasting,
            next_tmp: AtomicU64::new(0),
            loose: quota::Ledger::open(dir.join("loose"))?,
            gate: Mutex::new(()),
            walks: work::Gate::for_walks(),
            questions: work::Gate::for_questions(),
        };
        for folder in [&inner.blocks, &inner.tmp, &inner.pins] {
            fs::create_dir_all(folder).at(folder)?;
        }
        clear_debris(&inner.tmp);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Keeps `bytes` under `cid` if they are what it names; on return they survive a power cut. `false` if they
    /// were there already. A corrupt copy is replaced.
    ///
    /// # Errors
    ///
    /// [`StoreError::Dag`] if the bytes are not the block (nothing is written); [`StoreError::Full`];
    /// [`StoreError::Io`].
    pub fn put(&self, cid: &Cid, bytes: &[u8]) -> Result<bool, StoreError> {
        self.write(cid, bytes, Durable::Now)
    }

    /// The block `cid`, verified as it is read.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`]; [`StoreError::Corrupt`] if the file on disk is not the block; [`StoreError::Io`].
    pub fn get(&self, cid: &Cid) -> Result<Bytes, StoreError> {
        dag::check_cid(cid)?;
        let path = self.path(cid);
        let bytes = match fs::metadata(&path) {
            Ok(meta) if meta.len() > MAX_BLOCK as u64 => {
                return Err(StoreError::Corrupt { cid: (*cid).into(), path });
            }
            Ok(_) => fs::read(&path).at(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing { cid: (*cid).into() });
            }
            Err(error) => return Err(at(&path, error)),
        };
        match dag::verify(cid, &bytes) {
            Ok(()) => Ok(Bytes::from(bytes)),
            Err(DagError::HashMismatch { .. } | DagError::BlockTooLarge { .. }) => {
                Err(StoreError::Corrupt { cid: (*cid).into(), path })
            }
            Err(other) => Err(other.into()),
        }
    }

    /// Whether there is a file for `cid`. Only [`get`](Self::get) tells whether it is good.
    pub fn has(&self, cid: &Cid) -> bool {
        dag::check_cid(cid).is_ok() && self.path(cid).is_file()
    }

    /// Bytes of the file of a block, which is not read.
    pub(super) fn length(&self, cid: &Cid) -> Result<u64, StoreError> {
        dag::check_cid(cid)?;
        let path = self.path(cid);
        match fs::metadata(&path) {
            Ok(meta) if meta.len() > MAX_BLOCK as u64 => Err(StoreError::Corrupt { cid: (*cid).into(), path }),
            Ok(meta) => Ok(meta.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::Missing { cid: (*cid).into() }),
            Err(error) => Err(at(&path, error)),
        }
    }

    /// The block, verified and read.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), and [`StoreError::Dag`] for a block that is no node of a file or folder.
    pub fn node(&self, cid: &Cid) -> Result<Node, StoreError> {
        Ok(dag::decode(cid, self.get(cid)?)?)
    }

    /// Counts the blocks and their bytes by listing the folder; reads none of them.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn usage(&self) -> Result<Usage, StoreError> {
        let mut usage = Usage::default();
        for shard in fs::read_dir(&self.inner.blocks).at(&self.inner.blocks)? {
            let shard = shard.at(&self.inner.blocks)?.path();
            for file in fs::read_dir(&shard).at(&shard)? {
                usage.bytes += file.and_then(|file| file.metadata()).at(&shard)?.len();
                usage.blocks += 1;
            }
        }
        Ok(usage)
    }

    /// Makes every block written so far survive a power cut.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if the file system reports that some write was lost.
    pub fn sync(&self) -> Result<(), StoreError> {
        if !self.inner.lasting {
            return Ok(());
        }
        let blocks = &self.inner.blocks;
        let handle = File::open(blocks).at(blocks)?;
        nix::unistd::syncfs(&handle).map_err(io::Error::from).at(blocks)
    }

    /// Its folder, for messages.
    pub(crate) fn describe(&self) -> String {
        format!("store {}", self.inner.blocks.parent().unwrap_or(&self.inner.blocks).display())
    }

    pub(crate) fn write(&self, cid: &Cid, bytes: &[u8], durable: Durable) -> Result<bool, StoreError> {
        dag::verify(cid, bytes)?;
        let path = self.path(cid);
        // The bytes are verified, so a file equal to them is the block; any other file there is corrupt.
        if fs::metadata(&path).is_ok_and(|meta| meta.len() == bytes.len() as u64)
            && fs::read(&path).is_ok_and(|there| there == bytes)
        {
            if durable == Durable::Now {
                File::open(&path).and_then(|file| file.sync_all()).at(&path)?;
            }
            return Ok(false);
        }
        let number = self.inner.next_tmp.fetch_add(1, Ordering::Relaxed);
        let tmp = self.inner.tmp.join(format!("{}-{number}", std::process::id()));
        let written = write_file(&tmp, bytes, durable).at(&tmp).and_then(|()| self.publish(&tmp, &path, durable));
        if written.is_err() {
            // The first error is the one to report; what stays behind is debris.
            let _ = fs::remove_file(&tmp);
        }
        written.map(|()| true)
    }

    fn publish(&self, tmp: &Path, path: &Path, durable: Durable) -> Result<(), StoreError> {
        let shard = path.parent().unwrap_or(&self.inner.blocks);
        if let Err(error) = fs::rename(tmp, path) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(at(path, error));
            }
            fs::create_dir_all(shard).at(shard)?;
            fs::rename(tmp, path).at(path)?;
        }
        if durable == Durable::Now {
            sync_dir(shard)?;
            sync_dir(&self.inner.blocks)?;
        }
        Ok(())
    }

    fn path(&self, cid: &Cid) -> PathBuf {
        self.path_of(&walk::digest(cid))
    }

    fn path_of(&self, digest: &[u8; 32]) -> PathBuf {
        // The multihash of a SHA-256: there is no other here.
        let hash = format!("1220{}", hex::encode(digest));
        let shard = &hash[hash.len().saturating_sub(2)..];
        self.inner.blocks.join(shard).join(&hash)
    }
}

fn write_file(path: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    match durable {
        Durable::Now => file.sync_all(),
        // Small ones are better written together, by the sync.
        Durable::AtSync if bytes.len() < EAGER => Ok(()),
        Durable::AtSync => {
            // Starts the disk on these pages now, so that the sync at the end finds most of its work done. Only a
            // hint: pages not yet written stay cached, and a refusal changes nothing.
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
            Ok(())
        }
    }
}

fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).at(dir)
}

/// Best effort: what cannot be removed is in nobody's way, for no name is ever used twice by a living process.
fn clear_debris(tmp: &Path) {
    let Ok(files) = fs::read_dir(tmp) else { return };
    for file in files.flatten() {
        let age = file.metadata().and_then(|meta| meta.modified()).map(|time| time.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age > DEBRIS_AGE) {
            let _ = fs::remove_file(file.path());
        }
    }
}
