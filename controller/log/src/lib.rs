//! The log: entries, an RFC 6962 Merkle tree over them, and proofs; tiles and checkpoints to publish them. Pure:
//! no clock, no file.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod bundle;
mod checkpoint;
mod entry;
mod levels;
mod merkle;
mod proof;
mod range;
mod tile;

pub use bundle::{is_long, long_entry, long_entry_of, read_effects, read_entries, write_entries};
pub use checkpoint::{BadCheckpoint, Checkpoint};
pub use entry::{BadEntry, Entry};
pub use levels::{Levels, consistency_from, inclusion_from, root_from};
pub use merkle::{Tree, leaf_hash, node_hash, root};
pub use proof::{consistency, inclusion, verify_consistency, verify_inclusion};
pub use range::{beside, root_before, root_with};
pub use tile::{BadTile, Kind, Tile, WIDTH, read_hashes, write_hashes};
