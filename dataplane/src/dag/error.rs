//! What can be wrong with a block or a DAG.

use cid::Cid;

use super::{MAX_BLOCK, MAX_LINKS};

/// A block or a DAG that we do not accept. Each names the CID it was found in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DagError {
    /// The bytes are not those the CID names.
    #[error("block {cid} does not match its bytes, which hash to {found}")]
    HashMismatch {
        /// What was asked for.
        cid: Box<Cid>,
        /// The CID of what came, with the same codec.
        found: Box<Cid>,
    },
    /// Larger than any block we take.
    #[error("block {cid} has {bytes} bytes, over the limit of {MAX_BLOCK}")]
    BlockTooLarge {
        /// The block.
        cid: Box<Cid>,
        /// Its length.
        bytes: usize,
    },
    /// Not SHA-256.
    #[error(
        "{cid} uses hash 0x{code:x} of {bytes} bytes; only sha2-256 (0x12) of 32 bytes is accepted: add the data again with sha2-256"
    )]
    UnsupportedHash {
        /// The CID.
        cid: Box<Cid>,
        /// Multihash code.
        code: u64,
        /// Digest length.
        bytes: u8,
    },
    /// Neither raw nor DAG-PB.
    #[error("{cid} has codec 0x{codec:x}; only raw (0x55) and dag-pb (0x70) are files or folders")]
    UnsupportedCodec {
        /// The CID.
        cid: Box<Cid>,
        /// Multicodec.
        codec: u64,
    },
    /// A kind of UnixFS node that we do not read.
    #[error("{cid} is a UnixFS {kind}; only files, folders and symbolic links are accepted")]
    UnsupportedKind {
        /// The node.
        cid: Box<Cid>,
        /// Its kind, in words.
        kind: &'static str,
    },
    /// Bytes that match their CID and are still not a node.
    #[error("block {cid} is malformed: {why}")]
    Malformed {
        /// The block.
        cid: Box<Cid>,
        /// What is wrong.
        why: String,
    },
    /// A node too wide.
    #[error("node {cid} has {links} links, over the limit of {MAX_LINKS}")]
    TooManyLinks {
        /// The node.
        cid: Box<Cid>,
        /// How many.
        links: usize,
    },
    /// A name that could leave its folder or not be written.
    #[error("bad name {name:?}: {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A symbolic link that no system could hold.
    #[error("bad target of a symbolic link {target:?}: {why}")]
    BadTarget {
        /// The target, or its beginning.
        target: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Two entries of one folder with the same name.
    #[error("folder {cid} has the name {name:?} twice")]
    DuplicateName {
        /// The folder.
        cid: Box<Cid>,
        /// The name.
        name: String,
    },
    /// A parent that lies about how long its child is.
    #[error("{cid} holds {found} bytes of file where its parent declares {declared}")]
    WrongSize {
        /// The child.
        cid: Box<Cid>,
        /// What the parent says.
        declared: u64,
        /// What is there.
        found: u64,
    },
    /// A folder or a link where a piece of a file should be.
    #[error("{cid} is a folder or a link inside a file")]
    FolderInFile {
        /// The folder or link.
        cid: Box<Cid>,
    },
    /// Deeper than [`Limits::depth`](super::Limits).
    #[error("{cid} lies deeper than {limit} levels")]
    TooDeep {
        /// The first node beyond.
        cid: Box<Cid>,
        /// The limit.
        limit: usize,
    },
    /// More than [`Limits::bytes`](super::Limits).
    #[error("{root} holds more than {limit} bytes of files")]
    TooLarge {
        /// The root.
        root: Box<Cid>,
        /// The limit.
        limit: u64,
    },
    /// More than [`Limits::entries`](super::Limits).
    #[error("{root} holds more than {limit} files and folders")]
    TooManyEntries {
        /// The root.
        root: Box<Cid>,
        /// The limit.
        limit: u64,
    },
    /// More than [`Limits::pieces`](super::Limits).
    #[error("{root} is cut into more than {limit} pieces: add the data again with larger chunks")]
    TooManyPieces {
        /// The root.
        root: Box<Cid>,
        /// The limit.
        limit: u64,
    },
    /// Blocks that are mostly padding: reading them would cost far more than what they hold.
    #[error("{root} needs {read} bytes of blocks read for {bytes} bytes of files: it is padded; add the data again")]
    Padded {
        /// The root.
        root: Box<Cid>,
        /// Bytes of blocks, counted by path.
        read: u64,
        /// Bytes of files, counted by path.
        bytes: u64,
    },
    /// More than [`Limits::stored`](super::Limits).
    #[error("the blocks of {root} have more than {limit} bytes")]
    TooMuchStored {
        /// The root.
        root: Box<Cid>,
        /// The limit.
        limit: u64,
    },
    /// A folder whose node would not fit in a block.
    #[error(
        "a folder with {entries} entries needs a block of {bytes} bytes, over the limit of {MAX_BLOCK}: spread the files over subfolders"
    )]
    FolderTooLarge {
        /// Names in it.
        entries: usize,
        /// Bytes its node would have.
        bytes: usize,
    },
}
