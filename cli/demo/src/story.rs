//! The story as data: what `--json` prints.

use std::collections::BTreeMap;
use std::path::PathBuf;

use selion_api::rest::{BillView, Lease};
use selion_api::{Address, Hash32};
use serde::Serialize;
use serde_json::Value;

/// Everything that was shown, and by what evidence.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// True if every step held.
    pub ok: bool,
    /// The steps in order. The first that did not hold is the last.
    pub steps: Vec<Step>,
    /// Every lease of every renter, as the controller has it at the end.
    pub leases: Vec<Lease>,
    /// Every bill line.
    pub bills: Vec<BillView>,
    /// Every transaction that touched the pool, as the chain has it at the end.
    pub transactions: Vec<Transaction>,
    /// The audit's report; null if it did not come to that.
    pub audit: Value,
    /// How to reach the pool, if it was left running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Left>,
}

/// One step.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Stable snake_case name.
    pub name: &'static str,
    /// Whether it held.
    pub ok: bool,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// Pids, lease ids, entry numbers, blocks, transactions and CIDs; of a step that did not hold: `expected`, `found`
    /// and where the `logs` are.
    pub evidence: Value,
}

/// A transaction that touched the pool.
#[derive(Clone, Debug, Serialize)]
pub struct Transaction {
    /// Its hash.
    pub hash: Hash32,
    /// Height of its block.
    pub block_number: u64,
    /// Its block.
    pub block_hash: Hash32,
    /// What the pool's contracts said in it, in order.
    pub events: Vec<String>,
}

/// A pool that was left running.
#[derive(Clone, Debug, Serialize)]
pub struct Left {
    /// The controller's URL.
    pub controller: String,
    /// JSON-RPC of the chain.
    pub chain_rpc: String,
    /// The chain's id.
    pub chain_id: u64,
    /// The pool's Controller contract.
    pub pool: Address,
    /// The pool's Vault contract.
    pub vault: Address,
    /// The pool's token.
    pub token: Address,
    /// Processes by name.
    pub pids: BTreeMap<String, u32>,
    /// Folder of everything: keys, configurations, logs, state.
    pub dir: PathBuf,
    /// The binary that they run.
    pub exe: PathBuf,
    /// What each process was started with, by name: to start one again.
    pub commands: BTreeMap<String, Vec<String>>,
    /// Files with the renters' keys, by name.
    pub keys: BTreeMap<String, PathBuf>,
    /// Nodes by the name of their process.
    pub nodes: BTreeMap<String, selion_api::NodeId>,
}

impl Story {
    /// A story before its first step.
    pub(crate) fn new() -> Self {
        Self {
            ok: true,
            steps: Vec::new(),
            leases: Vec::new(),
            bills: Vec::new(),
            transactions: Vec::new(),
            audit: Value::Null,
            pool: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_has_the_promised_members_and_no_pool_unless_it_was_left() {
        let json = serde_json::to_value(Story::new()).unwrap();
        let names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["audit", "bills", "leases", "ok", "steps", "transactions"]);
    }
}
