//! Sandbox `none`: the command beside the owner's own programs, as the same user. What it leaves behind becomes the
//! helper's child, as the helper is its reaper, and dies with it.

use std::collections::BTreeMap;
use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpid};

use super::plan::{Plan, Refusal};
use super::{FAILED, STOP, Talk, command, supervise};

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
    let parents = parents();
    let own = getpid().as_raw();
    for process in parents.keys() {
        let mut at = *process;
        // Bounded: a table that was read while processes came and went may hold a circle.
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if *parent == own => {
                    // It may have ended just now.
                    let _ = kill(Pid::from_raw(*process), signal);
                    break;
                }
                Some(parent) => at = *parent,
                None => break,
            }
        }
    }
}

/// Each process's parent.
fn parents() -> BTreeMap<i32, i32> {
    let Ok(listed) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let processes = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    processes.filter_map(|process| Some((process, parent(process)?))).collect()
}

fn parent(process: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name, which may hold anything: state, parent.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
