//! Who decides what becomes of a lease's folder.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// File of the lock.
const LOCK: &str = "lock";

/// As long as it lives, nobody else decides.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, never looked at")] Flock<File>);

/// What came of asking for it.
#[derive(Debug)]
pub(in crate::runtime) enum Locked {
    /// It is ours.
    Ours(Lock),
    /// Somebody else has it.
    Taken,
}

/// Asks for the lock of the folder `base`, without waiting.
///
/// # Errors
///
/// The file system's; [`io::ErrorKind::NotFound`] if the folder is gone or was moved meanwhile.
pub(in crate::runtime) fn lock(base: &Path) -> io::Result<Locked> {
    let path = base.join(LOCK);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
    let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => lock,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(Locked::Taken),
        Err((_, errno)) => return Err(errno.into()),
    };
    // Who had it may have moved the folder away in between.
    let (ours, there) = (lock.metadata()?, std::fs::metadata(&path)?);
    if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) {
        Ok(Locked::Ours(Lock(lock)))
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_it_and_a_folder_that_was_moved_away_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("lease");
        std::fs::create_dir(&base).unwrap();
        let held = lock(&base).unwrap();
        assert!(matches!((&held, lock(&base).unwrap()), (Locked::Ours(_), Locked::Taken)));
        drop(held);
        assert!(matches!(lock(&base).unwrap(), Locked::Ours(_)));
        std::fs::rename(&base, dir.path().join("over")).unwrap();
        assert_eq!(lock(&base).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
