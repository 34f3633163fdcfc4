//! Why there is no story at all.

use std::path::PathBuf;

/// What keeps the demo from being told. A step that does not hold is no such error: the story tells it.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The binary that everything is started from cannot be run.
    #[error("{} cannot be run: {source}; give the path of the selion binary", path.display())]
    Binary {
        /// Which.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// There is nothing to lease with.
    #[error("{} cannot be read: {source}; name a file or folder after --data", path.display())]
    Data {
        /// Which.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// No folder to work in.
    #[error("no folder for the demo's files: {0}; set TMPDIR to one that this user may write, with 200 MB free")]
    Folder(std::io::Error),
    /// Signals cannot be listened to.
    #[error("signals cannot be listened to: {0}; check the limits of this process")]
    Signals(std::io::Error),
    /// Ctrl-C or SIGTERM. Everything that was started has been stopped.
    #[error("interrupted; every process that the demo started has been stopped")]
    Interrupted,
    /// Nobody reads us any more.
    #[error("the story could not be printed: {0}")]
    Print(std::io::Error),
}
