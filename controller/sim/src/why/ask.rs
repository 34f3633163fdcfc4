//! Questions about one lease.

use selion_api::lease::LeaseState;
use selion_api::{Amount, LeaseId, TimeMs};
use selion_market::Lease;

use super::answer::{Answer, Phase, WhatIf, candidates};
use crate::from_log::{Asked, Change, Fate, History, NOTES, NoSuch, Rerun, check};
use crate::world::{Story, World};

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyError {
    /// The log does not know such a lease.
    #[error("the log knows no lease {lease}; it has {leases} leases in {entries} entries")]
    NoSuchLease {
        /// The id asked for.
        lease: LeaseId,
        /// Leases in the log.
        leases: usize,
        /// Entries in the log.
        entries: usize,
    },
    /// The lease did not exist at that time.
    #[error("{lease} was asked for at {asked_ms} ms, after the time in question, {at_ms} ms (UTC since 1970)")]
    BeforeIt {
        /// The lease.
        lease: LeaseId,
        /// When it came to be.
        asked_ms: u64,
        /// The time in question.
        at_ms: u64,
    },
    /// The log does not reach there.
    #[error("the log goes from {from_ms} to {until_ms} ms (UTC since 1970); the time in question is {at_ms} ms")]
    OutsideLog {
        /// First entry.
        from_ms: u64,
        /// Last entry.
        until_ms: u64,
        /// The time in question.
        at_ms: u64,
    },
    /// The market had forgotten the lease by then.
    #[error("{lease} ended a day or more before the time in question, {at_ms} ms, and the market keeps it no longer")]
    Forgotten {
        /// The lease.
        lease: LeaseId,
        /// The time in question.
        at_ms: u64,
    },
    /// A percentage of something that the request does not name.
    #[error("{lease} was asked for without a highest rate, so there is nothing to take a part of")]
    NoMaxRate {
        /// The lease.
        lease: LeaseId,
    },
    /// Something that the log does not have.
    #[error(transparent)]
    NoSuch(NoSuch),
}

/// What could have been otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum If {
    /// The lease's own request.
    Asked(Asked),
    /// The pool: its policy, or asks of providers.
    Pool(Change),
}

/// How the lease stood at `at`; without one, at the end of its last wait, or at its request if it never waited.
///
/// # Errors
///
/// [`WhyError`] if there is no such lease, or it was not there at that time.
pub fn why(history: &History, lease: LeaseId, at: Option<TimeMs>) -> Result<Answer, WhyError> {
    let story = story(history, lease)?;
    if let Some(at) = at {
        check_time(history, lease, story, at)?;
    }
    let phases = phases(history, lease);
    let entry = match at {
        Some(at) => history.entries().iter().rev().find(|entry| entry.stamp.at_ms <= at).map(|entry| entry.stamp.seq),
        None => Some(last_wait(history, lease, &phases)),
    };
    let entry = entry.unwrap_or(lease.seq);
    let world = history.world_before(entry.saturating_add(1), false);
    let state = world.state();
    let at = at.unwrap_or(world.now());
    let now = state.leases.get(&lease).ok_or(WhyError::Forgotten { lease, at_ms: at.0 })?;
    Ok(Answer {
        lease,
        renter: story.renter,
        asked: story.asked,
        entry,
        at,
        state: now.state,
        reason: now.reason,
        position: now.position,
        waiting: state.waiting.len() as u64,
        nearest: now.nearest.clone(),
        estimate: state.estimate(lease),
        candidates: if now.state == LeaseState::Waiting { candidates(state, lease) } else { Vec::new() },
        phases,
        fate: Fate::of(story, history.ends()),
    })
}

