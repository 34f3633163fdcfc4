//! Running a renter's command apart from the machine.
//!
//! [`ProcessRuntime`] knows three sandboxes; [`probe`] finds the best one that really works here, by running it. The
//! choice is made once and stated in the node's spec: a lease never runs in a weaker one.

mod bubblewrap;
pub mod capture;
pub mod env;
mod group;
mod namespaces;
pub mod peers;
mod probe;
mod process;
mod rooms;

pub use namespaces::sandbox_main;
pub use probe::{Probe, probe};
pub use process::ProcessRuntime;
pub use rooms::{Rooms, make_read_only};

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use selion_api::slice::Sandbox;
use tokio::process::{ChildStderr, ChildStdout};

/// The hidden subcommand under which the binary calls [`sandbox_main`].
pub const SANDBOX_COMMAND: &str = "sandbox-exec";

/// What to run, and what it may see.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Its folders.
    pub rooms: Rooms,
    /// Folders that it must not see: the agent's state, the owner's home.
    pub hidden: Vec<PathBuf>,
    /// Device nodes that it needs.
    pub devices: Vec<PathBuf>,
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The work names no program.
    #[error("the command is empty; give a program to run")]
    NoCommand,
    /// No such program on this node.
    #[error("no program `{program}` on this node (PATH {path}); bring it as data, or name one that is there")]
    NoSuchProgram {
        /// As asked.
        program: String,
        /// Where it was looked for.
        path: String,
    },
    /// The sandbox did not come up.
    #[error("the {sandbox} sandbox did not start: {detail}")]
    Sandbox {
        /// Which.
        sandbox: &'static str,
        /// What it said.
        detail: String,
    },
    /// The system refused the process.
    #[error("cannot start `{program}`")]
    Spawn {
        /// What was to be started.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The thread that starts processes is gone.
    #[error("the agent is shutting down")]
    Closing,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; 128 + n for signal n.
    pub code: i32,
}

/// A command that runs.
#[async_trait]
pub trait Running: Send {
    /// Its standard output; `None` the second time.
    fn stdout(&mut self) -> Option<ChildStdout>;

    /// Its standard error; `None` the second time.
    fn stderr(&mut self) -> Option<ChildStderr>;

    /// Waits for its end. May be dropped and called again. When it returns, nothing of the command's process group
    /// is left.
    ///
    /// # Errors
    ///
    /// The system's, if the process cannot be waited for.
    async fn wait(&mut self) -> io::Result<Exit>;

    /// Asks the whole group to end (SIGTERM), then kills it after the grace (SIGKILL). Returns once it is gone.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    async fn stop(&mut self) -> io::Result<Exit>;
}

/// Starts commands.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// How it keeps them apart.
    fn sandbox(&self) -> Sandbox;

    /// Starts the command; on return it runs.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`]; nothing runs then.
    async fn launch(&self, launch: Launch) -> Result<Box<dyn Running>, RuntimeError>;
}

/// The sandbox's name in messages.
#[must_use]
pub fn sandbox_name(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox::Bubblewrap => "bubblewrap",
        Sandbox::Namespaces => "namespaces",
        Sandbox::None => "none",
    }
}
