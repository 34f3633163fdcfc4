use alloc::vec::Vec;

use super::*;
use crate::engine::view::Shape;

const ANY: u64 = u64::MAX;

fn want(shape: Shape, cpu: u32) -> Want {
    Want { shape, cpu, ram: 1024, models: ANY }
}

fn node(cpu: u32, left: &[u16]) -> View<'_> {
    View { model: 1, cpu, ram: 1 << 18, left }
}

/// Terms that have seen these wants once each, many times over.
fn taught(weights: Weights, wants: &[Want]) -> Terms {
    let mut terms = Terms::new(weights, 4);
    let left = [1000; 8];
    for rank in 0..4 {
        terms.touch(rank, Some(&node(96_000, &left)));
    }
    for _ in 0..512 {
        for want in wants {
            terms.arrive(want);
        }
    }
    terms
}

#[test]
fn a_want_without_room_has_no_place() {
    let mut terms = Terms::new(Weights::MARKET, 1);
    assert_eq!(terms.judge(&node(999, &[1000]), &want(Shape::Share(1), 1000)), [None, None]);
    assert_eq!(terms.judge(&node(9999, &[500, 500]), &want(Shape::Share(501), 1000)), [None, None]);
    let mig = want(Shape::Mig { table: 0, profile: 0 }, 0);
    assert_eq!(terms.judge(&node(9999, &[1000]), &mig), [None, None]);
}

#[test]
fn a_share_goes_where_it_closes_a_gap() {
    let wants = [want(Shape::Share(400), 1000), want(Shape::Share(600), 1000)];
    let mut terms = taught(Weights::FILL, &wants);
    let left = [500, 600, 1000];
    let [used, fresh] = terms.judge(&node(96_000, &left), &wants[1]);
    let (used, fresh) = (used.unwrap(), fresh.into_iter().collect::<Vec<_>>());
    assert_eq!(used.device, 1);
    assert!(fresh.iter().all(|fresh| fresh.bucket <= used.bucket));
}

#[test]
fn equal_leftovers_go_to_the_lowest_device() {
    let wants = [want(Shape::Share(300), 1000), want(Shape::Whole(2), 1000)];
    let mut terms = taught(Weights::MARKET, &wants);
    let [used, _] = terms.judge(&node(96_000, &[0, 700, 700]), &wants[0]);
    assert_eq!(used.map(|used| used.device), Some(1));
    let [whole, none] = terms.judge(&node(96_000, &[0, 1000, 700, 1000]), &wants[1]);
    assert_eq!((whole.map(|whole| whole.device), none), (Some(1), None));
}

#[test]
fn equal_nodes_are_worth_the_same_whatever_the_order_of_their_devices() {
    let wants = [want(Shape::Share(300), 1000), want(Shape::Share(810), 1000), want(Shape::Whole(1), 9000)];
    let mut terms = taught(Weights::MARKET, &wants);
    let buckets =
        |verdict: Verdict| verdict.map(|candidate| candidate.map(|candidate| (candidate.bucket, candidate.group)));
    for want in &wants {
        let one = buckets(terms.judge(&node(30_000, &[300, 1000, 400, 0]), want));
        assert_eq!(one, buckets(terms.judge(&node(30_000, &[0, 1000, 400, 300]), want)));
    }
}

#[test]
fn judging_twice_says_the_same_and_so_does_a_second_fleet() {
    let wants = [want(Shape::Share(300), 1000), want(Shape::None, 4000), want(Shape::Whole(4), 9000)];
    let (mut one, mut two) = (taught(Weights::MARKET, &wants), taught(Weights::MARKET, &wants));
    for cpu in (0..96).step_by(5) {
        for want in &wants {
            let left = [1000, 1000, 1000, 1000, 300, 500];
            let verdict = one.judge(&node(cpu * 1000, &left), want);
            assert_eq!(verdict, one.judge(&node(cpu * 1000, &left), want));
            assert_eq!(verdict, two.judge(&node(cpu * 1000, &left), want));
        }
    }
}

#[test]
fn packing_prefers_the_node_with_less_left() {
    let wants = [want(Shape::Whole(1), 1000)];
    let weights = Weights { fill: 0, frag: 0, pack: 100, bucket: 40, ..Weights::MARKET };
    let mut terms = taught(weights, &wants);
    let bucket = |terms: &mut Terms, left: &[u16]| terms.judge(&node(96_000, left), &wants[0])[0].unwrap().bucket;
    assert_eq!(bucket(&mut terms, &[1000]), 0);
    assert_eq!(bucket(&mut terms, &[1000; 5]), -10, "4,000 milli left, a tenth of each, 40 a bucket");
}

