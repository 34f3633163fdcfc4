//! Joining a pool: provider with stake, node key, offer; each only if the chain does not have it yet. First everything is
//! looked at, the pool's terms and its controller too; nothing is sent before that.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use selion_api::commit::PoolId;
use selion_api::rest::Terms;
use selion_api::slice::{IsolationClass, Sandbox};
use selion_api::{Account, Address, Amount, Hash32, NodeId, NodeSpec, TimeMs};
use selion_client::ClientError;
use selion_contracts::read::ProviderRecord;
use selion_contracts::{BlockTag, Pool, PoolError, Rpc, RpcError, Signer, SignerError};
use serde::Serialize;

use crate::agent::{Node, provider_key};
use crate::book::BookError;
use crate::config::Config;
use crate::controller::{self, OtherPool, Unfit};
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
        "account {account} has {} tokens, the stake takes {}; send it the rest (on a development chain: --dev-fund){}",
        tokens(*have), tokens(need.0.into()), returning(*unbonding, *ready)
    )]
    NoStake {
        /// Whose.
        account: Account,
        /// Base units it has.
        have: u128,
        /// Base units that are to be staked.
        need: Amount,
        /// Former stake on its way back.
        unbonding: Amount,
        /// When that can be taken.
        ready: TimeMs,
    },
    /// The controller is another pool's.
    #[error(transparent)]
    OtherPool(#[from] OtherPool),
    /// The controller does not answer, and there is something to register.
    #[error("nothing was sent: before it stakes or registers anything the agent asks the pool's controller")]
    NoController(#[source] ClientError),
    /// The pool takes no such GPUs.
    #[error("nothing was sent: pool {pool} was made without simulated GPUs; offer real ones, or join another pool")]
    NoSimulated {
        /// Which pool.
        pool: Address,
    },
    /// The pool takes no node without a sandbox.
    #[error(
        "nothing was sent: pool {pool} leases no node without a sandbox, and none works here; `selion agent doctor` says why"
    )]
    NoSandbox {
        /// Which pool.
        pool: Address,
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

/// What joining binds the owner to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// The pool.
    pub pool: PoolId,
    /// Who decides and countersigns.
    pub authority: Account,
    /// The pool's terms.
    pub terms: Terms,
    /// What in them stands out, a sentence each.
    pub warnings: Vec<String>,
    /// The node.
    pub node: NodeId,
    /// How its leases are kept apart.
    pub sandbox: Sandbox,
    /// Its owner.
    pub provider: Account,
    /// Stake that counts now.
    pub stake: Amount,
    /// What joining takes from the owner's account and adds to the stake.
    pub to_stake: Amount,
}

/// A node that may join: all was looked at, nothing was sent.
pub struct Prospect<'a> {
    /// What joining means.
    pub standing: Standing,
    joining: Joining<'a>,
    node: Node,
    record: Option<ProviderRecord>,
}

/// Reads the pool's terms, the owner's and the node's standing on chain, and asks the controller whether it speaks for that
/// pool.
///
/// # Errors
///
/// [`JoinError`]. A controller that does not answer is one only where there is something to register: what is registered
/// waits for it.
pub async fn look(config: &Config) -> Result<Prospect<'_>, JoinError> {
    let address = config.pool.ok_or(JoinError::NoPool)?;
    let pool = Pool::open(Rpc::new(&config.chain_rpc)?, address).await?;
    let id = PoolId { chain_id: pool.chain_id, controller: address };
    let silent = match controller::speaks_for(&config.controller, id).await {
        Ok(_) => None,
        Err(Unfit::OtherPool(other)) => return Err(other.into()),
        Err(Unfit::Silent(error)) => Some(error),
    };
    let node = Node::open(config).await?;
    node.book.pin_pool(id)?;
    let owner = provider_key(&node.book)?;
    let (provider, block) = (node.spec.provider, BlockTag::Latest);
    let (terms, authority) = (pool.terms(block).await?.shown(), pool.authority(block).await?);
    let record = pool.provider(provider, block).await?;
    let stake = record.as_ref().map_or(Amount::ZERO, |record| record.stake);
    let to_stake = Amount(config.stake).max(terms.min_stake).saturating_sub(stake);
    let (warnings, sandbox) = (terms.warnings(), node.spec.sandbox);
    let standing =
        Standing { pool: id, authority, terms, warnings, node: node.spec.node, sandbox, provider, stake, to_stake };
    let prospect = Prospect { standing, joining: Joining { config, pool, owner, sent: Vec::new() }, node, record };
    let own = prospect.joining.owner.account() == provider;
    if own {
        prospect.joining.not_anothers(prospect.standing.node).await?;
    }
    match silent {
        Some(error) if own && prospect.has_to_send().await? => Err(JoinError::NoController(error)),
        _ => Ok(prospect),
    }
}

