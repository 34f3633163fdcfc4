//! Waiting for a child while obeying the agent: signals are taken one by one, no handler runs.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::FAILED;

/// The signal that asks a helper to have its command end.
pub(in crate::runtime) const STOP: Signal = Signal::SIGTERM;
/// The signal that makes a helper kill its command and all that it started.
pub(in crate::runtime) const END: Signal = Signal::SIGUSR1;

fn taken() -> SigSet {
    [STOP, END, Signal::SIGCHLD].into_iter().collect()
}

/// Keeps the signals for [`supervise`].
pub(super) fn block() -> nix::Result<()> {
    taken().thread_block()
}

/// Lets a command have its signals.
pub(super) fn unblock() -> nix::Result<()> {
    taken().thread_unblock()
}

/// Waits for the end of `child`, reaping whoever else ends; its exit code as a shell tells it. `obey` is told each
/// signal of the agent.
pub(super) fn supervise(child: Pid, mut obey: impl FnMut(Signal)) -> i32 {
    let taken = taken();
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(ended) if ended.pid() == Some(child) => return exit_code(ended),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return FAILED,
            }
        }
        if let Ok(signal @ (STOP | END)) = taken.wait() {
            obey(signal);
        }
    }
}

/// As a shell tells it: 128 + n for signal n.
fn exit_code(status: WaitStatus) -> i32 {
    match status {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        _ => FAILED,
    }
}
