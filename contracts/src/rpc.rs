//! What the house asks of a chain's node, typed.

use selion_api::{Account, Address, Hash32};
use serde_json::{Value, json};

use crate::bloom::Bloom;
pub use crate::transport::RpcError;
use crate::transport::Transport;
use crate::word::{address_of, bytes_of, h160, hash_of, hex0x, u64_of, u128_of};

/// What geth says of a transaction that it does not know while it reads its older blocks: it is in none of the newer ones.
const INDEXING: &str = "transaction indexing is in progress";

/// A node of the chain. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Rpc {
    pub(crate) transport: Transport,
}

/// Which block is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockTag {
    /// The newest block.
    Latest,
    /// The newest block that the chain itself calls final.
    Finalized,
    /// The newest block with what waits for the next one.
    Pending,
    /// By height.
    Number(u64),
    /// By hash.
    Hash(Hash32),
}

impl BlockTag {
    fn json(self) -> Value {
        match self {
            Self::Latest => json!("latest"),
            Self::Finalized => json!("finalized"),
            Self::Pending => json!("pending"),
            Self::Number(number) => json!(format!("{number:#x}")),
            Self::Hash(hash) => json!({ "blockHash": hash.to_string() }),
        }
    }
}

/// The part of a block's header that the house needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Height.
    pub number: u64,
    /// Its hash.
    pub hash: Hash32,
    /// Hash of its parent.
    pub parent: Hash32,
    /// Seconds since 1970 UTC.
    pub time_s: u64,
    /// Base fee of a gas unit in wei; `None` before EIP-1559.
    pub base_fee: Option<u128>,
    /// What its logs can be about; `None` if the node does not say.
    pub bloom: Option<Bloom>,
    /// Transactions in the block; 0 also if the node does not list them.
    pub transactions: usize,
}

/// An event as the chain stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Who emitted it.
    pub address: Address,
    /// Indexed words; the first is the kind.
    pub topics: Vec<Hash32>,
    /// The rest.
    pub data: Vec<u8>,
    /// Height of its block.
    pub block_number: u64,
    /// Hash of its block.
    pub block_hash: Hash32,
    /// Its transaction.
    pub tx: Hash32,
    /// Its place in the block.
    pub index: u64,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The transaction.
    pub tx: Hash32,
    /// Height of its block.
    pub block_number: u64,
    /// Hash of its block.
    pub block_hash: Hash32,
    /// False if it was reverted.
    pub success: bool,
    /// Gas used.
    pub gas_used: u64,
    /// The contract that it made, if it made one.
    pub created: Option<Address>,
    /// Its events, in order.
    pub logs: Vec<Log>,
}

/// What a unit of gas may cost, in wei (EIP-1559).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fees {
    /// At most, base fee included.
    pub max: u128,
    /// Tip.
    pub priority: u128,
}

impl Rpc {
    /// A node at an `http://` or `https://` URL, or at that in a file: `@FILE`. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`RpcError::BadUrl`].
    pub fn new(url: &str) -> Result<Self, RpcError> {
        Ok(Self { transport: Transport::new(url)? })
    }

