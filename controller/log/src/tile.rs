//! Names and bytes of tiles, as in C2SP tlog-tiles: the tree, its entries and their effects as static files.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use selion_api::Hash32;

/// Hashes, or entries, of a full tile.
pub const WIDTH: u16 = 256;
/// The highest level that the specification knows.
const MAX_LEVEL: u8 = 63;

/// What a tile is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Hashes of a level: of leaves at level 0, of full tiles of the level below above that.
    Hashes(u8),
    /// The entries whose leaves the tile of level 0 with the same index holds.
    Entries,
    /// The leaves of the effects of those entries. An extension of our own.
    Effects,
}

/// One tile: which, and how much of it. `Display` and `FromStr` are its path below the log's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    /// Of what.
    pub kind: Kind,
    /// Its number within its kind, from 0.
    pub index: u64,
    /// How many hashes or entries it holds, 1 to [`WIDTH`]; fewer only at the right edge of the tree.
    pub width: u16,
}

/// Why bytes are not the tile that they should be, or a path is no tile's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTile {
    /// No tile has this path.
    #[error("`{0}` is no path of a tile, as in tile/0/x001/x234/067.p/8, tile/entries/007 or effects/007")]
    Path(String),
    /// The bytes end too early.
    #[error("it ends early: {had} bytes where {needed} or more belong")]
    Short {
        /// Bytes there are.
        had: usize,
        /// Bytes there should be at least.
        needed: usize,
    },
    /// Bytes are left over.
    #[error("it has {0} bytes too many")]
    Long(usize),
    /// The list of effects of an entry does not decode.
    #[error("the effects of entry {0} of it do not decode")]
    Effects(usize),
}

impl Tile {
    /// The tiles of `kind` of a log of `size` entries: full ones from index `from` on, and the partial one, if any.
    pub fn all(kind: Kind, size: u64, from: u64) -> impl Iterator<Item = Self> {
        let count = within(kind, size);
        let (full, rest) = (count / u64::from(WIDTH), u16::try_from(count % u64::from(WIDTH)).unwrap_or_default());
        let partial = (rest > 0 && from <= full).then_some(Self { kind, index: full, width: rest });
        (from..full).map(move |index| Self { kind, index, width: WIDTH }).chain(partial)
    }

    /// Whether it is full, so that it never changes.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.width == WIDTH
    }

    /// The full tile of the same index.
    #[must_use]
    pub fn full(self) -> Self {
        Self { width: WIDTH, ..self }
    }

    /// Number of its first hash or entry.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.index.saturating_mul(u64::from(WIDTH))
    }

    /// Whether a log of `size` entries has it.
    #[must_use]
    pub fn fits(&self, size: u64) -> bool {
        self.first().checked_add(u64::from(self.width)).is_some_and(|end| end <= within(self.kind, size))
    }
}

/// How many hashes or entries of that kind a log of `size` entries has.
fn within(kind: Kind, size: u64) -> u64 {
    match kind {
        Kind::Hashes(level) => size.checked_shr(8 * u32::from(level)).unwrap_or(0),
        Kind::Entries | Kind::Effects => size,
    }
}

/// A number in groups of three digits, all but the last with an `x` before them.
pub(crate) fn groups(number: u64) -> String {
    let mut text = format!("{:03}", number % 1000);
    let mut rest = number / 1000;
    while rest > 0 {
        text = format!("x{:03}/{text}", rest % 1000);
        rest /= 1000;
    }
    text
}

/// The number in groups of digits; other spellings of it are read too.
pub(crate) fn ungroup(text: &str) -> Option<u64> {
    text.split('/').try_fold(0_u64, |number, group| {
        let digits: u64 = group.strip_prefix('x').unwrap_or(group).parse().ok()?;
        number.checked_mul(1000)?.checked_add(digits)
    })
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Hashes(level) => write!(f, "tile/{level}/{}", groups(self.index))?,
            Kind::Entries => write!(f, "tile/entries/{}", groups(self.index))?,
            Kind::Effects => write!(f, "effects/{}", groups(self.index))?,
        }
        if self.is_full() { Ok(()) } else { write!(f, ".p/{}", self.width) }
    }
}

impl FromStr for Tile {
    type Err = BadTile;
    fn from_str(path: &str) -> Result<Self, BadTile> {
        // One tile has one path: whatever reads as one but is written otherwise is refused.
        let read = || {
            let (kind, rest) = path.strip_prefix("effects/").map(|rest| (Kind::Effects, rest)).or_else(|| {
                let (level, rest) = path.strip_prefix("tile/")?.split_once('/')?;
                let of_level = || level.parse().ok().filter(|level| *level <= MAX_LEVEL).map(Kind::Hashes);
                Some((if level == "entries" { Kind::Entries } else { of_level()? }, rest))
            })?;
            let (number, width) = match rest.split_once(".p/") {
                Some((number, width)) => (number, width.parse().ok().filter(|width| *width < WIDTH && *width > 0)?),
                None => (rest, WIDTH),
            };
            Some(Self { kind, index: ungroup(number)?, width })
        };
        read().filter(|tile| tile.to_string() == path).ok_or_else(|| BadTile::Path(path.into()))
    }
}

