//! Following a DAG in the store, within limits: each different block is read and hashed once, whatever it costs to lay
//! the DAG out, and what is counted by path is counted by arithmetic.

use std::collections::HashMap;

use cid::Cid;

use super::stop::Stop;
use super::{Store, StoreError};
use crate::dag::{DagError, Kind, Limits, Node, RAW};

/// Bytes of blocks that may be read for each byte of file, each entry, and in all, before a DAG counts as padded: an
/// honest one needs a few per cent more than its files, a few hundred bytes a name, 4 KiB a link.
const READ_PER_BYTE: u64 = 2;
const READ_PER_ENTRY: u64 = 8 << 10;
const READ_FREE: u64 = 64 << 20;

/// What a DAG in the store amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes of all files, counted by path.
    pub bytes: u64,
    /// Files, folders and links, counted by path.
    pub entries: u64,
    /// Different blocks.
    pub blocks: u64,
    /// Their bytes: what the DAG takes in a store.
    pub stored: u64,
}

impl Store {
    /// Reads and verifies the whole DAG under `root`: an answer means that it is complete and good.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] or [`StoreError::Corrupt`] name the first bad block; [`StoreError::Dag`].
    pub fn stat(&self, root: &Cid, limits: &Limits) -> Result<Stat, StoreError> {
        self.stat_until(root, limits, &Stop::default())
    }

    /// [`stat`](Self::stat) that ends within a block once `stop` says so.
    ///
    /// # Errors
    ///
    /// As [`stat`](Self::stat), and [`StoreError::Stopped`].
    pub fn stat_until(&self, root: &Cid, limits: &Limits, stop: &Stop) -> Result<Stat, StoreError> {
        Walk::new(self, *root, limits, stop, Leaves::Verify).measure(&mut |_| {})
    }

    /// Every block of the DAG under `root` once, children before parents, so that who has the last has all.
    /// Reads and verifies every one.
    ///
    /// # Errors
    ///
    /// As [`stat`](Self::stat).
    pub fn blocks(&self, root: &Cid, limits: &Limits) -> Result<Vec<Cid>, StoreError> {
        let mut blocks = Vec::new();
        let stop = Stop::default();
        Walk::new(self, *root, limits, &stop, Leaves::Verify).measure(&mut |cid| blocks.push(*cid))?;
        Ok(blocks)
    }
}

/// What to do with blocks of bare bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    /// Read and verify them.
    Verify,
    /// Look how long their files are; whoever uses the bytes verifies them.
    Look,
}

/// One pass over one DAG.
pub(super) struct Walk<'a> {
    store: &'a Store,
    root: Cid,
    limits: &'a Limits,
    stop: &'a Stop,
    leaves: Leaves,
    /// Lengths of blocks of bare bytes that were seen.
    raw: HashMap<Digest, u64>,
    /// Sums of the other blocks that were finished.
    done: HashMap<Digest, Sum>,
    stored: u64,
}

type Digest = [u8; 32];

/// What lies at and below a block, by path.
#[derive(Clone, Copy, Default)]
struct Sum {
    /// Bytes of files.
    bytes: u64,
    /// Files, folders and links below it.
    entries: u64,
    /// Pieces of files below it.
    pieces: u64,
    /// Bytes of blocks, its own included.
    read: u64,
    /// Levels, its own included.
    height: usize,
    /// Whether it is a file or a piece of one.
    is_file: bool,
}

/// A block some of whose children are still to come.
struct Frame {
    cid: Cid,
    children: Vec<(Cid, Option<u64>)>,
    next: usize,
    sum: Sum,
}

impl<'a> Walk<'a> {
    pub fn new(store: &'a Store, root: Cid, limits: &'a Limits, stop: &'a Stop, leaves: Leaves) -> Self {
        Self { store, root, limits, stop, leaves, raw: HashMap::new(), done: HashMap::new(), stored: 0 }
    }

    /// Walks it all; `seen` is told of each different block once, children first.
    pub fn measure(&mut self, seen: &mut dyn FnMut(&Cid)) -> Result<Stat, StoreError> {
        let mut stack: Vec<Frame> = self.enter(&self.root.clone(), seen)?.into_iter().collect();
        while let Some(top) = stack.last_mut() {
            let Some((child, declared)) = top.children.get(top.next).copied() else {
                self.done.insert(digest(&top.cid), top.sum);
                seen(&top.cid);
                stack.pop();
                continue;
            };
            if let Some(sum) = self.known(&child) {
                top.next += 1;
                join(&mut top.sum, &child, declared, sum)?;
                let (height, sum) = (stack.len() + sum.height, stack.last().map(|top| top.sum));
                self.check(&child, height, &sum.unwrap_or_default())?;
            } else {
                self.check(&child, stack.len() + 1, &Sum::default())?;
                stack.extend(self.enter(&child, seen)?);
            }
        }
        let sum = self.known(&self.root).unwrap_or_default();
        let sum = Sum { entries: sum.entries.saturating_add(1), ..sum };
        self.check(&self.root, sum.height, &sum)?;
        let allowed =
            sum.bytes.saturating_mul(READ_PER_BYTE).saturating_add(sum.entries.saturating_mul(READ_PER_ENTRY));
        if sum.read > allowed.saturating_add(READ_FREE) {
            return Err(DagError::Padded { root: self.root.into(), read: sum.read, bytes: sum.bytes }.into());
        }
        let blocks = (self.raw.len() + self.done.len()) as u64;
        Ok(Stat { bytes: sum.bytes, entries: sum.entries, blocks, stored: self.stored })
    }

