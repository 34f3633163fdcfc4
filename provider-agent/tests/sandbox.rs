//! Both ways to run commands, with real ones: as whoever runs the tests, and where that is root as an ordinary user too.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

mod house;

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

use house::{House, PATIENCE, helper, is_root, kinds, ran, refused, run};
use selion_agent::runtime::{Found, ProcessRuntime, Rooms, Runtime, RuntimeError, Why, sandbox_name};
use selion_api::slice::Sandbox;

#[test]
fn all_of_it_holds_for_an_ordinary_user_too() {
    house::again_as_an_ordinary_user();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reads_its_data_writes_its_output_and_its_code_comes_back() {
    for kind in kinds().await {
        let house = House::new();
        let work = house.rooms.seen_in(kind).work;
        let ran = run(kind, &house, "cat $DATA/seen; pwd; echo done > $OUT/result; exit 7").await;
        assert_eq!(ran, (7, format!("data\n{}", work.display())), "{kind:?}");
        assert_eq!(fs::read_to_string(house.rooms.output.join("result")).unwrap(), "done\n");
        assert_eq!(run(kind, &house, "kill -9 $$").await.0, 137, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_output_and_scratch_can_be_written() {
    for kind in kinds().await {
        let house = House::new();
        let state = if kind == Sandbox::None { "" } else { "$STATE/x" };
        let script = format!(
            "for f in /usr/x /etc/x /x /dev/x $DATA/x $DATA/seen {state} /home/x /root/x; do \
             (echo bad > $f) 2>/dev/null && echo wrote $f; done; exit 0"
        );
        assert_eq!(run(kind, &house, &script).await, (0, String::new()), "{kind:?}");
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
async fn a_sandboxed_command_sees_what_is_on_the_list_and_nothing_else_of_the_machine() {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return;
    }
    let house = House::new();
    let (_, top) = run(Sandbox::Namespaces, &house, "ls -A /").await;
    let list = [
        "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "selion", "sys", "tmp", "usr",
        "var",
    ];
    let more: Vec<&str> = top.lines().filter(|name| !list.contains(name)).collect();
    assert!(more.is_empty(), "{more:?}");
    let private = "/etc/shadow /etc/gshadow /etc/ssh /etc/kubernetes /etc/sudoers /etc/ssl/private /etc/machine-id /boot /home /mnt \
        /root /srv /var/lib /var/log /dev/tty /dev/console /dev/ptmx /dev/pts /dev/mem /dev/kmsg /sys/kernel /sys/fs /sys/class";
    let script = format!("for f in {private}; do test -e $f && echo $f; done; cat $STATE/secret 2>/dev/null; exit 0");
    assert_eq!(run(Sandbox::Namespaces, &house, &script).await, (0, String::new()));
    let accounts =
        "id -un; grep -c . /etc/passwd; ls -A /run | wc -l; sh -c 'echo programs start'; date >/dev/null && echo dates";
    let (_, said) = run(Sandbox::Namespaces, &house, accounts).await;
    assert_eq!(said, "renter\n2\n0\nprograms start\ndates");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_out_of_sight_wherever_the_owner_put_them() {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return;
    }
    for place in house::places() {
        // As `selion up` lays it out: the controller's keys are beside the agent's state.
        let pool = place.path().join("pool");
        fs::create_dir_all(pool.join("controller/keys")).unwrap();
        for key in ["authority.key", "controller/keys/token", "agent.key"] {
            fs::write(pool.join(key), "secret").unwrap();
        }
        fs::write(place.path().join("library"), "shown").unwrap();
        let mut house = House::new();
        house.rooms = Rooms::make(&pool.join("agent/leases/one")).unwrap();
        let mut walls = house.walls(Sandbox::Namespaces);
        walls.hidden.push(pool.clone());
        walls.shown = vec![PathBuf::from("/opt")];
        let runtime = ProcessRuntime::new(walls.clone()).unwrap();
        let script = format!(
            "cat {}/library; cd {}; cat *.key */*/token 2>/dev/null; ls -A; find {} -name '*.key' 2>/dev/null; \
             touch x 2>/dev/null && echo wrote; exit 0",
            place.path().display(),
            pool.display(),
            place.path().display()
        );
        assert_eq!(
            ran(&runtime, house.launch(Sandbox::Namespaces, &script)).await,
            (0, "shown".into()),
            "{}",
            pool.display()
        );
        for wrong in [PathBuf::from("/"), pool.clone(), pool.join("controller"), pool.join("gone")] {
            walls.shown = vec![wrong];
            assert!(matches!(ProcessRuntime::new(walls.clone()), Err(RuntimeError::Shown { .. })));
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
async fn a_command_has_no_privilege_sees_no_other_process_and_is_the_first_to_go() {
    for kind in kinds().await {
        let house = House::new();
        let script = "grep -e CapEff -e CapPrm -e NoNewPrivs /proc/self/status | tr -s '\\t\\n' '  '; id -u";
        let (_, status) = run(kind, &house, script).await;
        let zero = "0000000000000000";
        let (caps, uid) = status.rsplit_once([' ', '\n']).unwrap();
        assert_eq!(caps.trim(), format!("CapPrm: {zero} CapEff: {zero} NoNewPrivs: 1"), "{kind:?}");
        assert_ne!(uid, "0", "{kind:?}");
        assert_eq!(run(kind, &house, "cat /proc/self/oom_score_adj").await.1, "1000", "{kind:?}");
        if kind != Sandbox::None {
            let (_, count) = run(kind, &house, "ls /proc | grep -c '^[0-9]'").await;
            assert!(count.parse::<u32>().unwrap() < 10, "{kind:?}: {count} processes");
            let (_, init) =
                run(kind, &house, "cat /proc/1/environ /proc/1/maps 2>/dev/null; readlink /proc/1/exe; exit 0").await;
            assert_eq!(init, "", "{kind:?}: the agent's own process is closed to it");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_named_and_one_that_is_hidden_is_told_the_same() {
    for kind in kinds().await {
        let house = House::new();
        let mut launch = house.launch(kind, "");
        launch.command = vec!["no-such-program".into()];
        let error = refused(kind, &house, launch.clone()).await;
        assert!(error.to_string().contains("`no-such-program`"), "{error}");
        for hidden in ["secret", "no-such-file"] {
            launch.command = vec![house.dir.path().join(hidden).display().to_string()];
            let error = refused(kind, &house, launch.clone()).await;
            let same = matches!(error, RuntimeError::NoSuchProgram { .. });
            assert!(same || kind == Sandbox::None, "{hidden}: {error}");
        }
        launch.command.clear();
        assert!(matches!(refused(kind, &house, launch).await, RuntimeError::NoCommand));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_does_not_come_up_runs_nothing() {
    for kind in kinds().await {
        let house = House::new();
        let mut launch = house.launch(kind, "echo ran > $OUT/ran");
        launch.rooms.work = house.dir.path().join("gone");
        let error = refused(kind, &house, launch).await;
        assert!(matches!(error, RuntimeError::Sandbox { .. }), "{error}");
        assert!(!house.rooms.output.join("ran").exists());
    }
}

#[test]
fn root_runs_nothing_without_a_sandbox() {
    let made = ProcessRuntime::new(House::new().walls(Sandbox::None));
    assert_eq!(matches!(made, Err(RuntimeError::BareRoot)), is_root());
}

/// A pipe with a name in the member's output: its reader sees the end when every process that holds it is gone.
fn life_line(house: &House) -> mpsc::Receiver<String> {
    let fifo = house.rooms.output.join("life");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o666)).unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut pipe = fs::File::open(fifo).unwrap();
        let mut first = [0; 3];
        pipe.read_exact(&mut first).unwrap();
        tell.send(String::from_utf8_lossy(&first).into_owned()).unwrap();
        let mut rest = String::new();
        pipe.read_to_string(&mut rest).unwrap();
        tell.send("gone".into()).unwrap();
    });
    told
}

/// Three processes that do not want to end hold the life line; one left the command's session.
const STUBBORN: &str = "trap '' TERM; exec 9> $OUT/life; (trap '' TERM; while :; do sleep 100; done) & \
    setsid sh -c \"trap '' TERM; echo up >&9; while :; do sleep 100; done\" & while :; do sleep 100; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_all_that_a_command_started_even_what_does_not_listen_or_left_its_session() {
    for kind in kinds().await {
        let house = House::new();
        let told = life_line(&house);
        let mut running = house.runtime(kind).launch(house.launch(kind, STUBBORN)).await.unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "up\n", "{kind:?}");
        let exit = running.stop().await.unwrap();
        assert_eq!(exit.code, 137, "{kind:?}");
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "gone", "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_behind_ends_with_it() {
    for kind in kinds().await {
        let house = House::new();
        let told = life_line(&house);
        let script = "exec 9> $OUT/life; (setsid sh -c '(setsid sleep 100) & sleep 100') & echo up >&9; exit 4";
        let mut running = house.runtime(kind).launch(house.launch(kind, script)).await.unwrap();
        let exit = tokio::time::timeout(PATIENCE, running.wait()).await.unwrap().unwrap();
        assert_eq!(exit.code, 4, "{kind:?}");
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "up\n", "{kind:?}");
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "gone", "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_listens_has_its_grace_to_end_by_itself() {
    for kind in kinds().await {
        let house = House::new();
        let script = "trap 'sleep 0.05; echo saved > $OUT/state; exit 3' TERM; echo up; while :; do sleep 0.02; done";
        let mut running = house.runtime(kind).launch(house.launch(kind, script)).await.unwrap();
        let mut up = [0; 3];
        tokio::io::AsyncReadExt::read_exact(&mut running.stdout().unwrap(), &mut up).await.unwrap();
        assert_eq!(running.stop().await.unwrap().code, 3, "{kind:?}");
        assert!(house.rooms.output.join("state").exists(), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_outlives_its_agent_and_ends_by_itself_if_none_comes() {
    for kind in kinds().await {
        let house = House::new();
        let told = life_line(&house);
        let inside = house.rooms.seen_in(kind).output;
        let out = inside.display();
        let script = format!(
            "exec 9> {out}/life; (setsid sleep 100) & echo up >&9; while ! test -e {out}/agent-is-gone; do sleep 0.01; done; \
             echo on > {out}/on; exec sleep 100"
        );
        let mut agent = Command::new(helper())
            .args(["launch", sandbox_name(kind)])
            .args([&house.rooms.base, house.dir.path()])
            .args(["--", "/bin/sh", "-c", &script])
            .spawn()
            .unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "up\n", "{kind:?}");
        agent.kill().unwrap();
        agent.wait().unwrap();
        fs::write(house.rooms.output.join("agent-is-gone"), "").unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "gone", "{kind:?}");
        assert!(house.rooms.output.join("on").exists(), "{kind:?}: it went on before");
        let runtime = house.runtime(kind);
        let Found::There(mut over) = runtime.adopt(&house.rooms.base).await else {
            panic!("{kind:?}: its end is known")
        };
        let exit = over.wait().await.unwrap();
        assert_eq!((exit.why, exit.code), (Why::Alone, 143), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_box_falls_with_its_supervisor_and_that_is_said() {
    for kind in kinds().await {
        let house = House::new();
        let told = life_line(&house);
        let script = "exec 9> $OUT/life; (setsid sleep 100) & echo up >&9; exec sleep 100";
        let mut running = house.runtime(kind).launch(house.launch(kind, script)).await.unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "up\n", "{kind:?}");
        let supervisor = nix::unistd::Pid::from_raw(supervisor(&house));
        nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL).unwrap();
        let error = tokio::time::timeout(PATIENCE, running.wait()).await.unwrap().unwrap_err().to_string();
        assert!(error.contains("supervisor was killed"), "{error}");
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "gone", "{kind:?}");
        drop(running);
        let Found::Gone { lock: Some(lock), why } = house.runtime(kind).adopt(&house.rooms.base).await else {
            panic!("{kind:?}: nothing is left")
        };
        assert!(why.contains("supervisor was killed"), "{why}");
        // As long as somebody has it, nothing starts there.
        let error = refused(kind, &house, house.launch(kind, "echo ran > $OUT/ran")).await;
        assert!(error.to_string().contains("another supervisor"), "{error}");
        drop(lock);
        assert!(!house.rooms.output.join("ran").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reaches_nothing_of_its_supervisors() {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return;
    }
    let house = House::new();
    let base = house.rooms.base.display();
    let script = format!(
        "for f in box lock record stdout stderr; do for d in {base} /selion /selion/work /selion/work/.. /selion/output/..; do \
         test -e $d/$f && echo $d/$f; done; done; grep -c /box /proc/net/unix; \
         for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -c 'sandbox-exec [k]eep'; done | sort -u; \
         for n in 1 2 3 4 5 6 7 8 9; do readlink /proc/$$/fd/$n; done | grep -v -e pipe -e null; exit 0"
    );
    let (_, said) = run(Sandbox::Namespaces, &house, &script).await;
    assert_eq!(said, "0\n0");
}

/// The supervisor of the house's box, by its own record.
fn supervisor(house: &House) -> i32 {
    let record = fs::read_to_string(house.rooms.base.join("record")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    record["supervisor"].as_i64().unwrap().try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_asks_for_no_network_has_a_loopback_of_its_own_and_none_of_the_nodes_sockets() {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return;
    }
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("selion-test-{}", std::process::id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let house = House::new();
    let script = format!(
        "(exec 3<>/dev/tcp/127.0.0.1/{}) 2>&1 | grep -o -e refused -e unreachable | sort -u; grep -c {name} /proc/net/unix",
        service.local_addr().unwrap().port()
    );
    let mut launch = house.launch(Sandbox::Namespaces, "");
    launch.command = ["/bin/bash", "-c", &script].map(String::from).to_vec();
    let (_, said) = ran(&house.runtime(Sandbox::Namespaces), launch).await;
    assert_eq!(said, "refused\n0", "its own loopback is up, and refuses");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_helper_carries_no_word_of_the_renters() {
    for kind in kinds().await {
        let house = House::new();
        let mut launch = house.launch(kind, "echo up; sleep 100 # a-word-of-the-renters");
        launch.env.push(("GLIBC_TUNABLES".into(), "a-word-of-the-renters".into()));
        let mut running = house.runtime(kind).launch(launch).await.unwrap();
        let helpers = helpers();
        assert!(helpers.len() >= 2, "a supervisor and its helper: {helpers:?}");
        for helper in helpers {
            let read = |file: &str| fs::read(format!("/proc/{helper}/{file}")).unwrap_or_default();
            for file in ["cmdline", "environ"] {
                assert!(!String::from_utf8_lossy(&read(file)).contains("a-word-of-the-renters"), "{kind:?} {file}");
            }
        }
        running.stop().await.unwrap();
    }
}

/// Process ids of the supervisors that this process started, and of their helpers.
fn helpers() -> Vec<u32> {
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let processes: Vec<u32> = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).collect();
    let parent = |process: u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(1)?.parse::<u32>().ok())
    };
    let is_ours = |process: &u32| {
        let own = Some(std::process::id());
        let above = parent(*process);
        let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        (above == own || above.and_then(parent) == own) && String::from_utf8_lossy(&words).contains("sandbox-exec")
    };
    processes.into_iter().filter(is_ours).collect()
}
