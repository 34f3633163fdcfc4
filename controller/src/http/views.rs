//! What the market knows, as JSON: shares, candidates and quotes.

use std::collections::BTreeMap;

use selion_api::lease::{LeaseState, Refusal};
use selion_api::rest::{
    Candidate, FragmentationView, GroupView, LeaseOutput, Quote, QuotedPlace, QuotedPrice, ShareView, SharesView,
    StagedView,
};
use selion_api::{Account, LeaseId, Rate, Reason, TimeMs};
use selion_market::dry_run::{Place, Price};
use selion_market::{DryRun, State};

use crate::store::output::Told;

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

/// Outputs as their renter sees them at `now`.
pub(super) fn outputs(told: &[Told], now: TimeMs) -> Vec<LeaseOutput> {
    told.iter().map(|one| one.view(now)).collect()
}

/// Every GPU of the pool, judged for every different member; for one of several GPUs every node, by model. `None` if
/// the lease is over.
pub(super) fn candidates(state: &State, id: LeaseId) -> Option<Vec<Candidate>> {
    state.leases.get(&id).filter(|lease| lease.state != LeaseState::Ended)?;
    let judged = state.candidates(id).into_iter();
    Some(
        judged
            .map(|one| {
                let (member, node, gpus) = (one.member, one.node, one.gpus);
                match one.verdict {
                    Ok(offered) => Candidate {
                        member,
                        node,
                        gpus,
                        slot: Some(offered.slot),
                        rate: Some(offered.rate),
                        reason: None,
                    },
                    Err(miss) => Candidate { member, node, gpus, slot: None, rate: None, reason: Some(miss.reason) },
                }
            })
            .collect(),
    )
}

/// What a dry run told of a request with so many datasets.
///
/// # Errors
///
/// The refusal that the request would get.
pub(super) fn quote(told: DryRun, datasets: usize) -> Result<Quote, Refusal> {
    match told {
        DryRun::Starts { price: of, places } => {
            let places = places.into_iter().map(|one| place(one, datasets)).collect();
            Ok(Quote::Start { price: price(of), places })
        }
        DryRun::Waits { least, position, reason, nearest, starts, blocking } => Ok(Quote::Wait {
            price: price(least),
            position,
            reason: reason.unwrap_or(Reason::Queued),
            nearest,
            starts_ms: starts,
            blocking,
        }),
        DryRun::Refused(refusal) => Err(refusal),
    }
}

fn price(price: Price) -> QuotedPrice {
    QuotedPrice { total: price.total, reserve: price.reserve, hourly: price.hourly, operator_fee: price.fee }
}

fn place(place: Place, datasets: usize) -> QuotedPlace {
    QuotedPlace {
        rank: place.rank,
        node: place.node,
        provider: place.provider,
        gpus: place.gpus,
        slot: place.slot,
        class: place.class,
        rate: place.rate,
        surcharge: place.surcharge,
        fragmentation: FragmentationView {
            destroys: place.effect.destroys,
            of: place.effect.of,
            shadow_rate: place.effect.shadow,
            charged: place.surcharge > Rate::ZERO,
        },
        datasets: StagedView { staged: place.staged, of: u16::try_from(datasets).unwrap_or(u16::MAX) },
    }
}
