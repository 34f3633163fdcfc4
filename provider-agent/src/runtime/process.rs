//! The process runtime: one command line a sandbox kind, one way to start and watch them all.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use async_trait::async_trait;
use nix::fcntl::OFlag;
use selion_api::slice::Sandbox;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::group::Group;
use super::rooms::NOBODY;
use super::{Launch, Running, Runtime, RuntimeError, SANDBOX_COMMAND, bubblewrap, sandbox_name};

/// Open files and processes that a member may have.
const NOFILE: u64 = 65_536;
const NPROC: u64 = 32_768;
/// Longest wait for a sandbox to say that the command runs.
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

type Job = Box<dyn FnOnce() + Send>;
/// Reaches the thread that starts children; the thread lives as long as anyone holds one.
pub(super) type Starter = mpsc::Sender<Job>;

/// Starts commands as child processes in one kind of sandbox.
pub struct ProcessRuntime {
    sandbox: Sandbox,
    /// The sandbox's own program: `bwrap`, or the binary that has [`SANDBOX_COMMAND`].
    helper: PathBuf,
    grace: Duration,
    /// One thread starts every child and lives as long as the agent: the kernel kills a child with its parent
    /// *thread*.
    starter: Starter,
}

impl ProcessRuntime {
    /// A runtime of this kind. `exe` is the binary that answers to [`SANDBOX_COMMAND`]; `grace` is how long a
    /// stopped command may take before it is killed.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Sandbox`] if bubblewrap is asked for and not installed; [`RuntimeError::Spawn`] if the system
    /// gives no thread.
    pub fn new(sandbox: Sandbox, exe: &Path, grace: Duration) -> Result<Self, RuntimeError> {
        let helper = match sandbox {
            Sandbox::Bubblewrap => bubblewrap::find().ok_or_else(|| RuntimeError::Sandbox {
                sandbox: sandbox_name(sandbox),
                detail: "`bwrap` is not on PATH; install bubblewrap".into(),
            })?,
            Sandbox::Namespaces | Sandbox::None => exe.to_owned(),
        };
        let (starter, jobs) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("selion-starter".into())
            .spawn(move || jobs.into_iter().for_each(|job| job()))
            .map_err(|source| RuntimeError::Spawn { program: "the starter thread".into(), source })?;
        Ok(Self { sandbox, helper, grace, starter })
    }

    fn command(&self, launch: &Launch, program: &Path, status: RawFd) -> Command {
        let mut command = match self.sandbox {
            Sandbox::Bubblewrap => {
                let mut command = Command::new(&self.helper);
                command.args(bubblewrap::arguments(launch, renter_id()));
                command
            }
            Sandbox::Namespaces => {
                let mut command = Command::new(&self.helper);
                command.args(namespace_arguments(launch, program, status));
                command
            }
            Sandbox::None => {
                let mut command = Command::new(program);
                command.args(launch.command.iter().skip(1));
                command
            }
        };
        command
            .env_clear()
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&launch.rooms.work)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let keep = (self.sandbox == Sandbox::Namespaces).then_some(status);
        // A bare child of root runs as nobody too; in a sandbox the sandbox sees to it.
        let drop_to = (self.sandbox == Sandbox::None && nix::unistd::geteuid().is_root()).then_some(NOBODY);
        let agent = nix::unistd::getpid();
        // SAFETY: between fork and exec only async-signal-safe calls are made: no allocation, no lock.
        unsafe {
            command.pre_exec(move || prepare_child(agent, keep, drop_to));
        }
        command
    }

    async fn spawn(&self, mut command: Command, program: String) -> Result<Child, RuntimeError> {
        let (tell, told) = oneshot::channel();
        let runtime = Handle::current();
        let job: Job = Box::new(move || {
            let _context = runtime.enter();
            // If the asker is gone the child is dropped, which kills it.
            let _ = tell.send(command.spawn());
        });
        self.starter.send(job).map_err(|_| RuntimeError::Closing)?;
        let spawned = told.await.map_err(|_| RuntimeError::Closing)?;
        spawned.map_err(|source| RuntimeError::Spawn { program, source })
    }
}

#[async_trait]
impl Runtime for ProcessRuntime {
    fn sandbox(&self) -> Sandbox {
        self.sandbox
    }

