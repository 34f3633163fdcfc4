//! A log as it was: every lease's story, and the work that it stood for.

use std::collections::BTreeMap;

use selion_api::{LeaseId, Reason, TimeMs};
use selion_market::{Answer, Effect, Input};

use crate::world::{Ends, Entered, Story, Work, World};

/// Why a log cannot be run again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// There is nothing in it.
    #[error("the log has no entries")]
    Empty,
    /// These rules decide something else than what was published.
    #[error(
        "at entry {seq} this release's rules decide something else than the log says, so it cannot answer for it; \
         `selion audit` tells what differs"
    )]
    Differs {
        /// The first such entry.
        seq: u64,
    },
}

/// A log, replayed.
#[derive(Clone, Debug)]
pub struct History {
    entries: Vec<Entered>,
    /// As it stands at the end of the log.
    world: World,
    works: BTreeMap<LeaseId, Work>,
    /// Requests that were turned away, by the number of their entry.
    refused: BTreeMap<u64, Reason>,
}

impl History {
    /// Replays a log from its first entry on.
    ///
    /// # Errors
    ///
    /// [`LogError`] if it is empty, or not what these rules decide.
    pub fn read(entries: Vec<Entered>) -> Result<Self, LogError> {
        let mut world = World::blank(false);
        let mut refused = BTreeMap::new();
        for entry in &entries {
            let outcome = world.replay(&entry.stamp, &entry.input);
            if !outcome.effects.iter().map(Effect::leaf).eq(entry.effects.iter().cloned()) {
                return Err(LogError::Differs { seq: entry.stamp.seq });
            }
            if let (Input::Request(_), Answer::Refused(refusal)) = (&entry.input, outcome.answer) {
                refused.insert(entry.stamp.seq, refusal.reason);
            }
        }
        if entries.is_empty() {
            return Err(LogError::Empty);
        }
        let mut history = Self { entries, world, works: BTreeMap::new(), refused };
        history.works = history.measure();
        Ok(history)
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> &[Entered] {
        &self.entries
    }

    /// Time of the first entry.
    #[must_use]
    pub fn begins(&self) -> TimeMs {
        self.entries.first().map_or(TimeMs(0), |entry| entry.stamp.at_ms)
    }

    /// Time of the last entry.
    #[must_use]
    pub fn ends(&self) -> TimeMs {
        self.entries.last().map_or(TimeMs(0), |entry| entry.stamp.at_ms)
    }

    /// What became of every lease, by id.
    #[must_use]
    pub fn stories(&self) -> &BTreeMap<LeaseId, Story> {
        self.world.stories()
    }

    /// The lease that the entry of this number made, if it made one.
    #[must_use]
    pub fn lease_of(&self, seq: u64) -> Option<LeaseId> {
        let (first, last) = (LeaseId { seq, index: 0 }, LeaseId { seq, index: u32::MAX });
        self.stories().range(first..=last).next().map(|(id, _)| *id)
    }

    /// Why the request of this entry was turned away, if it was.
    #[must_use]
    pub fn refusal_of(&self, seq: u64) -> Option<Reason> {
        self.refused.get(&seq).copied()
    }

    /// What the lease stood for; `None` if the log does not know it.
    #[must_use]
    pub fn work_of(&self, id: LeaseId) -> Option<Work> {
        self.works.get(&id).copied()
    }

    /// The world before the entry of this number, without the agents' plans; with `opinion` a second opinion has been
    /// asked about every entry, and will be.
    #[must_use]
    pub fn world_before(&self, seq: u64, opinion: bool) -> World {
        let mut world = World::blank(opinion);
        for entry in self.entries.iter().take_while(|entry| entry.stamp.seq < seq) {
            world.replay(&entry.stamp, &entry.input);
        }
        world
    }

    /// Time that preparing takes where a lease's own is not known: the median of the log, in milliseconds.
    #[must_use]
    pub fn usual_prepare_ms(&self) -> u64 {
        let mut known: Vec<u64> = self.stories().values().filter_map(|story| story.prepare_ms).collect();
        known.sort_unstable();
        known.get(known.len() / 2).copied().unwrap_or_default()
    }

    fn measure(&self) -> BTreeMap<LeaseId, Work> {
        let usual_ms = self.usual_prepare_ms();
        self.stories().iter().map(|(id, story)| (*id, work(story, usual_ms))).collect()
    }
}

/// The work that a lease stood for, as far as its story tells.
fn work(story: &Story, usual_prepare_ms: u64) -> Work {
    let begun = story.prepare_ms.is_some();
    let (run_ms, ends) = match story.ended.filter(|_| begun).map(|(_, reason)| reason) {
        Some(Reason::Completed) => (story.run_ms, Ends::Exits(0)),
        Some(Reason::CommandFailed | Reason::OutOfMemory | Reason::DiskFull) => (story.run_ms, Ends::Exits(1)),
        Some(Reason::Released) => (story.run_ms, Ends::Released),
        _ => (None, Ends::Exits(0)),
    };
    Work {
        prepare_ms: story.prepare_ms.unwrap_or(usual_prepare_ms),
        run_ms: run_ms.unwrap_or(Work::ALL),
        stop_ms: story.stop_ms.filter(|_| begun).unwrap_or_default(),
        ends,
        resumes: false,
    }
}
