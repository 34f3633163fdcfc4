//! What the outbox asks of a chain: transactions of one key.

use async_trait::async_trait;
use selion_api::{Address, Hash32};
use selion_contracts::Fees;
use selion_market::state::BlockRef;

/// An eighth more, which nodes ask of a replacement, and never less than `now`.
#[must_use]
pub fn raised(before: Fees, now: Fees) -> Fees {
    let more = |fee: u128| fee.saturating_add(fee / 8).saturating_add(1);
    Fees { max: more(before.max).max(now.max), priority: more(before.priority).max(now.priority) }
}

/// A transaction that was mined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mined {
    /// In which block.
    pub at: BlockRef,
    /// False if it was reverted.
    pub ok: bool,
}

/// Why the chain did not take something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No answer, or one without sense; the same may be tried again.
    #[error("chain node: {0}")]
    Unreachable(String),
    /// The call would be reverted.
    #[error("the contract refuses: {0}")]
    Reverted(String),
    /// The node has this transaction already.
    #[error("already known")]
    Known,
    /// The nonce was used.
    #[error("the nonce was used")]
    NonceTaken,
    /// The price is too low to be taken, or to replace the one before.
    #[error("the price of gas is too low")]
    Underpriced,
    /// The key cannot pay for gas.
    #[error("{signer} cannot pay for gas; send it some of the chain's own coin")]
    NoGas {
        /// The key's address.
        signer: Address,
    },
    /// Refused for another reason.
    #[error("the chain node refuses: {0}")]
    Refused(String),
}

/// One key's transactions.
#[async_trait]
pub trait Sender: Send + Sync {
    /// The key's address.
    fn address(&self) -> Address;

    /// Transactions of the key that the node knows, pending ones included: the next free nonce.
    ///
    /// # Errors
    ///
    /// [`SendError::Unreachable`].
    async fn next_nonce(&self) -> Result<u64, SendError>;

    /// Transactions of the key in the head's chain.
    ///
    /// # Errors
    ///
    /// [`SendError::Unreachable`].
    async fn mined_nonce(&self) -> Result<u64, SendError>;

    /// Height of a block whose chain holds all that [`mined_nonce`](Self::mined_nonce) counted before.
    ///
    /// # Errors
    ///
    /// [`SendError::Unreachable`].
    async fn head(&self) -> Result<u64, SendError>;

    /// Whether that block is on the chain.
    ///
    /// # Errors
    ///
    /// [`SendError::Unreachable`].
    async fn holds(&self, at: BlockRef) -> Result<bool, SendError>;

    /// What gas costs now.
    ///
    /// # Errors
    ///
    /// [`SendError::Unreachable`].
    async fn fees(&self) -> Result<Fees, SendError>;

    /// Gas that the call needs, with room to spare.
    ///
    /// # Errors
    ///
    /// [`SendError::Reverted`] with the contract's reason.
    async fn gas(&self, target: Address, calldata: &[u8]) -> Result<u64, SendError>;

    /// The signed transaction: its hash and its bytes.
    ///
    /// # Errors
    ///
    /// [`SendError::Refused`] if it cannot be encoded.
    fn sign(
        &self,
        target: Address,
        calldata: &[u8],
        nonce: u64,
        gas: u64,
        fees: Fees,
    ) -> Result<(Hash32, Vec<u8>), SendError>;

    /// Hands a signed transaction to the node.
    ///
    /// # Errors
    ///
    /// [`SendError`]; [`SendError::Known`] is as good as success.
    async fn send(&self, raw: &[u8]) -> Result<(), SendError>;

    /// Where a transaction was mined, if it was.
    ///
    /// # Errors
    ///
    /// [`SendError::Unreachable`].
    async fn receipt(&self, hash: Hash32) -> Result<Option<Mined>, SendError>;

    /// Why the call is reverted, in words, as the chain stood at that block.
    async fn why(&self, target: Address, calldata: &[u8], block: u64) -> String;
}
