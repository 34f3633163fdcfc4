//! What the node's box gives and holds beside keeping apart: found by trying it.

use std::path::Path;

use selion_api::commit::Network;
use selion_api::slice::{BoxFeature, BoxFeatures, Sandbox};

use crate::config::Config;
use crate::runtime::{Walls, probe_network};

/// Tries it behind these walls, with rooms under `folder`, the agent's state. What does not work is not offered.
///
/// Without a sandbox every command has the machine's network. The node then gives what a lease may ask for, the internet
/// only if the owner lets it, and keeps nothing else from it: its spec says that it has no sandbox.
pub(crate) async fn found(config: &Config, folder: &Path, walls: Walls) -> BoxFeatures {
    let internet = (config.network == Network::Internet).then_some(BoxFeature::Internet);
    if walls.sandbox == Sandbox::None {
        return internet.into_iter().chain([BoxFeature::Gang]).collect();
    }
    match probe_network(folder, walls).await {
        Ok(()) => internet.into_iter().chain([BoxFeature::Gang, BoxFeature::Net]).collect(),
        Err(why) => {
            tracing::warn!(why, "leases get no network here, so neither gangs nor those that need the internet come");
            BoxFeatures::NONE
        }
    }
}
