//! Lies about seats: grants without one, and grants past who had one.

use selion_api::chain::ChainEvent;
use selion_api::lease::{LeaseState, OnNodeLoss, Priority};
use selion_api::{Account, Hash32, LeaseId, LeaseRequest, Licence, SliceWant, TimeMs};
use selion_checker::Rule;
use selion_market::{Effect, Input, Policy};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, renter, share, spec};
use crate::tape::Tape;
use crate::turns::{states, swap, whole};

const SOLVER: Licence = Licence { issuer: Account([0x15; 20]), product: Hash32([7; 32]) };

fn set(holder: u8, seats: u32, until: u64) -> ChainEvent {
    let Licence { issuer, product } = SOLVER;
    ChainEvent::LicenceSet { issuer, holder: renter(holder), product, seats, until: TimeMs(until) }
}

fn licensed(request: LeaseRequest) -> LeaseRequest {
    LeaseRequest { licence: Some(SOLVER), ..request }
}

/// Renter 1 may run two members for a long time, and has three such leases on two GPUs, the last of which waits.
fn granted() -> (Tape, [LeaseId; 3]) {
    let mut pool = Pool::small();
    pool.node(spec(2, vec![a100(2, 0)]));
    pool.block(vec![set(1, 2, u64::MAX)]);
    let small = || licensed(ask(renter(1), &[share(100, 4)]));
    let leases = [pool.lease(small()), pool.lease(small()), pool.lease(small())];
    assert_eq!(pool.state_of(leases[2]), LeaseState::Waiting);
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    (tape, leases)
}

/// What the chain said of seats is that instead.
fn said(tape: &mut Tape, event: ChainEvent) {
    for leaf in &mut tape.0 {
        if let Input::Block(block) = &mut leaf.input {
            let seats = block.events.iter_mut().filter(|event| matches!(event, ChainEvent::LicenceSet { .. }));
            seats.for_each(|one| *one = event.clone());
        }
    }
}

#[test]
fn more_members_than_seats_are_seen_where_the_first_too_many_begins() {
    let (mut tape, [one, two, _]) = granted();
    let (first, second) = (tape.grant(one, 0).0, tape.grant(two, 0).0);
    for (event, entry) in [
        (set(1, 1, u64::MAX), second),
        (set(1, 0, u64::MAX), first),
        (set(2, 2, u64::MAX), first),
        (set(1, 2, tape.0[second].stamp.at_ms.0), first),
    ] {
        said(&mut tape, event.clone());
        tape.caught(Rule::Licence, entry);
    }
    said(
        &mut tape,
        ChainEvent::LicenceSet {
            issuer: SOLVER.issuer,
            holder: renter(1),
            product: Hash32([8; 32]),
            seats: 9,
            until: TimeMs(u64::MAX),
        },
    );
    tape.caught(Rule::Licence, first);
}

#[test]
fn a_lease_that_waits_for_a_seat_and_is_granted_a_slot_is_seen() {
    let (mut tape, [_, two, waits]) = granted();
    let grants = tape.grant(two, 0).0;
    let asked = tape.0.iter().position(|leaf| leaf.stamp.seq == waits.seq).unwrap();
    let mut effects = tape.0[grants].effects.clone();
    // As the second one was granted, behind its own birth.
    effects.remove(0);
    for effect in &mut effects {
        match effect {
            Effect::Moved { lease, .. } => *lease = waits,
            Effect::Granted(grant) => grant.lease = waits,
            _ => {}
        }
    }
    tape.0[asked].effects.extend(effects);
    tape.caught(Rule::Licence, asked);
}

#[test]
fn seats_that_are_lowered_under_those_who_sit_are_no_fault() {
    let (mut tape, [_, two, _]) = granted();
    let second = tape.grant(two, 0).0;
    tape.0.truncate(second + 1);
    let mut blocks = tape.0.iter().filter_map(|leaf| match &leaf.input {
        Input::Block(block) => Some(block.clone()),
        _ => None,
    });
    let mut lower = blocks.next_back().unwrap();
    (lower.number, lower.events) = (lower.number + 1, vec![set(1, 0, 0)]);
    tape.push(Input::Block(lower), Vec::new());
    assert_eq!(tape.findings(), []);
}

