//! How much of a DAG we are willing to follow.

/// Most levels of folders that are added: the files in the deepest stay within [`Limits::default`], since four levels of a
/// file hold a tebibyte.
pub const FOLDER_LEVELS: usize = 58;

/// Bounds on one file or folder, checked before its bytes are written anywhere.
///
/// By path means: as often as it appears when everything is laid out, which a small DAG can make very often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together, counted by path (a block used twice counts twice).
    pub bytes: u64,
    /// Bytes of the different blocks together, each once: what it takes in a store.
    pub stored: u64,
    /// Files, folders and links together, counted by path.
    pub entries: u64,
    /// Pieces (interior nodes and leaves) of all files together, counted by path: a terabyte in chunks of a byte
    /// is a way to exhaust memory.
    pub pieces: u64,
    /// Nodes on the longest way from the root to a leaf: folders and the levels inside a file.
    pub depth: usize,
}

impl Limits {
    /// The defaults, with at most `bytes` of files: what a disk of that size may be asked to hold.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Self {
        Self { bytes, stored: stored_for(bytes), ..Self::default() }
    }
}

impl Default for Limits {
    /// 1 TiB, a million entries, eight million pieces, 64 levels.
    fn default() -> Self {
        let bytes = 1 << 40;
        Self { bytes, stored: stored_for(bytes), entries: 1_000_000, pieces: 8_000_000, depth: 64 }
    }
}

/// Blocks are the files' bytes and the nodes over them: an eighth more and 64 MiB for names is plenty.
fn stored_for(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8).saturating_add(64 << 20)
}
