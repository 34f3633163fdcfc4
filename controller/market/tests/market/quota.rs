//! Guaranteed quotas when the pool is full: who may be stopped for whom in one class, and why that comes to an end.

use std::collections::BTreeMap;

use proptest::prelude::*;
use selion_api::agent::MemberEvent;
use selion_api::lease::{LeaseState, OnNodeLoss, Priority};
use selion_api::{LeaseId, LeaseRequest, Reason, SliceWant};
use selion_market::{Effect, Group, Input, Policy, Seat};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, group, renter, seat, share, spec};

const STOPPED: MemberEvent = MemberEvent::Stopped { outputs: None };

/// So many A100 on one node, renters 1 to 6, and a policy.
fn pool(gpus: u8, groups: Vec<Group>, accounts: Vec<Seat>) -> Pool {
    let mut pool = Pool::new();
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy { groups, accounts, ..Policy::default() } });
    pool.node(spec(1, (0..gpus).map(|rank| a100(1, rank)).collect()));
    for one in 1..7 {
        pool.fund(renter(one), 10_000 * TOKEN);
    }
    pool
}

fn whole(of: u8, gpus: usize) -> LeaseRequest {
    let request = ask(renter(of), &vec![SliceWant::Whole; gpus]);
    LeaseRequest { on_node_loss: OnNodeLoss::Requeue, ..request }
}

fn of_class(of: u8, priority: Priority) -> LeaseRequest {
    LeaseRequest { priority, ..whole(of, 1) }
}

fn running(pool: &mut Pool, request: LeaseRequest) -> LeaseId {
    let id = pool.lease(request);
    pool.run_up(id);
    id
}

fn run_long(pool: &mut Pool) {
    pool.now += Policy::default().min_run_ms;
}

fn states(pool: &Pool, ids: &[LeaseId]) -> Vec<LeaseState> {
    ids.iter().map(|id| pool.state_of(*id)).collect()
}

fn stopped(pool: &Pool) -> Vec<(LeaseId, LeaseId)> {
    let stops = pool.effects().into_iter().filter_map(|effect| match effect {
        Effect::Preempted { lease, by, .. } => Some((lease, by)),
        _ => None,
    });
    stops.collect()
}

/// `a` has half of the pool guaranteed, `b` a quarter.
fn halves() -> (Vec<Group>, Vec<Seat>) {
    (vec![group("a", 1, 500), group("b", 1, 250)], vec![seat(1, "a", 1), seat(2, "b", 1)])
}

#[test]
fn a_group_below_its_quota_gets_room_back_from_one_above_which_is_billed_and_waits_again() {
    let (groups, seats) = halves();
    let mut pool = pool(4, groups, seats);
    let theirs: Vec<LeaseId> = (0..4).map(|_| running(&mut pool, whole(2, 1))).collect();
    run_long(&mut pool);
    let mine = pool.lease(whole(1, 1));
    assert_eq!(pool.reason_of(mine), Some(Reason::WaitsForStop));
    let (victim, by) = stopped(&pool)[0];
    assert_eq!((stopped(&pool).len(), by), (1, mine), "one is enough");
    assert!(theirs.contains(&victim));
    assert_eq!((pool.state_of(victim), pool.reason_of(victim)), (LeaseState::Ending, Some(Reason::QuotaReclaimed)));
    pool.report(victim, 0, STOPPED, HOUR / 12);
    assert_eq!(states(&pool, &[mine, victim]), [LeaseState::Held, LeaseState::Waiting]);
    assert_eq!(pool.get(victim).past[0].2.0, TOKEN / 12, "paid for what ran");
    assert_eq!(stopped(&pool).len(), 1, "who was stopped takes nothing back");
}

#[test]
fn it_takes_no_more_than_its_quota_and_leaves_others_theirs() {
    let (groups, seats) = halves();
    let mut pool = pool(4, groups, seats);
    let theirs: Vec<LeaseId> = (0..4).map(|_| running(&mut pool, whole(2, 1))).collect();
    run_long(&mut pool);
    for _ in 0..4 {
        let before = stopped(&pool).len();
        pool.lease(whole(1, 1));
        if let Some((victim, by)) = stopped(&pool).get(before).copied() {
            pool.all(victim, &STOPPED);
            pool.run_up(by);
        }
        run_long(&mut pool);
        pool.pass_ms(0);
    }
    assert_eq!(stopped(&pool).len(), 2, "half the pool");
    let left = theirs.iter().filter(|id| pool.state_of(**id) == LeaseState::Active).count();
    assert_eq!(left, 2);
}

