//! How much each owner keeps here, and what nobody wants any more.
//!
//! ```text
//! DIR/loose/OWNER              36 bytes a block that OWNER brought and no pin of anybody reaches yet: digest, length
//! ```
//!
//! A block is *loose* from the time it is brought until a pin reaches it. Loose and pinned bytes of an owner together
//! are held to his allowance; loose blocks that stay so for a time are collected.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use cid::Cid;

use super::error::{At, at};
use super::walk::{Leaves, Walk, digest};
use super::{Durable, Pin, Stop, Store, StoreError};
use crate::dag::{self, Limits};

/// Bytes of disk that uploads leave free: for the log, the rows and everything else that must be written.
const RESERVE: u64 = 1 << 30;
/// Most loose blocks of one owner: what is kept of each costs memory.
const MAX_LOOSE: usize = 1 << 20;
/// Most loose blocks that one pass looks at.
const PASS: usize = 10_000;
/// Bytes of one record.
const RECORD: usize = 36;

/// What one pass removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

type Digest = [u8; 32];

/// What is loose, by owner.
#[derive(Debug)]
pub(super) struct Ledger {
    dir: PathBuf,
    owners: Mutex<BTreeMap<String, Owner>>,
}

#[derive(Debug, Default)]
struct Owner {
    blocks: HashMap<Digest, u32>,
    bytes: u64,
    /// Bytes of what he has pinned, once it was added up.
    pinned: Option<u64>,
}

impl Ledger {
    /// Reads what was loose when the last process ended.
    pub fn open(dir: PathBuf) -> Result<Self, StoreError> {
        fs::create_dir_all(&dir).at(&dir)?;
        let mut owners: BTreeMap<String, Owner> = BTreeMap::new();
        for entry in fs::read_dir(&dir).at(&dir)? {
            let entry = entry.at(&dir)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let owner = owners.entry(name).or_default();
            for record in fs::read(entry.path()).at(&entry.path())?.chunks_exact(RECORD) {
                if let Some((digest, length)) = read(record) {
                    owner.add(digest, length);
                }
            }
        }
        Ok(Self { dir, owners: Mutex::new(owners) })
    }

    fn owners(&self) -> MutexGuard<'_, BTreeMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn append(&self, owner: &str, digest: &Digest, length: u32) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.dir.join(owner))?;
        file.write_all(&record(digest, length))
    }

    /// Writes an owner's records anew; by rename, so that a crash leaves the old or the new ones.
    fn rewrite(&self, name: &str, owner: &Owner) -> Result<(), StoreError> {
        let path = self.dir.join(name);
        if owner.blocks.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&path, error)),
                _ => Ok(()),
            };
        }
        let tmp = self.dir.join(format!(".{name}"));
        let bytes: Vec<u8> = owner.blocks.iter().flat_map(|(digest, length)| record(digest, *length)).collect();
        fs::write(&tmp, bytes).at(&tmp)?;
        fs::rename(&tmp, &path).at(&path)
    }
}

impl Owner {
    fn add(&mut self, digest: Digest, length: u32) {
        if self.blocks.insert(digest, length).is_none() {
            self.bytes += u64::from(length);
        }
    }

    fn remove(&mut self, digest: &Digest) {
        self.bytes -= u64::from(self.blocks.remove(digest).unwrap_or(0));
    }
}

impl Store {
    /// Keeps `bytes` under `cid` for `owner`, if they are what it names and his allowance of bytes, loose and pinned
    /// together, has room. `false` if they were there already, which costs him nothing. On disk for good once something
    /// that reaches the block is pinned; until then a power cut may take it, and it reads as absent or corrupt.
    ///
    /// # Errors
    ///
    /// [`StoreError::OverAllowance`]; [`StoreError::Full`] also while less than 1 GiB of the disk is free; as
    /// [`put`](Self::put).
    pub fn put_for(&self, owner: &str, allowance: u64, cid: &Cid, bytes: &[u8]) -> Result<bool, StoreError> {
        self.owner_folder(owner)?;
        dag::verify(cid, bytes)?;
        if self.get(cid).is_ok() {
            // Somebody wants it again: its time begins anew.
            let path = self.path(cid);
            let touched = fs::File::options().write(true).open(&path);
            touched.and_then(|file| file.set_modified(SystemTime::now())).at(&path)?;
            return Ok(false);
        }
        self.room_on_disk(bytes.len() as u64)?;
        {
            let mut owners = self.inner.loose.owners();
            let one = owners.entry(owner.to_owned()).or_default();
            let pinned = match one.pinned {
                Some(pinned) => pinned,
                None => *one.pinned.insert(self.pinned_bytes(owner)?),
            };
            let used = one.bytes.saturating_add(pinned);
            if used.saturating_add(bytes.len() as u64) > allowance || one.blocks.len() >= MAX_LOOSE {
                return Err(StoreError::OverAllowance { used, allowance });
            }
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            one.add(digest(cid), length);
            self.inner.loose.append(owner, &digest(cid), length).at(&self.inner.loose.dir)?;
        }
        self.write(cid, bytes, Durable::AtSync)
    }

    /// Bytes that count against `owner`'s allowance.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadOwner`]; [`StoreError::Io`].
    pub fn used_by(&self, owner: &str) -> Result<u64, StoreError> {
        let pinned = self.pinned_bytes(owner)?;
        Ok(pinned.saturating_add(self.inner.loose.owners().get(owner).map_or(0, |owner| owner.bytes)))
    }

