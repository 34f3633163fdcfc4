//! One pool on one chain.

use selion_api::chain::ChainEvent;
use selion_api::rest::Terms;
use selion_api::{Address, Hash32};

use crate::deploy::{PoolAddresses, PoolTerms, is_contract};
use crate::event::{EventError, decode};
use crate::rpc::{BlockTag, Header, Log, Receipt, Rpc, RpcError};
use crate::signer::{Signer, SignerError};
use crate::tx::{Draft, TxError, send};
use crate::write::Call;

/// Why something with a pool did not work.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The chain could not be asked, or a contract refused.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// A transaction did not do what it should.
    #[error(transparent)]
    Tx(#[from] TxError),
    /// Something could not be signed.
    #[error(transparent)]
    Signer(#[from] SignerError),
    /// An event could not be read.
    #[error(transparent)]
    Event(#[from] EventError),
    /// There is no pool.
    #[error("there is no pool's controller at {at} on chain {chain_id}; check the address and the chain URL")]
    NoPool {
        /// Where it was looked for.
        at: Address,
        /// On which chain.
        chain_id: u64,
    },
    /// A contract answered in another form.
    #[error(
        "{contract} answered {what} in a form that this release does not know; use the release that matches the pool's contracts"
    )]
    BadAnswer {
        /// Who answered.
        contract: Address,
        /// What was asked.
        what: &'static str,
    },
    /// A creating transaction created nothing.
    #[error("transaction {tx} created no contract; is the factory's address right?")]
    NothingCreated {
        /// Which.
        tx: Hash32,
    },
}

/// A pool: where it is, and a node to ask. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The node of the chain.
    pub rpc: Rpc,
    /// The chain's id.
    pub chain_id: u64,
    /// The pool's contracts.
    pub at: PoolAddresses,
}

impl Pool {
    /// The pool of this controller.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoPool`] if there is none; any [`RpcError`].
    pub async fn open(rpc: Rpc, controller: Address) -> Result<Self, PoolError> {
        let chain_id = rpc.chain_id().await?;
        if !is_contract(&rpc, controller).await? {
            return Err(PoolError::NoPool { at: controller, chain_id });
        }
        let none = Address::ZERO;
        let at = PoolAddresses { factory: none, controller, vault: none, court: none, token: none };
        let pool = Self { rpc, chain_id, at };
        let parts = async {
            let (vault, court) = (pool.vault(BlockTag::Latest).await?, pool.court(BlockTag::Latest).await?);
            Ok(PoolAddresses { vault, court, token: pool.terms(BlockTag::Latest).await?.token, ..at })
        };
        match parts.await {
            Ok(at) => Ok(Self { at, ..pool }),
            Err(PoolError::Rpc(error)) if !matches!(error, RpcError::Reverted { .. } | RpcError::Malformed { .. }) => {
                Err(error.into())
            }
            Err(_) => Err(PoolError::NoPool { at: controller, chain_id }),
        }
    }

    /// The addresses whose logs are the pool's.
    #[must_use]
    pub fn addresses(&self) -> [Address; 3] {
        [self.at.controller, self.at.vault, self.at.court]
    }

    /// The newest block that is final by the pool's own rule; `None` while the chain is shorter than the depth.
    ///
    /// # Errors
    ///
    /// Any [`RpcError`].
    pub async fn final_header(&self, finality_depth: u32) -> Result<Option<Header>, RpcError> {
        if finality_depth == PoolTerms::FINALIZED_TAG {
            return self.rpc.header(BlockTag::Finalized).await.map(Some);
        }
        let latest = self.rpc.header(BlockTag::Latest).await?;
        match latest.number.checked_sub(u64::from(finality_depth)) {
            None => Ok(None),
            Some(number) if number == latest.number => Ok(Some(latest)),
            Some(number) => self.rpc.header(BlockTag::Number(number)).await.map(Some),
        }
    }

    /// The pool's facts in the block of this hash, in order.
    ///
    /// # Errors
    ///
    /// Any [`RpcError`]; [`EventError`] if an event is not known.
    pub async fn events_of_block(&self, block: Hash32) -> Result<Vec<ChainEvent>, PoolError> {
        self.decode_all(&self.rpc.logs_of_block(block, &self.addresses()).await?)
    }

    /// The facts in these logs, in order; logs of other addresses give none.
    ///
    /// # Errors
    ///
    /// [`EventError`] if an event of the pool is not known.
    pub fn decode_all(&self, logs: &[Log]) -> Result<Vec<ChainEvent>, PoolError> {
        Ok(decode(&self.at, logs)?)
    }

    /// Sends a call as a transaction and waits for its block.
    ///
    /// # Errors
    ///
    /// Any [`TxError`], with the contract's reason if it refused.
    pub async fn send(&self, signer: &Signer, call: Call) -> Result<Receipt, PoolError> {
        Ok(send(&self.rpc, signer, Some(call.to), call.data).await?)
    }

    /// Drafts a call as a transaction, for an outbox that signs and sends by itself.
    ///
    /// # Errors
    ///
    /// Any [`TxError`], with the contract's reason if it would be refused now.
    pub async fn draft(&self, signer: &Signer, call: Call) -> Result<Draft, PoolError> {
        Ok(Draft::new(&self.rpc, signer.account(), Some(call.to), call.data).await?)
    }
}

impl PoolTerms {
    /// The finality depth that means the chain's own `finalized` tag.
    pub const FINALIZED_TAG: u32 = u32::MAX;

    /// The terms as they are shown.
    #[must_use]
    pub fn shown(&self) -> Terms {
        Terms {
            fee_bps: self.fee_bps,
            min_stake: self.min_stake,
            unbond_s: self.unbond_delay_s,
            thaw_s: self.thaw_delay_s,
            grace_s: self.grace_s,
            finality_depth: (self.finality_depth != Self::FINALIZED_TAG).then_some(self.finality_depth),
            min_bond: self.min_bond,
            hand_over_s: self.hand_over_delay_s,
            take_over_after_s: self.take_over_after_s,
            allow_simulated: self.allow_simulated,
            allow_unsandboxed: self.allow_unsandboxed,
        }
    }
}
