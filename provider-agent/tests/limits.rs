//! Limits, run against with real commands: as root, and as an ordinary user to whom control groups were given.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

#[expect(dead_code, reason = "other tests use the rest")]
mod house;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use house::{DELEGATED, House, LIMITS, PATIENCE, is_root, kinds, ran};
use selion_agent::runtime::spec::Limits;
use selion_agent::runtime::{GroupUse, Groups, ProcessRuntime, RootFs, Running, Runtime, prove};
use selion_api::slice::Sandbox;
use selion_api::{BoxFeature, BoxFeatures};

/// Between two looks at a counter of the kernel's.
const LOOK: Duration = Duration::from_millis(20);
/// Where version 1 is mounted, as everywhere.
const MOUNTED: &str = "/sys/fs/cgroup";

/// Where commands are held to their limits; `None`, with a word, where that cannot be tried.
async fn groups(name: &str, controllers: &[&str]) -> Option<Groups> {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return None;
    }
    let groups = Groups::open(&format!("selion-test-{}-{name}", std::process::id()));
    let missing: Vec<_> = controllers.iter().filter(|name| !groups.have(name)).collect();
    if missing.is_empty() {
        return Some(groups);
    }
    assert!(std::env::var_os(DELEGATED).is_none(), "they were delegated: {missing:?}");
    println!("skipped: no control group of {missing:?} can be made here");
    None
}

fn held(house: &House, groups: &Groups) -> ProcessRuntime {
    house.runtime(Sandbox::Namespaces).within(groups.clone())
}

async fn started(house: &House, groups: &Groups, limits: Limits, script: &str) -> Box<dyn Running> {
    let mut launch = house.launch(Sandbox::Namespaces, script);
    launch.limits = limits;
    held(house, groups).launch(launch).await.unwrap()
}

