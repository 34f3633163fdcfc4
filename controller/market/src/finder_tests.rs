//! What the index finds is what a look at every node finds, through any changes of nodes.

use alloc::string::{String, ToString};
use alloc::vec;

use proptest::prelude::*;
use selion_api::lease::{OnNodeLoss, Priority};
use selion_api::slice::{GpuSpec, IsolationClass, MigProfile, MigTable, NodeSpec, Sandbox, ShareTerms};
use selion_api::{Account, Address, Amount, GpuId, Hash32, Reason, SliceWant};

use super::*;
use crate::state::{Held, Node, PoolTerms};

const RENTER: Account = Account([1; 20]);

fn profile(name: &str, starts: &[u8], size: u8, rate: u64) -> MigProfile {
    let (starts, rate) = (starts.to_vec(), Rate(rate));
    MigProfile { name: name.into(), starts, size, compute_slices: size, max_instances: 7, mem_bytes: 10, rate }
}

fn gpu(node: u8, rank: u8, rate: u64) -> GpuSpec {
    let profiles = vec![profile("1g", &[0, 1, 2, 3], 1, rate), profile("2g", &[0, 2], 2, rate * 2)];
    GpuSpec {
        gpu: GpuId([node + rank * 100; 16]),
        model: if node.is_multiple_of(3) { "A" } else { "B" }.to_string(),
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
        gpus: vec![gpu(id, 0, rate), gpu(id, 1, rate + 1)],
        cpu_milli: 3_000,
        ram_bytes: 100,
        address: "10.0.0.1".into(),
        port_base: 20_000,
        ports: 9,
        sandbox: Sandbox::Bubblewrap,
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
        since: selion_api::TimeMs(0),
        paused: false,
        reclaimed: BTreeMap::new(),
        last_seq: 0,
        blocked: None,
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
        regions: Vec::new(),
        max_rate: max_rate.map(Rate),
        classes: 0b11_1111,
        duration_ms: 1,
        wait_ms: 0,
        on_node_loss: OnNodeLoss::End,
        work: Hash32::ZERO,
        datasets: Vec::new(),
        priority: Priority::Standard,
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
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1_u8..40, 1_u64..4).prop_map(|(id, rate)| Op::Node(id, rate)),
        1 => (1_u8..40).prop_map(Op::Block),
        9 => (0_usize..8).prop_map(Op::Take),
        5 => (0_usize..50).prop_map(Op::Free),
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
    ]
}

/// The best place and the number of GPUs, by looking at every node and then by the index.
fn agree(state: &mut State, request: &LeaseRequest) -> Option<crate::place::Placed> {
    let look = |state: &State, room| World::new(state, request, None, room).scan(0, false, 1);
    for room in [Room::Empty, Room::Now] {
        let plain = state.clone();
        let want = look(&plain, room);
        state.find(request, room);
        let found = state.finder.found(room, request, &request.members[0]).expect("it was looked for");
        assert_eq!(found.node, want.best.first().map(|best| best.node));
        let have = look(state, room);
        assert_eq!((&have.best, have.gpus), (&want.best, want.gpus));
        assert_eq!(have.miss, want.miss);
    }
    look(state, Room::Now).best.pop()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_what_a_look_at_every_node_finds(ops in prop::collection::vec(op(), 1..80)) {
        let (mut state, requests) = (pool(), requests());
        let mut taken: Vec<(NodeId, LeaseId)> = Vec::new();
        for (seq, op) in (0_u64..).zip(ops) {
            match op {
                Op::Node(id, rate) => {
                    let held = state.nodes.get(&NodeId([id; 20])).map(|node| node.held.clone()).unwrap_or_default();
                    state.nodes.insert(NodeId([id; 20]), Node { held, ..node(id, rate) });
                    state.finder.mark(NodeId([id; 20]));
                }
                Op::Block(id) => state.change_node(NodeId([id; 20]), None, |node| {
                    node.blocked = node.blocked.xor(Some(Reason::NodePaused));
                }),
                Op::Take(at) => {
                    if let Some(placed) = agree(&mut state, &requests[at]) {
                        let id = LeaseId { seq, index: 0 };
                        let held = Held {
                            renter: RENTER,
                            attempt: 1,
                            gpu: placed.gpu,
                            slot: placed.slot,
                            beside: [500, 1, 0, 0],
                            port: placed.port,
                        };
                        state.hold(placed.node, id, 0, held);
                        taken.push((placed.node, id));
                    }
                }
                Op::Free(at) if at < taken.len() => {
                    let (node, id) = taken.swap_remove(at);
                    state.unhold(node, id, 0, 1);
                }
                Op::Free(_) => {}
            }
            for request in &requests {
                agree(&mut state, request);
            }
        }
    }
}

#[test]
fn more_asks_than_there_are_groups_are_looked_for_everywhere() {
    let mut book = Book::default();
    for rate in 0..RATES as u64 {
        assert!(book.group(Rate(rate * 7 % 4_001)).is_some());
    }
    assert_eq!(book.group(Rate(1 << 40)), None);
    assert!(book.offsets.iter().all(|offset| *offset < i32::MAX));
}
