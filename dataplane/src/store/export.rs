//! From blocks to a file or folder on disk.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cid::Cid;

use super::error::At;
use super::stop::Stop;
use super::walk::{Leaves, Walk};
use super::{Stat, Store, StoreError, parallel};
use crate::dag::{DagError, Entry, FILE_MODE, FOLDER_MODE, Kind, Limits, Node};

/// Entries of a folder, or pieces of a file, that are worked on at a time.
const BATCH: usize = 512;

/// How to export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportRules {
    /// How much at most, known before anything is written.
    pub limits: Limits,
    /// Everything readable by all, writable by nobody, executable where it was; else permissions as they were added.
    pub read_only: bool,
}

impl Store {
    /// Writes the file or folder `root` at `dest`, which must not exist. Every block is verified before its bytes
    /// land; `dest` appears whole, by rename, or not at all. Symbolic links are made as they are and followed by
    /// nothing here.
    ///
    /// Not synced: after a power cut export it again. A kill may leave `.NAME.part-PID-N` beside `dest`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] or [`StoreError::Corrupt`] name the block; [`StoreError::Dag`]; [`StoreError::Exists`];
    /// [`StoreError::Full`]; [`StoreError::Io`].
    pub fn export(&self, root: &Cid, dest: impl AsRef<Path>) -> Result<(), StoreError> {
        self.export_by(root, dest, &ExportRules::default(), &Stop::default()).map(drop)
    }

    /// [`export`](Self::export) of at most `limits`.
    ///
    /// # Errors
    ///
    /// As [`export`](Self::export).
    pub fn export_within(&self, root: &Cid, dest: impl AsRef<Path>, limits: &Limits) -> Result<(), StoreError> {
        let rules = ExportRules { limits: *limits, read_only: false };
        self.export_by(root, dest, &rules, &Stop::default()).map(drop)
    }

    /// [`export`](Self::export) by rules; ends within a block once `stop` says so. What it amounts to is added up,
    /// and held to the limits, before a byte is written. Returns that sum.
    ///
    /// # Errors
    ///
    /// As [`export`](Self::export), and [`StoreError::Stopped`].
    pub fn export_by(
        &self,
        root: &Cid,
        dest: impl AsRef<Path>,
        rules: &ExportRules,
        stop: &Stop,
    ) -> Result<Stat, StoreError> {
        let dest = dest.as_ref();
        refuse_existing(dest)?;
        let stat = Walk::new(self, *root, &rules.limits, stop, Leaves::Look).measure(&mut |_| {})?;
        let debris = Debris(beside(dest));
        Export { store: self, read_only: rules.read_only, stop }.whole(root, &debris.0)?;
        refuse_existing(dest)?;
        fs::rename(&debris.0, dest).at(dest)?;
        Ok(stat)
    }
}

/// One export under way.
struct Export<'a> {
    store: &'a Store,
    read_only: bool,
    stop: &'a Stop,
}

/// A folder some of whose entries are still to be written.
struct Frame {
    path: PathBuf,
    mode: Option<u32>,
    /// Written by batches, in order.
    rest: Vec<Entry>,
    /// Of the last batch: folders and files of several blocks.
    large: Vec<(String, Cid, Node)>,
}

impl Export<'_> {
    fn whole(&self, root: &Cid, path: &Path) -> Result<(), StoreError> {
        let mut stack = Vec::new();
        let node = self.store.node(root)?;
        if let Some(node) = self.small(path, node)? {
            stack.extend(self.large(root, node, path.to_owned())?);
        }
        while let Some(top) = stack.last_mut() {
            self.stop.check()?;
            if let Some((name, cid, node)) = top.large.pop() {
                let path = top.path.join(name);
                stack.extend(self.large(&cid, node, path)?);
            } else if top.rest.is_empty() {
                self.finish(&top.path, top.mode, FOLDER_MODE)?;
                stack.pop();
            } else {
                let from = top.rest.len().saturating_sub(BATCH);
                let batch = top.rest.split_off(from);
                top.large = self.batch(&top.path, &batch)?;
            }
        }
        Ok(())
    }

    /// Writes what of these entries is small, on several threads, and returns the others.
    fn batch(&self, folder: &Path, entries: &[Entry]) -> Result<Vec<(String, Cid, Node)>, StoreError> {
        let large = std::sync::Mutex::new(Vec::new());
        parallel::each(entries.len(), |index| {
            let entry = &entries[index];
            self.stop.check()?;
            let node = self.store.node(&entry.cid)?;
            if let Some(node) = self.small(&folder.join(&entry.name), node)? {
                let mut large = large.lock().unwrap_or_else(|poison| poison.into_inner());
                large.push((entry.name.clone(), entry.cid, node));
            }
            Ok::<_, StoreError>(())
        })?;
        Ok(large.into_inner().unwrap_or_else(|poison| poison.into_inner()))
    }

    /// Writes a file of one block, or a link; gives back what is neither.
    fn small(&self, path: &Path, node: Node) -> Result<Option<Node>, StoreError> {
        match &node.kind {
            Kind::Leaf(bytes) => {
                let file = File::create_new(path).at(path)?;
                file.write_all_at(bytes, 0).at(path)?;
                self.finish(path, node.mode, FILE_MODE)?;
                Ok(None)
            }
            Kind::Link(target) => std::os::unix::fs::symlink(target, path).at(path).map(|()| None),
            Kind::File(_) | Kind::Folder(_) => Ok(Some(node)),
        }
    }

    /// Makes a folder, whose entries are still to come, or writes a file of several blocks.
    fn large(&self, cid: &Cid, node: Node, path: PathBuf) -> Result<Option<Frame>, StoreError> {
        let mode = node.mode;
        if let Kind::Folder(rest) = node.kind {
            fs::create_dir(&path).at(&path)?;
            // Until it is filled it must be open to us, whatever its mode and the umask say.
            fs::set_permissions(&path, Permissions::from_mode(0o700)).at(&path)?;
            return Ok(Some(Frame { path, mode, rest, large: Vec::new() }));
        }
        let file = File::create_new(&path).at(&path)?;
        Pieces::new(self, cid, node).write(&file, &path)?;
        self.finish(&path, mode, FILE_MODE)?;
        Ok(None)
    }

    /// Sets the mode of what is whole.
    fn finish(&self, path: &Path, mode: Option<u32>, usual: u32) -> Result<(), StoreError> {
        let mode = match mode.unwrap_or(usual) {
            mode if !self.read_only => mode,
            mode if usual == FOLDER_MODE || mode & 0o111 != 0 => 0o555,
            _ => 0o444,
        };
        fs::set_permissions(path, Permissions::from_mode(mode)).at(path)
    }
}

