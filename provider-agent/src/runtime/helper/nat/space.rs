//! The namespaces of a box's network. The one of users has one user, who is the other's administrator: this user, or
//! nobody where this is root. The box's own users are in another namespace, beside this one or below it, and have no right
//! over the network, whatever they become.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, geteuid, pipe2};

use super::child;
use crate::runtime::helper::{Trouble, ids, loopback};

/// New devices speak no IPv6: nobody would look at where it leads.
const NO_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
/// Any port is anybody's inside: the command has no right by which it could take a low one.
const LOW_PORTS: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// They live as long as somebody is in them or holds this.
#[derive(Debug)]
pub(in crate::runtime::helper) struct Space {
    user: OwnedFd,
    net: OwnedFd,
}

impl Space {
    /// Makes them, with their loopback on.
    pub(super) fn make() -> Result<Self, Trouble> {
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|errno| format!("pipe: {errno}"));
        let ((said, say), (wait, go)) = (pipe()?, pipe()?);
        // SAFETY: this process has one thread.
        match unsafe { fork() }.map_err(|errno| format!("fork: {errno}"))? {
            ForkResult::Child => {
                drop((said, go));
                child::speak(say, &furnish());
                // Until they were opened.
                let _ = File::from(wait).read(&mut [0]);
                std::process::exit(0)
            }
            ForkResult::Parent { child: first } => {
                drop((say, wait));
                let space = match child::heard(said)?.as_str() {
                    super::UP => Self::of(first),
                    why => Err(format!("namespaces of the network: {why}")),
                };
                drop(go);
                waitpid(first, None).map_err(|errno| format!("wait: {errno}"))?;
                space
            }
        }
    }

    fn of(process: Pid) -> Result<Self, Trouble> {
        let open = |kind: &str| {
            let path = format!("/proc/{process}/ns/{kind}");
            File::open(&path).map(OwnedFd::from).map_err(|error| format!("{path}: {error}"))
        };
        Ok(Self { user: open("user")?, net: open("net")? })
    }

    /// Becomes the administrator of the network, without entering it.
    pub(super) fn govern(&self) -> Result<(), Trouble> {
        setns(&self.user, CloneFlags::CLONE_NEWUSER).map_err(|errno| format!("govern the network: {errno}"))
    }

    /// The network.
    pub(super) fn net(&self) -> BorrowedFd<'_> {
        self.net.as_fd()
    }

    /// Enters the network, on the way to namespaces of one's own. Root may; others only through its users' namespace.
    pub(in crate::runtime::helper) fn join(self) -> Result<(), Trouble> {
        if !geteuid().is_root() {
            self.govern()?;
        }
        enter(self.net.as_fd()).map_err(|error| format!("enter the network: {error}"))
    }
}

/// Enters a network.
pub(super) fn enter(net: BorrowedFd<'_>) -> std::io::Result<()> {
    Ok(setns(net, CloneFlags::CLONE_NEWNET)?)
}

fn furnish() -> Result<(), Trouble> {
    let was_root = geteuid().is_root();
    let (uid, gid) = ids::become_nobody()?;
    if was_root {
        // Else its own maps are not its own to write.
        nix::sys::prctl::set_dumpable(true).map_err(|errno| format!("dumpable: {errno}"))?;
    }
    let spaces = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
    unshare(spaces).map_err(|errno| format!("new namespaces: {errno}"))?;
    ids::put("/proc/self/setgroups", "deny")?;
    ids::put("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    ids::put("/proc/self/gid_map", &format!("0 {gid} 1"))?;
    for (setting, value) in [(NO_IPV6, "1"), (LOW_PORTS, "0")] {
        // A kernel without IPv6 has no setting for it.
        if Path::new(setting).exists() {
            fs::write(setting, value).map_err(|error| format!("{setting}: {error}"))?;
        }
    }
    loopback::switch_on()
}
