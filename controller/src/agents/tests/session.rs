//! A link after its welcome.

use std::time::Duration;

use futures::StreamExt;
use selion_api::agent::{
    LogChunk, LogRecord, LogSource, MemberEvent, Outputs, Phase, Report, SignedReport, SignedVoucher, ToAgent,
    ToController,
};
use selion_api::commit::salted;
use selion_api::{Amount, Hash32, Reason, Signature, TimeMs};
use selion_market::Input;

use super::super::counts::Bad;
use super::super::logs::{Begin, Kept};
use super::agent::{Agent, report, signed};
use super::key::Key;
use super::world::{LEASE, PROVIDER, RENTER, SALT, World, grant, work};

const CID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

#[tokio::test]
async fn the_desired_state_carries_the_work_and_where_the_peers_are() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(super::world::spec(world.key.node()));
    agent.say(&world.key, hello).await;
    agent.next().await;
    let Some(ToAgent::Desired(desired)) = agent.next().await else {
        panic!("no desired state came");
    };
    let [one] = &desired.assignments[..] else {
        panic!("{desired:?}");
    };
    assert_eq!((one.lease, one.phase, one.port), (LEASE, Phase::Prepare, 20_000));
    assert_eq!((&one.work, one.salt), (&work(), SALT));
    assert_eq!(one.work.commitment(&one.salt), one.commitment);
    assert_eq!(one.peers[0].address, "127.0.0.1:20000");
    assert_eq!(one.max_run_ms, 60_000);
}

#[tokio::test]
async fn a_batch_that_touches_the_node_sends_its_desired_state_again_with_a_higher_generation() {
    let world = World::start().await;
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(super::world::spec(world.key.node()));
    agent.say(&world.key, hello).await;
    agent.next().await;
    let Some(ToAgent::Desired(first)) = agent.next().await else {
        panic!("no desired state came");
    };
    assert!(first.assignments.is_empty());
    grant(&world.core, world.key.node());
    world.core.touch(world.key.node());
    let Some(ToAgent::Desired(second)) = agent.next().await else {
        panic!("no second desired state came");
    };
    assert_eq!(second.assignments.len(), 1);
    assert!(second.generation > first.generation);
}

#[tokio::test]
async fn a_report_is_acknowledged_after_its_commit_only_and_does_not_hold_up_the_next() {
    let world = World::start().await;
    let mut agent = Agent::link(&world).await;
    world.core.hold_commits();
    let reports = |core: &super::fake::Fake| core.count(|it| matches!(it, Input::Report(_)));
    for seq in 1..=3 {
        let one = report(&world.key, seq, MemberEvent::Metered);
        agent.send(&signed(&world.key, one)).await;
    }
    // All three are on their way while none is committed.
    while reports(&world.core) < 3 {
        tokio::task::yield_now().await;
    }
    world.core.commit(1);
    assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 1 }));
    assert_eq!(last_seq(&world), 1);
    world.core.commit(2);
    let mut acked = 1;
    while acked < 3 {
        let Some(ToAgent::Ack { seq }) = agent.next().await else {
            panic!("no acknowledgement came");
        };
        assert!(seq > acked && seq <= last_seq(&world));
        acked = seq;
    }
}

fn last_seq(world: &World) -> u64 {
    let state = world.core.state.lock().unwrap();
    state.nodes[&world.key.node()].last_seq
}

#[tokio::test]
async fn a_report_that_leaves_one_out_closes_the_link_so_that_none_is_lost() {
    let world = World::start().await;
    let mut agent = Agent::link(&world).await;
    let second = report(&world.key, 2, MemberEvent::Accepted);
    agent.send(&signed(&world.key, second)).await;
    assert_eq!(agent.refusal().await.0, Reason::StaleReport);
    assert_eq!(world.core.count(|it| matches!(it, Input::Report(_))), 0);
}

