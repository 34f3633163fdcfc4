//! A quota on what a member writes, by measure: its writable folders are walked again and again, the sooner the nearer it
//! is to its limit. Between two looks it may write more than that; `docs/adr/0037-limits.md` says how much.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::family::descendants;

/// A disk is taken to be filled no faster than this, in bytes a second, unless it was seen to be.
const SPEED: u64 = 256 << 20;
/// Least and longest time between two looks.
const BETWEEN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Looks take at most a tenth of a core: so many times as long as a look took is waited after it.
const REST: u32 = 9;
/// What an entry takes of its own, in bytes: a file of nothing is not free.
const ENTRY: u64 = 512;
/// Levels of folders. What is nested deeper cannot be measured, and counts as too much.
const DEEPEST: usize = 256;
/// Files of several names that are told apart; beyond that each name counts.
const LINKED: usize = 100_000;

/// What one member may write, and has written.
#[derive(Clone, Debug)]
pub struct Quota {
    folders: Vec<PathBuf>,
    most: u64,
    /// Of which its processes descend: they may hold files open that have no name.
    head: i32,
    used: Arc<AtomicU64>,
}

impl Quota {
    /// `most` bytes in all of `folders`, written by what descends from `head`.
    #[must_use]
    pub fn new(folders: Vec<PathBuf>, most: u64, head: i32) -> Self {
        Self { folders, most, head, used: Arc::default() }
    }

    /// Bytes that may be written.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Bytes at the last look.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Resolves once more is written than may be, to the bytes found: at least that many.
    pub async fn exceeded(&self) -> u64 {
        let mut last: Option<(u64, Instant)> = None;
        loop {
            let (this, began) = (self.clone(), Instant::now());
            // A look that failed as a whole found nothing; the next one looks again.
            let bytes = tokio::task::spawn_blocking(move || this.measure()).await.unwrap_or_default();
            self.used.store(bytes, Ordering::Relaxed);
            if bytes > self.most {
                return bytes;
            }
            let rate = last.map_or(0, |(before, at)| {
                let ms = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
                bytes.saturating_sub(before).saturating_mul(1_000) / ms
            });
            last = Some((bytes, Instant::now()));
            tokio::time::sleep(wait(self.most - bytes, rate, began.elapsed())).await;
        }
    }

    /// Bytes on disk now; more than may be as soon as that is sure.
    fn measure(&self) -> u64 {
        let mut count = Count { bytes: 0, most: self.most, linked: BTreeSet::new(), devices: BTreeSet::new() };
        for folder in &self.folders {
            match count.walk(folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(folder = %folder.display(), %error, "what a member wrote cannot be measured");
                    count.bytes = u64::MAX;
                }
            }
        }
        if count.is_over() { count.bytes } else { count.unnamed(self.head) }
    }
}

/// How long until the next look, if so much may still be written.
fn wait(left: u64, rate: u64, took: Duration) -> Duration {
    let speed = rate.saturating_mul(2).max(SPEED);
    let full = Duration::from_millis(left.saturating_mul(1_000) / speed);
    full.clamp(BETWEEN.0, BETWEEN.1).max(took * REST)
}

struct Count {
    bytes: u64,
    most: u64,
    /// Files with several names that were counted.
    linked: BTreeSet<(u64, u64)>,
    /// Of the folders.
    devices: BTreeSet<u64>,
}

/// Whatever is there, without following a link.
const FOLDER: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

impl Count {
    fn is_over(&self) -> bool {
        self.bytes > self.most
    }

    fn add(&mut self, meta: &fs::Metadata) {
        let once = meta.nlink() < 2 || meta.is_dir() || self.linked.len() >= LINKED;
        if once || self.linked.insert((meta.dev(), meta.ino())) {
            self.bytes = self.bytes.saturating_add(meta.blocks().saturating_mul(512)).saturating_add(ENTRY);
        }
    }

