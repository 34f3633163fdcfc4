//! Groups, quotas and past use in the market: whose turn it is when room comes free.

use selion_api::agent::MemberEvent;
use selion_api::lease::OnNodeLoss;
use selion_api::{LeaseRequest, SliceWant};
use selion_market::{Group, Input, Policy, Seat};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, group, renter, seat, spec};

const FILLER: u8 = 9;

fn policy(groups: Vec<Group>, accounts: Vec<Seat>) -> Policy {
    Policy { groups, accounts, ..Policy::default() }
}

/// A pool of so many whole GPUs on one node, renters 1 to 9 with money, and a policy.
fn pool(gpus: u8, policy: Policy) -> Pool {
    let mut pool = Pool::new();
    pool.enter(Input::Opened { delegate: DELEGATE, policy });
    pool.node(spec(1, (0..gpus).map(|rank| a100(1, rank)).collect()));
    for one in 1..=FILLER {
        pool.fund(renter(one), 10_000 * TOKEN);
    }
    pool
}

fn whole(of: u8) -> LeaseRequest {
    gang(of, 1)
}

fn gang(of: u8, gpus: usize) -> LeaseRequest {
    ask(renter(of), &vec![SliceWant::Whole; gpus])
}

/// Takes all CPU of the node, so that one report gives everything free at once.
fn filler() -> LeaseRequest {
    let mut request = whole(FILLER);
    request.members[0].cpu_milli = 64_000;
    request
}

/// Fills the pool, lets everybody queue, empties it, and tells who was served in which order.
fn serve(gpus: u8, policy: Policy, asks: &[LeaseRequest]) -> Vec<u8> {
    let mut pool = pool(gpus, policy);
    let filler = pool.lease(filler());
    pool.jam(filler);
    for request in asks {
        pool.lease(request.clone());
    }
    let before = pool.grants().len();
    pool.unjam(filler);
    pool.grants()[before..].iter().map(|grant| grant.renter.0[0]).collect()
}

fn each(of: &[u8], times: usize) -> Vec<LeaseRequest> {
    of.iter().flat_map(|one| vec![whole(*one); times]).collect()
}

fn count(served: &[u8], of: &[u8]) -> usize {
    served.iter().filter(|one| of.contains(one)).count()
}

/// Kueue #9345: one workload a queue and cycle gave an organisation with three queues 3 of 4.
#[test]
fn kueue_9345_two_organisations_get_two_and_two_whatever_the_number_of_their_queues() {
    let seats = vec![seat(1, "a", 1), seat(2, "a", 1), seat(3, "a", 1), seat(4, "b", 1)];
    let served = serve(4, policy(vec![group("a", 1, 0), group("b", 1, 0)], seats), &each(&[1, 2, 3, 4], 4));
    assert_eq!((count(&served, &[1, 2, 3]), count(&served, &[4])), (2, 2), "{served:?}");
}

#[test]
fn weights_count_between_organisations_teams_and_users() {
    let groups = vec![group("a", 3, 0), group("a/x", 2, 0), group("a/y", 1, 0), group("b", 1, 0)];
    let seats = vec![seat(1, "a/x", 1), seat(2, "a/y", 1), seat(3, "b", 1), seat(4, "b", 1)];
    let served = serve(16, policy(groups, seats), &each(&[1, 2, 3, 4], 16));
    assert_eq!([1, 2, 3, 4].map(|one| count(&served, &[one])), [8, 4, 2, 2], "{served:?}");
}

#[test]
fn an_account_without_a_seat_stands_beside_the_organisations() {
    let seats = vec![seat(1, "a", 1), seat(2, "a", 1)];
    let served = serve(4, policy(vec![group("a", 1, 0)], seats), &each(&[1, 2, 3], 4));
    assert_eq!([1, 2, 3].map(|one| count(&served, &[one])), [1, 1, 2], "{served:?}");
}

#[test]
fn below_its_quota_a_group_goes_before_any_share_and_above_it_by_its_share() {
    let seats = vec![seat(1, "a", 1), seat(2, "b", 1)];
    let groups = vec![group("a", 1, 500), group("b", 9, 0)];
    let served = serve(8, policy(groups, seats), &each(&[1, 2], 8));
    assert_eq!(served[..4], [1, 1, 1, 1], "half the pool is guaranteed to a");
    assert_eq!(served[4..], [2, 2, 2, 2], "then b's weight counts");
}

