//! A stack of layers as one tree, read without a mount.
//!
//! The rules are those of overlayfs: the topmost layer that has a name decides; folders of the same name are one, down to
//! one that is opaque; a device 0/0 says that a name is not there. Every name is opened from its folder's descriptor and
//! never followed; links are resolved here, inside the tree, and `..` at its top stays there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};

use super::unpack::OPAQUE;
use crate::beneath::Folder;

/// Most links that one path may lead through.
const MOST_LINKS: usize = 40;

/// What one layer, or the whole, has under a path.
#[derive(Debug)]
pub(super) enum Seen {
    /// Nothing.
    Absent,
    /// It says that nothing below is to be seen.
    Hidden,
    /// A folder; opaque if those of the same name below are not part of it.
    Folder { stat: Box<FileStat>, opaque: bool },
    /// A file, in this layer.
    File(Folder, OsString),
    /// A link and its target.
    Link(OsString),
    /// A part of the path before the last is no folder.
    Through,
}

/// What `layer` alone has at `path`. `Hidden` also where a folder on the way is opaque and the path ends there.
pub(super) fn look(layer: &Folder, path: &[OsString]) -> io::Result<(Seen, bool)> {
    let mut folder = layer.again()?;
    let mut opaque_on_the_way = false;
    for (index, name) in path.iter().enumerate() {
        let last = index + 1 == path.len();
        let stat = match fstatat(&folder, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(nix::errno::Errno::ENOENT) => return Ok((Seen::Absent, opaque_on_the_way)),
            Err(error) => return Err(error.into()),
        };
        match kind(&stat) {
            SFlag::S_IFDIR => {
                let inner = folder.folder(name)?;
                let opaque = is_opaque(&inner);
                if last {
                    return Ok((Seen::Folder { stat: Box::new(stat), opaque }, opaque_on_the_way));
                }
                opaque_on_the_way |= opaque;
                folder = inner;
            }
            _ if is_whiteout(&stat) => return Ok((Seen::Hidden, true)),
            _ if !last => return Ok((Seen::Through, true)),
            SFlag::S_IFLNK => return Ok((Seen::Link(folder.link(name)?), true)),
            _ => return Ok((Seen::File(folder, name.clone()), true)),
        }
    }
    let stat = Box::new(fstat(&folder)?);
    Ok((Seen::Folder { opaque: is_opaque(&folder), stat }, false))
}

pub(super) fn is_whiteout(stat: &FileStat) -> bool {
    kind(stat) == SFlag::S_IFCHR && stat.st_rdev == 0
}

pub(super) fn is_opaque(folder: &Folder) -> bool {
    let mut value = [0_u8; 8];
    matches!(rustix::fs::fgetxattr(folder, OPAQUE, &mut value), Ok(1) if value[0] == b'y')
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// Layers, the topmost first.
pub(super) struct View {
    layers: Vec<Folder>,
}

impl View {
    pub fn open<'a>(layers: impl IntoIterator<Item = &'a Path>) -> io::Result<Self> {
        Ok(Self { layers: layers.into_iter().map(Folder::open).collect::<io::Result<_>>()? })
    }

    /// What is at a path without links on the way. A folder is that of the topmost layer that has one.
    pub fn look(&self, path: &[OsString]) -> io::Result<Seen> {
        for layer in &self.layers {
            match look(layer, path)? {
                (Seen::Absent, false) => {}
                (Seen::Absent | Seen::Hidden, _) => return Ok(Seen::Absent),
                (seen, _) => return Ok(seen),
            }
        }
        Ok(Seen::Absent)
    }

    /// The first `most` bytes of the regular file at `path`, links followed inside the tree; `None` if there is none.
    pub fn read(&self, path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
        let mut rest: Vec<OsString> = names(path.as_os_str());
        let mut at: Vec<OsString> = Vec::new();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(name);
            match self.look(&at)? {
                Seen::Folder { .. } => {}
                Seen::Link(target) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Ok(None);
                    }
                    at.pop();
                    if target.as_bytes().starts_with(b"/") {
                        at.clear();
                    }
                    rest.extend(names(&target));
                }
                Seen::File(folder, name) if rest.is_empty() => return regular(&folder, &name, most),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

fn regular(folder: &Folder, name: &OsStr, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file: File = match folder.file(name) {
        Ok((file, _)) => file,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The names of a path, the first one last; `.` and empty ones left out.
fn names(path: &OsStr) -> Vec<OsString> {
    let parts = path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.rev().map(|part| OsString::from_vec(part.to_vec())).collect()
}
