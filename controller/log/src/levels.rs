//! The tree level by level: what a server of tiles keeps in memory, and roots and proofs out of tiles.

use alloc::vec::Vec;

use selion_api::Hash32;

use crate::merkle::{Tree, root};

/// Levels between two levels of tiles.
const HEIGHT: u32 = 8;

/// The hashes of every level of tiles above the leaves, which stand in the log itself: 32 bytes for every 256 entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    tree: Tree,
    above: Vec<Vec<Hash32>>,
}

impl Levels {
    /// Adds the hash of a leaf.
    pub fn push(&mut self, leaf: Hash32) {
        let above = &mut self.above;
        self.tree.push_noting(leaf, |height, hash| {
            if height % HEIGHT != 0 {
                return;
            }
            let level = (height / HEIGHT - 1) as usize;
            match above.get_mut(level) {
                Some(hashes) => hashes.push(hash),
                // A subtree completes only after those below it: the level is the next one.
                None => above.push(Vec::from([hash])),
            }
        });
    }

    /// Leaves so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.tree.size()
    }

    /// Root over all leaves.
    #[must_use]
    pub fn root(&self) -> Hash32 {
        self.tree.root()
    }

    /// `count` hashes of a level from number `from` on; `None` of level 0, and of what is not complete yet.
    #[must_use]
    pub fn hashes(&self, level: u8, from: u64, count: u16) -> Option<&[Hash32]> {
        let hashes = self.above.get(usize::from(level).checked_sub(1)?)?;
        let from = usize::try_from(from).ok()?;
        hashes.get(from..from.checked_add(count.into())?)
    }
}

/// Root of the tree over the first `size` leaves. `get` gives hashes as [`Levels::hashes`] does, of level 0 too; it is
/// never asked for hashes of two tiles at once, nor for more than a log of `size` entries has.
///
/// # Errors
///
/// Those of `get`.
pub fn root_from<E>(size: u64, mut get: impl FnMut(u8, u64, u16) -> Result<Vec<Hash32>, E>) -> Result<Hash32, E> {
    if size == 0 { Ok(root(&[])) } else { range(0, size, &mut get) }
}

