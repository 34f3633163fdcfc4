//! Secrets of leases: sealed here, to keys that nodes signed. The controller sees none of them, unless the renter said so.

use selion_api::commit::PoolId;
use selion_api::rest::{GiveSecrets, Hex, SealedMember, SecretsMember, SecretsView};
use selion_api::seal::{Addressee, Secret, seal};
use selion_api::{Account, LeaseId};

use reqwest::Method;

use crate::call::{As, TIMEOUT, read};
use crate::login::now;
use crate::promise::signer;
use crate::{Client, ClientError};

impl Client {
    /// `GET /v1/leases/{id}/secrets`.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn secrets(&self, id: LeaseId) -> Result<SecretsView, ClientError> {
        self.get(As::Me, &["v1", "leases", &id.to_string(), "secrets"], &[("", ""); 0]).await
    }

    /// `PUT /v1/leases/{id}/secrets`.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn give_secrets(&self, id: LeaseId, given: &GiveSecrets) -> Result<SecretsView, ClientError> {
        let id = id.to_string();
        let make = || self.request(Method::PUT, &["v1", "leases", &id, "secrets"]).json(given).timeout(TIMEOUT);
        read(self.watcher().over(TIMEOUT, self.ask(As::Me, make)).await?).await
    }
}

/// Seals all secrets of lease `id` for a member, to the key that its node states. `None` if the node states none now. Only the
/// node's own signature makes a key one; that the node is one of the pool is for the caller to ask the chain.
///
/// # Errors
///
/// [`ClientError::Sealing`].
pub fn seal_for(
    pool: &PoolId,
    id: LeaseId,
    member: &SecretsMember,
    secrets: &[Secret],
) -> Result<Option<SealedMember>, ClientError> {
    let SecretsMember { rank, attempt, node, .. } = *member;
    let failed = |why: String| ClientError::Sealing { node, why };
    let Some(view) = member.key else { return Ok(None) };
    let signed = view.of(node);
    if signer(&signed.key.digest_to_sign(pool).0, &signed.signature) != Some(Account(node.0)) {
        return Err(failed("the key that the controller shows for it is not signed by it".to_owned()));
    }
    if !signed.key.is_fresh(now()) {
        return Err(failed(format!("its key was made at {} ms, more than two days from now", signed.key.made_ms.0)));
    }
    let of = Addressee { pool: *pool, lease: id, attempt, member: rank, node };
    let sealed = seal(&signed.key.key, &of, secrets).map_err(|error| failed(error.to_string()))?;
    let ciphertext = Hex(sealed.ciphertext);
    Ok(Some(SealedMember { rank, attempt, to: sealed.to, enc: sealed.enc, ciphertext }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ethers_signers::{LocalWallet, Signer};
    use selion_api::rest::SealKeyView;
    use selion_api::seal::{PrivateKey, SEAL_KEY_MS, SealKey, open};
    use selion_api::{Address, Hash32, NodeId, Signature, TimeMs};

    const POOL: PoolId = PoolId { chain_id: 1, controller: Address([1; 20]) };
    const LEASE: LeaseId = LeaseId { seq: 7, index: 0 };

    fn wallet(byte: u8) -> LocalWallet {
        LocalWallet::from_bytes(&[byte; 32]).unwrap()
    }

    async fn member(pool: PoolId, by: u8, made_ms: TimeMs, key: Hash32) -> SecretsMember {
        let node = NodeId(wallet(1).address().0);
        let digest = SealKey { node, key, made_ms }.digest_to_sign(&pool);
        let signature = Signature(wallet(by).sign_message(digest.0).await.unwrap().into());
        let key = Some(SealKeyView { key, made_ms, signature });
        SecretsMember { rank: 2, attempt: 3, node, key, sealed_to: None }
    }

    #[tokio::test]
    async fn secrets_are_sealed_to_a_key_that_the_node_signed_for_this_pool_and_lately() {
        let key = PrivateKey::derive(&[5; 32]);
        let secrets = [Secret { name: "a".into(), value: b"b".to_vec() }];
        let good = member(POOL, 1, now(), key.public()).await;
        let sealed = seal_for(&POOL, LEASE, &good, &secrets).unwrap().unwrap();
        let of = Addressee { pool: POOL, lease: LEASE, attempt: 3, member: 2, node: good.node };
        assert_eq!(open(&key, &of, &sealed.sealed()).unwrap(), secrets);
        let none = SecretsMember { key: None, ..good.clone() };
        assert!(seal_for(&POOL, LEASE, &none, &secrets).unwrap().is_none());

        let told = |member: &SecretsMember| seal_for(&POOL, LEASE, member, &secrets).unwrap_err().to_string();
        let elsewhere = PoolId { chain_id: 2, ..POOL };
        for foreign in [member(POOL, 2, now(), key.public()).await, member(elsewhere, 1, now(), key.public()).await] {
            assert!(told(&foreign).contains("not signed by it"), "{}", told(&foreign));
        }
        let mut swapped = good.clone();
        swapped.key = good.key.map(|view| SealKeyView { key: PrivateKey::derive(&[6; 32]).public(), ..view });
        assert!(told(&swapped).contains("not signed by it"));
        let old = member(POOL, 1, TimeMs(now().0 - SEAL_KEY_MS - 1_000), key.public()).await;
        assert!(told(&old).contains("two days"));
    }
}
