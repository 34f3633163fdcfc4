//! An agent whose renters' use no voucher covers: real processes, a controller of this test's own, a chain that is silent.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{FENCE, POOL};
use futures::{SinkExt, StreamExt};
use selion_agent::{AgentError, Config, GpuSource};
use selion_api::agent::{
    Assignment, LINK_VERSION, LogSource, MemberEvent, Phase, Report, Resume, ToAgent, ToController,
};
use selion_api::commit::Work;
use selion_api::{Account, Address, Amount, Hash32, LeaseId, NodeSpec, Rate, Reason, Slot};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(20);
const CAP_MS: u64 = 300;
/// One base unit a millisecond.
const RATE: Rate = Rate(3_600_000);
const UNPAID: MemberEvent = MemberEvent::Failed { reason: Reason::PaymentRequired };
const STAYS: &str = "while :; do sleep 0.05; done";

struct Agent {
    stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
}

impl Agent {
    fn start(controller: &TcpListener, state: &Path, unsigned_cap_ms: u64) -> Self {
        common::knows_the_authority(state);
        let own = std::env::current_exe().unwrap();
        let config = Config {
            chain_rpc: "http://127.0.0.1:1".into(),
            controller: format!("http://{}", controller.local_addr().unwrap()),
            pool: Some(POOL.controller),
            state_dir: state.to_owned(),
            gpus: GpuSource::Simulated { models: vec!["A100 80GB".into()] },
            sandbox_helper: Some(own.parent().unwrap().parent().unwrap().join("examples/sandbox_helper")),
            meter_ms: 20,
            unsigned_cap_ms,
            ..Config::default()
        };
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(selion_agent::run(config, stop.clone(), |_| {})), stop }
    }

    async fn end(self, link: &mut Linked) {
        self.stop.cancel();
        // The last reports are waited for.
        let last = link.last_seq;
        link.send(ToAgent::Ack { seq: last }).await;
        timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
    }
}

/// One link as the controller sees it.
struct Linked {
    socket: WebSocketStream<TcpStream>,
    spec: Option<NodeSpec>,
    lines: Vec<String>,
    last_seq: u64,
}

impl Linked {
    async fn greet(controller: &TcpListener, last_seq: u64) -> Self {
        let (stream, _) = timeout(PATIENCE, controller.accept()).await.unwrap().unwrap();
        let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let mut linked = Self { socket, spec: None, lines: Vec::new(), last_seq };
        linked.send(ToAgent::Challenge { version: LINK_VERSION, pool: POOL, nonce: Hash32([3; 32]) }).await;
        let ToController::Hello(signed) = linked.next().await else { panic!("the hello comes first") };
        linked.send(common::welcome(&common::authority(), &signed.hello, last_seq)).await;
        linked.spec = Some(signed.hello.spec);
        linked
    }

    async fn send(&mut self, message: ToAgent) {
        self.socket.send(Message::Binary(borsh::to_vec(&message).unwrap().into())).await.unwrap();
    }

    async fn next(&mut self) -> ToController {
        loop {
            let frame = timeout(PATIENCE, self.socket.next()).await.unwrap().unwrap().unwrap();
            if let Message::Binary(bytes) = frame {
                return borsh::from_slice(&bytes).unwrap();
            }
        }
    }

    /// The next report but readings of the meter; the agent's own lines are kept.
    async fn report(&mut self) -> Report {
        loop {
            match self.next().await {
                ToController::Report(signed) => {
                    self.last_seq = signed.report.seq;
                    if signed.report.event != MemberEvent::Metered {
                        return signed.report;
                    }
                }
                ToController::Logs(chunk) => {
                    let own = chunk.records.iter().filter(|record| record.source == LogSource::Agent);
                    self.lines.extend(own.map(|record| String::from_utf8_lossy(&record.bytes).into_owned()));
                }
                _ => {}
            }
        }
    }

    async fn hears(&mut self, events: &[MemberEvent]) -> Report {
        let mut last = None;
        for event in events {
            let report = self.report().await;
            assert_eq!(&report.event, event, "{:?}", self.lines);
            last = Some(report);
        }
        last.unwrap()
    }

    async fn want(&mut self, generation: u64, assignments: Vec<Assignment>) {
        let node = self.spec.as_ref().unwrap().node;
        self.send(common::desired(&common::authority(), node, FENCE, generation, assignments)).await;
    }

