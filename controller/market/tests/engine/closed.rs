//! Nodes that are closed to new work.

use selion_market::engine::nodes::Misfit;
use selion_market::engine::{Fleet, NodeShape, Shape, Want, Weighting, Within};

#[test]
fn a_closed_node_takes_nothing_new_and_keeps_what_it_has() {
    let want = Want { shape: Shape::Share(400), cpu: 1_000, ram: 1_024, models: u64::MAX };
    for weighting in Weighting::ALL {
        let mut fleet = Fleet::new(weighting, &[NodeShape::new(0, 8_000, 8_192, 2); 2]);
        let class = fleet.intern(want);
        fleet.arrive(class);
        let before = fleet.choose(class, Some(10)).unwrap();
        fleet.take(class, &before, Some(10)).unwrap();
        let other = 1 - before.node;
        fleet.close(before.node, true);
        for _ in 0..4 {
            fleet.arrive(class);
            let choice = fleet.choose(class, Some(10)).unwrap();
            assert_eq!(choice.node, other, "{weighting}");
            assert_eq!(fleet.scan(class, Some(10)), Some(choice), "{weighting}");
            fleet.take(class, &choice, Some(10)).unwrap();
        }
        assert_eq!(fleet.choose(class, Some(10)), None, "{weighting}: the open node is full");
        assert_eq!(fleet.choose_on(class, before.node, Some(10)), None, "{weighting}");
        assert_eq!(fleet.choose_gang(class, 1, Within::Domain), None, "{weighting}");
        assert_eq!(fleet.take(class, &before, Some(10)), Err(Misfit::NoRoom(before)), "{weighting}");
        fleet.release(class, &before, Some(10)).unwrap();
        fleet.close(before.node, false);
        let again = fleet.choose(class, Some(10)).unwrap();
        assert_eq!(again.node, before.node, "{weighting}");
        assert_eq!(fleet.choose_on(class, before.node, Some(10)), Some(again), "{weighting}");
    }
}
