//! Who can get something now. In a tree with groups an account that cannot is counted as it is and the others are
//! scaled, so this is known before anybody is chosen.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use selion_api::{Account, LeaseId, NodeId};

use crate::booking;
use crate::licence;
use crate::money;
use crate::order::Shares;
use crate::pass;
use crate::place::Placed;
use crate::request::cost;
use crate::state::{Lease, State};
use crate::tally::{Bundle, KINDS, dominant};

/// What is known of the accounts in line. Room only shrinks in a pass, so who found room keeps it until something is
/// taken there, and who found none never finds any.
#[derive(Default)]
pub(crate) struct Survey {
    /// Of each account its first lease that fits and can be paid, and the nodes where it was seen to fit.
    next: BTreeMap<Account, Option<(LeaseId, BTreeSet<NodeId>)>>,
    /// Wants by their bytes: where one was seen to fit, or `None` if it fits nowhere.
    wants: BTreeMap<Vec<u8>, Option<Vec<Placed>>>,
    /// Resources that dominate an ask that was seen not to fit.
    short: [bool; KINDS],
    /// True while nobody's next has to be looked for again.
    settled: bool,
}

/// Why a lease cannot be granted now.
enum Not {
    Room,
    /// Money, or a seat of its licence: what is its renter's own affair.
    Means,
}

impl Survey {
    /// A lease was tried in vain.
    pub(crate) fn failed(&mut self, renter: Account, id: LeaseId) {
        if self.next.get(&renter).is_some_and(|next| next.as_ref().is_some_and(|next| next.0 == id)) {
            self.next.remove(&renter);
            self.settled = false;
        }
    }

    /// The leases of an account in line changed, and slots of these nodes were taken.
    pub(crate) fn changed(&mut self, renter: Account, nodes: &BTreeSet<NodeId>) {
        self.next.remove(&renter);
        self.next.retain(|_, next| next.as_ref().is_none_or(|(_, at)| at.is_disjoint(nodes)));
        self.wants.retain(|_, at| at.as_ref().is_none_or(|at| nodes_of(at).is_disjoint(nodes)));
        self.settled = false;
    }

    /// Looks at `line`, the leases still to be tried in their order, and tells the tree who can get what. True if the
    /// order is to be made anew.
    pub(crate) fn update(&mut self, state: &State, shares: &mut Shares, line: impl Iterator<Item = LeaseId>) -> bool {
        if !shares.grouped() || self.settled {
            return false;
        }
        let mut by_account: BTreeMap<Account, Vec<LeaseId>> = BTreeMap::new();
        for id in line {
            if let Some(lease) = state.leases.get(&id) {
                by_account.entry(lease.request.renter).or_default().push(id);
            }
        }
        self.next.retain(|account, _| by_account.contains_key(account));
        for (account, ids) in &by_account {
            if !self.next.contains_key(account) {
                let next = ids.iter().find_map(|id| Some((*id, self.room_for(state, &shares.totals, *id)?)));
                self.next.insert(*account, next);
            }
        }
        self.tell(state, shares);
        self.settled = true;
        true
    }

    /// A resource is saturated if an ask that it dominates does not fit, and nobody's next is dominated by it.
    fn tell(&self, state: &State, shares: &mut Shares) {
        let mut saturated = self.short;
        shares.tree.block_all();
        for (account, next) in &self.next {
            let lease = next.as_ref().and_then(|(id, _)| state.leases.get(id));
            if let Some(lease) = lease {
                if let Some(short) = saturated.get_mut(dominant(&shares.totals, &lease.size)) {
                    *short = false;
                }
                shares.ask(*account, &lease.size);
            }
        }
        shares.tree.saturate(saturated);
        shares.tree.refresh();
        if self.next.values().all(Option::is_none) {
            shares.at_rest(state);
        }
    }

    /// Where a lease can be granted now; what falls short otherwise is noted.
    fn room_for(&mut self, state: &State, totals: &Bundle, id: LeaseId) -> Option<BTreeSet<NodeId>> {
        let lease = state.leases.get(&id)?;
        match self.fits(state, id, lease) {
            Ok(nodes) => Some(nodes),
            Err(Not::Means) => None,
            Err(Not::Room) => {
                if let Some(short) = self.short.get_mut(dominant(totals, &lease.size)) {
                    *short = true;
                }
                None
            }
        }
    }

    fn fits(&mut self, state: &State, id: LeaseId, lease: &Lease) -> Result<BTreeSet<NodeId>, Not> {
        let request = &lease.request;
        licence::seats(state, Some(id), request).map_err(|_| Not::Means)?;
        let want = pass::want(lease);
        let known = want.as_ref().and_then(|want| self.wants.get(want)).cloned();
        let placed = known.unwrap_or_else(|| {
            // What is known for others with an equal want is known of the required members only: how many more there
            // are is a matter of who pays.
            let required = request.min_members.into();
            let placed = booking::place_now(state, Some(id), request).ok();
            let placed = placed.map(|now| now.placed.into_iter().take(required).collect::<Vec<_>>());
            if let Some(want) = want {
                self.wants.insert(want, placed.clone());
            }
            placed
        });
        let placed = placed.ok_or(Not::Room)?;
        money::covers(state, request, cost(&state.policy, request, &placed), state.now).map_err(|_| Not::Means)?;
        Ok(nodes_of(&placed))
    }
}

fn nodes_of(placed: &[Placed]) -> BTreeSet<NodeId> {
    placed.iter().map(|placed| placed.node).collect()
}
