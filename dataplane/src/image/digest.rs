//! Names of bytes as registries write them.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::ImageError;

/// The SHA-256 of some bytes; `sha256:` and 64 hex digits in text. Images know no other hash here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hex digits: a file name.
    #[must_use]
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Reads 64 hex digits.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(Self(bytes))
    }
}

impl FromStr for Digest {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        text.strip_prefix("sha256:").and_then(Self::from_hex).ok_or_else(|| ImageError::Unsupported {
            what: "digest",
            value: super::shown(text.as_bytes()),
            help: "a digest is sha256: and 64 hex digits in lower case",
        })
    }
}

impl TryFrom<String> for Digest {
    type Error = ImageError;

    fn try_from(text: String) -> Result<Self, ImageError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest under way.
#[derive(Clone, Default)]
pub(super) struct Hasher(Sha256);

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Hashes what is read through it.
pub(super) struct Hashing<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Hashing<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, hasher: Hasher::default() }
    }

    /// The digest of what was read, and the reader.
    pub fn finish(self) -> (Digest, R) {
        (self.hasher.finish(), self.inner)
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written_and_nothing_else_is() {
        let digest = Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        for bad in
            ["", "sha256:", &text[7..], &text.to_uppercase(), &text[..70], "sha512:00", "sha256:../../etc/passwd"]
        {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
