//! The renter's page begins with a real job. It is done here as it stands there, and loses its node on the way.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A command that ran for less when its box fell has failed, and does not run again: ten seconds.
const LONG: Duration = Duration::from_secs(11);

const PAGE: &str = include_str!("../../docs/renter.md");
const IMAGES: &str = include_str!("../../docs/training.md");

/// The shell commands of one section of a page, in order.
fn commands(page: &str, title: &str) -> String {
    let section = page.split_once(&format!("\n## {title}\n")).expect("the section is there").1;
    let section = section.split_once("\n## ").map_or(section, |(this, _)| this);
    let blocks = section.split("\n```sh\n").skip(1).map(|rest| rest.split_once("\n```").expect("closed").0);
    blocks.collect::<Vec<_>>().join("\n")
}

fn in_home(home: &Path, program: &str) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_selion")).parent().expect("a folder");
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    command.current_dir(home).stdout(Stdio::piped());
    command
}

fn lines(process: &mut Child) -> impl Iterator<Item = String> + use<> {
    let stdout = process.stdout.take().expect("piped");
    BufReader::new(stdout).lines().map(|line| line.expect("readable"))
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("signalled");
}

/// The process that holds the one command that runs, by its own record in the lease's folder.
fn supervisor(folder: &Path) -> Option<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders =
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    folders.find_map(|inner| {
        let of_a_lease = folder.ends_with("leases");
        let record = of_a_lease.then(|| std::fs::read(inner.join("record")).ok()).flatten();
        let record: Option<Value> = record.and_then(|text| serde_json::from_slice(&text).ok());
        let running = record.filter(|record| record["ended"].is_null());
        let found = running.and_then(|record| u32::try_from(record["supervisor"].as_u64()?).ok());
        found.or_else(|| if of_a_lease { None } else { supervisor(&inner) })
    })
}

/// A pool; dropping stops it.
struct Up(Child);

impl Up {
    /// One with a simulated GPU of each kind that the pages use.
    fn start(home: &Path) -> Self {
        let mut up = in_home(home, "selion");
        up.args(["up", "-o", "json", "--listen", "127.0.0.1:0", "--chain-listen", "127.0.0.1:0"]);
        Self(up.args(["--simulate", "H100 80GB"]).spawn().expect("the binary starts"))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            signal(self.0.id(), Signal::SIGINT);
            let _ = self.0.wait();
        }
    }
}

#[test]
fn the_first_job_of_the_renters_page_is_done_though_its_box_is_killed() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let mut up = Up::start(home);
    let mut says = lines(&mut up.0);
    let ready = says.next().expect("a line");
    let ready: Value = serde_json::from_str(&ready).expect("a line of JSON");
    assert!(ready["ready"]["pids"]["agent"].is_u64(), "{ready}");

    let script = format!("set -eu\n{}", commands(PAGE, "A real job, end to end"));
    let mut job = in_home(home, "bash").args(["-c", &script]).spawn().expect("bash starts");
    let (mut said, mut began, mut killed_at) = (Vec::new(), None, None);
    for line in lines(&mut job) {
        if let Some(step) = line.strip_prefix("step ").and_then(|rest| rest.split(' ').next()) {
            let began = *began.get_or_insert_with(Instant::now);
            if killed_at.is_none() && began.elapsed() >= LONG {
                signal(supervisor(home).expect("the job has a supervisor"), Signal::SIGKILL);
                killed_at = step.parse::<u32>().ok();
            }
        }
        said.push(line);
    }
    let shown = said.join("\n");
    assert_eq!(job.wait().expect("waited").code(), Some(0), "{shown}");
    let resumed = said.iter().find_map(|line| line.strip_prefix("going on from step ")).expect("a second run");
    assert!(resumed.parse::<u32>().ok() >= killed_at, "{shown}");
    assert!(shown.contains("run 1 ended: node_lost"), "{shown}");
    let model: Value = serde_json::from_str(said.last().expect("a line")).expect("the model");
    assert_eq!(model["step"], 100);
    let near = |name: &str, to: f64| (model[name].as_f64().expect("a number") - to).abs() < 0.001;
    assert!(near("slope", 3.0) && near("offset", 2.0), "{model}");

    signal(up.0.id(), Signal::SIGINT);
    assert_eq!(up.0.wait().expect("waited").code(), Some(0));
}

#[test]
fn a_script_in_an_image_made_by_hand_is_done_as_its_page_says() {
    let home = tempfile::tempdir().expect("a folder");
    let mut up = Up::start(home.path());
    let mut says = lines(&mut up.0);
    assert!(says.next().expect("a line").contains("ready"));
    let script = format!("set -eu\n{}", commands(IMAGES, "In an image of your own"));
    let mut job = in_home(home.path(), "bash").args(["-c", &script]).spawn().expect("bash starts");
    let said: Vec<String> = lines(&mut job).collect();
    let shown = said.join("\n");
    assert_eq!(job.wait().expect("waited").code(), Some(0), "{shown}");
    assert!(shown.contains("step 200 slope 3.0"), "{shown}");
    let model: Value = serde_json::from_str(said.last().expect("a line")).expect("the model");
    assert!((model["slope"].as_f64().expect("a number") - 3.0).abs() < 0.001, "{model}");
}
