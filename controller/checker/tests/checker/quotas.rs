//! Lies about who is stopped for a quota.

use selion_api::lease::{LeaseState, Priority};
use selion_api::{LeaseId, LeaseRequest, Reason, SliceWant};
use selion_checker::Rule;
use selion_market::{Effect, Group, Input, Policy, Seat};

use crate::pool::{DELEGATE, Pool, TOKEN, a100, ask, renter, spec};
use crate::tape::{Tape, moves};

fn group(path: &str, quota_permille: u16) -> Group {
    Group { path: path.into(), weight: 1, quota_permille }
}

/// `a` has half of two GPUs guaranteed; both are `b`'s, until one of them is given to `a`.
fn reclaimed() -> (Pool, [LeaseId; 2]) {
    let mut pool = Pool::new();
    let seat = |of: u8, group: &str| Seat { account: renter(of), group: group.into(), weight: 1 };
    let policy = Policy {
        groups: vec![group("a", 500), group("b", 500)],
        accounts: vec![seat(1, "a"), seat(2, "b")],
        ..Policy::default()
    };
    pool.enter(Input::Opened { delegate: DELEGATE, policy });
    pool.node(spec(1, vec![a100(1, 0), a100(1, 1)]));
    for of in 1..3 {
        pool.fund(renter(of), 1000 * TOKEN);
    }
    for _ in 0..2 {
        let id = pool.lease(ask(renter(2), &[SliceWant::Whole]));
        pool.run_up(id);
    }
    pool.now += Policy::default().min_run_ms;
    let taker = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let victim = pool.state.leases.iter().find(|(_, lease)| lease.state == LeaseState::Ending);
    let victim = *victim.expect("one of b's is stopped").0;
    (pool, [victim, taker])
}

fn quotas(tape: &mut Tape, a: u16, b: u16) {
    let opened = tape.0.iter_mut().filter_map(|leaf| match &mut leaf.input {
        Input::Opened { policy, .. } => Some(policy),
        _ => None,
    });
    opened.last().unwrap().groups = vec![group("a", a), group("b", b)];
}

#[test]
fn a_stop_of_who_is_within_its_quota_or_for_who_is_above_it_is_seen() {
    let (pool, [_, taker]) = reclaimed();
    assert_eq!(Tape::of(&pool).findings(), []);
    for (a, b) in [(500, 501), (0, 0)] {
        let mut tape = Tape::of(&pool);
        quotas(&mut tape, a, b);
        tape.caught(Rule::Quota, taker.seq as usize);
    }
}

#[test]
fn a_second_stop_that_leaves_the_group_too_little_is_seen() {
    let (pool, [victim, taker]) = reclaimed();
    let other = pool.state.leases.iter().find(|(_, lease)| lease.state == LeaseState::Active);
    let other = *other.expect("one of b's runs on").0;
    assert_ne!(other, victim);
    let mut tape = Tape::of(&pool);
    let entry = taker.seq as usize;
    let reason = Some(Reason::QuotaReclaimed);
    tape.0[entry].effects.extend([
        Effect::Preempted { lease: other, attempt: 1, by: taker },
        Effect::Moved { lease: other, state: LeaseState::Ending, reason, attempt: 1 },
    ]);
    tape.caught(Rule::Quota, entry);
}

#[test]
fn a_firm_lease_that_is_stopped_for_a_firm_one_is_seen_and_a_stop_that_does_not_say_for_whom() {
    let (pool, [victim, taker]) = reclaimed();
    let mut tape = Tape::of(&pool);
    for leaf in &mut tape.0 {
        if let Input::Request(asked) = &mut leaf.input {
            asked.request = LeaseRequest { priority: Priority::Firm, ..asked.request.clone() };
        }
    }
    tape.caught(Rule::Preempt, taker.seq as usize);
    let mut silent = Tape::of(&pool);
    silent.0[taker.seq as usize].effects.retain(|effect| !matches!(effect, Effect::Preempted { .. }));
    assert!(silent.0[taker.seq as usize].effects.iter().any(moves(victim, LeaseState::Ending)));
    silent.caught(Rule::Preempt, taker.seq as usize);
}
