//! From chunks to a root: the balanced tree of the profile.

use cid::Cid;
use ipld_dagpb::{PbLink, PbNode};
use multihash_codetable::{Code, MultihashDigest};

use super::{CHUNK, DAG_PB, DagError, Entry, MAX_BLOCK, RAW, WIDTH, check_name, check_target, unixfs};

/// A block and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What names the bytes.
    pub cid: Cid,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A piece of a file that is already a block: a leaf or a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its root.
    pub cid: Cid,
    /// Bytes of file below it.
    pub size: u64,
    /// Bytes of all its blocks: the `Tsize` of a link to it.
    pub tsize: u64,
}

/// The leaf that holds `chunk`.
pub fn leaf(chunk: &[u8]) -> Part {
    let size = chunk.len() as u64;
    Part { cid: Cid::new_v1(RAW, Code::Sha2_256.digest(chunk)), size, tsize: size }
}

/// The CID of a file with these bytes.
pub fn cid_of(bytes: &[u8]) -> Cid {
    let leaves = if bytes.is_empty() { vec![leaf(bytes)] } else { bytes.chunks(CHUNK).map(leaf).collect() };
    let root: Result<Part, std::convert::Infallible> = layout(leaves, None, &mut |_| Ok(()));
    match root {
        Ok(root) => root.cid,
        Err(never) => match never {},
    }
}

/// Joins leaves, in the order of the file, under one root; hands every interior node to `emit`, children first.
/// One leaf is its own root, unless the file has a `mode` to carry ([`file_mode`](super::file_mode)); no leaf at all is
/// the empty file, whose one empty leaf the caller makes.
///
/// # Errors
///
/// Whatever `emit` fails with.
pub fn layout<E>(
    leaves: Vec<Part>,
    mode: Option<u32>,
    emit: &mut impl FnMut(Block) -> Result<(), E>,
) -> Result<Part, E> {
    let mut level = leaves;
    while level.len() > WIDTH {
        level = level
            .chunks(WIDTH)
            .map(|children| {
                let (block, part) = file_node(children, None);
                emit(block).map(|()| part)
            })
            .collect::<Result<_, E>>()?;
    }
    if level.len() <= 1 && mode.is_none() {
        return Ok(level.pop().unwrap_or_else(|| leaf(&[])));
    }
    // An empty piece is never linked: the empty file with a mode is a node without links.
    level.retain(|part| part.size > 0);
    let (block, part) = file_node(&level, mode);
    emit(block).map(|()| part)
}

/// The interior node over `children`, and the part it makes; only the root of a file has a mode.
pub fn file_node(children: &[Part], mode: Option<u32>) -> (Block, Part) {
    let links = children.iter().map(|part| link(part.cid, String::new(), part.tsize)).collect();
    let block = encode(links, unixfs::file(children.iter().map(|part| part.size), mode));
    let part = Part {
        cid: block.cid,
        size: children.iter().map(|part| part.size).sum(),
        tsize: block.bytes.len() as u64 + children.iter().map(|part| part.tsize).sum::<u64>(),
    };
    (block, part)
}

/// The node of a symbolic link, and its bytes.
///
/// # Errors
///
/// [`DagError::BadTarget`].
pub fn link_node(target: &str) -> Result<(Block, u64), DagError> {
    check_target(target)?;
    let block = encode(Vec::new(), unixfs::link(target));
    let tsize = block.bytes.len() as u64;
    Ok((block, tsize))
}

/// The node of a folder with `entries`, in any order, and the bytes of all its blocks. `mode` is that of
/// [`folder_mode`](super::folder_mode).
///
/// # Errors
///
/// [`DagError::BadName`]; [`DagError::FolderTooLarge`].
pub fn folder_node(entries: Vec<Entry>, mode: Option<u32>) -> Result<(Block, u64), DagError> {
    for entry in &entries {
        check_name(&entry.name)?;
    }
    let (count, below) = (entries.len(), entries.iter().map(|entry| entry.tsize).sum::<u64>());
    let links = entries.into_iter().map(|entry| link(entry.cid, entry.name, entry.tsize)).collect();
    let block = encode(links, unixfs::folder(mode));
    if block.bytes.len() > MAX_BLOCK {
        return Err(DagError::FolderTooLarge { entries: count, bytes: block.bytes.len() });
    }
    let tsize = block.bytes.len() as u64 + below;
    Ok((block, tsize))
}

/// A name is written even where it is empty: that is what the reference tools do, and so part of the CID.
fn link(cid: Cid, name: String, tsize: u64) -> PbLink {
    PbLink { cid, name: Some(name), size: Some(tsize) }
}

/// Links are sorted by the bytes of their names, keeping the order of equal ones (the parts of a file).
fn encode(links: Vec<PbLink>, data: Vec<u8>) -> Block {
    let bytes = PbNode { links, data: Some(data.into()) }.into_bytes();
    Block { cid: Cid::new_v1(DAG_PB, Code::Sha2_256.digest(&bytes)), bytes }
}