/// The pieces of one file, in order.
struct Pieces<'a> {
    export: &'a Export<'a>,
    /// Pieces still to come, the next one last.
    rest: Vec<Piece>,
}

struct Piece {
    cid: Cid,
    offset: u64,
    size: u64,
}

impl<'a> Pieces<'a> {
    fn new(export: &'a Export<'a>, cid: &Cid, node: Node) -> Self {
        let mut pieces = Self { export, rest: Vec::new() };
        let size = node.size().unwrap_or(0);
        pieces.expand(&Piece { cid: *cid, offset: 0, size }, node);
        pieces
    }

    /// Writes them all, a batch of leaves at a time, so that memory does not grow with the file.
    fn write(&mut self, file: &File, path: &Path) -> Result<(), StoreError> {
        while !self.rest.is_empty() {
            let from = self.rest.len().saturating_sub(BATCH);
            let mut batch = self.rest.split_off(from);
            batch.reverse();
            let inner = std::sync::Mutex::new(Vec::new());
            parallel::each(batch.len(), |index| {
                let piece = &batch[index];
                self.export.stop.check()?;
                let node = self.export.store.node(&piece.cid)?;
                check(piece, &node)?;
                match node.kind {
                    Kind::Leaf(bytes) => file.write_all_at(&bytes, piece.offset).at(path),
                    _ => {
                        inner.lock().unwrap_or_else(|poison| poison.into_inner()).push((index, node));
                        Ok(())
                    }
                }
            })?;
            let inner = inner.into_inner().unwrap_or_else(|poison| poison.into_inner());
            for (index, node) in inner {
                if let Some(piece) = batch.get(index) {
                    self.expand(piece, node);
                }
            }
        }
        Ok(())
    }

    /// Puts the children of an interior node on the pile. Their order among nodes does not matter: each has its offset.
    fn expand(&mut self, piece: &Piece, node: Node) {
        let Kind::File(parts) = node.kind else { return };
        let mut offset = piece.offset;
        let first = self.rest.len();
        for part in parts {
            self.rest.push(Piece { cid: part.cid, offset, size: part.size });
            offset = offset.saturating_add(part.size);
        }
        self.rest[first..].reverse();
    }
}

/// A piece must be what its parent declares.
fn check(piece: &Piece, node: &Node) -> Result<(), DagError> {
    let cid = Box::new(piece.cid);
    match node.size() {
        None => Err(DagError::FolderInFile { cid }),
        Some(found) if found != piece.size => Err(DagError::WrongSize { cid, declared: piece.size, found }),
        Some(_) => Ok(()),
    }
}

fn refuse_existing(dest: &Path) -> Result<(), StoreError> {
    match fs::symlink_metadata(dest) {
        Ok(_) => Err(StoreError::Exists { path: dest.to_owned() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).at(dest),
    }
}

/// A name next to `dest`, so that the last rename stays on one file system.
fn beside(dest: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = dest.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    dest.with_file_name(format!(".{name}.part-{}-{number}", std::process::id()))
}

/// Removed on drop; after the rename there is nothing left to remove.
struct Debris(PathBuf);

impl Drop for Debris {
    fn drop(&mut self) {
        let _ = match fs::symlink_metadata(&self.0) {
            Ok(meta) if meta.is_dir() => {
                open_up(&self.0);
                fs::remove_dir_all(&self.0)
            }
            Ok(_) => fs::remove_file(&self.0),
            Err(_) => Ok(()),
        };
    }
}

/// Folders that nobody may write keep their entries from being removed. No deeper than the levels of a DAG may be.
fn open_up(folder: &Path) {
    let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}
