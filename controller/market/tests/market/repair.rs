//! Members of a gang that are lost with their node get other places while the others run on.

use selion_api::agent::{MemberEvent, Phase};
use selion_api::lease::{BillLine, LeaseState, OnNodeLoss, Priority, Within};
use selion_api::{Amount, LeaseId, LeaseRequest, NodeId, Reason, SliceWant};
use selion_market::ledger::Pocket;
use selion_market::state::Progress;
use selion_market::{Answer, Effect, Input, Policy};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, kept, node_id, renter, spec};

/// So many nodes with one GPU each.
fn pool(nodes: u8) -> Pool {
    let mut pool = Pool::new();
    for node in 1..=nodes {
        pool.node(spec(node, vec![a100(node, 0)]));
    }
    pool.fund(renter(1), 100 * TOKEN);
    pool.fund(renter(2), 100 * TOKEN);
    pool
}

/// Whole GPUs, of which it can do with `needs` while the others are repaired.
fn gang(members: usize, needs: u16) -> LeaseRequest {
    let request = ask(renter(1), &vec![SliceWant::Whole; members]);
    LeaseRequest { min_members: needs, on_node_loss: OnNodeLoss::Repair, ..request }
}

fn lose(pool: &mut Pool, node: NodeId) -> Vec<Effect> {
    let last_seq = pool.state.nodes[&node].last_seq;
    pool.enter(Input::Lost { node, last_seq }).effects
}

/// The node under that rank is lost: tells which it was.
fn lose_rank(pool: &mut Pool, id: LeaseId, rank: usize) -> NodeId {
    let node = pool.get(id).members[rank].node;
    lose(pool, node);
    node
}

fn attempts(pool: &Pool, id: LeaseId) -> Vec<u32> {
    pool.get(id).members.iter().map(|member| member.attempt).collect()
}

/// Rank, run and milliseconds of each line.
fn bills(pool: &Pool) -> Vec<(u16, u32, u64)> {
    let lines = pool.effects().into_iter().filter_map(|effect| match effect {
        Effect::Billed(BillLine { member, attempt, billable_ms, .. }) => Some((member, attempt, billable_ms)),
        _ => None,
    });
    lines.collect()
}

/// Nothing is kept for renter 1 any more, and what he has not free is billed, to the unit.
fn is_settled(pool: &Pool) {
    let holds = |pocket| pool.state.ledger.holds(pocket);
    let lines = pool.effects().into_iter().filter_map(|effect| match effect {
        Effect::Billed(line) if line.renter == renter(1) => Some(line.amount.0),
        _ => None,
    });
    let billed: u64 = lines.sum();
    assert_eq!(holds(Pocket::Reserved(renter(1))), Amount::ZERO);
    assert_eq!(pool.state.ledger.owed_by(renter(1)), Amount(billed));
    assert_eq!(holds(Pocket::Free(renter(1))), Amount(100 * TOKEN - billed));
}

fn stop_all(pool: &mut Pool, id: LeaseId) {
    let ranks = (0_u16..).zip(&pool.get(id).members);
    let there: Vec<u16> = ranks.filter(|(_, it)| it.progress != Progress::Gone).map(|(rank, _)| rank).collect();
    for rank in there {
        pool.report(id, rank, MemberEvent::Stopped { outputs: None }, 0);
    }
}

fn start(pool: &mut Pool, id: LeaseId, rank: u16) {
    for event in [MemberEvent::Accepted, MemberEvent::Ready, MemberEvent::Running] {
        pool.report(id, rank, event, 0);
    }
}

