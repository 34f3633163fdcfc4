//! What a guaranteed quota is worth when the pool is full: a lease within the quota of its group may have leases of its
//! own class stopped, of accounts that stay within no quota of theirs. Leases of lower classes it may stop anyway; firm
//! ones are never stopped.
//!
//! Why this ends, together with [`preempt`](crate::preempt). Count for each class `c` and each group what its leases of
//! class `c` and above hold of its quota, and no more than the quota; add that up by the depth of groups. Starting a lease
//! of class `c` within the quota of a group raises the sum of its depth. Those who are stopped for it are not below that
//! group, and every group above them that is not above it as well keeps its quota full without them, from leases of their
//! class and above alone: so no sum of that depth or deeper falls, for class `c` or any above it. Stopping for a higher
//! class changes no sum of that class but up, and one more lease of it runs. So the sums and the numbers of leases, the
//! highest class first, the sums before the number and the deepest first, only rise in the order of a dictionary, and they
//! are bounded.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use selion_api::LeaseId;
use selion_api::lease::Priority;

use crate::order::{Shares, is_broken};
use crate::place::stopping;
use crate::state::{Lease, State};
use crate::tally;

/// Who may be stopped within the quota of a group.
pub(crate) struct Claim {
    shares: Shares,
    /// The deepest group that a lease is within the quota of.
    group: usize,
    /// What is held below each group by leases of the claim's class and above, in the unit of GPU work.
    used: Vec<u128>,
    /// What each lease of the claim's class and above holds.
    work: BTreeMap<LeaseId, u128>,
}

/// True if quotas count for leases of this class at all.
pub(crate) fn count_for(state: &State, class: Priority) -> bool {
    class < Priority::Firm && state.policy.groups.iter().any(|group| group.quota_permille > 0)
}

/// True if a waiting lease is within a quota, and the one that is booked in its class is within none.
pub(crate) fn outranks_booking(state: &State, shares: &Shares, lease: &Lease) -> bool {
    let class = lease.request.priority;
    let booked = state.booking.as_ref().and_then(|booking| state.leases.get(&booking.lease));
    count_for(state, class)
        && shares.guaranteed(lease).is_some()
        && booked.is_some_and(|other| {
            other.request.priority == class && !is_broken(other) && shares.guaranteed(other).is_none()
        })
}

impl Claim {
    /// The claim of a waiting lease; `None` if no group above its account has so much left of its quota.
    pub(crate) fn of(state: &State, lease: &Lease) -> Option<Self> {
        let class = lease.request.priority;
        if !count_for(state, class) {
            return None;
        }
        let shares = Shares::of(state);
        let group = shares.guaranteed(lease)?;
        let mut used = alloc::vec![0_u128; shares.branches.len()];
        let mut work: BTreeMap<LeaseId, u128> = BTreeMap::new();
        for ((id, rank), held, more) in tally::works(state) {
            // What is being stopped fills nobody's quota any more.
            let low = state.leases.get(&id).is_none_or(|lease| lease.request.priority < class);
            if low || stopping(state, id, rank, held) {
                continue;
            }
            let of = work.entry(id).or_default();
            *of = of.saturating_add(more);
            for at in shares.stands.get(&held.renter).iter().flat_map(|stand| &stand.groups) {
                if let Some(used) = used.get_mut(*at) {
                    *used = used.saturating_add(more);
                }
            }
        }
        Some(Self { shares, group, used, work })
    }

    /// Takes a lease of the claim's class away, if it may be stopped beside those that were taken away before.
    pub(crate) fn take(&mut self, id: LeaseId, lease: &Lease) -> bool {
        let Some(stand) = self.shares.stands.get(&lease.request.renter) else {
            return false;
        };
        if stand.groups.contains(&self.group) {
            return false;
        }
        let here = |at: &&usize| !self.shares.is_above(**at, self.group);
        let own: Vec<usize> = stand.groups.iter().filter(here).copied().collect();
        let work = self.work.get(&id).copied().unwrap_or(0);
        let left = |at: usize| self.used.get(at).copied().unwrap_or(0).saturating_sub(work);
        if !own.iter().all(|at| self.shares.keeps_quota(*at, left(*at))) {
            return false;
        }
        for at in own {
            if let Some(used) = self.used.get_mut(at) {
                *used = used.saturating_sub(work);
            }
        }
        true
    }
}
