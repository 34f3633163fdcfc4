//! Makes a pool: token where none is given, factory, controller and vault.

use selion_api::rest::Terms;
use selion_api::{Account, Address, Amount};
use selion_contracts::deploy::{create_pool as create, deploy_factory, deploy_test_token};
use selion_contracts::{BlockTag, PoolError, PoolTerms, Rpc, Signer};
use serde::{Deserialize, Serialize};

/// What `selion pool create` writes: where a pool is. Everything else is on chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolFile {
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// Controller contract: the pool's identity.
    pub controller: Address,
    /// Vault contract.
    pub vault: Address,
    /// ERC-20 in which everything is paid.
    pub token: Address,
    /// Who made it.
    pub factory: Address,
    /// Head of the chain just after it was made; the pool is not younger.
    pub block: u64,
}

/// What a new pool is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// ERC-20 in which everything is paid; `None` deploys a test token that anyone can mint (development chains only).
    pub token: Option<Address>,
    /// Factory to use; `None` deploys one.
    pub factory: Option<Address>,
    /// First owner: who makes the pool.
    pub owner: Account,
    /// First authority: the controller's key.
    pub authority: Account,
    /// Operator's fee in ten-thousandths.
    pub fee_bps: u16,
    /// Seconds between a renter's thaw and the withdrawal.
    pub thaw_delay_s: u32,
    /// Seconds between unbonding and the return of stake.
    pub unbond_delay_s: u32,
    /// Least stake of a provider.
    pub min_stake: Amount,
    /// Blocks on top that make a block final; `u32::MAX` means the chain's `finalized` tag.
    pub finality_depth: u32,
    /// Seconds for which an old authority's vouchers stay claimable.
    pub grace_s: u32,
    /// Whether simulated GPUs may be offered.
    pub allow_simulated: bool,
    /// Whether nodes without a sandbox may be leased.
    pub allow_unsandboxed: bool,
    /// What the owner must keep at stake.
    pub min_bond: Amount,
    /// Seconds between announcing another owner and its acceptance.
    pub hand_over_delay_s: u32,
    /// Seconds of silence after which a standby may take the authority over; 0: nobody can.
    pub take_over_after_s: u32,
    /// Content id of a description; may be empty.
    pub metadata_cid: String,
}

impl PoolOptions {
    /// A pool for development: final at once, simulated GPUs and bare processes allowed, delays of three days as in
    /// a real one.
    #[must_use]
    pub fn development(owner: Account, authority: Account) -> Self {
        const THREE_DAYS_S: u32 = 259_200;
        Self {
            token: None,
            factory: None,
            owner,
            authority,
            fee_bps: 200,
            thaw_delay_s: THREE_DAYS_S,
            unbond_delay_s: THREE_DAYS_S,
            min_stake: Amount(1_000_000),
            finality_depth: 0,
            grace_s: THREE_DAYS_S,
            allow_simulated: true,
            allow_unsandboxed: true,
            min_bond: Amount::ZERO,
            hand_over_delay_s: THREE_DAYS_S,
            take_over_after_s: 86_400,
            metadata_cid: String::new(),
        }
    }
}

impl PoolOptions {
    /// The terms that all of it makes.
    #[must_use]
    pub fn terms(&self) -> Terms {
        self.with(Address::ZERO).shown()
    }

    fn with(&self, token: Address) -> PoolTerms {
        PoolTerms {
            token,
            owner: self.owner,
            authority: self.authority,
            fee_bps: self.fee_bps,
            thaw_delay_s: self.thaw_delay_s,
            unbond_delay_s: self.unbond_delay_s,
            min_stake: self.min_stake,
            finality_depth: self.finality_depth,
            grace_s: self.grace_s,
            allow_simulated: self.allow_simulated,
            allow_unsandboxed: self.allow_unsandboxed,
            min_bond: self.min_bond,
            hand_over_delay_s: self.hand_over_delay_s,
            take_over_after_s: self.take_over_after_s,
            metadata_cid: self.metadata_cid.clone(),
        }
    }
}

/// Makes a pool; `signer` pays the gas.
///
/// # Errors
///
/// Any [`PoolError`], with the contract's reason if it refused the terms. What was deployed before stays.
pub async fn create_pool(rpc: &Rpc, signer: &Signer, options: &PoolOptions) -> Result<PoolFile, PoolError> {
    let token = match options.token {
        Some(token) => token,
        None => deploy_test_token(rpc, signer).await?,
    };
    let factory = match options.factory {
        Some(factory) => factory,
        None => deploy_factory(rpc, signer).await?,
    };
    let terms = options.with(token);
    let made = create(rpc, signer, factory, &terms).await?;
    Ok(PoolFile {
        chain_id: rpc.chain_id().await?,
        controller: made.controller,
        vault: made.vault,
        token,
        factory,
        block: rpc.header(BlockTag::Latest).await?.number,
    })
}
