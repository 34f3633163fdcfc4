//! Signing the messages of the link. Keys themselves are [`selion_contracts::Signer`]s, made on the box.

use borsh::BorshSerialize;
use selion_api::commit::{PoolId, signing_digest};
use selion_api::{NodeId, Signature};
use selion_contracts::{Signer, SignerError};

/// The node whose key this is.
#[must_use]
pub fn node_of(key: &Signer) -> NodeId {
    NodeId(key.account().0)
}

/// Signs `value` as a message of `kind` in `pool`: EIP-191 over `signing_digest`.
///
/// # Errors
///
/// [`SignerError::Refused`].
pub fn sign<T: BorshSerialize>(key: &Signer, pool: &PoolId, kind: &str, value: &T) -> Result<Signature, SignerError> {
    key.sign_text(&signing_digest(pool, kind, value).0)
}

#[cfg(test)]
mod tests {
    use selion_contracts::signer::recover_text;

    use super::*;

    #[test]
    fn a_signature_names_its_key_and_nothing_else() {
        let pool = PoolId { chain_id: 1, controller: selion_api::Address([7; 20]) };
        let key = Signer::random().unwrap();
        let signature = sign(&key, &pool, "report", &7_u64).unwrap();
        let signer_of = |kind, value: u64| recover_text(&signing_digest(&pool, kind, &value).0, &signature);
        assert_eq!(signer_of("report", 7), Some(key.account()));
        assert_ne!(signer_of("report", 8), Some(key.account()));
        assert_ne!(signer_of("hello", 7), Some(key.account()));
    }
}
