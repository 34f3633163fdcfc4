//! What a leased command prints arrives whole and live, and Ctrl-C does what it says: the real binary, a real pool.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn selion(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selion"));
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").current_dir(home);
    command
}

/// A pool of one simulated GPU; dropping stops it.
struct Pool(Child);

impl Pool {
    fn start(home: &Path) -> Self {
        let up = ["up", "-o", "json", "--data-dir", "d", "--listen", "127.0.0.1:0", "--chain-listen", "127.0.0.1:0"];
        let mut process = selion(home)
            .args(up)
            .args(["--simulate", "H100 80GB"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        assert!(line.contains("ready"), "{line}");
        Self(process)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        interrupt(&self.0);
        let _ = self.0.wait();
    }
}

fn interrupt(process: &Child) {
    kill(Pid::from_raw(process.id().cast_signed()), Signal::SIGINT).expect("signalled");
}

/// `selion run` of a shell script.
fn run(home: &Path, script: &str) -> Output {
    selion(home).args(["run", "--slice", "1g.10gb", "--", "sh", "-c", script]).output().expect("the binary starts")
}

fn json(home: &Path, words: &[&str]) -> Value {
    let done = selion(home).args(["-o", "json"]).args(words).output().expect("the binary starts");
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

/// A `selion run` whose command never ends, once its first three bytes, without a line end, were seen.
fn endless(home: &Path) -> (Child, BufReader<ChildStderr>, String) {
    let mut process = selion(home)
        .args(["run", "--slice", "1g.10gb", "--", "sh", "-c", "printf abc; exec sleep 600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut seen = [0; 3];
    process.stdout.as_mut().expect("piped").read_exact(&mut seen).expect("shown before its line ends");
    assert_eq!(&seen, b"abc");
    let stderr = BufReader::new(process.stderr.take().expect("piped"));
    let lease = json(home, &["lease", "list", "--limit", "1"])["leases"][0]["id"].as_str().expect("an id").to_owned();
    (process, stderr, lease)
}

/// Reads stderr up to a line with these words.
fn until(stderr: &mut BufReader<ChildStderr>, words: &str) {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(stderr.read_line(&mut line).expect("readable") > 0, "`{words}` was never said");
    }
}

#[test]
fn what_a_command_prints_arrives_whole_and_live_and_ctrl_c_does_what_it_says() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let _pool = Pool::start(home);
    a_burst_arrives_whole_with_the_last_words(home);
    bytes_arrive_as_they_are(home);
    one_very_long_line_is_one_line(home);
    a_second_ctrl_c_leaves_the_lease_running(home);
    one_ctrl_c_gives_it_back(home);
}

fn a_burst_arrives_whole_with_the_last_words(home: &Path) {
    let done = run(home, "seq 1 500000; echo 'Traceback: boom' >&2; exit 3");
    assert_eq!(done.status.code(), Some(3));
    let expected: String = (1..=500_000).map(|n| format!("{n}\n")).collect();
    assert!(done.stdout == expected.as_bytes(), "{} of {} bytes", done.stdout.len(), expected.len());
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("Traceback: boom") && !said.contains("left out"), "{said}");
    let lease = json(home, &["lease", "list", "--limit", "1"])["leases"][0]["id"].as_str().expect("an id").to_owned();
    let last = selion(home).args(["lease", "logs", &lease, "--tail", "1"]).output().expect("starts");
    let last = [last.stdout, last.stderr].concat();
    // The two streams come by two pipes: which of them ends first is not known.
    let ends = [&b"500000\n"[..], b"Traceback: boom\n"];
    assert!(ends.contains(&last.as_slice()), "of a lease that is over: {}", String::from_utf8_lossy(&last));
}

fn bytes_arrive_as_they_are(home: &Path) {
    let file = "/usr/bin/env";
    let done = run(home, &format!("cat {file}; printf 'no end'"));
    let mut expected = std::fs::read(file).expect("readable");
    expected.extend_from_slice(b"no end");
    assert!(done.stdout == expected, "{} of {} bytes", done.stdout.len(), expected.len());
}

fn one_very_long_line_is_one_line(home: &Path) {
    let done = run(home, "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo next");
    assert_eq!(done.stdout.len(), 20_000_000 + "\nnext\n".len());
    assert_eq!(done.stdout.iter().filter(|byte| **byte == b'\n').count(), 2);
}

fn a_second_ctrl_c_leaves_the_lease_running(home: &Path) {
    let (mut process, mut stderr, lease) = endless(home);
    interrupt(&process);
    until(&mut stderr, "back in 2 s; Ctrl-C again leaves it running");
    interrupt(&process);
    until(&mut stderr, "goes on; return with");
    assert_eq!(process.wait().expect("ends").code(), Some(130));
    assert_eq!(json(home, &["lease", "show", &lease])["state"], "active");
    let so_far = selion(home).args(["lease", "events", &lease, "--no-follow"]).output().expect("starts");
    assert!(String::from_utf8_lossy(&so_far.stdout).contains("active"), "it ends while the lease goes on");
    json(home, &["lease", "release", &lease]);
    json(home, &["lease", "wait", &lease, "--state", "ended"]);
}

fn one_ctrl_c_gives_it_back(home: &Path) {
    let (mut process, mut stderr, lease) = endless(home);
    interrupt(&process);
    until(&mut stderr, "Ctrl-C again leaves it running");
    until(&mut stderr, "is being given back; Ctrl-C stops watching");
    assert_eq!(process.wait().expect("ends").code(), Some(130));
    let shown = json(home, &["lease", "show", &lease]);
    assert_eq!((&shown["state"], &shown["reason"]), (&"ended".into(), &"released".into()));
}
