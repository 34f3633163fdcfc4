//! The keeper of a box's network.

use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Pid, geteuid, getppid};

use super::near::{self, Near};
use super::slirp::{self, Slirp};
use super::space::Space;
use super::{Trouble, UP, bounded, filter, trial};
use crate::runtime::helper::{die_with_parent, ids, supervise};
use crate::runtime::network::{Gang, Net, Traffic, rules};

/// Longest that the agent may take over a change.
const WITHIN: Duration = Duration::from_secs(10);
/// Longest change in bytes: a gang has at most 64 members.
const LONGEST: u64 = 16 << 10;
/// The folder of the device that makes devices, and its place.
const TUN_FOLDER: &str = "/dev/net";
const TUN: &str = "/dev/net/tun";
/// Its number.
const TUN_NUMBER: (u64, u64) = (10, 200);

/// Everything that it is given.
pub(super) struct Keeper {
    pub(super) net: Net,
    pub(super) space: Space,
    pub(super) listener: UnixListener,
    /// Where the counts go at the end: a file of the agent's, open since before rights were given up.
    pub(super) counts: File,
    /// Nobody holds the other end once the helper is gone.
    pub(super) stop: OwnedFd,
    pub(super) helper: Pid,
}

impl Keeper {
    /// Makes the network, says so or what is wrong, and keeps it until the helper ends. False if it did not come up.
    pub(super) fn keep(mut self, mut say: File) -> bool {
        match self.make() {
            Ok((slirp, near, changes)) => {
                let told = say.write_all(UP.as_bytes());
                drop(say);
                if told.is_ok() {
                    self.watch(&slirp, near, &changes);
                }
                self.count();
                slirp.end();
                true
            }
            Err(why) => {
                // A helper that does not hear it hears the end.
                let _ = say.write_all(why.as_bytes());
                false
            }
        }
    }

    fn make(&self) -> Result<(Slirp, Near, OwnedFd), Trouble> {
        self.fall_silent()?;
        let changes = near::watch()?;
        let near = Near::look()?;
        self.become_administrator()?;
        filter::load(&self.space, &rules(&self.net, &near.blocks))?;
        // Only now is there a way out.
        let gang = self.net.gang.as_ref();
        let slirp = Slirp::start(&self.space, gang)?;
        let tried = gang
            .map_or(Ok(()), |gang| slirp::pass_on(place(gang, &near), gang.own.port()))
            .and_then(|()| trial::stand(self.space.net(), &near, &self.net));
        match tried {
            Ok(()) => Ok((slirp, near, changes)),
            Err(why) => {
                slirp.end();
                Err(why)
            }
        }
    }

    /// Nothing of this or of the NAT goes where the command's own words go.
    fn fall_silent(&self) -> Result<(), Trouble> {
        self.stay_with_helper()?;
        supervise::unblock().map_err(|errno| format!("unblock signals: {errno}"))?;
        let nothing = File::options().write(true).open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
        for fd in [1, 2] {
            // SAFETY: both are open, and nothing here keeps what was there.
            if unsafe { libc::dup2(nothing.as_raw_fd(), fd) } != fd {
                return Err(format!("fall silent: {}", std::io::Error::last_os_error()));
            }
        }
        Ok(())
    }

    fn stay_with_helper(&self) -> Result<(), Trouble> {
        die_with_parent(Signal::SIGKILL)?;
        if getppid() == self.helper { Ok(()) } else { Err("the helper is gone".into()) }
    }

    /// Gives up being root, if that is who we are, and governs the box's network and a `/tmp` of its own.
    fn become_administrator(&self) -> Result<(), Trouble> {
        if geteuid().is_root() {
            show_tun()?;
            ids::become_nobody()?;
        }
        self.space.govern()?;
        // The changes of credentials may have cleared it.
        self.stay_with_helper()?;
        own_mounts()?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let made = mount(Some("tmpfs"), "/tmp", Some("tmpfs"), flags, Some("mode=0700,size=64k"));
        made.map_err(|errno| format!("a /tmp for the NAT: {errno}"))
    }

    fn watch(&mut self, slirp: &Slirp, mut near: Near, changes: &OwnedFd) {
        let Ok(nat) = process(slirp.id()) else { return };
        loop {
            let [stop, nat, changed, asked] =
                readable([self.stop.as_raw_fd(), nat.as_raw_fd(), changes.as_raw_fd(), self.listener.as_raw_fd()]);
            if stop || nat {
                return;
            }
            // Rules that cannot be brought up to date let more pass than they should: the way out closes.
            if changed && self.follow(&mut near, changes).is_err() {
                return;
            }
            if asked && let Ok((socket, _)) = self.listener.accept() {
                self.serve(socket, &near);
            }
        }
    }

