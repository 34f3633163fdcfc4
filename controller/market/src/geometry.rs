//! One GPU: what is taken on it, and what still fits. MIG by exact tables with explicit placements, never by counters.

use alloc::vec::Vec;

use selion_api::lease::Resource;
use selion_api::slice::{GpuSpec, MigProfile, MigTable, WHOLE_PERMILLE};
use selion_api::{Rate, SliceWant, Slot};

/// Most memory slices of a MIG table: placements are bits of a `u32`.
pub const MAX_MEM_SLICES: u8 = 32;

/// The MIG instances on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigUse<'a> {
    /// Memory slices taken, one bit each.
    pub mask: u32,
    /// Compute slices taken.
    pub compute: u32,
    /// Profile names of the instances.
    pub instances: Vec<&'a str>,
}

/// What is taken on a GPU. It is in one mode at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Use<'a> {
    /// Nothing is taken.
    #[default]
    Idle,
    /// All of it.
    Whole,
    /// MIG instances.
    Mig(MigUse<'a>),
    /// Shares.
    Shares {
        /// Compute taken in permille.
        compute_permille: u32,
        /// Memory taken in bytes.
        mem_bytes: u64,
        /// How many.
        count: u32,
    },
}

/// One way to put a slice on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The place.
    pub slot: Slot,
    /// The ask.
    pub rate: Rate,
    /// Memory slices' worth of MIG placements that become impossible.
    pub frag: u32,
    /// What is left on the GPU afterwards, in permille.
    pub left: u32,
}

/// Why a slice does not fit on a GPU, in the unit of what is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// What is short.
    pub resource: Resource,
    /// What was asked.
    pub need: u64,
    /// What there is.
    pub have: u64,
}

fn bits(start: u8, size: u8) -> u32 {
    let run = 1_u64.checked_shl(size.into()).unwrap_or(0).wrapping_sub(1);
    let placed = run.checked_shl(start.into()).unwrap_or(0);
    u32::try_from(placed & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

impl<'a> Use<'a> {
    /// Adds a slot. Slots of two modes on one GPU cannot both be true: the GPU then counts as wholly taken.
    pub fn take(&mut self, spec: &GpuSpec, slot: &'a Slot) {
        if *self == Use::Idle {
            *self = match slot {
                Slot::Whole => Use::Whole,
                Slot::Mig { .. } => Use::Mig(MigUse::default()),
                Slot::Share { .. } => Use::Shares { compute_permille: 0, mem_bytes: 0, count: 0 },
            };
        }
        match (&mut *self, slot) {
            (Use::Mig(used), Slot::Mig { profile, start, size }) => {
                let known = spec.mig.as_ref().and_then(|table| profile_of(table, profile));
                used.mask |= bits(*start, *size);
                used.compute += u32::from(known.map_or(*size, |known| known.compute_slices));
                used.instances.push(profile);
            }
            (
                Use::Shares { compute_permille, mem_bytes, count },
                Slot::Share { compute_permille: compute, mem_bytes: mem },
            ) => {
                *compute_permille = compute_permille.saturating_add(u32::from(*compute));
                *mem_bytes = mem_bytes.saturating_add(*mem);
                *count = count.saturating_add(1);
            }
            _ => *self = Use::Whole,
        }
    }

    fn mig(&self) -> Option<MigUse<'a>> {
        match self {
            Use::Idle => Some(MigUse::default()),
            Use::Mig(used) => Some(used.clone()),
            Use::Whole | Use::Shares { .. } => None,
        }
    }
}

/// The profile of that name.
#[must_use]
pub fn profile_of<'t>(table: &'t MigTable, name: &str) -> Option<&'t MigProfile> {
    table.profiles.iter().find(|profile| profile.name == name)
}

/// True if an instance of `profile` may start at `start` beside what is there: no overlap, within the GPU's memory
/// and compute slices, and not more instances than the profile allows. The media engines go with `+me` profiles:
/// instances of all of them count together.
#[must_use]
pub fn possible(table: &MigTable, used: &MigUse<'_>, profile: &MigProfile, start: u8) -> bool {
    let end = u16::from(start) + u16::from(profile.size);
    let media = profile.name.contains("+me");
    let alike = used.instances.iter().filter(|name| **name == profile.name || (media && name.contains("+me"))).count();
    profile.size > 0
        && end <= u16::from(table.mem_slices.min(MAX_MEM_SLICES))
        && used.mask & bits(start, profile.size) == 0
        && used.compute + u32::from(profile.compute_slices) <= u32::from(table.compute_slices)
        && alike < usize::from(profile.max_instances)
}

