//! What a sandboxed command sees, by a list of what is allowed: the system's programs and libraries, a small `/etc` and
//! `/dev`, processes of its own, its rooms, and what the owner shows. The machine's root is never shown.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::plan::View;
use super::tree::{self, NODEV, NOSUID, RDONLY, Tree};
use super::{Trouble, etc, ids};
use crate::runtime::masks::{MASKED, READ_ONLY};
use crate::runtime::rooms::{DATA, OUTPUT, WORK};

/// Programs and libraries, as the machine has them.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Facts of processors and memory, by which libraries choose their number of threads.
const FACTS: [&str; 2] = ["/sys/devices/system/cpu", "/sys/devices/system/node"];
/// Facts of cards, shown where the member has device nodes.
const CARDS: [&str; 3] = ["/sys/bus/pci", "/sys/module/nvidia", "/sys/module/nvidia_uvm"];
/// Device nodes that every program may expect. No terminal: a command that has one can type into its owner's shell.
const NODES: [&str; 5] = [NOTHING, "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// The device that holds nothing.
const NOTHING: &str = "/dev/null";
/// Folders of the command's own, which begin empty and end with it.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Where the new root is put together. Every source is taken out of its place before something is mounted here.
const BENCH: &str = "/tmp";

/// The parts of a view, taken out of the machine.
#[derive(Debug)]
pub(super) struct Parts {
    parts: Vec<(PathBuf, Part)>,
    hidden: Vec<PathBuf>,
}

#[derive(Debug)]
enum Part {
    Folder(Tree),
    File(Tree),
    Link(PathBuf),
    Text(Vec<u8>),
}

impl Parts {
    /// Takes them. A folder that the owner shows has to be there; of the system's, what is there is shown.
    pub(super) fn open(view: &View) -> Result<Self, Trouble> {
        let mut this = Self { parts: Vec::new(), hidden: view.hidden.clone() };
        for path in SYSTEM.iter().chain(&FACTS).chain(&etc::FOLDERS) {
            this.take(Path::new(path), RDONLY | NOSUID | NODEV)?;
        }
        this.take_named("/etc", &etc::FOLDER_NAMES)?;
        if !view.devices.is_empty() {
            for path in CARDS {
                this.take(Path::new(path), RDONLY | NOSUID | NODEV)?;
            }
            this.take_named("/sys/devices", &["pci"])?;
        }
        for path in etc::FILES {
            if let Some(text) = etc::copy(Path::new(path)) {
                this.parts.push((path.into(), Part::Text(text)));
            }
        }
        let (uid, gid) = ids::renter();
        this.parts.extend(
            etc::made(uid, gid, view.network.as_ref()).into_iter().map(|(path, text)| (path.into(), Part::Text(text))),
        );
        for node in NODES.iter().map(PathBuf::from).chain(view.devices.iter().cloned()) {
            this.take(&node, NOSUID)?;
        }
        for path in &view.shown {
            if !this.take(path, RDONLY | NOSUID | NODEV)? {
                return Err(format!("{} is to be shown to leases and is not there", path.display()));
            }
        }
        for (from, to, flags) in [
            (&view.work, WORK, NOSUID | NODEV),
            (&view.data, DATA, RDONLY | NOSUID | NODEV),
            (&view.output, OUTPUT, NOSUID | NODEV),
        ] {
            let room = Tree::take(from, flags).map_err(|error| told("take", from, &error))?;
            this.parts.push((to.into(), Part::Folder(room)));
        }
        Ok(this)
    }

    /// Takes what is at `path` to show it at the same path. False if nothing is there.
    fn take(&mut self, path: &Path, flags: u64) -> Result<bool, Trouble> {
        let kind = match path.symlink_metadata() {
            Ok(meta) => meta.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(told("look at", path, &error)),
        };
        let tree = || Tree::take(path, flags).map_err(|error| told("take", path, &error));
        let part = if kind.is_symlink() {
            Part::Link(fs::read_link(path).map_err(|error| told("read", path, &error))?)
        } else if kind.is_dir() {
            Part::Folder(tree()?)
        } else {
            Part::File(tree()?)
        };
        self.parts.push((path.to_owned(), part));
        Ok(true)
    }

    /// Takes every entry of `folder` whose name begins so.
    fn take_named(&mut self, folder: &str, names: &[&str]) -> Result<(), Trouble> {
        let Ok(listed) = fs::read_dir(folder) else { return Ok(()) };
        for entry in listed.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| names.iter().any(|beginning| name.starts_with(beginning))) {
                self.take(&entry.path(), RDONLY | NOSUID | NODEV)?;
            }
        }
        Ok(())
    }
}

