//! An owner's side of the whole agent: what it says of itself, and what its support bundle holds.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use selion_agent::status::{ask, last_events};
use selion_agent::{AgentError, BundleError, Config, Event, GpuSource, bundle, doctor};
use selion_api::slice::BoxFeature;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);

fn helper() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples/sandbox_helper")
}

/// An agent without a controller or a chain.
fn config(state: &Path) -> Config {
    Config {
        controller: "http://127.0.0.1:1".into(),
        chain_rpc: "http://127.0.0.1:1".into(),
        state_dir: state.to_owned(),
        gpus: GpuSource::Simulated { models: vec!["A100 80GB".into(), "T4 16GB".into()] },
        sandbox_helper: Some(helper()),
        ..Config::default()
    }
}

struct Agent {
    stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Agent {
    fn start(config: Config) -> Self {
        let (stop, (tell, events)) = (CancellationToken::new(), mpsc::unbounded_channel());
        // Whoever no longer listens has heard enough.
        let on_event = move |event| drop(tell.send(event));
        let task = tokio::spawn(selion_agent::run(config, stop.clone(), on_event));
        Self { stop, task, events }
    }

    async fn until(&mut self, is_it: impl Fn(&Event) -> bool) -> Event {
        let heard = async {
            loop {
                let event = self.events.recv().await.unwrap();
                if is_it(&event) {
                    return event;
                }
            }
        };
        timeout(PATIENCE, heard).await.unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_agent_says_how_it_is_to_its_owner_alone_however_long_the_path() {
    let dir = tempfile::tempdir().unwrap();
    // A socket's own path may have 107 bytes.
    let state = dir.path().join("long".repeat(30)).join("state");
    assert!(ask(&state).await.unwrap().is_none(), "nobody runs there");
    let mut agent = Agent::start(Config { except: vec!["1".into()], ..config(&state) });
    agent.until(|event| matches!(event, Event::LinkLost { .. })).await;
    let said = ask(&state).await.unwrap().unwrap();
    assert_eq!((said.pid, said.controller.as_str()), (std::process::id(), "http://127.0.0.1:1"));
    assert!(!said.link.linked && said.link.why.is_some(), "{:?}", said.link);
    let models: Vec<&str> = said.spec.gpus.iter().map(|gpu| gpu.model.as_str()).collect();
    assert_eq!((models, said.cards.left_out.len()), (vec!["A100 80GB"], 1));
    assert!(said.spec.features.has(BoxFeature::Disk));
    let (gpu, reading) = said.readings[0];
    assert_eq!((gpu, reading.temperature_c), (said.spec.gpus[0].gpu, None), "a simulated card shows nothing");
    assert!(said.members.is_empty());
    assert_eq!((said.earnings.vouchers, said.earnings.claimed), (0, None));
    let socket = fs::metadata(state.join("status.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    agent.end().await;
    assert!(ask(&state).await.unwrap().is_none(), "the agent is gone, though its socket is there");
    let last = last_events(&state, 2);
    assert!(last.iter().any(|line| line.contains("stopping")), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_choice_of_cards_is_told_at_the_next_start() {
    let state = tempfile::tempdir().unwrap();
    let told = async |cards: &[&str]| {
        let cards = cards.iter().map(|card| (*card).to_owned()).collect();
        let mut agent = Agent::start(Config { cards, ..config(state.path()) });
        let Event::Cards(told) = agent.until(|event| matches!(event, Event::Cards(_))).await else { unreachable!() };
        agent.end().await;
        told
    };
    let first = told(&["0"]).await;
    assert_eq!((first.offered[0].index, first.left_out[0].index), (0, 1));
    assert!(first.added.is_empty() && first.removed.is_empty());
    let second = told(&["1"]).await;
    assert_eq!((second.added[0].index, second.removed[0].index), (1, 0));
    let wrong = Config { cards: vec!["2".into()], ..config(state.path()) };
    let refused = selion_agent::run(wrong, CancellationToken::new(), |_| ()).await.unwrap_err().to_string();
    assert!(refused.contains("cards names \"2\", which is no card here; there are 0 GPU-"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_asks_the_agent_that_runs_what_its_box_holds() {
    let state = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(config(state.path()));
    agent.until(|event| matches!(event, Event::LinkLost { .. })).await;
    let checks = doctor(&config(state.path())).await;
    let found = |name: &str| checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("{name}"));
    assert!(found("agent").ok && found("agent").detail.contains(&format!("pid {}", std::process::id())));
    assert!(found("sandbox").ok);
    for name in ["limits", "network", "slirp4netns", "nft", "tun"] {
        let check = found(name);
        assert_eq!(check.ok, check.costs.is_none() && check.remedy.is_none(), "{check:?}");
    }
    agent.end().await;
}

/// Plants a word in every secret place of a state directory, and in the settings. The keys of the folder.
fn plant(dir: &TempDir) -> (Config, Vec<String>) {
    let state = dir.path().join("state");
    let places = [
        "vouchers/x.txt",
        "logs/lease-1-0.0.0/0",
        "outputs/lease-1-0.0.0.json.bad",
        "leases/lease-1-0.0.0/work/data",
        "content/blocks/b",
        "over/x/data",
        "reserve.txt",
    ];
    for place in places {
        let path = state.join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "CANARY-in-a-file").unwrap();
    }
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let keys: Vec<String> = ["c1", "c2"].iter().map(|byte| byte.repeat(32)).collect();
    for (name, key) in ["node.key", "provider.key"].iter().zip(&keys) {
        fs::write(state.join(name), key).unwrap();
        fs::set_permissions(state.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let url = "http://CANARY-user:CANARY-password@127.0.0.1:1/CANARY-path?key=CANARY-query";
    // What a controller answered may repeat it.
    let event = format!("{{\"said\":\"no answer of {url} for {}\"}}\n", keys[0]);
    fs::write(state.join("events.log"), event).unwrap();
    let config = Config { controller: url.into(), chain_rpc: url.into(), region: "eu".into(), ..config(&state) };
    (config, keys)
}

/// Every file of a bundle.
fn opened(path: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(path).unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (entry.path().unwrap().display().to_string(), text)
    });
    entries.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_support_bundle_has_what_helps_and_nothing_that_is_secret() {
    let dir = tempfile::tempdir().unwrap();
    let (config, keys) = plant(&dir);
    let path = dir.path().join("bundle.tar.gz");
    let made = bundle(&config, &path).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let files = opened(&path);
    assert_eq!(files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), made.files);
    for (name, text) in &files {
        for secret in keys.iter().map(String::as_str).chain(["CANARY"]) {
            assert!(!text.contains(secret), "{secret} in {name}: {text}");
        }
    }
    let text = |name: &str| &files.iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("{name}")).1;
    assert!(text("config.json").contains("\"region\": \"eu\"") && text("config.json").contains("http://127.0.0.1:1"));
    assert!(text("doctor.json").contains("sandbox") && text("kernel.txt").contains("Linux version"));
    assert!(text("events.log").contains("[left out]"), "the event is there, without the secret");
    assert!(text("spec.json").contains("A100 80GB") && text("versions.json").contains("slirp4netns"));
    // What is there is nobody's to write over.
    let again = bundle(&config, &path).await.unwrap_err();
    assert!(matches!(again, BundleError::Exists { .. }), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bundle_of_a_running_agent_has_its_status() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut agent = Agent::start(config(&state));
    agent.until(|event| matches!(event, Event::LinkLost { .. })).await;
    let path = dir.path().join("b.tar.gz");
    bundle(&config(&state), &path).await.unwrap();
    let files = opened(&path);
    let status = files.iter().find(|(name, _)| name == "status.json").map(|(_, text)| text.as_str()).unwrap();
    assert!(status.contains("\"linked\": false"), "{status}");
    agent.end().await;
}
