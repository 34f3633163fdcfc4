//! What the index finds is what a look at every node finds, through any changes of nodes.

use alloc::string::{String, ToString};
use alloc::vec;

use proptest::prelude::*;
use selion_api::lease::{LeaseState, OnNodeLoss, Priority};
use selion_api::slice::{GpuSpec, IsolationClass, MigProfile, MigTable, NodeSpec, Sandbox, ShareTerms};
use selion_api::{Account, Address, Amount, GpuId, Hash32, Rate, Reason, SliceWant, Slot};

use super::*;
use crate::engine::Weighting;
use crate::engine::terms::Group;
use crate::engine::view::Shape;
use crate::place::Placed;
use crate::state::{Held, Lease, Member, Node, PoolTerms, Progress};
use crate::tally::Bundle;
use crate::ways::{Kind, RATES};

const RENTER: Account = Account([1; 20]);

fn profile(name: &str, starts: &[u8], size: u8, rate: u64) -> MigProfile {
    let (starts, rate) = (starts.to_vec(), Rate(rate));
    MigProfile { name: name.into(), starts, size, compute_slices: size, max_instances: 7, mem_bytes: 10, rate }
}

fn gpu(node: u8, rank: u8, rate: u64) -> GpuSpec {
    let profiles = vec![profile("1g", &[0, 1, 2, 3], 1, rate), profile("2g", &[0, 2], 2, rate * 2)];
    GpuSpec {
        gpu: GpuId(core::array::from_fn(|at| if at == 0 { rank } else { node })),
        // Every fourth node has GPUs of two models.
        model: if node.is_multiple_of(3) || (rank == 1 && node.is_multiple_of(4)) { "A" } else { "B" }.to_string(),
        mem_bytes: 80,
        work_milli: 1000,
        simulated: true,
        whole: Some(Rate(rate * 4)),
        mig: Some(MigTable { mem_slices: 4, compute_slices: 4, profiles }),
        share: Some(ShareTerms { rate: Rate(rate * 4), max_shares: 3, class: IsolationClass::Capped }),
    }
}

fn node(id: u8, rate: u64) -> Node {
    let spec = NodeSpec {
        node: NodeId([id; 20]),
        provider: Account([2; 20]),
        gpus: (0..2 + id % 3).map(|rank| gpu(id, rank, rate + u64::from(rank % 2))).collect(),
        cpu_milli: 3_000,
        ram_bytes: 100,
        address: "10.0.0.1".into(),
        port_base: 20_000,
        ports: 9,
        sandbox: Sandbox::Namespaces,
        features: selion_api::BoxFeatures::NONE,
        region: String::new(),
        rack: String::new(),
        disk_bytes: 0,
        net_mbps: 0,
    };
    Node {
        provider: Some(spec.provider),
        offer: Some(spec.hash()),
        spec: Some(spec),
        linked: true,
        since: TimeMs(0),
        paused: false,
        reclaimed: BTreeMap::new(),
        last_seq: 0,
        blocked: None,
        rtt_us: None,
        staged: crate::staged::Staged::default(),
        held: BTreeMap::new(),
    }
}

fn pool() -> State {
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
    State { pool: Some(terms), ..State::default() }
}

fn request(want: SliceWant, max_rate: Option<u64>, model: Option<&str>) -> LeaseRequest {
    let member =
        MemberWant { models: model.into_iter().map(Into::into).collect(), ram_bytes: 1, ..MemberWant::of(want) };
    LeaseRequest {
        renter: RENTER,
        idem: Hash32::ZERO,
        members: vec![member],
        min_members: 1,
        min_nodes: 1,
        within: selion_api::lease::Within::Pool,
        max_latency_us: None,
        regions: Vec::new(),
        max_rate: max_rate.map(Rate),
        classes: 0b11_1111,
        needs: selion_api::BoxFeatures::NONE,
        duration_ms: 1,
        wait_ms: 0,
        on_node_loss: OnNodeLoss::End,
        work: Hash32::ZERO,
        datasets: Vec::new(),
        near_data: false,
        priority: Priority::Standard,
        licence: None,
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A node comes, or the one of that number changes its asks.
    Node(u8, u64),
    Block(u8),
    /// The request of that number is placed where it is best.
    Take(usize),
    /// The slot of that number comes free.
    Free(usize),
    /// The lease of that number ends so much later than it would have.
    Longer(usize, u64),
    /// The request of that number came so often.
    Learn(usize, usize),
    /// An entry is made, and mostly time passes.
    Pass(u64),
    /// These datasets are on the node, or (none) it has lost all of them.
    Stage(u8, Vec<u8>),
    /// The operator sets the weighting of that number.
    Weigh(usize),
    /// So much of the shadow price is charged.
    Charge(u16),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1_u8..40, 1_u64..4).prop_map(|(id, rate)| Op::Node(id, rate)),
        1 => (1_u8..40).prop_map(Op::Block),
        9 => (0_usize..21).prop_map(Op::Take),
        5 => (0_usize..50).prop_map(Op::Free),
        2 => (0_usize..50, 1_u64..3_000_000).prop_map(|(at, ms)| Op::Longer(at, ms)),
        1 => (0_usize..21, 1_usize..40).prop_map(|(at, times)| Op::Learn(at, times)),
        2 => prop_oneof![5 => 1_u64..2_000_000, 1 => Just(selion_api::lease::STAGED_MS / 2 + 1)].prop_map(Op::Pass),
        4 => (1_u8..40, prop::collection::vec(0_u8..4, 0..3)).prop_map(|(id, tags)| Op::Stage(id, tags)),
        1 => (0_usize..5).prop_map(Op::Weigh),
        1 => (0_u16..1001).prop_map(Op::Charge),
    ]
}

