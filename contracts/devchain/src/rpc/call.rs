//! `eth_call` and `eth_estimateGas`: running what was never signed.

use super::{error::RpcError, moment};
use crate::{
    block::{Header, quantity},
    chain::Chain,
    evm::{self, Purpose},
    fees,
    node::Node,
    rpc::params::{At, Params},
};
use revm::{
    context::{TxEnv, result::ExecutionResult},
    context_interface::transaction::AccessList,
    primitives::{Address, Bytes, TxKind, U256},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The call object of a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    from: Option<Address>,
    to: Option<Address>,
    gas: Option<U256>,
    gas_price: Option<U256>,
    max_fee_per_gas: Option<U256>,
    max_priority_fee_per_gas: Option<U256>,
    value: Option<U256>,
    data: Option<Bytes>,
    input: Option<Bytes>,
    access_list: Option<AccessList>,
}

/// `eth_call`: what the call would return.
pub(crate) fn call(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let (chain, header, tx) = prepare(node, params, At::Latest)?;
    match run(&chain, &header, tx)? {
        ExecutionResult::Success { output, .. } => Ok(json!(output.data())),
        failed => Err(failure(&failed)),
    }
}

/// `eth_estimateGas`: the least gas limit with which the call succeeds. Found by bisection, because a
/// contract may use less when it is given less.
pub(crate) fn estimate(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let (chain, header, tx) = prepare(node, params, At::Pending)?;
    let mut enough = tx.gas_limit;
    let most = run(&chain, &header, tx.clone())?;
    if !most.is_success() {
        return Err(match most {
            ExecutionResult::Halt { reason, .. } => RpcError::server(format!(
                "gas required exceeds allowance ({enough}) or the call cannot succeed: {reason}"
            )),
            other => failure(&other),
        });
    }
    let mut too_little = most.tx_gas_used().saturating_sub(1);
    while too_little + 1 < enough {
        let middle = too_little + (enough - too_little) / 2;
        let tried =
            evm::run(&chain.world, &header, chain.chain_id, TxEnv { gas_limit: middle, ..tx.clone() }, Purpose::Ask);
        // A refusal here is a limit below the intrinsic gas.
        if tried.is_ok_and(|ran| ran.result.is_success()) {
            enough = middle;
        } else {
            too_little = middle;
        }
    }
    Ok(json!(quantity(enough)))
}

type Prepared<'a> = (std::sync::RwLockReadGuard<'a, Chain>, Header, TxEnv);

fn prepare<'a>(node: &'a Node, params: &Params, default_at: At) -> Result<Prepared<'a>, RpcError> {
    let call: Call = params.get(0, "call")?;
    if params.optional::<Value>(2, "state overrides")?.is_some() {
        return Err(RpcError::invalid_params("state overrides are not supported by the dev chain; use Anvil for them"));
    }
    let at = if params.optional::<Value>(1, "block")?.is_some() { params.at(1)? } else { default_at };
    // Asking for the time waits for the writer's disk, so only where it matters.
    let time = if at == At::Pending { node.time() } else { 0 };
    let chain = node.chain();
    let header = moment(&chain, at, time)?;
    let tx = call.env(&chain)?;
    Ok((chain, header, tx))
}

impl Call {
    fn env(self, chain: &Chain) -> Result<TxEnv, RpcError> {
        let caller = self.from.unwrap_or_default();
        let account = chain.account(caller);
        let value = self.value.unwrap_or_default();
        let max_fee = narrow(self.max_fee_per_gas.or(self.gas_price), "fee per gas")?.unwrap_or(0);
        let tip = if self.max_fee_per_gas.is_some() {
            Some(narrow(self.max_priority_fee_per_gas, "priority fee")?.unwrap_or(0))
        } else {
            None
        };
        let data = match (self.input, self.data) {
            (Some(input), Some(data)) if input != data => {
                return Err(RpcError::invalid_params("call: data and input differ; give one of them"));
            }
            (input, data) => input.or(data).unwrap_or_default(),
        };
        let mut gas_limit = self.gas.map_or(fees::BLOCK_GAS_LIMIT, |gas| gas.saturating_to());
        if let Some(affordable) = account.balance.saturating_sub(value).checked_div(U256::from(max_fee)) {
            gas_limit = gas_limit.min(affordable.saturating_to());
        }
        Ok(TxEnv {
            tx_type: if tip.is_some() { 2 } else { u8::from(self.access_list.is_some()) },
            caller,
            gas_limit: gas_limit.min(fees::BLOCK_GAS_LIMIT),
            gas_price: max_fee,
            kind: self.to.map_or(TxKind::Create, TxKind::Call),
            value,
            data,
            nonce: account.nonce,
            chain_id: Some(chain.chain_id),
            access_list: self.access_list.unwrap_or_default(),
            gas_priority_fee: tip,
            ..TxEnv::default()
        })
    }
}

fn run(chain: &Chain, header: &Header, tx: TxEnv) -> Result<ExecutionResult, RpcError> {
    let caller = tx.caller;
    let ran = evm::run(&chain.world, header, chain.chain_id, tx, Purpose::Ask);
    ran.map(|ran| ran.result).map_err(|refusal| RpcError::rejected(evm::explain(&refusal, caller)))
}

fn failure(result: &ExecutionResult) -> RpcError {
    match result {
        ExecutionResult::Halt { reason, gas, .. } => {
            RpcError::server(format!("EVM error: {reason} after {} gas", gas.tx_gas_used()))
        }
        reverted => RpcError::reverted(&reverted.output().cloned().unwrap_or_default()),
    }
}

fn narrow(number: Option<U256>, name: &str) -> Result<Option<u128>, RpcError> {
    let too_big = |_| RpcError::invalid_params(format!("call: {name} is over 128 bits"));
    number.map(|number| number.try_into().map_err(too_big)).transpose()
}
