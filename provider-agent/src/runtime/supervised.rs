//! A command that runs, by its helper.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use async_trait::async_trait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::timeout;

use super::cgroup::{Group, GroupUse};
use super::helper::{END, STOP};
use super::network::{self, COUNTS, Gang, Traffic};
use super::process::Starter;
use super::{Exit, Running};
use crate::staging::blocking;

/// A helper and, below it, its command.
pub(super) struct Supervised {
    helper: Child,
    id: Pid,
    grace: Duration,
    /// Whether the command runs, and the helper obeys.
    up: bool,
    exit: Option<Exit>,
    group: Option<Group>,
    /// What the group had used at the end.
    last: Option<GroupUse>,
    /// Where its network is kept and counted, if it has any.
    folder: Option<PathBuf>,
    /// Keeps the thread that started the helper: the kernel kills the helper when it ends.
    _starter: Starter,
}

impl Supervised {
    /// Takes a helper that was started.
    pub(super) fn new(helper: Child, grace: Duration, starter: Starter, folder: Option<PathBuf>) -> io::Result<Self> {
        let id = helper.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| io::Error::other("the child has ended and has no process id"))?;
        Ok(Self {
            helper,
            id: Pid::from_raw(id),
            grace,
            up: false,
            exit: None,
            group: None,
            last: None,
            folder,
            _starter: starter,
        })
    }

    /// Puts the helper into the group.
    pub(super) fn enter(&mut self, group: Option<Group>) -> io::Result<()> {
        self.group = group;
        self.group.as_ref().map_or(Ok(()), |group| group.take(self.id.as_raw()))
    }

    /// Notes that the command runs.
    pub(super) fn is_up(&mut self) {
        self.up = true;
    }

    /// Signals the helper. It was not waited for, so its number is no other process's.
    fn signal(&self, signal: Signal) {
        if self.exit.is_none() {
            let _ = kill(self.id, signal);
        }
    }
}

#[async_trait]
impl Running for Supervised {
    fn stdout(&mut self) -> Option<ChildStdout> {
        self.helper.stdout.take()
    }

    fn stderr(&mut self) -> Option<ChildStderr> {
        self.helper.stderr.take()
    }

    async fn wait(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        // The helper ends after everybody that it watches over.
        let exit = Exit { code: code(self.helper.wait().await?) };
        self.exit = Some(exit);
        // Nobody is in it any more: it goes.
        self.last = self.group.take().map(|group| group.used());
        Ok(exit)
    }

    async fn stop(&mut self) -> io::Result<Exit> {
        self.signal(STOP);
        let grace = self.grace;
        if let Ok(exit) = timeout(grace, self.wait()).await {
            return exit;
        }
        self.kill().await
    }

    async fn kill(&mut self) -> io::Result<Exit> {
        self.signal(END);
        self.wait().await
    }

    fn used(&self) -> Option<GroupUse> {
        self.group.as_ref().map(Group::used).or(self.last)
    }

    fn head(&self) -> i32 {
        self.id.as_raw()
    }

    async fn meet(&mut self, gang: Gang) -> io::Result<()> {
        match self.folder.clone() {
            Some(folder) => blocking(move || network::tell(&folder, &gang)).await,
            None => Ok(()),
        }
    }

    fn traffic(&self) -> Option<Traffic> {
        let folder = self.folder.as_ref()?;
        if self.exit.is_some() {
            return serde_json::from_slice(&std::fs::read(folder.join(COUNTS)).ok()?).ok();
        }
        // The helper is in its box's network.
        Traffic::read(&std::fs::read_to_string(format!("/proc/{}/net/dev", self.id)).ok()?)
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.signal(if self.up { END } else { Signal::SIGKILL });
    }
}

/// Exit code as a shell tells it: 128 + n for signal n.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255)
}
