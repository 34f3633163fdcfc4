//! What a member left in its output folder: as the agent tells it, and as the renter reads it.

use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::id::LeaseId;

/// Entries that were not kept and are named one by one; the others are only counted. As many lines of them reach the
/// member's log: a folder of a million sockets must fill neither.
pub const MAX_NAMED: usize = 20;
/// Longest text of a CID, a path or a reason, in bytes.
pub const MAX_TEXT: usize = 256;

/// How far a member's outputs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum OutputState {
    /// The node has them and sends them to the pool.
    Uploading = 0,
    /// The pool has all of them.
    Kept = 1,
    /// The pool has all that can be kept; the rest was skipped, and the first of it is named.
    Partial = 2,
    /// The pool has none of them; the reason says why.
    Lost = 3,
}

impl OutputState {
    /// Its word, as in JSON.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Uploading => "uploading",
            Self::Kept => "kept",
            Self::Partial => "partial",
            Self::Lost => "lost",
        }
    }

    /// Nothing follows it.
    #[must_use]
    pub fn is_final(self) -> bool {
        self != Self::Uploading
    }

    /// The pool has content that can be read.
    #[must_use]
    pub fn is_readable(self) -> bool {
        matches!(self, Self::Kept | Self::Partial)
    }
}

/// An entry of the output folder that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct SkippedEntry {
    /// Path below the output folder, as far as it can be printed.
    pub path: String,
    /// Why it was skipped.
    pub why: String,
}

/// What became of the output folder of one member's run. Told beside the log; a report may hold a commitment to the CID.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct Outputs {
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// How far they are.
    pub state: OutputState,
    /// CID of what can be kept, once the node knows it.
    pub cid: Option<String>,
    /// Bytes of the files kept.
    pub bytes: u64,
    /// Files kept.
    pub files: u64,
    /// How many entries were skipped.
    pub skipped: u64,
    /// The first of them, at most [`MAX_NAMED`].
    pub named: Vec<SkippedEntry>,
    /// Why all of it is lost.
    pub why: Option<String>,
}

impl Outputs {
    /// Whether an agent may say this: bounded, printable and free of contradictions.
    ///
    /// # Errors
    ///
    /// What is wrong, in a few words.
    pub fn check(&self) -> Result<(), &'static str> {
        let named = self.named.iter().flat_map(|entry| [&entry.path, &entry.why]);
        let mut texts = named.chain(&self.cid).chain(&self.why);
        if self.named.len() > MAX_NAMED || self.named.len() as u64 > self.skipped {
            return Err("it names too many entries");
        }
        if !texts.all(|text| text.len() <= MAX_TEXT && text.chars().all(is_printable)) {
            return Err("a text is too long or cannot be printed");
        }
        match self.state {
            OutputState::Kept if self.skipped > 0 => Err("entries were skipped, and all of it is kept"),
            OutputState::Partial if self.skipped == 0 => Err("nothing was skipped, and not all of it is kept"),
            OutputState::Kept | OutputState::Partial if self.cid.is_none() => Err("it is kept without a CID"),
            OutputState::Lost if self.why.is_none() => Err("it is lost without a reason"),
            _ => Ok(()),
        }
    }
}

/// `text` as it may stand in a message or on a terminal: what cannot be printed is replaced, and the end is cut off at
/// [`MAX_TEXT`] bytes.
#[must_use]
pub fn printable(text: &str) -> String {
    const CUT: char = '…';
    let mut clean = String::new();
    for letter in text.chars().map(|letter| if is_printable(letter) { letter } else { char::REPLACEMENT_CHARACTER }) {
        if clean.len() + letter.len_utf8() + CUT.len_utf8() > MAX_TEXT {
            clean.push(CUT);
            break;
        }
        clean.push(letter);
    }
    clean
}

/// Neither a control character nor one that changes the direction of what follows it.
pub(crate) fn is_printable(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn kept() -> Outputs {
        Outputs {
            lease: LeaseId { seq: 1, index: 0 },
            attempt: 1,
            member: 0,
            state: OutputState::Kept,
            cid: Some("bafy".into()),
            bytes: 1,
            files: 1,
            skipped: 0,
            named: Vec::new(),
            why: None,
        }
    }

    fn entry(path: &str) -> SkippedEntry {
        SkippedEntry { path: path.into(), why: "a pipe".into() }
    }

    #[test]
    fn what_an_agent_says_of_outputs_is_bounded_printable_and_free_of_contradictions() {
        use OutputState::{Kept, Lost, Partial, Uploading};
        let partial = Outputs { state: Partial, skipped: 3, named: vec![entry("a")], ..kept() };
        for good in [
            kept(),
            partial.clone(),
            Outputs { state: Lost, cid: None, why: Some("the disk is full".into()), ..kept() },
            Outputs { state: Uploading, cid: None, ..kept() },
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for bad in [
            Outputs { cid: None, ..kept() },
            Outputs { skipped: 1, ..kept() },
            Outputs { state: Partial, ..kept() },
            Outputs { state: Lost, why: None, ..kept() },
            Outputs { state: Kept, cid: Some("x".repeat(MAX_TEXT + 1)), ..kept() },
            Outputs { named: vec![entry("a"); MAX_NAMED + 1], skipped: 100, ..partial.clone() },
            Outputs { named: vec![entry("a"); 4], ..partial.clone() },
            Outputs { named: vec![entry("\u{1b}[2J")], ..partial },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_of_any_bytes_becomes_a_text_that_may_be_sent_and_shown() {
        for name in ["plain", "\u{1b}]0;title\u{7}", "a\nb", "\u{202e}gpj.exe", &"ä".repeat(500), ""] {
            let clean = printable(name);
            assert!(clean.len() <= MAX_TEXT && clean.chars().all(is_printable), "{name:?}");
        }
        assert_eq!(printable("model/last.ckpt"), "model/last.ckpt");
    }
}
