//! Lies about how leases come, go and leave their slots.

use selion_api::agent::{Fence, MemberEvent};
use selion_api::lease::{LeaseState, OnNodeLoss};
use selion_api::said::{SAID_WITHIN_MS, Said};
use selion_api::{LeaseId, Reason, Signature, SliceWant, TimeMs};
use selion_checker::Rule;
use selion_market::{Effect, Input};

use crate::pool::{Pool, a100, ask, node_id, renter, spec};
use crate::tape::{Tape, moves};

fn small() -> (Pool, LeaseId) {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    (pool, id)
}

fn nobody() -> LeaseId {
    LeaseId { seq: 77, index: 7 }
}

#[test]
fn an_input_of_a_controller_that_was_replaced_does_nothing() {
    let (mut pool, id) = small();
    pool.fence.term = 0;
    pool.enter(Input::Release { renter: renter(1), lease: id, said: None });
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let last = tape.0.len() - 1;
    assert_eq!(tape.0[last].stamp.fence, Fence { epoch: 1, term: 0 });
    let stopped = Effect::Moved { lease: id, state: LeaseState::Ending, reason: Some(Reason::Released), attempt: 1 };
    tape.0[last].effects.push(stopped);
    tape.caught(Rule::Refusal, last);
}

/// A lease that was given back while it waited, and one that ran, each with the entry that says so.
fn given_back() -> (Tape, [usize; 2]) {
    let (mut pool, id) = small();
    pool.run_up(id);
    let waits = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    for lease in [waits, id] {
        let said = Some(Said { said_ms: TimeMs(pool.now), signature: Signature::ZERO });
        pool.enter(Input::Release { renter: renter(1), lease, said });
    }
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let entries = [(waits, LeaseState::Ended), (id, LeaseState::Ending)];
    (tape.clone(), entries.map(|(id, state)| tape.find(moves(id, state)).0))
}

#[test]
fn a_lease_that_its_renter_did_not_give_back_or_not_for_that_time_is_seen() {
    let (tape, entries) = given_back();
    for entry in entries {
        let lie = |change: &dyn Fn(&mut Input)| {
            let mut tape = tape.clone();
            change(&mut tape.0[entry].input);
            tape.caught(Rule::Released, entry);
        };
        lie(&|input| *input = Input::Tick);
        lie(&|input| {
            let Input::Release { renter: who, .. } = input else { panic!("it is one") };
            *who = renter(2);
        });
        lie(&|input| {
            let Input::Release { said: Some(said), .. } = input else { panic!("it is signed") };
            said.said_ms = said.said_ms.plus(SAID_WITHIN_MS + 1);
        });
    }
}

#[test]
fn a_lease_that_ends_at_a_limit_that_its_node_did_not_name_is_seen() {
    let (mut pool, id) = small();
    pool.run_up(id);
    pool.report(id, 0, MemberEvent::Limited { reason: Reason::OutOfMemory, outputs: None }, 60_000);
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(moves(id, LeaseState::Ending));
    let ends = |reason| {
        let mut tape = tape.clone();
        let Effect::Moved { reason: told, .. } = &mut tape.0[entry].effects[at] else { panic!("it is one") };
        *told = Some(reason);
        tape
    };
    ends(Reason::DiskFull).caught(Rule::Limit, entry);
    let mut silent = tape.clone();
    silent.0[entry].input = Input::Tick;
    silent.caught(Rule::Limit, entry);
}

#[test]
fn a_lease_that_nobody_asked_for_is_seen() {
    let (pool, _) = small();
    let mut tape = Tape::of(&pool);
    let born = Effect::Moved { lease: nobody(), state: LeaseState::Waiting, reason: None, attempt: 0 };
    let entry = tape.push(Input::Tick, vec![born]);
    tape.caught(Rule::Lease, entry);
}

#[test]
fn a_lease_under_another_number_than_its_entrys_is_seen() {
    let (pool, id) = small();
    let mut tape = Tape::of(&pool);
    let (entry, at) = tape.find(moves(id, LeaseState::Waiting));
    if let Effect::Moved { lease, .. } = &mut tape.0[entry].effects[at] {
        lease.index += 1;
    }
    tape.caught(Rule::Lease, entry);
}

#[test]
fn an_effect_of_another_run_is_seen() {
    let (mut pool, id) = small();
    pool.run_up(id);
    let mut tape = Tape::of(&pool);
    let (entry, at) = tape.find(moves(id, LeaseState::Active));
    if let Effect::Moved { attempt, .. } = &mut tape.0[entry].effects[at] {
        *attempt += 1;
    }
    tape.caught(Rule::Lease, entry);
}

#[test]
fn a_state_that_is_skipped_is_seen() {
    let (mut pool, id) = small();
    pool.run_up(id);
    let mut tape = Tape::of(&pool);
    let (entry, at) = tape.find(moves(id, LeaseState::Preparing));
    if let Effect::Moved { state, .. } = &mut tape.0[entry].effects[at] {
        *state = LeaseState::Active;
    }
    tape.caught(Rule::Transition, entry);
}

#[test]
fn a_slot_that_is_freed_without_its_nodes_word_is_seen() {
    let (mut pool, id) = small();
    pool.run_up(id);
    let freed = Effect::Freed { lease: id, attempt: 1, member: 0 };
    let report = |pool: &Pool, event| {
        let report = pool.report_for(id, 0, event, 0);
        Input::Report(selion_api::agent::SignedReport { report, signature: Signature::ZERO })
    };
    let inputs = [
        Input::Tick,
        Input::modelled_link(pool.state.nodes[&node_id(1)].spec.clone().unwrap(), 0),
        report(&pool, MemberEvent::Metered),
    ];
    for input in inputs {
        let mut tape = Tape::of(&pool);
        let entry = tape.push(input, vec![freed.clone()]);
        tape.caught(Rule::Freed, entry);
    }
    let mut tape = Tape::of(&pool);
    let other = Effect::Freed { lease: id, attempt: 1, member: 1 };
    let entry = tape.push(report(&pool, MemberEvent::Stopped { outputs: None }), vec![other]);
    tape.caught(Rule::Freed, entry);
}

#[test]
fn a_slot_that_is_freed_twice_is_seen() {
    let (mut pool, id) = small();
    pool.run_up(id);
    pool.clear(id);
    let mut tape = Tape::of(&pool);
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Freed { .. }));
    let again = tape.0[entry].effects[at].clone();
    tape.0[entry].effects.insert(at, again);
    tape.caught(Rule::Freed, entry);
}

#[test]
fn a_lost_node_that_goes_on_holding_something_is_seen() {
    let (mut pool, id) = small();
    pool.run_up(id);
    pool.enter(Input::Lost { node: node_id(1), last_seq: 3 });
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Freed { .. }));
    tape.0[entry].effects.remove(at);
    tape.caught(Rule::Left, entry);
}

#[test]
fn a_broken_gang_that_runs_again_elsewhere_is_not_found_fault_with() {
    let mut pool = Pool::small();
    pool.node(spec(2, vec![a100(2, 0)]));
    let mut request = ask(renter(1), &[SliceWant::Whole]);
    request.on_node_loss = OnNodeLoss::Requeue;
    let id = pool.lease(request);
    pool.run_up(id);
    pool.enter(Input::Lost { node: pool.get(id).members[0].node, last_seq: 3 });
    assert_eq!((pool.state_of(id), pool.get(id).attempt), (LeaseState::Held, 2));
    assert_eq!(Tape::of(&pool).findings(), []);
}
