//! Which logs a client asked for.

use crate::{block::Block, rpc::error::RpcError};
use revm::primitives::{
    Address, B256, Log,
    alloy_primitives::{Bloom, BloomInput},
};
use serde_json::Value;

/// Addresses and topics of interest; an empty list means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    addresses: Vec<Address>,
    topics: Vec<Vec<B256>>,
}

impl Filter {
    /// Reads the `address` and `topics` of a filter object: each a value, a list of alternatives, or null.
    pub(crate) fn parse(filter: &Value) -> Result<Self, RpcError> {
        let bad = |what: &str| RpcError::invalid_params(format!("filter: {what}"));
        let addresses =
            alternatives(filter.get("address")).ok_or_else(|| bad("address is no address or list of addresses"))?;
        let topics = match filter.get("topics") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(topics)) if topics.len() <= 4 => {
                let read: Option<_> = topics.iter().map(|topic| alternatives(Some(topic))).collect();
                read.ok_or_else(|| bad("a topic is no 32-byte word, list of words or null"))?
            }
            Some(_) => return Err(bad("topics is no list of at most four")),
        };
        Ok(Self { addresses, topics })
    }

    /// The logs of `block` that match, with their index in it.
    pub(crate) fn select<'a>(&'a self, block: &'a Block) -> impl Iterator<Item = (usize, &'a Log)> {
        let logs = if self.may_match(&block.header.bloom) { block.logs() } else { &[] };
        logs.iter().enumerate().filter(|(_, log)| self.matches(log))
    }

    fn matches(&self, log: &Log) -> bool {
        let any = |wanted: &[B256], topic: &B256| wanted.is_empty() || wanted.contains(topic);
        (self.addresses.is_empty() || self.addresses.contains(&log.address))
            && self.topics.len() <= log.topics().len()
            && self.topics.iter().zip(log.topics()).all(|(wanted, topic)| any(wanted, topic))
    }

    /// False only if no log of a block with this bloom can match.
    fn may_match(&self, bloom: &Bloom) -> bool {
        let holds = |bytes: &[u8]| bloom.contains_input(BloomInput::Raw(bytes));
        (self.addresses.is_empty() || self.addresses.iter().any(|address| holds(address.as_slice())))
            && self.topics.iter().all(|wanted| wanted.is_empty() || wanted.iter().any(|topic| holds(topic.as_slice())))
    }
}

fn alternatives<T: serde::de::DeserializeOwned>(value: Option<&Value>) -> Option<Vec<T>> {
    let read = |value: &Value| serde_json::from_value(value.clone()).ok();
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(values)) => values.iter().map(read).collect(),
        Some(value) => Some(vec![read(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use revm::primitives::Bytes;
    use serde_json::json;

    fn log(address: u8, topics: &[u8]) -> Log {
        let topics = topics.iter().map(|byte| B256::repeat_byte(*byte)).collect();
        Log::new_unchecked(Address::repeat_byte(address), topics, Bytes::new())
    }

    fn filter(value: Value) -> Filter {
        Filter::parse(&value).unwrap()
    }

    #[test]
    fn an_empty_filter_takes_everything() {
        assert!(filter(json!({})).matches(&log(1, &[])));
        assert!(filter(json!({"address": [], "topics": [null, []]})).matches(&log(1, &[5, 6])));
    }

    #[test]
    fn alternatives_are_or_and_positions_are_and() {
        let filter = filter(json!({
            "address": [Address::repeat_byte(1), Address::repeat_byte(2)],
            "topics": [null, [B256::repeat_byte(7), B256::repeat_byte(8)]],
        }));
        assert!(filter.matches(&log(2, &[5, 8])));
        assert!(!filter.matches(&log(3, &[5, 8])), "another address");
        assert!(!filter.matches(&log(2, &[8, 5])), "the topic in another place");
        assert!(!filter.matches(&log(2, &[5])), "fewer topics than asked for");
    }

    #[test]
    fn the_bloom_never_hides_a_log_that_matches() {
        let filter = filter(json!({"address": Address::repeat_byte(1), "topics": [B256::repeat_byte(7)]}));
        let mut bloom = Bloom::ZERO;
        assert!(!filter.may_match(&bloom));
        bloom.accrue_log(&log(1, &[7, 9]));
        assert!(filter.may_match(&bloom));
    }

    #[test]
    fn a_malformed_filter_is_an_error_and_not_an_empty_answer() {
        for bad in [
            json!({"address": "0x12"}),
            json!({"topics": "0x"}),
            json!({"topics": [[["0x"]]]}),
            json!({"topics": [null, null, null, null, null]}),
        ] {
            assert!(Filter::parse(&bad).is_err(), "{bad}");
        }
    }
}
