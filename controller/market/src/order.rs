//! Whose turn it is: repair of gangs that lost a place, then those within their guaranteed quota, then the least share
//! in the tree of accounts, then the higher price, then age.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use selion_api::{Account, LeaseId, Reason};

use crate::accounts;
use crate::fair::{Path, Tree, Twig};
use crate::state::{Lease, State};
use crate::tally::{Bundle, KINDS, add, dominant};

/// Place in the order of service: lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// A broken lease that waits again, by its age: it keeps the place it once had.
    Repair(LeaseId),
    /// A lease that a group above it has guaranteed room for; else as `Share`.
    Quota(Path, Reverse<u64>, LeaseId),
    /// By the shares on the way down the tree; among equals the higher `max_rate` (none counts as the highest: any
    /// ask is accepted), then age.
    Share(Path, Reverse<u64>, LeaseId),
}

impl Turn {
    pub(crate) fn lease(self) -> LeaseId {
        match self {
            Self::Repair(id) | Self::Quota(_, _, id) | Self::Share(_, _, id) => id,
        }
    }
}

/// A group of the policy in the tree.
pub(crate) struct Branch {
    pub path: String,
    pub weight: u32,
    pub quota_permille: u16,
    pub twig: Twig,
    /// What the accounts below it hold.
    pub held: Bundle,
}

/// An account in the tree.
pub(crate) struct Stand {
    pub leaf: Twig,
    pub weight: u32,
    /// Its groups, the top one first, by number in [`Shares::branches`].
    pub groups: Vec<usize>,
    pub held: Bundle,
    pub past: Bundle,
}

/// The tree of accounts with what everybody in it holds.
pub(crate) struct Shares {
    pub tree: Tree<KINDS>,
    pub totals: Bundle,
    pub branches: Vec<Branch>,
    pub stands: BTreeMap<Account, Stand>,
    /// While nobody can get anything: for each resource the tree as it will be when some of that comes free.
    rest: Vec<Tree<KINDS>>,
}

impl Default for Shares {
    /// Nobody.
    fn default() -> Self {
        let totals = Bundle::default();
        Self { tree: Tree::new(totals), totals, branches: Vec::new(), stands: BTreeMap::new(), rest: Vec::new() }
    }
}

impl Shares {
    /// The groups of the policy, with everybody whose share counts in the order of service. Without groups those are
    /// only the ones who wait. Nobody asks for anything yet.
    pub(crate) fn of(state: &State) -> Self {
        let waiting = state.waiting.iter().filter_map(|id| Some(state.leases.get(id)?.request.renter));
        if state.policy.groups.is_empty() { Self::with(state, waiting.collect()) } else { Self::of_all(state) }
    }

    /// As [`of`](Self::of), with everybody who holds, held or awaits something.
    pub(crate) fn of_all(state: &State) -> Self {
        let waiting = state.waiting.iter().filter_map(|id| Some(state.leases.get(id)?.request.renter));
        let known = state.tally.held.keys().chain(state.tally.past.keys()).copied();
        Self::with(state, waiting.chain(known).collect())
    }

    fn with(state: &State, accounts: BTreeSet<Account>) -> Self {
        let mut tree = Tree::new(state.tally.totals);
        let branches = branches(state, &mut tree);
        let mut shares = Self { tree, totals: state.tally.totals, branches, stands: BTreeMap::new(), rest: Vec::new() };
        let by_path: BTreeMap<String, usize> =
            shares.branches.iter().enumerate().map(|(at, branch)| (branch.path.clone(), at)).collect();
        for account in accounts {
            let (group, weight) = state.policy.seat(account);
            let groups: Vec<usize> =
                accounts::prefixes(group).iter().filter_map(|path| by_path.get(path).copied()).collect();
            let (held, past) = state.tally.of_account(account, state.now, state.policy.half_life_ms);
            let above = groups.last().and_then(|at| shares.branches.get(*at)).map(|branch| branch.twig);
            let leaf = shares.tree.add(above.unwrap_or(shares.tree.root()), weight);
            for at in &groups {
                if let Some(branch) = shares.branches.get_mut(*at) {
                    add(&mut branch.held, &held);
                }
            }
            let stand = Stand { leaf, weight: weight.max(1), groups, held, past };
            shares.tree.hold(leaf, &stand.weighs());
            shares.stands.insert(account, stand);
        }
        shares.tree.refresh();
        shares
    }

    /// True if there is more than one level: then it matters who can get something now.
    pub(crate) fn grouped(&self) -> bool {
        !self.branches.is_empty()
    }

    /// Nobody can get anything. Who comes first when something comes free depends on what that is, so each waiting
    /// lease is put in order for the resource that dominates it: those who ask mainly for that count as open, and what
    /// others wait for as saturated.
    pub(crate) fn at_rest(&mut self, state: &State) {
        if !self.grouped() {
            return;
        }
        let mut asks: [BTreeMap<Account, Bundle>; KINDS] = Default::default();
        for lease in state.waiting.iter().filter_map(|id| state.leases.get(id)) {
            if let Some(asks) = asks.get_mut(dominant(&self.totals, &lease.size)) {
                asks.entry(lease.request.renter).or_insert(lease.size);
            }
        }
        let tree_for = |at: usize| {
            let mut saturated = [false; KINDS];
            for (other, (saturated, asks)) in saturated.iter_mut().zip(&asks).enumerate() {
                *saturated = other != at && !asks.is_empty();
            }
            let mut tree = self.tree.clone();
            tree.block_all();
            for (account, next) in asks.get(at).into_iter().flatten() {
                if let Some(stand) = self.stands.get(account) {
                    tree.ask(stand.leaf, Some(next));
                }
            }
            tree.saturate(saturated);
            tree.refresh();
            tree
        };
        self.rest = (0..KINDS).map(tree_for).collect();
    }

