//! One GPU: whether a slot can stand on it beside others, slice by slice.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use selion_api::slice::{MigProfile, MigTable, WHOLE_PERMILLE};
use selion_api::{GpuSpec, IsolationClass, Rate, SliceWant, Slot};

use crate::finding::{Rule, Verdict, holds, within};

fn known<'s>(gpu: &'s GpuSpec, name: &str) -> Option<(&'s MigTable, &'s MigProfile)> {
    let table = gpu.mig.as_ref()?;
    Some((table, table.profiles.iter().find(|profile| profile.name == name)?))
}

/// The class and the ask of a slot; `None` if the GPU does not offer it.
pub(crate) fn on_offer(gpu: &GpuSpec, slot: &Slot) -> Option<(IsolationClass, Rate)> {
    let (class, rate) = match slot {
        Slot::Whole => (IsolationClass::Whole, gpu.whole?),
        Slot::Mig { profile, .. } => (IsolationClass::Mig, known(gpu, profile)?.1.rate),
        Slot::Share { compute_permille, mem_bytes } => {
            let terms = gpu.share.as_ref()?;
            let whole = u128::from(terms.rate.0);
            let by_compute = (whole * u128::from(*compute_permille)).div_ceil(u128::from(WHOLE_PERMILLE));
            let by_memory = (whole * u128::from(*mem_bytes)).div_ceil(u128::from(gpu.mem_bytes.max(1)));
            (terms.class, Rate(u64::try_from(by_compute.max(by_memory)).unwrap_or(u64::MAX)))
        }
    };
    Some((if gpu.simulated { IsolationClass::Simulated } else { class }, rate))
}

/// True if the slot is one that answers the want.
pub(crate) fn answers(want: &SliceWant, slot: &Slot) -> bool {
    match (want, slot) {
        (SliceWant::Whole, Slot::Whole) => true,
        (SliceWant::Mig { profile: asked }, Slot::Mig { profile, .. }) => asked == profile,
        (
            SliceWant::Share { compute_permille, mem_bytes },
            Slot::Share { compute_permille: compute, mem_bytes: mem },
        ) => compute_permille == compute && mem_bytes == mem,
        _ => false,
    }
}

/// Every slot of an empty GPU that answers the want, from the first slice on.
pub(crate) fn answers_on(gpu: &GpuSpec, want: &SliceWant) -> Vec<Slot> {
    match want {
        SliceWant::Whole => alloc::vec![Slot::Whole],
        SliceWant::Share { compute_permille, mem_bytes } => {
            alloc::vec![Slot::Share { compute_permille: *compute_permille, mem_bytes: *mem_bytes }]
        }
        SliceWant::Mig { profile } => known(gpu, profile).map_or_else(Vec::new, |(_, known)| {
            let at = |start: &u8| Slot::Mig { profile: profile.clone(), start: *start, size: known.size };
            let starts: BTreeSet<u8> = known.starts.iter().copied().collect();
            starts.iter().map(at).collect()
        }),
    }
}

/// Whether `slot` can stand beside the others.
pub(crate) fn stands(gpu: &GpuSpec, others: &[&Slot], slot: &Slot) -> Verdict {
    match slot {
        Slot::Whole => holds(Rule::Overlap, others.is_empty()),
        Slot::Mig { profile, start, size } => mig_stands(gpu, others, (profile, *start, *size)),
        Slot::Share { compute_permille, mem_bytes } => {
            let (mut permille, mut bytes) = (u128::from(*compute_permille), u128::from(*mem_bytes));
            for other in others {
                let Slot::Share { compute_permille, mem_bytes } = other else {
                    return holds(Rule::Overlap, false);
                };
                permille += u128::from(*compute_permille);
                bytes += u128::from(*mem_bytes);
            }
            let most = gpu.share.as_ref().map_or(0, |terms| terms.max_shares);
            within(Rule::Count, others.len() as u64 + 1, most)?;
            within(Rule::Compute, permille, WHOLE_PERMILLE)?;
            within(Rule::Memory, bytes, gpu.mem_bytes)
        }
    }
}

