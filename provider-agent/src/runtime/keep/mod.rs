//! The supervisor of a box: a process that stands between the agent and the helper, and outlives the agent.
//!
//! ```text
//! agent ··socket·· supervisor ── helper ── ...        the box
//!                      └ files in the lease's folder: lock, record, two streams of output
//! ```
//!
//! It is in a session of its own and in none of the lease's groups. It holds the box, what that prints, its clock and its
//! bounds: how long the lease may run, and how long no agent may be there. Whoever has the lock of a lease's folder decides
//! what becomes of it: a supervisor holds it as long as it lives, and an agent that got it knows that nothing runs there,
//! and that nothing will. `docs/adr/0039-commands-outlive-their-agent.md`.

pub(crate) mod clock;
mod lock;
mod record;
mod ring;
mod serve;

pub use lock::Lock;
pub(super) use lock::{Locked, lock};
pub(super) use record::Record;
pub use record::Why;
pub(super) use ring::Ring;
pub(super) use serve::main;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::helper::Plan;

/// Version of the words between agent and supervisor, and of its files.
pub(super) const VERSION: u16 = 1;
/// The word after the hidden subcommand that makes a supervisor.
pub(super) const KEEP: &str = "keep";
/// The word after it that asks for [`VERSION`].
pub(super) const SPEAKS: &str = "speaks";

/// File of the socket, in the lease's folder.
const SOCKET: &str = "box";
/// File of the record.
const RECORD: &str = "record";
/// Files of the streams.
const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// What a supervisor is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// [`VERSION`] of the agent.
    pub(super) version: u16,
    /// The lease's folder.
    pub(super) base: PathBuf,
    /// The binary of the helper.
    pub(super) helper: PathBuf,
    /// What the helper is told; the supervisor fills in itself.
    pub(super) plan: Plan,
    /// Control groups for the helper.
    pub(super) groups: Vec<PathBuf>,
    /// How long a stopped command may take before it is killed.
    pub(super) grace_ms: u64,
    /// How long no agent may be there before the box is ended.
    pub(super) alone_ms: u64,
}

/// What an agent says: one of these, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Have it end, kill it after the grace.
    Stop,
    /// Kill it.
    End,
    /// Something of its output was taken.
    Taken,
    /// It may run so long in all, in milliseconds.
    Run(u64),
}

/// Bytes of a [`Word`].
pub(super) const WORD: usize = 9;

impl Word {
    pub(super) fn bytes(self) -> [u8; WORD] {
        let (kind, number) = match self {
            Self::Stop => (b's', 0),
            Self::End => (b'e', 0),
            Self::Taken => (b't', 0),
            Self::Run(ms) => (b'r', ms),
        };
        let mut bytes = [kind; WORD];
        bytes[1..].copy_from_slice(&u64::to_le_bytes(number));
        bytes
    }

    fn read(bytes: [u8; WORD]) -> Option<Self> {
        let [kind, number @ ..] = bytes;
        match kind {
            b's' => Some(Self::Stop),
            b'e' => Some(Self::End),
            b't' => Some(Self::Taken),
            b'r' => Some(Self::Run(u64::from_le_bytes(number))),
            _ => None,
        }
    }
}

/// What a supervisor says to an agent: it is heard.
pub(super) const HEARD: u8 = b'h';
/// It printed something.
pub(super) const PRINTED: u8 = b'p';
/// The command has ended, and the record says how.
pub(super) const ENDED: u8 = b'e';
/// All that it printed is in the streams.
pub(super) const DRAINED: u8 = b'd';

/// Connects to the supervisor of the folder `base`.
///
/// # Errors
///
/// The system's: nobody listens there.
pub(super) fn connect(base: &Path) -> io::Result<UnixStream> {
    let folder = File::open(base)?;
    // By the open folder: a socket's path has no more than 107 bytes.
    UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// What the supervisor of `base` wrote down.
pub(super) fn record(base: &Path) -> Option<Record> {
    record::Page::read(&base.join(RECORD))
}

/// The streams of `base`: standard output and standard error.
///
/// # Errors
///
/// The file system's.
pub(super) fn streams(base: &Path) -> io::Result<[Ring; 2]> {
    let [out, err] = STREAMS.map(|name| Ring::open(&base.join(name)));
    Ok([out?, err?])
}

/// Ends the supervisor of `base` by force, if one has that folder. Its box falls with it.
pub(super) fn end(base: &Path) {
    // As long as the folder is taken, the number is its holder's.
    if let (Ok(Locked::Taken), Some(record)) = (lock(base), record(base)) {
        let _ =
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(record.supervisor), nix::sys::signal::Signal::SIGKILL);
    }
}
