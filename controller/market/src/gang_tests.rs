//! The search for a gang against all ways there are, and against the search that it replaced.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;
use selion_api::lease::{OnNodeLoss, Priority};
use selion_api::slice::{GpuSpec, IsolationClass, MigProfile, MigTable, NodeSpec, Sandbox, ShareTerms};
use selion_api::{Account, Address, Amount, GpuId, Hash32, LeaseId, LeaseRequest, NodeId, Rate, Slot, TimeMs};

use super::*;
use crate::place::Room;
use crate::state::{Held, Node, PoolTerms, State};

fn profile(name: &str, starts: &[u8], size: u8, rate: u64) -> MigProfile {
    MigProfile {
        name: name.into(),
        starts: starts.to_vec(),
        size,
        compute_slices: size,
        max_instances: 7,
        mem_bytes: 10,
        rate: Rate(rate * u64::from(size)),
    }
}

/// Starts that are not multiples of the size: what is taken first decides how many fit.
fn gpu(node: u8, rank: u8, rate: u64) -> GpuSpec {
    let profile = |name: &str, starts: &[u8], size: u8| profile(name, starts, size, rate);
    GpuSpec {
        gpu: GpuId([node + rank * 100; 16]),
        model: "A".into(),
        mem_bytes: 80,
        work_milli: 1000,
        simulated: true,
        whole: Some(Rate(rate * 4)),
        mig: Some(MigTable {
            mem_slices: 4,
            compute_slices: 4,
            profiles: vec![profile("1g", &[3, 1, 0, 2], 1), profile("2g", &[1, 0, 2], 2), profile("3g", &[1], 3)],
        }),
        share: Some(ShareTerms { rate: Rate(rate * 4), max_shares: 3, class: IsolationClass::Capped }),
    }
}

/// A machine by its number of GPUs, ask, rack and the slots that are taken on its first GPU.
type Kind = (u8, u64, u8, Vec<u8>);

fn node(id: u8, (gpus, rate, rack, taken): &Kind) -> Node {
    let spec = NodeSpec {
        node: NodeId([id; 20]),
        provider: Account([2; 20]),
        gpus: (0..*gpus).map(|rank| gpu(id, rank, *rate)).collect(),
        cpu_milli: 3_000,
        ram_bytes: 100,
        address: "10.0.0.1".into(),
        port_base: 20_000,
        ports: 5,
        sandbox: Sandbox::Namespaces,
        features: selion_api::BoxFeatures::NONE,
        region: "eu".into(),
        rack: ["", "a", "b"].get(usize::from(*rack)).copied().unwrap_or_default().into(),
        disk_bytes: 0,
        net_mbps: 0,
    };
    let held = (0_u16..).zip(taken).map(|(rank, start)| {
        let lease = LeaseId { seq: 1, index: id.into() };
        let slot = Slot::Mig { profile: "1g".into(), start: *start, size: 1 };
        let port = 20_000 + rank;
        let gpus = vec![GpuId([id; 16])];
        (
            (lease, rank),
            Held { renter: Account([1; 20]), attempt: 1, gpus, slot, beside: [500, 1, 0, 0], port, licence: None },
        )
    });
    Node {
        provider: Some(spec.provider),
        offer: Some(spec.hash()),
        held: held.collect(),
        spec: Some(spec),
        linked: true,
        since: TimeMs(0),
        paused: false,
        last_seq: 0,
        blocked: None,
        rtt_us: None,
        staged: crate::staged::Staged::default(),
        reclaimed: alloc::collections::BTreeMap::new(),
    }
}

fn pool(kinds: &[Kind]) -> State {
    let terms = PoolTerms {
        token: Address([1; 20]),
        vault: Address([2; 20]),
        fee_bps: 0,
        allow_simulated: true,
        allow_unsandboxed: true,
        finality_depth: 0,
        min_stake: Amount(0),
        authority: Account([3; 20]),
        epoch: 1,
        anchored: 0,
    };
    let nodes = (1..).zip(kinds).map(|(id, kind)| (NodeId([id; 20]), node(id, kind)));
    State { pool: Some(terms), nodes: nodes.collect(), ..State::new() }
}