    /// Scheme, host and port: what may be shown of the URL.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.transport.node
    }

    pub(crate) async fn typed<T>(
        &self,
        method: &'static str,
        params: Value,
        what: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<T, RpcError> {
        let answer = self.transport.ask(method, params).await?;
        read(&answer).ok_or_else(|| self.transport.malformed(method, what))
    }

    /// The chain's id (EIP-155).
    ///
    /// # Errors
    ///
    /// Any [`RpcError`]; so for every method here.
    pub async fn chain_id(&self) -> Result<u64, RpcError> {
        self.typed("eth_chainId", json!([]), "a number", u64_of).await
    }

    /// The header of a block. [`RpcError::NoBlock`] if there is none.
    pub async fn header(&self, block: BlockTag) -> Result<Header, RpcError> {
        self.header_as_told(block).await.map(|(header, _)| header)
    }

    /// The header of a block, with all that the node tells of it.
    pub(crate) async fn header_as_told(&self, block: BlockTag) -> Result<(Header, Value), RpcError> {
        let (method, which) = match block {
            BlockTag::Hash(hash) => ("eth_getBlockByHash", json!(hash.to_string())),
            other => ("eth_getBlockByNumber", other.json()),
        };
        let answer = self.transport.ask(method, json!([which, false])).await?;
        if answer.is_null() {
            return Err(RpcError::NoBlock { node: self.transport.node.clone(), block: which.to_string() });
        }
        let header = read_header(&answer).ok_or_else(|| self.transport.malformed(method, "a block"))?;
        Ok((header, answer))
    }

    /// The headers of blocks `from` to `to`, both included, rising, in one exchange. [`RpcError::NoBlock`] if one is not
    /// there. By height a reorganisation could mix forks: see that each names the one below as its parent.
    pub async fn headers(&self, from: u64, to: u64) -> Result<Vec<Header>, RpcError> {
        let method = "eth_getBlockByNumber";
        let params = (from..=to).map(|number| json!([BlockTag::Number(number).json(), false])).collect();
        let answers = self.transport.ask_many(method, params).await?;
        let read = |(number, answer): (u64, &Value)| match read_header(answer) {
            Some(header) if header.number == number => Ok(header),
            None if answer.is_null() => {
                Err(RpcError::NoBlock { node: self.transport.node.clone(), block: number.to_string() })
            }
            _ => Err(self.transport.malformed(method, "the block of that number")),
        };
        (from..).zip(&answers).map(read).collect()
    }

    /// The logs that `addresses` emitted in the block of this hash: never those of another fork, never another pool's.
    /// No address, no log.
    pub async fn logs_of_block(&self, block: Hash32, addresses: &[Address]) -> Result<Vec<Log>, RpcError> {
        self.filtered(json!({ "blockHash": block.to_string(), "address": texts(addresses) }), addresses).await
    }

    /// The logs that `addresses` emitted in blocks `from` to `to`, both included. For final blocks only: by height a
    /// reorganisation could mix forks.
    pub async fn logs(&self, from: u64, to: u64, addresses: &[Address]) -> Result<Vec<Log>, RpcError> {
        let (from, to) = (format!("{from:#x}"), format!("{to:#x}"));
        self.filtered(json!({ "fromBlock": from, "toBlock": to, "address": texts(addresses) }), addresses).await
    }

    async fn filtered(&self, filter: Value, addresses: &[Address]) -> Result<Vec<Log>, RpcError> {
        if addresses.is_empty() {
            return Ok(Vec::new()); // to a node an empty list means every address
        }
        let read = |answer: &Value| answer.as_array()?.iter().map(read_log).collect::<Option<Vec<Log>>>();
        let mut logs = self.typed("eth_getLogs", json!([filter]), "a list of logs", read).await?;
        logs.retain(|log| addresses.contains(&log.address)); // a node is not trusted to filter
        logs.sort_by_key(|log| (log.block_number, log.index));
        Ok(logs)
    }

    /// The logs of a filter as they came, and the block of the first that the node calls removed.
    pub(crate) async fn logs_of_filter(&self, filter: Value) -> Result<(Vec<Log>, Option<u64>), RpcError> {
        let read = |answer: &Value| {
            let all = answer.as_array()?;
            let logs = all.iter().map(read_log).collect::<Option<Vec<Log>>>()?;
            let removed = all.iter().find(|log| log["removed"].as_bool() == Some(true));
            Some((logs, removed.and_then(|log| u64_of(&log["blockNumber"]))))
        };
        self.typed("eth_getLogs", json!([filter]), "a list of logs", read).await
    }

    /// Calls a contract without a transaction and returns what it returned.
    pub async fn call(&self, to: Address, data: &[u8], block: BlockTag) -> Result<Vec<u8>, RpcError> {
        let call = json!({ "to": to.to_string(), "data": hex0x(data) });
        self.typed("eth_call", json!([call, block.json()]), "bytes", bytes_of).await
    }

    /// As [`call`](Self::call), from an account: what a transaction of it would return, or why it would be refused.
    pub async fn call_from(
        &self,
        from: Account,
        to: Option<Address>,
        data: &[u8],
        block: BlockTag,
    ) -> Result<Vec<u8>, RpcError> {
        self.typed("eth_call", json!([transaction(from, to, data), block.json()]), "bytes", bytes_of).await
    }

    /// Gas that a transaction would need now; [`RpcError::Reverted`] if it would be refused.
    pub async fn estimate_gas(&self, from: Account, to: Option<Address>, data: &[u8]) -> Result<u64, RpcError> {
        self.typed("eth_estimateGas", json!([transaction(from, to, data)]), "a number", u64_of).await
    }

    /// Hands a signed transaction to the node; its hash.
    pub async fn send_raw(&self, raw: &[u8]) -> Result<Hash32, RpcError> {
        self.typed("eth_sendRawTransaction", json!([hex0x(raw)]), "a hash", hash_of).await
    }

    /// What became of a transaction; `None` while it is in no block that the node can look it up in.
    pub async fn receipt(&self, tx: Hash32) -> Result<Option<Receipt>, RpcError> {
        let method = "eth_getTransactionReceipt";
        let answer = match self.transport.ask(method, json!([tx.to_string()])).await {
            Ok(answer) if !answer.is_null() => answer,
            Ok(_) => return Ok(None),
            Err(RpcError::Refused { message, .. }) if message == INDEXING => return Ok(None),
            Err(error) => return Err(error),
        };
        let receipt = read_receipt(&answer).filter(|receipt| receipt.tx == tx);
        receipt.map(Some).ok_or_else(|| self.transport.malformed(method, "the receipt of that transaction"))
    }

    /// What became of every transaction of the block of this hash; `None` if the node does not know the block.
    pub async fn receipts_of_block(&self, block: Hash32) -> Result<Option<Vec<Receipt>>, RpcError> {
        Ok(self.receipts_of_blocks(&[block]).await?.pop().flatten())
    }

    /// As [`receipts_of_block`](Self::receipts_of_block), of several blocks in one exchange.
    pub async fn receipts_of_blocks(&self, blocks: &[Hash32]) -> Result<Vec<Option<Vec<Receipt>>>, RpcError> {
        let method = "eth_getBlockReceipts";
        let params = blocks.iter().map(|block| json!([block.to_string()])).collect();
        let answers = self.transport.ask_many(method, params).await?;
        let read = |answer: &Value| {
            if answer.is_null() {
                return Ok(None);
            }
            let receipts = answer.as_array().and_then(|all| all.iter().map(read_receipt).collect());
            receipts.map(Some).ok_or_else(|| self.transport.malformed(method, "a list of receipts"))
        };
        answers.iter().map(read).collect()
    }

    /// Transactions of an account so far; with [`BlockTag::Pending`] also those that wait.
    pub async fn nonce(&self, of: Account, block: BlockTag) -> Result<u64, RpcError> {
        self.typed("eth_getTransactionCount", json!([of.to_string(), block.json()]), "a number", u64_of).await
    }

    /// An account's wei, for gas.
    pub async fn balance(&self, of: Account) -> Result<u128, RpcError> {
        self.typed("eth_getBalance", json!([of.to_string(), "latest"]), "a number", u128_of).await
    }

    /// What gas may cost now: twice the base fee plus the tip that the node advises.
    pub async fn fees(&self) -> Result<Fees, RpcError> {
        let Some(base) = self.header(BlockTag::Latest).await?.base_fee else {
            let price = self.typed("eth_gasPrice", json!([]), "a number", u128_of).await?;
            return Ok(Fees { max: price, priority: price });
        };
        let priority = match self.typed("eth_maxPriorityFeePerGas", json!([]), "a number", u128_of).await {
            Ok(tip) => tip,
            Err(RpcError::Refused { .. }) => 0, // some nodes do not have the method
            Err(error) => return Err(error),
        };
        Ok(Fees { max: base.saturating_mul(2).saturating_add(priority), priority })
    }

    /// The code at an address; empty if there is none.
    pub async fn code(&self, at: Address) -> Result<Vec<u8>, RpcError> {
        self.typed("eth_getCode", json!([at.to_string(), "latest"]), "bytes", bytes_of).await
    }
}

