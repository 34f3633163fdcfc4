//! The life of a lease: its states, its deadlines, repeats of its request.

use selion_api::agent::{Fence, MemberEvent};
use selion_api::lease::{LeaseState, OnNodeLoss, Refusal};
use selion_api::said::{SAID_WITHIN_MS, Said};
use selion_api::{Address, Hash32, LeaseId, Reason, Signature, SliceWant, TimeMs};
use selion_market::{Answer, Effect, Input, Policy, Stamp, State, step};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, mig, node_id, provider, renter, spec};

fn exited(code: i32) -> MemberEvent {
    MemberEvent::Exited { code, outputs: None }
}

#[test]
fn a_lease_is_named_by_the_entry_and_the_effect_that_made_it() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!(id.seq, pool.log.len() as u64 - 1);
    let effects = &pool.outcomes.last().unwrap().effects;
    assert!(
        matches!(&effects[id.index as usize], Effect::Moved { lease, state: LeaseState::Waiting, .. } if *lease == id)
    );
}

#[test]
fn a_lease_goes_through_its_states_as_its_members_report() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[mig("1g.10gb"), mig("1g.10gb")]));
    for (event, reached) in [
        (MemberEvent::Accepted, LeaseState::Preparing),
        (MemberEvent::Ready, LeaseState::Starting),
        (MemberEvent::Running, LeaseState::Active),
    ] {
        let before = pool.state_of(id);
        pool.report(id, 0, event.clone(), 0);
        assert_eq!(pool.state_of(id), before, "one member is not all");
        pool.report(id, 1, event, 0);
        assert_eq!(pool.state_of(id), reached);
    }
    pool.now += 5_000;
    pool.report(id, 0, exited(0), 5_000);
    assert_eq!(pool.state_of(id), LeaseState::Active);
    pool.report(id, 1, exited(0), 4_000);
    assert_eq!(pool.state_of(id), LeaseState::Ended);
    assert_eq!(pool.reason_of(id), Some(Reason::Completed));
    assert!(pool.state.nodes[&node_id(1)].held.is_empty());
}

#[test]
fn one_member_that_fails_ends_the_gang() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[mig("1g.10gb"), mig("1g.10gb")]));
    pool.run_up(id);
    pool.report(id, 1, exited(3), 0);
    assert_eq!(pool.state_of(id), LeaseState::Ending);
    assert_eq!(pool.state.desired(node_id(1)), []);
    pool.report(id, 0, MemberEvent::Stopped { outputs: None }, 0);
    assert_eq!(pool.reason_of(id), Some(Reason::CommandFailed));
    assert_eq!(pool.get(id).members[1].exit_code, Some(3));
}

#[test]
fn a_command_that_reaches_a_limit_ends_its_lease_for_that_and_is_billed_as_one_that_ended() {
    use Reason::{CommandFailed, DiskFull, NodeLost, OutOfMemory};
    // A node that names no limit says no more than that the command ended.
    for (named, told) in [(OutOfMemory, OutOfMemory), (DiskFull, DiskFull), (NodeLost, CommandFailed)] {
        let mut pool = Pool::small();
        let id = pool.lease(ask(renter(1), &[mig("1g.10gb")]));
        pool.run_up(id);
        pool.now += 5_000;
        pool.report(id, 0, MemberEvent::Limited { reason: named, outputs: None }, 5_000);
        assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(told)));
        assert_eq!(pool.get(id).members[0].billable_ms, 5_000);
        assert!(pool.state.nodes[&node_id(1)].held.is_empty());
    }
}

#[test]
fn nobody_is_billed_for_what_never_became_active() {
    for (progress, reason) in [(0, Reason::PrepareTimeout), (1, Reason::PrepareTimeout), (2, Reason::StartTimeout)] {
        let mut pool = Pool::small();
        let id = pool.lease(ask(renter(1), &[mig("1g.10gb"), mig("1g.10gb")]));
        let events = [MemberEvent::Accepted, MemberEvent::Ready];
        for event in &events[..progress] {
            pool.all(id, event);
        }
        if progress == 2 {
            pool.report(id, 0, MemberEvent::Running, 0);
            pool.report(id, 0, MemberEvent::Metered, 9_999);
        }
        pool.pass_ms(HOUR);
        assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(reason)));
        assert!(pool.effects().iter().all(|effect| !matches!(effect, Effect::Billed(_) | Effect::VoucherDue(_))));
        assert_eq!(pool.state.ledger.holds(selion_market::Pocket::Free(renter(1))).0, 1000 * TOKEN);
    }
}

