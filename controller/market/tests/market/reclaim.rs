//! Owners take their machines back: with notice, whole gangs, paid for what ran, and nobody placed there any more.

use selion_api::agent::MemberEvent;
use selion_api::lease::{LeaseState, OnNodeLoss, Priority};
use selion_api::{GpuId, LeaseId, LeaseRequest, Reason, SliceWant, TimeMs};
use selion_market::{Answer, Effect, Input, Policy};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, gpu_id, mig, node_id, provider, renter, spec};

const STOPPED: MemberEvent = MemberEvent::Stopped { outputs: None };
const NOTICE: u64 = HOUR / 4;

/// Nodes of so many A100, and two renters.
fn fleet(gpus: &[u8]) -> Pool {
    let mut pool = Pool::new();
    for (node, gpus) in (1..).zip(gpus) {
        pool.node(spec(node, (0..*gpus).map(|rank| a100(node, rank)).collect()));
    }
    for of in 1..3 {
        pool.fund(renter(of), 1000 * TOKEN);
    }
    pool
}

fn whole(of: u8, gpus: usize) -> LeaseRequest {
    LeaseRequest { on_node_loss: OnNodeLoss::Requeue, ..ask(renter(of), &vec![SliceWant::Whole; gpus]) }
}

fn running(pool: &mut Pool, request: LeaseRequest) -> LeaseId {
    let id = pool.lease(request);
    pool.run_up(id);
    id
}

fn reclaim(pool: &mut Pool, node: u8, gpu: Option<GpuId>, notice_ms: u64) -> Vec<Effect> {
    let input = Input::Reclaim { provider: provider(node), node: node_id(node), gpu, notice_ms, said: None };
    let outcome = pool.enter(input);
    assert_eq!(outcome.answer, Answer::Done);
    outcome.effects
}

fn resume(pool: &mut Pool, node: u8) {
    pool.enter(Input::SetPaused { provider: provider(node), node: node_id(node), paused: false, said: None });
}

#[test]
fn what_ends_later_is_stopped_when_the_notice_is_over_and_its_owner_is_paid_for_what_ran() {
    let mut pool = fleet(&[1]);
    let id = running(&mut pool, whole(1, 1));
    let by = TimeMs(pool.now + NOTICE);
    let told = reclaim(&mut pool, 1, None, NOTICE);
    assert!(told.contains(&Effect::Reclaimed { node: node_id(1), gpu: None, by: Some(by) }));
    assert_eq!((pool.state_of(id), pool.get(id).deadline), (LeaseState::Active, Some(by)), "its end is known at once");
    assert_eq!(pool.state.next_deadline(), Some(by));
    pool.pass_ms(NOTICE - 1);
    assert_eq!(pool.state_of(id), LeaseState::Active);
    pool.pass_ms(1);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::OwnerReclaimed)));
    assert!(pool.state.desired(node_id(1)).is_empty(), "its agent is told to stop it");
    pool.report(id, 0, STOPPED, NOTICE);
    assert_eq!(pool.get(id).past, [(1, Reason::OwnerReclaimed, selion_api::Amount(TOKEN / 4))]);
    assert_eq!(pool.state.billed[&(renter(1), provider(1))].0, TOKEN / 4);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Waiting, Some(Reason::OwnerReclaimed)));
}

#[test]
fn what_ends_before_runs_on_to_its_end() {
    let mut pool = fleet(&[1]);
    let id = running(&mut pool, whole(1, 1));
    reclaim(&mut pool, 1, None, HOUR);
    assert_eq!(pool.get(id).deadline.unwrap().0, pool.now + HOUR);
    pool.pass_ms(HOUR);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::Expired)));
}

#[test]
fn without_notice_everything_stops_in_the_same_entry_also_what_did_not_start_yet() {
    let mut pool = fleet(&[2]);
    let (runs, prepares) = (running(&mut pool, whole(1, 1)), pool.lease(whole(1, 1)));
    reclaim(&mut pool, 1, None, 0);
    for id in [runs, prepares] {
        assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::OwnerReclaimed)));
    }
    pool.report(prepares, 0, STOPPED, 0);
    assert_eq!(pool.get(prepares).past[0].2.0, 0, "nothing ran");
}

