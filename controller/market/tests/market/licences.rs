//! Seats of licences: one a member, from its grant until its slot is freed.

use selion_api::agent::MemberEvent;
use selion_api::blocking::Constraint;
use selion_api::chain::ChainEvent;
use selion_api::lease::{LeaseState, OnNodeLoss, Priority};
use selion_api::{Account, Hash32, LeaseId, LeaseRequest, Licence, Reason, SliceWant, TimeMs};
use selion_market::dry_run::{DryRun, dry_run};
use selion_market::{Input, Policy, RequestLease, Stamp};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, group, node_id, renter, seat, share, spec};

const SOLVER: Licence = Licence { issuer: Account([0x15; 20]), product: Hash32([7; 32]) };
const FOR_EVER: u64 = u64::MAX;

/// Sets the seats of renter `holder`.
fn set(pool: &mut Pool, holder: u8, seats: u32, until: u64) {
    let Licence { issuer, product } = SOLVER;
    let holder = renter(holder);
    pool.block(vec![ChainEvent::LicenceSet { issuer, holder, product, seats, until: TimeMs(until) }]);
}

fn licensed(request: LeaseRequest) -> LeaseRequest {
    LeaseRequest { licence: Some(SOLVER), ..request }
}

/// Small members, of which a GPU holds ten.
fn small(of: u8, members: usize) -> LeaseRequest {
    licensed(ask(renter(of), &vec![share(100, 4); members]))
}

fn whole(of: u8) -> LeaseRequest {
    ask(renter(of), &[SliceWant::Whole])
}

/// Two renters with money, two nodes of one GPU, and so many seats for the first.
fn world(seats: u32) -> Pool {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1000 * TOKEN);
    pool.node(spec(2, vec![a100(2, 0)]));
    set(&mut pool, 1, seats, FOR_EVER);
    pool
}

fn waits_for(pool: &Pool, id: LeaseId) -> Option<Reason> {
    (pool.state_of(id) == LeaseState::Waiting).then(|| pool.reason_of(id)).flatten()
}

fn used(pool: &Pool) -> u32 {
    pool.state.licences[&(SOLVER, renter(1))].used
}

#[test]
fn who_finds_no_seat_waits_and_is_served_when_one_is_given_back() {
    let mut pool = world(3);
    let [one, two] = [pool.lease(small(1, 1)), pool.lease(small(1, 2))];
    assert_eq!((used(&pool), pool.state_of(two)), (3, LeaseState::Held));
    let late = pool.lease(small(1, 1));
    assert_eq!(waits_for(&pool, late), Some(Reason::NoSeat));
    let free = pool.lease(LeaseRequest { licence: None, ..small(1, 1) });
    assert_eq!(pool.state_of(free), LeaseState::Held, "who needs no seat does not wait for one");
    pool.clear(one);
    assert_eq!((used(&pool), pool.state_of(late)), (3, LeaseState::Held));
    for id in [two, late] {
        pool.clear(id);
    }
    assert_eq!(used(&pool), 0);
}

#[test]
fn every_end_of_a_member_returns_its_seat_when_its_slot_is_free_and_not_before() {
    type End = fn(&mut Pool, LeaseId);
    let ends: [(&str, End); 6] = [
        ("released", |pool, id| pool.clear(id)),
        ("completed", |pool, id| {
            pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, 0);
        }),
        ("failed", |pool, id| {
            pool.report(id, 0, MemberEvent::Failed { reason: Reason::RuntimeFailed }, 0);
        }),
        ("node lost", |pool, id| {
            let node = pool.get(id).members[0].node;
            pool.enter(Input::Lost { node, last_seq: 0 });
        }),
        ("expired", |pool, id| {
            pool.pass_ms(2 * HOUR);
            pool.unjam(id);
        }),
        ("agent silent for a day", |pool, id| {
            pool.jam(id);
            assert_eq!(used(pool), 1, "its process may still run");
            pool.pass_ms(25 * HOUR);
            pool.enter(Input::Tick);
            assert!(!pool.state.leases.contains_key(&id) && used(pool) == 1, "forgotten, and still there");
            pool.enter(Input::Lost { node: node_id(1), last_seq: 0 });
        }),
    ];
    for (name, end) in ends {
        let mut pool = world(1);
        let id = pool.lease(small(1, 1));
        pool.run_up(id);
        assert_eq!(used(&pool), 1, "{name}");
        end(&mut pool, id);
        assert_eq!(used(&pool), 0, "{name}");
    }
}

