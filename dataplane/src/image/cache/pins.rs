//! Who needs which image, over restarts of the process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::state::State;
use super::{ImageCache, Inner, make_private, sync_parent};
use crate::image::error::{At, at};
use crate::image::{Digest, ImageError};

/// `owner` needs the image `id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImagePin {
    /// A lease id: what the caller pins under.
    pub owner: String,
    /// The image.
    pub id: Digest,
}

impl ImageCache {
    /// Records, for good, that `owner` needs the image: it stays, also when this process is killed and another opens the
    /// cache, until it is unpinned. Again is the same as once.
    ///
    /// # Errors
    ///
    /// [`ImageError::Gone`] if the image is not here; [`ImageError::BadOwner`]; [`ImageError::Io`].
    pub fn pin(&self, owner: &str, id: &Digest) -> Result<(), ImageError> {
        let folder = self.inner.owner_folder(owner)?;
        let mut state = self.inner.state();
        if !state.images.contains_key(id) {
            return Err(ImageError::Gone { id: *id });
        }
        make_private(&folder)?;
        let path = folder.join(id.hex());
        File::create(&path).and_then(|file| file.sync_all()).at(&path)?;
        sync_parent(&path)?;
        sync_parent(&folder)?;
        state.pins.entry(*id).or_default().insert(owner.to_owned());
        Ok(())
    }

    /// Withdraws a pin. `false` if there was none. The image stays until its room is needed.
    ///
    /// # Errors
    ///
    /// [`ImageError::BadOwner`]; [`ImageError::Io`].
    pub fn unpin(&self, owner: &str, id: &Digest) -> Result<bool, ImageError> {
        let folder = self.inner.owner_folder(owner)?;
        let mut state = self.inner.state();
        let path = folder.join(id.hex());
        match fs::remove_file(&path) {
            Ok(()) => sync_parent(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(at(&path, error)),
        }
        // Only if it is empty; it may be in use for another image.
        let _ = fs::remove_dir(&folder);
        if let Some(owners) = state.pins.get_mut(id) {
            owners.remove(owner);
            if owners.is_empty() {
                state.pins.remove(id);
            }
        }
        Ok(true)
    }

    /// All pins, by owner, then image.
    #[must_use]
    pub fn pins(&self) -> Vec<ImagePin> {
        let state = self.inner.state();
        let of = |(id, owners): (&Digest, &std::collections::BTreeSet<String>)| {
            owners.iter().map(|owner| ImagePin { owner: owner.clone(), id: *id }).collect::<Vec<_>>()
        };
        let mut pins: Vec<ImagePin> = state.pins.iter().flat_map(of).collect();
        pins.sort_unstable();
        pins
    }
}

impl Inner {
    fn owner_folder(&self, owner: &str) -> Result<PathBuf, ImageError> {
        let fits = (1..=128).contains(&owner.len())
            && !owner.starts_with('.')
            && owner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if !fits {
            return Err(ImageError::BadOwner { owner: crate::image::shown(owner.as_bytes()) });
        }
        Ok(self.dir.join("pins").join(owner))
    }
}

/// Reads the pins. One of an image that is not there is removed: whoever needs the image has to pull it again.
pub(super) fn load(dir: &Path, state: &mut State) -> Result<(), ImageError> {
    for owner in fs::read_dir(dir).at(dir)? {
        let folder = owner.at(dir)?.path();
        let Some(owner) = folder.file_name().and_then(|name| name.to_str()).map(str::to_owned) else { continue };
        for file in fs::read_dir(&folder).at(&folder)? {
            let path = file.at(&folder)?.path();
            let id = path.file_name().and_then(|name| name.to_str()).and_then(Digest::from_hex);
            match id.filter(|id| state.images.contains_key(id)) {
                Some(id) => drop(state.pins.entry(id).or_default().insert(owner.clone())),
                None => fs::remove_file(&path).at(&path)?,
            }
        }
    }
    Ok(())
}
