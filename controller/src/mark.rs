//! The highest head that was signed, kept beside the key that signs: a data directory that was restored from a backup meets
//! it there, and nothing is signed that contradicts it (`docs/adr/0035-no-number-twice.md`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use selion_api::Hash32;
use selion_api::agent::Head;
use selion_api::commit::PoolId;

/// Length of the record: one sector, so that it is written whole or not at all.
const RECORD: usize = 512;

/// Why nothing may be signed.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// The file system's.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another controller has it open.
    #[error(
        "{} is in use: another controller signs with this key in this pool, and two that sign contradict each other; end \
         that one first",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is not what was written.
    #[error(
        "{} does not hold the head that was signed last ({why}); if this data directory is the one that ran last, remove \
         that file and start again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: serde_json::Error,
    },
    /// The log is not the one that was signed.
    #[error(
        "a head over {size} entries was signed with this key ({}), but this log {}: this data directory is a restored \
         backup or a copy that stayed behind. Restore the newer copy of the data directory; if it is lost, the pool's owner \
         names another key with `selion authority replace`, and the new epoch goes on from the last anchor",
        path.display(), if *have < *size { format!("has {have}") } else { "has another root there".to_owned() }
    )]
    Behind {
        /// The file.
        path: PathBuf,
        /// Entries under the head that was signed.
        size: u64,
        /// Entries here.
        have: u64,
    },
}

/// The mark of one key in one pool. While it is open no other controller opens it: a copy of the data directory that is
/// started beside its original would sign other heads of the same sizes.
pub struct Mark {
    path: PathBuf,
    file: Mutex<File>,
    found: Option<Head>,
}

impl Mark {
    /// Opens the mark of `pool` beside the key at `key`, or in `otherwise` where that folder cannot be written.
    ///
    /// # Errors
    ///
    /// [`MarkError`].
    pub fn open(key: &Path, otherwise: &Path, pool: &PoolId) -> Result<Self, MarkError> {
        let key_name = key.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{key_name}.{}.{}.mark", pool.chain_id, pool.controller);
        let beside = key.with_file_name(&name);
        match Self::at(&beside) {
            Err(MarkError::Io { source, .. })
                if matches!(source.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) =>
            {
                tracing::warn!(
                    beside = %beside.display(), instead = %otherwise.display(),
                    "no mark can be kept beside the authority's key: it is kept in the data directory, so that a backup of \
                     it that is restored brings its own mark"
                );
                Self::at(&otherwise.join(name))
            }
            opened => opened,
        }
    }

