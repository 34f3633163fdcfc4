//! Which of several images is for this machine.

use std::fmt;

use oci_spec::image::{Descriptor, ImageIndex, Platform as Described};

use super::ImageError;

/// Annotation of entries that are no images: signatures, statements about a build.
const NOT_AN_IMAGE: &str = "vnd.docker.reference.type";
/// Most platforms that an error lists.
const MOST_LISTED: usize = 20;

/// An operating system and processor, in the words of images: `linux/amd64`, `linux/arm/v7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64`.
    pub architecture: String,
    /// What of the processor there is beyond the least: `v7` of arm, `v3` of amd64.
    pub variant: Option<String>,
}

impl Platform {
    /// This machine's. Of amd64 only the least is assumed.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", None),
            "aarch64" => ("arm64", Some("v8")),
            "arm" => ("arm", Some("v7")),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", None),
            "x86" => ("386", None),
            other => (other, None),
        };
        Self {
            os: std::env::consts::OS.to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.map(str::to_owned),
        }
    }

    pub(super) fn described(described: &Described) -> Self {
        Self {
            os: described.os().to_string(),
            architecture: described.architecture().to_string(),
            variant: described.variant().clone(),
        }
    }

    /// How well an image for `other` suits this machine; `None` if it does not run here.
    pub(super) fn suits(&self, other: &Self) -> Option<u32> {
        if self.os != other.os || self.architecture != other.architecture {
            return None;
        }
        let (most, needed) = (self.level()?, other.level()?);
        (needed <= most).then_some(needed)
    }

    /// Variants of one architecture are steps, each of which runs what is made for those below.
    fn level(&self) -> Option<u32> {
        let least = match self.architecture.as_str() {
            "arm64" => 8,
            "arm" => 7,
            _ => 1,
        };
        match self.variant.as_deref() {
            None | Some("") => Some(least),
            Some(variant) => variant.trim_start_matches('v').split('.').next()?.parse().ok(),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) if !variant.is_empty() => write!(f, "/{variant}"),
            _ => Ok(()),
        }
    }
}

/// The entry of an index that suits `wanted` best; the first of equals.
pub(super) fn choose<'a>(index: &'a ImageIndex, wanted: &Platform) -> Result<&'a Descriptor, ImageError> {
    let mut best: Option<(u32, &Descriptor)> = None;
    let mut there = Vec::new();
    for entry in index.manifests() {
        let annotated = entry.annotations().as_ref().is_some_and(|notes| notes.contains_key(NOT_AN_IMAGE));
        let Some(platform) = entry.platform().as_ref().map(Platform::described) else { continue };
        if annotated || platform.os == "unknown" {
            continue;
        }
        if let Some(fit) = wanted.suits(&platform)
            && best.is_none_or(|(known, _)| fit > known)
        {
            best = Some((fit, entry));
        }
        if there.len() < MOST_LISTED {
            there.push(super::shown(platform.to_string().as_bytes()));
        }
    }
    match best {
        Some((_, entry)) => Ok(entry),
        None => Err(wrong(wanted, there)),
    }
}

pub(super) fn wrong(wanted: &Platform, mut there: Vec<String>) -> ImageError {
    if there.is_empty() {
        there.push("no platform".to_owned());
    }
    ImageError::WrongPlatform { wanted: wanted.to_string(), there }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        let mut next = || parts.next();
        Platform { os: next().unwrap(), architecture: next().unwrap(), variant: next() }
    }

    #[test]
    fn a_machine_runs_its_own_variant_and_those_below() {
        let suits = |node: &str, image: &str| platform(node).suits(&platform(image)).is_some();
        assert!(suits("linux/amd64", "linux/amd64"));
        assert!(suits("linux/arm64/v8", "linux/arm64"));
        assert!(suits("linux/arm/v7", "linux/arm/v6"));
        assert!(!suits("linux/arm/v6", "linux/arm/v7"));
        assert!(!suits("linux/amd64", "linux/amd64/v3"));
        assert!(suits("linux/amd64/v3", "linux/amd64/v2"));
        assert!(!suits("linux/amd64", "linux/arm64"));
        assert!(!suits("linux/amd64", "windows/amd64"));
        assert!(!suits("linux/amd64", "linux/amd64/new"));
    }
}