/// Renters 1 and 2 wait for the same with a licence each, renter 2 with so many seats, and there comes room for one.
fn contest(seats: u32) -> (Pool, [LeaseId; 2]) {
    let mut pool = Pool::small();
    for of in 2..4 {
        pool.fund(renter(of), 1_000 * TOKEN);
    }
    pool.block(vec![set(1, 5, u64::MAX), set(2, 1, u64::MAX)]);
    pool.lease(LeaseRequest { duration_ms: 9 * HOUR, ..whole(3) });
    pool.lease(whole(3)); // it has the booking
    let [less, more] = [pool.lease(licensed(whole(2))), pool.lease(licensed(whole(1)))];
    pool.block(vec![set(2, seats, u64::MAX)]);
    pool.node(spec(2, vec![a100(2, 0), a100(2, 1)]));
    (pool, [less, more])
}

#[test]
fn a_grant_past_who_had_a_seat_is_seen_and_past_who_had_none_is_right() {
    let (pool, leases) = contest(1);
    assert_eq!(states(&pool, leases), [LeaseState::Held, LeaseState::Waiting], "the older one");
    let (tape, entry) = swap(&pool, leases[0], leases[1]);
    tape.caught(Rule::Order, entry);
    let (pool, leases) = contest(0);
    assert_eq!(states(&pool, leases), [LeaseState::Waiting, LeaseState::Held]);
    assert_eq!(Tape::of(&pool).findings(), []);
}

#[test]
fn a_repair_without_a_seat_is_seen() {
    let mut pool = Pool::new();
    pool.fund(renter(1), 1_000 * TOKEN);
    for node in 1..4 {
        pool.node(spec(node, vec![a100(node, 0)]));
    }
    pool.block(vec![set(1, 2, u64::MAX)]);
    let gang = licensed(ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]));
    let id = pool.lease(LeaseRequest { min_members: 1, on_node_loss: OnNodeLoss::Repair, ..gang });
    pool.run_up(id);
    pool.block(vec![set(9, 9, u64::MAX)]); // of somebody else
    let node = pool.get(id).members[1].node;
    pool.enter(Input::Lost { node, last_seq: 0 });
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, _) = tape.find(|effect| matches!(effect, Effect::Repaired { .. }));
    let Input::Block(block) = &mut tape.0[entry - 1].input else { panic!("it came before") };
    block.events = vec![set(1, 1, u64::MAX)];
    tape.caught(Rule::Licence, entry);
}

#[test]
fn a_booking_or_a_stop_for_who_may_not_begin_is_seen() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1_000 * TOKEN);
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy { min_run_ms: 0, ..Policy::default() } });
    pool.block(vec![set(1, 1, u64::MAX)]);
    let runs = pool.lease(LeaseRequest { priority: Priority::Interruptible, ..whole(2) });
    pool.run_up(runs);
    let booked = pool.lease(LeaseRequest { priority: Priority::Interruptible, ..licensed(whole(1)) });
    assert_eq!(pool.state.booking.as_ref().map(|booking| booking.lease), Some(booked));
    let mut tape = Tape::of(&pool);
    let (booking, _) = tape.find(|effect| matches!(effect, Effect::Booked { .. }));
    pool.lease(licensed(whole(1)));
    let mut firm = Tape::of(&pool);
    let (stop, _) = firm.find(|effect| matches!(effect, Effect::Preempted { .. }));
    assert!(stop > booking && firm.findings().is_empty());
    let before = pool.now + HOUR;
    said(&mut tape, set(1, 1, before));
    tape.caught(Rule::Licence, booking);
    said(&mut firm, set(1, 0, u64::MAX));
    let findings = firm.findings();
    assert!(findings.iter().any(|one| one.rule == Rule::Licence && one.entry == stop as u64), "{findings:?}");
}
