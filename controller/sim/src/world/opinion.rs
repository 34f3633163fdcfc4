//! The second opinion on what was decided here: [`selion_checker`] at every entry.

use std::fmt;

use selion_checker::Checker;
use selion_market::{Effect, Input, Stamp};
use serde::Serialize;

/// Findings that are kept; of the others it is only known how many they are.
const KEPT: usize = 100;

/// What the second opinion said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Entries that it was asked about.
    pub entries: u64,
    /// How often it did not agree.
    pub faults: u64,
    /// With what, for the first hundred.
    pub findings: Vec<String>,
}

impl Checked {
    /// What was said of two runs.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.entries += other.entries;
        self.faults += other.faults;
        self.findings.extend(other.findings);
        self.findings.truncate(KEPT);
        self
    }
}

/// The checker's books, and what it said so far.
#[derive(Clone, Default)]
pub(super) struct Opinion {
    checker: Checker,
    pub checked: Checked,
}

impl Opinion {
    pub(super) fn hear(&mut self, stamp: &Stamp, input: &Input, effects: &[Effect]) {
        let found = self.checker.check(stamp, input, effects);
        self.checked.entries += 1;
        self.checked.faults += found.len() as u64;
        let room = KEPT - self.checked.findings.len();
        self.checked.findings.extend(found.iter().take(room).map(ToString::to_string));
    }
}

impl fmt::Debug for Opinion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.checked.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use selion_api::agent::Fence;
    use selion_api::{Hash32, LeaseId, TimeMs};
    use selion_market::input::RULES;

    use super::*;

    #[test]
    fn what_does_not_hold_is_counted_and_kept() {
        let mut opinion = Opinion::default();
        let stamp = |seq| Stamp { seq, at_ms: TimeMs(5), fence: Fence { epoch: 1, term: 1 } };
        opinion.hear(&stamp(0), &Input::Rules { version: RULES, digest: Hash32::ZERO }, &[]);
        assert_eq!((opinion.checked.entries, opinion.checked.faults), (1, 0));
        let forged = Effect::Freed { lease: LeaseId { seq: 0, index: 0 }, attempt: 1, member: 0 };
        for seq in 1..=110 {
            opinion.hear(&stamp(seq), &Input::Tick, std::slice::from_ref(&forged));
        }
        let Checked { entries, faults, findings } = &opinion.checked;
        assert_eq!((*entries, *faults, findings.len()), (111, 110, KEPT));
        assert!(findings.iter().all(|finding| finding.starts_with("freed: ")), "{findings:?}");
    }
}