#[test]
fn who_is_within_its_quota_or_ran_too_short_or_is_firm_is_not_stopped() {
    for (mine, theirs, long, expected) in [
        (Priority::Standard, Priority::Standard, true, 1),
        (Priority::Standard, Priority::Standard, false, 0),
        (Priority::Firm, Priority::Firm, true, 0),
        (Priority::Interruptible, Priority::Interruptible, true, 1),
        (Priority::Interruptible, Priority::Standard, true, 0),
    ] {
        let (groups, seats) = halves();
        let mut pool = pool(4, groups, seats);
        for _ in 0..4 {
            running(&mut pool, of_class(2, theirs));
        }
        if long {
            run_long(&mut pool);
        }
        pool.lease(of_class(1, mine));
        assert_eq!(stopped(&pool).len(), expected, "{mine:?} beside {theirs:?}");
    }
    let groups = vec![group("a", 1, 500), group("b", 1, 1000)];
    let mut pool = pool(4, groups, halves().1);
    for _ in 0..4 {
        running(&mut pool, whole(2, 1));
    }
    run_long(&mut pool);
    pool.lease(whole(1, 1));
    assert_eq!(stopped(&pool), [], "all of it is b's quota");
}

#[test]
fn a_quota_is_filled_by_the_higher_classes_first() {
    let world = |standard: usize| {
        let (groups, seats) = halves();
        let mut pool = pool(4, groups, seats);
        let kept = running(&mut pool, whole(2, 1));
        for at in 1..4 {
            let class = if at < standard { Priority::Standard } else { Priority::Interruptible };
            running(&mut pool, of_class(2, class));
        }
        run_long(&mut pool);
        (pool, kept)
    };
    let (mut pool, kept) = world(1);
    pool.lease(whole(1, 1));
    let victim = stopped(&pool)[0].0;
    assert_eq!(pool.reason_of(victim), Some(Reason::Preempted), "the lowest class goes first");
    assert_eq!(pool.state_of(kept), LeaseState::Active);
    // Where only this one's GPU will do: beside three interruptible ones it alone fills the quarter of its group.
    for (standard, stops) in [(1, 0), (2, 1)] {
        let (mut pool, kept) = world(standard);
        let mut there = whole(1, 1);
        there.members[0].gpu = Some(pool.get(kept).members[0].gpus[0]);
        pool.lease(there);
        assert_eq!(stopped(&pool).len(), stops, "beside {standard}");
    }
}

#[test]
fn nobody_is_stopped_for_a_colleague_below_the_same_quota() {
    let groups = vec![group("a", 1, 1000), group("a/x", 1, 0), group("a/y", 1, 250)];
    let mut pool = pool(4, groups, vec![seat(1, "a/x", 1), seat(2, "a/y", 1), seat(3, "a/x", 1)]);
    for _ in 0..4 {
        running(&mut pool, whole(1, 1));
    }
    run_long(&mut pool);
    let same = pool.lease(whole(3, 1));
    assert_eq!(stopped(&pool), []);
    pool.release(same);
    let other = pool.lease(whole(2, 1));
    assert_eq!(stopped(&pool).len(), 1, "but for one whose own quota it is not below");
    assert_eq!(pool.reason_of(other), Some(Reason::WaitsForStop));
}

#[test]
fn what_is_being_stopped_fills_no_quota_any_more() {
    let (groups, seats) = halves();
    let mut pool = pool(4, groups, seats);
    let theirs: Vec<LeaseId> = (0..2).map(|_| running(&mut pool, whole(2, 1))).collect();
    for _ in 0..2 {
        running(&mut pool, of_class(3, Priority::Firm));
    }
    run_long(&mut pool);
    pool.lease(whole(1, 1));
    assert_eq!(stopped(&pool).len(), 1);
    // The agent is silent: the slot stays taken, nobody knows how long.
    pool.pass_ms(Policy::default().ending_ms);
    pool.lease(whole(1, 1));
    let run = theirs.iter().filter(|id| pool.state_of(**id) == LeaseState::Active).count();
    assert_eq!((stopped(&pool).len(), run), (1, 1), "the other one is all that b has of its quarter");
}

/// Kueue #7101: evictions that complete at different times let who was stopped first take the room back.
#[test]
fn who_is_stopped_first_does_not_take_the_room_back_while_the_others_stop() {
    let (groups, seats) = halves();
    let mut pool = pool(4, groups, seats);
    for _ in 0..4 {
        running(&mut pool, whole(2, 1));
    }
    run_long(&mut pool);
    let mine = pool.lease(whole(1, 2));
    let victims: Vec<LeaseId> = stopped(&pool).into_iter().map(|(victim, _)| victim).collect();
    let [first, second] = victims[..] else { panic!("two are needed: {victims:?}") };
    pool.all(first, &STOPPED);
    assert_eq!(states(&pool, &[first, mine]), [LeaseState::Waiting, LeaseState::Waiting]);
    pool.all(second, &STOPPED);
    assert_eq!(states(&pool, &[first, second, mine]), [LeaseState::Waiting, LeaseState::Waiting, LeaseState::Held]);
}

