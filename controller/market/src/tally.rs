//! What the fleet has and who holds how much of it, kept as it changes.
//!
//! Every change of a node's `spec`, `provider`, `blocked` or `held` goes through here; [`Tally::of`] adds it all up
//! from the nodes and must always agree.

use alloc::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::lease::Beside;
use selion_api::{Account, GpuId, LeaseId, LeaseRequest, NodeId, Slot, TimeMs};

use crate::fair;
use crate::fleet;
use crate::place::Placed;
use crate::state::{Held, Node, State};

/// Resources that count in shares. GPU work is that of the model times the part of the GPU that is taken.
pub const RESOURCES: [&str; KINDS] = ["gpu_work", "gpu_memory", "cpu", "ram", "disk", "net"];

/// How many resources there are.
pub const KINDS: usize = 6;

/// An amount of each of [`RESOURCES`]: GPU work in millionths of an A100 80GB, bytes, then
/// [`BESIDE`](selion_api::lease::BESIDE).
pub type Bundle = [u128; KINDS];

/// Sums over the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Tally {
    /// What registered nodes that have described themselves have.
    pub totals: Bundle,
    /// What each account holds; accounts that hold nothing are absent.
    pub held: BTreeMap<Account, Bundle>,
    /// What accounts held in the past, while the policy sets a half-life.
    pub past: BTreeMap<Account, Past>,
}

/// The fading mean of what an account held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Past {
    /// The mean at `at`.
    pub mean: Bundle,
    /// Up to when it is worked out. What is held has not changed since.
    pub at: TimeMs,
}

impl Tally {
    /// Adds up the nodes. `past` cannot be read from them and is empty.
    #[must_use]
    pub fn of(state: &State) -> Self {
        let mut tally = Self::default();
        for node in state.nodes.values() {
            add(&mut tally.totals, &capacity(node));
            for held in node.held.values() {
                add(tally.held.entry(held.renter).or_default(), &piece_of(node, held));
            }
        }
        tally.held.retain(|_, held| *held != Bundle::default());
        tally
    }

    /// What an account holds now, and the fading mean of what it held (nothing without a half-life).
    #[must_use]
    pub fn of_account(&self, account: Account, now: TimeMs, half_life_ms: u64) -> (Bundle, Bundle) {
        let held = self.held.get(&account).copied().unwrap_or_default();
        let past = self.past.get(&account).filter(|_| half_life_ms > 0);
        (held, past.map_or(Bundle::default(), |past| faded(past, &held, now, half_life_ms)))
    }

    fn settle(&mut self, account: Account, now: TimeMs, half_life_ms: u64) {
        if half_life_ms > 0 {
            let (_, mean) = self.of_account(account, now, half_life_ms);
            self.past.insert(account, Past { mean, at: now });
        }
    }

    fn change(&mut self, account: Account, more: Option<&Bundle>, less: Option<&Bundle>) {
        let held = self.held.entry(account).or_default();
        add(held, more.unwrap_or(&Bundle::default()));
        subtract(held, less.unwrap_or(&Bundle::default()));
        if *held == Bundle::default() {
            self.held.remove(&account);
        }
    }

    /// Goes over from one half-life to another: what faded so far faded by the old one. Forgets whose past is gone.
    pub(crate) fn set_half_life(&mut self, now: TimeMs, old_ms: u64, new_ms: u64) {
        if new_ms == 0 {
            self.past.clear();
            return;
        }
        let known = self.past.keys().chain(self.held.keys()).copied();
        for account in known.collect::<alloc::vec::Vec<_>>() {
            let (_, mean) = self.of_account(account, now, old_ms);
            self.past.insert(account, Past { mean, at: now });
        }
        let held = &self.held;
        self.past.retain(|account, past| past.mean != Bundle::default() || held.contains_key(account));
    }
}

fn faded(past: &Past, held: &Bundle, now: TimeMs, half_life_ms: u64) -> Bundle {
    let elapsed_ms = now.since(past.at);
    let mut mean = past.mean;
    for (mean, held) in mean.iter_mut().zip(held) {
        *mean = fair::mean(*mean, *held, elapsed_ms, half_life_ms);
    }
    mean
}

impl State {
    /// Takes a slot of a node for a member of a lease; tells how much that is.
    pub(crate) fn hold(&mut self, node: NodeId, lease: LeaseId, rank: u16, held: Held) -> Bundle {
        let mut taken = Bundle::default();
        self.sit(&held);
        self.change_node(node, Some(held.renter), |node| {
            taken = piece_of(node, &held);
            node.held.insert((lease, rank), held);
        });
        taken
    }

    /// What a request takes at these places.
    pub(crate) fn size_of(&self, request: &LeaseRequest, places: &[Placed]) -> Bundle {
        let mut sum = Bundle::default();
        for place in places {
            let want = request.members.get(usize::from(place.rank));
            if let (Some(node), Some(want)) = (self.nodes.get(&place.node), want) {
                add(&mut sum, &piece(node, place.gpus.iter().map(|one| one.gpu), &place.slot, want.beside()));
            }
        }
        sum
    }

