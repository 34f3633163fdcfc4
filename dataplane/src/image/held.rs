//! An image that somebody uses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cache::{Inner, Record};
use super::error::At;
use super::user::{self, User};
use super::view::View;
use super::{Digest, ImageCache, ImageConfig, ImageError};

/// What a mount of overlayfs has to say beside its folders. Layers are made with marks that every user can set, so it holds
/// for root too; it also turns off what marks of another kind could do (`redirect_dir`, `metacopy`).
pub const MOUNT_OPTIONS: &str = "userxattr";

/// An image of a cache. It stays there as long as this, or a clone of it, lives; [`ImageCache::pin`] keeps it longer.
#[derive(Clone, Debug)]
pub struct Image {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    inner: Arc<Inner>,
    id: Digest,
    record: Arc<Record>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.state().release_image(&self.id);
    }
}

impl Image {
    /// Of an image that was held for this in the cache's state.
    pub(super) fn of(inner: &Arc<Inner>, id: &Digest, record: Arc<Record>) -> Self {
        Self { held: Arc::new(Held { inner: inner.clone(), id: *id, record }) }
    }

    /// Digest of the configuration: what the image is, however it came.
    #[must_use]
    pub fn id(&self) -> Digest {
        self.held.id
    }

    /// How it wants to be run.
    #[must_use]
    pub fn config(&self) -> &ImageConfig {
        &self.held.record.config
    }

    /// Digests of the manifests and indexes that led to it, the last first.
    #[must_use]
    pub fn manifests(&self) -> &[Digest] {
        &self.held.record.manifests
    }

    /// The folders to lay over each other, the topmost first, as `lowerdir` of overlayfs takes them. Each is read only to
    /// everybody: a change in one changes every image that has it. More than some forty paths are longer than the options
    /// of a mount may be; `/proc/self/fd/N` of their opened folders are not.
    #[must_use]
    pub fn lower(&self) -> Vec<PathBuf> {
        let Held { inner, id, record } = &*self.held;
        let seam = record.seam.then(|| inner.image_dir(id).join("seam"));
        seam.into_iter().chain(record.layers.iter().rev().map(|layer| inner.layer_root(layer))).collect()
    }

    /// Looks up `USER[:GROUP]`, each a name or a number, in the image's own `/etc/passwd` and `/etc/group`. Links in the
    /// image are followed inside of it. Empty is `0:0`. Reads files: call it off the async threads.
    ///
    /// # Errors
    ///
    /// [`ImageError::NoSuchUser`]; [`ImageError::Io`].
    pub fn user(&self, written: &str) -> Result<User, ImageError> {
        user::look_up(&self.view()?, written)
    }

    /// The first `most` bytes of a regular file of the image, links followed inside of it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ImageError::Io`].
    pub fn read(&self, path: impl AsRef<Path>, most: u64) -> Result<Option<Vec<u8>>, ImageError> {
        self.view()?.read(path.as_ref(), most).at(path.as_ref())
    }

    fn view(&self) -> Result<View, ImageError> {
        let lower = self.lower();
        View::open(lower.iter().map(PathBuf::as_path)).at(&self.held.inner.dir)
    }
}

impl ImageCache {
    /// An image that is here, by its id. Asks nobody whether the caller may have it.
    ///
    /// # Errors
    ///
    /// [`ImageError::Io`].
    pub fn get(&self, id: &Digest) -> Result<Option<Image>, ImageError> {
        let record = self.inner.known_image(id, &[], &[])?;
        Ok(record.map(|record| Image::of(&self.inner, id, record)))
    }
}