fn requests() -> Vec<LeaseRequest> {
    let mig = |name: &str| SliceWant::Mig { profile: name.into() };
    let share = |compute_permille, mem_bytes| SliceWant::Share { compute_permille, mem_bytes };
    vec![
        request(SliceWant::Whole, None, None),
        request(SliceWant::Whole, Some(8), Some("A")),
        request(mig("1g"), None, None),
        request(mig("1g"), Some(2), None),
        request(mig("2g"), None, Some("B")),
        request(share(300, 20), None, None),
        request(share(700, 10), Some(9), None),
        request(mig("7g"), None, None),
        gang(&[SliceWant::Whole, share(300, 20), share(300, 20)], 1),
        gang(&[mig("2g"), mig("1g"), SliceWant::Whole, mig("1g")], 2),
        gang(&[SliceWant::Whole, SliceWant::Whole, SliceWant::Whole], 3),
        several(2, request(SliceWant::Whole, None, None)),
        several(3, request(SliceWant::Whole, Some(30), Some("B"))),
        several(2, gang(&[SliceWant::Whole, share(300, 20), SliceWant::Whole], 1)),
        several(4, gang(&[SliceWant::Whole, SliceWant::Whole], 2)),
        data(&[1], false, request(mig("1g"), None, None)),
        data(&[1, 2], false, request(share(300, 20), Some(9), None)),
        data(&[3], true, request(mig("1g"), None, None)),
        data(&[1, 2], true, gang(&[mig("2g"), mig("1g"), SliceWant::Whole], 2)),
        data(&[2, 3], false, gang(&[SliceWant::Whole, share(300, 20), share(300, 20)], 2)),
        data(&[1, 2], false, several(2, request(SliceWant::Whole, None, None))),
    ]
}

/// The same with so many GPUs for each member that wants whole ones.
fn several(gpus: u16, request: LeaseRequest) -> LeaseRequest {
    let mut request = request;
    for want in request.members.iter_mut().filter(|want| want.slice == SliceWant::Whole) {
        want.gpus = gpus;
    }
    request
}

fn tags_of(tags: &[u8]) -> Vec<Hash32> {
    tags.iter().map(|tag| Hash32([*tag; 32])).collect()
}

fn data(tags: &[u8], near_data: bool, request: LeaseRequest) -> LeaseRequest {
    LeaseRequest { datasets: tags_of(tags), near_data, ..request }
}

fn gang(slices: &[SliceWant], min_nodes: u16) -> LeaseRequest {
    let one = request(SliceWant::Whole, None, None);
    let members = slices.iter().map(|slice| MemberWant { slice: slice.clone(), ..one.members[0].clone() }).collect();
    LeaseRequest { members, min_members: min_nodes, min_nodes, duration_ms: 1_000_000, ..one }
}

/// A lease that runs until `ends`, on those nodes.
fn running(request: &LeaseRequest, nodes: &[NodeId], ends: TimeMs) -> Lease {
    let member = |node: &NodeId| Member {
        attempt: 1,
        since: None,
        node: *node,
        provider: Account([2; 20]),
        gpus: vec![GpuId([0; 16])],
        slot: Slot::Whole,
        class: IsolationClass::Whole,
        rate: Rate(1),
        port: 1,
        progress: Progress::Running,
        billable_ms: 0,
        vouched: Amount::ZERO,
        vouched_at: TimeMs(0),
        exit_code: None,
        outputs: None,
        away: 0,
    };
    Lease {
        request: request.clone(),
        signed: true,
        size: Bundle::default(),
        created: TimeMs(0),
        state: LeaseState::Active,
        since: TimeMs(0),
        deadline: Some(ends),
        wait_until: TimeMs(0),
        reason: None,
        nearest: None,
        position: 0,
        attempt: 1,
        members: nodes.iter().map(member).collect(),
        reserved: Amount::ZERO,
        granted: TimeMs(0),
        unpaid: Amount::ZERO,
        active_since: None,
        fixed: Amount::ZERO,
        broken: None,
        requeue: false,
        notice: None,
        past: Vec::new(),
        extended: Vec::new(),
    }
}