    fn at(path: &Path) -> Result<Self, MarkError> {
        let io = |source| MarkError::Io { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(MarkError::InUse { path: path.to_owned() }),
            // Some file systems have no locks; a mark that is read is better than none.
            Err(TryLockError::Error(error)) => {
                tracing::warn!(path = %path.display(), %error, "nothing keeps a second controller off this key");
            }
        }
        let mut text = Vec::new();
        file.by_ref().take(RECORD as u64).read_to_end(&mut text).map_err(io)?;
        let found = match text.trim_ascii() {
            [] => None,
            text => {
                Some(serde_json::from_slice(text).map_err(|why| MarkError::Damaged { path: path.to_owned(), why })?)
            }
        };
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), found })
    }

    /// The highest head that was signed before, if it binds whoever signs in `epoch`: what was signed in an earlier epoch
    /// is judged by its anchors.
    #[must_use]
    pub fn highest(&self, epoch: u32) -> Option<&Head> {
        self.found.as_ref().filter(|head| head.fence.epoch >= epoch)
    }

    /// Whether a log of `have` entries, which has the root `ours` at the size of `head`, goes on from it.
    ///
    /// # Errors
    ///
    /// [`MarkError::Behind`].
    pub fn check(&self, head: &Head, have: u64, ours: Option<Hash32>) -> Result<(), MarkError> {
        if ours == Some(head.root) {
            return Ok(());
        }
        Err(MarkError::Behind { path: self.path.clone(), size: head.size, have })
    }

    /// Writes down that `head` is about to be signed. What the kernel has outlives this process, however it ends; it is not
    /// forced onto the disk, since a machine that loses its power loses no log.
    ///
    /// # Errors
    ///
    /// Of the file system.
    pub fn raise(&self, head: &Head) -> io::Result<()> {
        let mut record = serde_json::to_vec(head)?;
        record.resize(RECORD - 1, b' ');
        record.push(b'\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all_at(&record, 0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use selion_api::Address;
    use selion_api::agent::Fence;

    use super::*;

    const POOL: PoolId = PoolId { chain_id: u64::MAX, controller: Address([9; 20]) };

    fn head(size: u64, root: u8) -> Head {
        let fence = Fence { epoch: u32::MAX, term: u64::MAX };
        Head { size, root: Hash32([root; 32]), digest: Hash32([255; 32]), fence }
    }

    #[test]
    fn a_log_that_is_shorter_or_another_than_what_was_signed_is_refused_and_its_continuation_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Mark::open(&dir.path().join("authority.key"), dir.path(), &POOL).unwrap();
        let mark = open();
        assert_eq!(mark.highest(1), None, "a new pool");
        mark.raise(&head(u64::MAX, 1)).unwrap();
        mark.raise(&head(7, 2)).unwrap();
        drop(mark);
        let mark = open();
        let highest = *mark.highest(1).unwrap();
        assert_eq!(highest, head(7, 2), "the last one, whole, after a longer one");
        mark.check(&highest, 7, Some(Hash32([2; 32]))).unwrap();
        mark.check(&highest, 9, Some(Hash32([2; 32]))).unwrap();
        let shorter = mark.check(&highest, 6, None).unwrap_err().to_string();
        assert!(shorter.contains("over 7 entries") && shorter.contains("this log has 6"), "{shorter}");
        assert!(shorter.contains("authority replace"), "{shorter}");
        let other = mark.check(&highest, 9, Some(Hash32([3; 32]))).unwrap_err().to_string();
        assert!(other.contains("another root"), "{other}");
    }

    #[test]
    fn what_was_signed_in_an_earlier_epoch_does_not_bind_a_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("authority.key");
        let early = Head { fence: Fence { epoch: 2, term: 1 }, ..head(7, 2) };
        Mark::open(&key, dir.path(), &POOL).unwrap().raise(&early).unwrap();
        let mark = Mark::open(&key, dir.path(), &POOL).unwrap();
        assert_eq!((mark.highest(2), mark.highest(3)), (Some(&early), None));
    }

    #[test]
    fn a_mark_is_of_one_pool_and_of_nobody_elses_eyes() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("authority.key");
        Mark::open(&key, dir.path(), &POOL).unwrap().raise(&head(7, 2)).unwrap();
        // The same contracts have the same addresses on several chains.
        for other in [PoolId { controller: Address([8; 20]), ..POOL }, PoolId { chain_id: 7, ..POOL }] {
            assert_eq!(Mark::open(&key, dir.path(), &other).unwrap().highest(1), None);
        }
        for file in fs::read_dir(dir.path()).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_damaged_mark_is_named_and_signs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("authority.key");
        let mark = Mark::open(&key, dir.path(), &POOL).unwrap();
        mark.raise(&head(7, 2)).unwrap();
        let path = mark.path.clone();
        drop(mark);
        fs::write(&path, "{\"size\":7").unwrap();
        let said = Mark::open(&key, dir.path(), &POOL).err().unwrap().to_string();
        assert!(said.contains(&path.display().to_string()) && said.contains("remove"), "{said}");
    }

    #[test]
    fn while_one_controller_signs_with_a_key_no_other_opens_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        let (key, copy) = (dir.path().join("authority.key"), tempfile::tempdir().unwrap());
        let first = Mark::open(&key, dir.path(), &POOL).unwrap();
        let said = Mark::open(&key, copy.path(), &POOL).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains("authority.key") && said.contains("another controller"), "{said}");
        // In another pool the same key signs other heads; a chain of its own may have contracts at the same addresses.
        Mark::open(&key, dir.path(), &PoolId { chain_id: 7, ..POOL }).unwrap();
        drop(first);
        Mark::open(&key, copy.path(), &POOL).unwrap();
    }

    #[test]
    fn a_key_in_a_folder_that_cannot_be_written_has_its_mark_in_the_data_directory() {
        if nix::unistd::geteuid().is_root() {
            return; // root writes everywhere
        }
        let dir = tempfile::tempdir().unwrap();
        let (sealed, data) = (dir.path().join("sealed"), dir.path().join("data"));
        for folder in [&sealed, &data] {
            fs::create_dir(folder).unwrap();
        }
        fs::set_permissions(&sealed, Permissions::from_mode(0o500)).unwrap();
        Mark::open(&sealed.join("authority.key"), &data, &POOL).unwrap();
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    }
}
