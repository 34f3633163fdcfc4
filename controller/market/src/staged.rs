//! Which datasets are on which node, as far as the log tells: a member that reported `Ready` there has staged those of
//! its lease. A hint, never a promise: an owner may delete files, and agents verify every byte anyway.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::lease::{MAX_STAGED, STAGED_MS};
use selion_api::{Hash32, LeaseId, NodeId, TimeMs};

use crate::state::{Lease, Member, Node, State};
use crate::step::{Step, Wake};

/// The tags of the datasets on one node, at most [`MAX_STAGED`], each with the time of its last use.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Staged(BTreeMap<Hash32, TimeMs>);

/// Nodes by tag: those of which a [`Staged`] names it, faded or not.
pub(crate) type Holders = BTreeMap<Hash32, BTreeSet<NodeId>>;

impl Staged {
    /// True if the dataset is there and was used in the last [`STAGED_MS`].
    #[must_use]
    pub fn has(&self, tag: &Hash32, now: TimeMs) -> bool {
        self.0.get(tag).is_some_and(|used| now.since(*used) < STAGED_MS)
    }

    /// How many of these are there.
    #[must_use]
    pub fn count(&self, tags: &[Hash32], now: TimeMs) -> usize {
        tags.iter().filter(|tag| self.has(tag, now)).count()
    }

    fn note(&mut self, tags: &[Hash32], now: TimeMs) {
        self.0.extend(tags.iter().map(|tag| (*tag, now)));
        while self.0.len() > MAX_STAGED {
            let oldest = self.0.iter().min_by_key(|(tag, used)| (**used, **tag)).map(|(tag, _)| *tag);
            oldest.and_then(|tag| self.0.remove(&tag));
        }
    }
}

impl Node {
    /// How many of these datasets would have to be fetched first.
    pub(crate) fn lacks(&self, tags: &[Hash32], now: TimeMs) -> u16 {
        u16::try_from(tags.len() - self.staged.count(tags, now)).unwrap_or(u16::MAX)
    }
}

impl Lease {
    /// How many of its datasets were known to be on the member's node when it was granted.
    #[must_use]
    pub fn staged(&self, member: &Member) -> u16 {
        u16::try_from(self.request.datasets.len()).unwrap_or(u16::MAX).saturating_sub(member.away)
    }
}

/// Nodes by tag, from the nodes.
pub(crate) fn holders(state: &State) -> Holders {
    let mut holders = Holders::new();
    for (id, node) in &state.nodes {
        for tag in node.staged.0.keys() {
            holders.entry(*tag).or_default().insert(*id);
        }
    }
    holders
}

impl State {
    /// Notes what is on a node. True if something of it was not known to be there.
    pub(crate) fn stage(&mut self, id: NodeId, tags: &[Hash32]) -> bool {
        let now = self.now;
        let news = self.nodes.get(&id).is_some_and(|node| node.lacks(tags, now) > 0);
        self.change_staged(id, |staged| staged.note(tags, now));
        news
    }

    /// The node's agent has lost what it had.
    pub(crate) fn unstage(&mut self, id: NodeId) {
        self.change_staged(id, |staged| staged.0.clear());
    }

    fn change_staged(&mut self, id: NodeId, change: impl FnOnce(&mut Staged)) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let before: Vec<Hash32> = node.staged.0.keys().copied().collect();
        change(&mut node.staged);
        self.finder.restage(id, &before, node.staged.0.keys());
    }
}

impl Step<'_> {
    /// A member of the lease is ready on the node: it has staged the lease's datasets. Whoever waits for data to be
    /// somewhere is looked at again.
    pub(crate) fn has_staged(&mut self, node: NodeId, lease: LeaseId) {
        let Some(lease) = self.state.leases.get(&lease).filter(|lease| !lease.request.datasets.is_empty()) else {
            return;
        };
        let tags = lease.request.datasets.clone();
        if !self.state.stage(node, &tags) {
            return;
        }
        let mut waiting = self.state.waiting.iter().filter_map(|id| self.state.leases.get(id));
        if waiting.any(|lease| lease.request.near_data) {
            self.wake_up(Wake::All);
        }
    }
}
