//! What an account says beside its requests: it gives a lease back, pauses a node, takes one back. Signed where its key is
//! known.

use std::sync::Arc;

use ethers_signers::LocalWallet;
use selion_api::commit::PoolId;
use selion_api::rest::{Extend, Lease, NodeView, Reclaim, Word};
use selion_api::said::{self, Statement};
use selion_api::{Account, LeaseId, NodeId, TimeMs};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::As;
use crate::login::now;
use crate::sign::{account_of, sign_digest};
use crate::trouble::Trouble;
use crate::{Client, ClientError};

/// The account's key, and the pool that it signs for.
pub(crate) struct Key {
    wallet: LocalWallet,
    pool: PoolId,
}

impl Client {
    /// From now on what the account says is signed: releases, extensions, pauses, reclaims. `pool` is named by whoever trusts it, not
    /// by the controller, since a word that is signed for a pool counts there.
    pub fn sign_with(&self, wallet: LocalWallet, pool: PoolId) {
        self.set_key(Arc::new(Key { wallet, pool }));
    }

    /// `POST /v1/leases/{id}/release`.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn release(&self, id: LeaseId) -> Result<Lease, ClientError> {
        let statement = |renter, said_ms| said::Release { renter, lease: id, said_ms };
        self.say(None, &["v1", "leases", &id.to_string(), "release"], statement, |word| word).await
    }

    /// `POST /v1/leases/{id}/extend`: makes it last `for_ms` longer, once for each `key`.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn extend(&self, id: LeaseId, key: &str, for_ms: u64) -> Result<Lease, ClientError> {
        let statement = |renter, said_ms| {
            let key = said::extension_key(renter, key);
            said::Extend { renter, lease: id, for_ms, key, said_ms }
        };
        let body = |Word { said_ms, signature }| Extend { for_ms, said_ms, signature };
        let path = ["v1", "leases", &id.to_string(), "extend"];
        self.say(Some(key), &path, statement, body).await
    }

    /// `POST /v1/nodes/{id}/pause`.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn pause_node(&self, id: NodeId) -> Result<NodeView, ClientError> {
        self.set_paused(id, true).await
    }

    /// `POST /v1/nodes/{id}/resume`.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn resume_node(&self, id: NodeId) -> Result<NodeView, ClientError> {
        self.set_paused(id, false).await
    }

    async fn set_paused(&self, node: NodeId, paused: bool) -> Result<NodeView, ClientError> {
        let statement = |provider, said_ms| said::SetPaused { provider, node, paused, said_ms };
        let verb = if paused { "pause" } else { "resume" };
        self.say(None, &["v1", "nodes", &node.to_string(), verb], statement, |word| word).await
    }

    /// `POST /v1/nodes/{id}/reclaim`.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn reclaim_node(&self, node: NodeId, reclaim: &Reclaim) -> Result<NodeView, ClientError> {
        let Reclaim { gpu, notice_ms, .. } = *reclaim;
        let statement = |provider, said_ms| said::Reclaim { provider, node, gpu, notice_ms, said_ms };
        let body = |Word { said_ms, signature }| Reclaim { said_ms, signature, ..*reclaim };
        self.say(None, &["v1", "nodes", &node.to_string(), "reclaim"], statement, body).await
    }

    /// Posts a word, under an `Idempotency-Key` if it has one. One that is signed is refused where this machine's clock is not the controller's. It is said again
    /// without a signature then: a lease that cannot be given back costs money.
    async fn say<S: Statement, B: Serialize, T: DeserializeOwned>(
        &self,
        once: Option<&str>,
        path: &[&str],
        statement: impl Fn(Account, TimeMs) -> S,
        body: impl Fn(Word) -> B,
    ) -> Result<T, ClientError> {
        let unsigned = Word::default();
        let Some(key) = self.key() else {
            return self.post_once(As::Me, path, once, &body(unsigned)).await;
        };
        let said_ms = now();
        let digest = statement(account_of(&key.wallet), said_ms).digest(&key.pool);
        let signed = Word { said_ms: Some(said_ms), signature: Some(sign_digest(&digest, &key.wallet).await?) };
        let answer = self.post_once(As::Me, path, once, &body(signed)).await;
        let Some(why) = answer.as_ref().err().and_then(other_clock) else {
            return answer;
        };
        self.watcher().tell(&Trouble::Unsigned { why });
        self.post_once(As::Me, path, once, &body(unsigned)).await
    }
}

/// What the controller says of a word that was signed for another time than its own.
fn other_clock(error: &ClientError) -> Option<String> {
    let ClientError::Problem(problem) = error else { return None };
    let stale = problem.errors.iter().find(|fault| fault.code == "stale");
    stale.map(|fault| fault.detail.clone()).or_else(|| (problem.code == "stale_word").then(|| problem.title.clone()))
}

#[cfg(test)]
mod tests;
