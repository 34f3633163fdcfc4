//! What the cache holds, how much of the disk it takes, and who needs it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::Inner;
use super::records::{self, LayerRecord, Record};
use crate::image::error::At;
use crate::image::{Digest, ImageError};

#[derive(Debug, Default)]
pub(in crate::image) struct State {
    pub layers: HashMap<Digest, LayerEntry>,
    pub images: HashMap<Digest, ImageEntry>,
    /// Bytes of layers on their way that nobody fetches at the moment.
    pub parts: HashMap<Digest, u64>,
    /// Owners of pins, by image.
    pub pins: HashMap<Digest, BTreeSet<String>>,
    /// Bytes of what is being made.
    taken: u64,
    layer_holds: HashMap<Digest, usize>,
    image_holds: HashMap<Digest, usize>,
}

#[derive(Debug)]
pub(in crate::image) struct LayerEntry {
    pub record: LayerRecord,
    pub used: SystemTime,
}

#[derive(Debug)]
pub(in crate::image) struct ImageEntry {
    pub record: Arc<Record>,
    pub used: SystemTime,
}

/// What goes to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Part(Digest),
    Layer(Digest),
    Image(Digest),
}

impl State {
    /// Reads what is there. What is not whole is removed: a layer without its record, an image without one of its layers.
    pub fn load(dir: &Path) -> Result<Self, ImageError> {
        let mut state = Self::default();
        for (digest, path) in digests(&dir.join("layers"))? {
            match records::read_layer(&path) {
                Some((record, used)) => drop(state.layers.insert(digest, LayerEntry { record, used })),
                None => remove(&path)?,
            }
        }
        for (id, path) in digests(&dir.join("images"))? {
            let whole = |record: &Record| record.layers.iter().all(|layer| state.layers.contains_key(layer));
            match records::read_image(&path, &id).filter(|(record, _)| whole(record)) {
                Some((record, used)) => drop(state.images.insert(id, ImageEntry { record: Arc::new(record), used })),
                None => {
                    tracing::warn!(image = %id, "an image of the cache is not whole and is removed");
                    remove(&path)?;
                }
            }
        }
        for (digest, path) in digests(&dir.join("parts"))? {
            state.parts.insert(digest, fs::metadata(&path).at(&path)?.len());
        }
        super::pins::load(&dir.join("pins"), &mut state)?;
        Ok(state)
    }

    /// Bytes of disk, reckoned.
    pub fn used(&self) -> u64 {
        let layers = self.layers.values().map(|layer| layer.record.disk);
        let images = self.images.values().map(|image| image.record.disk);
        layers.chain(images).chain(self.parts.values().copied()).fold(self.taken, u64::saturating_add)
    }

    pub fn take(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    pub fn give_back(&mut self, bytes: u64) {
        self.taken -= bytes;
    }

    /// What is missed least: parts, then layers of no image, then images, each by its last use; nothing that is held.
    pub(super) fn least_used(&self) -> Option<Victim> {
        if let Some(part) = self.parts.keys().next() {
            return Some(Victim::Part(*part));
        }
        let needed: HashSet<&Digest> = self.images.values().flat_map(|image| &image.record.layers).collect();
        let loose = self.layers.iter().filter(|(id, _)| !needed.contains(id) && !self.layer_holds.contains_key(id));
        if let Some((layer, _)) = loose.min_by_key(|(_, layer)| layer.used) {
            return Some(Victim::Layer(*layer));
        }
        let held = |id: &Digest| self.image_holds.contains_key(id) || self.pins.contains_key(id);
        let idle = self.images.iter().filter(|(id, _)| !held(id));
        idle.min_by_key(|(_, image)| image.used).map(|(id, _)| Victim::Image(*id))
    }

    pub(super) fn forget(&mut self, victim: &Victim) {
        match victim {
            Victim::Part(digest) => drop(self.parts.remove(digest)),
            Victim::Layer(digest) => drop(self.layers.remove(digest)),
            Victim::Image(id) => drop(self.images.remove(id)),
        }
    }

    /// Bytes that would stay if all went that can go.
    pub fn held_bytes(&self) -> u64 {
        let held = |id: &Digest| self.image_holds.contains_key(id) || self.pins.contains_key(id);
        let images = self.images.iter().filter(|(id, _)| held(id));
        let mut layers: HashSet<&Digest> = images.flat_map(|(_, image)| &image.record.layers).collect();
        layers.extend(self.layer_holds.keys());
        let bytes = layers.iter().filter_map(|id| self.layers.get(id)).map(|layer| layer.record.disk);
        bytes.fold(self.taken, u64::saturating_add)
    }

    pub fn hold_image(&mut self, id: &Digest) {
        *self.image_holds.entry(*id).or_default() += 1;
    }

    pub fn release_image(&mut self, id: &Digest) {
        release(&mut self.image_holds, id);
    }

    pub fn image_held(&self, id: &Digest) -> bool {
        self.image_holds.contains_key(id)
    }
}

fn release(holds: &mut HashMap<Digest, usize>, id: &Digest) {
    if let Some(count) = holds.get_mut(id) {
        *count -= 1;
        if *count == 0 {
            holds.remove(id);
        }
    }
}

/// Keeps a layer in the cache as long as it lives.
#[derive(Debug)]
pub(in crate::image) struct LayerHold {
    inner: Arc<Inner>,
    pub diff_id: Digest,
}

impl LayerHold {
    /// `None` if the layer is not there.
    pub fn of(inner: &Arc<Inner>, diff_id: &Digest) -> Option<Self> {
        let mut state = inner.state();
        state.layers.get_mut(diff_id)?.used = SystemTime::now();
        *state.layer_holds.entry(*diff_id).or_default() += 1;
        Some(Self { inner: inner.clone(), diff_id: *diff_id })
    }

    pub fn record(&self) -> LayerRecord {
        self.inner.state().layers.get(&self.diff_id).map(|layer| layer.record.clone()).unwrap_or_default()
    }
}

impl Drop for LayerHold {
    fn drop(&mut self) {
        release(&mut self.inner.state().layer_holds, &self.diff_id);
    }
}

/// The entries of a folder that are named by a digest. Others are none of ours, and are removed.
fn digests(dir: &Path) -> Result<Vec<(Digest, std::path::PathBuf)>, ImageError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).at(dir)? {
        let entry = entry.at(dir)?;
        match entry.file_name().to_str().and_then(Digest::from_hex) {
            Some(digest) => found.push((digest, entry.path())),
            None => remove(&entry.path())?,
        }
    }
    Ok(found)
}

fn remove(path: &Path) -> Result<(), ImageError> {
    let removed = if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.at(path)
}
