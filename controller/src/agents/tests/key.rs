//! Node keys that sign as an agent does.

use selion_api::{Hash32, NodeId, Signature};
use selion_contracts::Signer;

/// A key made from a number.
pub(super) struct Key(Signer);

impl Key {
    pub(super) fn new(number: u8) -> Self {
        Self(Signer::from_bytes(&[number; 32]).unwrap())
    }

    pub(super) fn node(&self) -> NodeId {
        NodeId(self.0.account().0)
    }

    pub(super) fn sign(&self, digest: &Hash32) -> Signature {
        self.0.sign_text(&digest.0).unwrap()
    }
}
