//! Requests that an account signs and the pool's operator pays for.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::id::{Account, Address, BadId, Hash32, text_on_the_wire};
use crate::unit::TimeMs;

/// Bytes, written as 0x and hex digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", hex::encode(&self.0))
    }
}

impl FromStr for Hex {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        let digits = text.strip_prefix("0x").and_then(|digits| hex::decode(digits).ok());
        digits.map(Self).ok_or_else(|| BadId { text: String::from(text), what: "bytes as 0x and hex digits" })
    }
}
text_on_the_wire!(Hex, "bytes as 0x and hex digits", "^0x([0-9a-fA-F]{2})*$");

/// `POST /v1/relay`: a call that `from` signed for the pool's forwarder (EIP-712 `ForwardRequest`, value 0); or, to the
/// pool's token, its own `permit` (EIP-2612), which says in `data` what the other fields say.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRelay {
    /// Whose call it is.
    pub from: Account,
    /// The pool's Controller or Vault contract, or for a permit its token.
    pub to: Address,
    /// Gas that the call itself may use.
    pub gas: u64,
    /// The next one of `from` at the forwarder, or for a permit at the token.
    pub nonce: u64,
    /// When the request lapses, at most an hour from now; it is signed in whole seconds, rounded down.
    pub deadline_ms: TimeMs,
    /// Selector and arguments.
    pub data: Hex,
    /// Of `from` over the request: its key's 65 bytes, or what its contract accepts (EIP-1271). Of a permit: its `r`, `s`
    /// and `v`.
    pub signature: Hex,
}

/// How far a relayed request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RelayState {
    /// It is kept and waits for its turn.
    Waiting,
    /// It is with the chain's nodes.
    Sent,
    /// It is in a block, and did what it says.
    Mined,
    /// It did nothing; `reason` says why. Its nonce can be used again.
    Failed,
}

/// `GET /v1/relay/{id}`: what became of a relayed request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct RelayView {
    /// Its id here.
    pub id: u64,
    /// Whose call it is.
    pub from: Account,
    /// Its nonce at the forwarder, or for a permit at the token.
    pub nonce: u64,
    /// Name of the contract's function.
    pub call: String,
    /// How far it is.
    pub state: RelayState,
    /// The operator's transaction that was mined.
    pub transaction: Option<Hash32>,
    /// In which block.
    pub block_number: Option<u64>,
    /// Why it failed.
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_are_written_and_nothing_else_is() {
        let bytes = Hex(alloc::vec![0, 0xab]);
        assert_eq!(alloc::format!("{bytes}"), "0x00ab");
        assert_eq!("0x00ab".parse(), Ok(bytes));
        for bad in ["00ab", "0x0", "0xzz", ""] {
            assert!(bad.parse::<Hex>().is_err(), "{bad}");
        }
    }
}
