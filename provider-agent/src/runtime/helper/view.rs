//! What a sandboxed command sees, put together of [`Parts`]. Nothing is put anywhere before the machine's own files are out
//! of reach, so no link that an image has leads to them.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::Trouble;
use super::parts::{BENCH, Part, Parts};
use super::tree::{self, NODEV, NOSUID, RDONLY, Tree};
use crate::runtime::ids::Ids;
use crate::runtime::masks::{MASKED, READ_ONLY};

/// The device that holds nothing.
pub(super) const NOTHING: &str = "/dev/null";
/// Folders of the command's own beside a root that it cannot write to; they begin empty and end with it.
const SCRATCH: [&str; 2] = ["/tmp", "/var/tmp"];

/// Puts the view together and moves into it.
pub(super) fn build(parts: &Parts) -> Result<(), Trouble> {
    let bench = Path::new(BENCH);
    let proc = proc(bench)?;
    parts.root.put(bench).map_err(|error| told("put the root at", bench, &error))?;
    step("enter the view", chdir(bench))?;
    step("pivot", pivot_root(".", "."))?;
    step("leave the old root", umount2(".", MntFlags::MNT_DETACH))?;
    step("enter the new root", chdir("/"))?;
    fill(parts, &proc)?;
    if !parts.own_root {
        // Only now: all places had to be made in it.
        tree::restrict(Path::new("/"), RDONLY | NOSUID | NODEV)
            .map_err(|error| told("restrict", Path::new("/"), &error))?;
    }
    Ok(())
}

/// Fills the root that this process is in.
fn fill(parts: &Parts, proc: &Tree) -> Result<(), Trouble> {
    for (path, size) in [("/dev", "mode=0755,size=64k"), ("/sys", "mode=0755,size=64k")] {
        mounted(&folder(Path::new(path))?, "tmpfs", size)?;
    }
    for (path, part) in &parts.parts {
        put(path, part)?;
    }
    hide(parts)?;
    // Nothing is no size: it would be half of the machine's memory.
    mounted(&folder(Path::new("/dev/shm"))?, "tmpfs", &format!("mode=1777,size={}", parts.shm_bytes.max(1)))?;
    for path in SCRATCH.map(Path::new) {
        if !parts.own_root {
            mounted(&folder(path)?, "tmpfs", "mode=1777,size=1g")?;
        } else if path.symlink_metadata().is_err() {
            let open = fs::Permissions::from_mode(0o1777);
            fs::set_permissions(folder(path)?, open).map_err(|error| told("open", path, &error))?;
        }
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let there = Path::new("/dev").join(name);
        std::os::unix::fs::symlink(target, &there).map_err(|error| told("link", &there, &error))?;
    }
    folder(Path::new("/run"))?;
    parts.secrets.put()?;
    let there = folder(Path::new("/proc"))?;
    proc.put(&there).map_err(|error| told("show", &there, &error))?;
    mask()?;
    for path in ["/sys", "/dev"].map(Path::new) {
        tree::restrict(path, RDONLY | NOSUID).map_err(|error| told("restrict", path, &error))?;
    }
    Ok(())
}

/// Makes the folder in which the command starts, if it is not there, and gives it to the command. Links are the image's own.
pub(super) fn working_directory(path: &Path, ids: &Ids) -> Result<(), Trouble> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|error| told("make", path, &error))?;
    let (uid, gid) = (ids.person.uid, ids.person.gid);
    chown(path, Some(uid), Some(gid)).map_err(|error| told("give away", path, &error))
}

fn put(path: &Path, part: &Part) -> Result<(), Trouble> {
    if let Some(above) = path.parent() {
        folder(above)?;
    }
    match part {
        Part::Folder(tree) => {
            folder(path).map(|_| ()).and_then(|()| tree.put(path).map_err(|error| told("show", path, &error)))
        }
        Part::File(tree) => afresh(path, b"").and_then(|()| tree.put(path)).map_err(|error| told("show", path, &error)),
        Part::Link(target) => std::os::unix::fs::symlink(target, path).map_err(|error| told("show", path, &error)),
        Part::Text(text) => afresh(path, text).map_err(|error| told("write", path, &error)),
    }
}

