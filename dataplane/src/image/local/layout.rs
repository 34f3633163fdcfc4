//! An OCI image layout: `index.json` names manifests, `blobs/sha256` has everything by digest.

use oci_spec::image::{Descriptor, ImageIndex};
use serde::Deserialize;

use super::{Local, Source, Wanted, blob_name};
use crate::image::manifest::{self, Blob, Document, Manifest};
use crate::image::platform::choose;
use crate::image::{Digest, ImageError, shown};

/// The file that says that a folder is one.
pub(super) const MARK: &str = "oci-layout";
const INDEX: &str = "index.json";
const VERSION: &str = "1.0.0";
/// Where builders write an entry's name.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    image_layout_version: String,
}

pub(super) fn find(source: &Source, wanted: &Wanted) -> Result<Local, ImageError> {
    let mark: Mark = read(MARK, &source.document(MARK)?)?;
    if mark.image_layout_version != VERSION {
        return Err(ImageError::Unsupported {
            what: "version of an image layout",
            value: shown(mark.image_layout_version.as_bytes()),
            help: "write one of version 1.0.0",
        });
    }
    let index: ImageIndex = read(INDEX, &source.document(INDEX)?)?;
    let entry = one(&index, wanted)?;
    let first = Blob::of(entry)?;
    let mut manifests = vec![first.digest];
    let manifest = match document(source, &first)? {
        Document::Image(manifest) => manifest,
        Document::Index(inner) => {
            let blob = Blob::of(choose(&inner, wanted.platform)?)?;
            manifests.push(blob.digest);
            match document(source, &blob)? {
                Document::Image(manifest) => manifest,
                Document::Index(_) => return Err(nested(&blob.digest)),
            }
        }
    };
    let names = name(entry).map(str::to_owned).into_iter().collect();
    Ok(Local {
        manifests,
        names,
        config: source.blob("configuration", &manifest.config)?,
        layers: layers(source, &manifest)?,
    })
}

fn read<'a, T: Deserialize<'a>>(what: &str, bytes: &'a [u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ImageError::Malformed { what: what.to_owned(), why: error.to_string() })
}

fn document(source: &Source, blob: &Blob) -> Result<Document, ImageError> {
    manifest::read(&source.blob("manifest", blob)?, source.limits)
}

pub(in crate::image) fn nested(digest: &Digest) -> ImageError {
    ImageError::Unsupported {
        what: "manifest",
        value: digest.to_string(),
        help: "it is an index in an index; name the inner one",
    }
}

/// The entry of the wanted name; without a name the only one, or that of the platform.
fn one<'a>(index: &'a ImageIndex, wanted: &Wanted) -> Result<&'a Descriptor, ImageError> {
    let all = index.manifests();
    let there = || all.iter().filter_map(name).take(20).map(|name| shown(name.as_bytes())).collect::<Vec<_>>();
    if let Some(asked) = wanted.name {
        let missing = || ImageError::NoSuchName { wanted: shown(asked.as_bytes()), there: there() };
        return all.iter().find(|entry| name(entry) == Some(asked)).ok_or_else(missing);
    }
    match all.as_slice() {
        [only] => Ok(only),
        several if several.iter().any(|entry| entry.platform().is_some()) => choose(index, wanted.platform),
        _ => Err(ImageError::Ambiguous { there: there() }),
    }
}

fn name(entry: &Descriptor) -> Option<&str> {
    let notes = entry.annotations().as_ref()?;
    NAMES.iter().find_map(|key| notes.get(*key)).map(String::as_str)
}

fn layers(source: &Source, manifest: &Manifest) -> Result<Vec<(Option<Digest>, super::Region)>, ImageError> {
    let mut layers = Vec::new();
    for layer in &manifest.layers {
        let region = source.region(&blob_name(&layer.digest))?;
        if region.len() != layer.size {
            return Err(ImageError::WrongSize {
                what: "layer",
                digest: layer.digest,
                declared: layer.size,
                found: region.len(),
            });
        }
        layers.push((Some(layer.digest), region));
    }
    Ok(layers)
}
