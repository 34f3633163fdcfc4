use selion_api::agent::Fence;
use selion_api::{Address, Amount, Reason};
use selion_market::{Input, Policy};
use selion_sim::Weighting;
use selion_sim::from_log::{Asked, Asks, Change, Comparison, History, NoSuch, PolicyChange, PolicyField, Scale};
use selion_sim::world::{DELEGATE, Fleet, HOUR, Work, World, account, node_id};

use crate::made::{KEEP, TOKEN, agreed, ask, at, history, in_groups, made, world};

/// A comparison with changes that the log has something for.
fn compare(history: &History, list: &[Change]) -> Comparison {
    let told = selion_sim::from_log::compare(history, list, true).expect("the log has it");
    agreed(told.checked.as_ref());
    told
}

fn policy_time(field: PolicyField, ms: u64) -> Change {
    Change::Policy(PolicyChange::Time(field, ms))
}

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
    let cheaper = Change::Price(Asks::Of(Address(node_id(2).0)), Scale { permille: 500 });
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
    let mut world = World::keeping(Policy::default(), KEEP);
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
    let history = history(&world);
    let told = compare(&history, &[Change::Policy(PolicyChange::Weight(account(1), 1_000))]);
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
    let told = compare(&made.history, &[policy_time(PolicyField::PrepareMs, 30_000)]);
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
    world.submit(Input::Release { renter: account(2), lease, said: None });
    world.run_out(at(30));
    let history = history(&world);
    let told = compare(&history, &[]);
    assert_eq!(told.lines[1].before.reason, Some(Reason::Released));
    assert_eq!(told.lines[1].before.ended, Some(at(2)));
    let shorter = compare(&history, &[Change::Request(told.lines[0].entry, Asked::Duration(HOUR / 2))]);
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
    let history = history(&world);
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
    let history = history(&world);
    let told = compare(&history, &[policy_time(PolicyField::HoldMs, 5_000)]);
    assert_eq!((told.started_in_log, told.reproduced), (2, 2));
    assert_eq!(told.lines[1].after.started, Some(at(3)));
}

/// Eight equal idle nodes and one lease of a GPU on each in turn: the market fills them by their ids, chance does not.
#[test]
fn another_weighting_places_the_leases_elsewhere() {
    let mut world = World::keeping(Policy::default(), KEEP);
    world.add_fleet(&Fleet::even(8, 1, "A100"));
    world.fund(&(1..=3).map(account).collect());
    for number in 1..=6 {
        world.request(ask(1, number, 1, None, 5), Work::plain(5 * HOUR)).expect("taken");
    }
    world.run_out(at(30));
    let history = history(&world);
    for weighting in Weighting::ALL {
        let told = compare(&history, &[Change::Policy(PolicyChange::Weighting(weighting))]);
        assert_eq!((told.reproduced, told.after.started), (6, 6), "{weighting}");
        let moved = told.lines.iter().filter(|line| line.before.nodes != line.after.nodes).count();
        assert_eq!(moved > 0, weighting == Weighting::Random, "{weighting}: {moved} moved");
    }
}

/// Node 2 by its model, its provider, and by nothing that the log has.
#[test]
fn asks_are_changed_by_model_and_by_provider_and_never_of_nobody() {
    let made = made();
    let half = Scale { permille: 500 };
    let cost = |asks| compare(&made.history, &[Change::Price(asks, half)]).after.cost;
    let everybody = cost(Asks::All);
    assert_eq!([cost(Asks::Model("A100".into())), cost(Asks::Of(Address([0x41; 20])))], [everybody; 2]);
    for (asks, says) in [
        (Asks::Model("A10".into()), "`A10`, or has such GPUs; the log has the models A100"),
        (Asks::Of(Address([9; 20])), "no node of this log is or belongs to 0x0909"),
    ] {
        let error =
            selion_sim::from_log::compare(&made.history, &[Change::Price(asks, half)], false).expect_err("nobody's");
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// Somebody else holds a GPU until 2 h. Then `lab` (renter 1, who also holds the other one) and `firm`
/// (renter 2, who holds nothing) both want it: it is the firm's turn, unless the lab is guaranteed all of the pool; then
/// who holds the GPU is stopped for it.
#[test]
fn a_quota_and_a_group_change_who_is_served_first() {
    let history = in_groups();
    let waits = |list: &[Change]| {
        let told = compare(&history, list);
        [3, 4].map(|number| told.lines[number].after.waited_ms / HOUR)
    };
    assert_eq!(waits(&[]), [3, 2], "lab, firm");
    let quota = Change::Policy(PolicyChange::Quota("lab".into(), 1_000));
    assert_eq!(waits(&[quota]), [0, 2], "within its quota the lab gets its room back at once");
    let heavy = Change::Policy(PolicyChange::GroupWeight("lab".into(), 1_000));
    assert_eq!(waits(&[heavy]), [3, 2], "nothing held is less than anything, whatever the weight");
    let together = [
        Change::Policy(PolicyChange::Seat(account(2), "lab".into())),
        Change::Policy(PolicyChange::Quota("lab".into(), 1_000)),
    ];
    assert_eq!(
        waits(&together),
        [1, 0],
        "a quota does not tell between members of one group: who holds nothing is first"
    );
}

#[test]
fn a_change_of_what_the_log_does_not_have_is_named() {
    let history = in_groups();
    let error =
        |change| selion_sim::from_log::compare(&history, &[Change::Policy(change)], false).expect_err("not there");
    let told = error(PolicyChange::Quota("la".into(), 100)).to_string();
    assert_eq!(told, "no account is in the group `la` or below it; the groups with accounts are firm, lab/vision");
    assert_eq!(error(PolicyChange::Weight(account(99), 2)), NoSuch::Account { account: account(99) });
    let request = selion_sim::from_log::compare(&history, &[Change::Request(1, Asked::AnyNode)], false);
    assert_eq!(request.expect_err("entry 1 opens the log"), NoSuch::Request { entry: 1 });
}