/// The bytes of a tile of hashes.
#[must_use]
pub fn write_hashes(hashes: &[Hash32]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

/// The hashes in the bytes of a tile of `width`.
///
/// # Errors
///
/// [`BadTile::Short`], [`BadTile::Long`]. Whether they are the right ones only the level above tells.
pub fn read_hashes(bytes: &[u8], width: u16) -> Result<Vec<Hash32>, BadTile> {
    let needed = usize::from(width) * 32;
    if bytes.len() < needed {
        return Err(BadTile::Short { had: bytes.len(), needed });
    }
    if bytes.len() > needed {
        return Err(BadTile::Long(bytes.len() - needed));
    }
    Ok(bytes.as_chunks().0.iter().map(|hash| Hash32(*hash)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(kind: Kind, index: u64, width: u16) -> Tile {
        Tile { kind, index, width }
    }

    /// The examples of the specification's text, and the ends of the range.
    #[test]
    fn paths_are_those_of_the_specification_and_read_back() {
        let paths = [
            (tile(Kind::Hashes(0), 1_234_067, WIDTH), "tile/0/x001/x234/067"),
            (tile(Kind::Hashes(0), 273, 112), "tile/0/273.p/112"),
            (tile(Kind::Hashes(2), 0, 1), "tile/2/000.p/1"),
            (tile(Kind::Entries, 1_000, 255), "tile/entries/x001/000.p/255"),
            (tile(Kind::Effects, 999, WIDTH), "effects/999"),
            (tile(Kind::Hashes(63), u64::MAX, 7), "tile/63/x018/x446/x744/x073/x709/x551/615.p/7"),
        ];
        for (tile, path) in paths {
            assert_eq!(tile.to_string(), path);
            assert_eq!(path.parse(), Ok(tile));
        }
    }

    #[test]
    fn a_second_spelling_of_a_tile_and_one_out_of_range_are_refused() {
        for path in [
            "tile/64/000",
            "tile/00/000",
            "tile/-1/000",
            "tile/0/0",
            "tile/0/0000",
            "tile/0/001/000",
            "tile/0/x000/001",
            "tile/0/x001/x000",
            "tile/0/+01",
            "tile/0/000.p/0",
            "tile/0/000.p/256",
            "tile/0/000.p/08",
            "tile/0/000.p/",
            "tile/0/x999/x999/x999/x999/x999/x999/x999/999",
            "tile/entries/",
            "tile/0/../checkpoint",
            "/tile/0/000",
            "effects",
            "",
        ] {
            assert_eq!(path.parse::<Tile>(), Err(BadTile::Path(path.into())), "{path}");
        }
    }

    /// The specification's example: a tree of 70,000 leaves.
    #[test]
    fn a_log_has_the_tiles_that_its_size_says() {
        let at = |level, size| Tile::all(Kind::Hashes(level), size, 0).collect::<Vec<_>>();
        let zero = at(0, 70_000);
        assert_eq!(
            (zero.len(), zero[272], zero[273]),
            (274, tile(Kind::Hashes(0), 272, WIDTH), tile(Kind::Hashes(0), 273, 112))
        );
        assert_eq!(at(1, 70_000), [tile(Kind::Hashes(1), 0, WIDTH), tile(Kind::Hashes(1), 1, 17)]);
        assert_eq!(at(2, 70_000), [tile(Kind::Hashes(2), 0, 1)]);
        assert_eq!(at(3, 70_000), []);
        assert_eq!(at(0, 256), [tile(Kind::Hashes(0), 0, WIDTH)]);
        assert_eq!(at(1, 256), [tile(Kind::Hashes(1), 0, 1)]);
        assert_eq!(Tile::all(Kind::Entries, 300, 1).collect::<Vec<_>>(), [tile(Kind::Entries, 1, 44)]);
        assert!(tile(Kind::Hashes(0), 273, 112).fits(70_000) && !tile(Kind::Hashes(0), 273, 113).fits(70_000));
        assert!(tile(Kind::Hashes(1), 1, 17).fits(70_000) && !tile(Kind::Hashes(3), 0, 1).fits(70_000));
        assert!(!tile(Kind::Hashes(40), 0, 1).fits(u64::MAX) && !tile(Kind::Entries, u64::MAX, 1).fits(u64::MAX));
    }

    #[test]
    fn a_tile_cut_or_stretched_by_a_byte_is_refused() {
        let hashes: Vec<Hash32> = (0..3).map(|n| Hash32([n; 32])).collect();
        let bytes = write_hashes(&hashes);
        assert_eq!(read_hashes(&bytes, 3), Ok(hashes));
        assert_eq!(read_hashes(&bytes[..95], 3), Err(BadTile::Short { had: 95, needed: 96 }));
        assert_eq!(read_hashes(&bytes, 2), Err(BadTile::Long(32)));
    }
}
