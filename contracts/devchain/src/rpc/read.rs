//! The methods that read blocks, accounts and logs.

use super::{
    error::RpcError,
    moment,
    params::{At, Params},
    shapes,
};
use crate::{
    block::{Block, quantity},
    chain::Chain,
    filter::Filter,
    node::Node,
};
use revm::primitives::{Address, B256, U256};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn chain_id(node: &Node) -> Result<Value, RpcError> {
    Ok(json!(quantity(node.chain().chain_id)))
}

pub(crate) fn block_number(node: &Node) -> Result<Value, RpcError> {
    Ok(json!(quantity(node.chain().head().header.number)))
}

pub(crate) fn balance(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let address: Address = params.get(0, "address")?;
    at_head(node, params, 1, |chain| json!(quantity(chain.account(address).balance)))
}

pub(crate) fn nonce(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let address: Address = params.get(0, "address")?;
    at_head(node, params, 1, |chain| json!(quantity(chain.account(address).nonce)))
}

pub(crate) fn code(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let address: Address = params.get(0, "address")?;
    at_head(node, params, 1, |chain| json!(chain.code(address)))
}

pub(crate) fn slot(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let address: Address = params.get(0, "address")?;
    let slot: U256 = params.get(1, "slot")?;
    at_head(node, params, 2, |chain| json!(B256::from(chain.slot(address, slot))))
}

/// Answers from the only state there is, if that is the one the parameter at `index` asks for.
fn at_head(
    node: &Node,
    params: &Params,
    index: usize,
    answer: impl FnOnce(&Chain) -> Value,
) -> Result<Value, RpcError> {
    let (at, chain) = (params.at(index)?, node.chain());
    moment(&chain, at, 0)?;
    Ok(answer(&chain))
}

/// `eth_getTransactionByHash`: null for one that was never mined, or that a reorg took away.
pub(crate) fn transaction(node: &Node, params: &Params) -> Result<Value, RpcError> {
    of_tx(node, params, shapes::transaction)
}

/// `eth_getTransactionReceipt`: null as above.
pub(crate) fn receipt(node: &Node, params: &Params) -> Result<Value, RpcError> {
    of_tx(node, params, shapes::receipt)
}

fn of_tx(node: &Node, params: &Params, shape: fn(&Block, &crate::block::Mined) -> Value) -> Result<Value, RpcError> {
    let hash: B256 = params.get(0, "transaction hash")?;
    let block = node.chain().block_of_tx(hash).cloned();
    Ok(block.and_then(|block| block.mined.as_ref().map(|mined| shape(&block, mined))).unwrap_or_default())
}

pub(crate) fn block_receipts(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let Some(block) = find(&node.chain(), params.at(0)?) else {
        return Ok(Value::Null);
    };
    Ok(block.mined.iter().map(|mined| shapes::receipt(&block, mined)).collect())
}

/// `eth_getBlockByNumber` and `eth_getBlockByHash`: null for a block that is not there.
pub(crate) fn block(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let whole = params.optional(1, "whole transactions")?.unwrap_or(false);
    let at = params.at(0)?;
    if at == At::Pending {
        let time = node.time();
        return Ok(shapes::pending(&moment(&node.chain(), at, time)?));
    }
    let found = find(&node.chain(), at);
    Ok(found.map(|block| shapes::block(&block, whole)).unwrap_or_default())
}

/// `eth_getLogs`: by block hash, or by a range whose ends default to the head.
pub(crate) fn logs(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let asked: Value = params.get(0, "filter")?;
    if !asked.is_object() {
        return Err(RpcError::invalid_params("filter: it must be an object"));
    }
    let filter = Filter::parse(&asked)?;
    let blocks = blocks_of(&node.chain(), &asked)?;
    Ok(blocks
        .iter()
        .flat_map(|block| filter.select(block).map(|(index, log)| shapes::log(block, index, log, false)))
        .collect())
}

fn blocks_of(chain: &Chain, asked: &Value) -> Result<Vec<Arc<Block>>, RpcError> {
    let end = |name: &str| asked.get(name).filter(|value| !value.is_null());
    if let Some(hash) = end("blockHash") {
        if end("fromBlock").or(end("toBlock")).is_some() {
            return Err(RpcError::invalid_params("filter: give blockHash or a range, not both"));
        }
        // Unlike an empty list, this tells a client that its block was taken away by a reorg.
        let unknown = || RpcError::server(format!("unknown block {hash}"));
        return match At::parse(hash)? {
            At::Hash(hash) => Ok(vec![chain.block_by_hash(hash).cloned().ok_or_else(unknown)?]),
            _ => Err(RpcError::invalid_params("filter: blockHash is no 32-byte hash")),
        };
    }
    let number = |name| {
        let head = chain.head().header.number;
        match end(name).map_or(Ok(At::Latest), At::parse)? {
            At::Latest | At::Pending => Ok(head),
            At::Number(number) => Ok(number),
            At::Hash(_) => Err(RpcError::invalid_params(format!("filter: {name} is a number or a tag, not a hash"))),
        }
    };
    let (from, to) = (number("fromBlock")?, number("toBlock")?);
    if from > to {
        return Err(RpcError::invalid_params(format!("filter: invalid block range, {from} is after {to}")));
    }
    Ok((from..=to).map_while(|number| chain.block(number).cloned()).collect())
}

fn find(chain: &Chain, at: At) -> Option<Arc<Block>> {
    match at {
        At::Latest | At::Pending => Some(chain.head().clone()),
        At::Number(number) => chain.block(number).cloned(),
        At::Hash(hash) => chain.block_by_hash(hash).cloned(),
    }
}
