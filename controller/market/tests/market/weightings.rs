//! The weightings that an operator may set, and a change of them.

use std::collections::BTreeMap;

use selion_api::slice::GpuSpec;
use selion_api::{GpuId, LeaseId, LeaseRequest, NodeId, SliceWant, Slot};
use selion_market::engine::Weighting;
use selion_market::{Input, Policy};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, gpu_id, mig, node_id, renter, share, spec};

/// A GPU without MIG.
fn plain(node: u8, rank: u8) -> GpuSpec {
    GpuSpec { mig: None, ..a100(node, rank) }
}

/// Nodes with so many GPUs, and a renter with money. The weighting is set when the nodes are there.
fn pool(gpus: &[u8], gpu: fn(u8, u8) -> GpuSpec, weighting: Weighting) -> Pool {
    let mut pool = Pool::new();
    pool.fund(renter(1), 10_000 * TOKEN);
    for (node, count) in (1..).zip(gpus) {
        pool.node(spec(node, (0..*count).map(|rank| gpu(node, rank)).collect()));
    }
    set(&mut pool, weighting);
    pool
}

fn set(pool: &mut Pool, weighting: Weighting) {
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy { weighting, ..Policy::default() } });
}

fn lasting(hours: u64, slice: SliceWant) -> LeaseRequest {
    LeaseRequest { duration_ms: hours * HOUR, ..ask(renter(1), &[slice]) }
}

fn on(node: u8, request: LeaseRequest) -> LeaseRequest {
    let mut request = request;
    request.members.iter_mut().for_each(|member| member.node = Some(node_id(node)));
    request
}

fn place(pool: &Pool, id: LeaseId) -> (NodeId, GpuId) {
    (pool.get(id).members[0].node, pool.get(id).members[0].gpus[0])
}

#[test]
fn best_fit_takes_the_node_and_the_device_with_least_left() {
    let mut pool = pool(&[4, 1, 2], plain, Weighting::BestFit);
    let whole = pool.lease(lasting(1, SliceWant::Whole));
    assert_eq!(place(&pool, whole).0, node_id(2), "one GPU less than one is the least");
    let third = pool.lease(on(3, lasting(1, share(300, 1))));
    assert_eq!(place(&pool, third), (node_id(3), gpu_id(3, 0)));
    let mut wide = on(3, lasting(1, share(600, 1)));
    wide.members[0].gpu = Some(gpu_id(3, 1));
    pool.lease(wide);
    let last = pool.lease(lasting(1, share(100, 1)));
    assert_eq!(place(&pool, last), (node_id(3), gpu_id(3, 1)), "400 of 1000 are left there, and 700 on the other");
}

#[test]
fn best_fit_takes_the_mig_device_with_fewest_free_slices() {
    let mut pool = pool(&[1, 1], a100, Weighting::BestFit);
    pool.lease(on(2, lasting(1, mig("1g.10gb"))));
    let next = pool.lease(lasting(1, mig("3g.40gb")));
    assert_eq!(place(&pool, next).0, node_id(2));
}

#[test]
fn fill_does_not_look_at_ends_and_the_market_does() {
    let goes = |weighting| {
        let mut pool = pool(&[1, 1], plain, weighting);
        pool.lease(on(1, lasting(1, share(500, 1))));
        pool.lease(on(2, lasting(10, share(500, 1))));
        let long = pool.lease(lasting(10, share(200, 1)));
        place(&pool, long).0
    };
    assert_eq!(goes(Weighting::Market), node_id(2), "it keeps no node busy longer there");
    assert_eq!(goes(Weighting::Fill), node_id(1), "all else is equal");
}

/// By the published score a rest is worth what the learned requests can use of it.
#[test]
fn the_published_gradient_keeps_what_is_asked_for() {
    let goes = |learned: SliceWant| {
        let mut pool = pool(&[1, 1], plain, Weighting::Fgd);
        for _ in 0..33 {
            let id = pool.lease(lasting(1, learned.clone()));
            pool.clear(id);
        }
        pool.lease(on(2, lasting(1, share(600, 1))));
        let id = pool.lease(lasting(1, share(100, 1)));
        place(&pool, id).0
    };
    assert_eq!(goes(SliceWant::Whole), node_id(2), "the idle GPU is kept whole");
    assert_eq!(goes(share(400, 1)), node_id(1), "the place for 400 beside 600 is kept");
}

#[test]
fn the_published_gradient_opens_no_second_mig_gpu_and_breaks_no_half() {
    let mut pool = pool(&[1, 1], a100, Weighting::Fgd);
    for _ in 0..33 {
        let id = pool.lease(lasting(1, mig("3g.40gb")));
        pool.clear(id);
    }
    pool.lease(on(2, lasting(1, mig("2g.20gb"))));
    let next = pool.lease(lasting(1, mig("1g.10gb")));
    let Slot::Mig { start, .. } = pool.get(next).members[0].slot else { panic!("it is an instance") };
    let first = pool.state.leases.values().find_map(|lease| match &lease.members.first()?.slot {
        Slot::Mig { profile, start, .. } if profile == "2g.20gb" => Some(*start),
        _ => None,
    });
    assert_eq!(place(&pool, next).0, node_id(2));
    assert_eq!(first.map(|first| first / 4), Some(start / 4), "in the half that is broken already");
}

#[test]
fn chance_takes_every_node_and_device_about_as_often_and_a_replay_the_same() {
    let run = || {
        let mut pool = pool(&[2, 2, 2, 2], plain, Weighting::Random);
        let places: Vec<_> = (0..400)
            .map(|_| {
                let id = pool.lease(lasting(1, share(100, 1)));
                let place = place(&pool, id);
                pool.clear(id);
                place
            })
            .collect();
        places
    };
    let places = run();
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    places.iter().for_each(|place| *counts.entry(*place).or_default() += 1);
    assert_eq!(counts.len(), 8, "{counts:?}");
    assert!(counts.values().all(|count| (30..75).contains(count)), "50 of each: {counts:?}");
    assert_eq!(places, run());
}

#[test]
fn the_ask_comes_before_every_weighting() {
    for weighting in Weighting::ALL {
        let cheap = |node, rank| GpuSpec {
            whole: Some(selion_api::Rate(if node == 3 { TOKEN - 1 } else { TOKEN })),
            ..plain(node, rank)
        };
        let mut pool = pool(&[1, 1, 4, 1], cheap, weighting);
        for _ in 0..4 {
            let id = pool.lease(lasting(1, SliceWant::Whole));
            assert_eq!(place(&pool, id).0, node_id(3), "{weighting}");
        }
    }
}

#[test]
fn a_change_of_the_weighting_holds_from_the_next_request_on() {
    let mut pool = pool(&[4, 1], plain, Weighting::Random);
    for weighting in [Weighting::BestFit, Weighting::Random, Weighting::Market, Weighting::BestFit] {
        set(&mut pool, weighting);
        let prices = pool.state.learned.prices.clone();
        let id = pool.lease(lasting(1, SliceWant::Whole));
        if weighting == Weighting::BestFit {
            assert_eq!(place(&pool, id).0, node_id(2));
        }
        if weighting != Weighting::Market {
            assert_eq!(prices, Default::default(), "{weighting} has no prices");
        }
        pool.clear(id);
    }
}
