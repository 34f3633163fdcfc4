//! From a verified block to what it says, within the limits.

use std::collections::HashSet;

use bytes::Bytes;
use cid::Cid;
use ipld_dagpb::{PbLink, PbNode};

use super::{DAG_PB, DagError, MAX_BLOCK, MAX_LINKS, RAW, check_cid, check_name, unixfs};

/// What a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A piece of a file, or a small file.
    Leaf(Bytes),
    /// A file, or a subtree of one: its pieces in order.
    File(Vec<FilePart>),
    /// A folder, in the order of its block.
    Folder(Vec<Entry>),
}

/// A piece of a file as its parent declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The piece.
    pub cid: Cid,
    /// Bytes of file it must hold; never 0.
    pub size: u64,
}

/// One name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Checked by [`check_name`].
    pub name: String,
    /// The file or folder.
    pub cid: Cid,
    /// Bytes of all blocks below, as the folder claims; nothing may rely on it.
    pub tsize: u64,
}

impl Node {
    /// Bytes of file that this node holds or declares. `None` for a folder.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Leaf(bytes) => Some(bytes.len() as u64),
            // `decode` has checked that the sum fits.
            Self::File(parts) => Some(parts.iter().map(|part| part.size).sum()),
            Self::Folder(_) => None,
        }
    }
}

/// Reads a block that has been verified against `cid`. Takes links and data in either order.
///
/// # Errors
///
/// Any [`DagError`] but a hash mismatch: matching its CID does not make a block well formed.
pub fn decode(cid: &Cid, bytes: Bytes) -> Result<Node, DagError> {
    check_cid(cid)?;
    if bytes.len() > MAX_BLOCK {
        return Err(DagError::BlockTooLarge { cid: (*cid).into(), bytes: bytes.len() });
    }
    if cid.codec() == RAW {
        return Ok(Node::Leaf(bytes));
    }
    debug_assert_eq!(cid.codec(), DAG_PB, "check_cid lets nothing else pass");
    let malformed = |why: String| DagError::Malformed { cid: (*cid).into(), why };
    let node = PbNode::from_bytes(bytes).map_err(|error| malformed(error.to_string()))?;
    if node.links.len() > MAX_LINKS {
        return Err(DagError::TooManyLinks { cid: (*cid).into(), links: node.links.len() });
    }
    let data = node.data.ok_or_else(|| malformed("it has no UnixFS message".to_owned()))?;
    let meta = unixfs::read(&data).map_err(|why| malformed(why.to_owned()))?;
    match meta.kind {
        unixfs::KIND_FOLDER => folder(cid, node.links),
        unixfs::KIND_RAW | unixfs::KIND_FILE => file(cid, node.links, meta),
        kind => Err(DagError::UnsupportedKind { cid: (*cid).into(), kind: kind_name(kind) }),
    }
}

fn folder(cid: &Cid, links: Vec<PbLink>) -> Result<Node, DagError> {
    let mut names = HashSet::with_capacity(links.len());
    let mut entries = Vec::with_capacity(links.len());
    for link in links {
        let name = link.name.unwrap_or_default();
        check_name(&name)?;
        check_cid(&link.cid)?;
        if !names.insert(name.clone()) {
            return Err(DagError::DuplicateName { cid: (*cid).into(), name });
        }
        entries.push(Entry { name, cid: link.cid, tsize: link.size.unwrap_or(0) });
    }
    Ok(Node::Folder(entries))
}

fn file(cid: &Cid, links: Vec<PbLink>, meta: unixfs::Meta) -> Result<Node, DagError> {
    let malformed = |why: &str| DagError::Malformed { cid: (*cid).into(), why: why.to_owned() };
    let data = meta.data.unwrap_or_default();
    if links.is_empty() {
        return match meta.size {
            Some(size) if size != data.len() as u64 => {
                Err(DagError::WrongSize { cid: (*cid).into(), declared: size, found: data.len() as u64 })
            }
            _ => Ok(Node::Leaf(data)),
        };
    }
    if !data.is_empty() {
        return Err(malformed("a node of a file has both bytes and links"));
    }
    if meta.sizes.len() != links.len() {
        return Err(malformed("it does not declare one size for each link"));
    }
    // An empty piece is never written by an honest tool and would make trees that cost much and hold nothing.
    if meta.sizes.contains(&0) {
        return Err(malformed("a piece of the file is declared empty"));
    }
    let total = meta.sizes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size));
    if total.is_none() || total != meta.size {
        return Err(malformed("the sizes of the pieces do not add up to the size of the file"));
    }
    let parts = links.iter().zip(meta.sizes).map(|(link, size)| FilePart { cid: link.cid, size });
    let parts: Vec<FilePart> = parts.collect();
    parts.iter().try_for_each(|part| check_cid(&part.cid))?;
    Ok(Node::File(parts))
}

fn kind_name(kind: u64) -> &'static str {
    match kind {
        3 => "metadata node",
        4 => "symbolic link",
        5 => "sharded folder (HAMT)",
        _ => "node of unknown kind",
    }
}
