//! The folders of one member.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Uid and gid of renters' processes where the agent is root: nobody.
pub const NOBODY: u32 = 65534;

/// Where a member works, reads and writes. Inside a sandbox the paths are the same as outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rooms {
    /// All of it.
    pub base: PathBuf,
    /// Working directory and `HOME`; writable, thrown away.
    pub work: PathBuf,
    /// `SELION_DATA_DIR`: datasets, read-only.
    pub data: PathBuf,
    /// `SELION_OUTPUT_DIR`: writable; what is in it at the end becomes the outputs.
    pub output: PathBuf,
    /// Mount point of the sandbox's own root; empty.
    pub root: PathBuf,
}

impl Rooms {
    /// Makes fresh, empty rooms at `base`. What was there is removed. Where the agent is root, the writable ones
    /// belong to nobody, under whom the command will run.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn make(base: &Path) -> io::Result<Self> {
        let rooms = Self::at(base);
        rooms.remove()?;
        for room in [&rooms.base, &rooms.work, &rooms.data, &rooms.output, &rooms.root] {
            fs::create_dir_all(room)?;
            fs::set_permissions(room, Permissions::from_mode(0o755))?;
        }
        if nix::unistd::geteuid().is_root() {
            for room in [&rooms.work, &rooms.output] {
                chown(room, Some(NOBODY), Some(NOBODY))?;
            }
        }
        Ok(rooms)
    }

    fn at(base: &Path) -> Self {
        Self {
            base: base.to_owned(),
            work: base.join("work"),
            data: base.join("data"),
            output: base.join("output"),
            root: base.join("root"),
        }
    }

    /// Removes rooms that an earlier agent made at `base`.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn remove_at(base: &Path) -> io::Result<()> {
        Self::at(base).remove()
    }

    /// Removes them with all that is in them.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn remove(&self) -> io::Result<()> {
        if fs::symlink_metadata(&self.base).is_err() {
            return Ok(());
        }
        // Read-only folders keep their entries from being removed by anyone but root.
        let _ = set_modes(&self.data, 0o755, 0o644);
        let _ = set_modes(&self.work, 0o755, 0o644);
        let _ = set_modes(&self.output, 0o755, 0o644);
        fs::remove_dir_all(&self.base)
    }
}

/// Makes everything under `path`, itself included, readable by all and writable by nobody.
///
/// # Errors
///
/// The file system's.
pub fn make_read_only(path: &Path) -> io::Result<()> {
    set_modes(path, 0o555, 0o444)
}

/// Sets the modes of folders and of files; leaves links alone. A folder is opened before it is entered.
fn set_modes(path: &Path, folder: u32, file: u32) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        return Ok(());
    }
    if !kind.is_dir() {
        return fs::set_permissions(path, Permissions::from_mode(file));
    }
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(path)? {
        set_modes(&entry?.path(), folder, file)?;
    }
    fs::set_permissions(path, Permissions::from_mode(folder))
}
