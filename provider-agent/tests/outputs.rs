//! What members left, whatever happens to the agent: real processes, real content, a controller of this test's own whose
//! gateway takes blocks only when the test says so.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

mod common;

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use common::{FENCE, POOL};
use selion_agent::{Config, GpuSource};
use selion_api::agent::{Assignment, LINK_VERSION, MemberEvent, Phase, Report, Resume, ToAgent, ToController};
use selion_api::commit::{Work, salted};
use selion_api::outputs::{OutputState, Outputs};
use selion_api::{Hash32, LeaseId, NodeSpec, Reason, Slot};
use selion_dataplane::{Store, gateway};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);
const SALT: Hash32 = Hash32([9; 32]);

/// A controller that does what the test says, and its gateway.
struct Controller {
    url: String,
    store: Store,
    sockets: mpsc::Receiver<WebSocket>,
    /// Whether its gateway takes blocks.
    takes: Arc<AtomicBool>,
    dir: TempDir,
}

impl Controller {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // A bare child of root runs as nobody and has to pass.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let store = Store::open(dir.path().join("content")).unwrap();
        let takes = Arc::new(AtomicBool::new(true));
        let (socket_in, sockets) = mpsc::channel(4);
        let link = any(move |upgrade: WebSocketUpgrade| async move {
            upgrade.on_upgrade(move |socket| async move { socket_in.send(socket).await.unwrap() })
        });
        let open = Arc::clone(&takes);
        let gate = from_fn(move |request: Request, next: Next| {
            let open = open.load(Ordering::SeqCst);
            async move { if open { next.run(request).await } else { closed() } }
        });
        let app = Router::new().route("/v1/link", link).merge(gateway::router(store.clone()).layer(gate));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, store, sockets, takes, dir }
    }

    fn take(&self, takes: bool) {
        self.takes.store(takes, Ordering::SeqCst);
    }

    /// An agent of this controller; the same node each time.
    fn agent(&self) -> Agent {
        common::knows_the_authority(&self.dir.path().join("state"));
        let config = Config {
            chain_rpc: "http://127.0.0.1:1".into(),
            controller: self.url.clone(),
            pool: Some(POOL.controller),
            state_dir: self.dir.path().join("state"),
            gpus: GpuSource::Simulated { models: vec!["A100 80GB".into()] },
            meter_ms: 20,
            ..Config::default()
        };
        let file = self.dir.path().join("config.json");
        std::fs::write(&file, serde_json::to_vec(&config).unwrap()).unwrap();
        let own = std::env::current_exe().unwrap();
        let helper = own.parent().unwrap().parent().unwrap().join("examples/sandbox_helper");
        Agent(Command::new(helper).arg("agent").arg(&file).spawn().unwrap())
    }

    /// What the node keeps of outputs that are not with the pool.
    fn shelf(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("state/outputs")).unwrap().count()
    }

    /// Greets the agent's next connection.
    async fn greet(&mut self, last_seq: u64) -> Linked {
        let socket = timeout(PATIENCE, self.sockets.recv()).await.unwrap().unwrap();
        let mut linked = Linked { socket, spec: None, said: Vec::new() };
        linked.send(ToAgent::Challenge { version: LINK_VERSION, pool: POOL, nonce: Hash32([3; 32]) }).await;
        let ToController::Hello(signed) = linked.next().await else { panic!("the hello comes first") };
        linked.send(common::welcome(&common::authority(), &signed.hello, last_seq)).await;
        linked.spec = Some(signed.hello.spec);
        linked
    }

    fn text(&self, said: &Outputs, path: &str) -> String {
        let to = self.dir.path().join(format!("back-{}", said.lease));
        self.store.export(&said.cid.as_ref().unwrap().parse().unwrap(), &to).unwrap();
        std::fs::read_to_string(to.join(path)).unwrap()
    }
}

