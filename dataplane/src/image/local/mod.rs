//! Images without a registry: an OCI image layout, as a folder or a tar of it, and what `docker save` wrote.

mod files;
mod layout;
mod saved;

use std::path::Path;

pub(super) use files::Region;
use files::{Files, FolderFiles, TarFiles};
pub(super) use layout::nested;

use super::manifest::{Blob, within};
use super::platform::Platform;
use super::{Digest, ImageError, ImageLimits};

/// What a folder or archive has of one image.
pub(super) struct Local {
    /// Digests of index and manifest, where there are such.
    pub manifests: Vec<Digest>,
    /// What it is called there.
    pub names: Vec<String>,
    pub config: Vec<u8>,
    /// The lowest first. A layer that is not named by a digest of what is there is verified by the unpacked one alone.
    pub layers: Vec<(Option<Digest>, Region)>,
}

/// Which image is looked for.
pub(super) struct Wanted<'a> {
    pub name: Option<&'a str>,
    pub platform: &'a Platform,
    pub limits: &'a ImageLimits,
}

/// Finds the image in the folder or archive at `path`.
pub(super) fn find(path: &Path, wanted: &Wanted) -> Result<Local, ImageError> {
    let files: Box<dyn Files> =
        if path.is_dir() { Box::new(FolderFiles::open(path)?) } else { Box::new(TarFiles::open(path)?) };
    let source = Source { files: files.as_ref(), path, limits: wanted.limits };
    if source.files.open(layout::MARK)?.is_some() {
        layout::find(&source, wanted)
    } else if source.files.open(saved::LIST)?.is_some() {
        saved::find(&source, wanted)
    } else {
        Err(source.missing(layout::MARK))
    }
}

struct Source<'a> {
    files: &'a dyn Files,
    path: &'a Path,
    limits: &'a ImageLimits,
}

impl Source<'_> {
    fn missing(&self, name: &str) -> ImageError {
        ImageError::NotThere { path: self.path.to_owned(), name: super::shown(name.as_bytes()) }
    }

    fn region(&self, name: &str) -> Result<Region, ImageError> {
        self.files.open(name)?.ok_or_else(|| self.missing(name))
    }

    /// A document, held in memory.
    fn document(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let region = self.region(name)?;
        within(region.len(), self.limits.document_bytes, &format!("bytes of {}", super::shown(name.as_bytes())))?;
        region.read_all(self.path)
    }

    /// A document that a digest names, verified.
    fn blob(&self, what: &'static str, blob: &Blob) -> Result<Vec<u8>, ImageError> {
        let bytes = self.document(&blob_name(&blob.digest))?;
        verify(what, blob, &bytes)?;
        Ok(bytes)
    }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Holds bytes in memory to what names them.
pub(super) fn verify(what: &'static str, blob: &Blob, bytes: &[u8]) -> Result<(), ImageError> {
    let (digest, declared, found) = (blob.digest, blob.size, bytes.len() as u64);
    if declared != found {
        return Err(ImageError::WrongSize { what, digest, declared, found });
    }
    let found = Digest::of(bytes);
    if found == digest { Ok(()) } else { Err(ImageError::WrongDigest { what, wanted: digest, found }) }
}