/// Every legal placement of an empty GPU: profile and start.
pub fn placements(table: &MigTable) -> impl Iterator<Item = (&MigProfile, u8)> {
    let starts = |profile: &'_ MigProfile| profile.starts.len();
    table
        .profiles
        .iter()
        .flat_map(move |profile| (0..starts(profile)).filter_map(move |at| Some((profile, *profile.starts.get(at)?))))
}

/// Memory slices' worth of placements that are possible in `before` and not in `after`.
fn frag(table: &MigTable, before: &MigUse<'_>, after: Option<&MigUse<'_>>) -> u32 {
    placements(table)
        .filter(|(profile, start)| possible(table, before, profile, *start))
        .filter(|(profile, start)| after.is_none_or(|after| !possible(table, after, profile, *start)))
        .map(|(profile, _)| u32::from(profile.size))
        .sum()
}

/// Memory slices' worth of all MIG placements that an idle GPU offers; 0 without MIG.
#[must_use]
pub fn all_placements(spec: &GpuSpec) -> u32 {
    spec.mig.as_ref().map_or(0, |table| frag(table, &MigUse::default(), None))
}

/// What leaving MIG mode costs: all placements of an idle GPU, nothing of one that is in another mode already.
fn frag_of_other_mode(spec: &GpuSpec, used: &Use<'_>) -> u32 {
    if *used == Use::Idle { all_placements(spec) } else { 0 }
}

/// The ask for a share: the larger part of compute and memory, rounded up.
#[must_use]
pub fn share_rate(whole: Rate, compute_permille: u16, mem_bytes: u64, gpu_mem_bytes: u64) -> Rate {
    let part = |part: u64, of: u64| (u128::from(whole.0) * u128::from(part)).div_ceil(u128::from(of.max(1)));
    let exact = part(compute_permille.into(), WHOLE_PERMILLE.into()).max(part(mem_bytes, gpu_mem_bytes));
    Rate(u64::try_from(exact).unwrap_or(u64::MAX))
}

/// Whether the GPU could ever hold the slice, when nothing else is on it.
///
/// # Errors
///
/// What it falls short of; 0 of 1 where the mode or the profile is not offered at all.
pub fn offers(spec: &GpuSpec, want: &SliceWant) -> Result<(), Short> {
    let absent = Short { resource: Resource::Slots, need: 1, have: 0 };
    match want {
        SliceWant::Whole => spec.whole.map(|_| ()).ok_or(absent),
        SliceWant::Mig { profile } => {
            let table = spec.mig.as_ref().ok_or(absent)?;
            let profile = profile_of(table, profile).ok_or(absent)?;
            let fits = |start: &u8| possible(table, &MigUse::default(), profile, *start);
            profile.starts.iter().any(fits).then_some(()).ok_or(absent)
        }
        SliceWant::Share { mem_bytes, .. } => {
            let terms = spec.share.as_ref().ok_or(absent)?;
            if *mem_bytes > spec.mem_bytes {
                return Err(Short { resource: Resource::GpuMemBytes, need: *mem_bytes, have: spec.mem_bytes });
            }
            (terms.max_shares > 0).then_some(()).ok_or(absent)
        }
    }
}

/// Every way to put the slice on the GPU now.
///
/// # Errors
///
/// What is short: memory slices for MIG, bytes or permille for a share, 1 of 0 GPUs for a whole one.
pub fn fits(spec: &GpuSpec, used: &Use<'_>, want: &SliceWant) -> Result<Vec<Fit>, Short> {
    offers(spec, want)?;
    let taken = Short { resource: Resource::Slots, need: 1, have: 0 };
    match want {
        SliceWant::Whole => {
            let rate = spec.whole.ok_or(taken)?;
            if *used != Use::Idle {
                return Err(taken);
            }
            Ok(alloc::vec![Fit { slot: Slot::Whole, rate, frag: frag_of_other_mode(spec, used), left: 0 }])
        }
        SliceWant::Mig { profile } => {
            let table = spec.mig.as_ref().ok_or(taken)?;
            let profile = profile_of(table, profile).ok_or(taken)?;
            let used = used.mig().ok_or(taken)?;
            let ways: Vec<Fit> = profile
                .starts
                .iter()
                .filter(|start| possible(table, &used, profile, **start))
                .map(|start| mig_fit(table, &used, profile, *start))
                .collect();
            if ways.is_empty() {
                let free = u32::from(table.mem_slices).saturating_sub(used.mask.count_ones());
                return Err(Short { resource: Resource::MigSlices, need: profile.size.into(), have: free.into() });
            }
            Ok(ways)
        }
        SliceWant::Share { compute_permille, mem_bytes } => {
            share_fit(spec, used, *compute_permille, *mem_bytes).map(|fit| alloc::vec![fit])
        }
    }
}

