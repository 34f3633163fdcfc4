//! Which control groups this machine has, and in which of them the agent is: out of `/proc/self/mountinfo` and
//! `/proc/self/cgroup`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Which interface a hierarchy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// One hierarchy for a controller or some.
    One,
    /// One for all.
    Two,
}

/// A hierarchy as it is mounted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    pub(super) version: Version,
    /// Controllers by name; of version 2 they are read from the group in question.
    pub(super) controllers: Vec<String>,
    /// The topmost group that is seen from here.
    pub(super) top: PathBuf,
    /// The agent's own group.
    pub(super) own: PathBuf,
}

/// The hierarchies of this machine.
pub(super) fn read() -> io::Result<Vec<Mounted>> {
    Ok(parse(&fs::read_to_string("/proc/self/mountinfo")?, &fs::read_to_string("/proc/self/cgroup")?))
}

/// The same out of the two texts.
fn parse(mounts: &str, groups: &str) -> Vec<Mounted> {
    let mut all: Vec<Mounted> = Vec::new();
    for found in mounts.lines().filter_map(|line| mounted(line, groups)) {
        // One mounted twice is one.
        if !all.iter().any(|one| one.version == found.version && one.controllers == found.controllers) {
            all.push(found);
        }
    }
    all
}

/// Of a line: id, parent, device, root, place, options, some optional fields, `-`, type, source, options.
fn mounted(line: &str, groups: &str) -> Option<Mounted> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, place) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (kind, options) = (right.next()?, right.nth(1)?);
    let (version, controllers): (_, Vec<String>) = match kind {
        "cgroup" => {
            let known = |option: &&str| matches!(*option, "cpu" | "cpuacct" | "memory" | "pids");
            (Version::One, options.split(',').filter(known).map(str::to_owned).collect())
        }
        "cgroup2" => (Version::Two, Vec::new()),
        _ => return None,
    };
    if version == Version::One && controllers.is_empty() {
        return None;
    }
    let top = PathBuf::from(place);
    let own = groups.lines().find_map(|line| path_of(line, version, &controllers))?;
    let below = Path::new(own).strip_prefix(root).or_else(|_| Path::new(own).strip_prefix("/")).ok()?;
    let own = top.join(below);
    Some(Mounted { version, controllers, top, own })
}

/// The path in a line `id:controllers:path`, if it is that of the hierarchy.
fn path_of<'a>(line: &'a str, version: Version, controllers: &[String]) -> Option<&'a str> {
    let mut fields = line.splitn(3, ':');
    let (id, names, path) = (fields.next()?, fields.next()?, fields.next()?);
    let is_it = match version {
        Version::One => controllers.iter().all(|wanted| names.split(',').any(|name| name == wanted)),
        Version::Two => id == "0" && names.is_empty(),
    };
    is_it.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(version: Version, controllers: &[&str], top: &str, own: &str) -> Mounted {
        let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
        Mounted { version, controllers, top: top.into(), own: own.into() }
    }

    #[test]
    fn a_machine_with_both_versions_is_read_with_the_agents_own_groups() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let groups = "4:memory:/unit/agent\n2:cpu,cpuacct:/unit\n9:name=systemd:/unit\n0::/unit\n";
        let expected = [
            at(Version::One, &["cpu", "cpuacct"], "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/unit"),
            at(Version::One, &["memory"], "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/unit/agent"),
            at(Version::Two, &[], "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/unit"),
        ];
        assert_eq!(parse(mounts, groups), expected);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_top() {
        let mounts = "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let expected = at(Version::One, &["memory"], "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/x");
        assert_eq!(parse(mounts, "4:memory:/docker/ab/x\n"), [expected]);
        let two = "30 29 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate\n";
        assert_eq!(parse(two, "0::/\n"), [at(Version::Two, &[], "/sys/fs/cgroup", "/sys/fs/cgroup/")]);
        assert!(parse("", "0::/\n").is_empty() && parse(two, "").is_empty());
    }
}
