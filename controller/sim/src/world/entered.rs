//! The log that a world would leave.

use selion_api::TimeMs;
use selion_api::agent::Fence;
use selion_market::{Input, Stamp};

/// What a world keeps beside its State.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Every entry: the log that a controller with these agents would have written.
    pub log: bool,
    /// A second opinion on every entry, of a checker with books of its own.
    pub opinion: bool,
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Where and when.
    pub stamp: Stamp,
    /// What.
    pub input: Input,
    /// Leaves of the effects that were published with it.
    pub effects: Vec<Vec<u8>>,
}

impl Entered {
    /// The entry of number `seq`.
    #[must_use]
    pub fn new(seq: u64, at_ms: TimeMs, fence: Fence, input: Input, effects: Vec<Vec<u8>>) -> Self {
        Self { stamp: Stamp { seq, at_ms, fence }, input, effects }
    }
}
