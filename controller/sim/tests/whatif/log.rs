use selion_api::agent::Fence;
use selion_api::{Amount, Reason};
use selion_market::{Input, Policy};
use selion_sim::from_log::{Change, History, PolicyField, Scale, compare};
use selion_sim::world::{DELEGATE, Fleet, HOUR, Work, World, account, node_id};

use crate::made::{TOKEN, ask, at, made, world};

#[test]
fn a_log_run_again_with_nothing_changed_comes_out_as_it_was() {
    let made = made();
    let told = compare(&made.history, &[]);
    assert_eq!((told.started_in_log, told.reproduced), (3, 3));
    assert_eq!(told.before, told.after);
    for line in &told.lines {
        assert_eq!(line.real, line.before, "{:?}", line.lease);
        assert!(!line.differs());
    }
    let waits: Vec<u64> = told.lines.iter().map(|line| line.real.waited_ms / 60_000).collect();
    assert_eq!(waits, [0, 121, 0], "the second waits for the first, which ends at 3 h 1 min");
}

/// At 0.5 times its price node 2 asks 1.00: as cheap as node 1, and within the second renter's limit.
#[test]
fn a_lower_price_starts_the_lease_that_found_it_too_dear() {
    let made = made();
    let cheaper = Change::Price(Some(node_id(2)), Scale { permille: 500 });
    let told = compare(&made.history, &[cheaper]);
    let second = &told.lines[1];
    assert_eq!((second.before.waited_ms / 60_000, second.after.waited_ms), (121, 0));
    assert_eq!(second.after.nodes, [node_id(2)]);
    assert_eq!(second.after.cost, Amount(TOKEN));
    // The second holds node 2 until 2:01; the third waits that minute, and pays half of what it did.
    let third = &told.lines[2];
    assert_eq!(third.after.waited_ms, 60_000);
    assert_eq!((third.before.cost, third.after.cost), (Amount(4 * TOKEN), Amount(2 * TOKEN)));
    assert_eq!(told.after.income[&node_id(2)], Amount(3 * TOKEN));
    assert!(!told.lines[0].differs());
}

/// Four GPUs: renter 1 holds two, renter 2 one, renter 3 the last until 2 h, and again until 3 h, since he asked first
/// and is booked. Then 1, who asked earlier and holds more, stands behind 2; with a thousand times the weight, before
/// him.
#[test]
fn a_weight_changes_who_is_served_first() {
    let mut world = World::with_log(Policy::default());
    world.add_fleet(&Fleet::even(4, 1, "A100"));
    world.fund(&(1..=3).map(account).collect());
    for (number, renter, gpus, hours) in [(1, 1, 2, 40), (2, 2, 1, 40), (3, 3, 1, 2)] {
        world.request(ask(renter, number, gpus, None, hours), Work::plain(hours * HOUR)).expect("taken");
    }
    world.run_until(at(1));
    for (number, renter) in [(4, 3), (5, 1), (6, 2)] {
        world.request(ask(renter, number, 1, None, 1), Work::plain(HOUR)).expect("waits");
    }
    world.run_out(at(60));
    let history = History::read(world.log().to_vec()).expect("its own rules");
    let told = compare(&history, &[Change::Weight(account(1), 1_000)]);
    assert_eq!((told.started_in_log, told.reproduced), (6, 6));
    let waits = |number: usize| {
        let line = &told.lines[number];
        (line.before.waited_ms / HOUR, line.after.waited_ms / HOUR)
    };
    assert_eq!([waits(3), waits(4), waits(5)], [(1, 1), (3, 2), (2, 3)]);
}

#[test]
fn too_short_a_time_to_prepare_ends_what_ran() {
    let made = made();
    let told = compare(&made.history, &[Change::Policy(PolicyField::PrepareMs, 30_000)]);
    assert!(told.lines.iter().all(|line| line.after.reason == Some(Reason::PrepareTimeout)));
    assert_eq!((told.before.started, told.after.started), (3, 0));
    assert_eq!(told.after.cost, Amount::ZERO);
}

/// A renter who gave up at 2 h gives up at 2 h again; had he been served by then, his lease would run.
#[test]
fn a_renter_gives_up_at_the_same_time_unless_served_by_then() {
    let mut world = world();
    world.request(ask(1, 1, 2, None, 5), Work::plain(5 * HOUR)).expect("taken");
    world.run_until(at(1));
    let lease = world.request(ask(2, 2, 1, None, 1), Work::plain(HOUR)).expect("waits");
    world.run_until(at(2));
    world.submit(Input::Release { renter: account(2), lease });
    world.run_out(at(30));
    let history = History::read(world.log().to_vec()).expect("its own rules");
    let told = compare(&history, &[]);
    assert_eq!(told.lines[1].before.reason, Some(Reason::Released));
    assert_eq!(told.lines[1].before.ended, Some(at(2)));
    let shorter = compare(&history, &[Change::Duration(told.lines[0].entry, HOUR / 2)]);
    assert_eq!(shorter.lines[1].after.started, Some(at(1)));
    assert_eq!(shorter.lines[1].after.reason, Some(Reason::Expired));
}

#[test]
fn a_lost_node_is_lost_again() {
    let mut world = world();
    let lease = world.request(ask(1, 1, 1, None, 5), Work::plain(5 * HOUR)).expect("taken");
    world.run_until(at(1));
    let node = world.stories()[&lease].places[0].node;
    world.submit(Input::Lost { node, last_seq: 0 });
    world.run_out(at(30));
    let history = History::read(world.log().to_vec()).expect("its own rules");
    let told = compare(&history, &[]);
    assert_eq!(told.lines[0].before.reason, Some(Reason::NodeLost));
    assert_eq!(told.lines[0].before.ended, Some(at(1)));
    assert_eq!(World::open(Policy::default()).stories().len(), 0);
}

#[test]
fn a_controller_that_took_over_takes_over_again() {
    let mut world = world();
    world.request(ask(1, 1, 2, None, 5), Work::plain(3 * HOUR)).expect("taken");
    world.run_until(at(1));
    world.under(Fence { epoch: 1, term: 2 });
    world.submit(Input::Opened { delegate: DELEGATE, policy: Policy::default() });
    world.request(ask(2, 2, 1, None, 1), Work::plain(HOUR)).expect("waits");
    world.run_out(at(30));
    let history = History::read(world.log().to_vec()).expect("its own rules");
    let told = compare(&history, &[Change::Policy(PolicyField::HoldMs, 5_000)]);
    assert_eq!((told.started_in_log, told.reproduced), (2, 2));
    assert_eq!(told.lines[1].after.started, Some(at(3)));
}
