//! Whose signature it is: EIP-191 over a message, by recovery.

use ethers_core::types::{RecoveryMessage, Signature as EthSignature, U256};
use selion_api::{Account, Hash32, Signature};

/// The account whose key signed `message` (EIP-191), if anyone's.
#[must_use]
pub fn signer_of(message: &[u8], signature: &Signature) -> Option<Account> {
    let (r, rest) = signature.0.split_first_chunk::<32>()?;
    let (s, v) = rest.split_first_chunk::<32>()?;
    // One signature has one spelling: v is 27 or 28.
    let [v @ (27 | 28)] = v else { return None };
    let signature = EthSignature { r: U256::from_big_endian(r), s: U256::from_big_endian(s), v: u64::from(*v) };
    let address = signature.recover(RecoveryMessage::Data(message.to_vec())).ok()?;
    Some(Account(address.0))
}

/// Whether `account` signed the 32 bytes of `digest`.
#[must_use]
pub fn signed_by(account: Account, digest: &Hash32, signature: &Signature) -> bool {
    signer_of(&digest.0, signature) == Some(account)
}

#[cfg(test)]
mod tests {
    use ethers_signers::{LocalWallet, Signer};

    use super::*;

    #[tokio::test]
    async fn the_signer_of_a_message_is_found_and_of_an_altered_one_is_not() {
        let wallet = LocalWallet::from_bytes(&[7; 32]).unwrap();
        let me = Account(wallet.address().0);
        let signature = Signature(wallet.sign_message([9; 32]).await.unwrap().into());
        assert!(signed_by(me, &Hash32([9; 32]), &signature));
        assert!(!signed_by(me, &Hash32([8; 32]), &signature));
        let mut other_v = signature;
        other_v.0[64] -= 27;
        assert_eq!(signer_of(&[9; 32], &other_v), None, "v is 27 or 28, never 0 or 1");
        assert!(!signed_by(me, &Hash32([9; 32]), &Signature::ZERO));
    }
}