/// Memory slices' worth of MIG placements that become impossible by a slot beside what is there.
#[must_use]
pub fn destroys(spec: &GpuSpec, used: &Use<'_>, slot: &Slot) -> u32 {
    let Slot::Mig { profile, start, .. } = slot else {
        return frag_of_other_mode(spec, used);
    };
    let known = spec.mig.as_ref().and_then(|table| Some((table, profile_of(table, profile)?, used.mig()?)));
    known.map_or(0, |(table, profile, used)| mig_fit(table, &used, profile, *start).frag)
}

fn mig_fit(table: &MigTable, used: &MigUse<'_>, profile: &MigProfile, start: u8) -> Fit {
    let mut after = used.clone();
    after.mask |= bits(start, profile.size);
    after.compute += u32::from(profile.compute_slices);
    after.instances.push(&profile.name);
    let free = u32::from(table.mem_slices).saturating_sub(after.mask.count_ones());
    Fit {
        slot: Slot::Mig { profile: profile.name.clone(), start, size: profile.size },
        rate: profile.rate,
        frag: frag(table, used, Some(&after)),
        left: free * u32::from(WHOLE_PERMILLE) / u32::from(table.mem_slices.max(1)),
    }
}

fn share_fit(spec: &GpuSpec, used: &Use<'_>, compute: u16, mem: u64) -> Result<Fit, Short> {
    let taken = Short { resource: Resource::Slots, need: 1, have: 0 };
    let terms = spec.share.as_ref().ok_or(taken)?;
    let (used_compute, used_mem, count) = match used {
        Use::Idle => (0, 0, 0),
        Use::Shares { compute_permille, mem_bytes, count } => (*compute_permille, *mem_bytes, *count),
        Use::Whole | Use::Mig(_) => return Err(taken),
    };
    let left_compute = u32::from(WHOLE_PERMILLE).saturating_sub(used_compute);
    let left_mem = spec.mem_bytes.saturating_sub(used_mem);
    if count >= u32::from(terms.max_shares) {
        return Err(taken);
    }
    if mem > left_mem {
        return Err(Short { resource: Resource::GpuMemBytes, need: mem, have: left_mem });
    }
    let after = left_compute.checked_sub(compute.into()).ok_or(Short {
        resource: Resource::ComputePermille,
        need: compute.into(),
        have: left_compute.into(),
    })?;
    Ok(Fit {
        slot: Slot::Share { compute_permille: compute, mem_bytes: mem },
        rate: share_rate(terms.rate, compute, mem, spec.mem_bytes),
        frag: frag_of_other_mode(spec, used),
        left: after,
    })
}

/// Everything that a GPU may be asked for: the whole, each profile, and the least share.
pub fn slices(spec: &GpuSpec) -> impl Iterator<Item = SliceWant> {
    let profiles = spec.mig.iter().flat_map(|table| &table.profiles);
    let profiles = profiles.map(|profile| SliceWant::Mig { profile: profile.name.clone() });
    let least = SliceWant::Share { compute_permille: 1, mem_bytes: 1 };
    profiles.chain([least, SliceWant::Whole])
}

/// Most further instances of `profile` alone that fit beside what is there. All have one size, so taking the lowest
/// possible start each time gives the most.
#[must_use]
pub fn room_for(table: &MigTable, used: &MigUse<'_>, profile: &MigProfile) -> u32 {
    let mut used = used.clone();
    let mut starts = profile.starts.clone();
    starts.sort_unstable();
    let mut count = 0;
    for start in starts {
        if possible(table, &used, profile, start) {
            used.mask |= bits(start, profile.size);
            used.compute += u32::from(profile.compute_slices);
            used.instances.push(&profile.name);
            count += 1;
        }
    }
    count
}