#[tokio::test]
async fn a_report_sent_again_after_a_reconnect_is_acknowledged_and_not_entered_twice() {
    let world = World::start().await;
    let mut agent = Agent::link(&world).await;
    let one = report(&world.key, 1, MemberEvent::Accepted);
    agent.send(&signed(&world.key, one.clone())).await;
    assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 1 }));
    drop(agent);
    let mut agent = Agent::link(&world).await;
    agent.send(&signed(&world.key, one)).await;
    assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 1 }));
    assert_eq!(world.core.count(|it| matches!(it, Input::Report(_))), 1);
}

/// Sends a lie on a fresh link: it is refused, counted for its cause, and not entered.
async fn lie(tell: impl Fn(&Key, Report) -> SignedReport, cause: Bad) -> Reason {
    let world = World::start().await;
    let mut agent = Agent::link(&world).await;
    let lie = tell(&world.key, report(&world.key, 1, MemberEvent::Metered));
    agent.send(&ToController::Report(lie)).await;
    let (reason, _) = agent.refusal().await;
    assert_eq!(agent.next().await, None, "the link is closed");
    assert_eq!(world.hub.bad(cause), 1);
    assert_eq!(world.core.count(|it| matches!(it, Input::Report(_))), 0);
    reason
}

fn sign_with(key: &Key, report: Report) -> SignedReport {
    match signed(key, report) {
        ToController::Report(signed) => signed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_unsigned_report_closes_the_link() {
    let unsigned = |_: &Key, report| SignedReport { report, signature: Signature::ZERO };
    assert_eq!(lie(unsigned, Bad::Unsigned).await, Reason::BadRequest);
}

#[tokio::test]
async fn a_report_signed_by_another_nodes_key_closes_the_link() {
    let foreign = |_: &Key, report| sign_with(&Key::new(8), report);
    assert_eq!(lie(foreign, Bad::ForeignSignature).await, Reason::BadRequest);
}

#[tokio::test]
async fn a_report_in_another_nodes_name_closes_the_link() {
    let named = |_: &Key, mut report: Report| {
        let other = Key::new(8);
        report.node = other.node();
        sign_with(&other, report)
    };
    assert_eq!(lie(named, Bad::WrongNode).await, Reason::NotAssigned);
}

#[tokio::test]
async fn a_report_under_a_fence_above_ours_closes_the_link() {
    let above = |key: &Key, mut report: Report| {
        report.fence.term += 1;
        sign_with(key, report)
    };
    assert_eq!(lie(above, Bad::Malformed).await, Reason::StaleFence);
}

#[tokio::test]
async fn a_second_link_of_a_node_replaces_the_first() {
    let world = World::start().await;
    let mut first = Agent::link(&world).await;
    let mut second = Agent::link(&world).await;
    assert_eq!(first.next().await, None, "the first link is closed");
    assert_eq!(world.hub.live().links, 1);
    let one = report(&world.key, 1, MemberEvent::Metered);
    second.send(&signed(&world.key, one)).await;
    assert_eq!(second.next().await, Some(ToAgent::Ack { seq: 1 }));
    assert!(world.core.losses().is_empty());
}

fn exited(world: &World, seq: u64, cid: &str) -> ToController {
    let event = MemberEvent::Exited { code: 0, outputs: Some(salted(&SALT, cid.as_bytes())) };
    signed(&world.key, report(&world.key, seq, event))
}

fn outputs(cid: &str) -> ToController {
    ToController::Outputs(Outputs { lease: LEASE, attempt: 1, member: 0, cid: cid.into() })
}

/// Waits until everything sent before was heard: the agent gets an answer to its last report.
async fn settle(agent: &mut Agent, world: &World, seq: u64) {
    let last = report(&world.key, seq, MemberEvent::Metered);
    agent.send(&signed(&world.key, last)).await;
    loop {
        match agent.next().await {
            Some(ToAgent::Ack { seq: acked }) if acked == seq => return,
            Some(_) => {}
            None => panic!("the link closed"),
        }
    }
}

#[tokio::test]
async fn outputs_are_kept_where_they_match_the_report_in_either_order() {
    for outputs_first in [true, false] {
        let world = World::start().await;
        grant(&world.core, world.key.node());
        let mut agent = Agent::link(&world).await;
        if outputs_first {
            agent.send(&outputs(CID)).await;
            agent.send(&exited(&world, 1, CID)).await;
        } else {
            agent.send(&exited(&world, 1, CID)).await;
            assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 1 }));
            agent.send(&outputs(CID)).await;
        }
        settle(&mut agent, &world, 2).await;
        let kept = world.core.outputs.lock().unwrap().clone();
        assert_eq!(kept, [(LEASE, 1, 0, CID.to_owned())]);
    }
}

