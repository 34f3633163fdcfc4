//! The log from static files (C2SP tlog-tiles): of a controller, of any web server, or in a folder. Nothing that is read
//! is believed: the checkpoint is signed, the tiles lead to its root, and every entry and effect is one that they name.

mod mirror;
mod source;

use futures::{Stream, StreamExt, TryStreamExt, stream};
use selion_api::agent::Head;
use selion_api::commit::PoolId;
use selion_api::rest::LoggedEntry;
use selion_api::{Account, Hash32};
use selion_contracts::signer::recover_text;
use selion_log::{
    BadCheckpoint, BadTile, Checkpoint, Entry, Kind, Tile, leaf_hash, long_entry, read_effects, read_entries,
    read_hashes, root, root_from,
};

pub use mirror::{Mirrored, mirror};
pub use source::TileSource;

/// Name of the checkpoint's file.
const CHECKPOINT: &str = "checkpoint";
/// Files asked for at one time.
const AT_ONCE: usize = 16;
/// Entries of a bundle.
const BUNDLE: u64 = selion_log::WIDTH as u64;

/// Why a log cannot be read from its files.
#[derive(Debug, thiserror::Error)]
pub enum TilesError {
    /// The server did not answer.
    #[error("{url}: {source}; is it the URL of a controller, or of a folder of `selion audit tiles`?")]
    Http {
        /// What was asked.
        url: String,
        /// Cause.
        source: reqwest::Error,
    },
    /// A file of the folder could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A file that the checkpoint says there is, is not.
    #[error("{place} has no file {file}: the copy is incomplete; make it again with `selion audit tiles`")]
    Missing {
        /// Where.
        place: String,
        /// Which.
        file: String,
    },
    /// A file is longer than any of a log.
    #[error("{0} is longer than {max} bytes: it is no file of a log", max = source::MAX_FILE)]
    TooLong(String),
    /// The checkpoint is none.
    #[error(transparent)]
    Checkpoint(#[from] BadCheckpoint),
    /// A file has not the form that it should.
    #[error("{file}: {source}")]
    Form {
        /// Which.
        file: String,
        /// What is wrong.
        source: BadTile,
    },
    /// The tiles at the right edge do not lead to the root that was signed.
    #[error("the tiles at the edge of {size} entries give root {found}, the checkpoint says {signed}")]
    Root {
        /// Entries.
        size: u64,
        /// Of the tiles.
        found: Hash32,
        /// Of the checkpoint.
        signed: Hash32,
    },
    /// A tile is not the one that the level above names.
    #[error("{file} is altered: its root is {found}, the level above says {expected}")]
    Altered {
        /// Which.
        file: String,
        /// Of the tile.
        found: Hash32,
        /// Of the level above.
        expected: Hash32,
    },
    /// An entry is not the one whose leaf is in the tree.
    #[error("{file}: entry {seq} is altered: {why}")]
    Entry {
        /// In which file.
        file: String,
        /// Which entry.
        seq: u64,
        /// What is wrong.
        why: String,
    },
    /// The copy is of another pool's log.
    #[error("the copy in {dir} is of the log of {old:?}, this is the log of {new:?}: name another folder")]
    Foreign {
        /// The copy's folder.
        dir: String,
        /// Its pool.
        old: PoolId,
        /// The log's.
        new: PoolId,
    },
    /// The log is shorter than the copy.
    #[error(
        "the log has {} entries, the copy has {} that {by} signed: an old copy was read, or the log was cut. The new \
         checkpoint is kept as {kept}; ask the controller itself, and if it was asked, keep both: they prove it",
        new.size, old.size
    )]
    Shrunk {
        /// Signed before.
        old: Box<Head>,
        /// Signed now.
        new: Box<Head>,
        /// Who signed it before.
        by: Account,
        /// Where the new checkpoint is.
        kept: String,
    },
    /// The log does not extend the copy: two histories were signed.
    #[error(
        "the log of {} entries does not extend the {} that {by} signed before: its first {} have root {found}, the copy \
         says {}. The new checkpoint is kept as {kept}: together they prove it",
        new.size, old.size, old.size, old.root
    )]
    Split {
        /// Signed before.
        old: Box<Head>,
        /// Signed now.
        new: Box<Head>,
        /// Who signed it before.
        by: Account,
        /// What the new log says of the old size.
        found: Hash32,
        /// Where the new checkpoint is.
        kept: String,
    },
}

