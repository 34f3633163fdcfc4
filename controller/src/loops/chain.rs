//! [`Sender`] over the pool's node: the authority's transactions.

use async_trait::async_trait;
use selion_api::chain::ComponentKind;
use selion_api::{Account, Address, Hash32, Signature, TimeMs};
use selion_contracts::relay::made_by;
use selion_contracts::{BlockTag, Draft, Fees, Permit, Pool, RpcError, Signer};
use selion_market::state::BlockRef;

use super::sender::{Mined, SendError, Sender};

const FOREIGN: &str = "no controller makes this call: somebody altered the outbox";

/// The authority's key at the pool's node.
pub struct AuthoritySender {
    pool: Pool,
    signer: Signer,
}

impl AuthoritySender {
    /// Sends what `signer` signs to the node of `pool`.
    #[must_use]
    pub fn new(pool: Pool, signer: Signer) -> Self {
        Self { pool, signer }
    }

    /// Whether this is a call that a controller makes. Nothing else is signed, whatever the rows of the outbox say: somebody
    /// who can write them has not the key.
    fn is_own(&self, target: Address, calldata: &[u8]) -> bool {
        let (pool, at) = (&self.pool, &self.pool.at);
        let calls = [
            pool.anchor(0, 0, Hash32::ZERO, Hash32::ZERO),
            pool.renew(),
            pool.register_component(ComponentKind::Controller, "", TimeMs(0)),
            pool.claim_aggregated(Account::ZERO, 0, &Signature::ZERO, &[]),
        ];
        let ours = calls.iter().any(|call| call.to == target && call.data.get(..4) == calldata.get(..4));
        // What accounts signed: by a forwarder, whose caller is the account, or a permit of theirs.
        let relayed = made_by(calldata).is_some() && ![at.controller, at.vault, at.court, at.token].contains(&target);
        let permit = target == at.token && Permit::read(calldata, 0).is_some();
        // What fills a gap in the nonces has no effect.
        let empty = target == self.signer.address() && calldata.is_empty();
        ours || relayed || permit || empty
    }

    /// Why the call behind a relayed one is refused: the forwarder says only that it is.
    async fn behind(&self, forwarder: Address, calldata: &[u8], block: BlockTag) -> Option<String> {
        let call = made_by(calldata)?;
        match self.pool.rpc.call_from(Account(forwarder.0), Some(call.to), &call.data, block).await {
            Err(RpcError::Reverted { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    /// What a node's refusal means. Nodes agree on the words, not on the codes.
    fn read(&self, error: RpcError) -> SendError {
        match error {
            RpcError::Reverted { reason, .. } => SendError::Reverted(reason),
            RpcError::Refused { message, .. } => {
                let text = message.to_lowercase();
                let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
                if says(&["already known", "already imported", "already exists"]) {
                    SendError::Known
                } else if says(&["nonce too low", "nonce is too low", "invalid nonce"]) {
                    SendError::NonceTaken
                } else if says(&["underpriced", "less than block base fee", "fee too low", "below base fee"]) {
                    SendError::Underpriced
                } else if says(&["insufficient funds", "insufficient balance", "lack of funds"]) {
                    SendError::NoGas { signer: self.signer.address() }
                } else {
                    SendError::Refused(message)
                }
            }
            other => SendError::Unreachable(other.to_string()),
        }
    }
}

#[async_trait]
impl Sender for AuthoritySender {
    fn address(&self) -> Address {
        self.signer.address()
    }

    async fn next_nonce(&self) -> Result<u64, SendError> {
        let nonce = self.pool.rpc.nonce(self.signer.account(), BlockTag::Pending).await;
        nonce.map_err(|error| self.read(error))
    }

    async fn mined_nonce(&self) -> Result<u64, SendError> {
        let nonce = self.pool.rpc.nonce(self.signer.account(), BlockTag::Latest).await;
        nonce.map_err(|error| self.read(error))
    }

    async fn head(&self) -> Result<u64, SendError> {
        let head = self.pool.rpc.header(BlockTag::Latest).await;
        head.map(|header| header.number).map_err(|error| self.read(error))
    }

    async fn holds(&self, at: BlockRef) -> Result<bool, SendError> {
        match self.pool.rpc.header(BlockTag::Number(at.number)).await {
            Ok(header) => Ok(header.hash == at.hash),
            Err(RpcError::NoBlock { .. }) => Ok(false),
            Err(error) => Err(self.read(error)),
        }
    }

    async fn fees(&self) -> Result<Fees, SendError> {
        self.pool.rpc.fees().await.map_err(|error| self.read(error))
    }

    async fn gas(&self, target: Address, calldata: &[u8]) -> Result<u64, SendError> {
        if !self.is_own(target, calldata) {
            return Err(SendError::Reverted(FOREIGN.into()));
        }
        let (rpc, from) = (&self.pool.rpc, self.signer.account());
        let gas = rpc.estimate_gas(from, Some(target), calldata).await;
        let gas = match gas.map_err(|error| self.read(error)) {
            Err(SendError::Reverted(reason)) => {
                let behind = self.behind(target, calldata, BlockTag::Latest).await;
                return Err(SendError::Reverted(behind.unwrap_or(reason)));
            }
            other => other?,
        };
        // A fifth on top: other transactions may come first and warm or fill slots.
        Ok(gas.saturating_add(gas / 5))
    }

    fn sign(
        &self,
        target: Address,
        calldata: &[u8],
        nonce: u64,
        gas: u64,
        fees: Fees,
    ) -> Result<(Hash32, Vec<u8>), SendError> {
        if !self.is_own(target, calldata) {
            return Err(SendError::Reverted(FOREIGN.into()));
        }
        let draft = Draft { chain_id: self.pool.chain_id, nonce, to: Some(target), data: calldata.to_vec(), gas, fees };
        let signed = draft.sign(&self.signer);
        let signed = signed.map_err(|error| SendError::Refused(error.to_string()))?;
        Ok((signed.hash, signed.raw))
    }

    async fn send(&self, raw: &[u8]) -> Result<(), SendError> {
        let sent = self.pool.rpc.send_raw(raw).await;
        sent.map(drop).map_err(|error| self.read(error))
    }

    async fn receipt(&self, hash: Hash32) -> Result<Option<Mined>, SendError> {
        let receipt = self.pool.rpc.receipt(hash).await;
        let receipt = receipt.map_err(|error| self.read(error))?;
        Ok(receipt.map(|receipt| Mined {
            at: BlockRef { number: receipt.block_number, hash: receipt.block_hash },
            ok: receipt.success,
        }))
    }

    async fn why(&self, target: Address, calldata: &[u8], block: u64) -> String {
        let (rpc, from) = (&self.pool.rpc, self.signer.account());
        // The same call on the state after it usually fails in the same way.
        match rpc.call_from(from, Some(target), calldata, BlockTag::Number(block)).await {
            Err(RpcError::Reverted { reason, .. }) => {
                self.behind(target, calldata, BlockTag::Number(block)).await.unwrap_or(reason)
            }
            _ => "it ran out of gas, or the chain's state changed after it was signed".into(),
        }
    }
}
