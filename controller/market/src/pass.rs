//! The scheduling pass: in the order of service, whoever fits is granted, and the order is made anew after each grant.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use selion_api::lease::{LeaseState, NearestMiss};
use selion_api::{LeaseId, Reason};

use crate::effect::{Effect, Grant};
use crate::gang::{self, NoPlace};
use crate::ledger::Pocket;
use crate::money;
use crate::order::{self, Shares, Turn};
use crate::place::{self, Placed, Room, World};
use crate::request::{cost, uncovered};
use crate::state::{Held, Member, Progress, State};
use crate::step::{Step, Wake};

/// Most members placed in one step.
pub const MAX_PLACEMENTS: usize = 256;

/// What a pass has learnt so far.
struct Round {
    shares: Shares,
    /// Who has not been tried yet.
    queue: BTreeSet<Turn>,
    /// Wants that did not fit. Room only shrinks during a pass, so equal wants need not be tried again.
    hopeless: BTreeMap<Vec<u8>, NoPlace>,
    /// Whether anything waits for an agent to confirm a stop; looked up when first asked for.
    stops_pending: Option<bool>,
    placements: usize,
}

impl Step<'_> {
    /// Grants what can be granted, then tells everybody who still waits why, and at which place.
    pub(crate) fn pass(&mut self) {
        if self.wake == Wake::None || self.state.waiting.is_empty() {
            return;
        }
        let mut round = Round {
            // One alone is first whatever it holds.
            shares: if self.state.waiting.len() > 1 { Shares::of(self.state) } else { Shares::default() },
            queue: BTreeSet::new(),
            hopeless: BTreeMap::new(),
            stops_pending: None,
            placements: 0,
        };
        round.queue = turns(self.state, &round.shares);
        let mut told: BTreeMap<LeaseId, NoPlace> = BTreeMap::new();
        let queue = core::mem::take(&mut round.queue);
        round.queue = queue
            .into_iter()
            .filter(|turn| match self.wake {
                Wake::All => true,
                // Nothing came free since the others were tried.
                Wake::One(only) => turn.lease() == only,
                Wake::Order | Wake::None => false,
            })
            .collect();
        while let Some(turn) = round.queue.pop_first() {
            let id = turn.lease();
            let members = self.state.leases.get(&id).map_or(0, |lease| lease.request.members.len());
            if round.placements > 0 && round.placements + members > MAX_PLACEMENTS {
                self.more = true;
                told.insert(id, queued());
                told.extend(round.queue.iter().map(|turn| (turn.lease(), queued())));
                break;
            }
            match self.try_one(id, &mut round) {
                Ok(()) => {
                    round.placements += members;
                    let renter = self.state.leases.get(&id).map(|lease| lease.request.renter);
                    let moved =
                        |turn: &&Turn| self.state.leases.get(&turn.lease()).map(|lease| lease.request.renter) == renter;
                    let old: Vec<Turn> = round.queue.iter().filter(moved).copied().collect();
                    for turn in old {
                        round.queue.remove(&turn);
                        if let Some(lease) = self.state.leases.get(&turn.lease()) {
                            round.queue.insert(round.shares.turn(turn.lease(), lease));
                        }
                    }
                }
                Err(no_place) => {
                    told.insert(id, no_place);
                }
            }
        }
        self.tell_positions(&round.shares, &told);
    }

    fn tell_positions(&mut self, shares: &Shares, told: &BTreeMap<LeaseId, NoPlace>) {
        for (at, turn) in turns(self.state, shares).into_iter().enumerate() {
            let id = turn.lease();
            let Some(lease) = self.state.leases.get_mut(&id) else {
                continue;
            };
            let position = at as u64 + 1;
            let mut changed = lease.position != position;
            lease.position = position;
            if let Some(why) = told.get(&id) {
                changed |= lease.reason != Some(why.reason) || lease.nearest != why.nearest;
                lease.reason = Some(why.reason);
                lease.nearest.clone_from(&why.nearest);
            }
            if changed {
                self.touched.leases.insert(id);
            }
        }
    }

    fn try_one(&mut self, id: LeaseId, round: &mut Round) -> Result<(), NoPlace> {
        let plain = |reason| NoPlace { reason, nearest: None };
        if self.state.chain_broken {
            return Err(plain(Reason::ChainBroken));
        }
        if self.state.pool.as_ref().is_some_and(|pool| pool.epoch != self.state.fence.epoch) {
            // Authority has passed on: what is granted here could be paid by nobody.
            return Err(plain(Reason::StaleFence));
        }
        let Some(lease) = self.state.leases.get(&id) else {
            return Err(plain(Reason::NoSuchLease));
        };
        let request = &lease.request;
        // A lease that ran before may be barred from a node where its own old run still stops: it is tried by itself.
        let want = (lease.attempt == 0).then(|| {
            selion_api::commit::canonical(&(&request.members, request.min_nodes, request.max_rate, request.classes))
        });
        if let Some(known) = want.as_ref().and_then(|want| round.hopeless.get(want)) {
            return Err(known.clone());
        }
        let mut world = World { state: self.state, request, lease: Some(id), room: Room::Now, placed: Vec::new() };
        let placed = match gang::place(&mut world) {
            Ok(placed) => placed,
            Err(mut none) => {
                world.room = Room::Stopped;
                let pending = round.stops_pending.get_or_insert_with(|| stops_pending(self.state));
                if *pending && gang::place(&mut world).is_ok() {
                    none.reason = Reason::WaitsForStop;
                }
                if let Some(want) = want {
                    round.hopeless.insert(want, none.clone());
                }
                return Err(none);
            }
        };
        let total = cost(request, &placed);
        money::covers(self.state, request, total, self.at)
            .map_err(|short| NoPlace { reason: Reason::PaymentRequired, nearest: uncovered(&placed, short) })?;
        self.grant(id, &placed, total, round);
        Ok(())
    }

    /// Gives all members their slots and keeps the money, in one step.
    fn grant(&mut self, id: LeaseId, placed: &[Placed], total: selion_api::Amount, round: &mut Round) {
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return;
        };
        let renter = lease.request.renter;
        lease.attempt = lease.attempt.saturating_add(1);
        lease.reserved = total;
        lease.active_since = None;
        lease.members = placed.iter().map(member).collect();
        let attempt = lease.attempt;
        let wants = lease.request.members.clone();
        let until = self.at.plus(self.state.policy.hold_ms);
        self.enter(id, LeaseState::Held, None, Some(until));
        for (place, want) in placed.iter().zip(&wants) {
            if let Some(node) = self.state.nodes.get_mut(&place.node) {
                let held = Held {
                    attempt,
                    gpu: place.gpu,
                    slot: place.slot.clone(),
                    cpu_milli: want.cpu_milli,
                    ram_bytes: want.ram_bytes,
                    port: place.port,
                };
                node.held.insert((id, place.rank), held);
            }
            self.touched.nodes.insert(place.node);
            self.touched.desired.insert(place.node);
            let beside = (want.cpu_milli, want.ram_bytes);
            let taken = order::piece_of(self.state, place.node, place.gpu, &place.slot, beside);
            round.shares.take(renter, taken);
            self.emit(Effect::Granted(Grant {
                lease: id,
                attempt,
                member: place.rank,
                renter,
                provider: place.provider,
                node: place.node,
                gpu: place.gpu,
                slot: place.slot.clone(),
                class: place.class,
                rate: place.rate,
            }));
        }
        self.transfer(Pocket::Free(renter), Pocket::Reserved(renter), total);
    }
}

fn member(placed: &Placed) -> Member {
    Member {
        node: placed.node,
        provider: placed.provider,
        gpu: placed.gpu,
        slot: placed.slot.clone(),
        class: placed.class,
        rate: placed.rate,
        port: placed.port,
        progress: Progress::Granted,
        billable_ms: 0,
        vouched: selion_api::Amount::ZERO,
        vouched_at: selion_api::TimeMs(0),
        exit_code: None,
        outputs: None,
    }
}

fn queued() -> NoPlace {
    NoPlace { reason: Reason::Queued, nearest: None::<NearestMiss> }
}

fn turns(state: &State, shares: &Shares) -> BTreeSet<Turn> {
    let waiting = state.waiting.iter().filter_map(|id| Some((*id, state.leases.get(id)?)));
    waiting.map(|(id, lease)| shares.turn(id, lease)).collect()
}

fn stops_pending(state: &State) -> bool {
    let mut held = state.nodes.values().flat_map(|node| &node.held);
    held.any(|((lease, _), held)| place::stopping(state, *lease, held))
}
