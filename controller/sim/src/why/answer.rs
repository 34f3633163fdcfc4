//! What a question about a lease is answered with.

use std::collections::BTreeMap;

use selion_api::lease::{LeaseState, NearestMiss};
use selion_api::{Account, Amount, GpuId, LeaseId, NodeId, Rate, Reason, TimeMs};
use selion_market::State;
use serde::Serialize;

use crate::from_log::Fate;

/// A stretch of time in which nothing about the lease's standing changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// Entry at which it began.
    pub entry: u64,
    /// When.
    pub from: TimeMs,
    /// State.
    pub state: LeaseState,
    /// Why it waits, ends or ended.
    pub reason: Option<Reason>,
    /// Place in the order of service, from 1; 0 if it does not wait.
    pub position: u64,
}

/// GPUs that said the same to the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// `None`: it fits there.
    pub reason: Option<Reason>,
    /// How many GPUs (or nodes that show none), counted for each different want of the lease. Those that a member could
    /// only have together count as one.
    pub gpus: u64,
    /// The lowest ask among those where it fits.
    pub cheapest: Option<Rate>,
    /// One of them.
    pub node: NodeId,
    /// The GPU of it.
    pub gpu: Option<GpuId>,
    /// Leases that hold something on these GPUs.
    pub held_by: Vec<LeaseId>,
}

/// How a lease stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The lease.
    pub lease: LeaseId,
    /// Whose.
    pub renter: Account,
    /// When it was asked for.
    pub asked: TimeMs,
    /// The last entry that had happened at the time in question.
    pub entry: u64,
    /// The time in question.
    pub at: TimeMs,
    /// State then.
    pub state: LeaseState,
    /// Why it waited, was ending or had ended.
    pub reason: Option<Reason>,
    /// Place in the order of service then, from 1; 0 if it did not wait.
    pub position: u64,
    /// Leases that waited then.
    pub waiting: u64,
    /// The candidate that came closest.
    pub nearest: Option<NearestMiss>,
    /// When it was expected to start, as things stood then; `None` if nothing known made room for it.
    pub estimate: Option<TimeMs>,
    /// What the pool's GPUs said to it then, by reason.
    pub candidates: Vec<Blocker>,
    /// How it stood from its request to the end of the log.
    pub phases: Vec<Phase>,
    /// What became of it.
    pub fate: Fate,
}

/// What would have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhatIf {
    /// What the log says.
    pub real: Fate,
    /// What the model makes of it from the request on, with nothing changed.
    pub before: Fate,
    /// What it makes of it with the change.
    pub after: Fate,
    /// Entry from which both runs are the model's: the request's, or the first where the pool is otherwise.
    pub from: u64,
    /// End of the log: neither run goes on beyond it.
    pub until: TimeMs,
    /// What the lease would have cost an hour, over all members; `None` if it would not have started.
    pub rate_after: Option<Amount>,
    /// What to know before believing it.
    pub notes: [&'static str; crate::from_log::NOTES.len()],
}

/// What each GPU says to the lease as the pool stands, gathered by reason: where it fits first, then the commonest.
pub(super) fn candidates(state: &State, id: LeaseId) -> Vec<Blocker> {
    let mut by_reason: BTreeMap<Option<Reason>, Blocker> = BTreeMap::new();
    for candidate in state.candidates(id) {
        let (reason, rate) = match &candidate.verdict {
            Ok(offered) => (None, Some(offered.rate)),
            Err(miss) => (Some(miss.reason), None),
        };
        let blocker = by_reason.entry(reason).or_insert_with(|| Blocker {
            reason,
            gpus: 0,
            cheapest: None,
            node: candidate.node,
            gpu: candidate.gpus.first().copied(),
            held_by: Vec::new(),
        });
        blocker.gpus += 1;
        blocker.cheapest = [blocker.cheapest, rate].into_iter().flatten().min();
        if reason.is_some() {
            blocker.held_by.extend(holders(state, candidate.node, &candidate.gpus));
        }
    }
    let mut list: Vec<Blocker> = by_reason.into_values().collect();
    for blocker in &mut list {
        blocker.held_by.sort_unstable();
        blocker.held_by.dedup();
        blocker.held_by.retain(|holder| *holder != id);
    }
    list.sort_by_key(|blocker| (blocker.reason.is_some(), std::cmp::Reverse(blocker.gpus), blocker.reason));
    list
}

fn holders(state: &State, node: NodeId, gpus: &[GpuId]) -> impl Iterator<Item = LeaseId> {
    let held = state.nodes.get(&node).into_iter().flat_map(|node| &node.held);
    held.filter(move |(_, held)| gpus.is_empty() || gpus.iter().any(|gpu| held.gpus.contains(gpu)))
        .map(|((lease, _), _)| *lease)
}
