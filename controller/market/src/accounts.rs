//! The tree of accounts as the operator sets it: groups by path, and the seats of accounts in them.

use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::Account;

use crate::input::Policy;

/// Most names in the path of a group: an organisation, a team of it, a part of that.
pub const MAX_GROUP_DEPTH: usize = crate::fair::DEPTH - 1;

/// A group of accounts: an organisation or a team.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Group {
    /// Names from the top, joined by `/`: `lab/vision`. A group above that is not listed has weight 1 and no quota.
    pub path: String,
    /// Weight beside its siblings, accounts without a group among them; 0 counts as 1.
    pub weight: u32,
    /// Guaranteed part of the GPU work of the whole pool, in permille: below it the group is served before all that
    /// are above theirs.
    pub quota_permille: u16,
}

/// Where an account stands in the tree. An account without a seat stands under the root with weight 1.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Seat {
    /// Whose.
    pub account: Account,
    /// Path of its group; empty for the root.
    pub group: String,
    /// Weight among its siblings; 0 counts as 1.
    pub weight: u32,
}

impl Policy {
    /// Path of the account's group, and its weight there.
    #[must_use]
    pub fn seat(&self, account: Account) -> (&str, u32) {
        let at = self.accounts.binary_search_by_key(&account, |seat| seat.account).ok();
        at.and_then(|at| self.accounts.get(at)).map_or(("", 1), |seat| (seat.group.as_str(), seat.weight))
    }
}

/// The names of a path, at most [`MAX_GROUP_DEPTH`]: what lies deeper counts as part of the last.
pub(crate) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty()).take(MAX_GROUP_DEPTH)
}

/// The path of a group and of all groups above it, the top one first.
pub(crate) fn prefixes(path: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names(path) {
        let mut next = all.last().cloned().unwrap_or_default();
        if !next.is_empty() {
            next.push('/');
        }
        next.push_str(name);
        all.push(next);
    }
    all
}
