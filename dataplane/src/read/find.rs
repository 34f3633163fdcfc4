//! From a path to what is there.

use cid::Cid;

use super::ReadError;
use crate::dag::Kind;
use crate::store::Store;

/// Links followed for one path, as Linux has it.
const MAX_HOPS: usize = 40;
/// Names walked through for one path, those of links included.
const MAX_STEPS: usize = 256;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A file.
    File {
        /// The file itself.
        cid: Cid,
        /// Its bytes.
        size: u64,
        /// Permission bits, if it says any.
        mode: Option<u32>,
    },
    /// A folder.
    Folder {
        /// The folder.
        cid: Cid,
    },
}

/// Walks from `root` along `path`. A symbolic link is followed inside the tree, where nothing is but the tree: `..` of
/// the root, and an absolute target, lead nowhere.
///
/// # Errors
///
/// [`ReadError::NotThere`]; [`ReadError::LeadsOut`]; those of the store.
pub fn find(store: &Store, root: &Cid, path: &str) -> Result<Found, ReadError> {
    let not_there = || ReadError::NotThere { path: path.to_owned() };
    let leads_out = || ReadError::LeadsOut { path: path.to_owned() };
    let mut todo: Vec<String> = path.rsplit('/').map(str::to_owned).collect();
    // Folders from the root to where we are.
    let mut way = vec![*root];
    let (mut hops, mut steps) = (0, 0);
    while let Some(name) = todo.pop() {
        steps += 1;
        if steps > MAX_STEPS {
            return Err(leads_out());
        }
        if name.is_empty() || name == "." {
            continue;
        }
        if name == ".." {
            way.pop();
            if way.is_empty() {
                return Err(leads_out());
            }
            continue;
        }
        let here = way.last().ok_or_else(leads_out)?;
        let Kind::Folder(entries) = store.node(here)?.kind else {
            return Err(not_there());
        };
        let entry = entries.into_iter().find(|entry| entry.name == name).ok_or_else(not_there)?;
        let node = if entry.cid.codec() == crate::dag::RAW { None } else { Some(store.node(&entry.cid)?) };
        let Some(Kind::Link(target)) = node.map(|node| node.kind) else {
            way.push(entry.cid);
            continue;
        };
        hops += 1;
        if hops > MAX_HOPS || target.starts_with('/') {
            return Err(leads_out());
        }
        todo.extend(target.rsplit('/').map(str::to_owned));
    }
    let cid = *way.last().ok_or_else(leads_out)?;
    let node = store.node(&cid)?;
    match (node.size(), node.kind) {
        (Some(size), _) => Ok(Found::File { cid, size, mode: node.mode }),
        (None, Kind::Folder(_)) => Ok(Found::Folder { cid }),
        // Only a root can be a link here.
        (None, _) => Err(leads_out()),
    }
}
