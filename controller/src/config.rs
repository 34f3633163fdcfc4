//! What the operator sets: defaults, then file, then environment, then flags (the binary layers them).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use selion_api::{Account, Address};
use selion_market::Policy;
use selion_market::engine::Weighting;
use serde::{Deserialize, Serialize};

pub use crate::registry::RegistriesConfig;

mod accounts;
mod serving;

pub use accounts::{AccountConfig, GroupConfig};
pub use serving::ServingConfig;

/// A controller's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where REST and the agents' links are served.
    pub listen: SocketAddr,
    /// Where log, rows, keys and content are kept.
    pub data_dir: PathBuf,
    /// JSON-RPC of the chain.
    pub chain_rpc: String,
    /// The pool's Controller contract.
    pub pool: Option<Address>,
    /// RPC of a Kubo on this machine, as a second source of content.
    pub kubo: Option<String>,
    /// Whether datasets are pinned in that Kubo, which announces and serves them to the public network.
    pub kubo_publish: bool,
    /// The URL under which others reach this controller; registered on chain. Default: the listening address.
    pub public_url: Option<String>,
    /// File with the authority's key. Default: made in the data directory.
    pub authority_key: Option<PathBuf>,
    /// Accounts that operate the pool beside its authority.
    pub operators: Vec<Account>,
    /// Deadlines, and the order of service.
    pub policy: PolicyConfig,
    /// How often the chain is asked for a new block, in milliseconds.
    pub poll_ms: u64,
    /// How often a grown log is anchored on chain, in milliseconds.
    pub anchor_ms: u64,
    /// How old an unclaimed voucher may grow before the sweeper claims it whatever it is worth, in milliseconds.
    pub claim_ms: u64,
    /// What may be owed to one provider before the sweeper claims for him, in token base units: about fifty times what the
    /// gas of one claim costs.
    pub claim_min: u64,
    /// Calls a day that the operator pays for, of all accounts together: [`crate::relay`]. 0: none.
    pub relay_per_day: u32,
    /// Requests a minute for each account, or for each address before authentication.
    pub requests_per_minute: u32,
    /// Largest dataset uploaded as one file, in bytes.
    pub upload_limit_bytes: u64,
    /// Connections: how many, and how long one may be held for nothing.
    pub serving: ServingConfig,
    /// Bytes of content that an account with a deposit may keep in the pool.
    pub storage_bytes: u64,
    /// How registries of images are reached.
    pub registries: RegistriesConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            data_dir: PathBuf::from("selion-data/controller"),
            chain_rpc: "http://127.0.0.1:8545".into(),
            pool: None,
            kubo: None,
            kubo_publish: false,
            public_url: None,
            authority_key: None,
            operators: Vec::new(),
            policy: PolicyConfig::default(),
            poll_ms: 200,
            anchor_ms: 60_000,
            claim_ms: 86_400_000,
            claim_min: 5_000_000,
            relay_per_day: 0,
            requests_per_minute: 1_200,
            upload_limit_bytes: 16 << 30,
            serving: ServingConfig::default(),
            storage_bytes: 256 << 30,
            registries: RegistriesConfig::default(),
        }
    }
}

/// The market's numbers, as the operator writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// As in [`Policy`].
    pub hold_ms: u64,
    /// As in [`Policy`].
    pub prepare_ms: u64,
    /// As in [`Policy`].
    pub start_ms: u64,
    /// As in [`Policy`].
    pub ending_ms: u64,
    /// As in [`Policy`].
    pub grace_ms: u64,
    /// As in [`Policy`].
    pub least_ms: u64,
    /// As in [`Policy`].
    pub voucher_ms: u64,
    /// As in [`Policy`].
    pub claim_margin_ms: u64,
    /// As in [`Policy`]; 0 protects nobody.
    pub min_run_ms: u64,
    /// As in [`Policy`].
    pub bookings: bool,
    /// Groups of accounts by path.
    pub groups: BTreeMap<String, GroupConfig>,
    /// Where accounts stand, by address; an account that is not named stands beside the top groups with weight 1.
    pub accounts: BTreeMap<String, AccountConfig>,
    /// As in [`Policy`].
    pub half_life_ms: u64,
    /// How places are scored: `market`, `fill`, `fgd`, `best-fit` or `random`.
    pub weighting: String,
    /// As in [`Policy`], at most 1,000.
    pub shadow_permille: u16,
    /// As in [`Policy`].
    pub max_waiting: u32,
    /// As in [`Policy`].
    pub max_waiting_all: u32,
    /// As in [`Policy`].
    pub max_leases: u32,
    /// As in [`Policy`].
    pub max_leases_all: u32,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        let Policy { hold_ms, prepare_ms, start_ms, ending_ms, voucher_ms, min_run_ms, .. } = Policy::default();
        let Policy { claim_margin_ms, .. } = Policy::default();
        let Policy { bookings, half_life_ms, weighting, shadow_permille, .. } = Policy::default();
        let Policy { grace_ms, least_ms, max_waiting, max_waiting_all, max_leases, max_leases_all, .. } =
            Policy::default();
        Self {
            hold_ms,
            prepare_ms,
            start_ms,
            ending_ms,
            grace_ms,
            least_ms,
            voucher_ms,
            claim_margin_ms,
            min_run_ms,
            bookings,
            groups: BTreeMap::new(),
            accounts: BTreeMap::new(),
            half_life_ms,
            weighting: weighting.name().to_owned(),
            shadow_permille,
            max_waiting,
            max_waiting_all,
            max_leases,
            max_leases_all,
        }
    }
}

