//! What the market knows, as JSON: shares and candidates.

use std::collections::BTreeMap;

use selion_api::lease::LeaseState;
use selion_api::rest::{Candidate, GroupView, ShareView, SharesView};
use selion_api::{Account, LeaseId};
use selion_market::State;

/// Accounts with leases, in the order of service, and the groups that they are in.
pub(super) fn shares(state: &State) -> SharesView {
    let mut counts: BTreeMap<Account, (u64, u64)> = BTreeMap::new();
    for lease in state.leases.values() {
        let (live, waiting) = counts.entry(lease.request.renter).or_default();
        match lease.state {
            LeaseState::Waiting => *waiting += 1,
            LeaseState::Ended => {}
            _ => *live += 1,
        }
    }
    let share = |share: selion_market::shares::Share| {
        let (live, waiting) = counts.get(&share.renter).copied().unwrap_or_default();
        ShareView {
            account: share.renter,
            group: share.group,
            weight: share.weight,
            dominant_share_ppm: share.ppm,
            dominant_resource: share.resource.to_owned(),
            live,
            waiting,
        }
    };
    let group = |group: selion_market::shares::GroupShare| GroupView {
        path: group.path,
        weight: group.weight,
        quota_permille: group.quota_permille,
        gpu_work_permille: group.work_permille,
        dominant_share_ppm: group.ppm,
    };
    SharesView {
        shares: state.shares().into_iter().map(share).collect(),
        groups: state.group_shares().into_iter().map(group).collect(),
    }
}

/// Every GPU of the pool, judged for every different member; `None` if State has forgotten the lease.
pub(super) fn candidates(state: &State, id: LeaseId) -> Option<Vec<Candidate>> {
    state.leases.get(&id)?;
    let judged = state.candidates(id).into_iter();
    Some(
        judged
            .filter_map(|one| {
                let (member, node, gpu) = (one.member, one.node, one.gpu?);
                Some(match one.verdict {
                    Ok(offered) => Candidate {
                        member,
                        node,
                        gpu,
                        slot: Some(offered.slot),
                        rate: Some(offered.rate),
                        reason: None,
                    },
                    Err(miss) => Candidate { member, node, gpu, slot: None, rate: None, reason: Some(miss.reason) },
                })
            })
            .collect(),
    )
}
