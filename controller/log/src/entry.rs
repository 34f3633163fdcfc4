//! One entry: an input with its place, time and fence, and the root of what it did.

use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::agent::Fence;
use selion_api::{Hash32, TimeMs};

use crate::merkle::leaf_hash;

/// A leaf of the log. Its canonical bytes are what the tree is built over; they never change.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Entry {
    /// Version of the rules under which it was applied.
    pub rules: u16,
    /// Its number; the first is 0.
    pub seq: u64,
    /// Under which fence it was entered.
    pub fence: Fence,
    /// `max(previous, clock)` at the controller.
    pub at_ms: TimeMs,
    /// Canonical bytes of the input.
    pub input: Vec<u8>,
    /// RFC 6962 root over the leaves of its effects.
    pub effects_root: Hash32,
}

/// Bytes that are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// They do not decode, or something is left over.
    #[error("the bytes do not decode as an entry")]
    Malformed,
    /// They decode, but another encoding of the same entry is the canonical one.
    #[error("the entry is not in its canonical encoding")]
    NotCanonical,
}

impl Entry {
    /// Canonical bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        selion_api::commit::canonical(self)
    }

    /// The entry of these bytes.
    ///
    /// # Errors
    ///
    /// [`BadEntry`] unless the bytes are exactly the canonical encoding of one entry.
    pub fn read(bytes: &[u8]) -> Result<Self, BadEntry> {
        let entry: Self = borsh::from_slice(bytes).map_err(|_| BadEntry::Malformed)?;
        if entry.bytes() == bytes { Ok(entry) } else { Err(BadEntry::NotCanonical) }
    }

    /// Hash of its leaf.
    #[must_use]
    pub fn leaf(&self) -> Hash32 {
        leaf_hash(&self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_of_an_entry_never_changes() {
        let entry = Entry {
            rules: 1,
            seq: 2,
            fence: Fence { epoch: 3, term: 4 },
            at_ms: TimeMs(5),
            input: vec![6, 7],
            effects_root: Hash32([8; 32]),
        };
        let golden = concat!(
            "0100",
            "0200000000000000",
            "03000000",
            "0400000000000000",
            "0500000000000000",
            "02000000",
            "0607",
            "0808080808080808080808080808080808080808080808080808080808080808",
        );
        assert_eq!(hex::encode(entry.bytes()), golden);
        assert_eq!(Entry::read(&entry.bytes()), Ok(entry));
    }

    #[test]
    fn a_byte_too_many_or_too_few_is_no_entry() {
        let entry = Entry {
            rules: 1,
            seq: 0,
            fence: Fence::default(),
            at_ms: TimeMs(0),
            input: vec![],
            effects_root: Hash32::ZERO,
        };
        let mut bytes = entry.bytes();
        bytes.push(0);
        assert_eq!(Entry::read(&bytes), Err(BadEntry::Malformed));
        bytes.truncate(bytes.len() - 2);
        assert_eq!(Entry::read(&bytes), Err(BadEntry::Malformed));
    }
}
