//! Which limits hold: each is run against.

use std::path::Path;
use std::time::Duration;

use selion_api::slice::Sandbox;
use selion_api::{BoxFeature, BoxFeatures};

use super::{GroupUse, Groups};
use crate::error::chain;
use crate::runtime::removal::remove_tree;
use crate::runtime::spec::Limits;
use crate::runtime::{Launch, ProcessRuntime, Rooms, RootFs, Runtime, Walls, env};

/// Longest time for one try.
const TRY: Duration = Duration::from_secs(20);
/// Between two looks at a counter of the kernel's, which tells of no change.
const LOOK: Duration = Duration::from_millis(10);
/// What a try may use, but for the limit that it runs against.
const AMPLE: Limits =
    Limits { cpu_milli: 1_000, memory_bytes: 64 << 20, pids: 64, open_files: 1_024, shm_bytes: 1 << 20 };

/// One limit, a command that runs against it, and the counter that says so.
struct Trial {
    feature: BoxFeature,
    controller: &'static str,
    limits: Limits,
    script: &'static str,
    held: fn(&GroupUse) -> bool,
}

const TRIALS: [Trial; 3] = [
    Trial {
        feature: BoxFeature::Cpu,
        controller: "cpu",
        limits: Limits { cpu_milli: 200, ..AMPLE },
        script: "while :; do :; done",
        held: |used| used.throttled > Some(0),
    },
    Trial {
        feature: BoxFeature::Memory,
        controller: "memory",
        limits: Limits { memory_bytes: 32 << 20, ..AMPLE },
        script: "dd if=/dev/zero of=/dev/null bs=128M count=1",
        held: |used| used.killed > Some(0),
    },
    Trial {
        feature: BoxFeature::Pids,
        controller: "pids",
        limits: Limits { pids: 8, ..AMPLE },
        script: "for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait",
        held: |used| used.refused > Some(0),
    },
];

/// The limits of `groups` that hold behind these walls in this root, with rooms under `folder`. Of a limit that could be set and did
/// not hold the log tells. Without a sandbox a command may leave its group, so none does.
pub async fn prove(folder: &Path, walls: &Walls, groups: &Groups, root: &RootFs) -> BoxFeatures {
    let mut proven = BoxFeatures::NONE;
    if walls.sandbox == Sandbox::None {
        return proven;
    }
    for trial in TRIALS.iter().filter(|trial| groups.have(trial.controller)) {
        match attempt(folder, walls.clone(), groups, root, trial).await {
            Ok(()) => proven = proven.with(trial.feature),
            Err(why) => tracing::warn!(limit = trial.feature.code(), why, "a limit cannot be held here"),
        }
    }
    proven
}

async fn attempt(folder: &Path, walls: Walls, groups: &Groups, root: &RootFs, trial: &Trial) -> Result<(), String> {
    let base = folder.join("limit");
    let rooms = Rooms::make(&base).map_err(|error| format!("{}: {error}", base.display()))?;
    let tried = tokio::time::timeout(TRY, run(walls, rooms, groups, root, trial)).await;
    // The rooms of a trial are in nobody's way.
    let _ = remove_tree(&base);
    tried.unwrap_or_else(|_| Err("a command went beyond it and nothing happened".into()))
}

async fn run(walls: Walls, rooms: Rooms, groups: &Groups, root: &RootFs, trial: &Trial) -> Result<(), String> {
    let runtime = ProcessRuntime::new(walls).map_err(|error| chain(&error))?.within(groups.clone());
    let launch = Launch {
        command: ["/bin/sh", "-c", trial.script].map(String::from).to_vec(),
        env: vec![("PATH".into(), env::PATH.into())],
        rooms,
        devices: Vec::new(),
        network: crate::runtime::Links::default(),
        limits: trial.limits,
        root: root.clone(),
        secrets: Vec::new(),
    };
    let mut running = runtime.launch(launch).await.map_err(|error| chain(&error))?;
    let mut ended = false;
    loop {
        if running.used().is_some_and(|used| (trial.held)(&used)) {
            return running.kill().await.map(drop).map_err(|error| chain(&error));
        }
        if ended {
            return Err("a command that goes beyond it ended by itself".into());
        }
        ended = tokio::time::timeout(LOOK, running.wait()).await.is_ok();
    }
}
