//! From a file or folder on disk to blocks.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use cid::Cid;
use nix::fcntl::OFlag;

use super::error::{At, at};
use super::{Durable, Store, StoreError, parallel};
use crate::dag::{self, Block, CHUNK, Entry, Limits, Part};

impl Store {
    /// Adds a file, or a folder with all below it, and returns its root. Everything is on disk for good when it
    /// returns. The CID depends on names and bytes alone ([`dag::PROFILE`]).
    ///
    /// # Errors
    ///
    /// [`StoreError::NotAddable`] names the first symbolic link, device, pipe or socket met;
    /// [`StoreError::Changed`]; [`StoreError::BadFileName`]; [`StoreError::OverLimit`]; [`StoreError::Full`];
    /// [`StoreError::Io`]. Blocks written before the failure stay; they are good blocks that nothing refers to.
    pub fn add_path(&self, path: impl AsRef<Path>) -> Result<Cid, StoreError> {
        self.add_path_within(path, &Limits::default())
    }

    /// [`add_path`](Self::add_path) of at most `limits`: for results of somebody else's program. That program
    /// must have stopped: one that still runs can swap a folder for a link while it is read.
    ///
    /// # Errors
    ///
    /// As [`add_path`](Self::add_path).
    pub fn add_path_within(&self, path: impl AsRef<Path>, limits: &Limits) -> Result<Cid, StoreError> {
        let mut adding = Adding { store: self, limits, bytes: 0, entries: 0 };
        let (cid, _) = adding.path(path.as_ref(), 1)?;
        self.sync()?;
        Ok(cid)
    }

    /// Adds a file with these bytes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`]; [`StoreError::Io`].
    pub fn add_bytes(&self, bytes: &[u8]) -> Result<Cid, StoreError> {
        let chunks: Vec<&[u8]> = if bytes.is_empty() { vec![bytes] } else { bytes.chunks(CHUNK).collect() };
        let root = self.add_file(chunks.len(), |index, part| {
            let chunk = chunks.get(index).copied().unwrap_or_default();
            part(chunk)
        })?;
        self.sync()?;
        Ok(root.cid)
    }

    /// Adds `count` leaves, read by `chunk` on several threads, and the tree over them.
    fn add_file(
        &self,
        count: usize,
        chunk: impl Fn(usize, &dyn Fn(&[u8]) -> Result<(), StoreError>) -> Result<(), StoreError> + Sync,
    ) -> Result<Part, StoreError> {
        let leaves: Vec<OnceLock<Part>> = (0..count).map(|_| OnceLock::new()).collect();
        parallel::each(count, |index| {
            chunk(index, &|bytes| {
                let leaf = dag::leaf(bytes);
                self.write_own(&leaf.cid, bytes)?;
                leaves[index].get_or_init(|| leaf);
                Ok(())
            })
        })?;
        let leaves = leaves.into_iter().filter_map(OnceLock::into_inner).collect();
        dag::layout(leaves, &mut |block| self.write_block(&block))
    }

    fn write_block(&self, block: &Block) -> Result<(), StoreError> {
        self.write_own(&block.cid, &block.bytes)
    }

    fn write_own(&self, cid: &Cid, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(cid, bytes, Durable::AtSync).map(drop)
    }
}

struct Adding<'a> {
    store: &'a Store,
    limits: &'a Limits,
    bytes: u64,
    entries: u64,
}

impl Adding<'_> {
    /// The root of what is at `path` and the bytes of all its blocks.
    fn path(&mut self, path: &Path, depth: usize) -> Result<(Cid, u64), StoreError> {
        self.entries += 1;
        self.within(path, self.entries, self.limits.entries, "files and folders")?;
        self.within(path, depth as u64, self.limits.depth as u64, "levels of folders")?;
        let kind = fs::symlink_metadata(path).at(path)?.file_type();
        let refuse = |kind| Err(StoreError::NotAddable { path: path.to_owned(), kind });
        if kind.is_file() {
            self.file(path)
        } else if kind.is_dir() {
            self.folder(path, depth)
        } else if kind.is_symlink() {
            refuse("symbolic link")
        } else if kind.is_fifo() {
            refuse("pipe")
        } else if kind.is_socket() {
            refuse("socket")
        } else {
            refuse("device")
        }
    }

    fn folder(&mut self, path: &Path, depth: usize) -> Result<(Cid, u64), StoreError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path).at(path)? {
            let entry = entry.at(path)?;
            let bad = |why: String| StoreError::BadFileName { path: entry.path(), why };
            let name = entry.file_name().into_string().map_err(|_| bad("it is not UTF-8".to_owned()))?;
            dag::check_name(&name).map_err(|error| bad(error.to_string()))?;
            names.push(name);
            self.within(path, self.entries + names.len() as u64, self.limits.entries, "files and folders")?;
        }
        // The order of reading decides only which error comes first; the node sorts for itself.
        names.sort_unstable();
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let (cid, tsize) = self.path(&path.join(&name), depth + 1)?;
            entries.push(Entry { name, cid, tsize });
        }
        let (block, tsize) = dag::folder_node(entries)?;
        self.store.write_block(&block)?;
        Ok((block.cid, tsize))
    }

    fn file(&mut self, path: &Path) -> Result<(Cid, u64), StoreError> {
        // Not following, not blocking: between the look and the open the path may have become a link or a pipe.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).at(path)?;
        let meta = file.metadata().at(path)?;
        if !meta.is_file() {
            return Err(StoreError::Changed { path: path.to_owned() });
        }
        let length = meta.len();
        self.bytes = self.bytes.saturating_add(length);
        self.within(path, self.bytes, self.limits.bytes, "bytes")?;
        let count = usize::try_from(length.div_ceil(CHUNK as u64).max(1)).unwrap_or(usize::MAX);
        let root = self.store.add_file(count, |index, leaf| {
            let offset = index as u64 * CHUNK as u64;
            let want = (length - offset).min(CHUNK as u64) as usize;
            leaf(&read_chunk(&file, path, offset, want)?)
        })?;
        if file.metadata().at(path)?.len() != length {
            return Err(StoreError::Changed { path: path.to_owned() });
        }
        Ok((root.cid, root.tsize))
    }

    fn within(&self, path: &Path, have: u64, limit: u64, what: &'static str) -> Result<(), StoreError> {
        if have <= limit {
            return Ok(());
        }
        Err(StoreError::OverLimit { path: path.to_owned(), limit, what })
    }
}

fn read_chunk(file: &File, path: &Path, offset: u64, length: usize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => StoreError::Changed { path: path.to_owned() },
        _ => at(path, error),
    })?;
    Ok(bytes)
}
