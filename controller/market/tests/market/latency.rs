//! How far apart the nodes of a lease may be, by what the controller measured of its links.

use std::collections::BTreeMap;

use proptest::prelude::*;
use selion_api::blocking::Constraint;
use selion_api::lease::{LeaseState, Within};
use selion_api::{LeaseId, LeaseRequest, NodeId, Rate, Reason, SliceWant};
use selion_market::{Answer, Input};

use crate::pool::{Pool, TOKEN, a100, ask, node_id, renter, spec};

fn gang(members: usize, most_us: u32) -> LeaseRequest {
    LeaseRequest { max_latency_us: Some(most_us), ..ask(renter(1), &vec![SliceWant::Whole; members]) }
}

fn measured(pool: &mut Pool, node: u8, rtt_us: u32) {
    pool.enter(Input::Measured { node: node_id(node), rtt_us });
}

/// Nodes of so many GPUs, each with its ask and its round trip.
fn pool(nodes: &[(u8, u64, Option<u32>)]) -> Pool {
    let mut pool = Pool::new();
    pool.fund(renter(1), 10_000 * TOKEN);
    for (id, (gpus, rate, rtt_us)) in (1..).zip(nodes) {
        let gpu = |rank| {
            let mut gpu = a100(id, rank);
            gpu.whole = Some(Rate(*rate));
            gpu
        };
        let mut machine = spec(id, (0..*gpus).map(gpu).collect());
        (machine.region, machine.rack) = ("eu".into(), "a".into());
        pool.node(machine);
        if let Some(rtt_us) = rtt_us {
            measured(&mut pool, id, *rtt_us);
        }
    }
    pool
}

fn nodes_of(pool: &Pool, id: LeaseId) -> Vec<NodeId> {
    pool.get(id).members.iter().map(|member| member.node).collect()
}

#[test]
fn two_nodes_are_as_far_apart_as_the_way_over_the_controller_and_one_of_them_may_be_far() {
    let mut pool = pool(&[(1, 10, Some(900)), (1, 11, Some(100)), (1, 12, Some(400)), (1, 5, Some(1_500))]);
    for (most_us, nodes) in [(1_000, [1, 2]), (999, [2, 3]), (1_600, [4, 2])] {
        let mut copy = pool.clone();
        let id = copy.lease(gang(2, most_us));
        assert_eq!(nodes_of(&copy, id), nodes.map(node_id), "{most_us}");
    }
    let refusal = pool.refusal(gang(2, 499));
    let nearest = refusal.nearest.unwrap();
    // At any distance it would go to the two cheapest.
    assert_eq!((refusal.reason, nearest.node), (Reason::TooFar, node_id(4)));
    assert_eq!((nearest.need, nearest.have), (499, 2_400));
    assert_eq!(pool.refusal(gang(5, 499)).reason, Reason::GangIncomplete, "five fit at no distance");
    let mut unmeasured = self::pool(&[(1, 10, None), (1, 10, Some(1))]);
    let nearest = unmeasured.refusal(gang(2, u32::MAX)).nearest.unwrap();
    assert_eq!((nearest.node, nearest.have), (node_id(1), u64::MAX), "not measured");
    assert_eq!(gang(2, 0).check().unwrap_err().0, "max_latency_us");
}

#[test]
fn one_node_is_at_no_distance_from_itself_though_it_was_never_measured() {
    let mut pool = pool(&[(1, 10, None), (2, 11, None), (1, 10, Some(50))]);
    let id = pool.lease(gang(2, 1));
    assert_eq!(nodes_of(&pool, id), [node_id(2); 2]);
    let one = pool.lease(gang(1, 1));
    assert_eq!(nodes_of(&pool, one), [node_id(1)], "one member is near itself");
}

#[test]
fn a_measure_is_forgotten_with_its_link_and_only_of_a_linked_node() {
    let mut pool = pool(&[(1, 10, Some(200)), (1, 10, Some(200))]);
    pool.enter(Input::Lost { node: node_id(1), last_seq: 0 });
    assert_eq!(pool.state.nodes[&node_id(1)].rtt_us, None);
    let late = pool.enter(Input::Measured { node: node_id(1), rtt_us: 5 });
    assert!(matches!(late.answer, Answer::Refused(refusal) if refusal.reason == Reason::NodeNotSchedulable));
    let unknown = pool.enter(Input::Measured { node: node_id(9), rtt_us: 5 });
    assert!(matches!(unknown.answer, Answer::Refused(refusal) if refusal.reason == Reason::UnknownNode));
    for node in [1, 2] {
        let spec = pool.state.nodes[&node_id(node)].spec.clone().unwrap();
        pool.enter(Input::modelled_link(spec, 0));
        assert_eq!(pool.state.nodes[&node_id(node)].rtt_us, None, "another link has another way");
    }
    assert_eq!(pool.refusal(gang(2, 1_000)).reason, Reason::TooFar);
}

