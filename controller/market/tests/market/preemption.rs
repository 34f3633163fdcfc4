//! Classes of priority: who is served first, who is stopped for whom, and why that comes to an end.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use selion_api::agent::MemberEvent;
use selion_api::lease::{LeaseState, OnNodeLoss, Priority};
use selion_api::{LeaseId, LeaseRequest, Reason, SliceWant, TimeMs};
use selion_market::{Answer, Effect, Policy, State};

use crate::honest::Honest;
use crate::pool::{HOUR, Pool, TOKEN, a100, ask, kept, mig, node_id, renter, share, spec};

const STOPPED: MemberEvent = MemberEvent::Stopped { outputs: None };

fn of_class(priority: Priority, of: u8, gpus: usize) -> LeaseRequest {
    let mut request = ask(renter(of), &vec![SliceWant::Whole; gpus]);
    request.priority = priority;
    request.on_node_loss = OnNodeLoss::Requeue;
    request
}

fn interruptible(of: u8, gpus: usize) -> LeaseRequest {
    of_class(Priority::Interruptible, of, gpus)
}

fn firm(of: u8, gpus: usize) -> LeaseRequest {
    of_class(Priority::Firm, of, gpus)
}

/// One node with so many A100 and three renters.
fn node_of(gpus: u8) -> Pool {
    let mut pool = Pool::new();
    pool.node(spec(1, (0..gpus).map(|rank| a100(1, rank)).collect()));
    for one in 1..4 {
        pool.fund(renter(one), 10_000 * TOKEN);
    }
    pool
}

/// Asked, granted and active for longer than the least time.
fn running(pool: &mut Pool, request: LeaseRequest) -> LeaseId {
    let id = pool.lease(request);
    pool.run_up(id);
    id
}

fn run_long(pool: &mut Pool) {
    pool.now += Policy::default().min_run_ms;
}

