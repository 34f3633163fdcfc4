//! The file view inside: the machine read-only, what is private covered, the member's rooms where they are outside.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::Trouble;
use super::plan::Plan;
use crate::runtime::bubblewrap::is_real_folder;

/// Folders that are empty inside: other people's files, and sockets that read-only mounts do not close.
const COVERED: [&str; 3] = ["/run", "/home", "/root"];
/// Folders that are the member's own inside.
const PRIVATE: [&str; 2] = ["/tmp", "/var/tmp"];
/// Device nodes that every program may expect. No terminal: a command that has one can type into its owner's shell.
const NODES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

const RDONLY: u64 = 0x1;
const NOSUID: u64 = 0x2;
const NODEV: u64 = 0x4;

/// Builds the view and moves into it; the working directory is the member's.
pub(super) fn build(plan: &Plan) -> Result<(), Trouble> {
    let root = plan.root.as_path();
    step(
        "make mounts private",
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>),
    )?;
    bind(Path::new("/"), root)?;
    set_flags(root, RDONLY | NOSUID, true)?;

    // Parents first, so that a folder inside a covered one needs no cover of its own.
    let hidden = COVERED.iter().map(PathBuf::from).chain(plan.hidden.iter().cloned());
    let mut covers: Vec<(PathBuf, bool)> = hidden.map(|folder| (folder, false)).collect();
    covers.extend(PRIVATE.iter().map(|folder| (PathBuf::from(folder), true)));
    covers.sort();
    let mut covered = Vec::new();
    for (folder, writable) in covers {
        let there = inside(root, &folder);
        if folder == Path::new("/") || !is_real_folder(&there) {
            continue;
        }
        if writable {
            tmpfs(&there, "mode=1777,size=1g")?;
        } else {
            tmpfs(&there, "mode=0755,size=1m")?;
            covered.push(there);
        }
    }
    let devices = devices(root, &plan.devices)?;
    for (room, flags) in
        [(&plan.work, NOSUID | NODEV), (&plan.data, RDONLY | NOSUID | NODEV), (&plan.output, NOSUID | NODEV)]
    {
        let there = inside(root, room);
        io_step(&there, fs::create_dir_all(&there))?;
        bind(room, &there)?;
        set_flags(&there, flags, false)?;
    }
    // Only now: places for the rooms had to be made in them.
    for cover in covered.iter().chain([&devices]) {
        set_flags(cover, RDONLY | NOSUID, false)?;
    }
    proc(&inside(root, Path::new("/proc")))?;
    step("enter the view", chdir(root))?;
    step("pivot", pivot_root(".", "."))?;
    step("leave the old root", umount2(".", MntFlags::MNT_DETACH))?;
    step("enter the working directory", chdir(&plan.work))
}

/// A small `/dev`, and its path.
fn devices(root: &Path, wanted: &[PathBuf]) -> Result<PathBuf, Trouble> {
    let dev = inside(root, Path::new("/dev"));
    tmpfs(&dev, "mode=0755,size=1m")?;
    let nodes = NODES.iter().map(|node| Path::new("/dev").join(node)).chain(wanted.iter().cloned());
    for node in nodes.filter(|node| node.exists()) {
        let there = inside(root, &node);
        if let Some(folder) = there.parent() {
            io_step(folder, fs::create_dir_all(folder))?;
        }
        io_step(&there, fs::write(&there, b""))?;
        bind(&node, &there)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let there = dev.join(name);
        io_step(&there, std::os::unix::fs::symlink(target, &there))?;
    }
    let shm = dev.join("shm");
    io_step(&shm, fs::create_dir(&shm))?;
    tmpfs(&shm, "mode=1777,size=1g")?;
    Ok(dev)
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

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn tmpfs(there: &Path, options: &str) -> Result<(), Trouble> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let made = mount(Some("tmpfs"), there, Some("tmpfs"), flags, Some(options));
    made.map_err(|errno| format!("cover {}: {errno}", there.display()))
}

fn bind(from: &Path, to: &Path) -> Result<(), Trouble> {
    let made = mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>);
    made.map_err(|errno| format!("bind {} to {}: {errno}", from.display(), to.display()))
}

/// `mount_setattr(2)`: adds `flags` to the mount at `path`, or to all below it as well.
fn set_flags(path: &Path, flags: u64, recursive: bool) -> Result<(), Trouble> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let attributes = Attributes { set: flags, clear: 0, propagation: 0, user_namespace: 0 };
    let name =
        std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path holds a zero byte".to_owned())?;
    let below = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: path and attributes live through the call; the size is that of the structure.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            name.as_ptr(),
            below,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if done == 0 {
        return Ok(());
    }
    Err(format!("restrict {}: {}", path.display(), io::Error::last_os_error()))
}

fn step(what: &str, done: nix::Result<()>) -> Result<(), Trouble> {
    done.map_err(|errno| format!("{what}: {errno}"))
}

fn io_step(path: &Path, done: io::Result<()>) -> Result<(), Trouble> {
    done.map_err(|error| format!("{}: {error}", path.display()))
}
