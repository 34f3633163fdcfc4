//! Gangs within one domain, and gangs that take more members if there is room.

use selion_api::agent::MemberEvent;
use selion_api::blocking::Constraint;
use selion_api::chain::ChainEvent;
use selion_api::lease::{LeaseState, OnNodeLoss, Priority, Within};
use selion_api::slice::NodeSpec;
use selion_api::{LeaseId, LeaseRequest, NodeId, Rate, Reason, SliceWant};
use selion_market::{Input, Policy};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, kept, mig, node_id, provider, renter, spec};

/// A node with so many GPUs at this ask, in this region and rack.
fn node(id: u8, gpus: u8, rate: u64, region: &str, rack: &str) -> NodeSpec {
    let mut spec = spec(id, (0..gpus).map(|rank| a100(id, rank)).collect());
    (spec.region, spec.rack) = (region.into(), rack.into());
    for gpu in &mut spec.gpus {
        gpu.whole = Some(Rate(rate));
    }
    spec
}

fn pool(nodes: Vec<NodeSpec>) -> Pool {
    let mut pool = Pool::new();
    for spec in nodes {
        pool.node(spec);
    }
    for one in 1..5 {
        pool.fund(renter(one), 1000 * TOKEN);
    }
    pool
}

/// Two racks with the same name in two regions, two more in the first region, and a node that states nothing. The
/// cheapest GPUs are far from each other.
fn two_regions() -> Pool {
    pool(vec![
        node(1, 1, 10, "eu", "a"),
        node(2, 1, 70, "eu", "b"),
        node(3, 1, 40, "eu", "b"),
        node(4, 1, 20, "us", "a"),
        node(5, 1, 30, "us", "c"),
        node(6, 2, 60, "us", "c"),
        node(7, 3, 5, "", ""),
        node(8, 3, 6, "eu", ""),
    ])
}

fn whole(of: u8, gpus: usize) -> LeaseRequest {
    ask(renter(of), &vec![SliceWant::Whole; gpus])
}

fn nodes_of(pool: &Pool, id: LeaseId) -> Vec<NodeId> {
    pool.get(id).members.iter().map(|member| member.node).collect()
}

fn ids(nodes: &[u8]) -> Vec<NodeId> {
    nodes.iter().copied().map(node_id).collect()
}

/// Where a gang of so many goes.
fn goes(pool: &Pool, gpus: usize, within: Within, min_nodes: u16) -> Vec<NodeId> {
    let mut pool = pool.clone();
    let id = pool.lease(LeaseRequest { within, min_nodes, ..whole(1, gpus) });
    nodes_of(&pool, id)
}

#[test]
fn a_gang_stays_in_one_region_rack_or_node_though_there_are_better_places_outside() {
    let pool = two_regions();
    assert_eq!(goes(&pool, 2, Within::Pool, 1), ids(&[7, 7]), "nothing is asked for");
    assert_eq!(goes(&pool, 2, Within::Region, 1), ids(&[8, 8]), "a rack need not be stated for it");
    assert_eq!(goes(&pool, 2, Within::Node, 1), ids(&[7, 7]), "a node is one, whatever it states");
    // Racks b and c of their regions hold two: 40 + 70 against 30 + 60. The racks a are two racks.
    assert_eq!(goes(&pool, 2, Within::Rack, 1), ids(&[5, 6]));
    assert_eq!(goes(&pool, 1, Within::Rack, 1), ids(&[1]), "of one member too the rack is to be stated");
}

#[test]
fn a_gang_within_a_domain_is_spread_over_nodes_of_it() {
    let pool = two_regions();
    assert_eq!(goes(&pool, 3, Within::Rack, 2), ids(&[5, 6, 6]));
    assert_eq!(goes(&pool, 3, Within::Region, 1), ids(&[8, 8, 8]));
    assert_eq!(goes(&pool, 3, Within::Region, 3), ids(&[8, 1, 3]));
    let told = pool.clone().refusal(LeaseRequest { within: Within::Region, min_nodes: 5, ..whole(1, 6) });
    let near = told.nearest.unwrap();
    assert_eq!((told.reason, near.node, near.gpu), (Reason::GangIncomplete, node_id(8), None));
    assert_eq!((near.need, near.have), (5, 4), "six fit into the first region, on four nodes");
}

