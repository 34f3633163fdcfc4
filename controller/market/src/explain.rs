//! Why here, why not there: what a placement looked at.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use selion_api::lease::NearestMiss;
use selion_api::slice::IsolationClass;
use selion_api::{GpuId, LeaseId, NodeId, Rate, Slot};

use crate::lease::is_running;
use crate::place::{Room, World};
use crate::state::State;

/// What one GPU (or a node without any, `gpus` empty) says to one member's want. To one of several GPUs those of each
/// model on a node say one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Lowest rank of the members that want this; equal wants are judged once.
    pub member: u16,
    /// The node.
    pub node: NodeId,
    /// The GPU; of several those that it could have, none if they are too few.
    pub gpus: Vec<GpuId>,
    /// The best way to place it there now, or by what it misses.
    pub verdict: Result<Offered, NearestMiss>,
}

/// A slot that could be had now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The place, on each GPU.
    pub slot: Slot,
    /// How it is kept apart.
    pub class: IsolationClass,
    /// The ask, of all of them together.
    pub rate: Rate,
}

impl State {
    /// Judges every GPU for every different want of a lease, as the pool stands now: what other leases hold is taken, what
    /// it holds itself while it runs is not, so that where it stands it fits. Empty if there is no such lease.
    #[must_use]
    pub fn candidates(&self, id: LeaseId) -> Vec<Candidate> {
        let Some(lease) = self.leases.get(&id) else {
            return Vec::new();
        };
        let itself = BTreeSet::from([id]);
        let without = is_running(lease.state).then_some(&itself);
        let world = World { without, ..World::new(self, &lease.request, Some(id), Room::Now) };
        let wants = &lease.request.members;
        let mut list = Vec::new();
        for (rank, want) in (0_u16..).zip(wants) {
            let seen_before = wants.iter().take(rank.into()).any(|earlier| earlier == want);
            if seen_before {
                continue;
            }
            let nodes = self.nodes.iter().filter(|(id, _)| want.node.is_none_or(|only| only == **id));
            for (node_id, node) in nodes {
                world.look_at(*node_id, node, rank, want, &mut |gpu, verdict| {
                    let verdict = verdict
                        .map(|choices| choices.into_iter().min_by_key(|choice| choice.score))
                        .map_err(|miss| NearestMiss { node: *node_id, gpu: miss.nearest.gpu.or(gpu), ..miss.nearest });
                    let mut gpus: Vec<GpuId> = gpu.into_iter().collect();
                    let verdict = match verdict {
                        Ok(Some(best)) => {
                            gpus = best.gpu_ids();
                            Ok(Offered { slot: best.slot, class: best.class, rate: best.rate })
                        }
                        Ok(None) => return,
                        Err(miss) => Err(miss),
                    };
                    list.push(Candidate { member: rank, node: *node_id, gpus, verdict });
                });
            }
        }
        list
    }
}
