//! The parts of a view, taken out of the machine before anything is put together: by a list of what is allowed, the
//! system's programs and libraries or an image's layers, a small `/etc` and `/dev`, the command's rooms, and what the owner
//! shows. The machine's root is never among them.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::plan::{Root, View};
use super::secrets::Secrets;
use super::tree::{NODEV, NOSUID, RDONLY, Tree};
use super::view::{mounted, step, told};
use super::{Trouble, etc};
use selion_dataplane::image::MOUNT_OPTIONS;

use crate::runtime::rooms::{DATA, OUTPUT, WORK};

/// Programs and libraries, as the machine has them.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Facts of processors and memory, by which libraries choose their number of threads.
const FACTS: [&str; 2] = ["/sys/devices/system/cpu", "/sys/devices/system/node"];
/// Facts of cards, shown where the member has device nodes.
const CARDS: [&str; 3] = ["/sys/bus/pci", "/sys/module/nvidia", "/sys/module/nvidia_uvm"];
/// Device nodes that every program may expect. No terminal: a command that has one can type into its owner's shell.
const NODES: [&str; 5] = [super::view::NOTHING, "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Where a root file system is mounted to be taken. Every other part is taken before.
pub(super) const BENCH: &str = "/tmp";
/// Most bytes of the options of a mount; the kernel takes a page.
const OPTIONS: usize = 4_000;

/// The parts of a view.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) parts: Vec<(PathBuf, Part)>,
    pub(super) hidden: Vec<PathBuf>,
    pub(super) root: Tree,
    /// Whether the root is the command's own to write to.
    pub(super) own_root: bool,
    /// Bytes of `/dev/shm`.
    pub(super) shm_bytes: u64,
    pub(super) secrets: Secrets,
}

#[derive(Debug)]
pub(super) enum Part {
    Folder(Tree),
    File(Tree),
    Link(PathBuf),
    Text(Vec<u8>),
}

impl Parts {
    /// Takes them, in a mount namespace of this process's own. A folder that the owner shows has to be there; of the
    /// system's, what is there is shown.
    pub(super) fn open(view: &View) -> Result<Self, Trouble> {
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        step("make mounts private", mount(None::<&str>, "/", None::<&str>, private, None::<&str>))?;
        let mut taken = Taken::default();
        let own_root = matches!(view.root, Root::Layers { .. });
        if !own_root {
            taken.machine(view)?;
        }
        taken.hardware(view)?;
        for path in &view.shown {
            if !taken.take(path, RDONLY | NOSUID | NODEV)? {
                return Err(format!("{} is to be shown to leases and is not there", path.display()));
            }
        }
        for (from, to, flags) in [
            (&view.work, WORK, NOSUID | NODEV),
            (&view.data, DATA, RDONLY | NOSUID | NODEV),
            (&view.output, OUTPUT, NOSUID | NODEV),
        ] {
            let room = Tree::take(from, flags).map_err(|error| told("take", from, &error))?;
            taken.0.push((to.into(), Part::Folder(room)));
        }
        let root = root(view)?;
        Ok(Self {
            parts: taken.0,
            hidden: view.hidden.clone(),
            root,
            own_root,
            shm_bytes: view.shm_bytes,
            secrets: Secrets::of(view),
        })
    }
}

#[derive(Default)]
struct Taken(Vec<(PathBuf, Part)>);

impl Taken {
    /// The machine's programs, and an `/etc` to go with them.
    fn machine(&mut self, view: &View) -> Result<(), Trouble> {
        for path in SYSTEM.iter().chain(&etc::FOLDERS) {
            self.take(Path::new(path), RDONLY | NOSUID | NODEV)?;
        }
        self.take_named("/etc", &etc::FOLDER_NAMES)?;
        let copied = etc::FILES.iter().filter_map(|path| Some((path.into(), Part::Text(etc::copy(Path::new(path))?))));
        self.0.extend(copied);
        let person = &view.ids.person;
        let made = etc::accounts(person.uid, person.gid).into_iter();
        self.0.extend(made.map(|(path, text)| (path.into(), Part::Text(text))));
        Ok(())
    }

    /// Devices, facts of the hardware, and where names are found.
    fn hardware(&mut self, view: &View) -> Result<(), Trouble> {
        for path in FACTS {
            self.take(Path::new(path), RDONLY | NOSUID | NODEV)?;
        }
        if !view.devices.is_empty() {
            for path in CARDS {
                self.take(Path::new(path), RDONLY | NOSUID | NODEV)?;
            }
            self.take_named("/sys/devices", &["pci"])?;
        }
        for node in NODES.iter().map(PathBuf::from).chain(view.devices.iter().cloned()) {
            self.take(&node, NOSUID)?;
        }
        let made = etc::names(view.network.as_ref()).into_iter();
        self.0.extend(made.map(|(path, text)| (path.into(), Part::Text(text))));
        Ok(())
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
        self.0.push((path.to_owned(), part));
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

/// A root file system, mounted nowhere.
fn root(view: &View) -> Result<Tree, Trouble> {
    let bench = Path::new(BENCH);
    match &view.root {
        // Root is another outside than inside, where it makes files in it; an ordinary user is itself.
        Root::Machine if view.ids.uids.count > 1 => {
            let (uid, gid) = (view.ids.uids.outside, view.ids.gids.outside);
            mounted(bench, "tmpfs", &format!("mode=0755,size=32m,uid={uid},gid={gid}"))?;
        }
        Root::Machine => mounted(bench, "tmpfs", "mode=0755,size=32m")?,
        Root::Layers { lower, upper, work } => overlay(bench, lower, upper, work)?,
    }
    let taken = Tree::take(bench, NOSUID | NODEV).map_err(|error| told("take the root at", bench, &error))?;
    step("clear the bench", umount2(bench, MntFlags::MNT_DETACH))?;
    Ok(taken)
}

/// Lays folders over each other. Their paths may be long and many; by descriptors of them the options stay short.
fn overlay(at: &Path, lower: &[PathBuf], upper: &Path, work: &Path) -> Result<(), Trouble> {
    let open = |path: &PathBuf| File::open(path).map_err(|error| told("open layer", path, &error));
    let layers: Vec<File> = lower.iter().map(open).collect::<Result<_, _>>()?;
    let names: Vec<String> = layers.iter().map(|layer| format!("/proc/self/fd/{}", layer.as_raw_fd())).collect();
    let (upper, work) = (open(&upper.to_owned())?, open(&work.to_owned())?);
    let options = format!(
        "lowerdir={},upperdir=/proc/self/fd/{},workdir=/proc/self/fd/{},{MOUNT_OPTIONS}",
        names.join(":"),
        upper.as_raw_fd(),
        work.as_raw_fd()
    );
    if options.len() > OPTIONS {
        return Err(format!("the image has {} layers, more than this kernel lays over each other", lower.len()));
    }
    let done = mount(Some("overlay"), at, Some("overlay"), MsFlags::empty(), Some(options.as_str()));
    done.map_err(|errno| format!("lay the image's {} layers over each other: {errno}", lower.len()))
}
