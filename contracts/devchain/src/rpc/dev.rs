//! The methods that only a development chain has. Each is journaled, so a restart keeps its effect.

use super::{error::RpcError, params::Params};
use crate::{block::quantity, node::Node, record::Record};
use revm::primitives::{Address, U256};
use serde_json::{Value, json};

/// `anvil_setBalance(address, wei)`.
pub(crate) fn set_balance(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let address: Address = params.get(0, "address")?;
    let balance: U256 = params.get(1, "balance")?;
    node.submit(|_| Record::SetBalance { address, balance })?;
    Ok(Value::Null)
}

/// `evm_mine(timestamp?)`: one empty block, at that time if one is given (also as `{"timestamp": ..}`).
pub(crate) fn mine_one(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let asked = match params.optional::<Value>(0, "timestamp")? {
        Some(Value::Object(options)) => Params::new(Some(json!([options.get("timestamp")])))?.number(0, "timestamp")?,
        _ => params.number(0, "timestamp")?,
    };
    if let Some(timestamp) = asked {
        node.set_next_time(timestamp)?;
    }
    node.submit(|timestamp| Record::Mine { timestamp, count: 1, interval: 0, branch: 0 })?;
    Ok(json!("0x0"))
}

/// `anvil_mine(count?, interval?)`: empty blocks, `interval` seconds apart.
pub(crate) fn mine(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let count = params.number(0, "number of blocks")?.unwrap_or(1);
    let interval = params.number(1, "interval")?.unwrap_or(0);
    node.submit(|timestamp| Record::Mine { timestamp, count, interval, branch: 0 })?;
    Ok(Value::Null)
}

/// `evm_increaseTime(seconds)`: returns the distance to the wall clock.
pub(crate) fn increase_time(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let seconds =
        params.number(0, "seconds")?.ok_or_else(|| RpcError::invalid_params("parameter 0, seconds, is missing"))?;
    Ok(json!(node.increase_time(seconds)?))
}

/// `evm_setNextBlockTimestamp(timestamp)`.
pub(crate) fn set_next_time(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let missing = || RpcError::invalid_params("parameter 0, timestamp, is missing");
    node.set_next_time(params.number(0, "timestamp")?.ok_or_else(missing)?)?;
    Ok(Value::Null)
}

/// `dev_reorg(depth)`, also `anvil_reorg(depth, [])`: replaces the last `depth` blocks by empty ones and
/// returns the new head's number.
pub(crate) fn reorg(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let depth = params.number(0, "depth")?.ok_or_else(|| RpcError::invalid_params("parameter 0, depth, is missing"))?;
    if params.optional::<Vec<Value>>(1, "transactions")?.is_some_and(|txs| !txs.is_empty()) {
        return Err(RpcError::invalid_params("the new branch of a reorg is empty; send transactions after it"));
    }
    node.submit(|timestamp| Record::Reorg { timestamp, depth })?;
    Ok(json!(quantity(node.chain().head().header.number)))
}
