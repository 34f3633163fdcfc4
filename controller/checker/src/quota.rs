//! Guaranteed quotas, added up from what stands on the machines. They say who may be stopped for a lease of its own
//! class.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use selion_api::{Account, LeaseId};
use selion_market::Policy;

use crate::bundle;
use crate::check::Checker;
use crate::fair::{Shares, paths};
use crate::fleet::Run;
use crate::leases::Lease;

/// The groups above an account, the top one first, by path.
fn groups_of(policy: &Policy, account: Account) -> Vec<String> {
    let seat = policy.accounts.binary_search_by_key(&account, |seat| seat.account).ok();
    let group = seat.and_then(|at| policy.accounts.get(at)).map_or("", |seat| seat.group.as_str());
    paths(group)
}

/// Quotas by path, in permille; of a path that is listed twice the last one counts.
fn quotas(policy: &Policy) -> BTreeMap<String, u128> {
    let listed = policy.groups.iter().filter_map(|group| Some((paths(&group.path).pop()?, group.quota_permille)));
    listed.map(|(path, quota)| (path, quota.into())).collect()
}

impl Checker {
    /// True if the account of `by` is within a quota that `id` is not below, and each group above `id` that is not above
    /// `by` has its quota full without `id` and `gone`, from leases of its class and above.
    pub(crate) fn may_give_way(&self, id: LeaseId, by: LeaseId, gone: &BTreeSet<LeaseId>) -> bool {
        let (Some(lease), Some(taker)) = (self.leases.get(&id), self.leases.get(&by)) else {
            return false;
        };
        let total = Shares::of(&self.fleet, &self.leases, &self.policy, self.now).total_work();
        let quotas = quotas(&self.policy);
        let (own, others) =
            (groups_of(&self.policy, lease.request.renter), groups_of(&self.policy, taker.request.renter));
        let permille_of = |group: &String| quotas.get(group).copied().unwrap_or(0);
        let quota = |group: &String| total.saturating_mul(permille_of(group));
        let work = |group: &String, counts: &dyn Fn(Run) -> bool| -> u128 {
            let machines = self.fleet.machines.values();
            let taken = machines.flat_map(|machine| machine.taken.iter().map(move |taken| (machine, taken)));
            let below =
                taken.filter(|(_, taken)| counts(taken.run) && groups_of(&self.policy, taken.renter).contains(group));
            let works = below.map(|(machine, taken)| {
                let [work, ..] = bundle::held(machine.spec.as_ref(), taken);
                work
            });
            works.fold(0_u128, u128::saturating_add).saturating_mul(1000)
        };
        let class = lease.request.priority;
        let stays = |run: Run| {
            let other = run.0;
            let runs = |known: &Lease| known.is_running() && known.runs(run);
            let known = self.leases.get(&other).filter(|known| runs(known) && known.request.priority >= class);
            other != id && !gone.contains(&other) && known.is_some()
        };
        let entitled = |group: &&String| permille_of(group) > 0 && work(group, &|_| true) <= quota(group);
        others.iter().filter(|group| !own.contains(group)).any(|group| entitled(&group))
            && own.iter().filter(|group| !others.contains(group)).all(|group| work(group, &stays) >= quota(group))
    }
}
