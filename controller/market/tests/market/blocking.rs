//! What stands in the way of a waiting lease: without all of it the lease fits, with any one of it it does not.

use proptest::prelude::*;
use selion_api::blocking::{Blocking, Constraint};
use selion_api::chain::ChainEvent;
use selion_api::lease::Within;
use selion_api::slice::{GpuSpec, IsolationClass, NodeSpec};
use selion_api::{BoxFeature, BoxFeatures, LeaseId, LeaseRequest, Rate, Reason, SliceWant};
use selion_market::{Answer, DryRun};

use crate::pool::{GIB, HOUR, Pool, TOKEN, a100, ask, gpu_id, kept, mig, node_id, renter, share, spec};
use crate::quote::quote;

const ALL: u8 = 0b11_1111;

/// Dear, real, and leased whole only.
fn whole_only(node: u8) -> GpuSpec {
    GpuSpec {
        model: "B200".into(),
        simulated: false,
        whole: Some(Rate(3 * TOKEN)),
        mig: None,
        share: None,
        ..a100(node, 0)
    }
}

fn pool(gpus: Vec<Vec<GpuSpec>>) -> Pool {
    let mut pool = Pool::new();
    for (node, gpus) in (1..).zip(gpus) {
        let mut machine = spec(node, gpus);
        (machine.cpu_milli, machine.ram_bytes) = (2_000, 4 * GIB);
        pool.node(machine);
    }
    pool.fund(renter(1), 1_000_000 * TOKEN);
    pool
}

/// The first node has an A100, the second a B200; an hour of the A100 is gone.
fn two() -> Pool {
    let mut pool = pool(vec![vec![a100(1, 0)], vec![whole_only(2)]]);
    let taken = pool.lease(on(1, ask(renter(1), &[SliceWant::Whole])));
    pool.run_up(taken);
    pool
}

fn on(node: u8, mut request: LeaseRequest) -> LeaseRequest {
    request.members.iter_mut().for_each(|want| want.node = Some(node_id(node)));
    request
}

fn told(pool: &mut Pool, request: LeaseRequest) -> Blocking {
    let id = pool.lease(request);
    pool.state.blocking(id).expect("it waits")
}

#[test]
fn each_constraint_is_named_where_it_alone_stands_in_the_way() {
    let whole = ask(renter(1), &[SliceWant::Whole]);
    let capped = LeaseRequest { max_rate: Some(Rate(TOKEN)), ..whole.clone() };
    let classed = LeaseRequest { classes: IsolationClass::Simulated.bit(), ..whole.clone() };
    let mut modelled = whole.clone();
    modelled.members[0].models = vec!["A100 80GB".into()];
    let table = [
        (capped, Constraint::MaxRate),
        (classed, Constraint::Classes),
        (modelled, Constraint::Models),
        (on(1, whole), Constraint::Node),
        (ask(renter(1), &[mig("1g.10gb")]), Constraint::Slice),
    ];
    for (request, constraint) in table {
        let blocking = told(&mut two(), request);
        assert_eq!(blocking, Blocking { now: true, constraints: vec![constraint] });
    }
    let mut boxes = Pool::new();
    boxes.node(NodeSpec { features: BoxFeatures::NONE.with(BoxFeature::Images), ..spec(1, vec![a100(1, 0)]) });
    boxes.node(spec(2, vec![a100(2, 0)]));
    boxes.fund(renter(1), 1_000 * TOKEN);
    boxes.lease(on(1, ask(renter(1), &[SliceWant::Whole])));
    let boxed =
        LeaseRequest { needs: BoxFeatures::NONE.with(BoxFeature::Images), ..ask(renter(1), &[SliceWant::Whole]) };
    assert_eq!(told(&mut boxes, boxed).constraints, [Constraint::Needs]);
    for (cpu_milli, ram_bytes, constraint) in [(1_800, 0, Constraint::Cpu), (0, 4 * GIB, Constraint::Ram)] {
        let mut pool = pool(vec![vec![a100(1, 0)]]);
        pool.lease(ask(renter(1), &[mig("1g.10gb")]));
        let mut request = ask(renter(1), &[mig("1g.10gb")]);
        (request.members[0].cpu_milli, request.members[0].ram_bytes) = (cpu_milli, ram_bytes);
        assert_eq!(told(&mut pool, request).constraints, [constraint]);
    }
    let mut spread = pool(vec![vec![a100(1, 0)], vec![a100(2, 0)]]);
    spread.lease(on(2, ask(renter(1), &[SliceWant::Whole])));
    let pair = LeaseRequest { min_nodes: 2, ..ask(renter(1), &[mig("1g.10gb"), mig("1g.10gb")]) };
    assert_eq!(told(&mut spread, pair).constraints, [Constraint::MinNodes]);
}

