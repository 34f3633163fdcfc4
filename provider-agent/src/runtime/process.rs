//! The process runtime: one way to start and watch commands, whatever the sandbox.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use async_trait::async_trait;
use selion_api::slice::Sandbox;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::cgroup::{Group, Groups};
use super::helper::{Plan, Refusal, Root, SecretFile, View};
use super::ids::{Ids, Person};
use super::network::{Net, Outlook};
use super::spec::Limits;
use super::supervised::Supervised;
use super::{Launch, RootFs, Running, Runtime, RuntimeError, SANDBOX_COMMAND, env, sandbox_name};

/// Longest wait for a helper to take its plan, and again for it to say that the command runs.
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest answer of a helper in bytes.
const LONGEST_ANSWER: u64 = 16 << 10;

type Job = Box<dyn FnOnce() + Send>;
/// Reaches the thread that starts children; the thread lives as long as anyone holds one.
pub(super) type Starter = mpsc::Sender<Job>;

/// How the commands of a node are kept apart from it.
#[derive(Clone, Debug)]
pub struct Walls {
    /// Which sandbox.
    pub sandbox: Sandbox,
    /// The binary that answers to [`SANDBOX_COMMAND`].
    pub helper: PathBuf,
    /// How long a stopped command may take before it is killed.
    pub grace: Duration,
    /// Folders that no command sees, wherever they lie: the agent's state, the owner's home.
    pub hidden: Vec<PathBuf>,
    /// Folders that every command may read beside the system's.
    pub shown: Vec<PathBuf>,
    /// What the owner says of every command's network.
    pub outlook: Outlook,
}

/// Starts commands as child processes in one kind of sandbox.
pub struct ProcessRuntime {
    walls: Walls,
    /// One thread starts every child and lives as long as the agent: the kernel kills a child with its parent
    /// *thread*.
    starter: Starter,
    /// In which commands are held to their limits; `None` holds nothing.
    groups: Option<Groups>,
    /// Number of the next group.
    next: AtomicU64,
}

impl ProcessRuntime {
    /// A runtime behind these walls. Links in the paths of folders are followed now.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::BareRoot`] if root is to run commands without a sandbox; [`RuntimeError::Shown`] if a folder to
    /// show is not there or holds the agent's own; [`RuntimeError::Spawn`] if the system gives no thread.
    pub fn new(mut walls: Walls) -> Result<Self, RuntimeError> {
        if walls.sandbox == Sandbox::None && nix::unistd::geteuid().is_root() {
            return Err(RuntimeError::BareRoot);
        }
        // One that is not there yet has nothing to hide yet, but may be there later.
        walls.hidden.iter_mut().for_each(|path| *path = path.canonicalize().unwrap_or_else(|_| path.clone()));
        for path in &mut walls.shown {
            let shown = |why: String| RuntimeError::Shown { path: path.clone(), why };
            let real = path.canonicalize().map_err(|error| shown(error.to_string()))?;
            if real.parent().is_none() {
                return Err(shown("it is the whole machine; name the folders that leases need".into()));
            }
            if let Some(own) = walls.hidden.iter().find(|own| real.starts_with(own)) {
                return Err(shown(format!("{} is kept out of every lease's sight", own.display())));
            }
            *path = real;
        }
        let (starter, jobs) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("selion-starter".into())
            .spawn(move || jobs.into_iter().for_each(|job| job()))
            .map_err(|source| RuntimeError::Spawn { program: "the starter thread".into(), source })?;
        Ok(Self { walls, starter, groups: None, next: AtomicU64::new(0) })
    }

    /// The same, with each command in a group of its own.
    #[must_use]
    pub fn within(self, groups: Groups) -> Self {
        Self { groups: Some(groups), ..self }
    }

