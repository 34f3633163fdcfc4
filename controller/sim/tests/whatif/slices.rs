//! Behaviours J1 and J7: slices of any size beat equal parts, and a gang is whole or nothing, over whole runs.

use std::collections::BTreeMap;

use selion_api::lease::{LeaseRequest, LeaseState};
use selion_api::slice::{MigProfile, MigTable, SliceWant};
use selion_api::{LeaseId, Rate};
use selion_market::{Policy, State};
use selion_sim::random::Random;
use selion_sim::world::{Fleet, HOUR, Keep, Work, World, account};

use crate::made::{KEEP, START_MS, TOKEN, agreed, ask};

const GIB: u64 = 1 << 30;
/// Profile, starts, memory slices, compute slices, instances: what NVML lists for the A100 80GB.
const PROFILES: [(&str, &[u8], u8, u8, u8); 5] = [
    ("1g.10gb", &[0, 1, 2, 3, 4, 5, 6], 1, 1, 7),
    ("2g.20gb", &[0, 2, 4], 2, 2, 3),
    ("3g.40gb", &[0, 4], 4, 3, 2),
    ("4g.40gb", &[0], 4, 4, 1),
    ("7g.80gb", &[0], 8, 7, 1),
];

fn below(random: &mut Random, bound: u64) -> u64 {
    random.word() % bound
}

/// Four GPUs that offer the profiles of these numbers only.
fn pool(offered: &[usize]) -> World {
    let table = |&at: &usize| {
        let (name, starts, size, compute, max) = PROFILES[at];
        MigProfile {
            name: name.into(),
            starts: starts.to_vec(),
            size,
            compute_slices: compute,
            max_instances: max,
            mem_bytes: u64::from(size) * 10 * GIB,
            rate: Rate(u64::from(compute) * TOKEN),
        }
    };
    let mut specs = Fleet::even(4, 1, "A100 80GB").specs();
    for gpu in specs.iter_mut().flat_map(|spec| &mut spec.gpus) {
        gpu.mig = Some(MigTable { mem_slices: 8, compute_slices: 7, profiles: offered.iter().map(table).collect() });
    }
    let mut world = World::keeping(Policy::default(), Keep { log: false, ..KEEP });
    world.add_nodes(specs);
    world.fund(&[account(1)].into());
    world
}

/// Compute slice hours that models got of those they need, over a thousand requests for models of mixed size that are
/// served at once or not at all. Each takes the smallest profile on offer that holds it.
fn served(offered: &[usize], seed: u64) -> u64 {
    let mut world = pool(offered);
    let mut random = Random::new(seed, 0);
    let (mut now_ms, mut sum) = (0, 0);
    for number in 0..1_000_u32 {
        now_ms += below(&mut random, HOUR / 3);
        let needs = [0, 0, 0, 1, 1, 2, 3, 4][random.below(8)];
        let hours = 1 + below(&mut random, 4);
        world.run_until(START_MS.plus(now_ms));
        let Some(profile) = offered.iter().find(|at| **at >= needs) else {
            continue;
        };
        let mut request = LeaseRequest { wait_ms: 0, ..ask(1, 0, 1, None, hours) };
        request.idem.0[..4].copy_from_slice(&(number + 1).to_be_bytes());
        request.members[0].slice = SliceWant::Mig { profile: PROFILES[*profile].0.into() };
        if world.request(request, Work::plain(hours * HOUR)).is_ok() {
            sum += hours * u64::from(PROFILES[needs].3);
        }
    }
    agreed(world.checked());
    sum
}

/// J1: fixed equal slices do not suit mixed models.
#[test]
fn j1_slices_of_many_sizes_serve_more_of_a_mixed_load_than_any_equal_parts() {
    for seed in [1, 2, 3] {
        let variable = served(&[0, 1, 2, 3, 4], seed);
        for (equal, (name, ..)) in PROFILES.iter().enumerate() {
            let equal_parts = served(&[equal], seed);
            assert!(variable > equal_parts, "seed {seed}, {name}: {equal_parts} of {variable}");
        }
    }
}

/// What every lease holds on the nodes, counted apart from the leases themselves.
fn holdings(state: &State) -> BTreeMap<LeaseId, usize> {
    let mut held = BTreeMap::new();
    for (lease, _) in state.nodes.values().flat_map(|node| node.held.keys()) {
        *held.entry(*lease).or_default() += 1;
    }
    held
}

/// J7: all or nothing. Gangs of one to six, some of which lose a node under them.
#[test]
fn j7_a_gang_holds_all_its_members_or_none_until_it_ends() {
    let mut world = World::keeping(Policy::default(), KEEP);
    world.add_fleet(&Fleet::even(4, 2, "A100"));
    world.fund(&(1..=3).map(account).collect());
    let mut random = Random::new(7, 0);
    let mut now_ms = 0;
    for number in 0..120_u8 {
        now_ms += below(&mut random, HOUR / 2);
        world.run_until(START_MS.plus(now_ms));
        let gpus = 1 + random.below(6);
        let hours = 1 + below(&mut random, 3);
        let renter = 1 + random.below(3) as u32;
        world.request(ask(renter, number + 1, gpus, None, hours), Work::plain(hours * HOUR)).expect("taken");
        if number % 30 == 29 {
            let spec = world.state().nodes.values().find_map(|node| node.spec.clone()).expect("a node");
            world.submit(selion_market::Input::Lost { node: spec.node, last_seq: 0 });
            world.submit(selion_market::Input::modelled_link(spec, 0));
        }
    }
    world.run_out(START_MS.plus(1_000 * HOUR));

    agreed(world.checked());
    let mut replayed = World::resume(State::new(), START_MS);
    let (mut whole, mut waited) = (0, 0);
    for entry in world.log() {
        replayed.replay(&entry.stamp, &entry.input);
        let held = holdings(replayed.state());
        for (id, lease) in &replayed.state().leases {
            let (has, wants) = (held.get(id).copied().unwrap_or_default(), lease.request.members.len());
            match lease.state {
                LeaseState::Waiting => {
                    assert_eq!(has, 0, "{id} waits with something held at entry {}", entry.stamp.seq);
                    waited += 1;
                }
                LeaseState::Held | LeaseState::Preparing | LeaseState::Starting => {
                    assert_eq!(has, wants, "{id} at entry {}", entry.stamp.seq);
                    whole += 1;
                }
                // Members of a run that goes on end one by one.
                LeaseState::Active | LeaseState::Ending => assert!(has <= wants),
                LeaseState::Ended => assert_eq!(has, 0),
            }
        }
    }
    assert!(whole > 100 && waited > 100, "{whole} whole, {waited} waiting: the run shows something");
    let all_ended = world.stories().values().all(|story| story.ended.is_some());
    assert!(all_ended, "nobody is left over");
}
