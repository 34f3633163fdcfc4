//! A copy of a log as static files: for any web server, or for IPFS.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt, stream};
use selion_api::Hash32;
use selion_api::rest::LoggedEntry;
use selion_contracts::signer::recover_text;
use selion_log::{Checkpoint, Kind, Tile, is_long, long_entry, write_entries, write_hashes};

use super::{AT_ONCE, CHECKPOINT, TileSource, Tiles, TilesError, slice};

/// What a copy holds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Mirrored {
    /// Entries of the log.
    pub entries: u64,
    /// Root over them.
    pub root: Hash32,
    /// Who signed it.
    pub signed_by: selion_api::Account,
    /// Files that were written.
    pub written: u64,
    /// Files that were there, and were verified again.
    pub kept: u64,
}

/// Copies the log at `from` into `dir`: checkpoint, tiles and bundles, each verified before it is written. What is there
/// is verified and not fetched again. The checkpoint comes last, so that the folder is always a whole log.
///
/// # Errors
///
/// [`TilesError`]. [`TilesError::Split`] if the log does not extend the copy.
pub async fn mirror(from: TileSource, dir: &Path) -> Result<Mirrored, TilesError> {
    let tiles = match Tiles::open(TileSource::Through(dir.into(), Box::new(from.clone()))).await {
        Ok(tiles) => tiles,
        Err(error) => {
            // Either the copy is damaged, or it is right and the log is another one: the log alone tells.
            extends(&Tiles::open(from).await?, dir).await?;
            return Err(error);
        }
    };
    extends(&tiles, dir).await?;
    let mut shelf = Shelf { dir, written: 0, kept: 0, partial: BTreeSet::new() };
    for (level, hashes) in (0..).zip(&tiles.levels) {
        for tile in Tile::all(Kind::Hashes(level), tiles.size(), 0) {
            let hashes = slice(hashes, 0, tile.first(), tile.width).unwrap_or_default();
            shelf.put(&tile.to_string(), || write_hashes(&hashes)).await?;
        }
    }
    let mut pages = stream::iter(0..tiles.bundles())
        .map(|bundle| {
            let page = tiles.entries(bundle);
            async move { page.await.map(|page| (bundle, page)) }
        })
        .buffered(AT_ONCE);
    while let Some((bundle, page)) = pages.try_next().await? {
        shelf.bundle(tiles.size(), bundle, &page).await?;
    }
    write(&dir.join(CHECKPOINT), tiles.note.as_bytes()).await?;
    shelf.clear_older().await?;
    Ok(Mirrored {
        entries: tiles.size(),
        root: tiles.checkpoint.signed.head.root,
        signed_by: tiles.signed_by,
        written: shelf.written,
        kept: shelf.kept,
    })
}

/// Whether the log begins with what the copy in `dir` holds, if there is one.
async fn extends(tiles: &Tiles, dir: &Path) -> Result<(), TilesError> {
    let bytes = match TileSource::Dir(dir.into()).checkpoint().await {
        Err(TilesError::Missing { .. }) => return Ok(()),
        other => other?,
    };
    let (copy, by) = Checkpoint::read(&String::from_utf8_lossy(&bytes), recover_text)?;
    let (old, new) = (copy.signed.head, tiles.checkpoint.signed.head);
    if copy.pool != tiles.checkpoint.pool {
        let dir = dir.display().to_string();
        return Err(TilesError::Foreign { dir, old: copy.pool, new: tiles.checkpoint.pool });
    }
    let found = tiles.root(old.size);
    if found == Some(old.root) {
        return Ok(());
    }
    let other = dir.join("checkpoint.other");
    write(&other, tiles.note.as_bytes()).await?;
    let kept = other.display().to_string();
    let (old, new) = (Box::new(old), Box::new(new));
    Err(match found {
        Some(found) => TilesError::Split { old, new, by, found, kept },
        None => TilesError::Shrunk { old, new, by, kept },
    })
}

