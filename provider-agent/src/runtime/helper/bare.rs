//! Sandbox `none`: the command beside the owner's own programs, as the same user. What it leaves behind becomes the
//! helper's child, as the helper is its reaper, and dies with it.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpid};

use super::plan::{Plan, Refusal};
use super::{FAILED, STOP, Talk, command, supervise};
use crate::runtime::family::descendants;

/// Runs the command to its end; its exit code.
pub(super) fn run(plan: &Plan, talk: &mut Talk) -> Result<i32, Refusal> {
    if nix::unistd::geteuid().is_root() {
        return Err(Refusal::Failed("root runs no command without a sandbox".into()));
    }
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| format!("subreaper: {errno}"))?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|errno| format!("fork: {errno}"))? {
        ForkResult::Child => {
            talk.refuse(&command::become_command(plan, None));
            std::process::exit(FAILED)
        }
        ForkResult::Parent { child } => {
            talk.close();
            let code = supervise::supervise(child, |signal| {
                let signal = if signal == STOP { Signal::SIGTERM } else { Signal::SIGKILL };
                signal_all(signal);
            });
            clear();
            Ok(code)
        }
    }
}

/// Kills whatever the command left, until there is nobody.
fn clear() {
    loop {
        signal_all(Signal::SIGKILL);
        match waitpid(None, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// Signals every process that descends from this one.
fn signal_all(signal: Signal) {
    for process in descendants(getpid().as_raw()) {
        // It may have ended just now.
        let _ = kill(Pid::from_raw(process), signal);
    }
}
