//! How far an audit is.

use std::sync::atomic::{AtomicU64, Ordering};

/// Entries that each part of an audit has done. Anyone may look at any time.
#[derive(Debug, Default)]
pub struct Progress {
    read: AtomicU64,
    replayed: AtomicU64,
    judged: AtomicU64,
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

    /// Entries read, replayed, and judged by the second checker.
    #[must_use]
    pub fn now(&self) -> [u64; 3] {
        [&self.read, &self.replayed, &self.judged].map(|count| count.load(Ordering::Relaxed))
    }
}
