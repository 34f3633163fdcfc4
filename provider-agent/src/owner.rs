//! What an owner has in a pool, and what the owner does with it on chain: offer, node, stake, earnings, and who is paid.

use selion_api::{Account, NodeId, TimeMs};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Pool, PoolError, Receipt, Rpc, RpcError, Signer};
use tokio::time::timeout;

use crate::agent::PROVIDER_KEY;
use crate::book::{Book, OUTPUTS};
use crate::config::Config;
use crate::courier::{Courier, CourierError, now};
use crate::doctor::{NODE_KEY, WAIT, view_of};
use crate::earnings::unclaimed;
use crate::holdings::{Act, Held, Holdings, Obstacle};
use crate::join::JoinError;
use crate::outputs::Shelf;

/// Why an owner's act did not happen.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Something stands in its way.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// The state directory, the chain or the relay.
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl From<PoolError> for OwnerError {
    fn from(error: PoolError) -> Self {
        Self::Join(error.into())
    }
}

impl From<RpcError> for OwnerError {
    fn from(error: RpcError) -> Self {
        Self::Join(error.into())
    }
}

impl From<CourierError> for OwnerError {
    fn from(error: CourierError) -> Self {
        Self::Join(error.into())
    }
}

/// An owner at a pool, by a state directory. An agent may run there meanwhile.
pub struct Owner<'a> {
    config: &'a Config,
    pool: Pool,
    /// The key in the state directory.
    key: Option<Signer>,
    provider: Account,
    node: Option<NodeId>,
}

impl<'a> Owner<'a> {
    /// The owner of the state directory, or `provider` of the configuration; with that node, or the directory's own.
    ///
    /// # Errors
    ///
    /// [`OwnerError`]; a key is never made.
    pub async fn open(config: &'a Config, node: Option<NodeId>) -> Result<Self, OwnerError> {
        let key = |name: &str| {
            let path = config.state_dir.join(name);
            path.exists().then(|| Signer::open_or_create(&path)).transpose().map_err(JoinError::Sign)
        };
        let at = config.pool.ok_or(JoinError::NoPool)?;
        let node = match (node, key(NODE_KEY)?) {
            (None, Some(key)) => Some(NodeId(key.account().0)),
            (named, _) => named,
        };
        let key = key(PROVIDER_KEY)?;
        let provider = config.provider.or_else(|| key.as_ref().map(Signer::account));
        let provider = provider.ok_or_else(|| JoinError::NoKey { path: config.state_dir.join(PROVIDER_KEY) })?;
        let pool = Pool::open(Rpc::new(&config.chain_rpc)?, at).await?;
        Ok(Self { config, pool, key, provider, node })
    }

    /// What the chain says that the owner has now.
    ///
    /// # Errors
    ///
    /// [`OwnerError`].
    pub async fn holdings(&self) -> Result<Holdings, OwnerError> {
        let (pool, provider, at) = (&self.pool, self.provider, BlockTag::Latest);
        let (terms, totals) = (pool.terms(at).await?, pool.totals(provider, at).await?);
        let record = pool.provider(provider, at).await?;
        let offers = pool.offers_of(provider, at).await?;
        let node = match self.node {
            Some(node) => Some(self.held(node).await?),
            None => None,
        };
        let own = node.as_ref().is_some_and(|held| held.is_offer_of(provider));
        let others = if offers > u32::from(own) { self.other_offers().await? } else { Vec::new() };
        let known = record.unwrap_or_default();
        Ok(Holdings {
            provider,
            payee: record.map(|record| record.payout),
            stake: known.stake,
            min_stake: terms.min_stake,
            unbonding: known.unbonding,
            ready_ms: known.ready,
            unbond_s: terms.unbond_delay_s,
            node,
            offers,
            others,
            earned: totals.earned,
            fee: totals.fee,
            paid_out: totals.paid_out,
            unclaimed: unclaimed(self.config, pool).await?,
        })
    }

    async fn held(&self, node: NodeId) -> Result<Held, PoolError> {
        let provider = self.pool.node(node, BlockTag::Latest).await?.provider;
        let on_offer = self.pool.offer(node, BlockTag::Latest).await?.is_some();
        Ok(Held { node, provider, on_offer })
    }

    /// Nodes of the owner, beside this one, that are on offer.
    async fn other_offers(&self) -> Result<Vec<NodeId>, PoolError> {
        let mut others = Vec::new();
        for node in self.pool.nodes_of(self.provider).await? {
            if Some(node) != self.node && self.held(node).await?.is_offer_of(self.provider) {
                others.push(node);
            }
        }
        Ok(others)
    }

    /// The time by which the contracts judge: that of the newest block, or this clock's where it is later.
    ///
    /// # Errors
    ///
    /// [`OwnerError`].
    pub async fn now(&self) -> Result<TimeMs, OwnerError> {
        let head = self.pool.rpc.header(BlockTag::Latest).await?;
        Ok(now().max(TimeMs(head.time_s.saturating_mul(1_000))))
    }

    /// Whether an agent runs on the state directory.
    ///
    /// # Errors
    ///
    /// [`OwnerError`].
    pub fn agent_runs(&self) -> Result<bool, OwnerError> {
        Ok(Book::is_in_use(&self.config.state_dir).map_err(JoinError::Book)?)
    }

    /// How many members left outputs in the state directory that the pool does not have yet.
    #[must_use]
    pub fn unsent_outputs(&self) -> usize {
        Shelf::at(self.config.state_dir.join(OUTPUTS)).records().len()
    }

    /// How many slots of the node are leased, by the word of the controller; `None` if it does not say.
    pub async fn leased(&self) -> Option<usize> {
        let view = timeout(WAIT, view_of(self.config, self.node?)).await.ok()?.ok()?;
        Some(view.gpus.iter().map(|gpu| gpu.slots.len()).sum())
    }

    /// The owner's key.
    ///
    /// # Errors
    ///
    /// [`Obstacle::KeyElsewhere`] if another account's is here; [`JoinError::NoKey`] if none is.
    pub fn key(&self) -> Result<&Signer, OwnerError> {
        match &self.key {
            Some(key) if key.account() == self.provider => Ok(key),
            Some(key) => Err(Obstacle::KeyElsewhere { provider: self.provider, here: key.account() }.into()),
            None => Err(JoinError::NoKey { path: self.config.state_dir.join(PROVIDER_KEY) }.into()),
        }
    }

    /// Sends it as `by`, and waits for its block: by the account's own transaction, or without gas through the controller.
    ///
    /// # Errors
    ///
    /// [`OwnerError`].
    pub async fn send(&self, act: Act, by: &Signer) -> Result<Receipt, OwnerError> {
        let call = self.call(act)?;
        let Config { controller, relay, .. } = self.config;
        let courier = Courier { pool: &self.pool, signer: by, controller, always_relay: *relay };
        Ok(courier.send(call).await?)
    }

    fn call(&self, act: Act) -> Result<Call, Obstacle> {
        let pool = &self.pool;
        Ok(match act {
            Act::CloseOffer => pool.close_offer(self.node.ok_or(Obstacle::NoNode)?),
            Act::Retire => pool.retire_node(self.node.ok_or(Obstacle::NoNode)?),
            Act::Unbond(amount) => pool.unbond(amount),
            Act::WithdrawStake => pool.withdraw_stake(),
            Act::CashOut => pool.cash_out(self.provider),
            Act::SetPayout(to) => pool.set_payout(self.provider, to),
        })
    }
}
