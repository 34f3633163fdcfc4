//! The logs of many blocks, in ranges no wider than the node allows, as the node tells them.

use selion_api::Address;
use serde_json::{Value, json};

use crate::rpc::{Log, Rpc, RpcError};

/// Blocks of the first range, and of the widest, where every log is asked for.
const WIDEST: u64 = 10_000;
/// Ranges that are answered before a wider one is tried again.
const EASY: u32 = 16;

/// The logs of a range of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The last block of the range.
    pub to: u64,
    /// What the pool's contracts emitted, by block and place.
    pub logs: Vec<Log>,
    /// The first thing that no honest node tells, if there is one.
    pub fault: Option<String>,
}

/// A reader of a node's logs that learns how many blocks the node allows in one question.
#[derive(Debug)]
pub struct History<'a> {
    rpc: &'a Rpc,
    addresses: Vec<Address>,
    /// Topics of the logs, as `eth_getLogs` takes them; null for all.
    topics: Value,
    width: u64,
    widest: u64,
    /// Ranges that were answered since one was refused.
    answered: u32,
}

impl<'a> History<'a> {
    /// Of the logs of these addresses.
    #[must_use]
    pub fn new(rpc: &'a Rpc, addresses: &[Address]) -> Self {
        Self { rpc, addresses: addresses.into(), topics: Value::Null, width: WIDEST, widest: WIDEST, answered: 0 }
    }

    /// Of the logs of one address with these topics: few, so the first range is as wide as the chain.
    #[must_use]
    pub fn about(rpc: &'a Rpc, address: Address, topics: Value) -> Self {
        Self { rpc, addresses: vec![address], topics, width: u64::MAX, widest: u64::MAX, answered: 0 }
    }

    /// The logs from block `from` on, up to `last` or to where the node's range ends. For final blocks only: by height a
    /// reorganisation could mix forks.
    ///
    /// # Errors
    ///
    /// Any [`RpcError`]; one of limit only if a single block is too much.
    pub async fn next(&mut self, from: u64, last: u64) -> Result<Told, RpcError> {
        loop {
            let to = last.min(from.saturating_add(self.width - 1));
            match self.rpc.logs_as_told(from, to, &self.addresses, &self.topics).await {
                Ok((logs, fault)) => {
                    self.answered += 1;
                    if self.answered >= EASY {
                        self.answered = 0;
                        self.width = self.widest.min(self.width.saturating_mul(2));
                    }
                    return Ok(Told { to, logs, fault });
                }
                Err(error) if from < to && is_of_limit(&error) => {
                    self.answered = 0;
                    self.width = (to - from).div_ceil(2);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether a node may answer the same about fewer blocks. Nodes tell that in many ways, and few by a code of its own.
fn is_of_limit(error: &RpcError) -> bool {
    /// A limit of questions, not of what one may ask: fewer blocks would only make more of them.
    const OF_RATE: [&str; 3] = ["rate", "too many requests", "per second"];
    const OF_SIZE: [&str; 9] =
        ["range", "limit", "too many", "more than", "too large", "too big", "exceed", "response size", "timeout"];
    match error {
        RpcError::TooLong { .. } | RpcError::Status { status: 413, .. } => true,
        RpcError::Refused { code, message, .. } => {
            let message = message.to_lowercase();
            let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
            !says(&OF_RATE) && (*code == -32_005 || says(&OF_SIZE))
        }
        _ => false,
    }
}

impl Rpc {
    /// The logs of a range, sorted, and what is odd in the answer. Logs that are not of the question are left out.
    async fn logs_as_told(
        &self,
        from: u64,
        to: u64,
        addresses: &[Address],
        topics: &Value,
    ) -> Result<(Vec<Log>, Option<String>), RpcError> {
        let wanted: Vec<String> = addresses.iter().map(Address::to_string).collect();
        let mut filter = json!({ "fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}"), "address": wanted });
        if !topics.is_null() {
            filter["topics"] = topics.clone();
        }
        let (mut logs, removed) = self.logs_of_filter(filter).await?;
        let fault = match removed {
            Some(at) => Some(format!("a log of block {at} is told as removed, in a block that is called final")),
            None => odd(&logs, (from, to), addresses),
        };
        logs.retain(|log| addresses.contains(&log.address) && (from..=to).contains(&log.block_number));
        logs.sort_by_key(|log| (log.block_number, log.index));
        Ok((logs, fault))
    }
}

/// What is not of the question, or does not come once and in order.
fn odd(logs: &[Log], (from, to): (u64, u64), addresses: &[Address]) -> Option<String> {
    let foreign = logs.iter().find(|log| !addresses.contains(&log.address));
    let outside = logs.iter().find(|log| !(from..=to).contains(&log.block_number));
    let place = |log: &Log| (log.block_number, log.index);
    let unordered = logs.windows(2).find(|pair| place(&pair[0]) >= place(&pair[1]));
    if let Some(log) = foreign {
        return Some(format!("a log of {} in block {} came, which was not asked for", log.address, log.block_number));
    }
    if let Some(log) = outside {
        return Some(format!("a log of block {} came, blocks {from} to {to} were asked for", log.block_number));
    }
    unordered.map(|pair| {
        let [(block, index), (then, after)] = [place(&pair[0]), place(&pair[1])];
        format!("log {after} of block {then} comes after log {index} of block {block}: logs come once, in order")
    })
}
