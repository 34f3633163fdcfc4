//! One layer, entry by entry.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::Devices;
use super::decode::decode;
use super::members::{Input, Kind, Member, Members};
use super::names::names;
use super::owners::Owners;
use super::sparse::Map;
use super::tree::{Attributes, Problem, Tree, finish_file};
use crate::Stop;
use crate::image::digest::Hashing;
use crate::image::error::{at, of_read, through};
use crate::image::limits::RATIO_FROM;
use crate::image::{Digest, Fault, ImageError, ImageLimits, shown};

const BUFFER: usize = 256 << 10;
/// Bytes of disk that an entry is reckoned to take beside its content.
const ENTRY: u64 = 4096;
/// Bytes from which on a file is sent to the disk as it is written, not at the sync of the whole.
const EAGER: u64 = 256 << 10;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE_MARK: &[u8] = b".wh..wh..opq";

/// What an image's layers amount to so far.
#[derive(Debug, Default)]
pub(in crate::image) struct Sums {
    unpacked: AtomicU64,
    entries: AtomicU64,
}

impl Sums {
    /// Adds what a layer that was unpacked before amounts to.
    pub fn add(&self, bytes: u64, entries: u64, limits: &ImageLimits) -> Result<(), ImageError> {
        add(&self.unpacked, bytes, limits.unpacked_bytes, "unpacked bytes of the image")?;
        add(&self.entries, entries, limits.entries, "entries of the image")
    }
}

fn add(sum: &AtomicU64, more: u64, limit: u64, what: &str) -> Result<(), ImageError> {
    let before = sum.fetch_add(more, Ordering::Relaxed);
    crate::image::manifest::within(before.saturating_add(more), limit, what)
}

/// What is to be unpacked, and how.
pub(in crate::image) struct Order<'a> {
    pub diff_id: Digest,
    /// Bytes of the layer as it was sent.
    pub compressed: u64,
    pub limits: &'a ImageLimits,
    pub owners: &'a Owners,
    pub devices: Devices,
    pub sums: &'a Sums,
    pub stop: &'a Stop,
    /// Told of bytes of disk before they are written.
    pub reserve: &'a mut dyn FnMut(u64) -> Result<(), ImageError>,
}

/// What became of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::image) struct Unpacked {
    /// Bytes of the archive, holes of files included.
    pub bytes: u64,
    /// Bytes of disk, reckoned.
    pub disk: u64,
    pub entries: u64,
    /// Folders that the layer writes into without an entry of their own.
    pub implicit: Vec<Vec<u8>>,
    /// Nothing of the layers below is to be seen.
    pub opaque_root: bool,
    /// The first device node or pipe that was left out.
    pub special: Option<String>,
}

/// Unpacks the layer that `source` reads into the empty folder `dest`, and verifies what its archive is. On an error
/// `dest` holds debris.
pub(in crate::image) fn unpack(source: impl Read, dest: &Path, order: &mut Order) -> Result<Unpacked, ImageError> {
    let diff_id = order.diff_id;
    let decoded = decode(source).map_err(|error| of_read(error, &diff_id))?;
    let bounded = Bounded {
        inner: decoded,
        bytes: 0,
        compressed: order.compressed,
        limits: order.limits,
        sums: order.sums,
        stop: order.stop,
    };
    let mut archive = Hashing::new(bounded);
    let root_owner = order.owners.of(0, 0).map_err(|fault| entry(&diff_id, b"/", fault))?;
    let tree = Tree::open(dest, root_owner).map_err(|problem| problem_at(&diff_id, b"/", dest, problem))?;
    let mut layer = Layer {
        members: Members::new(&mut archive, extended(order.limits)),
        tree,
        dest,
        order,
        out: Unpacked::default(),
    };
    layer.entries()?;
    let Layer { tree, mut out, .. } = layer;
    let made = tree.finish().map_err(|problem| problem_at(&diff_id, b"/", dest, problem))?;
    // What follows the archive belongs to the digest.
    io::copy(&mut archive, &mut io::sink()).map_err(|error| of_read(error, &diff_id))?;
    let (found, bounded) = archive.finish();
    out.bytes = out.bytes.saturating_add(bounded.bytes);
    if found != diff_id {
        return Err(ImageError::WrongDigest { what: "unpacked layer", wanted: diff_id, found });
    }
    out.implicit = made.implicit.into_iter().collect();
    out.opaque_root = made.opaque_root;
    Ok(out)
}

