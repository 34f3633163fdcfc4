//! From blocks to a file or folder on disk.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cid::Cid;

use super::error::At;
use super::walk::Walk;
use super::{Store, StoreError, parallel};
use crate::dag::{DagError, Limits, Node};

impl Store {
    /// Writes the file or folder `root` at `dest`, which must not exist. Every block is verified before its bytes
    /// land; `dest` appears whole, by rename, or not at all.
    ///
    /// Not synced: after a power cut export it again. A kill may leave `.NAME.part-PID-N` beside `dest`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] or [`StoreError::Corrupt`] name the block; [`StoreError::Dag`]; [`StoreError::Exists`];
    /// [`StoreError::Full`]; [`StoreError::Io`].
    pub fn export(&self, root: &Cid, dest: impl AsRef<Path>) -> Result<(), StoreError> {
        self.export_within(root, dest, &Limits::default())
    }

    /// [`export`](Self::export) of at most `limits`.
    ///
    /// # Errors
    ///
    /// As [`export`](Self::export).
    pub fn export_within(&self, root: &Cid, dest: impl AsRef<Path>, limits: &Limits) -> Result<(), StoreError> {
        let dest = dest.as_ref();
        refuse_existing(dest)?;
        let debris = Debris(beside(dest));
        let mut plan = Plan::default();
        plan.entry(&mut Walk::new(self, *root, limits), root, &debris.0, 1)?;
        plan.write(self)?;
        refuse_existing(dest)?;
        fs::rename(&debris.0, dest).at(dest)
    }
}

/// What to write; made, and held to the limits, before any byte of a file is.
#[derive(Default)]
struct Plan {
    files: Vec<PathBuf>,
    pieces: Vec<Piece>,
}

struct Piece {
    file: usize,
    cid: Cid,
    offset: u64,
    /// What the parent declares; `None` for a file of one block in a folder.
    size: Option<u64>,
}

impl Plan {
    fn entry(&mut self, walk: &mut Walk<'_>, cid: &Cid, path: &Path, depth: usize) -> Result<(), StoreError> {
        walk.enter(cid, depth)?;
        match walk.store.node(cid)? {
            Node::Folder(entries) => {
                fs::create_dir(path).at(path)?;
                for entry in entries {
                    self.entry(walk, &entry.cid, &path.join(&entry.name), depth + 1)?;
                }
            }
            node => {
                walk.file(&node)?;
                self.files.push(path.to_owned());
                let (file, pieces) = (self.files.len() - 1, &mut self.pieces);
                match node {
                    Node::File(_) => {
                        let mut offset = 0;
                        walk.leaves(cid, node, depth, &mut |cid, size| {
                            pieces.push(Piece { file, cid: *cid, offset, size: Some(size) });
                            offset += size;
                        })?;
                    }
                    _ => pieces.push(Piece { file, cid: *cid, offset: 0, size: None }),
                }
            }
        }
        Ok(())
    }

    fn write(&self, store: &Store) -> Result<(), StoreError> {
        // Pieces of one file are neighbours; each run of them is one job, so that few files are open at a time.
        for run in self.pieces.chunk_by(|a, b| a.file == b.file && b.offset > 0).collect::<Vec<_>>().chunks(1024) {
            let (long, short): (Vec<&[Piece]>, Vec<&[Piece]>) = run.iter().copied().partition(|run| run.len() > 1);
            parallel::each(short.len(), |index| self.write_run(store, short[index], false))?;
            long.iter().try_for_each(|run| self.write_run(store, run, true))?;
        }
        Ok(())
    }

    fn write_run(&self, store: &Store, run: &[Piece], threads: bool) -> Result<(), StoreError> {
        let Some(first) = run.first() else {
            return Ok(());
        };
        let path = &self.files[first.file];
        let file = File::create_new(path).at(path)?;
        let write = |index: usize| write_piece(store, &file, path, &run[index]);
        if threads { parallel::each(run.len(), write) } else { (0..run.len()).try_for_each(write) }
    }
}

fn write_piece(store: &Store, file: &File, path: &Path, piece: &Piece) -> Result<(), StoreError> {
    // The plan saw a leaf here, and a CID does not change its mind.
    let Node::Leaf(bytes) = store.node(&piece.cid)? else {
        return Err(StoreError::Corrupt { cid: piece.cid.into(), path: path.to_owned() });
    };
    let found = bytes.len() as u64;
    match piece.size {
        Some(declared) if declared != found => {
            Err(DagError::WrongSize { cid: piece.cid.into(), declared, found }.into())
        }
        _ => file.write_all_at(&bytes, piece.offset).at(path),
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
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(&self.0),
            Ok(_) => fs::remove_file(&self.0),
            Err(_) => Ok(()),
        };
    }
}
