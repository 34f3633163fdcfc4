//! The entries of a tar archive, one after the other, with what may precede each bounded.
//!
//! The fields of a header are read by the `tar` crate. Its own iteration holds extended headers of any length in memory
//! and does not take a newline in their values, so that part is here.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::pax::Pax;
use super::sparse::Map;

const BLOCK: u64 = 512;

/// Something to read that may know a quicker way past bytes than reading them.
pub(in crate::image) trait Input: Read {
    fn skip(&mut self, count: u64) -> io::Result<()>
    where
        Self: Sized,
    {
        let skipped = io::copy(&mut self.by_ref().take(count), &mut io::sink())?;
        if skipped < count { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl Input for Box<dyn Read + '_> {}
impl Input for &[u8] {}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::image) enum Kind {
    File,
    /// A file with holes.
    Sparse(Map),
    Folder,
    Symlink,
    Hardlink,
    /// A device or pipe.
    Special,
    /// A file whose sparse map contradicts itself.
    BadSparse,
    /// What this program does not know, by its letter.
    Unknown(u8),
}

/// One entry.
#[derive(Clone, Debug)]
pub(in crate::image) struct Member {
    pub path: Vec<u8>,
    pub kind: Kind,
    /// Permissions and what raises privileges: the lowest twelve bits.
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    /// Seconds since 1970.
    pub mtime: i64,
    /// Bytes of data in the archive.
    pub size: u64,
    /// Where the data begins in the archive.
    pub offset: u64,
    pub link: Vec<u8>,
    /// Names and values of extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads an archive.
pub(in crate::image) struct Members<R> {
    input: R,
    /// Bytes read so far.
    at: u64,
    /// Data of the current entry not yet read.
    left: u64,
    /// Bytes after it that fill its last block.
    padding: u64,
    /// Most bytes of the extended headers of one entry.
    most_extended: u64,
    /// Extended headers read.
    pub extended: u64,
}

/// What came before an entry and is about it.
#[derive(Default)]
struct Before {
    pax: Option<Pax>,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    bytes: u64,
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("tar: {why}"))
}

impl<R: Input> Members<R> {
    pub fn new(input: R, most_extended: u64) -> Self {
        Self { input, at: 0, left: 0, padding: 0, most_extended, extended: 0 }
    }

    /// The next entry; `None` at the end of the archive. What was not read of the last one is skipped.
    pub fn next(&mut self) -> io::Result<Option<Member>> {
        let mut before = Before::default();
        loop {
            let rest = self.left + self.padding;
            if rest > 0 {
                self.input.skip(rest)?;
                self.at += rest;
                (self.left, self.padding) = (0, 0);
            }
            let Some(header) = self.header()? else {
                let nothing = before.pax.is_none() && before.path.is_none() && before.link.is_none();
                return if nothing { Ok(None) } else { Err(malformed("it ends after an extended header")) };
            };
            match header.entry_type() {
                EntryType::XGlobalHeader => drop(self.extension(&header, &mut before)?),
                EntryType::XHeader => {
                    let bytes = self.extension(&header, &mut before)?;
                    before.pax = Some(Pax::read(&bytes).ok_or_else(|| malformed("a bad extended header"))?);
                }
                EntryType::GNULongName => before.path = Some(until_nul(self.extension(&header, &mut before)?)),
                EntryType::GNULongLink => before.link = Some(until_nul(self.extension(&header, &mut before)?)),
                _ => return self.member(&header, before).map(Some),
            }
        }
    }

    /// Reads the current entry's data into `buffer`; 0 at its end.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }

    /// The next header; `None` at a block of zeros, or where the input ends between two entries.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let bytes = header.as_mut_bytes();
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        self.at += BLOCK;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let others = bytes[..148].iter().chain(&bytes[156..]);
        let sum = others.map(|byte| u32::from(*byte)).sum::<u32>() + 8 * u32::from(b' ');
        if header.cksum()? != sum {
            return Err(malformed("a header's checksum is wrong"));
        }
        Ok(Some(header))
    }

    fn extension(&mut self, header: &Header, before: &mut Before) -> io::Result<Vec<u8>> {
        let size = header.entry_size()?;
        before.bytes = before.bytes.saturating_add(size).saturating_add(BLOCK);
        if before.bytes > self.most_extended {
            return Err(malformed("an extended header is too long"));
        }
        self.extended += 1;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        self.input.read_exact(&mut bytes)?;
        self.at += size;
        self.padding = fill(size);
        Ok(bytes)
    }

    fn member(&mut self, header: &Header, before: Before) -> io::Result<Member> {
        let Before { pax, path, link, .. } = before;
        let pax = pax.unwrap_or_default();
        let sparse_name = pax.sparse.name.clone();
        let mut member = Member {
            path: sparse_name.or(path).or(pax.path.clone()).unwrap_or_else(|| header.path_bytes().into_owned()),
            kind: Kind::File,
            mode: header.mode()? & 0o7777,
            uid: pax.uid.map_or_else(|| header.uid(), Ok)?,
            gid: pax.gid.map_or_else(|| header.gid(), Ok)?,
            mtime: pax.mtime.unwrap_or_else(|| header.mtime().ok().and_then(|time| time.try_into().ok()).unwrap_or(0)),
            size: pax.size.map_or_else(|| header.entry_size(), Ok)?,
            offset: self.at,
            link: link
                .or(pax.link.clone())
                .unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned()),
            xattrs: pax.xattrs.clone(),
        };
        member.kind = kind_of(header, &member.path);
        if !matches!(member.kind, Kind::File | Kind::Unknown(_)) {
            // Whatever they say, these have no data.
            member.size = 0;
        }
        (self.left, self.padding) = (member.size, fill(member.size));
        self.holes(header, &pax, &mut member)?;
        Ok(member)
    }

