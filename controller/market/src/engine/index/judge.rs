//! What the index asks of the one that scores, and how it is told.

/// Where a node stands in a class: its group, and its key there, the higher the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// What it shares its offset with.
    pub group: u16,
    /// Its score before the offset.
    pub key: i32,
    /// What the judge wants to know again when it charges this way ([`super::Index::best_charged`]). Orders nothing.
    pub note: u16,
}

/// The ways in which a node can take a request: two at most, of different groups. None: it does not fit.
pub type Ways = [Option<Entry>; 2];

/// Scores nodes. Equal answers for equal states of a node, until [`super::Index::forget`].
pub trait Judge {
    /// In which ways the node of that rank can take a request of that class.
    fn ways(&mut self, class: u32, rank: u32) -> Ways;

    /// What is subtracted from the keys of a group for a request of that class. May differ from call to call.
    fn offset(&self, class: u32, group: u16) -> i32;

    /// A quick look at the node of that rank, to be asked for each class: false only where it has no [`Self::ways`].
    fn may(&self, rank: u32) -> impl Fn(u32) -> bool {
        let _ = rank;
        |_| true
    }

    /// A small number that nodes have in common only if they have the same ways in every class.
    fn alike(&self, rank: u32) -> Option<u16> {
        let _ = rank;
        None
    }
}

/// The best node of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// Its rank: the lowest among equal scores.
    pub rank: u32,
    /// Its key less its group's offset.
    pub score: i32,
}

/// The limits of a key; what is beyond counts as the limit.
pub const KEYS: core::ops::RangeInclusive<i32> = -(1 << 19)..=(1 << 19) - 1;

/// Groups are at most this.
pub const MAX_GROUP: u16 = (1 << (32 - super::class::KEY_BITS)) - 2;