/// What would have become of the lease had its request said something else, or the pool been otherwise, up to the end
/// of the log. Everything else is entered again as it was, with modelled agents: from the request on, or, where the pool
/// is otherwise, from the first entry on.
///
/// # Errors
///
/// [`WhyError`] if there is no such lease, or `ifs` is about something that the log or the request does not name.
pub fn what_if(history: &History, lease: LeaseId, ifs: &[If]) -> Result<WhatIf, WhyError> {
    let real = Fate::of(story(history, lease)?, history.ends());
    let seq = lease.seq;
    let changes: Vec<Change> = ifs.iter().map(|one| change(seq, one)).collect();
    check(history, &changes).map_err(|error| match error {
        NoSuch::NoMaxRate { .. } => WhyError::NoMaxRate { lease },
        other => WhyError::NoSuch(other),
    })?;
    let from = if changes.iter().any(Change::is_of_pool) { 0 } else { seq };
    let run = |changes: &[Change]| {
        let mut rerun = Rerun::at(history, from, changes, false);
        rerun.until_started(from, seq);
        let now = rerun.world().now();
        let fate = match (rerun.story(seq), rerun.asked(seq)) {
            (Some(story), _) => Fate::of(story, now),
            (None, Some(Err(reason))) => Fate::refused(reason),
            (None, _) => real.clone(),
        };
        let rate = rerun.story(seq).filter(|story| story.started.is_some()).map(rate_of);
        (fate, rate)
    };
    let (before, _) = run(&[]);
    let (after, rate_after) = run(&changes);
    Ok(WhatIf { real, before, after, from, until: history.ends(), rate_after, notes: NOTES })
}

fn rate_of(story: &Story) -> Amount {
    story.places.iter().fold(Amount::ZERO, |sum, place| sum.saturating_add(Amount(place.rate.0)))
}

fn story(history: &History, lease: LeaseId) -> Result<&Story, WhyError> {
    let (leases, entries) = (history.stories().len(), history.entries().len());
    history.stories().get(&lease).ok_or(WhyError::NoSuchLease { lease, leases, entries })
}

fn check_time(history: &History, lease: LeaseId, story: &Story, at: TimeMs) -> Result<(), WhyError> {
    let (from, until) = (history.begins(), history.ends());
    if at < from || at > until {
        return Err(WhyError::OutsideLog { from_ms: from.0, until_ms: until.0, at_ms: at.0 });
    }
    if at < story.asked {
        return Err(WhyError::BeforeIt { lease, asked_ms: story.asked.0, at_ms: at.0 });
    }
    Ok(())
}

/// Every change of the lease's standing.
fn phases(history: &History, lease: LeaseId) -> Vec<Phase> {
    let mut world = World::blank(false);
    let mut phases: Vec<Phase> = Vec::new();
    for entry in history.entries() {
        world.replay(&entry.stamp, &entry.input);
        let Some(now) = world.state().leases.get(&lease) else {
            continue;
        };
        let phase = phase(entry.stamp.seq, world.now(), now);
        let same =
            |last: &Phase| (last.state, last.reason, last.position) == (phase.state, phase.reason, phase.position);
        if !phases.last().is_some_and(same) {
            phases.push(phase);
        }
    }
    phases
}

fn phase(entry: u64, from: TimeMs, lease: &Lease) -> Phase {
    Phase { entry, from, state: lease.state, reason: lease.reason, position: lease.position }
}

/// The last entry at which the lease still waited, or the one that made it.
fn last_wait(history: &History, lease: LeaseId, phases: &[Phase]) -> u64 {
    let last = phases.iter().rposition(|phase| phase.state == LeaseState::Waiting);
    let Some(last) = last else {
        return lease.seq;
    };
    // The phase lasts until the entry before the next one.
    phases.get(last + 1).map_or_else(
        || history.entries().last().map_or(lease.seq, |entry| entry.stamp.seq),
        |next| next.entry.saturating_sub(1),
    )
}

fn change(seq: u64, one: &If) -> Change {
    match one {
        If::Asked(asked) => Change::Request(seq, asked.clone()),
        If::Pool(change) => change.clone(),
    }
}