#[test]
fn the_least_sum_of_rates_wins_then_what_is_destroyed_then_the_order_of_domains() {
    let racks = |first, second| pool(vec![node(1, 2, first, "eu", "z"), node(2, 2, second, "eu", "y")]);
    assert_eq!(goes(&racks(10, 11), 2, Within::Rack, 1), ids(&[1, 1]));
    assert_eq!(goes(&racks(11, 10), 2, Within::Rack, 1), ids(&[2, 2]));
    assert_eq!(goes(&racks(10, 10), 2, Within::Rack, 1), ids(&[2, 2]), "rack y comes first");
    // On the first node small instances stand already: two more cost least there, though rack y comes first.
    let mut busy = racks(10, 10);
    let mut small = ask(renter(2), &vec![mig("1g.10gb"); 5]);
    small.members.iter_mut().for_each(|want| want.node = Some(node_id(1)));
    busy.lease(small);
    let id = busy.lease(LeaseRequest { within: Within::Rack, ..ask(renter(1), &vec![mig("1g.10gb"); 2]) });
    assert_eq!(nodes_of(&busy, id), ids(&[1, 1]));
}

#[test]
fn members_that_want_different_things_share_a_domain() {
    // The cheapest place of each is in another rack.
    let mut pool = pool(vec![node(1, 1, 10, "eu", "a"), node(2, 1, 30, "eu", "b"), node(3, 1, 40, "eu", "b")]);
    let mut request = LeaseRequest { within: Within::Rack, ..whole(1, 2) };
    request.members[1].cpu_milli = 1_000;
    request.members[1].node = Some(node_id(3));
    let id = pool.lease(request);
    assert_eq!(nodes_of(&pool, id), ids(&[2, 3]));
}

#[test]
fn a_domain_that_cannot_hold_the_gang_is_told_with_need_and_have() {
    let mut pool = two_regions();
    let told = pool.refusal(LeaseRequest { within: Within::Rack, ..whole(1, 4) });
    let near = told.nearest.unwrap();
    assert_eq!((told.reason, near.need, near.have), (Reason::GangIncomplete, 4, 3), "three fit into rack c");
    let mut nowhere = self::pool(vec![node(1, 4, 10, "", ""), node(2, 4, 10, "eu", "")]);
    let told = nowhere.refusal(LeaseRequest { within: Within::Rack, ..whole(1, 2) });
    assert_eq!((told.reason, told.nearest), (Reason::NoMatchingSlice, None), "nobody states a rack");
}

#[test]
fn what_is_missing_is_told_as_proved_where_counting_shows_it() {
    let mut pool = two_regions();
    let first = pool.lease(LeaseRequest { within: Within::Rack, ..whole(1, 3) });
    assert_eq!(nodes_of(&pool, first), ids(&[5, 6, 6]));
    pool.run_up(first);
    let second = pool.lease(LeaseRequest { within: Within::Rack, ..whole(1, 3) });
    let told = pool.state.shortfall(second).unwrap();
    let near = told.nearest.unwrap();
    assert!(told.proved);
    assert_eq!((near.need, near.have), (3, 2), "two fit into rack b");
    assert_eq!(pool.state.blocking(second).unwrap().constraints, [Constraint::Within]);
    assert_eq!(pool.state.shortfall(first), None, "it has its place");
    let mut alone = LeaseRequest { within: Within::Rack, ..whole(2, 1) };
    alone.max_rate = Some(Rate(10));
    let one = pool.lease(alone.clone());
    let last = pool.lease(alone);
    assert_eq!((pool.state_of(one), pool.state.shortfall(last).unwrap().proved), (LeaseState::Held, true));
}

fn elastic(of: u8, gpus: usize, min_members: u16) -> LeaseRequest {
    LeaseRequest { min_members, ..whole(of, gpus) }
}

#[test]
fn an_elastic_gang_takes_what_there_is_and_pays_for_that() {
    let mut pool = pool(vec![node(1, 2, 10, "", ""), node(2, 1, 20, "", "")]);
    let id = pool.lease(LeaseRequest { duration_ms: HOUR, ..elastic(1, 8, 2) });
    assert_eq!(nodes_of(&pool, id), ids(&[1, 1, 2]));
    assert_eq!(pool.get(id).reserved.0, kept(10) + kept(10) + kept(20));
    pool.run_up(id);
    pool.now += HOUR / 2;
    for rank in 0..3 {
        pool.report(id, rank, MemberEvent::Metered, HOUR / 2);
    }
    pool.clear(id);
    assert_eq!(pool.get(id).past[0].2.0, 20);
}

