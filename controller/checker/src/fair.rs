//! Whose turn it is by fairness: of two renters the one who comes first. One place.
//!
//! Weighted dominant resource fairness: of GPU work, GPU memory and what stands beside GPUs the largest part of the fleet
//! that a renter holds, divided by his weight, in 2^-40. Between renters of one group that decides. What a group counts
//! as hangs on which of its renters can get something now, and that is the engine's affair: here it is only known who
//! waits, so for groups a least and a most is worked out, and a group comes before another if its most is below the
//! other's least. Where past use counts, only quotas are judged.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use selion_api::lease::{Beside, LeaseState};
use selion_api::{Account, LeaseId, Slot, TimeMs};
use selion_market::Policy;

use crate::bundle::{self, Bundle, add, bundle, dominant, part, with};
use crate::fleet::Fleet;
use crate::leases::Lease;

/// After this long an ended lease may be forgotten by the engine, with what it still holds: a day in milliseconds.
const FORGOTTEN_MS: u64 = 86_400_000;
/// Parts are rounded down once or twice; what lies closer than this is not told apart.
const ROUNDING: u128 = 4;
/// Most names in the path of a group that count.
const DEEPEST: usize = 3;

/// A place in the tree of accounts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Twig<'s> {
    Group(&'s str),
    Renter(Account),
}

impl<'s> Twig<'s> {
    /// The twig of a renter at a depth: one of the groups above him, or himself.
    fn under(renter: Account, above: &'s [String], depth: usize) -> Self {
        above.get(depth).map_or(Self::Renter(renter), |path| Self::Group(path))
    }
}

/// The least that a twig can count as: of one resource, and as a share over its weight.
struct Least {
    part: u128,
    share: u128,
    /// Somebody in it waits, and may get something.
    open: bool,
}

