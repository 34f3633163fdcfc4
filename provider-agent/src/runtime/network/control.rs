//! Telling a box's keeper who the members of its gang are now.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Gang, SOCKET};

/// Longest wait for a keeper.
const WITHIN: Duration = Duration::from_secs(10);
/// Longest answer in bytes.
const LONGEST: u64 = 4 << 10;

/// Tells it, and waits until the rules are in place. Not for an async thread.
///
/// # Errors
///
/// The system's; [`io::ErrorKind::Other`] with what the keeper says.
pub(in crate::runtime) fn tell(folder: &Path, gang: &Gang) -> io::Result<()> {
    let folder = std::fs::File::open(folder)?;
    // By the open folder: a socket's path has no more than 107 bytes.
    let mut socket = UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))?;
    socket.set_read_timeout(Some(WITHIN))?;
    socket.set_write_timeout(Some(WITHIN))?;
    socket.write_all(&serde_json::to_vec(gang)?)?;
    socket.shutdown(Shutdown::Write)?;
    let mut said = String::new();
    socket.take(LONGEST).read_to_string(&mut said)?;
    match said.as_str() {
        "done" => Ok(()),
        "" => Err(io::Error::other("the box's keeper is gone")),
        why => Err(io::Error::other(why.to_owned())),
    }
}