#[test]
fn a_lost_member_runs_again_elsewhere_while_the_others_run_on_and_each_run_is_billed_for_itself() {
    let mut pool = pool(4);
    let id = pool.lease(gang(3, 2));
    pool.run_up(id);
    pool.now += 600_000;
    for rank in 0..3 {
        pool.report(id, rank, MemberEvent::Metered, 600_000);
    }
    let lost = pool.get(id).members[1].node;
    let effects = lose(&mut pool, lost);
    assert!(effects.contains(&Effect::Broken { lease: id, attempt: 1, member: 1 }));
    assert!(effects.contains(&Effect::Repaired { lease: id, attempt: 2 }));
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Active, Some(Reason::NodeLost)));
    assert_eq!((attempts(&pool, id), pool.get(id).attempt), (vec![1, 2, 1], 2));
    assert_eq!(bills(&pool), [(1, 1, 600_000)], "what was lost is billed at once");
    let there = pool.get(id).members[1].node;
    assert_ne!(there, lost);
    let phase = |pool: &Pool, node| pool.state.desired(node)[0].phase;
    assert_eq!(phase(&pool, there), Phase::Prepare);
    assert_eq!(phase(&pool, pool.get(id).members[0].node), Phase::Start);
    pool.report(id, 1, MemberEvent::Accepted, 0);
    let early = pool.report(id, 1, MemberEvent::Running, 0);
    assert!(matches!(&early.answer, Answer::Refused(refusal) if refusal.reason == Reason::NotAssigned));
    pool.now += 50_000;
    let ready = pool.report(id, 1, MemberEvent::Ready, 0);
    assert!(ready.touched.desired.contains(&there), "its agent is told to start");
    assert_eq!(phase(&pool, there), Phase::Start);
    let joined = pool.report(id, 1, MemberEvent::Running, 0);
    assert_eq!(joined.effects, [Effect::Joined { lease: id, attempt: 2, member: 1 }]);
    assert_eq!((pool.get(id).broken.clone(), pool.reason_of(id)), (None, None));
    assert_eq!(pool.get(id).deadline, pool.get(id).expires());
    // To the end, with agents that claim too much.
    pool.pass_ms(2_950_000 - 1);
    for rank in 0..3 {
        pool.report(id, rank, MemberEvent::Metered, 2 * HOUR);
    }
    pool.pass_ms(1);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::Expired)));
    for rank in 0..3 {
        pool.report(id, rank, MemberEvent::Stopped { outputs: None }, 2 * HOUR);
    }
    assert_eq!(bills(&pool)[1..], [(0, 1, HOUR), (1, 2, 2_950_000), (2, 1, HOUR)]);
    let paid = [600_000, HOUR, 2_950_000, HOUR].map(|ms| TOKEN * ms / HOUR);
    assert_eq!(pool.get(id).past, [(2, Reason::Expired, Amount(paid.iter().sum()))]);
    is_settled(&pool);
}

#[test]
fn a_gang_completes_only_with_its_repaired_member() {
    let mut pool = pool(3);
    let id = pool.lease(gang(3, 2));
    pool.run_up(id);
    lose_rank(&mut pool, id, 2);
    for rank in 0..2 {
        pool.report(id, rank, MemberEvent::Exited { code: 0, outputs: None }, 0);
    }
    assert_eq!((pool.state_of(id), attempts(&pool, id)), (LeaseState::Active, vec![1, 1, 2]), "there is room now");
    start(&mut pool, id, 2);
    pool.now += 1_000;
    pool.report(id, 2, MemberEvent::Exited { code: 0, outputs: None }, 1_000);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(Reason::Completed)));
    assert_eq!(bills(&pool), [(2, 1, 0), (0, 1, 0), (1, 1, 0), (2, 2, 1_000)]);
    is_settled(&pool);
}

#[test]
fn a_gang_whose_repair_takes_too_long_waits_again_and_pays_no_line_twice() {
    let mut pool = pool(3);
    let id = pool.lease(gang(3, 2));
    pool.run_up(id);
    pool.now += 10_000;
    pool.report(id, 1, MemberEvent::Metered, 10_000);
    lose_rank(&mut pool, id, 1);
    let by = pool.now + Policy::default().prepare_ms;
    assert_eq!(pool.get(id).deadline.map(|at| at.0), Some(by), "there is no place, and the wait has an end");
    pool.pass_ms(Policy::default().prepare_ms - 1);
    assert_eq!(pool.state_of(id), LeaseState::Active);
    pool.pass_ms(1);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::NodeLost)));
    stop_all(&mut pool, id);
    assert_eq!(bills(&pool), [(1, 1, 10_000), (0, 1, 0), (2, 1, 0)]);
    assert_eq!(pool.get(id).past, [(1, Reason::NodeLost, Amount(TOKEN * 10_000 / HOUR))]);
    assert_eq!((pool.state_of(id), attempts(&pool, id)), (LeaseState::Held, vec![2, 2]), "all that it needs is there");
    pool.clear(id);
    is_settled(&pool);
}

#[test]
fn a_placed_repair_that_does_not_start_in_time_is_given_up() {
    let mut pool = pool(4);
    let id = pool.lease(gang(3, 2));
    pool.run_up(id);
    lose_rank(&mut pool, id, 0);
    start(&mut pool, id, 1); // of one that runs: nothing changes
    pool.report(id, 0, MemberEvent::Accepted, 0);
    let Policy { hold_ms, prepare_ms, start_ms, .. } = Policy::default();
    pool.pass_ms(hold_ms + prepare_ms + start_ms - 1);
    assert_eq!(pool.state_of(id), LeaseState::Active);
    pool.pass_ms(1);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::NodeLost)));
    stop_all(&mut pool, id);
    assert_eq!(attempts(&pool, id), [3, 3, 3], "three nodes are left, and it is first in line");
    assert_eq!(bills(&pool), [(0, 1, 0), (1, 1, 0), (2, 1, 0)], "nothing for what never ran");
}