/// Who holds how much, at one moment.
pub(crate) struct Shares {
    totals: Bundle,
    used: BTreeMap<Account, Bundle>,
    /// Who holds or awaits something.
    known: BTreeSet<Account>,
    waits: BTreeSet<Account>,
    /// Weight of each account that has a seat, and the groups above it, the top one first.
    seats: BTreeMap<Account, (u32, Vec<String>)>,
    /// Weight and quota in permille of each group, by path.
    groups: BTreeMap<String, (u32, u16)>,
    /// Past use counts too.
    past: bool,
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

/// The paths of a group and of those above it, the top one first.
pub(crate) fn paths(path: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in path.split('/').filter(|name| !name.is_empty()).take(DEEPEST) {
        let next = all.last().map_or_else(|| name.into(), |above| [above.as_str(), name].join("/"));
        all.push(next);
    }
    all
}

impl Shares {
    pub(crate) fn of(fleet: &Fleet, leases: &BTreeMap<LeaseId, Lease>, policy: &Policy, now: TimeMs) -> Self {
        let waiting = leases.values().filter(|lease| lease.state == LeaseState::Waiting);
        let waits: BTreeSet<Account> = waiting.map(|lease| lease.request.renter).collect();
        let mut shares = Self {
            totals: Bundle::default(),
            used: BTreeMap::new(),
            known: waits.clone(),
            waits,
            seats: BTreeMap::new(),
            groups: BTreeMap::new(),
            past: policy.half_life_ms > 0,
            unclear: BTreeSet::new(),
        };
        for group in &policy.groups {
            for path in paths(&group.path) {
                shares.groups.entry(path).or_insert((1, 0));
            }
        }
        for group in &policy.groups {
            if let Some(own) = paths(&group.path).last().and_then(|path| shares.groups.get_mut(path)) {
                *own = (group.weight.max(1), group.quota_permille);
            }
        }
        for seat in &policy.accounts {
            let above = paths(&seat.group).into_iter().filter(|path| shares.groups.contains_key(path)).collect();
            shares.seats.insert(seat.account, (seat.weight.max(1), above));
        }
        for machine in fleet.machines.values() {
            if let Some(spec) = machine.spec.as_ref().filter(|_| machine.owner.is_some()) {
                for gpu in &spec.gpus {
                    add(&mut shares.totals, bundle(Some(gpu), &Slot::Whole, Beside::default()));
                }
                add(&mut shares.totals, with([0, 0], spec.beside()));
            }
            for taken in &machine.taken {
                shares.take(taken.renter, bundle::held(machine.spec.as_ref(), taken));
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
        self.known.insert(renter);
        add(self.used.entry(renter).or_default(), taken);
    }

    /// GPU work of the fleet.
    pub(crate) fn total_work(&self) -> u128 {
        let [work, ..] = self.totals;
        work
    }

    fn seat(&self, renter: Account) -> (u32, &[String]) {
        self.seats.get(&renter).map_or((1, &[]), |(weight, above)| (*weight, above))
    }

    fn held(&self, renter: Account) -> Bundle {
        self.used.get(&renter).copied().unwrap_or_default()
    }

    /// Dominant share over weight, in 2^-40.
    pub(crate) fn key(&self, renter: Account) -> u128 {
        self.most(Twig::Renter(renter))
    }

    /// What comes first by quota and share, of two renters who want the same, as large as `size` says if that is known.
    pub(crate) fn between(&self, first: Account, second: Account, size: Option<Bundle>) -> Between {
        let quotas = self.groups.values().any(|(_, quota)| *quota > 0);
        if first == second {
            // Of different size, one may be within a quota and the other not.
            return if quotas && size.is_none() { Between::Unclear } else { Between::Same };
        }
        let groups = !self.groups.is_empty();
        if (groups && !self.unclear.is_empty()) || self.unclear.contains(&first) || self.unclear.contains(&second) {
            return Between::Unclear;
        }
        if quotas {
            let Some(size) = size else {
                return Between::Unclear;
            };
            match (self.is_guaranteed(first, size), self.is_guaranteed(second, size)) {
                (true, false) => return Between::Before,
                (false, true) => return Between::Unclear,
                _ => {}
            }
        }
        if self.past {
            return Between::Unclear;
        }
        let ((weight, above), (other, beside)) = (self.seat(first), self.seat(second));
        if above == beside && (self.held(first), weight) == (self.held(second), other) {
            return Between::Same;
        }
        let shared = above.iter().zip(beside).take_while(|(a, b)| a == b).count();
        let most = self.most(Twig::under(first, above, shared));
        let least = match (Twig::under(second, beside, shared), size) {
            (Twig::Renter(renter), _) => self.key(renter),
            // Of what the one who is served wants there is some left, so it counts in groups.
            (group, Some(size)) => self.least(group, dominant(size, self.totals)).share,
            (_, None) => 0,
        };
        if most.saturating_add(ROUNDING) < least { Between::Before } else { Between::Unclear }
    }

    /// True if a group above the renter stays within its quota with so much more.
    fn is_guaranteed(&self, renter: Account, [more, ..]: Bundle) -> bool {
        let [total, ..] = self.totals;
        self.seat(renter).1.iter().any(|path| {
            let quota = self.groups.get(path).map_or(0, |(_, quota)| u128::from(*quota));
            let [held, ..] = self.sum(Twig::Group(path));
            quota > 0 && held.saturating_add(more).saturating_mul(1_000) <= total.saturating_mul(quota)
        })
    }

    fn weight(&self, twig: Twig<'_>) -> u128 {
        u128::from(match twig {
            Twig::Group(path) => self.groups.get(path).map_or(1, |(weight, _)| *weight),
            Twig::Renter(renter) => self.seat(renter).0,
        })
    }

    /// What all below a twig hold.
    fn sum(&self, twig: Twig<'_>) -> Bundle {
        let mut sum = Bundle::default();
        let below = |renter: &&Account| match twig {
            Twig::Group(path) => self.seat(**renter).1.iter().any(|above| above == path),
            Twig::Renter(only) => **renter == only,
        };
        self.known.iter().filter(below).for_each(|renter| add(&mut sum, self.held(*renter)));
        sum
    }

    /// The largest share that a twig can have: nobody is scaled down, and every resource counts.
    fn most(&self, twig: Twig<'_>) -> u128 {
        let parts = self.sum(twig).into_iter().zip(self.totals).map(|(held, total)| part(held, total));
        parts.max().unwrap_or(0) / self.weight(twig)
    }

    /// The least of `kind` that a twig can count as: everybody in it who waits is scaled down to the least of them.
    fn least(&self, twig: Twig<'_>, kind: usize) -> Least {
        let path = match twig {
            Twig::Group(path) => path,
            Twig::Renter(renter) => {
                let held = self.held(renter).into_iter().zip(self.totals).nth(kind);
                let part = held.map_or(0, |(held, total)| part(held, total));
                return Least { part, share: self.most(twig), open: self.waits.contains(&renter) };
            }
        };
        let is_child = |other: &&String| other.rsplit_once('/').is_some_and(|(above, _)| above == path);
        let groups = self.groups.keys().filter(is_child).map(|path| Twig::Group(path));
        let renters = self.known.iter().filter(|renter| self.seat(**renter).1.last().is_some_and(|last| last == path));
        let below: Vec<(Twig<'_>, Least)> = groups
            .chain(renters.map(|renter| Twig::Renter(*renter)))
            .map(|twig| (twig, self.least(twig, kind)))
            .collect();
        let open = || below.iter().filter(|(_, least)| least.open);
        let floor = open().map(|(_, least)| least.share).min().unwrap_or(0);
        let counts = below.iter().map(|(twig, least)| match self.most(*twig) {
            share if least.open && floor < share => least.part.saturating_mul(floor) / share,
            _ => least.part,
        });
        let part: u128 = counts.sum();
        Least { part, share: part / self.weight(twig), open: open().next().is_some() }
    }
}