#[test]
fn who_waits_for_nearer_nodes_is_told_so_and_served_when_they_are_measured() {
    let mut pool = pool(&[(1, 10, Some(100)), (1, 10, Some(100)), (1, 10, Some(4_000))]);
    let other = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let waits = pool.lease(gang(2, 300));
    assert_eq!((pool.state_of(waits), pool.reason_of(waits)), (LeaseState::Waiting, Some(Reason::TooFar)));
    assert_eq!(pool.state.blocking(waits).unwrap().constraints, [Constraint::MaxLatency]);
    assert!(pool.state.estimate(waits).is_some(), "when the other one ends");
    measured(&mut pool, 3, 250);
    assert_eq!(pool.state_of(waits), LeaseState::Waiting, "350 is not 300");
    measured(&mut pool, 3, 200);
    assert_eq!(pool.state_of(waits), LeaseState::Held);
    pool.clear(other);
}

#[test]
fn the_members_that_come_along_are_near_too() {
    let pool = pool(&[(1, 10, Some(100)), (1, 10, Some(500)), (1, 10, Some(400)), (1, 10, Some(300)), (1, 9, None)]);
    let grown = |most_us, within| {
        let mut copy = pool.clone();
        let id = copy.lease(LeaseRequest { min_members: 2, within, ..gang(5, most_us) });
        nodes_of(&copy, id)
    };
    for within in [Within::Pool, Within::Rack] {
        assert_eq!(grown(600, within), [1, 4].map(node_id), "the near ones first, then nobody within 300");
        assert_eq!(grown(700, within), [1, 4, 3].map(node_id), "400 beside 300, and not 500 beside 400");
        assert_eq!(grown(1_000, within), [1, 2, 3, 4].map(node_id));
    }
}

/// The least that so many GPUs cost an hour on nodes of which any two are near enough.
fn least(nodes: &[(u8, u64, Option<u32>)], members: usize, min_nodes: usize, most_us: u32) -> Option<u64> {
    let sets = 1_usize..1 << nodes.len();
    let costs = sets.filter_map(|set| {
        let some: Vec<_> = (0..nodes.len()).filter(|at| set & (1 << at) != 0).map(|at| nodes[at]).collect();
        let near = |a: Option<u32>, b: Option<u32>| a.zip(b).is_some_and(|(a, b)| a + b <= most_us);
        let pairs = |at: usize| some[..at].iter().all(|one| near(one.2, some[at].2));
        if some.len() < min_nodes || some.len() > members || !(0..some.len()).all(pairs) {
            return None;
        }
        // One on each, the others where it is cheapest.
        let mut rest: Vec<u64> = some.iter().flat_map(|(gpus, rate, _)| vec![*rate; usize::from(*gpus) - 1]).collect();
        rest.sort_unstable();
        let first: u64 = some.iter().map(|(_, rate, _)| rate).sum();
        let more = members - some.len();
        (rest.len() >= more).then(|| first + rest[..more].iter().sum::<u64>())
    });
    costs.min()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_gang_starts_where_it_is_near_enough_exactly_if_there_is_such_a_place_and_at_the_least_price(
        nodes in prop::collection::vec((1_u8..3, 10_u64..14, prop::option::weighted(0.8, 1_u32..20)), 1..7),
        members in 2_usize..5,
        spread in 1_u16..3,
        most_us in 1_u32..30,
    ) {
        let mut pool = pool(&nodes);
        let expected = least(&nodes, members, usize::from(spread), most_us);
        let answer = pool.request(LeaseRequest { min_nodes: spread, ..gang(members, most_us) });
        let Answer::Created(id) = answer else {
            prop_assert_eq!(expected, None, "{:?}", answer);
            return Ok(());
        };
        let rates = pool.get(id).members.iter().map(|member| member.rate.0);
        prop_assert_eq!(Some(rates.sum()), expected);
        let mut rtts: Vec<Option<u32>> = pool.get(id).members.iter().map(|member| (member.node, 0)).collect::<BTreeMap<_, _>>()
            .keys().map(|id| pool.state.nodes[id].rtt_us).collect();
        rtts.sort_unstable();
        if let [.., one, other] = rtts[..] {
            prop_assert!(rtts[0].is_some() && one.unwrap() + other.unwrap() <= most_us);
        }
    }
}
