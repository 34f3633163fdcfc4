//! An agent that is killed while a member runs, and what its next life says of it: real processes, a controller of this
//! test's own.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

mod common;

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use common::{FENCE, POOL};
use futures::{SinkExt, StreamExt};
use selion_agent::{Config, GpuSource};
use selion_api::agent::{Assignment, LINK_VERSION, MemberEvent, Phase, Report, ToAgent, ToController};
use selion_api::commit::Work;
use selion_api::{Hash32, LeaseId, NodeSpec, Reason, Slot};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const PATIENCE: Duration = Duration::from_secs(20);

/// An agent as a process, killed by SIGKILL when dropped.
struct Agent(Child);

impl Agent {
    fn start(controller: &TcpListener, dir: &Path) -> Self {
        common::knows_the_authority(&dir.join("state"));
        let config = Config {
            chain_rpc: "http://127.0.0.1:1".into(),
            controller: format!("http://{}", controller.local_addr().unwrap()),
            pool: Some(POOL.controller),
            state_dir: dir.join("state"),
            gpus: GpuSource::Simulated { models: vec!["A100 80GB".into()] },
            meter_ms: 20,
            ..Config::default()
        };
        let file = dir.join("config.json");
        std::fs::write(&file, serde_json::to_vec(&config).unwrap()).unwrap();
        let own = std::env::current_exe().unwrap();
        let helper = own.parent().unwrap().parent().unwrap().join("examples/sandbox_helper");
        Self(Command::new(helper).arg("agent").arg(&file).spawn().unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// One link as the controller sees it.
struct Linked {
    socket: WebSocketStream<TcpStream>,
    spec: Option<NodeSpec>,
    /// The meter as last read.
    metered_ms: u64,
}

impl Linked {
    /// Greets the next agent, of which the log has every report up to `last_seq`.
    async fn greet(controller: &TcpListener, last_seq: u64) -> Self {
        let (stream, _) = timeout(PATIENCE, controller.accept()).await.unwrap().unwrap();
        let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let mut linked = Self { socket, spec: None, metered_ms: 0 };
        linked.send(ToAgent::Challenge { version: LINK_VERSION, pool: POOL, nonce: Hash32([3; 32]) }).await;
        let ToController::Hello(signed) = linked.next().await else { panic!("the hello comes first") };
        linked.send(common::welcome(&common::authority(), &signed.hello, last_seq)).await;
        linked.spec = Some(signed.hello.spec);
        linked
    }

    async fn send(&mut self, message: ToAgent) {
        self.socket.send(Message::Binary(borsh::to_vec(&message).unwrap().into())).await.unwrap();
    }

    async fn want(&mut self, generation: u64, assignments: Vec<Assignment>) {
        let node = self.spec.as_ref().unwrap().node;
        self.send(common::desired(&common::authority(), node, FENCE, generation, assignments)).await;
    }

    async fn next(&mut self) -> ToController {
        loop {
            let frame = timeout(PATIENCE, self.socket.next()).await.unwrap().unwrap().unwrap();
            if let Message::Binary(bytes) = frame {
                return borsh::from_slice(&bytes).unwrap();
            }
        }
    }

    /// The next report, of whatever kind.
    async fn any_report(&mut self) -> Report {
        loop {
            if let ToController::Report(signed) = self.next().await {
                return signed.report;
            }
        }
    }

    /// The next report but readings of the meter, the last of which is kept.
    async fn report(&mut self) -> Report {
        loop {
            let report = self.any_report().await;
            if report.event != MemberEvent::Metered {
                return report;
            }
            self.metered_ms = report.metered_ms;
        }
    }

    /// The next two of these as lease and event.
    async fn two(&mut self) -> [(u64, MemberEvent); 2] {
        let (first, second) = (self.report().await, self.report().await);
        [first, second].map(|report| (report.lease.seq, report.event))
    }

    fn assignment(&self, seq: u64, start: u8, phase: Phase) -> Assignment {
        let work = Work {
            command: ["/bin/sh", "-c", "while :; do sleep 0.05; done"].map(String::from).to_vec(),
            env: Vec::new(),
            datasets: Vec::new(),
            network: selion_api::commit::Network::None,
            root: selion_api::commit::Root::Base,
            over: selion_api::commit::Overrides::default(),
            secrets: selion_api::commit::Expected::default(),
        };
        let salt = Hash32([9; 32]);
        Assignment {
            lease: LeaseId { seq, index: 0 },
            attempt: 0,
            member: 0,
            phase,
            gpus: vec![self.spec.as_ref().unwrap().gpus[0].gpu],
            slot: Slot::Mig { profile: "1g.10gb".into(), start, size: 1 },
            cpu_milli: 500,
            ram_bytes: 64 << 20,
            disk_bytes: 1 << 20,
            net_mbps: 0,
            port: 20_000 + u16::from(start),
            peers: Vec::new(),
            commitment: work.commitment(&salt),
            work,
            salt,
            max_run_ms: 60_000,
            resume: selion_api::agent::Resume::Nothing,
            renter: selion_api::Account([7; 20]),
            delegate: selion_api::Address([8; 20]),
            rate: selion_api::Rate(0),
            billed: selion_api::Amount::ZERO,
        }
    }
}

#[tokio::test]
async fn a_member_that_a_kill_interrupted_is_stated_as_failed_once_and_does_not_run_again() {
    use MemberEvent::{Accepted, Failed, Ready, Running};
    let interrupted = Failed { reason: Reason::RuntimeFailed };
    let dir = tempfile::tempdir().unwrap();
    // A bare child of root runs as nobody and has to pass.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let controller = TcpListener::bind("127.0.0.1:0").await.unwrap();

    let agent = Agent::start(&controller, dir.path());
    let mut link = Linked::greet(&controller, 0).await;
    link.want(1, vec![link.assignment(1, 0, Phase::Prepare)]).await;
    assert_eq!(link.two().await, [(1, Accepted), (1, Ready)]);
    let runs = link.assignment(1, 0, Phase::Start);
    link.want(2, vec![runs.clone()]).await;
    let running = link.report().await;
    assert_eq!(running.event, Running);
    // The log has all of it, and the agent may forget it.
    link.send(ToAgent::Ack { seq: running.seq }).await;
    assert_eq!(link.any_report().await.event, MemberEvent::Metered);
    drop(agent);

    let agent = Agent::start(&controller, dir.path());
    let mut link = Linked::greet(&controller, running.seq).await;
    let end = link.report().await;
    assert_eq!((end.lease, &end.event), (runs.lease, &interrupted), "not an exit of its command");
    assert!(link.metered_ms > 0);
    assert_eq!(end.metered_ms, link.metered_ms, "billed up to the last reading that is on disk");
    // As long as the log lacks the report the node is told to run it. It leaves that, and takes what is new.
    let other = link.assignment(2, 1, Phase::Prepare);
    link.want(3, vec![runs, other.clone()]).await;
    assert_eq!(link.two().await, [(2, Accepted), (2, Ready)]);
    drop(agent);

    // The next life has the second member to close, prepared and not run, and nothing more to say of the first.
    let _agent = Agent::start(&controller, dir.path());
    let mut link = Linked::greet(&controller, end.seq).await;
    assert_eq!(link.two().await, [(2, Accepted), (2, Ready)]);
    let end = link.report().await;
    assert_eq!((end.lease, end.event, end.metered_ms), (other.lease, interrupted, 0));
    let third = link.assignment(3, 2, Phase::Prepare);
    link.want(4, vec![other, third]).await;
    assert_eq!(link.two().await, [(3, Accepted), (3, Ready)]);
}