#[test]
fn room_that_comes_free_after_the_grant_is_not_grown_into() {
    let mut pool = pool(vec![node(1, 2, 10, "", "")]);
    let other = pool.lease(whole(2, 1));
    let id = pool.lease(elastic(1, 2, 1));
    pool.run_up(id);
    pool.clear(other);
    pool.enter(Input::Tick);
    assert_eq!(nodes_of(&pool, id), ids(&[1]));
    let third = pool.lease(whole(3, 1));
    assert_eq!(pool.state_of(third), LeaseState::Held, "who waits gets it");
}

#[test]
fn a_gang_that_waits_again_may_come_back_larger_or_smaller() {
    let mut pool = pool(vec![node(1, 1, 10, "", ""), node(2, 1, 20, "", "")]);
    let id = pool.lease(LeaseRequest { on_node_loss: OnNodeLoss::Requeue, ..elastic(1, 2, 1) });
    pool.run_up(id);
    pool.enter(Input::Lost { node: node_id(2), last_seq: 9 });
    pool.report(id, 0, MemberEvent::Stopped { outputs: None }, 0);
    assert_eq!((pool.state_of(id), nodes_of(&pool, id)), (LeaseState::Held, ids(&[1])));
}

#[test]
fn members_that_are_not_needed_leave_the_others_where_they_would_be_alone() {
    let pool = pool(vec![node(1, 1, 10, "eu", "a"), node(2, 3, 11, "eu", "b")]);
    let mut there = pool.clone();
    let id = there.lease(LeaseRequest { within: Within::Rack, ..elastic(1, 3, 1) });
    assert_eq!(nodes_of(&there, id), ids(&[1]), "rack b has room for three, and is dearer");
    let mut there = pool.clone();
    // Rank 1 finds no place, so rank 2 gets none either: members are those of the lowest ranks.
    let mut request = elastic(1, 3, 1);
    request.members[1].node = Some(node_id(9));
    let id = there.lease(request);
    assert_eq!(nodes_of(&there, id), ids(&[1]));
}

#[test]
fn members_that_cannot_be_paid_are_left_out_and_those_that_are_needed_decide() {
    let mut pool = pool(vec![node(1, 4, TOKEN, "", "")]);
    pool.fund(renter(9), 2 * kept(TOKEN));
    let id = pool.lease(elastic(9, 4, 1));
    assert_eq!((nodes_of(&pool, id).len(), pool.get(id).reserved.0), (2, 2 * kept(TOKEN)));
    assert_eq!(pool.refusal(elastic(9, 4, 1)).reason, Reason::PaymentRequired);
    assert_eq!(pool.refusal(LeaseRequest { wait_ms: 0, ..elastic(1, 4, 3) }).reason, Reason::GangIncomplete);
    let now = pool.lease(LeaseRequest { wait_ms: 0, ..elastic(1, 4, 2) });
    assert_eq!(nodes_of(&pool, now).len(), 2);
}

#[test]
fn members_that_are_not_needed_do_not_delay_a_booking() {
    let mut pool = pool(vec![node(1, 2, 10, "", ""), node(2, 2, 20, "", "")]);
    let mut first = whole(1, 1);
    first.members[0].node = Some(node_id(1));
    let first = pool.lease(first);
    pool.run_up(first);
    let mut pair = whole(2, 2);
    pair.members.iter_mut().for_each(|want| want.node = Some(node_id(1)));
    let pair = pool.lease(pair);
    let booked = pool.state.booking.clone().unwrap();
    assert_eq!(booked.lease, pair);
    let long = pool.lease(LeaseRequest { duration_ms: 9 * HOUR, ..elastic(3, 4, 1) });
    assert_eq!(nodes_of(&pool, long), ids(&[2, 2]), "the free GPU of node 1 is kept");
    assert_eq!(pool.state.booking, Some(booked));
    pool.clear(long);
    let short = pool.lease(LeaseRequest { duration_ms: 1_000, ..elastic(3, 4, 1) });
    assert_eq!(nodes_of(&pool, short), ids(&[1, 2, 2]), "it ends before");
}

#[test]
fn only_what_an_elastic_gang_needs_is_booked() {
    let mut pool = pool(vec![node(1, 3, 10, "", "")]);
    let runs = pool.lease(whole(1, 2));
    pool.run_up(runs);
    let waits = pool.lease(elastic(2, 3, 2));
    let booked = pool.state.booking.clone().unwrap();
    assert_eq!((booked.lease, booked.places.len()), (waits, 2));
    let pause = |paused| Input::SetPaused { provider: provider(1), node: node_id(1), paused, said: None };
    let mut at_once = pool.clone();
    at_once.enter(pause(true));
    at_once.clear(runs);
    at_once.enter(pause(false));
    assert_eq!(nodes_of(&at_once, waits).len(), 3);
    pool.clear(runs);
    assert_eq!(nodes_of(&pool, waits).len(), 2, "it started as soon as one of the two had stopped");
}

