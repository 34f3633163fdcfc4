//! Making entries below one folder. Nothing of a path is ever followed.
//!
//! The folder of an entry is opened by `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`; where that cannot be (an old
//! kernel, a filter, a part that is not there yet) name by name, each from its folder's descriptor with `O_NOFOLLOW`,
//! which comes to the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{
    FileStat, Mode, SFlag, UtimensatFlags, fchmod, fstatat, futimens, makedev, mkdirat, mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, fchown, fchownat, linkat, symlinkat, unlinkat};
use rustix::fs::{XattrFlags, fsetxattr};

use super::names::joined;
use super::owners::Owner;
use super::{OPAQUE, OVERLAY};
use crate::image::Fault;
use crate::image::view::is_whiteout;

/// Permissions of a folder that no entry of its own makes.
const USUAL: u32 = 0o755;
/// Every folder stays open to its owner: it has to be removed one day.
const OPEN: u32 = 0o700;
/// What of a mode is kept: no set-user and no set-group bit.
const KEPT: u32 = 0o1777;
/// Most bytes of paths of folders that are remembered until the end.
const MOST_REMEMBERED: usize = 64 << 20;

/// Why an entry was not made.
#[derive(Debug)]
pub(super) enum Problem {
    Fault(Fault),
    Io(io::Error),
    /// Too many folders.
    TooMuch(usize),
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Problem {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// What an entry is to have.
pub(super) struct Attributes<'a> {
    pub mode: u32,
    pub owner: Owner,
    /// Seconds since 1970.
    pub mtime: i64,
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

/// A folder that is filled.
pub(super) struct Tree {
    root: OwnedFd,
    /// Whom folders without an entry of their own are given to.
    root_owner: Owner,
    /// The folder of the last entry.
    last: Option<(Vec<OsString>, OwnedFd)>,
    /// Times of folders, set at the end: each entry in one changes it.
    times: BTreeMap<Vec<u8>, i64>,
    /// Folders that no entry made.
    implicit: BTreeSet<Vec<u8>>,
    remembered: usize,
    /// Of them, made since somebody asked.
    just_made: u64,
    opaque_root: bool,
}

/// What the layer turned out to need from those below.
pub(super) struct Made {
    pub implicit: BTreeSet<Vec<u8>>,
    pub opaque_root: bool,
}

impl Tree {
    /// `path` is an empty folder of ours.
    pub fn open(path: &Path, root_owner: Owner) -> Result<Self, Problem> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(path, flags, Mode::empty())?;
        fchmod(&root, Mode::from_bits_truncate(USUAL))?;
        give(&root, root_owner)?;
        Ok(Self {
            root,
            root_owner,
            last: None,
            times: BTreeMap::new(),
            implicit: BTreeSet::new(),
            remembered: 0,
            just_made: 0,
            opaque_root: false,
        })
    }

    /// Makes a folder, or gives one that is there its attributes. No names are the root.
    pub fn folder(&mut self, names: &[OsString], attributes: &Attributes) -> Result<(), Problem> {
        let path = joined(names);
        let folder = match names.split_last() {
            None => self.root.try_clone()?,
            Some((name, above)) => {
                let (parent, name) = (self.parent(above)?, name.as_os_str());
                match mkdirat(&parent, name, Mode::from_bits_truncate(OPEN)) {
                    Ok(()) => open_folder(&parent, name)?,
                    Err(Errno::EEXIST) => match open_folder(&parent, name) {
                        Ok(folder) => folder,
                        Err(_) => {
                            self.last = None;
                            replaced(&parent, name)?
                        }
                    },
                    Err(error) => return Err(error.into()),
                }
            }
        };
        self.implicit.remove(&path);
        give(&folder, attributes.owner)?;
        fchmod(&folder, Mode::from_bits_truncate(attributes.mode & KEPT | OPEN))?;
        set_xattrs(&folder, attributes.xattrs)?;
        self.remember(path.len())?;
        self.times.insert(path, attributes.mtime);
        Ok(())
    }

    /// Makes an empty file, for its content. [`finish_file`] comes last.
    pub fn file(&mut self, names: &[OsString]) -> Result<File, Problem> {
        let (parent, name) = self.place(names)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let make = || openat(&parent, name, flags, Mode::from_bits_truncate(0o600));
        let file = match make() {
            Err(Errno::EEXIST) => {
                self.last = None;
                clear(&parent, name)?;
                make()?
            }
            other => other?,
        };
        Ok(File::from(file))
    }

    /// Makes a symbolic link. Its target is data.
    pub fn symlink(&mut self, names: &[OsString], target: &[u8], attributes: &Attributes) -> Result<(), Problem> {
        let (parent, name) = self.place(names)?;
        match symlinkat(target, &parent, name) {
            Err(Errno::EEXIST) => {
                self.last = None;
                clear(&parent, name)?;
                symlinkat(target, &parent, name)?;
            }
            Err(Errno::ENOENT | Errno::EINVAL) => return Err(Fault::BadName.into()),
            other => other?,
        }
        if let Some((uid, gid)) = attributes.owner {
            fchownat(&parent, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)?;
        }
        let time = TimeSpec::new(attributes.mtime, 0);
        Ok(utimensat(&parent, name, &time, &time, UtimensatFlags::NoFollowSymlink)?)
    }

    /// Gives what is at `target`, in this layer, a second name.
    pub fn hardlink(&mut self, names: &[OsString], target: &[OsString]) -> Result<(), Problem> {
        let shown = || crate::image::shown(&joined(target));
        let outside = || Problem::Fault(Fault::LinkOutside(shown()));
        let (target_name, above) = target.split_last().ok_or_else(outside)?;
        if names == target {
            return Err(outside());
        }
        let from = self.find(above).map_err(|_| outside())?;
        let stat = look(&from, target_name)?.ok_or_else(outside)?;
        if !matches!(kind(&stat), SFlag::S_IFREG | SFlag::S_IFLNK) {
            return Err(Fault::LinkToOther(shown()).into());
        }
        let (parent, name) = self.place(names)?;
        let make = || linkat(&from, target_name.as_os_str(), &parent, name, AtFlags::empty());
        match make() {
            Err(Errno::EEXIST) => {
                self.last = None;
                clear(&parent, name)?;
                Ok(make()?)
            }
            other => Ok(other?),
        }
    }

    /// Says that what the layers below have under this name is gone. What this layer has there itself stays, whichever
    /// came first.
    pub fn whiteout(&mut self, names: &[OsString]) -> Result<(), Problem> {
        let (parent, name) = self.place(names)?;
        match mknodat(&parent, name, SFlag::S_IFCHR, Mode::empty(), makedev(0, 0)) {
            Err(Errno::EEXIST) => match open_folder(&parent, name) {
                Ok(folder) => set_opaque(&folder),
                Err(_) => Ok(()),
            },
            other => Ok(other?),
        }
    }

    /// Says that a folder has nothing of those of its name below.
    pub fn opaque(&mut self, names: &[OsString]) -> Result<(), Problem> {
        let folder = self.parent(names)?;
        self.opaque_root |= names.is_empty();
        set_opaque(&folder)
    }

    /// How many folders without an entry of their own were made since the last call.
    pub fn take_implicit(&mut self) -> u64 {
        std::mem::take(&mut self.just_made)
    }

    /// Sets the times of the folders.
    pub fn finish(mut self) -> Result<Made, Problem> {
        self.last = None;
        for (path, mtime) in std::mem::take(&mut self.times) {
            let names: Vec<OsString> =
                path.split(|byte| *byte == b'/').map(name).filter(|name| !name.is_empty()).collect();
            // A later entry may have taken its place.
            if let Ok(folder) = self.find(&names) {
                set_time(&folder, mtime)?;
            }
        }
        Ok(Made { implicit: self.implicit, opaque_root: self.opaque_root })
    }

    fn remember(&mut self, bytes: usize) -> Result<(), Problem> {
        self.remembered += bytes + 64;
        if self.remembered > MOST_REMEMBERED { Err(Problem::TooMuch(MOST_REMEMBERED)) } else { Ok(()) }
    }

    /// The folder of an entry, and its name.
    fn place<'a>(&mut self, names: &'a [OsString]) -> Result<(OwnedFd, &'a OsStr), Problem> {
        let (name, above) = names.split_last().ok_or(Fault::BadName)?;
        Ok((self.parent(above)?, name))
    }

