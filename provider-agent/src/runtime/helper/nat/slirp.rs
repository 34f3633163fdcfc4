//! The NAT in user space: `slirp4netns`, which takes what leaves a box's second device and sends it as sockets of its own
//! from the machine's network. It shows the box no server of names and, unless a gang meets there, not the machine's
//! loopback. Before it handles the first packet it has left the machine's files and given up every right but one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::unistd::pipe2;

use super::space::Space;
use super::{Trouble, bounded, child};
use crate::runtime::network::{DEVICE, GUEST, Gang, OWN};

/// The largest packet that it takes.
const MTU: &str = "65520";
/// Where it is told which ports to pass on: in a folder that only the keeper has.
const SOCKET: &str = "/tmp/slirp";
/// Longest wait for its answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Longest text of its that is read, in bytes.
const LONGEST: u64 = 4 << 10;

/// It runs until this is ended or its keeper is gone.
pub(super) struct Slirp {
    running: Child,
    /// It ends when this closes.
    _alive: OwnedFd,
    /// Nobody reads it any more. It is kept, as a write to a pipe without a reader would end the NAT.
    _said: OwnedFd,
}

impl Slirp {
    /// Starts it; on return the box's device is up. For the administrator of the network, in the machine's.
    pub(super) fn start(space: &Space, gang: Option<&Gang>) -> Result<Self, Trouble> {
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|errno| format!("pipe: {errno}"));
        let ((stop, alive), (ready, tell), (said, say)) = (pipe()?, pipe()?, pipe()?);
        // What nobody reads is dropped, and holds nobody up.
        fcntl(&say, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|errno| format!("pipe: {errno}"))?;
        let mut command = Command::new(child::program("slirp4netns")?);
        command.args(["--configure", "--disable-dns", "--enable-sandbox", "--enable-seccomp", "--netns-type=path"]);
        command.arg(format!("--mtu={MTU}")).arg(format!("--cidr={OWN}"));
        command.arg(format!("--exit-fd={}", stop.as_raw_fd())).arg(format!("--ready-fd={}", tell.as_raw_fd()));
        if !gang.is_some_and(Gang::is_at_home) {
            command.arg("--disable-host-loopback");
        }
        if gang.is_some() {
            command.arg(format!("--api-socket={SOCKET}"));
        }
        command.arg(format!("/proc/self/fd/{}", space.net().as_raw_fd())).arg(DEVICE);
        command.env_clear().current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(say);
        let kept = [stop.as_raw_fd(), tell.as_raw_fd(), space.net().as_raw_fd()];
        // SAFETY: a few system calls, and nothing that another thread could hold, as there is none.
        unsafe { command.pre_exec(move || inherit(&kept)) };
        let mut running = command.spawn().map_err(|error| format!("run slirp4netns: {error}"))?;
        drop((command, stop, tell));
        let mut word = [0];
        if File::from(ready).read(&mut word).is_ok_and(|read| read == 1) {
            return Ok(Self { running, _alive: alive, _said: said });
        }
        // It closes the pipe when it ends.
        let _ = running.kill();
        let _ = running.wait();
        let why = bounded(File::from(said), LONGEST).unwrap_or_default();
        Err(format!("slirp4netns made no network: {}", String::from_utf8_lossy(&why).trim().replace('\n', "; ")))
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.running.id()
    }

    /// Ends it.
    pub(super) fn end(mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// Lets the next program have these, and has it end with its parent.
fn inherit(kept: &[RawFd]) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    for fd in kept {
        // SAFETY: open in this process, which becomes another program.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
        fcntl(fd.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    Ok(())
}

/// Passes what comes to `port` of the machine's address `at` on to the same port of the box.
pub(super) fn pass_on(at: std::net::Ipv4Addr, port: u16) -> Result<(), Trouble> {
    for kind in ["tcp", "udp"] {
        let asked = serde_json::json!({ "execute": "add_hostfwd", "arguments": {
            "proto": kind, "host_addr": at, "host_port": port, "guest_addr": GUEST, "guest_port": port,
        }});
        let answer = ask(&asked).map_err(|error| format!("pass port {port} on: {error}"))?;
        if answer.get("return").is_none() {
            return Err(format!(
                "{kind} port {port} of {at} cannot be passed on, as another program may have it: {answer}"
            ));
        }
    }
    Ok(())
}

fn ask(asked: &serde_json::Value) -> io::Result<serde_json::Value> {
    let mut socket = UnixStream::connect(SOCKET)?;
    socket.set_read_timeout(Some(WITHIN))?;
    socket.write_all(asked.to_string().as_bytes())?;
    socket.shutdown(Shutdown::Write)?;
    Ok(serde_json::from_slice(&bounded(socket, LONGEST)?)?)
}
