//! A node's own folders and one member's rooms, for tests that run real commands.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use selion_agent::runtime::spec::Limits;
use selion_agent::runtime::{
    Launch, ProcessRuntime, Rooms, RootFs, Runtime, RuntimeError, Walls, make_read_only, probe, sandbox_name,
};
use selion_api::slice::Sandbox;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

/// What a command may use, where a runtime holds it to that.
pub const LIMITS: Limits =
    Limits { cpu_milli: 1_000, memory_bytes: 256 << 20, pids: 256, open_files: 1_024, shm_bytes: 16 << 20 };
pub const PATIENCE: Duration = Duration::from_secs(10);
/// An ordinary user without an account.
pub const ORDINARY: u32 = 23_456;
/// Says that an ordinary user has control groups.
pub const DELEGATED: &str = "SELION_TEST_DELEGATED";
/// Names the folders that root made for an ordinary user's turn.
const PLACES: &str = "SELION_TEST_PLACES";

/// The helper binary, which cargo builds beside the tests.
pub fn helper() -> PathBuf {
    built("sandbox_helper")
}

/// An example of this crate.
pub fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.is_file(), "{} is built by `cargo test -p selion-agent`", program.display());
    program
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Kinds that can be tried here: root runs nothing without a sandbox.
pub async fn kinds() -> Vec<Sandbox> {
    let dir = tempfile::tempdir().unwrap();
    let walls = Walls {
        sandbox: Sandbox::Namespaces,
        helper: helper(),
        grace: PATIENCE,
        hidden: vec![dir.path().to_owned()],
        shown: Vec::new(),
        outlook: selion_agent::runtime::Outlook::default(),
    };
    let mut there = if is_root() { Vec::new() } else { vec![Sandbox::None] };
    match probe(dir.path(), walls, RootFs::Machine).await {
        Ok(()) => there.push(Sandbox::Namespaces),
        Err(why) => println!("namespaces are not tried: {why}"),
    }
    assert!(!there.is_empty(), "this machine has no sandbox, so nothing would be tried");
    there
}

/// Root runs this test program once more, whole, as an ordinary user.
pub fn again_as_an_ordinary_user() {
    again_within(&[]);
}

/// The same in these control groups, which are the user's.
pub fn again_within(groups: &[PathBuf]) {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let own = laid_open(dir.path(), &["sandbox_helper", "attacker"]);
    let places = places();
    for place in &places {
        chown(place.path(), Some(ORDINARY), Some(ORDINARY)).unwrap();
    }
    let named: Vec<_> = places.iter().map(|place| place.path().display().to_string()).collect();
    // It waits until it is in its groups.
    let mut again = Command::new("/bin/sh");
    again.args(["-c", "read go; exec \"$0\""]).arg(own).stdin(Stdio::piped());
    again.uid(ORDINARY).gid(ORDINARY).env(PLACES, named.join(":")).env("HOME", "/nonexistent").current_dir("/");
    if !groups.is_empty() {
        again.env(DELEGATED, "yes");
    }
    let mut again = again.spawn().unwrap();
    for group in groups {
        for own in [group.clone(), group.join("cgroup.procs")] {
            chown(&own, Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
        fs::write(group.join("cgroup.procs"), again.id().to_string()).unwrap();
    }
    again.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(again.wait().unwrap().success(), "see above what fails as an ordinary user");
}

/// This test program and examples, side by side in `dir` as cargo has them, where anybody may pass; the program's path.
pub fn laid_open(dir: &Path, examples: &[&str]) -> PathBuf {
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(dir);
    let own = dir.join("deps/tests");
    let programs = examples.iter().map(|name| (built(name), dir.join("examples").join(name)));
    for (from, to) in programs.chain([(std::env::current_exe().unwrap(), own.clone())]) {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, &to).unwrap();
        open(&to);
    }
    own
}

/// A new folder in each place of the system's that a view shows, or that an owner may show; none where we may not write.
pub fn places() -> Vec<TempDir> {
    let above = match std::env::var(PLACES) {
        Ok(named) => named.split(':').map(PathBuf::from).collect(),
        Err(_) if is_root() => vec![PathBuf::from("/usr/local"), PathBuf::from("/opt")],
        Err(_) => Vec::new(),
    };
    let made = above.iter().map(|above| tempfile::Builder::new().prefix("selion-test").tempdir_in(above).unwrap());
    let made: Vec<TempDir> = made.collect();
    made.iter().for_each(|place| fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap());
    made
}

/// A folder that stands for an agent's state, with a secret in it and one member's rooms.
pub struct House {
    pub dir: TempDir,
    pub rooms: Rooms,
}

impl House {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // As `selion up` makes its own: nobody but the owner passes.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        let rooms = Rooms::make(&dir.path().join("leases/one")).unwrap();
        fs::write(rooms.data.join("seen"), "data\n").unwrap();
        make_read_only(&rooms.data).unwrap();
        Self { dir, rooms }
    }

    pub fn launch(&self, kind: Sandbox, script: &str) -> Launch {
        let text = |path: &Path| path.display().to_string();
        let inside = self.rooms.seen_in(kind);
        let env = [
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("DATA", text(&inside.data)),
            ("OUT", text(&inside.output)),
            ("STATE", text(self.dir.path())),
        ];
        Launch {
            command: ["/bin/sh", "-c", script].map(String::from).to_vec(),
            env: env.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            rooms: self.rooms.clone(),
            devices: Vec::new(),
            network: selion_agent::runtime::Links::default(),
            root: RootFs::Machine,
            limits: LIMITS,
            secrets: Vec::new(),
        }
    }

    pub fn walls(&self, kind: Sandbox) -> Walls {
        Walls {
            sandbox: kind,
            helper: helper(),
            grace: Duration::from_millis(300),
            hidden: vec![self.dir.path().to_owned()],
            shown: Vec::new(),
            outlook: selion_agent::runtime::Outlook::default(),
        }
    }

    pub fn runtime(&self, kind: Sandbox) -> ProcessRuntime {
        ProcessRuntime::new(self.walls(kind)).unwrap()
    }
}

/// Exit code and standard output.
pub async fn ran(runtime: &ProcessRuntime, launch: Launch) -> (i32, String) {
    ran_within(PATIENCE, runtime, launch).await
}

/// The same of a command that takes its time.
pub async fn ran_within(patience: Duration, runtime: &ProcessRuntime, launch: Launch) -> (i32, String) {
    let mut running = runtime.launch(launch).await.unwrap();
    let mut said = String::new();
    let mut out = running.stdout().unwrap();
    let read = tokio::time::timeout(patience, out.read_to_string(&mut said)).await;
    read.unwrap().unwrap();
    let exit = tokio::time::timeout(PATIENCE, running.wait()).await.unwrap().unwrap();
    (exit.code, said.trim_end_matches('\n').to_owned())
}

pub async fn run(kind: Sandbox, house: &House, script: &str) -> (i32, String) {
    ran(&house.runtime(kind), house.launch(kind, script)).await
}

/// Why a launch was refused.
pub async fn refused(kind: Sandbox, house: &House, launch: Launch) -> RuntimeError {
    match house.runtime(kind).launch(launch).await {
        Ok(_) => panic!("{} ran it", sandbox_name(kind)),
        Err(error) => error,
    }
}
