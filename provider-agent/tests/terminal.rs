//! A leased command and its owner's terminal, on a real one (CVE-2017-5226).
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

#[expect(dead_code, reason = "other tests use the rest of it")]
mod house;

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use house::{House, helper, kinds};
use selion_agent::runtime::sandbox_name;

/// What the typist writes on a terminal that it reaches.
const FORGED: &str = "forged";

/// A terminal: the side of its screen and keyboard, and the side of its programs.
fn terminal() -> (File, OwnedFd) {
    let (mut screen, mut programs) = (-1, -1);
    let nothing = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: two places for descriptors; no name, settings or size are asked for or given.
    let made = unsafe { libc::openpty(&raw mut screen, &raw mut programs, nothing.0, nothing.1, nothing.2) };
    assert_eq!(made, 0);
    // SAFETY: both were opened just now, for us alone.
    unsafe { (File::from_raw_fd(screen), OwnedFd::from_raw_fd(programs)) }
}

/// Runs `command` as a shell would: leading a session whose terminal is `programs`, its standard input.
fn run_on(programs: &OwnedFd, command: &mut Command) {
    command.stdin(programs.try_clone().unwrap()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let take = || {
        nix::unistd::setsid()?;
        // SAFETY: takes the terminal at standard input for the session that was made just now.
        if unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: two system calls.
    unsafe { command.pre_exec(take) };
    assert!(command.status().unwrap().success());
}

/// What the screen shows by now.
fn shown(screen: &mut File) -> String {
    let mut poll = libc::pollfd { fd: screen.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd, no wait.
    if unsafe { libc::poll(&raw mut poll, 1, 0) } <= 0 || poll.revents & libc::POLLIN == 0 {
        return String::new();
    }
    let mut bytes = [0; 4096];
    let read = screen.read(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// A house whose member brought the typist as data.
fn house() -> House {
    let house = House::new();
    let data = &house.rooms.data;
    fs::set_permissions(data, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(helper(), data.join("typist")).unwrap();
    fs::set_permissions(data.join("typist"), fs::Permissions::from_mode(0o555)).unwrap();
    house
}

fn told(house: &House) -> String {
    fs::read_to_string(house.rooms.output.join("typist")).unwrap()
}

#[test]
fn all_of_it_holds_for_an_ordinary_user_too() {
    house::again_as_an_ordinary_user();
}

#[test]
fn a_program_of_the_owners_session_reaches_the_terminal() {
    let house = house();
    let (mut screen, programs) = terminal();
    run_on(&programs, Command::new(helper()).args(["type", FORGED]).current_dir(&house.rooms.output));
    assert!(shown(&mut screen).contains(FORGED), "else the test below shows nothing");
    assert!(told(&house).contains("wrote"), "{}", told(&house));
    assert!(!told(&house).contains("terminal 0\n"), "{}", told(&house));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leased_command_neither_writes_on_the_owners_terminal_nor_types_into_it() {
    for kind in kinds().await {
        let house = house();
        let (mut screen, programs) = terminal();
        let mut agent = Command::new(helper());
        agent.args(["launch", sandbox_name(kind)]).args([&house.rooms.base, house.dir.path()]).args(["--"]);
        let script = "cd ../output && exec ../data/typist type forged";
        run_on(&programs, agent.args(["/bin/sh", "-c", script]));
        assert_eq!(told(&house), "terminal 0\n", "{kind:?}: no terminal, nothing typed, nothing written");
        assert_eq!(shown(&mut screen), "", "{kind:?}");
    }
}
