//! Commitments and digests: how private matter is named in the public log, and what is signed.

use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use sha2::{Digest, Sha256};

use crate::id::{Address, Hash32};

/// SHA-256 of the canonical bytes of `value`.
#[must_use]
pub fn sha256_of<T: BorshSerialize>(value: &T) -> Hash32 {
    let mut hasher = Sha256::new();
    hasher.update(canonical(value));
    Hash32(hasher.finalize().into())
}

/// The canonical bytes of `value`.
#[must_use]
pub fn canonical<T: BorshSerialize>(value: &T) -> Vec<u8> {
    // Writing to memory cannot fail for our types: no length passes u32 and no map is a hash map.
    borsh::to_vec(value).unwrap_or_default()
}

/// What a renter's lease runs. It never enters the log: only [`Work::commitment`] does.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct Work {
    /// Program and arguments; with an image that names a program, the arguments after it, and none leaves the image's own.
    pub command: Vec<String>,
    /// Environment, in the order given.
    pub env: Vec<(String, String)>,
    /// Datasets by CID, each with the folder name under the data directory at which it is mounted.
    pub datasets: Vec<(String, String)>,
    /// What its commands reach.
    pub network: Network,
    /// The root file system.
    pub root: Root,
    /// What an image says of its program, said otherwise.
    pub over: Overrides,
    /// What comes to it sealed.
    pub secrets: Expected,
}

/// The secrets of a lease, by name: their values are nowhere but in what the renter's client seals to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct Expected {
    /// In ascending order, each once. A member does not start without all of them.
    pub names: Vec<String>,
    /// The renter said that the pool may keep them, and seal them itself for a later run.
    pub pool_may_keep: bool,
}

/// What a lease's commands reach beside each other. Each member has a network of its own, if its node has a sandbox;
/// members of a gang reach each other's ports whatever is said here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Network {
    /// Nothing else.
    #[default]
    None = 0,
    /// The public internet, and nothing of the node or near it.
    Internet = 1,
    /// Not even the members of its gang: each is alone.
    Apart = 2,
}

/// The file system in which a command runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Root {
    /// A small one of the node's own making: a shell and the usual tools.
    #[default]
    Base = 0,
    /// The machine's programs and libraries, read-only. Not every owner shows them.
    Machine = 1,
    /// An image of a registry, by digest: `HOST/NAME@sha256:HEX`.
    Registry(String) = 2,
    /// An image that is content of the pool, by CID: an OCI layout, or what `docker save` wrote.
    Content(String) = 3,
}

/// What a lease says in place of its image.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct Overrides {
    /// The program and its first arguments; the image's own arguments go with its entrypoint. Empty runs the command alone.
    pub entrypoint: Option<Vec<String>>,
    /// Where it starts, an absolute path inside.
    pub working_dir: Option<String>,
    /// As whom: `USER[:GROUP]`, each a name or a number of the image.
    pub user: Option<String>,
}

impl Work {
    /// `SHA-256(salt, canonical bytes)`. Without the salt the commitment says nothing: deleting the salt is erasure.
    #[must_use]
    pub fn commitment(&self, salt: &Hash32) -> Hash32 {
        salted(salt, &canonical(self))
    }
}

/// `SHA-256(salt, bytes)`: commits to `bytes` without showing them.
#[must_use]
pub fn salted(salt: &Hash32, bytes: &[u8]) -> Hash32 {
    let mut hasher = Sha256::new();
    hasher.update(salt.0);
    hasher.update(bytes);
    Hash32(hasher.finalize().into())
}

/// The pool in which a signature counts: nothing signed for one pool means anything in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct PoolId {
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// The pool's Controller contract.
    pub controller: Address,
}

/// What is signed by a renter (a request) or by a node (a report, a hello): 32 bytes that name the pool, the kind
/// of the message and its canonical bytes. The signature is over the EIP-191 form of these 32 bytes.
#[must_use]
pub fn signing_digest<T: BorshSerialize>(pool: &PoolId, kind: &str, value: &T) -> Hash32 {
    sha256_of(&("selion", kind, pool, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commitment_changes_with_every_part_and_with_the_salt() {
        let work = Work {
            command: alloc::vec![String::from("true")],
            env: Vec::new(),
            datasets: Vec::new(),
            network: Network::None,
            root: Root::Base,
            over: Overrides::default(),
            secrets: Expected::default(),
        };
        let salt = Hash32([1; 32]);
        let other = Work { command: alloc::vec![String::from("false")], ..work.clone() };
        assert_ne!(work.commitment(&salt), other.commitment(&salt));
        assert_ne!(work.commitment(&salt), work.commitment(&Hash32([2; 32])));
        let secret = Expected { names: alloc::vec![String::from("token")], pool_may_keep: false };
        let kept = Expected { pool_may_keep: true, ..secret.clone() };
        let of = |secrets| Work { secrets, ..work.clone() }.commitment(&salt);
        assert!(of(secret.clone()) != work.commitment(&salt) && of(secret) != of(kept));
    }

    #[test]
    fn a_signature_for_one_pool_means_nothing_in_another() {
        let here = PoolId { chain_id: 1, controller: Address([1; 20]) };
        let there = PoolId { chain_id: 1, controller: Address([2; 20]) };
        assert_ne!(signing_digest(&here, "report", &7_u64), signing_digest(&there, "report", &7_u64));
        assert_ne!(signing_digest(&here, "report", &7_u64), signing_digest(&here, "request", &7_u64));
    }
}
