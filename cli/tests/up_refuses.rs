//! What `selion up` refuses before anything of a stranger could run: the real binary.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

/// `selion up` with more words, in an environment with these variables; it ends by itself.
fn up(home: &Path, words: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_selion"))
        .args(["up", "--data-dir", "d", "--listen", "127.0.0.1:0", "--chain-listen", "127.0.0.1:0"])
        .args(["--simulate", "H100 80GB"])
        .args(words)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .envs(env.iter().copied())
        .current_dir(home)
        .output()
        .expect("the binary starts")
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn a_kubo_that_answers_whoever_asks_is_refused_with_the_command_that_guards_it() {
    let kubo = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", kubo.local_addr().expect("an address"));
    let open = std::thread::spawn(move || {
        let (mut asked, _) = kubo.accept().expect("a connection");
        let mut request = [0; 1024];
        let read = asked.read(&mut request).expect("readable");
        asked.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").expect("written");
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    let home = tempfile::tempdir().expect("a folder");
    let done = up(home.path(), &["--kubo", &url], &[]);
    assert!(open.join().expect("it answered").starts_with("POST /api/v0/version"));
    assert_eq!(done.status.code(), Some(1));
    assert!(said(&done).contains("open_kubo") && said(&done).contains("ipfs config --json"), "{}", said(&done));
    assert!(!home.path().join("d/chain").exists(), "nothing was started");
}

/// Root is refused by the agent itself, everybody else by `up`.
#[test]
fn a_pool_whose_leases_would_run_unguarded_does_not_come_up() {
    let home = tempfile::tempdir().expect("a folder");
    let done = up(home.path(), &[], &[("SELION_AGENT_SANDBOX", "none")]);
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    assert!(said(&done).contains("sandbox"), "{}", said(&done));
    assert!(!String::from_utf8_lossy(&done.stdout).contains("The pool is up"));
}
