//! From a file or folder on disk to blocks.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cid::Cid;

use super::added::{AddRules, Added, Faults};
use super::error::{At, at};
use super::tree::Tree;
use super::{Durable, Store, StoreError, parallel};
use crate::beneath::{Folder, Kind};
use crate::dag::{self, Block, CHUNK, Part};

impl Store {
    /// Adds a file, or a folder with all below it, and returns its root: [`add`](Self::add) by [`AddRules::strict`].
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn add_path(&self, path: impl AsRef<Path>) -> Result<Cid, StoreError> {
        self.add(path, &AddRules::strict()).map(|added| added.cid)
    }

    /// Adds a file, or a folder with all below it. Everything is on disk for good when it returns. The CID depends on
    /// names, bytes, links and permissions alone ([`dag::PROFILE`]).
    ///
    /// Nothing outside of `path` is read, whatever somebody does to the folder meanwhile: see
    /// [`beneath`](crate::beneath). The last part of `path` itself is not followed if it is a link.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotAddable`] names what cannot be kept, unless the rules say to leave it out; the root itself
    /// cannot be left out. [`StoreError::OverLimit`] under strict rules; [`StoreError::Full`]; [`StoreError::Io`].
    /// Blocks written before the failure stay; they are good blocks that nothing refers to.
    pub fn add(&self, path: impl AsRef<Path>, rules: &AddRules) -> Result<Added, StoreError> {
        self.add_watched(path, rules, &mut |_| {})
    }

    /// [`add`](Self::add) that tells `watch` after every file how far it is.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn add_watched(
        &self,
        path: impl AsRef<Path>,
        rules: &AddRules,
        watch: &mut dyn FnMut(&Added),
    ) -> Result<Added, StoreError> {
        let path = path.as_ref();
        let mut tree = Tree::new(self, rules, watch);
        let root = match Folder::open(path) {
            Ok(folder) => tree.folder(folder, path)?,
            Err(error) if is_no_folder(&error) => tree.lone(path)?,
            Err(error) => return Err(at(path, error)),
        };
        let mut added = tree.into_added(root);
        if rules.faults == Faults::Refuse && added.skipped_total > 0 {
            let (faults, total) = (std::mem::take(&mut added.skipped), added.skipped_total);
            return Err(StoreError::NotAddable { path: path.to_owned(), faults, total });
        }
        self.sync()?;
        Ok(added)
    }

    /// Adds a file with these bytes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`]; [`StoreError::Io`].
    pub fn add_bytes(&self, bytes: &[u8]) -> Result<Cid, StoreError> {
        let chunks: Vec<&[u8]> = if bytes.is_empty() { vec![bytes] } else { bytes.chunks(CHUNK).collect() };
        let root = self.add_file(chunks.len(), None, |index, part: &dyn Fn(&[u8]) -> Result<(), StoreError>| {
            let chunk = chunks.get(index).copied().unwrap_or_default();
            part(chunk)
        })?;
        self.sync()?;
        Ok(root.cid)
    }

    /// Adds `count` leaves, read by `chunk` on several threads, and the tree over them.
    pub(super) fn add_file<E: From<StoreError> + Send>(
        &self,
        count: usize,
        mode: Option<u32>,
        chunk: impl Fn(usize, &dyn Fn(&[u8]) -> Result<(), E>) -> Result<(), E> + Sync,
    ) -> Result<Part, E> {
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
        dag::layout(leaves, mode, &mut |block| Ok(self.write_block(&block)?))
    }

    pub(super) fn write_block(&self, block: &Block) -> Result<(), StoreError> {
        self.write_own(&block.cid, &block.bytes)
    }

    fn write_own(&self, cid: &Cid, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(cid, bytes, Durable::AtSync).map(drop)
    }
}

/// What opening a path as a folder answers where there is something else.
fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::ENOTDIR | nix::libc::ELOOP))
}

/// The file at `path`, opened from its folder, so that the last part is not followed; or what it is instead.
pub(super) fn open_lone(path: &Path) -> Result<Result<(File, u64, u32), Kind>, StoreError> {
    let name = path.file_name().unwrap_or_else(|| OsStr::new(""));
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    // The folders above are the caller's to trust, links among them too.
    let above = parent.canonicalize().and_then(|parent| Folder::open(&parent)).at(&parent)?;
    let look = above.look(name).at(path)?;
    if look.kind != Kind::File {
        return Ok(Err(look.kind));
    }
    let (file, look) = above.file(name).at(path)?;
    Ok(Ok((file, look.bytes, look.mode)))
}