    /// The folder `names`, made if it is not there.
    fn parent(&mut self, names: &[OsString]) -> Result<OwnedFd, Problem> {
        if let Some((last, folder)) = &self.last
            && last == names
        {
            return Ok(folder.try_clone()?);
        }
        let folder = match self.at_once(names) {
            Ok(folder) => folder,
            // Whatever kept it from being opened at once, the way by name says what it is.
            Err(_) => self.by_name(names)?,
        };
        self.last = Some((names.to_vec(), folder.try_clone()?));
        Ok(folder)
    }

    fn at_once(&self, names: &[OsString]) -> io::Result<OwnedFd> {
        if names.is_empty() {
            return self.root.try_clone();
        }
        let resolve =
            ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(openat2(&self.root, joined(names).as_slice(), OpenHow::new().flags(flags).resolve(resolve))?)
    }

    fn by_name(&mut self, names: &[OsString]) -> Result<OwnedFd, Problem> {
        let mut folder = self.root.try_clone()?;
        for (index, name) in names.iter().enumerate() {
            let shown = || crate::image::shown(&joined(&names[..=index]));
            folder = match look(&folder, name)? {
                Some(stat) if kind(&stat) == SFlag::S_IFDIR => open_folder(&folder, name)?,
                Some(stat) if is_whiteout(&stat) => replaced(&folder, name)?,
                Some(stat) if kind(&stat) == SFlag::S_IFLNK => return Err(Fault::ThroughLink(shown()).into()),
                Some(_) => return Err(Fault::ThroughFile(shown()).into()),
                None => {
                    let path = joined(&names[..=index]);
                    self.remember(path.len())?;
                    self.implicit.insert(path);
                    self.just_made += 1;
                    made(&folder, name, self.root_owner)?
                }
            };
        }
        Ok(folder)
    }

