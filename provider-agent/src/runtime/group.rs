//! A running process group.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use async_trait::async_trait;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::timeout;

use super::process::Starter;
use super::{Exit, Running};

/// A child that leads a session, and so a process group, of its own.
pub(super) struct Group {
    child: Child,
    leader: Pid,
    grace: Duration,
    exit: Option<Exit>,
    /// Keeps the thread that started the child: the kernel kills the child when it ends.
    _starter: Starter,
}

impl Group {
    /// Takes `child`, which was started as the leader of a session of its own.
    pub(super) fn new(child: Child, grace: Duration, starter: Starter) -> io::Result<Self> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| io::Error::other("the child has ended and has no process id"))?;
        Ok(Self { child, leader: Pid::from_raw(id), grace, exit: None, _starter: starter })
    }

    /// Signals everyone in the group; it may be gone already.
    fn signal(&self, signal: Signal) {
        let _ = killpg(self.leader, signal);
    }
}

#[async_trait]
impl Running for Group {
    fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    async fn wait(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let status = self.child.wait().await?;
        // The leader is gone; nobody it left behind may live on.
        self.signal(Signal::SIGKILL);
        let exit = Exit { code: code(status) };
        self.exit = Some(exit);
        Ok(exit)
    }

    async fn stop(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        self.signal(Signal::SIGTERM);
        let grace = self.grace;
        if let Ok(exit) = timeout(grace, self.wait()).await {
            return exit;
        }
        self.signal(Signal::SIGKILL);
        self.wait().await
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Exit code as a shell tells it: 128 + n for signal n.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255)
}
