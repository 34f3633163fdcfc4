//! Reading parameters.

use super::error::RpcError;
use revm::primitives::{B256, U256};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The positional parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(Vec<Value>);

impl Params {
    /// Takes the `params` member of a request, if it has one.
    pub(crate) fn new(params: Option<Value>) -> Result<Self, RpcError> {
        match params {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(Value::Array(values)) => Ok(Self(values)),
            Some(_) => Err(RpcError::invalid_params("params must be a list")),
        }
    }

    /// The parameter at `index`, which messages call `name`.
    pub(crate) fn get<T: DeserializeOwned>(&self, index: usize, name: &str) -> Result<T, RpcError> {
        let missing = || RpcError::invalid_params(format!("parameter {index}, {name}, is missing"));
        self.optional(index, name)?.ok_or_else(missing)
    }

    /// The parameter at `index`, or `None` if it is absent or null.
    pub(crate) fn optional<T: DeserializeOwned>(&self, index: usize, name: &str) -> Result<Option<T>, RpcError> {
        let Some(value) = self.0.get(index).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let wrong = |error| RpcError::invalid_params(format!("parameter {index}, {name}: {error}"));
        serde_json::from_value(value.clone()).map(Some).map_err(wrong)
    }

    /// A number at `index` of at most 64 bits, written as hex, as decimal text or as a number.
    pub(crate) fn number(&self, index: usize, name: &str) -> Result<Option<u64>, RpcError> {
        let too_big = |_| RpcError::invalid_params(format!("parameter {index}, {name}, is over 64 bits"));
        self.optional::<U256>(index, name)?.map(|number| number.try_into().map_err(too_big)).transpose()
    }

    /// The block named at `index`; the latest if none is.
    pub(crate) fn at(&self, index: usize) -> Result<At, RpcError> {
        self.0.get(index).map_or(Ok(At::Latest), At::parse)
    }
}

/// A block as clients name it. `safe` and `finalized` are the latest: the chain is final at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The head.
    Latest,
    /// The block that would be mined now.
    Pending,
    /// By number.
    Number(u64),
    /// By hash.
    Hash(B256),
}

impl At {
    /// Reads a tag, a number, a hash, or an object with `blockNumber` or `blockHash`.
    pub(crate) fn parse(value: &Value) -> Result<Self, RpcError> {
        let read = match value {
            Value::Null => Some(Self::Latest),
            Value::String(text) => match text.as_str() {
                "latest" | "safe" | "finalized" => Some(Self::Latest),
                "pending" => Some(Self::Pending),
                "earliest" => Some(Self::Number(0)),
                text if text.len() == 66 => text.parse().ok().map(Self::Hash),
                _ => number(value),
            },
            Value::Object(object) => match (object.get("blockHash"), object.get("blockNumber")) {
                (Some(hash), None) => serde_json::from_value(hash.clone()).ok().map(Self::Hash),
                (None, Some(number)) => return Self::parse(number),
                _ => None,
            },
            value => number(value),
        };
        read.ok_or_else(|| {
            RpcError::invalid_params(format!(
                "{value} names no block; give a number, a hash, latest, safe, finalized, earliest or pending"
            ))
        })
    }
}

fn number(value: &Value) -> Option<At> {
    let number: U256 = serde_json::from_value(value.clone()).ok()?;
    number.try_into().ok().map(At::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_block_may_be_named_in_every_way_that_other_nodes_take() {
        let hash = B256::repeat_byte(3);
        for (value, at) in [
            (json!(null), At::Latest),
            (json!("finalized"), At::Latest),
            (json!("earliest"), At::Number(0)),
            (json!("0x1f"), At::Number(31)),
            (json!(31), At::Number(31)),
            (json!(hash), At::Hash(hash)),
            (json!({"blockHash": hash}), At::Hash(hash)),
            (json!({"blockNumber": "0x2"}), At::Number(2)),
        ] {
            assert_eq!(At::parse(&value), Ok(at), "{value}");
        }
        for bad in [json!("newest"), json!({}), json!([]), json!("0x10000000000000000"), json!(-1)] {
            assert!(At::parse(&bad).is_err(), "{bad}");
        }
    }
}
