//! A published log that a test may alter before the checker reads it.

use selion_api::agent::Fence;
use selion_api::{LeaseId, TimeMs};
use selion_checker::{Checker, Finding, Rule};
use selion_market::{Effect, Grant, Input, Stamp};

use crate::pool::Pool;

/// One entry as it is published.
#[derive(Clone)]
pub struct Leaf {
    pub stamp: Stamp,
    pub input: Input,
    pub effects: Vec<Effect>,
}

/// The log of a pool.
#[derive(Clone)]
pub struct Tape(pub Vec<Leaf>);

impl Tape {
    pub fn of(pool: &Pool) -> Self {
        let leaves = pool.log.iter().zip(&pool.outcomes);
        Self(
            leaves
                .map(|((stamp, input), outcome)| Leaf {
                    stamp: *stamp,
                    input: input.clone(),
                    effects: outcome.effects.clone(),
                })
                .collect(),
        )
    }

    /// All that the checker finds.
    pub fn findings(&self) -> Vec<Finding> {
        let mut checker = Checker::new();
        self.0.iter().flat_map(|leaf| checker.check(&leaf.stamp, &leaf.input, &leaf.effects)).collect()
    }

    /// The rule is the one that the first wrong entry breaks, and that entry is `entry`.
    #[track_caller]
    pub fn caught(&self, rule: Rule, entry: usize) {
        let findings = self.findings();
        let first = findings.first().map(|finding| finding.entry);
        assert_eq!(first, Some(entry as u64), "seen where it is: {findings:?}");
        let seen = findings.iter().any(|finding| finding.entry == entry as u64 && finding.rule == rule);
        assert!(seen, "{} is not among {findings:?}", rule.code());
    }

    /// Entry and place of the first effect that `which` is true for.
    #[track_caller]
    pub fn find(&self, which: impl Fn(&Effect) -> bool) -> (usize, usize) {
        let found =
            self.0.iter().enumerate().find_map(|(entry, leaf)| Some((entry, leaf.effects.iter().position(&which)?)));
        found.expect("there is such an effect")
    }

    /// The grant of a member of a lease, with its entry.
    #[track_caller]
    pub fn grant(&mut self, lease: LeaseId, member: u16) -> (usize, &mut Grant) {
        let which = |effect: &Effect| matches!(effect, Effect::Granted(grant) if grant.lease == lease && grant.member == member);
        let (entry, at) = self.find(which);
        match &mut self.0[entry].effects[at] {
            Effect::Granted(grant) => (entry, grant),
            _ => unreachable!("it was just found"),
        }
    }

    /// One more entry at the end.
    pub fn push(&mut self, input: Input, effects: Vec<Effect>) -> usize {
        let last = self.0.last().map_or(TimeMs(0), |leaf| leaf.stamp.at_ms);
        let stamp = Stamp { seq: self.0.len() as u64, at_ms: last, fence: Fence { epoch: 1, term: 1 } };
        self.0.push(Leaf { stamp, input, effects });
        self.0.len() - 1
    }
}

/// True for the effect that moves the lease to that state.
pub fn moves(lease: LeaseId, to: selion_api::lease::LeaseState) -> impl Fn(&Effect) -> bool {
    move |effect| matches!(effect, Effect::Moved { lease: id, state, .. } if *id == lease && *state == to)
}
