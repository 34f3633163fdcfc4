//! One agent takes the place of another: the one that runs on a state directory is ended as by a crash, and the next takes up
//! what it leaves (`docs/adr/0039-commands-outlive-their-agent.md`).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::timeout;

use crate::book::LEASES;
use crate::{boxes, runtime, status};

/// Longest wait for the end of a process that was killed.
const END: Duration = Duration::from_secs(10);

/// Why no agent takes the place of another.
#[derive(Debug, thiserror::Error)]
pub enum SucceedError {
    /// There is none to succeed.
    #[error("no agent runs on {}; start one without --upgrade", dir.display())]
    NoAgent {
        /// The state directory.
        dir: PathBuf,
    },
    /// This release cannot take up what runs.
    #[error(
        "{leases} leases run whose supervisors speak version {theirs}, and this release speaks {ours}: it would end them. \
         Have nothing new come (`selion node pause`), and upgrade when they have ended"
    )]
    OtherVersion {
        /// How many.
        leases: usize,
        /// Of one of them.
        theirs: u16,
        /// Of this release.
        ours: u16,
    },
    /// The system.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Ends the agent that runs on the state directory `dir` (SIGKILL); its process id. What runs goes on, unless nobody takes it up.
///
/// # Errors
///
/// [`SucceedError`]; the agent runs on then, but where its end was not seen in time.
pub async fn succeed(dir: &Path) -> Result<i32, SucceedError> {
    let pid = status::pid(dir).await.map_err(|source| system("ask the agent's socket who it is", source))?;
    let pid = pid.ok_or_else(|| SucceedError::NoAgent { dir: dir.to_owned() })?;
    let ours = runtime::box_version();
    let leases = dir.join(LEASES);
    let versions = boxes::pending(&leases).into_iter().filter_map(|name| runtime::box_speaks(&leases.join(name)));
    let others: Vec<u16> = versions.filter(|version| *version != ours).collect();
    if let Some(theirs) = others.first() {
        return Err(SucceedError::OtherVersion { leases: others.len(), theirs: *theirs, ours });
    }
    end(pid).await.map_err(|source| system(&format!("end the agent (process {pid})"), source))?;
    Ok(pid)
}

fn system(what: &str, source: io::Error) -> SucceedError {
    SucceedError::System { what: what.to_owned(), source }
}

/// Kills a process and waits for its end.
async fn end(pid: i32) -> io::Result<()> {
    let ended = runtime::process(pid)?;
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    let _ended = timeout(END, ended.readable()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(())
}
