//! The folders of one member.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use selion_api::slice::Sandbox;

use super::removal::remove_tree;

/// Where a sandboxed command finds its rooms. No path of the machine is told to it.
pub const WORK: &str = "/selion/work";
/// Its data.
pub const DATA: &str = "/selion/data";
/// Its output.
pub const OUTPUT: &str = "/selion/output";

/// Folder for what is written over an image.
const WRITTEN: &str = "written";
/// Folder in it for the files; the other is the kernel's, which keeps nothing there.
const FILES: &str = "files";

/// Levels of folders in what is made read-only: more than any dataset that the store lays out.
const DEEPEST: usize = 256;

/// Where a member works, reads and writes.
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
}

impl Rooms {
    /// Makes fresh, empty rooms at `base`. What was there is removed. They are the agent's own until a command is started
    /// in them.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn make(base: &Path) -> io::Result<Self> {
        remove_tree(base)?;
        let rooms = Self::at(base);
        for room in [&rooms.base, &rooms.work, &rooms.data, &rooms.output] {
            fs::create_dir_all(room)?;
            fs::set_permissions(room, Permissions::from_mode(0o755))?;
        }
        Ok(rooms)
    }

    /// The rooms that were made at `base`.
    #[must_use]
    pub fn at(base: &Path) -> Self {
        Self { base: base.to_owned(), work: base.join("work"), data: base.join("data"), output: base.join("output") }
    }

    /// Folders for what a command writes over its image: for the files, and for the kernel. They are made afresh.
    pub(super) fn written(&self) -> io::Result<(PathBuf, PathBuf)> {
        let folder = self.base.join(WRITTEN);
        remove_tree(&folder)?;
        let (files, kernel) = (folder.join(FILES), folder.join("kernel"));
        for path in [&folder, &files, &kernel] {
            fs::create_dir(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o755))?;
        }
        Ok((files, kernel))
    }

    /// Those that a command may write to, what it writes over its image among them: what its quota counts.
    #[must_use]
    pub fn writable(&self) -> Vec<PathBuf> {
        vec![self.work.clone(), self.output.clone(), self.base.join(WRITTEN).join(FILES)]
    }

    /// The same rooms by the paths that a command in this sandbox has for them.
    #[must_use]
    pub fn seen_in(&self, sandbox: Sandbox) -> Self {
        if sandbox == Sandbox::None {
            return self.clone();
        }
        Self { base: "/selion".into(), work: WORK.into(), data: DATA.into(), output: OUTPUT.into() }
    }
}

/// Makes everything under `path`, itself included, readable by all and writable by nobody. What could be executed still
/// can be. Links are left alone, and not followed.
///
/// # Errors
///
/// The file system's; [`io::ErrorKind::InvalidData`] where folders are nested deeper than any dataset's.
pub fn make_read_only(path: &Path) -> io::Result<()> {
    let top = File::options().read(true).custom_flags(PLACE.bits()).open(path)?;
    let mut open = vec![Level::enter(top.into())?];
    while let Some(level) = open.last_mut() {
        let Some(entry) = level.entries.next() else {
            fs::set_permissions(itself(&level.folder), Permissions::from_mode(0o555))?;
            open.pop();
            continue;
        };
        let name = entry?.file_name();
        let place = openat(&level.folder, name.as_os_str(), PLACE, Mode::empty())?;
        let mode = fstat(&place)?.st_mode;
        match SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFLNK => {}
            SFlag::S_IFDIR if open.len() >= DEEPEST => {
                let why = format!("{}: folders nested deeper than {DEEPEST}", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            SFlag::S_IFDIR => open.push(Level::enter(place)?),
            _ => {
                let mode = if mode & 0o111 == 0 { 0o444 } else { 0o555 };
                fs::set_permissions(itself(&place), Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}

/// Whatever is there, without following a link.
const PLACE: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A folder that is being walked.
struct Level {
    folder: OwnedFd,
    entries: fs::ReadDir,
}

impl Level {
    fn enter(folder: OwnedFd) -> io::Result<Self> {
        fs::set_permissions(itself(&folder), Permissions::from_mode(0o755))?;
        let entries = fs::read_dir(itself(&folder))?;
        Ok(Self { folder, entries })
    }
}

/// A path that leads to an open file or folder and to no other.
fn itself(place: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_read_only_keeps_its_programs_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (data, kept) = (dir.path().join("data"), dir.path().join("kept"));
        fs::create_dir_all(data.join("deep/er")).unwrap();
        fs::write(&kept, "").unwrap();
        fs::set_permissions(&kept, Permissions::from_mode(0o600)).unwrap();
        fs::write(data.join("deep/er/program"), "").unwrap();
        fs::set_permissions(data.join("deep/er/program"), Permissions::from_mode(0o700)).unwrap();
        fs::write(data.join("plain"), "").unwrap();
        std::os::unix::fs::symlink(&kept, data.join("deep/link")).unwrap();
        make_read_only(&data).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&data.join("deep/er/program")), 0o555);
        assert_eq!(mode(&data.join("plain")), 0o444);
        assert_eq!((mode(&data), mode(&data.join("deep/er"))), (0o555, 0o555));
        assert_eq!(mode(&kept), 0o600);
    }

    #[test]
    fn folders_nested_deeper_than_a_dataset_are_an_error_and_no_overflow() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = dir.path().join("data");
        (0..=DEEPEST).for_each(|_| at.push("a"));
        fs::create_dir_all(&at).unwrap();
        assert_eq!(make_read_only(&dir.path().join("data")).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
