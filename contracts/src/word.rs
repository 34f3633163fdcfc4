//! Between our ids and ethers' types, and between both and JSON.

use ethers_core::types::{H160, H256, U256};
use selion_api::unit::TimeMs;
use selion_api::{Account, Address, Hash32, NodeId};
use serde_json::Value;

/// Anything that is 20 bytes on the chain.
pub trait Bytes20: Copy {
    /// The bytes.
    fn bytes(self) -> [u8; 20];
}

impl Bytes20 for Account {
    fn bytes(self) -> [u8; 20] {
        self.0
    }
}
impl Bytes20 for Address {
    fn bytes(self) -> [u8; 20] {
        self.0
    }
}
impl Bytes20 for NodeId {
    fn bytes(self) -> [u8; 20] {
        self.0
    }
}

pub fn h160(id: impl Bytes20) -> H160 {
    H160(id.bytes())
}

pub fn address(raw: H160) -> Address {
    Address(raw.0)
}

pub fn account(raw: H160) -> Account {
    Account(raw.0)
}

pub fn h256(hash: Hash32) -> H256 {
    H256(hash.0)
}

/// Seconds of the chain as milliseconds.
pub fn ms(seconds: u64) -> TimeMs {
    TimeMs(seconds.saturating_mul(1000))
}

/// Milliseconds as seconds of the chain, rounded down: a key never lives longer than asked.
pub fn seconds32(time: TimeMs) -> u32 {
    u32::try_from(time.0 / 1000).unwrap_or(u32::MAX)
}

pub fn hex0x(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

pub fn bytes_of(json: &Value) -> Option<Vec<u8>> {
    hex::decode(json.as_str()?.strip_prefix("0x")?).ok()
}

pub fn u64_of(json: &Value) -> Option<u64> {
    u64::from_str_radix(json.as_str()?.strip_prefix("0x")?, 16).ok()
}

pub fn u128_of(json: &Value) -> Option<u128> {
    u128::from_str_radix(json.as_str()?.strip_prefix("0x")?, 16).ok()
}

pub fn hash_of(json: &Value) -> Option<Hash32> {
    bytes_of(json)?.try_into().ok().map(Hash32)
}

pub fn address_of(json: &Value) -> Option<Address> {
    bytes_of(json)?.try_into().ok().map(Address)
}

/// 64 bits of a word, from bit `low`.
pub fn lane64(word: U256, low: usize) -> u64 {
    (word >> low).low_u64()
}
