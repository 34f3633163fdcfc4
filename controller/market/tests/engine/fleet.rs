//! The fleet under random operations, with every weighting.

use proptest::prelude::*;
use selion_market::engine::{NodeShape, Shape, WHOLE, Want};

use crate::pool::{self, Live, Pool};

/// What must be left on each device, and its MIG slices: the fold of the leases on it.
fn fold(pool: &Pool, rank: u32, shape: &NodeShape) -> (u32, u32, Vec<u16>, Vec<u8>) {
    let mut left = vec![WHOLE; usize::from(shape.gpus)];
    let mut masks = vec![0_u8; usize::from(shape.gpus)];
    let (mut cpu, mut ram) = (shape.cpu, shape.ram);
    for Live { want, choice, .. } in pool.live.iter().filter(|live| live.choice.node == rank) {
        cpu -= want.cpu;
        ram -= want.ram;
        assert_eq!(want.models >> shape.model & 1, 1, "a model that was not asked for");
        let devices: Vec<usize> = (0..64).filter(|device| choice.devices >> device & 1 == 1).collect();
        match want.shape {
            Shape::None => assert_eq!(devices, [0; 0]),
            Shape::Share(milli) => {
                assert_eq!(devices.len(), 1);
                left[devices[0]] -= milli;
            }
            Shape::Whole(count) => {
                assert_eq!(devices.len(), usize::from(count));
                devices.iter().for_each(|device| left[*device] -= WHOLE);
            }
            Shape::Mig { table, profile } => {
                assert_eq!((devices.len(), shape.table), (1, Some(table)));
                let layout = pool.fleet.nodes().table(table).unwrap();
                let bits = layout.taken(profile, choice.start).expect("a start that the profile does not have");
                assert_eq!(masks[devices[0]] & bits, 0, "two instances on one slice");
                masks[devices[0]] |= bits;
            }
        }
    }
    for (left, _) in left.iter_mut().zip(&masks).filter(|(_, mask)| **mask != 0) {
        assert_eq!(*left, WHOLE, "MIG and another mode on one device");
        *left = 0;
    }
    (cpu, ram, left, masks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn the_indexed_choice_is_the_one_that_judging_every_node_and_device_finds(
        weighting in pool::weighting(),
        nodes in prop::collection::vec(pool::node(), 1..24),
        wants in prop::collection::vec(pool::want(), 1..12),
        steps in prop::collection::vec(pool::step(), 1..120),
    ) {
        let mut pool = Pool::new(weighting, &nodes, &wants);
        for step in &steps {
            pool.step(step, |fleet, class, end| {
                assert_eq!(fleet.choose(class, end), fleet.scan(class, end), "{weighting}");
            });
        }
    }

    #[test]
    fn what_is_left_is_what_there_was_less_what_is_taken_and_no_slice_is_taken_twice(
        weighting in pool::weighting(),
        nodes in prop::collection::vec(pool::node(), 1..12),
        wants in prop::collection::vec(pool::want(), 1..12),
        steps in prop::collection::vec(pool::step(), 1..80),
    ) {
        let mut pool = Pool::new(weighting, &nodes, &wants);
        for step in &steps {
            pool.step(step, |_, _, _| {});
            for (rank, shape) in (0..).zip(&nodes) {
                let (cpu, ram, left, masks) = fold(&pool, rank, shape);
                let view = pool.fleet.view(rank).unwrap();
                prop_assert_eq!((view.cpu, view.ram, view.left), (cpu, ram, &left[..]));
                prop_assert_eq!(pool.fleet.nodes().mig(rank).unwrap(), &masks[..]);
            }
        }
        while !pool.live.is_empty() {
            pool.step(&pool::Step::Release { lease: 0 }, |_, _, _| {});
        }
        prop_assert_eq!(pool.fleet.nodes().free_milli(), pool.fleet.nodes().capacity_milli());
    }

    #[test]
    fn a_request_that_finds_no_place_fits_on_no_node(
        weighting in pool::weighting(),
        nodes in prop::collection::vec(pool::node(), 1..12),
        wants in prop::collection::vec(pool::want(), 1..12),
        steps in prop::collection::vec(pool::step(), 1..80),
    ) {
        let mut pool = Pool::new(weighting, &nodes, &wants);
        for step in &steps {
            pool.step(step, |fleet, class, end| {
                let want = *fleet.want(class).unwrap();
                let able = (0..fleet.nodes().len()).any(|rank| fits(fleet.nodes(), rank, &want));
                assert_eq!(fleet.choose(class, end).is_some(), able);
            });
        }
    }

    #[test]
    fn the_same_operations_give_the_same_choices(
        weighting in pool::weighting(),
        nodes in prop::collection::vec(pool::node(), 1..12),
        wants in prop::collection::vec(pool::want(), 1..12),
        steps in prop::collection::vec(pool::step(), 1..80),
    ) {
        let run = |asked: bool| {
            let mut pool = Pool::new(weighting, &nodes, &wants);
            for step in &steps {
                // A question changes nothing.
                pool.step(step, |fleet, class, end| if asked { fleet.choose(class, end); });
            }
            pool.chosen
        };
        let once = run(false);
        prop_assert_eq!(&once, &run(false));
        prop_assert_eq!(&once, &run(true));
    }
}

/// By counting, without the engine's own words for it.
fn fits(nodes: &selion_market::engine::nodes::Nodes, rank: u32, want: &Want) -> bool {
    let (view, masks, shape) = (nodes.view(rank).unwrap(), nodes.mig(rank).unwrap(), nodes.shape(rank).unwrap());
    let host = view.cpu >= want.cpu && view.ram >= want.ram && want.models & 1 << view.model != 0;
    host && match want.shape {
        Shape::None => true,
        Shape::Share(milli) => view.left.iter().any(|left| *left >= milli),
        Shape::Whole(count) => view.left.iter().filter(|left| **left == WHOLE).count() >= usize::from(count),
        Shape::Mig { table, profile } => {
            let open = |(left, mask): (&u16, &u8)| {
                let start = |start| nodes.table(table).and_then(|layout| layout.taken(profile, start));
                (*left == WHOLE || *mask != 0) && (0..8).filter_map(start).any(|bits| bits & mask == 0)
            };
            shape.table == Some(table) && view.left.iter().zip(masks).any(open)
        }
    }
}
