//! The group of one member.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::files::{self, GroupUse};
use super::layout::Version;
use super::{Groups, LIMITING};
use crate::runtime::spec::Limits;

/// Longest time that the end of what was killed is waited for, and the time between two looks: version 1 tells of no end.
const GONE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_millis(10));

/// A group in every hierarchy that has one. Dropped, it ends what is in it and goes.
#[derive(Debug)]
pub(in crate::runtime) struct Group {
    groups: Groups,
    places: Vec<(Version, PathBuf)>,
}

impl Group {
    pub(super) fn make(groups: Groups, name: &str, limits: &Limits) -> io::Result<Self> {
        let mut this = Self { groups, places: Vec::new() };
        // On an error what was made goes with `this`.
        for hierarchy in this.groups.clone().hierarchies() {
            let place = hierarchy.folder.join(name);
            fs::create_dir(&place)?;
            this.places.push((hierarchy.version, place.clone()));
            for controller in hierarchy.controllers.iter().filter(|name| LIMITING.contains(&name.as_str())) {
                files::limit(hierarchy.version, &place, controller, limits)?;
            }
        }
        Ok(this)
    }

    /// One that was made by an earlier agent, of which these are the folders.
    pub(super) fn found(groups: Groups, places: Vec<(Version, PathBuf)>) -> Self {
        Self { groups, places }
    }

    /// Its folders.
    pub(in crate::runtime) fn folders(&self) -> Vec<PathBuf> {
        self.places.iter().map(|(_, place)| place.clone()).collect()
    }

    /// Lets what is in it live on.
    pub(in crate::runtime) fn leave(mut self) {
        self.places.clear();
    }

    /// What it used so far.
    pub(in crate::runtime) fn used(&self) -> GroupUse {
        let each = self.places.iter().map(|(version, place)| files::read(*version, place));
        each.fold(GroupUse::default(), GroupUse::or)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, place) in self.places.drain(..) {
            kill_all(&place);
            if fs::remove_dir(&place).is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
                // Somebody is still dying. Nobody waits for it, but the agent's own group, which it keeps.
                let groups = self.groups.clone();
                let spawned = std::thread::Builder::new().name("selion-group".into()).spawn(move || {
                    remove(place);
                    drop(groups);
                });
                if let Err(error) = spawned {
                    tracing::warn!(%error, "a control group stays behind until the next start");
                }
            }
        }
    }
}

/// Kills every process of a group.
pub(super) fn kill_all(place: &Path) {
    if fs::write(place.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    // Who forks between a look and its end is seen by the next look.
    for _ in 0..100 {
        let listed = fs::read_to_string(place.join("cgroup.procs")).unwrap_or_default();
        let processes: Vec<i32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
        if processes.is_empty() {
            return;
        }
        for process in processes {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
}

/// Removes a group once nobody is in it; one that does not empty stays, with a warning.
pub(super) fn remove(place: PathBuf) {
    let until = Instant::now() + GONE.0;
    loop {
        match fs::remove_dir(&place) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) if Instant::now() >= until => {
                tracing::warn!(group = %place.display(), %error, "a control group stays behind");
                return;
            }
            Err(_) => std::thread::sleep(GONE.1),
        }
    }
}