/// Most bytes of the extended headers of an entry: two paths, the attributes, and what else builders write there.
fn extended(limits: &ImageLimits) -> u64 {
    (2 * limits.path_bytes + limits.xattr_bytes + (1 << 20)) as u64
}

struct Layer<'a, 'b, R> {
    members: Members<R>,
    tree: Tree,
    dest: &'a Path,
    order: &'a mut Order<'b>,
    out: Unpacked,
}

impl<R: Input> Layer<'_, '_, R> {
    fn entries(&mut self) -> Result<(), ImageError> {
        let mut extended = 0;
        loop {
            let member = self.members.next().map_err(|error| of_read(error, &self.order.diff_id))?;
            let headers = self.members.extended - extended;
            extended = self.members.extended;
            let Some(member) = member else {
                return Ok(());
            };
            self.count(headers + 1)?;
            self.entry(&member)?;
            let implicit = self.tree.take_implicit();
            self.count(implicit)?;
        }
    }

    fn count(&mut self, entries: u64) -> Result<(), ImageError> {
        self.out.entries += entries;
        self.out.disk += entries * ENTRY;
        (self.order.reserve)(entries * ENTRY)?;
        add(&self.order.sums.entries, entries, self.order.limits.entries, "entries of the image")
    }

    /// One entry; a problem is told with the path as it is written.
    fn entry(&mut self, member: &Member) -> Result<(), ImageError> {
        match self.make(member) {
            Ok(()) => Ok(()),
            Err(Stopped::Problem(problem)) => Err(problem_at(&self.order.diff_id, &member.path, self.dest, problem)),
            Err(Stopped::Ours(error)) => Err(*error),
        }
    }

    fn make(&mut self, member: &Member) -> Result<(), Stopped> {
        let names = names(&member.path, self.order.limits)?;
        if let Some((last, above)) = names.split_last()
            && let Some(hidden) = last.as_bytes().strip_prefix(WHITEOUT)
        {
            return Ok(self.mark(above, hidden, last)?);
        }
        let bytes: usize = member.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > self.order.limits.xattr_bytes {
            return Err(Fault::Attributes.into());
        }
        let owner = self.order.owners.of(member.uid, member.gid)?;
        let attributes = Attributes { mode: member.mode, owner, mtime: member.mtime, xattrs: &member.xattrs };
        match &member.kind {
            Kind::Folder => Ok(self.tree.folder(&names, &attributes)?),
            Kind::File => self.file(&names, member, None, &attributes),
            Kind::Sparse(map) => self.file(&names, member, Some(map), &attributes),
            Kind::Symlink if member.link.len() > self.order.limits.path_bytes => Err(Fault::TooLong.into()),
            Kind::Symlink => Ok(self.tree.symlink(&names, &member.link, &attributes)?),
            Kind::Hardlink => {
                let outside = |_| Fault::LinkOutside(shown(&member.link));
                let target = self::names(&member.link, self.order.limits).map_err(outside)?;
                Ok(self.tree.hardlink(&names, &target)?)
            }
            Kind::Special if self.order.devices == Devices::Skip => {
                self.out.special.get_or_insert_with(|| shown(&member.path));
                Ok(())
            }
            Kind::Special => Err(Fault::Device.into()),
            Kind::BadSparse => Err(Fault::Sparse.into()),
            Kind::Unknown(kind) => Err(Fault::UnknownKind(*kind).into()),
        }
    }

