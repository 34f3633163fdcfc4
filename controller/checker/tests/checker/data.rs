//! Lies about leases that asked to be where their data is.

use selion_api::agent::MemberEvent;
use selion_api::lease::STAGED_MS;
use selion_api::{Hash32, LeaseId, LeaseRequest, SliceWant};
use selion_checker::Rule;
use selion_market::Input;

use crate::pool::{Pool, TOKEN, a100, ask, gpu_id, node_id, provider, renter, spec};
use crate::tape::Tape;

fn with(near_data: bool, data: &[u8]) -> LeaseRequest {
    let datasets = data.iter().map(|tag| Hash32([*tag; 32])).collect();
    LeaseRequest { datasets, near_data, ..ask(renter(1), &[SliceWant::Whole]) }
}

/// Two nodes; the second has staged both datasets, and the first one of them.
fn pool() -> Pool {
    let mut pool = Pool::new();
    pool.fund(renter(1), 10_000 * TOKEN);
    for (node, data) in [(1, &[1][..]), (2, &[1, 2])] {
        pool.node(spec(node, vec![a100(node, 0)]));
        let mut request = with(false, data);
        request.members[0].node = Some(node_id(node));
        let id = pool.lease(request);
        pool.all(id, &MemberEvent::Accepted);
        pool.all(id, &MemberEvent::Ready);
        pool.clear(id);
    }
    pool
}

fn granted(mut pool: Pool) -> (Tape, LeaseId) {
    let id = pool.lease(with(true, &[1, 2]));
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    (tape, id)
}

#[test]
fn a_member_where_only_some_of_its_data_is_is_seen() {
    let (mut tape, id) = granted(pool());
    let (entry, grant) = tape.grant(id, 0);
    assert_eq!(grant.node, node_id(2));
    (grant.node, grant.gpu, grant.provider) = (node_id(1), gpu_id(1, 0), provider(1));
    tape.caught(Rule::NearData, entry);
}

#[test]
fn a_member_where_its_data_was_long_ago_or_was_lost_is_seen() {
    let mut pool = pool();
    pool.pass_ms(1);
    let (mut tape, id) = granted(pool.clone());
    let entry = tape.grant(id, 0).0;
    // The reports that said so came that much earlier.
    for leaf in &mut tape.0[..entry - 1] {
        leaf.stamp.at_ms = selion_api::TimeMs(0);
    }
    tape.0[entry].stamp.at_ms = selion_api::TimeMs(STAGED_MS);
    assert!(tape.findings().iter().any(|finding| finding.entry == entry as u64 && finding.rule == Rule::NearData));
    // The agent comes back with all its reports, or without one of them.
    let last_seq = pool.state.nodes[&node_id(2)].last_seq;
    let spec = pool.state.nodes[&node_id(2)].spec.clone().unwrap();
    pool.enter(Input::modelled_link(spec, last_seq));
    let (mut tape, id) = granted(pool);
    let entry = tape.grant(id, 0).0;
    let Input::Linked(signed) = &mut tape.0[entry - 1].input else { panic!("it came before") };
    signed.hello.last_seq -= 1;
    tape.caught(Rule::NearData, entry);
}
