//! The bytes of one file, leaf by leaf.

use bytes::Bytes;
use cid::Cid;

use super::Pieces;
use crate::dag::{DagError, Kind};
use crate::store::{Store, StoreError};

/// A way through the leaves of a file. Keeps, of each level, what is still to come.
pub(super) struct Leaves {
    /// The next piece last.
    rest: Vec<(Cid, u64)>,
    /// Bytes before the first wanted one.
    skip: u64,
    /// Bytes still wanted.
    left: u64,
}

impl Leaves {
    pub fn new(cid: Cid, size: u64, start: u64, length: u64) -> Self {
        Self { rest: vec![(cid, size)], skip: start, left: length }
    }
}

impl Pieces for Leaves {
    fn next(&mut self, store: &Store) -> Result<Option<Bytes>, StoreError> {
        while self.left > 0 {
            let Some((cid, declared)) = self.rest.pop() else { break };
            if declared <= self.skip {
                self.skip -= declared;
                continue;
            }
            let node = store.node(&cid)?;
            match node.size() {
                None => return Err(DagError::FolderInFile { cid: cid.into() }.into()),
                Some(found) if found != declared => {
                    return Err(DagError::WrongSize { cid: cid.into(), declared, found }.into());
                }
                Some(_) => {}
            }
            match node.kind {
                Kind::Leaf(bytes) => {
                    let from = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
                    let to = bytes.len().min(from.saturating_add(usize::try_from(self.left).unwrap_or(usize::MAX)));
                    self.skip = 0;
                    self.left -= (to - from) as u64;
                    return Ok(Some(bytes.slice(from..to)));
                }
                Kind::File(parts) => self.rest.extend(parts.iter().rev().map(|part| (part.cid, part.size))),
                Kind::Folder(_) | Kind::Link(_) => {}
            }
        }
        Ok(None)
    }
}
