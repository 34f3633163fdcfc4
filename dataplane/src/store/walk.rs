//! Following a DAG in the store, within limits.

use std::collections::HashSet;

use cid::Cid;

use super::{Store, StoreError};
use crate::dag::{DagError, Limits, Node, RAW};

/// What a DAG in the store amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes of all files, counted by path.
    pub bytes: u64,
    /// Files and folders, counted by path.
    pub entries: u64,
    /// Different blocks.
    pub blocks: u64,
}

impl Store {
    /// Reads and verifies the whole DAG under `root`: an answer means that it is complete and good.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] or [`StoreError::Corrupt`] name the first bad block; [`StoreError::Dag`].
    pub fn stat(&self, root: &Cid, limits: &Limits) -> Result<Stat, StoreError> {
        let mut walk = Walk::new(self, *root, limits);
        let mut blocks = Vec::new();
        let mut seen = HashSet::new();
        walk.collect(root, 1, &mut seen, &mut blocks)?;
        Ok(Stat { bytes: walk.bytes, entries: walk.entries, blocks: blocks.len() as u64 })
    }

    /// Every block of the DAG under `root` once, children before parents, so that who has the last has all.
    /// Reads and verifies every one.
    ///
    /// # Errors
    ///
    /// As [`stat`](Self::stat).
    pub fn blocks(&self, root: &Cid, limits: &Limits) -> Result<Vec<Cid>, StoreError> {
        let mut blocks = Vec::new();
        Walk::new(self, *root, limits).collect(root, 1, &mut HashSet::new(), &mut blocks)?;
        Ok(blocks)
    }
}

/// One pass over one DAG: counts against the limits by path, so that a small DAG that unfolds into a huge tree
/// is refused.
pub(super) struct Walk<'a> {
    pub store: &'a Store,
    root: Cid,
    limits: &'a Limits,
    bytes: u64,
    entries: u64,
    pieces: u64,
}

impl<'a> Walk<'a> {
    pub fn new(store: &'a Store, root: Cid, limits: &'a Limits) -> Self {
        Self { store, root, limits, bytes: 0, entries: 0, pieces: 0 }
    }

    /// Counts one file or folder.
    pub fn enter(&mut self, cid: &Cid, depth: usize) -> Result<(), DagError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(DagError::TooManyEntries { root: self.root.into(), limit: self.limits.entries });
        }
        self.level(cid, depth)
    }

    /// Counts the bytes of a file by what its root declares.
    pub fn file(&mut self, node: &Node) -> Result<(), DagError> {
        self.bytes = self.bytes.saturating_add(node.size().unwrap_or(0));
        if self.bytes > self.limits.bytes {
            return Err(DagError::TooLarge { root: self.root.into(), limit: self.limits.bytes });
        }
        Ok(())
    }

    /// Calls `visit` with every leaf below `node` and its declared size, in the order of the file. Raw leaves are
    /// not read; a leaf in DAG-PB is, to know that it is one.
    pub fn leaves(
        &mut self,
        cid: &Cid,
        node: Node,
        depth: usize,
        visit: &mut impl FnMut(&Cid, u64),
    ) -> Result<(), StoreError> {
        self.level(cid, depth)?;
        let Node::File(parts) = node else {
            return Ok(());
        };
        for part in parts {
            self.count_piece()?;
            if part.cid.codec() == RAW {
                visit(&part.cid, part.size);
                continue;
            }
            let child = self.piece(&part.cid, part.size)?;
            match child {
                Node::Leaf(_) => visit(&part.cid, part.size),
                child => self.leaves(&part.cid, child, depth + 1, visit)?,
            }
        }
        Ok(())
    }

    /// Puts every block below `cid` into `blocks`, once, children first.
    fn collect(
        &mut self,
        cid: &Cid,
        depth: usize,
        seen: &mut HashSet<Cid>,
        blocks: &mut Vec<Cid>,
    ) -> Result<(), StoreError> {
        self.enter(cid, depth)?;
        let node = self.store.node(cid)?;
        match node {
            Node::Folder(entries) => {
                for entry in entries {
                    self.collect(&entry.cid, depth + 1, seen, blocks)?;
                }
            }
            node => {
                self.file(&node)?;
                self.collect_file(node, depth, seen, blocks)?;
            }
        }
        if seen.insert(*cid) {
            blocks.push(*cid);
        }
        Ok(())
    }

    fn collect_file(
        &mut self,
        node: Node,
        depth: usize,
        seen: &mut HashSet<Cid>,
        blocks: &mut Vec<Cid>,
    ) -> Result<(), StoreError> {
        let Node::File(parts) = node else {
            return Ok(());
        };
        for part in parts {
            self.count_piece()?;
            self.level(&part.cid, depth + 1)?;
            let child = self.piece(&part.cid, part.size)?;
            self.collect_file(child, depth + 1, seen, blocks)?;
            if seen.insert(part.cid) {
                blocks.push(part.cid);
            }
        }
        Ok(())
    }

    fn piece(&self, cid: &Cid, declared: u64) -> Result<Node, StoreError> {
        let node = self.store.node(cid)?;
        match node.size() {
            None => Err(DagError::FolderInFile { cid: (*cid).into() }.into()),
            Some(found) if found != declared => Err(DagError::WrongSize { cid: (*cid).into(), declared, found }.into()),
            Some(_) => Ok(node),
        }
    }

    fn count_piece(&mut self) -> Result<(), DagError> {
        self.pieces += 1;
        if self.pieces > self.limits.pieces {
            return Err(DagError::TooManyPieces { root: self.root.into(), limit: self.limits.pieces });
        }
        Ok(())
    }

    fn level(&self, cid: &Cid, depth: usize) -> Result<(), DagError> {
        if depth > self.limits.depth {
            return Err(DagError::TooDeep { cid: (*cid).into(), limit: self.limits.depth });
        }
        Ok(())
    }
}
