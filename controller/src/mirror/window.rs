//! The part of the chain that can still change: headers from the last final block up to the head, each linked to the
//! one below by its parent's hash. Pure: it asks for what it needs by its verdicts and touches nothing.

use std::collections::VecDeque;

use selion_api::Hash32;
use selion_api::chain::ChainEvent;
use selion_contracts::Bloom;
use selion_market::state::BlockRef;

/// A block as far as linking goes, and what it says itself of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Height.
    pub number: u64,
    /// Its hash.
    pub hash: Hash32,
    /// Hash of its parent.
    pub parent: Hash32,
    /// True if the header itself says that the block holds no event of the pool.
    pub silent: bool,
    /// What the logs of the block are about; `None` if the node does not say.
    pub bloom: Option<Bloom>,
    /// How many receipts the block has at least.
    pub transactions: usize,
}

impl Header {
    /// Number and hash alone.
    #[must_use]
    pub fn reference(&self) -> BlockRef {
        BlockRef { number: self.number, hash: self.hash }
    }
}

/// A header with the pool's events of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The block.
    pub header: Header,
    /// Events of the pool in it, in order.
    pub events: Vec<ChainEvent>,
}

/// What a header means to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stands on the tip.
    Extends,
    /// The window holds it already, or it lies below the last final block.
    Known,
    /// It cannot be linked before the header of this number was judged.
    Gap {
        /// Number of the header to read next.
        need: u64,
    },
    /// Blocks above `common` left the chain; the header stands on `common`.
    Reorg {
        /// Number of the highest block that both chains share.
        common: u64,
    },
    /// The chain changed below what was final.
    TooDeep {
        /// The final block.
        had: BlockRef,
        /// What the chain says now at that height.
        has: Hash32,
    },
    /// The window holds as many unfinal blocks as it may; finality must move first.
    Full,
}

/// Linked headers above the last final block.
#[derive(Clone, Debug)]
pub struct Window {
    base: BlockRef,
    blocks: VecDeque<Seen>,
    most: usize,
}

impl Window {
    /// An empty window on the final block `base`, holding at most `most` blocks.
    #[must_use]
    pub fn new(base: BlockRef, most: usize) -> Self {
        Self { base, blocks: VecDeque::new(), most: most.max(1) }
    }

    /// The last final block.
    #[must_use]
    pub fn base(&self) -> BlockRef {
        self.base
    }

    /// The highest block held.
    #[must_use]
    pub fn tip(&self) -> BlockRef {
        self.blocks.back().map_or(self.base, |seen| seen.header.reference())
    }

    /// Hash of the block of that number, if it is held.
    #[must_use]
    pub fn hash_at(&self, number: u64) -> Option<Hash32> {
        let above = number.checked_sub(self.base.number)?;
        let Some(index) = above.checked_sub(1) else {
            return Some(self.base.hash);
        };
        let index = usize::try_from(index).ok()?;
        self.blocks.get(index).map(|seen| seen.header.hash)
    }

    /// What `header` means, without taking it. Following `Gap` downwards always ends: `need` falls until a shared
    /// block, the base, or the tip is reached.
    #[must_use]
    pub fn judge(&self, header: &Header) -> Verdict {
        let tip = self.tip();
        if header.number > tip.number.saturating_add(1) {
            return Verdict::Gap { need: tip.number.saturating_add(1) };
        }
        if header.number < self.base.number {
            return Verdict::Known;
        }
        if self.hash_at(header.number) == Some(header.hash) {
            return Verdict::Known;
        }
        if header.number == self.base.number {
            return Verdict::TooDeep { had: self.base, has: header.hash };
        }
        // Above the base, so that the number below exists and is held.
        let below = header.number - 1;
        if self.hash_at(below) != Some(header.parent) {
            return Verdict::Gap { need: below };
        }
        if below == tip.number {
            if self.blocks.len() >= self.most {
                return Verdict::Full;
            }
            return Verdict::Extends;
        }
        Verdict::Reorg { common: below }
    }

    /// Judges `seen` and takes it if it extends the chain or replaces a part of it.
    pub fn advance(&mut self, seen: Seen) -> Verdict {
        let verdict = self.judge(&seen.header);
        if let Verdict::Reorg { common } = verdict {
            let keep = usize::try_from(common - self.base.number).unwrap_or(usize::MAX);
            self.blocks.truncate(keep);
        }
        if matches!(verdict, Verdict::Extends | Verdict::Reorg { .. }) {
            self.blocks.push_back(seen);
        }
        verdict
    }

    /// The blocks held up to the height `through`, lowest first.
    pub fn through(&self, through: u64) -> impl Iterator<Item = &Seen> {
        self.blocks.iter().take_while(move |seen| seen.header.number <= through)
    }

    /// The blocks up to the height `through` are final now: the highest of them becomes the base.
    pub fn settle(&mut self, through: u64) {
        while let Some(seen) = self.blocks.pop_front_if(|seen| seen.header.number <= through) {
            self.base = seen.header.reference();
        }
    }

    /// Blocks held above the base.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if nothing is held above the base.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64, fork: u8) -> Hash32 {
        let mut bytes = [fork; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        Hash32(bytes)
    }

    fn block(number: u64, fork: u8, parent_fork: u8) -> Seen {
        let (hash, parent) = (hash(number, fork), hash(number - 1, parent_fork));
        let header = Header { number, hash, parent, silent: false, bloom: None, transactions: 0 };
        Seen { header, events: Vec::new() }
    }

    fn window(blocks: u64) -> Window {
        let base = BlockRef { number: 10, hash: hash(10, 0) };
        let mut window = Window::new(base, 8);
        for number in 11..=10 + blocks {
            assert_eq!(window.advance(block(number, 0, 0)), Verdict::Extends);
        }
        window
    }

    #[test]
    fn a_header_far_above_the_tip_asks_for_the_one_on_the_tip() {
        assert_eq!(window(2).judge(&block(20, 0, 0).header), Verdict::Gap { need: 13 });
    }

    #[test]
    fn a_reorganisation_is_walked_down_to_the_common_block_and_replaces_what_stood_above() {
        let mut window = window(4); // 11..=14
        assert_eq!(window.advance(block(15, 1, 1)), Verdict::Gap { need: 14 });
        assert_eq!(window.advance(block(14, 1, 1)), Verdict::Gap { need: 13 });
        assert_eq!(window.advance(block(13, 1, 0)), Verdict::Reorg { common: 12 });
        assert_eq!(window.tip().hash, hash(13, 1));
        assert_eq!(window.advance(block(14, 1, 1)), Verdict::Extends);
        assert_eq!(window.len(), 4);
    }

    #[test]
    fn a_change_of_the_final_block_is_too_deep_and_is_not_taken() {
        let mut window = window(1);
        window.settle(11);
        let verdict = window.advance(block(11, 1, 0));
        let had = BlockRef { number: 11, hash: hash(11, 0) };
        assert_eq!(verdict, Verdict::TooDeep { had, has: hash(11, 1) });
        assert_eq!(window.base(), had);
    }

    #[test]
    fn a_full_window_waits_for_finality_and_an_old_header_is_nothing_new() {
        let mut window = window(8);
        assert_eq!(window.advance(block(19, 0, 0)), Verdict::Full);
        assert_eq!(window.advance(block(5, 7, 7)), Verdict::Known);
        window.settle(11);
        assert_eq!(window.advance(block(19, 0, 0)), Verdict::Extends);
    }
}