/// A value in the configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("configuration: {what}")]
pub struct BadConfig {
    /// Which value, and what it should be.
    pub what: String,
}

impl PolicyConfig {
    /// The market's form.
    ///
    /// # Errors
    ///
    /// [`BadConfig`] naming a deadline of 0, a weight of 0, an account that is none, a group that is not there, quotas
    /// that add up to more than the pool, a weighting that is none, or more than the whole shadow price.
    pub fn policy(&self) -> Result<Policy, BadConfig> {
        let bad = |what: String| BadConfig { what };
        let Self {
            hold_ms,
            prepare_ms,
            start_ms,
            ending_ms,
            grace_ms,
            least_ms,
            voucher_ms,
            claim_margin_ms,
            min_run_ms,
            bookings,
            groups,
            accounts: written,
            half_life_ms,
            weighting,
            shadow_permille,
            max_waiting,
            max_waiting_all,
            max_leases,
            max_leases_all,
        } = self;
        if *shadow_permille > 1_000 {
            return Err(bad(format!(
                "policy.shadow_permille is {shadow_permille}; it is a part of the shadow price in permille, at most 1000"
            )));
        }
        let spans = [
            ("hold_ms", hold_ms),
            ("prepare_ms", prepare_ms),
            ("start_ms", start_ms),
            ("ending_ms", ending_ms),
            ("least_ms", least_ms),
            ("voucher_ms", voucher_ms),
        ];
        if let Some((name, _)) = spans.iter().find(|(_, span)| **span == 0) {
            return Err(bad(format!("policy.{name} is 0; it is a time in milliseconds, at least 1")));
        }
        Ok(Policy {
            hold_ms: *hold_ms,
            prepare_ms: *prepare_ms,
            start_ms: *start_ms,
            ending_ms: *ending_ms,
            grace_ms: *grace_ms,
            least_ms: *least_ms,
            voucher_ms: *voucher_ms,
            claim_margin_ms: *claim_margin_ms,
            min_run_ms: *min_run_ms,
            bookings: *bookings,
            groups: accounts::groups(groups)?,
            accounts: accounts::seats(written, groups)?,
            half_life_ms: *half_life_ms,
            shadow_permille: *shadow_permille,
            max_waiting: *max_waiting,
            max_waiting_all: *max_waiting_all,
            max_leases: *max_leases,
            max_leases_all: *max_leases_all,
            weighting: weighting
                .parse::<Weighting>()
                .map_err(|error| bad(format!("policy.weighting is `{weighting}`: {error}")))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_of_nothing_is_named() {
        let idle = PolicyConfig { hold_ms: 0, ..PolicyConfig::default() };
        assert!(idle.policy().unwrap_err().what.contains("hold_ms"));
    }

    #[test]
    fn a_weighting_is_found_by_its_name_and_another_word_is_named() {
        let of = |name: &str| PolicyConfig { weighting: name.to_owned(), ..PolicyConfig::default() };
        assert_eq!(of("best-fit").policy().map(|policy| policy.weighting), Ok(Weighting::BestFit));
        assert_eq!(PolicyConfig::default().policy(), Ok(Policy::default()));
        let told = of("fit").policy().unwrap_err().to_string();
        let all = |shadow_permille| PolicyConfig { shadow_permille, ..PolicyConfig::default() };
        assert_eq!(all(1_000).policy().map(|policy| policy.shadow_permille), Ok(1_000));
        assert!(all(1_001).policy().unwrap_err().what.contains("shadow_permille is 1001"));
        assert!(told.contains("policy.weighting is `fit`") && told.contains("best-fit"), "{told}");
    }
}
