//! Control groups: one for each member, below one of the agent's own, in whatever hierarchies this machine has.
//!
//! ```text
//! version 1   memory, pids, cpu, cpuacct, each by itself   below the top (root), or the agent's own group (delegated)
//! version 2   those of the controllers that are in it,     below the agent's own group, or the top (root)
//!             and `cgroup.kill` where it is mounted
//! ```
//!
//! A limit stands where either version has its controller. What really holds is found out by trying it
//! ([`prove`](prove::prove)); `docs/adr/0037-limits.md`.

mod files;
mod group;
mod layout;
mod prove;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use files::GroupUse;
pub(super) use group::Group;
pub use prove::prove;

use super::spec::Limits;
use layout::{Mounted, Version};

/// Controllers that set a limit.
const LIMITING: [&str; 3] = ["cpu", "memory", "pids"];
/// Where the agent itself goes, in a group of version 2 of which it makes groups: such a one may hold no process.
const AGENT: &str = "selion-agent";

/// The groups of one agent. Clones share them; the last one removes them.
#[derive(Clone, Debug)]
pub struct Groups(Arc<Parents>);

#[derive(Debug)]
struct Parents(Vec<Hierarchy>);

/// The agent's group in one hierarchy.
#[derive(Clone, Debug)]
struct Hierarchy {
    version: Version,
    /// Controllers that its members' groups have.
    controllers: Vec<String>,
    folder: PathBuf,
}

impl Groups {
    /// Makes a group of this name wherever that can be done; what an agent of the same name left there is ended and
    /// removed. There may be none.
    #[must_use]
    pub fn open(name: &str) -> Self {
        Self::open_but(name, &[])
    }

    /// The same, but the groups of these commands stay, by the names of their folders.
    #[must_use]
    pub fn open_but(name: &str, stay: &[String]) -> Self {
        let mounted = layout::read().unwrap_or_default();
        let root = nix::unistd::geteuid().is_root();
        Self(Arc::new(Parents(mounted.iter().filter_map(|one| Hierarchy::make(one, name, root, stay)).collect())))
    }

    /// The group that an earlier agent made for a command by the name of its folder.
    pub(super) fn found(&self, command: &str) -> Option<Group> {
        let places = self.hierarchies().iter().filter_map(|one| {
            let entries = fs::read_dir(&one.folder).into_iter().flatten().flatten();
            let found = entries.map(|entry| entry.path()).find(|path| is_of(path, command));
            found.map(|path| (one.version, path))
        });
        let places: Vec<_> = places.collect();
        (!places.is_empty()).then(|| Group::found(self.clone(), places))
    }

    /// Whether a limit of this controller can be set.
    #[must_use]
    pub fn have(&self, controller: &str) -> bool {
        self.0.0.iter().any(|one| one.controllers.iter().any(|name| name == controller))
    }

    /// A group with these limits, of a name that is not in use.
    pub(super) fn make(&self, name: &str, limits: &Limits) -> io::Result<Group> {
        Group::make(self.clone(), name, limits)
    }

    fn hierarchies(&self) -> &[Hierarchy] {
        &self.0.0
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        // One that still holds something stays, for the next start.
        self.0.iter().for_each(|one| drop(fs::remove_dir(&one.folder)));
    }
}

impl Hierarchy {
    /// The agent's group in the first place that will do.
    fn make(mounted: &Mounted, name: &str, root: bool, stay: &[String]) -> Option<Self> {
        let places = match (mounted.version, root) {
            // Nobody but root's programs make groups at the top of version 1, and its own group may be any shell's.
            (Version::One, true) => vec![&mounted.top, &mounted.own],
            (Version::Two, true) => vec![&mounted.own, &mounted.top],
            (_, false) => vec![&mounted.own],
        };
        places.into_iter().find_map(|place| Self::make_in(mounted, place, name, stay).ok())
    }

    fn make_in(mounted: &Mounted, place: &Path, name: &str, stay: &[String]) -> io::Result<Self> {
        let folder = place.join(name);
        let controllers = match mounted.version {
            Version::One => mounted.controllers.clone(),
            Version::Two => share(place)?,
        };
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let this = Self { version: mounted.version, controllers, folder };
        if this.version == Version::Two {
            let all = fs::read_to_string(this.folder.join("cgroup.controllers"))?;
            pass_on(&this.folder, &all)?;
        }
        this.clear(stay);
        Ok(this)
    }

    /// Ends and removes what members' groups are left, but these.
    fn clear(&self, stay: &[String]) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if !stay.iter().any(|command| is_of(&entry.path(), command))
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                group::kill_all(&entry.path());
                group::remove(entry.path());
            }
        }
    }
}

/// Whether a group is of the command with this folder: its name is the folder's and a number.
fn is_of(group: &Path, command: &str) -> bool {
    let number = group.file_name().and_then(|name| name.to_str()?.strip_prefix(command)?.strip_prefix('.'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Lets groups below `place`, of version 2, have the controllers that set limits; which those are.
fn share(place: &Path) -> io::Result<Vec<String>> {
    let there = fs::read_to_string(place.join("cgroup.controllers"))?;
    let wanted = there.split_whitespace().filter(|name| LIMITING.contains(name));
    let wanted: Vec<String> = wanted.map(str::to_owned).collect();
    let is_top = !place.join("cgroup.type").exists();
    if !wanted.is_empty() && !is_top {
        step_aside(place)?;
    }
    pass_on(place, &there)?;
    Ok(wanted)
}

/// Moves the agent into a group of its own, if nobody else is in `place`.
fn step_aside(place: &Path) -> io::Result<()> {
    let own = std::process::id();
    let listed = fs::read_to_string(place.join("cgroup.procs"))?;
    let mut others = listed.lines().filter(|line| line.parse() != Ok(own));
    if let Some(other) = others.next() {
        return Err(io::Error::other(format!("process {other} is in {} too", place.display())));
    }
    let aside = place.join(AGENT);
    match fs::create_dir(&aside) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::write(aside.join("cgroup.procs"), own.to_string()),
    }
}

/// Switches the controllers on for the groups below.
fn pass_on(place: &Path, there: &str) -> io::Result<()> {
    there
        .split_whitespace()
        .filter(|name| LIMITING.contains(name))
        .try_for_each(|name| fs::write(place.join("cgroup.subtree_control"), format!("+{name}")))
}