/// [`look`], and then [`Prospect::join`].
///
/// # Errors
///
/// [`JoinError`]; what was registered before the failure stays.
pub async fn join(config: &Config) -> Result<Joined, JoinError> {
    look(config).await?.join().await
}

impl Prospect<'_> {
    /// Whether the chain lacks something of this node.
    async fn has_to_send(&self) -> Result<bool, PoolError> {
        let (pool, spec) = (&self.joining.pool, &self.node.spec);
        if self.record.is_none() || self.standing.to_stake > Amount::ZERO {
            return Ok(true);
        }
        let bound = pool.node(spec.node, BlockTag::Latest).await?.provider == Some(spec.provider);
        let offer = pool.offer(spec.node, BlockTag::Latest).await?;
        Ok(!bound || offer.is_none_or(|offer| offer.spec_hash != spec.hash()))
    }

    /// Registers provider, node and offer where the chain does not have them, adds what is missing to the stake, and waits
    /// for each. Calling it again does nothing more.
    ///
    /// # Errors
    ///
    /// [`JoinError`]; what was registered before the failure stays.
    pub async fn join(self) -> Result<Joined, JoinError> {
        let Self { standing, mut joining, node, record } = self;
        let spec = &node.spec;
        if joining.owner.account() != spec.provider {
            return registered_by_owner(&joining.pool, spec, joining.owner.account()).await;
        }
        // Before anything is funded, staked or sent: a pool that may not have this node costs nothing.
        let at = standing.pool.controller;
        if spec.classes() & IsolationClass::Simulated.bit() != 0 && !standing.terms.allow_simulated {
            return Err(JoinError::NoSimulated { pool: at });
        }
        if spec.sandbox == Sandbox::None && !standing.terms.allow_unsandboxed {
            return Err(JoinError::NoSandbox { pool: at });
        }
        joining.stake(record.as_ref(), standing.to_stake).await?;
        joining.node(spec.node, node.book.node_key()).await?;
        let spec_hash = spec.hash();
        joining.offer(spec.node, spec_hash, spec.classes()).await?;
        Ok(Joined { node: spec.node, provider: spec.provider, spec_hash, transactions: joining.sent })
    }
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

    /// Registers the owner with `missing`, or adds it to the stake that is there: of one who left nothing is.
    async fn stake(&mut self, record: Option<&ProviderRecord>, missing: Amount) -> Result<(), JoinError> {
        if record.is_some() && missing == Amount::ZERO {
            return Ok(());
        }
        let account = self.owner.account();
        if self.config.dev_fund {
            self.fund(account, missing).await?;
        }
        let have = self.pool.token_balance(Address(account.0), BlockTag::Latest).await?;
        if have < u128::from(missing.0) {
            let (unbonding, ready) =
                record.map_or((Amount::ZERO, TimeMs(0)), |record| (record.unbonding, record.ready));
            return Err(JoinError::NoStake { account, have, need: missing, unbonding, ready });
        }
        if missing > Amount::ZERO {
            self.allow(missing).await?;
        }
        let payout = record.map_or(Address(account.0), |record| record.payout);
        self.send(self.pool.register_provider(payout, missing)).await
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

/// Base units as tokens, of which the pool counts six decimals: `3.00`.
pub(crate) fn tokens(base_units: u128) -> String {
    let part = format!("{:06}", base_units % 1_000_000);
    format!("{}.{:0<2}", base_units / 1_000_000, part.trim_end_matches('0'))
}

/// What is said of former stake on its way back.
fn returning(unbonding: Amount, ready: TimeMs) -> String {
    if unbonding == Amount::ZERO {
        return String::new();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let left = (ready.0 / 1_000).saturating_sub(now);
    let when = match left {
        0 => "now".to_owned(),
        1..7_200 => format!("in {} min", left.div_ceil(60)),
        7_200..172_800 => format!("in {} h", left.div_ceil(3_600)),
        _ => format!("in {} days", left.div_ceil(86_400)),
    };
    format!(
        "; {} tokens of former stake can be taken {when} by `selion agent withdraw-stake`",
        tokens(unbonding.0.into())
    )
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
