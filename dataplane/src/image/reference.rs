//! What names an image.

use std::fmt;
use std::str::FromStr;

use oci_spec::distribution::Reference as Parsed;

use super::{Digest, ImageError, shown};

/// Most bytes of a reference.
const LONGEST: usize = 1024;
/// What `docker.io` is called on the network.
const DOCKER_HUB: &str = "registry-1.docker.io";

/// Registry, repository, and a tag or digest. `ubuntu` is `docker.io/library/ubuntu:latest`, as everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    parsed: Parsed,
    digest: Option<Digest>,
}

impl Reference {
    /// The host, with its port where one is written, that is called.
    #[must_use]
    pub fn host(&self) -> &str {
        match self.parsed.registry() {
            "docker.io" => DOCKER_HUB,
            host => host,
        }
    }

    /// The repository in the registry.
    #[must_use]
    pub fn repository(&self) -> &str {
        self.parsed.repository()
    }

    /// The digest, if one is written. It decides; a tag beside it is a comment.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The same as an image whose digest is known, if one is written.
    #[must_use]
    pub fn pinned(&self) -> Option<Pinned> {
        Some(Pinned { digest: self.digest?, reference: self.clone() })
    }

    /// Tag or digest, as the registry is asked for it.
    pub(super) fn wanted(&self) -> String {
        match &self.digest {
            Some(digest) => digest.to_string(),
            None => self.parsed.tag().unwrap_or("latest").to_owned(),
        }
    }
}

impl FromStr for Reference {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let bad = |why: &str| ImageError::BadReference { text: shown(text.as_bytes()), why: why.to_owned() };
        if text.len() > LONGEST {
            return Err(bad("it is too long"));
        }
        if text.contains("://") {
            return Err(bad("it is a URL"));
        }
        let parsed = Parsed::try_from(text).map_err(|error| bad(&error.to_string()))?;
        // The parser takes capitals in the first of several names; no registry does.
        if parsed.repository().bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(bad("a repository is written in lower case"));
        }
        let digest = parsed.digest().map(str::parse).transpose()?;
        Ok(Self { parsed, digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parsed.fmt(f)
    }
}

/// An image whose digest is known: what a tag says later changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    pub(super) reference: Reference,
    pub(super) digest: Digest,
}

impl Pinned {
    /// What it was resolved from.
    #[must_use]
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// Digest of the manifest, or of the index of several.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parsed = &self.reference.parsed;
        write!(f, "{}/{}@{}", parsed.registry(), parsed.repository(), self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_of_docker_hub_and_hosts_keep_their_port() {
        let read = |text: &str| text.parse::<Reference>().unwrap();
        let short = read("ubuntu");
        assert_eq!(
            (short.host(), short.repository(), short.wanted().as_str()),
            (DOCKER_HUB, "library/ubuntu", "latest")
        );
        let own = read("127.0.0.1:5000/a/b:t");
        assert_eq!((own.host(), own.repository(), own.wanted().as_str()), ("127.0.0.1:5000", "a/b", "t"));
        let digest = Digest::of(b"x");
        let both = read(&format!("ghcr.io/a/b:t@{digest}"));
        assert_eq!((both.digest(), both.wanted()), (Some(digest), digest.to_string()));
    }

    #[test]
    fn what_names_no_image_is_refused_with_the_form_to_write() {
        for bad in ["", "UPPER/case", "a b", "https://ghcr.io/a", "a/../b", "a@sha256:00", "a?x=1", &"a".repeat(2000)] {
            let error = bad.parse::<Reference>().unwrap_err();
            assert!(error.to_string().contains("NAME[:TAG]"), "{error}");
        }
        let sha512 = format!("a@sha512:{}", "0".repeat(128)).parse::<Reference>().unwrap_err();
        assert!(matches!(sha512, ImageError::Unsupported { what: "digest", .. }), "{sha512}");
    }
}
