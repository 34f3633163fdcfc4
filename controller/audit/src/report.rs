//! The result of an audit.

use selion_api::agent::Head;
use selion_api::commit::PoolId;
use selion_api::{Account, Amount, Hash32, NodeId};

use crate::finding::Check;

/// Where the documentation says what no audit of this kind can prove.
pub const NOT_PROVED: &str = "docs/NOT-PROVED.md";

/// The release that audits.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Inputs of parties, and how many of them nobody signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Unsigned {
    /// Requests, releases, pauses, resumes, reclaims, hellos and reports.
    pub inputs: u64,
    /// Those without a signature in the log.
    pub unsigned: u64,
}

impl Unsigned {
    /// The unsigned share in millionths.
    #[must_use]
    pub fn ppm(self) -> u64 {
        self.unsigned.saturating_mul(1_000_000).checked_div(self.inputs).unwrap_or(0)
    }
}

/// Somebody who lost what he had at stake, because he contradicted himself or gave up what he had anchored.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Conviction {
    /// Who lost it: an owner of the pool, or a provider.
    pub who: Account,
    /// The epoch whose authority contradicted itself.
    pub epoch: Option<u32>,
    /// The node whose key contradicted itself.
    pub node: Option<NodeId>,
    /// The block that tells it.
    pub block: u64,
    /// What was lost.
    pub amount: Amount,
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// True if every check holds.
    pub ok: bool,
    /// The pool that was audited.
    pub pool: PoolId,
    /// Release of the auditor.
    pub version: String,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// Entries in the log.
    pub entries: u64,
    /// The first entry that was judged; those before it were trusted, and replayed only.
    pub judged_from: u64,
    /// Entries that the authority's newest head or an anchor covers. Those after them are not audited.
    pub covered: u64,
    /// Root over the covered entries.
    pub root: Hash32,
    /// The newest head that the authority signed.
    pub newest_head: Option<Head>,
    /// Entries that the newest anchor on chain covers.
    pub anchored_size: u64,
    /// Every conviction of an authority by the pool's court: a log may hold every check, and be one of two.
    pub convictions: Vec<Conviction>,
    /// The final block up to which the chain was read.
    pub block: Option<u64>,
    /// Its hash.
    pub block_hash: Option<Hash32>,
    /// The chain's nodes that were asked: scheme, host and port.
    pub rpcs: Vec<String>,
    /// Inputs of parties without a signature.
    pub signatures: Unsigned,
    /// Their share in millionths.
    pub unsigned_share_ppm: u64,
    /// Where it is said what this does not prove: that telemetry was true, that nobody was kept off the wire, the
    /// order of arrival before an answer was given.
    pub not_proved: String,
}
