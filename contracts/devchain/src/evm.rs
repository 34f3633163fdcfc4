//! Running one transaction on a state, under Cancun rules, without changing the state.

use crate::{block::Header, fees};
use revm::{
    Context, ExecuteEvm, MainBuilder, MainContext,
    context::{
        BlockEnv, TxEnv,
        result::{EVMError, InvalidTransaction, ResultAndState},
    },
    context_interface::block::BlobExcessGasAndPrice,
    database::{CacheDB, EmptyDB},
    primitives::{Address, U256, hardfork::SpecId},
};
use std::convert::Infallible;

/// The whole state of the chain, in memory.
pub(crate) type World = CacheDB<EmptyDB>;

/// Why the EVM would not start a transaction.
pub(crate) type Refusal = EVMError<Infallible>;

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A block: every check applies.
    Mine,
    /// An answer to a question: no signature, nonce or fee needs to be right.
    Ask,
}

/// Runs `tx` on `world` inside the block of `header`.
pub(crate) fn run(
    world: &World,
    header: &Header,
    chain_id: u64,
    tx: TxEnv,
    purpose: Purpose,
) -> Result<ResultAndState, Refusal> {
    let free = purpose == Purpose::Ask && tx.gas_price == 0;
    let context = Context::mainnet().with_ref_db(world).with_block(block_env(header)).modify_cfg_chained(|cfg| {
        cfg.set_spec_and_mainnet_gas_params(SpecId::CANCUN);
        cfg.chain_id = chain_id;
        cfg.disable_nonce_check = purpose == Purpose::Ask;
        cfg.disable_eip3607 = purpose == Purpose::Ask;
        cfg.tx_chain_id_check = purpose == Purpose::Mine;
        cfg.disable_base_fee = free;
    });
    context.build_mainnet().transact(tx)
}

fn block_env(header: &Header) -> BlockEnv {
    BlockEnv {
        number: U256::from(header.number),
        beneficiary: Address::ZERO,
        timestamp: U256::from(header.timestamp),
        gas_limit: fees::BLOCK_GAS_LIMIT,
        basefee: header.base_fee,
        difficulty: U256::ZERO,
        prevrandao: Some(header.mix_hash()),
        blob_excess_gas_and_price: Some(BlobExcessGasAndPrice::new_with_spec(0, SpecId::CANCUN)),
        ..BlockEnv::default()
    }
}

/// A refusal in the words that clients know from other nodes, with what to do where it is not plain.
pub(crate) fn explain(refusal: &Refusal, from: Address) -> String {
    let EVMError::Transaction(reason) = refusal else {
        return refusal.to_string();
    };
    match reason {
        InvalidTransaction::NonceTooLow { tx, state } => {
            format!("nonce too low: next nonce {state}, tx nonce {tx}; read eth_getTransactionCount and sign again")
        }
        InvalidTransaction::NonceTooHigh { tx, state } => {
            format!(
                "nonce too high: next nonce {state}, tx nonce {tx}; the dev chain keeps no queue: send nonce {state} first"
            )
        }
        InvalidTransaction::LackOfFundForMaxFee { fee, balance } => format!(
            "insufficient funds for gas * price + value: address {from:#x} have {balance} want {fee}; \
             on a dev chain, anvil_setBalance gives gas"
        ),
        InvalidTransaction::GasPriceLessThanBasefee => {
            "max fee per gas less than block base fee; read eth_feeHistory or eth_gasPrice and sign again".to_owned()
        }
        InvalidTransaction::CallerGasLimitMoreThanBlock => {
            format!("exceeds block gas limit: at most {} gas", fees::BLOCK_GAS_LIMIT)
        }
        InvalidTransaction::CallGasCostMoreThanGasLimit { initial_gas, gas_limit } => {
            format!("intrinsic gas too low: have {gas_limit}, want {initial_gas}")
        }
        InvalidTransaction::PriorityFeeGreaterThanMaxFee => {
            "max priority fee per gas higher than max fee per gas".to_owned()
        }
        InvalidTransaction::CreateInitCodeSizeLimit => "max initcode size exceeded: at most 49152 bytes".to_owned(),
        other => other.to_string(),
    }
}