#[test]
fn a_licence_that_is_not_held_is_over_or_has_too_few_seats_is_refused_at_once() {
    let mut pool = world(2);
    let refused = |pool: &mut Pool, request| {
        let refusal = pool.refusal(request);
        let nearest = refusal.nearest.unwrap();
        assert_eq!(nearest.reason, refusal.reason);
        (refusal.reason, nearest.need, nearest.have)
    };
    assert_eq!(refused(&mut pool, small(1, 3)), (Reason::NoLicence, 3, 2), "more members than seats");
    assert_eq!(refused(&mut pool, small(2, 1)), (Reason::NoLicence, 1, 0), "another account holds it");
    let other = Licence { product: Hash32([8; 32]), ..SOLVER };
    assert_eq!(refused(&mut pool, LeaseRequest { licence: Some(other), ..small(1, 1) }), (Reason::NoLicence, 1, 0));
    let until = pool.now + HOUR;
    set(&mut pool, 1, 2, until);
    let last = pool.lease(small(1, 2));
    let hasty = LeaseRequest { wait_ms: 0, ..small(1, 1) };
    assert_eq!(refused(&mut pool, hasty), (Reason::NoSeat, 1, 0), "it may not wait");
    pool.clear(last);
    pool.pass_ms(HOUR);
    assert_eq!(refused(&mut pool, small(1, 1)), (Reason::NoLicence, 1, 0), "over");
}

#[test]
fn fewer_seats_or_their_end_stop_nobody_and_nobody_begins_from_then_on() {
    let mut pool = world(2);
    let runs = pool.lease(small(1, 2));
    let waits = pool.lease(small(1, 1));
    pool.run_up(runs);
    set(&mut pool, 1, 1, FOR_EVER);
    assert_eq!((pool.state_of(runs), used(&pool)), (LeaseState::Active, 2));
    pool.report(runs, 0, MemberEvent::Exited { code: 0, outputs: None }, 0);
    assert_eq!((used(&pool), waits_for(&pool, waits)), (1, Some(Reason::NoSeat)), "one of one sits");
    set(&mut pool, 1, 0, FOR_EVER);
    assert_eq!(waits_for(&pool, waits), Some(Reason::NoLicence), "withdrawn, and it may be set again");
    let over = pool.now;
    set(&mut pool, 1, 5, over);
    assert_eq!((pool.state_of(runs), waits_for(&pool, waits)), (LeaseState::Active, Some(Reason::NoLicence)));
    set(&mut pool, 1, 2, over + 1);
    assert_eq!(pool.state_of(waits), LeaseState::Held, "the last moment");
}

#[test]
fn members_that_are_not_required_begin_as_far_as_there_are_seats() {
    let mut pool = world(3);
    let id = pool.lease(LeaseRequest { min_members: 2, ..small(1, 5) });
    assert_eq!((pool.get(id).members.len(), used(&pool)), (3, 3));
}

#[test]
fn a_lost_member_gives_its_seat_back_and_its_replacement_takes_one_again_or_waits_for_it() {
    let mut pool = Pool::new();
    pool.fund(renter(1), 1000 * TOKEN);
    for node in 1..4 {
        pool.node(spec(node, vec![a100(node, 0)]));
    }
    set(&mut pool, 1, 2, FOR_EVER);
    let slices = [SliceWant::Whole, SliceWant::Whole];
    let request = ask(renter(1), &slices);
    let gang = LeaseRequest { min_members: 1, on_node_loss: OnNodeLoss::Repair, ..licensed(request) };
    let id = pool.lease(gang);
    pool.run_up(id);
    let mut fewer = pool.clone();
    let node = pool.get(id).members[1].node;
    pool.enter(Input::Lost { node, last_seq: 0 });
    assert_eq!((used(&pool), pool.get(id).attempt), (2, 2), "it has another place, and a seat");
    set(&mut fewer, 1, 1, FOR_EVER);
    fewer.enter(Input::Lost { node, last_seq: 0 });
    assert_eq!((used(&fewer), fewer.get(id).attempt), (1, 1), "there is room, and no seat");
    set(&mut fewer, 1, 2, FOR_EVER);
    assert_eq!((used(&fewer), fewer.get(id).attempt), (2, 2));
}

#[test]
fn who_lacks_a_seat_is_not_booked_stops_nobody_and_is_in_nobodys_way() {
    let mut pool = world(1);
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy { min_run_ms: 0, ..Policy::default() } });
    let sits = pool.lease(licensed(whole(1)));
    let other = pool.lease(whole(2));
    for id in [sits, other] {
        pool.run_up(id);
    }
    let firm = pool.lease(LeaseRequest { priority: Priority::Firm, ..licensed(whole(1)) });
    assert_eq!((waits_for(&pool, firm), &pool.state.booking), (Some(Reason::NoSeat), &None));
    assert_eq!(pool.state_of(other), LeaseState::Active);
    let next = pool.lease(whole(2));
    assert_eq!(pool.state.booking.as_ref().map(|booking| booking.lease), Some(next), "the head of the line");
    pool.clear(other);
    assert_eq!((pool.state_of(next), waits_for(&pool, firm)), (LeaseState::Held, Some(Reason::NoSeat)));
    pool.clear(sits);
    assert_eq!(pool.state_of(firm), LeaseState::Held);
}

