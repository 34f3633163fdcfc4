//! What is left to get, and whether what came fits what was said of it.

use std::collections::HashSet;

use cid::Cid;

use super::{FetchError, Fetched, Progress};
use crate::dag::{DagError, FilePart, Kind, Limits, Node};

/// Bytes of a group.
const GROUP_BYTES: u64 = 1 << 20;
/// What a file or folder counts whose size is not known yet.
const UNKNOWN_BYTES: u64 = 8 << 10;

/// A block to get, and what its parent says of it.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub cid: Cid,
    /// Bytes of file, for a piece of one; `None` for a whole file or folder.
    pub piece: Option<u64>,
    depth: usize,
}

pub(super) struct Got {
    pub want: Want,
    pub node: Node,
    pub fetched: Option<u64>,
}

/// The state of one fetch. Depth first, so that little waits.
pub(super) struct Run<'a> {
    root: Cid,
    limits: &'a Limits,
    todo: Vec<Want>,
    /// With the size, so that two parents which declare different ones are both held to theirs.
    seen: HashSet<(Cid, Option<u64>)>,
    pub progress: Progress,
    pub fetched: Fetched,
}

impl<'a> Run<'a> {
    pub fn new(limits: &'a Limits, root: Cid) -> Self {
        Self {
            root,
            limits,
            todo: vec![Want { cid: root, piece: None, depth: 1 }],
            seen: HashSet::new(),
            progress: Progress::default(),
            fetched: Fetched::default(),
        }
    }

    fn next(&mut self) -> Option<Want> {
        while let Some(want) = self.todo.pop() {
            if self.seen.insert((want.cid, want.piece)) {
                return Some(want);
            }
            self.progress.done_bytes = self.progress.done_bytes.saturating_add(want.piece.unwrap_or(0));
        }
        None
    }

    /// Wants that are worth one message: until they hold a mebibyte, as far as is known.
    pub fn group(&mut self) -> Vec<Want> {
        let (mut group, mut bytes) = (Vec::new(), 0);
        while bytes < GROUP_BYTES {
            let Some(want) = self.next() else { break };
            bytes += want.piece.unwrap_or(UNKNOWN_BYTES);
            group.push(want);
        }
        group
    }

    pub fn take(&mut self, got: Got) -> Result<(), FetchError> {
        let Got { want, node, fetched } = got;
        self.progress.blocks += 1;
        if let Some(bytes) = fetched {
            self.fetched.fetched_blocks += 1;
            self.fetched.fetched_bytes += bytes;
        }
        self.check(&want, &node)?;
        match node.kind {
            Kind::Leaf(bytes) => self.progress.done_bytes += bytes.len() as u64,
            Kind::Link(_) => {}
            Kind::File(parts) => {
                self.descend(want, parts.iter().map(|FilePart { cid, size }| (*cid, Some(*size))).rev())?;
            }
            Kind::Folder(entries) => self.descend(want, entries.iter().map(|entry| (entry.cid, None)).rev())?,
        }
        Ok(())
    }

    fn check(&mut self, want: &Want, node: &Node) -> Result<(), DagError> {
        match (want.piece, node.size()) {
            (Some(_), None) => {
                return Err(DagError::FolderInFile { cid: want.cid.into() });
            }
            (Some(declared), Some(found)) if declared != found => {
                return Err(DagError::WrongSize { cid: want.cid.into(), declared, found });
            }
            (Some(_), Some(_)) => {}
            (None, size) => {
                self.progress.known_bytes = self.progress.known_bytes.saturating_add(size.unwrap_or(0));
            }
        }
        if self.fetched.fetched_bytes > self.limits.stored {
            return Err(DagError::TooMuchStored { root: self.root.into(), limit: self.limits.stored });
        }
        if self.progress.known_bytes > self.limits.bytes {
            return Err(DagError::TooLarge { root: self.root.into(), limit: self.limits.bytes });
        }
        let most = self.limits.pieces.saturating_add(self.limits.entries);
        if self.progress.blocks > most {
            return Err(DagError::TooManyPieces { root: self.root.into(), limit: most });
        }
        Ok(())
    }

    fn descend(&mut self, want: Want, children: impl Iterator<Item = (Cid, Option<u64>)>) -> Result<(), DagError> {
        let depth = want.depth + 1;
        for (cid, piece) in children {
            if depth > self.limits.depth {
                return Err(DagError::TooDeep { cid: cid.into(), limit: self.limits.depth });
            }
            self.todo.push(Want { cid, piece, depth });
        }
        Ok(())
    }
}
