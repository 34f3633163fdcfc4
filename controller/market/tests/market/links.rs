//! Reports: only of the right node, run, slot, number and fence.

use selion_api::agent::{MemberEvent, Phase};
use selion_api::lease::{LeaseRequest, LeaseState, OnNodeLoss};
use selion_api::{Amount, NodeId, NodeSpec, Reason, SliceWant, Slot};
use selion_market::{Answer, Input, Outcome};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, gpu_id, mig, node_id, renter, spec};

fn refused(outcome: Outcome) -> Reason {
    match outcome.answer {
        Answer::Refused(refusal) => refusal.reason,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_report_of_what_was_not_given_changes_nothing_but_is_heard() {
    let mut pool = Pool::small();
    pool.node(spec(2, vec![a100(2, 0)]));
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let honest = pool.report_for(id, 0, MemberEvent::Accepted, 0);

    let mut stranger = honest.clone();
    stranger.node = NodeId([9; 20]);
    assert_eq!(refused(pool.send(stranger)), Reason::UnknownNode);
    let mut neighbour = honest.clone();
    neighbour.node = node_id(2);
    assert_eq!(refused(pool.send(neighbour)), Reason::NotAssigned);
    let mut other_gpu = honest.clone();
    other_gpu.gpus = vec![gpu_id(1, 7)];
    assert_eq!(refused(pool.send(other_gpu)), Reason::NotAssigned);
    let mut other_slot = pool.report_for(id, 0, MemberEvent::Accepted, 0);
    other_slot.slot = Slot::Share { compute_permille: 1, mem_bytes: 1 };
    assert_eq!(refused(pool.send(other_slot)), Reason::NotAssigned);
    let mut other_run = pool.report_for(id, 0, MemberEvent::Accepted, 0);
    other_run.attempt = 7;
    assert_eq!(refused(pool.send(other_run)), Reason::StaleReport);
    let mut other_rank = pool.report_for(id, 0, MemberEvent::Accepted, 0);
    other_rank.member = 3;
    assert_eq!(refused(pool.send(other_rank)), Reason::NotAssigned);
    let mut future = pool.report_for(id, 0, MemberEvent::Accepted, 0);
    future.fence.term += 1;
    assert_eq!(refused(pool.send(future)), Reason::StaleFence);
    let mut past = pool.report_for(id, 0, MemberEvent::Accepted, 0);
    past.fence.epoch = 0;
    assert_eq!(refused(pool.send(past)), Reason::StaleReport);
    let early = pool.report_for(id, 0, MemberEvent::Running, 0);
    assert_eq!(refused(pool.send(early)), Reason::NotAssigned);

    assert_eq!(pool.state_of(id), LeaseState::Held);
    assert!(pool.state.nodes[&node_id(1)].last_seq > 1, "the agent need not send them again");
    assert_eq!(refused(pool.send(honest)), Reason::StaleReport);
}

#[test]
fn numbers_that_the_controller_left_out_keep_no_later_report_from_being_heard() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let mut report = pool.report_for(id, 0, MemberEvent::Accepted, 0);
    report.seq += 5;
    let number = report.seq;
    assert_eq!(pool.state.hears(&report), Ok(()));
    assert_eq!(pool.send(report).answer, Answer::Done);
    assert_eq!(pool.state.nodes[&node_id(1)].last_seq, number);
}

#[test]
fn a_spec_whose_words_would_forge_lines_or_terminals_is_refused() {
    let mut pool = Pool::small();
    let good = spec(2, vec![a100(2, 0)]);
    let mut model = good.clone();
    model.gpus[0].model = "A100\u{1b}[2J".into();
    for bad in [
        NodeSpec { address: "203.0.113.9:1 1\n0 attacker.example".into(), ..good.clone() },
        NodeSpec { region: "\u{1b}]0;owned\u{7}".into(), ..good.clone() },
        NodeSpec { rack: "x".repeat(65), ..good.clone() },
        model,
    ] {
        assert_eq!(refused(pool.enter(Input::modelled_link(bad, 0))), Reason::SpecMismatch);
    }
    assert_eq!(pool.enter(Input::modelled_link(good, 0)).answer, Answer::Done);
}

#[test]
fn a_link_that_would_change_nothing_is_known() {
    let mut pool = Pool::small();
    let spec = pool.state.nodes[&node_id(1)].spec.clone().unwrap();
    assert!(pool.state.has_link(&spec, 0));
    let changed = NodeSpec { cpu_milli: 1, ..spec.clone() };
    assert!(!pool.state.has_link(&changed, 0));
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let report = pool.report_for(id, 0, MemberEvent::Accepted, 0);
    pool.send(report);
    assert!(!pool.state.has_link(&spec, 0), "an agent that forgot its reports has lost what it staged");
    assert!(pool.state.has_link(&spec, 1));
    pool.enter(Input::Lost { node: node_id(1), last_seq: 1 });
    assert!(!pool.state.has_link(&spec, 1));
}

#[test]
fn a_report_twice_is_a_report_once() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let report = pool.report_for(id, 0, MemberEvent::Accepted, 0);
    assert_eq!(pool.send(report.clone()).answer, Answer::Done);
    assert_eq!(refused(pool.send(report)), Reason::StaleReport);
}

#[test]
fn a_report_under_an_older_term_of_the_same_epoch_still_counts() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let report = pool.report_for(id, 0, MemberEvent::Accepted, 0);
    pool.fence.term += 5;
    pool.enter(Input::Opened { delegate: crate::pool::DELEGATE, policy: selion_market::Policy::default() });
    assert_eq!(pool.send(report).answer, Answer::Done);
    assert_eq!(pool.state_of(id), LeaseState::Preparing);
}