    /// Reads a block for the first time. A frame if it has children; else it is known from here on.
    fn enter(&mut self, cid: &Cid, seen: &mut dyn FnMut(&Cid)) -> Result<Option<Frame>, StoreError> {
        self.stop.check()?;
        if cid.codec() == RAW {
            let bytes = match self.leaves {
                Leaves::Verify => self.store.get(cid)?.len() as u64,
                Leaves::Look => self.store.length(cid)?,
            };
            self.raw.insert(digest(cid), bytes);
            self.store_more(bytes)?;
            seen(cid);
            return Ok(None);
        }
        let bytes = self.store.get(cid)?;
        let own = Sum { read: bytes.len() as u64, height: 1, ..Sum::default() };
        self.store_more(own.read)?;
        let node: Node = crate::dag::decode(cid, bytes)?;
        let size = node.size().unwrap_or(0);
        let (children, sum): (Vec<_>, _) = match node.kind {
            Kind::Folder(entries) => (entries.iter().map(|entry| (entry.cid, None)).collect(), own),
            Kind::File(parts) => {
                let parts = parts.iter().map(|part| (part.cid, Some(part.size)));
                (parts.collect(), Sum { is_file: true, ..own })
            }
            Kind::Leaf(_) => (Vec::new(), Sum { bytes: size, is_file: true, ..own }),
            Kind::Link(_) => (Vec::new(), own),
        };
        Ok(Some(Frame { cid: *cid, children, next: 0, sum }))
    }

    fn known(&self, cid: &Cid) -> Option<Sum> {
        if cid.codec() != RAW {
            return self.done.get(&digest(cid)).copied();
        }
        let bytes = *self.raw.get(&digest(cid))?;
        Some(Sum { bytes, read: bytes, height: 1, is_file: true, ..Sum::default() })
    }

    fn store_more(&mut self, bytes: u64) -> Result<(), DagError> {
        self.stored = self.stored.saturating_add(bytes);
        if self.stored > self.limits.stored {
            return Err(DagError::TooMuchStored { root: self.root.into(), limit: self.limits.stored });
        }
        Ok(())
    }

    /// Holds a sum against the limits, and the level of `cid` too.
    fn check(&self, cid: &Cid, level: usize, sum: &Sum) -> Result<(), DagError> {
        let (root, limits) = (Box::new(self.root), self.limits);
        if level > limits.depth {
            Err(DagError::TooDeep { cid: (*cid).into(), limit: limits.depth })
        } else if sum.bytes > limits.bytes {
            Err(DagError::TooLarge { root, limit: limits.bytes })
        } else if sum.entries > limits.entries {
            Err(DagError::TooManyEntries { root, limit: limits.entries })
        } else if sum.pieces > limits.pieces {
            Err(DagError::TooManyPieces { root, limit: limits.pieces })
        } else {
            Ok(())
        }
    }
}

/// Adds a finished child to its parent; a piece of a file must be what the parent declares.
fn join(parent: &mut Sum, cid: &Cid, declared: Option<u64>, child: Sum) -> Result<(), DagError> {
    match declared {
        None => parent.entries = parent.entries.saturating_add(1),
        Some(_) if !child.is_file => return Err(DagError::FolderInFile { cid: (*cid).into() }),
        Some(declared) if declared != child.bytes => {
            return Err(DagError::WrongSize { cid: (*cid).into(), declared, found: child.bytes });
        }
        Some(_) => parent.pieces = parent.pieces.saturating_add(1),
    }
    parent.bytes = parent.bytes.saturating_add(child.bytes);
    parent.entries = parent.entries.saturating_add(child.entries);
    parent.pieces = parent.pieces.saturating_add(child.pieces);
    parent.read = parent.read.saturating_add(child.read);
    parent.height = parent.height.max(child.height + 1);
    Ok(())
}

/// What names a block: everything here is SHA-256, and bare bytes are kept apart from nodes.
pub(super) fn digest(cid: &Cid) -> Digest {
    cid.hash().digest().try_into().unwrap_or_default()
}
