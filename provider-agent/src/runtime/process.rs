//! The process runtime: one way to start and watch commands, whatever the sandbox.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use selion_api::slice::Sandbox;
use tokio::process::{Child, Command};
use zeroize::Zeroizing;

use super::cgroup::{Group, Groups};
use super::helper::{Plan, Refusal, Root, SecretFile, View};
use super::ids::{Ids, Person};
use super::keep::{self, Locked};
use super::network::{Net, Outlook};
use super::spec::Limits;
use super::supervised::Supervised;
use super::{Found, Launch, RootFs, Running, Runtime, RuntimeError, SANDBOX_COMMAND, env, sandbox_name};

/// Longest wait for a supervisor to take its order, and again for it to say that the command runs.
const SETUP_TIMEOUT: Duration = Duration::from_secs(25);
/// Longest answer of a supervisor in bytes.
const LONGEST_ANSWER: u64 = 16 << 10;
/// How long a box may be without an agent, if its owner does not say it.
pub(crate) const ALONE: Duration = Duration::from_secs(60);
/// Tries to reach a supervisor that has its folder and does not listen yet, and the time between them.
const REACH: (u32, Duration) = (500, Duration::from_millis(10));

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
    /// In which commands are held to their limits; `None` holds nothing.
    groups: Option<Groups>,
    /// Number of the next group.
    next: AtomicU64,
    alone: Duration,
    /// What runs stays when this is dropped.
    stays: Arc<AtomicBool>,
}

impl ProcessRuntime {
    /// A runtime behind these walls. Links in the paths of folders are followed now.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::BareRoot`] if root is to run commands without a sandbox; [`RuntimeError::Shown`] if a folder to
    /// show is not there or holds the agent's own.
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
        let stays = Arc::default();
        Ok(Self { walls, groups: None, next: AtomicU64::new(0), alone: ALONE, stays })
    }

    /// The same, with boxes that end when no agent was there for so long.
    #[must_use]
    pub fn alone(self, alone: Duration) -> Self {
        Self { alone, ..self }
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

    /// Starts a supervisor; it, and our end of the socket that is its standard input.
    fn supervisor(&self) -> io::Result<(Nascent, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(SETUP_TIMEOUT))?;
        ours.set_read_timeout(Some(SETUP_TIMEOUT))?;
        let mut command = Command::new(&self.walls.helper);
        command.args([SANDBOX_COMMAND, keep::KEEP]).env_clear().current_dir("/").stdin(OwnedFd::from(theirs));
        Ok((Nascent(Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)), ours))
    }

    /// What the helper is told. The folders that the command writes to become its own.
    fn plan(&self, launch: Launch) -> io::Result<Plan> {
        let inside = launch.rooms.seen_in(self.walls.sandbox);
        let Launch { command, mut env, rooms, devices, network, root, limits, secrets } = launch;
        let open_files = limits.open_files;
        env::strip(&mut env);
        // The supervisor puts itself here.
        let agent = 0;
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
}

impl ProcessRuntime {
    /// The box in the folder `base`: of a supervisor that listens, or of one that is gone and noted its end. If there is neither,
    /// why, and what keeps the folder so.
    async fn reach(&self, base: &Path) -> Result<Supervised, (Option<keep::Lock>, String)> {
        let mut refused = io::Error::from(io::ErrorKind::NotConnected);
        for _ in 0..REACH.0 {
            match Supervised::connect(base, self.walls.grace, Arc::clone(&self.stays)).await {
                Ok(running) => return Ok(running),
                Err(error) => refused = error,
            }
            if refused.kind() == io::ErrorKind::Unsupported {
                break;
            }
            match keep::lock(base) {
                Ok(Locked::Ours(lock)) => {
                    let over = Supervised::over(base, self.walls.grace);
                    return over.ok_or_else(|| (Some(lock), why_gone(base)));
                }
                // It is about to listen, or about to be gone.
                Ok(Locked::Taken) => tokio::time::sleep(REACH.1).await,
                Err(error) => return Err((None, format!("its folder: {error}"))),
            }
        }
        keep::end(base);
        Err((None, format!("its supervisor cannot be taken up ({refused}) and was ended")))
    }
}

/// A supervisor that does not hold a box yet. It may be waited for by whoever wants to; the system forgets it when it has ended.
struct Nascent(Option<Child>);

impl Drop for Nascent {
    fn drop(&mut self) {
        // What it started falls with it.
        if let Some(mut child) = self.0.take() {
            let _ = child.start_kill();
        }
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
        let base = launch.rooms.base.clone();
        let plan = self.plan(launch);
        let plan = plan.map_err(|error| RuntimeError::Sandbox { sandbox, detail: format!("its folders: {error}") })?;
        let order = keep::Order {
            version: keep::VERSION,
            base: base.clone(),
            helper: self.walls.helper.clone(),
            plan,
            groups: group.as_ref().map(Group::folders).unwrap_or_default(),
            grace_ms: millis(self.walls.grace),
            alone_ms: millis(self.alone),
        };
        let order = serde_json::to_vec(&order).map_err(|error| failed(io::Error::other(error)))?;
        let order = Zeroizing::new(order);
        let (mut nascent, socket) = self.supervisor().map_err(failed)?;
        let said = tokio::task::spawn_blocking(move || converse(socket, &order)).await;
        let refusal = match said.map_err(io::Error::other).and_then(|said| said) {
            Ok(None) => {
                // It may have ended by now.
                let running =
                    self.reach(&base).await.map_err(|(_, why)| failed(io::Error::other(why)))?.in_group(group);
                // It is on its own.
                drop(nascent.0.take());
                return Ok(Box::new(running));
            }
            Ok(Some(refusal)) => refusal,
            Err(error) => Refusal::Failed(error.to_string()),
        };
        // Dropping what was started kills whatever came up.
        Err(match refusal {
            Refusal::NoSuchProgram => RuntimeError::NoSuchProgram { program, path: path.unwrap_or_default() },
            Refusal::Limits(why) => RuntimeError::Limits(io::Error::other(why)),
            Refusal::Failed(detail) => RuntimeError::Sandbox { sandbox, detail },
        })
    }

    async fn adopt(&self, base: &Path) -> Found {
        let group = || self.groups.as_ref().and_then(|groups| groups.found(&base.file_name()?.to_string_lossy()));
        match self.reach(base).await {
            Ok(running) => Found::There(Box::new(running.in_group(group()))),
            Err((lock, why)) => {
                // What is left in its group ends.
                drop(group());
                Found::Gone { lock, why }
            }
        }
    }

    fn leave(&self) {
        self.stays.store(true, Ordering::Release);
    }
}

/// Why nothing of a box is left whose end nobody noted.
fn why_gone(base: &Path) -> String {
    let before = keep::record(base).map(|record| record.boot().to_owned());
    match (before, keep::clock::boot()) {
        (Some(before), Ok(now)) if before != now => {
            "the machine was started again, and nothing that ran on it was left".into()
        }
        (Some(_), _) => "its supervisor was killed while no agent was there, and the box fell with it".into(),
        (None, _) => "it was about to start when the agent ended, and did not".into(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Tells a supervisor its order; `None` once the command runs.
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
