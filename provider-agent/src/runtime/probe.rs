//! Whether a sandbox works here: found out by running it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::Path;
use std::time::Duration;

use selion_api::seal::Secret;
use selion_api::slice::Sandbox;
use tokio::time::timeout;

use super::network::GATEWAY;
use super::removal::remove_tree;
use super::spec::Limits;
use super::{Gang, Launch, Links, ProcessRuntime, Rooms, RootFs, Runtime, RuntimeError, Walls};

/// Longest time for one try.
const TRY: Duration = Duration::from_secs(20);
/// What it may use; nothing holds it to that here.
const TRIAL: Limits =
    Limits { cpu_milli: 1_000, memory_bytes: 64 << 20, pids: 64, open_files: 1_024, shm_bytes: 1 << 20 };
/// What is run: it must see its data and its secret and write its output, and neither write its data or its secret, nor see the agent's secret or the
/// machine's, nor have a terminal.
const SCRIPT: &str = "test \"$(cat \"$SELION_DATA_DIR/seen\")\" = yes || exit 3\n\
    echo yes > \"$SELION_OUTPUT_DIR/written\" || exit 4\n\
    if (echo no > \"$SELION_DATA_DIR/new\") 2>/dev/null; then exit 5; fi\n\
    if cat \"$PROBE_SECRET\" >/dev/null 2>&1; then exit 6; fi\n\
    if test -e /etc/shadow || test -e /etc/ssh; then exit 7; fi\n\
    if test -e /dev/tty; then exit 8; fi\n\
    test \"$(cat /run/secrets/probe)\" = yes || exit 9\n\
    if (echo no > /run/secrets/probe) 2>/dev/null; then exit 10; fi\n\
    exit 0";

/// Runs a trial command behind these walls in this root, with rooms under `folder`, the agent's state. Without a sandbox there is
/// nothing to try.
///
/// # Errors
///
/// What does not work, in words.
pub async fn probe(folder: &Path, walls: Walls, root: RootFs) -> Result<(), String> {
    if walls.sandbox == Sandbox::None {
        return Ok(());
    }
    let base = folder.join("probe");
    let said = |error: std::io::Error| format!("{}: {error}", base.display());
    let rooms = Rooms::make(&base).map_err(said)?;
    let secret = base.join("secret");
    let made = fs::write(&secret, "secret").and_then(|()| fs::write(rooms.data.join("seen"), "yes\n"));
    let tried = match made.map_err(said) {
        Ok(()) => run(walls, root, &rooms, &secret).await,
        Err(why) => Err(why),
    };
    // The rooms of a probe are in nobody's way.
    let _ = remove_tree(&base);
    tried
}

/// Runs a trial command that reaches the internet and a gang at a rate, in a box of these walls. Its rules are tried in it, as
/// in every box, before the command runs.
///
/// # Errors
///
/// What does not work, in words.
pub async fn probe_network(folder: &Path, walls: Walls, root: RootFs) -> Result<(), String> {
    let base = folder.join("probe-network");
    let said = |error: std::io::Error| format!("{}: {error}", base.display());
    let rooms = Rooms::make(&base).map_err(said)?;
    // A port that is free now.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr()).map_err(said)?.port();
    let own = SocketAddrV4::new(GATEWAY, port);
    let launch = Launch {
        command: ["/bin/sh", "-c", "exit 0"].map(String::from).to_vec(),
        env: Vec::new(),
        rooms,
        devices: Vec::new(),
        network: Links { internet: true, gang: Some(Gang { own, peers: vec![own] }), mbps: Some(1_000) },
        root,
        limits: TRIAL,
        secrets: Vec::new(),
    };
    let tried = match ProcessRuntime::new(walls) {
        Ok(runtime) => exit_code(&runtime, launch).await,
        Err(error) => Err(words(error)),
    };
    // As above.
    let _ = remove_tree(&base);
    match tried? {
        0 => Ok(()),
        code => Err(format!("the trial command ended with {code}")),
    }
}

fn words(error: RuntimeError) -> String {
    match (&error, std::error::Error::source(&error)) {
        (RuntimeError::Sandbox { detail, .. }, _) => detail.clone(),
        (_, Some(source)) => format!("{error}: {source}"),
        (_, None) => error.to_string(),
    }
}

async fn exit_code(runtime: &ProcessRuntime, launch: Launch) -> Result<i32, String> {
    let mut running =
        timeout(TRY, runtime.launch(launch)).await.map_err(|_| "it did not start in time")?.map_err(words)?;
    let exit = timeout(TRY, running.wait()).await.map_err(|_| "it did not end in time")?;
    exit.map(|exit| exit.code).map_err(|error| error.to_string())
}

async fn run(walls: Walls, root: RootFs, rooms: &Rooms, secret: &Path) -> Result<(), String> {
    let inside = rooms.seen_in(walls.sandbox);
    let runtime = ProcessRuntime::new(walls).map_err(words)?;
    let launch = Launch {
        command: ["/bin/sh", "-c", SCRIPT].map(String::from).to_vec(),
        env: vec![
            ("PATH".into(), super::env::PATH.into()),
            ("SELION_DATA_DIR".into(), inside.data.display().to_string()),
            ("SELION_OUTPUT_DIR".into(), inside.output.display().to_string()),
            ("PROBE_SECRET".into(), secret.display().to_string()),
        ],
        rooms: rooms.clone(),
        devices: Vec::new(),
        network: Links::default(),
        root,
        limits: TRIAL,
        secrets: vec![Secret { name: "probe".into(), value: b"yes".to_vec() }],
    };
    let code = exit_code(&runtime, launch).await?;
    let written = fs::read_to_string(rooms.output.join("written")).unwrap_or_default();
    let why = match code {
        0 if written == "yes\n" => return Ok(()),
        0 => "what the trial command wrote is not in its output folder",
        3 => "the trial command did not see its data",
        4 => "the trial command could not write its output",
        5 => "the trial command could write its data",
        6 => "the trial command could read the agent's state",
        7 => "the trial command saw the machine's own files",
        8 => "the trial command had a terminal",
        9 => "the trial command did not see its secret",
        10 => "the trial command could write its secret",
        code => return Err(format!("the trial command ended with {code}")),
    };
    Err(why.into())
}