fn request(wants: Vec<MemberWant>, within: Within, spread: u16) -> LeaseRequest {
    let members = u16::try_from(wants.len()).unwrap_or(u16::MAX);
    LeaseRequest {
        renter: Account([1; 20]),
        idem: Hash32::ZERO,
        members: wants,
        min_members: members,
        min_nodes: if within == Within::Node { 1 } else { spread.min(members) },
        within,
        max_latency_us: None,
        regions: vec![],
        max_rate: None,
        classes: 0b11_1111,
        needs: selion_api::BoxFeatures::NONE,
        duration_ms: 1,
        wait_ms: 0,
        on_node_loss: OnNodeLoss::End,
        work: Hash32::ZERO,
        datasets: vec![],
        near_data: false,
        priority: Priority::Standard,
        licence: None,
    }
}

fn world<'a>(state: &'a State, request: &'a LeaseRequest) -> World<'a> {
    World::new(state, request, None, Room::Now)
}

/// What the request asks for, by hand.
fn is_good(world: &World<'_>) -> bool {
    let spec = |placed: &Placed| world.state.nodes.get(&placed.node).and_then(|node| node.spec.as_ref());
    let domain = |placed: &Placed| {
        let spec = spec(placed)?;
        match world.request.within {
            Within::Pool => Some("".into()),
            Within::Region => Some(spec.region.clone()).filter(|region| !region.is_empty()),
            Within::Rack => Some(spec.rack.clone()).filter(|rack| !rack.is_empty() && !spec.region.is_empty()),
            Within::Node => Some(spec.node.to_string()),
        }
    };
    let domains: BTreeSet<Option<alloc::string::String>> = world.placed.iter().map(domain).collect();
    let nodes: BTreeSet<NodeId> = world.placed.iter().map(|placed| placed.node).collect();
    domains.len() == 1 && !domains.contains(&None) && nodes.len() >= usize::from(world.request.min_nodes)
}

/// Every way there is, rank by rank. True if one is good; `None` if there are too many to look at.
fn any_way(world: &mut World<'_>, left: &mut u32) -> Option<bool> {
    let rank = world.placed.len();
    if rank == world.request.members.len() {
        return Some(is_good(world));
    }
    *left = left.checked_sub(1)?;
    let choices = world.scan(u16::try_from(rank).unwrap_or(u16::MAX), false, usize::MAX).best;
    for choice in choices {
        world.placed.push(choice);
        let found = any_way(world, left);
        world.placed.pop();
        if found != Some(false) {
            return found;
        }
    }
    Some(false)
}

/// The search that was here before: four greedy ways, then each of the first eight members at its second, third and
/// fourth best place. Tells how many scans it took.
fn before(world: &mut World<'_>, order: &[u16]) -> (usize, Option<Vec<Placed>>) {
    let mut scans = 0;
    let base = [(false, false), (false, true), (true, false), (true, true)].map(|way| (way, None));
    let twists = (0..order.len().min(8)).flat_map(|at| (1..=3).map(move |choice| ((false, true), Some((at, choice)))));
    for ((reversed, early), twist) in base.into_iter().chain(twists) {
        if early && twist.is_none() && world.request.min_nodes < 2 {
            continue;
        }
        world.placed.clear();
        for at in 0..order.len() {
            let from = if reversed { order.len() - 1 - at } else { at };
            let Some(rank) = order.get(from).copied() else { break };
            let nodes: BTreeSet<NodeId> = world.placed.iter().map(|placed| placed.node).collect();
            let missing = usize::from(world.request.min_nodes).saturating_sub(nodes.len());
            let (left, choice) = (order.len() - at, twist.filter(|(to, _)| *to == at).map_or(0, |(_, choice)| choice));
            let fresh = missing > 0 && (early || missing >= left);
            let mut scan = world.scan(rank, fresh, choice + 1);
            scans += 1;
            if scan.best.is_empty() && fresh && missing < left {
                scan = world.scan(rank, false, choice + 1);
                scans += 1;
            }
            let Some(placed) = scan.best.into_iter().nth(choice) else { break };
            world.placed.push(placed);
        }
        if world.placed.len() == order.len() {
            return (scans, Some(core::mem::take(&mut world.placed)));
        }
    }
    world.placed.clear();
    (scans, None)
}

