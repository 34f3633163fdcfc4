//! Where datasets are, as far as the log tells: among equal prices their node comes first, and `near_data` takes no other.

use selion_api::agent::MemberEvent;
use selion_api::blocking::Constraint;
use selion_api::lease::{LeaseState, MAX_STAGED, STAGED_MS};
use selion_api::{Hash32, LeaseId, LeaseRequest, NodeId, Rate, Reason, Signature, SliceWant, TimeMs};
use selion_market::{DryRun, Input, RequestLease, Stamp, dry_run};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, node_id, renter, spec};

fn tags(tags: &[u8]) -> Vec<Hash32> {
    tags.iter().map(|tag| Hash32([*tag; 32])).collect()
}

fn with(data: &[u8]) -> LeaseRequest {
    LeaseRequest { datasets: tags(data), ..ask(renter(1), &[SliceWant::Whole]) }
}

fn near(data: &[u8]) -> LeaseRequest {
    LeaseRequest { near_data: true, ..with(data) }
}

fn on(node: u8, mut request: LeaseRequest) -> LeaseRequest {
    request.members[0].node = Some(node_id(node));
    request
}

/// Three nodes of one GPU each; the third asks less.
fn three() -> Pool {
    let mut pool = Pool::new();
    pool.fund(renter(1), 10_000 * TOKEN);
    for (node, rate) in [(1, 20), (2, 20), (3, 10)] {
        let mut gpu = a100(node, 0);
        gpu.whole = Some(Rate(rate));
        pool.node(spec(node, vec![gpu]));
    }
    pool
}

/// A lease stages these datasets on a node, and ends.
fn stage(pool: &mut Pool, node: u8, data: &[u8]) {
    let id = pool.lease(on(node, with(data)));
    pool.all(id, &MemberEvent::Accepted);
    pool.all(id, &MemberEvent::Ready);
    pool.clear(id);
}

fn node_of(pool: &Pool, id: LeaseId) -> NodeId {
    pool.get(id).members[0].node
}

/// Where the request goes in a copy of the pool.
fn goes(pool: &Pool, request: LeaseRequest) -> NodeId {
    let mut copy = pool.clone();
    let id = copy.lease(request);
    node_of(&copy, id)
}

#[test]
fn among_equal_prices_the_node_with_more_of_the_data_comes_first_and_a_lower_price_before_that() {
    let mut pool = three();
    assert_eq!(goes(&pool, with(&[1, 2])), node_id(3), "nothing is anywhere");
    stage(&mut pool, 2, &[1]);
    assert_eq!(goes(&pool, with(&[1, 2])), node_id(3), "the renter pays the ask");
    let cheap = pool.lease(on(3, with(&[])));
    assert_eq!(goes(&pool, with(&[])), node_id(1), "no data is asked for");
    assert_eq!(goes(&pool, with(&[1, 2])), node_id(2));
    stage(&mut pool, 1, &[1, 2]);
    assert_eq!(goes(&pool, with(&[1, 2])), node_id(1), "both are there");
    pool.clear(cheap);
}

#[test]
fn what_was_only_promised_is_not_staged() {
    let mut pool = three();
    let id = pool.lease(on(2, with(&[1])));
    pool.all(id, &MemberEvent::Accepted);
    assert_eq!(pool.state.nodes[&node_id(2)].staged.count(&tags(&[1]), pool.state.now), 0);
    pool.report(id, 0, MemberEvent::Failed { reason: Reason::StagingFailed }, 0);
    assert_eq!(pool.refusal(near(&[1])).reason, Reason::DataElsewhere);
}

#[test]
fn near_data_goes_only_where_all_of_it_is() {
    let mut pool = three();
    let refusal = pool.refusal(near(&[1, 2]));
    let nearest = refusal.nearest.unwrap();
    assert_eq!((refusal.reason, nearest.need, nearest.have), (Reason::DataElsewhere, 2, 0));
    stage(&mut pool, 2, &[1]);
    let nearest = pool.refusal(near(&[1, 2])).nearest.unwrap();
    assert_eq!((nearest.node, nearest.need, nearest.have), (node_id(2), 2, 1));
    stage(&mut pool, 2, &[2]);
    assert_eq!(goes(&pool, near(&[1, 2])), node_id(2), "though the third asks less");
    let gang = LeaseRequest { near_data: true, datasets: tags(&[1]), ..ask(renter(1), &vec![SliceWant::Whole; 2]) };
    assert_eq!(pool.refusal(gang.clone()).reason, Reason::GangIncomplete);
    stage(&mut pool, 3, &[1]);
    let id = pool.lease(gang);
    let nodes: Vec<NodeId> = pool.get(id).members.iter().map(|member| member.node).collect();
    assert_eq!(nodes, [node_id(3), node_id(2)]);
}

