//! The parts of the pool as child processes: started, waited for, and stopped in order.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::select_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::sync::mpsc;

use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::up::restarts::{MOST, Restarts, WINDOW};

/// How long a part may take to answer, and to end once it is told to.
const START: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(20);
/// Lines of a log that a failure shows, and how much of the log is read for them.
const TAIL_LINES: usize = 15;
const TAIL_BYTES: u64 = 16 << 10;

/// One part of the pool.
pub struct Child {
    name: &'static str,
    dir: PathBuf,
    args: Vec<OsString>,
    process: tokio::process::Child,
    pid: u32,
    log: PathBuf,
    /// Length of the log when this process was started.
    log_from: u64,
    said: mpsc::UnboundedReceiver<Value>,
    restarts: Restarts,
}

impl Child {
    /// Starts `selion ARGS`. What it prints and logs goes to `DIR/NAME.log`. It ends when this process ends.
    pub fn start(name: &'static str, dir: &Path, args: Vec<OsString>) -> Done<Self> {
        let failed = |error| {
            Failure::new(
                Exit::Failure,
                "start",
                format!("{name}: {error}"),
                "check ulimit -u, and this program's own file",
            )
        };
        let exe = std::env::current_exe().map_err(failed)?;
        let log = dir.join(format!("{name}.log"));
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        let file = options.open(&log).map_err(|error| Failure::file(&log, &error))?;
        let stderr = file.try_clone().map_err(failed)?;
        let log_from = file.metadata().map_err(failed)?.len();
        let mut process = Command::new(exe)
            .args(&args)
            .args(["--output", "json", "-v", "--parent"])
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            // Ctrl-C on the terminal reaches us alone: we stop the parts in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (said_in, said) = mpsc::unbounded_channel();
        if let Some(stdout) = process.stdout.take() {
            tokio::spawn(keep(stdout, file, said_in));
        }
        let pid = process.id().unwrap_or_default();
        let (dir, restarts) = (dir.to_owned(), Restarts::default());
        Ok(Self { name, dir, args, process, pid, log, log_from, said, restarts })
    }

    /// Starts it again as it was. The caller has seen it end.
    fn start_again(&mut self) -> Done {
        let again = Self::start(self.name, &self.dir, self.args.clone())?;
        *self = Self { restarts: std::mem::take(&mut self.restarts), ..again };
        self.listen_no_more();
        Ok(())
    }

    /// Nobody waits for what it says any more: kept for ever, that would fill the memory.
    fn listen_no_more(&mut self) {
        self.said.close();
    }

    /// The first thing it says of which `pick` makes something.
    pub async fn says<T>(&mut self, pick: impl Fn(&Value) -> Option<T>) -> Done<T> {
        let patience = tokio::time::sleep(START);
        tokio::pin!(patience);
        loop {
            tokio::select! {
                line = self.said.recv() => match line {
                    Some(line) => if let Some(found) = pick(&line) {
                        return Ok(found);
                    },
                    // It closed its stdout: it is ending.
                    None => {
                        let status = self.process.wait().await;
                        return Err(self.died(status));
                    }
                },
                () = &mut patience => {
                    let detail = format!("{} did not answer within {} s; its last lines:\n{}", self.name, START.as_secs(), self.tail());
                    return Err(Failure::new(Exit::Timeout, "child_silent", detail, self.next()));
                }
            }
        }
    }

    /// The address in its line `{"ready":{"address":..}}`. Started again it listens there, whatever port it was given.
    pub async fn ready(&mut self) -> Done<String> {
        let address = self.says(|line| line["ready"]["address"].as_str().map(str::to_owned)).await?;
        if let Some(listen) =
            self.args.iter().position(|word| word == "--listen").and_then(|at| self.args.get_mut(at + 1))
        {
            *listen = OsString::from(&address);
        }
        Ok(address)
    }

    /// Its name and process id.
    pub fn identity(&self) -> (&'static str, u32) {
        (self.name, self.pid)
    }

    fn died(&self, status: std::io::Result<std::process::ExitStatus>) -> Failure {
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let log = self.log.display();
        if let Some(error) = self.last_words() {
            let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
            let detail = format!("{} ended by itself ({how}): {}", self.name, text("detail"));
            return Failure::new(Exit::Failure, "child_died", detail, format!("{} (log: {log})", text("suggestion")));
        }
        let detail = format!("{} ended by itself ({how}); its last lines:\n{}", self.name, self.tail());
        Failure::new(Exit::Failure, "child_died", detail, self.next())
    }

