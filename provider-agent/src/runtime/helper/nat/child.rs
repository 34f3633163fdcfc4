//! Something done by a child of its own, because it changes what a process may and sees.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, pipe2};

use super::{Trouble, UP, bounded};

/// Longest word of a child in bytes.
const LONGEST: u64 = 4 << 10;
/// Where programs of the system's are.
const PLACES: [&str; 5] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/bin"];

/// Does `what` in a child and waits for its end.
pub(super) fn done_by(what: impl FnOnce() -> Result<(), Trouble>) -> Result<(), Trouble> {
    let (said, say) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| format!("pipe: {errno}"))?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|errno| format!("fork: {errno}"))? {
        ForkResult::Child => {
            drop(said);
            speak(say, &what());
            std::process::exit(0)
        }
        ForkResult::Parent { child } => {
            drop(say);
            let heard = heard(said);
            waitpid(child, None).map_err(|errno| format!("wait: {errno}"))?;
            match heard?.as_str() {
                UP => Ok(()),
                "" => Err("a child ended without a word".into()),
                why => Err(why.to_owned()),
            }
        }
    }
}

/// Says how it went.
pub(super) fn speak(to: OwnedFd, done: &Result<(), Trouble>) {
    let said = done.as_ref().map_or_else(String::as_str, |()| UP);
    // Whoever does not hear it hears the end, which is no good word either.
    let _ = File::from(to).write_all(said.as_bytes());
}

/// What a child says until it says no more.
pub(super) fn heard(from: OwnedFd) -> Result<String, Trouble> {
    let text = bounded(File::from(from), LONGEST).map_err(|error| format!("hear a child: {error}"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The system's program of this name.
pub(super) fn program(name: &str) -> Result<PathBuf, Trouble> {
    let mut places = PLACES.iter().map(|place| PathBuf::from(place).join(name));
    places.find(|place| place.is_file()).ok_or_else(|| format!("`{name}` is not installed on this node"))
}
