//! The log's inputs once more, with modelled agents.

use std::collections::BTreeMap;

use selion_api::lease::LeaseState;
use selion_api::{LeaseId, Reason, TimeMs};
use selion_market::lease::is_running;
use selion_market::{Input, RequestLease};

use super::changes::Changes;
use super::{Change, History};
use crate::world::{Entered, Story, Work, World};

/// A run of a log that may have come out otherwise.
#[derive(Clone, Debug)]
pub struct Rerun<'a> {
    history: &'a History,
    changes: Changes,
    world: World,
    /// How each request was answered, by the number of its entry in the log.
    asked: BTreeMap<u64, Result<LeaseId, Reason>>,
    /// Leases of this run by their id in the log.
    ids: BTreeMap<LeaseId, LeaseId>,
}

impl<'a> Rerun<'a> {
    /// Stands before the entry of number `seq`, at a world that is as it was up to there; with `opinion` a second
    /// opinion is asked about every entry.
    #[must_use]
    pub fn at(history: &'a History, seq: u64, list: &[Change], opinion: bool) -> Self {
        let changes = Changes::new(list, history.entries().iter().map(|entry| &entry.input));
        let mut world = history.world_before(seq, opinion);
        let mut ids = BTreeMap::new();
        let leases: Vec<(LeaseId, LeaseState)> =
            world.state().leases.iter().map(|(id, lease)| (*id, lease.state)).collect();
        for (id, state) in leases {
            ids.insert(id, id);
            let live = is_running(state) || matches!(state, LeaseState::Waiting | LeaseState::Ending);
            if let Some(work) = history.work_of(id).filter(|_| live) {
                world.adopt(id, work);
            }
        }
        Self { history, changes, world, asked: BTreeMap::new(), ids }
    }

    /// Runs all entries of the log from where it stands, and until every lease is over.
    pub fn to_the_end(&mut self, from: u64) {
        for entry in self.history.entries().iter().filter(|entry| entry.stamp.seq >= from) {
            self.enter(entry);
        }
        self.world.run_out(TimeMs(u64::MAX));
    }

    /// Runs entries from where it stands until the lease that the entry `seq` asks for is active, or over, or the log
    /// ends.
    pub fn until_started(&mut self, from: u64, seq: u64) {
        for entry in self.history.entries().iter().filter(|entry| entry.stamp.seq >= from) {
            self.enter(entry);
            let story = self.story(seq);
            let settled = story.is_some_and(|story| story.started.is_some() || story.ended.is_some());
            if settled || matches!(self.asked.get(&seq), Some(Err(_))) {
                return;
            }
        }
    }

    /// The world where it stands.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What became of the request of that entry: its lease, or why it was refused. `None` if it did not come to it.
    #[must_use]
    pub fn asked(&self, seq: u64) -> Option<Result<LeaseId, Reason>> {
        self.asked.get(&seq).copied()
    }

    /// The story of the lease that the entry of this number asked for.
    #[must_use]
    pub fn story(&self, seq: u64) -> Option<&Story> {
        let id = self.asked.get(&seq)?.as_ref().ok()?;
        self.world.stories().get(id)
    }

    fn enter(&mut self, entry: &Entered) {
        let seq = entry.stamp.seq;
        // Time does not go back, also where this run is ahead of the log.
        self.world.run_until(entry.stamp.at_ms);
        self.world.under(entry.stamp.fence);
        match self.changes.apply(seq, &entry.input) {
            // The world ticks by itself, and its agents speak for themselves.
            Input::Tick | Input::Continue | Input::Report(_) => {}
            Input::Request(asked) => self.request(seq, asked),
            Input::Release { renter, lease, .. } => {
                let Some(id) = self.ids.get(&lease).copied() else {
                    return;
                };
                let began = self.history.stories().get(&lease).is_some_and(|story| story.started.is_some());
                let begun = self.world.stories().get(&id).is_some_and(|story| story.started.is_some());
                // A release after the start is part of the lease's work.
                if !began && !begun {
                    self.world.submit(Input::Release { renter, lease: id, said: None });
                }
            }
            Input::Extend { renter, lease, for_ms, key, .. } => {
                if let Some(lease) = self.ids.get(&lease).copied() {
                    self.world.submit(Input::Extend { renter, lease, for_ms, key, said: None });
                }
            }
            other => {
                self.world.submit(other);
            }
        }
    }

    fn request(&mut self, seq: u64, asked: RequestLease) {
        let was = self.history.lease_of(seq);
        let usual = Work { prepare_ms: self.history.usual_prepare_ms(), ..Work::plain(Work::ALL) };
        let work = was.and_then(|id| self.history.work_of(id)).unwrap_or(usual);
        let here = self.world.state().next_seq;
        let answer = self.world.request(asked.request, work).map_err(|refusal| refusal.reason);
        if answer.is_ok_and(|id| id.seq != here) {
            return; // a repeat of an earlier request
        }
        if let (Some(was), Ok(id)) = (was, answer) {
            self.ids.insert(was, id);
        }
        self.asked.insert(seq, answer);
    }
}