#[test]
fn what_a_gang_needs_must_run_on() {
    let mut pool = pool(5);
    let id = pool.lease(gang(3, 1));
    pool.run_up(id);
    lose_rank(&mut pool, id, 0);
    lose_rank(&mut pool, id, 1);
    assert_eq!((pool.state_of(id), attempts(&pool, id)), (LeaseState::Active, vec![2, 3, 1]));
    start(&mut pool, id, 1);
    assert!(pool.get(id).broken.is_some(), "one still prepares");
    lose_rank(&mut pool, id, 2);
    assert_eq!(pool.state_of(id), LeaseState::Active, "the repaired one counts among those that run");
    lose_rank(&mut pool, id, 1);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::NodeLost)));
    stop_all(&mut pool, id);
    assert_eq!((pool.state_of(id), attempts(&pool, id)), (LeaseState::Held, vec![4]));
    pool.clear(id);
    let lines = bills(&pool);
    assert_eq!(lines, [(0, 1, 0), (1, 1, 0), (2, 1, 0), (1, 3, 0)], "each run that ran once: {lines:?}");
    is_settled(&pool);
}

#[test]
fn who_asked_for_something_else_or_cannot_do_with_less_is_not_repaired() {
    let whole = |request: LeaseRequest| {
        let mut pool = pool(4);
        let id = pool.lease(request);
        pool.run_up(id);
        lose_rank(&mut pool, id, 0);
        pool.state_of(id)
    };
    assert_eq!(whole(gang(3, 2)), LeaseState::Active);
    assert_eq!(whole(gang(3, 3)), LeaseState::Ending);
    assert_eq!(whole(LeaseRequest { on_node_loss: OnNodeLoss::Requeue, ..gang(3, 2) }), LeaseState::Ending);
    assert_eq!(whole(LeaseRequest { on_node_loss: OnNodeLoss::End, ..gang(3, 2) }), LeaseState::Ending);
    // All on one node: there is nothing to stand beside.
    let mut pool = Pool::new();
    for node in 1..3 {
        pool.node(spec(node, vec![a100(node, 0), a100(node, 1)]));
    }
    pool.fund(renter(1), 100 * TOKEN);
    let id = pool.lease(LeaseRequest { within: Within::Node, ..gang(2, 1) });
    pool.run_up(id);
    pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, 0);
    lose_rank(&mut pool, id, 1);
    assert_eq!((pool.state_of(id), pool.get(id).past.len()), (LeaseState::Held, 1), "a new run on the other");
}

#[test]
fn a_repaired_member_that_fails_before_it_runs_stops_the_gang_which_waits_again() {
    let failed = MemberEvent::Failed { reason: Reason::StagingFailed };
    for event in [failed, MemberEvent::Exited { code: 0, outputs: None }, MemberEvent::Stopped { outputs: None }] {
        let mut pool = pool(4);
        let id = pool.lease(gang(3, 2));
        pool.run_up(id);
        lose_rank(&mut pool, id, 1);
        pool.report(id, 1, MemberEvent::Accepted, 0);
        pool.report(id, 1, event, 0);
        assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::NodeLost)));
        stop_all(&mut pool, id);
        assert_eq!((pool.state_of(id), attempts(&pool, id)), (LeaseState::Held, vec![3, 3, 3]));
        assert_eq!(bills(&pool).len(), 3, "no line for what never ran");
    }
}

#[test]
fn a_repaired_member_that_is_lost_before_it_runs_is_placed_once_more() {
    let mut pool = pool(5);
    let id = pool.lease(gang(3, 2));
    pool.run_up(id);
    lose_rank(&mut pool, id, 1);
    let first = lose_rank(&mut pool, id, 1);
    assert_ne!(pool.get(id).members[1].node, first);
    assert_eq!((pool.state_of(id), attempts(&pool, id)), (LeaseState::Active, vec![1, 3, 1]));
    start(&mut pool, id, 1);
    pool.clear(id);
    assert_eq!(bills(&pool), [(1, 1, 0), (0, 1, 0), (1, 3, 0), (2, 1, 0)]);
    is_settled(&pool);
}

