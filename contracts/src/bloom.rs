//! What a block says about its logs without listing them.

use ethers_core::utils::keccak256;
use selion_api::Address;

/// A block's filter over the addresses and topics of its logs: it may claim too much, never too little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bloom(Box<[u8; 256]>);

impl Bloom {
    /// From its 256 bytes.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self(Box::new(bytes.try_into().ok()?)))
    }

    /// False if no log of the block is by `address`.
    #[must_use]
    pub fn may_hold(&self, address: Address) -> bool {
        let hash = keccak256(address.0);
        // Three bits, each named by the low eleven bits of a pair of bytes; bit 0 is the last one (Yellow Paper, 4.3.1).
        [0, 2, 4].into_iter().all(|pair| {
            let bit = usize::from(u16::from_be_bytes([hash[pair], hash[pair + 1]]) & 2047);
            self.0[255 - bit / 8] >> (bit % 8) & 1 == 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ethers_core::abi::ethereum_types::BloomInput;
    use ethers_core::types::{Bloom as Theirs, H160};

    #[test]
    fn it_holds_what_was_put_in_and_not_what_was_not() {
        let mut theirs = Theirs::default();
        for seed in 0..20 {
            theirs.accrue(BloomInput::Raw(H160([seed; 20]).as_bytes()));
        }
        let bloom = Bloom::read(theirs.as_bytes()).expect("256 bytes");
        assert!((0..20).all(|seed| bloom.may_hold(Address([seed; 20]))));
        for seed in 20..=255 {
            let said = theirs.contains_input(BloomInput::Raw(H160([seed; 20]).as_bytes()));
            assert_eq!(bloom.may_hold(Address([seed; 20])), said, "{seed}");
        }
        assert!(!Bloom::read(&[0; 256]).expect("256 bytes").may_hold(Address([1; 20])));
        assert_eq!(Bloom::read(&[0; 255]), None);
    }
}
