//! What the pool learns of requests, and how each term of the objective then decides where members go.

use selion_api::lease::Within;
use selion_api::slice::GpuSpec;
use selion_api::{LeaseId, LeaseRequest, NodeId, Reason, SliceWant, Slot};
use selion_market::{Answer, State};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, gpu_id, mig, node_id, renter, share, spec};

/// A GPU without MIG.
fn plain(node: u8, rank: u8) -> GpuSpec {
    GpuSpec { mig: None, ..a100(node, rank) }
}

/// Nodes 1 and 2 with such GPUs, and a renter with money.
fn two(gpus: fn(u8) -> Vec<GpuSpec>) -> Pool {
    let mut pool = Pool::new();
    pool.fund(renter(1), 10_000 * TOKEN);
    for node in [1, 2] {
        pool.node(spec(node, gpus(node)));
    }
    pool
}

fn on(node: u8, request: LeaseRequest) -> LeaseRequest {
    let mut request = request;
    request.members.iter_mut().for_each(|member| member.node = Some(node_id(node)));
    request
}

fn lasting(hours: u64, slice: SliceWant) -> LeaseRequest {
    LeaseRequest { duration_ms: hours * HOUR, ..ask(renter(1), &[slice]) }
}

/// Asks so often for the same, one after the other: it is learned, and nothing of it stays.
fn teach(pool: &mut Pool, times: usize, request: &LeaseRequest) {
    for _ in 0..times {
        let id = pool.lease(request.clone());
        pool.clear(id);
    }
}

fn place(pool: &Pool, id: LeaseId) -> NodeId {
    pool.get(id).members[0].node
}