fn mig_stands(gpu: &GpuSpec, others: &[&Slot], (name, start, size): (&str, u8, u8)) -> Verdict {
    let Some((table, profile)) = known(gpu, name) else {
        return holds(Rule::Slot, false);
    };
    let end = u16::from(start) + u16::from(size);
    holds(Rule::Placement, profile.starts.contains(&start) && profile.size == size && size > 0)?;
    within(Rule::Placement, end, table.mem_slices)?;
    let mut slices: BTreeSet<u16> = (u16::from(start)..end).collect();
    let mut compute = u32::from(profile.compute_slices);
    let mut alike = 1_u32;
    // The media engines go with `+me` profiles, and all of those count together.
    let media = |name: &str| name.contains("+me");
    for other in others {
        let Slot::Mig { profile: other, start, size } = other else {
            return holds(Rule::Overlap, false);
        };
        for slice in u16::from(*start)..u16::from(*start) + u16::from(*size) {
            holds(Rule::Overlap, slices.insert(slice))?;
        }
        compute += u32::from(known(gpu, other).map_or(*size, |(_, profile)| profile.compute_slices));
        alike += u32::from(other == name || (media(name) && media(other)));
    }
    within(Rule::Compute, compute, table.compute_slices)?;
    within(Rule::Count, alike, profile.max_instances)
}

/// What the pool charges beside the ask for a slot beside the others: so many permille of what it destroys of the
/// GPU's ask, in memory slices of MIG placements that could stand before it and cannot any more.
pub(crate) fn surcharge(gpu: &GpuSpec, others: &[&Slot], slot: &Slot, permille: u16) -> u64 {
    let profiles = gpu.mig.iter().flat_map(|table| &table.profiles);
    let wants = profiles.clone().map(|profile| SliceWant::Mig { profile: profile.name.clone() });
    // A start that is named twice counts twice.
    let named = |name: &str, at: u8| {
        known(gpu, name).map_or(0, |(_, known)| known.starts.iter().filter(|start| **start == at).count())
    };
    let beside: Vec<&Slot> = others.iter().copied().chain([slot]).collect();
    let (mut all, mut destroyed) = (0_u128, 0_u128);
    for place in wants.flat_map(|want| answers_on(gpu, &want)) {
        let Slot::Mig { profile, start, size } = &place else {
            continue;
        };
        let slices = u128::from(*size) * named(profile, *start) as u128;
        let stands = |others: &[&Slot]| stands(gpu, others, &place).is_ok();
        all += if stands(&[]) { slices } else { 0 };
        destroyed += if stands(others) && !stands(&beside) { slices } else { 0 };
    }
    let dearest = profiles.map(|profile| profile.rate).max();
    let ask = u128::from(gpu.whole.or(dearest).map_or(0, |rate| rate.0));
    let shadow = (destroyed * ask).checked_div(all).unwrap_or(0);
    u64::try_from(shadow * u128::from(permille) / 1_000).unwrap_or(u64::MAX)
}

/// GPU work and memory that a slot takes: work is the model's times the permille of its compute.
pub(crate) fn takes(gpu: &GpuSpec, slot: &Slot) -> (u128, u128) {
    let (permille, bytes) = match slot {
        Slot::Whole => (u128::from(WHOLE_PERMILLE), gpu.mem_bytes),
        Slot::Share { compute_permille, mem_bytes } => (u128::from(*compute_permille), *mem_bytes),
        Slot::Mig { profile, .. } => {
            known(gpu, profile).map_or((u128::from(WHOLE_PERMILLE), gpu.mem_bytes), |(table, profile)| {
                let all = u128::from(table.compute_slices.max(1));
                (u128::from(profile.compute_slices) * u128::from(WHOLE_PERMILLE) / all, profile.mem_bytes)
            })
        }
    };
    (u128::from(gpu.work_milli) * permille, u128::from(bytes))
}