    /// Leaves the counts to the agent. The helper, which is in the box's network, waits for this. Counts that are lost are told
    /// to nobody: nothing is decided by them.
    fn count(&mut self) {
        let read = std::fs::read_to_string(format!("/proc/{}/net/dev", self.helper)).ok();
        if let Some(text) = read.and_then(|text| serde_json::to_vec(&Traffic::read(&text)?).ok()) {
            let _ = self.counts.write_all(&text);
        }
    }

    /// Brings the rules up to date with the machine's addresses.
    fn follow(&self, near: &mut Near, changes: &OwnedFd) -> Result<(), Trouble> {
        near::drain(changes);
        let now = Near::look()?;
        if now != *near {
            filter::load(&self.space, &rules(&self.net, &now.blocks))?;
            *near = now;
        }
        Ok(())
    }

    /// Takes a change from the agent. A gang keeps its place, and a box without one gets none.
    fn serve(&mut self, mut socket: UnixStream, near: &Near) {
        let read = |socket: &UnixStream| -> std::io::Result<Gang> {
            socket.set_read_timeout(Some(WITHIN))?;
            socket.set_write_timeout(Some(WITHIN))?;
            Ok(serde_json::from_slice(&bounded(socket, LONGEST)?)?)
        };
        let done = read(&socket).map_err(|error| error.to_string()).and_then(|gang| {
            if self.net.gang.as_ref().map(|now| now.own) != Some(gang.own) {
                return Err("the box has another place in its gang".to_owned());
            }
            let new = Net { gang: Some(gang), ..self.net.clone() };
            filter::load(&self.space, &rules(&new, &near.blocks))?;
            self.net = new;
            Ok(())
        });
        let said = done.map_or_else(|why| why, |()| "done".to_owned());
        // An agent that is gone needs no answer.
        let _ = socket.write_all(said.as_bytes());
    }
}

/// The address of the machine at which a member is reached: its own if it has it, all if something before it hands on.
fn place(gang: &Gang, near: &Near) -> Ipv4Addr {
    if gang.is_at_home() {
        return Ipv4Addr::LOCALHOST;
    }
    if near.own.contains(gang.own.ip()) { *gang.own.ip() } else { Ipv4Addr::UNSPECIFIED }
}

/// The device by which nobody may make devices: systems give it to everybody or to root only.
fn show_tun() -> Result<(), Trouble> {
    let mode = |path: &str| Path::new(path).metadata().map(|meta| meta.permissions().mode());
    if mode(TUN).is_ok_and(|mode| mode & 0o006 == 0o006) {
        return Ok(());
    }
    own_mounts()?;
    let failed = |errno: nix::Error| format!("{TUN}: {errno}");
    std::fs::create_dir_all(TUN_FOLDER).map_err(|error| format!("{TUN_FOLDER}: {error}"))?;
    mount(Some("tmpfs"), TUN_FOLDER, Some("tmpfs"), MsFlags::MS_NOSUID, Some("mode=0755,size=4k")).map_err(failed)?;
    let everybody = Mode::from_bits_truncate(0o666);
    mknod(TUN, SFlag::S_IFCHR, everybody, makedev(TUN_NUMBER.0, TUN_NUMBER.1)).map_err(failed)?;
    // The umask took a part.
    std::fs::set_permissions(TUN, std::fs::Permissions::from_mode(0o666)).map_err(|error| format!("{TUN}: {error}"))
}

/// Mounts from here on are this process's own.
fn own_mounts() -> Result<(), Trouble> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(None::<&str>, "/", None::<&str>, private, None::<&str>))
        .map_err(|errno| format!("mounts of the keeper's own: {errno}"))
}

/// A descriptor of a child, which can be read once it has ended.
fn process(id: u32) -> std::io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
    match RawFd::try_from(fd) {
        // SAFETY: opened just now, for us alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Waits until one of them can be read or is hung up; which. A wait that a signal cuts short names none.
fn readable<const N: usize>(fds: [RawFd; N]) -> [bool; N] {
    let mut polls = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let count = libc::nfds_t::try_from(N).unwrap_or_default();
    // SAFETY: the array lives through the call and has this length.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), count, -1) };
    polls.map(|poll| ready > 0 && poll.revents != 0)
}
