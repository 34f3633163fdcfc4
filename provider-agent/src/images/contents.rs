//! Which image content of the pool is: an image that is here is not fetched, laid out and read again for the next lease that
//! names it by its CID.
//!
//! An archive says of itself what it is called, and may lie. So nothing of that enters here: an entry is made after this node
//! read the image out of that very content.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use selion_dataplane::Cid;
use selion_dataplane::image::{Digest, Image, ImageCache};

/// A file for each content, by its CID, with the image's id in it. There are never more than images and one.
#[derive(Clone, Debug)]
pub(super) struct Contents(PathBuf);

impl Contents {
    /// Those in the folder `dir`, made if it is not there.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }

    /// The image that this content is, if it was read here and is in the cache.
    pub(super) fn image(&self, cid: &Cid, cache: &ImageCache) -> Option<Image> {
        read(&self.0.join(cid.to_string())).and_then(|id| cache.get(&id).ok().flatten())
    }

    /// Remembers what this content is, and forgets contents of images that are gone.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn remember(&self, cid: &Cid, image: &Image, cache: &ImageCache) -> io::Result<()> {
        let here: Vec<Digest> = cache.stat().images.into_iter().map(|image| image.id).collect();
        for entry in fs::read_dir(&self.0)?.flatten() {
            let known = read(&entry.path());
            // One image may be many contents: the one that came last is kept.
            if known.is_none_or(|id| id == image.id() || !here.contains(&id)) {
                fs::remove_file(entry.path())?;
            }
        }
        fs::write(self.0.join(cid.to_string()), image.id().to_string())
    }
}

fn read(path: &Path) -> Option<Digest> {
    fs::read_to_string(path).ok()?.parse().ok()
}
