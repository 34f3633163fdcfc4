//! Secrets of a lease: to which keys they are to be sealed, and what was sealed. Never a secret itself, but where the renter
//! said that the pool may keep them.

use alloc::string::String;
use alloc::vec::Vec;

use super::Hex;
use crate::id::{Hash32, NodeId, Signature};
use crate::seal::{SealKey, Sealed, SignedSealKey};
use crate::unit::TimeMs;

/// `GET /v1/leases/{id}/secrets`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct SecretsView {
    /// Names of the secrets that each member needs.
    pub names: Vec<String>,
    /// The renter said that the pool may keep them.
    pub pool_may_keep: bool,
    /// The pool was given them, and seals them itself.
    pub kept: bool,
    /// The members that are being prepared now: those to whom something can be sealed.
    pub members: Vec<SecretsMember>,
}

/// A member that is being prepared.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct SecretsMember {
    /// Rank.
    pub rank: u16,
    /// Which run of it.
    pub attempt: u32,
    /// On which node.
    pub node: NodeId,
    /// To which key secrets are to be sealed; absent while the node's agent has no link.
    pub key: Option<SealKeyView>,
    /// To which key the secrets of this run that are here were sealed; absent if none are. Another key than the node's:
    /// seal anew.
    pub sealed_to: Option<Hash32>,
}

/// A sealing key, as its node stated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct SealKeyView {
    /// X25519.
    pub key: Hash32,
    /// When the node made it, by its own clock.
    pub made_ms: TimeMs,
    /// By the node key over `signing_digest(pool, "seal_key", (node, key, made_ms))`: whoever seals checks it.
    pub signature: Signature,
}

impl SealKeyView {
    /// What was signed, for the node.
    #[must_use]
    pub fn of(self, node: NodeId) -> SignedSealKey {
        SignedSealKey { key: SealKey { node, key: self.key, made_ms: self.made_ms }, signature: self.signature }
    }
}

impl From<SignedSealKey> for SealKeyView {
    fn from(signed: SignedSealKey) -> Self {
        Self { key: signed.key.key, made_ms: signed.key.made_ms, signature: signed.signature }
    }
}

/// `PUT /v1/leases/{id}/secrets`: what was sealed to members, or the secrets themselves for the pool to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GiveSecrets {
    /// For members that are being prepared; of a member the last counts, until it starts.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub sealed: Vec<SealedMember>,
    /// The secrets as they are, all of them. Only if the request said `pool_may_keep_secrets`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub kept: Vec<KeptSecret>,
}

/// What was sealed to one member.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SealedMember {
    /// Rank.
    pub rank: u16,
    /// Which run of it.
    pub attempt: u32,
    /// To which key of its node.
    pub to: Hash32,
    /// The encapsulated key.
    pub enc: Hash32,
    /// All secrets: HPKE of RFC 9180, base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305, `info` being the
    /// Borsh of (`"selion"`, `"secrets"`, `1`, pool, lease, attempt, rank, node), the plaintext that of a list of (name, bytes).
    pub ciphertext: Hex,
}

impl SealedMember {
    /// The same as agents take it.
    #[must_use]
    pub fn sealed(self) -> Sealed {
        Sealed { to: self.to, enc: self.enc, ciphertext: self.ciphertext.0 }
    }
}

/// A secret as it is.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptSecret {
    /// Name.
    pub name: String,
    /// What is in it, at most 64 KiB, in Base64 of RFC 4648 with padding.
    #[schema(max_length = 87384)]
    pub value: String,
}

impl core::fmt::Debug for KeptSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeptSecret").field("name", &self.name).finish_non_exhaustive()
    }
}
