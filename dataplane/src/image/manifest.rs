//! What registries and layouts say an image is made of.

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Digest, ImageError, ImageLimits, shown};

/// Media types of manifests and indexes, as they are asked for.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";

/// Bytes that a document names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub digest: Digest,
    /// Bytes, as declared.
    pub size: u64,
}

impl Blob {
    pub fn of(descriptor: &Descriptor) -> Result<Self, ImageError> {
        Ok(Self { digest: descriptor.digest().as_ref().parse()?, size: descriptor.size() })
    }
}

/// What an image is made of, the lowest layer first.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    pub config: Blob,
    pub layers: Vec<Blob>,
}

pub(super) enum Document {
    /// Several images, by platform.
    Index(Box<ImageIndex>),
    /// One image.
    Image(Manifest),
}

/// Only what tells the kinds apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kinds {
    media_type: Option<String>,
    manifests: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
    #[serde(rename = "fsLayers")]
    schema_one: Option<IgnoredAny>,
}

/// Reads a document whose digest is verified. A document that could be read as either kind is refused: two readers would
/// see two images.
pub(super) fn read(bytes: &[u8], limits: &ImageLimits) -> Result<Document, ImageError> {
    let malformed = |why: String| ImageError::Malformed { what: "the manifest".to_owned(), why };
    let kinds: Kinds = serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
    let says = |word: &str| kinds.media_type.as_deref().is_some_and(|kind| kind.contains(word));
    match (&kinds.manifests, &kinds.layers) {
        _ if kinds.schema_one.is_some() => Err(ImageError::Unsupported {
            what: "manifest",
            value: "docker schema 1".to_owned(),
            help: "push the image again with a tool of this decade",
        }),
        (Some(_), None) if !says("image.manifest") && !says("manifest.v2") => {
            let index = serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
            Ok(Document::Index(Box::new(index)))
        }
        (None, Some(_)) if !says("index") && !says("list") => {
            let manifest: ImageManifest =
                serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
            image(&manifest, limits).map(Document::Image)
        }
        (None, None) => Err(malformed("it lists neither layers nor manifests".to_owned())),
        _ => Err(malformed("it can be read both as an image and as an index".to_owned())),
    }
}

fn image(manifest: &ImageManifest, limits: &ImageLimits) -> Result<Manifest, ImageError> {
    let kind = manifest.config().media_type().to_string();
    if !kind.contains("image.config") && !kind.contains("container.image") {
        return Err(ImageError::Unsupported {
            what: "configuration",
            value: shown(kind.as_bytes()),
            help: "it is of something else than a container image",
        });
    }
    let config = Blob::of(manifest.config())?;
    within(config.size, limits.document_bytes, "bytes of the image's configuration")?;
    within(manifest.layers().len() as u64, limits.layers as u64, "layers of the image")?;
    let mut layers = Vec::new();
    let mut sum = 0_u64;
    for descriptor in manifest.layers() {
        let kind = descriptor.media_type().to_string();
        if !kind.contains("tar") || kind.contains("encrypted") {
            return Err(ImageError::Unsupported {
                what: "layer",
                value: shown(kind.as_bytes()),
                help: "layers are tar archives, plain or compressed with gzip or zstd",
            });
        }
        let blob = Blob::of(descriptor)?;
        sum = sum.saturating_add(blob.size);
        layers.push(blob);
    }
    within(sum, limits.compressed_bytes, "bytes of the image's layers")?;
    if layers.is_empty() {
        return Err(ImageError::Malformed { what: "the manifest".to_owned(), why: "it has no layer".to_owned() });
    }
    Ok(Manifest { config, layers })
}

pub(super) fn within(found: u64, limit: u64, what: &str) -> Result<(), ImageError> {
    if found > limit { Err(ImageError::OverLimit { what: what.to_owned(), limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        match read(text.as_bytes(), &ImageLimits::default()) {
            Ok(_) => panic!("{text} was taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_document_that_two_readers_would_read_differently_is_refused() {
        assert!(fault(r#"{"schemaVersion":2,"manifests":[],"layers":[]}"#).contains("both"));
        let lies = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","layers":[]}"#;
        assert!(fault(lies).contains("both"));
    }

    #[test]
    fn what_is_no_image_is_refused_by_its_name() {
        assert!(fault("<html>").contains("malformed"));
        assert!(fault("{}").contains("neither"));
        assert!(fault(r#"{"schemaVersion":1,"fsLayers":[]}"#).contains("schema 1"));
        let digest = Digest::of(b"x");
        let chart = format!(
            r#"{{"schemaVersion":2,"layers":[],"config":
            {{"mediaType":"application/vnd.cncf.helm.config.v1+json","digest":"{digest}","size":1}}}}"#
        );
        assert!(fault(&chart).contains("helm"), "{}", fault(&chart));
    }
}
