//! The published gradient and best-fit, by hand.

use selion_market::engine::{Choice, Fleet, NodeShape, Shape, Want, Weighting};

fn want(shape: Shape, cpu: u32) -> Want {
    Want { shape, cpu, ram: 0, models: u64::MAX }
}

/// `Frag` by its definition, in milli times the sum of counts: one term a type, one pass over the devices each.
fn frag(left: &[u16], cpu: u32, mix: &[(Want, u64)]) -> i64 {
    let all: i64 = left.iter().map(|left| i64::from(*left)).sum();
    mix.iter()
        .map(|(want, count)| {
            let (num, milli) = match want.shape {
                Shape::Share(milli) => (1, milli),
                Shape::Whole(num) => (usize::from(num), 1000),
                _ => (0, 0),
            };
            let hosts = num > 0 && cpu >= want.cpu && left.iter().filter(|left| **left >= milli).count() >= num;
            let small: i64 = left.iter().filter(|left| **left < milli).map(|left| i64::from(*left)).sum();
            i64::try_from(*count).unwrap() * if hosts { small } else { all }
        })
        .sum()
}

/// floor(100 / (1 + e^-x)): floats belong to the test, not to the market.
fn published(gradient: i64, weight: i64) -> i32 {
    let x = gradient as f64 / weight as f64 / 1000.0;
    (100.0 / (1.0 + (-x).exp())).floor() as i32
}

#[test]
fn the_gradient_chooses_what_its_definition_chooses_on_every_state_of_two_devices() {
    let mix = [(want(Shape::Share(500), 4_000), 6), (want(Shape::Whole(1), 8_000), 3), (want(Shape::None, 2_000), 1)];
    let weight = 10;
    let asked = want(Shape::Share(250), 2_000);
    for first in [0_u16, 250, 400, 500, 750, 1000] {
        for second in [0_u16, 250, 490, 500, 760, 1000] {
            for cpu in [2_000, 5_000, 6_000, 10_000, 12_000] {
                let mut fleet = Fleet::new(Weighting::Fgd, &[NodeShape::new(0, cpu, 0, 2)]);
                let ids: Vec<_> = mix.iter().map(|(want, count)| (fleet.intern(*want), *count)).collect();
                fleet.oracle(&ids);
                for (device, left) in [(0, first), (1, second)] {
                    let shape = if left == 0 { Shape::Whole(1) } else { Shape::Share(1000 - left) };
                    let class = fleet.intern(want(shape, 0));
                    if left < 1000 {
                        fleet.take(class, &Choice { node: 0, devices: 1 << device, start: 0 }, None).unwrap();
                    }
                }
                let left = [first, second];
                let scores = (0..2_usize).filter(|at| left[*at] >= 250).map(|at| {
                    let mut after = left;
                    after[at] -= 250;
                    let gradient = frag(&left, cpu, &mix) - frag(&after, cpu - 2_000, &mix);
                    (published(gradient, weight), at)
                });
                let best = scores.reduce(|best, next| if next.0 > best.0 { next } else { best });
                let asked = fleet.intern(asked);
                let chosen = fleet.choose(asked, None).and_then(|choice| choice.device());
                assert_eq!(chosen.map(usize::from), best.map(|(_, at)| at), "{left:?}, {cpu} of a core");
            }
        }
    }
}

#[test]
fn best_fit_takes_the_fuller_node_and_on_it_the_tightest_device() {
    let nodes = [NodeShape::new(0, 64_000, 1_000, 8), NodeShape::new(0, 32_000, 1_000, 2)];
    let mut fleet = Fleet::new(Weighting::BestFit, &nodes);
    let half = fleet.intern(want(Shape::Share(500), 1_000));
    let most = fleet.intern(want(Shape::Share(700), 1_000));
    fleet.take(most, &Choice { node: 1, devices: 0b10, start: 0 }, None).unwrap();
    assert_eq!(fleet.choose(half, None), Some(Choice { node: 1, devices: 0b01, start: 0 }));
    let small = fleet.intern(want(Shape::Share(300), 1_000));
    assert_eq!(fleet.choose(small, None), Some(Choice { node: 1, devices: 0b10, start: 0 }));
}

#[test]
fn equal_nodes_are_taken_by_rank_and_equal_devices_by_number() {
    let nodes = [NodeShape::new(0, 64_000, 1_000, 4); 3];
    for weighting in [Weighting::Market, Weighting::Fill, Weighting::Fgd, Weighting::BestFit] {
        let mut fleet = Fleet::new(weighting, &nodes);
        let two = fleet.intern(want(Shape::Whole(2), 1_000));
        fleet.arrive(two);
        assert_eq!(fleet.choose(two, None), Some(Choice { node: 0, devices: 0b11, start: 0 }), "{weighting}");
    }
}

#[test]
fn chance_finds_every_place_and_differs_by_seed() {
    let nodes = [NodeShape::new(0, 64_000, 1_000, 2); 4];
    let run = |seed| {
        let mut fleet = Fleet::new(Weighting::Random, &nodes).with_seed(seed);
        let half = fleet.intern(want(Shape::Share(500), 0));
        let next = |_| {
            fleet.arrive(half);
            fleet.choose(half, None).unwrap()
        };
        (0..200).map(next).collect::<Vec<_>>()
    };
    let places: std::collections::BTreeSet<_> = run(1).into_iter().collect();
    assert_eq!(places.len(), 8, "four nodes of two devices");
    assert_ne!(run(1), run(2));
    assert_eq!(run(3), run(3));
}
