//! What the files of a group say, and what is written to them, in both versions.

use std::fs;
use std::io;
use std::path::Path;

use super::layout::Version;
use crate::runtime::spec::{Limits, quota};

/// What a group has used, as far as one hierarchy tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUse {
    /// Processor time, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Memory now, in bytes.
    pub memory_bytes: Option<u64>,
    /// The most that it was.
    pub memory_peak_bytes: Option<u64>,
    /// Processes and threads now.
    pub pids: Option<u64>,
    /// Processes that the kernel killed for want of memory.
    pub killed: Option<u64>,
    /// Processes that were not started because there were too many.
    pub refused: Option<u64>,
    /// Times in which it wanted more processor time than it may have.
    pub throttled: Option<u64>,
}

impl GroupUse {
    /// What either tells.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            cpu_ms: self.cpu_ms.or(other.cpu_ms),
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            memory_peak_bytes: self.memory_peak_bytes.or(other.memory_peak_bytes),
            pids: self.pids.or(other.pids),
            killed: self.killed.or(other.killed),
            refused: self.refused.or(other.refused),
            throttled: self.throttled.or(other.throttled),
        }
    }
}

/// Writes the limit of one controller.
pub(super) fn limit(version: Version, group: &Path, controller: &str, limits: &Limits) -> io::Result<()> {
    let put = |file: &str, text: String| fs::write(group.join(file), text).map_err(|error| named(group, file, &error));
    let (quota, period) = quota(limits.cpu_milli);
    let memory = limits.memory_bytes.to_string();
    match (version, controller) {
        (Version::One, "cpu") => {
            put("cpu.cfs_period_us", period.to_string())?;
            put("cpu.cfs_quota_us", quota.to_string())
        }
        (Version::One, "memory") => {
            put("memory.limit_in_bytes", memory.clone())?;
            no_swap(group, "memory.memsw.limit_in_bytes", memory)
        }
        (Version::Two, "cpu") => put("cpu.max", format!("{quota} {period}")),
        (Version::Two, "memory") => {
            put("memory.max", memory)?;
            no_swap(group, "memory.swap.max", "0".into())?;
            // All of it ends with one that is killed: half a program is of no use. An older kernel has no such file.
            match put("memory.oom.group", "1".into()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        }
        (_, "pids") => put("pids.max", limits.pids.to_string()),
        _ => Ok(()),
    }
}

/// Bars swap. Where the kernel counts none, the machine must have none.
fn no_swap(group: &Path, file: &str, text: String) -> io::Result<()> {
    match fs::write(group.join(file), text) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !has_swap() => Ok(()),
        other => other.map_err(|error| named(group, file, &error)),
    }
}

fn has_swap() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

fn named(group: &Path, file: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", group.join(file).display()))
}

/// What the group's files say. What is not there says nothing.
pub(super) fn read(version: Version, group: &Path) -> GroupUse {
    let text = |file: &str| fs::read_to_string(group.join(file)).ok();
    let number = |file: &str| text(file)?.trim().parse().ok();
    let field = |file: &str, name: &str| {
        text(file)?.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let (pids, refused) = (number("pids.current"), field("pids.events", "max"));
    let throttled = field("cpu.stat", "nr_throttled");
    match version {
        Version::One => GroupUse {
            cpu_ms: number("cpuacct.usage").map(|ns: u64| ns / 1_000_000),
            memory_bytes: number("memory.usage_in_bytes"),
            memory_peak_bytes: number("memory.max_usage_in_bytes"),
            pids,
            killed: field("memory.oom_control", "oom_kill"),
            refused,
            throttled,
        },
        Version::Two => GroupUse {
            cpu_ms: field("cpu.stat", "usage_usec").map(|us: u64| us / 1_000),
            memory_bytes: number("memory.current"),
            memory_peak_bytes: number("memory.peak"),
            pids,
            killed: field("memory.events", "oom_kill"),
            refused,
            throttled,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::cgroup::LIMITING;

    const LIMITS: Limits =
        Limits { cpu_milli: 250, memory_bytes: 64 << 20, pids: 20, open_files: 100, shm_bytes: 1 << 20 };

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        dir
    }

    fn said(dir: &tempfile::TempDir, file: &str) -> String {
        fs::read_to_string(dir.path().join(file)).unwrap()
    }

    #[test]
    fn limits_are_written_in_the_words_of_each_version() {
        let one = folder(&[("memory.memsw.limit_in_bytes", "")]);
        LIMITING.iter().for_each(|name| limit(Version::One, one.path(), name, &LIMITS).unwrap());
        let expected = [
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "25000"),
            ("memory.limit_in_bytes", "67108864"),
            ("memory.memsw.limit_in_bytes", "67108864"),
            ("pids.max", "20"),
        ];
        expected.iter().for_each(|(file, text)| assert_eq!(said(&one, file), *text, "{file}"));
        let two = folder(&[("memory.swap.max", "max")]);
        LIMITING.iter().for_each(|name| limit(Version::Two, two.path(), name, &LIMITS).unwrap());
        let expected = [
            ("cpu.max", "25000 100000"),
            ("memory.max", "67108864"),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("pids.max", "20"),
        ];
        expected.iter().for_each(|(file, text)| assert_eq!(said(&two, file), *text, "{file}"));
    }

    #[test]
    fn use_is_read_from_the_files_of_each_version_and_what_is_not_there_says_nothing() {
        let one = folder(&[
            ("cpuacct.usage", "12345678901\n"),
            ("cpu.stat", "nr_periods 11\nnr_throttled 10\nthrottled_time 5\n"),
            ("memory.usage_in_bytes", "4096\n"),
            ("memory.max_usage_in_bytes", "8192\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("pids.current", "3\n"),
            ("pids.events", "max 7\n"),
        ]);
        let used = GroupUse {
            cpu_ms: Some(12_345),
            memory_bytes: Some(4_096),
            memory_peak_bytes: Some(8_192),
            pids: Some(3),
            killed: Some(2),
            refused: Some(7),
            throttled: Some(10),
        };
        assert_eq!(read(Version::One, one.path()), used);
        let two = folder(&[
            ("cpu.stat", "usage_usec 12345999\nuser_usec 1\nnr_periods 11\nnr_throttled 10\n"),
            ("memory.current", "4096\n"),
            ("memory.peak", "8192\n"),
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 1\n"),
            ("pids.current", "3\n"),
            ("pids.events", "max 7\n"),
        ]);
        assert_eq!(read(Version::Two, two.path()), used);
        assert_eq!(read(Version::Two, folder(&[]).path()), GroupUse::default());
        assert_eq!(read(Version::One, folder(&[("memory.oom_control", "under_oom 0\n")]).path()).killed, None);
    }
}
