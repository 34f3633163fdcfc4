//! One stream of what a command prints, on its way from the supervisor to the agent: a file of fixed size, used in turn.
//!
//! ```text
//! 0      bytes ever written               by the supervisor, after the bytes
//! 8      the first byte that is kept      by the supervisor, while no agent is there
//! 16     bytes that the agent has kept, and the number of its log record after them
//! 4096   the bytes: byte N of the stream at N modulo the size
//! ```
//!
//! Its room is taken at the start, so that a disk that is full later loses nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a stream that wait for the agent: more than the longest record.
pub(in crate::runtime) const SIZE: u64 = 2 << 20;
const HEAD: u64 = 4_096;
const WRITTEN: u64 = 0;
const FIRST: u64 = 8;
const TAKEN: u64 = 16;

/// A stream. Several processes may have it open; one writes, one takes.
#[derive(Debug)]
pub(in crate::runtime) struct Ring(File);

impl Ring {
    /// Makes an empty one, with all its room.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let size = libc::off_t::try_from(HEAD + SIZE).map_err(io::Error::other)?;
        // SAFETY: no memory is passed.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size) } {
            0 => Ok(Self(file)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Opens one that was made.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn number(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Bytes ever written.
    pub(super) fn written(&self) -> io::Result<u64> {
        self.number(WRITTEN)
    }

    /// The first byte that is kept.
    pub(in crate::runtime) fn first(&self) -> io::Result<u64> {
        Ok(self.number(FIRST)?.max(self.number(TAKEN)?))
    }

    /// Bytes that the agent has kept, and the number of its log record after them.
    pub(in crate::runtime) fn taken(&self) -> io::Result<(u64, u64)> {
        Ok((self.number(TAKEN)?, self.number(TAKEN + 8)?))
    }

    /// Notes what the agent has kept: both numbers at once.
    pub(in crate::runtime) fn take(&self, bytes: u64, record: u64) -> io::Result<()> {
        let mut both = [0; 16];
        both[..8].copy_from_slice(&bytes.to_le_bytes());
        both[8..].copy_from_slice(&record.to_le_bytes());
        self.0.write_all_at(&both, TAKEN)
    }

    /// Appends as many of `bytes` as there is room for; how many.
    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.written()?;
        let room = SIZE.saturating_sub(written - self.first()?.min(written));
        let fits = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        let mut at = written;
        for part in self.parts(written, &bytes[..fits]) {
            self.0.write_all_at(part, HEAD + at % SIZE)?;
            at += part.len() as u64;
        }
        self.0.write_all_at(&at.to_le_bytes(), WRITTEN)?;
        Ok(fits)
    }

    /// Gives up the oldest, so that `bytes` more fit.
    pub(super) fn give_up(&self, bytes: usize) -> io::Result<()> {
        let first = (self.written()? + bytes as u64).saturating_sub(SIZE);
        self.0.write_all_at(&first.to_le_bytes(), FIRST)
    }

    /// Reads on from byte `at`; how much, 0 where nothing is yet.
    pub(in crate::runtime) fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let there = usize::try_from(self.written()?.saturating_sub(at)).unwrap_or(usize::MAX);
        let to_end = usize::try_from(SIZE - at % SIZE).unwrap_or(usize::MAX);
        let most = there.min(to_end).min(into.len());
        self.0.read_exact_at(&mut into[..most], HEAD + at % SIZE)?;
        Ok(most)
    }

    /// `bytes` up to the end of the file's room, and those from its beginning on.
    fn parts<'a>(&self, at: u64, bytes: &'a [u8]) -> [&'a [u8]; 2] {
        let to_end = usize::try_from(SIZE - at % SIZE).unwrap_or(usize::MAX);
        let (left, right) = bytes.split_at(to_end.min(bytes.len()));
        [left, right]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (tempfile::TempDir, Ring) {
        let dir = tempfile::tempdir().unwrap();
        let ring = Ring::make(&dir.path().join("ring")).unwrap();
        (dir, ring)
    }

    fn read(ring: &Ring, mut at: u64) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match ring.read(at, &mut buffer).unwrap() {
                0 => return all,
                read => {
                    all.extend_from_slice(&buffer[..read]);
                    at += read as u64;
                }
            }
        }
    }

    #[test]
    fn what_was_taken_makes_room_and_every_byte_comes_in_order_round_the_end() {
        let (dir, ring) = ring();
        let bytes: Vec<u8> = (0..3 * SIZE).map(|n| (n % 251) as u8).collect();
        let (mut written, mut seen) = (0, Vec::new());
        while written < bytes.len() {
            let took = ring.append(&bytes[written..]).unwrap();
            assert!(took > 0 && took as u64 <= SIZE);
            if written + took < bytes.len() {
                assert_eq!(ring.append(&[1]).unwrap(), 0, "no room is left");
            }
            written += took;
            let other = Ring::open(&dir.path().join("ring")).unwrap();
            seen.extend(read(&other, seen.len() as u64));
            // All but a few bytes: the next round begins anywhere.
            other.take(seen.len() as u64 - 7, 3).unwrap();
        }
        assert!(seen == bytes, "a byte is missing, there twice or out of order");
        assert_eq!(ring.taken().unwrap(), (seen.len() as u64 - 7, 3));
    }

    #[test]
    fn without_an_agent_the_newest_stays_and_where_it_begins_is_known() {
        let (_dir, ring) = ring();
        let full = vec![b'a'; SIZE as usize];
        assert_eq!(ring.append(&full).unwrap(), full.len());
        assert_eq!(ring.append(b"new").unwrap(), 0);
        ring.give_up(3).unwrap();
        assert_eq!((ring.append(b"new").unwrap(), ring.first().unwrap()), (3, 3));
        let kept = read(&ring, 3);
        assert_eq!((kept.len(), &kept[kept.len() - 4..]), (full.len(), &b"anew"[..]));
    }
}