#[test]
fn what_needs_two_changes_names_both_and_a_full_pool_only_what_others_hold() {
    let mut request = on(1, ask(renter(1), &[SliceWant::Whole]));
    request.members[0].models = vec!["A100 80GB".into()];
    assert_eq!(told(&mut two(), request.clone()).constraints, [Constraint::Models, Constraint::Node]);
    let mut full = two();
    full.lease(on(2, ask(renter(1), &[SliceWant::Whole])));
    assert_eq!(told(&mut full, request).constraints, [Constraint::Room]);
}

#[test]
fn who_waits_for_money_or_has_started_is_blocked_by_nothing() {
    let mut pool = two();
    let started = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!(pool.state.blocking(started), None, "it does not wait");
    assert_eq!(pool.state.blocking(LeaseId { seq: 9999, index: 0 }), None);
    // Two are let in, since there is room and money for either; the deposit is for one.
    let mut poor = self::pool(vec![vec![a100(1, 0), a100(1, 1)]]);
    let held = poor.lease(ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]));
    poor.run_up(held);
    poor.fund(renter(2), kept(TOKEN));
    let ids = [(); 2].map(|()| poor.lease(ask(renter(2), &[SliceWant::Whole])));
    poor.clear(held);
    assert_eq!(poor.reason_of(ids[1]), Some(Reason::PaymentRequired));
    assert_eq!(poor.state.blocking(ids[1]), Some(Blocking { now: true, constraints: Vec::new() }));
}

#[test]
fn who_could_never_fit_any_more_is_told_what_it_would_take_at_all() {
    let mut pool = two();
    let mut request = ask(renter(1), &[SliceWant::Whole]);
    request.members[0].models = vec!["A100 80GB".into()];
    let id = pool.lease(request);
    pool.block(vec![ChainEvent::NodeRetired { node: node_id(1) }]);
    let expected = Blocking { now: false, constraints: vec![Constraint::Models] };
    assert_eq!(pool.state.blocking(id), Some(expected));
    pool.block(vec![ChainEvent::NodeRetired { node: node_id(2) }]);
    assert_eq!(pool.state.blocking(id), None, "no request would do");
}

#[test]
fn room_that_is_kept_for_a_booking_is_in_the_way_of_who_would_end_too_late() {
    let mut pool = pool(vec![vec![a100(1, 0), a100(1, 1)]]);
    let long = LeaseRequest { duration_ms: 5 * HOUR, ..ask(renter(1), &[SliceWant::Whole]) };
    pool.lease(long.clone());
    pool.lease(ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]));
    pool.fund(renter(2), 1000 * TOKEN);
    let kept = pool.lease(LeaseRequest { renter: renter(2), duration_ms: 20 * HOUR, ..long });
    assert_eq!(pool.reason_of(kept), Some(Reason::KeptForBooking));
    assert_eq!(pool.state.blocking(kept).unwrap().constraints, [Constraint::Room]);
}

/// Says whether the request would start when these constraints do not count: by quotes alone, each of a real request.
fn starts(busy: &Pool, empty: &Pool, request: &LeaseRequest, gone: &[Constraint]) -> bool {
    let mut relaxed = request.clone();
    let mut slices = false;
    let mut pool = busy;
    for one in gone {
        match one {
            Constraint::MaxRate => relaxed.max_rate = None,
            Constraint::Classes => relaxed.classes = ALL,
            Constraint::Needs => relaxed.needs = BoxFeatures::NONE,
            Constraint::MinNodes => relaxed.min_nodes = 1,
            Constraint::NearData => relaxed.near_data = false,
            Constraint::MaxLatency => relaxed.max_latency_us = None,
            Constraint::Licence => relaxed.licence = None,
            Constraint::Models => relaxed.members.iter_mut().for_each(|want| want.models.clear()),
            Constraint::Node => relaxed.members.iter_mut().for_each(|want| want.node = None),
            Constraint::Cpu => relaxed.members.iter_mut().for_each(|want| want.cpu_milli = 0),
            Constraint::Ram => relaxed.members.iter_mut().for_each(|want| want.ram_bytes = 0),
            Constraint::Gpu => relaxed.members.iter_mut().for_each(|want| want.gpu = None),
            Constraint::Disk => relaxed.members.iter_mut().for_each(|want| want.disk_bytes = 0),
            Constraint::Net => relaxed.members.iter_mut().for_each(|want| want.net_mbps = 0),
            Constraint::Regions => relaxed.regions.clear(),
            Constraint::Within => relaxed.within = Within::Pool,
            Constraint::Gpus => relaxed.members.iter_mut().for_each(|want| want.gpus = 1),
            Constraint::Slice => slices = true,
            Constraint::Room => pool = empty,
        }
    }
    let starts = |request: &LeaseRequest| matches!(quote(pool, request), DryRun::Starts { .. });
    if !slices {
        return starts(&relaxed);
    }
    let names = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
    let least = SliceWant::Share { compute_permille: 1, mem_bytes: 1 };
    let all: Vec<SliceWant> = names.into_iter().map(mig).chain([SliceWant::Whole, least]).collect();
    let own: Vec<SliceWant> = request.members.iter().map(|want| want.slice.clone()).collect();
    let choices = all.iter().chain(&own);
    // Every slice for the first member, and with a second member every pair.
    choices.clone().any(|first| {
        choices.clone().any(|last| {
            let mut tried = relaxed.clone();
            if let Some(want) = tried.members.last_mut() {
                want.slice = last.clone();
            }
            tried.members[0].slice = first.clone();
            starts(&tried)
        })
    })
}