    /// Says what an account can get next.
    pub(crate) fn ask(&mut self, account: Account, next: &Bundle) {
        self.rest.clear();
        if let Some(stand) = self.stands.get(&account) {
            self.tree.ask(stand.leaf, Some(next));
        }
    }

    /// Notes a grant.
    pub(crate) fn take(&mut self, renter: Account, taken: &Bundle) {
        let Some(stand) = self.stands.get_mut(&renter) else {
            return;
        };
        self.rest.clear();
        add(&mut stand.held, taken);
        self.tree.hold(stand.leaf, &stand.weighs());
        self.tree.refresh_path(stand.leaf);
        for at in &stand.groups {
            if let Some(branch) = self.branches.get_mut(*at) {
                add(&mut branch.held, taken);
            }
        }
    }

    /// The turn of a waiting lease.
    pub(crate) fn turn(&self, id: LeaseId, lease: &Lease) -> Turn {
        if is_broken(lease) {
            return Turn::Repair(id);
        }
        let stand = self.stands.get(&lease.request.renter);
        let tree = self.rest.get(dominant(&self.totals, &lease.size)).unwrap_or(&self.tree);
        let path = stand.map_or(Path::default(), |stand| tree.path(stand.leaf));
        let max_rate = Reverse(lease.request.max_rate.map_or(u64::MAX, |rate| rate.0));
        if stand.is_some_and(|stand| self.is_guaranteed(stand, &lease.size)) {
            Turn::Quota(path, max_rate, id)
        } else {
            Turn::Share(path, max_rate, id)
        }
    }

    /// True if a group above the account stays within its quota with so much more. A nested quota holds also while
    /// siblings have used up that of the group above.
    fn is_guaranteed(&self, stand: &Stand, more: &Bundle) -> bool {
        self.deepest(stand, more).is_some()
    }

    /// The deepest such group.
    fn deepest(&self, stand: &Stand, more: &Bundle) -> Option<usize> {
        let [total, ..] = self.totals;
        let [more, ..] = more;
        let within = |at: &usize| {
            self.branches.get(*at).is_some_and(|group| {
                let [held, ..] = group.held;
                let needs = held.saturating_add(*more).saturating_mul(1000);
                group.quota_permille > 0 && needs <= total.saturating_mul(group.quota_permille.into())
            })
        };
        stand.groups.iter().copied().rfind(within)
    }

    /// The deepest group of which a waiting lease stays within the quota.
    pub(crate) fn guaranteed(&self, lease: &Lease) -> Option<usize> {
        self.deepest(self.stands.get(&lease.request.renter)?, &lease.size)
    }

    /// True if `work` below a group is all of its quota or more, or it has none.
    pub(crate) fn keeps_quota(&self, group: usize, work: u128) -> bool {
        let [total, ..] = self.totals;
        let quota_permille = self.branches.get(group).map_or(0, |group| group.quota_permille);
        work.saturating_mul(1000) >= total.saturating_mul(quota_permille.into())
    }

    /// True if the first group is the second, or above it.
    pub(crate) fn is_above(&self, group: usize, below: usize) -> bool {
        let path = |at: usize| self.branches.get(at).map(|branch| branch.path.as_str());
        path(group).zip(path(below)).is_some_and(|(group, below)| {
            below.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

impl Stand {
    /// What counts in shares: what is held, and the fading mean of what was.
    pub(crate) fn weighs(&self) -> Bundle {
        let mut sum = self.held;
        add(&mut sum, &self.past);
        sum
    }
}

/// The groups of the policy and those above them that are not listed, parents first.
fn branches(state: &State, tree: &mut Tree<KINDS>) -> Vec<Branch> {
    let mut listed: BTreeMap<String, (u32, u16)> = BTreeMap::new();
    for group in &state.policy.groups {
        let prefixes = accounts::prefixes(&group.path);
        let last = prefixes.len().saturating_sub(1);
        for (at, path) in prefixes.into_iter().enumerate() {
            let terms = listed.entry(path).or_insert((1, 0));
            if at == last {
                *terms = (group.weight.max(1), group.quota_permille);
            }
        }
    }
    let mut twigs: BTreeMap<String, Twig> = BTreeMap::new();
    let mut branches = Vec::new();
    // A path stands before all that it begins.
    for (path, (weight, quota_permille)) in listed {
        let above = path.rsplit_once('/').and_then(|(above, _)| twigs.get(above).copied());
        let twig = tree.add(above.unwrap_or(tree.root()), weight);
        twigs.insert(path.clone(), twig);
        branches.push(Branch { path, weight, quota_permille, twig, held: Bundle::default() });
    }
    branches
}

/// True if the lease waits because a place under it was lost: its node, or to its owner.
pub(crate) fn is_broken(lease: &Lease) -> bool {
    lease.past.last().is_some_and(|(_, reason, _)| matches!(reason, Reason::NodeLost | Reason::OwnerReclaimed))
}