#[test]
fn a_gang_within_a_rack_is_booked_there_and_stops_nobody_elsewhere() {
    let nodes = || vec![node(1, 2, 10, "eu", "a"), node(2, 2, 20, "eu", "b")];
    let on = |of: u8, to: u8, gpus| {
        let mut request = LeaseRequest { duration_ms: u64::from(to) * HOUR, ..whole(of, gpus) };
        request.members.iter_mut().for_each(|want| want.node = Some(node_id(to)));
        request
    };
    // One GPU of each rack is taken: two are free, and not in one rack. Rack a is free first.
    let mut waiting = pool(nodes());
    for to in [2, 1] {
        let id = waiting.lease(on(1, to, 1));
        waiting.run_up(id);
    }
    let gang = waiting.lease(LeaseRequest { within: Within::Rack, ..whole(2, 2) });
    assert_eq!(waiting.reason_of(gang), Some(Reason::GangIncomplete));
    let booked = waiting.state.booking.clone().unwrap();
    assert_eq!(booked.places.iter().map(|(node, _)| *node).collect::<Vec<_>>(), ids(&[1, 1]));
    assert_eq!(waiting.state.estimate(gang), Some(booked.at));
    // In rack a runs what is firm too, in rack b only what may be stopped.
    let mut stopping = pool(nodes());
    let low = |request: LeaseRequest| LeaseRequest { priority: Priority::Interruptible, ..request };
    let asks = [LeaseRequest { priority: Priority::Firm, ..on(1, 1, 1) }, low(on(1, 1, 1)), low(on(1, 2, 2))];
    let [firm, beside, there] = asks.map(|request| {
        let id = stopping.lease(request);
        stopping.run_up(id);
        id
    });
    stopping.now += Policy::default().min_run_ms;
    let gang = stopping.lease(LeaseRequest { within: Within::Rack, priority: Priority::Firm, ..whole(2, 2) });
    let states = [firm, beside, there].map(|id| stopping.state_of(id));
    assert_eq!(states, [LeaseState::Active, LeaseState::Active, LeaseState::Ending]);
    stopping.all(there, &MemberEvent::Stopped { outputs: None });
    assert_eq!(nodes_of(&stopping, gang), ids(&[2, 2]));
}

#[test]
fn a_booking_falls_when_its_node_comes_back_in_another_rack() {
    let mut pool = pool(vec![node(1, 1, 10, "eu", "a"), node(2, 1, 10, "eu", "a")]);
    let runs = pool.lease(whole(1, 2));
    pool.run_up(runs);
    let gang = pool.lease(LeaseRequest { within: Within::Rack, ..whole(2, 2) });
    assert_eq!(pool.state.booking.as_ref().map(|booking| booking.lease), Some(gang));
    let moved = node(2, 1, 10, "eu", "b");
    pool.block(vec![ChainEvent::OfferSet { node: moved.node, spec_hash: moved.hash(), classes: moved.classes() }]);
    assert_eq!(pool.state.booking, None, "a node that is not what its offer says takes nothing");
    pool.enter(Input::modelled_link(moved, 9));
    pool.clear(runs);
    assert_eq!(pool.state_of(gang), LeaseState::Waiting);
    assert_eq!(pool.state.booking, None, "no known end puts the nodes together");
}

#[test]
fn leases_that_want_the_same_in_different_places_are_not_taken_for_equal() {
    let cases = [
        (LeaseRequest { regions: vec!["us".into()], ..whole(2, 1) }, whole(3, 1)),
        (LeaseRequest { within: Within::Node, ..whole(2, 2) }, whole(3, 2)),
        (whole(2, 3), elastic(3, 3, 2)),
    ];
    for (first, second) in cases {
        let mut pool = pool(vec![node(1, 1, 10, "eu", "a"), node(2, 1, 10, "eu", "a"), node(3, 2, 10, "us", "a")]);
        let full = pool.lease(LeaseRequest { regions: vec!["us".into()], ..whole(1, 2) });
        pool.run_up(full);
        let both = pool.lease(whole(1, 2));
        pool.jam(both);
        let second = LeaseRequest { duration_ms: 1_000, ..second };
        let (first, second) = (pool.lease(first), pool.lease(second));
        pool.unjam(both);
        assert_eq!((pool.state_of(first), pool.state_of(second)), (LeaseState::Waiting, LeaseState::Held));
    }
}