fn slice() -> impl Strategy<Value = SliceWant> {
    prop_oneof![
        2 => Just(SliceWant::Whole),
        4 => prop::sample::select(vec!["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"]).prop_map(mig),
        1 => (100_u16..900, 1_u64..60).prop_map(|(compute, gib)| share(compute, gib)),
    ]
}

fn gpus() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..3, 1..4)
}

fn request(most: usize) -> impl Strategy<Value = LeaseRequest> {
    let models = prop::option::of(prop::sample::select(vec!["A100 80GB", "B200"]));
    let caps = prop::option::of(prop::sample::select(vec![150_000, TOKEN, 2 * TOKEN, 3 * TOKEN]));
    let sizes = (
        prop::sample::select(vec![0_u32, 500, 1_500]),
        prop::sample::select(vec![0, GIB, 3 * GIB]),
        prop::sample::select(vec![0, 0, GIB << 9]),
        prop::sample::select(vec![0, 0, 6_000]),
    );
    let regions = prop::sample::subsequence(vec!["eu".to_owned(), "us".to_owned()], 0..2);
    let pins = (prop::option::of(1_u8..4), prop::option::weighted(0.1, 1_u8..4), regions);
    let classes = prop_oneof![Just(ALL), Just(IsolationClass::Simulated.bit()), Just(IsolationClass::Whole.bit())];
    let wants = prop::collection::vec(slice(), 1..=most);
    let gang =
        (any::<bool>(), prop::sample::select(vec![Within::Pool, Within::Region, Within::Rack, Within::Node]), 1_u16..3);
    (wants, models, pins, caps, classes, sizes, gang).prop_map(
        |(wants, model, (node, gpu, regions), cap, classes, (cpu_milli, ram_bytes, disk_bytes, net_mbps), gang)| {
            let (spread, within, needs) = gang;
            let mut request = ask(renter(1), &wants);
            request.max_rate = cap.map(Rate);
            request.classes = classes;
            request.regions = regions;
            request.within = within;
            request.min_members = request.min_members.min(needs);
            request.min_nodes = if spread && within != Within::Node { request.min_members } else { 1 };
            for want in &mut request.members {
                want.models = model.map(str::to_owned).into_iter().collect();
                want.node = node.map(node_id);
                want.gpu = gpu.map(|node| gpu_id(node, 0));
                (want.cpu_milli, want.ram_bytes) = (cpu_milli, ram_bytes);
                (want.disk_bytes, want.net_mbps) = (disk_bytes, net_mbps);
            }
            request
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn without_the_reported_set_it_starts_and_with_any_one_back_it_does_not(
        kinds in gpus(),
        held in prop::collection::vec(request(1), 0..8),
        asked in request(2),
    ) {
        let nodes = (1_u8..).zip(&kinds).map(|(node, kind)| match kind {
            0 => vec![a100(node, 0)],
            1 => vec![GpuSpec { simulated: false, ..a100(node, 0) }],
            _ => vec![whole_only(node)],
        });
        let empty = pool(nodes.collect());
        let mut busy = empty.clone();
        for mut request in held {
            request.wait_ms = 0;
            busy.request(request);
        }
        let mut after = busy.clone();
        let Answer::Created(id) = after.request(asked.clone()) else {
            return Ok(());
        };
        let Some(blocking) = after.state.blocking(id) else {
            prop_assert!(starts(&busy, &empty, &asked, &[]), "only who started is told nothing");
            return Ok(());
        };
        prop_assert!(blocking.now, "it was let in, so it would fit into the empty fleet");
        prop_assert!(!blocking.constraints.is_empty());
        prop_assert!(starts(&busy, &empty, &asked, &blocking.constraints), "{:?}", blocking);
        for one in &blocking.constraints {
            let rest: Vec<Constraint> = blocking.constraints.iter().copied().filter(|other| other != one).collect();
            prop_assert!(!starts(&busy, &empty, &asked, &rest), "{:?} is not needed in {:?}", one, blocking);
        }
    }
}