    /// Gives a slot back if this run of the lease has it; tells whether it did.
    pub(crate) fn unhold(&mut self, node: NodeId, lease: LeaseId, rank: u16, attempt: u32) -> bool {
        let key = (lease, rank);
        let Some(held) = self.nodes.get(&node).and_then(|node| node.held.get(&key)) else {
            return false;
        };
        if held.attempt != attempt {
            return false;
        }
        let held = held.clone();
        self.stand_up(&held);
        self.change_node(node, Some(held.renter), |node| {
            node.held.remove(&key);
        });
        true
    }

    /// Changes a node and the sums with it. `renter`: the only one whose slots change; `None` if it could be anyone's.
    pub(crate) fn change_node(&mut self, id: NodeId, renter: Option<Account>, change: impl FnOnce(&mut Node)) {
        let (now, half_life_ms) = (self.now, self.policy.half_life_ms);
        self.finder.mark(id);
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        // A slot that comes or goes does not change what the node has.
        let size = |node: &Node| if renter.is_none() { capacity(node) } else { Bundle::default() };
        let (had, before) = (size(node), of_renters(node, renter));
        change(node);
        let (has, after) = (size(node), of_renters(node, renter));
        add(&mut self.tally.totals, &has);
        subtract(&mut self.tally.totals, &had);
        for account in before.keys().chain(after.keys().filter(|account| !before.contains_key(account))) {
            let (less, more) = (before.get(account), after.get(account));
            if less != more {
                self.tally.settle(*account, now, half_life_ms);
                self.tally.change(*account, more, less);
            }
        }
    }
}

/// Everything that is held: by which lease and rank, what, and its GPU work.
pub(crate) fn works(state: &State) -> impl Iterator<Item = ((LeaseId, u16), &Held, u128)> {
    let held = state.nodes.values().flat_map(|node| node.held.iter().map(move |(key, held)| (node, key, held)));
    held.map(|(node, key, held)| {
        let [work, ..] = piece_of(node, held);
        (*key, held, work)
    })
}

fn of_renters(node: &Node, only: Option<Account>) -> BTreeMap<Account, Bundle> {
    let mut sums = BTreeMap::new();
    for held in node.held.values().filter(|held| only.is_none_or(|only| held.renter == only)) {
        add(sums.entry(held.renter).or_default(), &piece_of(node, held));
    }
    sums
}

/// What a node adds to the pool: nothing until it is registered and has described itself.
fn capacity(node: &Node) -> Bundle {
    let mut sum = Bundle::default();
    if let Some(spec) = node.spec.as_ref().filter(|_| node.provider.is_some()) {
        for gpu in &spec.gpus {
            add(&mut sum, &piece(node, [gpu.gpu].into_iter(), &Slot::Whole, Beside::default()));
        }
        add(&mut sum, &bundle([0, 0], spec.beside()));
    }
    sum
}

fn piece_of(node: &Node, held: &Held) -> Bundle {
    piece(node, held.gpus.iter().copied(), &held.slot, held.beside)
}

/// What a slot on each of these GPUs and what stands beside them take of each resource.
fn piece(node: &Node, gpus: impl Iterator<Item = GpuId>, slot: &Slot, beside: Beside) -> Bundle {
    let mut sum = [0, 0];
    for gpu in gpus {
        let spec = node.spec.as_ref().and_then(|spec| spec.gpus.iter().find(|spec| spec.gpu == gpu));
        let [work, mem] = spec.map_or([0, 0], |spec| {
            let (permille, mem) = fleet::part_of(spec, slot);
            [u128::from(spec.work_milli) * u128::from(permille), u128::from(mem)]
        });
        let [all_work, all_mem] = sum;
        sum = [work.saturating_add(all_work), mem.saturating_add(all_mem)];
    }
    bundle(sum, beside)
}

fn bundle([work, mem]: [u128; 2], [cpu, ram, disk, net]: Beside) -> Bundle {
    [work, mem, cpu.into(), ram.into(), disk.into(), net.into()]
}

pub(crate) fn add(to: &mut Bundle, more: &Bundle) {
    for (to, more) in to.iter_mut().zip(more) {
        *to = to.saturating_add(*more);
    }
}

fn subtract(from: &mut Bundle, less: &Bundle) {
    for (from, less) in from.iter_mut().zip(less) {
        *from = from.saturating_sub(*less);
    }
}

/// The number of the resource of which a bundle is the largest part, the first among equals.
pub(crate) fn dominant(totals: &Bundle, bundle: &Bundle) -> usize {
    let parts = bundle.iter().zip(totals).map(|(amount, total)| fair::part(*amount, *total));
    let top = parts.enumerate().reduce(|top, next| if next.1 > top.1 { next } else { top });
    top.map_or(0, |(at, _)| at)
}
