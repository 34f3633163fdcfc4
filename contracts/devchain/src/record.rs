//! What the journal remembers: the inputs of the chain, enough to replay it exactly.

use revm::primitives::{Address, B256, Bytes, U256};

/// One input, as applied. Times are seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The first record: which chain this is and when its block 0 was made.
    Genesis { chain_id: u64, timestamp: u64 },
    /// A signed transaction and the time of the block that holds it.
    Tx { timestamp: u64, raw: Bytes },
    /// `count` empty blocks from `timestamp`, `interval` seconds apart. `branch` tells apart the empty
    /// blocks that replaced others in a reorg; 0 on the first branch.
    Mine { timestamp: u64, count: u64, interval: u64, branch: u64 },
    /// A balance set by hand, in wei. Makes no block.
    SetBalance { address: Address, balance: U256 },
    /// The last `depth` blocks were replaced by as many empty ones.
    Reorg { timestamp: u64, depth: u64 },
    /// The chain's clock runs `offset` seconds ahead of the wall clock. Makes no block.
    Clock { offset: i64 },
}

/// A record with the head hash that applying it gave, so that a replay can prove itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) record: Record,
    pub(crate) head: B256,
}

impl Entry {
    /// The bytes in the journal: kind, numbers little-endian, then any variable part, then the head hash.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |kind: u8, numbers: &[u64], rest: &[u8]| {
            out.push(kind);
            for number in numbers {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(rest);
        };
        match &self.record {
            Record::Genesis { chain_id, timestamp } => put(0, &[*chain_id, *timestamp], &[]),
            Record::Tx { timestamp, raw } => put(1, &[*timestamp], raw),
            Record::Mine { timestamp, count, interval, branch } => {
                put(2, &[*timestamp, *count, *interval, *branch], &[])
            }
            Record::SetBalance { address, balance } => {
                put(3, &[], &[address.as_slice(), &balance.to_be_bytes::<32>()].concat());
            }
            Record::Reorg { timestamp, depth } => put(4, &[*timestamp, *depth], &[]),
            Record::Clock { offset } => put(5, &[], &offset.to_le_bytes()),
        }
        out.extend_from_slice(self.head.as_slice());
        out
    }

    /// Reads what [`encode`](Self::encode) wrote. `None` if the bytes are no record of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, head) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        let (kind, mut rest) = body.split_first()?;
        let mut number = || {
            let (first, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(u64::from_le_bytes(*first))
        };
        let record = match kind {
            0 => Record::Genesis { chain_id: number()?, timestamp: number()? },
            1 => {
                let timestamp = number()?;
                Record::Tx { timestamp, raw: Bytes::copy_from_slice(std::mem::take(&mut rest)) }
            }
            2 => Record::Mine { timestamp: number()?, count: number()?, interval: number()?, branch: number()? },
            3 => {
                let (address, balance) = std::mem::take(&mut rest).split_first_chunk::<20>()?;
                Record::SetBalance {
                    address: Address::from(address),
                    balance: U256::from_be_bytes::<32>(balance.try_into().ok()?),
                }
            }
            4 => Record::Reorg { timestamp: number()?, depth: number()? },
            5 => Record::Clock { offset: i64::from_le_bytes(number()?.to_le_bytes()) },
            _ => return None,
        };
        rest.is_empty().then(|| Self { record, head: B256::from_slice(head) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Record> {
        vec![
            Record::Genesis { chain_id: 31_337, timestamp: 7 },
            Record::Tx { timestamp: 8, raw: Bytes::from_static(&[1, 2, 3]) },
            Record::Mine { timestamp: 9, count: 2, interval: 12, branch: 1 },
            Record::SetBalance { address: Address::repeat_byte(9), balance: U256::from(5) },
            Record::Reorg { timestamp: 10, depth: 3 },
            Record::Clock { offset: -4 },
        ]
    }

    #[test]
    fn every_record_reads_back_as_it_was_written() {
        for record in all() {
            let entry = Entry { record, head: B256::repeat_byte(0xab) };
            assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        }
    }

    #[test]
    fn a_record_with_bytes_left_over_or_missing_is_refused() {
        for record in all().into_iter().filter(|record| !matches!(record, Record::Tx { .. })) {
            let bytes = Entry { record, head: B256::ZERO }.encode();
            assert_eq!(Entry::decode(&[&bytes[..], &[0]].concat()), None);
            assert_eq!(Entry::decode(&bytes[..bytes.len() - 1]), None);
        }
    }
}
