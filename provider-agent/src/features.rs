//! What the node's box gives and holds beside keeping apart: found by trying it.

use std::path::Path;

use selion_api::commit::Network;
use selion_api::slice::{BoxFeature, BoxFeatures, Sandbox};

use crate::config::Config;
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
