//! Lies about members that are repaired while the others run on.

use selion_api::agent::{MemberEvent, SignedReport};
use selion_api::lease::{LeaseState, OnNodeLoss};
use selion_api::{Amount, LeaseId, LeaseRequest, Reason, Signature, SliceWant};
use selion_checker::Rule;
use selion_market::{Effect, Grant, Input, Pocket, Transfer};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, node_id, renter, spec};
use crate::tape::Tape;

fn gang(needs: u16, on_node_loss: OnNodeLoss) -> LeaseRequest {
    LeaseRequest { min_members: needs, on_node_loss, ..ask(renter(1), &vec![SliceWant::Whole; 3]) }
}

/// A gang of three on so many nodes of one GPU each, of which the last two ranks' are lost at once or not at all.
fn broken(nodes: u8, request: LeaseRequest, ranks: &[usize]) -> (Pool, LeaseId) {
    let mut pool = Pool::small();
    for node in 2..=nodes {
        pool.node(spec(node, vec![a100(node, 0)]));
    }
    pool.fund(renter(2), 100 * TOKEN);
    let id = pool.lease(request);
    pool.run_up(id);
    pool.now += 60_000;
    for rank in 0..3 {
        pool.report(id, rank, MemberEvent::Metered, 60_000);
    }
    for rank in ranks {
        let node = pool.get(id).members[*rank].node;
        pool.enter(Input::Lost { node, last_seq: 4 });
    }
    (pool, id)
}

/// One member was lost, has another place and runs there for a minute.
fn repaired() -> (Pool, LeaseId) {
    let (mut pool, id) = broken(4, gang(2, OnNodeLoss::Repair), &[1]);
    for event in [MemberEvent::Accepted, MemberEvent::Ready] {
        pool.now += 30_000;
        pool.report(id, 1, event, 0);
    }
    pool.now += 30_000;
    pool.report(id, 1, MemberEvent::Running, 0);
    pool.now += 60_000;
    pool.report(id, 1, MemberEvent::Metered, HOUR);
    pool.clear(id);
    (pool, id)
}

fn repairs(effect: &Effect) -> bool {
    matches!(effect, Effect::Repaired { .. })
}

fn joins(effect: &Effect) -> bool {
    matches!(effect, Effect::Joined { .. })
}

fn breaks(effect: &Effect) -> bool {
    matches!(effect, Effect::Broken { .. })
}

#[test]
fn an_honest_repair_is_not_found_fault_with() {
    let (pool, id) = repaired();
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    assert_eq!((tape.find(repairs).0, pool.get(id).attempt), (tape.find(breaks).0, 2));
}

#[test]
fn a_member_is_lost_by_its_agents_own_word_only_if_that_is_what_the_agent_said() {
    let (mut pool, id) = broken(4, gang(2, OnNodeLoss::Repair), &[]);
    pool.report(id, 1, MemberEvent::Failed { reason: Reason::RuntimeFailed }, 60_000);
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, _) = tape.find(breaks);
    for reason in [Reason::StagingFailed, Reason::SliceFailed, Reason::OwnerReclaimed, Reason::PaymentRequired] {
        let mut lie = tape.clone();
        if let Input::Report(signed) = &mut lie.0[entry].input {
            signed.report.event = MemberEvent::Failed { reason };
        }
        lie.caught(Rule::Repair, entry);
    }
}

#[test]
fn a_member_whose_agent_ended_soon_after_the_start_is_not_lost() {
    let is_lost_after = |ms| {
        let mut pool = Pool::small();
        for node in 2..=4 {
            pool.node(spec(node, vec![a100(node, 0)]));
        }
        let id = pool.lease(gang(2, OnNodeLoss::Repair));
        pool.run_up(id);
        pool.now += ms;
        pool.enter(Input::Tick);
        let report = pool.report_for(id, 1, MemberEvent::Failed { reason: Reason::RuntimeFailed }, 0);
        let mut tape = Tape::of(&pool);
        let freed = Effect::Freed { lease: id, attempt: 1, member: 1 };
        let lost = Effect::Broken { lease: id, attempt: 1, member: 1 };
        let said = SignedReport { report, signature: Signature::ZERO };
        let entry = tape.push(Input::Report(said), vec![freed, lost]);
        !tape.findings().iter().any(|found| (found.rule, found.entry) == (Rule::Repair, entry as u64))
    };
    assert!(!is_lost_after(9_999));
    assert!(is_lost_after(10_000));
}

#[test]
fn a_repair_of_what_was_not_lost_is_seen() {
    let (pool, id) = broken(4, gang(2, OnNodeLoss::Repair), &[]);
    let lost = Effect::Broken { lease: id, attempt: 1, member: 1 };
    for effect in
        [lost, Effect::Repaired { lease: id, attempt: 2 }, Effect::Joined { lease: id, attempt: 1, member: 1 }]
    {
        let mut tape = Tape::of(&pool);
        let entry = tape.push(Input::Tick, vec![effect]);
        tape.caught(Rule::Repair, entry);
    }
}

#[test]
fn a_repair_that_was_not_asked_for_or_leaves_too_few_is_seen() {
    for request in [gang(2, OnNodeLoss::Requeue), gang(3, OnNodeLoss::Repair)] {
        let (pool, id) = broken(3, request, &[1]);
        let mut tape = Tape::of(&pool);
        assert_eq!(tape.findings(), []);
        let (entry, at) = tape.find(|effect| matches!(effect, Effect::Freed { .. }));
        tape.0[entry].effects.insert(at + 1, Effect::Broken { lease: id, attempt: 1, member: 1 });
        tape.caught(Rule::Repair, entry);
    }
}

