//! Layers and images on disk.
//!
//! ```text
//! DIR/lock                  held by the one process that has the cache open
//! DIR/cache.json            what the cache was made for
//! DIR/work/                 what is being made or removed; emptied at each open
//! DIR/parts/HEX             a layer as it is sent, on its way; goes on where it stopped
//! DIR/layers/HEX/root/      a layer unpacked, for overlayfs; HEX is the digest of its archive
//! DIR/layers/HEX/layer.json bytes and entries; its time is that of the last use
//! DIR/layers/HEX/implicit   folders that the layer writes into without an entry of their own, each ended by NUL
//! DIR/images/HEX/config.json    the configuration; HEX is its digest, and the image's id
//! DIR/images/HEX/image.json     layers and names; its time is that of the last use
//! DIR/images/HEX/seam/      folders with the permissions that the layers below give them, if a layer has none for them
//! DIR/pins/OWNER/HEX        OWNER needs the image
//! ```
//!
//! A layer and an image appear by rename, after their bytes are on the disk: what is there is whole. The disk is believed:
//! what somebody else changes below `layers` is not found out.

mod locks;
mod part;
mod pins;
mod records;
mod room;
mod stat;
mod state;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use rustix::fs::{XattrFlags, fsetxattr};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub(super) use locks::KeyedLocks;
pub(super) use part::Part;
pub use pins::ImagePin;
pub(super) use records::Record;
pub(super) use room::Reservation;
pub use stat::{CacheStat, ImageStat};
pub(super) use state::LayerHold;
use state::State;

use super::error::{At, at};
use super::unpack::{OPAQUE, Owners};
use super::{Digest, ImageError};

/// Layers that are unpacked at a time: each keeps a core busy.
const UNPACKS: usize = 2;
const FORMAT: u32 = 1;

/// What a cache is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRules {
    /// Most bytes of disk, reckoned: what is being made included. Images that nobody holds go before it is passed.
    pub bytes: u64,
    /// Whose files images' files become. A cache keeps what it was made with.
    pub owners: Owners,
}

/// 64 GiB, everything the process's own.
impl Default for CacheRules {
    fn default() -> Self {
        Self { bytes: 64 << 30, owners: Owners::Own }
    }
}

/// Images in a folder, unpacked once, the least used removed first. Clones share it.
#[derive(Clone, Debug)]
pub struct ImageCache {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub dir: PathBuf,
    pub rules: CacheRules,
    state: Mutex<State>,
    next_work: AtomicU64,
    /// By id: who pulls an image.
    pub images: KeyedLocks,
    /// By unpacked digest: who unpacks a layer.
    pub layers: KeyedLocks,
    /// By the digest as sent: who fetches one.
    pub parts: KeyedLocks,
    pub unpacks: Arc<Semaphore>,
    _lock: Flock<File>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    format: u32,
    owners: Owners,
}

