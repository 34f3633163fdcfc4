//! What a node should hold now: a fold of State, sent whole at every change and every reconnect.

use alloc::vec::Vec;

use selion_api::NodeId;
use selion_api::agent::Phase;
use selion_api::lease::LeaseState;

use crate::state::{DesiredMember, Progress, State};

impl State {
    /// Every member that the node should hold, by lease and rank. What is not in it is to be stopped.
    #[must_use]
    pub fn desired(&self, node: NodeId) -> Vec<DesiredMember> {
        let held = self.nodes.get(&node).into_iter().flat_map(|node| &node.held);
        held.filter_map(|((id, rank), held)| {
            let lease = self.leases.get(id)?;
            let member = lease.members.get(usize::from(*rank))?;
            let phase = match lease.state {
                LeaseState::Held | LeaseState::Preparing => Phase::Prepare,
                // One that is being repaired.
                LeaseState::Active if member.progress < Progress::Ready => Phase::Prepare,
                LeaseState::Starting | LeaseState::Active => Phase::Start,
                LeaseState::Waiting | LeaseState::Ending | LeaseState::Ended => return None,
            };
            lease.runs(*rank, held.attempt).then_some(DesiredMember {
                lease: *id,
                attempt: held.attempt,
                member: *rank,
                phase,
            })
        })
        .collect()
    }
}
