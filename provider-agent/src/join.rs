//! Joining a pool: provider with stake, node key, offer; each only if the chain does not have it yet.

use std::path::PathBuf;

use selion_api::{Account, Address, Amount, Hash32, NodeId, NodeSpec};
use selion_contracts::{BlockTag, Pool, PoolError, Rpc, RpcError, Signer, SignerError};
use serde::Serialize;

use crate::agent::{Node, provider_key};
use crate::book::BookError;
use crate::config::Config;
use crate::courier::{Courier, CourierError};
use crate::error::AgentError;

/// Wei that a development chain gives a provider: ten coins.
const DEV_WEI: u128 = 10_000_000_000_000_000_000;
/// Token base units that a development chain gives beyond the stake.
const DEV_TOKENS: u64 = 1_000_000;

/// Why a node could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The node itself does not open.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// No pool is configured.
    #[error("no pool is set; give --pool ADDRESS (the pool's Controller contract)")]
    NoPool,
    /// The chain or the pool's contracts failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The owner's key is not on this box.
    #[error(
        "provider {wanted} must sign, but the key here is {here}'s; register node {node} and set its offer {spec_hash} with the owner's own wallet, or leave `provider` unset"
    )]
    NotOurKey {
        /// As configured.
        wanted: Account,
        /// Of `STATE/provider.key`.
        here: Account,
        /// The node to register.
        node: NodeId,
        /// The offer to set.
        spec_hash: Hash32,
    },
    /// The node key is bound to another owner.
    #[error("node {node} belongs to provider {owner}; use that provider's key, or a new --state-dir")]
    OtherOwner {
        /// The node.
        node: NodeId,
        /// On chain.
        owner: Account,
    },
    /// A call could not be sent.
    #[error(transparent)]
    Courier(#[from] CourierError),
    /// The key is not there.
    #[error("there is no key file {}; name the agent's own folder with --state-dir", path.display())]
    NoKey {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The account cannot pay the stake.
    #[error(
        "account {account} has {have} of the pool's token, the stake is {need}; send it the rest (on a development chain: --dev-fund)"
    )]
    NoStake {
        /// Whose.
        account: Account,
        /// Base units it has.
        have: u128,
        /// Base units of the stake.
        need: Amount,
    },
    /// The node key did not sign.
    #[error(transparent)]
    Sign(#[from] SignerError),
    /// The state is bound to another pool.
    #[error(transparent)]
    Book(#[from] BookError),
}

impl From<RpcError> for JoinError {
    fn from(error: RpcError) -> Self {
        Self::Pool(error.into())
    }
}

/// What the chain has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Joined {
    /// The node.
    pub node: NodeId,
    /// Its owner.
    pub provider: Account,
    /// Hash of the spec in the offer.
    pub spec_hash: Hash32,
    /// Transactions sent by this call, in order; none if everything was there.
    pub transactions: Vec<Hash32>,
}

/// Registers provider, node and offer where the chain does not have them, and waits for each. Calling it again does
/// nothing more.
///
/// # Errors
///
/// [`JoinError`]; what was registered before the failure stays.
pub async fn join(config: &Config) -> Result<Joined, JoinError> {
    let address = config.pool.ok_or(JoinError::NoPool)?;
    let pool = Pool::open(Rpc::new(&config.chain_rpc)?, address).await?;
    let node = Node::open(config).await?;
    node.book.pin_pool(selion_api::commit::PoolId { chain_id: pool.chain_id, controller: address })?;
    let owner = provider_key(&node.book)?;
    if owner.account() != node.spec.provider {
        return registered_by_owner(&pool, &node.spec, owner.account()).await;
    }
    let mut joining = Joining { config, pool, owner, sent: Vec::new() };
    // Before anything is funded, staked or sent: a wallet that may not have this node pays for nothing.
    joining.not_anothers(node.spec.node).await?;
    joining.provider().await?;
    joining.node(node.spec.node, node.book.node_key()).await?;
    let spec_hash = node.spec.hash();
    joining.offer(node.spec.node, spec_hash, node.spec.classes()).await?;
    Ok(Joined { node: node.spec.node, provider: node.spec.provider, spec_hash, transactions: joining.sent })
}

