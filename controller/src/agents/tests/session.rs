//! A link after its welcome.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use selion_api::agent::{
    Hello, LogChunk, LogRecord, LogSource, MemberEvent, Phase, Report, SignedDesired, SignedReport, SignedVoucher,
    ToAgent, ToController,
};
use selion_api::{Account, Amount, GpuId, Hash32, LeaseId, Reason, Signature, Slot, TimeMs};
use selion_contracts::signer::recover_text;
use selion_market::Input;
use selion_market::state::Progress;

use super::super::counts::Bad;
use super::super::liveness::{SWEEP, Sweeper};
use super::super::logs::{Begin, Kept};
use super::agent::{Agent, report, settle, signed};
use super::fake::{AUTHORITY, OURS};
use super::key::Key;
use super::world::{LEASE, POOL, PROVIDER, RENTER, SALT, World, grant, work};

#[tokio::test]
async fn the_desired_state_carries_the_work_and_where_the_peers_are() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(super::world::spec(world.key.node()));
    agent.say(&world.key, hello).await;
    agent.next().await;
    let Some(ToAgent::Desired(SignedDesired { desired, signature })) = agent.next().await else {
        panic!("no desired state came");
    };
    let by = recover_text(&desired.digest_to_sign(&POOL).0, &signature);
    assert_eq!(by, Some(Account(Key::new(AUTHORITY).node().0)), "nobody but the authority gives orders");
    assert_eq!((desired.node, desired.fence), (world.key.node(), OURS));
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
    let Some(ToAgent::Desired(SignedDesired { desired: first, .. })) = agent.next().await else {
        panic!("no desired state came");
    };
    assert!(first.assignments.is_empty());
    grant(&world.core, world.key.node());
    world.core.touch(world.key.node());
    let Some(ToAgent::Desired(SignedDesired { desired: second, .. })) = agent.next().await else {
        panic!("no second desired state came");
    };
    assert_eq!(second.assignments.len(), 1);
    assert!(second.generation > first.generation);
}

#[tokio::test]
async fn a_report_is_acknowledged_after_its_commit_only_and_those_after_it_enter_together() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    world.core.hold_commits();
    for seq in 1..=3 {
        agent.send(&signed(&world.key, report(&world.key, seq, END))).await;
    }
    while reports(&world) < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(reports(&world), 1, "one group at a time: if its commit fails, nothing after it has entered");
    world.core.commit(1);
    assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 1 }));
    assert_eq!(last_seq(&world), 1);
    let mut acked = 1;
    while acked < 3 {
        world.core.commit(1);
        let Some(ToAgent::Ack { seq }) = agent.next().await else {
            panic!("no acknowledgement came");
        };
        assert!(seq > acked && seq <= last_seq(&world));
        acked = seq;
    }
}

/// An end: of a member that the node holds, it is always news.
const END: MemberEvent = MemberEvent::Exited { code: 0, outputs: None };

fn reports(world: &World) -> usize {
    world.core.count(|it| matches!(it, Input::Report(_)))
}

fn last_seq(world: &World) -> u64 {
    let state = world.core.state.lock().unwrap();
    state.nodes[&world.key.node()].last_seq
}

#[tokio::test]
async fn reports_of_members_that_the_node_does_not_hold_never_enter_the_log() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    let told = |seq| report(&world.key, seq, END);
    let lies = [
        Report { lease: LeaseId { seq: 99, index: 0 }, ..told(1) },
        Report { attempt: 2, ..told(2) },
        Report { member: 1, ..told(3) },
        Report { gpus: vec![GpuId([9; 16])], ..told(4) },
        Report { slot: Slot::Share { compute_permille: 1, mem_bytes: 1 }, ..told(5) },
        Report { event: MemberEvent::Running, ..told(6) },
    ];
    for (lie, seq) in lies.into_iter().zip(1..) {
        agent.send(&signed(&world.key, lie)).await;
        assert_eq!(agent.next().await, Some(ToAgent::Ack { seq }), "the agent may forget it");
    }
    assert_eq!((reports(&world), world.hub.bad(Bad::Unassigned)), (0, 6));
    agent.send(&signed(&world.key, told(7))).await;
    assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 7 }));
    assert_eq!((reports(&world), last_seq(&world)), (1, 7), "a number that was left out keeps nobody from being heard");
}

#[tokio::test]
async fn a_report_that_says_nothing_new_enters_once() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    for seq in 1..=50 {
        agent.send(&signed(&world.key, report(&world.key, seq, MemberEvent::Metered))).await;
    }
    settle(&mut agent, &world, 51).await;
    assert_eq!(reports(&world), 1, "of 51 readings of one meter at once");
    {
        let mut state = world.core.state.lock().unwrap();
        state.leases.get_mut(&LEASE).unwrap().members[0].progress = Progress::Ready;
    }
    for (seq, event) in [(52, MemberEvent::Accepted), (53, MemberEvent::Ready)] {
        agent.send(&signed(&world.key, report(&world.key, seq, event))).await;
        assert_eq!(agent.next().await, Some(ToAgent::Ack { seq }));
    }
    assert_eq!((reports(&world), world.hub.bad(Bad::Repeated)), (1, 52));
}

#[tokio::test]
async fn a_report_of_more_gpus_than_any_member_has_closes_the_link() {
    let wide = |key: &Key, report: Report| sign_with(key, Report { gpus: vec![GpuId([1; 16]); 17], ..report });
    assert_eq!(lie(wide, Bad::Malformed).await, Reason::BadRequest);
}

