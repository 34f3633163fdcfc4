//! Which source is asked next, and which are asked no more.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use super::BadBlock;
use crate::source::SourceError;

/// Whose turn it is, and who is out.
pub(super) struct Turns {
    sources: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: usize,
    out: HashSet<usize>,
    banned: Vec<BadBlock>,
}

impl Turns {
    pub fn new(sources: usize) -> Self {
        Self { sources, state: Mutex::default() }
    }

    /// Every source once, each call beginning with the next one.
    pub fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (sources, mut state) = (self.sources, self.state());
        let first = state.next;
        state.next = (first + 1) % sources.max(1);
        (0..sources).map(move |step| (first + step) % sources)
    }

    pub fn is_out(&self, source: usize) -> bool {
        self.state().out.contains(&source)
    }

    pub fn ban(&self, source: usize, evidence: BadBlock) {
        let mut state = self.state();
        // Answers that were on their way together may all be bad; one is evidence enough.
        if state.out.insert(source) {
            tracing::warn!(cid = %evidence.cid, found = %evidence.found, source = %evidence.source,
                "a source sent a wrong block and is asked nothing more");
            state.banned.push(evidence);
        }
    }

    pub fn banned(&self) -> Vec<BadBlock> {
        self.state().banned.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// The tail of [`super::FetchError::NoSource`].
pub(super) struct Tried<'a>(pub &'a [(String, SourceError)], pub &'a [BadBlock]);

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() && self.1.is_empty() {
            return f.write_str(": no source was given");
        }
        for (name, error) in self.0 {
            write!(f, "; {name}: {error}")?;
        }
        for bad in self.1 {
            write!(f, "; {} was caught: for {} it sent {}", bad.source, bad.cid, bad.found)?;
        }
        Ok(())
    }
}