#[test]
fn a_lease_larger_than_what_is_left_of_the_quota_is_not_guaranteed() {
    let seats = vec![seat(1, "a", 1), seat(2, "b", 1)];
    let groups = vec![group("a", 1, 500), group("b", 1, 0)];
    let asks = [gang(1, 3), gang(2, 1), gang(1, 2), gang(2, 2), gang(1, 1)];
    // Of four GPUs two are a's: its gang of three is above that, its gang of two within; then b has less.
    assert_eq!(serve(4, policy(groups, seats), &asks), [1, 1, 2, 1]);
}

#[test]
fn the_quota_of_a_team_holds_while_its_organisation_is_above_its_own() {
    let seats = vec![seat(1, "a/x", 1), seat(2, "a/y", 1), seat(3, "b", 1)];
    let groups = vec![group("a", 1, 250), group("a/x", 1, 0), group("a/y", 1, 250), group("b", 1, 0)];
    let mut pool = pool(4, policy(groups, seats));
    let filler = pool.lease(gang(FILLER, 2));
    pool.jam(filler);
    for _ in 0..2 {
        let id = pool.lease(whole(1)); // more than all of the organisation's quota
        pool.jam(id);
    }
    pool.lease(whole(3));
    pool.lease(whole(3));
    pool.lease(whole(2));
    let before = pool.grants().len();
    pool.unjam(filler);
    let served: Vec<u8> = pool.grants()[before..].iter().map(|grant| grant.renter.0[0]).collect();
    assert_eq!(served, [2, 3]);
}

/// Volcano #5805: a gang that had lost a node stood behind every fresh request without a share, for good.
#[test]
fn volcano_5805_repair_of_a_broken_gang_outranks_a_fresh_request_without_a_share() {
    let groups = vec![group("a", 1, 0), group("b", 100, 1000)];
    let mut pool = pool(2, policy(groups, vec![seat(1, "a", 1), seat(2, "b", 1)]));
    pool.node(spec(2, vec![a100(2, 0)]));
    // What keeps the gang's renter above everybody else's share.
    let mut large = whole(1);
    large.members[0].node = Some(crate::pool::node_id(2));
    pool.lease(large);
    let mut broken = gang(1, 2);
    broken.on_node_loss = OnNodeLoss::Requeue;
    let broken = pool.lease(broken);
    pool.run_up(broken);
    let fresh = pool.lease(gang(2, 2));
    pool.enter(Input::Lost { node: crate::pool::node_id(1), last_seq: 0 });
    assert_eq!((pool.get(broken).position, pool.get(fresh).position), (1, 2));
    let node = pool.state.nodes[&crate::pool::node_id(1)].spec.clone().unwrap();
    pool.enter(Input::modelled_link(node, 0));
    assert_eq!(pool.get(broken).attempt, 2, "the gang is whole again");
    assert_eq!(pool.get(fresh).attempt, 0, "and the guaranteed one comes after it");
}

#[test]
fn a_waiting_sibling_is_not_starved_by_what_another_took_of_something_else() {
    // n1 wants GPU; of n2's accounts one wants CPU and one wants GPU: T1, in the market, with churn.
    let task = |of: u8, permille: u16, cpu_milli: u32| {
        let slice = SliceWant::Share { compute_permille: permille, mem_bytes: 1 };
        let mut request = ask(renter(of), &[slice]);
        request.members[0].cpu_milli = cpu_milli;
        request.members[0].ram_bytes = 1;
        request
    };
    let asks = [task(1, 50, 1), task(2, 1, 2500), task(3, 50, 1)];
    let mut pool = Pool::new();
    let groups = vec![group("n2", 1, 0)];
    let accounts = vec![seat(2, "n2", 1), seat(3, "n2", 1)];
    pool.enter(Input::Opened { delegate: DELEGATE, policy: policy(groups, accounts) });
    let mut node = spec(1, vec![a100(1, 0)]);
    node.cpu_milli = 50_100;
    pool.node(node);
    for (one, request) in (1..4).zip(&asks) {
        pool.fund(renter(one), 10_000 * TOKEN);
        for _ in 0..30 {
            pool.lease(request.clone());
        }
    }
    let held = |pool: &Pool| {
        [1_u8, 2, 3].map(|one| {
            let all = pool.state.nodes.values().flat_map(|node| node.held.values());
            all.filter(|held| held.renter == renter(one)).count()
        })
    };
    let mut chance = 7_u64;
    for _ in 0..150 {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let live: Vec<_> = pool.state.nodes.values().flat_map(|node| node.held.keys().map(|key| key.0)).collect();
        let ends = live[(chance >> 33) as usize % live.len()];
        let who = pool.get(ends).request.renter.0[0];
        pool.clear(ends);
        pool.lease(asks[usize::from(who) - 1].clone());
    }
    let [n1, cpu, n22] = held(&pool);
    assert!(cpu >= 18 && n1.abs_diff(n22) <= 2, "{:?}", held(&pool));
}