#[tokio::test]
async fn outputs_that_do_not_match_the_report_are_not_kept() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    agent.send(&outputs("bafkreiother")).await;
    agent.send(&exited(&world, 1, CID)).await;
    settle(&mut agent, &world, 2).await;
    assert!(world.core.outputs.lock().unwrap().is_empty());
    assert_eq!(world.hub.bad(Bad::ForeignOutputs), 1);
}

fn lines(attempt: u32, first: u64, texts: &[&str]) -> ToController {
    let record = |text: &&str| LogRecord { source: LogSource::Stdout, bytes: format!("{text}\n").into_bytes() };
    let records = texts.iter().map(record).collect();
    ToController::Logs(LogChunk { lease: LEASE, attempt, member: 0, first, from: 0, more: false, records, end: false })
}

fn kept(attempt: u32, next: u64) -> Option<ToAgent> {
    Some(ToAgent::LinesKept { lease: LEASE, attempt, member: 0, next, again: false })
}

fn text(kept: Kept) -> String {
    match kept {
        Kept::Record(record) => record.line().text,
        Kept::LeftOut { records, .. } => format!("{records} left out"),
    }
}

/// What a reader finds now.
async fn texts(world: &World) -> Vec<String> {
    world.hub.logs(RENTER, LEASE, Begin::Start, false).await.map(text).collect().await
}

#[tokio::test]
async fn log_lines_reach_a_reader_and_those_of_a_run_the_node_does_not_hold_are_refused() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    agent.send(&lines(7, 0, &["forged"])).await;
    agent.send(&lines(1, 0, &["one", "two"])).await;
    let read = world.hub.logs(RENTER, LEASE, Begin::Start, true).await;
    tokio::pin!(read);
    assert_eq!(text(read.next().await.unwrap()), "one");
    assert_eq!(text(read.next().await.unwrap()), "two");
    assert_eq!(world.hub.bad(Bad::ForeignLogs), 1);
    // The agent need not keep lines that nobody will ever take.
    assert_eq!(agent.next().await, kept(7, 1));
    assert_eq!(agent.next().await, kept(1, 2));
}

#[tokio::test]
async fn log_lines_are_acknowledged_once_they_are_kept_and_kept_once() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    agent.send(&lines(1, 0, &["one", "two"])).await;
    assert_eq!(agent.next().await, kept(1, 2));
    assert_eq!(texts(&world).await, ["one", "two"]);
    drop(agent);
    // The acknowledgement was lost with the link; then the agent had to drop some.
    let mut agent = Agent::link(&world).await;
    agent.send(&lines(1, 0, &["one", "two", "three"])).await;
    assert_eq!(agent.next().await, kept(1, 3));
    agent.send(&lines(1, 0, &[])).await;
    assert_eq!(agent.next().await, kept(1, 3), "an agent that was restarted asks where the numbers go on");
    agent.send(&lines(1, 9, &["ten"])).await;
    assert_eq!(agent.next().await, kept(1, 10));
    assert_eq!(texts(&world).await, ["one", "two", "three", "ten"]);
}

#[tokio::test]
async fn log_lines_that_cannot_be_written_are_asked_for_again_and_leave_no_gap() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    let blocked = world.hub.inner().logs.block(RENTER, LEASE);
    agent.send(&lines(1, 0, &["one"])).await;
    let again = ToAgent::LinesKept { lease: LEASE, attempt: 1, member: 0, next: 0, again: true };
    assert_eq!(agent.next().await, Some(again));
    drop(blocked);
    // On its way when the first could not be kept: not taken, and not answered.
    agent.send(&lines(1, 1, &["two"])).await;
    agent.send(&lines(1, 0, &["one"])).await;
    assert_eq!(agent.next().await, kept(1, 1));
    agent.send(&lines(1, 1, &["two"])).await;
    assert_eq!(agent.next().await, kept(1, 2));
    assert_eq!(texts(&world).await, ["one", "two"]);
}

