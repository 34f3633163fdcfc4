//! What is written beside layers and images.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::state::{ImageEntry, LayerEntry};
use super::{Inner, LayerHold, Reservation, Workspace, write_whole};
use crate::image::config::ImageConfig;
use crate::image::error::At;
use crate::image::unpack::Unpacked;
use crate::image::{Digest, ImageError};

/// Most names and manifests that are remembered of an image; the last ones stay.
const MOST_NAMES: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::image) struct LayerRecord {
    /// Bytes of its archive, holes of files included.
    pub bytes: u64,
    /// Bytes of disk, reckoned.
    pub disk: u64,
    pub entries: u64,
    pub opaque_root: bool,
    /// The first device node or pipe that was left out.
    pub special: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::image) struct Record {
    pub config: ImageConfig,
    /// The layers that are laid over each other, the lowest first. None is there twice.
    pub layers: Vec<Digest>,
    /// What it was called, the last first.
    pub names: Vec<String>,
    /// Digests of manifests and indexes that led to it.
    pub manifests: Vec<Digest>,
    /// Whether there is a seam to lay on top.
    pub seam: bool,
    /// Bytes of disk of the seam, reckoned.
    pub disk: u64,
}

#[derive(Serialize, Deserialize)]
struct Written {
    layers: Vec<Digest>,
    names: Vec<String>,
    manifests: Vec<Digest>,
    seam: bool,
    disk: u64,
}

impl Record {
    /// Adds what it was called this time. `false` if that was known.
    pub fn call(&mut self, names: &[String], manifests: &[Digest]) -> bool {
        let before = (self.names.clone(), self.manifests.clone());
        for name in names {
            self.names.retain(|known| known != name);
            self.names.insert(0, name.clone());
        }
        for manifest in manifests {
            self.manifests.retain(|known| known != manifest);
            self.manifests.insert(0, *manifest);
        }
        self.names.truncate(MOST_NAMES);
        self.manifests.truncate(MOST_NAMES);
        before != (self.names.clone(), self.manifests.clone())
    }

    fn written(&self) -> Vec<u8> {
        let Self { layers, names, manifests, seam, disk, .. } = self.clone();
        serde_json::to_vec(&Written { layers, names, manifests, seam, disk }).unwrap_or_default()
    }
}

pub(super) fn read_layer(path: &Path) -> Option<(LayerRecord, SystemTime)> {
    let file = path.join("layer.json");
    let record = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
    let used = fs::metadata(&file).and_then(|meta| meta.modified()).ok()?;
    path.join("root").is_dir().then_some((record, used))
}

pub(super) fn read_image(path: &Path, id: &Digest) -> Option<(Record, SystemTime)> {
    let config = fs::read(path.join("config.json")).ok()?;
    if Digest::of(&config) != *id {
        return None;
    }
    let config = ImageConfig::read(&config).ok()?;
    let file = path.join("image.json");
    let used = fs::metadata(&file).and_then(|meta| meta.modified()).ok()?;
    let Written { layers, names, manifests, seam, disk } = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
    Some((Record { config, layers, names, manifests, seam, disk }, used))
}

/// Says that something is used now, for the next process. Best effort: it orders what is removed first, nothing else.
fn touch(path: &Path) {
    let _ = File::options().write(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

impl Inner {
    /// Makes a layer that is whole in `work/root` visible, and holds it.
    pub fn publish_layer(
        self: &Arc<Self>,
        work: Workspace,
        diff_id: &Digest,
        unpacked: Unpacked,
        room: Reservation,
    ) -> Result<LayerHold, ImageError> {
        let Unpacked { bytes, disk, entries, implicit, opaque_root, special } = unpacked;
        let record = LayerRecord { bytes, disk, entries, opaque_root, special };
        let mut names = Vec::new();
        for path in implicit {
            names.extend_from_slice(&path);
            names.push(0);
        }
        let file = |name: &str| work.path().join(name);
        fs::write(file("implicit"), names).at(&file("implicit"))?;
        let written = serde_json::to_vec(&record).unwrap_or_default();
        fs::write(file("layer.json"), written).at(&file("layer.json"))?;
        work.publish(&self.layer_dir(diff_id))?;
        let mut state = self.state();
        state.layers.insert(*diff_id, LayerEntry { record, used: SystemTime::now() });
        drop(state);
        // The layer counts by itself from here on.
        drop(room);
        LayerHold::of(self, diff_id).ok_or(ImageError::Gone { id: *diff_id })
    }

    /// Folders that a layer writes into without an entry of their own.
    pub fn implicit(&self, diff_id: &Digest) -> Result<Vec<Vec<u8>>, ImageError> {
        let path = self.layer_dir(diff_id).join("implicit");
        let names = fs::read(&path).at(&path)?;
        Ok(names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    /// Makes an image visible, whose seam is in `work` if it has one, and holds it.
    pub fn publish_image(
        self: &Arc<Self>,
        work: Workspace,
        id: &Digest,
        config: &[u8],
        record: Record,
    ) -> Result<Arc<Record>, ImageError> {
        let file = |name: &str| work.path().join(name);
        fs::write(file("config.json"), config).at(&file("config.json"))?;
        fs::write(file("image.json"), record.written()).at(&file("image.json"))?;
        // One that came first is the same one.
        if let Some(known) = self.known_image(id, &record.names, &record.manifests)? {
            return Ok(known);
        }
        work.publish(&self.image_dir(id))?;
        let record = Arc::new(record);
        let mut state = self.state();
        state.images.insert(*id, ImageEntry { record: record.clone(), used: SystemTime::now() });
        state.hold_image(id);
        Ok(record)
    }

    /// The image, used now and held, under its names of this time. `None` if it is not there.
    pub fn known_image(
        self: &Arc<Self>,
        id: &Digest,
        names: &[String],
        manifests: &[Digest],
    ) -> Result<Option<Arc<Record>>, ImageError> {
        let mut state = self.state();
        let Some(entry) = state.images.get_mut(id) else { return Ok(None) };
        let mut record = Record::clone(&entry.record);
        let path = self.image_dir(id).join("image.json");
        if record.call(names, manifests) {
            write_whole(&path, &record.written())?;
            entry.record = Arc::new(record);
        }
        entry.used = SystemTime::now();
        touch(&path);
        let record = entry.record.clone();
        state.hold_image(id);
        for layer in &record.layers {
            touch(&self.layer_dir(layer).join("layer.json"));
        }
        Ok(Some(record))
    }
}
