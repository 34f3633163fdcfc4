//! Reading below a folder while somebody else may change it.
//!
//! A path is resolved anew at each use, so a program that swaps a folder for a link between two uses chooses what is
//! read. Here a folder is a descriptor, and everything below it is opened from its parent's descriptor by one name,
//! which is never followed if it is a link. One name without `/` has no other way out than a link or `..`, so this is
//! what `openat2` calls `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`, on any kernel and under any system call filter.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

/// What a name in a folder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Pipe,
    /// A unix socket.
    Socket,
    /// A device, or what this program does not know.
    Device,
}

/// What a name stands for, and its permission bits (`rwxrwxrwx`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The kind.
    pub kind: Kind,
    /// The lowest nine bits of the mode.
    pub mode: u32,
    /// Bytes of a file.
    pub bytes: u64,
}

/// An open folder. Holds one descriptor.
#[derive(Debug)]
pub struct Folder(File);

impl Folder {
    /// Opens the folder at `path`. The last part of the path is not followed if it is a link; the parts before it are
    /// the caller's to trust.
    ///
    /// # Errors
    ///
    /// The system's; `ENOTDIR` for anything that is no folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self(File::from(nix::fcntl::open(path, flags, Mode::empty())?)))
    }

    /// The same folder once more.
    ///
    /// # Errors
    ///
    /// The system's: no descriptor left.
    pub fn again(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// What `name` stands for, links not followed.
    ///
    /// # Errors
    ///
    /// The system's; [`io::ErrorKind::InvalidInput`] for a name that is not one name.
    pub fn look(&self, name: &OsStr) -> io::Result<Look> {
        let name = single(name)?;
        Ok(seen(&fstatat(&self.0, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?))
    }

    /// Opens the folder `name` in this one.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look); `ENOTDIR` if it is no folder, a link to one included.
    pub fn folder(&self, name: &OsStr) -> io::Result<Self> {
        self.open_one(name, OFlag::O_DIRECTORY).map(Self)
    }

    /// Opens the file `name` for reading, and says what was opened. Never waits: a pipe opens at once.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look); `ELOOP` for a link; [`io::ErrorKind::InvalidInput`] if it is no regular file.
    pub fn file(&self, name: &OsStr) -> io::Result<(File, Look)> {
        let file = self.open_one(name, OFlag::O_NONBLOCK | OFlag::O_NOCTTY)?;
        let look = seen(&fstat(&file)?);
        if look.kind != Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        Ok((file, look))
    }

    /// The target of the link `name`.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look); `EINVAL` if it is no link.
    pub fn link(&self, name: &OsStr) -> io::Result<OsString> {
        let name = single(name)?;
        Ok(readlinkat(&self.0, name.as_c_str())?)
    }

    /// The names in the folder, in no order, at most `most`; and whether there are more.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn names(&self, most: usize) -> io::Result<(Vec<OsString>, bool)> {
        // A second descriptor for the time of the listing: `Dir` closes its own.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut dir = Dir::openat(&self.0, c".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry?;
            let name: &CStr = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if names.len() >= most {
                return Ok((names, true));
            }
            names.push(OsStr::from_bytes(name.to_bytes()).to_owned());
        }
        Ok((names, false))
    }

    /// What the folder itself is.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn itself(&self) -> io::Result<Look> {
        Ok(seen(&fstat(&self.0)?))
    }

    fn open_one(&self, name: &OsStr, flags: OFlag) -> io::Result<File> {
        let name = single(name)?;
        let flags = flags | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.0, name.as_c_str(), flags, Mode::empty())?))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One name: what could lead anywhere else is refused.
fn single(name: &OsStr) -> io::Result<CString> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a single name"));
    }
    CString::new(bytes).map_err(io::Error::from)
}

fn seen(stat: &FileStat) -> Look {
    let kind = match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFDIR => Kind::Folder,
        SFlag::S_IFLNK => Kind::Link,
        SFlag::S_IFIFO => Kind::Pipe,
        SFlag::S_IFSOCK => Kind::Socket,
        _ => Kind::Device,
    };
    Look { kind, mode: stat.st_mode & 0o777, bytes: u64::try_from(stat.st_size).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("link")).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        for name in ["", ".", "..", "in/..", "/etc", "link"] {
            assert!(folder.folder(OsStr::new(name)).is_err(), "{name:?}");
        }
        assert!(folder.folder(OsStr::new("in")).is_ok());
        assert!(Folder::open(&dir.path().join("link")).is_err());
        assert_eq!(folder.look(OsStr::new("link")).unwrap().kind, Kind::Link);
    }

    #[test]
    fn a_pipe_is_opened_without_waiting_and_refused() {
        let dir = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&dir.path().join("pipe"), Mode::S_IRWXU).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert!(folder.file(OsStr::new("pipe")).is_err());
    }

    #[test]
    fn names_are_read_up_to_a_bound_and_again() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(dir.path().join(name), b"").unwrap();
        }
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(folder.names(2).unwrap().0.len(), 2);
        assert!(folder.names(2).unwrap().1);
        assert_eq!((folder.names(3).unwrap().0.len(), folder.names(3).unwrap().1), (3, false));
    }
}
