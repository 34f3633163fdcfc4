//! The helper process, which stands between a supervisor and a renter's command.
//!
//! ```text
//! supervisor ── helper ── init (pid 1 inside) ── the renter's command        sandbox `namespaces`
//!               unshares   the view, the walls    no capability, no call but the list's
//! supervisor ── helper ───────────────────────── the renter's command        sandbox `none`
//!               takes in whatever the command leaves behind
//! ```
//!
//! The helper reads a [`Plan`] from the socket at its standard input. On that socket it says what went wrong; the
//! socket closing without a word, as the command's `exec` does, means that the command runs. From then on it obeys two
//! signals: [`STOP`] passes the wish to end on to the command and all it started, [`END`] kills them. It ends after the
//! last of them, with the command's exit code. So a helper that is gone has left nothing behind.

mod bare;
mod command;
mod confine;
mod etc;
mod ids;
mod loopback;
mod namespaces;
mod nat;
mod parts;
mod plan;
mod secrets;
mod supervise;
mod tree;
mod view;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use serde::de::DeserializeOwned;

use super::keep;
pub(super) use plan::{Plan, Refusal, Root, SecretFile, View};
pub(super) use supervise::{END, STOP};

/// Exit code of a helper whose command did not come to run.
pub(super) const FAILED: i32 = 125;
/// Processes that a member may have where no group counts them.
const NPROC: u64 = 32_768;
/// `oom_score_adj` of a member: where memory runs out, the kernel takes members first, then anything else.
const OOM_FIRST: &str = "1000";

/// What went wrong, in words.
type Trouble = String;

/// Body of the hidden subcommand: becomes the helper. To be called first thing in `main`, before any thread is started.
pub fn sandbox_main() -> ! {
    // No word of these is a renter's.
    let word = std::env::args().nth(2);
    if word.as_deref() == Some(keep::SPEAKS) {
        println!("{}", keep::VERSION);
        std::process::exit(0);
    }
    let code = match Talk::take() {
        Ok(talk) if word.as_deref() == Some(keep::KEEP) => keep::main(talk),
        Ok(talk) => serve(talk),
        Err(trouble) => {
            eprintln!("{trouble}; this is an internal command of the agent");
            FAILED
        }
    };
    std::process::exit(code)
}

fn serve(mut talk: Talk) -> i32 {
    let started = talk.hear::<Plan>().map_err(Refusal::from).and_then(|plan| {
        prepare(&plan)?;
        match &plan.view {
            Some(view) => namespaces::run(&plan, view, &mut talk),
            None => bare::run(&plan, &mut talk),
        }
    });
    started.unwrap_or_else(|refusal| {
        talk.refuse(&refusal);
        FAILED
    })
}

/// What every helper does, and every command inherits.
fn prepare(plan: &Plan) -> Result<(), Trouble> {
    let step = |what: &'static str| move |errno: nix::Error| format!("{what}: {errno}");
    supervise::block().map_err(step("block signals"))?;
    // Out of the agent's session: the owner's terminal is not the command's, which could type into it (CVE-2017-5226).
    nix::unistd::setsid().map_err(step("new session"))?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    for (resource, most) in
        [(Resource::RLIMIT_NOFILE, plan.open_files.into()), (Resource::RLIMIT_NPROC, NPROC), (Resource::RLIMIT_CORE, 0)]
    {
        let (_, hard) = getrlimit(resource).map_err(step("read limits"))?;
        setrlimit(resource, most.min(hard), most.min(hard)).map_err(step("set limits"))?;
    }
    let raised = OpenOptions::new().write(true).open("/proc/self/oom_score_adj");
    raised
        .and_then(|mut file| file.write_all(OOM_FIRST.as_bytes()))
        .map_err(|error| format!("/proc/self/oom_score_adj: {error}"))?;
    nix::sys::prctl::set_no_new_privs().map_err(step("no new privileges"))?;
    // A bare command's helper has to kill what the command left behind; a sandbox falls with its helper.
    let last = if plan.view.is_some() { Signal::SIGKILL } else { END };
    die_with_parent(last)?;
    if getppid().as_raw() != plan.agent {
        return Err("the agent is gone".into());
    }
    Ok(())
}

fn die_with_parent(by: Signal) -> Result<(), Trouble> {
    nix::sys::prctl::set_pdeathsig(by).map_err(|errno| format!("pdeathsig: {errno}"))
}

/// The socket to whoever started this: the supervisor, and a supervisor's to the agent.
pub(super) struct Talk(Option<UnixStream>);

impl Talk {
    /// Takes the socket from standard input, where nothing is left, and closes whatever else was inherited.
    fn take() -> Result<Self, Trouble> {
        // SAFETY: nothing in this process owns a descriptor from 3 on yet.
        if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } != 0 {
            return Err(format!("close files: {}", std::io::Error::last_os_error()));
        }
        let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| format!("stdin: {error}"))?;
        let nothing = File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
        // SAFETY: descriptor 0 is open, and nothing here keeps what was there.
        if unsafe { libc::dup2(nothing.as_raw_fd(), 0) } != 0 {
            return Err(format!("stdin: {}", std::io::Error::last_os_error()));
        }
        Ok(Self(Some(UnixStream::from(socket))))
    }

    /// What it is told.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Trouble> {
        let mut text = zeroize::Zeroizing::new(Vec::new());
        let read = self.0.as_mut().map_or(Ok(0), |socket| socket.read_to_end(&mut text));
        read.map_err(|error| format!("read the plan: {error}"))?;
        serde_json::from_slice(&text).map_err(|error| format!("the plan: {error}"))
    }

    /// Says what went wrong. A helper whose agent is gone has nobody to tell.
    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        if let (Some(mut socket), Ok(text)) = (self.0.take(), serde_json::to_vec(refusal)) {
            let _ = socket.write_all(&text);
        }
    }

    /// Leaves the socket to the command's own process.
    pub(super) fn close(&mut self) {
        self.0 = None;
    }
}

/// A pipe whose other end stays open as long as the process lives that made it.
struct LifeLine {
    watch: OwnedFd,
    /// Owned by nobody, so that nothing closes it but the process's end.
    alive: RawFd,
}

fn life_line() -> Result<LifeLine, Trouble> {
    let (watch, alive) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| format!("pipe: {errno}"))?;
    Ok(LifeLine { watch, alive: alive.into_raw_fd() })
}

/// Whether nobody holds the other end of `pipe`.
fn is_hung_up(pipe: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd, no wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}
