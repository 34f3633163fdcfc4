use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType, PosixRlimitType, Spec};

use super::*;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn image() -> Defaults {
    Defaults {
        entrypoint: words(&["/bin/serve", "--fast"]),
        cmd: words(&["model"]),
        env: pairs(&[
            ("A", "image"),
            ("LD_PRELOAD", "/evil.so"),
            ("NVIDIA_VISIBLE_DEVICES", "all"),
            ("PATH", "/image"),
        ]),
        cwd: "/app".into(),
    }
}

fn plan() -> BoxPlan {
    BoxPlan {
        root: "/var/box/root".into(),
        root_writable: true,
        program: Program::of(&image(), &Request::default(), &[]).unwrap(),
        user: User { uid: 1000, gid: 1000, groups: vec![44] },
        hostname: "lease-1".into(),
        binds: vec![Bind { source: "/var/data".into(), target: "/selion/data".into(), writable: false }],
        scratch: vec![Scratch { target: "/tmp".into(), bytes: 1 << 30 }],
        devices: vec![Device { path: "/dev/nvidia0".into(), major: 195, minor: 0 }],
        limits: Limits { cpu_milli: 1_500, memory_bytes: 8 << 30, pids: 512, open_files: 4096, shm_bytes: 1 << 30 },
        network: Network::Own,
        uids: vec![IdRange { inside: 0, outside: 100_000, size: 65_536 }],
        gids: vec![IdRange { inside: 0, outside: 100_000, size: 65_536 }],
        cgroup: Some("/selion/lease-1".into()),
    }
}

fn made(plan: &BoxPlan) -> Spec {
    spec_for(plan, Arch::X86_64).unwrap()
}

#[test]
fn every_box_has_every_wall_whatever_its_plan() {
    for network in [Network::Own, Network::Machine, Network::Joined("/run/netns/one".into())] {
        let spec = made(&BoxPlan { network: network.clone(), cgroup: None, ..plan() });
        let (process, linux) = (spec.process().as_ref().unwrap(), spec.linux().as_ref().unwrap());
        assert_eq!((process.no_new_privileges(), process.terminal()), (Some(true), Some(false)));
        let sets = process.capabilities().as_ref().unwrap();
        for set in [sets.bounding(), sets.effective(), sets.inheritable(), sets.permitted(), sets.ambient()] {
            assert_eq!(set.as_ref().map(|set| set.len()), Some(0));
        }
        let spaces: Vec<_> = linux.namespaces().iter().flatten().map(|space| space.typ()).collect();
        for own in [
            LinuxNamespaceType::User,
            LinuxNamespaceType::Mount,
            LinuxNamespaceType::Pid,
            LinuxNamespaceType::Ipc,
            LinuxNamespaceType::Uts,
            LinuxNamespaceType::Cgroup,
        ] {
            assert!(spaces.contains(&own), "{own:?}");
        }
        assert_eq!(spaces.contains(&LinuxNamespaceType::Network), network != Network::Machine);
        assert!(linux.seccomp().is_some() && spec.hooks().is_none() && spec.annotations().is_none());
        let masked = linux.masked_paths().as_ref().unwrap();
        assert!(["/proc/kcore", "/proc/keys", "/sys/firmware"].iter().all(|path| masked.iter().any(|one| one == path)));
        assert!(linux.readonly_paths().as_ref().unwrap().iter().any(|path| path == "/proc/sys"));
    }
}