#[test]
fn an_active_lease_ends_at_its_duration_and_a_waiting_one_at_its_patience() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    let mut hasty = ask(renter(1), &[SliceWant::Whole]);
    hasty.wait_ms = 1000;
    let hasty = pool.lease(hasty);
    pool.pass_ms(1000);
    assert_eq!(pool.reason_of(hasty), Some(Reason::WaitedTooLong));
    pool.pass_ms(HOUR - 1001);
    assert_eq!(pool.state_of(id), LeaseState::Active);
    pool.pass_ms(1);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::Expired)));
}

#[test]
fn a_slot_whose_stop_is_not_confirmed_is_not_given_again() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.release(id);
    pool.pass_ms(HOUR);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(Reason::Released)));
    let next = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!(pool.reason_of(next), Some(Reason::PoolFull));
    pool.report(id, 0, MemberEvent::Stopped { outputs: None }, 0);
    assert_eq!(pool.state_of(next), LeaseState::Held);
}

#[test]
fn a_fresh_link_also_frees_what_was_never_confirmed() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.release(id);
    pool.pass_ms(HOUR);
    let next = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.enter(Input::modelled_link(spec(1, vec![a100(1, 0)]), 0));
    assert_eq!(pool.state_of(next), LeaseState::Held);
}

#[test]
fn a_lost_node_ends_its_leases_billed_to_the_last_evidence() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.now += 40_000;
    pool.report(id, 0, MemberEvent::Metered, 40_000);
    pool.now += 30_000;
    let lost = pool.enter(Input::Lost { node: node_id(1), last_seq: 4 });
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(Reason::NodeLost)));
    let bill = lost.effects.iter().find_map(|effect| match effect {
        Effect::Billed(line) => Some((line.billable_ms, line.amount.0)),
        _ => None,
    });
    assert_eq!(bill, Some((40_000, TOKEN * 40_000 / HOUR)));
    assert_eq!(pool.refusal(ask(renter(1), &[SliceWant::Whole])).reason, Reason::NodeNotSchedulable);
}

#[test]
fn a_gang_that_lost_a_member_ends_whole_and_waits_again_first_in_line() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 100 * TOKEN);
    pool.node(spec(2, vec![a100(2, 0)]));
    let mut request = ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]);
    request.on_node_loss = OnNodeLoss::Requeue;
    request.min_nodes = 2;
    let gang = pool.lease(request);
    pool.run_up(gang);
    // Somebody else waits too, and has held nothing yet.
    let other = pool.lease(ask(renter(2), &[SliceWant::Whole]));
    pool.now += 10_000;
    pool.report(gang, 1, MemberEvent::Metered, 10_000);
    pool.enter(Input::Lost { node: node_id(2), last_seq: 3 });
    assert_eq!(pool.state_of(gang), LeaseState::Ending);
    pool.report(gang, 0, MemberEvent::Stopped { outputs: None }, 10_000);
    assert_eq!(pool.state_of(gang), LeaseState::Waiting);
    assert_eq!(pool.get(gang).past.len(), 1);
    assert_eq!(pool.get(gang).past[0].1, Reason::NodeLost);
    // One node is left: the gang does not fit, so the other one is served, and then the gang is first again.
    assert_eq!(pool.state_of(other), LeaseState::Held);
    assert_eq!(pool.get(gang).position, 1);
    pool.clear(other);
    pool.enter(Input::modelled_link(spec(2, vec![a100(2, 0)]), 9));
    assert_eq!((pool.state_of(gang), pool.get(gang).attempt), (LeaseState::Held, 2));
}

#[test]
fn repair_goes_before_any_share() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 100 * TOKEN);
    let mut request = ask(renter(1), &[SliceWant::Whole]);
    request.on_node_loss = OnNodeLoss::Requeue;
    let broken = pool.lease(request);
    pool.run_up(broken);
    let other = pool.lease(ask(renter(2), &[SliceWant::Whole]));
    pool.enter(Input::Lost { node: node_id(1), last_seq: 0 });
    assert_eq!((pool.get(broken).position, pool.get(other).position), (1, 2));
    pool.enter(Input::modelled_link(spec(1, vec![a100(1, 0)]), 0));
    assert_eq!((pool.state_of(broken), pool.state_of(other)), (LeaseState::Held, LeaseState::Waiting));
}

#[test]
fn equal_requests_with_one_key_make_one_lease_and_another_body_is_refused() {
    let mut pool = Pool::small();
    let mut request = ask(renter(1), &[mig("1g.10gb")]);
    request.idem = Hash32([5; 32]);
    let id = pool.lease(request.clone());
    assert_eq!(pool.request(request.clone()), Answer::Repeated(id));
    pool.clear(id);
    assert_eq!(pool.request(request.clone()), Answer::Repeated(id));
    let mut other = request.clone();
    other.duration_ms += 1;
    let refusal = Refusal { lease: Some(id), ..Refusal::plain(Reason::IdempotencyMismatch) };
    assert_eq!(pool.request(other), Answer::Refused(refusal));
    // A day later the key is free again.
    pool.now += 24 * HOUR;
    assert!(matches!(pool.request(request), Answer::Created(new) if new != id));
    assert!(!pool.state.leases.contains_key(&id));
}

