//! Bundles: the entries of a tile, and the leaves of their effects.
//!
//! An entry bundle is C2SP's: each entry behind its length in two bytes. An entry may be longer than two bytes can say
//! (a block of the chain with thousands of events). Its slot then has length 0, which no entry has, and its bytes are
//! a file of their own: [`long_entry`]. Readers that do not know this see that the slot does not hash to its leaf.
//!
//! A bundle of effects is ours: for each entry the canonical bytes of the list of its effects' leaves, which is a count
//! and then each leaf behind its length, all in four bytes, least first.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use borsh::BorshDeserialize;

use crate::tile::{BadTile, groups, ungroup};

/// Path of an entry that is too long for its bundle.
#[must_use]
pub fn long_entry(seq: u64) -> String {
    format!("long/{}", groups(seq))
}

/// Whether an entry of so many bytes is too long for its bundle.
#[must_use]
pub fn is_long(bytes: usize) -> bool {
    bytes > usize::from(u16::MAX)
}

/// The entry that a [`long_entry`] path names.
#[must_use]
pub fn long_entry_of(path: &str) -> Option<u64> {
    let seq = ungroup(path.strip_prefix("long/")?)?;
    (long_entry(seq) == path).then_some(seq)
}

/// The bytes of an entry bundle. Entries of more than 65,535 bytes leave their slot empty.
pub fn write_entries<'a>(entries: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bundle = Vec::new();
    for entry in entries {
        let (length, bytes) = u16::try_from(entry.len()).map_or((0, &[][..]), |length| (length, entry));
        bundle.extend(length.to_be_bytes());
        bundle.extend(bytes);
    }
    bundle
}

/// The entries in a bundle of `width`; empty ones stand in [`long_entry`].
///
/// # Errors
///
/// [`BadTile::Short`], [`BadTile::Long`]. Whether they are the right ones their leaves tell.
pub fn read_entries(bundle: &[u8], width: u16) -> Result<Vec<Vec<u8>>, BadTile> {
    let short = |needed| BadTile::Short { had: bundle.len(), needed };
    let mut entries = Vec::with_capacity(width.into());
    let mut at = 0;
    for _ in 0..width {
        let length = bundle.get(at..).and_then(|rest| rest.first_chunk()).ok_or(short(at + 2))?;
        let end = at + 2 + usize::from(u16::from_be_bytes(*length));
        entries.push(bundle.get(at + 2..end).ok_or(short(end))?.to_vec());
        at = end;
    }
    if at < bundle.len() { Err(BadTile::Long(bundle.len() - at)) } else { Ok(entries) }
}

/// The leaves of the effects of each entry of a bundle of `width`.
///
/// # Errors
///
/// [`BadTile::Effects`], [`BadTile::Long`]. Whether they are the right ones the root in each entry tells.
pub fn read_effects(mut bundle: &[u8], width: u16) -> Result<Vec<Vec<Vec<u8>>>, BadTile> {
    let mut effects = Vec::with_capacity(width.into());
    for at in 0..usize::from(width) {
        effects.push(BorshDeserialize::deserialize(&mut bundle).map_err(|_| BadTile::Effects(at))?);
    }
    if bundle.is_empty() { Ok(effects) } else { Err(BadTile::Long(bundle.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_reads_back_and_an_entry_too_long_for_it_leaves_its_slot_empty() {
        let (longest, long) = (vec![1; 65_535], vec![2; 65_536]);
        let bundle = write_entries([&b"ab"[..], &longest, &long, b"c"]);
        assert_eq!(&bundle[..4], b"\0\x02ab");
        let entries = read_entries(&bundle, 4).unwrap();
        assert_eq!(entries, [b"ab".to_vec(), longest, vec![], b"c".to_vec()]);
        let path = long_entry(1_234_067);
        assert_eq!((path.as_str(), long_entry_of(&path)), ("long/x001/x234/067", Some(1_234_067)));
        assert_eq!((long_entry_of("long/7"), long_entry_of("long/")), (None, None));
        assert!(is_long(65_536) && !is_long(65_535));
    }

    #[test]
    fn a_bundle_that_is_cut_or_stretched_anywhere_is_refused() {
        let bundle = write_entries([&b"ab"[..], b"", b"cde"]);
        for end in 0..bundle.len() {
            assert!(matches!(read_entries(&bundle[..end], 3), Err(BadTile::Short { .. })), "cut at {end}");
        }
        assert_eq!(read_entries(&bundle, 2), Err(BadTile::Long(5)));
        let lists: [Vec<Vec<u8>>; 2] = [vec![vec![1, 2], vec![]], vec![]];
        let bundle: Vec<u8> = lists.iter().flat_map(selion_api::commit::canonical).collect();
        assert_eq!(read_effects(&bundle, 2).unwrap(), lists);
        assert_eq!(read_effects(&bundle[..bundle.len() - 1], 2), Err(BadTile::Effects(1)));
        assert_eq!(read_effects(&bundle, 1), Err(BadTile::Long(4)));
        assert_eq!(read_effects(&[255; 8], 1), Err(BadTile::Effects(0)), "a count without its leaves");
    }
}
