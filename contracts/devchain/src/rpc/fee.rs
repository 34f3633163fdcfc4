//! What gas costs. Prices in wei per gas.

use super::{
    error::RpcError,
    params::{At, Params},
};
use crate::{block::quantity, fees, node::Node};
use serde_json::{Value, json};

/// Most blocks of one fee history, as in other nodes.
const MAX_HISTORY: u64 = 1024;

/// `eth_gasPrice`: enough for the next block.
pub(crate) fn gas_price(node: &Node) -> Result<Value, RpcError> {
    let head = node.chain().head().clone();
    let base_fee = fees::next_base_fee(head.header.base_fee, head.header.gas_used);
    Ok(json!(quantity(base_fee.saturating_add(fees::SUGGESTED_TIP))))
}

/// `eth_maxPriorityFeePerGas`.
pub(crate) fn tip() -> Result<Value, RpcError> {
    Ok(json!(quantity(fees::SUGGESTED_TIP)))
}

/// `eth_feeHistory(count, newest, percentiles)`. A block holds one transaction, so every percentile is its tip.
pub(crate) fn history(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let count = params.number(0, "number of blocks")?.unwrap_or(1).min(MAX_HISTORY);
    let percentiles: Option<Vec<f64>> = params.optional(2, "percentiles")?;
    let chain = node.chain();
    let head = chain.head().header.number;
    let newest = match params.at(1)? {
        At::Latest | At::Pending => head,
        At::Number(number) if number <= head => number,
        At::Number(number) => {
            return Err(RpcError::server(format!("block {number} not found: the head is {head}")));
        }
        At::Hash(_) => {
            return Err(RpcError::invalid_params("parameter 1, newest block, is a number or a tag"));
        }
    };
    let oldest = (newest + 1).saturating_sub(count);
    let blocks: Vec<_> = (oldest..=newest).filter(|_| count > 0).filter_map(|number| chain.block(number)).collect();
    let mut base_fees: Vec<_> = blocks.iter().map(|block| quantity(block.header.base_fee)).collect();
    base_fees
        .extend(blocks.last().map(|last| quantity(fees::next_base_fee(last.header.base_fee, last.header.gas_used))));
    let ratio = |gas_used| gas_used as f64 / fees::BLOCK_GAS_LIMIT as f64;
    let mut history = json!({
        "oldestBlock": quantity(oldest),
        "gasUsedRatio": blocks.iter().map(|block| ratio(block.header.gas_used)).collect::<Vec<_>>(),
        "baseFeePerBlobGas": vec!["0x1"; base_fees.len()],
        "blobGasUsedRatio": vec![0.0; blocks.len()],
        "baseFeePerGas": base_fees,
    });
    if let Some(percentiles) = percentiles {
        let tips = blocks.iter().map(|block| {
            let tip =
                block.mined.as_ref().map_or(0, |mined| mined.gas_price.saturating_sub(block.header.base_fee.into()));
            vec![quantity(tip); percentiles.len()]
        });
        history["reward"] = tips.collect();
    }
    Ok(history)
}