/// As the present search goes through them.
fn hardest_first(world: &World<'_>) -> Option<Vec<u16>> {
    let ranks = 0..world.request.min_members;
    let mut order: Vec<_> =
        ranks.map(|rank| (world.scan(rank, false, 1).gpus, Reverse(size(world, rank)), rank)).collect();
    order.sort_unstable();
    order.iter().all(|(gpus, ..)| *gpus > 0).then(|| order.into_iter().map(|(.., rank)| rank).collect())
}

fn kinds() -> impl Strategy<Value = Vec<Kind>> {
    let taken = prop::sample::subsequence(vec![0_u8, 1, 2, 3], 0..3);
    prop::collection::vec((1_u8..3, 1_u64..4, 0_u8..3, taken), 1..5)
}

fn want() -> impl Strategy<Value = MemberWant> {
    let slice = prop_oneof![
        2 => Just(SliceWant::Whole),
        5 => prop::sample::select(vec!["1g", "2g", "3g"]).prop_map(|name| SliceWant::Mig { profile: name.into() }),
        2 => prop::sample::select(vec![300, 500]).prop_map(|compute_permille| SliceWant::Share { compute_permille, mem_bytes: 10 }),
    ];
    (slice, prop::sample::select(vec![500_u32, 1_500]), prop::option::weighted(0.2, 1_u8..4)).prop_map(
        |(slice, cpu_milli, node)| MemberWant {
            cpu_milli,
            ram_bytes: 1,
            node: node.map(|id| NodeId([id; 20])),
            ..MemberWant::of(slice)
        },
    )
}

fn wants() -> impl Strategy<Value = Vec<MemberWant>> {
    prop_oneof![
        2 => prop::collection::vec(want(), 1..5),
        1 => (want(), 1_usize..8).prop_map(|(want, members)| vec![want; members]),
    ]
}

fn within() -> impl Strategy<Value = Within> {
    prop::sample::select(vec![Within::Pool, Within::Pool, Within::Region, Within::Rack, Within::Node])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_found_is_a_way_and_what_is_proved_has_none(
        kinds in kinds(), wants in wants(), within in within(), spread in 1_u16..4,
    ) {
        let (state, request) = (pool(&kinds), request(wants, within, spread));
        let equal = request.members.iter().all(|want| Some(want) == request.members.first());
        let told = place(&mut world(&state, &request));
        let exists = any_way(&mut world(&state, &request), &mut 3_000);
        match told {
            Ok(placed) => {
                let mut world = world(&state, &request);
                for placed in placed {
                    let all = world.scan(placed.rank, false, usize::MAX).best;
                    let here = |way: &Placed| (&way.gpus, &way.slot) == (&placed.gpus, &placed.slot);
                    prop_assert!(all.iter().any(here), "each fits beside those before it: {:?}", placed);
                    world.placed.push(placed);
                }
                prop_assert!(is_good(&world));
                prop_assert_ne!(exists, Some(false));
            }
            Err(none) => {
                prop_assert!(!none.proved || exists != Some(true), "{:?}", none);
                prop_assert!(!equal || (none.proved && exists != Some(true)), "equal members are placed by counting: {:?}", none);
            }
        }
    }

    #[test]
    fn the_best_of_the_domains_is_taken(kinds in kinds(), wants in wants(), within in within()) {
        let (state, request) = (pool(&kinds), request(wants, within, 1));
        let told = place(&mut world(&state, &request)).ok();
        let inside_each = domain::all(&world(&state, &request)).filter_map(|nodes| {
            let among = (within != Within::Pool).then_some(nodes);
            inside(&mut World { among, ..world(&state, &request) }, u128::MAX).ok().flatten()
        });
        let best = inside_each.min_by_key(|placed| sum_of(placed)); // the first of equals
        prop_assert_eq!(told, best);
    }

    /// With no more scans than the search before took, what that one found is found, and the same.
    #[test]
    fn what_was_found_before_is_found_with_no_more_scans(
        kinds in kinds(), wants in prop::collection::vec(want(), 2..6), spread in 1_u16..4,
    ) {
        let (state, request) = (pool(&kinds), request(wants, Within::Pool, spread));
        let Some(order) = hardest_first(&world(&state, &request)) else { return Ok(()) };
        let (scans, Some(found)) = before(&mut world(&state, &request), &order) else { return Ok(()) };
        prop_assert!(scans <= most_searched(order.len(), spread > 1));
        let mut world = world(&state, &request);
        let mut search = Search::new(&mut world, &order, scans);
        let placed = ways(false, spread > 1).any(|way| search.greedy(way)) || matches!(search.waves(), Told::Placed);
        prop_assert!(placed);
        prop_assert_eq!(&world.placed, &found);
    }

    #[test]
    fn members_that_are_not_needed_change_nothing_for_those_that_are(
        kinds in kinds(), wants in wants(), within in within(), optional in 1_usize..4,
    ) {
        let (state, whole) = (pool(&kinds), request(wants, within, 1));
        let needs = whole.members.len().saturating_sub(optional).max(1);
        let part = LeaseRequest { min_members: u16::try_from(needs).unwrap_or(1), ..whole.clone() };
        let alone = LeaseRequest { members: part.members.iter().take(needs).cloned().collect(), ..part.clone() };
        let told = place(&mut world(&state, &part));
        prop_assert_eq!(&told, &place(&mut world(&state, &alone)));
        if let Ok(placed) = told {
            let grown = grow(World { placed: placed.clone(), ..world(&state, &part) });
            prop_assert_eq!(grown.get(..needs), Some(placed.as_slice()));
            prop_assert!((0..).zip(&grown).all(|(rank, placed)| placed.rank == rank));
            let mut world = World { placed: grown, ..world(&state, &part) };
            prop_assert!(is_good(&world));
            // The next one fits nowhere in the domain.
            let next = u16::try_from(world.placed.len()).unwrap_or(u16::MAX);
            for choice in world.scan(next, false, usize::MAX).best {
                world.placed.push(choice);
                prop_assert!(!is_good(&world));
                world.placed.pop();
            }
        }
    }
}

