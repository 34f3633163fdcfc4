//! Frames on disk: length, checksum, bytes. A torn tail, as a crash leaves it, is cut off at the next start.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Largest frame in bytes; a longer length can only be damage.
const MAX_FRAME: usize = 2 << 20;

/// An append-only file of frames.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    /// Bytes in the file.
    pub(super) len: u64,
}

impl Journal {
    /// Opens or makes the file at `path`; gives every whole frame. Bytes after the last whole frame are removed.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<Vec<u8>>)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (frames, good) = parse(&bytes);
        if good < bytes.len() {
            file.set_len(good as u64)?;
            file.sync_all()?;
        }
        file.seek(SeekFrom::Start(good as u64))?;
        let journal = Self { file, len: good as u64 };
        Ok((journal, frames))
    }

    /// Every whole frame of the file at `path`, which stays as it is.
    pub(super) fn look(path: &Path) -> io::Result<Vec<Vec<u8>>> {
        Ok(parse(&std::fs::read(path)?).0)
    }

    /// Adds frames; on return they survive a power cut.
    pub(super) fn append(&mut self, frames: &[Vec<u8>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for frame in frames {
            if frame.len() > MAX_FRAME {
                return Err(io::Error::other(format!("a frame of {} bytes is too long", frame.len())));
            }
            bytes.extend((frame.len() as u32).to_le_bytes());
            bytes.extend(checksum(frame));
            bytes.extend(frame);
        }
        // A write that failed half way (a full disk) must not leave its torn half in front of the next frame.
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.file.set_len(self.len)?;
            self.file.seek(SeekFrom::Start(self.len))?;
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }
}

/// The whole frames at the beginning of `bytes`, and where they end.
fn parse(bytes: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let (mut frames, mut at) = (Vec::new(), 0);
    while let Some((header, rest)) = bytes[at..].split_at_checked(8) {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(frame) = rest.get(..length).filter(|_| length <= MAX_FRAME) else {
            break;
        };
        if checksum(frame) != header[4..] {
            break;
        }
        frames.push(frame.to_vec());
        at += 8 + length;
    }
    (frames, at)
}

/// The first four bytes of SHA-256.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let hash: [u8; 32] = Sha256::digest(bytes).into();
    [hash[0], hash[1], hash[2], hash[3]]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn frames() -> Vec<Vec<u8>> {
        vec![b"one".to_vec(), vec![], b"three".to_vec()]
    }

    #[test]
    fn a_tail_torn_at_any_byte_costs_only_the_last_frame() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(&frames()[..2]).unwrap();
        let whole = journal.len;
        journal.append(&frames()[2..]).unwrap();
        let bytes = fs::read(&path).unwrap();
        for cut in whole as usize..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let (mut journal, found) = Journal::open(&path).unwrap();
            assert_eq!(found, frames()[..2], "cut at {cut}");
            journal.append(&frames()[2..]).unwrap();
            drop(journal);
            assert_eq!(Journal::open(&path).unwrap().1, frames(), "written again after {cut}");
        }
    }

    #[test]
    fn a_flipped_byte_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        Journal::open(&path).unwrap().0.append(&frames()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(Journal::open(&path).unwrap().1, frames()[..2]);
    }
}