    /// `.wh.NAME`, `.wh..wh..opq`, and other notes of file systems of old, which are left out.
    fn mark(&mut self, above: &[OsString], hidden: &[u8], whole: &OsStr) -> Result<(), Problem> {
        if whole.as_bytes() == OPAQUE_MARK {
            return self.tree.opaque(above);
        }
        if hidden.starts_with(WHITEOUT) {
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Fault::BadName.into());
        }
        let mut names = above.to_vec();
        names.push(OsString::from_vec(hidden.to_vec()));
        self.tree.whiteout(&names)
    }

    fn file(
        &mut self,
        names: &[OsString],
        member: &Member,
        map: Option<&Map>,
        attributes: &Attributes,
    ) -> Result<(), Stopped> {
        if let Some(map) = map {
            let holes = map.real_size - member.size;
            add(&self.order.sums.unpacked, holes, self.order.limits.unpacked_bytes, "unpacked bytes of the image")?;
            self.out.bytes = self.out.bytes.saturating_add(holes);
        }
        let file = self.tree.file(names)?;
        let whole = [(0, member.size)];
        for (offset, length) in map.map_or(&whole[..], |map| &map.pieces) {
            self.piece(&file, *offset, *length)?;
        }
        if let Some(map) = map {
            file.set_len(map.real_size)?;
        }
        finish_file(&file, attributes)?;
        if member.size >= EAGER {
            // Starts the disk on these pages now. Only a hint: a refusal changes nothing.
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        Ok(())
    }

    fn piece(&mut self, file: &File, mut offset: u64, length: u64) -> Result<(), Stopped> {
        let mut left = length;
        let mut buffer = vec![0; usize::try_from(left).unwrap_or(BUFFER).min(BUFFER)];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
            let count = self.members.read(&mut buffer[..most]).map_err(|error| of_read(error, &self.order.diff_id))?;
            if count == 0 {
                return Err(Fault::Sparse.into());
            }
            (self.order.reserve)(count as u64)?;
            file.write_all_at(&buffer[..count], offset)?;
            offset += count as u64;
            left -= count as u64;
            self.out.disk += count as u64;
        }
        Ok(())
    }
}

/// Why an entry was not made, or the whole is over.
enum Stopped {
    Problem(Problem),
    Ours(Box<ImageError>),
}

impl From<Problem> for Stopped {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Self {
        Self::Problem(fault.into())
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Problem(error.into())
    }
}

impl From<ImageError> for Stopped {
    fn from(error: ImageError) -> Self {
        Self::Ours(Box::new(error))
    }
}

fn entry(layer: &Digest, path: &[u8], fault: Fault) -> ImageError {
    ImageError::Entry { layer: *layer, path: shown(path), fault }
}

fn problem_at(layer: &Digest, path: &[u8], dest: &Path, problem: Problem) -> ImageError {
    match problem {
        Problem::Fault(fault) => entry(layer, path, fault),
        Problem::Io(error) => at(&dest.join(shown(path)), error),
        Problem::TooMuch(limit) => {
            ImageError::OverLimit { what: format!("bytes of folder names in layer {layer}"), limit: limit as u64 }
        }
    }
}

/// Counts an archive as it comes out of its compression, and ends it where it passes a limit or nobody waits for it.
struct Bounded<'a, R> {
    inner: R,
    bytes: u64,
    compressed: u64,
    limits: &'a ImageLimits,
    sums: &'a Sums,
    stop: &'a Stop,
}

impl<R: Read> Bounded<'_, R> {
    fn check(&mut self, count: u64) -> Result<(), ImageError> {
        self.stop.check().map_err(|_| ImageError::Stopped)?;
        self.bytes = self.bytes.saturating_add(count);
        let most = self.compressed.saturating_mul(self.limits.ratio).max(RATIO_FROM);
        if self.bytes > most {
            let what = format!("times its size that a layer of {} bytes unpacks to", self.compressed);
            return Err(ImageError::OverLimit { what, limit: self.limits.ratio });
        }
        add(&self.sums.unpacked, count, self.limits.unpacked_bytes, "unpacked bytes of the image")
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.check(count as u64).map_err(through)?;
        Ok(count)
    }
}

impl<R: Read> Input for &mut Hashing<R> {}

/// Ends a long read where nobody waits for it.
pub(in crate::image) struct Stoppable<'a, R> {
    inner: R,
    stop: &'a Stop,
}

impl<'a, R: Read> Stoppable<'a, R> {
    pub fn new(inner: R, stop: &'a Stop) -> Self {
        Self { inner, stop }
    }
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stop.check().map_err(|_| through(ImageError::Stopped))?;
        self.inner.read(buffer)
    }
}
