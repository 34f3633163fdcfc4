//! What the node's box gives and holds beside keeping apart: found by trying it.

use std::fs;
use std::path::Path;

use selion_api::commit::Network;
use selion_api::slice::{BoxFeature, BoxFeatures, Sandbox};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::book::replace;
use crate::config::Config;
use crate::error::chain;
use crate::runtime::keep::clock;
use crate::runtime::{Groups, RootFs, Walls, probe_network, prove};

/// Tries it behind these walls in this root, with rooms under `folder`, the agent's state. What does not work is not offered.
///
/// Without a sandbox every command has the machine's network. The node then gives what a lease may ask for, the internet
/// only if the owner lets it, and keeps nothing else from it: its spec says that it has no sandbox.
pub(crate) async fn found(
    config: &Config,
    folder: &Path,
    walls: &Walls,
    groups: &Groups,
    root: &RootFs,
) -> BoxFeatures {
    let internet = (config.network == Network::Internet).then_some(BoxFeature::Internet);
    if walls.sandbox == Sandbox::None {
        return internet.into_iter().chain([BoxFeature::Gang]).collect();
    }
    // Images and secrets were tried before. The disk is measured, as what is written lies in folders of the lease's own.
    let mut found = BoxFeatures::NONE.with(BoxFeature::Images).with(BoxFeature::Disk).with(BoxFeature::Secrets);
    if config.machine_root {
        found = found.with(BoxFeature::MachineRoot);
    }
    let network = match probe_network(folder, walls.clone(), root.clone()).await {
        Ok(()) => internet.into_iter().chain([BoxFeature::Gang, BoxFeature::Net]).collect(),
        Err(why) => {
            tracing::warn!(why, "leases get no network here, so neither gangs nor those that need the internet come");
            BoxFeatures::NONE
        }
    };
    let limits = prove(folder, walls, groups, root).await;
    found.iter().chain(network.iter()).chain(limits.iter()).collect()
}

/// File of what was found, in the state directory.
const FILE: &str = "found.json";

/// What was found, and of what.
#[derive(Serialize, Deserialize)]
struct Kept {
    mark: String,
    features: BoxFeatures,
}

/// A name of what that hangs on which is found: this life of the machine, and what the owner sets. Another program of ours is no other
/// machine: each box tries its own walls all the same.
pub(crate) fn mark(config: &Config) -> String {
    let mut hasher = Sha256::new();
    hasher.update(clock::boot().unwrap_or_default());
    hasher.update(format!("{config:?}"));
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What was found before of the same `mark`.
pub(crate) fn recall(state: &Path, mark: &str) -> Option<BoxFeatures> {
    let kept: Kept = serde_json::from_slice(&fs::read(state.join(FILE)).ok()?).ok()?;
    (kept.mark == mark).then_some(kept.features)
}

/// Keeps what was found.
pub(crate) fn remember(state: &Path, mark: &str, features: BoxFeatures) {
    if recall(state, mark) == Some(features) {
        return;
    }
    let bytes = serde_json::to_vec(&Kept { mark: mark.to_owned(), features }).unwrap_or_default();
    if let Err(error) = replace(&state.join(FILE), &bytes) {
        tracing::warn!(error = chain(&error), "what this node's box gives is found out again at the next start");
    }
}
