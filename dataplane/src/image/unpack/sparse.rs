//! Files with holes: which bytes of an archive belong where.

use std::io::{self, Read};

use tar::{GnuExtSparseHeader, GnuHeader, GnuSparseHeader};

use super::pax::{PaxSparse, number};

const BLOCK: usize = 512;
/// Most pieces of one file.
const MOST_PIECES: usize = 1 << 16;

/// The pieces of a file that are not holes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::image) struct Map {
    /// Bytes of the file, holes included.
    pub real_size: u64,
    /// Offset and length of each piece.
    pub pieces: Vec<(u64, u64)>,
}

impl Map {
    /// Holds the pieces to be in order, apart, inside the file, and of `stored` bytes together.
    fn checked(self, stored: u64) -> Option<Self> {
        let (mut end, mut sum) = (0_u64, 0_u64);
        for (offset, length) in &self.pieces {
            if *offset < end {
                return None;
            }
            end = offset.checked_add(*length)?;
            sum = sum.checked_add(*length)?;
        }
        (end <= self.real_size && sum == stored).then_some(self)
    }

    /// The old form: four pieces in the header, more in blocks after it, which are read here.
    pub fn old(header: &GnuHeader, stored: u64, input: &mut impl Read) -> io::Result<Option<Self>> {
        let mut pieces = Vec::new();
        let real_size = header.real_size()?;
        push(&mut pieces, &header.sparse)?;
        let mut more = header.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            input.read_exact(block.as_mut_bytes())?;
            push(&mut pieces, block.sparse())?;
            more = block.is_extended();
            if pieces.len() > MOST_PIECES {
                return Ok(None);
            }
        }
        Ok(Self { real_size, pieces }.checked(stored))
    }

    /// The form of version 0.1: `offset,length,offset,length` in the extended header.
    pub(super) fn listed(sparse: &PaxSparse, stored: u64) -> Option<Self> {
        let text = sparse.map.as_deref()?;
        let numbers: Option<Vec<u64>> =
            text.split(|byte| *byte == b',').take(2 * MOST_PIECES + 1).map(number).collect();
        let numbers = numbers.filter(|numbers| numbers.len() % 2 == 0 && numbers.len() <= 2 * MOST_PIECES)?;
        let pieces = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Self { real_size: sparse.real_size?, pieces }.checked(stored)
    }

    /// The form of version 1.0: a count and pairs, a number a line, before the data, filled up to whole blocks. Returns
    /// the map and the bytes it took of the entry's `size`.
    pub(super) fn leading(sparse: &PaxSparse, size: u64, input: &mut impl Read) -> io::Result<Option<(Self, u64)>> {
        let Some(real_size) = sparse.real_size else { return Ok(None) };
        let mut lines = Lines { input, block: [0; BLOCK], at: BLOCK, read: 0, most: size };
        let Some(count) = lines.number()?.filter(|count| *count <= MOST_PIECES as u64) else { return Ok(None) };
        let mut pieces = Vec::new();
        for _ in 0..count {
            let (Some(offset), Some(length)) = (lines.number()?, lines.number()?) else { return Ok(None) };
            pieces.push((offset, length));
        }
        let read = lines.read;
        Ok(Self { real_size, pieces }.checked(size - read).map(|map| (map, read)))
    }
}

fn push(pieces: &mut Vec<(u64, u64)>, headers: &[GnuSparseHeader]) -> io::Result<()> {
    for header in headers {
        if header.is_empty() {
            break;
        }
        pieces.push((header.offset()?, header.length()?));
    }
    Ok(())
}

/// Numbers of one line each, read a block at a time.
struct Lines<'a, R> {
    input: &'a mut R,
    block: [u8; BLOCK],
    at: usize,
    read: u64,
    most: u64,
}

impl<R: Read> Lines<'_, R> {
    fn number(&mut self) -> io::Result<Option<u64>> {
        let mut digits = Vec::new();
        while digits.len() <= 20 {
            if self.at == BLOCK {
                if self.read + BLOCK as u64 > self.most {
                    return Ok(None);
                }
                self.input.read_exact(&mut self.block)?;
                self.read += BLOCK as u64;
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            if byte == b'\n' {
                return Ok(number(&digits));
            }
            digits.push(byte);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(map: &str, real_size: u64, stored: u64) -> Option<Map> {
        let sparse = PaxSparse { map: Some(map.into()), real_size: Some(real_size), ..PaxSparse::default() };
        Map::listed(&sparse, stored)
    }

    #[test]
    fn pieces_lie_in_order_apart_and_inside() {
        assert_eq!(listed("0,5,10,5", 20, 10).unwrap().pieces, [(0, 5), (10, 5)]);
        for (map, real, stored) in
            [("0,5,4,5", 20, 10), ("0,5,10,5", 14, 10), ("0,5,10,5", 20, 11), ("0,5,10", 20, 5), ("0,x", 20, 0)]
        {
            assert_eq!(listed(map, real, stored), None, "{map}");
        }
        let wraps = format!("{},2", u64::MAX);
        assert_eq!(listed(&wraps, u64::MAX, 2), None);
    }

    #[test]
    fn a_map_before_the_data_takes_whole_blocks() {
        let mut block = b"2\n0\n3\n100\n4\n".to_vec();
        block.resize(BLOCK, 0);
        let sparse = PaxSparse { real_size: Some(200), ..PaxSparse::default() };
        let (map, read) = Map::leading(&sparse, 519, &mut block.as_slice()).unwrap().unwrap();
        assert_eq!((map.pieces, read), (vec![(0, 3), (100, 4)], 512));
        assert!(Map::leading(&sparse, 100, &mut block.as_slice()).unwrap().is_none());
    }
}
