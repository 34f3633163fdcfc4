//! Files and folders as content-addressed blocks: UnixFS in DAG-PB with raw leaves.
//!
//! Pure: bytes in, bytes out, no I/O. What comes from outside is hostile until it is verified, and is
//! held to the limits of this module after that.

mod build;
mod error;
mod limits;
mod name;
mod node;
mod unixfs;

pub use build::{Block, Part, cid_of, file_node, folder_node, layout, leaf, link_node};
pub use error::DagError;
pub use limits::{FOLDER_LEVELS, Limits};
pub use name::{check_name, check_target};
pub use node::{Entry, FilePart, Kind, Node, decode};

use cid::Cid;
use multihash_codetable::{Code, MultihashDigest};

/// How a file becomes a CID: IPIP-499 `unixfs-v1-2025`, that is CIDv1, SHA-256, raw leaves, chunks of 1 MiB,
/// a balanced tree 1024 wide, hidden files, symbolic links and empty folders kept, no times.
///
/// Permission bits are kept where they are not the usual ones ([`file_mode`], [`folder_mode`]), so that the CID of a
/// tree with usual modes is that of its names and bytes alone.
///
/// One departure: a folder stays one node up to [`MAX_BLOCK`] where the profile shards it (HAMT) from
/// 256 KiB, about 4,000 names; below that the CIDs are those of any tool that follows the profile.
pub const PROFILE: &str = "unixfs-v1-2025";

/// Bytes of file in one leaf.
pub const CHUNK: usize = 1 << 20;

/// Links in one interior node of a file.
pub const WIDTH: usize = 1024;

/// Bytes in the largest block we take from anybody: the transfer limit that IPFS peers agree on.
pub const MAX_BLOCK: usize = 2 << 20;

/// Links in the widest node we read: above what fits in a block with real CIDs and names.
pub const MAX_LINKS: usize = 1 << 16;

/// Multicodec of a block that is bare bytes.
pub const RAW: u64 = 0x55;

/// Multicodec of a DAG-PB block.
pub const DAG_PB: u64 = 0x70;

/// The permission bits that are kept: read, write and execute for owner, group and others. What raises privileges
/// (set-user-id, set-group-id) and the sticky bit is not.
pub const PERMISSIONS: u32 = 0o777;

/// The mode of a file that says none.
pub const FILE_MODE: u32 = 0o644;

/// The mode of a folder that says none.
pub const FOLDER_MODE: u32 = 0o755;

/// What the node of a file with this mode says of it: nothing of the usual one.
#[must_use]
pub fn file_mode(mode: u32) -> Option<u32> {
    Some(mode & PERMISSIONS).filter(|mode| *mode != FILE_MODE)
}

/// What the node of a folder with this mode says of it: nothing of the usual one.
#[must_use]
pub fn folder_mode(mode: u32) -> Option<u32> {
    Some(mode & PERMISSIONS).filter(|mode| *mode != FOLDER_MODE)
}

const SHA2_256: u64 = 0x12;
const SHA2_256_BYTES: u8 = 32;

/// Tells whether we can hold `cid` at all: SHA-256 in full length, raw or DAG-PB.
///
/// # Errors
///
/// [`DagError::UnsupportedHash`] or [`DagError::UnsupportedCodec`].
pub fn check_cid(cid: &Cid) -> Result<(), DagError> {
    let hash = cid.hash();
    if hash.code() != SHA2_256 || hash.size() != SHA2_256_BYTES {
        return Err(DagError::UnsupportedHash { cid: (*cid).into(), code: hash.code(), bytes: hash.size() });
    }
    match cid.codec() {
        RAW | DAG_PB => Ok(()),
        codec => Err(DagError::UnsupportedCodec { cid: (*cid).into(), codec }),
    }
}

/// Checks that `bytes` are what `cid` names, and not more than [`MAX_BLOCK`].
///
/// # Errors
///
/// [`DagError::HashMismatch`] if they are other bytes; the errors of [`check_cid`]; [`DagError::BlockTooLarge`].
pub fn verify(cid: &Cid, bytes: &[u8]) -> Result<(), DagError> {
    check_cid(cid)?;
    if bytes.len() > MAX_BLOCK {
        return Err(DagError::BlockTooLarge { cid: (*cid).into(), bytes: bytes.len() });
    }
    let found = Code::Sha2_256.digest(bytes);
    if found == *cid.hash() {
        return Ok(());
    }
    Err(DagError::HashMismatch { cid: (*cid).into(), found: Cid::new_v1(cid.codec(), found).into() })
}
