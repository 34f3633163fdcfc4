//! Lies about gangs: how many members a run has, and what its nodes have in common.

use selion_api::lease::{LeaseState, Within};
use selion_api::{LeaseId, LeaseRequest, SliceWant};
use selion_checker::Rule;
use selion_market::{Effect, Grant, Input, Pocket, Transfer};

use crate::pool::{Pool, TOKEN, a100, ask, gpu_id, node_id, provider, renter, spec};
use crate::tape::Tape;

/// Node 1 with four GPUs, node 2 in its rack with one, node 3 elsewhere, and node 4 that states nothing.
fn granted(request: LeaseRequest) -> (Tape, LeaseId) {
    let mut pool = Pool::new();
    for (id, gpus) in [(1, 4), (2, 1), (3, 1), (4, 1)] {
        let mut node = spec(id, (0..gpus).map(|rank| a100(id, rank)).collect());
        let (region, rack) = [("eu", "a"), ("eu", "a"), ("us", "a"), ("", "")][usize::from(id) - 1];
        (node.region, node.rack) = (region.into(), rack.into());
        pool.node(node);
    }
    pool.fund(renter(1), 1000 * TOKEN);
    let id = pool.lease(request);
    assert_eq!(pool.state_of(id), LeaseState::Held);
    (Tape::of(&pool), id)
}

fn asked(gpus: usize, within: Within, min_members: u16) -> LeaseRequest {
    LeaseRequest { within, min_members, ..ask(renter(1), &vec![SliceWant::Whole; gpus]) }
}

/// The log says another thing of a member's place.
fn moved(grant: &mut Grant, node: u8) {
    (grant.node, grant.gpu, grant.provider) = (node_id(node), gpu_id(node, 0), provider(node));
}

/// The words of the request in the log.
fn request(tape: &mut Tape, lease: LeaseId) -> &mut LeaseRequest {
    match &mut tape.0[usize::try_from(lease.seq).unwrap()].input {
        Input::Request(asked) => &mut asked.request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_outside_the_region_rack_or_node_is_seen() {
    // Where the second member may go, and where it may not.
    for (within, may, may_not) in [
        (Within::Region, vec![2], vec![3, 4]),
        (Within::Rack, vec![2], vec![3, 4]),
        (Within::Node, vec![], vec![2, 3, 4]),
        (Within::Pool, vec![2, 3, 4], vec![]),
    ] {
        let (mut tape, id) = granted(asked(2, within, 2));
        assert_eq!(tape.findings(), []);
        moved(tape.grant(id, 0).1, 1);
        for node in may {
            let mut tape = tape.clone();
            moved(tape.grant(id, 1).1, node);
            assert_eq!(tape.findings(), [], "{within:?} on {node}");
        }
        for node in may_not {
            let mut tape = tape.clone();
            let (entry, grant) = tape.grant(id, 1);
            moved(grant, node);
            tape.caught(Rule::Within, entry);
        }
    }
}

#[test]
fn one_member_on_a_node_that_states_no_rack_is_seen() {
    let (mut tape, id) = granted(asked(1, Within::Rack, 1));
    let (entry, grant) = tape.grant(id, 0);
    moved(grant, 4);
    tape.caught(Rule::Within, entry);
}

#[test]
fn a_run_with_fewer_members_than_it_needs_is_seen_and_one_with_fewer_than_it_wants_is_not() {
    for (needs, granted_there, seen) in [(2, 2, false), (3, 2, true), (1, 2, false), (1, 3, false)] {
        let (mut tape, id) = granted(asked(granted_there, Within::Pool, 1));
        let words = request(&mut tape, id);
        words.members = asked(3, Within::Pool, 1).members;
        words.min_members = needs;
        let (entry, _) = tape.grant(id, 0);
        if seen {
            tape.caught(Rule::Gang, entry);
        } else {
            assert_eq!(tape.findings(), [], "needs {needs}, has {granted_there}");
        }
    }
}

#[test]
fn a_run_that_leaves_a_rank_out_is_seen() {
    let (mut tape, id) = granted(asked(3, Within::Pool, 1));
    let (entry, grant) = tape.grant(id, 1);
    grant.member = 2;
    // The third member's own grant comes after the one that now bears its rank.
    let third = |effect: &Effect| matches!(effect, Effect::Granted(grant) if grant.lease == id && grant.member == 2);
    let at = tape.0[entry].effects.iter().rposition(third).unwrap();
    tape.0[entry].effects.remove(at);
    tape.caught(Rule::Gang, entry);
}

#[test]
fn money_that_is_kept_for_members_without_a_place_is_seen() {
    let (mut tape, id) = granted(asked(2, Within::Pool, 1));
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Moneyed(Transfer { to: Pocket::Reserved(_), .. })));
    assert_eq!(entry, tape.grant(id, 0).0);
    let Effect::Moneyed(kept) = &mut tape.0[entry].effects[at] else { unreachable!("it was just found") };
    kept.amount.0 = 3 * TOKEN;
    tape.caught(Rule::Reserve, entry);
}
