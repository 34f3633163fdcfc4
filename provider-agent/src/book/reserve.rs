//! Room on the disk that only the agent has: when a lease has filled the file system, what must be said and kept still can
//! be.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};

/// Bytes kept: some thousand reports, and the marks written anew many times. On a small disk, a fiftieth of it: when the
/// reserve was given up there must still be less room than [`crate::disk`] wants, so that somebody is ended.
pub(crate) const RESERVE: u64 = 8 << 20;

/// A file that takes room until the room is needed.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// Keeps room at `path`, or as much of it as there is none now: a full disk is no reason not to start.
    pub(crate) fn open(path: &Path) -> Self {
        let reserve = Self::at(path.to_owned());
        if let Err(error) = reserve.fill() {
            tracing::warn!(path = %path.display(), %error, "no room can be reserved on this disk; free some");
        }
        reserve
    }

    /// The one at `path`, whoever took it.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Takes the room, if it is not taken already.
    ///
    /// # Errors
    ///
    /// The file system's; nothing is taken then.
    pub(crate) fn fill(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let size = RESERVE.min(crate::disk::Room::at(folder)?.all() / 50);
        if fs::metadata(&self.path).is_ok_and(|found| found.len() == size) {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
        take(&file, size).inspect_err(|_| self.free())
    }

    /// Gives the room up.
    pub(crate) fn free(&self) {
        // Nothing better can be done with an error than to go on without the room.
        drop(fs::remove_file(&self.path));
    }

    /// Does `write`, and once more with the room of the reserve if the disk is full.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    pub(crate) fn with_room<T>(&self, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match write() {
            Err(error) if is_full(&error) => {
                self.free();
                write()
            }
            other => other,
        }
    }
}

/// Whether the disk, or the owner's quota on it, is used up.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn take(file: &File, size: u64) -> io::Result<()> {
    let length = i64::try_from(size).map_err(io::Error::other)?;
    match fallocate(file.as_fd(), FallocateFlags::empty(), 0, length) {
        // Some file systems cannot; zeros take the room as well.
        Err(nix::errno::Errno::EOPNOTSUPP) => zeros(file, size),
        other => Ok(other?),
    }
}

fn zeros(mut file: &File, size: u64) -> io::Result<()> {
    let some = [0; 64 << 10];
    for _ in 0..size.div_ceil(some.len() as u64) {
        io::Write::write_all(&mut file, &some)?;
    }
    file.set_len(size)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_the_disk_full_gets_the_reserve_and_a_second_try() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        let reserve = Reserve::open(&path);
        assert_eq!(fs::metadata(&path).unwrap().len(), RESERVE);
        let mut tries = 0;
        let wrote = reserve.with_room(|| {
            tries += 1;
            if path.exists() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(7) }
        });
        assert_eq!((wrote.unwrap(), tries), (7, 2));
        assert!(reserve.with_room(|| Err::<(), _>(io::ErrorKind::PermissionDenied.into())).is_err());
        reserve.fill().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), RESERVE, "taken again once there is room");
    }
}
