//! What can stop the chain. Each error names the thing, the value and the remedy.

use std::{io, net::SocketAddr, path::PathBuf};

/// Everything [`serve`](crate::serve()) can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listen address is taken or not ours.
    #[error(
        "dev chain cannot listen on {addr}: {source}; stop what holds that port, or choose another (port 0 takes a free one)"
    )]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The journal could not be opened, read or replayed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The listening socket failed while serving.
    #[error("dev chain on {addr} stopped serving: {source}; start it again, nothing accepted is lost")]
    Serve {
        /// The address served.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Replay panicked: a fault of the program.
    #[error(
        "dev chain stopped while replaying {path}: {reason}; report it with that file, and move the file away to start an empty chain"
    )]
    Replay {
        /// The journal file.
        path: PathBuf,
        /// The panic's text.
        reason: String,
    },
}

/// What can be wrong with the journal file or its directory.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The directory cannot be made or written.
    #[error(
        "data directory {path} cannot be used: {source}; create it, make it writable for this user, or choose another"
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the journal open.
    #[error("{path} is in use by another dev chain; stop that one, or choose another data directory")]
    InUse {
        /// The journal file.
        path: PathBuf,
    },
    /// The file system is full. The record was rolled back, so nothing was half written.
    #[error("disk full while writing {path}: the transaction was not accepted; free space and send it again")]
    Full {
        /// The journal file.
        path: PathBuf,
    },
    /// Any other failure to read or write.
    #[error("{path}: cannot {doing}: {source}; check the disk, then start again")]
    Io {
        /// The journal file.
        path: PathBuf,
        /// The step that failed.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A write failed and could not be undone, so nothing more is accepted.
    #[error(
        "{path}: an earlier write failed and could not be undone; nothing more is accepted: fix the disk and restart"
    )]
    Broken {
        /// The journal file.
        path: PathBuf,
    },
    /// The node is stopping.
    #[error("{path}: the dev chain is stopping and takes no more; send it again when it is back")]
    Closed {
        /// The journal file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is not a dev chain journal of this version; move it away to start an empty chain")]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// A record that was once acknowledged is damaged.
    #[error(
        "{path} is corrupt: the record at byte {offset} {what}; restore the file from a copy, or give up that record \
         and all later ones with `truncate -s {offset} {path}`, or move the file away to start an empty chain"
    )]
    Corrupt {
        /// The journal file.
        path: PathBuf,
        /// Where the damaged record begins.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The journal belongs to another chain.
    #[error(
        "{path} holds chain id {found}, but chain id {asked} was asked for; use {found}, or another data directory"
    )]
    OtherChain {
        /// The journal file.
        path: PathBuf,
        /// The chain id in the file.
        found: u64,
        /// The chain id of the configuration.
        asked: u64,
    },
    /// Replaying a sound record gave another result than when it was written.
    #[error(
        "{path} cannot be replayed: record {index} {what}; it was written by other rules: use the release that wrote it, \
         or move the file away to start an empty chain"
    )]
    Differs {
        /// The journal file.
        path: PathBuf,
        /// The record's place, 0 is the genesis.
        index: usize,
        /// How it differs.
        what: String,
    },
}

impl JournalError {
    /// The error for a failed write to `path`; a full disk has a remedy of its own.
    pub(crate) fn write(path: &std::path::Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { path, doing: "write", source },
        }
    }
}
