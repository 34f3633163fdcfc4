//! Blocks, transactions, receipts and logs as JSON, in the shapes of other nodes.

use crate::{
    block::{Block, EMPTY_ROOT, Header, Mined, NO_UNCLES, quantity},
    fees,
};
use revm::primitives::{Address, B256, Log};
use serde_json::{Value, json};

/// A mined block, with its transactions whole or as hashes.
pub(crate) fn block(block: &Block, whole: bool) -> Value {
    let mut value = header(&block.header);
    value["hash"] = json!(block.hash);
    value["nonce"] = json!("0x0000000000000000");
    value["size"] = json!(quantity(block.size));
    value["transactions"] =
        block.mined.iter().map(|mined| if whole { transaction(block, mined) } else { json!(mined.tx.hash) }).collect();
    value
}

/// The block that would be mined now: it has no hash yet.
pub(crate) fn pending(next: &Header) -> Value {
    let mut value = header(next);
    for unknown in ["hash", "nonce", "size"] {
        value[unknown] = Value::Null;
    }
    value["transactions"] = json!([]);
    value
}

/// A header, as `newHeads` announces it.
pub(crate) fn head(block: &Block) -> Value {
    let mut value = header(&block.header);
    value["hash"] = json!(block.hash);
    value["nonce"] = json!("0x0000000000000000");
    value
}

fn header(header: &Header) -> Value {
    json!({
        "parentHash": header.parent,
        "sha3Uncles": NO_UNCLES,
        "miner": Address::ZERO,
        "stateRoot": header.state_digest,
        "transactionsRoot": header.transactions_root,
        "receiptsRoot": header.receipts_root,
        "logsBloom": header.bloom,
        "difficulty": "0x0",
        "totalDifficulty": "0x0",
        "number": quantity(header.number),
        "gasLimit": quantity(fees::BLOCK_GAS_LIMIT),
        "gasUsed": quantity(header.gas_used),
        "timestamp": quantity(header.timestamp),
        "extraData": header.extra,
        "mixHash": header.mix_hash(),
        "baseFeePerGas": quantity(header.base_fee),
        "withdrawalsRoot": EMPTY_ROOT,
        "withdrawals": [],
        "blobGasUsed": "0x0",
        "excessBlobGas": "0x0",
        "parentBeaconBlockRoot": B256::ZERO,
        "uncles": [],
    })
}

/// A mined transaction.
pub(crate) fn transaction(block: &Block, mined: &Mined) -> Value {
    let tx = &mined.tx;
    let mut value = json!({
        "hash": tx.hash,
        "nonce": quantity(tx.nonce),
        "blockHash": block.hash,
        "blockNumber": quantity(block.header.number),
        "blockTimestamp": quantity(block.header.timestamp),
        "transactionIndex": "0x0",
        "from": tx.from,
        "to": tx.to.to(),
        "value": quantity(tx.value),
        "gasPrice": quantity(mined.gas_price),
        "gas": quantity(tx.gas_limit),
        "input": tx.input,
        "type": quantity(tx.kind),
        "v": quantity(tx.v),
        "r": quantity(tx.r),
        "s": quantity(tx.s),
    });
    if let Some(chain_id) = tx.chain_id {
        value["chainId"] = json!(quantity(chain_id));
    }
    if tx.kind > 0 {
        value["accessList"] = json!(tx.access_list);
        value["yParity"] = json!(quantity(tx.v));
    }
    if let Some(tip) = tx.tip {
        value["maxFeePerGas"] = json!(quantity(tx.max_fee));
        value["maxPriorityFeePerGas"] = json!(quantity(tip));
    }
    value
}

/// What became of a transaction.
pub(crate) fn receipt(block: &Block, mined: &Mined) -> Value {
    let logs: Value = mined.logs.iter().enumerate().map(|(index, entry)| log(block, index, entry, false)).collect();
    json!({
        "transactionHash": mined.tx.hash,
        "transactionIndex": "0x0",
        "blockHash": block.hash,
        "blockNumber": quantity(block.header.number),
        "from": mined.tx.from,
        "to": mined.tx.to.to(),
        "cumulativeGasUsed": quantity(mined.gas_used),
        "gasUsed": quantity(mined.gas_used),
        "effectiveGasPrice": quantity(mined.gas_price),
        "blobGasPrice": "0x1",
        "contractAddress": mined.created,
        "logs": logs,
        "logsBloom": block.header.bloom,
        "status": quantity(u8::from(mined.success)),
        "type": quantity(mined.tx.kind),
    })
}

/// The log at `index` of `block`; `removed` when a reorg took the block away.
pub(crate) fn log(block: &Block, index: usize, log: &Log, removed: bool) -> Value {
    json!({
        "address": log.address,
        "topics": log.topics(),
        "data": log.data.data,
        "blockHash": block.hash,
        "blockNumber": quantity(block.header.number),
        "blockTimestamp": quantity(block.header.timestamp),
        "transactionHash": block.mined.as_ref().map(|mined| mined.tx.hash),
        "transactionIndex": "0x0",
        "logIndex": quantity(index as u64),
        "removed": removed,
    })
}
