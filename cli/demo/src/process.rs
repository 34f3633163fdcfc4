//! The processes that the demo starts. None outlives it, unless the pool is left on purpose.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::fault::{Expecting, Fault, Told};

/// How long processes have to end by themselves.
const FAREWELL: Duration = Duration::from_secs(5);
/// Lines of a log shown when its process died.
const LAST_LINES: usize = 3;

/// All processes by name; each leads a process group of its own. Dropping kills them.
pub(crate) struct Crew {
    exe: PathBuf,
    logs: PathBuf,
    members: Mutex<BTreeMap<String, Member>>,
}

struct Member {
    child: Child,
    command: Vec<OsString>,
    started: usize,
    dead: bool,
}

impl Crew {
    pub fn new(exe: PathBuf, logs: PathBuf) -> Self {
        Self { exe, logs, members: Mutex::default() }
    }

    pub fn exe(&self) -> &Path {
        &self.exe
    }

    pub fn logs(&self) -> &Path {
        &self.logs
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<String, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the binary with these arguments. What it prints goes to `NAME.log`, after what was there.
    pub fn start<S: AsRef<OsStr>>(&self, name: &str, args: impl IntoIterator<Item = S>) -> Told<u32> {
        let command: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let path = self.logs.join(format!("{name}.log"));
        let log = OpenOptions::new().create(true).append(true).open(&path).expecting(&format!("the log of {name}"))?;
        let also = log.try_clone().expecting(&format!("the log of {name}"))?;
        let mut process = Command::new(&self.exe);
        process.args(&command).stdin(Stdio::null()).stdout(log).stderr(also).process_group(0);
        clean(|key| {
            process.env_remove(key);
        });
        let child = process.spawn().expecting(&format!("a process for {name}"))?;
        let pid = child.id();
        let mut members = self.members();
        let started = members.len();
        members.insert(name.to_owned(), Member { child, command, started, dead: false });
        Ok(pid)
    }

    /// Starts one again as it was started before.
    pub fn restart(&self, name: &str) -> Told<u32> {
        let command = self.members().get(name).map(|member| member.command.clone());
        let command = command.expecting(&format!("a process called {name}"))?;
        self.start(name, command)
    }

    /// SIGKILL to the process alone, not to what it started. It is gone when this returns.
    pub fn kill(&self, name: &str) -> Told<u32> {
        let mut members = self.members();
        let member = members.get_mut(name).expecting(&format!("a process called {name}"))?;
        let pid = member.child.id();
        if let Some(status) = member.child.try_wait()? {
            return Err(Fault::new(format!("{name} (pid {pid}) to run"), format!("it had ended: {status}")));
        }
        member.dead = true;
        kill(raw(pid), Signal::SIGKILL)?;
        member.child.wait()?;
        Ok(pid)
    }

    /// Processes that should run, by name.
    pub fn pids(&self) -> BTreeMap<String, u32> {
        let members = self.members();
        members
            .iter()
            .filter(|(_, member)| !member.dead)
            .map(|(name, member)| (name.clone(), member.child.id()))
            .collect()
    }

    /// What each was started with, by name.
    pub fn commands(&self) -> BTreeMap<String, Vec<String>> {
        let text = |member: &Member| member.command.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        self.members().iter().map(|(name, member)| (name.clone(), text(member))).collect()
    }

    /// A sentence for each process that ended without being told to.
    pub fn obituaries(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (name, member) in self.members().iter_mut().filter(|(_, member)| !member.dead) {
            if let Ok(Some(status)) = member.child.try_wait() {
                let last = last_lines(&self.logs.join(format!("{name}.log")));
                said.push(format!("{name} (pid {}) ended by itself, {status}: {last}", member.child.id()));
            }
        }
        said
    }

    /// Asks all to end, the last started first, and kills those that do not.
    pub async fn stop(&self) {
        let mut pids: Vec<(usize, u32)> = Vec::new();
        for member in self.members().values_mut().filter(|member| !member.dead) {
            if let Ok(None) = member.child.try_wait() {
                pids.push((member.started, member.child.id()));
            }
        }
        pids.sort_unstable_by(|a, b| b.cmp(a));
        for (_, pid) in pids {
            // Gone already is as good.
            let _ = kill(raw(pid), Signal::SIGTERM);
        }
        let end = tokio::time::Instant::now() + FAREWELL;
        while self.running() && tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.kill_all();
    }

    fn running(&self) -> bool {
        let mut members = self.members();
        members.values_mut().any(|member| !member.dead && matches!(member.child.try_wait(), Ok(None)))
    }

    fn kill_all(&self) {
        for member in self.members().values_mut().filter(|member| !member.dead) {
            if let Ok(None) = member.child.try_wait() {
                // The group first, while its leader keeps the number taken.
                let _ = killpg(raw(member.child.id()), Signal::SIGKILL);
                let _ = member.child.wait();
            }
            member.dead = true;
        }
    }

    /// Lets them run on after us.
    pub fn leave(&self) {
        for member in self.members().values_mut() {
            member.dead = true;
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Names of our own settings in this environment: what the demo starts is told everything by the demo.
pub(crate) fn clean(mut remove: impl FnMut(&OsStr)) {
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("SELION_") {
            remove(&key);
        }
    }
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

/// The end of a log, in one line.
fn last_lines(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
}

/// A loopback port that nobody listens on now.
pub(crate) fn free_port() -> Told<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expecting("a free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crew(dir: &Path) -> Crew {
        Crew::new("/bin/sh".into(), dir.to_owned())
    }

    fn alive(pid: u32) -> bool {
        kill(raw(pid), None).is_ok()
    }

    #[test]
    fn nothing_that_was_started_outlives_its_crew() {
        let dir = tempfile::tempdir().unwrap();
        let crew = crew(dir.path());
        let pid = crew.start("sleeper", ["-c", "sleep 60"]).unwrap();
        assert!(alive(pid));
        drop(crew);
        assert!(!alive(pid));
    }

    #[tokio::test]
    async fn those_that_are_asked_end_by_themselves() {
        let dir = tempfile::tempdir().unwrap();
        let crew = crew(dir.path());
        let pid = crew
            .start("polite", ["-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"])
            .unwrap();
        let log = dir.path().join("polite.log");
        while !fs::read_to_string(&log).unwrap().contains("up") {
            tokio::task::yield_now().await;
        }
        crew.stop().await;
        assert!(!alive(pid));
        assert!(fs::read_to_string(&log).unwrap().contains("bye"));
    }

    #[test]
    fn a_killed_process_can_be_started_again_and_is_not_mourned() {
        let dir = tempfile::tempdir().unwrap();
        let crew = crew(dir.path());
        let first = crew.start("one", ["-c", "sleep 60"]).unwrap();
        assert_eq!(crew.kill("one").unwrap(), first);
        assert!(!alive(first) && crew.obituaries().is_empty() && crew.pids().is_empty());
        let second = crew.restart("one").unwrap();
        assert!(second != first && alive(second));
        assert!(crew.kill("nobody").is_err());
    }

    #[test]
    fn a_process_that_ended_by_itself_is_named_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let crew = crew(dir.path());
        crew.start("weak", ["-c", "echo no room; exit 3"]).unwrap();
        let said = loop {
            let said = crew.obituaries();
            if !said.is_empty() {
                break said;
            }
        };
        assert!(said[0].contains("weak") && said[0].contains("no room") && said[0].contains('3'), "{said:?}");
    }
}
