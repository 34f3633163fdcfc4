//! What is in the cache, to show.

use std::fs;
use std::time::SystemTime;

use super::ImageCache;
use super::state::Victim;
use crate::image::error::At;
use crate::image::{Digest, ImageError};

/// What a cache holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStat {
    /// The images, the last used first.
    pub images: Vec<ImageStat>,
    /// Number of unpacked layers, those of no image included.
    pub layers: usize,
    /// Bytes of disk in use, reckoned: what is on its way included.
    pub bytes: u64,
    /// Bytes of what cannot be removed now.
    pub held_bytes: u64,
    /// Bytes allowed.
    pub limit: u64,
}

/// One image of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageStat {
    /// Digest of its configuration.
    pub id: Digest,
    /// What it was called, the last first.
    pub names: Vec<String>,
    /// Digests of the manifests and indexes that led to it, the last first.
    pub manifests: Vec<Digest>,
    /// Bytes of disk of its layers, reckoned. Layers that several images have count for each.
    pub bytes: u64,
    /// When it was last used.
    pub used: SystemTime,
    /// Who pinned it.
    pub pinned_by: Vec<String>,
    /// Whether somebody of this process holds it.
    pub held: bool,
}

impl ImageCache {
    /// What is here. Reads nothing from the disk.
    #[must_use]
    pub fn stat(&self) -> CacheStat {
        let state = self.inner.state();
        let mut images: Vec<ImageStat> = state
            .images
            .iter()
            .map(|(id, image)| {
                let layers = image.record.layers.iter().filter_map(|layer| state.layers.get(layer));
                ImageStat {
                    id: *id,
                    names: image.record.names.clone(),
                    manifests: image.record.manifests.clone(),
                    bytes: layers.map(|layer| layer.record.disk).fold(image.record.disk, u64::saturating_add),
                    used: image.used,
                    pinned_by: state.pins.get(id).into_iter().flatten().cloned().collect(),
                    held: state.image_held(id),
                }
            })
            .collect();
        images.sort_by_key(|image| std::cmp::Reverse((image.used, image.id)));
        let (bytes, held_bytes) = (state.used(), state.held_bytes());
        CacheStat { images, layers: state.layers.len(), bytes, held_bytes, limit: self.inner.rules.bytes }
    }

    /// Removes an image that nobody holds or has pinned. Its layers go when room is needed. `false` if it is not here, or
    /// needed.
    ///
    /// # Errors
    ///
    /// [`ImageError::Io`].
    pub fn remove(&self, id: &Digest) -> Result<bool, ImageError> {
        let aside = self.inner.work_path();
        {
            let mut state = self.inner.state();
            if !state.images.contains_key(id) || state.image_held(id) || state.pins.contains_key(id) {
                return Ok(false);
            }
            let path = self.inner.image_dir(id);
            fs::rename(&path, &aside).at(&path)?;
            state.forget(&Victim::Image(*id));
        }
        fs::remove_dir_all(&aside).at(&aside)?;
        Ok(true)
    }
}
