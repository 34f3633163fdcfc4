//! Consecutive leaves and what stands beside them: enough to work out the root of the whole tree, and so to show that they
//! stand there, all of them and nothing between.

use alloc::vec::Vec;

use selion_api::Hash32;

use crate::merkle::{node_hash, root};

/// Roots of the largest subtrees that hold none of the leaves `from..to`, left to right; empty if there are no such leaves.
#[must_use]
pub fn beside(leaves: &[Hash32], from: usize, to: usize) -> Vec<Hash32> {
    let mut found = Vec::new();
    if from < to && to <= leaves.len() {
        collect(leaves, from, to, &mut found);
    }
    found
}

fn collect(leaves: &[Hash32], from: usize, to: usize, found: &mut Vec<Hash32>) {
    if from >= leaves.len() || to == 0 {
        found.push(root(leaves));
    } else if leaves.len() > 1 && (from > 0 || to < leaves.len()) {
        let at = leaves.len().next_power_of_two() / 2;
        let (left, right) = leaves.split_at(at);
        collect(left, from.min(at), to.min(at), found);
        collect(right, from.saturating_sub(at), to.saturating_sub(at), found);
    }
}

/// Root of the tree of `size` leaves in which `leaves` stand from number `from` on, by what [`beside`] gave; `None` if
/// `beside` is too short or too long, or there is no such place.
#[must_use]
pub fn root_with(leaves: &[Hash32], from: u64, size: u64, beside: &[Hash32]) -> Option<Hash32> {
    let to = from.checked_add(leaves.len() as u64).filter(|to| from < *to && *to <= size)?;
    let mut rest = beside.iter();
    let found = fold((leaves, from, to), (0, size), &mut rest)?;
    rest.next().is_none().then_some(found)
}

/// Root of the tree of the first `from` leaves, by what stands beside those from number `from` on; `None` if there are none
/// before.
#[must_use]
pub fn root_before(from: u64, beside: &[Hash32]) -> Option<Hash32> {
    // What comes before is cut into full subtrees, one for each bit of its number.
    let before = beside.get(..usize::try_from(from.count_ones()).ok()?)?;
    let (last, larger) = before.split_last()?;
    Some(larger.iter().rev().fold(*last, |right, left| node_hash(left, &right)))
}

/// Root over the leaves `low..high`, of which those given are `from..to`.
fn fold<'a>(
    given: (&[Hash32], u64, u64),
    (low, high): (u64, u64),
    beside: &mut impl Iterator<Item = &'a Hash32>,
) -> Option<Hash32> {
    let (leaves, from, to) = given;
    if high <= from || to <= low {
        return beside.next().copied();
    }
    if from <= low && high <= to {
        let place = |at: u64| usize::try_from(at.checked_sub(from)?).ok();
        return leaves.get(place(low)?..place(high)?).map(root);
    }
    // Some leaves are given and some are not, so there are two at least.
    let half = (high - low).checked_next_power_of_two().map_or(1 << 63, |power| power / 2);
    let left = fold(given, (low, low + half), beside)?;
    let right = fold(given, (low + half, high), beside)?;
    Some(node_hash(&left, &right))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(count: u8) -> Vec<Hash32> {
        (0..count).map(|byte| Hash32([byte; 32])).collect()
    }

    #[test]
    fn every_range_of_every_small_tree_gives_its_root_and_no_other_range_does() {
        for size in 1..20_u8 {
            let all = leaves(size);
            for from in 0..size {
                for to in from + 1..=size {
                    let (low, high) = (usize::from(from), usize::from(to));
                    let beside = beside(&all, low, high);
                    let shown = |leaves: &[Hash32], at: u8| root_with(leaves, at.into(), size.into(), &beside);
                    assert_eq!(shown(&all[low..high], from), Some(root(&all)), "{from}..{to} of {size}");
                    assert_ne!(shown(&all[low..high - 1], from), Some(root(&all)), "one less");
                    if from > 0 {
                        assert_ne!(shown(&all[low..high], from - 1), Some(root(&all)), "a place before");
                    }
                    let before = (low > 0).then(|| root(&all[..low]));
                    assert_eq!(root_before(from.into(), &beside), before, "before {from}..{to} of {size}");
                    let mut other = all[low..high].to_vec();
                    other[0].0[0] ^= 1;
                    assert_ne!(shown(&other, from), Some(root(&all)), "another leaf");
                }
            }
        }
    }

    #[test]
    fn what_stands_beside_has_to_be_all_of_it_and_nothing_more() {
        let all = leaves(11);
        let mut beside = beside(&all, 3, 6);
        assert_eq!(root_with(&all[3..6], 3, 11, &beside[1..]), None);
        beside.push(all[0]);
        assert_eq!(root_with(&all[3..6], 3, 11, &beside), None);
        assert_eq!(root_with(&[], 3, 11, &[]), None);
        assert_eq!(root_with(&all, 1, 11, &[]), None);
        // As large as a number of entries can be.
        assert_eq!(root_with(&all[..1], u64::MAX - 1, u64::MAX, &[]), None);
        let many = [Hash32::ZERO; 64];
        assert!(root_with(&all[..1], 0, u64::MAX, &many[..64]).is_some());
    }
}
