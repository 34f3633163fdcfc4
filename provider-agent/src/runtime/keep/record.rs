//! What a supervisor writes down of its box, in a file whose room is taken at the start: a full disk keeps no exit code from
//! being noted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Bytes of the file.
const SIZE: usize = 512;

/// A box by its supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::runtime) struct Record {
    /// Version of the words between agent and supervisor.
    pub(in crate::runtime) version: u16,
    /// The supervisor.
    pub(super) supervisor: i32,
    /// The machine's life in which it runs.
    pub(super) boot: String,
    /// When the command began, by the clock of [`clock`](super::clock); `None` before that.
    pub(in crate::runtime) began_ms: Option<u64>,
    /// The helper, of which all processes of the box descend.
    pub(in crate::runtime) head: i32,
    /// How long it may run, in milliseconds; without a bound before an agent says so.
    pub(in crate::runtime) run_ms: Option<u64>,
    /// How it ended.
    pub(in crate::runtime) ended: Option<Ended>,
}

impl Record {
    /// The machine's life in which it ran.
    pub(in crate::runtime) fn boot(&self) -> &str {
        &self.boot
    }
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::runtime) struct Ended {
    /// Exit code; 128 + n for signal n.
    pub(in crate::runtime) code: i32,
    /// How long it ran, in milliseconds.
    pub(in crate::runtime) ran_ms: u64,
    /// Why.
    pub(in crate::runtime) why: Why,
}

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// By itself.
    Itself,
    /// The agent asked for it.
    Asked,
    /// Its time was up.
    Time,
    /// No agent was there for too long.
    Alone,
}

/// The file of a [`Record`].
#[derive(Debug)]
pub(super) struct Page(File);

impl Page {
    /// Makes it, and takes its room.
    pub(super) fn make(path: &Path, record: &Record) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let page = Self(file);
        page.write(record)?;
        Ok(page)
    }

    /// Writes over what was there.
    pub(super) fn write(&self, record: &Record) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(record)?;
        if bytes.len() > SIZE {
            return Err(io::Error::other("the record of a box is too long"));
        }
        bytes.resize(SIZE, b' ');
        self.0.write_all_at(&bytes, 0)
    }

    /// What stands there; `None` if that is no record.
    pub(super) fn read(path: &Path) -> Option<Record> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}
