//! Who waits: the booking of the head of the line, backfill beside it, and the estimate for the others.

use proptest::prelude::*;
use selion_api::lease::{LeaseState, MAX_WAIT_MS, Priority};
use selion_api::{LeaseId, LeaseRequest, Reason, SliceWant, TimeMs};
use selion_market::{Effect, Input, Policy, State};

use crate::honest::Honest;
use crate::pool::{DELEGATE, GIB, HOUR, Pool, TOKEN, a100, ask, mig, node_id, renter, share, spec};

/// What a lease may take beside its duration.
fn around(state: &State) -> u64 {
    let policy = &state.policy;
    policy.hold_ms + policy.prepare_ms + policy.start_ms + policy.ending_ms
}

fn lasting(mut request: LeaseRequest, ms: u64) -> LeaseRequest {
    request.duration_ms = ms;
    request.wait_ms = MAX_WAIT_MS;
    request
}

fn whole(of: u8, gpus: usize, ms: u64) -> LeaseRequest {
    lasting(ask(renter(of), &vec![SliceWant::Whole; gpus]), ms)
}

#[test]
fn an_8_gpu_gang_starts_although_small_leases_keep_coming() {
    let mut world = Honest::fleet(&[8]);
    for _ in 0..8 {
        world.lease(whole(1, 1, 2 * HOUR));
        world.after(HOUR / 4);
    }
    let gang = world.lease(whole(1, 8, HOUR));
    let first_end = world.state().leases.values().filter_map(|lease| lease.deadline).min().unwrap();
    let booked = world.state().booking.clone().expect("the gang is booked");
    assert_eq!(booked.lease, gang);
    // Every quarter of an hour two more come, whose renter holds nothing at all: by share alone they would be first.
    let (mut small, mut stood_back) = (Vec::new(), false);
    while world.pool.state_of(gang) == LeaseState::Waiting {
        for _ in 0..2 {
            small.push(world.lease(whole(2, 1, 2 * HOUR)));
        }
        stood_back |= small.iter().any(|id| world.pool.reason_of(*id) == Some(Reason::KeptForBooking));
        world.after(HOUR / 4);
        assert!(world.pool.now < first_end.0 + 3 * HOUR, "the gang starves");
    }
    assert!(world.held_at[&gang] <= booked.at);
    assert!(stood_back, "somebody was not served for the gang's sake");
    world.finish();
    assert!(small.iter().all(|id| world.held_at.contains_key(id)), "and everybody is served");
}

#[test]
fn a_lease_that_ends_before_the_booked_time_is_served_beside_it() {
    let mut world = Honest::fleet(&[2]);
    world.lease(whole(1, 1, 10 * HOUR));
    let pair = world.lease(whole(1, 2, HOUR));
    let long = world.lease(whole(2, 1, 10 * HOUR));
    let short = world.lease(whole(2, 1, HOUR));
    let booking = world.state().booking.clone().unwrap();
    assert_eq!(booking.lease, pair);
    assert_eq!(world.pool.state_of(short), LeaseState::Active);
    assert_eq!(world.pool.reason_of(long), Some(Reason::KeptForBooking));
    let near = world.pool.get(long).nearest.clone().unwrap();
    assert_eq!((near.node, near.have), (node_id(1), booking.at.0));
    assert_eq!(near.need, world.pool.now + 10 * HOUR + around(world.state()));
    world.finish();
    assert_eq!(world.held_at[&pair].0, booking.at.0 - world.state().policy.ending_ms, "its agents confirm at once");
}

#[test]
fn a_long_lease_goes_where_the_booking_is_not() {
    // The dear node is booked; the long lease finds the cheap one full and the dear one kept, and takes the third.
    let mut world = Honest::fleet(&[1, 2, 1]);
    let on = |node: u8, mut request: LeaseRequest| {
        for member in &mut request.members {
            member.node = Some(node_id(node));
        }
        request
    };
    world.lease(on(1, whole(1, 1, 10 * HOUR)));
    world.lease(on(2, whole(1, 1, 5 * HOUR)));
    let pair = world.lease(on(2, whole(1, 2, HOUR)));
    let long = world.lease(whole(2, 1, 10 * HOUR));
    assert_eq!(world.state().booking.as_ref().unwrap().lease, pair);
    assert_eq!(world.pool.get(long).members[0].node, node_id(3));
}