#[test]
fn a_meter_that_runs_faster_than_the_log_is_cut_and_never_runs_back() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.now += 1_000;
    pool.report(id, 0, MemberEvent::Metered, 50_000);
    assert_eq!(pool.get(id).members[0].billable_ms, 1_000);
    pool.now += 1_000;
    pool.report(id, 0, MemberEvent::Metered, 300);
    assert_eq!(pool.get(id).members[0].billable_ms, 1_000);
    pool.now += 10 * HOUR;
    pool.report(id, 0, MemberEvent::Metered, 10 * HOUR);
    let most_ms = HOUR + selion_market::Policy::default().grace_ms;
    assert_eq!(pool.get(id).members[0].billable_ms, most_ms, "never more than was asked for and its stop may take");
}

#[test]
fn a_node_should_hold_what_was_granted_in_the_phase_of_its_lease() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[mig("1g.10gb"), mig("2g.20gb")]));
    let phases = |pool: &Pool| -> Vec<(u16, Phase)> {
        let desired = pool.state.desired(node_id(1));
        desired.iter().map(|member| (member.member, member.phase)).collect()
    };
    assert_eq!(phases(&pool), [(0, Phase::Prepare), (1, Phase::Prepare)]);
    pool.all(id, &MemberEvent::Accepted);
    pool.report(id, 0, MemberEvent::Ready, 0);
    let ready = pool.report(id, 1, MemberEvent::Ready, 0);
    assert!(ready.touched.desired.contains(&node_id(1)));
    assert_eq!(phases(&pool), [(0, Phase::Start), (1, Phase::Start)]);
    pool.all(id, &MemberEvent::Running);
    pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, 0);
    assert_eq!(phases(&pool), [(1, Phase::Start)]);
    pool.release(id);
    assert_eq!(phases(&pool), []);
}

#[test]
fn a_member_that_its_owner_stops_ends_the_lease_as_reclaimed() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.now += 10;
    pool.report(id, 0, MemberEvent::Stopped { outputs: None }, 10);
    assert_eq!(pool.reason_of(id), Some(Reason::OwnerReclaimed));
}

#[test]
fn what_an_agent_cannot_make_ends_the_lease_with_its_reason() {
    for (said, told) in [
        (Reason::StagingFailed, Reason::StagingFailed),
        (Reason::SliceFailed, Reason::SliceFailed),
        (Reason::Completed, Reason::RuntimeFailed),
    ] {
        let mut pool = Pool::small();
        let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
        pool.report(id, 0, MemberEvent::Failed { reason: said }, 0);
        assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(told)));
    }
}

/// An agent that ended under a command and was back at once.
const INTERRUPTED: MemberEvent = MemberEvent::Failed { reason: Reason::RuntimeFailed };

#[test]
fn a_command_that_its_agent_did_not_outlive_is_lost_with_it_and_runs_again_if_that_was_asked_for() {
    let interrupted = |asked| {
        let mut pool = Pool::small();
        let id = pool.lease(LeaseRequest { on_node_loss: asked, ..ask(renter(1), &[SliceWant::Whole]) });
        pool.run_up(id);
        pool.now += 30_000;
        pool.report(id, 0, INTERRUPTED, 20_000);
        pool.get(id).clone()
    };
    let ended = interrupted(OnNodeLoss::End);
    assert_eq!((ended.state, ended.reason), (LeaseState::Ended, Some(Reason::NodeLost)));
    assert_eq!(ended.members[0].billable_ms, 20_000);
    let again = interrupted(OnNodeLoss::Requeue);
    assert_eq!((again.state, again.attempt), (LeaseState::Held, 2));
    assert_eq!(again.past, [(1, Reason::NodeLost, Amount(TOKEN * 20_000 / HOUR))]);
}

#[test]
fn a_command_that_fails_with_its_agent_soon_after_its_start_does_not_run_again_and_again() {
    let mut pool = Pool::small();
    let asked = LeaseRequest { on_node_loss: OnNodeLoss::Requeue, ..ask(renter(1), &[SliceWant::Whole]) };
    let id = pool.lease(asked);
    pool.run_up(id);
    pool.now += 9_999;
    pool.report(id, 0, INTERRUPTED, 9_999);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(Reason::RuntimeFailed)));
}

#[test]
fn a_program_that_is_not_there_fails_the_lease_however_it_was_asked_for() {
    let mut pool = Pool::small();
    let asked = LeaseRequest { on_node_loss: OnNodeLoss::Requeue, ..ask(renter(1), &[SliceWant::Whole]) };
    let id = pool.lease(asked);
    pool.all(id, &MemberEvent::Accepted);
    pool.all(id, &MemberEvent::Ready);
    pool.report(id, 0, INTERRUPTED, 0);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(Reason::RuntimeFailed)));
}

#[test]
fn a_gang_under_repair_keeps_running_where_one_of_its_agents_ended() {
    let mut pool = Pool::small();
    pool.node(spec(2, vec![a100(2, 0)]));
    pool.node(spec(3, vec![a100(3, 0)]));
    let asked = ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]);
    let id = pool.lease(LeaseRequest { on_node_loss: OnNodeLoss::Repair, min_members: 1, ..asked });
    pool.run_up(id);
    pool.now += 10_000;
    pool.report(id, 1, INTERRUPTED, 1_000);
    assert_eq!(pool.state_of(id), LeaseState::Active);
    assert!(pool.get(id).broken.is_some());
}