/// Writes a file in the place of whatever is there, a link included.
fn afresh(path: &Path, text: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::write(path, text)
}

/// A folder in the view, made if it is not there. What an image has in its way is an error: what the box puts there would
/// else come to lie elsewhere.
pub(super) fn folder(path: &Path) -> Result<PathBuf, Trouble> {
    let mut at = PathBuf::from("/");
    for part in path.components() {
        let Component::Normal(name) = part else { continue };
        at.push(name);
        match at.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => {
                return Err(format!(
                    "{} of the root is no folder, and {} is to be shown",
                    at.display(),
                    path.display()
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir(&at).map_err(|error| told("make", &at, &error))?;
                // Whatever the mask of new files: others have to pass.
                let open = fs::Permissions::from_mode(0o755);
                fs::set_permissions(&at, open).map_err(|error| told("open", &at, &error))?;
            }
            Err(error) => return Err(told("look at", &at, &error)),
        }
    }
    Ok(at)
}

/// Covers what a folder that is shown holds of the agent's own. The rooms lie below it, and are shown elsewhere.
fn hide(parts: &Parts) -> Result<(), Trouble> {
    let shows = |hidden: &Path| {
        parts.parts.iter().any(|(path, part)| matches!(part, Part::Folder(_)) && hidden.starts_with(path))
    };
    for hidden in parts.hidden.iter().filter(|hidden| shows(hidden)) {
        match hidden.symlink_metadata() {
            Ok(meta) if meta.is_dir() => cover(hidden, "mode=0755,size=4k")?,
            Ok(_) => return Err(format!("{} is no folder and cannot be hidden", hidden.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(told("hide", hidden, &error)),
        }
    }
    Ok(())
}

/// The processes of the sandbox, mounted nowhere. Where the kernel refuses a new `/proc` (in some containers) it is empty:
/// the machine's own would show other people's processes. Made while the machine's own is still in sight, which is what the
/// kernel asks for.
fn proc(bench: &Path) -> Result<Tree, Trouble> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if mount(Some("proc"), bench, Some("proc"), flags, None::<&str>).is_err() {
        mounted(bench, "tmpfs", "mode=0555,size=4k")?;
    }
    let taken = Tree::take(bench, NOSUID | NODEV).map_err(|error| told("take", Path::new("/proc"), &error))?;
    step("clear the bench", umount2(bench, MntFlags::MNT_DETACH))?;
    Ok(taken)
}

/// Covers the machine's own in `/proc`: folders with empty ones, files with `/dev/null`.
fn mask() -> Result<(), Trouble> {
    let kind = |there: &Path| there.symlink_metadata().map(|meta| meta.is_dir()).ok();
    for path in MASKED.iter().map(Path::new) {
        match kind(path) {
            Some(true) => cover(path, "mode=0555,size=4k")?,
            Some(false) => Tree::take(Path::new(NOTHING), NOSUID | RDONLY)
                .and_then(|nothing| nothing.put(path))
                .map_err(|error| told("cover", path, &error))?,
            None => {}
        }
    }
    for path in READ_ONLY.iter().map(Path::new) {
        if kind(path).is_some() {
            Tree::take(path, RDONLY | NOSUID | NODEV)
                .and_then(|tree| tree.put(path))
                .map_err(|error| told("restrict", path, &error))?;
        }
    }
    Ok(())
}

fn cover(path: &Path, options: &str) -> Result<(), Trouble> {
    mounted(path, "tmpfs", options)?;
    tree::restrict(path, RDONLY | NOSUID | NODEV).map_err(|error| told("restrict", path, &error))
}

/// Mounts a file system of the kernel's.
pub(super) fn mounted(there: &Path, kind: &str, options: &str) -> Result<(), Trouble> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let made = mount(Some(kind), there, Some(kind), flags, Some(options));
    made.map_err(|errno| format!("mount {kind} at {}: {errno}", there.display()))
}

pub(super) fn step(what: &str, done: nix::Result<()>) -> Result<(), Trouble> {
    done.map_err(|errno| format!("{what}: {errno}"))
}

pub(super) fn told(verb: &str, path: &Path, error: &io::Error) -> Trouble {
    format!("{verb} {}: {error}", path.display())
}