    /// The folder `names`, if it is there.
    fn find(&self, names: &[OsString]) -> io::Result<OwnedFd> {
        if let Ok(folder) = self.at_once(names) {
            return Ok(folder);
        }
        let mut folder = self.root.try_clone()?;
        for name in names {
            folder = open_folder(&folder, name)?;
        }
        Ok(folder)
    }
}

/// Gives a file, whose content is whole, what it is to have.
pub(super) fn finish_file(file: &File, attributes: &Attributes) -> Result<(), Problem> {
    give(file, attributes.owner)?;
    // Before the mode: who may not write a file may not set its attributes, its owner included.
    set_xattrs(file, attributes.xattrs)?;
    fchmod(file, Mode::from_bits_truncate(attributes.mode & KEPT))?;
    set_time(file, attributes.mtime)
}

fn name(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

fn look(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<FileStat>> {
    match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open_folder(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

fn made(parent: &OwnedFd, name: &OsStr, owner: Owner) -> Result<OwnedFd, Problem> {
    mkdirat(parent, name, Mode::from_bits_truncate(OPEN))?;
    let folder = open_folder(parent, name)?;
    give(&folder, owner)?;
    fchmod(&folder, Mode::from_bits_truncate(USUAL))?;
    Ok(folder)
}

/// Makes a folder in the place of what is no folder: what was below is not seen any more.
fn replaced(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Problem> {
    clear(parent, name)?;
    let folder = made(parent, name, None)?;
    set_opaque(&folder)?;
    Ok(folder)
}

/// Removes what is at `name`, if it is no folder, or an empty one.
fn clear(parent: &OwnedFd, name: &OsStr) -> Result<(), Problem> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR | Errno::EPERM) => match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Err(Fault::ReplacesFolder.into()),
            other => Ok(other?),
        },
        other => Ok(other?),
    }
}

fn give(what: impl AsFd, owner: Owner) -> Result<(), Problem> {
    match owner {
        Some((uid, gid)) => Ok(fchown(what, Some(uid), Some(gid))?),
        None => Ok(()),
    }
}

fn set_time(what: impl AsFd, mtime: i64) -> Result<(), Problem> {
    let time = TimeSpec::new(mtime, 0);
    Ok(futimens(what, &time, &time)?)
}

fn set_opaque(folder: impl AsFd) -> Result<(), Problem> {
    fsetxattr(folder, OPAQUE, b"y", XattrFlags::empty()).map_err(|error| Problem::Io(error.into()))
}

/// Only what programs keep for themselves: `user.*`, without what overlayfs reads.
fn set_xattrs(what: impl AsFd, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Problem> {
    for (name, value) in xattrs {
        if !name.starts_with(b"user.") || name.starts_with(OVERLAY) {
            continue;
        }
        let name = OsStr::from_bytes(name);
        match fsetxattr(what.as_fd(), name, value, XattrFlags::empty()) {
            Ok(()) => {}
            // A file system has room for some of them only; ext4 a block a file.
            Err(
                rustix::io::Errno::NOSPC
                | rustix::io::Errno::TOOBIG
                | rustix::io::Errno::RANGE
                | rustix::io::Errno::INVAL,
            ) => {
                return Err(Fault::Attributes.into());
            }
            Err(error) => return Err(Problem::Io(error.into())),
        }
    }
    Ok(())
}