fn closed() -> Response {
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

/// An agent as a process, killed by SIGKILL when dropped.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// One link as the controller sees it.
struct Linked {
    socket: WebSocket,
    spec: Option<NodeSpec>,
    /// What was said of outputs, in order.
    said: Vec<Outputs>,
}

impl Linked {
    async fn send(&mut self, message: ToAgent) {
        self.socket.send(Message::Binary(borsh::to_vec(&message).unwrap().into())).await.unwrap();
    }

    async fn next(&mut self) -> ToController {
        loop {
            let frame = timeout(PATIENCE, self.socket.recv()).await.unwrap().unwrap().unwrap();
            if let Message::Binary(bytes) = frame {
                return borsh::from_slice(&bytes).unwrap();
            }
        }
    }

    async fn want(&mut self, generation: u64, assignments: Vec<Assignment>) {
        let node = self.spec.as_ref().unwrap().node;
        self.send(common::desired(&common::authority(), node, FENCE, generation, assignments)).await;
    }

    /// The next report but readings of the meter; words on outputs are kept.
    async fn report(&mut self) -> Report {
        loop {
            match self.next().await {
                ToController::Report(signed) if signed.report.event != MemberEvent::Metered => return signed.report,
                ToController::Outputs(said) => self.said.push(said),
                _ => {}
            }
        }
    }

    /// The last word on outputs, not answered.
    async fn next_final(&mut self) -> Outputs {
        let waiting = async {
            loop {
                if let Some(said) = self.said.pop().filter(|said| said.state.is_final()) {
                    return said;
                }
                if let ToController::Outputs(said) = self.next().await {
                    self.said.push(said);
                }
            }
        };
        timeout(PATIENCE, waiting).await.unwrap()
    }

    /// The last word on outputs, confirmed.
    async fn last_word(&mut self) -> Outputs {
        let said = self.next_final().await;
        let Outputs { lease, attempt, member, state, .. } = said;
        self.send(ToAgent::OutputsHeard { lease, attempt, member, state }).await;
        said
    }

    fn assignment(&self, seq: u64, script: &str) -> Assignment {
        let work = Work {
            command: ["/bin/sh", "-c", script].map(String::from).to_vec(),
            env: Vec::new(),
            datasets: Vec::new(),
            network: selion_api::commit::Network::None,
            root: selion_api::commit::Root::Base,
            over: selion_api::commit::Overrides::default(),
            secrets: selion_api::commit::Expected::default(),
        };
        Assignment {
            lease: LeaseId { seq, index: 0 },
            attempt: 1,
            member: 0,
            phase: Phase::Prepare,
            gpus: vec![self.spec.as_ref().unwrap().gpus[0].gpu],
            slot: Slot::Mig { profile: "1g.10gb".into(), start: 0, size: 1 },
            cpu_milli: 500,
            ram_bytes: 64 << 20,
            disk_bytes: 1 << 20,
            net_mbps: 0,
            port: 20_000,
            peers: Vec::new(),
            commitment: work.commitment(&SALT),
            work,
            salt: SALT,
            max_run_ms: 60_000,
            resume: Resume::Nothing,
            renter: selion_api::Account([7; 20]),
            delegate: selion_api::Address([8; 20]),
            rate: selion_api::Rate(0),
            billed: selion_api::Amount::ZERO,
        }
    }

    /// Sees the member through to its `Running`.
    async fn run(&mut self, member: &Assignment) {
        self.want(1, vec![member.clone()]).await;
        while self.report().await.event != MemberEvent::Ready {}
        self.want(2, vec![Assignment { phase: Phase::Start, ..member.clone() }]).await;
        while self.report().await.event != MemberEvent::Running {}
    }
}

async fn until(mut done: impl FnMut() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_does_not_wait_for_the_upload_which_goes_on_after_a_kill() {
    let mut controller = Controller::start().await;
    controller.take(false);
    let agent = controller.agent();
    let mut link = controller.greet(0).await;
    let member = link.assignment(1, "echo weights > $SELION_OUTPUT_DIR/model; exit 7");
    link.run(&member).await;
    let end = link.report().await;
    let told = link.said.pop().expect("what is known of the outputs goes before the report of the end");
    assert_eq!(told.state, OutputState::Uploading);
    let commitment = told.cid.as_ref().map(|cid| salted(&SALT, cid.as_bytes()));
    assert!(commitment.is_some());
    assert_eq!(end.event, MemberEvent::Exited { code: 7, outputs: commitment });
    assert!(!Path::exists(&controller.dir.path().join("state/leases/lease-1-0.1.0")), "its rooms are free");
    link.send(ToAgent::Ack { seq: end.seq }).await;
    drop((agent, link));

    controller.take(true);
    let _agent = controller.agent();
    let mut link = controller.greet(end.seq).await;
    let kept = link.last_word().await;
    assert_eq!((kept.state, &kept.cid, kept.files), (OutputState::Kept, &told.cid, 1));
    assert_eq!(controller.text(&kept, "model"), "weights\n");
    until(|| controller.shelf() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_pool_misses_is_sent_again() {
    let mut controller = Controller::start().await;
    let _agent = controller.agent();
    let mut link = controller.greet(0).await;
    let member = link.assignment(1, "echo weights > $SELION_OUTPUT_DIR/model");
    link.run(&member).await;
    let end = link.report().await;
    link.send(ToAgent::Ack { seq: end.seq }).await;
    let said = link.next_final().await;
    // Collected there, before the word came.
    let root = said.cid.as_ref().unwrap().parse().unwrap();
    let blocks = controller.store.blocks(&root, &selion_dataplane::Limits::default()).unwrap();
    let lost = *blocks.iter().find(|cid| controller.store.get(cid).unwrap().ends_with(b"weights\n")).unwrap();
    let name: String = lost.hash().digest().iter().map(|byte| format!("{byte:02x}")).collect();
    let stored = format!("content/blocks/{}/1220{name}", &name[62..]);
    std::fs::remove_file(controller.dir.path().join(stored)).unwrap();
    assert!(!controller.store.has(&lost));
    let Outputs { lease, attempt, member, .. } = said;
    while !controller.store.has(&lost) {
        link.send(ToAgent::OutputsHeard { lease, attempt, member, state: OutputState::Uploading }).await;
        link.next_final().await;
    }
    let kept = link.last_word().await;
    assert_eq!((kept.state, &kept.cid), (OutputState::Kept, &said.cid));
    assert_eq!(controller.text(&kept, "model"), "weights\n");
    until(|| controller.shelf() == 0).await;
}

/// What the supervisor of the one lease wrote down.
fn record(controller: &Controller) -> serde_json::Value {
    let kept = std::fs::read_to_string(controller.dir.path().join("state/leases/lease-1-0.1.0/record")).unwrap();
    serde_json::from_str(&kept).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_had_written_when_its_box_was_killed_without_an_agent_is_kept_and_stated() {
    let mut controller = Controller::start().await;
    let agent = controller.agent();
    let mut link = controller.greet(0).await;
    let script = "echo step-100 > $SELION_OUTPUT_DIR/checkpoint; ln -s checkpoint $SELION_OUTPUT_DIR/latest; \
                  mkfifo $SELION_OUTPUT_DIR/pipe; echo written; while :; do sleep 0.05; done";
    let member = link.assignment(1, script);
    link.run(&member).await;
    let room = controller.dir.path().join("state/leases/lease-1-0.1.0/output");
    until(|| room.join("pipe").exists()).await;
    drop((agent, link));
    let supervisor = record(&controller)["supervisor"].as_i64().unwrap().try_into().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(supervisor), nix::sys::signal::Signal::SIGKILL).unwrap();

    let _agent = controller.agent();
    let mut link = controller.greet(0).await;
    let mut end = link.report().await;
    while !matches!(end.event, MemberEvent::Failed { .. }) {
        end = link.report().await;
    }
    assert_eq!(end.event, MemberEvent::Failed { reason: Reason::RuntimeFailed });
    assert!(!link.said.is_empty(), "the pool hears of the outputs before the end");
    let kept = link.last_word().await;
    assert_eq!((kept.state, kept.skipped, kept.files), (OutputState::Partial, 1, 1), "{kept:?}");
    assert_eq!(kept.named[0].path, "pipe");
    assert_eq!(controller.text(&kept, "latest"), "step-100\n");
    until(|| controller.shelf() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_came_while_no_agent_was_there_is_told_with_its_code_and_its_outputs_arrive() {
    let mut controller = Controller::start().await;
    let agent = controller.agent();
    let mut link = controller.greet(0).await;
    let script = "touch $SELION_OUTPUT_DIR/up; while ! test -e $SELION_OUTPUT_DIR/go; do sleep 0.01; done; \
                  echo weights > $SELION_OUTPUT_DIR/model; exit 7";
    let member = link.assignment(1, script);
    link.run(&member).await;
    let room = controller.dir.path().join("state/leases/lease-1-0.1.0/output");
    until(|| room.join("up").exists()).await;
    drop((agent, link));
    std::fs::write(room.join("go"), "").unwrap();
    until(|| record(&controller)["ended"].is_object()).await;
    let ran_ms = record(&controller)["ended"]["ran_ms"].as_u64().unwrap();

    let _agent = controller.agent();
    let mut link = controller.greet(0).await;
    let mut end = link.report().await;
    while !end.event.is_last() {
        end = link.report().await;
    }
    assert!(matches!(end.event, MemberEvent::Exited { code: 7, outputs: Some(_) }), "{end:?}");
    assert_eq!(end.metered_ms, ran_ms, "to the millisecond at which it ended");
    let kept = link.last_word().await;
    assert_eq!(controller.text(&kept, "model"), "weights\n");
    assert!(!room.exists());
    until(|| controller.shelf() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_run_finds_what_an_earlier_one_left_and_waits_while_it_is_coming() {
    let mut controller = Controller::start().await;
    let folder = controller.dir.path().join("left");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("checkpoint"), "step-100\n").unwrap();
    let cid = controller.store.add_path(&folder).unwrap().to_string();
    let _agent = controller.agent();
    let mut link = controller.greet(0).await;
    let script = "cat $SELION_RESUME_DIR/checkpoint > $SELION_OUTPUT_DIR/seen; \
                  touch $SELION_RESUME_DIR/x 2> /dev/null && exit 9; exit 0";
    let first = Assignment { attempt: 2, resume: Resume::Coming { attempt: 1 }, ..link.assignment(1, script) };
    link.want(1, vec![first.clone()]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    let come = Assignment { resume: Resume::From { attempt: 1, cid }, ..first };
    link.run(&come).await;
    let end = link.report().await;
    assert!(matches!(end.event, MemberEvent::Exited { code: 0, .. }), "{end:?}");
    let kept = link.last_word().await;
    assert_eq!(controller.text(&kept, "seen"), "step-100\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_beyond_the_leases_disk_is_refused_before_it_is_written() {
    let mut controller = Controller::start().await;
    // A few blocks that are a folder of 64 files of 1 MiB each.
    let folder = controller.dir.path().join("bomb");
    std::fs::create_dir(&folder).unwrap();
    for number in 0..64 {
        std::fs::write(folder.join(number.to_string()), vec![0_u8; 1 << 20]).unwrap();
    }
    let cid = controller.store.add_path(&folder).unwrap().to_string();
    let _agent = controller.agent();
    let mut link = controller.greet(0).await;
    let mut member = link.assignment(1, "true");
    member.disk_bytes = 8 << 20;
    member.work.datasets = vec![(cid, "bomb".into())];
    member.commitment = member.work.commitment(&SALT);
    link.want(1, vec![member]).await;
    assert_eq!(link.report().await.event, MemberEvent::Accepted);
    assert_eq!(link.report().await.event, MemberEvent::Failed { reason: Reason::StagingFailed });
}
