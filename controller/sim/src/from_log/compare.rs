//! Two runs of one log, side by side.

use std::collections::BTreeMap;

use selion_api::{Account, Amount, LeaseId, NodeId, Reason, TimeMs};
use selion_market::Input;
use serde::Serialize;

use super::{Change, History, NOTES, NoSuch, Rerun, check};
use crate::world::{Checked, Story};

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fate {
    /// From being asked to the first grant, or as long as it waited in vain, in milliseconds.
    pub waited_ms: u64,
    /// When it first was active.
    pub started: Option<TimeMs>,
    /// When it was over, in the time of the run.
    pub ended: Option<TimeMs>,
    /// Why it ended, or why it was refused.
    pub reason: Option<Reason>,
    /// Nodes of its members in its last run, by rank.
    pub nodes: Vec<NodeId>,
    /// What it was billed, in token base units.
    pub cost: Amount,
}

impl Fate {
    /// The fate that a story tells, up to `now`.
    #[must_use]
    pub fn of(story: &Story, now: TimeMs) -> Self {
        Self {
            waited_ms: story.first_wait_ms(now),
            started: story.started,
            ended: story.ended.map(|(at, _)| at),
            reason: story.ended.map(|(_, reason)| reason),
            nodes: story.places.iter().map(|place| place.node).collect(),
            cost: story.billed,
        }
    }

    /// A request that was turned away.
    #[must_use]
    pub fn refused(reason: Reason) -> Self {
        Self { waited_ms: 0, started: None, ended: None, reason: Some(reason), nodes: Vec::new(), cost: Amount::ZERO }
    }
}

/// One request of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Entry of the request.
    pub entry: u64,
    /// Its lease in the log; `None` if it was refused.
    pub lease: Option<LeaseId>,
    /// Who asked.
    pub renter: Account,
    /// What the log says, up to its end.
    pub real: Fate,
    /// What the model makes of the log with nothing changed.
    pub before: Fate,
    /// What it makes of it with the change.
    pub after: Fate,
}

impl Line {
    /// Whether the change makes a difference to it.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.before != self.after
    }
}

/// Sums over all requests of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Requests that became active.
    pub started: u64,
    /// Requests that never did.
    pub never_started: u64,
    /// Mean wait of those that started, in milliseconds.
    pub mean_wait_ms: u64,
    /// All bills, in token base units.
    pub cost: Amount,
    /// Bills by node, in token base units: of the nodes of each lease, each its own members.
    pub income: BTreeMap<NodeId, Amount>,
}

/// What the change did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Entries of the log.
    pub entries: u64,
    /// Requests, in order.
    pub lines: Vec<Line>,
    /// With nothing changed.
    pub before: Totals,
    /// With the change.
    pub after: Totals,
    /// Requests that started in the log, and of these those that the unchanged model starts on the same nodes within
    /// a second: how far the model can be believed.
    pub started_in_log: u64,
    /// See above.
    pub reproduced: u64,
    /// What a second opinion said of both runs, if it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
    /// What to know before believing it.
    pub notes: [&'static str; NOTES.len()],
}

/// Runs the log twice with modelled agents, as it was and with the change; with `opinion` a second opinion is asked about
/// every entry of both.
///
/// # Errors
///
/// [`NoSuch`] if a change is about nothing in the log.
pub fn compare(history: &History, list: &[Change], opinion: bool) -> Result<Comparison, NoSuch> {
    check(history, list)?;
    let run = |list: &[Change]| {
        let mut rerun = Rerun::at(history, 0, list, opinion);
        rerun.to_the_end(0);
        rerun
    };
    let (before, after) = (run(&[]), run(list));
    let lines: Vec<Line> = history
        .entries()
        .iter()
        .filter_map(|entry| match &entry.input {
            Input::Request(asked) => line(history, &before, &after, entry.stamp.seq, asked.request.renter),
            _ => None,
        })
        .collect();
    let started = |line: &&Line| line.real.started.is_some();
    let close = |line: &&Line| {
        let gap = |a: TimeMs, b: TimeMs| a.since(b).max(b.since(a));
        let times = line.real.started.zip(line.before.started);
        times.is_some_and(|(a, b)| gap(a, b) <= 1_000) && line.real.nodes == line.before.nodes
    };
    let checked = |rerun: &Rerun<'_>| rerun.world().checked().cloned();
    Ok(Comparison {
        entries: history.entries().len() as u64,
        before: totals(&before, lines.iter().map(|line| &line.before)),
        after: totals(&after, lines.iter().map(|line| &line.after)),
        started_in_log: lines.iter().filter(started).count() as u64,
        reproduced: lines.iter().filter(started).filter(close).count() as u64,
        checked: checked(&before).zip(checked(&after)).map(|(before, after)| before.and(after)),
        lines,
        notes: NOTES,
    })
}

/// `None` for a repeat of an earlier request.
fn line(history: &History, before: &Rerun<'_>, after: &Rerun<'_>, seq: u64, renter: Account) -> Option<Line> {
    let lease = history.lease_of(seq);
    let fate = |rerun: &Rerun<'_>| match (rerun.asked(seq)?, rerun.story(seq)) {
        (_, Some(story)) => Some(Fate::of(story, rerun.world().now())),
        (Err(reason), None) => Some(Fate::refused(reason)),
        (Ok(_), None) => None,
    };
    let real = match lease.and_then(|id| history.stories().get(&id)) {
        Some(story) => Fate::of(story, history.ends()),
        None => Fate::refused(history.refusal_of(seq)?),
    };
    let (before, after) = (fate(before)?, fate(after)?);
    Some(Line { entry: seq, lease, renter, real, before, after })
}

fn totals<'a>(rerun: &Rerun<'_>, fates: impl Iterator<Item = &'a Fate>) -> Totals {
    let mut totals = Totals { income: rerun.world().income().clone(), ..Totals::default() };
    let mut waits = 0_u64;
    for fate in fates {
        if fate.started.is_some() {
            totals.started += 1;
            waits = waits.saturating_add(fate.waited_ms);
        } else {
            totals.never_started += 1;
        }
        totals.cost = totals.cost.saturating_add(fate.cost);
    }
    totals.mean_wait_ms = waits.checked_div(totals.started).unwrap_or_default();
    totals
}
