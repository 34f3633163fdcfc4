//! A watch on the node's disk: whoever has filled it ends, and nobody else.
//!
//! Each lease has a quota of its own; this is for what all of them together fill. What is asked is only how much room is left, once a second; if
//! it is too little, the member whose folders are the largest is ended. Between two looks the agent lives on its reserve.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::member_key::MemberKey;

/// How often the room is looked at.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Less room than this is too little, in bytes; on a small disk, a twentieth of it.
const FLOOR: u64 = 64 << 20;
/// Folder entries looked at for one member: counting must not take longer than filling.
const MAX_ENTRIES: usize = 200_000;

/// Room on the file system of a folder, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    free: u64,
    all: u64,
}

impl Room {
    /// The room at `dir`.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub(crate) fn at(dir: &Path) -> io::Result<Self> {
        let stat = nix::sys::statvfs::statvfs(dir)?;
        let unit = stat.fragment_size();
        Ok(Self { free: stat.blocks_available().saturating_mul(unit), all: stat.blocks().saturating_mul(unit) })
    }

    /// All of it, free or not.
    pub(crate) fn all(self) -> u64 {
        self.all
    }

    fn floor(self) -> u64 {
        FLOOR.min(self.all / 20)
    }

    /// Whether somebody has to make room.
    pub(crate) fn is_short(self) -> bool {
        self.free < self.floor()
    }

    /// Whether there is room for the agent's reserve again.
    pub(crate) fn is_ample(self) -> bool {
        self.free > 2 * self.floor()
    }
}

/// Of these members the one whose folders take most, with its bytes. `None` if none takes as much as is to be kept free:
/// then ending one would not help.
pub(crate) fn largest(leases: &Path, members: &[MemberKey], room: Room) -> Option<(MemberKey, u64)> {
    let sizes = members.iter().map(|key| (*key, taken(&leases.join(key.to_string()))));
    sizes.max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes >= room.floor())
}

/// Bytes on disk of everything below `dir`. No link is followed; what cannot be read counts nothing.
fn taken(dir: &Path) -> u64 {
    let (mut folders, mut bytes, mut seen) = (vec![PathBuf::from(dir)], 0_u64, 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                return bytes;
            }
            // Of the entry itself, not of what it leads to.
            let Ok(found) = entry.metadata() else { continue };
            bytes = bytes.saturating_add(found.blocks().saturating_mul(512));
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use selion_api::LeaseId;

    use super::*;

    fn key(seq: u64) -> MemberKey {
        MemberKey { lease: LeaseId { seq, index: 0 }, attempt: 0, member: 0 }
    }

    #[test]
    fn the_largest_writer_is_named_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let leases = dir.path().join("leases");
        for (seq, bytes) in [(1, 10 << 10), (2, 300 << 10)] {
            let work = leases.join(key(seq).to_string()).join("work/deep");
            fs::create_dir_all(&work).unwrap();
            fs::write(work.join("file"), vec![7; bytes]).unwrap();
        }
        fs::write(dir.path().join("large"), vec![7; 2 << 20]).unwrap();
        let trap = leases.join(key(1).to_string()).join("work/large");
        std::os::unix::fs::symlink(dir.path(), trap).unwrap();
        let small = Room { free: 0, all: 4 << 20 };
        assert!(small.is_short() && !small.is_ample());
        let (found, bytes) = largest(&leases, &[key(1), key(2)], small).unwrap();
        assert_eq!(found, key(2));
        assert!((300 << 10..400 << 10).contains(&bytes), "{bytes}");
        assert_eq!(largest(&leases, &[key(1)], small), None, "it is not to blame");
        assert!(!Room { free: 65 << 20, all: 1 << 40 }.is_short());
    }
}
