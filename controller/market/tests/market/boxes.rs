//! A request that needs something of the box goes only to nodes whose box gives and holds all of it.

use selion_api::lease::LeaseState;
use selion_api::slice::{BoxFeature, BoxFeatures, NodeSpec};
use selion_api::{LeaseRequest, NodeId, Rate, Reason, SliceWant};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, node_id, renter, spec};

const MEMORY: BoxFeatures = BoxFeatures::NONE.with(BoxFeature::Memory);
const BOTH: BoxFeatures = MEMORY.with(BoxFeature::Images);

/// Node 1 is the cheapest and holds nothing, node 2 holds memory, node 3 shows images too and is the dearest.
fn three() -> Pool {
    let mut pool = Pool::new();
    for (node, features) in [(1, BoxFeatures::NONE), (2, MEMORY), (3, BOTH)] {
        let mut machine = NodeSpec { features, ..spec(node, vec![a100(node, 0)]) };
        machine.gpus[0].whole = Some(Rate(TOKEN * u64::from(node)));
        pool.node(machine);
    }
    pool.fund(renter(1), 1_000 * TOKEN);
    pool
}

fn needs(needs: BoxFeatures) -> LeaseRequest {
    LeaseRequest { needs, ..ask(renter(1), &[SliceWant::Whole]) }
}

fn goes(needed: BoxFeatures) -> NodeId {
    let mut pool = three();
    let id = pool.lease(needs(needed));
    pool.get(id).members[0].node
}

#[test]
fn a_request_goes_only_where_the_box_gives_all_that_it_needs() {
    assert_eq!([goes(BoxFeatures::NONE), goes(MEMORY), goes(BOTH)], [1, 2, 3].map(node_id), "the renter pays for more");
}

#[test]
fn what_no_box_gives_is_refused_with_a_reason_of_its_own() {
    let mut pool = three();
    let refusal = pool.refusal(needs(BOTH.with(BoxFeature::Gang)));
    assert_eq!(
        (refusal.reason, refusal.nearest.map(|near| near.reason)),
        (Reason::BoxTooWeak, Some(Reason::BoxTooWeak))
    );
    let unknown = BoxFeatures(1 << BoxFeature::ALL.len());
    assert_eq!(pool.refusal(needs(unknown)).reason, Reason::BadRequest);
}

#[test]
fn who_waits_for_a_strong_box_does_not_take_a_weak_one_and_starts_when_the_strong_one_is_free() {
    let mut pool = three();
    let first = pool.lease(needs(BOTH));
    pool.run_up(first);
    let second = pool.lease(LeaseRequest { duration_ms: HOUR / 2, ..needs(BOTH) });
    assert_eq!((pool.state_of(second), pool.reason_of(second)), (LeaseState::Waiting, Some(Reason::PoolFull)));
    // One that is equal but for its needs does not share its fate.
    let third = pool.lease(needs(MEMORY));
    assert_eq!(pool.get(third).members[0].node, node_id(2));
    pool.clear(first);
    assert_eq!(pool.get(second).members[0].node, node_id(3));
}

#[test]
fn a_hello_with_a_feature_that_no_box_has_opens_no_node() {
    let mut pool = Pool::new();
    pool.node(NodeSpec { features: BoxFeatures(1 << BoxFeature::ALL.len()), ..spec(1, vec![a100(1, 0)]) });
    assert!(pool.state.nodes[&node_id(1)].spec.is_none(), "nothing of it is taken");
    pool.node(NodeSpec { features: BOTH, ..spec(2, vec![a100(2, 0)]) });
    assert!(pool.state.nodes[&node_id(2)].blocked.is_none());
}
