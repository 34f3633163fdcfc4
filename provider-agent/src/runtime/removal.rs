//! Removing what a renter left, however it is nested: no recursion, a handful of open files, no link followed, nothing
//! outside the folder touched.
//!
//! Folders are emptied from the deepest up. What lies deeper than [`DEEPEST`] is moved up to the top first. So the way
//! from the top to where we are is always open, and the way back up is never asked for.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// A folder, and never a link to one.
const FOLDER: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Levels of folders that are open at once.
const DEEPEST: usize = 64;

/// Removes the folder at `path` with all that is in it. What is not there is removed already.
///
/// # Errors
///
/// The file system's; some of it may be gone then.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let opened = File::options().read(true).custom_flags(FOLDER.bits()).open(path);
    let top = match opened {
        Ok(top) => OwnedFd::from(top),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    make_ours(&top)?;
    let mut moved = 0_u64;
    // From the top down to the folder that is being emptied, each with its name in the one before it.
    let mut open = vec![(top, CString::default())];
    while let Some((folder, _)) = open.last() {
        let Some(name) = first_folder(folder)? else {
            let emptied = open.pop().map(|(_, name)| name).unwrap_or_default();
            if let Some((above, _)) = open.last() {
                unlinkat(above, emptied.as_c_str(), UnlinkatFlags::RemoveDir)?;
            }
            continue;
        };
        let deeper = openat(folder, name.as_c_str(), FOLDER, Mode::empty())?;
        make_ours(&deeper)?;
        if open.len() < DEEPEST {
            open.push((deeper, name));
        } else {
            lift(folder, &name, &open[0].0, &mut moved)?;
        }
    }
    fs::remove_dir(path)
}

/// Moves a folder up under a name that nothing there has.
fn lift(from: &OwnedFd, name: &CString, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        let free = CString::new(format!(".over-{moved}")).map_err(io::Error::other)?;
        match renameat(from, name.as_c_str(), top, free.as_c_str()) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Removes every file of `folder` up to the first folder in it, and names that one. `None` once it is empty.
fn first_folder(folder: &OwnedFd) -> io::Result<Option<CString>> {
    loop {
        let mut found = false;
        for entry in fs::read_dir(itself(folder))? {
            found = true;
            let name = name(&entry?.file_name())?;
            match unlinkat(folder, name.as_c_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(Errno::EISDIR) => return Ok(Some(name)),
                Err(errno) => return Err(errno.into()),
            }
        }
        // A listing that is changed while it is read may skip entries.
        if !found {
            return Ok(None);
        }
    }
}

/// Lets the owner of a folder list and change it, whatever its mode was.
fn make_ours(folder: &OwnedFd) -> io::Result<()> {
    fs::set_permissions(itself(folder), Permissions::from_mode(0o700))
}

/// A path that leads to an open folder and to no other.
fn itself(folder: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

fn name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(io::Error::other)
}

/// Where folders that are over wait for their removal, so that nobody waits for it.
#[derive(Debug)]
pub struct Bin {
    folder: PathBuf,
    wake: mpsc::Sender<()>,
}

impl Bin {
    /// Opens the bin at `folder`, and begins to remove what an earlier agent left there, on a thread of its own. What
    /// cannot be removed stays, with a warning.
    ///
    /// # Errors
    ///
    /// The file system's, if the folder cannot be made; the system's, if it gives no thread.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        let (wake, woken) = mpsc::channel();
        let bin = folder.to_owned();
        std::thread::Builder::new().name("selion-removal".into()).spawn(move || {
            let mut stuck = BTreeSet::new();
            loop {
                sweep(&bin, &mut stuck);
                if woken.recv().is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { folder: folder.to_owned(), wake })
    }

    /// Takes the folder at `path`, of the same file system: it is gone from there at once. What is not there is taken
    /// already.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn take(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for number in 0_u32.. {
            let there = self.folder.join(format!("{name}.{number}"));
            match fs::rename(path, &there) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                // A folder of that name is there still, or was removed between the two.
                Err(_) if there.symlink_metadata().is_ok() => {}
                Err(error) => return Err(error),
            }
        }
        // The thread ends only with this bin.
        let _ = self.wake.send(());
        Ok(())
    }
}

/// Removes what is in the bin but for what was found stuck before.
fn sweep(bin: &Path, stuck: &mut BTreeSet<PathBuf>) {
    let Ok(listed) = fs::read_dir(bin) else { return };
    for path in listed.flatten().map(|entry| entry.path()) {
        if stuck.contains(&path) {
            continue;
        }
        let is_folder = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        if let Err(error) = if is_folder { remove_tree(&path) } else { fs::remove_file(&path) } {
            tracing::warn!(path = %path.display(), %error, "a lease's folder cannot be removed; it stays until you remove it");
            stuck.insert(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `depth` folders, one in the other, in `top`.
    fn nest(top: &Path, depth: usize) {
        let mut at = OwnedFd::from(File::open(top).unwrap());
        for _ in 0..depth {
            nix::sys::stat::mkdirat(&at, "a", Mode::S_IRWXU).unwrap();
            at = openat(&at, "a", OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn folders_nested_deeper_than_any_stack_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir(&top).unwrap();
        nest(&top, 5_000);
        // On a small stack, and with what every distribution lets a process have open at the least.
        let small = std::thread::Builder::new().stack_size(64 << 10).spawn({
            let top = top.clone();
            move || remove_tree(&top)
        });
        small.unwrap().join().unwrap().unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn what_a_link_leads_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (top, kept) = (dir.path().join("top"), dir.path().join("kept"));
        fs::create_dir_all(top.join("in/deeper")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "mine").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        let before = (mode(&kept), mode(&kept.join("file")));
        for place in ["link", "in/link", "in/deeper/link"] {
            std::os::unix::fs::symlink(&kept, top.join(place)).unwrap();
            std::os::unix::fs::symlink(kept.join("file"), top.join(format!("{place}-to-file"))).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
        assert_eq!((mode(&kept), mode(&kept.join("file"))), before);
        std::os::unix::fs::symlink(&kept, &top).unwrap();
        assert!(remove_tree(&top).is_err(), "the folder itself is no link");
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "mine");
    }

    #[test]
    fn folders_without_rights_and_with_our_own_names_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::create_dir_all(top.join(".over-1/x/.over-2")).unwrap();
        fs::write(top.join(".over-3"), "a file").unwrap();
        fs::write(top.join("a/b/c/file"), "").unwrap();
        for path in ["a/b/c", "a/b", "a", ""] {
            fs::set_permissions(top.join(path), Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
        remove_tree(&top).unwrap();
    }

    #[test]
    fn a_bin_takes_folders_of_one_name_and_removes_what_it_finds_at_its_start() {
        let dir = tempfile::tempdir().unwrap();
        let (bin_at, lease) = (dir.path().join("bin"), dir.path().join("lease"));
        fs::create_dir_all(bin_at.join("left")).unwrap();
        let bin = Bin::open(&bin_at).unwrap();
        for _ in 0..3 {
            fs::create_dir(&lease).unwrap();
            bin.take(&lease).unwrap();
            assert!(!lease.exists());
        }
        bin.take(&lease).unwrap();
        let mut stuck = BTreeSet::new();
        sweep(&bin_at, &mut stuck);
        assert!(stuck.len() <= 4, "two sweepers may meet at one folder, and then both end");
    }
}
