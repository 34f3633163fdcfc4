//! The order of service worked out from nothing before every grant, as slowly and plainly as can be: the market must
//! serve in exactly this order. One node with one GPU in shares, so that what fits is a matter of four sums.

use std::collections::BTreeMap;

use proptest::prelude::*;
use selion_api::{Account, LeaseId, LeaseRequest, SliceWant};
use selion_market::fair::{Path, Tree, Twig, part};
use selion_market::{Group, Input, Policy, Seat};

use crate::pool::{DELEGATE, GIB, Pool, TOKEN, a100, ask, group, renter, seat, spec};

const FILLER: u8 = 9;
const CPU_MILLI: u32 = 10_000;
const RAM: u64 = 100_000;

type Bundle = [u128; 4];

const TOTALS: Bundle = [1_000_000, 80 * GIB as u128, CPU_MILLI as u128, RAM as u128];

fn task(of: u8, permille: u16, cpu_milli: u32, ram_bytes: u64) -> LeaseRequest {
    let slice = SliceWant::Share { compute_permille: permille, mem_bytes: 1 };
    let mut request = ask(renter(of), &[slice]);
    request.members[0].cpu_milli = cpu_milli;
    request.members[0].ram_bytes = ram_bytes;
    request
}

fn size(request: &LeaseRequest) -> Bundle {
    let SliceWant::Share { compute_permille, mem_bytes } = request.members[0].slice else { unreachable!() };
    let member = &request.members[0];
    [u128::from(compute_permille) * 1000, mem_bytes.into(), member.cpu_milli.into(), member.ram_bytes.into()]
}

fn dominant(bundle: &Bundle) -> usize {
    let parts: Vec<u64> = (0..4).map(|at| part(bundle[at], TOTALS[at])).collect();
    (0..4).max_by_key(|at| (parts[*at], std::cmp::Reverse(*at))).unwrap()
}

struct Naive<'a> {
    policy: &'a Policy,
    held: BTreeMap<Account, Bundle>,
    waiting: BTreeMap<LeaseId, LeaseRequest>,
    short: [bool; 4],
}

impl Naive<'_> {
    fn used(&self, whose: impl Fn(&Account) -> bool) -> Bundle {
        let mut sum = Bundle::default();
        for (_, held) in self.held.iter().filter(|(account, _)| whose(account)) {
            (0..4).for_each(|at| sum[at] += held[at]);
        }
        sum
    }

    fn fits(&self, request: &LeaseRequest) -> bool {
        let used = self.used(|_| true);
        (0..4).all(|at| used[at] + size(request)[at] <= TOTALS[at])
    }

    fn seat(&self, account: &Account) -> (String, u32) {
        let seat = self.policy.accounts.iter().find(|seat| seat.account == *account);
        seat.map_or((String::new(), 1), |seat| (seat.group.clone(), seat.weight))
    }

    fn guaranteed(&self, request: &LeaseRequest) -> bool {
        let (mine, _) = self.seat(&request.renter);
        let within = |path: &str, group: &str| path == group || path.starts_with(&format!("{group}/"));
        self.policy.groups.iter().filter(|group| within(&mine, &group.path)).any(|group| {
            let work = self.used(|account| within(&self.seat(account).0, &group.path))[0];
            group.quota_permille > 0 && (work + size(request)[0]) * 1000 <= TOTALS[0] * u128::from(group.quota_permille)
        })
    }

    /// The leases of an account in its own order.
    fn of(&self, account: &Account) -> Vec<&LeaseRequest> {
        let mut mine: Vec<_> = self.waiting.iter().filter(|(_, request)| request.renter == *account).collect();
        mine.sort_by_key(|(id, request)| (!self.guaranteed(request), **id));
        mine.into_iter().map(|(_, request)| request).collect()
    }

    fn paths(&mut self) -> BTreeMap<Account, Path> {
        let mut tree = Tree::new(TOTALS);
        let mut twigs: BTreeMap<String, Twig> = BTreeMap::from([(String::new(), tree.root())]);
        for group in &self.policy.groups {
            let above = group.path.rsplit_once('/').map_or("", |(above, _)| above);
            let twig = tree.add(twigs[above], group.weight);
            twigs.insert(group.path.clone(), twig);
        }
        let mut accounts: Vec<Account> = self.held.keys().copied().collect();
        accounts.extend(self.waiting.values().map(|request| request.renter));
        accounts.sort_unstable();
        accounts.dedup();
        let mut open = [false; 4];
        let mut leaves = BTreeMap::new();
        for account in accounts {
            let (group, weight) = self.seat(&account);
            let leaf = tree.add(twigs[&group], weight);
            tree.hold(leaf, self.held.get(&account).unwrap_or(&Bundle::default()));
            let sizes: Vec<(bool, Bundle)> =
                self.of(&account).into_iter().map(|request| (self.fits(request), size(request))).collect();
            let next = sizes.iter().position(|(fits, _)| *fits);
            for (_, size) in &sizes[..next.unwrap_or(sizes.len())] {
                self.short[dominant(size)] = true;
            }
            if let Some(next) = next {
                open[dominant(&sizes[next].1)] = true;
                tree.ask(leaf, Some(&sizes[next].1));
            }
            leaves.insert(account, leaf);
        }
        tree.saturate([0, 1, 2, 3].map(|at| self.short[at] && !open[at]));
        tree.refresh();
        leaves.into_iter().map(|(account, leaf)| (account, tree.path(leaf))).collect()
    }

    fn serve(&mut self) -> Vec<LeaseId> {
        let mut served = Vec::new();
        while !self.waiting.is_empty() {
            let paths = self.paths();
            let key =
                |(id, request): &(&LeaseId, &LeaseRequest)| (!self.guaranteed(request), paths[&request.renter], **id);
            let id = *self.waiting.iter().min_by_key(key).unwrap().0;
            let request = self.waiting.remove(&id).unwrap();
            if self.fits(&request) {
                let held = self.held.entry(request.renter).or_default();
                (0..4).for_each(|at| held[at] += size(&request)[at]);
                served.push(id);
            }
        }
        served
    }
}