#[test]
fn equal_members_fit_though_each_alone_would_rather_stand_between_them() {
    // A place in the middle keeps the small profiles at both ends, and takes the room of two.
    let small = |name: &str| MigProfile { name: name.into(), starts: vec![0, 3], size: 1, ..profile("1g", &[], 1, 1) };
    let profiles = vec![profile("2g", &[0, 1, 2], 2, 1), small("1g"), small("1g+gfx"), small("1g+net")];
    let mut state = pool(&[(1, 1, 1, vec![])]);
    for node in state.nodes.values_mut() {
        for gpu in node.spec.iter_mut().flat_map(|spec| &mut spec.gpus) {
            gpu.mig = Some(MigTable { mem_slices: 4, compute_slices: 4, profiles: profiles.clone() });
        }
    }
    let want = MemberWant { cpu_milli: 1, ram_bytes: 1, ..MemberWant::of(SliceWant::Mig { profile: "2g".into() }) };
    let starts = |members| -> Vec<Slot> {
        let request = request(vec![want.clone(); members], Within::Pool, 1);
        let placed = place(&mut world(&state, &request)).unwrap_or_default();
        placed.into_iter().map(|placed| placed.slot).collect()
    };
    let at = |start| Slot::Mig { profile: "2g".into(), start, size: 2 };
    assert_eq!(starts(1), [at(1)]);
    assert_eq!(starts(2), [at(0), at(2)]);
}

#[test]
fn the_search_ends_at_its_bound_and_says_that_nothing_is_proved() {
    // Ten whole GPUs and eleven members of which each wants something else.
    let state = pool(&vec![(2, 1, 1, vec![]); 5]);
    let want = |cpu_milli| MemberWant { cpu_milli, ram_bytes: 1, ..MemberWant::of(SliceWant::Whole) };
    let request = request((1..=11).map(want).collect(), Within::Pool, 1);
    let none = place(&mut world(&state, &request)).expect_err("ten GPUs");
    assert!(!none.proved);
    assert_eq!(none.reason, Reason::GangIncomplete);
}

#[test]
fn a_small_search_that_tried_everything_says_so() {
    let state = pool(&[(1, 1, 1, vec![]), (1, 1, 1, vec![])]);
    let want = |cpu_milli| MemberWant { cpu_milli, ram_bytes: 1, ..MemberWant::of(SliceWant::Whole) };
    let request = request((1..=3).map(want).collect(), Within::Pool, 1);
    assert!(place(&mut world(&state, &request)).expect_err("two GPUs").proved);
}
