//! Users inside and outside.
//!
//! An ordinary user is mapped to itself. Root maps itself, which it needs to build the view, and nobody, whom the
//! command becomes. Either way the command runs as a user that is not 0 inside, so `exec` leaves it no capability.

use std::fs;
use std::io::{Read, Write};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, fork, getegid, geteuid, getpid, pipe};

use super::Trouble;
use super::nat::Space;
use crate::runtime::rooms::NOBODY;

/// Enters `network`, calls `unshare`, which makes a user namespace, and maps the users of it.
pub(super) fn map_around(network: Option<Space>, unshare: impl FnOnce() -> Result<(), Trouble>) -> Result<(), Trouble> {
    let (uid, gid) = (geteuid(), getegid());
    let joined = network.is_some();
    network.map_or(Ok(()), Space::join)?;
    if !uid.is_root() {
        unshare()?;
        // The one user of the network's namespace, by the number that it has there.
        let (above, group_above) = if joined { (0, 0) } else { (uid.as_raw(), gid.as_raw()) };
        put("/proc/self/setgroups", "deny")?;
        put("/proc/self/uid_map", &format!("{uid} {above} 1"))?;
        return put("/proc/self/gid_map", &format!("{gid} {group_above} 1"));
    }
    // More than one's own id can be mapped only from outside the new namespace: by a child that stays there.
    let target = getpid();
    let (wait_end, go_end) = pipe().map_err(|errno| format!("pipe: {errno}"))?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|errno| format!("fork: {errno}"))? {
        ForkResult::Child => {
            drop(go_end);
            let gone = fs::File::from(wait_end).read(&mut [0]).is_ok_and(|read| read == 0);
            let maps = format!("0 0 1\n{NOBODY} {NOBODY} 1\n");
            let written = put(&format!("/proc/{target}/uid_map"), &maps)
                .and_then(|()| put(&format!("/proc/{target}/gid_map"), &maps));
            std::process::exit(i32::from(gone || written.is_err()))
        }
        ForkResult::Parent { child } => {
            drop(wait_end);
            unshare()?;
            let told = fs::File::from(go_end).write_all(&[1]);
            told.map_err(|error| format!("map users: {error}"))?;
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, 0)) => Ok(()),
                _ => Err("root may not map users here".into()),
            }
        }
    }
}

/// Uid and gid under which a command runs; never 0, so that it starts without capabilities.
pub(super) fn renter() -> (u32, u32) {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() { (NOBODY, NOBODY) } else { (uid.as_raw(), gid.as_raw()) }
}

/// Gives up root, if that is who we are; keeps no group.
pub(super) fn become_renter() -> Result<(), Trouble> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    nix::unistd::setgroups(&[]).map_err(|errno| format!("drop groups: {errno}"))?;
    nix::unistd::setresgid(gid, gid, gid).map_err(|errno| format!("drop group: {errno}"))?;
    nix::unistd::setresuid(uid, uid, uid).map_err(|errno| format!("drop user: {errno}"))
}

pub(super) fn put(path: &str, text: &str) -> Result<(), Trouble> {
    fs::write(path, text).map_err(|error| format!("{path}: {error}"))
}
