//! The box's specification, run by a real OCI runtime: as whoever runs the tests, and where that is root as an ordinary
//! user too. Skipped, with a word, where there is no `runc`.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

#[expect(dead_code, reason = "other tests use the rest")]
mod house;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use house::{built, is_root};
use selion_agent::runtime::spec::{
    Bind, BoxPlan, Defaults, IdRange, Limits, Network, Program, Request, Scratch, User, spec,
};
use tempfile::TempDir;

#[test]
fn all_of_it_holds_for_an_ordinary_user_too() {
    house::again_as_an_ordinary_user();
}

fn runc() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).chain(["/usr/sbin".into()]).map(|folder| folder.join("runc"));
    let found = found.into_iter().find(|place| place.is_file());
    if found.is_none() {
        println!("there is no runc here: not tried");
    }
    found
}

/// A root of empty folders in which the machine's programs are shown, as a base root is.
struct Bundle(TempDir);

impl Bundle {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for folder in ["proc", "sys", "dev", "tmp", "etc", "usr", "bin", "sbin", "lib", "lib64", "selion"] {
            fs::create_dir_all(dir.path().join("root").join(folder)).unwrap();
        }
        let shown = dir.path().join("shown");
        fs::create_dir(&shown).unwrap();
        let attacker = shown.join("attacker");
        fs::copy(built("attacker"), &attacker).unwrap();
        for path in [&shown, &attacker] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(dir)
    }

    fn plan(&self, script: &str) -> BoxPlan {
        let request = Request {
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: vec![("LD_PRELOAD".into(), "/evil.so".into()), ("NVIDIA_VISIBLE_DEVICES".into(), "all".into())],
            cwd: Some("/tmp".into()),
            ..Request::default()
        };
        let system = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/sys/devices/system/cpu"];
        let mut binds: Vec<Bind> = system
            .iter()
            .filter(|path| Path::new(path).exists())
            .map(|path| Bind { source: path.into(), target: path.into(), writable: false })
            .collect();
        binds.push(Bind { source: self.0.path().join("shown"), target: "/selion".into(), writable: false });
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let ids = |own: u32| {
            let (outside, size) = if is_root() { (100_000, 65_536) } else { (own, 1) };
            vec![IdRange { inside: 0, outside, size }]
        };
        BoxPlan {
            root: self.0.path().join("root"),
            root_writable: false,
            program: Program::of(&Defaults::default(), &request, &[]).unwrap(),
            user: User { uid: 0, gid: 0, groups: Vec::new() },
            hostname: "box".into(),
            binds,
            scratch: vec![Scratch { target: "/tmp".into(), bytes: 1 << 20 }],
            devices: Vec::new(),
            limits: Limits { cpu_milli: 500, memory_bytes: 256 << 20, pids: 64, open_files: 1024, shm_bytes: 2 << 20 },
            network: Network::Own,
            uids: ids(uid),
            gids: ids(gid),
            cgroup: None,
        }
    }

    /// Exit code and output of the plan's command.
    fn run(&self, runc: &Path, plan: &BoxPlan) -> (Option<i32>, String) {
        spec(plan).unwrap().save(self.0.path().join("config.json")).unwrap();
        let id =
            format!("selion-test-{}", self.0.path().file_name().unwrap().to_string_lossy().trim_start_matches('.'));
        let ran = Command::new(runc)
            .arg("--root")
            .arg(self.0.path().join("state"))
            .arg("run")
            .arg("-b")
            .arg(self.0.path())
            .arg(id)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        (ran.status.code(), said.trim_end().to_owned())
    }
}

#[test]
fn a_runtime_puts_up_every_wall_that_the_specification_names() {
    let Some(runc) = runc() else { return };
    let bundle = Bundle::new();
    let script = "grep -e ^Cap -e ^NoNewPrivs -e ^Seccomp: /proc/self/status | tr -d '\\t\\n'; echo; \
        env | cut -d= -f1 | grep -e ^LD_ -e ^NVIDIA_; hostname; ulimit -n; ulimit -c; pwd; \
        for f in /usr/x /etc/x /selion/x /sys/x /proc/sys/kernel/hostname /x; do (echo x > $f) 2>/dev/null && echo wrote $f; done; \
        (dd if=/dev/zero of=/dev/shm/big bs=1M count=3 2>&1 | grep -o 'No space'); rm -f /dev/shm/big; \
        (dd if=/dev/zero of=/tmp/big bs=1M count=3 2>&1 | grep -o 'No space'); \
        for f in kcore keys kallsyms cmdline timer_list; do head -c 1 /proc/$f 2>/dev/null; done; \
        ls /dev | tr '\\n' ' '; echo; ls -A /sys /sys/devices/system | tr '\\n' ' '; echo; ls /proc | grep -c '^[0-9]'";
    let (code, said) = bundle.run(&runc, &bundle.plan(script));
    let zero = "0000000000000000";
    let walls = format!("CapInh:{zero}CapPrm:{zero}CapEff:{zero}CapBnd:{zero}CapAmb:{zero}NoNewPrivs:1Seccomp:2");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(lines[..7], [&walls, "box", "1024", "0", "/tmp", "No space", "No space"], "{said}");
    // A runtime adds `tty` and `ptmx` whatever it is told; neither leads to a terminal, as there is none.
    let nodes: Vec<&str> = lines[7].split_whitespace().collect();
    let known = "fd full mqueue null ptmx random shm stderr stdin stdout tty urandom zero console core";
    assert!(nodes.iter().all(|node| known.split(' ').any(|known| known == *node)), "{nodes:?}");
    assert_eq!(lines[8], "/sys: devices  /sys/devices/system: cpu ", "{said}");
    assert!(lines[9].parse::<u32>().unwrap() < 10, "{said}");
}

#[test]
fn the_profile_refuses_in_a_runtime_what_the_filter_refuses_in_the_sandbox() {
    let Some(runc) = runc() else { return };
    let bundle = Bundle::new();
    let (code, said) = bundle.run(&runc, &bundle.plan("exec /selion/attacker"));
    assert_eq!(code, Some(0), "{said}");
    let errno = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<i32>().unwrap();
    let (attacks, needs): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with("attack "));
    assert!(attacks.len() >= 70 && needs.len() >= 20, "{said}");
    let through: Vec<_> = attacks.iter().filter(|line| ![libc::EPERM, libc::ENOSYS].contains(&errno(line))).collect();
    assert!(through.is_empty(), "not refused: {through:?}");
    let missing: Vec<_> = needs.iter().filter(|line| errno(line) != 0).collect();
    assert!(missing.is_empty(), "not allowed: {missing:?}");
}

#[test]
fn a_box_with_a_control_group_ends_by_its_own_limits() {
    let Some(runc) = runc() else { return };
    if !is_root() {
        // An ordinary user has no control group of its own here.
        return;
    }
    let bundle = Bundle::new();
    // Fills its memory by far, which ends `dd`; then as many sleepers as it may have.
    let script = "dd if=/dev/zero of=/dev/null bs=900M count=1 2>/dev/null; echo $?; \
        i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done 2>&1 | grep -o -m 1 -i 'resource temporarily'; exit 0";
    let mut plan = bundle.plan(script);
    plan.cgroup = Some(PathBuf::from(format!("/selion-test-{}", std::process::id())));
    let (code, said) = bundle.run(&runc, &plan);
    assert_eq!(said.lines().next(), Some("137"), "{code:?} {said}");
}
