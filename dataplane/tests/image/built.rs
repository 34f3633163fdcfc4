//! Images made in place, and a cache to take them into.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use selion_dataplane::image::{CacheRules, Digest, Image, ImageCache, ImageError, Platform, PullRules};
use tempfile::TempDir;

use crate::archive::Tar;

/// A layer: its archive, and the bytes that are sent.
#[derive(Clone, Debug)]
pub struct Layer {
    pub tar: Vec<u8>,
    pub sent: Vec<u8>,
}

pub fn plain(tar: Vec<u8>) -> Layer {
    Layer { sent: tar.clone(), tar }
}

pub fn gzip(tar: Vec<u8>) -> Layer {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&tar).unwrap();
    Layer { sent: encoder.finish().unwrap(), tar }
}

pub fn zstd(tar: Vec<u8>) -> Layer {
    let sent = ruzstd::encoding::compress_to_vec(tar.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    Layer { sent, tar }
}

/// One image: its manifest, and everything that it names, by digest.
#[derive(Clone, Debug)]
pub struct Built {
    pub manifest: Vec<u8>,
    pub blobs: BTreeMap<String, Vec<u8>>,
    pub layers: Vec<Digest>,
}

impl Built {
    pub fn of(layers: &[Layer]) -> Self {
        Self::with(layers, "{}")
    }

    /// With `config` as the part that says how it is run.
    pub fn with(layers: &[Layer], config: &str) -> Self {
        let ids: Vec<String> = layers.iter().map(|layer| format!("\"{}\"", Digest::of(&layer.tar))).collect();
        let Platform { os, architecture, .. } = Platform::of_this_machine();
        let config = format!(
            r#"{{"architecture":"{architecture}","os":"{os}","config":{config},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            ids.join(",")
        );
        let sent: Vec<String> =
            layers.iter().map(|layer| described("application/vnd.oci.image.layer.v1.tar+gzip", &layer.sent)).collect();
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{},"layers":[{}]}}"#,
            described("application/vnd.oci.image.config.v1+json", config.as_bytes()),
            sent.join(",")
        );
        let mut blobs: BTreeMap<String, Vec<u8>> =
            layers.iter().map(|layer| (Digest::of(&layer.sent).to_string(), layer.sent.clone())).collect();
        blobs.insert(Digest::of(config.as_bytes()).to_string(), config.into_bytes());
        let layers = layers.iter().map(|layer| Digest::of(&layer.sent)).collect();
        Self { manifest: manifest.into_bytes(), blobs, layers }
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// Writes it as an OCI image layout.
    pub fn layout(&self, dir: &Path) {
        let entry = described("application/vnd.oci.image.manifest.v1+json", &self.manifest);
        self.layout_of(dir, &entry, &[]);
    }

    /// Writes a layout whose index has `entries`, with `more` blobs.
    pub fn layout_of(&self, dir: &Path, entries: &str, more: &[&[u8]]) {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        fs::write(dir.join("index.json"), format!(r#"{{"schemaVersion":2,"manifests":[{entries}]}}"#)).unwrap();
        for bytes in self.blobs.values() {
            fs::write(blobs.join(Digest::of(bytes).hex()), bytes).unwrap();
        }
        for bytes in more.iter().copied().chain([self.manifest.as_slice()]) {
            fs::write(blobs.join(Digest::of(bytes).hex()), bytes).unwrap();
        }
    }
}

/// A descriptor of `bytes`.
pub fn described(kind: &str, bytes: &[u8]) -> String {
    format!(r#"{{"mediaType":"{kind}","digest":"{}","size":{}}}"#, Digest::of(bytes), bytes.len())
}

/// A cache in a folder of its own, with a file beside it that nothing may touch.
pub struct Place {
    pub dir: TempDir,
    pub cache: ImageCache,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("canary"), "untouched").unwrap();
        let cache = ImageCache::open(dir.path().join("cache"), CacheRules::default()).unwrap();
        Self { dir, cache }
    }

    pub async fn load(&self, built: &Built) -> Result<Image, ImageError> {
        self.load_by(built, &PullRules::default()).await
    }

    pub async fn load_by(&self, built: &Built, rules: &PullRules) -> Result<Image, ImageError> {
        let layout = tempfile::tempdir().unwrap();
        built.layout(layout.path());
        self.cache.load(layout.path(), None, rules).await
    }

    /// One plain layer.
    pub async fn take(&self, tar: Tar) -> Result<Image, ImageError> {
        self.load(&Built::of(&[plain(tar.end())])).await
    }

    /// Nothing of what was refused is there, and nothing outside was touched.
    pub fn assert_clean(&self) {
        let stat = self.cache.stat();
        assert_eq!((stat.images.len(), stat.layers, stat.bytes), (0, 0, 0));
        for name in ["work", "layers", "images"] {
            let left = fs::read_dir(self.dir.path().join("cache").join(name)).unwrap().count();
            assert_eq!(left, 0, "{name}");
        }
        self.assert_outside_untouched();
    }

    pub fn assert_outside_untouched(&self) {
        assert_eq!(fs::read_to_string(self.dir.path().join("canary")).unwrap(), "untouched");
        let mut names: Vec<_> =
            fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["cache", "canary"]);
    }
}

/// The text of a file of an image.
pub fn text(image: &Image, path: &str) -> Option<String> {
    image.read(path, 1 << 20).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
}
