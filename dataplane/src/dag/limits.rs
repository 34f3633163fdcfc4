//! How much of a DAG we are willing to follow.

/// Bounds on one file or folder, checked before its bytes are written anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together, counted by path (a block used twice counts twice).
    pub bytes: u64,
    /// Files and folders together, counted by path.
    pub entries: u64,
    /// Pieces (interior nodes and leaves) of all files together, counted by path: a terabyte in chunks of a byte
    /// is a way to exhaust memory.
    pub pieces: u64,
    /// Nodes on the longest way from the root to a leaf: folders and the levels inside a file.
    pub depth: usize,
}

impl Default for Limits {
    /// 1 TiB, a million entries, eight million pieces, 64 levels.
    fn default() -> Self {
        Self { bytes: 1 << 40, entries: 1_000_000, pieces: 8_000_000, depth: 64 }
    }
}
