//! Headers that are hashed: what a node says of a block is what the block's hash was made of.

use std::collections::BTreeSet;

use alloy_rlp::{BufMut, Encodable, Header as RlpHeader};
use ethers_core::utils::keccak256;
use selion_api::Hash32;
use serde_json::Value;

use crate::rpc::{BlockTag, Header, Rpc, RpcError};
use crate::word::bytes_of;

/// How a field stands in the encoding.
#[derive(Clone, Copy)]
enum Kind {
    /// The bytes as they are.
    Bytes,
    /// A number without leading zeroes.
    Number,
}

/// The fields of every header, in the order of their encoding (Yellow Paper, 4.4).
const ALWAYS: [(&str, Kind); 15] = [
    ("parentHash", Kind::Bytes),
    ("sha3Uncles", Kind::Bytes),
    ("miner", Kind::Bytes),
    ("stateRoot", Kind::Bytes),
    ("transactionsRoot", Kind::Bytes),
    ("receiptsRoot", Kind::Bytes),
    ("logsBloom", Kind::Bytes),
    ("difficulty", Kind::Number),
    ("number", Kind::Number),
    ("gasLimit", Kind::Number),
    ("gasUsed", Kind::Number),
    ("timestamp", Kind::Number),
    ("extraData", Kind::Bytes),
    ("mixHash", Kind::Bytes),
    ("nonce", Kind::Bytes),
];

/// The fields that later forks appended. A header that has one has all before it.
const LATER: [(&str, Kind); 6] = [
    ("baseFeePerGas", Kind::Number),        // London, EIP-1559
    ("withdrawalsRoot", Kind::Bytes),       // Shanghai, EIP-4895
    ("blobGasUsed", Kind::Number),          // Cancun, EIP-4844
    ("excessBlobGas", Kind::Number),        // Cancun, EIP-4844
    ("parentBeaconBlockRoot", Kind::Bytes), // Cancun, EIP-4788
    ("requestsHash", Kind::Bytes),          // Prague, EIP-7685
];

/// What nodes tell beside a header's fields.
const BESIDE: [&str; 6] = ["hash", "size", "totalDifficulty", "transactions", "uncles", "withdrawals"];

/// A header, and why it is not the one that its hash names, if it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// As the node tells it.
    pub header: Header,
    /// Another number or hash than was asked for, or fields that do not hash to its hash.
    pub fault: Option<String>,
}

impl Rpc {
    /// The header of a block, hashed. [`RpcError::NoBlock`] if there is none.
    ///
    /// # Errors
    ///
    /// Any [`RpcError`].
    pub async fn hashed_header(&self, block: BlockTag) -> Result<Hashed, RpcError> {
        let (header, json) = self.header_as_told(block).await?;
        let other = match block {
            BlockTag::Number(number) if number != header.number => {
                Some(format!("block {number} was asked for, block {} came", header.number))
            }
            BlockTag::Hash(hash) if hash != header.hash => {
                Some(format!("the block of hash {hash} was asked for, that of {} came", header.hash))
            }
            _ => None,
        };
        let fault = other.or_else(|| fault(&json, header.number, header.hash));
        Ok(Hashed { header, fault })
    }
}

fn fault(json: &Value, number: u64, told: Hash32) -> Option<String> {
    let found = match encoded(json) {
        Ok(bytes) => Hash32(keccak256(bytes)),
        Err(field) => return Some(format!("the header of block {number} has no {field} that can be read")),
    };
    if found == told {
        return None;
    }
    let known: BTreeSet<&str> = ALWAYS.iter().chain(&LATER).map(|(name, _)| *name).chain(BESIDE).collect();
    let names = json.as_object().into_iter().flat_map(|fields| fields.keys().map(String::as_str));
    let unknown: Vec<&str> = names.filter(|name| !known.contains(name)).take(8).collect();
    let advice = match unknown.is_empty() {
        true => String::new(),
        false => format!(
            "; it has fields that this release does not know ({}): if they belong to the chain's headers, use a release \
             that knows them",
            unknown.join(", ")
        ),
    };
    Some(format!("the header of block {number} hashes to {found}, the node says {told}{advice}"))
}

/// The header's encoding, or the field that is missing or no hex.
fn encoded(json: &Value) -> Result<Vec<u8>, &'static str> {
    let mut payload = Vec::with_capacity(640);
    let later = LATER.iter().take_while(|(name, _)| json.get(name).is_some_and(|field| !field.is_null()));
    for (name, kind) in ALWAYS.iter().chain(later) {
        put(&json[*name], *kind, &mut payload).ok_or(*name)?;
    }
    let mut list = Vec::with_capacity(payload.len() + 4);
    RlpHeader { list: true, payload_length: payload.len() }.encode(&mut list);
    list.extend(payload);
    Ok(list)
}

fn put(field: &Value, kind: Kind, out: &mut dyn BufMut) -> Option<()> {
    match kind {
        Kind::Bytes => bytes_of(field)?.as_slice().encode(out),
        Kind::Number => number(field)?.as_slice().encode(out),
    }
    Some(())
}

/// A quantity, most significant byte first, without leading zeroes: its own encoding is that of these bytes.
fn number(field: &Value) -> Option<Vec<u8>> {
    let digits = field.as_str()?.strip_prefix("0x")?;
    let even = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits.to_owned() };
    let bytes = hex::decode(even).ok()?;
    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
}
