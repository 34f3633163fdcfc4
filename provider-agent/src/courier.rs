//! How an account's calls reach the chain: as its own transactions, or, where it has no gas, signed for the pool's
//! forwarder and sent by the pool's controller.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use selion_api::rest::{Hex, NewRelay, RelayState, RelayView};
use selion_api::{Account, Address, Amount, Hash32, Signature, TimeMs};
use selion_client::{Client, ClientError};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, ForwardRequest, Permit, Pool, PoolError, Receipt, Signer, TxError, tx};

/// For how long a request is good.
const GOOD_FOR_MS: u64 = 10 * 60 * 1_000;
/// How long a relayed call may take to be in a block.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two questions how far it is.
const LOOK: Duration = Duration::from_millis(250);

/// Why a call did not happen.
#[derive(Debug, thiserror::Error)]
pub enum CourierError {
    /// The chain failed, or a contract refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The account cannot pay, and nobody pays for it.
    #[error(
        "account {account} has no gas on chain {chain_id}, and the pool's controller does not send for it: {why}; send the account some coins (on a development chain: --dev-fund), or ask the pool's operator to relay"
    )]
    NoGas {
        /// Whose.
        account: Account,
        /// Where.
        chain_id: u64,
        /// Why it is not relayed.
        why: Box<CourierError>,
    },
    /// The pool's contracts are of an earlier release.
    #[error("the pool's contracts take no relayed calls: {0}")]
    NoForwarder(PoolError),
    /// The account cannot pay, and its token cannot be allowed for by a signature.
    #[error(
        "account {account} has no gas and lets {spender} take only {allowed} base units of token {token}, not {amount}; that token takes no permits (EIP-2612), so only the account's own `approve` can allow more: send it some coins for that"
    )]
    NoPermits {
        /// Whose.
        account: Account,
        /// The token.
        token: Address,
        /// The pool's contract that would take it.
        spender: Address,
        /// Base units that it may take.
        allowed: u128,
        /// Base units that are needed.
        amount: Amount,
    },
    /// The controller did not take it.
    #[error(transparent)]
    Controller(#[from] ClientError),
    /// It was taken and did nothing.
    #[error("relayed call {id} ({call}) failed: {reason}")]
    Failed {
        /// Its id at the controller.
        id: u64,
        /// The function.
        call: String,
        /// Why.
        reason: String,
    },
    /// It was taken and is in no block.
    #[error(
        "relayed call {id} ({call}) is in no block after {waited_s} s; it may still get in: GET /v1/relay/{id} tells"
    )]
    Late {
        /// Its id at the controller.
        id: u64,
        /// The function.
        call: String,
        /// How long it was waited for.
        waited_s: u64,
    },
}

impl From<selion_contracts::RpcError> for CourierError {
    fn from(error: selion_contracts::RpcError) -> Self {
        Self::Pool(error.into())
    }
}

/// Sends one account's calls and waits for each.
pub struct Courier<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// The account.
    pub signer: &'a Signer,
    /// Base URL of the pool's controller.
    pub controller: &'a str,
    /// Relays even where the account has gas.
    pub always_relay: bool,
}