#[test]
fn a_request_that_may_not_wait_is_refused_where_room_is_kept() {
    let mut world = Honest::fleet(&[2]);
    world.lease(whole(1, 1, 10 * HOUR));
    world.lease(whole(1, 2, HOUR));
    let mut now = whole(2, 1, 10 * HOUR);
    now.wait_ms = 0;
    let refusal = world.pool.refusal(now.clone());
    assert_eq!(refusal.reason, Reason::KeptForBooking);
    assert!(refusal.nearest.is_some());
    now.duration_ms = HOUR;
    let id = world.lease(now);
    assert_eq!(world.pool.state_of(id), LeaseState::Active);
}

#[test]
fn who_stood_back_is_served_when_the_booked_lease_leaves_the_line() {
    let mut world = Honest::fleet(&[2]);
    world.lease(whole(1, 1, 10 * HOUR));
    let pair = world.lease(whole(1, 2, HOUR));
    let long = world.lease(whole(2, 1, 10 * HOUR));
    assert_eq!(world.pool.reason_of(long), Some(Reason::KeptForBooking));
    world.pool.release(pair);
    assert_eq!(world.pool.state_of(long), LeaseState::Held);
    assert_eq!(world.state().booking, None);
}

#[test]
fn who_stood_back_is_served_when_a_higher_class_takes_the_booking_over() {
    let mut world = Honest::fleet(&[2, 2]);
    let on = |node: u8, priority: Priority, mut request: LeaseRequest| {
        request.priority = priority;
        for member in &mut request.members {
            member.node = Some(node_id(node));
        }
        request
    };
    for node in 1..3 {
        world.lease(on(node, Priority::Firm, whole(1, 1, 10 * HOUR)));
    }
    let pair = world.lease(on(1, Priority::Standard, whole(1, 2, HOUR)));
    let long = world.lease(on(1, Priority::Standard, whole(2, 1, 20 * HOUR)));
    assert_eq!(world.pool.reason_of(long), Some(Reason::KeptForBooking));
    let high = world.pool.lease(on(2, Priority::Firm, whole(2, 2, HOUR)));
    assert_eq!(world.state().booking.as_ref().unwrap().lease, high);
    let told = world.pool.outcomes.last().unwrap().effects.clone();
    assert!(told.contains(&Effect::Booked { lease: pair, at: None }));
    assert_eq!(world.pool.state_of(long), LeaseState::Held, "nothing is kept for the pair any more");
}

#[test]
fn who_is_booked_stays_the_head_of_the_line_whoever_comes_with_a_smaller_share() {
    let mut world = Honest::fleet(&[1]);
    world.lease(whole(1, 1, HOUR));
    let (head, later) = (world.lease(whole(1, 1, HOUR)), world.lease(whole(2, 1, HOUR)));
    assert_eq!((world.pool.get(head).position, world.pool.get(later).position), (1, 2));
    world.finish();
    assert!(world.held_at[&head] < world.held_at[&later]);
}

#[test]
fn a_lost_node_takes_its_booking_with_it_and_another_time_is_told() {
    let mut world = Honest::fleet(&[2, 2]);
    let long = world.lease(whole(1, 2, 10 * HOUR));
    world.lease(whole(1, 2, HOUR));
    let pair = world.lease(whole(1, 2, HOUR));
    let before = world.state().booking.clone().unwrap();
    assert_eq!(before.lease, pair);
    let gone = before.places[0].0;
    world.pool.enter(Input::Lost { node: gone, last_seq: 0 });
    let after = world.state().booking.clone().unwrap();
    assert_eq!(after.lease, pair);
    assert!(after.at > before.at && after.places.iter().all(|(node, _)| *node != gone));
    let told = world.pool.outcomes.last().unwrap().effects.clone();
    assert!(told.contains(&Effect::Booked { lease: pair, at: Some(after.at) }));
    let other = world.pool.get(long).members[0].node;
    world.pool.enter(Input::Lost { node: other, last_seq: 0 });
    assert_eq!(world.state().booking, None, "what fits nowhere is not booked");
    assert!(world.pool.outcomes.last().unwrap().effects.contains(&Effect::Booked { lease: pair, at: None }));
}

