//! Gangs: all members or none, in the best domain.

use proptest::prelude::*;
use selion_market::engine::{Fleet, NodeShape, Shape, Want, Weighting, Within};

use crate::pool::{self, Pool};

fn want(shape: Shape) -> Want {
    Want { shape, cpu: 1_000, ram: 10, models: u64::MAX }
}

fn node(domain: u32, gpus: u8) -> NodeShape {
    NodeShape { domain, ..NodeShape::new(0, 64_000, 1_000, gpus) }
}

#[test]
fn a_gang_goes_to_a_domain_that_has_room_for_all_of_it() {
    let nodes = [node(5, 2), node(7, 4), node(5, 1), node(7, 2)];
    let mut fleet = Fleet::new(Weighting::BestFit, &nodes);
    let one = fleet.intern(want(Shape::Whole(1)));
    let ranks = |found: Option<Vec<_>>| {
        found.map(|choices: Vec<selion_market::engine::Choice>| choices.iter().map(|choice| choice.node).collect())
    };
    assert_eq!(ranks(fleet.choose_gang(one, 3, Within::Domain)), Some(vec![2, 0, 0]), "the fuller nodes of rack 5");
    let five: Vec<u32> = ranks(fleet.choose_gang(one, 5, Within::Domain)).unwrap();
    assert!(five.iter().all(|rank| [1, 3].contains(rank)), "{five:?}");
    assert_eq!(fleet.choose_gang(one, 7, Within::Domain), None);
    assert_eq!(fleet.choose_gang(one, 9, Within::Fleet).map(|choices| choices.len()), Some(9));
    assert_eq!(fleet.choose_gang(one, 10, Within::Fleet), None);
    assert_eq!(fleet.choose_gang(one, u32::MAX, Within::Domain), None);
    assert_eq!(fleet.nodes().free_milli(), 9_000, "to choose is not to take");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_gang_is_the_one_that_judging_every_node_of_every_domain_finds(
        weighting in pool::weighting(),
        nodes in prop::collection::vec(pool::node(), 1..24),
        wants in prop::collection::vec(pool::want(), 1..8),
        steps in prop::collection::vec((pool::step(), 1_u32..6), 1..60),
    ) {
        let mut pool = Pool::new(weighting, &nodes, &wants);
        for (step, members) in &steps {
            pool.step(step, |fleet, class, end| {
                let before = fleet.nodes().clone();
                let chosen = fleet.choose_gang(class, *members, Within::Domain);
                assert_eq!(chosen, fleet.scan_gang(class, *members), "{weighting}, {members}");
                assert_eq!(fleet.choose_gang(class, *members, Within::Domain), chosen, "asked again");
                let anywhere = fleet.choose_gang(class, *members, Within::Fleet);
                assert!(anywhere.is_some() || chosen.is_none(), "a domain is a part of the fleet");
                assert_eq!(fleet.nodes(), &before, "to choose is not to take");
                assert_eq!(fleet.choose(class, end), fleet.scan(class, end), "the index is none the wiser");
                for choice in chosen.into_iter().flatten() {
                    assert_eq!(fleet.take(class, &choice, None), Ok(()));
                    let domain = |rank| fleet.nodes().shape(rank).map(|shape| shape.domain);
                    assert!(domain(choice.node).is_some());
                    assert_eq!(fleet.release(class, &choice, None), Ok(()));
                }
            });
        }
    }
}
