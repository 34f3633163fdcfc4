//! Sealing and opening.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable, single_shot_open, single_shot_seal};
use zeroize::{Zeroize, Zeroizing};

use super::{Addressee, MAX_SEALED, MAX_SECRET, MAX_SECRETS_BYTES, Sealed, check_names};
use crate::commit::canonical;
use crate::id::Hash32;

type Point = <X25519HkdfSha256 as Kem>::PublicKey;
type Scalar = <X25519HkdfSha256 as Kem>::PrivateKey;

/// Why something is not sealed or not opened. It never repeats a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// A name.
    #[error("{0}")]
    Name(String),
    /// One is too long, or all are.
    #[error("{0}")]
    TooLarge(String),
    /// The key is no X25519 key to which one can seal.
    #[error("{0} is no key to seal to")]
    BadKey(Hash32),
    /// It does not open: with another key, for another lease, run, rank, node or pool, or altered.
    #[error("it does not open: it was sealed for another run, node or key, or altered on its way")]
    NotOurs,
    /// It opens, and holds no list of secrets.
    #[error("it opens, and what is in it is no list of secrets")]
    Nonsense,
}

/// A name and what only the command is to read. It leaves memory when dropped.
#[derive(Clone, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Secret {
    /// Name of the file.
    pub name: String,
    /// What is in it.
    pub value: Vec<u8>,
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

impl Secret {
    /// What is wrong with the secrets of a lease.
    ///
    /// # Errors
    ///
    /// [`SealError::Name`], [`SealError::TooLarge`].
    pub fn check(all: &[Self]) -> Result<(), SealError> {
        let names: Vec<String> = all.iter().map(|secret| secret.name.clone()).collect();
        check_names(&names).map_err(|(_, why)| SealError::Name(why))?;
        if let Some(long) = all.iter().find(|secret| secret.value.len() > MAX_SECRET) {
            let bytes = long.value.len();
            return Err(SealError::TooLarge(format!("`{}` has {bytes} bytes; at most {MAX_SECRET}", long.name)));
        }
        let bytes: usize = all.iter().map(|secret| secret.value.len()).sum();
        if bytes > MAX_SECRETS_BYTES {
            return Err(SealError::TooLarge(format!("all secrets have {bytes} bytes; at most {MAX_SECRETS_BYTES}")));
        }
        Ok(())
    }
}

/// The private half of a node's sealing key.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<[u8; 32]>);

impl core::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("PrivateKey").finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// Of 32 random bytes, by the key schedule of RFC 9180, section 7.1.3.
    #[must_use]
    pub fn derive(random: &[u8; 32]) -> Self {
        let (private, _) = X25519HkdfSha256::derive_keypair(random);
        Self::of(&private)
    }

    fn of(private: &Scalar) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        private.write_exact(bytes.as_mut_slice());
        Self(bytes)
    }

    /// As it was kept.
    ///
    /// # Errors
    ///
    /// [`SealError::Nonsense`] if that is no key.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, SealError> {
        Scalar::from_bytes(bytes).map(|private| Self::of(&private)).map_err(|_| SealError::Nonsense)
    }

    /// To keep it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn scalar(&self) -> Result<Scalar, SealError> {
        Scalar::from_bytes(self.0.as_slice()).map_err(|_| SealError::Nonsense)
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> Hash32 {
        // Every 32 bytes are a private key of X25519.
        let mut public = Hash32::ZERO;
        if let Ok(private) = self.scalar() {
            X25519HkdfSha256::sk_to_pk(&private).write_exact(&mut public.0);
        }
        public
    }
}

/// What binds a ciphertext to whom it is for.
fn info(of: &Addressee) -> Vec<u8> {
    canonical(&("selion", "secrets", 1_u8, of))
}

/// Seals all secrets of a lease for one member.
///
/// # Errors
///
/// [`SealError::Name`], [`SealError::TooLarge`], [`SealError::BadKey`].
pub fn seal(to: &Hash32, of: &Addressee, secrets: &[Secret]) -> Result<Sealed, SealError> {
    Secret::check(secrets)?;
    let bad = || SealError::BadKey(*to);
    let point = Point::from_bytes(&to.0).map_err(|_| bad())?;
    let plain = Zeroizing::new(canonical(&secrets));
    let sealed = single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
        &OpModeS::Base,
        &point,
        &info(of),
        &plain,
        b"",
    );
    let (key, ciphertext) = sealed.map_err(|_| bad())?;
    let mut enc = Hash32::ZERO;
    key.write_exact(&mut enc.0);
    Ok(Sealed { to: *to, enc, ciphertext })
}

/// Opens what was sealed for this member to this key.
///
/// # Errors
///
/// [`SealError::NotOurs`]; of what opens and was not sealed by a client of this release, the others.
pub fn open(key: &PrivateKey, of: &Addressee, sealed: &Sealed) -> Result<Vec<Secret>, SealError> {
    if sealed.to != key.public() || sealed.ciphertext.len() > MAX_SEALED {
        return Err(SealError::NotOurs);
    }
    let enc = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(&sealed.enc.0).map_err(|_| SealError::NotOurs)?;
    let opened = single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
        &OpModeR::Base,
        &key.scalar()?,
        &enc,
        &info(of),
        &sealed.ciphertext,
        b"",
    );
    let plain = Zeroizing::new(opened.map_err(|_| SealError::NotOurs)?);
    let secrets: Vec<Secret> = borsh::from_slice(&plain).map_err(|_| SealError::Nonsense)?;
    Secret::check(&secrets)?;
    Ok(secrets)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
