//! The log: entries, an RFC 6962 Merkle tree over them, and proofs. Pure: no clock, no file.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod entry;
mod merkle;
mod proof;

pub use entry::{BadEntry, Entry};
pub use merkle::{Tree, leaf_hash, node_hash, root};
pub use proof::{consistency, inclusion, verify_consistency, verify_inclusion};