/// The owner's wallet is elsewhere: it must have registered the node and set this very offer already.
async fn registered_by_owner(pool: &Pool, spec: &NodeSpec, here: Account) -> Result<Joined, JoinError> {
    let known = pool.node(spec.node, BlockTag::Latest).await?;
    let offer = pool.offer(spec.node, BlockTag::Latest).await?;
    let spec_hash = spec.hash();
    if let Some(owner) = known.provider.filter(|owner| *owner != spec.provider) {
        return Err(JoinError::OtherOwner { node: spec.node, owner });
    }
    if known.provider.is_none() || offer.is_none_or(|offer| offer.spec_hash != spec_hash) {
        return Err(JoinError::NotOurKey { wanted: spec.provider, here, node: spec.node, spec_hash });
    }
    Ok(Joined { node: spec.node, provider: spec.provider, spec_hash, transactions: Vec::new() })
}

struct Joining<'a> {
    config: &'a Config,
    pool: Pool,
    owner: Signer,
    sent: Vec<Hash32>,
}

impl Joining<'_> {
    /// Refuses a node that the chain has as another owner's.
    async fn not_anothers(&self, node: NodeId) -> Result<(), JoinError> {
        match self.pool.node(node, BlockTag::Latest).await?.provider {
            Some(owner) if owner != self.owner.account() => Err(JoinError::OtherOwner { node, owner }),
            _ => Ok(()),
        }
    }

    async fn provider(&mut self) -> Result<(), JoinError> {
        let account = self.owner.account();
        if self.pool.provider(account, BlockTag::Latest).await?.is_some() {
            return Ok(());
        }
        let least = self.pool.terms(BlockTag::Latest).await?.min_stake;
        let stake = Amount(self.config.stake).max(least);
        if self.config.dev_fund {
            self.fund(account, stake).await?;
        }
        let have = self.pool.token_balance(Address(account.0), BlockTag::Latest).await?;
        if have < u128::from(stake.0) {
            return Err(JoinError::NoStake { account, have, need: stake });
        }
        if stake > Amount::ZERO {
            self.allow(stake).await?;
        }
        self.send(self.pool.register_provider(Address(account.0), stake)).await
    }

    async fn allow(&mut self, stake: Amount) -> Result<(), JoinError> {
        let allowed = self.courier().allow(self.pool.at.controller, stake, self.pool.approve_controller()).await?;
        self.sent.extend(allowed.map(|receipt| receipt.tx));
        Ok(())
    }

    /// Development chains only: gas that is given away, tokens that anyone may mint.
    async fn fund(&mut self, account: Account, stake: Amount) -> Result<(), JoinError> {
        self.pool.rpc.give_coins(account, DEV_WEI).await.map_err(PoolError::Tx)?;
        let want = u128::from(stake.0.saturating_add(DEV_TOKENS));
        let have = self.pool.token_balance(Address(account.0), BlockTag::Latest).await?;
        if have < want {
            self.send(self.pool.mint(Address(account.0), want - have)).await?;
        }
        Ok(())
    }

    async fn node(&mut self, node: NodeId, key: &Signer) -> Result<(), JoinError> {
        let record = self.pool.node(node, BlockTag::Latest).await?;
        if record.provider.is_some() {
            return Ok(()); // ours: see `not_anothers`
        }
        let consent = self.pool.sign_node_binding(key, self.owner.account(), record.nonce)?;
        self.send(self.pool.register_node(node, &consent)).await
    }

    async fn offer(&mut self, node: NodeId, spec_hash: Hash32, classes: u8) -> Result<(), JoinError> {
        let offer = self.pool.offer(node, BlockTag::Latest).await?;
        if offer.is_some_and(|offer| offer.spec_hash == spec_hash && offer.classes == classes) {
            return Ok(());
        }
        self.send(self.pool.set_offer(node, spec_hash, classes, "")).await
    }

    async fn send(&mut self, call: selion_contracts::write::Call) -> Result<(), JoinError> {
        let receipt = self.courier().send(call).await?;
        self.sent.push(receipt.tx);
        Ok(())
    }

    fn courier(&self) -> Courier<'_> {
        let Config { controller, relay, .. } = self.config;
        Courier { pool: &self.pool, signer: &self.owner, controller, always_relay: *relay }
    }
}