/// The best place of each member and the number of GPUs, by looking at every node and then by the index; and so the
/// places of all members, beside what is booked too.
fn agree(state: &mut State, request: &LeaseRequest) -> Option<Vec<Placed>> {
    let places = |state: &State, room, also: &[(NodeId, Held)]| {
        let mut world = World::new(state, request, None, room);
        world.also = also;
        crate::gang::place(&mut world).ok()
    };
    let mut now = None;
    for room in [Room::Empty, Room::Now] {
        let plain = state.clone();
        state.find(request, room);
        for (rank, want) in (0_u16..).zip(&request.members) {
            let look = |state: &State| World::new(state, request, None, room).scan(rank, false, 1);
            let expected = look(&plain);
            if request.datasets.is_empty() {
                let found = state.finder.found(state, room, request, want).expect("it was looked for");
                assert_eq!(found.nodes().next(), expected.best.first().map(|best| best.node));
                let missed = expected.miss.as_ref().map(|miss| miss.nearest.node);
                assert_eq!(found.nearest(), missed, "known without a look at every node");
            }
            let have = look(state);
            assert_eq!((&have.best, have.gpus), (&expected.best, expected.gpus));
            assert_eq!(have.miss, expected.miss);
        }
        now = places(&plain, room, &[]);
        assert_eq!(places(state, room, &[]), now);
        if let Some(placed) = &now {
            let also = crate::booking::taken(request, 1, placed);
            assert_eq!(places(state, room, &also), places(&plain, room, &also));
        }
    }
    now
}

/// Puts the request where it is best, until `ends` after it starts.
fn take(state: &mut State, id: LeaseId, request: &LeaseRequest) -> Vec<(NodeId, LeaseId, u16)> {
    let placed = agree(state, request).unwrap_or_default();
    let nodes: Vec<NodeId> = placed.iter().map(|placed| placed.node).collect();
    let ends = state.now.plus(1 + id.seq % 7 * 300_000);
    state.leases.insert(id, running(request, &nodes, ends));
    state.note_end(id, None);
    let held = crate::booking::taken(request, 1, &placed);
    let ranks: Vec<u16> = placed.iter().map(|placed| placed.rank).collect();
    for (rank, (node, held)) in ranks.iter().zip(held) {
        state.hold(node, id, *rank, Held { beside: [500, 1, 0, 0], ..held });
    }
    nodes.into_iter().zip(ranks).map(|(node, rank)| (node, id, rank)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_what_a_look_at_every_node_finds(ops in prop::collection::vec(op(), 1..80)) {
        let (mut state, requests) = (pool(), requests());
        let mut taken: Vec<(NodeId, LeaseId, u16)> = Vec::new();
        for (seq, op) in (0_u64..).zip(ops) {
            match op {
                Op::Node(id, rate) => {
                    let old = state.nodes.get(&NodeId([id; 20]));
                    let (held, staged) = old.map(|node| (node.held.clone(), node.staged.clone())).unwrap_or_default();
                    state.nodes.insert(NodeId([id; 20]), Node { held, staged, ..node(id, rate) });
                    state.meet(NodeId([id; 20]));
                    state.finder.mark(NodeId([id; 20]));
                }
                Op::Block(id) => state.change_node(NodeId([id; 20]), None, |node| {
                    node.blocked = node.blocked.xor(Some(Reason::NodePaused));
                }),
                Op::Take(at) => taken.extend(take(&mut state, LeaseId { seq, index: 0 }, &requests[at])),
                Op::Free(at) if at < taken.len() => {
                    let (node, id, rank) = taken.swap_remove(at);
                    state.unhold(node, id, rank, 1);
                }
                Op::Longer(at, ms) if at < taken.len() => {
                    let lease = state.leases.get_mut(&taken[at].1).expect("it was made");
                    let before = crate::booking::end_of(&state.policy, lease);
                    lease.deadline = lease.deadline.map(|at| at.plus(ms));
                    state.note_end(taken[at].1, before);
                }
                Op::Learn(at, times) => {
                    let places = crate::gang::place(&mut World::new(&state, &requests[at], None, Room::Empty));
                    for _ in 0..times {
                        state.learn(&requests[at], places.as_deref().unwrap_or(&[]));
                    }
                }
                Op::Stage(id, tags) if tags.is_empty() => state.unstage(NodeId([id; 20])),
                Op::Stage(id, tags) => {
                    state.stage(NodeId([id; 20]), &tags_of(&tags));
                }
                Op::Pass(ms) => {
                    state.now = state.now.plus(ms * (ms % 2));
                    state.next_seq += 1;
                }
                Op::Charge(permille) => {
                    state.policy.shadow_permille = permille;
                    state.finder.forget();
                }
                Op::Weigh(at) => {
                    state.policy.weighting = Weighting::ALL[at];
                    state.reweigh();
                }
                Op::Free(_) | Op::Longer(..) => {}
            }
            for request in requests.iter().skip(seq as usize % 3).step_by(3) {
                agree(&mut state, request);
            }
        }
    }
}

#[test]
fn more_asks_than_there_are_groups_are_looked_for_everywhere() {
    let mut book = Book::default();
    let kind = |rate| Kind { rate: Rate(rate), group: Group::of(1, 1, 1), shape: Shape::Whole(1) };
    for rate in 0..RATES as u64 {
        assert!(book.group(kind(rate * 7 % 4_001)).is_some());
    }
    assert_eq!(book.group(kind(1 << 40)), None);
    assert!(book.offsets.iter().all(|offset| *offset < i32::MAX));
}
