//! Lies about members of several GPUs.

use selion_api::agent::MemberEvent;
use selion_api::{LeaseId, LeaseRequest, Rate, SliceWant};
use selion_checker::Rule;
use selion_market::{Effect, Grant, Input, Pocket, Transfer};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, gpu_id, node_id, provider, renter, spec};
use crate::tape::Tape;

/// Node 1 with four GPUs, the last one of another model, and node 2 with one.
fn pool() -> Pool {
    let mut pool = Pool::new();
    let mut first = spec(1, (0..4).map(|rank| a100(1, rank)).collect());
    first.gpus[3].model = "H100 80GB".into();
    pool.node(first);
    pool.node(spec(2, vec![a100(2, 0)]));
    pool.fund(renter(1), 1000 * TOKEN);
    pool
}

fn several(gpus: u16) -> LeaseRequest {
    let mut request = ask(renter(1), &[SliceWant::Whole]);
    request.members[0].gpus = gpus;
    request
}

/// A lease of two GPUs, granted.
fn granted() -> (Tape, LeaseId) {
    let mut pool = pool();
    let id = pool.lease(several(2));
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    (tape, id)
}

/// The grant of the second GPU, with its entry and place.
fn second(tape: &mut Tape) -> (usize, usize, &mut Grant) {
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Granted(grant) if grant.gpu == gpu_id(1, 1)));
    match &mut tape.0[entry].effects[at] {
        Effect::Granted(grant) => (entry, at, grant),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn lie(rule: Rule, change: impl Fn(&mut Grant)) {
    let (mut tape, _) = granted();
    let (entry, _, grant) = second(&mut tape);
    change(grant);
    tape.caught(rule, entry);
}

#[test]
fn two_gpus_of_a_member_on_two_nodes_are_seen() {
    lie(Rule::Gpus, |grant| (grant.node, grant.gpu, grant.provider) = (node_id(2), gpu_id(2, 0), provider(2)));
    lie(Rule::Gpus, |grant| (grant.node, grant.gpu) = (node_id(2), gpu_id(2, 0)));
}

#[test]
fn two_models_in_a_member_are_seen() {
    lie(Rule::Gpus, |grant| grant.gpu = gpu_id(1, 3));
}

#[test]
fn one_gpu_given_twice_is_seen() {
    lie(Rule::Gpus, |grant| grant.gpu = gpu_id(1, 0));
}

#[test]
fn a_member_with_fewer_or_more_gpus_than_it_asked_for_is_seen() {
    let (mut tape, _) = granted();
    let (entry, at, _) = second(&mut tape);
    let last = tape.0[entry].effects.remove(at);
    tape.caught(Rule::Gpus, entry);
    let Effect::Granted(grant) = last.clone() else { unreachable!("it was found as a grant") };
    let third = Effect::Granted(Grant { gpu: gpu_id(1, 2), ..grant });
    tape.0[entry].effects.splice(at..at, [last, third]);
    tape.caught(Rule::Gang, entry);
}

#[test]
fn the_next_member_before_the_last_one_has_all_its_gpus_is_seen() {
    let mut pool = pool();
    let mut request = ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]);
    request.members[0].gpus = 2;
    pool.lease(request);
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Granted(grant) if grant.member == 0));
    tape.0[entry].effects.remove(at + 1);
    tape.caught(Rule::Gpus, entry);
}

#[test]
fn another_party_class_rate_or_slot_for_the_second_gpu_is_seen() {
    lie(Rule::Party, |grant| grant.provider = provider(2));
    lie(Rule::Party, |grant| grant.renter = renter(2));
    lie(Rule::Rate, |grant| grant.rate.0 += 1);
    lie(Rule::Class, |grant| grant.class = selion_api::IsolationClass::Whole);
    lie(Rule::Slot, |grant| grant.gpu = gpu_id(1, 9));
    lie(Rule::Slot, |grant| grant.slot = selion_api::Slot::Share { compute_permille: 1, mem_bytes: 1 });
}

#[test]
fn asks_that_are_above_the_renters_highest_only_together_are_seen() {
    let (mut tape, id) = granted();
    if let Input::Request(asked) = &mut tape.0[id.seq as usize].input {
        asked.request.max_rate = Some(Rate(2 * TOKEN - 1));
    }
    tape.caught(Rule::MaxRate, id.seq as usize);
}

#[test]
fn a_second_gpu_that_another_lease_holds_is_seen() {
    let mut pool = pool();
    let mut pinned = several(1);
    pinned.members[0].gpu = Some(gpu_id(1, 2));
    pool.lease(pinned.clone());
    pool.lease(several(2));
    let mut tape = Tape::of(&pool);
    let (entry, _, grant) = second(&mut tape);
    grant.gpu = gpu_id(1, 2);
    tape.caught(Rule::Overlap, entry);
    // And the other way round: who comes later is put on the second GPU of who was there before.
    let mut pool = self::pool();
    pool.lease(several(2));
    let late = pool.lease(pinned);
    let mut tape = Tape::of(&pool);
    if let Input::Request(asked) = &mut tape.0[late.seq as usize].input {
        asked.request.members[0].gpu = None;
    }
    let (entry, grant) = tape.grant(late, 0);
    grant.gpu = gpu_id(1, 1);
    tape.caught(Rule::Overlap, entry);
}

#[test]
fn a_bill_that_is_not_at_the_sum_of_the_asks_is_seen() {
    let mut pool = pool();
    let id = pool.lease(several(2));
    pool.run_up(id);
    pool.now += HOUR / 2;
    pool.report(id, 0, MemberEvent::Metered, HOUR / 2);
    pool.clear(id);
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Billed(_)));
    for rate in [TOKEN, 2 * TOKEN - 1, 2 * TOKEN + 1] {
        let mut tape = tape.clone();
        let Effect::Billed(line) = &mut tape.0[entry].effects[at] else { unreachable!("it was just found") };
        line.rate = Rate(rate);
        line.amount = line.rate.bill(line.billable_ms);
        tape.caught(Rule::Bill, entry);
    }
}

#[test]
fn less_or_more_kept_than_all_gpus_cost_is_seen() {
    for kept in [TOKEN, 3 * TOKEN] {
        let (mut tape, _) = granted();
        let (entry, at) =
            tape.find(|effect| matches!(effect, Effect::Moneyed(Transfer { to: Pocket::Reserved(_), .. })));
        let Effect::Moneyed(transfer) = &mut tape.0[entry].effects[at] else { unreachable!("it was just found") };
        transfer.amount.0 = kept;
        tape.caught(Rule::Reserve, entry);
    }
}
