//! How many bytes of content each caller may keep in the pool, and the collection of what nobody wants.

use std::time::Duration;

use selion_api::Amount;
use selion_dataplane::gateway::Uploader;
use selion_dataplane::{Stop, Store};
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use crate::App;

/// Bytes of an account that never deposited: enough to try the pool with a script, and nothing to fill a disk with,
/// since accounts are free.
pub const WITHOUT_DEPOSIT: u64 = 64 << 20;
/// Bytes of outputs of one node that wait for the report which pins them.
const OF_NODE: u64 = 256 << 30;
/// Blocks that nothing pinned reaches are kept so long after they were last brought: an upload that broke off can go on
/// the next day.
const GRACE: Duration = Duration::from_secs(24 * 3600);
/// How often unwanted blocks are looked for; a pass looks at ten thousand.
const COLLECT_EVERY: Duration = Duration::from_secs(600);

/// Who the caller is to the content store, and how much he may have there, loose and pinned together.
#[must_use]
pub fn uploader(app: &App, caller: Caller) -> Uploader {
    match caller {
        Caller::Renter(account) => {
            let funded =
                app.log.read(|state| state.books.get(&account).is_some_and(|books| books.deposited != Amount::ZERO));
            let allowance =
                if funded { app.config.storage_bytes } else { WITHOUT_DEPOSIT.min(app.config.storage_bytes) };
            Uploader { owner: account.to_string(), allowance }
        }
        Caller::Node(node) => Uploader { owner: format!("node-{node}"), allowance: OF_NODE },
    }
}

/// Collects until stopped.
pub async fn collect(content: Store, stop: CancellationToken) {
    let mut tick = tokio::time::interval(COLLECT_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        let (store, ended) = (content.clone(), Stop::default());
        let _ended = ended.on_drop();
        let pass = tokio::task::spawn_blocking(move || store.collect(GRACE, &ended));
        let done = tokio::select! {
            () = stop.cancelled() => return,
            done = pass => done,
        };
        match done {
            Ok(Ok(collected)) if collected.blocks > 0 => {
                tracing::info!(blocks = collected.blocks, bytes = collected.bytes, "unwanted blocks collected");
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "unwanted blocks stay; the next pass retries"),
            Err(error) => tracing::error!(%error, "the collection failed"),
        }
    }
}