impl ImageCache {
    /// Opens the cache in `dir`, making it if it is not there. What a killed process left half made is removed.
    ///
    /// # Errors
    ///
    /// [`ImageError::InUse`]; [`ImageError::OtherCache`]; [`ImageError::UnfitDisk`] if the file system takes no layers;
    /// [`ImageError::Io`].
    pub fn open(dir: impl AsRef<Path>, rules: CacheRules) -> Result<Self, ImageError> {
        let dir = dir.as_ref();
        make_private(dir)?;
        let lock = lock(dir)?;
        for name in ["work", "parts", "layers", "images", "pins"] {
            make_private(&dir.join(name))?;
        }
        check_made(dir, &rules)?;
        let work = dir.join("work");
        empty(&work)?;
        probe(&work)?;
        let state = State::load(dir)?;
        let inner = Inner {
            dir: dir.to_owned(),
            rules,
            state: Mutex::new(state),
            next_work: AtomicU64::new(0),
            images: KeyedLocks::default(),
            layers: KeyedLocks::default(),
            parts: KeyedLocks::default(),
            unpacks: Arc::new(Semaphore::new(UNPACKS)),
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Inner {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// The folder of an unpacked layer.
    pub fn layer_root(&self, diff_id: &Digest) -> PathBuf {
        self.layer_dir(diff_id).join("root")
    }

    fn layer_dir(&self, diff_id: &Digest) -> PathBuf {
        self.dir.join("layers").join(diff_id.hex())
    }

    pub fn image_dir(&self, id: &Digest) -> PathBuf {
        self.dir.join("images").join(id.hex())
    }

    /// A name in the work folder that nobody has.
    fn work_path(&self) -> PathBuf {
        self.dir.join("work").join(self.next_work.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// An empty folder of our own, removed with all it holds unless it is moved away.
    pub fn workspace(&self) -> Result<Workspace, ImageError> {
        let path = self.work_path();
        DirBuilder::new().mode(0o700).create(&path).at(&path)?;
        Ok(Workspace(path))
    }
}

/// See [`Inner::workspace`].
pub(super) struct Workspace(PathBuf);

impl Workspace {
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Moves it to its place, for good, once all that it holds is on the disk.
    pub fn publish(self, place: &Path) -> Result<(), ImageError> {
        let folder = File::open(&self.0).at(&self.0)?;
        nix::unistd::syncfs(&folder).at(&self.0)?;
        fs::rename(&self.0, place).at(place)?;
        sync_parent(place)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // After the move there is nothing; what cannot be removed goes at the next open.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sync_parent(path: &Path) -> Result<(), ImageError> {
    let parent = path.parent().unwrap_or(path);
    File::open(parent).and_then(|parent| parent.sync_all()).at(parent)
}

/// Writes a small file whole, or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    let tmp = path.with_extension("new");
    let write = |file: &mut File| io::Write::write_all(file, bytes).and_then(|()| file.sync_all());
    File::create(&tmp).and_then(|mut file| write(&mut file)).at(&tmp)?;
    fs::rename(&tmp, path).at(path)?;
    sync_parent(path)
}

fn make_private(dir: &Path) -> Result<(), ImageError> {
    // Others have no business here: setting what is unpacked apart from other users is also what keeps a link in it from
    // being followed by their programs.
    DirBuilder::new().recursive(true).mode(0o700).create(dir).at(dir)
}

fn lock(dir: &Path) -> Result<Flock<File>, ImageError> {
    let path = dir.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path).at(&path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        Errno::EWOULDBLOCK => ImageError::InUse { path: dir.to_owned() },
        error => at(&path, error),
    })
}

fn check_made(dir: &Path, rules: &CacheRules) -> Result<(), ImageError> {
    let path = dir.join("cache.json");
    let asked = Made { format: FORMAT, owners: rules.owners.clone() };
    let text = |made: &Made| serde_json::to_string(made).unwrap_or_default();
    let there = match fs::read_to_string(&path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return write_whole(&path, text(&asked).as_bytes()),
        Err(error) => return Err(at(&path, error)),
    };
    match serde_json::from_str::<Made>(&there) {
        Ok(made) if made == asked => Ok(()),
        _ => Err(ImageError::OtherCache {
            path: dir.to_owned(),
            made: super::shown(there.as_bytes()),
            asked: text(&asked),
        }),
    }
}

fn empty(work: &Path) -> Result<(), ImageError> {
    for entry in fs::read_dir(work).at(work)? {
        let path = entry.at(work)?.path();
        let removed =
            if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.at(&path)?;
    }
    Ok(())
}

/// Tries what overlayfs needs of a layer: a device 0/0, which every user may make, and an attribute.
fn probe(work: &Path) -> Result<(), ImageError> {
    let unfit = |what, source: io::Error| ImageError::UnfitDisk { path: work.to_owned(), what, source };
    let mark = work.join("probe");
    mknod(&mark, SFlag::S_IFCHR, Mode::empty(), makedev(0, 0))
        .map_err(|error| unfit("devices with number 0/0", error.into()))?;
    fs::remove_file(&mark).at(&mark)?;
    let folder = File::open(work).at(work)?;
    fsetxattr(&folder, OPAQUE, b"n", XattrFlags::empty())
        .map_err(|error| unfit("user extended attributes", error.into()))
}
