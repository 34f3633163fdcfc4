//! Secrets of a lease, sealed by the renter's client to a key of the node: what the controller stores and forwards is
//! ciphertext. A ciphertext opens for one run of one member on one node and nowhere else.

#[cfg(feature = "seal")]
mod crypt;

#[cfg(feature = "seal")]
pub use crypt::{PrivateKey, SealError, Secret, open, seal};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::commit::{PoolId, signing_digest};
use crate::id::{Hash32, LeaseId, NodeId, Signature};
use crate::unit::TimeMs;

/// Most secrets of a lease.
pub const MAX_SECRETS: usize = 64;
/// Longest name of a secret in bytes.
pub const MAX_SECRET_NAME: usize = 64;
/// Most bytes of one secret.
pub const MAX_SECRET: usize = 64 << 10;
/// Most bytes of all secrets of a lease together.
pub const MAX_SECRETS_BYTES: usize = 256 << 10;
/// Most bytes of what is sealed to one member: the secrets with their names, lengths, and the cipher's tag.
pub const MAX_SEALED: usize = MAX_SECRETS_BYTES + MAX_SECRETS * (MAX_SECRET_NAME + 8) + 64;
/// The reserved name of the credentials with which a node gets the lease's image; no file of the command.
pub const REGISTRY: &str = ".registry";
/// A client seals to no key that was made longer ago than this, or later by as much, in milliseconds: agents make a new one
/// each day, and clocks are not all right.
pub const SEAL_KEY_MS: u64 = 2 * 24 * crate::unit::MS_PER_HOUR;

/// Whether it may be the name of a secret: a file of that name in one folder, and nothing else.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    name == REGISTRY || (plain && (1..=MAX_SECRET_NAME).contains(&name.len()) && !name.starts_with('.'))
}

/// What is wrong with the names of a lease's secrets: which of them, and why.
///
/// # Errors
///
/// The index of the first that is wrong, and a sentence.
pub fn check_names(names: &[String]) -> Result<(), (usize, String)> {
    if names.len() > MAX_SECRETS {
        return Err((MAX_SECRETS, format!("a lease has at most {MAX_SECRETS} secrets, not {}", names.len())));
    }
    for (at, name) in names.iter().enumerate() {
        if !is_secret_name(name) {
            let form = "1 to 64 letters, digits, `.`, `_` and `-`, the first no `.`";
            return Err((at, format!("`{}` is not the name of a secret ({form})", name.escape_default())));
        }
        if names.iter().take(at).any(|other| other == name) {
            return Err((at, format!("`{name}` is named twice")));
        }
    }
    Ok(())
}

/// The key of a node to which secrets are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SealKey {
    /// Whose.
    pub node: NodeId,
    /// X25519.
    pub key: Hash32,
    /// When the node made it, by its own clock.
    pub made_ms: TimeMs,
}

/// A sealing key as its node stated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SignedSealKey {
    /// The key.
    pub key: SealKey,
    /// By the node key, over [`SealKey::digest_to_sign`].
    pub signature: Signature,
}

impl SealKey {
    /// What the node signs.
    pub const KIND: &'static str = "seal_key";

    /// The 32 bytes that the node key signs (EIP-191).
    #[must_use]
    pub fn digest_to_sign(&self, pool: &PoolId) -> Hash32 {
        signing_digest(pool, Self::KIND, self)
    }

    /// Whether a client may seal to it at `now`.
    #[must_use]
    pub fn is_fresh(&self, now: TimeMs) -> bool {
        now.since(self.made_ms).max(self.made_ms.since(now)) <= SEAL_KEY_MS
    }
}

/// For whom secrets are sealed. It is bound to the ciphertext, which opens for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Addressee {
    /// In which pool.
    pub pool: PoolId,
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// On which node.
    pub node: NodeId,
}

/// What was sealed: HPKE (RFC 9180) in base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305; `info` names the
/// [`Addressee`], there is no associated data, and the plaintext is the list of all secrets in Borsh.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Sealed {
    /// The [`SealKey::key`] to which.
    pub to: Hash32,
    /// The encapsulated key.
    pub enc: Hash32,
    /// All secrets.
    pub ciphertext: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn a_name_is_one_file_in_one_folder() {
        for good in ["token", "A_b-c.d", "9", ".registry", &"x".repeat(64)] {
            assert!(is_secret_name(good), "{good}");
        }
        for bad in ["", ".", "..", ".x", "a/b", "../a", "a b", "a\0", "a\n", "\u{e4}", &"x".repeat(65)] {
            assert!(!is_secret_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn names_are_few_and_each_is_there_once() {
        let names = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>();
        assert_eq!(check_names(&names(MAX_SECRETS)), Ok(()));
        assert_eq!(check_names(&names(MAX_SECRETS + 1)).map_err(|(at, _)| at), Err(MAX_SECRETS));
        let twice = vec!["a".to_string(), "b".to_string(), "a".to_string()];
        assert_eq!(check_names(&twice).map_err(|(at, _)| at), Err(2));
    }

    #[test]
    fn a_key_is_signed_for_one_pool_and_serves_two_days() {
        let key = SealKey { node: NodeId([1; 20]), key: Hash32([2; 32]), made_ms: TimeMs(SEAL_KEY_MS) };
        let pool = |chain_id| PoolId { chain_id, controller: crate::Address([3; 20]) };
        assert_ne!(key.digest_to_sign(&pool(1)), key.digest_to_sign(&pool(2)));
        let other = SealKey { node: NodeId([9; 20]), ..key };
        assert_ne!(key.digest_to_sign(&pool(1)), other.digest_to_sign(&pool(1)));
        for (now, fresh) in [(0, true), (SEAL_KEY_MS * 2, true), (SEAL_KEY_MS * 2 + 1, false)] {
            assert_eq!(key.is_fresh(TimeMs(now)), fresh, "{now}");
        }
    }
}
