//! How the layers of one image lie over each other.
//!
//! A layer is unpacked by itself, so what it takes for granted of those below is looked at here. A folder that it writes
//! into without an entry of its own must not be a link or a file below: the image would be another than its builder saw.
//! Such a folder would also hide the permissions that it has below, so these are repeated in a seam on top.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::sys::stat::{FileStat, Mode, fchmod, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown};

use super::cache::{Inner, LayerHold};
use super::error::At;
use super::unpack::Owners;
use super::view::{Seen, look};
use super::{Digest, Fault, ImageError, shown};
use crate::Stop;
use crate::beneath::Folder;

/// Most folders of an image that are written into without an entry of their own.
const MOST_IMPLICIT: usize = 1 << 16;
/// Permissions that are repeated.
const KEPT: u32 = 0o1777;
/// Bytes of disk that a folder is reckoned to take.
const FOLDER: u64 = 4096;

/// A stack of layers, the topmost first.
pub(super) struct Stack {
    floors: Vec<Floor>,
}

struct Floor {
    diff_id: Digest,
    folder: Folder,
    implicit: HashSet<Vec<u8>>,
}

impl Stack {
    /// Of all layers of an image, the lowest first. What can never be seen is left out: everything below a layer that
    /// hides it, and a layer that is there again further up.
    pub fn of(inner: &Inner, holds: &[LayerHold]) -> Result<Self, ImageError> {
        let mut floors = Vec::new();
        let mut known = HashSet::new();
        let mut implicit_sum = 0;
        for hold in holds.iter().rev() {
            if !known.insert(hold.diff_id) {
                continue;
            }
            let root = inner.layer_root(&hold.diff_id);
            let implicit: HashSet<Vec<u8>> = inner.implicit(&hold.diff_id)?.into_iter().collect();
            implicit_sum += implicit.len();
            if implicit_sum > MOST_IMPLICIT {
                let what = "folders without an entry of their own".to_owned();
                return Err(ImageError::OverLimit { what, limit: MOST_IMPLICIT as u64 });
            }
            floors.push(Floor { diff_id: hold.diff_id, folder: Folder::open(&root).at(&root)?, implicit });
            if hold.record().opaque_root {
                break;
            }
        }
        Ok(Self { floors })
    }

    /// The lowest first.
    pub fn layers(&self) -> Vec<Digest> {
        self.floors.iter().rev().map(|floor| floor.diff_id).collect()
    }

    /// Refuses a layer that writes through a link, or below a file, of one under it.
    pub fn check(&self, stop: &Stop) -> Result<(), ImageError> {
        for (index, floor) in self.floors.iter().enumerate() {
            for path in &floor.implicit {
                stop.check().map_err(|_| ImageError::Stopped)?;
                if let Some(fault) = self.below(index, path).at(Path::new(&shown(path)))? {
                    return Err(ImageError::Entry { layer: floor.diff_id, path: shown(path), fault });
                }
            }
        }
        Ok(())
    }

    /// What is wrong with a folder that is implicit in one floor, by what is under it. A link or file further up its path
    /// is found at that folder, which is implicit too or has an entry, and so took its place on purpose.
    fn below(&self, index: usize, path: &[u8]) -> std::io::Result<Option<Fault>> {
        let names = names(path);
        let (here, under) = self.floors.split_at(index + 1);
        let Some(own) = here.last() else { return Ok(None) };
        if let (Seen::Folder { opaque: true, .. }, _) | (_, true) = look(&own.folder, &names)? {
            return Ok(None);
        }
        for floor in under {
            match look(&floor.folder, &names)? {
                (Seen::Absent, false) => {}
                (Seen::Link(_), _) => return Ok(Some(Fault::ThroughLink(shown(path)))),
                (Seen::File(..), _) => return Ok(Some(Fault::ThroughFile(shown(path)))),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Makes the seam in the empty folder `dest`. Returns the bytes of disk it is reckoned to take; none if there is no
    /// need of one.
    pub fn seam(&self, dest: &Path, owners: &Owners, stop: &Stop) -> Result<u64, ImageError> {
        let mut folders: BTreeMap<Vec<u8>, FileStat> = BTreeMap::new();
        for path in self.floors.iter().flat_map(|floor| &floor.implicit) {
            stop.check().map_err(|_| ImageError::Stopped)?;
            let (seen, meant) = self.permissions(path).at(dest)?;
            if let (Some(seen), Some(meant)) = (seen, meant)
                && (seen.st_mode, seen.st_uid, seen.st_gid) != (meant.st_mode, meant.st_uid, meant.st_gid)
            {
                folders.insert(path.clone(), meant);
            }
        }
        for path in folders.keys().cloned().collect::<Vec<_>>() {
            for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                let above = &path[..at];
                let (seen, meant) = self.permissions(above).at(dest)?;
                if let Some(stat) = meant.or(seen) {
                    folders.entry(above.to_vec()).or_insert(stat);
                }
            }
        }
        if folders.is_empty() {
            return Ok(0);
        }
        if let (_, Some(root)) | (Some(root), None) = self.permissions(b"").at(dest)? {
            folders.insert(Vec::new(), root);
        }
        write(dest, owners, &folders).at(dest)?;
        Ok(folders.len() as u64 * FOLDER)
    }

    /// What a folder has in the topmost layer that has it, and in the topmost that has an entry for it.
    fn permissions(&self, path: &[u8]) -> std::io::Result<(Option<FileStat>, Option<FileStat>)> {
        let names = names(path);
        let mut seen = None;
        for floor in &self.floors {
            match look(&floor.folder, &names)? {
                (Seen::Absent, false) => {}
                (Seen::Folder { stat, opaque, .. }, hides) => {
                    let implicit = floor.implicit.contains(path);
                    seen = seen.or(Some(*stat));
                    if !implicit {
                        return Ok((seen, Some(*stat)));
                    }
                    if opaque || hides {
                        break;
                    }
                }
                _ => break,
            }
        }
        Ok((seen, None))
    }
}

/// Makes folders, parents before children, and gives them their permissions and times, children before parents.
fn write(dest: &Path, owners: &Owners, folders: &BTreeMap<Vec<u8>, FileStat>) -> std::io::Result<()> {
    let root = Folder::open(dest)?;
    let open = |path: &[u8]| -> std::io::Result<Folder> {
        names(path).iter().try_fold(root.again()?, |folder, name| folder.folder(name))
    };
    for path in folders.keys().filter(|path| !path.is_empty()) {
        let mut names = names(path);
        let Some(name) = names.pop() else { continue };
        let parent = names.iter().try_fold(root.again()?, |folder, name| folder.folder(name))?;
        nix::sys::stat::mkdirat(&parent, name.as_os_str(), Mode::S_IRWXU)?;
    }
    for (path, stat) in folders.iter().rev() {
        let folder = open(path)?;
        if matches!(owners, Owners::Mapped { .. }) {
            fchown(&folder, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
        }
        fchmod(&folder, Mode::from_bits_truncate(stat.st_mode & KEPT))?;
        let time = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
        futimens(&folder, &time, &time)?;
    }
    Ok(())
}

fn names(path: &[u8]) -> Vec<OsString> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    parts.map(|part| OsString::from_vec(part.to_vec())).collect()
}