#[test]
fn a_whole_gang_stops_and_runs_again_where_nothing_is_taken_back() {
    let mut pool = fleet(&[1, 1]);
    let gang = running(&mut pool, LeaseRequest { min_nodes: 2, ..whole(1, 2) });
    let other = pool.lease(whole(2, 1));
    reclaim(&mut pool, 1, Some(gpu_id(1, 0)), NOTICE);
    let booking = pool.state.booking.clone().unwrap();
    let free_from = pool.now + NOTICE + Policy::default().ending_ms;
    assert_eq!((booking.lease, booking.at.0), (other, free_from), "the other place of the gang is known to come free");
    assert_eq!(booking.places[0].0, node_id(2), "and the one taken back takes nobody");
    pool.pass_ms(NOTICE);
    pool.all(gang, &STOPPED);
    let states = [gang, other].map(|id| pool.state_of(id));
    assert_eq!(states, [LeaseState::Waiting, LeaseState::Held], "one place is too few for the gang");
    pool.node(spec(3, vec![a100(3, 0)]));
    pool.clear(other);
    assert_eq!(pool.state_of(gang), LeaseState::Held);
    assert!(pool.get(gang).members.iter().all(|member| member.node != node_id(1)));
}

#[test]
fn who_did_not_ask_to_wait_again_ends() {
    let mut pool = fleet(&[1]);
    let id = running(&mut pool, ask(renter(1), &[SliceWant::Whole]));
    reclaim(&mut pool, 1, None, 0);
    pool.all(id, &STOPPED);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(Reason::OwnerReclaimed)));
}

#[test]
fn one_gpu_is_taken_back_and_the_others_go_on() {
    let mut pool = fleet(&[2]);
    let (first, second) = (running(&mut pool, whole(1, 1)), running(&mut pool, whole(1, 1)));
    let gpu = pool.get(first).members[0].gpus[0];
    reclaim(&mut pool, 1, Some(gpu), 0);
    assert_eq!([first, second].map(|id| pool.state_of(id)), [LeaseState::Ending, LeaseState::Active]);
    pool.all(first, &STOPPED);
    assert_eq!(pool.state_of(first), LeaseState::Waiting, "its own GPU is not given to it again");
    assert_eq!(pool.state.nodes[&node_id(1)].blocked, None);
    let nearest = pool.get(first).nearest.clone().unwrap();
    assert_eq!((nearest.gpu, nearest.reason), (Some(pool.get(second).members[0].gpus[0]), Reason::PoolFull));
    pool.clear(second);
    let (state, member) = (pool.state_of(first), &pool.get(first).members[0]);
    assert_eq!((state, member.gpus == [gpu]), (LeaseState::Held, false));
}

#[test]
fn a_request_that_only_fits_there_is_refused_with_the_reason() {
    let mut pool = fleet(&[1]);
    reclaim(&mut pool, 1, Some(gpu_id(1, 0)), HOUR);
    assert_eq!(pool.refusal(whole(1, 1)).reason, Reason::OwnerReclaimed);
    resume(&mut pool, 1);
    reclaim(&mut pool, 1, None, HOUR);
    assert_eq!(pool.refusal(whole(1, 1)).reason, Reason::OwnerReclaimed);
    assert_eq!(pool.state.nodes[&node_id(1)].blocked, Some(Reason::OwnerReclaimed));
    resume(&mut pool, 1);
    let id = pool.lease(whole(1, 1));
    assert_eq!(pool.state_of(id), LeaseState::Held);
}

#[test]
fn who_resumes_wants_nothing_back_and_what_runs_has_its_own_end_again() {
    let mut pool = fleet(&[1]);
    let (active, prepares) =
        (running(&mut pool, ask(renter(1), &[mig("1g.10gb")])), pool.lease(ask(renter(1), &[mig("1g.10gb")])));
    let ends = [active, prepares].map(|id| pool.get(id).deadline);
    reclaim(&mut pool, 1, None, 1000);
    assert_eq!([active, prepares].map(|id| pool.get(id).deadline), [Some(TimeMs(pool.now + 1000)); 2]);
    let pause = Input::SetPaused { provider: provider(1), node: node_id(1), paused: true, said: None };
    pool.enter(pause);
    assert_eq!(pool.get(active).deadline, Some(TimeMs(pool.now + 1000)), "a pause takes nothing back");
    resume(&mut pool, 1);
    assert_eq!([active, prepares].map(|id| pool.get(id).deadline), ends);
    pool.pass_ms(2000);
    assert_eq!(pool.state_of(active), LeaseState::Active);
}

