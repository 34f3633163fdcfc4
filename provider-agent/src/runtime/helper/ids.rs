//! The users of a namespace.

use std::fs;
use std::io::{Read, Write};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, fork, getegid, geteuid, getpid, pipe};
use selion_dataplane::image::IdRange;

use super::Trouble;
use super::nat::Space;
use crate::runtime::ids::Ids;

/// The machine's user for what nobody else should be.
const NOBODY: u32 = 65_534;

/// Enters `network`, calls `unshare`, which makes a user namespace, and maps the users of it.
pub(super) fn map_around(
    ids: &Ids,
    network: Option<Space>,
    unshare: impl FnOnce() -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let is_root = geteuid().is_root();
    let joined = network.is_some();
    network.map_or(Ok(()), Space::join)?;
    if !is_root {
        unshare()?;
        put("/proc/self/setgroups", "deny")?;
        put("/proc/self/uid_map", &line(&above(&ids.uids, joined)))?;
        return put("/proc/self/gid_map", &line(&above(&ids.gids, joined)));
    }
    // More than one's own id can be mapped only from outside the new namespace: by a child that stays there.
    let target = getpid();
    let (wait_end, go_end) = pipe().map_err(|errno| format!("pipe: {errno}"))?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|errno| format!("fork: {errno}"))? {
        ForkResult::Child => {
            drop(go_end);
            let gone = fs::File::from(wait_end).read(&mut [0]).is_ok_and(|read| read == 0);
            let written = put(&format!("/proc/{target}/uid_map"), &line(&ids.uids))
                .and_then(|()| put(&format!("/proc/{target}/gid_map"), &line(&ids.gids)));
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

/// An ordinary user's own id, by the number that the namespace above has for it: that of a network has one user, 0.
fn above(range: &IdRange, joined: bool) -> IdRange {
    IdRange { outside: if joined { 0 } else { range.outside }, ..*range }
}

/// As the kernel takes a range.
fn line(range: &IdRange) -> String {
    format!("{} {} {}\n", range.inside, range.outside, range.count)
}

/// Becomes the root inside, where there is one: whoever makes files there has to be somebody.
pub(super) fn become_root(ids: &Ids) -> Result<(), Trouble> {
    if ids.uids.inside == 0 && ids.uids.count > 1 { become_person(0, 0, &[]) } else { Ok(()) }
}

/// Becomes the user of the command, who keeps no other group than its own.
pub(super) fn become_renter(ids: &Ids) -> Result<(), Trouble> {
    let person = &ids.person;
    // One id alone: whoever we are is the command's user.
    if ids.uids.count == 1 { Ok(()) } else { become_person(person.uid, person.gid, &person.groups) }
}

/// Becomes nobody of the machine, if this is root; the user and group that this is then.
pub(super) fn become_nobody() -> Result<(u32, u32), Trouble> {
    if !geteuid().is_root() {
        return Ok((geteuid().as_raw(), getegid().as_raw()));
    }
    become_person(NOBODY, NOBODY, &[])?;
    Ok((NOBODY, NOBODY))
}

fn become_person(uid: u32, gid: u32, groups: &[u32]) -> Result<(), Trouble> {
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    nix::unistd::setgroups(&groups).map_err(|errno| format!("set groups: {errno}"))?;
    nix::unistd::setresgid(gid, gid, gid).map_err(|errno| format!("set group: {errno}"))?;
    nix::unistd::setresuid(uid, uid, uid).map_err(|errno| format!("set user: {errno}"))
}

pub(super) fn put(path: &str, text: &str) -> Result<(), Trouble> {
    fs::write(path, text).map_err(|error| format!("{path}: {error}"))
}
