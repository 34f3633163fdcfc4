//! JSON-RPC: requests, batches, and which method is which function.

mod call;
mod dev;
pub(crate) mod error;
mod fee;
pub(crate) mod params;
mod read;
pub(crate) mod shapes;

use crate::{block::Header, chain::Chain, door::DevMethods, node::Node, record::Record};
use error::RpcError;
use params::{At, Params};
use revm::primitives::Bytes;
use serde_json::{Value, json};

/// Most requests in one batch.
const MAX_BATCH: usize = 1000;
/// Name and version, as `web3_clientVersion` tells them.
const CLIENT: &str = concat!("selion-devchain/v", env!("CARGO_PKG_VERSION"));

/// Answers a request body: one request or a batch.
pub(crate) fn answer_body(node: &Node, methods: DevMethods, body: &[u8]) -> Value {
    match serde_json::from_slice::<Value>(body) {
        Err(error) => envelope(Value::Null, Err(RpcError::parse(format!("the body is no JSON: {error}")))),
        Ok(Value::Array(batch)) if batch.is_empty() || batch.len() > MAX_BATCH => {
            let said = format!("a batch holds 1 to {MAX_BATCH} requests, not {}", batch.len());
            envelope(Value::Null, Err(RpcError::invalid_request(said)))
        }
        Ok(Value::Array(batch)) => batch.into_iter().map(|request| answer(node, methods, request)).collect(),
        Ok(request) => answer(node, methods, request),
    }
}

fn answer(node: &Node, methods: DevMethods, request: Value) -> Value {
    let Request { id, method, params } = match Request::parse(request) {
        Ok(request) => request,
        Err((id, error)) => return envelope(id, Err(error)),
    };
    if !methods.allow(&method) {
        return envelope(id, Err(RpcError::switched_off(&method)));
    }
    envelope(id, Params::new(params).and_then(|params| dispatch(node, &method, &params)))
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Echoed in the answer; null if the client gave none.
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Option<Value>,
}

impl Request {
    /// Takes a request apart. An error comes with the id to answer under.
    pub(crate) fn parse(request: Value) -> Result<Self, (Value, RpcError)> {
        let Value::Object(mut request) = request else {
            return Err((Value::Null, RpcError::invalid_request("a request is a JSON object")));
        };
        let id = request.remove("id").unwrap_or_default();
        match request.remove("method") {
            Some(Value::String(method)) => Ok(Self { id, method, params: request.remove("params") }),
            _ => Err((id, RpcError::invalid_request("a request needs a method"))),
        }
    }
}

/// The answer to the request `id`.
pub(crate) fn envelope(id: Value, result: Result<Value, RpcError>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error.json()}),
    }
}

/// Runs one method.
pub(crate) fn dispatch(node: &Node, method: &str, params: &Params) -> Result<Value, RpcError> {
    match method {
        "web3_clientVersion" => Ok(json!(CLIENT)),
        "net_version" => Ok(json!(node.chain().chain_id.to_string())),
        "net_listening" => Ok(json!(true)),
        "eth_syncing" => Ok(json!(false)),
        "eth_accounts" => Ok(json!([])),
        "eth_chainId" => read::chain_id(node),
        "eth_blockNumber" => read::block_number(node),
        "eth_getBalance" => read::balance(node, params),
        "eth_getTransactionCount" => read::nonce(node, params),
        "eth_getCode" => read::code(node, params),
        "eth_getStorageAt" => read::slot(node, params),
        "eth_getTransactionByHash" => read::transaction(node, params),
        "eth_getTransactionReceipt" => read::receipt(node, params),
        "eth_getBlockReceipts" => read::block_receipts(node, params),
        "eth_getBlockByNumber" | "eth_getBlockByHash" => read::block(node, params),
        "eth_getLogs" => read::logs(node, params),
        "eth_call" => call::call(node, params),
        "eth_estimateGas" => call::estimate(node, params),
        "eth_gasPrice" => fee::gas_price(node),
        "eth_maxPriorityFeePerGas" => fee::tip(),
        "eth_feeHistory" => fee::history(node, params),
        "eth_sendRawTransaction" => send(node, params),
        "anvil_setBalance" => dev::set_balance(node, params),
        "evm_mine" => dev::mine_one(node, params),
        "anvil_mine" => dev::mine(node, params),
        "evm_increaseTime" => dev::increase_time(node, params),
        "evm_setNextBlockTimestamp" => dev::set_next_time(node, params),
        "dev_reorg" | "anvil_reorg" => dev::reorg(node, params),
        "eth_subscribe" | "eth_unsubscribe" => {
            Err(RpcError::server(format!("{method} needs a WebSocket connection to this same port")))
        }
        other => Err(RpcError::no_method(other)),
    }
}

/// `eth_sendRawTransaction`: mined, on disk, before the answer.
fn send(node: &Node, params: &Params) -> Result<Value, RpcError> {
    let raw: Bytes = params.get(0, "transaction")?;
    let hash = revm::primitives::keccak256(&raw);
    node.submit(|timestamp| Record::Tx { timestamp, raw })?;
    Ok(json!(hash))
}

/// The block whose state a question is about, `time` being the time of a block mined now.
///
/// # Errors
///
/// Any block before the head: its state is gone, and an answer at the head would be a wrong one.
pub(crate) fn moment(chain: &Chain, at: At, time: u64) -> Result<Header, RpcError> {
    let head = chain.head();
    let number = match at {
        At::Latest => return Ok(head.header.clone()),
        At::Pending => {
            let next = chain.next_header(time.max(head.header.timestamp), 0);
            return next.map_err(|error| RpcError::internal(error.to_string()));
        }
        At::Number(number) => number,
        At::Hash(hash) => {
            let unknown = || RpcError::server(format!("block {hash} not found on this branch"));
            chain.block_by_hash(hash).ok_or_else(unknown)?.header.number
        }
    };
    let top = head.header.number;
    match number.cmp(&top) {
        std::cmp::Ordering::Equal => Ok(head.header.clone()),
        std::cmp::Ordering::Greater => Err(RpcError::server(format!("block {number} not found: the head is {top}"))),
        std::cmp::Ordering::Less => Err(RpcError::server(format!(
            "historical state is not kept: asked for block {number}, the head is {top}; ask for latest, or use Anvil or an archive node"
        ))),
    }
}