/// Everybody queues while a filler holds all; then it is gone.
fn run(policy: Policy, asks: &[LeaseRequest], rounds: usize) {
    let mut pool = Pool::new();
    pool.enter(Input::Opened { delegate: DELEGATE, policy: policy.clone() });
    let mut node = spec(1, vec![a100(1, 0)]);
    node.cpu_milli = CPU_MILLI;
    node.ram_bytes = RAM;
    pool.node(node);
    for one in (1..=5).chain([FILLER]) {
        pool.fund(renter(one), 1_000_000 * TOKEN);
    }
    for round in 0..rounds {
        let filler = pool.lease(task(FILLER, 1, CPU_MILLI, 1));
        pool.jam(filler);
        for request in asks.iter().skip(round).step_by(rounds) {
            pool.lease(request.clone());
        }
        let waiting = pool.state.waiting.iter().map(|id| (*id, pool.get(*id).request.clone())).collect();
        let mut naive = Naive { policy: &policy, held: BTreeMap::new(), waiting, short: [false; 4] };
        let expected = naive.serve();
        let before = pool.grants().len();
        pool.unjam(filler);
        let served: Vec<LeaseId> = pool.grants()[before..].iter().map(|grant| grant.lease).collect();
        assert_eq!(served, expected);
        for id in pool.state.leases.keys().copied().collect::<Vec<_>>() {
            if !pool.state.waiting.contains(&id) && pool.get(id).deadline.is_some() {
                pool.clear(id); // which lets others in, in an order that is not looked at here
            }
        }
        let left: Vec<LeaseId> = pool.state.waiting.iter().copied().collect();
        left.into_iter().for_each(|id| {
            pool.release(id);
        });
        let live: Vec<LeaseId> = pool.state.nodes.values().flat_map(|node| node.held.keys().map(|key| key.0)).collect();
        live.into_iter().for_each(|id| pool.clear(id));
    }
}

fn policies() -> impl Strategy<Value = Policy> {
    let weight = || 1_u32..5;
    let quota = || prop_oneof![2 => Just(0_u16), 1 => 100_u16..500];
    let groups = ((weight(), quota()), (weight(), quota()), (weight(), quota()), (weight(), quota()));
    let seats = prop::collection::vec((prop::sample::select(vec!["", "a", "a/x", "a/y", "b"]), weight()), 5);
    (groups, seats).prop_map(|((a, x, y, b), seats)| {
        let groups: Vec<Group> = [("a", a), ("a/x", x), ("a/y", y), ("b", b)]
            .map(|(path, (weight, quota))| group(path, weight, quota))
            .to_vec();
        let accounts: Vec<Seat> =
            seats.into_iter().zip(1..).map(|((path, weight), of)| seat(of, path, weight)).collect();
        // A booking would keep back whom the order of service lets through.
        Policy { groups, accounts, bookings: false, ..Policy::default() }
    })
}

fn tasks() -> impl Strategy<Value = Vec<LeaseRequest>> {
    let amount = || prop_oneof![2 => 1_u16..10, 1 => 50_u16..400];
    let one = (1_u8..6, amount(), amount(), amount())
        .prop_map(|(of, permille, cpu, ram)| task(of, permille, u32::from(cpu) * 10, u64::from(ram) * 100));
    // A few kinds, several of each.
    prop::collection::vec(one, 1..9).prop_flat_map(|kinds| prop::collection::vec(prop::sample::select(kinds), 1..60))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_market_serves_in_the_order_that_is_worked_out_from_nothing(policy in policies(), asks in tasks()) {
        run(policy, &asks, 2);
    }
}
