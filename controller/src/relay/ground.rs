//! What relaying asks of the chain.

use async_trait::async_trait;
use selion_api::{Account, Address, Hash32};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, ForwardRequest, Pool, PoolError, RpcError};

use super::judge::Refusal;

/// The chain as one forwarder's requests meet it.
#[async_trait]
pub trait Ground: Send + Sync {
    /// The nonce of the account's next request at a forwarder, or of its next permit at a token.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoAnswer`].
    async fn next_nonce(&self, counter: Address, of: Account) -> Result<u64, Refusal>;

    /// The domain under which the pool's token takes permits; `None` if it takes none.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoAnswer`].
    async fn permit_domain(&self) -> Result<Option<Hash32>, Refusal>;

    /// Whether a contract at the account accepts the signature (EIP-1271).
    ///
    /// # Errors
    ///
    /// [`Refusal::NoAnswer`].
    async fn accepts(&self, who: Account, digest: Hash32, signature: &[u8]) -> Result<bool, Refusal>;

    /// Runs the request as the chain stands, without a trace.
    ///
    /// # Errors
    ///
    /// [`Refusal::Reverted`], [`Refusal::NoAnswer`].
    async fn try_out(&self, request: &ForwardRequest, signature: &[u8]) -> Result<(), Refusal>;

    /// Runs a call of the payer's own in the same way.
    ///
    /// # Errors
    ///
    /// [`Refusal::Reverted`], [`Refusal::NoAnswer`].
    async fn try_call(&self, call: &Call) -> Result<(), Refusal>;
}

/// The node of a pool.
pub struct OnChain {
    /// The pool.
    pub pool: Pool,
    /// Its forwarder.
    pub forwarder: Address,
    /// Who sends and pays.
    pub payer: Account,
}

fn refused(error: RpcError) -> Refusal {
    match error {
        RpcError::Reverted { reason, .. } => Refusal::Reverted { reason },
        other => Refusal::NoAnswer { why: other.to_string() },
    }
}

#[async_trait]
impl Ground for OnChain {
    async fn next_nonce(&self, counter: Address, of: Account) -> Result<u64, Refusal> {
        self.pool.next_nonce(counter, of).await.map_err(|error| match error {
            PoolError::Rpc(error) => refused(error),
            other => Refusal::NoAnswer { why: other.to_string() },
        })
    }

    async fn permit_domain(&self) -> Result<Option<Hash32>, Refusal> {
        self.pool.permit_domain().await.map_err(refused)
    }

    async fn accepts(&self, who: Account, digest: Hash32, signature: &[u8]) -> Result<bool, Refusal> {
        self.pool.accepts_signature(who, digest, signature).await.map_err(refused)
    }

    async fn try_out(&self, request: &ForwardRequest, signature: &[u8]) -> Result<(), Refusal> {
        self.pool.try_request(self.forwarder, request, signature, self.payer).await.map_err(refused)
    }

    async fn try_call(&self, call: &Call) -> Result<(), Refusal> {
        let tried = self.pool.rpc.call_from(self.payer, Some(call.to), &call.data, BlockTag::Latest).await;
        tried.map(drop).map_err(refused)
    }
}