fn start(pool: &Pool, id: LeaseId) -> u8 {
    match &pool.get(id).members[0].slot {
        Slot::Mig { start, .. } => *start,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_share_goes_beside_one_that_ends_together_with_it() {
    let mut pool = two(|node| vec![plain(node, 0)]);
    pool.lease(on(1, lasting(1, share(500, 1))));
    pool.lease(on(2, lasting(10, share(500, 1))));
    let long = pool.lease(lasting(10, share(200, 1)));
    assert_eq!(place(&pool, long), node_id(2), "it keeps no node busy longer there");
    let mut pool = two(|node| vec![plain(node, 0)]);
    pool.lease(on(1, lasting(10, share(500, 1))));
    pool.lease(on(2, lasting(1, share(500, 1))));
    let long = pool.lease(lasting(10, share(200, 1)));
    assert_eq!(place(&pool, long), node_id(1));
}

#[test]
fn what_is_asked_for_decides_which_rest_is_of_use() {
    let goes = |learned: SliceWant| {
        let mut pool = two(|node| vec![plain(node, 0)]);
        teach(&mut pool, 33, &lasting(1, learned));
        pool.lease(on(2, lasting(1, share(600, 1))));
        // It keeps either node busy for much longer, so that ends tell nothing.
        let id = pool.lease(lasting(100, share(100, 1)));
        place(&pool, id)
    };
    assert_eq!(goes(SliceWant::Whole), node_id(2), "the idle GPU is kept whole");
    assert_eq!(goes(share(500, 1)), node_id(2), "so are two halves; a rest of 400 is of no use to them");
    assert_eq!(goes(share(400, 1)), node_id(1), "the place for 400 beside 600 is kept");
}

#[test]
fn a_scarce_model_is_spared_by_who_may_go_elsewhere() {
    let scarce = |node: u8| vec![GpuSpec { model: format!("model {node}"), ..plain(node, 0) }];
    let mut pool = two(scarce);
    let any = lasting(1, SliceWant::Whole);
    let first = pool.lease(any.clone());
    assert_eq!(place(&pool, first), node_id(1), "nothing tells them apart: the lower node");
    pool.clear(first);
    let mut only = any.clone();
    only.members[0].models = vec!["model 1".into()];
    teach(&mut pool, 33, &only);
    let second = pool.lease(any);
    assert_eq!(place(&pool, second), node_id(2));
    assert!(pool.state.learned.prices.model(0) > pool.state.learned.prices.model(1));
}

#[test]
fn learned_mig_profiles_decide_where_an_instance_starts() {
    let starts = |learned: &str| {
        let mut pool = Pool::small();
        teach(&mut pool, 63, &lasting(1, mig(learned)));
        let id = pool.lease(lasting(1, mig("1g.10gb")));
        start(&pool, id)
    };
    assert_eq!(starts("2g.20gb"), 6, "all three places for a 2g are kept");
    assert_eq!(starts("4g.40gb"), 4, "its only place is kept, and no slice is left to nobody");
    assert_eq!(starts("1g.10gb"), 0, "seven of them fit in order");
}

#[test]
fn what_is_learned_as_mig_keeps_gpus_free_for_it() {
    let goes = |times, learned: &[SliceWant]| {
        let mut pool = two(|node| if node == 1 { vec![a100(1, 0)] } else { vec![plain(2, 0)] });
        teach(&mut pool, times, &ask(renter(1), learned));
        let id = pool.lease(lasting(1, share(100, 1)));
        place(&pool, id)
    };
    assert_eq!(goes(33, &[mig("7g.80gb")]), node_id(2));
    assert_eq!(
        goes(128, &[share(500, 1), share(500, 1), share(500, 1), share(500, 1)]),
        node_id(1),
        "nobody asks for MIG"
    );
}

#[test]
fn equal_places_are_taken_in_the_order_of_nodes_and_gpus() {
    let mut pool = two(|node| vec![plain(node, 0), plain(node, 1)]);
    let ids: Vec<_> = (0..4).map(|_| pool.lease(lasting(1, SliceWant::Whole))).collect();
    let places: Vec<_> = ids.iter().map(|id| (place(&pool, *id), pool.get(*id).members[0].gpus[0])).collect();
    let of = |node, rank| (node_id(node), gpu_id(node, rank));
    assert_eq!(places, [of(1, 0), of(1, 1), of(2, 0), of(2, 1)]);
}

#[test]
fn a_request_is_learned_if_it_could_be_met_and_paid_and_only_once() {
    let mut pool = two(|node| vec![plain(node, 0)]);
    let learned = |pool: &Pool| pool.state.learned.mix.total() / 1024;
    let id = pool.lease(LeaseRequest {
        on_node_loss: selion_api::lease::OnNodeLoss::Requeue,
        ..ask(renter(1), &[SliceWant::Whole, SliceWant::Whole])
    });
    assert_eq!(learned(&pool), 2, "each member once");
    let last_seq = pool.state.nodes[&node_id(1)].last_seq;
    pool.enter(selion_market::Input::Lost { node: node_id(1), last_seq });
    assert_eq!((pool.get(id).requeue, learned(&pool)), (true, 2), "what runs again came once");
    let now = LeaseRequest { wait_ms: 0, ..ask(renter(1), &[SliceWant::Whole]) };
    assert!(matches!(pool.request(on(2, now)), Answer::Refused(refusal) if refusal.reason == Reason::PoolFull));
    assert_eq!(learned(&pool), 3, "there is no room, but there might be");
    assert_eq!(pool.refusal(ask(renter(2), &[share(100, 1)])).reason, Reason::PaymentRequired);
    assert_eq!(pool.refusal(ask(renter(1), &[mig("1g.10gb")])).reason, Reason::NoMatchingSlice);
    assert_eq!(learned(&pool), 3);
}

#[test]
fn whole_gpus_within_one_node_are_learned_as_one_want_and_make_its_slots_dear() {
    let slot = |within| {
        let mut pool = two(|node| vec![plain(node, 0), plain(node, 1)]);
        let gang = LeaseRequest { within, ..ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]) };
        pool.lease(gang);
        pool.state.learned.prices.slot(1)
    };
    assert!(slot(Within::Node) > 0);
    assert_eq!(slot(Within::Pool), 0);
}

#[test]
fn a_state_that_was_read_again_goes_on_with_what_it_had_learned() {
    let mut pool = two(|node| vec![a100(node, 0), plain(node, 1)]);
    for slice in [mig("2g.20gb"), share(300, 9), SliceWant::Whole, mig("1g.10gb")] {
        teach(&mut pool, 9, &lasting(2, slice));
    }
    let bytes = borsh::to_vec(&pool.state).unwrap();
    let again: State = borsh::from_slice(&bytes).unwrap();
    assert_eq!(again.learned, pool.state.learned);
    assert_eq!(again.learned.models, ["A100 80GB"]);
    assert_eq!(again.digest(), pool.state.digest());
    let mut restarted = pool.clone();
    restarted.state = again;
    for slice in [mig("1g.10gb"), share(200, 1), SliceWant::Whole, mig("3g.40gb")] {
        let (one, two) = (pool.lease(lasting(3, slice.clone())), restarted.lease(lasting(3, slice)));
        assert_eq!(pool.get(one), restarted.get(two));
    }
    assert_eq!(pool.state, restarted.state);
}
