//! Who has how much of the pool, for those who ask.

use alloc::string::String;
use alloc::vec::Vec;

use selion_api::Account;

use crate::fair::{ONE, Path, part};
use crate::order::Shares;
use crate::state::State;
use crate::tally::{Bundle, RESOURCES};

/// A renter's part of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Whose.
    pub renter: Account,
    /// Path of its group; empty under the root.
    pub group: String,
    /// Its weight among its siblings.
    pub weight: u32,
    /// Part of the dominant resource divided by the weight, in millionths; past use counts where the policy has a
    /// half-life.
    pub ppm: u64,
    /// Part of the dominant resource in permille of the fleet, by what is held now, not weighted.
    pub permille: u64,
    /// The dominant resource of what is held now.
    pub resource: &'static str,
    /// What is held, in the order of [`RESOURCES`].
    pub used: Bundle,
    /// The fading mean of what was held.
    pub past: Bundle,
}

/// A group's part of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupShare {
    /// Names from the top, joined by `/`.
    pub path: String,
    /// Its weight among its siblings.
    pub weight: u32,
    /// Guaranteed part of the GPU work of the pool, in permille.
    pub quota_permille: u16,
    /// What its accounts hold of the GPU work of the pool, in permille.
    pub work_permille: u64,
    /// Its share in millionths, as it is compared with its siblings while nothing comes free.
    pub ppm: u64,
}

impl State {
    /// Every renter who holds or awaits something, or did while its past counts: in the order of service by shares
    /// alone, as it is while nobody can get anything.
    #[must_use]
    pub fn shares(&self) -> Vec<Share> {
        let shares = Shares::of_all(self);
        let mut list: Vec<(Path, Share)> = shares
            .stands
            .iter()
            .map(|(renter, stand)| {
                let parts = stand.held.iter().zip(&shares.totals).map(|(held, total)| part(*held, *total));
                // Of equal parts the first resource is named.
                let top = parts.zip(RESOURCES).reduce(|top, next| if next.0 > top.0 { next } else { top });
                let (part, resource) = top.unwrap_or_default();
                let branch = stand.groups.last().and_then(|at| shares.branches.get(*at));
                let share = Share {
                    renter: *renter,
                    group: branch.map_or(String::new(), |branch| branch.path.clone()),
                    weight: stand.weight,
                    ppm: in_units(dominant(&stand.weighs(), &shares.totals) / u64::from(stand.weight), 1_000_000),
                    permille: in_units(part, 1000),
                    resource,
                    used: stand.held,
                    past: stand.past,
                };
                (shares.tree.path(stand.leaf), share)
            })
            .collect();
        list.sort_by_key(|(path, share)| (*path, share.renter));
        list.into_iter().map(|(_, share)| share).collect()
    }

    /// Every group of the policy, by path.
    #[must_use]
    pub fn group_shares(&self) -> Vec<GroupShare> {
        let shares = Shares::of_all(self);
        let [total, ..] = shares.totals;
        let share = |branch: &crate::order::Branch| {
            let [work, ..] = branch.held;
            GroupShare {
                path: branch.path.clone(),
                weight: branch.weight,
                quota_permille: branch.quota_permille,
                work_permille: in_units(part(work, total), 1000),
                ppm: in_units(shares.tree.share(branch.twig), 1_000_000),
            }
        };
        shares.branches.iter().map(share).collect()
    }
}

fn dominant(held: &Bundle, totals: &Bundle) -> u64 {
    held.iter().zip(totals).map(|(held, total)| part(*held, *total)).max().unwrap_or(0)
}

/// Rounded to the nearest.
fn in_units(part: u64, units: u64) -> u64 {
    let half = u128::from(ONE / 2);
    u64::try_from((u128::from(part) * u128::from(units) + half) / u128::from(ONE)).unwrap_or(u64::MAX)
}
