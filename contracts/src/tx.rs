//! Transactions: drafted, signed, sent and waited for, each a step of its own, so that an outbox can keep the signed
//! bytes before anybody else has them.

use std::time::Duration;

use ethers_core::types::transaction::eip2718::TypedTransaction;
use ethers_core::types::{Eip1559TransactionRequest, NameOrAddress, U256};
use ethers_core::utils::keccak256;
use selion_api::{Account, Address, Hash32};

use crate::rpc::{BlockTag, Fees, Receipt, Rpc, RpcError};
use crate::signer::{Signer, SignerError};
use crate::word::h160;

/// How long [`send`] waits for a block with the transaction.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks for a receipt.
const LOOK: Duration = Duration::from_millis(40);

/// Why a transaction did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum TxError {
    /// The chain could not be asked.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// It could not be signed.
    #[error(transparent)]
    Signer(#[from] SignerError),
    /// It is in a block, and was refused there.
    #[error("transaction {tx} was refused by the contract in block {block}: {reason}")]
    Reverted {
        /// Which.
        tx: Hash32,
        /// Where.
        block: u64,
        /// What the contract said.
        reason: String,
    },
    /// It is in no block yet.
    #[error(
        "transaction {tx} is in no block after {waited_s} s; it may still get in: look for its receipt before sending again"
    )]
    Late {
        /// Which.
        tx: Hash32,
        /// How long it was waited for.
        waited_s: u64,
    },
    /// The sender has no wei for gas.
    #[error("{account} has {wei} wei and needs up to {needed} for gas; send it some of the chain's coin")]
    NoGas {
        /// Who.
        account: Account,
        /// What is there.
        wei: u128,
        /// What is needed at most.
        needed: u128,
    },
    /// No coin is to be had of the node.
    #[error(
        "the chain at {node} gives no coin away: it knows no anvil_setBalance and signs for no account; send {account} some"
    )]
    NoGift {
        /// Where.
        node: String,
        /// For whom.
        account: Account,
    },
}

/// A transaction ready to be signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Chain (EIP-155).
    pub chain_id: u64,
    /// Number of the sender's transaction.
    pub nonce: u64,
    /// To whom; `None` makes a contract.
    pub to: Option<Address>,
    /// Call or creation code.
    pub data: Vec<u8>,
    /// Most gas it may use.
    pub gas: u64,
    /// What gas may cost.
    pub fees: Fees,
}

/// A signed transaction: its hash is known before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedTx {
    /// Its hash.
    pub hash: Hash32,
    /// The bytes for [`Rpc::send_raw`].
    pub raw: Vec<u8>,
}

impl Draft {
    /// A draft for `from` with the next nonce, an estimate of gas with a fifth on top, and the fees of now.
    ///
    /// # Errors
    ///
    /// [`RpcError::Reverted`] with the contract's reason if it would be refused now; [`TxError::NoGas`].
    pub async fn new(rpc: &Rpc, from: Account, to: Option<Address>, data: Vec<u8>) -> Result<Self, TxError> {
        let chain_id = rpc.chain_id().await?;
        let nonce = rpc.nonce(from, BlockTag::Pending).await?;
        let estimate = rpc.estimate_gas(from, to, &data).await?;
        let fees = rpc.fees().await?;
        let gas = estimate + estimate / 5;
        let needed = fees.max.saturating_mul(u128::from(gas));
        let wei = rpc.balance(from).await?;
        if wei < needed {
            return Err(TxError::NoGas { account: from, wei, needed });
        }
        Ok(Self { chain_id, nonce, to, data, gas, fees })
    }

    /// The same with another nonce.
    #[must_use]
    pub fn with_nonce(self, nonce: u64) -> Self {
        Self { nonce, ..self }
    }

    /// Signs it (EIP-1559). Equal drafts give equal bytes.
    ///
    /// # Errors
    ///
    /// [`SignerError::Refused`].
    pub fn sign(&self, signer: &Signer) -> Result<SignedTx, SignerError> {
        let request = Eip1559TransactionRequest {
            from: None,
            to: self.to.map(|to| NameOrAddress::Address(h160(to))),
            gas: Some(U256::from(self.gas)),
            value: Some(U256::zero()),
            data: Some(self.data.clone().into()),
            nonce: Some(U256::from(self.nonce)),
            access_list: Default::default(),
            max_priority_fee_per_gas: Some(U256::from(self.fees.priority)),
            max_fee_per_gas: Some(U256::from(self.fees.max)),
            chain_id: Some(self.chain_id.into()),
        };
        let raw = signer.sign_transaction(&TypedTransaction::Eip1559(request))?.to_vec();
        Ok(SignedTx { hash: Hash32(keccak256(&raw)), raw })
    }
}

/// Waits until the transaction is in a block.
///
/// # Errors
///
/// [`TxError::Late`] after `patience`; [`TxError::Reverted`] if it was refused there.
pub async fn wait(rpc: &Rpc, tx: Hash32, patience: Duration) -> Result<Receipt, TxError> {
    let look = async {
        loop {
            if let Some(receipt) = rpc.receipt(tx).await? {
                return Ok::<_, TxError>(receipt);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let receipt = tokio::time::timeout(patience, look)
        .await
        .map_err(|_| TxError::Late { tx, waited_s: patience.as_secs() })??;
    if receipt.success {
        return Ok(receipt);
    }
    let reason = String::from("it ran out of gas, or the state changed after it was drafted");
    Err(TxError::Reverted { tx, block: receipt.block_number, reason })
}

/// Drafts, signs, sends and waits.
///
/// # Errors
///
/// Any [`TxError`]; a refusal is usually seen before anything is sent, as [`RpcError::Reverted`].
pub async fn send(rpc: &Rpc, signer: &Signer, to: Option<Address>, data: Vec<u8>) -> Result<Receipt, TxError> {
    let draft = Draft::new(rpc, signer.account(), to, data).await?;
    let signed = draft.sign(signer)?;
    rpc.send_raw(&signed.raw).await?;
    tracing::debug!(tx = %signed.hash, nonce = draft.nonce, "transaction sent");
    match wait(rpc, signed.hash, PATIENCE).await {
        Err(TxError::Reverted { tx, block, reason }) => {
            // The same call on the state after it usually tells why.
            let again = rpc.call_from(signer.account(), to, &draft.data, BlockTag::Number(block)).await;
            let reason = if let Err(RpcError::Reverted { reason, .. }) = again { reason } else { reason };
            Err(TxError::Reverted { tx, block, reason })
        }
        other => other,
    }
}