/// A log whose tree was read and leads to a signed checkpoint; its entries are read as they are asked for.
#[derive(Debug)]
pub struct Tiles {
    source: TileSource,
    /// What was signed.
    pub checkpoint: Checkpoint,
    /// By whom: compare it with the pool's authority of that epoch.
    pub signed_by: Account,
    /// The checkpoint as it is published.
    note: String,
    levels: Vec<Vec<Hash32>>,
}

/// Reads the whole log from its files. Only the last entry has a head: the one that the checkpoint holds.
///
/// # Errors
///
/// [`TilesError`], naming the file.
pub async fn read_tiles(source: TileSource) -> Result<Vec<LoggedEntry>, TilesError> {
    Tiles::open(source).await?.pages().try_concat().await
}

impl Tiles {
    /// Reads the checkpoint and the tree under it, and checks that they fit.
    ///
    /// # Errors
    ///
    /// [`TilesError`], naming the file.
    pub async fn open(source: TileSource) -> Result<Self, TilesError> {
        let bytes = source.checkpoint().await?;
        let note = String::from_utf8(bytes).map_err(|_| BadCheckpoint::Note("it is no UTF-8"))?;
        let (checkpoint, signed_by) = Checkpoint::read(&note, recover_text)?;
        let mut tiles = Self { source, checkpoint, signed_by, note, levels: Vec::new() };
        tiles.levels = tiles.edge().await?;
        for level in (0..tiles.levels.len()).rev() {
            tiles.fill(level).await?;
        }
        Ok(tiles)
    }