    async fn launch(&self, launch: Launch) -> Result<Box<dyn Running>, RuntimeError> {
        let program = find_program(&launch)?;
        let name = launch.command.first().cloned().unwrap_or_default();
        let failed = |source| RuntimeError::Spawn { program: name.clone(), source };
        let (status, ours) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let command = self.command(&launch, &program, ours.as_raw_fd());
        let child = self.spawn(command, name.clone()).await?;
        drop(ours);
        let group = Group::new(child, self.grace, self.starter.clone()).map_err(failed)?;
        if self.sandbox == Sandbox::Namespaces {
            let said = tokio::time::timeout(SETUP_TIMEOUT, read_status(status)).await;
            let detail = match said {
                Ok(Ok(said)) if said.is_empty() => return Ok(Box::new(group)),
                Ok(Ok(said)) => said,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", SETUP_TIMEOUT.as_secs()),
            };
            // Dropping the group kills whatever came up.
            return Err(RuntimeError::Sandbox { sandbox: sandbox_name(self.sandbox), detail });
        }
        Ok(Box::new(group))
    }
}

/// What the helper says before it becomes the command: nothing if all went well.
async fn read_status(status: OwnedFd) -> io::Result<String> {
    let read = move || {
        let mut said = String::new();
        File::from(status).take(4096).read_to_string(&mut said).map(|_| said)
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

/// The id under which a command runs inside its sandbox; never 0, so that it starts without capabilities.
pub(super) fn renter_id() -> u32 {
    let uid = nix::unistd::geteuid();
    if uid.is_root() { NOBODY } else { uid.as_raw() }
}

fn namespace_arguments(launch: &Launch, program: &Path, status: RawFd) -> Vec<OsString> {
    let rooms = &launch.rooms;
    let mut args: Vec<OsString> = vec![SANDBOX_COMMAND.into(), "--status-fd".into(), status.to_string().into()];
    let named =
        [("--root", &rooms.root), ("--work", &rooms.work), ("--data", &rooms.data), ("--output", &rooms.output)];
    for (name, path) in named {
        args.extend([name.into(), path.into()]);
    }
    for folder in &launch.hidden {
        args.extend(["--hide".into(), folder.into()]);
    }
    for device in &launch.devices {
        args.extend(["--device".into(), device.into()]);
    }
    args.extend(["--program".into(), program.into(), "--".into()]);
    args.extend(launch.command.iter().map(OsString::from));
    args
}

/// Runs in the child, after fork and before exec.
fn prepare_child(agent: nix::unistd::Pid, keep: Option<RawFd>, drop_to: Option<u32>) -> io::Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // Out of the agent's session: its terminal is not the command's, which could type into it (CVE-2017-5226).
    nix::unistd::setsid()?;
    // SAFETY: close_range only marks descriptors of this process; 3 and up are none of stdin, stdout, stderr.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC) };
    if marked != 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(fd) = keep {
        // SAFETY: clears the close-on-exec flag of a descriptor that is open here.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    for (resource, most) in
        [(Resource::RLIMIT_NOFILE, NOFILE), (Resource::RLIMIT_NPROC, NPROC), (Resource::RLIMIT_CORE, 0)]
    {
        let (_, hard) = getrlimit(resource)?;
        setrlimit(resource, most.min(hard), most.min(hard))?;
    }
    if let Some(id) = drop_to {
        // SAFETY: plain system calls; setgroups with no list reads no memory.
        let done = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(id, id, id) == 0
                && libc::setresuid(id, id, id) == 0
        };
        if !done {
            return Err(io::Error::last_os_error());
        }
    }
    nix::sys::prctl::set_no_new_privs()?;
    // Last, because a change of user clears it.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    if nix::unistd::getppid() != agent {
        return Err(io::Error::other("the agent is gone"));
    }
    Ok(())
}

/// `CLOSE_RANGE_CLOEXEC` of linux/close_range.h.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;

/// The program's path, looked for as a shell would, on the member's own `PATH`.
fn find_program(launch: &Launch) -> Result<PathBuf, RuntimeError> {
    let program = launch.command.first().filter(|program| !program.is_empty()).ok_or(RuntimeError::NoCommand)?;
    let path = launch.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value.as_str());
    let missing = || RuntimeError::NoSuchProgram { program: program.clone(), path: path.to_owned() };
    if program.contains('\0') {
        return Err(missing());
    }
    if program.contains('/') {
        // A relative one is meant from the working directory, and may only come to be there; exec will tell.
        let there = Path::new(program);
        return if there.is_relative() || there.is_file() { Ok(there.to_owned()) } else { Err(missing()) };
    }
    let mut places =
        path.split(':').filter(|folder| folder.starts_with('/')).map(|folder| Path::new(folder).join(program));
    places
        .find(|place| nix::unistd::access(place, nix::unistd::AccessFlags::X_OK).is_ok() && place.is_file())
        .ok_or_else(missing)
}