/// Who was stopped for whom, in order.
fn stopped(pool: &Pool) -> Vec<(LeaseId, LeaseId)> {
    let effects = pool.effects().into_iter();
    effects
        .filter_map(|effect| match effect {
            Effect::Preempted { lease, by, .. } => Some((lease, by)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_firm_lease_takes_the_room_of_an_interruptible_one_which_is_billed_and_waits_again() {
    let mut pool = node_of(1);
    let low = running(&mut pool, interruptible(1, 1));
    run_long(&mut pool);
    let high = pool.lease(firm(2, 1));
    assert_eq!((pool.state_of(low), pool.reason_of(low)), (LeaseState::Ending, Some(Reason::Preempted)));
    assert_eq!(pool.reason_of(high), Some(Reason::WaitsForStop));
    let booking = pool.state.booking.clone().unwrap();
    assert_eq!((booking.lease, booking.at.0), (high, pool.now + Policy::default().ending_ms));
    pool.now += 1000;
    pool.report(low, 0, STOPPED, 300_500);
    assert_eq!(pool.state_of(high), LeaseState::Held);
    assert_eq!((pool.state_of(low), pool.get(low).request.priority), (LeaseState::Waiting, Priority::Interruptible));
    assert_eq!(pool.get(low).past[0].1, Reason::Preempted);
    assert_eq!(pool.get(low).past[0].2.0, TOKEN * 300_500 / HOUR, "billed up to the stop");
    pool.clear(high);
    assert_eq!((pool.state_of(low), pool.get(low).attempt), (LeaseState::Held, 2));
}

#[test]
fn who_did_not_ask_to_wait_again_ends() {
    let mut pool = node_of(1);
    let mut request = interruptible(1, 1);
    request.on_node_loss = OnNodeLoss::End;
    let low = running(&mut pool, request);
    run_long(&mut pool);
    pool.lease(of_class(Priority::Standard, 2, 1));
    pool.all(low, &STOPPED);
    assert_eq!((pool.state_of(low), pool.reason_of(low)), (LeaseState::Ended, Some(Reason::Preempted)));
}

#[test]
fn nobody_is_stopped_for_one_of_its_own_class_or_a_lower_one() {
    let all = [Priority::Interruptible, Priority::Standard, Priority::Firm];
    for here in all {
        for comes in all {
            let mut pool = node_of(1);
            let first = running(&mut pool, of_class(here, 1, 1));
            run_long(&mut pool);
            pool.lease(of_class(comes, 2, 1));
            let expected = if comes > here { LeaseState::Ending } else { LeaseState::Active };
            assert_eq!(pool.state_of(first), expected, "{comes:?} beside {here:?}");
        }
    }
}

#[test]
fn nobody_is_stopped_before_its_least_time_and_then_without_another_event() {
    let mut pool = node_of(1);
    let low = running(&mut pool, interruptible(1, 1));
    let high = pool.lease(firm(2, 1));
    assert_eq!(pool.state_of(low), LeaseState::Active);
    assert_eq!(pool.state.next_deadline().unwrap().0, pool.now + Policy::default().min_run_ms);
    pool.pass_ms(Policy::default().min_run_ms - 1);
    assert_eq!(pool.state_of(low), LeaseState::Active);
    pool.pass_ms(1);
    assert_eq!(stopped(&pool), [(low, high)]);
}

#[test]
fn nobody_is_stopped_where_room_comes_as_soon_by_itself_or_where_it_does_not_help() {
    let mut pool = node_of(2);
    let leaves = running(&mut pool, firm(1, 1));
    let low = running(&mut pool, interruptible(1, 1));
    run_long(&mut pool);
    pool.release(leaves);
    let high = pool.lease(firm(2, 1));
    assert_eq!((pool.state_of(low), pool.reason_of(high)), (LeaseState::Active, Some(Reason::PoolFull)));
    pool.all(leaves, &STOPPED);
    pool.run_up(high);
    pool.lease(firm(2, 2));
    assert!(stopped(&pool).is_empty(), "one of two is firm");
}

#[test]
fn the_lowest_class_goes_first_then_the_least_work_at_its_price_and_gangs_go_whole() {
    let mut pool = node_of(4);
    let standard = running(&mut pool, of_class(Priority::Standard, 1, 1));
    let old = running(&mut pool, interruptible(1, 1));
    pool.now += HOUR / 4;
    let young = running(&mut pool, interruptible(1, 2));
    run_long(&mut pool);
    let high = pool.lease(firm(2, 1));
    // The pair lost 2 x 5 minutes of work, the old one 20.
    assert_eq!(stopped(&pool), [(young, high)]);
    assert_eq!(pool.get(young).members.len(), 2);
    pool.all(young, &STOPPED);
    assert_eq!(pool.state_of(high), LeaseState::Held);
    let next = pool.lease(firm(2, 2));
    assert_eq!(stopped(&pool)[1..], [(old, next)], "one GPU is left, so one more will do");
    assert_eq!(pool.state_of(standard), LeaseState::Active);
}

#[test]
fn who_cannot_pay_stops_nobody() {
    let mut pool = node_of(1);
    let low = running(&mut pool, interruptible(1, 1));
    run_long(&mut pool);
    pool.fund(renter(9), kept(TOKEN));
    let mut dear = firm(9, 1);
    dear.duration_ms = HOUR;
    let first = pool.lease(dear.clone());
    assert_eq!(pool.state_of(low), LeaseState::Ending, "one hour is paid for");
    pool.all(low, &STOPPED);
    assert_eq!(pool.state_of(first), LeaseState::Held);
    let mut pool = node_of(1);
    let low = running(&mut pool, interruptible(1, 1));
    pool.fund(renter(9), kept(TOKEN));
    let waits = pool.lease(dear);
    pool.block(vec![selion_api::chain::ChainEvent::Thawed {
        renter: renter(9),
        amount: selion_api::Amount(1),
        ready: TimeMs(0),
    }]);
    pool.pass_ms(2 * Policy::default().min_run_ms);
    assert_eq!((pool.state_of(low), pool.state_of(waits)), (LeaseState::Active, LeaseState::Waiting));
}

/// Kueue 3779: the victims' evictions complete at different times; the first one comes back into its own place, the
/// preemptor evicts it again, and so on for ever.
#[test]
fn victims_that_stop_at_different_times_do_not_come_back_into_the_kept_room() {
    let mut pool = node_of(2);
    let (one, two) = (running(&mut pool, interruptible(1, 1)), running(&mut pool, interruptible(3, 1)));
    run_long(&mut pool);
    let high = pool.lease(firm(2, 2));
    assert_eq!(stopped(&pool), [(one, high), (two, high)]);
    pool.all(one, &STOPPED);
    assert_eq!((pool.state_of(one), pool.reason_of(one)), (LeaseState::Waiting, Some(Reason::KeptForBooking)));
    pool.now += Policy::default().ending_ms - 1;
    pool.all(two, &STOPPED);
    assert_eq!(pool.state_of(high), LeaseState::Held);
    assert_eq!(stopped(&pool).len(), 2, "nobody was stopped twice");
}

/// Kueue 7101: two queues that borrow from each other preempt one another without end.
#[test]
fn two_of_one_class_take_turns_by_waiting_and_never_stop_each_other() {
    let mut world = Honest::fleet(&[2]);
    for round in 0..6 {
        let priority = Priority::Standard;
        world.lease(of_class(priority, 1 + round % 2, 2));
        world.lease(of_class(priority, 2 - round % 2, 1));
        world.after(HOUR / 3);
    }
    world.finish();
    assert!(stopped(&world.pool).is_empty());
    assert!(world.state().leases.values().all(|lease| lease.attempt <= 1));
}

/// Volcano 3951: two gangs reclaim at once, each takes half of what it needs, and neither ever starts.
#[test]
fn two_gangs_that_need_the_same_victims_start_one_after_the_other() {
    let mut pool = node_of(4);
    let low: Vec<LeaseId> = (0..4).map(|_| running(&mut pool, interruptible(1, 1))).collect();
    run_long(&mut pool);
    let (first, second) = (pool.lease(firm(2, 3)), pool.lease(firm(3, 3)));
    assert_eq!(stopped(&pool).len(), 3);
    for id in low.iter().filter(|id| pool.state_of(**id) == LeaseState::Ending).copied().collect::<Vec<_>>() {
        pool.all(id, &STOPPED);
    }
    assert_eq!((pool.state_of(first), pool.state_of(second)), (LeaseState::Held, LeaseState::Waiting));
    pool.run_up(first);
    pool.clear(first);
    assert_eq!(pool.state_of(second), LeaseState::Held);
    assert_eq!(stopped(&pool).len(), 3, "the room of the first one is enough for the second");
}

/// Volcano 5881 and 2337: part of the gang fits, and for the rest nobody is preempted.
#[test]
fn a_gang_of_which_a_part_fits_stops_just_enough_for_the_rest() {
    let mut pool = node_of(3);
    let low: Vec<LeaseId> = (0..2).map(|_| running(&mut pool, interruptible(1, 1))).collect();
    run_long(&mut pool);
    let gang = pool.lease(firm(2, 2));
    assert_eq!(stopped(&pool), [(low[0], gang)]);
    pool.all(low[0], &STOPPED);
    assert_eq!(pool.state_of(gang), LeaseState::Held);
}

#[test]
fn firm_leases_one_after_the_other_each_get_their_room() {
    let mut world = Honest::fleet(&[4]);
    for _ in 0..4 {
        let mut low = interruptible(1, 1);
        low.duration_ms = 20 * HOUR;
        world.lease(low);
    }
    world.after(HOUR);
    let high: Vec<LeaseId> = (0..4).map(|_| world.lease(firm(2, 1))).collect();
    world.after(0);
    assert!(high.iter().all(|id| world.pool.state_of(*id) == LeaseState::Active));
    assert_eq!(stopped(&world.pool).len(), 4);
    world.after(HOUR);
    assert!(
        world
            .state()
            .leases
            .values()
            .filter(|lease| lease.request.priority == Priority::Interruptible)
            .all(|lease| lease.state == LeaseState::Active && lease.attempt == 2)
    );
}

#[test]
fn a_silent_agent_under_a_victim_does_not_hold_up_the_firm_lease_for_ever() {
    let mut pool = node_of(1);
    pool.node(spec(2, vec![a100(2, 0)]));
    let silent = running(&mut pool, interruptible(1, 1));
    pool.now += 1;
    let other = running(&mut pool, interruptible(1, 1));
    run_long(&mut pool);
    let high = pool.lease(firm(2, 1));
    let victim = stopped(&pool)[0].0;
    let rest = if victim == silent { other } else { silent };
    pool.pass_ms(Policy::default().ending_ms);
    assert_eq!(stopped(&pool)[1..], [(rest, high)], "nobody knows when the first one stops");
    pool.all(rest, &STOPPED);
    assert_eq!(pool.state_of(high), LeaseState::Held);
}

/// Free GPUs when the leases `gone` are away, counted by hand.
fn free_without(state: &State, gone: &BTreeSet<LeaseId>) -> Vec<usize> {
    let nodes = state.nodes.values().map(|node| {
        let gpus = &node.spec.as_ref().unwrap().gpus;
        let idle = |gpu: &&selion_api::slice::GpuSpec| {
            !node.held.iter().any(|((lease, _), held)| held.gpus.contains(&gpu.gpu) && !gone.contains(lease))
        };
        gpus.iter().filter(idle).count()
    });
    nodes.collect()
}

/// Whether so many whole GPUs on so many nodes at least are there.
fn gang_fits(free: &[usize], members: usize, min_nodes: usize) -> bool {
    free.iter().sum::<usize>() >= members && free.iter().filter(|free| **free > 0).count() >= min_nodes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_victim_could_have_stayed_and_whoever_could_be_helped_is(
        low in prop::collection::vec((0_usize..5, 1_usize..4, 0_u8..3, 0_u64..400_000), 1..10),
        members in 1_usize..5,
        min_nodes in 1_usize..3,
    ) {
        let mut world = Honest::fleet(&[2, 2, 1]);
        for (slice, count, class, gap_ms) in low {
            let slices = [SliceWant::Whole, mig("3g.40gb"), mig("1g.10gb"), share(500, 8), share(100, 70)];
            let mut request = ask(renter(1), &vec![slices[slice].clone(); count]);
            request.priority = [Priority::Interruptible, Priority::Standard, Priority::Firm][usize::from(class)];
            request.wait_ms = 0;
            request.duration_ms = 20 * HOUR;
            world.pool.request(request);
            world.after(gap_ms);
        }
        let (state, now) = (world.state().clone(), TimeMs(world.pool.now));
        let mut request = firm(2, members);
        request.min_nodes = min_nodes.min(members) as u16;
        let min_nodes = usize::from(request.min_nodes);
        let fits_without = |gone: &BTreeSet<LeaseId>| gang_fits(&free_without(&state, gone), members, min_nodes);
        let Answer::Created(high) = world.pool.request(request) else {
            return Ok(());
        };
        let victims: BTreeSet<LeaseId> = stopped(&world.pool).into_iter().map(|(lease, _)| lease).collect();
        let open: BTreeSet<LeaseId> = state.leases.iter().filter(|(_, lease)| {
            lease.request.priority < Priority::Firm
                && lease.active_since.is_some_and(|since| now.since(since) >= state.policy.min_run_ms)
        }).map(|(id, _)| *id).collect();
        prop_assert!(victims.is_subset(&open), "never a firm lease, nor one that has just begun");
        if victims.is_empty() {
            let served = world.pool.state_of(high) == LeaseState::Held;
            prop_assert_eq!(served, fits_without(&BTreeSet::new()));
            prop_assert!(served || !fits_without(&open), "stopping would have helped");
        } else {
            prop_assert!(!fits_without(&BTreeSet::new()) && fits_without(&victims));
            for spared in &victims {
                let mut fewer = victims.clone();
                fewer.remove(spared);
                prop_assert!(!fits_without(&fewer), "{} could have stayed", spared);
            }
            // Every stop is confirmed at once: the room is there, and nobody else has it.
            world.after(0);
            prop_assert_eq!(world.pool.state_of(high), LeaseState::Active);
        }
    }

    #[test]
    fn whatever_comes_stops_come_to_an_end_and_everybody_is_served(
        day in prop::collection::vec((1_u8..4, 1_usize..5, 0_usize..3, 1_u64..120, 0_u64..40), 1..40),
        slowness in 1_u64..1000,
    ) {
        let mut world = Honest::fleet(&[3, 2]).classes().slow(slowness, 500);
        let mut classes = BTreeMap::new();
        for (who, gpus, class, minutes, gap) in day {
            let priority = [Priority::Interruptible, Priority::Standard, Priority::Firm][class];
            let mut request = of_class(priority, who, gpus);
            request.duration_ms = minutes * 60_000;
            request.wait_ms = selion_api::lease::MAX_WAIT_MS;
            classes.insert(world.lease(request), priority);
            world.after(gap * 60_000);
        }
        let before = stopped(&world.pool);
        world.finish();
        let after = stopped(&world.pool);
        for (lease, by) in &after {
            prop_assert!(classes[lease] < classes[by]);
        }
        // Nobody comes any more: each that still waits stops each other lease at most once.
        prop_assert!(after.len() - before.len() <= classes.len() * classes.len());
        let gave_up = |effect: &Effect| matches!(effect, Effect::Moved { reason: Some(Reason::WaitedTooLong), .. });
        prop_assert!(!world.pool.effects().iter().any(gave_up));
        prop_assert!(classes.keys().all(|id| world.held_at.contains_key(id)));
    }
}

#[test]
fn a_member_pinned_to_a_node_stops_only_who_is_there() {
    let mut pool = node_of(1);
    pool.node(spec(2, vec![a100(2, 0)]));
    let on = |node: u8, mut request: LeaseRequest| {
        request.members[0].node = Some(node_id(node));
        request
    };
    let here = running(&mut pool, on(1, interruptible(1, 1)));
    let there = running(&mut pool, on(2, interruptible(1, 1)));
    run_long(&mut pool);
    let high = pool.lease(on(2, firm(2, 1)));
    assert_eq!(stopped(&pool), [(there, high)]);
    assert_eq!(pool.state_of(here), LeaseState::Active);
}
