//! The tree of accounts as the operator writes it.

use std::collections::BTreeMap;

use selion_api::Account;
use selion_market::accounts::MAX_GROUP_DEPTH;
use selion_market::{Group, Seat};
use serde::{Deserialize, Serialize};

use super::BadConfig;

/// The whole pool, in permille.
const WHOLE_PERMILLE: u64 = 1000;

/// A group of accounts. Its path is its name in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupConfig {
    /// Weight beside its siblings.
    pub weight: u32,
    /// Guaranteed part of the GPU work of the pool, in permille.
    pub quota_permille: u16,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self { weight: 1, quota_permille: 0 }
    }
}

/// Where an account stands. Its address is its name in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccountConfig {
    /// Path of its group; empty: beside the top groups.
    pub group: String,
    /// Weight beside its siblings.
    pub weight: u32,
}

impl Default for AccountConfig {
    fn default() -> Self {
        Self { group: String::new(), weight: 1 }
    }
}

/// The groups in the market's form, by path.
pub(super) fn groups(written: &BTreeMap<String, GroupConfig>) -> Result<Vec<Group>, BadConfig> {
    for (path, group) in written {
        let name = format!("policy.groups.\"{path}\"");
        let names: Vec<&str> = path.split('/').collect();
        let plain = |name: &&str| {
            (1..=64).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !names.iter().all(plain) {
            let rule = "names of 1 to 64 letters, digits, `-`, `_` or `.`, joined by `/`";
            return Err(BadConfig { what: format!("{name}: a path is {rule}") });
        }
        if names.len() > MAX_GROUP_DEPTH {
            let depth = names.len();
            return Err(BadConfig {
                what: format!("{name} has {depth} names; at most {MAX_GROUP_DEPTH} are possible"),
            });
        }
        if group.weight == 0 {
            return Err(BadConfig { what: format!("{name}.weight is 0; a weight is at least 1") });
        }
    }
    let promised = promised(written, "");
    if promised > WHOLE_PERMILLE {
        let what =
            format!("policy.groups promises {promised} permille of the pool as quotas; at most 1000 can be kept");
        return Err(BadConfig { what });
    }
    let group = |(path, group): (&String, &GroupConfig)| Group {
        path: path.clone(),
        weight: group.weight,
        quota_permille: group.quota_permille,
    };
    Ok(written.iter().map(group).collect())
}

/// What is promised to the groups below `path`: to each its own quota, or those of its groups if they are more.
fn promised(written: &BTreeMap<String, GroupConfig>, path: &str) -> u64 {
    let below = |other: &String| {
        let rest = if path.is_empty() { Some(other.as_str()) } else { other.strip_prefix(path)?.strip_prefix('/') };
        rest.and_then(|rest| rest.split('/').next()).map(str::to_owned)
    };
    let mut children: Vec<String> = written.keys().filter_map(below).collect();
    children.dedup();
    let quota = |child: &String| {
        let path = if path.is_empty() { child.clone() } else { format!("{path}/{child}") };
        let own = written.get(&path).map_or(0, |group| u64::from(group.quota_permille));
        own.max(promised(written, &path))
    };
    children.iter().map(quota).sum()
}

/// The seats in the market's form, by account.
pub(super) fn seats(
    written: &BTreeMap<String, AccountConfig>,
    groups: &BTreeMap<String, GroupConfig>,
) -> Result<Vec<Seat>, BadConfig> {
    let mut seats: BTreeMap<Account, Seat> = BTreeMap::new();
    for (name, seat) in written {
        let account: Account = name.parse().map_err(|error| BadConfig { what: format!("policy.accounts: {error}") })?;
        if seat.weight == 0 {
            let what = format!("policy.accounts.{name}.weight is 0; a weight is at least 1");
            return Err(BadConfig { what });
        }
        let above = |path: &String| path == &seat.group || path.starts_with(&format!("{}/", seat.group));
        if !seat.group.is_empty() && !groups.keys().any(above) {
            let known: Vec<&str> = groups.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
            let what =
                format!("policy.accounts.{name}.group is {:?}, which is not in policy.groups ({known})", seat.group);
            return Err(BadConfig { what });
        }
        let seat = Seat { account, group: seat.group.clone(), weight: seat.weight };
        if seats.insert(account, seat).is_some() {
            return Err(BadConfig { what: format!("policy.accounts names {account} twice") });
        }
    }
    Ok(seats.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PolicyConfig;

    const ACCOUNT: &str = "0x0101010101010101010101010101010101010101";

    fn policy(groups: &[(&str, u32, u16)], accounts: &[(&str, &str, u32)]) -> Result<selion_market::Policy, String> {
        let group = |(path, weight, quota_permille): &(&str, u32, u16)| {
            ((*path).to_owned(), GroupConfig { weight: *weight, quota_permille: *quota_permille })
        };
        let seat = |(account, group, weight): &(&str, &str, u32)| {
            ((*account).to_owned(), AccountConfig { group: (*group).to_owned(), weight: *weight })
        };
        let groups = groups.iter().map(group).collect();
        let accounts = accounts.iter().map(seat).collect();
        PolicyConfig { groups, accounts, ..PolicyConfig::default() }.policy().map_err(|bad| bad.what)
    }

    #[test]
    fn groups_and_seats_become_the_markets() {
        let policy = policy(&[("lab/vision", 2, 250)], &[(ACCOUNT, "lab", 3)]).unwrap();
        assert_eq!(policy.groups, [Group { path: "lab/vision".into(), weight: 2, quota_permille: 250 }]);
        assert_eq!((policy.accounts[0].group.as_str(), policy.accounts[0].weight), ("lab", 3));
    }

    #[test]
    fn a_weight_of_nothing_and_an_account_that_is_none_are_named() {
        assert!(policy(&[], &[(ACCOUNT, "", 1)]).is_ok());
        assert!(policy(&[], &[(ACCOUNT, "", 0)]).unwrap_err().contains("weight is 0"));
        assert!(policy(&[("lab", 0, 0)], &[]).unwrap_err().contains("\"lab\".weight is 0"));
        assert!(policy(&[], &[("alice", "", 1)]).unwrap_err().contains("alice"));
        let twice = [(ACCOUNT, "", 1), (&*ACCOUNT.replace("0x01", "01"), "", 1)];
        assert!(policy(&[], &twice).is_err());
    }

    #[test]
    fn a_group_that_is_not_there_is_named_with_those_that_are() {
        let bad = policy(&[("lab/vision", 1, 0)], &[(ACCOUNT, "lab/visoin", 1)]).unwrap_err();
        assert!(bad.contains("lab/visoin") && bad.contains("(lab/vision)"), "{bad}");
        assert!(policy(&[], &[(ACCOUNT, "lab", 1)]).unwrap_err().contains("there is none"));
    }

    #[test]
    fn paths_are_names_and_not_too_deep() {
        for path in ["", "/lab", "lab/", "a//b", "a b", "ä"] {
            assert!(policy(&[(path, 1, 0)], &[]).unwrap_err().contains("a path is"), "{path:?}");
        }
        assert!(policy(&[("a/b/c", 1, 0)], &[]).is_ok());
        assert!(policy(&[("a/b/c/d", 1, 0)], &[]).unwrap_err().contains("has 4 names; at most 3"));
    }

    #[test]
    fn no_more_than_the_pool_is_promised() {
        assert!(policy(&[("a", 1, 600), ("a/x", 1, 300), ("a/y", 1, 300), ("b", 1, 400)], &[]).is_ok());
        let bad = policy(&[("a", 1, 600), ("b", 1, 401)], &[]).unwrap_err();
        assert!(bad.contains("promises 1001 permille"), "{bad}");
        assert!(policy(&[("a", 1, 100), ("a/x", 1, 700), ("b/y", 1, 301)], &[]).is_err(), "the teams' are more");
    }
}
