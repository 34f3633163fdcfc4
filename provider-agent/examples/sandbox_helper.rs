//! The sandbox helper as a binary of its own, for this crate's tests: the product's binary is in another crate.
//!
//! `sandbox_helper sandbox-exec ...` is the helper. Two are there to be killed: `sandbox_helper launch KIND BASE HIDE --
//! COMMAND...` does nothing but run one command, `sandbox_helper agent CONFIG.json` is a whole agent. `sandbox_helper type
//! TEXT` is a command of a bad renter. The KIND `internet` is the sandbox of namespaces, with a way to the internet.

use std::path::PathBuf;
use std::process::exit;
use std::time::Duration;

use selion_agent::runtime::spec::Limits;
use selion_agent::runtime::{Launch, Links, ProcessRuntime, Rooms, RootFs, Runtime, Walls};
use selion_agent::{SANDBOX_COMMAND, sandbox_main};
use selion_api::slice::Sandbox;
use tokio_util::sync::CancellationToken;

/// How long a command that was launched runs on when this was killed.
const ALONE: Duration = Duration::from_millis(1_000);
/// The kind that reaches the internet.
const INTERNET: &str = "internet";

fn main() {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|arg| arg.to_str()) {
        Some(SANDBOX_COMMAND) => sandbox_main(),
        Some("launch") => end(launch(args.map(|arg| arg.to_string_lossy().into_owned()).collect())),
        Some("type") => end(type_into_terminal(&args.next().unwrap_or_default().to_string_lossy())),
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

/// Tries every way to the terminal of its session, and tells in the file `typist` what worked.
fn type_into_terminal(text: &str) -> Result<i32, Box<dyn std::error::Error>> {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The fields after the name, which may hold anything: state, parent, group, session, terminal.
    let terminal = stat.rsplit(") ").next().and_then(|fields| fields.split(' ').nth(4)).unwrap_or("?");
    let mut told = format!("terminal {terminal}\n");
    for path in ["/dev/tty", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2"] {
        let Ok(mut file) = std::fs::OpenOptions::new().read(true).write(true).open(path) else { continue };
        // SAFETY: asks whether the descriptor is a terminal's.
        if unsafe { libc::isatty(file.as_raw_fd()) } == 0 {
            continue;
        }
        if file.write_all(text.as_bytes()).is_ok() {
            told += &format!("wrote to {path}\n");
        }
        for key in text.as_bytes() {
            // SAFETY: TIOCSTI reads one byte.
            if unsafe { libc::ioctl(file.as_raw_fd(), libc::TIOCSTI, std::ptr::from_ref(key)) } == 0 {
                told += &format!("typed into {path}\n");
            }
        }
    }
    std::fs::write("typist", told)?;
    Ok(0)
}

fn launch(args: Vec<String>) -> Result<i32, Box<dyn std::error::Error>> {
    let [kind, base, hide, _, command @ ..] = args.as_slice() else {
        return Err("launch KIND BASE HIDE -- COMMAND".into());
    };
    let sandbox = match kind.as_str() {
        "namespaces" | INTERNET => Sandbox::Namespaces,
        _ => Sandbox::None,
    };
    let base = PathBuf::from(base);
    let launch = Launch {
        command: command.to_vec(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        rooms: Rooms { work: base.join("work"), data: base.join("data"), output: base.join("output"), base },
        devices: Vec::new(),
        network: Links { internet: kind == INTERNET, ..Links::default() },
        root: RootFs::Machine,
        limits: Limits { cpu_milli: 1_000, memory_bytes: 256 << 20, pids: 256, open_files: 1_024, shm_bytes: 16 << 20 },
        secrets: Vec::new(),
    };
    let walls = Walls {
        sandbox,
        helper: std::env::current_exe()?,
        grace: Duration::from_secs(1),
        hidden: vec![PathBuf::from(hide)],
        shown: Vec::new(),
        outlook: selion_agent::runtime::Outlook::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let runtime = ProcessRuntime::new(walls)?.alone(ALONE);
        let mut running = runtime.launch(launch).await?;
        Ok(running.wait().await?.code)
    })
}
