//! Signing what an account asks and says, so that the log can show who did.

use ethers_signers::{LocalWallet, Signer};
use selion_api::commit::{PoolId, signing_digest};
use selion_api::rest::NewLease;
use selion_api::{Account, Hash32, Signature};

use crate::ClientError;

/// The account of a wallet.
#[must_use]
pub fn account_of(wallet: &LocalWallet) -> Account {
    Account(wallet.address().0)
}

/// A fresh `Idempotency-Key`. Use one for each lease that you want, and the same again to repeat the call.
///
/// # Errors
///
/// [`ClientError::Random`].
pub fn fresh_key() -> Result<String, ClientError> {
    Ok(hex::encode(&random()?[..16]))
}

/// Signs `lease` for `pool` under `key`. Draws the salt where there is none. `tags` are the keyed tags of its
/// datasets in order, as `GET /v1/datasets/{cid}` tells them.
///
/// # Errors
///
/// [`ClientError::Wallet`]; [`ClientError::Random`].
pub async fn sign_lease(
    lease: &mut NewLease,
    wallet: &LocalWallet,
    pool: &PoolId,
    key: &str,
    tags: Vec<Hash32>,
) -> Result<(), ClientError> {
    let salt = match lease.salt {
        Some(salt) => salt,
        None => Hash32(random()?),
    };
    lease.salt = Some(salt);
    let request = lease.request(account_of(wallet), key, &salt, tags);
    lease.signature = Some(sign_digest(&signing_digest(pool, "lease", &request), wallet).await?);
    Ok(())
}

/// The wallet's signature over 32 bytes (EIP-191).
pub(crate) async fn sign_digest(digest: &Hash32, wallet: &LocalWallet) -> Result<Signature, ClientError> {
    let signature = wallet.sign_message(digest.0).await.map_err(|error| ClientError::Wallet(error.to_string()))?;
    Ok(Signature(signature.into()))
}

fn random() -> Result<[u8; 32], ClientError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| ClientError::Random(error.to_string()))?;
    Ok(bytes)
}