#[test]
fn a_stop_that_is_not_confirmed_ends_the_booking_at_its_time() {
    let mut pool = Pool::small();
    let first = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(first);
    let second = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let booking = pool.state.booking.clone().unwrap();
    assert_eq!((booking.lease, booking.at.0), (second, pool.now + HOUR + Policy::default().ending_ms));
    pool.pass_ms(2 * HOUR);
    // The agent is silent: nobody knows when the slot will be free, so nothing is kept for anybody.
    assert_eq!(pool.state.booking, None);
    assert_eq!(pool.reason_of(second), Some(Reason::PoolFull));
}

#[test]
fn who_cannot_pay_is_not_booked() {
    let mut pool = Pool::small();
    pool.fund(renter(2), TOKEN * 3 / 2);
    pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let mut dear = ask(renter(2), &[SliceWant::Whole]);
    let first = pool.lease(dear.clone());
    assert_eq!(pool.state.booking.as_ref().map(|booking| booking.lease), Some(first));
    pool.block(vec![selion_api::chain::ChainEvent::Thawed {
        renter: renter(2),
        amount: selion_api::Amount(TOKEN),
        ready: TimeMs(0),
    }]);
    pool.release(first);
    dear.duration_ms = HOUR / 4;
    let cheap = pool.lease(dear.clone());
    assert_eq!(pool.state.booking.as_ref().map(|booking| booking.lease), Some(cheap));
}

#[test]
fn everybody_in_the_line_is_told_when_it_starts_at_the_latest() {
    let mut world = Honest::fleet(&[1]);
    let ids: Vec<LeaseId> = (0..5).map(|_| world.lease(whole(1, 1, HOUR))).collect();
    assert_eq!(world.state().estimate(ids[0]), None, "it does not wait");
    let told: Vec<TimeMs> = ids[1..].iter().map(|id| world.state().estimate(*id).unwrap()).collect();
    assert_eq!(Some(told[0]), world.state().booking.as_ref().map(|booking| booking.at));
    for pair in told.windows(2) {
        assert_eq!(pair[1].since(pair[0]), HOUR + around(world.state()));
    }
    world.finish();
    for (id, told) in ids[1..].iter().zip(told) {
        assert!(world.held_at[id] <= told);
    }
    assert_eq!(world.state().estimate(LeaseId { seq: 9999, index: 0 }), None);
}

#[test]
fn the_estimate_ends_where_its_work_would_be_unbounded() {
    let mut world = Honest::fleet(&[1]);
    let ids: Vec<LeaseId> = (0..40).map(|_| world.lease(whole(1, 1, HOUR))).collect();
    assert!(world.state().estimate(ids[33]).is_some());
    assert_eq!(world.state().estimate(ids[34]), None);
}

#[test]
fn a_controller_that_starts_again_keeps_the_booking() {
    let mut world = Honest::fleet(&[1]);
    world.lease(whole(1, 1, HOUR));
    let next = world.lease(whole(1, 1, HOUR));
    world.after(1000);
    let before = world.state().booking.clone();
    assert_eq!(before.as_ref().map(|booking| booking.lease), Some(next));
    world.pool.fence.term += 1;
    world.pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy::default() });
    let after = world.state().booking.as_ref().map(|booking| (booking.lease, booking.at <= before.unwrap().at));
    assert_eq!(after, Some((next, true)), "what is active keeps its end");
}

