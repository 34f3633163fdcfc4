//! Secrets in a box: as root, and as an ordinary user.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

#[expect(dead_code, reason = "other tests use the rest")]
mod house;

use std::fs;
use std::path::{Path, PathBuf};

use house::{House, again_as_an_ordinary_user, is_root, kinds, ran, refused};
use selion_agent::runtime::{Launch, RuntimeError};
use selion_api::seal::{MAX_SECRET, Secret};
use selion_api::slice::Sandbox;
use tokio::io::{AsyncBufReadExt, BufReader};

const CANARY: &str = "canary-8c0e";

fn secrets() -> Vec<Secret> {
    let secret = |name: &str, value: &[u8]| Secret { name: name.into(), value: value.to_vec() };
    vec![secret("token", CANARY.as_bytes()), secret("empty", b""), secret("large.bin", &[7; MAX_SECRET])]
}

fn with_secrets(house: &House, script: &str) -> Launch {
    Launch { secrets: secrets(), ..house.launch(Sandbox::Namespaces, script) }
}

async fn boxed() -> bool {
    kinds().await.contains(&Sandbox::Namespaces)
}

fn holds_canary(path: &Path) -> bool {
    // A process or file that is gone meanwhile holds nothing.
    fs::read(path).is_ok_and(|bytes| bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() && !path.is_symlink() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn a_secret_is_a_file_in_memory_that_its_command_alone_reads() {
    if !boxed().await {
        return;
    }
    let house = House::new();
    // The script stands in the command's arguments, where it may not be what is looked for.
    let script = "cd /run/secrets; test \"$(cat token)\" = \"$(printf 'canary-%s' 8c0e)\" || exit 3
         echo \"$(ls | tr '\\n' ' ')\"; stat -c '%a %s' token empty large.bin
         test \"$(stat -c %u token)\" = \"$(id -u)\" || exit 4
         grep -c ' /run/secrets ro,nosuid,nodev.* - tmpfs ' /proc/self/mountinfo
         (echo x > token) 2>/dev/null && exit 5; (echo x > new) 2>/dev/null && exit 6
         rm -f token 2>/dev/null; test -f token || exit 7
         cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c 'canary[-]8c0e'; exit 0";
    let (code, said) = ran(&house.runtime(Sandbox::Namespaces), with_secrets(&house, script)).await;
    let expected = format!("empty large.bin token \n400 11\n400 0\n400 {MAX_SECRET}\n1\n0");
    assert_eq!((code, said.as_str()), (0, expected.as_str()));
}

#[tokio::test]
async fn while_it_runs_and_after_it_nothing_of_it_is_outside() {
    if !boxed().await {
        return;
    }
    let house = House::new();
    let launch = with_secrets(&house, "cp /run/secrets/token /dev/shm/copy; echo up; read go < /dev/zero; sleep 60");
    let runtime = house.runtime(Sandbox::Namespaces);
    let mut running = selion_agent::runtime::Runtime::launch(&runtime, launch).await.unwrap();
    let mut lines = BufReader::new(running.stdout().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("up"));
    let look = || {
        for file in files(house.dir.path()) {
            assert!(!holds_canary(&file), "{}", file.display());
        }
        for process in fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
            for part in ["environ", "cmdline"] {
                assert!(!holds_canary(&process.join(part)), "{} {part}", process.display());
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(" /run/secrets "), "{mounts}");
    };
    look();
    running.kill().await.unwrap();
    look();
    // The next one in the same rooms has none.
    let after = house.launch(Sandbox::Namespaces, "test -e /run/secrets || echo none");
    assert_eq!(ran(&runtime, after).await, (0, "none".to_owned()));
}

#[tokio::test]
async fn a_command_without_a_sandbox_is_given_none() {
    if !kinds().await.contains(&Sandbox::None) {
        assert!(is_root(), "an ordinary user may run without a sandbox");
        return;
    }
    let house = House::new();
    let launch = Launch { secrets: secrets(), ..house.launch(Sandbox::None, "echo ran") };
    let error = refused(Sandbox::None, &house, launch).await;
    assert!(matches!(error, RuntimeError::BareSecrets), "{error}");
}

#[test]
fn it_all_holds_for_an_ordinary_user_too() {
    again_as_an_ordinary_user();
}
