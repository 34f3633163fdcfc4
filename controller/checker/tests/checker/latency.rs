//! Lies about gangs whose nodes are farther apart than they asked for.

use selion_api::{LeaseId, LeaseRequest, SliceWant};
use selion_checker::Rule;
use selion_market::Input;

use crate::pool::{Pool, TOKEN, a100, ask, gpu_id, node_id, provider, renter, spec};
use crate::tape::Tape;

/// Three nodes, and a gang of two on the first two of them: they are 300 microseconds apart.
fn granted() -> (Tape, LeaseId) {
    let mut pool = Pool::new();
    pool.fund(renter(1), 1_000 * TOKEN);
    for (node, rtt_us) in [(1, 100), (2, 200), (3, 201)] {
        pool.node(spec(node, vec![a100(node, 0)]));
        pool.enter(Input::Measured { node: node_id(node), rtt_us });
    }
    let whole = ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]);
    let id = pool.lease(LeaseRequest { max_latency_us: Some(300), ..whole });
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    assert_eq!([0, 1].map(|rank| tape.grant(id, rank).1.node), [node_id(1), node_id(2)]);
    (tape, id)
}

#[test]
fn a_member_on_a_node_that_is_too_far_from_the_other_is_seen() {
    let (mut tape, id) = granted();
    let (entry, grant) = tape.grant(id, 1);
    (grant.node, grant.gpu, grant.provider) = (node_id(3), gpu_id(3, 0), provider(3));
    tape.caught(Rule::Latency, entry);
}

#[test]
fn a_node_that_was_measured_farther_or_on_a_link_before_is_too_far() {
    let (mut tape, id) = granted();
    let entry = tape.grant(id, 0).0;
    let third = entry - 1;
    let Input::Measured { .. } = tape.0[third].input else { panic!("it came before") };
    tape.0[third].input = Input::Measured { node: node_id(2), rtt_us: 201 };
    tape.caught(Rule::Latency, entry);
    let again = tape.0.iter().find_map(|leaf| match &leaf.input {
        Input::Linked(signed) if signed.hello.spec.node == node_id(2) => Some(leaf.input.clone()),
        _ => None,
    });
    tape.0[third].input = again.unwrap();
    tape.caught(Rule::Latency, entry);
}