#[tokio::test]
async fn a_voucher_is_sent_once_a_link_and_marked_when_stored() {
    let world = World::start().await;
    let mut agent = Agent::link(&world).await;
    let voucher = SignedVoucher {
        renter: RENTER,
        provider: PROVIDER,
        cumulative: Amount(5),
        used_through: TimeMs(1),
        epoch: 1,
        log_size: 9,
        renter_signature: Signature::ZERO,
        authority_signature: Signature::ZERO,
    };
    world.core.vouchers.lock().unwrap().push(voucher.clone());
    world.hub.vouchers_signed(PROVIDER);
    assert_eq!(agent.next().await, Some(ToAgent::Voucher(voucher)));
    world.hub.vouchers_signed(PROVIDER);
    let stored = ToController::VoucherStored { renter: RENTER, cumulative: Amount(5) };
    agent.send(&stored).await;
    settle(&mut agent, &world, 1).await;
    let marked = world.core.stored.lock().unwrap().clone();
    assert_eq!(marked, [(RENTER, PROVIDER, Amount(5))]);
}

#[tokio::test]
async fn a_second_hello_on_a_link_closes_it() {
    let world = World::start().await;
    let mut agent = Agent::link(&world).await;
    let hello = agent.hello(super::world::spec(world.key.node()));
    agent.say(&world.key, hello).await;
    assert_eq!(agent.refusal().await.0, Reason::BadRequest);
    assert_eq!(world.hub.bad(Bad::Malformed), 1);
}

/// The next question.
async fn question(agent: &mut Agent) -> Hash32 {
    loop {
        match agent.hear().await {
            Some(ToAgent::Echo { nonce }) => return nonce,
            Some(_) => {}
            None => panic!("the link is closed"),
        }
    }
}

/// Answers the next `count` questions after `delay` each: that is how far the node is, nothing is waited for.
async fn echo(agent: &mut Agent, count: usize, delay: Duration) {
    for _ in 0..count {
        let nonce = question(agent).await;
        tokio::time::sleep(delay).await;
        agent.send(&ToController::Echo { nonce }).await;
    }
}

fn measures(world: &World) -> Vec<u32> {
    let entered = world.core.entered.lock().unwrap();
    let told = entered.iter().filter_map(|input| match input {
        Input::Measured { node, rtt_us } if *node == world.key.node() => Some(*rtt_us),
        _ => None,
    });
    told.collect()
}

#[tokio::test]
async fn a_live_link_is_measured_and_no_nearer_than_it_answers() {
    let world = World::start().await;
    let started = std::time::Instant::now();
    let mut agent = Agent::link(&world).await;
    let delay = Duration::from_millis(20);
    echo(&mut agent, 3, delay).await;
    let nonce = question(&mut agent).await; // it comes after the answer before was heard
    assert!(measures(&world).is_empty(), "three answers are too few");
    tokio::time::sleep(delay).await;
    agent.send(&ToController::Echo { nonce }).await;
    question(&mut agent).await;
    let entered = measures(&world);
    assert_eq!(entered.len(), 1, "{entered:?}");
    // However busy the machine is: never nearer than the delay, nor farther than all of it took, rounded up by a step.
    let most_us = started.elapsed().as_micros() * 12 / 10 + 1;
    assert!(entered[0] >= 20_000 && u128::from(entered[0]) <= most_us, "{entered:?} in {most_us}");
}

#[tokio::test]
async fn what_was_not_asked_is_no_answer() {
    let world = World::start().await;
    let mut agent = Agent::link(&world).await;
    for lie in 200..206 {
        agent.send(&ToController::Echo { nonce: Hash32([lie; 32]) }).await;
    }
    let asked = question(&mut agent).await;
    for _ in 0..6 {
        agent.send(&ToController::Echo { nonce: asked }).await; // the first of them is one
    }
    echo(&mut agent, 2, Duration::ZERO).await;
    question(&mut agent).await;
    assert!(measures(&world).is_empty(), "three are too few");
}
