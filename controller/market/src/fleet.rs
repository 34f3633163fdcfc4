//! The fleet as decisions see it: who may take leases, and what is free.

use alloc::string::String;
use alloc::vec::Vec;

use selion_api::lease::Beside;
use selion_api::slice::{GpuSpec, NodeSpec, Sandbox, WHOLE_PERMILLE};
use selion_api::{GpuId, NodeId, Reason, Slot, words};

use crate::geometry::{self, MAX_MEM_SLICES, MigUse, Use};
use crate::state::{Node, PoolTerms, State};

/// Most GPUs of one node.
pub const MAX_GPUS: usize = 64;
/// Most MIG profiles of one GPU, and most starts of one profile.
const MAX_PROFILES: usize = 64;
/// Longest name of a MIG profile.
const MAX_PROFILE_NAME: usize = 32;

/// What is free on one GPU now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuFree {
    /// True if nothing is taken on it.
    pub idle: bool,
    /// Further MIG instances that fit, by profile, each counted as if no other profile were asked for.
    pub mig: Vec<(String, u32)>,
    /// Compute left for shares in permille.
    pub compute_permille: u32,
    /// Memory left for shares in bytes.
    pub mem_bytes: u64,
    /// Further shares that may be made.
    pub shares: u32,
}

/// Whether a spec is one that can be reasoned about and shown: bounded, without a GPU named twice or a feature that no box
/// has, its words of the grammar of [`selion_api::words`], since others' files and terminals get them.
#[must_use]
pub fn sound(spec: &NodeSpec) -> bool {
    let mut ids: Vec<GpuId> = spec.gpus.iter().map(|gpu| gpu.gpu).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.len() == spec.gpus.len()
        && ids.len() <= MAX_GPUS
        && words::is_host(&spec.address)
        && words::is_name(&spec.region)
        && words::is_name(&spec.rack)
        && spec.features.is_known()
        && spec.gpus.iter().all(sound_gpu)
}

fn sound_gpu(gpu: &GpuSpec) -> bool {
    let table = gpu.mig.as_ref().is_none_or(|table| {
        table.mem_slices <= MAX_MEM_SLICES
            && table.profiles.len() <= MAX_PROFILES
            && table.profiles.iter().all(|profile| {
                profile.starts.len() <= usize::from(MAX_MEM_SLICES)
                    && !profile.name.is_empty()
                    && profile.name.len() <= MAX_PROFILE_NAME
                    && words::is_name(&profile.name)
            })
    });
    table && words::is_name(&gpu.model)
}

/// Whether slices of this GPU may be leased under the pool's terms. Source: the terms fixed at the pool's creation.
#[must_use]
pub fn class_allowed(terms: &PoolTerms, gpu: &GpuSpec) -> bool {
    terms.allow_simulated || !gpu.simulated
}

/// Why the node takes no new lease; `None` if chain and link agree that it does.
#[must_use]
pub fn blocked(state: &State, node: &Node) -> Option<Reason> {
    let Some(terms) = &state.pool else {
        return Some(Reason::NodeNotSchedulable);
    };
    let owner = node.provider.and_then(|owner| Some((owner, state.providers.get(&owner)?.stake)));
    let Some((provider, stake)) = owner else {
        return Some(Reason::UnknownNode);
    };
    if stake < terms.min_stake {
        return Some(Reason::StakeTooLow);
    }
    let Some(offer) = node.offer else {
        return Some(Reason::OfferClosed);
    };
    let Some(spec) = node.spec.as_ref().filter(|_| node.linked) else {
        return Some(Reason::NodeNotSchedulable);
    };
    if spec.provider != provider || spec.hash() != offer {
        return Some(Reason::SpecMismatch);
    }
    if node.reclaimed.contains_key(&None) {
        return Some(Reason::OwnerReclaimed);
    }
    if node.paused {
        return Some(Reason::NodePaused);
    }
    if spec.sandbox == Sandbox::None && !terms.allow_unsandboxed {
        return Some(Reason::SandboxNotAllowed);
    }
    if !spec.gpus.iter().any(|gpu| class_allowed(terms, gpu)) {
        return Some(Reason::ClassNotAllowed);
    }
    None
}

/// What is taken on a GPU of a node.
#[must_use]
pub fn use_of<'a>(node: &'a Node, gpu: &GpuSpec) -> Use<'a> {
    let mut used = Use::Idle;
    for held in node.held.values().filter(|held| held.gpus.contains(&gpu.gpu)) {
        used.take(gpu, &held.slot);
    }
    used
}

/// What is taken on a node beside its GPUs.
#[must_use]
pub fn beside_of(node: &Node) -> Beside {
    node.held.values().fold(Beside::default(), |mut sum, held| {
        sum.iter_mut().zip(held.beside).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        sum
    })
}

impl State {
    /// What is free on a GPU now, by geometry alone: see [`Node::blocked`] for whether the node takes leases.
    /// `None` if the node did not name such a GPU.
    #[must_use]
    pub fn free(&self, node: NodeId, gpu: GpuId) -> Option<GpuFree> {
        let node = self.nodes.get(&node)?;
        let spec = node.spec.as_ref()?.gpus.iter().find(|spec| spec.gpu == gpu)?;
        let used = use_of(node, spec);
        let mig = spec.mig.iter().flat_map(|table| {
            let instances = match &used {
                Use::Idle => Some(MigUse::default()),
                Use::Mig(used) => Some(used.clone()),
                Use::Whole | Use::Shares { .. } => None,
            };
            table.profiles.iter().map(move |profile| {
                let room = instances.as_ref().map_or(0, |used| geometry::room_for(table, used, profile));
                (profile.name.clone(), room)
            })
        });
        let (compute, mem, count) = match (&used, &spec.share) {
            (Use::Idle, Some(terms)) => (WHOLE_PERMILLE.into(), spec.mem_bytes, u32::from(terms.max_shares)),
            (Use::Shares { compute_permille, mem_bytes, count }, Some(terms)) => (
                u32::from(WHOLE_PERMILLE).saturating_sub(*compute_permille),
                spec.mem_bytes.saturating_sub(*mem_bytes),
                u32::from(terms.max_shares).saturating_sub(*count),
            ),
            _ => (0, 0, 0),
        };
        Some(GpuFree {
            idle: used == Use::Idle,
            mig: mig.collect(),
            compute_permille: compute,
            mem_bytes: mem,
            shares: count,
        })
    }
}

/// The part of a GPU that a slot takes: compute in permille and memory in bytes. A MIG instance takes its compute
/// slices out of those of the GPU (1 of 7 is 142 permille) and its own memory; a share what it says; a whole GPU all.
#[must_use]
pub fn part_of(gpu: &GpuSpec, slot: &Slot) -> (u32, u64) {
    let all = (WHOLE_PERMILLE.into(), gpu.mem_bytes);
    match slot {
        Slot::Whole => all,
        Slot::Share { compute_permille, mem_bytes } => ((*compute_permille).into(), *mem_bytes),
        Slot::Mig { profile, .. } => {
            let table = gpu.mig.as_ref();
            let known = table.and_then(|table| Some((table, geometry::profile_of(table, profile)?)));
            known.map_or(all, |(table, profile)| {
                let compute = u32::from(profile.compute_slices) * u32::from(WHOLE_PERMILLE);
                (compute / u32::from(table.compute_slices.max(1)), profile.mem_bytes)
            })
        }
    }
}