struct Shelf<'a> {
    dir: &'a Path,
    written: u64,
    kept: u64,
    /// Partial tiles and bundles of the log as it is now.
    partial: BTreeSet<PathBuf>,
}

impl Shelf<'_> {
    /// Writes a file unless it is there: then it was read, and was right.
    async fn put(&mut self, path: &str, bytes: impl FnOnce() -> Vec<u8>) -> Result<(), TilesError> {
        let path = self.dir.join(path);
        if is_partial(&path) {
            self.partial.insert(path.clone());
        }
        if tokio::fs::try_exists(&path).await.map_err(|source| failed(&path, source))? {
            self.kept += 1;
            return Ok(());
        }
        write(&path, &bytes()).await?;
        self.written += 1;
        Ok(())
    }

    async fn bundle(&mut self, size: u64, bundle: u64, page: &[LoggedEntry]) -> Result<(), TilesError> {
        // What was read is hex of our own making.
        let plain = |text: &String| hex::decode(text).unwrap_or_default();
        let entries: Vec<Vec<u8>> = page.iter().map(|logged| plain(&logged.entry)).collect();
        for (logged, entry) in page.iter().zip(&entries).filter(|(_, entry)| is_long(entry.len())) {
            self.put(&long_entry(logged.seq), || entry.clone()).await?;
        }
        for tile in [Kind::Entries, Kind::Effects].into_iter().filter_map(|kind| Tile::all(kind, size, bundle).next()) {
            let effects = |logged: &LoggedEntry| {
                selion_api::commit::canonical(&logged.effects.iter().map(plain).collect::<Vec<_>>())
            };
            let bytes = || match tile.kind {
                Kind::Effects => page.iter().flat_map(effects).collect(),
                _ => write_entries(entries.iter().map(Vec::as_slice)),
            };
            self.put(&tile.to_string(), bytes).await?;
        }
        Ok(())
    }
}

impl Shelf<'_> {
    /// Removes the partial tiles of older sizes, so that equal logs are equal folders whatever was copied when. The new
    /// checkpoint needs none of them.
    async fn clear_older(&self) -> Result<(), TilesError> {
        let mut folders: Vec<PathBuf> = ["tile", "effects"].map(|name| self.dir.join(name)).into();
        while let Some(folder) = folders.pop() {
            let mut inside = match tokio::fs::read_dir(&folder).await {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(|source| failed(&folder, source))?,
            };
            let mut left = 0;
            while let Some(one) = inside.next_entry().await.map_err(|source| failed(&folder, source))? {
                let path = one.path();
                let kind = one.file_type().await.map_err(|source| failed(&path, source))?;
                if kind.is_dir() {
                    folders.push(path);
                    left += 1;
                } else if is_partial(&path) && !self.partial.contains(&path) {
                    tokio::fs::remove_file(&path).await.map_err(|source| failed(&path, source))?;
                } else {
                    left += 1;
                }
            }
            if left == 0 {
                tokio::fs::remove_dir(&folder).await.map_err(|source| failed(&folder, source))?;
            }
        }
        Ok(())
    }
}

/// Whether the file is of a tile or bundle that is not full: `N.p/W`.
fn is_partial(path: &Path) -> bool {
    path.parent().and_then(Path::extension).is_some_and(|kind| kind == "p")
}

fn failed(path: &Path, source: std::io::Error) -> TilesError {
    TilesError::File { path: path.display().to_string(), source }
}

/// Writes a file whole or not at all.
async fn write(path: &Path, bytes: &[u8]) -> Result<(), TilesError> {
    let mut draft = PathBuf::from(path).into_os_string();
    draft.push(".draft");
    let draft = PathBuf::from(draft);
    let done = async {
        if let Err(error) = tokio::fs::write(&draft, bytes).await {
            let (ErrorKind::NotFound, Some(folder)) = (error.kind(), path.parent()) else { return Err(error) };
            tokio::fs::create_dir_all(folder).await?;
            tokio::fs::write(&draft, bytes).await?;
        }
        tokio::fs::rename(&draft, path).await
    };
    done.await.map_err(|source| failed(path, source))
}