#[test]
fn what_the_lost_node_still_says_of_the_old_run_is_refused_and_it_may_get_the_member_again() {
    let mut pool = pool(3);
    let id = pool.lease(gang(3, 2));
    pool.run_up(id);
    let mut late = pool.report_for(id, 1, MemberEvent::Metered, 5_000);
    let node = lose_rank(&mut pool, id, 1);
    let number: u8 = node.0[0];
    pool.enter(Input::modelled_link(spec(number, vec![a100(number, 0)]), late.seq));
    assert_eq!((pool.get(id).members[1].node, attempts(&pool, id)), (node, vec![1, 2, 1]));
    let refused = pool.send(late.clone());
    assert!(matches!(&refused.answer, Answer::Refused(refusal) if refusal.reason == Reason::StaleReport));
    late.seq += 1;
    late.event = MemberEvent::Stopped { outputs: None };
    pool.send(late);
    assert_eq!(pool.get(id).members[1].progress, Progress::Granted, "the new run is as it was");
    start(&mut pool, id, 1);
    assert!(pool.get(id).broken.is_none());
}

#[test]
fn a_lease_may_be_released_or_expire_while_it_is_repaired() {
    for placed in [false, true] {
        let mut pool = pool(if placed { 4 } else { 3 });
        let id = pool.lease(gang(3, 2));
        pool.run_up(id);
        lose_rank(&mut pool, id, 1);
        assert_eq!(pool.release(id), Answer::Done);
        stop_all(&mut pool, id);
        assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(Reason::Released)));
        assert_eq!(bills(&pool).len(), 3);
        is_settled(&pool);
    }
    let mut pool = pool(3);
    let id = pool.lease(gang(3, 2));
    pool.run_up(id);
    pool.pass_ms(HOUR - 1_000);
    lose_rank(&mut pool, id, 1);
    assert_eq!(pool.get(id).deadline, pool.get(id).expires(), "the repair ends with the lease");
    pool.pass_ms(1_000);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::Expired)));
    stop_all(&mut pool, id);
    assert_eq!(pool.state_of(id), LeaseState::Ended);
    is_settled(&pool);
}

#[test]
fn a_controller_that_starts_again_gives_a_repair_its_full_time() {
    let mut pool = pool(3);
    let id = pool.lease(gang(3, 2));
    pool.run_up(id);
    lose_rank(&mut pool, id, 1);
    let away_ms = Policy::default().prepare_ms + 1;
    pool.now += away_ms;
    pool.fence.term += 1;
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy::default() });
    assert_eq!(pool.state_of(id), LeaseState::Active);
    assert_eq!(pool.get(id).deadline.map(|at| at.0), Some(pool.now + Policy::default().prepare_ms));
    let bytes = borsh::to_vec(&pool.state).unwrap();
    assert!(borsh::from_slice::<selion_market::State>(&bytes).unwrap() == pool.state);
    pool.node(spec(4, vec![a100(4, 0)]));
    assert_eq!(attempts(&pool, id), [1, 2, 1]);
}

#[test]
fn a_repair_comes_before_all_of_its_class_and_after_a_higher_one() {
    let waits = |priority: Priority| {
        let mut pool = pool(3);
        let id = pool.lease(gang(3, 2));
        pool.run_up(id);
        let one = ask(renter(2), &[SliceWant::Whole]);
        let other = pool.lease(LeaseRequest { priority, ..one });
        lose_rank(&mut pool, id, 1);
        pool.node(spec(4, vec![a100(4, 0)]));
        (attempts(&pool, id)[1], pool.state_of(other))
    };
    assert_eq!(waits(Priority::Interruptible), (2, LeaseState::Waiting));
    assert_eq!(waits(Priority::Standard), (2, LeaseState::Waiting));
    assert_eq!(waits(Priority::Firm), (1, LeaseState::Held));
}

#[test]
fn the_older_of_two_broken_gangs_is_repaired_first() {
    let mut pool = pool(4);
    let gangs = [1, 2].map(|of| {
        let id = pool.lease(LeaseRequest { renter: renter(of), ..gang(2, 1) });
        pool.run_up(id);
        id
    });
    for id in [gangs[1], gangs[0]] {
        lose_rank(&mut pool, id, 0);
    }
    pool.node(spec(5, vec![a100(5, 0)]));
    assert_eq!(gangs.map(|id| attempts(&pool, id)), [vec![2, 1], vec![1, 1]]);
    pool.node(spec(6, vec![a100(6, 0)]));
    assert_eq!(gangs.map(|id| attempts(&pool, id)), [vec![2, 1], vec![2, 1]]);
}