#[test]
fn a_gang_is_stopped_whole_and_only_if_its_group_keeps_its_quota_without_it() {
    let (groups, seats) = halves();
    let mut pool = pool(4, groups, seats);
    let gang = running(&mut pool, whole(2, 4));
    run_long(&mut pool);
    pool.lease(whole(1, 1));
    assert_eq!((pool.state_of(gang), stopped(&pool).len()), (LeaseState::Active, 0), "b would fall below its quarter");
    let groups = vec![group("a", 1, 500)];
    let mut pool = self::pool(4, groups, vec![seat(1, "a", 1)]);
    let gang = running(&mut pool, whole(2, 4));
    run_long(&mut pool);
    let mine = pool.lease(whole(1, 1));
    assert_eq!(stopped(&pool), [(gang, mine)]);
    pool.all(gang, &STOPPED);
    assert_eq!(states(&pool, &[mine, gang]), [LeaseState::Held, LeaseState::Waiting]);
}

#[test]
fn who_has_run_long_enough_is_stopped_without_another_event() {
    let (groups, seats) = halves();
    let mut pool = pool(4, groups, seats);
    for _ in 0..4 {
        running(&mut pool, whole(2, 1));
    }
    pool.lease(whole(1, 1));
    pool.pass_ms(Policy::default().min_run_ms - 1);
    assert_eq!(stopped(&pool), []);
    pool.pass_ms(1);
    assert_eq!(stopped(&pool).len(), 1);
}

/// Everybody's agents do at once what they are told.
fn settle(pool: &mut Pool) {
    for _ in 0..200 {
        let live: Vec<(LeaseId, LeaseState)> = pool.state.leases.iter().map(|(id, lease)| (*id, lease.state)).collect();
        let mut done = true;
        for (id, state) in live {
            if pool.state_of(id) != state {
                continue;
            }
            match state {
                LeaseState::Held => pool.run_up(id),
                LeaseState::Ending => pool.all(id, &STOPPED),
                _ => continue,
            }
            done = false;
        }
        if done {
            return;
        }
    }
    panic!("it does not settle");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Leases that end only by being stopped. Nothing else happens: so at some time nothing happens any more, and nobody
    /// within a quota waits while another group's lease of its class stands beyond its own.
    #[test]
    fn stopping_for_quotas_and_classes_comes_to_an_end(
        quotas in prop::collection::vec(0_u16..500, 4),
        asks in prop::collection::vec((1_u8..6, 0_usize..4, 1_usize..3), 1..24),
    ) {
        let groups = vec![
            group("a", 1, quotas[0]), group("a/x", 2, quotas[1]), group("b", 3, quotas[2]), group("c", 1, quotas[3]),
        ];
        let seats = vec![seat(1, "a", 1), seat(2, "a/x", 2), seat(3, "b", 1), seat(4, "c", 1)];
        let mut pool = pool(5, groups, seats);
        pool.node(spec(2, vec![a100(2, 0)]));
        for (of, kind, members) in asks {
            let slices = vec![if kind == 0 { share(400, 10) } else { SliceWant::Whole }; members];
            let priority = [Priority::Interruptible, Priority::Standard, Priority::Standard, Priority::Firm][kind];
            let request = LeaseRequest { priority, on_node_loss: OnNodeLoss::Requeue, ..ask(renter(of), &slices) };
            let long = LeaseRequest { duration_ms: 500 * HOUR, wait_ms: 150 * HOUR, ..request };
            pool.request(long);
            settle(&mut pool);
        }
        let mut quiet = 0;
        for _ in 0..60 {
            let before = stopped(&pool).len();
            pool.pass_ms(Policy::default().min_run_ms);
            settle(&mut pool);
            quiet = if stopped(&pool).len() == before { quiet + 1 } else { 0 };
        }
        prop_assert!(quiet > 20, "stops go on: {:?}", stopped(&pool).len());
        let mut times = BTreeMap::new();
        for (victim, _) in stopped(&pool) {
            *times.entry(victim).or_insert(0) += 1;
        }
        prop_assert!(times.values().all(|times| *times < 12), "{times:?}");
    }
}
