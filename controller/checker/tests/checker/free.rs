//! Lies about what is had without a bill, and about how many leases there are.

use selion_api::agent::MemberEvent;
use selion_api::lease::{LeaseState, Priority};
use selion_api::{LeaseRequest, SliceWant};
use selion_checker::Rule;
use selion_market::{Effect, Input, Policy};

use crate::pool::{HOUR, Pool, TOKEN, ask, renter};
use crate::tape::{Tape, moves};

fn brief(of: u8) -> LeaseRequest {
    LeaseRequest { duration_ms: 1, ..ask(renter(of), &[SliceWant::Whole]) }
}

fn policy(tape: &mut Tape) -> &mut Policy {
    match &mut tape.0[1].input {
        Input::Opened { policy, .. } => policy,
        other => panic!("the second entry opens the log: {other:?}"),
    }
}

#[test]
fn a_grant_to_who_used_up_what_is_free_is_seen() {
    let mut pool = Pool::small();
    pool.fund(renter(2), TOKEN / 5);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = pool.lease(brief(2));
        pool.all(id, &MemberEvent::Accepted);
        pool.clear(id);
        ids.push(id);
    }
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    // As if each had been prepared for ten minutes.
    let mut late = 0;
    for leaf in &mut tape.0 {
        late += if matches!(leaf.input, Input::Release { .. }) { 600_000 } else { 0 };
        leaf.stamp.at_ms.0 += late;
    }
    tape.caught(Rule::FreeUse, ids[2].seq as usize);
}

#[test]
fn a_stop_for_who_used_up_what_is_free_is_seen() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 2 * TOKEN);
    let low = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(low);
    pool.now += HOUR / 2;
    let high = pool.lease(LeaseRequest { priority: Priority::Firm, ..ask(renter(2), &[SliceWant::Whole]) });
    assert_eq!(pool.state_of(low), LeaseState::Ending);
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    policy(&mut tape).min_run_ms = 3 * HOUR;
    tape.caught(Rule::FreeUse, high.seq as usize);
}

#[test]
fn a_lease_beyond_what_the_policy_allows_is_seen() {
    let mut pool = Pool::small();
    pool.lease(brief(1));
    let second = pool.lease(brief(1));
    let third = pool.lease(brief(1));
    let caught = |change: &dyn Fn(&mut Policy), entry: u64| {
        let mut tape = Tape::of(&pool);
        assert_eq!(tape.findings(), []);
        change(policy(&mut tape));
        tape.caught(Rule::Limits, entry as usize);
    };
    caught(&|policy| policy.max_waiting = 1, third.seq);
    caught(&|policy| policy.max_waiting_all = 1, third.seq);
    caught(&|policy| policy.max_leases = 1, second.seq);
    caught(&|policy| policy.max_leases_all = 1, second.seq);
}

#[test]
fn a_step_that_the_machine_does_not_have_is_seen_though_it_did_nothing() {
    let mut pool = Pool::small();
    let id = pool.lease(brief(1));
    let mut tape = Tape::of(&pool);
    tape.find(moves(id, LeaseState::Held));
    let told = Effect::Illegal { lease: id, from: LeaseState::Held, to: LeaseState::Active };
    let entry = tape.push(Input::Tick, vec![told]);
    tape.caught(Rule::Transition, entry);
}

#[test]
fn a_grant_without_a_live_key_is_seen() {
    let mut pool = Pool::small();
    let id = pool.lease(brief(1));
    let mut tape = Tape::of(&pool);
    for leaf in &mut tape.0 {
        if let Input::Block(block) = &mut leaf.input {
            block.events.retain(|event| !matches!(event, selion_api::chain::ChainEvent::KeyGranted { .. }));
        }
    }
    tape.caught(Rule::Payable, id.seq as usize);
}
