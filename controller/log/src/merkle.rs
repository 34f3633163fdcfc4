//! Hashing as in RFC 6962 §2.1: SHA-256, 0x00 before a leaf, 0x01 before a node, split at the largest power of two.

use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::Hash32;
use sha2::{Digest, Sha256};

/// `SHA-256(0x00, leaf)`.
#[must_use]
pub fn leaf_hash(leaf: &[u8]) -> Hash32 {
    let mut hasher = Sha256::new();
    hasher.update([0]);
    hasher.update(leaf);
    Hash32(hasher.finalize().into())
}

/// `SHA-256(0x01, left, right)`.
#[must_use]
pub fn node_hash(left: &Hash32, right: &Hash32) -> Hash32 {
    let mut hasher = Sha256::new();
    hasher.update([1]);
    hasher.update(left.0);
    hasher.update(right.0);
    Hash32(hasher.finalize().into())
}

/// Root over leaf hashes; the root of nothing is the hash of nothing.
#[must_use]
pub fn root(leaves: &[Hash32]) -> Hash32 {
    let mut tree = Tree::default();
    for leaf in leaves {
        tree.push(*leaf);
    }
    tree.root()
}

/// A growing tree that keeps the roots of its complete subtrees only: O(log n) memory, O(1) amortised a leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Tree {
    size: u64,
    /// Roots of complete subtrees, largest first: one for each set bit of `size`.
    peaks: Vec<Hash32>,
}

impl Tree {
    /// Leaves so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds the hash of a leaf.
    pub fn push(&mut self, leaf: Hash32) {
        self.push_noting(leaf, |_, _| {});
    }

    /// As [`Tree::push`]; tells height and root of every subtree that the leaf completes, the leaf itself left out.
    pub fn push_noting(&mut self, leaf: Hash32, mut note: impl FnMut(u32, Hash32)) {
        let mut carry = leaf;
        // Two complete subtrees of one size become one: as many as there are low set bits.
        for height in 1..=self.size.trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                carry = node_hash(&left, &carry);
            }
            note(height, carry);
        }
        self.peaks.push(carry);
        self.size += 1;
    }

    /// Root over all leaves.
    #[must_use]
    pub fn root(&self) -> Hash32 {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else {
            return Hash32(Sha256::digest([]).into());
        };
        peaks.fold(*last, |right, left| node_hash(left, &right))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// RFC 6962 §2.1 word for word: the definition that [`Tree`] must equal.
    pub(crate) fn by_definition(leaves: &[Hash32]) -> Hash32 {
        match leaves {
            [] => Hash32(Sha256::digest([]).into()),
            [one] => *one,
            _ => {
                let split = leaves.len().next_power_of_two() / 2;
                let (left, right) = leaves.split_at(split);
                node_hash(&by_definition(left), &by_definition(right))
            }
        }
    }

    pub(crate) fn leaves(count: u8) -> Vec<Hash32> {
        (0..count).map(|n| leaf_hash(&[n])).collect()
    }

    #[test]
    fn the_growing_tree_equals_the_definition_at_every_size() {
        for count in 0..70 {
            let leaves = leaves(count);
            assert_eq!(root(&leaves), by_definition(&leaves), "{count} leaves");
        }
    }

    /// The test vectors of the Certificate Transparency reference implementation (eight inputs, roots by size).
    #[test]
    fn roots_equal_the_published_vectors() {
        let inputs: [&str; 8] =
            ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
        let roots = [
            (1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
            (2, "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
            (3, "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"),
            (8, "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"),
        ];
        let leaves: Vec<Hash32> = inputs.iter().map(|text| leaf_hash(&hex::decode(text).unwrap())).collect();
        for (size, expected) in roots {
            assert_eq!(hex::encode(root(&leaves[..size]).0), expected, "{size} leaves");
        }
    }
}