#[tokio::test]
async fn a_message_longer_than_its_kind_may_be_closes_the_link_before_it_is_read() {
    let world = World::start().await;
    let mut agent = Agent::link(&world).await;
    let wide = Report { gpus: vec![GpuId([1; 16]); 1_000], ..report(&world.key, 1, END) };
    agent.send(&signed(&world.key, wide)).await;
    let (reason, detail) = agent.refusal().await;
    assert_eq!(reason, Reason::BadRequest);
    assert!(detail.contains("1024 are the most"), "{detail}");
    assert_eq!((reports(&world), world.hub.bad(Bad::Malformed)), (0, 1));
}

#[tokio::test]
async fn a_node_that_connects_again_and_again_makes_one_entry_and_then_has_to_wait() {
    let world = World::start().await;
    // A few more than at once are let in while it tries.
    let mut refused = None;
    for _ in 0..500 {
        let mut agent = Agent::connect(&world.url).await;
        let hello = agent.hello(super::world::spec(world.key.node()));
        agent.say(&world.key, hello).await;
        if let Some(ToAgent::Refused { reason, detail }) = agent.next().await {
            refused = Some((reason, detail));
            break;
        }
    }
    let (reason, detail) = refused.unwrap();
    assert_eq!(reason, Reason::NodeNotSchedulable);
    assert!(detail.contains("too often"), "{detail}");
    assert_eq!(world.hub.bad(Bad::TooOften), 1);
    assert_eq!(world.core.count(|it| matches!(it, Input::Linked(_))), 1, "nothing changed by the others");
}

#[tokio::test]
async fn the_elder_of_two_agents_of_one_node_is_told_why_its_link_ends() {
    let world = World::start().await;
    let mut elder = Agent::link(&world).await;
    let mut other = Agent::connect(&world.url).await;
    let hello = other.hello(super::world::spec(world.key.node()));
    other.say(&world.key, Hello { life: Hash32([7; 32]), ..hello }).await;
    assert!(matches!(other.next().await, Some(ToAgent::Welcome { .. })));
    let Some(ToAgent::Refused { detail, .. }) = elder.next().await else { panic!("the elder is told nothing") };
    assert!(detail.contains("another agent with this node's key"), "{detail}");
}

#[tokio::test]
async fn a_node_that_comes_and_goes_enters_the_log_a_bounded_number_of_times() {
    let world = World::start().await;
    let mut arrivals = super::super::pace::Arrivals::new(tokio::time::Instant::now());
    // Each loss makes the next hello one that changes something.
    let mut now = tokio::time::Instant::now();
    let day = now + Duration::from_secs(24 * 3_600);
    let mut entered = 0;
    while now < day {
        entered += u32::from(arrivals.links.try_take(now).is_ok());
        now += Duration::from_millis(2_250);
    }
    assert!(entered <= 8_640 + 20, "{entered}");
    // And the same over a link: the node is lost between two hellos.
    for round in 0.. {
        let mut agent = Agent::connect(&world.url).await;
        let hello = agent.hello(super::world::spec(world.key.node()));
        agent.say(&world.key, hello).await;
        if !matches!(agent.next().await, Some(ToAgent::Welcome { .. })) {
            assert!((20..25).contains(&round), "{round}");
            break;
        }
        world.core.state.lock().unwrap().nodes.get_mut(&world.key.node()).unwrap().linked = false;
    }
    assert!(world.core.count(|it| matches!(it, Input::Linked(_))) < 25);
}

#[tokio::test]
async fn a_full_disk_costs_an_agent_neither_its_link_nor_a_report() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    world.core.full.store(true, Ordering::SeqCst);
    for seq in 1..=3 {
        agent.send(&signed(&world.key, report(&world.key, seq, END))).await;
    }
    // Two questions are asked and answered meanwhile: the link is up.
    for _ in 0..2 {
        let nonce = question(&mut agent).await;
        agent.send(&ToController::Echo { nonce }).await;
    }
    assert_eq!((reports(&world), last_seq(&world)), (0, 0));
    world.core.full.store(false, Ordering::SeqCst);
    loop {
        match agent.next().await {
            Some(ToAgent::Ack { seq: 3 }) => break,
            Some(_) => {}
            None => panic!("the link closed"),
        }
    }
    assert_eq!((reports(&world), last_seq(&world)), (3, 3));
    assert!(world.core.losses().is_empty());
}

#[tokio::test]
async fn an_agent_that_comes_back_while_the_disk_is_full_is_welcome() {
    let world = World::start().await;
    drop(Agent::link(&world).await);
    world.core.full.store(true, Ordering::SeqCst);
    drop(Agent::link(&world).await);
}

#[tokio::test]
async fn nodes_that_went_while_the_disk_was_full_get_the_time_that_they_have_after_a_start() {
    let world = World::start().await;
    drop(Agent::link(&world).await);
    world.core.full.store(true, Ordering::SeqCst);
    let mut now = tokio::time::Instant::now();
    let mut sweeper = Sweeper::new(now);
    let mut sweeps = async |count: u32, now: &mut tokio::time::Instant| {
        for _ in 0..count {
            *now += SWEEP;
            sweeper.sweep(world.hub.inner(), *now).await;
        }
    };
    sweeps(100, &mut now).await;
    world.core.full.store(false, Ordering::SeqCst);
    sweeps(4, &mut now).await;
    assert!(world.core.losses().is_empty(), "not at the moment at which the disk is free");
    sweeps(100, &mut now).await;
    assert_eq!(world.core.losses().len(), 1, "but one that does not come back");
}

#[tokio::test]
async fn a_report_sent_again_after_a_reconnect_is_acknowledged_and_not_entered_twice() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    let one = report(&world.key, 1, MemberEvent::Accepted);
    agent.send(&signed(&world.key, one.clone())).await;
    assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 1 }));
    drop(agent);
    let mut agent = Agent::link(&world).await;
    agent.send(&signed(&world.key, one)).await;
    assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 1 }));
    assert_eq!(reports(&world), 1);
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
