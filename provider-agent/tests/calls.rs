//! The filter of system calls and the other last walls, tried by a command that attacks and by ordinary programs: as
//! whoever runs the tests, and where that is root as an ordinary user too.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

#[expect(dead_code, reason = "other tests use the rest")]
mod house;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use house::{House, built, is_root, kinds, ran, ran_within, run};
use selion_api::slice::Sandbox;

/// Time for a compiler on a busy machine.
const SLOW: Duration = Duration::from_secs(180);

#[test]
fn all_of_it_holds_for_an_ordinary_user_too() {
    house::again_as_an_ordinary_user();
}

/// What the kernel said to the attacker in this sandbox, by kind and name.
async fn attacked(kind: Sandbox) -> BTreeMap<(String, String), i32> {
    let house = House::new();
    // Beside the data, which is read-only by now.
    let program = house.rooms.work.join("attacker");
    fs::copy(built("attacker"), &program).unwrap();
    let (code, said) = run(kind, &house, "./attacker").await;
    assert_eq!(code, 0, "{kind:?}: {said}");
    let line = |line: &str| {
        let (rest, errno) = line.rsplit_once(' ').unwrap();
        let (what, name) = rest.split_once(' ').unwrap();
        ((what.to_owned(), name.to_owned()), errno.parse().unwrap())
    };
    said.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_that_reaches_past_the_box_is_refused_and_what_programs_need_is_not() {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return;
    }
    let said = attacked(Sandbox::Namespaces).await;
    let of = |kind: &'static str| {
        said.iter().filter(move |((what, _), _)| what == kind).map(|((_, name), errno)| (name, *errno))
    };
    assert!(of("attack").count() >= 70 && of("need").count() >= 20, "{said:?}");
    let through: Vec<_> = of("attack").filter(|(_, errno)| ![libc::EPERM, libc::ENOSYS].contains(errno)).collect();
    assert!(through.is_empty(), "not refused: {through:?}");
    for absent in ["clone3", "cachestat", "a call of the future"] {
        assert_eq!(said[&("attack".into(), absent.into())], libc::ENOSYS, "{absent}: libraries fall back");
    }
    let missing: Vec<_> = of("need").filter(|(_, errno)| *errno != 0).collect();
    assert!(missing.is_empty(), "not allowed: {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_attacks_get_through_where_there_is_no_filter() {
    if is_root() {
        // Root runs nothing without a sandbox; the ordinary user's turn tries it.
        return;
    }
    let said = attacked(Sandbox::None).await;
    let refused = |errno: &i32| [libc::EPERM, libc::ENOSYS].contains(errno);
    let through = said.iter().filter(|((what, _), errno)| what == "attack" && !refused(errno)).count();
    assert!(through >= 20, "only {through} of the attacks need the filter to be refused: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_under_the_filter_without_any_capability_and_so_does_its_init() {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return;
    }
    let house = House::new();
    let script = "for p in self 1; do \
        grep -e ^Cap -e ^NoNewPrivs -e ^Seccomp: /proc/$p/status | tr -d '\\t\\n'; echo; done";
    let (_, said) = run(Sandbox::Namespaces, &house, script).await;
    let zero = "0000000000000000";
    let walls = format!("CapInh:{zero}CapPrm:{zero}CapEff:{zero}CapBnd:{zero}CapAmb:{zero}NoNewPrivs:1Seccomp:2");
    assert_eq!(said, format!("{walls}\n{walls}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machines_own_in_proc_is_covered_and_its_settings_cannot_be_written() {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return;
    }
    let house = House::new();
    let script = "for f in kcore kallsyms keys key-users cmdline modules timer_list sched_debug interrupts iomem kmsg \
        sysrq-trigger; do head -c 1 /proc/$f 2>/dev/null; done; ls -A /proc/acpi /proc/scsi 2>/dev/null | grep -v :$; \
        for f in /proc/sys/kernel/hostname /proc/sysrq-trigger /proc/irq/default_smp_affinity; do \
        (echo x > $f) 2>/dev/null && echo wrote $f; done; \
        grep -c processor /proc/cpuinfo >/dev/null && grep -q MemTotal /proc/meminfo && grep -q . /proc/self/maps && echo facts";
    // Writing to `/dev/null` in the place of a file is no writing.
    assert_eq!(run(Sandbox::Namespaces, &house, script).await.1.replace("wrote /proc/sysrq-trigger\n", ""), "facts");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_variable_for_the_loader_or_a_vendors_hook_reaches_a_command() {
    for kind in kinds().await {
        let house = House::new();
        let mut launch = house.launch(kind, "env | cut -d= -f1 | grep -e ^LD_ -e ^NVIDIA_; echo end");
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DISABLE_REQUIRE"] {
            launch.env.push((name.into(), "/nowhere".into()));
        }
        assert_eq!(ran(&house.runtime(kind), launch).await, (0, "end".into()), "{kind:?}");
    }
}

/// What stands for its language: threads, processes, shared memory, files, a socket.
const PROGRAMS: [(&str, &str, &str); 7] = [
    ("/bin/ls", "ls -la / >/dev/null && echo ok", "ok"),
    ("/bin/bash", "bash -c 'x=$(echo ok | cat); coproc cat; echo $x'", "ok"),
    ("/usr/bin/perl", "perl -e 'my $p = fork; exit 0 unless $p; waitpid $p, 0; print \"ok\\n\"'", "ok"),
    (
        "/usr/bin/python3",
        "/usr/bin/python3 -c 'import threading, subprocess, socket, tempfile, multiprocessing.shared_memory as m, os; \
            t = [threading.Thread(target=lambda: sum(range(1000))) for _ in range(8)]; [x.start() for x in t]; \
            [x.join() for x in t]; s = m.SharedMemory(create=True, size=4096); s.buf[0] = 1; s.close(); s.unlink(); \
            a, b = socket.socketpair(); a.send(b\"x\"); assert b.recv(1) == b\"x\"; socket.if_nameindex(); \
            l = socket.create_server((\"127.0.0.1\", 0)); socket.create_connection(l.getsockname()).close(); \
            assert subprocess.run([\"true\"]).returncode == 0; os.sched_getaffinity(0); tempfile.TemporaryFile(); print(\"ok\")'",
        "ok",
    ),
    (
        "/usr/bin/java",
        "echo 'class T { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> {}); t.start(); \
            t.join(); System.out.println(\"ok\"); } }' > T.java && java -Xmx64m T.java",
        "ok",
    ),
    (
        "/usr/local/go/bin/go",
        "mkdir m && cd m && echo 'package main; import (\"fmt\"; \"net\"; \"os/exec\"; \"runtime\"); func main() { \
            c := make(chan int); for i := 0; i < 64; i++ { go func() { runtime.LockOSThread(); c <- i }() }; \
            for i := 0; i < 64; i++ { <-c }; net.Interfaces(); l, e := net.Listen(\"tcp\", \"127.0.0.1:0\"); \
            if e != nil { panic(e) }; l.Close(); if e := exec.Command(\"true\").Run(); e != nil { panic(e) }; fmt.Println(\"ok\") }' \
            > t.go && GOCACHE=$PWD/c GOFLAGS=-mod=mod GOTOOLCHAIN=local /usr/local/go/bin/go run t.go",
        "ok",
    ),
    ("/usr/bin/gcc", "echo 'int main(void){return 7;}' > t.c && gcc t.c -o t; ./t; echo $?", "7"),
];

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_every_language_that_is_here_run_under_the_filter() {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return;
    }
    let mut tried = 0;
    for (program, script, answer) in PROGRAMS {
        if !Path::new(program).exists() {
            println!("{program} is not here and not tried");
            continue;
        }
        tried += 1;
        let house = House::new();
        let script = format!("export HOME=$PWD; {{ {script}; }} 2>&1");
        let launch = house.launch(Sandbox::Namespaces, &script);
        let (code, said) = ran_within(SLOW, &house.runtime(Sandbox::Namespaces), launch).await;
        assert_eq!((code, said.as_str()), (0, answer), "{program}");
    }
    assert!(tried >= 2, "this machine has nothing to try");
}