#[test]
fn limits_are_told_to_the_unit() {
    let spec = made(&plan());
    let resources = spec.linux().as_ref().unwrap().resources().as_ref().unwrap();
    let (cpu, memory) = (resources.cpu().as_ref().unwrap(), resources.memory().unwrap());
    assert_eq!((cpu.quota(), cpu.period()), (Some(150_000), Some(100_000)));
    assert_eq!((memory.limit(), memory.swap()), (Some(8 << 30), Some(8 << 30)), "no swap beside memory");
    assert_eq!(resources.pids().map(|pids| pids.limit()), Some(512));
    let rlimits = spec.process().as_ref().unwrap().rlimits().as_ref().unwrap();
    let limit = |kind| rlimits.iter().find(|one| one.typ() == kind).map(|one| (one.soft(), one.hard()));
    assert_eq!(limit(PosixRlimitType::RlimitNofile), Some((4096, 4096)));
    assert_eq!(limit(PosixRlimitType::RlimitCore), Some((0, 0)));
    let shm = spec.mounts().iter().flatten().find(|mount| mount.destination() == Path::new("/dev/shm")).unwrap();
    assert!(shm.options().as_ref().unwrap().contains(&format!("size={}", 1_u64 << 30)));
    let slow = made(&BoxPlan { limits: Limits { cpu_milli: 3, ..plan().limits }, ..plan() });
    let cpu = slow.linux().as_ref().unwrap().resources().as_ref().unwrap().cpu().as_ref().unwrap().clone();
    assert_eq!((cpu.quota(), cpu.period()), (Some(3_000), Some(1_000_000)), "a quota below the kernel's least is none");
}

#[test]
fn only_listed_devices_are_there_and_may_be_opened() {
    let spec = made(&plan());
    let linux = spec.linux().as_ref().unwrap();
    let nodes: Vec<_> = linux.devices().iter().flatten().map(|node| node.path().clone()).collect();
    assert_eq!(nodes, [PathBuf::from("/dev/nvidia0")]);
    let rules = linux.resources().as_ref().unwrap().devices().as_ref().unwrap();
    assert!(!rules[0].allow() && rules[0].major().is_none(), "first nothing");
    let open: Vec<_> = rules[1..].iter().map(|rule| (rule.major().unwrap(), rule.minor().unwrap())).collect();
    assert_eq!(open, [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (195, 0)]);
    assert!(rules.iter().all(|rule| rule.access().as_deref() != Some("rwm") || !rule.allow()), "no node is made");
}

#[test]
fn nothing_is_mounted_with_rights_or_devices_but_the_list_of_nodes() {
    for mount in made(&plan()).mounts().iter().flatten() {
        let options = mount.options().as_ref().unwrap();
        let has = |option: &str| options.iter().any(|one| one == option);
        assert!(has("nosuid"), "{}", mount.destination().display());
        assert!(has("nodev") || mount.destination() == Path::new("/dev"), "{}", mount.destination().display());
    }
}

#[test]
fn a_request_goes_over_the_image_and_the_agents_own_over_both() {
    let own = pairs(&[("SELION_PORT", "7")]);
    let of = |request: Request| Program::of(&image(), &request, &own).unwrap();
    let program = of(Request { env: pairs(&[("A", "renter"), ("SELION_PORT", "8")]), ..Request::default() });
    assert_eq!(program.args, words(&["/bin/serve", "--fast", "model"]));
    assert_eq!(program.cwd, Path::new("/app"));
    assert_eq!(program.env, pairs(&[("PATH", "/image"), ("A", "renter"), ("SELION_PORT", "7")]));
    let command = of(Request { command: words(&["train"]), ..Request::default() });
    assert_eq!(command.args, words(&["/bin/serve", "--fast", "train"]));
    let alone = of(Request {
        entrypoint: Some(Vec::new()),
        command: words(&["train"]),
        cwd: Some("/data".into()),
        ..Request::default()
    });
    assert_eq!((alone.args, alone.cwd), (words(&["train"]), PathBuf::from("/data")));
    let other = of(Request { entrypoint: Some(words(&["/bin/other"])), ..Request::default() });
    assert_eq!(other.args, words(&["/bin/other"]), "the image's arguments were for its own entrypoint");
}

#[test]
fn a_program_that_no_process_can_be_is_refused() {
    let of = |request: Request| Program::of(&Defaults::default(), &request, &[]);
    assert!(matches!(of(Request::default()), Err(SpecError::NoProgram)));
    let command = |word: &str| Request { command: words(&[word]), ..Request::default() };
    assert!(matches!(of(command("")), Err(SpecError::NoProgram)));
    assert!(matches!(of(command("a\0b")), Err(SpecError::BadWord { .. })));
    for (name, value) in [("", "x"), ("A=B", "x"), ("A", "x\0y"), ("A\0", "x")] {
        let request = Request { env: pairs(&[(name, value)]), ..command("true") };
        assert!(matches!(of(request), Err(SpecError::BadWord { .. })), "{name:?}");
    }
}

