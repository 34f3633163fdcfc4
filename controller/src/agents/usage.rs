//! What members use, as their nodes last told: in memory only, of what is held now.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use selion_api::usage::{Usage, Used};
use selion_api::{LeaseId, NodeId};
use selion_market::State;

/// Lease, run and rank.
type Run = (LeaseId, u32, u16);

/// The last reading of each member that a node holds.
#[derive(Debug, Default)]
pub(super) struct Readings(Mutex<BTreeMap<Run, Used>>);

impl Readings {
    /// Takes a reading from `node`, if it holds the member in its present run. So there are no more than members.
    pub(super) fn take(&self, state: &State, node: NodeId, told: &Usage) {
        let lease = state.leases.get(&told.lease);
        let member = lease.and_then(|lease| lease.members.get(usize::from(told.member)));
        let holds = |member: &selion_market::Member| member.node == node && member.attempt == told.attempt;
        if member.is_some_and(holds) {
            self.all().insert((told.lease, told.attempt, told.member), told.used);
        }
    }

    /// The last reading of a member, if it is one of this run.
    pub(super) fn of(&self, run: Run) -> Option<Used> {
        self.all().get(&run).copied()
    }

    /// Forgets what is over.
    pub(super) fn tend(&self, runs: impl Fn(Run) -> bool) {
        self.all().retain(|run, _| runs(*run));
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<Run, Used>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
