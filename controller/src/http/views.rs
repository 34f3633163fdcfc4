//! What the market knows, as JSON: shares and candidates.

use selion_api::LeaseId;
use selion_api::lease::LeaseState;
use selion_api::rest::{Candidate, ShareView};
use selion_market::State;

/// Binary digits after the point of the market's shares.
const FRACTION: u32 = 40;

/// Accounts with leases, in the order of service.
pub(super) fn shares(state: &State) -> Vec<ShareView> {
    let mut shares = state.shares();
    shares.sort_by_key(|share| (share.fixed, share.renter));
    let count = |of: &selion_market::order::Share, waiting: bool| {
        let mine = state.leases.values().filter(|lease| lease.request.renter == of.renter);
        let in_state = |state| (state == LeaseState::Waiting) == waiting && state != LeaseState::Ended;
        mine.filter(|lease| in_state(lease.state)).count() as u64
    };
    shares
        .iter()
        .map(|share| ShareView {
            account: share.renter,
            weight: share.weight,
            dominant_share_ppm: u64::try_from((share.fixed.saturating_mul(1_000_000)) >> FRACTION).unwrap_or(u64::MAX),
            dominant_resource: share.resource.to_owned(),
            live: count(share, false),
            waiting: count(share, true),
        })
        .collect()
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