#[test]
fn a_request_that_was_refused_is_judged_again() {
    let mut pool = Pool::small();
    let mut request = ask(renter(2), &[SliceWant::Whole]); // without money
    request.idem = Hash32([6; 32]);
    let first = pool.refusal(request.clone());
    assert_eq!(pool.refusal(request.clone()), first);
    pool.fund(renter(2), 100 * TOKEN);
    let id = pool.lease(request.clone());
    assert_eq!(pool.request(request), Answer::Repeated(id));
}

#[test]
fn only_the_renter_releases_and_only_what_lives() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let reason = |answer| match answer {
        Answer::Refused(refusal) => refusal.reason,
        other => panic!("{other:?}"),
    };
    let stranger = Input::Release { renter: renter(2), lease: id, said: None };
    assert_eq!(reason(pool.enter(stranger).answer), Reason::NotYours);
    let nothing = Input::Release { renter: renter(1), lease: LeaseId { seq: 999, index: 0 }, said: None };
    assert_eq!(reason(pool.enter(nothing).answer), Reason::NoSuchLease);
    pool.release(id);
    assert_eq!(pool.release(id), Answer::Done, "twice is once");
    pool.all(id, &MemberEvent::Stopped { outputs: None });
    assert_eq!(reason(pool.release(id)), Reason::NotLive);
}

#[test]
fn a_word_that_was_signed_for_another_time_does_nothing() {
    let mut pool = Pool::small();
    pool.now += HOUR;
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let (now, provider, node) = (pool.now, provider(1), node_id(1));
    for said_ms in [now - SAID_WITHIN_MS - 1, now + SAID_WITHIN_MS + 1].map(TimeMs) {
        let said = Some(Said { said_ms, signature: Signature::ZERO });
        let before = pool.state.nodes[&node].clone();
        let words = [
            Input::Release { renter: renter(1), lease: id, said },
            Input::SetPaused { provider, node, paused: true, said },
            Input::Reclaim { provider, node, gpu: None, notice_ms: 0, said },
        ];
        for word in words {
            let outcome = pool.enter(word);
            assert_eq!(outcome.answer, Answer::Refused(Refusal::plain(Reason::StaleWord)));
            assert_eq!(outcome.effects, [Effect::Refused(Refusal::plain(Reason::StaleWord))]);
        }
        assert!(pool.state.nodes[&node] == before && pool.state_of(id) == LeaseState::Held);
    }
    let said = Some(Said { said_ms: TimeMs(now - SAID_WITHIN_MS), signature: Signature::ZERO });
    assert_eq!(pool.enter(Input::Release { renter: renter(1), lease: id, said }).answer, Answer::Done);
    assert_eq!(pool.state_of(id), LeaseState::Ending);
}

#[test]
fn downtime_of_the_controller_times_nobody_out() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[mig("1g.10gb")]));
    let runs = pool.lease(ask(renter(1), &[mig("1g.10gb")]));
    pool.run_up(runs);
    let ends = pool.get(runs).deadline;
    pool.now += 20 * 60_000;
    pool.fence.term += 1;
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy::default() });
    assert_eq!(pool.state_of(id), LeaseState::Held);
    assert_eq!(pool.get(id).deadline, Some(TimeMs(pool.now + Policy::default().hold_ms)));
    assert_eq!(pool.get(runs).deadline, ends);
}

#[test]
fn another_fence_or_other_rules_change_nothing() {
    let mut pool = Pool::small();
    let before = pool.state.clone();
    pool.fence = Fence { epoch: 1, term: 0 };
    let opened = Input::Opened { delegate: Address([1; 20]), policy: Policy::default() };
    assert!(matches!(pool.enter(opened).answer, Answer::Refused(refusal) if refusal.reason == Reason::StaleFence));
    let rules = Input::Rules { version: 2, digest: Hash32::ZERO };
    assert!(matches!(pool.enter(rules).answer, Answer::Refused(refusal) if refusal.reason == Reason::UnknownVersion));
    assert_eq!(pool.state, before);
    let mut fresh = State::new();
    let stamp = Stamp { seq: 0, at_ms: TimeMs(5), fence: Fence::default() };
    let answer = step(&mut fresh, &stamp, &Input::Tick).answer;
    assert_eq!(answer, Answer::Refused(Refusal::plain(Reason::UnknownVersion)));
    assert_eq!(fresh, State::new());
}
