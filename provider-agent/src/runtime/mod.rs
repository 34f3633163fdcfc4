//! Running a renter's command apart from the machine.
//!
//! [`ProcessRuntime`] knows one sandbox, and how to do without if the owner says so. [`probe()`] finds out by running it
//! whether it works here. The choice is made once and stated in the node's spec: a lease never runs in a weaker one.

mod advice;
pub mod capture;
mod cgroup;
pub mod env;
mod family;
mod helper;
mod ids;
pub(crate) mod keep;
mod masks;
mod network;
pub mod peers;
mod probe;
mod process;
mod quota;
mod removal;
mod rooms;
mod seccomp;
pub mod spec;
mod supervised;

pub use advice::advice;
pub use cgroup::{GroupUse, Groups, prove};
pub use helper::sandbox_main;
pub use ids::{Person, owners};
pub use keep::Why;
pub use network::{Block, Gang, Links, Outlook, Traffic, meet};
pub use probe::{probe, probe_network};
pub use process::{ProcessRuntime, Walls};
pub use quota::Quota;
pub use removal::{Bin, remove_tree};
pub use rooms::{DATA, OUTPUT, Rooms, WORK, make_read_only};
pub use supervised::Outlet;
pub(crate) use supervised::process;

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use selion_api::agent::LogSource;
use selion_api::seal::Secret;
use selion_api::slice::Sandbox;
use tokio::io::DuplexStream;

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
    /// Device nodes that it needs.
    pub devices: Vec<PathBuf>,
    /// What it reaches, in a sandbox.
    pub network: Links,
    /// How much it may use.
    pub limits: spec::Limits,
    /// The file system that it runs in. Without a sandbox it is the machine's, whatever is said here.
    pub root: RootFs,
    /// What it finds in [`SECRETS`], in a sandbox; without one there is no such place, and none may be given.
    pub secrets: Vec<Secret>,
}

/// Where a command finds its secrets.
pub const SECRETS: &str = "/run/secrets";

/// A root file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootFs {
    /// The machine's programs and libraries, read-only.
    Machine,
    /// An image's.
    Image {
        /// Folders of its layers, the topmost first. They are read only, and stay while the command runs.
        lower: Vec<PathBuf>,
        /// Whom the command is inside.
        person: Person,
        /// Where it starts, an absolute path inside; made if it is not there.
        cwd: PathBuf,
    },
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The work names no program.
    #[error("the command is empty; give a program to run")]
    NoCommand,
    /// No such program on this node.
    #[error(
        "no program `{program}` among the files that the lease sees (PATH {path}); name one of them, or bring it as data or \
         in an image"
    )]
    NoSuchProgram {
        /// As asked.
        program: String,
        /// Where it was looked for.
        path: String,
    },
    /// No control group, or none that could be limited.
    #[error("the command cannot be held to its limits")]
    Limits(#[source] io::Error),
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
    /// Secrets would lie in the machine's own files.
    #[error("a command without a sandbox has nowhere to keep secrets; none were given to it")]
    BareSecrets,
    /// Root would run a renter's command as itself or as nobody, beside the owner's own programs.
    #[error("root runs no commands without a sandbox; run the agent as an ordinary user, or take --sandbox namespaces")]
    BareRoot,
    /// A folder that the owner shows to leases.
    #[error("cannot show {} to leases: {why}", path.display())]
    Shown {
        /// As configured.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
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
    /// How long it ran, in milliseconds of the machine's clock.
    pub ran_ms: u64,
    /// Why it ended.
    pub why: Why,
}

/// What became of a command that an earlier agent started.
pub enum Found {
    /// It runs, or has ended and it is known how.
    There(Box<dyn Running>),
    /// Nothing of it is left, and nobody will start it as long as this is held.
    Gone {
        /// Keeps its folder.
        lock: Option<keep::Lock>,
        /// Why, in words.
        why: String,
    },
}

/// A command that runs.
#[async_trait]
pub trait Running: Send {
    /// A stream of what it prints; `None` for what no command prints.
    fn outlet(&self, source: LogSource) -> Option<Outlet>;

    /// Its standard output from the first byte on.
    fn stdout(&mut self) -> Option<DuplexStream> {
        self.outlet(LogSource::Stdout)?.read_from(0).ok().map(|(stream, _)| stream)
    }

    /// How long it runs, or ran, in milliseconds of a clock that no end of an agent stops.
    fn ran_ms(&self) -> u64;

    /// How long it may run in all, as it was last said.
    fn run_ms(&self) -> Option<u64>;

    /// Says how long it may run in all: without an agent it is ended then.
    async fn may_run(&mut self, ms: u64);

    /// Waits for its end. May be dropped and called again. When it returns, nothing that the command started is left.
    ///
    /// # Errors
    ///
    /// Its supervisor was killed. Nothing of it is left then either.
    async fn wait(&mut self) -> io::Result<Exit>;

    /// Asks the command and all that it started to end (SIGTERM), then kills them after the grace (SIGKILL). Returns
    /// once they are gone.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    async fn stop(&mut self) -> io::Result<Exit>;

    /// Kills the command and all that it started, at once. Returns when they are gone.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    async fn kill(&mut self) -> io::Result<Exit>;

    /// What all of it together has used, up to its end. `None` where nobody counts.
    fn used(&self) -> Option<GroupUse>;

    /// Process id of which all its processes descend.
    fn head(&self) -> i32;

    /// Lets it meet these members of its gang from now on, and no others.
    ///
    /// # Errors
    ///
    /// The system's, or what the box says; it meets those that it met before then.
    async fn meet(&mut self, gang: Gang) -> io::Result<()>;

    /// What it sent and received so far; after its end, in all. `None` if nothing counts it.
    fn traffic(&self) -> Option<Traffic>;
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

    /// Takes up what an earlier agent started in the folder `base`.
    async fn adopt(&self, base: &Path) -> Found;

    /// From now on nothing that runs is ended because this is dropped: another agent takes it up.
    fn leave(&self);
}

/// Version of the words between this release and the supervisors of boxes.
#[must_use]
pub(crate) fn box_version() -> u16 {
    keep::VERSION
}

/// That of the supervisor in the lease's folder `base`, if its command has not ended.
pub(crate) fn box_speaks(base: &Path) -> Option<u16> {
    keep::record(base).filter(|record| record.ended.is_none()).map(|record| record.version)
}

/// The sandbox's name in messages.
#[must_use]
pub fn sandbox_name(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox::Namespaces => "namespaces",
        Sandbox::None => "none",
    }
}
