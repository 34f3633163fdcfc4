//! What became of each lease, written down from effects as they come.

use std::collections::BTreeMap;

use selion_api::lease::LeaseState;
use selion_api::{Account, Amount, GpuId, LeaseId, NodeId, Rate, Reason, Slot, TimeMs};
use selion_market::{Effect, Outcome};

use super::World;

/// Where a member was placed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    /// Node.
    pub node: NodeId,
    /// GPUs, in the order of the node's spec.
    pub gpus: Vec<GpuId>,
    /// Place on each of them.
    pub slot: Slot,
    /// The ask that was accepted, of all of them together.
    pub rate: Rate,
}

/// What became of one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Who asked.
    pub renter: Account,
    /// When.
    pub asked: TimeMs,
    /// First grant.
    pub granted: Option<TimeMs>,
    /// First time that it was active.
    pub started: Option<TimeMs>,
    /// End and why.
    pub ended: Option<(TimeMs, Reason)>,
    /// Time waited over all its waits, in milliseconds, up to its last grant or its end.
    pub waited_ms: u64,
    /// Runs that were granted.
    pub runs: u32,
    /// Times that it went back to waiting, with the last reason.
    pub requeued: u32,
    /// Why it last went back.
    pub requeued_for: Option<Reason>,
    /// Members of the last run, by rank.
    pub places: Vec<Place>,
    /// What it was billed over all runs.
    pub billed: Amount,
    /// In its last run: from the grant until it was active, in milliseconds.
    pub prepare_ms: Option<u64>,
    /// In its last run: the longest time that a member is billed for, in milliseconds.
    pub run_ms: Option<u64>,
    /// In its last run: from the order to stop until its end, in milliseconds.
    pub stop_ms: Option<u64>,
    /// When it went into the state before this one, while that one is measured.
    since: TimeMs,
    waiting_since: Option<TimeMs>,
}

impl Story {
    /// From being asked to the first grant or, where there was none, to `now` or its end.
    #[must_use]
    pub fn first_wait_ms(&self, now: TimeMs) -> u64 {
        self.granted.or(self.ended.map(|(at, _)| at)).unwrap_or(now).since(self.asked)
    }
}

/// A change of what a renter holds or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// When.
    pub at: TimeMs,
    /// Whose.
    pub renter: Account,
    /// Members more (or fewer) that hold something.
    pub members: i64,
    /// Leases more (or fewer) that wait.
    pub waiting: i64,
}

/// Counts over the whole pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    members: u64,
    since: TimeMs,
    sum: u128,
    /// Every change, in order.
    pub flow: Vec<Flow>,
    /// Bills by node.
    pub income: BTreeMap<NodeId, Amount>,
}

impl Watch {
    fn hold(&mut self, now: TimeMs, renter: Account, by: i64) {
        self.sum += u128::from(self.members) * u128::from(now.since(self.since));
        self.since = now;
        self.members = self.members.saturating_add_signed(by);
        self.flow.push(Flow { at: now, renter, members: by, waiting: 0 });
    }

    fn wait(&mut self, now: TimeMs, renter: Account, by: i64) {
        self.flow.push(Flow { at: now, renter, members: 0, waiting: by });
    }

    pub(super) fn held_ms(&self) -> u128 {
        self.sum
    }
}

impl World {
    pub(super) fn note(&mut self, outcome: &Outcome) {
        for effect in &outcome.effects {
            match effect {
                Effect::Moved { lease, state, reason, .. } => self.note_move(*lease, *state, *reason),
                Effect::Granted(grant) => {
                    let Some(story) = self.stories.get_mut(&grant.lease) else { continue };
                    if let Some(place) = story.places.get_mut(usize::from(grant.member)) {
                        place.gpus.push(grant.gpu);
                        place.rate = place.rate.saturating_add(grant.rate);
                        continue;
                    }
                    let (node, slot, rate) = (grant.node, grant.slot.clone(), grant.rate);
                    story.places.push(Place { node, gpus: vec![grant.gpu], slot, rate });
                    self.watch.hold(self.now, grant.renter, 1);
                }
                Effect::Freed { lease, .. } => {
                    let renter = self.stories.get(lease).map(|story| story.renter).unwrap_or_default();
                    self.watch.hold(self.now, renter, -1);
                }
                Effect::Billed(line) => {
                    if let Some(story) = self.stories.get_mut(&line.lease) {
                        story.billed = story.billed.saturating_add(line.amount);
                        story.run_ms = story.run_ms.max(Some(line.billable_ms));
                        if let Some(place) = story.places.get(usize::from(line.member)) {
                            let income = self.watch.income.entry(place.node).or_default();
                            *income = income.saturating_add(line.amount);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn note_move(&mut self, id: LeaseId, state: LeaseState, reason: Option<Reason>) {
        let now = self.now;
        self.moved.push_back(id);
        if let Some(run) = self.runs.get_mut(&id) {
            run.note(state, now);
        }
        if !self.stories.contains_key(&id) {
            let Some(lease) = self.state.leases.get(&id) else {
                return;
            };
            let story = Story {
                renter: lease.request.renter,
                asked: lease.created,
                granted: None,
                started: None,
                ended: None,
                waited_ms: 0,
                runs: 0,
                requeued: 0,
                requeued_for: None,
                places: Vec::new(),
                billed: Amount::ZERO,
                prepare_ms: None,
                run_ms: None,
                stop_ms: None,
                since: now,
                waiting_since: Some(lease.created),
            };
            self.watch.wait(now, story.renter, 1);
            self.stories.insert(id, story);
        }
        let Some(story) = self.stories.get_mut(&id) else {
            return;
        };
        match state {
            LeaseState::Waiting if story.runs > 0 => {
                story.requeued += 1;
                story.requeued_for = reason;
                story.waiting_since = Some(now);
                self.watch.wait(now, story.renter, 1);
            }
            LeaseState::Held => {
                story.granted = story.granted.or(Some(now));
                story.runs += 1;
                story.since = now;
                story.places.clear();
                (story.prepare_ms, story.run_ms, story.stop_ms) = (None, None, None);
            }
            LeaseState::Active => {
                story.started = story.started.or(Some(now));
                story.prepare_ms = Some(now.since(story.since));
            }
            LeaseState::Ending => story.since = now,
            LeaseState::Ended => {
                story.ended = reason.map(|reason| (now, reason));
                story.stop_ms = (story.runs > 0).then(|| now.since(story.since));
            }
            _ => {}
        }
        if matches!(state, LeaseState::Held | LeaseState::Ended)
            && let Some(since) = story.waiting_since.take()
        {
            story.waited_ms = story.waited_ms.saturating_add(now.since(since));
            self.watch.wait(now, story.renter, -1);
        }
    }
}
