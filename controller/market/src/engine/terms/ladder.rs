//! A ladder: the sorted distinct thresholds of one resource, and how many of them an amount reaches.

use alloc::vec::Vec;

/// Steps of the table that answers most of a look-up.
const CELLS: u32 = 1024;

/// Sorted distinct thresholds.
#[derive(Clone, Debug, Default)]
pub struct Ladder {
    steps: Vec<u32>,
    cells: Vec<u16>, // thresholds at or under the lower edge of each cell
    shift: u32,
}

impl Ladder {
    /// The ladder of `thresholds`, in any order, repeats allowed. At most 65,535 distinct ones count.
    #[must_use]
    pub fn new(mut thresholds: Vec<u32>) -> Self {
        thresholds.sort_unstable();
        thresholds.dedup();
        thresholds.truncate(usize::from(u16::MAX));
        let top = thresholds.last().copied().unwrap_or(0);
        let mut shift = 0;
        while top >> shift >= CELLS {
            shift += 1;
        }
        let cells = (0..CELLS)
            .map(|cell| thresholds.partition_point(|&step| step <= cell << shift))
            .map(|rank| u16::try_from(rank).unwrap_or(u16::MAX))
            .collect();
        Self { steps: thresholds, cells, shift }
    }

    /// How many thresholds `amount` reaches: 0 for none, [`Self::count`] for all.
    #[inline]
    #[must_use]
    pub fn rank(&self, amount: u32) -> usize {
        let Some(&cell) = self.cells.get((amount >> self.shift) as usize) else { return self.steps.len() };
        let mut rank = usize::from(cell);
        // Most cells have one threshold inside at most: the loop then does not run.
        rank = rank.wrapping_add(self.steps.get(rank).is_some_and(|&step| step <= amount).into());
        while self.steps.get(rank).is_some_and(|&step| step <= amount) {
            rank = rank.wrapping_add(1);
        }
        rank
    }

    /// The least amount of that rank.
    #[inline]
    #[must_use]
    pub fn step(&self, rank: usize) -> u32 {
        self.steps.get(rank.wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// How many thresholds there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.steps.len()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn the_rank_counts_the_thresholds_reached() {
        let ladder = Ladder::new(vec![4000, 500, 4000, 96_000]);
        assert_eq!(ladder.count(), 3);
        for (amount, rank) in
            [(0, 0), (499, 0), (500, 1), (3999, 1), (4000, 2), (95_999, 2), (96_000, 3), (u32::MAX, 3)]
        {
            assert_eq!(ladder.rank(amount), rank, "{amount}");
            assert_eq!(ladder.rank(ladder.step(rank)), rank, "the least amount of its rank");
        }
    }

    #[test]
    fn an_empty_ladder_and_one_of_extremes_answer() {
        assert_eq!(Ladder::new(vec![]).rank(u32::MAX), 0);
        let ladder = Ladder::new(vec![0, u32::MAX]);
        assert_eq!((ladder.rank(0), ladder.rank(u32::MAX - 1), ladder.rank(u32::MAX)), (1, 1, 2));
    }
}
