//! The whole agent against a controller of this test's own: real sockets, real processes, real content.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::routing::any;
use common::{FENCE, POOL};
use selion_agent::{AgentError, Config, Event, GpuSource};
use selion_api::agent::{
    Assignment, Fence, Hello, LINK_VERSION, LogChunk, LogRecord, LogSource, MemberEvent, Phase, Report, ToAgent,
    ToController,
};
use selion_api::commit::{Work, salted, signing_digest};
use selion_api::seal::{Addressee, Secret, SignedSealKey, seal};
use selion_api::usage::Used;
use selion_api::{BoxFeature, GpuId, Hash32, LeaseId, NodeSpec, Reason, Slot};
use selion_contracts::signer::recover_text;
use selion_dataplane::{Cid, Store, gateway};
use tempfile::TempDir;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(20);

fn helper() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples/sandbox_helper")
}

/// A controller that does what the test says, and its gateway.
struct Controller {
    url: String,
    store: Store,
    sockets: mpsc::Receiver<WebSocket>,
    dir: TempDir,
}

impl Controller {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("content")).unwrap();
        let (socket_in, sockets) = mpsc::channel(4);
        let link = any(move |upgrade: WebSocketUpgrade| async move {
            upgrade.on_upgrade(move |socket| async move { socket_in.send(socket).await.unwrap() })
        });
        let app = Router::new().route("/v1/link", link).merge(gateway::router(store.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, store, sockets, dir }
    }

    /// Greets the agent's next connection.
    async fn greet(&mut self, last_seq: u64) -> Linked {
        let socket = timeout(PATIENCE, self.sockets.recv()).await.unwrap().unwrap();
        let mut linked = Linked { socket, hello: None, logs: Vec::new(), outputs: None, used: None, seal_key: None };
        let nonce = Hash32([3; 32]);
        linked.send(ToAgent::Challenge { version: LINK_VERSION, pool: POOL, nonce }).await;
        let ToController::Hello(signed) = linked.next().await.unwrap() else {
            panic!("the hello comes first");
        };
        let digest = signing_digest(&POOL, "hello", &signed.hello);
        let signer = recover_text(&digest.0, &signed.signature).unwrap();
        assert_eq!(signer.0, signed.hello.spec.node.0, "signed by the node it names");
        assert_eq!(signed.hello.nonce, nonce);
        linked.send(common::welcome(&common::authority(), &signed.hello, last_seq)).await;
        linked.hello = Some(signed.hello);
        linked
    }
}

/// One connection as the controller sees it.
struct Linked {
    socket: WebSocket,
    hello: Option<Hello>,
    logs: Vec<(LogSource, String)>,
    outputs: Option<Cid>,
    used: Option<Used>,
    seal_key: Option<SignedSealKey>,
}

impl Linked {
    fn spec(&self) -> &NodeSpec {
        &self.hello.as_ref().unwrap().spec
    }

    async fn send(&mut self, message: ToAgent) {
        self.socket.send(Message::Binary(borsh::to_vec(&message).unwrap().into())).await.unwrap();
    }