    /// The error that it printed as its last line, if it did.
    fn last_words(&self) -> Option<Value> {
        let text = read_tail(&self.log, self.log_from).ok()?;
        let line: Value = serde_json::from_str(text.lines().last()?).ok()?;
        line.get("error").cloned()
    }

    fn next(&self) -> String {
        format!("the whole log is {}; start it again: it goes on where it was", self.log.display())
    }

    fn tail(&self) -> String {
        let text = read_tail(&self.log, self.log_from).unwrap_or_else(|error| error.to_string());
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].iter().map(|line| format!("  {line}\n")).collect()
    }

    /// Asks it to end, waits, and ends it by force if that takes too long. False if force was needed.
    async fn stop(&mut self) -> bool {
        if let Some(pid) = self.process.id().and_then(|pid| i32::try_from(pid).ok()) {
            // It may have ended between the two.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if tokio::time::timeout(END, self.process.wait()).await.is_ok() {
            return true;
        }
        let _ = self.process.kill().await;
        false
    }
}

/// What was written to a log since `from`, or the last part of it.
fn read_tail(path: &Path, from: u64) -> std::io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES).max(from)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Copies what the child prints to its log, and hands on the lines that are JSON.
async fn keep(stdout: ChildStdout, mut log: File, said: mpsc::UnboundedSender<Value>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A full disk shows in the child's own writes.
        let _ = writeln!(log, "{line}");
        if let Ok(value) = serde_json::from_str(&line) {
            // Nobody waits for it any more once it is up.
            let _ = said.send(value);
        }
    }
}

/// A part that ended by itself and runs again.
#[derive(Debug, serde::Serialize)]
pub struct Restarted {
    /// Which.
    pub name: &'static str,
    /// Its process id now.
    pub pid: u32,
    /// How it ended, and its last words.
    pub why: String,
}

/// All parts, in the order they were started.
#[derive(Default)]
pub struct Crew(Vec<Child>);

impl Crew {
    /// Takes a part in.
    pub fn add(&mut self, child: Child) -> &mut Child {
        let at = self.0.len();
        self.0.push(child);
        &mut self.0[at]
    }

    /// Fails if a part has ended.
    pub fn check(&mut self) -> Done {
        for child in &mut self.0 {
            match child.process.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Err(child.died(Ok(status))),
                Err(error) => return Err(child.died(Err(error))),
            }
        }
        Ok(())
    }

    /// All parts are up, and nobody waits for what they say any more.
    pub fn listen_no_more(&mut self) {
        self.0.iter_mut().for_each(Child::listen_no_more);
    }

    /// Waits until a part ends by itself, and starts it again after a while. Cancelled in between it leaves the part down.
    ///
    /// # Errors
    ///
    /// The part's own, once it has died too often.
    pub async fn restart_the_first_to_end(&mut self) -> Done<Restarted> {
        let ends = self.0.iter_mut().map(|child| child.process.wait().boxed());
        let (status, at, _) = select_all(ends).await;
        let child = &mut self.0[at];
        let died = child.died(status);
        let Some(wait) = child.restarts.next(Instant::now()) else {
            let body = died.body();
            let detail = format!("{}; that was death {} within {} min", body.detail, MOST + 1, WINDOW.as_secs() / 60);
            return Err(Failure::new(Exit::Failure, "child_died", detail, &body.suggestion));
        };
        tokio::time::sleep(wait).await;
        child.start_again()?;
        let (name, pid) = child.identity();
        Ok(Restarted { name, pid, why: died.body().detail.clone() })
    }

    /// Names and process ids.
    pub fn identities(&self) -> Vec<(&'static str, u32)> {
        self.0.iter().map(Child::identity).collect()
    }

    /// Stops every part, the last one first. Names those that had to be killed.
    pub async fn stop(&mut self) -> Vec<&'static str> {
        let mut forced = Vec::new();
        while let Some(mut child) = self.0.pop() {
            if !child.stop().await {
                forced.push(child.name);
            }
        }
        forced
    }
}