    /// A group for a command with rooms at `base`, by whose name an owner knows it.
    fn group(&self, base: &Path, limits: &Limits) -> io::Result<Option<Group>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{number}", base.file_name().unwrap_or_default().to_string_lossy());
        self.groups.as_ref().map(|groups| groups.make(&name, limits)).transpose()
    }

    /// The command of a helper, and our end of the socket that is its standard input.
    fn helper(&self) -> io::Result<(Command, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(SETUP_TIMEOUT))?;
        ours.set_read_timeout(Some(SETUP_TIMEOUT))?;
        let mut command = Command::new(&self.walls.helper);
        command
            .arg(SANDBOX_COMMAND)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok((command, ours))
    }

    /// What the helper is told. The folders that the command writes to become its own.
    fn plan(&self, launch: Launch) -> io::Result<Plan> {
        let inside = launch.rooms.seen_in(self.walls.sandbox);
        let Launch { command, mut env, rooms, devices, network, root, limits, secrets } = launch;
        let open_files = limits.open_files;
        env::strip(&mut env);
        let agent = nix::unistd::getpid().as_raw();
        if self.walls.sandbox == Sandbox::None {
            return Ok(Plan { agent, view: None, cwd: inside.work, command, env, open_files });
        }
        let (root, person, cwd) = match root {
            RootFs::Machine => (Root::Machine, Person::of_the_machine(), inside.work),
            RootFs::Image { lower, person, cwd } => {
                let (upper, work) = rooms.written()?;
                (Root::Layers { lower, upper, work }, person, cwd)
            }
        };
        let ids = Ids::of(person);
        ids.give(&rooms.work)?;
        ids.give(&rooms.output)?;
        if let Root::Layers { upper, .. } = &root {
            ids.give_to_root(upper)?;
        }
        let view = View {
            root,
            ids,
            work: rooms.work,
            data: rooms.data,
            output: rooms.output,
            hidden: self.walls.hidden.clone(),
            shown: self.walls.shown.clone(),
            devices,
            network: Net::of(network, &self.walls.outlook, rooms.base),
            shm_bytes: limits.shm_bytes,
            secrets: secrets.iter().map(SecretFile::of).collect(),
        };
        Ok(Plan { agent, view: Some(view), cwd, command, env, open_files })
    }

    async fn spawn(&self, mut command: Command, program: &str) -> Result<Child, RuntimeError> {
        let (tell, told) = oneshot::channel();
        let runtime = Handle::current();
        let job: Job = Box::new(move || {
            let _context = runtime.enter();
            // If the asker is gone, so is its end of the socket, and the helper ends without a plan.
            let _ = tell.send(command.spawn());
        });
        self.starter.send(job).map_err(|_| RuntimeError::Closing)?;
        let spawned = told.await.map_err(|_| RuntimeError::Closing)?;
        spawned.map_err(|source| RuntimeError::Spawn { program: program.to_owned(), source })
    }
}

#[async_trait]
impl Runtime for ProcessRuntime {
    fn sandbox(&self) -> Sandbox {
        self.walls.sandbox
    }

    async fn launch(&self, launch: Launch) -> Result<Box<dyn Running>, RuntimeError> {
        let program = launch.command.first().filter(|program| !program.is_empty()).cloned();
        let program = program.ok_or(RuntimeError::NoCommand)?;
        let path = launch.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
        let failed = |source| RuntimeError::Spawn { program: program.clone(), source };
        if self.walls.sandbox == Sandbox::None && !launch.secrets.is_empty() {
            return Err(RuntimeError::BareSecrets);
        }
        let sandbox = sandbox_name(self.walls.sandbox);
        let group = self.group(&launch.rooms.base, &launch.limits).map_err(RuntimeError::Limits)?;
        let folder = launch.rooms.base.clone();
        let plan = self.plan(launch);
        let plan = plan.map_err(|error| RuntimeError::Sandbox { sandbox, detail: format!("its folders: {error}") })?;
        let folder = plan.view.as_ref().and_then(|view| view.network.as_ref()).map(|_| folder);
        let plan = serde_json::to_vec(&plan).map_err(|error| failed(io::Error::other(error)))?;
        let plan = Zeroizing::new(plan);
        let (command, socket) = self.helper().map_err(failed)?;
        let child = self.spawn(command, &program).await?;
        let mut running = Supervised::new(child, self.walls.grace, self.starter.clone(), folder).map_err(failed)?;
        // It waits for its plan: whatever it starts is in the group.
        running.enter(group).map_err(RuntimeError::Limits)?;
        let said = tokio::task::spawn_blocking(move || converse(socket, &plan)).await;
        let refusal = match said.map_err(io::Error::other).and_then(|said| said) {
            Ok(None) => {
                running.is_up();
                return Ok(Box::new(running));
            }
            Ok(Some(refusal)) => refusal,
            Err(error) => Refusal::Failed(error.to_string()),
        };
        // Dropping what runs kills whatever came up.
        Err(match refusal {
            Refusal::NoSuchProgram => RuntimeError::NoSuchProgram { program, path: path.unwrap_or_default() },
            Refusal::Failed(detail) => RuntimeError::Sandbox { sandbox, detail },
        })
    }
}

/// Tells a helper its plan; `None` once the command runs.
fn converse(mut socket: UnixStream, plan: &[u8]) -> io::Result<Option<Refusal>> {
    socket.write_all(plan)?;
    socket.shutdown(Shutdown::Write)?;
    let mut said = Vec::new();
    socket.take(LONGEST_ANSWER).read_to_end(&mut said)?;
    if said.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&said).map(Some).map_err(io::Error::other)
}