    async fn next(&mut self) -> Option<ToController> {
        loop {
            match timeout(PATIENCE, self.socket.recv()).await.unwrap() {
                Some(Ok(Message::Binary(bytes))) => return Some(borsh::from_slice(&bytes).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// The next report but readings of the meter, its signature checked; lines and outputs are kept.
    async fn report(&mut self) -> Report {
        loop {
            match self.next().await.unwrap() {
                ToController::Report(signed) => {
                    let digest = signing_digest(&POOL, "report", &signed.report);
                    let signer = recover_text(&digest.0, &signed.signature).unwrap();
                    assert_eq!(signer.0, signed.report.node.0);
                    if signed.report.event != MemberEvent::Metered {
                        return signed.report;
                    }
                }
                ToController::Logs(chunk) => {
                    self.logs.extend(chunk.records.into_iter().map(|record| (record.source, line(&record))));
                }
                ToController::Outputs(said) => self.outputs = said.cid.map(|cid| cid.parse().unwrap()).or(self.outputs),
                ToController::Usage(told) => self.used = Some(told.used),
                ToController::SealKey(signed) => self.seal_key = Some(signed),
                ToController::Heartbeat { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// The next log chunk, reading over what else comes.
    async fn chunk(&mut self) -> LogChunk {
        let chunk = async {
            loop {
                if let ToController::Logs(chunk) = self.next().await.unwrap() {
                    return chunk;
                }
            }
        };
        // Heartbeats come for ever.
        timeout(PATIENCE, chunk).await.unwrap()
    }

    /// The lines of the member's standard output below number `end`, each with its number.
    async fn lines_below(&mut self, end: u64) -> Vec<(u64, String)> {
        let mut heard = Vec::new();
        while heard.last().is_none_or(|(number, _)| number + 1 < end) {
            let chunk = self.chunk().await;
            let numbered = (chunk.first..).zip(&chunk.records);
            let printed = numbered.filter(|(_, record)| record.source == LogSource::Stdout);
            heard.extend(printed.map(|(number, record)| (number, line(record))));
        }
        heard
    }

    async fn keep(&mut self, of: &Assignment, next: u64, again: bool) {
        let (lease, attempt, member) = (of.lease, of.attempt, of.member);
        self.send(ToAgent::LinesKept { lease, attempt, member, next, again }).await;
    }

    async fn want(&mut self, generation: u64, assignments: Vec<Assignment>) {
        let node = self.spec().node;
        self.send(common::desired(&common::authority(), node, FENCE, generation, assignments)).await;
    }

    fn lines(&self, source: LogSource) -> Vec<&str> {
        self.logs.iter().filter(|(from, _)| *from == source).map(|(_, line)| line.as_str()).collect()
    }
}

/// A record's text without its line end.
fn line(record: &LogRecord) -> String {
    String::from_utf8_lossy(&record.bytes).trim_end_matches('\n').to_owned()
}

struct Agent {
    stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
    events: Arc<Mutex<Vec<Event>>>,
}

fn config(controller: &Controller, state: &Path) -> Config {
    Config {
        controller: controller.url.clone(),
        chain_rpc: "http://127.0.0.1:1".into(),
        pool: Some(POOL.controller),
        state_dir: state.to_owned(),
        gpus: GpuSource::Simulated { models: vec!["A100 80GB".into(); 2] },
        sandbox_helper: Some(helper()),
        meter_ms: 20,
        stop_grace_ms: 300,
        ..Config::default()
    }
}

fn start(controller: &Controller, state: &Path) -> Agent {
    common::knows_the_authority(state);
    start_with(controller, state)
}

/// An agent on this state, whatever it knows. Its chain is silent.
fn start_with(controller: &Controller, state: &Path) -> Agent {
    run(config(controller, state))
}

fn run(config: Config) -> Agent {
    let stop = CancellationToken::new();
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    let on_event = move |event| sink.try_lock().map_or((), |mut events| events.push(event));
    let task = tokio::spawn(selion_agent::run(config, stop.clone(), on_event));
    Agent { stop, task, events }
}

fn assignment(spec: &NodeSpec, seq: u64, script: &str) -> Assignment {
    let work = Work {
        command: ["/bin/sh", "-c", script].map(String::from).to_vec(),
        env: vec![("GREETING".into(), "hello".into())],
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
        phase: Phase::Prepare,
        gpus: vec![spec.gpus[0].gpu],
        slot: Slot::Mig { profile: "1g.10gb".into(), start: 2, size: 1 },
        cpu_milli: 500,
        ram_bytes: 64 << 20,
        disk_bytes: 1 << 20,
        net_mbps: 0,
        port: 20_000,
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

fn with_dataset(assignment: Assignment, cid: &Cid) -> Assignment {
    let mut work = assignment.work;
    work.datasets = vec![(cid.to_string(), "train".into())];
    Assignment { commitment: work.commitment(&assignment.salt), work, ..assignment }
}

fn started(assignment: &Assignment) -> Assignment {
    Assignment { phase: Phase::Start, ..assignment.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_runs_from_its_assignment_to_its_verified_outputs() {
    let mut controller = Controller::start().await;
    let folder = controller.dir.path().join("set");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("numbers"), "1\n2\n3\n").unwrap();
    let cid = controller.store.add_path(&folder).unwrap();
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let script = "echo $GREETING $SELION_SLICE; wc -l < $SELION_DATA_DIR/train/numbers > $SELION_OUTPUT_DIR/count; \
        printf partial >&2; exit 0";
    let member = with_dataset(assignment(&link.spec().clone(), 1, script), &cid);
    link.want(1, vec![member.clone()]).await;
    let accepted = link.report().await;
    assert_eq!(accepted.event, MemberEvent::Accepted);
    let ready = link.report().await;
    assert_eq!((ready.event, ready.fence), (MemberEvent::Ready, FENCE));
    assert!(ready.seq > accepted.seq);
    link.want(2, vec![started(&member)]).await;
    assert_eq!(link.report().await.event, MemberEvent::Running);
    let exited = link.report().await;
    let outputs = link.outputs.unwrap();
    let commitment = salted(&member.salt, outputs.to_string().as_bytes());
    let expected = MemberEvent::Exited { code: 0, outputs: Some(commitment) };
    assert_eq!((exited.event, exited.slot), (expected, member.slot));
    let results = controller.dir.path().join("results");
    controller.store.export(&outputs, &results).unwrap();
    assert_eq!(std::fs::read_to_string(results.join("count")).unwrap().trim(), "3");
    assert_eq!(link.lines(LogSource::Stdout), ["hello mig:1g.10gb@2"]);
    assert_eq!(link.lines(LogSource::Stderr), ["partial"]);
    assert!(link.lines(LogSource::Agent)[0].contains(&cid.to_string()), "{:?}", link.logs);
    assert_eq!(std::fs::read_dir(state.path().join("leases")).unwrap().count(), 0, "its folders are gone");
    link.send(ToAgent::Ack { seq: exited.seq }).await;
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
    assert!(agent.events.lock().await.contains(&Event::Linked));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_an_agent_shows_its_leases_with_their_use_and_the_limits_that_hold() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let script = "head -c 300000 /dev/zero > $HOME/written; sleep 60";
    let member = assignment(&link.spec().clone(), 1, script);
    link.want(1, vec![member.clone()]).await;
    while link.report().await.event != MemberEvent::Ready {}
    link.want(2, vec![started(&member)]).await;
    while link.report().await.event != MemberEvent::Running {}
    let shown = async {
        loop {
            let said = selion_agent::status::ask(state.path()).await.unwrap().unwrap();
            let one = said.members.first().cloned();
            if one.as_ref().and_then(|one| one.uses?.disk_bytes).is_some_and(|disk| disk.now >= 300_000) {
                return (said, one.unwrap());
            }
        }
    };
    let (said, one) = timeout(PATIENCE, shown).await.unwrap();
    assert!(said.link.linked && said.link.why.is_none(), "{:?}", said.link);
    assert_eq!((one.member.lease, one.renter, one.phase.as_str()), (member.lease, member.renter, "running"));
    assert_eq!((one.slot.as_str(), &one.gpus), ("mig:1g.10gb@2", &member.gpus));
    assert_eq!((one.limits.disk_bytes, one.limits.max_run_ms), (Some(1 << 20), 60_000));
    let held = said.spec.features.has(BoxFeature::Memory);
    assert_eq!(one.limits.memory_bytes, held.then_some(64 << 20), "said only where it is in force");
    assert!(!held || one.uses.unwrap().memory_bytes.unwrap().peak > 0, "{:?}", one.uses);
    let text = serde_json::to_string(&said).unwrap();
    assert!(!text.contains("/dev/zero") && !text.contains("GREETING"), "nothing of the command is in it: {text}");
    link.want(3, Vec::new()).await;
    while !link.report().await.event.is_last() {}
    let over = async { while !selion_agent::status::ask(state.path()).await.unwrap().unwrap().members.is_empty() {} };
    timeout(PATIENCE, over).await.unwrap();
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_two_gpus_sees_both_holds_both_and_gives_both_back() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let spec = link.spec().clone();
    let gpus: Vec<GpuId> = spec.gpus.iter().map(|gpu| gpu.gpu).collect();
    let on = |seq, gpus: &[GpuId]| {
        let script = "echo \"$SELION_SLICE $SELION_GPU '$CUDA_VISIBLE_DEVICES'\"; exit 0";
        Assignment { gpus: gpus.to_vec(), slot: Slot::Whole, ..assignment(&spec, seq, script) }
    };
    let both = on(1, &gpus);
    link.want(1, vec![both.clone()]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    let ready = link.report().await;
    assert_eq!((ready.event, &ready.gpus), (MemberEvent::Ready, &gpus));
    // The second of them alone is not free.
    let other = on(2, &gpus[1..]);
    link.want(2, vec![both.clone(), other.clone()]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    assert_eq!(link.report().await.event, MemberEvent::Failed { reason: Reason::SliceFailed });
    link.want(3, vec![started(&both), other]).await;
    assert_eq!(link.report().await.event, MemberEvent::Running);
    assert_eq!(link.report().await.event, MemberEvent::Exited { code: 0, outputs: None });
    let seen = format!("whole {},{} ''", gpus[0], gpus[1]);
    assert_eq!(link.lines(LogSource::Stdout), [seen]);
    link.want(4, vec![on(3, &gpus[1..]), on(4, &gpus[..1])]).await;
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(link.report().await.event);
    }
    assert_eq!(events.iter().filter(|event| **event == MemberEvent::Ready).count(), 2, "{events:?}");
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_its_link_and_every_report_comes_again_in_order() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let member = assignment(&link.spec().clone(), 1, "read line < $SELION_OUTPUT_DIR/go; exit 5");
    link.want(1, vec![member.clone()]).await;
    let accepted = link.report().await.seq;
    link.report().await;
    let fifo = state.path().join("leases/lease-1-0.0.0/output/go");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::set_permissions(&fifo, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    link.want(2, vec![started(&member)]).await;
    assert_eq!(link.report().await.event, MemberEvent::Running);
    drop(link);
    // The command reads this while no link is up, and ends.
    tokio::task::spawn_blocking(move || {
        std::fs::write(&fifo, "go\n").unwrap();
        std::fs::remove_file(&fifo).unwrap();
    })
    .await
    .unwrap();
    let mut link = controller.greet(accepted).await;
    assert_eq!(link.hello.as_ref().unwrap().fence, FENCE);
    let mut seen = Vec::new();
    loop {
        let report = link.report().await;
        seen.push(report.event.clone());
        if let MemberEvent::Exited { code, .. } = report.event {
            assert_eq!(code, 5);
            break;
        }
    }
    assert_eq!(seen[..2], [MemberEvent::Ready, MemberEvent::Running], "what the log lacked, from the second on");
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

/// A member that said lines 0 and 1 and says another for every word that is written to the file.
async fn speaking(controller: &mut Controller, state: &Path) -> (Linked, Assignment, PathBuf) {
    let mut link = controller.greet(0).await;
    // Open for writing too: a reader that comes back before the writer has closed would see the end.
    let script = "echo one; echo two; exec 3<> $SELION_OUTPUT_DIR/go; while read line <&3; do echo $line; done";
    let member = assignment(&link.spec().clone(), 1, script);
    link.want(1, vec![member.clone()]).await;
    link.report().await;
    link.report().await;
    let fifo = state.join("leases/lease-1-0.0.0/output/go");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::set_permissions(&fifo, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    link.want(2, vec![started(&member)]).await;
    (link, member, fifo)
}

async fn say(fifo: &Path, word: &str) {
    let (fifo, word) = (fifo.to_owned(), format!("{word}\n"));
    tokio::task::spawn_blocking(move || std::fs::write(&fifo, word).unwrap()).await.unwrap();
}

fn numbered(from: u64, lines: &[&str]) -> Vec<(u64, String)> {
    (from..).zip(lines.iter().map(|line| (*line).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_died_with_the_controller_come_again_with_the_same_numbers_until_they_are_kept() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let (mut link, member, fifo) = speaking(&mut controller, state.path()).await;
    assert_eq!(link.lines_below(2).await, numbered(0, &["one", "two"]));
    drop(link);
    let mut link = controller.greet(3).await;
    assert_eq!(link.lines_below(2).await, numbered(0, &["one", "two"]));
    link.keep(&member, 2, false).await;
    // An answer to what came after it: the agent has heard of both.
    let other = Slot::Mig { profile: "1g.10gb".into(), start: 3, size: 1 };
    let second = Assignment { slot: other, ..assignment(&link.spec().clone(), 2, "true") };
    link.want(3, vec![started(&member), second]).await;
    let mut last = link.report().await;
    while (last.lease.seq, &last.event) != (2, &MemberEvent::Ready) {
        last = link.report().await;
    }
    drop(link);
    say(&fifo, "three").await;
    let mut link = controller.greet(last.seq).await;
    assert_eq!(link.lines_below(3).await, numbered(2, &["three"]), "not what was kept");
    agent.stop.cancel();
    loop {
        let report = link.report().await;
        if matches!(report.event, MemberEvent::Stopped { .. }) && report.lease.seq == 1 {
            link.send(ToAgent::Ack { seq: report.seq }).await;
            break;
        }
    }
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_the_controller_cannot_write_come_again_on_the_same_link() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let (mut link, member, _) = speaking(&mut controller, state.path()).await;
    assert_eq!(link.lines_below(2).await, numbered(0, &["one", "two"]));
    link.keep(&member, 1, true).await;
    assert_eq!(link.lines_below(2).await, numbered(1, &["two"]));
    agent.stop.cancel();
    let mut report = link.report().await;
    while !matches!(report.event, MemberEvent::Stopped { .. }) {
        report = link.report().await;
    }
    link.send(ToAgent::Ack { seq: report.seq }).await;
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_member_that_an_earlier_life_of_the_agent_knew_go_on_where_the_controller_says() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let _agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    // It should run already, and this process knows nothing of it.
    let member = started(&assignment(&link.spec().clone(), 1, "true"));
    link.want(1, vec![member.clone()]).await;
    let asked = link.chunk().await;
    assert_eq!((asked.first, asked.records.len()), (0, 0));
    link.keep(&member, 2, false).await;
    let told = link.chunk().await;
    assert_eq!((told.first, told.records[0].source), (2, LogSource::Agent));
    assert!(line(&told.records[0]).contains("never prepared here"), "{:?}", told.records);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_that_does_not_match_its_cid_is_never_mounted() {
    let mut controller = Controller::start().await;
    let cid = controller.store.add_bytes(b"the real bytes").unwrap();
    // A block file that lies. The gateway would notice its own damage, so this one is served by hand.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let liar = format!("http://{}", listener.local_addr().unwrap());
    let (socket_in, sockets) = mpsc::channel(4);
    let link = any(move |upgrade: WebSocketUpgrade| async move {
        upgrade.on_upgrade(move |socket| async move { socket_in.send(socket).await.unwrap() })
    });
    let app = Router::new().route("/v1/link", link).fallback(|| async { "the fake bytes" });
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    controller.url = liar;
    controller.sockets = sockets;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let member = with_dataset(assignment(&link.spec().clone(), 1, "true"), &cid);
    link.want(1, vec![member]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    let failed = MemberEvent::Failed { reason: Reason::StagingFailed };
    assert_eq!(link.report().await.event, failed);
    let lines = link.lines(LogSource::Agent).join("\n");
    assert!(lines.contains(&cid.to_string()), "{lines}");
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_run_does_not_and_its_place_is_free_again() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let spec = link.spec().clone();
    let forged = Assignment { commitment: Hash32([1; 32]), ..assignment(&spec, 1, "true") };
    let unknown = Assignment { phase: Phase::Start, ..assignment(&spec, 2, "true") };
    let absent =
        Assignment { slot: Slot::Mig { profile: "9g.90gb".into(), start: 0, size: 1 }, ..assignment(&spec, 3, "true") };
    for (generation, member, reason) in
        [(1, forged, Reason::RuntimeFailed), (2, unknown, Reason::RuntimeFailed), (3, absent, Reason::SliceFailed)]
    {
        link.want(generation, vec![member]).await;
        let mut report = link.report().await;
        if report.event == MemberEvent::Accepted {
            report = link.report().await;
        }
        assert_eq!((report.lease.seq, report.event), (generation, MemberEvent::Failed { reason }));
    }
    // A stray is stopped before its place is given away.
    let first = assignment(&spec, 4, "while :; do sleep 0.05; done");
    link.want(4, vec![first.clone()]).await;
    link.report().await;
    link.report().await;
    link.want(5, vec![started(&first)]).await;
    assert_eq!(link.report().await.event, MemberEvent::Running);
    link.want(6, vec![assignment(&spec, 5, "true")]).await;
    let stopped = link.report().await;
    assert_eq!((stopped.lease.seq, stopped.event), (4, MemberEvent::Stopped { outputs: None }));
    assert!(stopped.metered_ms > 0);
    assert_eq!(link.report().await.lease.seq, 5);
    assert_eq!(link.report().await.event, MemberEvent::Ready);
    // An older generation and a lower fence change nothing; the latter ends the link.
    link.want(1, vec![]).await;
    let lower = Fence { epoch: 1, term: 4 };
    link.send(common::desired(&common::authority(), spec.node, lower, 99, vec![])).await;
    while link.next().await.is_some() {}
    let mut link = controller.greet(0).await;
    assert_eq!(link.hello.as_ref().unwrap().fence, FENCE);
    // A clean end stops the prepared member and says so.
    agent.stop.cancel();
    loop {
        let report = link.report().await;
        if matches!(report.event, MemberEvent::Stopped { .. }) && report.lease.seq == 5 {
            link.send(ToAgent::Ack { seq: report.seq }).await;
            break;
        }
    }
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

/// What a stranger at the controller's address says to the next agent that connects.
async fn stranger(controller: &mut Controller, by: &selion_contracts::Signer) -> (Linked, Hello) {
    let socket = timeout(PATIENCE, controller.sockets.recv()).await.unwrap().unwrap();
    let mut link = Linked { socket, hello: None, logs: Vec::new(), outputs: None, used: None, seal_key: None };
    link.send(ToAgent::Challenge { version: LINK_VERSION, pool: POOL, nonce: Hash32([3; 32]) }).await;
    let ToController::Hello(signed) = link.next().await.unwrap() else { panic!("the hello comes first") };
    link.send(common::welcome(by, &signed.hello, u64::MAX)).await;
    (link, signed.hello)
}

fn marks(state: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(state.join("marks.json")).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_at_the_controllers_address_is_not_obeyed_and_leaves_no_trace() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let before = marks(state.path());
    let key = selion_contracts::Signer::from_bytes(&[6; 32]).unwrap();
    let (mut link, hello) = stranger(&mut controller, &key).await;
    let ran = state.path().join("ran");
    let script = format!("touch {}", ran.display());
    let member = started(&assignment(&hello.spec, 1, &script));
    // The link may be closed already: a welcome that nobody signed is the end of it.
    let said = borsh::to_vec(&common::desired(&key, hello.spec.node, FENCE, 1, vec![member])).unwrap();
    drop(link.socket.send(Message::Binary(said.into())).await);
    while link.next().await.is_some() {}
    assert_eq!(marks(state.path()), before, "neither fence nor pool of a stranger is kept");
    // The true controller is obeyed at once.
    let mut link = controller.greet(0).await;
    assert_eq!(link.hello.as_ref().unwrap().fence, Fence::default());
    let member = assignment(&link.spec().clone(), 2, "true");
    link.want(1, vec![member]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    assert!(!ran.exists());
    agent.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desired_state_that_the_authority_did_not_sign_ends_the_link_and_its_fence_is_not_kept() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let highest = Fence { epoch: u32::MAX, term: u64::MAX };
    let stranger = selion_contracts::Signer::from_bytes(&[6; 32]).unwrap();
    for (by, fence) in [(stranger, FENCE), (common::authority(), highest)] {
        let mut link = controller.greet(0).await;
        let node = link.spec().node;
        link.send(common::desired(&by, node, fence, 1, vec![])).await;
        while link.next().await.is_some() {}
        assert_eq!(marks(state.path())["fence"]["epoch"], 0);
    }
    let mut link = controller.greet(0).await;
    link.want(1, vec![assignment(&link.spec().clone(), 2, "true")]).await;
    assert_eq!(link.report().await.fence, FENCE);
    agent.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_never_told_who_decides_obeys_nobody() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start_with(&controller, state.path());
    let (mut link, _) = stranger(&mut controller, &common::authority()).await;
    while link.next().await.is_some() {}
    assert!(!state.path().join("marks.json").exists());
    agent.stop.cancel();
}

/// Runs `test` where `dir` is a file system of its own of so many MiB. False where this user may not mount.
fn on_a_disk_of(mib: u32, dir: &Path, test: impl Future<Output = ()> + Send) -> bool {
    use nix::mount::{MsFlags, mount};
    let run = move || {
        // A mount namespace is a thread's own, and its children's.
        if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).is_err() {
            return false;
        }
        let (none, size) = (None::<&str>, format!("size={mib}m"));
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(none, dir, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())).unwrap();
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
        true
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[test]
fn a_lease_that_fills_the_disk_is_ended_at_its_own_cost_and_the_others_run_on() {
    let state = tempfile::tempdir().unwrap();
    let test = async {
        let mut controller = Controller::start().await;
        let mut agent = start(&controller, state.path());
        let mut link = tokio::select! {
            link = controller.greet(0) => link,
            ended = &mut agent.task => panic!("it needs more room than that: {ended:?}"),
        };
        let spec = link.spec().clone();
        let honest = assignment(&spec, 1, "while :; do sleep 0.05; done");
        let script = "dd if=/dev/zero of=$HOME/fill bs=64k 2>/dev/null; while :; do sleep 0.05; done";
        let filler = Assignment { gpus: vec![spec.gpus[1].gpu], disk_bytes: 8 << 30, ..assignment(&spec, 2, script) };
        // This disk is memory, and what is written to it counts as that.
        let filler = Assignment { ram_bytes: 8 << 30, ..filler };
        link.want(1, vec![honest.clone(), filler.clone()]).await;
        for _ in 0..4 {
            link.report().await;
        }
        link.want(2, vec![started(&honest), started(&filler)]).await;
        let mut ended = link.report().await;
        while ended.event == MemberEvent::Running {
            ended = link.report().await;
        }
        let full = MemberEvent::Limited { reason: Reason::DiskFull, outputs: None };
        assert_eq!((ended.lease.seq, &ended.event), (2, &full), "the renter's own end, not the owner's stop");
        assert!(ended.metered_ms > 0, "what ran is billed");
        assert!(link.lines(LogSource::Agent).iter().any(|line| line.contains("disk is full")), "{:?}", link.logs);
        // The other one runs on, and its end can be kept and told.
        agent.stop.cancel();
        let last = link.report().await;
        assert_eq!((last.lease.seq, last.event), (1, MemberEvent::Stopped { outputs: None }));
        link.send(ToAgent::Ack { seq: last.seq }).await;
        timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
    };
    // Images, the base among them, leave 1 GiB free.
    if !on_a_disk_of(1_300, state.path(), test) {
        println!("skipped: this user may not mount a file system");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_who_gives_no_internet_runs_no_lease_that_asks_for_it_and_says_so() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    common::knows_the_authority(state.path());
    let agent = run(Config { network: selion_api::commit::Network::None, ..config(&controller, state.path()) });
    let mut link = controller.greet(0).await;
    let features = link.spec().features;
    assert!(features.has(BoxFeature::Gang) && features.has(BoxFeature::Net) && !features.has(BoxFeature::Internet));
    let mut member = assignment(&link.spec().clone(), 1, "echo ran");
    member.work.network = selion_api::commit::Network::Internet;
    member.commitment = member.work.commitment(&member.salt);
    link.want(1, vec![member]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    assert_eq!(link.report().await.event, MemberEvent::Failed { reason: Reason::RuntimeFailed });
    assert!(
        link.lines(LogSource::Agent).iter().any(|line| line.contains("no internet")),
        "{:?}",
        link.lines(LogSource::Agent)
    );
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_lease_left_keeps_an_agent_from_starting() {
    let mut controller = Controller::start().await;
    // Deeper than any path may be long, and than the stack of whoever would remove it by recursion, as `TempDir` does.
    let state = tempfile::tempdir().unwrap().keep();
    let mut at = std::os::fd::OwnedFd::from(std::fs::File::open(&state).unwrap());
    for name in ["leases", "lease-1-0.0.0", "output"].into_iter().chain(std::iter::repeat_n("a", 5_000)) {
        nix::sys::stat::mkdirat(&at, name, nix::sys::stat::Mode::S_IRWXU).unwrap();
        at = nix::fcntl::openat(&at, name, nix::fcntl::OFlag::O_DIRECTORY, nix::sys::stat::Mode::empty()).unwrap();
    }
    std::os::unix::fs::symlink("/etc", state.join("leases/link")).unwrap();
    let agent = start(&controller, &state);
    controller.greet(0).await;
    assert_eq!(std::fs::read_dir(state.join("leases")).unwrap().count(), 0);
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
    // The agent's own thread may be at it still, which makes either find something gone.
    while state.exists() {
        let _ = selion_agent::runtime::remove_tree(&state);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_sandbox_does_not_work_does_not_start() {
    let controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    // A helper that brings nothing up.
    let agent = run(Config { sandbox_helper: Some("/bin/false".into()), ..config(&controller, state.path()) });
    let ended = timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(ended, AgentError::Sandbox { .. }), "{ended}");
    if nix::unistd::geteuid().is_root() {
        let bare = selion_api::slice::Sandbox::None;
        let agent = run(Config { sandbox: bare, ..config(&controller, state.path()) });
        let ended = timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap_err();
        assert!(ended.to_string().contains("ordinary user"), "{ended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_of_reports_that_were_never_made_ends_the_link_and_no_report_is_lost() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let member = assignment(&link.spec().clone(), 1, "sleep 60");
    link.want(1, vec![member.clone()]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    let ready = link.report().await;
    // Nothing of an acknowledgement is signed: whoever stands between may say it.
    link.send(ToAgent::Ack { seq: u64::MAX }).await;
    let mut link = controller.greet(0).await;
    let again = link.report().await;
    assert_eq!(
        (again.event, again.seq < ready.seq),
        (MemberEvent::Accepted, true),
        "what the log does not have comes again"
    );
    link.want(2, vec![]).await;
    let mut last = link.report().await;
    while !matches!(last.event, MemberEvent::Stopped { .. }) {
        last = link.report().await;
    }
    assert!(last.seq > ready.seq && last.seq < u64::MAX / 2, "{}", last.seq);
    link.send(ToAgent::Ack { seq: last.seq }).await;
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_welcome_with_a_number_that_no_clock_gives_is_none_and_the_agent_numbers_as_before() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    controller.greet(u64::MAX).await;
    let mut link = controller.greet(0).await;
    let member = assignment(&link.spec().clone(), 1, "true");
    link.want(1, vec![member.clone()]).await;
    let accepted = link.report().await;
    assert!(accepted.event == MemberEvent::Accepted && accepted.seq < u64::MAX / 2, "{accepted:?}");
    agent.stop.cancel();
    loop {
        let report = link.report().await;
        if matches!(report.event, MemberEvent::Exited { .. } | MemberEvent::Stopped { .. }) {
            link.send(ToAgent::Ack { seq: report.seq }).await;
            break;
        }
    }
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

/// The end of a member that runs `script`, what the agent said of it, and its last reading.
async fn end_of(ram_bytes: u64, disk_bytes: u64, script: &str) -> Option<(Report, String, Option<Used>)> {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let spec = link.spec().clone();
    if !spec.features.has(BoxFeature::Memory) {
        println!("skipped: the agent may make no control group of memory here");
        agent.stop.cancel();
        return None;
    }
    let member = Assignment { ram_bytes, disk_bytes, ..assignment(&spec, 1, script) };
    link.want(1, vec![member.clone()]).await;
    while link.report().await.event != MemberEvent::Ready {}
    link.want(2, vec![started(&member)]).await;
    let mut ended = link.report().await;
    while ended.event == MemberEvent::Running {
        ended = link.report().await;
    }
    let said = link.lines(LogSource::Agent).join("\n");
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
    Some((ended, said, link.used))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_needs_more_memory_than_it_asked_for_ends_for_that_with_its_peak() {
    // What is killed is a part of it; the rest would go on.
    let script = "dd if=/dev/zero of=/dev/null bs=512M count=1 2>/dev/null; while :; do sleep 0.05; done";
    let Some((ended, said, used)) = end_of(64 << 20, 1 << 30, script).await else { return };
    assert_eq!(ended.event, MemberEvent::Limited { reason: Reason::OutOfMemory, outputs: None });
    assert!(ended.metered_ms > 0, "what ran is billed");
    assert!(said.contains("more than its 64 MiB of memory") && said.contains("(peak 6"), "{said}");
    let used = used.unwrap();
    assert!(used.cpu_ms.is_some() && used.pids.is_some() && used.disk_bytes.is_some(), "{used:?}");
    assert!(used.memory_peak_bytes.unwrap() <= 64 << 20, "{used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_was_killed_for_memory_counts_even_if_the_command_ends_well_at_once() {
    let script = "dd if=/dev/zero of=/dev/null bs=512M count=1 2>/dev/null; exit 0";
    let Some((ended, ..)) = end_of(64 << 20, 1 << 30, script).await else { return };
    assert_eq!(ended.event, MemberEvent::Limited { reason: Reason::OutOfMemory, outputs: None });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_writes_more_than_its_disk_ends_for_that_named_or_not() {
    let endless = "while :; do sleep 0.05; done";
    for write in [
        "dd if=/dev/zero of=$HOME/fill bs=1M count=24 2>/dev/null",
        // Without a name no folder shows it.
        "exec 9> $HOME/gone; rm $HOME/gone; dd if=/dev/zero bs=1M count=24 2>/dev/null >&9",
        "mkdir $HOME/shut; dd if=/dev/zero of=$HOME/shut/fill bs=1M count=24 2>/dev/null; chmod 0 $HOME/shut",
    ] {
        let Some((ended, said, _)) = end_of(64 << 20, 8 << 20, &format!("{write}; {endless}")).await else { return };
        let MemberEvent::Limited { reason: Reason::DiskFull, .. } = ended.event else { panic!("{write}: {ended:?}") };
        assert!(said.contains("of its 8 MiB of disk"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_running_member_is_moved_back_and_forth() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let spec = link.spec().clone();
    // It outlives its first time by a second, and would then run for ever.
    let short = Assignment { max_run_ms: 4_000, ..assignment(&spec, 1, "sleep 5; echo outlived; exec sleep 600") };
    link.want(1, vec![short.clone()]).await;
    for event in [MemberEvent::Accepted, MemberEvent::Ready] {
        assert_eq!(link.report().await.event, event);
    }
    link.want(2, vec![started(&short)]).await;
    assert_eq!(link.report().await.event, MemberEvent::Running);
    link.want(3, vec![Assignment { max_run_ms: 600_000, ..started(&short) }]).await;
    while !link.chunk().await.records.iter().any(|record| line(record) == "outlived") {}
    // What is past already ends it at once.
    link.want(4, vec![Assignment { max_run_ms: 5_000, ..started(&short) }]).await;
    assert_eq!(link.report().await.event, MemberEvent::Stopped { outputs: None });
    let said = link.lines(LogSource::Agent);
    assert!(said.contains(&"its 5000 ms are used up"), "{said:?}");
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

/// A member that names one secret, and prints where it finds it.
fn with_secret(assignment: Assignment) -> Assignment {
    let mut work = assignment.work;
    work.secrets.names = vec!["token".into()];
    Assignment { commitment: work.commitment(&assignment.salt), work, ..assignment }
}

impl Linked {
    /// The key that the node stated, its signature checked.
    async fn stated_key(&mut self) -> Hash32 {
        while self.seal_key.is_none() {
            if let ToController::SealKey(signed) = self.next().await.unwrap() {
                self.seal_key = Some(signed);
            }
        }
        let signed = self.seal_key.unwrap();
        let by = recover_text(&signed.key.digest_to_sign(&POOL).0, &signed.signature).unwrap();
        assert_eq!((by.0, signed.key.node), (self.spec().node.0, self.spec().node));
        signed.key.key
    }

    /// Sends a secret of that name, sealed to `key` as for run `attempt` of the member.
    async fn give(&mut self, member: &Assignment, key: Hash32, attempt: u32, name: &str) {
        let Assignment { lease, member: rank, .. } = *member;
        let of = Addressee { pool: POOL, lease, attempt, member: rank, node: self.spec().node };
        let secret = Secret { name: name.into(), value: b"canary-5f1d".to_vec() };
        let sealed = seal(&key, &of, &[secret]).unwrap();
        self.send(ToAgent::Secrets { lease, attempt: member.attempt, member: rank, sealed }).await;
    }

    /// Waits until the agent said this in the member's log.
    async fn told(&mut self, part: &str) {
        let said = |logs: &[(LogSource, String)]| logs.iter().any(|(_, line)| line.contains(part));
        while !said(&self.logs) {
            let chunk = self.chunk().await;
            self.logs.extend(chunk.records.iter().map(|record| (record.source, line(record))));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_waits_for_its_secrets_takes_none_that_is_not_its_own_and_has_it_in_memory_alone() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let agent = start(&controller, state.path());
    let mut link = controller.greet(0).await;
    let key = link.stated_key().await;
    let script = "test \"$(cat /run/secrets/token)\" = canary-5f1d && echo found; env | grep -c canary; exit 0";
    let member = with_secret(assignment(&link.spec().clone(), 1, script));
    link.want(1, vec![member.clone()]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    link.give(&member, Hash32([1; 32]), 0, "token").await;
    link.give(&member, key, 9, "token").await;
    link.told("sealed for another run, node or key").await;
    link.give(&member, key, 0, "other").await;
    link.told("others than the lease named: other came").await;
    link.give(&member, key, 0, "token").await;
    assert_eq!(link.report().await.event, MemberEvent::Ready);
    link.want(2, vec![started(&member)]).await;
    assert_eq!(link.report().await.event, MemberEvent::Running);
    assert_eq!(link.report().await.event, MemberEvent::Exited { code: 0, outputs: None });
    assert_eq!(link.lines(LogSource::Stdout), ["found", "0"]);
    assert!(!link.logs.iter().any(|(_, line)| line.contains("canary")), "{:?}", link.logs);
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
    for file in files(state.path()) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(11).any(|part| part == b"canary-5f1d"), "{}", file.display());
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    // A socket holds nothing.
    let own = entries.filter(|path| !path.is_symlink() && (path.is_dir() || path.is_file()));
    own.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_secrets_do_not_come_fails_for_that_and_runs_nothing() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    common::knows_the_authority(state.path());
    let agent = run(Config { secrets_ms: 200, ..config(&controller, state.path()) });
    let mut link = controller.greet(0).await;
    let member = with_secret(assignment(&link.spec().clone(), 1, "echo ran"));
    link.want(1, vec![member.clone()]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    assert_eq!(link.report().await.event, MemberEvent::Failed { reason: Reason::SecretsMissing });
    link.told("(token) were not sealed to this node").await;
    assert!(link.lines(LogSource::Stdout).is_empty());
    agent.stop.cancel();
    timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_started_again_states_the_same_key() {
    let mut controller = Controller::start().await;
    let state = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for _ in 0..2 {
        let agent = start(&controller, state.path());
        keys.push(controller.greet(0).await.stated_key().await);
        agent.stop.cancel();
        timeout(PATIENCE, agent.task).await.unwrap().unwrap().unwrap();
    }
    assert_eq!(keys[0], keys[1]);
}
