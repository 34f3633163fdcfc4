//! Lies about what owners take back.

use selion_api::agent::MemberEvent;
use selion_api::lease::{LeaseState, OnNodeLoss};
use selion_api::said::{SAID_WITHIN_MS, Said};
use selion_api::{GpuId, LeaseId, LeaseRequest, Reason, Signature, SliceWant, TimeMs};
use selion_checker::Rule;
use selion_market::{Effect, Input};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, gpu_id, node_id, provider, renter, spec};
use crate::tape::{Tape, moves};
use crate::turns::swap;

const NOTICE: u64 = HOUR / 4;

fn whole(on_node_loss: OnNodeLoss) -> LeaseRequest {
    LeaseRequest { on_node_loss, ..ask(renter(1), &[SliceWant::Whole]) }
}

/// A lease runs on the only GPU, which is taken back.
fn taken_back(gpu: Option<GpuId>, on_node_loss: OnNodeLoss) -> (Pool, LeaseId) {
    let mut pool = Pool::small();
    let id = pool.lease(whole(on_node_loss));
    pool.run_up(id);
    pool.enter(Input::Reclaim { provider: provider(1), node: node_id(1), gpu, notice_ms: NOTICE, said: None });
    (pool, id)
}

fn reclaims(effect: &Effect) -> bool {
    matches!(effect, Effect::Reclaimed { .. })
}

#[test]
fn a_reclaim_that_is_not_told_or_told_with_another_time_is_seen() {
    let (mut pool, _) = taken_back(None, OnNodeLoss::End);
    pool.enter(Input::SetPaused { provider: provider(1), node: node_id(1), paused: false, said: None });
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(reclaims);
    let resumed = tape.0.len() - 1;
    for (entry, at) in [(entry, at), (resumed, 0)] {
        let mut silent = tape.clone();
        assert!(reclaims(&silent.0[entry].effects.remove(at)));
        silent.caught(Rule::Reclaim, entry);
        let mut wrong = tape.clone();
        wrong.0[entry].effects[at] = Effect::Reclaimed { node: node_id(1), gpu: None, by: Some(TimeMs(7)) };
        wrong.caught(Rule::Reclaim, entry);
    }
}

#[test]
fn an_owners_word_of_another_time_that_takes_effect_is_seen() {
    let mut pool = Pool::small();
    let said = Some(Said { said_ms: TimeMs(pool.now), signature: Signature::ZERO });
    let (provider, node) = (provider(1), node_id(1));
    pool.enter(Input::SetPaused { provider, node, paused: true, said });
    pool.enter(Input::Reclaim { provider, node, gpu: None, notice_ms: NOTICE, said });
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let reclaimed = tape.find(reclaims).0;
    for (entry, rule) in [(reclaimed - 1, Rule::Schedulable), (reclaimed, Rule::Reclaim)] {
        let mut late = tape.clone();
        match &mut late.0[entry].input {
            Input::SetPaused { said: Some(said), .. } | Input::Reclaim { said: Some(said), .. } => {
                said.said_ms = said.said_ms.plus(SAID_WITHIN_MS + 1);
            }
            other => panic!("{other:?} is no word of the owner"),
        }
        late.caught(rule, entry);
    }
}

#[test]
fn a_lease_that_stays_when_the_notice_is_over_is_seen() {
    for gpu in [None, Some(gpu_id(1, 0))] {
        let (mut pool, id) = taken_back(gpu, OnNodeLoss::End);
        pool.pass_ms(NOTICE);
        let mut tape = Tape::of(&pool);
        assert_eq!(tape.findings(), []);
        let (entry, at) = tape.find(moves(id, LeaseState::Ending));
        tape.0[entry].effects.remove(at);
        tape.caught(Rule::Reclaim, entry);
    }
}

#[test]
fn a_stop_for_an_owner_before_his_time_or_without_his_word_is_seen() {
    let (mut early, id) = taken_back(None, OnNodeLoss::End);
    early.pass_ms(NOTICE - 1);
    let mut pool = Pool::small();
    let other = pool.lease(whole(OnNodeLoss::End));
    pool.run_up(other);
    for (pool, lease) in [(early, id), (pool, other)] {
        let mut tape = Tape::of(&pool);
        let reason = Some(Reason::OwnerReclaimed);
        let stop = Effect::Moved { lease, state: LeaseState::Ending, reason, attempt: 1 };
        let entry = tape.push(Input::Tick, vec![stop]);
        tape.caught(Rule::Reclaim, entry);
    }
}

#[test]
fn a_grant_on_what_is_taken_back_is_seen() {
    let mut pool = Pool::small();
    pool.node(spec(2, vec![a100(2, 0), a100(2, 1)]));
    let what = [(2, Some(gpu_id(2, 1)), Rule::Reclaim), (1, None, Rule::Schedulable)];
    for (node, gpu, _) in what {
        pool.enter(Input::Reclaim { provider: provider(node), node: node_id(node), gpu, notice_ms: HOUR, said: None });
    }
    let id = pool.lease(whole(OnNodeLoss::End));
    for (node, gpu, rule) in what {
        let mut tape = Tape::of(&pool);
        assert_eq!(tape.findings(), []);
        let (entry, grant) = tape.grant(id, 0);
        assert_eq!(grant.gpu, gpu_id(2, 0));
        grant.node = node_id(node);
        grant.gpu = gpu.unwrap_or(gpu_id(1, 0));
        grant.provider = provider(node);
        tape.caught(rule, entry);
    }
}

#[test]
fn a_lease_that_waits_again_though_it_was_to_end_is_seen() {
    let (mut pool, id) = taken_back(None, OnNodeLoss::End);
    pool.pass_ms(NOTICE);
    pool.report(id, 0, MemberEvent::Stopped { outputs: None }, NOTICE);
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(moves(id, LeaseState::Ended));
    if let Effect::Moved { state, .. } = &mut tape.0[entry].effects[at] {
        *state = LeaseState::Waiting;
    }
    tape.caught(Rule::Transition, entry);
}

#[test]
fn a_lease_that_was_taken_back_and_is_passed_over_is_seen() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1000 * TOKEN);
    let back = pool.lease(whole(OnNodeLoss::Requeue));
    pool.run_up(back);
    let newcomer = pool.lease(ask(renter(2), &[SliceWant::Whole]));
    pool.enter(Input::Reclaim { provider: provider(1), node: node_id(1), gpu: None, notice_ms: 0, said: None });
    pool.report(back, 0, MemberEvent::Stopped { outputs: None }, 0);
    pool.node(spec(2, vec![a100(2, 0)]));
    assert_eq!([back, newcomer].map(|id| pool.state_of(id)), [LeaseState::Held, LeaseState::Waiting]);
    let (mut tape, entry) = swap(&pool, back, newcomer);
    for effect in &mut tape.0[entry].effects {
        match effect {
            Effect::Moved { lease, attempt, .. } if *lease == newcomer => *attempt = 1,
            Effect::Granted(grant) => grant.attempt = 1,
            _ => {}
        }
    }
    tape.caught(Rule::Order, entry);
}
