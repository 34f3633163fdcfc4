//! The agent's own sandbox: user, mount, pid, ipc and uts namespaces, entered by a helper process.
//!
//! ```text
//! agent ── helper ── init (pid 1 inside) ── the renter's command
//!          unshares   mounts, drops ids      no capabilities, no new privileges
//! ```
//!
//! Each dies with the one before it; when init ends, the kernel ends everything inside. The helper says on a pipe
//! what went wrong; the pipe closing without a word, as the command's `exec` does, means that the command runs.

mod ids;
mod plan;
mod view;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::{WaitStatus, wait, waitpid};
use nix::unistd::{ForkResult, Pid, execv, fork, getppid, pipe};
use plan::Plan;

/// Exit code of the helper when the sandbox did not come up.
const FAILED: i32 = 125;
/// Signals that end a process group; the helper and init outlive them to tell how the command ended.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// What went wrong, in words.
type Trouble = String;

/// Body of the hidden subcommand: brings the sandbox up and becomes its command. `args` are the words after the
/// subcommand. To be called first thing in `main`, before any thread is started.
pub fn sandbox_main(args: impl IntoIterator<Item = OsString>) -> ! {
    let code = match Plan::parse(args) {
        Ok(plan) => outside(plan),
        Err(trouble) => {
            eprintln!("sandbox: {trouble}");
            FAILED
        }
    };
    std::process::exit(code)
}

/// The helper: makes the namespaces and waits for init.
fn outside(plan: Plan) -> i32 {
    // SAFETY: the agent passes this descriptor to this process alone; nothing else here owns it.
    let status = unsafe { OwnedFd::from_raw_fd(plan.status_fd) };
    let mut status = File::from(status);
    let started = close_on_exec(&status).and_then(|()| enter()).and_then(|()| start_init(&plan, &status));
    match started {
        Ok(init) => {
            drop(status);
            exit_code(waitpid(init, None))
        }
        Err(trouble) => {
            let _ = status.write_all(trouble.as_bytes());
            FAILED
        }
    }
}

fn enter() -> Result<(), Trouble> {
    let agent = getppid();
    for ending in ENDING {
        // SAFETY: ignoring a signal installs no code.
        unsafe { signal(ending, SigHandler::SigIgn) }.map_err(|errno| format!("signal: {errno}"))?;
    }
    let spaces = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    ids::map_around(|| unshare(spaces).map_err(|errno| format!("new namespaces: {errno}")))?;
    // The change of credentials cleared it.
    die_with_parent()?;
    if getppid() != agent {
        return Err("the agent is gone".into());
    }
    Ok(())
}

fn start_init(plan: &Plan, status: &File) -> Result<Pid, Trouble> {
    let (watch, alive) = pipe().map_err(|errno| format!("pipe: {errno}"))?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|errno| format!("fork init: {errno}"))? {
        ForkResult::Parent { child } => {
            // Kept open as long as the helper lives, so that init can see whether it does.
            std::mem::forget(alive);
            Ok(child)
        }
        ForkResult::Child => {
            drop(alive);
            let code = inside(plan, status, &watch).unwrap_or_else(|trouble| {
                let _ = (&mut &*status).write_all(trouble.as_bytes());
                FAILED
            });
            std::process::exit(code)
        }
    }
}

/// Init: builds the view, starts the command, reaps until it ends.
fn inside(plan: &Plan, status: &File, watch: &OwnedFd) -> Result<i32, Trouble> {
    die_with_parent()?;
    if is_hung_up(watch) {
        return Err("the helper is gone".into());
    }
    view::build(plan)?;
    ids::become_renter()?;
    die_with_parent()?;
    // SAFETY: this process has one thread.
    let command = match unsafe { fork() }.map_err(|errno| format!("fork: {errno}"))? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let trouble = become_command(plan);
            let _ = (&mut &*status).write_all(trouble.as_bytes());
            std::process::exit(FAILED)
        }
    };
    // Nobody but the command may hold the pipe open now.
    // SAFETY: the descriptor is not used again in this process, which leaves by `exit`.
    unsafe { libc::close(status.as_raw_fd()) };
    loop {
        match wait() {
            Ok(ended) if ended.pid() == Some(command) => return Ok(exit_code(Ok(ended))),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(format!("wait: {errno}")),
        }
    }
}

/// The last steps of the command's own process. Returns only with what went wrong.
fn become_command(plan: &Plan) -> Trouble {
    let words: Result<Vec<CString>, _> = plan.command.iter().map(|word| CString::new(word.as_bytes())).collect();
    let (Ok(words), Ok(program)) = (words, CString::new(plan.program.as_os_str().as_bytes())) else {
        return "a word of the command holds a zero byte".into();
    };
    for ending in ENDING {
        // SAFETY: the default action installs no code.
        if let Err(errno) = unsafe { signal(ending, SigHandler::SigDfl) } {
            return format!("signal: {errno}");
        }
    }
    if let Err(trouble) = die_with_parent() {
        return trouble;
    }
    match execv(&program, &words) {
        Err(errno) => format!("cannot execute {}: {errno}", plan.program.display()),
        Ok(never) => match never {},
    }
}

fn die_with_parent() -> Result<(), Trouble> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|errno| format!("pdeathsig: {errno}"))
}

fn close_on_exec(file: &File) -> Result<(), Trouble> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let set = fcntl(file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    set.map(drop).map_err(|errno| format!("status pipe: {errno}"))
}

/// Whether nobody holds the other end of `pipe`.
fn is_hung_up(pipe: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd, no wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

/// As a shell tells it: 128 + n for signal n.
fn exit_code(status: nix::Result<WaitStatus>) -> i32 {
    match status {
        Ok(WaitStatus::Exited(_, code)) => code,
        Ok(WaitStatus::Signaled(_, signal, _)) => 128 + signal as i32,
        Ok(_) | Err(_) => FAILED,
    }
}
