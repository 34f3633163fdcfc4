//! How a tree on disk is added, and what became of it.

use std::fmt;
use std::path::PathBuf;

use cid::Cid;

use crate::dag::Limits;

/// Most entries left out that are named one by one; beyond, they are only counted.
pub const MAX_NAMED: usize = 100;

/// What to do with an entry that cannot be kept: a pipe, a socket, a device, a name that is not UTF-8, what cannot be
/// read or changes while it is read, what passes a limit, a link that [`Links`] refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// It is left out, and named in [`Added::skipped`].
    Skip,
    /// Nothing is added; the error names all of them.
    Refuse,
}

/// Which symbolic links are kept. Nothing of ours follows one; whoever gets the tree may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Links {
    /// All, with whatever target they have: they are data of the one who adds.
    Any,
    /// Those that lead to a place inside the tree. An absolute target below one of these folders, which is what the
    /// tree was called where it was made, is made relative.
    Inside(Vec<PathBuf>),
}

/// How to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddRules {
    /// How much at most, in total: `bytes`, `entries` and `depth` count here.
    pub limits: Limits,
    /// What to do with what cannot be kept.
    pub faults: Faults,
    /// Which links are kept.
    pub links: Links,
    /// Whether permission bits are kept. Without them the CID is that of names, bytes and links alone, whatever the
    /// umask was.
    pub modes: bool,
}

impl AddRules {
    /// For data that somebody adds by hand: everything is kept as it is, or nothing is added.
    #[must_use]
    pub fn strict() -> Self {
        Self { limits: Limits::default(), faults: Faults::Refuse, links: Links::Any, modes: true }
    }

    /// For the results of somebody's program: what can be kept is kept. `seen_as` are the names that the folder had
    /// for the program.
    #[must_use]
    pub fn lenient(limits: Limits, seen_as: Vec<PathBuf>) -> Self {
        Self { limits, faults: Faults::Skip, links: Links::Inside(seen_as), modes: true }
    }

    /// For what must have one CID wherever it lies: permission bits are left out.
    #[must_use]
    pub fn names_and_bytes() -> Self {
        Self { modes: false, ..Self::strict() }
    }
}

/// What was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The root.
    pub cid: Cid,
    /// Bytes of the files in it.
    pub bytes: u64,
    /// Files in it.
    pub files: u64,
    /// Folders and symbolic links in it, the root counted if it is a folder.
    pub others: u64,
    /// What was left out, the first [`MAX_NAMED`] of them.
    pub skipped: Vec<Skipped>,
    /// How many were left out. A folder left out counts once, whatever is in it.
    pub skipped_total: u64,
}

/// An entry that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its path below the root, shortened if it is very long. Bytes that are no text are shown as such, control
    /// characters by their escapes.
    pub path: String,
    /// Why, in a few words: "it is a socket".
    pub why: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.why)
    }
}