    /// Finds out whether a file has holes, and where.
    fn holes(&mut self, header: &Header, pax: &Pax, member: &mut Member) -> io::Result<()> {
        let sparse = &pax.sparse;
        let map = match (&member.kind, header.as_gnu()) {
            (Kind::Unknown(b'S'), Some(gnu)) => {
                let before = self.at;
                let map = Map::old(gnu, member.size, &mut Counting { input: &mut self.input, at: &mut self.at })?;
                member.offset += self.at - before;
                map
            }
            (Kind::File, _) if sparse.version == Some((1, 0)) => {
                let counting = &mut Counting { input: &mut self.input, at: &mut self.at };
                let found = Map::leading(sparse, member.size, counting)?;
                found.map(|(map, read)| {
                    self.left -= read;
                    member.size -= read;
                    member.offset += read;
                    map
                })
            }
            (Kind::File, _) if sparse.map.is_some() => Map::listed(sparse, member.size),
            (Kind::File, _) if sparse.oldest || sparse.version.is_some() => None,
            _ => return Ok(()),
        };
        member.kind = map.map_or(Kind::BadSparse, Kind::Sparse);
        Ok(())
    }
}

struct Counting<'a, R> {
    input: &'a mut R,
    at: &'a mut u64,
}

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        *self.at += count as u64;
        Ok(count)
    }
}

fn kind_of(header: &Header, path: &[u8]) -> Kind {
    match header.entry_type() {
        // Of old, a folder was a file whose name ends so.
        EntryType::Regular if header.as_bytes()[156] == 0 && path.ends_with(b"/") => Kind::Folder,
        EntryType::Regular | EntryType::Continuous => Kind::File,
        EntryType::Directory => Kind::Folder,
        EntryType::Symlink => Kind::Symlink,
        EntryType::Link => Kind::Hardlink,
        EntryType::Char | EntryType::Block | EntryType::Fifo => Kind::Special,
        other => Kind::Unknown(other.as_byte()),
    }
}

fn fill(size: u64) -> u64 {
    (BLOCK - size % BLOCK) % BLOCK
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}
