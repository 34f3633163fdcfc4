//! Blocks of IPv4 addresses.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The addresses that begin with the same bits, as text `ADDRESS/BITS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Block {
    base: Ipv4Addr,
    bits: u8,
}

impl Block {
    /// The block of `bits` (at most 32) that `address` is in.
    #[must_use]
    pub const fn of(address: Ipv4Addr, bits: u8) -> Self {
        let bits = if bits > 32 { 32 } else { bits };
        Self { base: Ipv4Addr::from_bits(address.to_bits() & Self::mask(bits)), bits }
    }

    /// One address.
    #[must_use]
    pub const fn one(address: Ipv4Addr) -> Self {
        Self::of(address, 32)
    }

    /// Whether the address is in it.
    #[must_use]
    pub const fn holds(self, address: Ipv4Addr) -> bool {
        address.to_bits() & Self::mask(self.bits) == self.base.to_bits()
    }

    /// How many bits its addresses share.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.bits
    }

    const fn mask(bits: u8) -> u32 {
        if bits == 0 { 0 } else { u32::MAX << (32 - bits) }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.base, self.bits)
    }
}

impl FromStr for Block {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no block of IPv4 addresses; write one as 10.0.0.0/8, or one address");
        let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().ok().filter(|bits| *bits <= 32).ok_or_else(wrong)?;
        let block = Self::of(address, bits);
        if block.base != address {
            return Err(format!("`{text}` has bits of a host; the block is {block}"));
        }
        Ok(block)
    }
}

impl TryFrom<String> for Block {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Block> for String {
    fn from(block: Block) -> Self {
        block.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_read_as_it_is_written_and_holds_its_own() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.168.9.0/24", "1.2.3.4/32"] {
            assert_eq!(text.parse::<Block>().unwrap().to_string(), text);
        }
        assert_eq!("1.2.3.4".parse::<Block>().unwrap(), Block::one(Ipv4Addr::new(1, 2, 3, 4)));
        let block: Block = "172.16.0.0/12".parse().unwrap();
        assert!(block.holds(Ipv4Addr::new(172, 31, 255, 255)) && !block.holds(Ipv4Addr::new(172, 32, 0, 0)));
        for text in ["10.0.0.0/33", "10.0.0.1/8", "10.0.0/8", "fd00::/8", "10.0.0.0/", ""] {
            assert!(text.parse::<Block>().is_err(), "{text}");
        }
    }
}
