//! From a verified block to what it says, within the limits.

use std::collections::HashSet;

use bytes::Bytes;
use cid::Cid;
use ipld_dagpb::{PbLink, PbNode};

use super::{DAG_PB, DagError, MAX_BLOCK, MAX_LINKS, RAW, check_cid, check_name, check_target, unixfs};

/// A block, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, if the block says any. Those of a piece inside a file mean nothing.
    pub mode: Option<u32>,
}

/// What a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A piece of a file, or a small file.
    Leaf(Bytes),
    /// A file, or a subtree of one: its pieces in order.
    File(Vec<FilePart>),
    /// A folder, in the order of its block.
    Folder(Vec<Entry>),
    /// A symbolic link: its target, checked by [`check_target`] and followed by nobody.
    Link(String),
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
    /// Bytes of file that this node holds or declares. `None` for a folder or a link.
    pub fn size(&self) -> Option<u64> {
        match &self.kind {
            Kind::Leaf(bytes) => Some(bytes.len() as u64),
            // `decode` has checked that the sum fits.
            Kind::File(parts) => Some(parts.iter().map(|part| part.size).sum()),
            Kind::Folder(_) | Kind::Link(_) => None,
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
        return Ok(Node { kind: Kind::Leaf(bytes), mode: None });
    }
    debug_assert_eq!(cid.codec(), DAG_PB, "check_cid lets nothing else pass");
    let malformed = |why: String| DagError::Malformed { cid: (*cid).into(), why };
    let node = PbNode::from_bytes(bytes).map_err(|error| malformed(error.to_string()))?;
    if node.links.len() > MAX_LINKS {
        return Err(DagError::TooManyLinks { cid: (*cid).into(), links: node.links.len() });
    }
    let data = node.data.ok_or_else(|| malformed("it has no UnixFS message".to_owned()))?;
    let meta = unixfs::read(&data).map_err(|why| malformed(why.to_owned()))?;
    let mode = meta.mode;
    let kind = match meta.kind {
        unixfs::KIND_FOLDER => folder(cid, node.links)?,
        unixfs::KIND_RAW | unixfs::KIND_FILE => file(cid, node.links, meta)?,
        unixfs::KIND_LINK => link(cid, &node.links, meta)?,
        kind => return Err(DagError::UnsupportedKind { cid: (*cid).into(), kind: kind_name(kind) }),
    };
    Ok(Node { kind, mode })
}

fn folder(cid: &Cid, links: Vec<PbLink>) -> Result<Kind, DagError> {
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
    Ok(Kind::Folder(entries))
}

fn link(cid: &Cid, links: &[PbLink], meta: unixfs::Meta) -> Result<Kind, DagError> {
    let malformed = |why: &str| DagError::Malformed { cid: (*cid).into(), why: why.to_owned() };
    if !links.is_empty() {
        return Err(malformed("a symbolic link has no children"));
    }
    let target = String::from_utf8(meta.data.unwrap_or_default().into())
        .map_err(|_| malformed("the target of the symbolic link is not UTF-8"))?;
    check_target(&target)?;
    Ok(Kind::Link(target))
}

fn file(cid: &Cid, links: Vec<PbLink>, meta: unixfs::Meta) -> Result<Kind, DagError> {
    let malformed = |why: &str| DagError::Malformed { cid: (*cid).into(), why: why.to_owned() };
    let data = meta.data.unwrap_or_default();
    if links.is_empty() {
        return match meta.size {
            Some(size) if size != data.len() as u64 => {
                Err(DagError::WrongSize { cid: (*cid).into(), declared: size, found: data.len() as u64 })
            }
            _ => Ok(Kind::Leaf(data)),
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
    Ok(Kind::File(parts))
}

fn kind_name(kind: u64) -> &'static str {
    match kind {
        3 => "metadata node",
        5 => "sharded folder (HAMT)",
        _ => "node of unknown kind",
    }
}