fn texts(addresses: &[Address]) -> Vec<String> {
    addresses.iter().map(Address::to_string).collect()
}

fn transaction(from: Account, to: Option<Address>, data: &[u8]) -> Value {
    let mut call = json!({ "from": hex0x(h160(from).as_bytes()), "data": hex0x(data) });
    if let Some(to) = to {
        call["to"] = json!(to.to_string());
    }
    call
}

fn read_header(json: &Value) -> Option<Header> {
    Some(Header {
        number: u64_of(&json["number"])?,
        hash: hash_of(&json["hash"])?,
        parent: hash_of(&json["parentHash"])?,
        time_s: u64_of(&json["timestamp"])?,
        base_fee: u128_of(&json["baseFeePerGas"]),
        bloom: bytes_of(&json["logsBloom"]).and_then(|bytes| Bloom::read(&bytes)),
        transactions: json["transactions"].as_array().map_or(0, Vec::len),
    })
}

fn read_log(json: &Value) -> Option<Log> {
    Some(Log {
        address: address_of(&json["address"])?,
        topics: json["topics"].as_array()?.iter().map(hash_of).collect::<Option<_>>()?,
        data: bytes_of(&json["data"])?,
        block_number: u64_of(&json["blockNumber"])?,
        block_hash: hash_of(&json["blockHash"])?,
        tx: hash_of(&json["transactionHash"])?,
        index: u64_of(&json["logIndex"])?,
    })
}

fn read_receipt(json: &Value) -> Option<Receipt> {
    Some(Receipt {
        tx: hash_of(&json["transactionHash"])?,
        block_number: u64_of(&json["blockNumber"])?,
        block_hash: hash_of(&json["blockHash"])?,
        success: u64_of(&json["status"])? == 1,
        gas_used: u64_of(&json["gasUsed"])?,
        created: address_of(&json["contractAddress"]),
        logs: json["logs"].as_array()?.iter().map(read_log).collect::<Option<_>>()?,
    })
}
