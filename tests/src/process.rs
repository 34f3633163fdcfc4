//! Processes of the binary: those that serve, and those that end by themselves.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often a state that no event tells of is asked for.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The binary under test: `SELION_BIN`, or the release build of this workspace.
///
/// # Errors
///
/// Neither is there; the message says how to build it.
pub fn binary() -> Result<PathBuf> {
    let named = std::env::var_os("SELION_BIN").map(PathBuf::from);
    let path = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/selion"));
    path.canonicalize().with_context(|| {
        format!("no binary at {}: run `cargo build --release`, or set SELION_BIN to one", path.display())
    })
}

/// The binary with an empty home and none of the caller's settings.
fn selion<S: AsRef<OsStr>>(home: &Path, args: impl IntoIterator<Item = S>) -> Result<Command> {
    let mut command = Command::new(binary()?);
    command
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .current_dir(home)
        .args(["--output", "json"])
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    Ok(command)
}

/// A process that ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; absent if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Ended {
    /// All that it said, on stderr and on stdout: a failure is JSON on stdout.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{}{}", self.err, self.out)
    }

    /// The one JSON value that it printed.
    ///
    /// # Errors
    ///
    /// It failed, or printed something else.
    pub fn json(&self) -> Result<Value> {
        if self.code != Some(0) {
            bail!("it ended with {:?}: {}{}", self.code, self.out, self.err);
        }
        Ok(serde_json::from_str(&self.out)?)
    }
}

/// Runs the binary to its end.
///
/// # Errors
///
/// It is not there, or does not end within [`PATIENCE`].
pub async fn run<S: AsRef<OsStr>>(home: &Path, args: impl IntoIterator<Item = S>) -> Result<Ended> {
    let mut command = selion(home, args)?;
    let shown = format!("{:?}", command.as_std());
    // A server that starts although it should not is ended by the test's end at the latest.
    command.args(["--parent", &std::process::id().to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = timeout(PATIENCE, command.output()).await.with_context(|| format!("{shown} did not end"))??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ended { code: ended.status.code(), out: text(ended.stdout), err: text(ended.stderr) })
}

/// A process that serves. Dropping it kills it, and so does the end of this one.
pub struct Part {
    name: String,
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
    log: PathBuf,
}

impl Part {
    /// Starts the binary. What it writes to stderr goes to `HOME/NAME.log`.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start<S: AsRef<OsStr>>(home: &Path, name: &str, args: impl IntoIterator<Item = S>) -> Result<Self> {
        Self::start_with(home, name, args, [] as [(&str, &str); 0])
    }

    /// The same with more of an environment.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start_with<S: AsRef<OsStr>>(
        home: &Path,
        name: &str,
        args: impl IntoIterator<Item = S>,
        env: impl IntoIterator<Item = (&'static str, impl AsRef<OsStr>)>,
    ) -> Result<Self> {
        let mut command = selion(home, args)?;
        command.args(["--parent", &std::process::id().to_string()]).envs(env);
        let log = home.join(format!("{name}.log"));
        let mut child = command.stdout(Stdio::piped()).stderr(File::create(&log)?).spawn()?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let (tell, lines) = mpsc::unbounded_channel();
        // Read all the time, so that the process never waits for us.
        tokio::spawn(async move {
            let mut read = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = read.next_line().await {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { name: name.to_owned(), child, lines, log })
    }

    /// The next line of its output that is JSON with this member; its value.
    ///
    /// # Errors
    ///
    /// It ended before, or said nothing of the kind within [`PATIENCE`]; with what it wrote to stderr.
    pub async fn said(&mut self, member: &str) -> Result<Value> {
        let wait = async {
            while let Some(line) = self.lines.recv().await {
                let value: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
                if let Some(found) = value.get(member) {
                    return Ok(found.clone());
                }
            }
            bail!("it ended")
        };
        let found = timeout(PATIENCE, wait).await.map_err(anyhow::Error::from);
        found.and_then(|inner| inner).with_context(|| {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            format!("{} to say `{member}`; its log: {log}", self.name)
        })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it wrote to stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// SIGKILL; gone when this returns.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Waits until it ends by itself; how it did.
    ///
    /// # Errors
    ///
    /// It does not within [`PATIENCE`].
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        Ok(ended.with_context(|| format!("{} goes on: {}", self.name, self.log()))??)
    }

    /// SIGTERM, and how it ended.
    ///
    /// # Errors
    ///
    /// It does not end within [`PATIENCE`].
    pub async fn stop(mut self) -> Result<ExitStatus> {
        let pid = self.child.id().with_context(|| format!("{} had ended", self.name))?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
        let ended = timeout(PATIENCE, self.child.wait()).await;
        Ok(ended.with_context(|| format!("{} did not stop: {}", self.name, self.log()))??)
    }
}

/// Asks until there is an answer.
///
/// # Errors
///
/// `ask` failed, or there was none within [`PATIENCE`].
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    let mut again = interval(ASK_AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < end {
        again.tick().await;
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
    }
    bail!("{what}: not within {PATIENCE:?}")
}

/// A port of this machine that nobody listens on: bound and closed again.
///
/// # Errors
///
/// The system has none left.
pub fn dead_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
