//! The network of a box that reaches something.
//!
//! ```text
//! helper ── keeper ── slirp4netns       in the machine's network, under a user namespace that gives no right over it
//!    │         └ nft, when it is needed: in the box's network
//!    └─ init ── the renter's command    in the box's network, under another user namespace
//! ```
//!
//! The keeper makes the rules and the NAT, tries them, then waits: for the machine's addresses to change, for the agent to
//! name other members of the gang, for the helper's end. Where the agent is root, keeper and NAT are nobody.

mod child;
mod filter;
mod keeper;
mod near;
mod slirp;
mod space;
mod trial;

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpid, pipe2};

pub(super) use space::Space;

use super::{Talk, Trouble};
use crate::runtime::network::{COUNTS, Net, SOCKET};

/// What a keeper says once everything stands.
const UP: &str = "+";

/// A box's network, and who keeps it.
pub(super) struct Nat {
    /// Until the helper has entered it.
    space: Option<Space>,
    keeper: Pid,
    /// Its end is the keeper's.
    alive: OwnedFd,
}

impl Nat {
    /// Makes it; on return its rules stand and the NAT runs. To be called while the helper is in the machine's namespaces.
    pub(super) fn start(net: &Net, talk: &mut Talk) -> Result<Self, Trouble> {
        let space = Space::make()?;
        let listener = listen(&net.folder)?;
        let counts = net.folder.join(COUNTS);
        let counts = File::create(&counts).map_err(|error| format!("{}: {error}", counts.display()))?;
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|errno| format!("pipe: {errno}"));
        let ((stop, alive), (said, say)) = (pipe()?, pipe()?);
        let helper = getpid();
        // SAFETY: this process has one thread.
        match unsafe { fork() }.map_err(|errno| format!("fork the keeper: {errno}"))? {
            ForkResult::Child => {
                drop((alive, said));
                // The agent waits for its end.
                talk.close();
                let told = keeper::Keeper { net: net.clone(), space, listener, counts, stop, helper };
                std::process::exit(i32::from(!told.keep(File::from(say))))
            }
            ForkResult::Parent { child: keeper } => {
                drop((stop, say));
                let nat = Self { space: Some(space), keeper, alive };
                match child::heard(said)?.as_str() {
                    UP => Ok(nat),
                    "" => Err("the keeper of the box's network ended".into()),
                    why => Err(format!("the box's network: {why}")),
                }
            }
        }
    }

    /// The namespaces, to be entered and then let go: nobody who is inside may hold them.
    pub(super) fn take_space(&mut self) -> Option<Space> {
        self.space.take()
    }

    /// Ends the NAT, after its keeper left the counts to the agent.
    pub(super) fn end(self) {
        drop(self.alive);
        // It may have ended before, and been reaped.
        let _ = waitpid(self.keeper, None);
    }
}

/// Where the agent tells the keeper changes.
fn listen(folder: &Path) -> Result<UnixListener, Trouble> {
    let failed = |error: std::io::Error| format!("{}/{SOCKET}: {error}", folder.display());
    let open = File::open(folder).map_err(failed)?;
    // One that an earlier run left in the same rooms.
    let _ = fs::remove_file(folder.join(SOCKET));
    // By the open folder: a socket's path has no more than 107 bytes. Only its owner can connect, as the umask says.
    UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd())).map_err(failed)
}

/// Reads what comes, up to a bound.
fn bounded(from: impl Read, most: u64) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    from.take(most).read_to_end(&mut text)?;
    Ok(text)
}