#[test]
fn asked_again_the_earlier_time_holds() {
    let mut pool = fleet(&[1]);
    let id = running(&mut pool, whole(1, 1));
    for (notice_ms, deadline_ms) in [(NOTICE, NOTICE), (2 * NOTICE, NOTICE), (NOTICE / 2, NOTICE / 2)] {
        reclaim(&mut pool, 1, None, notice_ms);
        assert_eq!(pool.get(id).deadline.unwrap().0, pool.now + deadline_ms);
    }
    reclaim(&mut pool, 1, Some(gpu_id(1, 0)), NOTICE / 4);
    assert_eq!(pool.get(id).deadline.unwrap().0, pool.now + NOTICE / 4);
}

#[test]
fn a_member_that_is_over_frees_its_gang_from_the_notice() {
    let mut pool = fleet(&[1, 1]);
    let gang = running(&mut pool, LeaseRequest { min_nodes: 2, ..whole(1, 2) });
    let natural = pool.get(gang).deadline;
    reclaim(&mut pool, 1, None, NOTICE);
    let here = pool.get(gang).members.iter().position(|member| member.node == node_id(1)).unwrap();
    pool.report(gang, here as u16, MemberEvent::Exited { code: 0, outputs: None }, 10);
    assert_eq!((pool.get(gang).deadline, pool.get(gang).notice), (natural, None));
    pool.pass_ms(NOTICE);
    assert_eq!(pool.state_of(gang), LeaseState::Active);
}

#[test]
fn only_the_owner_takes_back_and_only_what_there_is() {
    let mut pool = fleet(&[1]);
    let reason = |pool: &mut Pool, of: u8, node: u8, gpu| {
        let input = Input::Reclaim { provider: provider(of), node: node_id(node), gpu, notice_ms: 0, said: None };
        match pool.enter(input).answer {
            Answer::Refused(refusal) => refusal.reason,
            other => panic!("no refusal: {other:?}"),
        }
    };
    assert_eq!(reason(&mut pool, 2, 1, None), Reason::NotYours);
    assert_eq!(reason(&mut pool, 2, 2, None), Reason::UnknownNode);
    assert_eq!(reason(&mut pool, 1, 1, Some(gpu_id(1, 7))), Reason::BadRequest);
    let id = pool.lease(whole(1, 1));
    assert_eq!(pool.state_of(id), LeaseState::Held);
}

#[test]
fn a_new_controller_keeps_the_owners_time_and_gives_agents_theirs_again() {
    let mut pool = fleet(&[1]);
    let id = pool.lease(whole(1, 1));
    let by = TimeMs(pool.now + 15_000);
    reclaim(&mut pool, 1, None, 15_000);
    pool.now += 8_000;
    pool.fence.term += 1;
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy::default() });
    assert_eq!(pool.get(id).deadline, Some(by));
    resume(&mut pool, 1);
    assert_eq!(pool.get(id).deadline.unwrap().0, pool.now + Policy::default().hold_ms);
    reclaim(&mut pool, 1, None, 5_000);
    pool.now += 6_000;
    pool.fence.term += 1;
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy::default() });
    assert_eq!(pool.reason_of(id), Some(Reason::OwnerReclaimed), "what fell due meanwhile is due");
}

#[test]
fn an_agent_that_stops_what_its_owner_takes_back_ends_no_lease_that_may_wait_again() {
    let mut pool = fleet(&[1]);
    let id = running(&mut pool, whole(1, 1));
    reclaim(&mut pool, 1, None, HOUR / 2);
    pool.report(id, 0, STOPPED, 0);
    assert_eq!(pool.state_of(id), LeaseState::Waiting);
    resume(&mut pool, 1);
    pool.run_up(id);
    pool.report(id, 0, STOPPED, 0);
    assert_eq!(pool.state_of(id), LeaseState::Ended, "on a place that takes leases it would only be stopped again");
}

#[test]
fn a_lease_that_was_taken_back_stands_before_newcomers_of_its_class_and_behind_a_higher_one() {
    let mut pool = fleet(&[1, 1]);
    let back = running(&mut pool, whole(1, 1));
    let blocks = running(&mut pool, whole(2, 1));
    let newcomer = pool.lease(whole(2, 1));
    let node = pool.get(back).members[0].node.0[0];
    reclaim(&mut pool, node, None, 0);
    pool.all(back, &STOPPED);
    let high = pool.lease(LeaseRequest { priority: Priority::Firm, ..whole(2, 1) });
    assert_eq!([high, back, newcomer].map(|id| pool.get(id).position), [1, 2, 3]);
    pool.clear(blocks);
    pool.clear(high);
    assert_eq!([back, newcomer].map(|id| pool.state_of(id)), [LeaseState::Held, LeaseState::Waiting]);
}