/// Puts the view together and moves into it.
pub(super) fn build(parts: Parts) -> Result<(), Trouble> {
    let root = Path::new(BENCH);
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    step("make mounts private", mount(None::<&str>, "/", None::<&str>, private, None::<&str>))?;
    tmpfs(root, "mode=0755,size=32m")?;
    for (path, part) in &parts.parts {
        put(root, path, part)?;
    }
    hide(root, &parts)?;
    for folder in SCRATCH {
        let there = folder_inside(root, Path::new(folder))?;
        tmpfs(&there, "mode=1777,size=1g")?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let there = inside(root, Path::new("/dev")).join(name);
        std::os::unix::fs::symlink(target, &there).map_err(|error| told("link", &there, &error))?;
    }
    folder_inside(root, Path::new("/run"))?;
    proc(&folder_inside(root, Path::new("/proc"))?)?;
    mask(root)?;
    // Only now: all places had to be made in it.
    tree::restrict(root, RDONLY | NOSUID | NODEV).map_err(|error| told("restrict", root, &error))?;
    step("enter the view", chdir(root))?;
    step("pivot", pivot_root(".", "."))?;
    step("leave the old root", umount2(".", MntFlags::MNT_DETACH))?;
    step("enter the new root", chdir("/"))
}

fn put(root: &Path, path: &Path, part: &Part) -> Result<(), Trouble> {
    let there = inside(root, path);
    if let Some(above) = path.parent() {
        folder_inside(root, above)?;
    }
    let put = match part {
        Part::Folder(tree) => fs::create_dir_all(&there).and_then(|()| tree.put(&there)),
        Part::File(tree) => fs::write(&there, b"").and_then(|()| tree.put(&there)),
        Part::Link(target) => std::os::unix::fs::symlink(target, &there),
        Part::Text(text) => fs::write(&there, text),
    };
    put.map_err(|error| told("show", path, &error))
}

/// Covers what a folder that is shown holds of the agent's own. The rooms lie below it, and are shown elsewhere.
fn hide(root: &Path, parts: &Parts) -> Result<(), Trouble> {
    let shows = |hidden: &Path| {
        parts.parts.iter().any(|(path, part)| matches!(part, Part::Folder(_)) && hidden.starts_with(path))
    };
    for hidden in parts.hidden.iter().filter(|hidden| shows(hidden)) {
        let there = inside(root, hidden);
        match there.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {
                tmpfs(&there, "mode=0755,size=4k")?;
                tree::restrict(&there, RDONLY | NOSUID | NODEV).map_err(|error| told("restrict", hidden, &error))?;
            }
            Ok(_) => return Err(format!("{} is no folder and cannot be hidden", hidden.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(told("hide", hidden, &error)),
        }
    }
    Ok(())
}

/// The processes of the sandbox. Where the kernel refuses a new `/proc` (in some containers) it is empty: the
/// machine's own would show other people's processes.
fn proc(there: &Path) -> Result<(), Trouble> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match mount(Some("proc"), there, Some("proc"), flags, None::<&str>) {
        Ok(()) => Ok(()),
        Err(_) => tmpfs(there, "mode=0555,size=4k"),
    }
}

/// Covers the machine's own in `/proc`: folders with empty ones, files with `/dev/null`.
fn mask(root: &Path) -> Result<(), Trouble> {
    let kind = |there: &Path| there.symlink_metadata().map(|meta| meta.is_dir()).ok();
    for path in MASKED.iter().map(Path::new) {
        let there = inside(root, path);
        match kind(&there) {
            Some(true) => {
                tmpfs(&there, "mode=0555,size=4k")?;
                tree::restrict(&there, RDONLY | NOSUID | NODEV).map_err(|error| told("restrict", path, &error))?;
            }
            Some(false) => Tree::take(&inside(root, Path::new(NOTHING)), NOSUID | RDONLY)
                .and_then(|nothing| nothing.put(&there))
                .map_err(|error| told("cover", path, &error))?,
            None => {}
        }
    }
    for path in READ_ONLY.iter().map(Path::new) {
        let there = inside(root, path);
        if kind(&there).is_some() {
            Tree::take(&there, RDONLY | NOSUID | NODEV)
                .and_then(|tree| tree.put(&there))
                .map_err(|error| told("restrict", path, &error))?;
        }
    }
    Ok(())
}

fn folder_inside(root: &Path, path: &Path) -> Result<PathBuf, Trouble> {
    let there = inside(root, path);
    fs::create_dir_all(&there).map_err(|error| told("make", path, &error))?;
    Ok(there)
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn tmpfs(there: &Path, options: &str) -> Result<(), Trouble> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let made = mount(Some("tmpfs"), there, Some("tmpfs"), flags, Some(options));
    made.map_err(|errno| format!("cover {}: {errno}", there.display()))
}

fn step(what: &str, done: nix::Result<()>) -> Result<(), Trouble> {
    done.map_err(|errno| format!("{what}: {errno}"))
}

fn told(verb: &str, path: &Path, error: &io::Error) -> Trouble {
    format!("{verb} {}: {error}", path.display())
}
