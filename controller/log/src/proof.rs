//! Inclusion and consistency proofs, RFC 9162 §2.1.3 and §2.1.4.

use alloc::vec::Vec;

use selion_api::Hash32;

use crate::merkle::{node_hash, root};

/// Where a range of more than one leaf splits: the largest power of two below its length.
fn split(len: usize) -> usize {
    len.next_power_of_two() / 2
}

/// Path that shows the leaf at `index` to be in the tree over `leaves`; empty if there is no such leaf.
#[must_use]
pub fn inclusion(leaves: &[Hash32], index: usize) -> Vec<Hash32> {
    if leaves.len() < 2 || index >= leaves.len() {
        return Vec::new();
    }
    let (left, right) = leaves.split_at(split(leaves.len()));
    let (mut path, sibling) = if index < left.len() {
        (inclusion(left, index), root(right))
    } else {
        (inclusion(right, index - left.len()), root(left))
    };
    path.push(sibling);
    path
}

/// Whether `path` shows `leaf` at `index` of the tree of `size` leaves with this root.
#[must_use]
pub fn verify_inclusion(leaf: &Hash32, index: u64, size: u64, path: &[Hash32], expected: &Hash32) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last, mut hash) = (index, size - 1, *leaf);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            hash = node_hash(sibling, &hash);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && hash == *expected
}

/// Path that shows the tree over the first `old` leaves to be the beginning of the tree over `leaves`; empty if
/// `old` is 0 or all.
#[must_use]
pub fn consistency(leaves: &[Hash32], old: usize) -> Vec<Hash32> {
    fn path(leaves: &[Hash32], old: usize, known: bool) -> Vec<Hash32> {
        if old == leaves.len() {
            return if known { Vec::new() } else { Vec::from([root(leaves)]) };
        }
        let (left, right) = leaves.split_at(split(leaves.len()));
        let (mut below, sibling) = if old <= left.len() {
            (path(left, old, known), root(right))
        } else {
            (path(right, old - left.len(), false), root(left))
        };
        below.push(sibling);
        below
    }
    if old == 0 || old >= leaves.len() { Vec::new() } else { path(leaves, old, true) }
}

/// Whether `path` shows that the tree (`old`, `old_root`) is the beginning of the tree (`new`, `new_root`).
#[must_use]
pub fn verify_consistency(old: u64, old_root: &Hash32, new: u64, new_root: &Hash32, path: &[Hash32]) -> bool {
    if old == new {
        return path.is_empty() && old_root == new_root;
    }
    if old == 0 || old > new {
        return old == 0 && path.is_empty();
    }
    let mut path = path.iter();
    let first = if old.is_power_of_two() { Some(old_root) } else { path.next() };
    let Some(first) = first else { return false };
    let (mut at, mut last) = (old - 1, new - 1);
    while at & 1 == 1 {
        at >>= 1;
        last >>= 1;
    }
    let (mut from_old, mut from_new) = (*first, *first);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            from_old = node_hash(sibling, &from_old);
            from_new = node_hash(sibling, &from_new);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            from_new = node_hash(&from_new, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && from_old == *old_root && from_new == *new_root
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::tests::leaves;

    #[test]
    fn every_leaf_of_every_small_tree_is_shown_to_be_in_it_and_nowhere_else() {
        for size in 1..34_u8 {
            let all = leaves(size);
            let expected = root(&all);
            for (index, leaf) in all.iter().enumerate() {
                let path = inclusion(&all, index);
                let (at, of) = (index as u64, u64::from(size));
                assert!(verify_inclusion(leaf, at, of, &path, &expected));
                assert!(!verify_inclusion(leaf, at + 1, of, &path, &expected));
                assert!(!verify_inclusion(&Hash32([9; 32]), at, of, &path, &expected));
            }
        }
    }

    #[test]
    fn every_small_tree_extends_each_of_its_beginnings_and_no_other() {
        for new in 1..34_u8 {
            let all = leaves(new);
            let new_root = root(&all);
            for old in 1..=new {
                let old_root = root(&all[..usize::from(old)]);
                let path = consistency(&all, usize::from(old));
                let (from, to) = (u64::from(old), u64::from(new));
                assert!(verify_consistency(from, &old_root, to, &new_root, &path), "{old} of {new}");
                assert!(!verify_consistency(from, &Hash32([9; 32]), to, &new_root, &path), "{old} of {new}");
            }
        }
    }
}