    /// Counts everything below `folder`.
    fn walk(&mut self, folder: &Path) -> io::Result<()> {
        let top = File::options().read(true).custom_flags(FOLDER.bits()).open(folder)?;
        self.devices.insert(top.metadata()?.dev());
        let top = OwnedFd::from(top);
        let entries = listed(&top)?;
        let mut open = vec![(top, entries)];
        while let Some((folder, entries)) = open.last_mut() {
            if self.is_over() {
                return Ok(());
            }
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            // What goes while we look is gone.
            let Ok(entry) = entry else { continue };
            let Ok(meta) = entry.metadata() else { continue };
            self.add(&meta);
            if !meta.is_dir() {
                continue;
            }
            let deeper = match openat(&*folder, entry.file_name().as_os_str(), FOLDER, Mode::empty()) {
                Ok(deeper) => deeper,
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if open.len() >= DEEPEST {
                return Err(io::Error::other(format!("folders nested deeper than {DEEPEST}")));
            }
            match listed(&deeper) {
                Ok(entries) => open.push((deeper, entries)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The bytes with those of files that have no name and are held open.
    fn unnamed(mut self, head: i32) -> u64 {
        for process in descendants(head) {
            for entry in fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
                let Ok(meta) = fs::metadata(entry.path()) else { continue };
                let is_new = meta.nlink() == 0 && meta.is_file() && self.devices.contains(&meta.dev());
                if is_new && self.linked.insert((meta.dev(), meta.ino())) {
                    self.bytes = self.bytes.saturating_add(meta.blocks().saturating_mul(512));
                }
            }
        }
        self.bytes
    }
}

/// The entries of a folder. One that its owner closed to himself, as a command may that runs as the agent's own user, is
/// opened.
fn listed(folder: &OwnedFd) -> io::Result<fs::ReadDir> {
    let itself = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    match fs::read_dir(&itself) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mode = fs::metadata(&itself)?.permissions().mode() | 0o700;
            fs::set_permissions(&itself, Permissions::from_mode(mode))?;
            fs::read_dir(&itself)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(folder: &Path, most: u64) -> u64 {
        Quota::new(vec![folder.to_owned()], most, 0).measure()
    }

    #[test]
    fn files_count_once_by_what_they_take_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        fs::create_dir_all(work.join("deep/er")).unwrap();
        fs::write(dir.path().join("outside"), vec![7; 4 << 20]).unwrap();
        fs::write(work.join("deep/er/file"), vec![7; 1 << 20]).unwrap();
        fs::hard_link(work.join("deep/er/file"), work.join("again")).unwrap();
        std::os::unix::fs::symlink(dir.path(), work.join("link")).unwrap();
        File::create(work.join("hole")).unwrap().set_len(1 << 40).unwrap();
        let bytes = measured(&work, u64::MAX);
        assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&bytes), "{bytes}");
        for name in 0..1_000 {
            File::create(work.join(format!("empty-{name}"))).unwrap();
        }
        assert!(measured(&work, u64::MAX) >= bytes + 1_000 * ENTRY, "files of nothing count");
    }

    #[test]
    fn a_folder_that_is_closed_or_goes_too_deep_does_not_hide_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let shut = dir.path().join("shut");
        fs::create_dir(&shut).unwrap();
        fs::write(shut.join("file"), vec![7; 1 << 20]).unwrap();
        fs::set_permissions(&shut, Permissions::from_mode(0o0)).unwrap();
        assert!(measured(dir.path(), u64::MAX) >= 1 << 20);
        let mut deep = dir.path().join("deep");
        for _ in 0..=DEEPEST {
            deep.push("a");
        }
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(measured(dir.path(), 1 << 30), u64::MAX);
    }

    #[test]
    fn the_next_look_is_the_sooner_the_nearer_the_limit_and_looks_take_a_tenth_of_the_time() {
        let (least, longest) = BETWEEN;
        let quick = Duration::from_millis(1);
        assert_eq!(wait(1 << 40, 0, quick), longest);
        assert_eq!(wait(256 << 20, 0, quick), Duration::from_secs(1));
        assert_eq!(wait(1 << 20, 0, quick), least);
        assert_eq!(wait(256 << 20, 512 << 20, quick), Duration::from_millis(250), "it was seen to write faster");
        assert_eq!(wait(1 << 20, 0, Duration::from_secs(3)), Duration::from_secs(27));
    }
}
