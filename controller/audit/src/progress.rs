//! How far an audit is.

use std::sync::atomic::{AtomicU64, Ordering};

/// Entries that each part of an audit has done. Anyone may look at any time.
#[derive(Debug, Default)]
pub struct Progress {
    read: AtomicU64,
    replayed: AtomicU64,
    judged: AtomicU64,
    blocks: AtomicU64,
    of_blocks: AtomicU64,
}

impl Progress {
    pub(crate) fn read(&self, more: usize) {
        self.read.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(crate) fn replayed(&self, more: usize) {
        self.replayed.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(crate) fn judged(&self, more: usize) {
        self.judged.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// Blocks of the chain that are read, of so many: as far as the node is that has come furthest.
    pub(crate) fn chain(&self, read: u64, of: u64) {
        self.blocks.fetch_max(read, Ordering::Relaxed);
        self.of_blocks.fetch_max(of, Ordering::Relaxed);
    }

    /// Blocks of the chain whose logs were read, and how many there are to read.
    #[must_use]
    pub fn blocks(&self) -> [u64; 2] {
        [&self.blocks, &self.of_blocks].map(|count| count.load(Ordering::Relaxed))
    }

    /// Entries read, replayed, and judged by the second checker.
    #[must_use]
    pub fn now(&self) -> [u64; 3] {
        [&self.read, &self.replayed, &self.judged].map(|count| count.load(Ordering::Relaxed))
    }
}
