//! What every handler and loop shares.

use std::sync::Arc;

use selion_api::commit::PoolId;
use selion_api::rest::Terms;
use selion_api::{Account, Address, TimeMs};

use crate::agents::Hub;
use crate::config::Config;
use crate::http::metrics::Metrics;
use crate::http::named::Names;
use crate::http::origin::Origin;
use crate::http::pass::Logins;
use crate::http::said::Heard;
use crate::http::secrets::Secrets;
use crate::ipfs::Ipfs;
use crate::mirror::Mirror;
use crate::pen::Pen;
use crate::registry::Registries;
use crate::relay::Relay;
use crate::sequencer::Sequencer;
use crate::store::Store;

/// The parts of one running controller; cheap to clone.
#[derive(Clone)]
pub struct App {
    /// As started.
    pub config: Arc<Config>,
    /// The pool.
    pub pool: PoolId,
    /// Its terms, as the chain has them.
    pub terms: Terms,
    /// Who decides and countersigns.
    pub authority: Account,
    /// What handlers sign as the authority.
    pub pen: Arc<Pen>,
    /// The key held for delegated vouchers.
    pub delegate: Address,
    /// The database.
    pub store: Store,
    /// The one way to change a lease.
    pub log: Sequencer,
    /// Content by CID.
    pub content: selion_dataplane::Store,
    /// What image tags stand for.
    pub registries: Registries,
    /// A Kubo beside it, if there is one.
    pub ipfs: Ipfs,
    /// Links to agents and log lines.
    pub hub: Hub,
    /// How far the chain was followed.
    pub mirror: Mirror,
    /// Takes calls that accounts signed and the operator pays for.
    pub relay: Relay,
    /// Token keys, dataset tags, salts.
    pub secrets: Arc<Secrets>,
    /// Which logins were ended.
    pub logins: Arc<Logins>,
    /// Where callers find this controller.
    pub origin: Arc<Origin>,
    /// Signed words that were said lately.
    pub heard: Arc<Heard>,
    /// Turns of those who ask for a lease by name.
    pub names: Names,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Tells the time.
    pub clock: fn() -> TimeMs,
}

impl App {
    /// Whether `account` operates this pool: its authority, or one that the configuration names.
    #[must_use]
    pub fn is_operator(&self, account: Account) -> bool {
        account == self.authority || self.config.operators.contains(&account)
    }
}

/// Milliseconds since 1970 by this machine's clock.
#[must_use]
pub fn wall_clock() -> TimeMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
