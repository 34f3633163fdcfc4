//! What every handler and loop shares.

use std::sync::Arc;

use selion_api::commit::PoolId;
use selion_api::{Account, Address, TimeMs};

use crate::agents::Hub;
use crate::config::Config;
use crate::http::metrics::Metrics;
use crate::http::secrets::Secrets;
use crate::ipfs::Ipfs;
use crate::mirror::Mirror;
use crate::sequencer::Sequencer;
use crate::store::Store;

/// The parts of one running controller; cheap to clone.
#[derive(Clone)]
pub struct App {
    /// As started.
    pub config: Arc<Config>,
    /// The pool.
    pub pool: PoolId,
    /// Who decides and countersigns.
    pub authority: Account,
    /// The key held for delegated vouchers.
    pub delegate: Address,
    /// The database.
    pub store: Store,
    /// The one way to change a lease.
    pub log: Sequencer,
    /// Content by CID.
    pub content: selion_dataplane::Store,
    /// A Kubo beside it, if there is one.
    pub ipfs: Ipfs,
    /// Links to agents and log lines.
    pub hub: Hub,
    /// How far the chain was followed.
    pub mirror: Mirror,
    /// Token keys, dataset tags, salts.
    pub secrets: Arc<Secrets>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Tells the time.
    pub clock: fn() -> TimeMs,
}

/// Milliseconds since 1970 by this machine's clock.
#[must_use]
pub fn wall_clock() -> TimeMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