#[test]
fn a_lost_member_without_its_bill_or_with_two_is_seen() {
    let (pool, _) = repaired();
    let tape = Tape::of(&pool);
    let (entry, _) = tape.find(breaks);
    let at = tape.0[entry].effects.iter().position(|effect| matches!(effect, Effect::Billed(_))).unwrap();
    let mut silent = tape.clone();
    let line = silent.0[entry].effects.remove(at);
    silent.caught(Rule::Bill, entry);
    // Once more when the others are over.
    let mut twice = tape;
    let last = twice.0.iter().rposition(|leaf| leaf.effects.iter().any(|it| matches!(it, Effect::Billed(_)))).unwrap();
    let at = twice.0[last].effects.iter().position(|effect| matches!(effect, Effect::Billed(_))).unwrap();
    twice.0[last].effects.insert(at, line);
    twice.caught(Rule::Bill, last);
}

#[test]
fn two_live_runs_of_a_rank_are_seen() {
    let (pool, id) = repaired();
    let mut tape = Tape::of(&pool);
    let (entry, _) = tape.find(repairs);
    for effect in &mut tape.0[entry].effects {
        if let Effect::Granted(grant) = effect {
            grant.member = 0;
        }
    }
    tape.caught(Rule::Gang, entry);
    let mut tape = Tape::of(&pool);
    tape.0[entry].effects.retain(|effect| !matches!(effect, Effect::Granted(_)));
    tape.caught(Rule::Gang, entry);
    let mut tape = Tape::of(&pool);
    for effect in &mut tape.0[entry].effects {
        match effect {
            Effect::Repaired { attempt, .. } => *attempt = 1,
            Effect::Granted(grant) => grant.attempt = 1,
            _ => {}
        }
    }
    tape.caught(Rule::Lease, entry);
    assert_eq!(pool.get(id).attempt, 2);
}

#[test]
fn a_bill_that_starts_before_its_member_runs_is_seen() {
    let (pool, _) = repaired();
    let tape = Tape::of(&pool);
    let (entry, at) = tape.find(joins);
    let mut early = tape.clone();
    let joined = early.0[entry].effects.remove(at);
    early.0[entry - 1].effects.push(joined);
    early.caught(Rule::Repair, entry - 1);
    let mut long = tape;
    let line = |effect: &Effect| matches!(effect, Effect::Billed(line) if line.attempt == 2);
    let (entry, at) = long.find(line);
    if let Effect::Billed(line) = &mut long.0[entry].effects[at] {
        assert_eq!(line.billable_ms, 60_000, "its node claims an hour");
        line.billable_ms += 1_000;
        line.amount = line.rate.bill(line.billable_ms);
    }
    long.caught(Rule::BillTime, entry);
}

#[test]
fn a_repair_for_which_nothing_is_kept_is_seen() {
    let (pool, _) = repaired();
    let mut tape = Tape::of(&pool);
    let (entry, at) = tape.find(repairs);
    let kept = |effect: &Effect| matches!(effect, Effect::Moneyed(it) if it.to == Pocket::Reserved(renter(1)));
    let at = at + tape.0[entry].effects[at..].iter().position(kept).unwrap();
    tape.0[entry].effects.remove(at);
    tape.caught(Rule::Reserve, entry);
}

#[test]
fn a_gang_that_is_complete_without_its_lost_member_is_seen() {
    let (pool, lease) = broken(3, gang(2, OnNodeLoss::Repair), &[1]);
    let mut tape = Tape::of(&pool);
    let reason = Some(Reason::Completed);
    let over = Effect::Moved { lease, state: LeaseState::Ending, reason, attempt: 1 };
    let entry = tape.push(Input::Tick, vec![over]);
    tape.caught(Rule::Repair, entry);
}

#[test]
fn a_repair_behind_one_of_its_class_is_seen() {
    let (mut pool, _) = broken(3, gang(2, OnNodeLoss::Repair), &[1]);
    let other = pool.lease(ask(renter(2), &[SliceWant::Whole]));
    pool.node(spec(4, vec![a100(4, 0)]));
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(repairs);
    let place = tape.0[entry].effects.iter().find_map(|effect| match effect {
        Effect::Granted(grant) => Some(grant.clone()),
        _ => None,
    });
    let held = Effect::Moved { lease: other, state: LeaseState::Held, reason: None, attempt: 1 };
    let grant = Grant { lease: other, attempt: 1, member: 0, renter: renter(2), ..place.unwrap() };
    assert_eq!(grant.node, node_id(4));
    let keep = Transfer { from: Pocket::Free(renter(2)), to: Pocket::Reserved(renter(2)), amount: Amount(TOKEN) };
    tape.0[entry].effects.truncate(at);
    // Who is served is not booked any more.
    tape.0[entry].effects.extend([held, Effect::Granted(grant), Effect::Moneyed(keep)]);
    let findings = tape.findings();
    let first = findings.iter().find(|finding| finding.rule == Rule::Order).map(|finding| finding.entry);
    assert_eq!(first, Some(entry as u64), "{findings:?}");
}
