//! Every sandbox kind that works on this machine, with real commands.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use selion_agent::runtime::{
    Launch, ProcessRuntime, Rooms, Runtime, RuntimeError, make_read_only, probe, sandbox_name,
};
use selion_api::slice::Sandbox;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

const KINDS: [Sandbox; 3] = [Sandbox::Bubblewrap, Sandbox::Namespaces, Sandbox::None];
const PATIENCE: Duration = Duration::from_secs(10);

/// The helper binary, which cargo builds beside the tests.
fn helper() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let helper = own.parent().unwrap().parent().unwrap().join("examples/sandbox_helper");
    assert!(helper.is_file(), "{} is built by `cargo test -p selion-agent`", helper.display());
    helper
}

/// A folder that stands for an agent's state, with a secret in it and one member's rooms.
struct House {
    dir: TempDir,
    rooms: Rooms,
}

impl House {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // A bare child of root runs as nobody and has to pass.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        fs::set_permissions(dir.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let rooms = Rooms::make(&dir.path().join("leases/one")).unwrap();
        fs::write(rooms.data.join("seen"), "data\n").unwrap();
        make_read_only(&rooms.data).unwrap();
        Self { dir, rooms }
    }

    fn launch(&self, script: &str) -> Launch {
        let text = |path: &Path| path.display().to_string();
        let env = [
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("DATA", text(&self.rooms.data)),
            ("OUT", text(&self.rooms.output)),
            ("STATE", text(self.dir.path())),
        ];
        Launch {
            command: ["/bin/sh", "-c", script].map(String::from).to_vec(),
            env: env.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            rooms: self.rooms.clone(),
            hidden: vec![self.dir.path().to_owned()],
            devices: Vec::new(),
        }
    }
}

fn runtime(kind: Sandbox) -> Result<ProcessRuntime, RuntimeError> {
    ProcessRuntime::new(kind, &helper(), Duration::from_millis(300))
}

/// Kinds that can be tried here: all but bubblewrap where it is not installed.
async fn kinds() -> Vec<Sandbox> {
    let mut there = Vec::new();
    let dir = tempfile::tempdir().unwrap();
    let probed = probe(dir.path(), &helper()).await;
    for kind in KINDS {
        match probed.refused.iter().find(|(refused, _)| *refused == kind) {
            Some((_, why)) => println!("{} is not tried: {why}", sandbox_name(kind)),
            None => there.push(kind),
        }
    }
    there
}

