//! Who waits, and who of them comes before whom. Only leases that ask for the same are compared: between those nothing
//! but the order of service can decide.

use alloc::collections::{BTreeMap, BTreeSet};

use selion_api::lease::{OnNodeLoss, Priority};
use selion_api::{Account, Hash32, LeaseId, LeaseRequest};

use crate::fair::Between;
use crate::leases::Lease;

/// Leases that wait, by what they ask for.
#[derive(Clone, Default)]
pub(crate) struct Line {
    waiting: BTreeMap<Hash32, BTreeSet<LeaseId>>,
}

/// The fingerprint of a request without what does not bear on where, when and for how much it can be served.
pub(crate) fn alike(request: &LeaseRequest) -> Hash32 {
    let bare = LeaseRequest {
        renter: Account::ZERO,
        work: Hash32::ZERO,
        wait_ms: 0,
        on_node_loss: OnNodeLoss::End,
        priority: Priority::Standard,
        ..request.clone()
    };
    bare.body() // without its `idem`
}

impl Line {
    pub(crate) fn join(&mut self, id: LeaseId, lease: &Lease) {
        self.waiting.entry(lease.alike).or_default().insert(id);
    }

    pub(crate) fn leave(&mut self, id: LeaseId, lease: &Lease) {
        if let Some(those) = self.waiting.get_mut(&lease.alike) {
            those.remove(&id);
            if those.is_empty() {
                self.waiting.remove(&lease.alike);
            }
        }
    }

    /// Those who wait for the same as `id`.
    pub(crate) fn beside(&self, id: LeaseId, lease: &Lease) -> impl Iterator<Item = LeaseId> {
        self.waiting.get(&lease.alike).into_iter().flatten().copied().filter(move |other| *other != id)
    }
}

/// True if `first` is to be served before `second`, who asks for the same: the higher class; in it who has the
/// booking; then the repair of what was broken; then who is within a quota; then the smaller share; then age.
pub(crate) fn comes_before(
    (first, one): (LeaseId, &Lease),
    (second, other): (LeaseId, &Lease),
    booked: Option<LeaseId>,
    between: Between,
) -> bool {
    if one.request.priority != other.request.priority {
        return one.request.priority > other.request.priority;
    }
    if booked == Some(first) || booked == Some(second) {
        return booked == Some(first);
    }
    match (one.attempt > 0, other.attempt > 0) {
        (true, false) => one.is_broken(),
        (false, false) => match between {
            Between::Before => true,
            Between::Same => first < second,
            Between::Unclear => false,
        },
        _ => false,
    }
}