impl Courier<'_> {
    /// Whether the next call is relayed: the account has no gas, or does not want to use it.
    ///
    /// # Errors
    ///
    /// [`CourierError::Pool`].
    pub async fn relays(&self) -> Result<bool, CourierError> {
        Ok(self.always_relay || self.pool.rpc.balance(self.signer.account()).await? == 0)
    }

    /// Makes the call and waits for its block.
    ///
    /// # Errors
    ///
    /// [`CourierError`].
    pub async fn send(&self, call: Call) -> Result<Receipt, CourierError> {
        if !self.relays().await? {
            match self.pool.send(self.signer, call.clone()).await {
                // Nothing was sent: that is seen while it is drafted.
                Err(PoolError::Tx(TxError::NoGas { .. })) => {}
                other => return Ok(other?),
            }
        }
        self.explained(self.relay(call).await)
    }

    /// Lets `spender`, a contract of the pool, take `amount` of the account's tokens: by the call `approve`, or by a permit
    /// where calls are relayed. `None` if it may already; else it may without end.
    ///
    /// # Errors
    ///
    /// [`CourierError`].
    pub async fn allow(
        &self,
        spender: Address,
        amount: Amount,
        approve: Call,
    ) -> Result<Option<Receipt>, CourierError> {
        let (account, token) = (self.signer.account(), self.pool.at.token);
        let allowed = self.pool.allowance(Address(account.0), spender, BlockTag::Latest).await?;
        if allowed >= u128::from(amount.0) {
            return Ok(None);
        }
        if !self.relays().await? {
            match self.pool.send(self.signer, approve).await {
                Err(PoolError::Tx(TxError::NoGas { .. })) => {}
                other => return Ok(Some(other?)),
            }
        }
        match self.pool.permit_domain().await? {
            Some(domain) => self.explained(self.permit(spender, domain).await).map(Some),
            None => Err(CourierError::NoPermits { account, token, spender, allowed, amount }),
        }
    }

    /// Says what an account without gas can do where nobody sends for it.
    fn explained(&self, relayed: Result<Receipt, CourierError>) -> Result<Receipt, CourierError> {
        match relayed {
            Err(why @ (CourierError::NoForwarder(_) | CourierError::Controller(_))) if !self.always_relay => {
                let (account, chain_id) = (self.signer.account(), self.pool.chain_id);
                Err(CourierError::NoGas { account, chain_id, why: Box::new(why) })
            }
            other => other,
        }
    }

    async fn relay(&self, call: Call) -> Result<Receipt, CourierError> {
        let (pool, from) = (self.pool, self.signer.account());
        let forwarder = pool.forwarder(BlockTag::Latest).await.map_err(|error| match error {
            PoolError::Rpc(selion_contracts::RpcError::Reverted { .. }) | PoolError::BadAnswer { .. } => {
                CourierError::NoForwarder(error)
            }
            other => other.into(),
        })?;
        let nonce = pool.forwarder_nonce(forwarder, from).await?;
        let (deadline, deadline_s) = good_until();
        let mut request = ForwardRequest { from, to: call.to, gas: 0, nonce, deadline_s, data: call.data };
        // As the forwarder calls it; the transaction's own part of the estimate is what it has to spare.
        let as_forwarder = Account(forwarder.0);
        request.gas = pool.rpc.estimate_gas(as_forwarder, Some(request.to), &request.as_told()).await?;
        let signature = request.sign(self.signer, pool.chain_id, forwarder).map_err(PoolError::from)?;
        let (gas, call) = (request.gas, Call { to: request.to, data: request.data });
        self.hand_over(call, gas, nonce, deadline, &signature).await
    }

    async fn permit(&self, spender: Address, domain: Hash32) -> Result<Receipt, CourierError> {
        let (pool, owner) = (self.pool, self.signer.account());
        let nonce = pool.permit_nonce(owner).await?;
        let (deadline, deadline_s) = good_until();
        let permit = Permit::endless(owner, spender, nonce, deadline_s);
        let signature = permit.sign(self.signer, domain).map_err(PoolError::from)?;
        let call = permit.call(pool.at.token, &signature);
        // Whoever sends it is the caller: the token looks at the signature only.
        let gas = pool.rpc.estimate_gas(owner, Some(call.to), &call.data).await?;
        self.hand_over(call, gas, nonce, deadline, &signature).await
    }

    /// Gives the controller what was signed, and waits for its block.
    async fn hand_over(
        &self,
        call: Call,
        gas: u64,
        nonce: u64,
        deadline_ms: TimeMs,
        signature: &Signature,
    ) -> Result<Receipt, CourierError> {
        let client = Client::new(self.controller)?;
        let new = NewRelay {
            from: self.signer.account(),
            to: call.to,
            gas,
            nonce,
            deadline_ms,
            data: Hex(call.data),
            signature: Hex(signature.0.to_vec()),
        };
        let taken = client.relay(&new).await?;
        tracing::info!(id = taken.id, call = taken.call, "the controller sends a call for this account");
        self.mined(&client, taken).await
    }

    async fn mined(&self, client: &Client, taken: RelayView) -> Result<Receipt, CourierError> {
        let (id, call) = (taken.id, taken.call.clone());
        let follow = async {
            let mut view = taken;
            loop {
                match (view.state, view.transaction) {
                    (RelayState::Mined, Some(hash)) => return Ok(hash),
                    (RelayState::Failed, _) => {
                        let reason = view.reason.unwrap_or_else(|| "no reason given".into());
                        return Err(CourierError::Failed { id, call: view.call, reason });
                    }
                    _ => tokio::time::sleep(LOOK).await,
                }
                view = match client.relayed(id).await {
                    Err(error) if error.is_retryable() => view,
                    other => other?,
                };
            }
        };
        let waited_s = PATIENCE.as_secs();
        let late = |_| CourierError::Late { id, call, waited_s };
        let hash = tokio::time::timeout(PATIENCE, follow).await.map_err(late)??;
        // Our node of the chain may be behind the controller's.
        Ok(tx::wait(&self.pool.rpc, hash, PATIENCE).await.map_err(PoolError::from)?)
    }
}

/// How long what is signed now is good: in milliseconds, and in the seconds that are signed.
fn good_until() -> (TimeMs, u64) {
    let until = now().plus(GOOD_FOR_MS);
    (until, until.0 / 1_000)
}

/// This machine's clock.
pub(crate) fn now() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