    /// Entries.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.checkpoint.signed.head.size
    }

    /// Bundles of entries.
    #[must_use]
    pub fn bundles(&self) -> u64 {
        self.size().div_ceil(BUNDLE)
    }

    /// Hashes of the leaves.
    #[must_use]
    pub fn leaves(&self) -> &[Hash32] {
        self.levels.first().map_or(&[], Vec::as_slice)
    }

    /// Root over the first `size` entries; `None` beyond the log.
    #[must_use]
    pub fn root(&self, size: u64) -> Option<Hash32> {
        let get = |level: u8, from, count| slice(self.levels.get(usize::from(level))?, 0, from, count).ok_or(()).ok();
        root_from(size, |level, from, count| get(level, from, count).ok_or(())).ok()
    }

    /// The partial tile of each level. Together they lead to the root.
    async fn edge(&self) -> Result<Vec<Vec<Hash32>>, TilesError> {
        let Head { size, root: signed, .. } = self.checkpoint.signed.head;
        let (mut edge, mut first) = (Vec::new(), Vec::new());
        for level in (0..).take_while(|level| size.checked_shr(8 * u32::from(*level)).unwrap_or(0) > 0) {
            let count = size >> (8 * u32::from(level));
            let tile = Tile::all(Kind::Hashes(level), size, count / BUNDLE).next();
            edge.push(match tile {
                Some(tile) => self.hashes(tile).await?,
                None => Vec::new(),
            });
            first.push(count - count % BUNDLE);
        }
        let found = root_from(size, |level, from, count| {
            let at = usize::from(level);
            let hashes = edge.get(at).zip(first.get(at));
            hashes.and_then(|(hashes, first)| slice(hashes, *first, from, count)).ok_or(())
        });
        match found {
            Ok(found) if found == signed => Ok(edge),
            found => Err(TilesError::Root { size, found: found.unwrap_or_default(), signed }),
        }
    }

    /// Puts the full tiles of a level before its edge. The level above, which is whole, names them.
    async fn fill(&mut self, level: usize) -> Result<(), TilesError> {
        let above = self.levels.get(level + 1).map_or(&[][..], Vec::as_slice);
        let named = above.iter().zip(0..).map(|(expected, index)| {
            // There are eight levels at most.
            let tile = Tile { kind: Kind::Hashes(level as u8), index, width: selion_log::WIDTH };
            self.named(tile, *expected)
        });
        let mut hashes: Vec<Hash32> = stream::iter(named).buffered(AT_ONCE).try_concat().await?;
        if let Some(edge) = self.levels.get_mut(level) {
            hashes.append(edge);
            *edge = hashes;
        }
        Ok(())
    }

    async fn named(&self, tile: Tile, expected: Hash32) -> Result<Vec<Hash32>, TilesError> {
        let hashes = self.hashes(tile).await?;
        let found = root(&hashes);
        if found == expected {
            return Ok(hashes);
        }
        Err(TilesError::Altered { file: tile.to_string(), found, expected })
    }

    async fn hashes(&self, tile: Tile) -> Result<Vec<Hash32>, TilesError> {
        self.read(tile, read_hashes).await
    }

    /// All entries, a bundle after the other; some are asked for ahead.
    pub(crate) fn pages(&self) -> impl Stream<Item = Result<Vec<LoggedEntry>, TilesError>> {
        stream::iter(0..self.bundles()).map(|bundle| self.entries(bundle)).buffered(AT_ONCE)
    }

    /// The entries of a bundle, each with its effects, as published.
    ///
    /// # Errors
    ///
    /// [`TilesError`], naming the entry.
    pub async fn entries(&self, bundle: u64) -> Result<Vec<LoggedEntry>, TilesError> {
        let one = |kind| Tile::all(kind, self.size(), bundle).next();
        let (Some(entries), Some(effects)) = (one(Kind::Entries), one(Kind::Effects)) else {
            return Ok(Vec::new());
        };
        let pair = (self.read(entries, read_entries), self.read(effects, read_effects));
        let (bytes, leaves) = futures::try_join!(pair.0, pair.1)?;
        let mut logged = Vec::with_capacity(bytes.len());
        for ((bytes, leaves), seq) in bytes.into_iter().zip(leaves).zip(entries.first()..) {
            logged.push(self.entry(seq, entries, bytes, &leaves).await?);
        }
        Ok(logged)
    }

    async fn entry(
        &self,
        seq: u64,
        bundle: Tile,
        bytes: Vec<u8>,
        effects: &[Vec<u8>],
    ) -> Result<LoggedEntry, TilesError> {
        let (file, bytes) = match bytes.is_empty() {
            false => (bundle.to_string(), bytes),
            true => (long_entry(seq), self.source.file(&long_entry(seq)).await?),
        };
        let wrong = |why: String| TilesError::Entry { file: file.clone(), seq, why };
        let (found, expected) = (leaf_hash(&bytes), usize::try_from(seq).ok().and_then(|at| self.leaves().get(at)));
        if Some(&found) != expected {
            return Err(wrong(format!("its leaf is {found}, the tree has {}", expected.copied().unwrap_or_default())));
        }
        let entry = Entry::read(&bytes).map_err(|error| wrong(error.to_string()))?;
        let hashes: Vec<Hash32> = effects.iter().map(|leaf| leaf_hash(leaf)).collect();
        if root(&hashes) != entry.effects_root {
            let why = format!("its effects have root {}, it says {}", root(&hashes), entry.effects_root);
            return Err(TilesError::Entry { file: Tile { kind: Kind::Effects, ..bundle }.to_string(), seq, why });
        }
        let head = (seq + 1 == self.size()).then_some(self.checkpoint.signed);
        Ok(LoggedEntry { seq, entry: hex::encode(bytes), effects: effects.iter().map(hex::encode).collect(), head })
    }

    /// A tile's content. A partial tile may be gone when the full one is there, which begins with it.
    async fn read<T>(
        &self,
        tile: Tile,
        form: impl Fn(&[u8], u16) -> Result<Vec<T>, BadTile>,
    ) -> Result<Vec<T>, TilesError> {
        let (got, bytes) = match self.source.file(&tile.to_string()).await {
            Err(TilesError::Missing { .. }) if !tile.is_full() => {
                (tile.full(), self.source.file(&tile.full().to_string()).await?)
            }
            other => (tile, other?),
        };
        let wrong = |source| TilesError::Form { file: got.to_string(), source };
        let mut content = form(&bytes, got.width).map_err(wrong)?;
        content.truncate(tile.width.into());
        Ok(content)
    }
}

/// `count` hashes from number `from` on, of those that begin at number `first`.
fn slice(hashes: &[Hash32], first: u64, from: u64, count: u16) -> Option<Vec<Hash32>> {
    let at = usize::try_from(from.checked_sub(first)?).ok()?;
    hashes.get(at..at.checked_add(count.into())?).map(<[_]>::to_vec)
}

#[cfg(test)]
#[path = "tiles/tests.rs"]
mod tests;