#[test]
fn cpu_only_wants_count_in_the_futures_only_where_cpu_is_short() {
    let wants = [want(Shape::Whole(1), 8000), want(Shape::None, 4000)];
    // The mix needs 12 cores a GPU; 8 GPUs are fillable.
    let mut plenty = Terms::new(Weights::FILL, 1);
    plenty.touch(0, Some(&node(4 * 96_000, &[1000; 8])));
    plenty.arrive(&wants[0]);
    plenty.arrive(&wants[1]);
    assert!(plenty.host_weight() < 10, "{}", plenty.host_weight());
    let mut short = Terms::new(Weights::FILL, 1);
    short.touch(0, Some(&node(96_000, &[1000; 8])));
    short.arrive(&wants[0]);
    short.arrive(&wants[1]);
    assert_eq!(short.host_weight(), draws::ALL);
}

#[test]
fn a_want_of_nothing_changes_nothing() {
    let wants = [want(Shape::Share(300), 1000), want(Shape::Whole(2), 9000)];
    let nothing = Want { shape: Shape::None, cpu: 0, ram: 0, models: ANY };
    for weights in [Weights::MARKET, Weights::FILL, Weights::GRADIENT] {
        let mut terms = taught(weights, &wants);
        for cpu in (0..96).step_by(7) {
            let [place, none] = terms.judge(&node(cpu * 1000, &[1000, 1000, 450, 0]), &nothing);
            assert_eq!((place.map(|place| place.bucket), none), (Some(0), None));
        }
    }
}

#[test]
fn more_cpu_never_makes_a_node_more_fragmented() {
    let wants = [want(Shape::Share(300), 3000), want(Shape::Share(700), 9000), want(Shape::Whole(2), 18_000)];
    let terms = taught(Weights::MARKET, &wants);
    for left in [[1000, 1000, 0, 0], [300, 699, 701, 0], [1000, 999, 1, 500]] {
        let mut before = i64::MAX;
        for cpu in 0..40 {
            let frag = terms.frag().value(&Stock::of(&node(cpu * 1000, &left)));
            assert!((0..=before).contains(&frag), "{left:?} with {cpu} cores");
            before = frag;
        }
    }
}

#[test]
fn a_slot_gets_dearer_as_the_fleet_fills_and_touches_no_bucket() {
    let wants = [want(Shape::Whole(8), 9000), want(Shape::Share(300), 1000)];
    let mut terms = taught(Weights::MARKET, &wants);
    let (full, left) = ([1000; 8], [0, 1000, 1000, 1000, 1000, 1000, 1000, 1000]);
    let (before, bucket) = (terms.prices().slot(3), terms.judge(&node(96_000, &full), &wants[0]));
    for rank in 1..4 {
        terms.touch(rank, Some(&node(90_000, &left)));
    }
    terms.set_horizon(1);
    for _ in 0..64 {
        terms.arrive(&wants[1]);
    }
    assert!(terms.prices().slot(3) <= before);
    terms.set_horizon(100_000);
    for _ in 0..64 {
        terms.arrive(&wants[1]);
    }
    assert!(terms.prices().slot(3) >= before && before > 0);
    assert_eq!(terms.judge(&node(96_000, &full), &wants[0]), bucket);
}

#[test]
fn the_sweep_touches_every_node_once_a_period() {
    let mut terms = Terms::new(Weights::FILL, 0);
    for rank in 0..1200 {
        terms.touch(rank, Some(&node(1000, &[1000])));
    }
    let mut seen = Vec::new();
    for _ in 0..400 {
        seen.extend(terms.sweep());
    }
    assert_eq!(seen, (0..1200).collect::<Vec<_>>());
    assert_eq!(terms.sweep(), 0..3);
    assert_eq!(Terms::new(Weights::FILL, 0).sweep(), 0..0);
}

#[test]
fn an_empty_mix_and_the_largest_node_are_judged_without_overflow() {
    let left = [u16::MAX; 80];
    let view = View { model: 255, cpu: u32::MAX, ram: u32::MAX, left: &left };
    for weights in [Weights::MARKET, Weights::FILL, Weights::GRADIENT] {
        let mut terms = Terms::new(weights, usize::MAX);
        terms.touch(3, Some(&view));
        let all = Want { shape: Shape::Whole(64), cpu: u32::MAX, ram: u32::MAX, models: ANY };
        assert!(terms.judge(&view, &all)[0].is_some());
        terms.arrive(&all);
        let [Some(place), None] = terms.judge(&view, &all) else { panic!("one place") };
        assert!(terms.price(&all, place.group) >= 0);
        let most = Weights { fill: u32::MAX, frag: u32::MAX, pack: u32::MAX, bucket: 0, ..weights };
        let mut terms = Terms::new(most, 1);
        terms.touch(0, Some(&view));
        terms.arrive(&all);
        assert!(terms.judge(&view, &all)[0].is_some());
    }
}