/// Path that shows the leaf at `index` to be in the tree of `size`: [`inclusion`](crate::inclusion) out of tiles.
///
/// # Errors
///
/// Those of `get`, which is as in [`root_from`].
pub fn inclusion_from<E>(
    index: u64,
    size: u64,
    mut get: impl FnMut(u8, u64, u16) -> Result<Vec<Hash32>, E>,
) -> Result<Vec<Hash32>, E> {
    let (mut from, mut to, mut path) = (0, size, Vec::new());
    while to - from > 1 && index < size {
        let middle = from + split(to - from);
        if index < middle {
            path.push(range(middle, to, &mut get)?);
            to = middle;
        } else {
            path.push(range(from, middle, &mut get)?);
            from = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// Path that shows the tree of `old` leaves to be the beginning of the tree of `new`:
/// [`consistency`](crate::consistency) out of tiles.
///
/// # Errors
///
/// Those of `get`, which is as in [`root_from`].
pub fn consistency_from<E>(
    old: u64,
    new: u64,
    mut get: impl FnMut(u8, u64, u16) -> Result<Vec<Hash32>, E>,
) -> Result<Vec<Hash32>, E> {
    if old == 0 || old >= new {
        return Ok(Vec::new());
    }
    let (mut from, mut to, mut path) = (0, new, Vec::new());
    while old != to {
        let middle = from + split(to - from);
        if old <= middle {
            path.push(range(middle, to, &mut get)?);
            to = middle;
        } else {
            path.push(range(from, middle, &mut get)?);
            from = middle;
        }
    }
    // What is left is a complete subtree of the old tree; its reader knows it only if it is all of that tree.
    if from > 0 {
        path.push(range(from, to, &mut get)?);
    }
    path.reverse();
    Ok(path)
}

/// Where a range of more than one leaf splits: the largest power of two below its length.
fn split(len: u64) -> u64 {
    1 << (len - 1).ilog2()
}

/// Root over the leaves `from .. to`, where a split as above leads to.
fn range<E>(from: u64, to: u64, get: &mut impl FnMut(u8, u64, u16) -> Result<Vec<Hash32>, E>) -> Result<Hash32, E> {
    let len = to - from;
    if len.is_power_of_two() {
        let height = len.ilog2();
        let level = height / HEIGHT;
        let hashes = get(level as u8, from >> (HEIGHT * level), 1 << (height % HEIGHT))?;
        return Ok(root(&hashes));
    }
    let middle = from + split(len);
    Ok(crate::node_hash(&range(from, middle, get)?, &range(middle, to, get)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tile::{Kind, Tile, WIDTH, read_hashes, write_hashes};
    use crate::{consistency, inclusion, leaf_hash, verify_consistency, verify_inclusion};
    use std::collections::BTreeMap;

    fn leaves(count: u32) -> Vec<Hash32> {
        (0..count).map(|n| leaf_hash(&n.to_be_bytes())).collect()
    }

    /// Every tile of hashes of a log, as bytes by path.
    fn published(leaves: &[Hash32]) -> BTreeMap<String, Vec<u8>> {
        let mut levels = Levels::default();
        leaves.iter().for_each(|leaf| levels.push(*leaf));
        assert_eq!((levels.size(), levels.root()), (leaves.len() as u64, root(leaves)));
        let bytes = |tile: Tile| match tile.kind {
            Kind::Hashes(0) => write_hashes(&leaves[tile.first() as usize..][..tile.width.into()]),
            Kind::Hashes(level) => write_hashes(levels.hashes(level, tile.first(), tile.width).unwrap()),
            _ => unreachable!(),
        };
        let tiles = (0..4).flat_map(|level| Tile::all(Kind::Hashes(level), levels.size(), 0));
        tiles.map(|tile| (tile.to_string(), bytes(tile))).collect()
    }

    /// Reads hashes out of the published tiles of a log of `size`, and out of nothing else.
    fn reader(tiles: &BTreeMap<String, Vec<u8>>, size: u64) -> impl FnMut(u8, u64, u16) -> Result<Vec<Hash32>, String> {
        move |level, from, count| {
            let index = from / u64::from(WIDTH);
            let tile = Tile::all(Kind::Hashes(level), size, index).next().ok_or("beyond the log")?;
            let at = (from % u64::from(WIDTH)) as usize;
            let bytes = tiles.get(&tile.to_string()).ok_or_else(|| format!("no {tile}"))?;
            let hashes = read_hashes(bytes, tile.width).map_err(|error| error.to_string())?;
            Ok(hashes.get(at..at + usize::from(count)).ok_or("across tiles")?.to_vec())
        }
    }

    #[test]
    fn tiles_give_the_root_and_the_proofs_that_the_leaves_give() {
        let sizes = (1..=20).chain([255, 256, 257, 511, 512, 513, 700, 65_535, 65_536, 65_537, 66_000, 70_000]);
        for size in sizes {
            let all = leaves(size);
            let (tiles, size, whole) = (published(&all), u64::from(size), root(&all));
            assert_eq!(root_from(size, reader(&tiles, size)).unwrap(), whole, "{size}");
            let mut places: Vec<u64> = (0..size.min(9)).chain([size / 2, size - 1]).collect();
            places.extend([255, 256, 300, 65_535, 65_536].into_iter().filter(|at| *at < size));
            for at in places {
                let path = inclusion_from(at, size, reader(&tiles, size)).unwrap();
                assert_eq!(path, inclusion(&all, at as usize), "{at} in {size}");
                assert!(verify_inclusion(&all[at as usize], at, size, &path, &whole));
                let old = at + 1;
                let path = consistency_from(old, size, reader(&tiles, size)).unwrap();
                assert_eq!(path, consistency(&all, old as usize), "{old} of {size}");
                assert!(verify_consistency(old, &root(&all[..old as usize]), size, &whole, &path));
            }
        }
    }

    #[test]
    fn an_altered_tile_gives_another_root() {
        let size = 66_000;
        let all = leaves(size);
        let tiles = published(&all);
        let edge = ["tile/0/257.p/208", "tile/1/001.p/1", "tile/2/000.p/1"];
        for path in edge {
            let mut altered = tiles.clone();
            altered.get_mut(path).unwrap()[0] ^= 1;
            assert_ne!(root_from(size.into(), reader(&altered, size.into())).unwrap(), root(&all), "{path}");
        }
        let mut cut = tiles.clone();
        cut.get_mut(edge[0]).unwrap().pop();
        let error = root_from(size.into(), reader(&cut, size.into())).unwrap_err();
        assert!(error.contains("ends early"), "{error}");
    }

    #[test]
    fn a_proof_of_nothing_is_empty() {
        let mut none = |_, _, _| Err("asked");
        assert_eq!(root_from(0, none), Ok(root(&[])));
        assert_eq!(inclusion_from(1, 1, none), Ok(vec![]));
        assert_eq!(inclusion_from(3, 2, none), Ok(vec![]));
        assert_eq!(consistency_from(0, 4, &mut none), Ok(vec![]));
        assert_eq!(consistency_from(4, 4, &mut none), Ok(vec![]));
    }
}
