//! The journal file: append, sync, read back. It knows framing and disks, not blocks.

use crate::{
    error::JournalError,
    frame::{self, Next},
    record::Entry,
};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

const FILE_NAME: &str = "devchain.journal";

/// An open journal, locked against other processes.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// Length of the acknowledged part, bytes.
    end: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// A write failed and could not be undone.
    Broken,
    /// The lock was given up.
    Closed,
}

impl Journal {
    /// Opens or creates the journal in `dir` and reads what it holds; empty for a new one. A torn last
    /// record is cut off with a warning.
    ///
    /// # Errors
    ///
    /// An unusable directory, another process's lock, a foreign file, or damage before the tail.
    pub(crate) fn open(dir: &Path) -> Result<(Self, Vec<Entry>), JournalError> {
        let directory = |source| JournalError::Directory { path: dir.to_owned(), source };
        fs::create_dir_all(dir).map_err(directory)?;
        let path = dir.join(FILE_NAME);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(directory)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse { path }),
            Err(TryLockError::Error(source)) => {
                return Err(JournalError::Io { path, doing: "lock", source });
            }
        }
        let mut journal = Self { file, path, end: 0, state: State::Open };
        let mut bytes = Vec::new();
        journal.file.read_to_end(&mut bytes).map_err(|source| journal.io("read", source))?;
        let entries = journal.read(&bytes)?;
        if entries.is_empty() {
            journal.begin()?;
            // The file's name must survive a power cut as well as its bytes.
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(directory)?;
        }
        Ok((journal, entries))
    }

    /// Where the journal lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds `entry` and returns once it is on the disk. On failure the file is as it was.
    pub(crate) fn append(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let path = self.path.clone();
        match self.state {
            State::Open => {}
            State::Broken => return Err(JournalError::Broken { path }),
            State::Closed => return Err(JournalError::Closed { path }),
        }
        let too_long = || self.io("write", ErrorKind::FileTooLarge.into());
        let frame = frame::frame(&entry.encode()).ok_or_else(too_long)?;
        match self.file.write_all(&frame).and_then(|()| self.file.sync_data()) {
            Ok(()) => {
                self.end += frame.len() as u64;
                Ok(())
            }
            Err(source) => {
                if self.cut_back().is_err() {
                    self.state = State::Broken;
                }
                Err(JournalError::write(&self.path, source))
            }
        }
    }

    /// Takes no more records and lets another process open the file.
    pub(crate) fn close(&mut self) -> std::io::Result<()> {
        self.state = State::Closed;
        self.file.unlock()
    }

    fn read(&mut self, bytes: &[u8]) -> Result<Vec<Entry>, JournalError> {
        let Some(mut rest) = bytes.strip_prefix(frame::MAGIC) else {
            // A start that was killed before the first sync leaves part of the magic, or zeros.
            let never_begun = frame::MAGIC.starts_with(bytes) || bytes.iter().all(|byte| *byte == 0);
            return if never_begun {
                Ok(Vec::new())
            } else {
                Err(JournalError::NotAJournal { path: self.path.clone() })
            };
        };
        let mut entries = Vec::new();
        loop {
            self.end = (bytes.len() - rest.len()) as u64;
            match frame::next(rest) {
                Next::End => break,
                Next::Torn => {
                    tracing::warn!(file = %self.path.display(), offset = self.end, bytes = rest.len(),
                        "the last record was cut short and never acknowledged; it is dropped");
                    break;
                }
                Next::Corrupt(what) => return Err(self.corrupt(what)),
                Next::Payload(payload, after) => {
                    entries.push(Entry::decode(payload).ok_or_else(|| self.corrupt("is of no known kind"))?);
                    rest = after;
                }
            }
        }
        self.cut_back().map_err(|source| self.io("cut off the torn record", source))?;
        Ok(entries)
    }

    /// Makes an empty journal of the file.
    fn begin(&mut self) -> Result<(), JournalError> {
        self.end = 0;
        let written =
            self.cut_back().and_then(|()| self.file.write_all(frame::MAGIC)).and_then(|()| self.file.sync_all());
        written.map_err(|source| JournalError::write(&self.path, source))?;
        self.end = frame::MAGIC.len() as u64;
        Ok(())
    }

    /// Drops everything after the acknowledged part.
    fn cut_back(&mut self) -> std::io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.sync_data()
    }

    fn corrupt(&self, what: &str) -> JournalError {
        JournalError::Corrupt { path: self.path.clone(), offset: self.end, what: what.to_owned() }
    }

    fn io(&self, doing: &'static str, source: std::io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), doing, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use revm::primitives::B256;

    #[test]
    fn a_full_disk_is_told_with_its_remedy_and_nothing_is_accepted_after_a_write_that_cannot_be_undone() {
        // Every write to this device says that there is no space, and it cannot be cut back.
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut journal = Journal { file, path, end: 0, state: State::Open };
        let entry = Entry { record: Record::Clock { offset: 1 }, head: B256::ZERO };
        let first = journal.append(&entry).unwrap_err();
        assert!(matches!(first, JournalError::Full { .. }), "{first}");
        assert!(first.to_string().contains("free space and send it again"), "{first}");
        assert!(matches!(journal.append(&entry), Err(JournalError::Broken { .. })));
    }

    #[test]
    fn a_write_that_fails_half_way_is_cut_back_and_the_next_one_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        let entry = Entry { record: Record::Clock { offset: 1 }, head: B256::ZERO };
        journal.append(&entry).unwrap();
        journal.file.write_all(b"half a frame").unwrap();
        journal.cut_back().unwrap();
        journal.append(&entry).unwrap();
        drop(journal);
        let (_, entries) = Journal::open(dir.path()).unwrap();
        assert_eq!(entries, [entry.clone(), entry]);
    }
}
