//! What `docker save` writes: `manifest.json` names a configuration and archives of layers.

use serde::Deserialize;

use super::{Local, Source, Wanted, verify};
use crate::image::manifest::{Blob, within};
use crate::image::{Digest, ImageError, shown};

/// The file that lists the images.
pub(super) const LIST: &str = "manifest.json";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

pub(super) fn find(source: &Source, wanted: &Wanted) -> Result<Local, ImageError> {
    let malformed = |why: String| ImageError::Malformed { what: LIST.to_owned(), why };
    let list: Vec<Saved> =
        serde_json::from_slice(&source.document(LIST)?).map_err(|error| malformed(error.to_string()))?;
    let saved = one(list, wanted)?;
    within(saved.layers.len() as u64, source.limits.layers as u64, "layers of the image")?;
    let config = source.document(&saved.config)?;
    if let Some(digest) = named(&saved.config) {
        verify("configuration", &Blob { digest, size: config.len() as u64 }, &config)?;
    }
    let mut layers = Vec::new();
    let mut sum = 0_u64;
    for name in &saved.layers {
        let region = source.region(name)?;
        sum = sum.saturating_add(region.len());
        layers.push((None, region));
    }
    within(sum, source.limits.unpacked_bytes, "bytes of the image's layers")?;
    if layers.is_empty() {
        return Err(malformed("the image has no layer".to_owned()));
    }
    Ok(Local { manifests: Vec::new(), names: saved.repo_tags.unwrap_or_default(), config, layers })
}

/// The digest that the name of a configuration is: `HEX.json`, or `blobs/sha256/HEX`.
fn named(name: &str) -> Option<Digest> {
    let last = name.rsplit('/').next()?;
    Digest::from_hex(last.strip_suffix(".json").unwrap_or(last))
}

fn one(mut list: Vec<Saved>, wanted: &Wanted) -> Result<Saved, ImageError> {
    let tags = list.iter().flat_map(|saved| saved.repo_tags.iter().flatten());
    let there: Vec<String> = tags.take(20).map(|tag| shown(tag.as_bytes())).collect();
    if let Some(asked) = wanted.name {
        let has = |saved: &Saved| saved.repo_tags.iter().flatten().any(|tag| tag == asked);
        let missing = ImageError::NoSuchName { wanted: shown(asked.as_bytes()), there };
        return list.into_iter().find(has).ok_or(missing);
    }
    match (list.pop(), list.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(ImageError::Malformed { what: LIST.to_owned(), why: "it lists no image".to_owned() }),
        _ => Err(ImageError::Ambiguous { there }),
    }
}