/// Exit code and standard output.
async fn run(kind: Sandbox, house: &House, script: &str) -> (i32, String) {
    let mut running = runtime(kind).unwrap().launch(house.launch(script)).await.unwrap();
    let mut said = String::new();
    running.stdout().unwrap().read_to_string(&mut said).await.unwrap();
    let exit = tokio::time::timeout(PATIENCE, running.wait()).await.unwrap().unwrap();
    (exit.code, said.trim_end_matches('\n').to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reads_its_data_writes_its_output_and_its_code_comes_back() {
    for kind in kinds().await {
        let house = House::new();
        let ran = run(kind, &house, "cat $DATA/seen; pwd; echo done > $OUT/result; exit 7").await;
        assert_eq!(ran, (7, format!("data\n{}", house.rooms.work.display())), "{kind:?}");
        assert_eq!(fs::read_to_string(house.rooms.output.join("result")).unwrap(), "done\n");
        assert_eq!(run(kind, &house, "kill -9 $$").await.0, 137, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_output_and_scratch_can_be_written() {
    for kind in kinds().await {
        let house = House::new();
        let script = "for f in /usr/x /etc/x /x $DATA/x $DATA/seen $STATE/x /home/x /root/x; do \
            (echo bad > $f) 2>/dev/null && echo wrote $f; done; exit 0";
        assert_eq!(run(kind, &house, script).await, (0, String::new()), "{kind:?}");
        let own = run(kind, &house, "echo a > here && echo b > /tmp/selion-there && cat here").await;
        assert_eq!(own, (0, "a".into()), "{kind:?}");
        let leaked = Path::new("/tmp/selion-there");
        if kind == Sandbox::None {
            fs::remove_file(leaked).unwrap();
        } else {
            assert!(!leaked.exists(), "{kind:?}: /tmp is its own");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_state_cannot_be_read() {
    for kind in kinds().await {
        let house = House::new();
        let (_, read) = run(kind, &house, "cat $STATE/secret 2>/dev/null; exit 0").await;
        if kind != Sandbox::None || nix::unistd::geteuid().is_root() {
            assert_eq!(read, "", "{kind:?}");
        }
        if kind != Sandbox::None {
            let (_, listed) = run(kind, &house, "ls -A $STATE").await;
            assert_eq!(listed, "leases", "{kind:?}: only the way to its own rooms");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_what_was_given_and_no_file_is_inherited() {
    // Open across exec, as a careless library would leave it.
    let careless = fs::File::open("/etc/passwd").unwrap();
    // SAFETY: clears the flag of a descriptor that is open here.
    unsafe { libc::fcntl(careless.as_raw_fd(), libc::F_SETFD, 0) };
    for kind in kinds().await {
        let house = House::new();
        let (_, env) =
            run(kind, &house, "env | cut -d= -f1 | grep -v -e ^PWD -e ^_ -e ^SHLVL -e ^OLDPWD | sort | tr '\\n' ' '")
                .await;
        assert_eq!(env.trim(), "DATA OUT PATH STATE", "{kind:?}");
        let (_, files) = run(kind, &house, "readlink /proc/self/fd/* | grep -c passwd").await;
        assert_eq!(files, "0", "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_no_privilege_and_sees_no_other_process() {
    for kind in kinds().await {
        let house = House::new();
        let script = "grep -e CapEff -e CapPrm -e NoNewPrivs /proc/self/status | tr -s '\\t\\n' '  '; id -u";
        let (_, status) = run(kind, &house, script).await;
        let zero = "0000000000000000";
        let (caps, uid) = status.rsplit_once([' ', '\n']).unwrap();
        assert_eq!(caps.trim(), format!("CapPrm: {zero} CapEff: {zero} NoNewPrivs: 1"), "{kind:?}");
        assert_ne!(uid, "0", "{kind:?}");
        if kind != Sandbox::None {
            let (_, count) = run(kind, &house, "ls /proc | grep -c '^[0-9]'").await;
            assert!(count.parse::<u32>().unwrap() < 10, "{kind:?}: {count} processes");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_named() {
    for kind in kinds().await {
        let house = House::new();
        let mut launch = house.launch("");
        launch.command = vec!["no-such-program".into()];
        let Err(error) = runtime(kind).unwrap().launch(launch).await else {
            panic!("{kind:?} ran it");
        };
        assert!(error.to_string().contains("`no-such-program`"), "{error}");
        let mut launch = house.launch("");
        launch.command.clear();
        let refused = runtime(kind).unwrap().launch(launch).await;
        assert!(matches!(refused, Err(RuntimeError::NoCommand)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_does_not_come_up_runs_nothing() {
    let house = House::new();
    let mut launch = house.launch("echo ran > $OUT/ran");
    launch.rooms.root = house.dir.path().join("gone");
    let Err(error) = runtime(Sandbox::Namespaces).unwrap().launch(launch).await else {
        panic!("it ran outside");
    };
    assert!(matches!(error, RuntimeError::Sandbox { .. }), "{error}");
    assert!(!house.rooms.output.join("ran").exists());
}

/// A pipe with a name in the member's output: its reader sees the end when every process that holds it is gone.
fn life_line(house: &House) -> (PathBuf, mpsc::Receiver<String>) {
    let fifo = house.rooms.output.join("life");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o666)).unwrap();
    let (tell, told) = mpsc::channel();
    let path = fifo.clone();
    std::thread::spawn(move || {
        let mut pipe = fs::File::open(path).unwrap();
        let mut first = [0; 3];
        pipe.read_exact(&mut first).unwrap();
        tell.send(String::from_utf8_lossy(&first).into_owned()).unwrap();
        let mut rest = String::new();
        pipe.read_to_string(&mut rest).unwrap();
        tell.send("gone".into()).unwrap();
    });
    (fifo, told)
}

/// Two processes that do not want to end hold the life line.
const STUBBORN: &str = "trap '' TERM; exec 9> $LIFE; (trap '' TERM; while :; do sleep 100; done) & echo up >&9; while :; do sleep 100; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_whole_group_even_one_that_does_not_listen() {
    for kind in kinds().await {
        let house = House::new();
        let (fifo, told) = life_line(&house);
        let mut launch = house.launch(STUBBORN);
        launch.env.push(("LIFE".into(), fifo.display().to_string()));
        let mut running = runtime(kind).unwrap().launch(launch).await.unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "up\n", "{kind:?}");
        let exit = running.stop().await.unwrap();
        assert_eq!(exit.code, 137, "{kind:?}");
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "gone", "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_listens_ends_by_itself() {
    for kind in kinds().await {
        let house = House::new();
        let script = "trap 'echo saved > $OUT/state; exit 3' TERM; echo up; while :; do sleep 0.02; done";
        let mut running = runtime(kind).unwrap().launch(house.launch(script)).await.unwrap();
        let mut up = [0; 3];
        AsyncReadExt::read_exact(&mut running.stdout().unwrap(), &mut up).await.unwrap();
        let exit = running.stop().await.unwrap();
        assert!(house.rooms.output.join("state").exists(), "{kind:?}: {exit:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_dies_with_its_agent() {
    for kind in kinds().await {
        let house = House::new();
        let (fifo, told) = life_line(&house);
        // A bare child's own children are not known to the kernel as ours; that, too, is why it is no sandbox.
        let more = if kind == Sandbox::None { "" } else { "(while :; do sleep 100; done) &" };
        let script = format!("exec 9> {}; {more} echo up >&9; exec sleep 100", fifo.display());
        let mut agent = Command::new(helper())
            .args(["launch", sandbox_name(kind)])
            .args([&house.rooms.base, house.dir.path()])
            .args(["--", "/bin/sh", "-c", &script])
            .spawn()
            .unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "up\n", "{kind:?}");
        agent.kill().unwrap();
        agent.wait().unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "gone", "{kind:?}");
    }
}