#[test]
fn near_data_without_datasets_is_a_contradiction() {
    assert_eq!(near(&[]).check().unwrap_err().0, "near_data");
    assert_eq!(three().refusal(near(&[])).reason, Reason::BadRequest);
    let many: Vec<u8> = (0..=MAX_STAGED as u8).collect();
    assert_eq!(with(&many).check().unwrap_err().0, "datasets");
}

#[test]
fn who_waits_to_be_near_is_served_when_the_data_comes_to_be_elsewhere() {
    let mut pool = three();
    stage(&mut pool, 2, &[1]);
    let other = pool.lease(on(2, with(&[])));
    let waits = pool.lease(near(&[1]));
    assert_eq!((pool.state_of(waits), pool.reason_of(waits)), (LeaseState::Waiting, Some(Reason::PoolFull)));
    assert_eq!(pool.state.blocking(waits).unwrap().constraints, [Constraint::NearData]);
    assert_eq!(pool.state.estimate(waits).map(|at| at > pool.state.now), Some(true));
    // On a GPU of the first node a lease with the same data gets ready; on another of it there is room.
    let mut wide = spec(4, vec![a100(4, 0), a100(4, 1)]);
    wide.gpus.iter_mut().for_each(|gpu| gpu.whole = Some(Rate(30)));
    pool.node(wide);
    let brings = pool.lease(on(4, with(&[1])));
    pool.all(brings, &MemberEvent::Accepted);
    assert_eq!(pool.state_of(waits), LeaseState::Waiting);
    pool.all(brings, &MemberEvent::Ready);
    assert_eq!((pool.state_of(waits), node_of(&pool, waits)), (LeaseState::Held, node_id(4)));
    pool.clear(other);
}

#[test]
fn the_data_is_forgotten_when_it_was_not_used_for_long_when_its_agent_lost_its_state_and_when_there_is_too_much() {
    let mut pool = three();
    stage(&mut pool, 1, &[1]);
    pool.pass_ms(STAGED_MS - 1);
    assert_eq!(goes(&pool, near(&[1])), node_id(1));
    let mut faded = pool.clone();
    faded.pass_ms(1);
    faded.fund(renter(1), 100 * TOKEN);
    assert_eq!(faded.refusal(near(&[1])).reason, Reason::DataElsewhere);
    // A new use counts from anew.
    stage(&mut pool, 1, &[1]);
    pool.pass_ms(HOUR);
    let last_seq = pool.state.nodes[&node_id(1)].last_seq;
    for (last_seq, known) in [(last_seq, true), (last_seq - 1, false)] {
        let mut again = pool.clone();
        let spec = again.state.nodes[&node_id(1)].spec.clone().unwrap();
        again.enter(Input::modelled_link(spec, last_seq));
        assert_eq!(again.state.nodes[&node_id(1)].staged.has(&tags(&[1])[0], again.state.now), known);
    }
    for tag in 2..2 + MAX_STAGED as u8 {
        assert!(pool.state.nodes[&node_id(1)].staged.has(&Hash32([1; 32]), pool.state.now), "before {tag}");
        stage(&mut pool, 1, &[tag]);
        pool.now += 1;
    }
    let all: Vec<u8> = (1..2 + MAX_STAGED as u8).collect();
    let staged = &pool.state.nodes[&node_id(1)].staged;
    assert_eq!(staged.count(&tags(&all), pool.state.now), MAX_STAGED);
    assert!(!staged.has(&Hash32([1; 32]), pool.state.now), "the one used longest ago");
}

#[test]
fn a_quote_and_a_lease_say_how_much_of_the_data_was_there() {
    let mut pool = three();
    stage(&mut pool, 2, &[1]);
    let request = on(2, with(&[1, 2]));
    let stamp = Stamp { seq: pool.state.next_seq, at_ms: TimeMs(pool.now), fence: pool.fence };
    let asked = RequestLease { request: request.clone(), signature: Some(Signature::ZERO) };
    let DryRun::Starts { places, .. } = dry_run(&pool.state, &stamp, &asked) else { panic!("it fits") };
    assert_eq!(places[0].staged, 1);
    let id = pool.lease(request);
    pool.run_up(id);
    let lease = pool.get(id);
    assert_eq!(lease.staged(&lease.members[0]), 1, "as it was at the grant");
}
