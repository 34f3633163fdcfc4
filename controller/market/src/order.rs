//! Whose turn it is: repair of broken gangs, then weighted dominant share, then the higher price, then age.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use selion_api::{Account, GpuId, LeaseId, NodeId, Slot};

use crate::fleet;
use crate::state::{Lease, Node, State};

/// Binary digits after the point of a share.
const FRACTION: u32 = 40;

/// Resources that count in shares. GPU work is that of the model times the part of the GPU that is taken.
pub const RESOURCES: [&str; 4] = ["gpu_work", "gpu_memory", "cpu", "ram"];

/// An amount of each of [`RESOURCES`].
pub type Bundle = [u128; RESOURCES.len()];

/// A renter's part of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Whose.
    pub renter: Account,
    /// Weight of the account.
    pub weight: u32,
    /// Share of the dominant resource divided by the weight, in 2^-40. What the order of service compares.
    pub fixed: u128,
    /// Share of the dominant resource in permille of the fleet, not weighted.
    pub permille: u64,
    /// The dominant resource.
    pub resource: &'static str,
    /// What is held, in the order of [`RESOURCES`].
    pub used: Bundle,
}

/// Place in the order of service: lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// A broken lease that waits again, by its age: it keeps the place it once had.
    Repair(LeaseId),
    /// By share; among equals the higher `max_rate` (none counts as the highest: any ask is accepted), then age.
    Share(u128, Reverse<u64>, LeaseId),
}

impl Turn {
    pub(crate) fn lease(self) -> LeaseId {
        match self {
            Self::Repair(id) | Self::Share(_, _, id) => id,
        }
    }
}

/// Who holds how much of what.
#[derive(Default)]
pub(crate) struct Shares {
    totals: Bundle,
    used: BTreeMap<Account, Bundle>,
    weights: BTreeMap<Account, u32>,
}

impl Shares {
    /// Adds up the fleet (nodes that are registered and have described themselves) and what leases hold of it.
    pub(crate) fn of(state: &State) -> Self {
        let mut shares = Self {
            totals: Bundle::default(),
            used: BTreeMap::new(),
            weights: state.policy.weights.iter().copied().collect(),
        };
        for node in state.nodes.values() {
            if let Some(spec) = node.spec.as_ref().filter(|_| node.provider.is_some()) {
                for gpu in &spec.gpus {
                    add(&mut shares.totals, piece(node, gpu.gpu, &Slot::Whole, 0, 0));
                }
                add(&mut shares.totals, [0, 0, spec.cpu_milli.into(), spec.ram_bytes.into()]);
            }
            for ((lease, _), held) in &node.held {
                if let Some(lease) = state.leases.get(lease) {
                    let taken = piece(node, held.gpu, &held.slot, held.cpu_milli, held.ram_bytes);
                    add(shares.used.entry(lease.request.renter).or_default(), taken);
                }
            }
        }
        shares
    }

    /// Notes a grant.
    pub(crate) fn take(&mut self, renter: Account, taken: Bundle) {
        add(self.used.entry(renter).or_default(), taken);
    }

    fn weight(&self, renter: Account) -> u32 {
        self.weights.get(&renter).copied().unwrap_or(1).max(1)
    }

    fn part(&self, resource: usize, used: &Bundle, scale: u128) -> u128 {
        let amount = used.get(resource).copied().unwrap_or_default();
        let total = self.totals.get(resource).copied().unwrap_or_default();
        amount.saturating_mul(scale).checked_div(total).unwrap_or_default()
    }

    /// Dominant share over weight, in 2^-40.
    pub(crate) fn fixed(&self, renter: Account) -> u128 {
        let none = Bundle::default();
        let used = self.used.get(&renter).unwrap_or(&none);
        let parts = (0..RESOURCES.len()).map(|resource| self.part(resource, used, 1 << FRACTION));
        parts.max().unwrap_or_default() / u128::from(self.weight(renter))
    }

    /// The turn of a waiting lease.
    pub(crate) fn turn(&self, id: LeaseId, lease: &Lease) -> Turn {
        if lease.attempt > 0 {
            return Turn::Repair(id);
        }
        let max_rate = lease.request.max_rate.map_or(u64::MAX, |rate| rate.0);
        Turn::Share(self.fixed(lease.request.renter), Reverse(max_rate), id)
    }
}

/// What a slot and what stands beside it take of each resource.
pub(crate) fn piece(node: &Node, gpu: GpuId, slot: &Slot, cpu_milli: u32, ram_bytes: u64) -> Bundle {
    let spec = node.spec.as_ref().and_then(|spec| spec.gpus.iter().find(|spec| spec.gpu == gpu));
    let (work, mem) = spec.map_or((0, 0), |spec| {
        let (permille, mem) = fleet::part_of(spec, slot);
        (u128::from(spec.work_milli) * u128::from(permille), u128::from(mem))
    });
    [work, mem, cpu_milli.into(), ram_bytes.into()]
}

/// As [`piece`], on a node named by its id.
pub(crate) fn piece_of(state: &State, node: NodeId, gpu: GpuId, slot: &Slot, beside: (u32, u64)) -> Bundle {
    state.nodes.get(&node).map_or(Bundle::default(), |node| piece(node, gpu, slot, beside.0, beside.1))
}

fn add(to: &mut Bundle, more: Bundle) {
    for (to, more) in to.iter_mut().zip(more) {
        *to = to.saturating_add(more);
    }
}

impl State {
    /// Every renter who holds or awaits something, lowest share first.
    #[must_use]
    pub fn shares(&self) -> Vec<Share> {
        let shares = Shares::of(self);
        let mut renters: Vec<Account> = shares.used.keys().copied().collect();
        let waiting = self.waiting.iter().filter_map(|id| self.leases.get(id));
        renters.extend(waiting.map(|lease| lease.request.renter));
        renters.sort_unstable();
        renters.dedup();
        let mut list: Vec<Share> = renters
            .into_iter()
            .map(|renter| {
                let used = shares.used.get(&renter).copied().unwrap_or_default();
                let parts =
                    RESOURCES.iter().enumerate().map(|(at, name)| (shares.part(at, &used, 1 << FRACTION), *name));
                // Of equal parts the first resource is named.
                let top = parts.reduce(|top, next| if next.0 > top.0 { next } else { top });
                let (part, resource) = top.unwrap_or_default();
                Share {
                    renter,
                    weight: shares.weight(renter),
                    fixed: shares.fixed(renter),
                    permille: u64::try_from((part * 1000) >> FRACTION).unwrap_or(u64::MAX),
                    resource,
                    used,
                }
            })
            .collect();
        list.sort_by_key(|share| (share.fixed, share.renter));
        list
    }
}