/// What it has used, once that is so.
async fn until(running: &dyn Running, so: impl Fn(&GroupUse) -> bool) -> GroupUse {
    let seen = async {
        loop {
            match running.used().filter(&so) {
                Some(used) => return used,
                None => tokio::time::sleep(LOOK).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("{:?}", running.used()))
}

#[test]
fn all_of_it_holds_for_an_ordinary_user_with_groups_of_his_own() {
    let tops = ["cpu", "cpuacct", "memory", "pids"].map(|name| Path::new(MOUNTED).join(name));
    if !is_root() || !tops.iter().all(|top| top.join("cgroup.procs").exists()) {
        println!("skipped: only root gives control groups away, and only of version 1 here");
        return;
    }
    let groups = tops.map(|top| top.join(format!("selion-test-{}", std::process::id())));
    groups.iter().for_each(|group| fs::create_dir(group).unwrap());
    let again = std::panic::catch_unwind(|| house::again_within(&groups));
    groups.iter().for_each(|group| drop(fs::remove_dir(group)));
    again.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_enforced_is_found_out_by_running_against_it() {
    let house = House::new();
    let Some(groups) = groups("prove", &["cpu", "memory", "pids"]).await else { return };
    let proven = prove(house.dir.path(), &house.walls(Sandbox::Namespaces), &groups, &RootFs::Machine).await;
    let all = [BoxFeature::Cpu, BoxFeature::Memory, BoxFeature::Pids].into_iter().collect::<BoxFeatures>();
    assert_eq!(proven, all);
    assert_eq!(
        prove(house.dir.path(), &house.walls(Sandbox::None), &groups, &RootFs::Machine).await,
        BoxFeatures::NONE,
        "beside its owner's programs a command may leave its group"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_beyond_the_limit_is_not_given_and_the_peak_is_known_after_the_end() {
    let house = House::new();
    let Some(groups) = groups("memory", &["memory"]).await else { return };
    let limits = Limits { memory_bytes: 64 << 20, ..LIMITS };
    let script = "dd if=/dev/zero of=/dev/null bs=512M count=1 2>/dev/null; exit 3";
    let mut running = started(&house, &groups, limits, script).await;
    tokio::time::timeout(PATIENCE, running.wait()).await.unwrap().unwrap();
    let used = running.used().unwrap();
    assert!(used.killed > Some(0), "{used:?}");
    assert!((32 << 20..=64 << 20).contains(&used.memory_peak_bytes.unwrap()), "{used:?}");
    // What lies in /dev/shm is memory of the group too.
    let limits = Limits { memory_bytes: 64 << 20, shm_bytes: 1 << 30, ..LIMITS };
    let script = "dd if=/dev/zero of=/dev/shm/x bs=1M count=256 2>/dev/null; exit 0";
    let mut running = started(&house, &groups, limits, script).await;
    tokio::time::timeout(PATIENCE, running.wait()).await.unwrap().unwrap();
    assert!(running.used().unwrap().killed > Some(0), "{:?}", running.used());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_contained_and_ends_with_its_lease() {
    let house = House::new();
    let Some(groups) = groups("pids", &["pids"]).await else { return };
    let limits = Limits { pids: 24, ..LIMITS };
    let mut running = started(&house, &groups, limits, "bomb() { bomb | bomb & }; bomb; sleep 100; sleep 100").await;
    let used = until(running.as_ref(), |used| used.refused > Some(3)).await;
    assert!(used.pids <= Some(24), "{used:?}");
    let folder = group_of(running.head(), "pids");
    running.kill().await.unwrap();
    // The kernel takes its time with the last of them; nobody waits for that but this test.
    let gone = async {
        while folder.exists() {
            tokio::time::sleep(LOOK).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, gone).await.is_ok(), "{}", folder.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn processor_time_is_the_quotas_part_of_the_time_by_the_kernels_own_counters() {
    let house = House::new();
    let Some(groups) = groups("cpu", &["cpu", "cpuacct"]).await else { return };
    let limits = Limits { cpu_milli: 200, ..LIMITS };
    let mut running = started(&house, &groups, limits, "while :; do :; done & while :; do :; done").await;
    let stat = group_of(running.head(), "cpu").join("cpu.stat");
    let periods = || {
        let text = fs::read_to_string(&stat).unwrap();
        text.lines().find_map(|line| line.strip_prefix("nr_periods ")?.parse::<u64>().ok()).unwrap()
    };
    let used = until(running.as_ref(), |_| periods() >= 20).await;
    let (cpu_ms, wall_ms) = (used.cpu_ms.unwrap(), periods() * 100);
    assert!(cpu_ms * 1_000 / wall_ms <= 300, "{cpu_ms} ms of {wall_ms} ms, where a fifth is the limit");
    assert!(used.throttled > Some(0), "{used:?}");
    running.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn open_files_and_shared_memory_are_as_many_and_as_large_as_was_said() {
    if !kinds().await.contains(&Sandbox::Namespaces) {
        return;
    }
    let house = House::new();
    let runtime = house.runtime(Sandbox::Namespaces);
    let (_, said) = ran(&runtime, house.launch(Sandbox::Namespaces, "ulimit -n; ulimit -Hn")).await;
    assert_eq!(said, format!("{0}\n{0}", LIMITS.open_files));
    let script = "df -k --output=size /dev/shm | tail -1; dd if=/dev/zero of=/dev/shm/x bs=1M count=64 2>/dev/null; \
                  stat -c %s /dev/shm/x";
    let (_, said) = ran(&runtime, house.launch(Sandbox::Namespaces, script)).await;
    let sizes: Vec<u64> = said.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(sizes, [LIMITS.shm_bytes >> 10, LIMITS.shm_bytes]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_agent_left_is_ended_and_removed_by_the_next_of_its_name_and_by_no_other() {
    let house = House::new();
    let Some(first) = groups("left", &["pids"]).await else { return };
    let mut running = started(&house, &first, LIMITS, "sleep 100").await;
    let folder = group_of(running.head(), "pids");
    let other = groups("other", &["pids"]).await.unwrap();
    assert!(folder.exists(), "another agent's groups are its own");
    let again = groups("left", &["pids"]).await.unwrap();
    tokio::time::timeout(PATIENCE, running.wait()).await.unwrap().unwrap();
    assert!(!folder.exists(), "{}", folder.display());
    drop((first, other, running));
    let parent = folder.parent().unwrap().to_owned();
    drop(again);
    assert!(!parent.exists(), "{}: the last of an agent removes its own group", parent.display());
}

/// The folder of a process's group of version 1.
fn group_of(process: i32, controller: &str) -> PathBuf {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let path = groups.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        names.split(',').any(|name| name == controller).then_some(path)
    });
    Path::new(MOUNTED).join(controller).join(path.unwrap().trim_start_matches('/'))
}