#[test]
fn a_repair_keeps_what_the_gang_asked_for_of_its_nodes() {
    // Racks are nodes 0 to 3, and 4 to 7.
    let mut pool = Pool::new();
    for node in [1, 2, 3, 4] {
        pool.node(spec(node, vec![a100(node, 0)]));
    }
    pool.fund(renter(1), 100 * TOKEN);
    for node in [1, 3] {
        let mut one = spec(node, vec![a100(node, 0)]);
        one.region = "us".into();
        pool.node(one);
    }
    let id = pool.lease(LeaseRequest { within: Within::Rack, ..gang(3, 2) });
    pool.run_up(id);
    let lost = lose_rank(&mut pool, id, 1);
    assert_eq!(attempts(&pool, id), [1, 1, 1], "node 4 is in another rack");
    let number = lost.0[0];
    let mut back = spec(number, vec![a100(number, 0)]);
    back.region = "us".into();
    pool.enter(Input::modelled_link(back, 0));
    assert_eq!(attempts(&pool, id), [1, 2, 1]);

    // Two on each node, on two nodes at least.
    let mut pool = Pool::new();
    for node in 1..3 {
        pool.node(spec(node, vec![a100(node, 0), a100(node, 1), a100(node, 2)]));
    }
    pool.fund(renter(1), 100 * TOKEN);
    let id = pool.lease(LeaseRequest { min_nodes: 2, ..gang(3, 2) });
    pool.run_up(id);
    let alone = (0..3).find(|rank| {
        let members = &pool.get(id).members;
        members.iter().filter(|other| other.node == members[*rank].node).count() == 1
    });
    lose_rank(&mut pool, id, alone.unwrap());
    assert_eq!(pool.get(id).attempt, 1, "the node that is left would be the only one");
    pool.node(spec(3, vec![a100(3, 0)]));
    assert_eq!((pool.get(id).attempt, pool.get(id).members[alone.unwrap()].node), (2, node_id(3)));
}

#[test]
fn a_repair_that_the_renter_cannot_pay_waits_for_money() {
    let mut pool = Pool::new();
    for node in 1..4 {
        pool.node(spec(node, vec![a100(node, 0)]));
    }
    pool.fund(renter(1), 3 * kept(TOKEN));
    let id = pool.lease(gang(3, 2));
    pool.run_up(id);
    lose_rank(&mut pool, id, 1);
    let free = pool.state.ledger.holds(Pocket::Free(renter(1)));
    assert_eq!(free, Amount(TOKEN), "what was kept for the rest of its time is free");
    let mut dear = spec(4, vec![a100(4, 0)]);
    dear.gpus[0].whole = Some(selion_api::Rate(2 * TOKEN));
    pool.node(dear);
    assert_eq!(attempts(&pool, id), [1, 1, 1], "it costs twice as much");
    pool.fund(renter(1), 10 * TOKEN);
    assert_eq!(attempts(&pool, id), [1, 2, 1]);
    assert_eq!(pool.get(id).members[1].rate, selion_api::Rate(2 * TOKEN));
}

#[test]
fn a_repair_does_not_delay_a_booking_of_a_higher_class() {
    let mut pool = pool(4);
    let id = pool.lease(gang(2, 1));
    pool.run_up(id);
    let short = pool.lease(LeaseRequest {
        duration_ms: HOUR / 2,
        priority: Priority::Firm,
        ..ask(renter(2), &[SliceWant::Whole, SliceWant::Whole])
    });
    pool.run_up(short);
    // Three GPUs of four: the first two come free in half an hour. It may not stop what has just begun.
    let firm = ask(renter(2), &[SliceWant::Whole, SliceWant::Whole, SliceWant::Whole]);
    let firm = pool.lease(LeaseRequest { priority: Priority::Firm, ..firm });
    assert_eq!(pool.state.booking.as_ref().map(|booking| booking.lease), Some(firm));
    pool.now += 1_000;
    lose_rank(&mut pool, id, 1);
    let before = pool.state.booking.clone().unwrap();
    assert_eq!((pool.state_of(id), attempts(&pool, id)), (LeaseState::Active, vec![1, 1]));
    pool.node(spec(5, vec![a100(5, 0)]));
    let booking = pool.state.booking.clone();
    assert!(booking.as_ref().is_none_or(|booking| booking.at <= before.at), "{before:?} {booking:?}");
    assert_eq!(pool.state_of(id), LeaseState::Active);
}
