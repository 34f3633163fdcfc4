//! Lies about room that is kept: who is served past a booking, and for when room is booked.

use selion_api::lease::{LeaseState, Priority};
use selion_api::{LeaseId, LeaseRequest, SliceWant, TimeMs};
use selion_checker::Rule;
use selion_market::{Effect, Input, Policy};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, node_id, renter, share, spec};
use crate::tape::Tape;

const WHOLE: SliceWant = SliceWant::Whole;

/// Two GPUs, each on a node of its own. That of node 1 is held for an hour by renter 1; then `first` is asked for, and
/// then `late`.
fn pool(bookings: bool, first: LeaseRequest, late: LeaseRequest) -> (Pool, [LeaseId; 2]) {
    let mut pool = Pool::small();
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy { bookings, ..Policy::default() } });
    pool.node(spec(2, vec![a100(2, 0)]));
    pool.fund(renter(2), 1000 * TOKEN);
    let runs = pool.lease(ask(renter(1), &[WHOLE]));
    pool.run_up(runs);
    assert_eq!(pool.get(runs).members[0].node, node_id(1));
    let first = pool.lease(first);
    let late = pool.lease(late);
    (pool, [first, late])
}

fn wants(slices: &[SliceWant], duration_ms: u64) -> LeaseRequest {
    LeaseRequest { duration_ms, ..ask(renter(2), slices) }
}

fn on(node: u8, mut request: LeaseRequest) -> LeaseRequest {
    request.members[0].node = Some(node_id(node));
    request
}

/// Both GPUs for renter 1.
fn both() -> LeaseRequest {
    ask(renter(1), &[WHOLE, WHOLE])
}

/// A log of a pool without bookings, to which the booking is added that the same pool with bookings makes.
fn forged(first: LeaseRequest, late: LeaseRequest) -> (Tape, [LeaseId; 2]) {
    let (honest, [gang, _]) = pool(true, first.clone(), late.clone());
    let is_booked = |effect: &Effect| matches!(effect, Effect::Booked { lease, at: Some(_) } if *lease == gang);
    let (entry, at) = Tape::of(&honest).find(is_booked);
    let booked = Tape::of(&honest).0[entry].effects[at].clone();
    let (lax, leases) = pool(false, first, late);
    assert_eq!(lax.state_of(leases[1]), LeaseState::Held, "it is served at once");
    let mut tape = Tape::of(&lax);
    assert_eq!(tape.findings(), []);
    tape.0[entry].effects.push(booked);
    (tape, leases)
}

#[test]
fn a_lease_that_delays_who_is_booked_is_seen() {
    let (tape, [_, late]) = forged(both(), wants(&[WHOLE], 2 * HOUR));
    tape.caught(Rule::Backfill, late.seq as usize);
    let finding = tape.findings()[0];
    assert_eq!(finding.lease, Some(late));
    assert!(finding.need < finding.have, "with the booked time and its end: {finding}");
}

#[test]
fn a_lease_that_ends_in_time_or_leaves_enough_delays_nobody() {
    let short = forged(both(), wants(&[WHOLE], HOUR / 4));
    let elsewhere = forged(on(1, ask(renter(1), &[WHOLE])), wants(&[WHOLE], 2 * HOUR));
    let beside = forged(on(1, ask(renter(1), &[share(500, 10)])), wants(&[share(500, 10)], 2 * HOUR));
    for (tape, _) in [short, elsewhere, beside] {
        assert_eq!(tape.findings(), []);
    }
}

/// Of members that want different things it is seen what one kind of them needs alone.
#[test]
fn a_mixed_gang_is_delayed_by_who_takes_all_that_one_kind_of_it_needs() {
    let gang = || ask(renter(1), &[share(600, 10), share(300, 10), share(600, 10)]);
    let (tape, [_, late]) = forged(gang(), wants(&[WHOLE], 2 * HOUR));
    tape.caught(Rule::Backfill, late.seq as usize);
    let (tape, _) = forged(gang(), wants(&[share(400, 10)], 2 * HOUR));
    assert_eq!(tape.findings(), [], "each kind still fits; whether all of them together do is not looked at");
}

#[test]
fn who_stands_higher_takes_no_notice_of_a_booking() {
    let late = LeaseRequest { priority: Priority::Firm, ..wants(&[WHOLE], 2 * HOUR) };
    let (tape, _) = forged(both(), late);
    assert!(tape.findings().iter().all(|finding| finding.rule != Rule::Backfill));
}

#[test]
fn a_booking_for_a_time_at_which_it_does_not_fit_is_seen() {
    let (kept, [gang, late]) = pool(true, both(), wants(&[WHOLE], 2 * HOUR));
    assert_eq!(kept.state_of(late), LeaseState::Waiting);
    let tape = Tape::of(&kept);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Booked { lease, .. } if *lease == gang));
    let Effect::Booked { at: Some(TimeMs(promised)), .. } = tape.0[entry].effects[at] else {
        panic!("a booking has a time");
    };
    for (time, well) in [(promised - 1, false), (promised, true), (promised + HOUR, true)] {
        let mut tape = tape.clone();
        tape.0[entry].effects[at] = Effect::Booked { lease: gang, at: Some(TimeMs(time)) };
        match well {
            true => assert_eq!(tape.findings(), []),
            false => tape.caught(Rule::Booking, entry),
        }
    }
}
