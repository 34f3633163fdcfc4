//! A small log, made by a pool whose agents are modelled.

use std::collections::BTreeSet;

use selion_api::chain::ChainEvent;
use selion_api::lease::{OnNodeLoss, Priority};
use selion_api::{Account, Hash32, LeaseId, LeaseRequest, MemberWant, Rate, SliceWant, TimeMs};
use selion_market::{Group, Policy, Seat};
use selion_sim::from_log::History;
use selion_sim::world::{Checked, Fleet, HOUR, Keep, START, Work, World, account};

/// One token.
pub const TOKEN: u64 = 1_000_000;

/// When made pools open.
pub const START_MS: TimeMs = START;

pub fn at(hours: u64) -> TimeMs {
    START.plus(hours * HOUR)
}

/// Made pools keep their log, and are asked about at every entry.
pub const KEEP: Keep = Keep { log: true, opinion: true };

/// The second opinion was asked, and agreed.
#[track_caller]
pub fn agreed(checked: Option<&Checked>) {
    let checked = checked.expect("it was asked");
    assert!(checked.entries > 0, "about something");
    assert_eq!((checked.faults, checked.findings.as_slice()), (0, &[][..]));
}

/// The log of a made pool.
#[track_caller]
pub fn history(world: &World) -> History {
    agreed(world.checked());
    History::read(world.log().to_vec()).expect("its own rules")
}

/// Asks for `gpus` whole GPUs at up to `max_rate` each.
pub fn ask(renter: u32, number: u8, gpus: usize, max_rate: Option<u64>, duration_h: u64) -> LeaseRequest {
    let want = MemberWant { cpu_milli: 500, ram_bytes: 1 << 30, ..MemberWant::of(SliceWant::Whole) };
    LeaseRequest {
        renter: account(renter),
        idem: Hash32([number; 32]),
        members: vec![want; gpus],
        min_members: u16::try_from(gpus).expect("few GPUs"),
        min_nodes: 1,
        within: selion_api::lease::Within::Pool,
        max_latency_us: None,
        regions: Vec::new(),
        max_rate: max_rate.map(Rate),
        classes: 0b11_1111,
        needs: selion_api::BoxFeatures::NONE,
        duration_ms: duration_h * HOUR,
        wait_ms: 48 * HOUR,
        on_node_loss: OnNodeLoss::End,
        work: Hash32([7; 32]),
        datasets: Vec::new(),
        near_data: false,
        priority: Priority::Standard,
        licence: None,
    }
}

/// Two nodes with one GPU each: node 1 asks 1.00, node 2 asks 2.00 an hour. At 0 h `first` takes node 1 for 3 h; at
/// 1 h `second`, which pays no more than 1.90, asks for 1 h and waits for it; at 2 h `third`, which pays anything, asks
/// for 2 h.
/// `second` runs on node 1 from 3 to 4 h; `third` on node 2 from 2 to 4 h.
pub struct Made {
    pub history: History,
    pub leases: [LeaseId; 3],
}

pub fn made() -> Made {
    let mut world = world();
    let mut leases = Vec::new();
    for (renter, hours, max_rate, lasts_h) in [(1, 0, None, 3), (2, 1, Some(TOKEN * 19 / 10), 1), (3, 2, None, 2)] {
        world.run_until(at(hours));
        let request = ask(renter, renter as u8, 1, max_rate, 10);
        let work = Work { prepare_ms: 60_000, ..Work::plain(lasts_h * HOUR) };
        leases.push(world.request(request, work).expect("taken"));
    }
    world.run_out(at(20));
    let history = history(&world);
    Made { history, leases: leases.try_into().expect("three") }
}

/// Two one-GPU nodes, the second at twice the price, and renters 1 to 3 with money.
pub fn world() -> World {
    let mut world = World::keeping(Policy::default(), KEEP);
    world.add_fleet(&Fleet { rates: vec![Rate(TOKEN), Rate(2 * TOKEN)], ..Fleet::even(2, 1, "A100") });
    world.fund(&(1..=3).map(account).collect::<BTreeSet<Account>>());
    world
}

/// Two GPUs. Renter 1 (in `lab/vision`) holds one for 40 h, renter 3 the other until 1 h, and again in line until he is
/// served: he asked first and is booked. From 0 h on renter 1 and then renter 2 (in `firm`) want one for 1 h as well.
pub fn in_groups() -> History {
    let group = |path: &str| Group { path: path.into(), weight: 1, quota_permille: 0 };
    let seat = |number, path: &str| Seat { account: account(number), group: path.into(), weight: 1 };
    let policy = Policy {
        groups: ["firm", "lab", "lab/vision"].map(group).into(),
        accounts: vec![seat(1, "lab/vision"), seat(2, "firm")],
        ..Policy::default()
    };
    let mut world = World::keeping(policy, KEEP);
    world.add_fleet(&Fleet::even(2, 1, "A100"));
    world.fund(&(1..=3).map(account).collect());
    for (number, renter, hours) in [(1, 1, 40), (2, 3, 1), (3, 3, 1), (4, 1, 1), (5, 2, 1)] {
        world.request(ask(renter, number, 1, None, hours), Work::plain(hours * HOUR)).expect("taken");
    }
    world.run_out(at(60));
    history(&world)
}

/// Four GPUs on a node. Renter 1 holds three for 10 h; renter 2 wants all four and is booked; renter 3 wants one for
/// 20 h, which would make renter 2 wait longer.
pub fn kept() -> (History, LeaseId) {
    let mut world = World::keeping(Policy::default(), KEEP);
    world.add_fleet(&Fleet::even(1, 4, "A100"));
    world.fund(&(1..=3).map(account).collect());
    let mut last = LeaseId { seq: 0, index: 0 };
    for (number, gpus, hours) in [(1, 3, 10), (2, 4, 1), (3, 1, 20)] {
        let request = ask(number.into(), number, gpus, None, hours);
        last = world.request(request, Work::plain(hours * HOUR)).expect("taken");
    }
    world.run_out(at(60));
    (history(&world), last)
}

#[test]
fn a_log_is_read_only_if_these_rules_wrote_it() {
    let made = made();
    let mut entries = made.history.entries().to_vec();
    let seq = made.leases[1].seq;
    entries[seq as usize].effects.pop();
    let error = History::read(entries).expect_err("it differs");
    assert!(error.to_string().starts_with(&format!("at entry {seq} this release's rules")), "{error}");
    assert_eq!(History::read(Vec::new()).expect_err("empty").to_string(), "the log has no entries");
}

#[test]
fn chain_facts_stand_in_the_made_log() {
    let made = made();
    let blocks = made.history.entries().iter().filter_map(|entry| match &entry.input {
        selion_market::Input::Block(block) => Some(&block.events),
        _ => None,
    });
    assert!(blocks.flatten().any(|event| matches!(event, ChainEvent::Deposited { .. })));
}
