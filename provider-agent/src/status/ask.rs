//! The asking side of the socket.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::serve::by;
use super::{SOCKET, Status};

/// Longest wait for an answer; the agent itself waits for the chain a while.
const WAIT: Duration = Duration::from_secs(10);
/// Longest answer in bytes.
const LONGEST: u64 = 16 << 20;

/// Why an agent's status is not known, though an agent may run.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The socket cannot be used.
    #[error("the agent's socket {}", path.display())]
    Socket {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// No answer in time.
    #[error("the agent at {} does not answer within {} s; is it stopped?", path.display(), WAIT.as_secs())]
    Silent {
        /// Where it was asked.
        path: PathBuf,
    },
    /// Another release's words.
    #[error("what the agent at {} answers is no status of this release; run the same release as the agent's", path.display())]
    OtherRelease {
        /// Where it was asked.
        path: PathBuf,
        /// What cannot be read.
        #[source]
        source: serde_json::Error,
    },
}

/// Process id of the agent of a state directory, as the kernel has it of who listens there; `None` if none runs on it. Any
/// release's.
///
/// # Errors
///
/// The system's.
pub(crate) async fn pid(dir: &Path) -> io::Result<Option<i32>> {
    match connect(dir).await? {
        None => Ok(None),
        Some(socket) => match socket.peer_cred()?.pid() {
            Some(pid) if pid > 0 => Ok(Some(pid)),
            _ => Err(io::Error::other("it runs where its process cannot be seen from here, as in a container")),
        },
    }
}

/// Connects to the agent of a state directory; `None` if none runs on it.
async fn connect(dir: &Path) -> io::Result<Option<UnixStream>> {
    let absent = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory
        )
    };
    let connected = async {
        let folder = File::open(dir)?;
        UnixStream::connect(by(&folder)).await
    };
    match connected.await {
        Err(error) if absent(&error) => Ok(None),
        connected => connected.map(Some),
    }
}

/// Asks the agent of a state directory; `None` if none runs on it.
///
/// # Errors
///
/// [`StatusError`].
pub async fn ask(dir: &Path) -> Result<Option<Status>, StatusError> {
    let path = dir.join(SOCKET);
    let failed = |source| StatusError::Socket { path: path.clone(), source };
    let Some(socket) = connect(dir).await.map_err(failed)? else { return Ok(None) };
    let mut said = Vec::new();
    let read = timeout(WAIT, socket.take(LONGEST).read_to_end(&mut said)).await;
    read.map_err(|_| StatusError::Silent { path: path.clone() })?.map_err(failed)?;
    serde_json::from_slice(&said).map(Some).map_err(|source| StatusError::OtherRelease { path, source })
}
