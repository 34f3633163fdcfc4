//! Making tokens, factories and pools.

use ethers_core::abi::{AbiDecode as _, AbiEncode as _};
use ethers_core::types::H160;
use selion_api::{Account, Address, Amount};

use crate::abi::controller::{CONTROLLERABI_BYTECODE, PoolConfig as AbiConfig};
use crate::abi::court::COURTABI_BYTECODE;
use crate::abi::factory::{CreateCall, POOLFACTORYABI_BYTECODE, PoolConfig};
use crate::abi::forwarder::FORWARDERABI_BYTECODE;
use crate::abi::token::TESTTOKENABI_BYTECODE;
use crate::abi::vault::VAULTABI_BYTECODE;
use crate::pool::{Pool, PoolError};
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
    /// Bonds of owners, and contradictions.
    pub court: Address,
    /// ERC-20 in which everything is paid.
    pub token: Address,
}

/// The fixed terms of a pool; see `solidity/src/interfaces/PoolConfig.sol`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTerms {
    /// ERC-20 in which everything is paid.
    pub token: Address,
    /// First owner: a cold key, or a contract.
    pub owner: Account,
    /// First authority: the hot key of the controller.
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
    /// What an owner must keep at stake.
    pub min_bond: Amount,
    /// Seconds between announcing an owner and its acceptance.
    pub hand_over_delay_s: u32,
    /// Seconds of silence after which a standby may take the authority over; 0: nobody can.
    pub take_over_after_s: u32,
    /// Content id of a description; may be empty.
    pub metadata_cid: String,
}

impl From<&PoolTerms> for PoolConfig {
    fn from(terms: &PoolTerms) -> Self {
        Self {
            token: h160(terms.token),
            owner: h160(terms.owner),
            authority: h160(terms.authority),
            fee_bps: terms.fee_bps,
            thaw_delay_s: terms.thaw_delay_s,
            unbond_delay_s: terms.unbond_delay_s,
            min_stake: terms.min_stake.0,
            finality_depth: terms.finality_depth,
            grace_s: terms.grace_s,
            allow_simulated: terms.allow_simulated,
            allow_unsandboxed: terms.allow_unsandboxed,
            min_bond: terms.min_bond.0,
            hand_over_delay_s: terms.hand_over_delay_s,
            take_over_after_s: terms.take_over_after_s,
            metadata_cid: terms.metadata_cid.clone(),
        }
    }
}

impl From<AbiConfig> for PoolTerms {
    fn from(config: AbiConfig) -> Self {
        Self {
            token: address(config.token),
            owner: account(config.owner),
            authority: account(config.authority),
            fee_bps: config.fee_bps,
            thaw_delay_s: config.thaw_delay_s,
            unbond_delay_s: config.unbond_delay_s,
            min_stake: Amount(config.min_stake),
            finality_depth: config.finality_depth,
            grace_s: config.grace_s,
            allow_simulated: config.allow_simulated,
            allow_unsandboxed: config.allow_unsandboxed,
            min_bond: Amount(config.min_bond),
            hand_over_delay_s: config.hand_over_delay_s,
            take_over_after_s: config.take_over_after_s,
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

/// Deploys a factory, after the forwarder that its pools trust and the blueprints that they are made from.
///
/// # Errors
///
/// Any [`PoolError`]. What was deployed before stays.
pub async fn deploy_factory(rpc: &Rpc, signer: &Signer) -> Result<Address, PoolError> {
    let mut parts = vec![deploy(rpc, signer, &FORWARDERABI_BYTECODE).await?];
    for code in [&VAULTABI_BYTECODE, &CONTROLLERABI_BYTECODE, &COURTABI_BYTECODE] {
        parts.push(deploy(rpc, signer, &blueprint(code)).await?);
    }
    let arguments: Vec<u8> = parts.into_iter().flat_map(|part| h160(part).encode()).collect();
    deploy(rpc, signer, &[POOLFACTORYABI_BYTECODE.as_ref(), &arguments].concat()).await
}

/// Creation code of an account that holds `code` as a blueprint (ERC-5202, version 0 without data): it returns what
/// comes after its own ten bytes.
fn blueprint(code: &[u8]) -> Vec<u8> {
    const PREAMBLE: [u8; 3] = [0xfe, 0x71, 0x00];
    // Code of more than 24,576 bytes is refused by the chain, long before the length has more than two bytes.
    let [.., high, low] = (PREAMBLE.len() + code.len()).to_be_bytes();
    let copies_the_rest = [0x61, high, low, 0x3d, 0x81, 0x60, 0x0a, 0x3d, 0x39, 0xf3];
    [&copies_the_rest[..], &PREAMBLE, code].concat()
}

async fn deploy(rpc: &Rpc, signer: &Signer, code: &[u8]) -> Result<Address, PoolError> {
    let receipt = send(rpc, signer, None, code.to_vec()).await?;
    receipt.created.ok_or(PoolError::NothingCreated { tx: receipt.tx })
}

/// Makes a pool through a factory.
///
/// # Errors
///
/// Any [`PoolError`]; the contract refuses terms out of their bounds, and a token without 6 to 18 decimals.
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
    let controller = H160::decode(created.topics[1].0).map(address);
    let controller = controller.map_err(|_| PoolError::NothingCreated { tx: receipt.tx })?;
    let made = Pool::open(rpc.clone(), controller).await?;
    Ok(PoolAddresses { factory, ..made.at })
}

/// Whether there is a contract at an address.
///
/// # Errors
///
/// Any [`PoolError::Rpc`].
pub async fn is_contract(rpc: &Rpc, at: Address) -> Result<bool, PoolError> {
    Ok(!rpc.code(at).await?.is_empty())
}