#[test]
fn a_plan_that_would_weaken_the_box_is_refused_by_what_is_wrong() {
    let bind = |source: &str, target: &str, writable| {
        let bind = Bind { source: source.into(), target: target.into(), writable };
        BoxPlan { binds: vec![bind], ..plan() }
    };
    let ids = |ranges: &[(u32, u32, u32)]| {
        let ranges =
            ranges.iter().map(|(inside, outside, size)| IdRange { inside: *inside, outside: *outside, size: *size });
        BoxPlan { uids: ranges.collect(), ..plan() }
    };
    let device = |path: &str| BoxPlan { devices: vec![Device { path: path.into(), major: 1, minor: 1 }], ..plan() };
    let limits = |change: fn(&mut Limits)| {
        let mut plan = plan();
        change(&mut plan.limits);
        plan
    };
    let wrong = [
        ("the whole machine", bind("/", "/host", false)),
        ("over /proc", bind("/var/data", "/proc/sys", false)),
        ("over /dev", bind("/dev/sda", "/dev/sda", false)),
        ("over the root", bind("/var/data", "/", false)),
        ("other things in /sys", bind("/var/data", "/sys/data", false)),
        ("/sys to write", bind("/sys/kernel", "/sys/kernel", true)),
        ("all of /sys", bind("/sys", "/sys", false)),
        ("up", bind("/var/../etc", "/etc", false)),
        ("up inside", bind("/var/data", "/data/../proc", false)),
        ("not absolute", bind("data", "/data", false)),
        ("memory over /proc", BoxPlan { scratch: vec![Scratch { target: "/proc".into(), bytes: 1 }], ..plan() }),
        ("memory over /sys", BoxPlan { scratch: vec![Scratch { target: "/sys/a".into(), bytes: 1 }], ..plan() }),
        ("a place twice", BoxPlan { scratch: vec![Scratch { target: "/selion/data".into(), bytes: 1 }], ..plan() }),
        ("a device elsewhere", device("/etc/nvidia0")),
        ("a device up", device("/dev/../etc/passwd")),
        ("all devices", device("/dev")),
        ("the machine's root", ids(&[(0, 0, 1), (1000, 1000, 1)])),
        ("nobody", ids(&[])),
        ("not the user", ids(&[(0, 100_000, 10)])),
        ("an empty range", ids(&[(1000, 1000, 0)])),
        ("past the last id", ids(&[(1000, u32::MAX, 2)])),
        ("overlapping inside", ids(&[(0, 100_000, 2000), (1000, 300_000, 5)])),
        ("overlapping outside", ids(&[(0, 100_000, 2000), (5000, 100_005, 5)])),
        ("a group that is not mapped", BoxPlan { user: User { groups: vec![70_000], ..plan().user }, ..plan() }),
        ("a name with a line", BoxPlan { hostname: "a\nb".into(), ..plan() }),
        ("no name", BoxPlan { hostname: String::new(), ..plan() }),
        ("a group up", BoxPlan { cgroup: Some("/selion/../other".into()), ..plan() }),
        ("no processor", limits(|limits| limits.cpu_milli = 0)),
        ("no memory", limits(|limits| limits.memory_bytes = 0)),
        ("memory that no kernel counts", limits(|limits| limits.memory_bytes = u64::MAX)),
        ("no process", limits(|limits| limits.pids = 0)),
        ("a working directory up", {
            let mut plan = plan();
            plan.program.cwd = "/app/../..".into();
            plan
        }),
        ("a network elsewhere", BoxPlan { network: Network::Joined("netns".into()), ..plan() }),
    ];
    assert!(spec(&plan()).is_ok());
    for (what, plan) in wrong {
        assert!(spec(&plan).is_err(), "{what}");
    }
    assert!(spec(&bind("/sys/devices/system/cpu", "/sys/devices/system/cpu", false)).is_ok(), "facts are shown");
}