#[test]
fn past_use_counts_against_an_account_until_it_has_faded() {
    let half_life = |half_life_ms| Policy { half_life_ms, ..Policy::default() };
    let first = |half_life_ms: u64, later_ms: u64| {
        let mut pool = pool(1, half_life(half_life_ms));
        let mut long = whole(1);
        long.duration_ms = 10 * HOUR;
        let past = pool.lease(long);
        pool.run_up(past);
        pool.pass_ms(2 * HOUR);
        pool.clear(past);
        pool.pass_ms(later_ms);
        let filler = pool.lease(whole(FILLER));
        pool.jam(filler);
        let (again, other) = (pool.lease(whole(1)), pool.lease(whole(2)));
        pool.unjam(filler);
        if pool.get(again).attempt > 0 {
            1
        } else {
            assert_eq!(pool.get(other).attempt, 1);
            2
        }
    };
    assert_eq!(first(0, 0), 1, "without a half-life only age counts");
    assert_eq!(first(HOUR, 0), 2, "who had the GPU for two hours comes second");
    assert_eq!(first(HOUR, 300 * HOUR), 1, "long after that it is forgotten");
}

#[test]
fn shares_name_group_weight_quota_and_past() {
    let groups = vec![group("lab/vision", 2, 300)];
    let mut pool = pool(4, Policy { half_life_ms: HOUR, ..policy(groups, vec![seat(1, "lab/vision", 3)]) });
    let id = pool.lease(gang(1, 2));
    pool.run_up(id);
    pool.pass_ms(HOUR);
    pool.lease(gang(2, 4)); // to have a step, at which the deadline has not ended the first yet
    let shares = pool.state.shares();
    let mine = shares.iter().find(|share| share.renter == renter(1)).unwrap();
    assert_eq!((mine.group.as_str(), mine.weight, mine.permille), ("lab/vision", 3, 500));
    let groups: Vec<_> = pool.state.group_shares();
    let told: Vec<_> = groups
        .iter()
        .map(|group| (group.path.as_str(), group.weight, group.quota_permille, group.work_permille))
        .collect();
    assert_eq!(told, [("lab", 1, 0, 500), ("lab/vision", 2, 300, 500)]);
}

/// Two kinds of server (DRFH, arXiv 1308.0083): shares are taken of the whole fleet, and where a task goes is not the
/// order's affair. Each user on the kind that suits him has 10 tasks and a share of 5/7.
#[test]
fn two_kinds_of_server_shares_are_of_the_whole_fleet() {
    let mut pool = Pool::new();
    for (node, cpu_milli, ram_bytes) in [(1, 2000, 12_000), (2, 12_000, 2000)] {
        let mut machine = spec(node, vec![a100(node, 0)]);
        machine.cpu_milli = cpu_milli;
        machine.ram_bytes = ram_bytes;
        pool.node(machine);
    }
    let task = |of: u8, node: u8, cpu_milli: u32, ram_bytes: u64| {
        let mut request = ask(renter(of), &[SliceWant::Share { compute_permille: 1, mem_bytes: 1 }]);
        request.members[0].cpu_milli = cpu_milli;
        request.members[0].ram_bytes = ram_bytes;
        request.members[0].node = Some(crate::pool::node_id(node));
        request
    };
    for (of, request) in [(1, task(1, 1, 200, 1000)), (2, task(2, 2, 1000, 200))] {
        pool.fund(renter(of), 10_000 * TOKEN);
        for _ in 0..12 {
            pool.lease(request.clone());
        }
    }
    assert_eq!([1, 2].map(|of| pool.grants().iter().filter(|grant| grant.renter == renter(of)).count()), [10, 10]);
    assert_eq!(pool.state.shares().iter().map(|share| share.permille).collect::<Vec<_>>(), [714, 714]);
}

#[test]
fn who_cannot_get_anything_does_not_stop_the_others() {
    let groups = vec![group("a", 1, 1000), group("b", 1, 0)];
    let mut pool = pool(2, policy(groups, vec![seat(1, "a", 1), seat(2, "b", 1)]));
    let filler = pool.lease(filler());
    pool.jam(filler);
    let large = pool.lease(gang(1, 2));
    let small = pool.lease(whole(2));
    let next = pool.lease(gang(1, 2));
    pool.unjam(filler);
    assert_eq!([large, small, next].map(|id| pool.get(id).attempt), [1, 0, 0]);
    pool.release(large);
    pool.report(large, 0, MemberEvent::Stopped { outputs: None }, 0);
    assert_eq!([small, next].map(|id| pool.get(id).attempt), [1, 0], "one GPU is too little for the guaranteed gang");
}
