//! The sandbox helper as a binary of its own, for this crate's tests: the product's binary is in another crate.
//!
//! `sandbox_helper sandbox-exec ...` is the helper. Two are there to be killed: `sandbox_helper launch KIND BASE HIDE --
//! COMMAND...` does nothing but run one command, `sandbox_helper agent CONFIG.json` is a whole agent.

use std::path::PathBuf;
use std::process::exit;
use std::time::Duration;

use selion_agent::runtime::{Launch, ProcessRuntime, Rooms, Runtime};
use selion_agent::{SANDBOX_COMMAND, sandbox_main};
use selion_api::slice::Sandbox;
use tokio_util::sync::CancellationToken;

fn main() {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|arg| arg.to_str()) {
        Some(SANDBOX_COMMAND) => sandbox_main(args),
        Some("launch") => end(launch(args.map(|arg| arg.to_string_lossy().into_owned()).collect())),
        Some("agent") => end(agent(args.next().map(PathBuf::from))),
        _ => exit(64),
    }
}

fn end(outcome: Result<i32, Box<dyn std::error::Error>>) -> ! {
    match outcome {
        Ok(code) => exit(code),
        Err(error) => {
            eprintln!("{error}");
            exit(255)
        }
    }
}

fn agent(config: Option<PathBuf>) -> Result<i32, Box<dyn std::error::Error>> {
    let config = serde_json::from_slice(&std::fs::read(config.ok_or("agent CONFIG.json")?)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(selion_agent::run(config, CancellationToken::new(), |_| {}))?;
    Ok(0)
}

fn launch(args: Vec<String>) -> Result<i32, Box<dyn std::error::Error>> {
    let [kind, base, hide, _, command @ ..] = args.as_slice() else {
        return Err("launch KIND BASE HIDE -- COMMAND".into());
    };
    let sandbox = match kind.as_str() {
        "bubblewrap" => Sandbox::Bubblewrap,
        "namespaces" => Sandbox::Namespaces,
        _ => Sandbox::None,
    };
    let base = PathBuf::from(base);
    let launch = Launch {
        command: command.to_vec(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        rooms: Rooms {
            work: base.join("work"),
            data: base.join("data"),
            output: base.join("output"),
            root: base.join("root"),
            base,
        },
        hidden: vec![PathBuf::from(hide)],
        devices: Vec::new(),
    };
    let exe = std::env::current_exe()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let runtime = ProcessRuntime::new(sandbox, &exe, Duration::from_secs(1))?;
        let mut running = runtime.launch(launch).await?;
        Ok(running.wait().await?.code)
    })
}
