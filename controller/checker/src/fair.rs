//! The key of fairness: which of two renters comes first. One place; a richer key (groups, quotas, past use) goes here.
//!
//! It decides for pools whose accounts stand side by side; between accounts of a tree with groups, or where past use
//! counts, only leases of one account are compared.
//!
//! Plain weighted dominant resource fairness: of GPU work, GPU memory, and what stands beside GPUs, the largest part of the fleet that
//! a renter holds, divided by his weight, in 2^-40.

use alloc::collections::{BTreeMap, BTreeSet};

use selion_api::lease::{Beside, LeaseState};
use selion_api::{Account, GpuSpec, LeaseId, Slot, TimeMs};
use selion_market::Policy;

use crate::fit;
use crate::fleet::Fleet;
use crate::leases::Lease;

/// After this long an ended lease may be forgotten by the engine, with what it still holds: a day in milliseconds.
const FORGOTTEN_MS: u64 = 86_400_000;
/// Parts are rounded down once; what lies closer than this is not told apart.
const ROUNDING: u128 = 1;

type Bundle = [u128; 6];

/// Who holds how much, at one moment.
pub(crate) struct Shares {
    totals: Bundle,
    used: BTreeMap<Account, Bundle>,
    weights: BTreeMap<Account, u32>,
    /// False where more counts than is known here: groups, quotas or past use.
    plain: bool,
    /// Renters of whom it cannot be said what counts.
    unclear: BTreeSet<Account>,
}

/// What lies between two renters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    /// The first comes before the second.
    Before,
    /// They hold the same with the same weight.
    Same,
    /// Neither, or it cannot be told.
    Unclear,
}

fn add(to: &mut Bundle, more: Bundle) {
    for (to, more) in to.iter_mut().zip(more) {
        *to = to.saturating_add(more);
    }
}

/// What a slot and what stands beside it take.
pub(crate) fn bundle(gpu: Option<&GpuSpec>, slot: &Slot, beside: Beside) -> Bundle {
    let (work, memory) = gpu.map_or((0, 0), |gpu| fit::takes(gpu, slot));
    with([work, memory], beside)
}

fn with([work, memory]: [u128; 2], beside: Beside) -> Bundle {
    let [cpu, ram, disk, net] = beside.map(u128::from);
    [work, memory, cpu, ram, disk, net]
}

impl Shares {
    pub(crate) fn of(fleet: &Fleet, leases: &BTreeMap<LeaseId, Lease>, policy: &Policy, now: TimeMs) -> Self {
        let weights = policy.accounts.iter().map(|seat| (seat.account, seat.weight)).collect();
        let plain = policy.groups.is_empty()
            && policy.half_life_ms == 0
            && policy.accounts.iter().all(|seat| seat.group.is_empty());
        let mut shares =
            Self { totals: Bundle::default(), used: BTreeMap::new(), weights, plain, unclear: BTreeSet::new() };
        for machine in fleet.machines.values() {
            if let Some(spec) = machine.spec.as_ref().filter(|_| machine.owner.is_some()) {
                for gpu in &spec.gpus {
                    add(&mut shares.totals, bundle(Some(gpu), &Slot::Whole, Beside::default()));
                }
                add(&mut shares.totals, with([0, 0], spec.beside()));
            }
            for taken in &machine.taken {
                let gpu = machine.spec.iter().flat_map(|spec| &spec.gpus).find(|gpu| gpu.gpu == taken.gpu);
                shares.take(taken.renter, bundle(gpu, &taken.slot, taken.beside));
                let forgotten = leases
                    .get(&taken.run.0)
                    .is_none_or(|lease| lease.state == LeaseState::Ended && now.since(lease.since) >= FORGOTTEN_MS);
                if forgotten {
                    shares.unclear.insert(taken.renter);
                }
            }
        }
        shares
    }

    pub(crate) fn take(&mut self, renter: Account, taken: Bundle) {
        add(self.used.entry(renter).or_default(), taken);
    }

    /// GPU work of the fleet.
    pub(crate) fn total_work(&self) -> u128 {
        let [work, ..] = self.totals;
        work
    }

    fn weight(&self, renter: Account) -> u32 {
        self.weights.get(&renter).copied().unwrap_or(1).max(1)
    }

    /// Dominant share over weight, in 2^-40.
    pub(crate) fn key(&self, renter: Account) -> u128 {
        let used = self.used.get(&renter).copied().unwrap_or_default();
        let parts = used
            .iter()
            .zip(self.totals)
            .map(|(used, total)| used.saturating_mul(1 << 40).checked_div(total).unwrap_or(0));
        parts.max().unwrap_or(0) / u128::from(self.weight(renter))
    }

    pub(crate) fn between(&self, first: Account, second: Account) -> Between {
        if first == second {
            return Between::Same;
        }
        if !self.plain || self.unclear.contains(&first) || self.unclear.contains(&second) {
            return Between::Unclear;
        }
        let held = |renter| (self.used.get(&renter).copied().unwrap_or_default(), self.weight(renter));
        if held(first) == held(second) {
            return Between::Same;
        }
        if self.key(first).saturating_add(ROUNDING) < self.key(second) { Between::Before } else { Between::Unclear }
    }
}