    /// Removes loose blocks that no pin reaches and that nobody brought again for `grace`. Looks at ten thousand at
    /// most; reads every inner node below the pins, and no leaf. A pin that comes meanwhile waits.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn collect(&self, grace: Duration, stop: &Stop) -> Result<Collected, StoreError> {
        let old = self.old_loose(grace);
        if old.is_empty() {
            return Ok(Collected::default());
        }
        let mut reached = HashSet::new();
        let mut marked = HashSet::new();
        for pin in self.list()? {
            self.mark(&pin, &mut reached, stop)?;
            marked.insert(pin);
        }
        let _gate = self.inner.gate.lock().unwrap_or_else(|poison| poison.into_inner());
        for pin in self.list()? {
            if !marked.contains(&pin) {
                self.mark(&pin, &mut reached, stop)?;
            }
        }
        self.sweep(&old, &reached)
    }

    fn sweep(&self, old: &[(String, Digest)], reached: &HashSet<Digest>) -> Result<Collected, StoreError> {
        let mut collected = Collected::default();
        let mut owners = self.inner.loose.owners();
        let mut changed = HashSet::new();
        for (name, digest) in old {
            let Some(owner) = owners.get_mut(name) else { continue };
            let bytes = owner.blocks.get(digest).copied().unwrap_or(0);
            if !reached.contains(digest) {
                let path = self.path_of(digest);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path, error)),
                    _ => {
                        collected.blocks += 1;
                        collected.bytes += u64::from(bytes);
                    }
                }
            }
            owner.remove(digest);
            changed.insert(name);
        }
        for name in changed {
            if let Some(owner) = owners.get(name) {
                self.inner.loose.rewrite(name, owner)?;
            }
        }
        owners.retain(|_, owner| !owner.blocks.is_empty());
        Ok(collected)
    }

    /// Loose blocks whose files are older than `grace`, or gone.
    fn old_loose(&self, grace: Duration) -> Vec<(String, Digest)> {
        // Listed first: nobody's upload waits while files are looked at.
        let all: Vec<(String, Digest)> = {
            let owners = self.inner.loose.owners();
            let all = owners.iter().flat_map(|(name, owner)| owner.blocks.keys().map(move |digest| (name, digest)));
            all.map(|(name, digest)| (name.clone(), *digest)).collect()
        };
        let old = all.into_iter().filter(|(_, digest)| {
            let modified = fs::metadata(self.path_of(digest)).and_then(|meta| meta.modified());
            modified.map_or(true, |time| time.elapsed().unwrap_or_default() >= grace)
        });
        old.take(PASS).collect()
    }

    /// Notes everything below a pin. One that is not whole holds what can be reached.
    fn mark(&self, pin: &Pin, reached: &mut HashSet<Digest>, stop: &Stop) -> Result<(), StoreError> {
        let limits =
            Limits { bytes: u64::MAX, stored: u64::MAX, entries: u64::MAX, pieces: u64::MAX, ..Limits::default() };
        let mut seen = |cid: &Cid| reached.extend([digest(cid)]);
        match Walk::new(self, pin.cid, &limits, stop, Leaves::Look).measure(&mut seen) {
            Err(error @ (StoreError::Io { .. } | StoreError::Stopped)) => Err(error),
            Err(error) => {
                tracing::warn!(owner = pin.owner, cid = %pin.cid, %error, "a pinned DAG is not whole");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// What a new pin of `owner` reaches is loose no longer, whoever brought it.
    pub(super) fn pinned_now(&self, owner: &str, blocks: &HashSet<Digest>) -> Result<(), StoreError> {
        let mut owners = self.inner.loose.owners();
        for (name, one) in owners.iter_mut() {
            let before = one.blocks.len();
            if before <= blocks.len() {
                let found: Vec<Digest> = one.blocks.keys().filter(|digest| blocks.contains(*digest)).copied().collect();
                found.iter().for_each(|digest| one.remove(digest));
            } else {
                blocks.iter().for_each(|digest| one.remove(digest));
            }
            if one.blocks.len() != before {
                self.inner.loose.rewrite(name, one)?;
            }
        }
        owners.entry(owner.to_owned()).or_default().pinned = None;
        Ok(())
    }

    /// What a pin reached is loose again, in the name of `owner`: other pins may still reach it.
    pub(super) fn unpinned_now(&self, owner: &str, blocks: &HashMap<Digest, u32>) -> Result<(), StoreError> {
        let mut owners = self.inner.loose.owners();
        let one = owners.entry(owner.to_owned()).or_default();
        one.pinned = None;
        for (digest, length) in blocks {
            one.add(*digest, *length);
        }
        self.inner.loose.rewrite(owner, one)
    }

    /// Refuses to fill the disk to the brim.
    fn room_on_disk(&self, bytes: u64) -> Result<(), StoreError> {
        let path: &Path = &self.inner.blocks;
        let stat = nix::sys::statvfs::statvfs(path).map_err(io::Error::from).at(path)?;
        let free = stat.blocks_available().saturating_mul(stat.fragment_size());
        if free < RESERVE.saturating_add(bytes) {
            return Err(StoreError::Full { path: path.to_owned() });
        }
        Ok(())
    }
}

fn record(digest: &Digest, length: u32) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes[..32].copy_from_slice(digest);
    bytes[32..].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn read(record: &[u8]) -> Option<(Digest, u32)> {
    let (digest, length) = record.split_first_chunk::<32>()?;
    Some((*digest, u32::from_be_bytes(length.try_into().ok()?)))
}
