//! Files by name, in a folder or in a tar archive. No link leads out of either.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::beneath::Folder;
use crate::image::ImageError;
use crate::image::error::At;
use crate::image::unpack::{Input, Kind, Members};

/// Most entries of an archive of an image: it has a file a layer and a few more.
const MOST_ENTRIES: usize = 10_000;
/// Most bytes of an entry's extended headers.
const MOST_EXTENDED: u64 = 64 << 10;

/// A part of a file.
#[derive(Clone, Debug)]
pub(in crate::image) struct Region {
    file: Arc<File>,
    start: u64,
    len: u64,
}

impl Region {
    /// The whole of a file of `len` bytes.
    pub fn whole(file: File, len: u64) -> Self {
        Self { file: Arc::new(file), start: 0, len }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn reader(&self) -> impl Read {
        Reader { region: self.clone(), at: 0 }
    }

    pub fn read_all(&self, path: &Path) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        self.reader().read_to_end(&mut bytes).at(path)?;
        Ok(bytes)
    }
}

struct Reader {
    region: Region,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.region.len - self.at).unwrap_or(usize::MAX);
        let most = left.min(buffer.len());
        let count = self.region.file.read_at(&mut buffer[..most], self.region.start + self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Somewhere with files of names.
pub(super) trait Files {
    /// The regular file `name`, of parts between `/`; `None` if there is none.
    fn open(&self, name: &str) -> Result<Option<Region>, ImageError>;
}

pub(super) struct FolderFiles {
    folder: Folder,
    path: PathBuf,
}

impl FolderFiles {
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        Ok(Self { folder: Folder::open(path).at(path)?, path: path.to_owned() })
    }

    fn region(&self, name: &str) -> io::Result<Region> {
        let mut folder = self.folder.again()?;
        let mut parts = name.split('/').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                let (file, look) = folder.file(OsStr::new(part))?;
                return Ok(Region::whole(file, look.bytes));
            }
            folder = folder.folder(OsStr::new(part))?;
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Files for FolderFiles {
    fn open(&self, name: &str) -> Result<Option<Region>, ImageError> {
        match self.region(name) {
            Ok(region) => Ok(Some(region)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).at(&self.path.join(name)),
        }
    }
}

enum Entry {
    File { start: u64, len: u64 },
    Link(Vec<u8>),
}

pub(super) struct TarFiles {
    file: Arc<File>,
    entries: HashMap<Vec<u8>, Entry>,
}

impl TarFiles {
    /// Lists the archive; its data is passed over.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().ok_or(io::Error::from(io::ErrorKind::NotFound)).at(path)?;
        let (file, look) = Folder::open(parent).and_then(|folder| folder.file(name)).at(path)?;
        let mut start = [0; 4];
        if file.read_at(&mut start, 0).at(path)? >= 2
            && (start[..2] == [0x1f, 0x8b] || start == [0x28, 0xb5, 0x2f, 0xfd])
        {
            return Err(ImageError::Unsupported {
                what: "archive of an image",
                value: crate::image::shown(name.as_bytes()),
                help: "it is compressed; unpack it with gunzip or unzstd first",
            });
        }
        let file = Arc::new(file);
        let at = At0 { file: file.clone(), at: 0, len: look.bytes };
        let entries = list(at).map_err(|error| ImageError::Malformed {
            what: format!("archive {}", path.display()),
            why: error.to_string(),
        })?;
        Ok(Self { file, entries })
    }
}

fn list(input: At0) -> io::Result<HashMap<Vec<u8>, Entry>> {
    let mut members = Members::new(input, MOST_EXTENDED);
    let mut entries = HashMap::new();
    while let Some(member) = members.next()? {
        let entry = match member.kind {
            Kind::File => Entry::File { start: member.offset, len: member.size },
            // Older archives name a layer that they have already by a link.
            Kind::Symlink => Entry::Link(beside(&member.path, &member.link)),
            Kind::Hardlink => Entry::Link(member.link),
            _ => continue,
        };
        entries.insert(plain(&member.path), entry);
        if entries.len() > MOST_ENTRIES {
            return Err(io::Error::other(format!("it has more than {MOST_ENTRIES} entries")));
        }
    }
    Ok(entries)
}

impl Files for TarFiles {
    fn open(&self, name: &str) -> Result<Option<Region>, ImageError> {
        let entry = match self.entries.get(name.as_bytes()) {
            // One step: links of links are of no use here.
            Some(Entry::Link(target)) => self.entries.get(&plain(target)),
            other => other,
        };
        Ok(match entry {
            Some(Entry::File { start, len }) => Some(Region { file: self.file.clone(), start: *start, len: *len }),
            _ => None,
        })
    }
}

/// The target of a link as a path from the archive's root.
fn beside(path: &[u8], target: &[u8]) -> Vec<u8> {
    let mut whole: Vec<u8> =
        path.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |slash| &path[..slash]).to_vec();
    whole.push(b'/');
    whole.extend_from_slice(target);
    whole
}

/// A path without `.`, with `..` taken away by name: names of an archive are text, nothing is followed.
fn plain(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// A file read from its beginning, that can pass over bytes. What is beyond its end is missed when it is read.
struct At0 {
    file: Arc<File>,
    at: u64,
    len: u64,
}

impl Read for At0 {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Input for At0 {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        self.at = self.at.checked_add(count).filter(|at| *at <= self.len).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(())
    }
}
