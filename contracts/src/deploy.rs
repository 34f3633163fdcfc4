//! Making tokens, factories and pools.

use ethers_core::abi::{AbiDecode as _, AbiEncode as _};
use ethers_core::types::H160;
use selion_api::{Account, Address, Amount};

use crate::abi::controller::PoolConfig as AbiConfig;
use crate::abi::factory::{CreateCall, POOLFACTORYABI_BYTECODE, PoolConfig};
use crate::abi::token::TESTTOKENABI_BYTECODE;
use crate::pool::PoolError;
use crate::rpc::Rpc;
use crate::signer::Signer;
use crate::tx::send;
use crate::word::{account, address, h160};

/// Where a pool's contracts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolAddresses {
    /// Who made it; zero if not known.
    pub factory: Address,
    /// Registry, authority, anchors: the pool's identity.
    pub controller: Address,
    /// The money.
    pub vault: Address,
    /// ERC-20 in which everything is paid.
    pub token: Address,
}

/// The fixed terms of a pool; see `solidity/src/interfaces/PoolConfig.sol`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTerms {
    /// ERC-20 in which everything is paid.
    pub token: Address,
    /// First authority.
    pub authority: Account,
    /// Operator's fee in ten-thousandths.
    pub fee_bps: u16,
    /// Seconds between thaw and withdrawal, and for which a revoked key stays claimable.
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
    /// Content id of a description; may be empty.
    pub metadata_cid: String,
}

impl From<&PoolTerms> for PoolConfig {
    fn from(terms: &PoolTerms) -> Self {
        Self {
            token: h160(terms.token),
            authority: h160(terms.authority),
            fee_bps: terms.fee_bps,
            thaw_delay_s: terms.thaw_delay_s,
            unbond_delay_s: terms.unbond_delay_s,
            min_stake: terms.min_stake.0,
            finality_depth: terms.finality_depth,
            grace_s: terms.grace_s,
            allow_simulated: terms.allow_simulated,
            allow_unsandboxed: terms.allow_unsandboxed,
            metadata_cid: terms.metadata_cid.clone(),
        }
    }
}

impl From<AbiConfig> for PoolTerms {
    fn from(config: AbiConfig) -> Self {
        Self {
            token: address(config.token),
            authority: account(config.authority),
            fee_bps: config.fee_bps,
            thaw_delay_s: config.thaw_delay_s,
            unbond_delay_s: config.unbond_delay_s,
            min_stake: Amount(config.min_stake),
            finality_depth: config.finality_depth,
            grace_s: config.grace_s,
            allow_simulated: config.allow_simulated,
            allow_unsandboxed: config.allow_unsandboxed,
            metadata_cid: config.metadata_cid,
        }
    }
}

/// Deploys a test token: six decimals, anyone can mint. Development chains only.
///
/// # Errors
///
/// Any [`PoolError`].
pub async fn deploy_test_token(rpc: &Rpc, signer: &Signer) -> Result<Address, PoolError> {
    deploy(rpc, signer, &TESTTOKENABI_BYTECODE).await
}

/// Deploys a factory.
///
/// # Errors
///
/// Any [`PoolError`].
pub async fn deploy_factory(rpc: &Rpc, signer: &Signer) -> Result<Address, PoolError> {
    deploy(rpc, signer, &POOLFACTORYABI_BYTECODE).await
}

async fn deploy(rpc: &Rpc, signer: &Signer, code: &[u8]) -> Result<Address, PoolError> {
    let receipt = send(rpc, signer, None, code.to_vec()).await?;
    receipt.created.ok_or(PoolError::NothingCreated { tx: receipt.tx })
}

/// Makes a pool through a factory.
///
/// # Errors
///
/// Any [`PoolError`]; the contract refuses a fee above 10,000, no authority, and a token without 6 to 18 decimals.
pub async fn create_pool(
    rpc: &Rpc,
    signer: &Signer,
    factory: Address,
    terms: &PoolTerms,
) -> Result<PoolAddresses, PoolError> {
    let call = CreateCall { config: terms.into() }.encode();
    // The factory's answer is in its event, not in the receipt: PoolCreated(controller, vault, creator, ..).
    let receipt = send(rpc, signer, Some(factory), call).await?;
    let created = receipt.logs.iter().find(|log| log.address == factory && log.topics.len() == 4);
    let created = created.ok_or(PoolError::NothingCreated { tx: receipt.tx })?;
    let at = |topic: usize| H160::decode(created.topics[topic].0).map(address);
    let (controller, vault) = (at(1), at(2));
    match (controller, vault) {
        (Ok(controller), Ok(vault)) => Ok(PoolAddresses { factory, controller, vault, token: terms.token }),
        _ => Err(PoolError::NothingCreated { tx: receipt.tx }),
    }
}

/// Whether there is a contract at an address.
///
/// # Errors
///
/// Any [`PoolError::Rpc`].
pub async fn is_contract(rpc: &Rpc, at: Address) -> Result<bool, PoolError> {
    Ok(!rpc.code(at).await?.is_empty())
}
