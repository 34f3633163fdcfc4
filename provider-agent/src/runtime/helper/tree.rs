//! A part of the machine's files, taken out of where it lies and put into a view: `open_tree(2)`, `mount_setattr(2)`,
//! `move_mount(2)`. Once it is taken out, folders above it are not looked at any more.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Nothing below is changed through it.
pub(super) const RDONLY: u64 = 0x1;
/// No program below gains rights by being executed.
pub(super) const NOSUID: u64 = 0x2;
/// No device below can be opened.
pub(super) const NODEV: u64 = 0x4;

const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;

/// A detached copy of what is mounted at a path and below it.
#[derive(Debug)]
pub(super) struct Tree(OwnedFd);

impl Tree {
    /// Takes the file or folder at `path`, with `flags` for all of it. A link is not followed.
    pub(super) fn take(path: &Path, flags: u64) -> io::Result<Self> {
        let name = text(path)?;
        let how = OPEN_TREE_CLONE | (libc::O_CLOEXEC | libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW).cast_unsigned();
        // SAFETY: the name lives through the call.
        let opened = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, name.as_ptr(), how) };
        let opened = RawFd::try_from(opened).unwrap_or(-1);
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: opened just now, for us alone.
        let tree = unsafe { OwnedFd::from_raw_fd(opened) };
        set(tree.as_raw_fd(), c"", flags, libc::AT_EMPTY_PATH | libc::AT_RECURSIVE)?;
        Ok(Self(tree))
    }

    /// Puts it in place at `to`, which exists and is of its kind.
    pub(super) fn put(&self, to: &Path) -> io::Result<()> {
        let name = text(to)?;
        // SAFETY: both names live through the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                self.0.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_FDCWD,
                name.as_ptr(),
                MOVE_MOUNT_F_EMPTY_PATH,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Adds `flags` to the one mount at `path`.
pub(super) fn restrict(path: &Path, flags: u64) -> io::Result<()> {
    set(libc::AT_FDCWD, &text(path)?, flags, 0)
}

fn set(at: RawFd, name: &std::ffi::CStr, flags: u64, how: libc::c_int) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    // Private: what is mounted on a copy would else appear on the machine as well.
    let attributes = Attributes { set: flags, clear: 0, propagation: libc::MS_PRIVATE, user_namespace: 0 };
    // SAFETY: name and attributes live through the call; the size is that of the structure.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, at, name.as_ptr(), how, &raw const attributes, size_of::<Attributes>())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}
