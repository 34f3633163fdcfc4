//! What a block says about its logs without listing them.

use ethers_core::utils::keccak256;
use selion_api::Address;

use crate::rpc::Log;

/// A block's filter over the addresses and topics of its logs: it may claim too much, never too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bloom([u8; 256]);

impl Bloom {
    /// From its 256 bytes.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }

    /// The filter of a block with these logs.
    #[must_use]
    pub fn of<'a>(logs: impl IntoIterator<Item = &'a Log>) -> Self {
        let mut bloom = Self([0; 256]);
        for log in logs {
            let words = log.topics.iter().map(|topic| &topic.0[..]);
            for (byte, bit) in words.chain([&log.address.0[..]]).flat_map(bits) {
                bloom.0[byte] |= bit;
            }
        }
        bloom
    }

    /// False if no log of the block is by `address`.
    #[must_use]
    pub fn may_hold(&self, address: Address) -> bool {
        bits(&address.0).into_iter().all(|(byte, bit)| self.0[byte] & bit != 0)
    }

    /// False if a log of `other` is none of this block's.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(ours, theirs)| theirs & !ours == 0)
    }
}

/// Byte and bit of the three bits of a word, each named by the low eleven bits of a pair of bytes of its hash; bit 0 is
/// the last one (Yellow Paper, 4.3.1).
fn bits(word: &[u8]) -> [(usize, u8); 3] {
    let hash = keccak256(word);
    [0, 2, 4].map(|pair| {
        let bit = usize::from(u16::from_be_bytes([hash[pair], hash[pair + 1]]) & 2047);
        (255 - bit / 8, 1 << (bit % 8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ethers_core::abi::ethereum_types::BloomInput;
    use ethers_core::types::{Bloom as Theirs, H160};
    use selion_api::Hash32;

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

    #[test]
    fn the_filter_of_logs_is_the_chains_own_and_misses_what_is_left_out() {
        let log = |address: u8, topics: &[u8]| Log {
            address: Address([address; 20]),
            topics: topics.iter().map(|byte| Hash32([*byte; 32])).collect(),
            data: vec![9],
            block_number: 1,
            block_hash: Hash32::ZERO,
            tx: Hash32::ZERO,
            index: 0,
        };
        let logs = [log(1, &[2, 3]), log(4, &[]), log(1, &[5])];
        let mut theirs = Theirs::default();
        for raw in [&[1; 20][..], &[2; 32], &[3; 32], &[4; 20], &[5; 32]] {
            theirs.accrue(BloomInput::Raw(raw));
        }
        let whole = Bloom::of(&logs);
        assert_eq!(Some(whole), Bloom::read(theirs.as_bytes()));
        for left in 0..logs.len() {
            let told = logs.iter().enumerate().filter(|(at, _)| *at != left).map(|(_, log)| log);
            let told = Bloom::of(told);
            assert!(whole.covers(&told) && !told.covers(&whole), "without log {left}");
        }
    }
}
