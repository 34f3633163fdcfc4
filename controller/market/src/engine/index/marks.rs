//! A set of ranks that is written at any place and read in order: one bit each, and one above for each 64 of them.

use alloc::vec::Vec;

/// Ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    bits: Vec<u64>,
    /// Which words of `bits` are not 0.
    full: Vec<u64>,
}

impl Marks {
    /// None of the ranks below `ranks`.
    pub fn new(ranks: u32) -> Self {
        let words = (ranks as usize).div_ceil(64);
        Self { bits: alloc::vec![0; words], full: alloc::vec![0; words.div_ceil(64)] }
    }

    /// Puts a rank in. One that is too high is ignored.
    pub fn set(&mut self, rank: u32) {
        let word = rank as usize / 64;
        if let (Some(bits), Some(full)) = (self.bits.get_mut(word), self.full.get_mut(word / 64)) {
            *bits |= 1 << (rank % 64);
            *full |= 1 << (word % 64);
        }
    }

    /// Moves all to the end of a list, ascending.
    pub fn drain_to(&mut self, list: &mut Vec<u32>) {
        for (at, full) in self.full.iter_mut().enumerate() {
            for word in ones(core::mem::take(full)).map(|bit| at * 64 + bit) {
                let Some(bits) = self.bits.get_mut(word) else { return };
                let ranks = ones(core::mem::take(bits)).map(|bit| word * 64 + bit);
                list.extend(ranks.filter_map(|rank| u32::try_from(rank).ok()));
            }
        }
    }
}

/// The bits that are set, ascending.
pub(super) fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then_some(word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_comes_out_once_and_ascending() {
        let mut marks = Marks::new(5_000);
        for rank in [4_999, 0, 64, 63, 64, 4_096, 5_120, u32::MAX] {
            marks.set(rank);
        }
        let read = |marks: &mut Marks| {
            let mut read = Vec::new();
            marks.drain_to(&mut read);
            read
        };
        assert_eq!(read(&mut marks), [0, 63, 64, 4_096, 4_999]);
        assert_eq!(read(&mut marks), [0; 0]);
        marks.set(64);
        assert_eq!(read(&mut marks), [64]);
    }
}