    /// A member of a lease of `renter`, at a place of its own.
    fn member(&self, seq: u8, renter: u8) -> Assignment {
        let work = Work {
            command: ["/bin/sh", "-c", STAYS].map(String::from).to_vec(),
            env: Vec::new(),
            datasets: Vec::new(),
            network: selion_api::commit::Network::None,
            root: selion_api::commit::Root::Base,
            over: selion_api::commit::Overrides::default(),
            secrets: selion_api::commit::Expected::default(),
        };
        let salt = Hash32([9; 32]);
        Assignment {
            lease: LeaseId { seq: seq.into(), index: 0 },
            attempt: 0,
            member: 0,
            phase: Phase::Prepare,
            gpus: vec![self.spec.as_ref().unwrap().gpus[0].gpu],
            slot: Slot::Mig { profile: "1g.10gb".into(), start: seq, size: 1 },
            cpu_milli: 500,
            ram_bytes: 64 << 20,
            disk_bytes: 1 << 20,
            net_mbps: 0,
            port: 20_000 + u16::from(seq),
            peers: Vec::new(),
            commitment: work.commitment(&salt),
            work,
            salt,
            max_run_ms: 600_000,
            resume: Resume::Nothing,
            renter: Account([renter; 20]),
            delegate: Address([8; 20]),
            rate: RATE,
            billed: Amount::ZERO,
        }
    }
}

fn started(assignment: &Assignment) -> Assignment {
    Assignment { phase: Phase::Start, ..assignment.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_voucher_covers_is_ended_at_the_owners_cap_and_a_restart_does_not_forget_it() {
    use MemberEvent::{Accepted, Ready, Running};
    let (state, controller) = (tempfile::tempdir().unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let agent = Agent::start(&controller, state.path(), CAP_MS);
    let mut link = Linked::greet(&controller, 0).await;
    let first = link.member(1, 1);
    link.want(1, vec![first.clone()]).await;
    link.hears(&[Accepted, Ready]).await;
    link.want(2, vec![started(&first)]).await;
    let ended = link.hears(&[Running, UNPAID]).await;
    assert!(ended.metered_ms > CAP_MS, "it ran to the cap, and all of that is told: {}", ended.metered_ms);
    assert!(link.lines.iter().any(|line| line.contains("no voucher covers")), "{:?}", link.lines);

    // Another renter is not touched; the same one gets nothing more, not even the making of a slice.
    let (same, other) = (link.member(2, 1), link.member(3, 2));
    link.want(3, vec![same]).await;
    let refused = link.hears(&[Accepted, UNPAID]).await;
    assert_eq!(refused.metered_ms, 0);
    link.want(4, vec![other]).await;
    link.hears(&[Accepted, Ready]).await;
    agent.end(&mut link).await;

    let agent = Agent::start(&controller, state.path(), CAP_MS);
    let mut link = Linked::greet(&controller, link.last_seq).await;
    let (same, other) = (link.member(5, 1), link.member(6, 2));
    link.want(5, vec![same]).await;
    while link.report().await.lease.seq != 5 {}
    link.hears(&[UNPAID]).await;
    link.want(6, vec![other]).await;
    link.hears(&[Accepted, Ready]).await;
    agent.end(&mut link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_leases_of_a_renter_end_together_and_a_chain_that_is_silent_ends_nothing_before_the_cap() {
    use MemberEvent::{Accepted, Ready, Running};
    let (state, controller) = (tempfile::tempdir().unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let agent = Agent::start(&controller, state.path(), CAP_MS);
    let mut link = Linked::greet(&controller, 0).await;
    let members = [link.member(1, 1), link.member(2, 1), link.member(3, 2)];
    let free = Assignment { rate: Rate(0), ..members[2].clone() };
    for (generation, member) in (1..).zip([&members[0], &members[1], &free]) {
        let before = [&members[0], &members[1], &free].into_iter().take_while(|one| one.lease <= member.lease);
        link.want(generation, before.cloned().collect()).await;
        link.hears(&[Accepted, Ready]).await;
    }
    link.want(9, [&members[0], &members[1], &free].map(started).to_vec()).await;
    link.hears(&[Running, Running, Running]).await;
    let ends = [link.hears(&[UNPAID]).await, link.hears(&[UNPAID]).await];
    let ran: u64 = ends.iter().map(|end| end.metered_ms).sum();
    assert!(ran > 2 * CAP_MS, "both together may leave two caps open: {ends:?}");
    let mut leases = ends.map(|end| end.lease.seq);
    leases.sort_unstable();
    assert_eq!(leases, [1, 2], "what costs nothing runs on");
    agent.end(&mut link).await;
}