/// One request of a random day: who, what, for how many minutes, and how long after the one before.
#[derive(Clone, Debug)]
struct Arrival {
    who: u8,
    slices: Vec<SliceWant>,
    spread: bool,
    minutes: u64,
    gap_ms: u64,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let slice = prop_oneof![
        3 => Just(SliceWant::Whole),
        2 => prop::sample::select(vec!["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"]).prop_map(mig),
        2 => (100_u16..900, 4_u64..40).prop_map(|(compute, gib)| share(compute, gib)),
    ];
    let slices = (slice, 1_usize..7).prop_map(|(slice, count)| vec![slice; count]);
    let gap = prop_oneof![2 => Just(0_u64), 3 => 0..HOUR / 6, 1 => 0..2 * HOUR];
    let one = (1_u8..4, slices, any::<bool>(), 1_u64..180, gap)
        .prop_map(|(who, slices, spread, minutes, gap_ms)| Arrival { who, slices, spread, minutes, gap_ms });
    prop::collection::vec(one, 1..40)
}

/// True if the lease could have been granted beside the booking: it fits now on a GPU of a node that is not booked, or
/// it would be over by the booked time.
fn was_passed_over(state: &State, id: LeaseId) -> bool {
    let lease = &state.leases[&id];
    let now = state.now.0 + lease.request.duration_ms + around(state);
    let booking = state.booking.as_ref();
    state.candidates(id).iter().any(|candidate| {
        let apart = booking.is_none_or(|booking| booking.places.iter().all(|(node, _)| *node != candidate.node));
        candidate.verdict.is_ok() && (apart || booking.is_some_and(|booking| now <= booking.at.0))
    })
}

fn nothing_is_idle_for_nothing(state: &State) {
    let singles = state.waiting.iter().filter(|id| state.leases[*id].request.members.len() == 1);
    for id in singles.filter(|_| !state.more) {
        assert!(!was_passed_over(state, *id), "{id} waits, and its room is idle: {:?}", state.leases[id].reason);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// `Honest` looks after every step whether a booked time was put off or missed.
    #[test]
    fn who_is_booked_starts_by_its_time_nobody_starves_and_no_room_is_idle_for_nothing(
        day in arrivals(),
        slowness in 1_u64..1000,
        haste in 0_u64..1000,
    ) {
        let mut world = Honest::fleet(&[3, 2, 1]).slow(slowness, haste);
        let mut ids = Vec::new();
        for one in day {
            let mut request = lasting(ask(renter(one.who), &one.slices), one.minutes * 60_000);
            request.min_nodes = if one.spread { one.slices.len().min(2) as u16 } else { 1 };
            for member in &mut request.members {
                member.ram_bytes = 10 * GIB;
            }
            let outcome = world.pool.request(request);
            if let selion_market::Answer::Created(id) = outcome {
                ids.push(id);
                if world.pool.state_of(id) == LeaseState::Waiting {
                    // Another may have been let in: who is kept out by a booking is tried again at every request.
                    let mut held = world.state().nodes.values().flat_map(|node| node.held.keys());
                    prop_assert!(!held.any(|(lease, _)| *lease == id), "who waits holds nothing");
                }
            }
            nothing_is_idle_for_nothing(world.state());
            world.after(one.gap_ms);
            nothing_is_idle_for_nothing(world.state());
        }
        world.finish();
        for id in ids {
            prop_assert!(world.held_at.contains_key(&id), "{} starves", id);
        }
        // Who is booked starts within the longest lease there can be.
        let longest = 180 * 60_000 + around(world.state());
        for (told, since) in world.promised.values() {
            prop_assert!(told.since(*since) <= longest);
        }
    }
}

#[test]
fn small_and_large_share_a_fleet_better_in_variable_slices_than_in_equal_parts() {
    // Six models of 10, 10, 20, 20, 40 and 40 GiB on two GPUs of 80 GiB: with two equal parts a GPU, four are served.
    let mixed = ["3g.40gb", "3g.40gb", "2g.20gb", "2g.20gb", "1g.10gb", "1g.10gb"];
    let served = |pool: &Pool| pool.state.leases.values().filter(|lease| lease.state == LeaseState::Held).count();
    let run = |profiles: &[&str]| {
        let mut pool = Pool::new();
        pool.fund(renter(1), 1000 * TOKEN);
        pool.node(spec(1, vec![a100(1, 0), a100(1, 1)]));
        for profile in profiles {
            pool.lease(ask(renter(1), &[mig(profile)]));
        }
        served(&pool)
    };
    assert_eq!(run(&mixed), 6);
    assert_eq!(run(&["3g.40gb"; 6]), 4);
}