#[test]
fn what_a_booked_lease_needs_is_left_to_it_by_its_renters_others() {
    let mut pool = world(2);
    let half = [share(500, 10)];
    pool.lease(LeaseRequest { duration_ms: 2 * HOUR, ..ask(renter(2), &half) });
    let booked = pool.lease(licensed(ask(renter(1), &[SliceWant::Whole, SliceWant::Whole])));
    assert_eq!(pool.state.booking.as_ref().map(|booking| booking.lease), Some(booked));
    let short = pool.lease(LeaseRequest { duration_ms: 1, ..licensed(small(1, 1)) });
    assert_eq!(waits_for(&pool, short), Some(Reason::NoSeat), "it would end in time, with a seat that is kept");
    pool.release(booked);
    assert_eq!(pool.state_of(short), LeaseState::Held, "nothing is kept any more");
}

#[test]
fn nobody_is_booked_for_a_time_at_which_the_licence_is_over() {
    let mut pool = world(5);
    let fills = [pool.lease(whole(2)), pool.lease(whole(2))];
    fills.iter().for_each(|id| pool.run_up(*id));
    let before = pool.now + HOUR;
    set(&mut pool, 1, 5, before);
    let waits = pool.lease(licensed(whole(1)));
    assert_eq!((waits_for(&pool, waits), &pool.state.booking), (Some(Reason::PoolFull), &None));
    assert_eq!(pool.state.estimate(waits), None);
    set(&mut pool, 1, 5, before + HOUR);
    assert_eq!(pool.state.booking.as_ref().map(|booking| booking.lease), Some(waits));
    assert!(pool.state.estimate(waits).is_some_and(|at| at.0 >= before));
    set(&mut pool, 1, 5, before);
    assert_eq!(pool.state.booking, None, "the issuer changed it");
}

#[test]
fn a_quote_an_estimate_and_what_blocks_it_tell_of_seats() {
    let mut pool = world(1);
    let sits = pool.lease(small(1, 1));
    pool.run_up(sits);
    let ends = pool.now + HOUR;
    let waits = pool.lease(small(1, 1));
    let blocking = pool.state.blocking(waits).unwrap();
    assert_eq!((blocking.now, blocking.constraints), (true, vec![Constraint::Licence]));
    let expected = pool.state.estimate(waits).unwrap();
    assert!(expected.0 >= ends && expected.0 <= ends + Policy::default().ending_ms, "when the other one ends");
    let asked = RequestLease { request: LeaseRequest { idem: Hash32([9; 32]), ..small(1, 1) }, signature: None };
    let stamp = Stamp { seq: pool.state.next_seq, at_ms: pool.state.now, fence: pool.state.fence };
    let told = dry_run(&pool.state, &stamp, &asked);
    let DryRun::Waits { reason, blocking: Some(blocking), .. } = told else { panic!("{told:?}") };
    assert_eq!((reason, blocking.constraints), (Some(Reason::NoSeat), vec![Constraint::Licence]));
    set(&mut pool, 1, 0, FOR_EVER);
    let blocking = pool.state.blocking(waits).unwrap();
    assert_eq!((blocking.now, blocking.constraints), (false, vec![Constraint::Licence]), "waiting does not help");
    let told = dry_run(&pool.state, &stamp, &asked);
    assert!(matches!(&told, DryRun::Refused(refusal) if refusal.reason == Reason::NoLicence), "{told:?}");
}

#[test]
fn in_a_tree_of_groups_who_lacks_a_seat_counts_as_who_can_get_nothing() {
    let mut pool = world(1);
    let groups = vec![group("lab", 1, 0)];
    let policy = Policy { groups, accounts: vec![seat(1, "lab", 1), seat(2, "lab", 1)], ..Policy::default() };
    pool.enter(Input::Opened { delegate: DELEGATE, policy });
    let sits = pool.lease(small(1, 1));
    let waits = pool.lease(small(1, 1));
    let other = pool.lease(LeaseRequest { licence: None, ..small(2, 1) });
    assert_eq!((waits_for(&pool, waits), pool.state_of(other)), (Some(Reason::NoSeat), LeaseState::Held));
    pool.clear(sits);
    assert_eq!(pool.state_of(waits), LeaseState::Held);
}
