//! Whatever happens, in whatever order: the invariants hold after every step (`Pool::enter` checks them), a replay of
//! the log gives the same bytes, and nothing panics.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use selion_api::agent::{Fence, MemberEvent, Report};
use selion_api::chain::ChainEvent;
use selion_api::lease::{LeaseState, OnNodeLoss, Priority, Within};
use selion_api::{Account, Address, Amount, Hash32, LeaseId, Licence, NodeId, Rate, Reason, SliceWant, Slot, TimeMs};
use selion_market::engine::Weighting;
use selion_market::{Effect, Input, Policy, State, step};

use crate::pool::{
    DELEGATE, GIB, HOUR, Pool, TOKEN, a100, ask, gpu_id, group, mig, node_id, provider, renter, seat, share, spec,
};

/// One thing that the world does.
#[derive(Clone, Debug)]
enum Op {
    Ask {
        who: u8,
        slices: Vec<SliceWant>,
        spread: bool,
        patient: bool,
        loss: OnNodeLoss,
        max: Option<u64>,
        key: u8,
        class: usize,
        within: Within,
        optional: u16,
        /// Of those members that want whole ones.
        gpus: u16,
        /// Datasets, and whether to be near them.
        data: (Vec<u8>, bool),
        max_latency_us: Option<u32>,
        licensed: bool,
    },
    /// Seats of renter `who`, for so long.
    Licence {
        who: u8,
        seats: u32,
        lasts: u64,
    },
    Measured(u8, u32),
    Release(usize),
    /// The next thing that an honest agent would say of a member.
    Honest {
        lease: usize,
        rank: u16,
        meter: u64,
    },
    /// Anything about a member.
    Said {
        lease: usize,
        rank: u16,
        event: MemberEvent,
        meter: u64,
        twist: u8,
    },
    Lost(u8),
    Link(u8),
    Pause(u8, bool),
    /// The node, or its first GPU.
    Reclaim(u8, bool, u64),
    Pass(u64),
    Chain(ChainEvent),
    /// With one of the policies.
    Reopen(u8),
    Continue,
}

fn slice() -> impl Strategy<Value = SliceWant> {
    prop_oneof![
        1 => Just(SliceWant::Whole),
        3 => prop::sample::select(vec!["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "nonsense"]).prop_map(mig),
        2 => (0_u16..1100, 0_u64..90).prop_map(|(compute, gib)| share(compute, gib)),
    ]
}

fn within() -> impl Strategy<Value = Within> {
    prop_oneof![3 => Just(Within::Pool), 1 => Just(Within::Region), 1 => Just(Within::Rack), 1 => Just(Within::Node)]
}

fn event() -> impl Strategy<Value = MemberEvent> {
    prop_oneof![
        Just(MemberEvent::Accepted),
        Just(MemberEvent::Ready),
        Just(MemberEvent::Running),
        Just(MemberEvent::Metered),
        (-2..3).prop_map(|code| MemberEvent::Exited { code, outputs: None }),
        Just(MemberEvent::Stopped { outputs: None }),
        prop::sample::select(Reason::ALL.to_vec()).prop_map(|reason| MemberEvent::Failed { reason }),
    ]
}

fn chain() -> impl Strategy<Value = ChainEvent> {
    let who = 1_u8..4;
    let sum = prop_oneof![0_u64..20 * TOKEN, Just(u64::MAX)];
    (0_u8..10, who, 1_u8..4, sum).prop_map(|(kind, who, node, sum)| {
        let (renter, amount, until) = (renter(who), Amount(sum), TimeMs(sum.saturating_mul(1000)));
        match kind {
            // What was ever deposited is a sum of 64 bits that stops at its end: a thousand deposits of a run stay below.
            0 | 1 => ChainEvent::Deposited { renter, amount: Amount(sum.min(u64::MAX >> 10)) },
            2 => ChainEvent::Thawed { renter, amount, ready: until },
            3 => ChainEvent::Withdrawn { renter, amount },
            4 => ChainEvent::Claimed {
                provider: provider(node),
                renter,
                cumulative: amount,
                paid: amount,
                key: Some(DELEGATE),
            },
            5 => ChainEvent::KeyGranted { renter, key: DELEGATE, cap: amount, until },
            6 => ChainEvent::KeyRevoked { renter, key: DELEGATE, dead_from: until },
            7 => ChainEvent::OfferClosed { node: node_id(node) },
            8 => ChainEvent::NodeRetired { node: node_id(node) },
            _ => ChainEvent::AuthorityChanged { epoch: 2, authority: renter, owner: renter },
        }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let ask = (
        1_u8..4,
        prop::collection::vec(slice(), 1..4),
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(vec![OnNodeLoss::End, OnNodeLoss::Requeue, OnNodeLoss::Repair, OnNodeLoss::Repair]),
        prop::option::of(50_000..3 * TOKEN),
        0_u8..20,
        0_usize..6,
        (
            within(),
            0_u16..3,
            1_u16..5,
            (prop::collection::vec(0_u8..4, 0..3), any::<bool>()),
            prop::option::weighted(0.2, 1_u32..2_000),
            any::<bool>(),
        ),
    );
    prop_oneof![
        8 => ask.prop_map(|(who, slices, spread, patient, loss, max, key, class, (within, optional, gpus, data, max_latency_us, licensed))| Op::Ask {
            who, slices, spread, patient, loss, max, key, class, within, optional, gpus, data, max_latency_us, licensed,
        }),
        2 => licence(),
        3 => (0_u8..4, 1_u32..1_500).prop_map(|(node, rtt_us)| Op::Measured(node, rtt_us)),
        2 => any::<usize>().prop_map(Op::Release),
        24 => (any::<usize>(), 0_u16..3, 0..2 * HOUR).prop_map(|(lease, rank, meter)| Op::Honest { lease, rank, meter }),
        6 => (any::<usize>(), 0_u16..4, event(), any::<u64>(), 0_u8..12)
            .prop_map(|(lease, rank, event, meter, twist)| Op::Said { lease, rank, event, meter, twist }),
        1 => (1_u8..4).prop_map(Op::Lost),
        2 => (1_u8..4).prop_map(Op::Link),
        1 => (1_u8..4, any::<bool>()).prop_map(|(node, paused)| Op::Pause(node, paused)),
        1 => (1_u8..4, any::<bool>(), prop_oneof![Just(0), 0..2 * HOUR]).prop_map(|(node, all, ms)| Op::Reclaim(node, all, ms)),
        4 => prop_oneof![0_u64..20_000, 0..2 * HOUR, Just(25 * HOUR)].prop_map(Op::Pass),
        2 => chain().prop_map(Op::Chain),
        2 => (0_u8..15).prop_map(Op::Reopen),
        1 => Just(Op::Continue),
    ]
}

fn licence() -> impl Strategy<Value = Op> {
    let lasts = prop_oneof![2 => Just(1_000 * HOUR), 1 => 0..2 * HOUR];
    (1_u8..4, 0_u32..5, lasts).prop_map(|(who, seats, lasts)| Op::Licence { who, seats, lasts })
}

/// The member of a live lease that is least far.
const BEHIND: u16 = u16::MAX;

/// Gangs that are repaired, agents that get on, and nodes that come and go.
fn repair_op() -> impl Strategy<Value = Op> {
    let ask = (1_u8..4, 2_usize..4, 0_u16..3, 0_usize..4, any::<bool>());
    let ask = ask.prop_map(|(who, members, optional, class, licensed)| Op::Ask {
        who,
        slices: vec![SliceWant::Whole; members],
        spread: false,
        patient: true,
        loss: OnNodeLoss::Repair,
        max: None,
        key: 1,
        class,
        within: Within::Pool,
        optional,
        gpus: 1,
        data: (Vec::new(), false),
        max_latency_us: None,
        licensed,
    });
    prop_oneof![
        3 => ask,
        2 => licence(),
        60 => (any::<usize>(), 0..HOUR).prop_map(|(lease, meter)| Op::Honest { lease, rank: BEHIND, meter }),
        4 => (1_u8..4).prop_map(Op::Lost),
        8 => (1_u8..4).prop_map(Op::Link),
        2 => (1_u8..4).prop_map(|node| Op::Pause(node, false)),
        1 => (any::<usize>(), 0_u16..4, event(), any::<u64>(), 0_u8..12)
            .prop_map(|(lease, rank, event, meter, twist)| Op::Said { lease, rank, event, meter, twist }),
        1 => any::<usize>().prop_map(Op::Release),
        1 => (1_u8..4, any::<bool>(), 0..HOUR).prop_map(|(node, all, ms)| Op::Reclaim(node, all, ms)),
        3 => prop_oneof![0_u64..20_000, 0..HOUR / 2].prop_map(Op::Pass),
        1 => (0_u8..3).prop_map(Op::Reopen),
    ]
}

const SOLVER: Licence = Licence { issuer: Account([0x15; 20]), product: Hash32([7; 32]) };

/// Stops come early, so that there are some.
fn hasty() -> Policy {
    Policy { min_run_ms: 1_000, ..Policy::default() }
}

fn world() -> Pool {
    let mut pool = Pool::new();
    pool.enter(Input::Opened { delegate: DELEGATE, policy: hasty() });
    for node in 1..4 {
        let mut machine = spec(node, (0..2 * node.min(2)).map(|rank| a100(node, rank)).collect());
        machine.cpu_milli = 3_000;
        pool.node(machine);
        pool.fund(renter(node), 40 * TOKEN);
        apply(&mut pool, Op::Licence { who: node, seats: 3, lasts: 1_000 * HOUR });
    }
    pool
}

/// No groups; two teams of one organisation; the same, and the past counts. Each under every weighting, and
/// under some of them fragmentation is charged.
fn policy(kind: u8) -> Policy {
    let weighting = Weighting::ALL[usize::from(kind / 3) % Weighting::ALL.len()];
    let hasty = || Policy { weighting, shadow_permille: [0, 500][usize::from(kind / 3) % 2], ..hasty() };
    if kind.is_multiple_of(3) {
        return hasty();
    }
    Policy {
        groups: vec![group("lab", 2, 300), group("lab/a", 1, 100), group("lab/b", 3, 0)],
        accounts: vec![seat(1, "lab/a", 1), seat(2, "lab/b", 2)],
        half_life_ms: if kind % 3 == 1 { 0 } else { HOUR },
        ..hasty()
    }
}

fn machine(pool: &Pool, node: u8) -> selion_api::NodeSpec {
    pool.state.nodes[&node_id(node)].spec.clone().unwrap()
}

fn pick(pool: &Pool, at: usize) -> Option<LeaseId> {
    let all: Vec<LeaseId> = pool.state.leases.keys().copied().collect();
    (!all.is_empty()).then(|| all[at % all.len()])
}

fn with_members(pool: &Pool, at: usize) -> Option<LeaseId> {
    let all = pool.state.leases.iter().filter(|(_, lease)| !lease.members.is_empty());
    let all: Vec<LeaseId> = all.map(|(id, _)| *id).collect();
    (!all.is_empty()).then(|| all[at % all.len()])
}

fn live(pool: &Pool, at: usize) -> Option<LeaseId> {
    let all = pool.state.leases.iter().filter(|(_, it)| !it.members.is_empty() && it.state != LeaseState::Ended);
    let all: Vec<LeaseId> = all.map(|(id, _)| *id).collect();
    (!all.is_empty()).then(|| all[at % all.len()])
}

fn apply(pool: &mut Pool, op: Op) {
    match op {
        Op::Ask {
            who,
            slices,
            spread,
            patient,
            loss,
            max,
            key,
            class,
            within,
            optional,
            gpus,
            data,
            max_latency_us,
            licensed,
        } => {
            let mut request = ask(renter(who), &slices);
            for want in request.members.iter_mut().filter(|want| want.slice == SliceWant::Whole) {
                want.gpus = gpus;
            }
            request.min_members = request.min_members.saturating_sub(optional).max(1);
            request.within = within;
            request.max_latency_us = max_latency_us;
            request.licence = licensed.then_some(SOLVER);
            request.datasets = data.0.iter().map(|tag| Hash32([*tag; 32])).collect();
            request.near_data = data.1 && !data.0.is_empty();
            request.min_nodes = if spread && within != Within::Node { request.min_members } else { 1 };
            request.wait_ms = if patient { HOUR } else { 0 };
            request.on_node_loss = loss;
            request.max_rate = max.map(Rate);
            request.priority = match class {
                0 => Priority::Interruptible,
                1 => Priority::Firm,
                _ => Priority::Standard,
            };
            if key == 0 {
                request.idem = Hash32([0xee; 32]);
            }
            pool.request(request);
        }
        Op::Licence { who, seats, lasts } => {
            let (Licence { issuer, product }, until) = (SOLVER, TimeMs(pool.now + lasts));
            pool.block(vec![ChainEvent::LicenceSet { issuer, holder: renter(who), product, seats, until }]);
        }
        Op::Release(at) => {
            if let Some(id) = pick(pool, at) {
                pool.release(id);
            }
        }
        Op::Honest { lease, rank, meter } => {
            let one = if rank == BEHIND { live(pool, lease) } else { with_members(pool, lease) };
            let Some(id) = one else { return };
            let lease = pool.get(id);
            let ranks = (0_u16..).zip(&lease.members);
            let behind = ranks.min_by_key(|(_, member)| member.progress).map_or(0, |(rank, _)| rank);
            let rank = if rank == BEHIND { behind } else { rank % lease.members.len() as u16 };
            let event = match (lease.state, lease.members[usize::from(rank)].progress as u8) {
                (LeaseState::Ending | LeaseState::Ended, _) => MemberEvent::Stopped { outputs: None },
                (_, 0) => MemberEvent::Accepted,
                (_, 1) => MemberEvent::Ready,
                (LeaseState::Starting | LeaseState::Active, 2) => MemberEvent::Running,
                (LeaseState::Active, _) if meter % 7 == 0 => MemberEvent::Exited { code: 0, outputs: None },
                _ => MemberEvent::Metered,
            };
            pool.report(id, rank, event, meter);
        }
        Op::Said { lease, rank, event, meter, twist } => {
            let Some(id) = with_members(pool, lease) else { return };
            let rank_there = rank % pool.get(id).members.len() as u16;
            let mut report: Report = pool.report_for(id, rank_there, event, meter);
            match twist {
                0 => report.member = rank,
                1 => report.attempt = report.attempt.wrapping_sub(1),
                2 => report.node = node_id(1),
                3 => report.gpus = vec![gpu_id(2, 0)],
                4 => report.slot = Slot::Whole,
                5 => report.seq = 1,
                6 => report.fence = Fence { epoch: 9, term: 9 },
                7 => report.node = NodeId([0xab; 20]),
                8 => report.lease = LeaseId { seq: 3, index: 99 },
                _ => {}
            }
            pool.send(report);
        }
        Op::Lost(node) => {
            let last_seq = pool.state.nodes[&node_id(node)].last_seq;
            pool.enter(Input::Lost { node: node_id(node), last_seq });
        }
        Op::Link(node) => {
            let spec = machine(pool, node);
            let known = pool.state.nodes[&node_id(node)].last_seq;
            let last_seq = if known.is_multiple_of(3) { 0 } else { known }; // some agents lost their state
            pool.enter(Input::modelled_link(spec, last_seq));
        }
        Op::Measured(node, rtt_us) => {
            pool.enter(Input::Measured { node: node_id(node), rtt_us });
        }
        Op::Pause(node, paused) => {
            pool.enter(Input::SetPaused { provider: provider(node), node: node_id(node), paused, said: None });
        }
        Op::Reclaim(node, all, notice_ms) => {
            let gpu = (!all).then(|| gpu_id(node, 0));
            pool.enter(Input::Reclaim { provider: provider(node), node: node_id(node), gpu, notice_ms, said: None });
        }
        Op::Pass(ms) => pool.pass_ms(ms),
        Op::Chain(event) => {
            pool.block(vec![event]);
        }
        Op::Reopen(kind) => {
            pool.fence.term += 1;
            pool.enter(Input::Opened { delegate: DELEGATE, policy: policy(kind) });
        }
        Op::Continue => {
            pool.enter(Input::Continue);
        }
    }
}

/// Runs the log again from nothing.
fn replay(pool: &Pool) -> State {
    let mut state = State::new();
    for ((stamp, input), before) in pool.log.iter().zip(&pool.outcomes) {
        assert_eq!(&step(&mut state, stamp, input), before, "a replay differs at {stamp:?}");
    }
    state
}

/// Bills and vouchers as an outsider adds them up from the effects alone.
fn bills_equal_vouchers(pool: &Pool) {
    let mut billed = BTreeMap::new();
    let mut vouched = BTreeMap::new();
    for effect in pool.effects() {
        match effect {
            Effect::Billed(line) => {
                assert_eq!(line.amount, line.rate.bill(line.billable_ms));
                *billed.entry((line.renter, line.provider)).or_insert(0) += line.amount.0;
            }
            Effect::VoucherDue(due) => {
                let old = vouched.insert((due.renter, due.provider), due.cumulative.0);
                assert!(old.is_none_or(|old| old < due.cumulative.0), "a voucher's total rises");
            }
            _ => {}
        }
    }
    // What is still running has vouchers that no final bill stands for yet.
    let running =
        pool.state.leases.values().any(|lease| lease.active_since.is_some() && lease.state != LeaseState::Ended);
    for (pair, total) in &vouched {
        assert_eq!(pool.state.billed[pair].0, *total);
        let bills = billed.get(pair).copied().unwrap_or(0);
        assert!(running || *total <= bills, "no voucher above the bills");
    }
}

/// Seats as an outsider counts them, from blocks and effects alone: never is a member given one that is not there.
fn nobody_sat_without_a_seat(pool: &Pool) {
    let (mut seats, mut sitting, mut asked) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    for ((stamp, input), outcome) in pool.log.iter().zip(&pool.outcomes) {
        match input {
            Input::Request(one) => _ = asked.insert(stamp.seq, one.request.clone()),
            Input::Block(block) => seats.extend(block.events.iter().filter_map(|event| match event {
                ChainEvent::LicenceSet { holder, seats, until, .. } => Some((*holder, (*seats as usize, *until))),
                _ => None,
            })),
            _ => {}
        }
        for effect in &outcome.effects {
            match effect {
                Effect::Granted(grant) if asked[&grant.lease.seq].licence.is_some() => {
                    let holder = grant.renter;
                    sitting.insert((holder, grant.lease, grant.attempt, grant.member));
                    let (seats, until) = seats[&holder];
                    let sit = sitting.iter().filter(|(other, ..)| *other == holder).count();
                    assert!(sit <= seats && stamp.at_ms < until, "{sit} on {seats} until {until:?} at {stamp:?}");
                }
                Effect::Freed { lease, attempt, member } => {
                    let holder = asked[&lease.seq].renter;
                    sitting.remove(&(holder, *lease, *attempt, *member));
                }
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_invariants_hold_after_every_step_and_a_replay_gives_the_same_bytes(ops in prop::collection::vec(op(), 1..120)) {
        let mut pool = world();
        for op in ops {
            apply(&mut pool, op);
        }
        for id in &pool.state.waiting {
            prop_assert!(pool.state.estimate(*id).is_none_or(|at| at >= pool.state.now));
        }
        bills_equal_vouchers(&pool);
        nobody_sat_without_a_seat(&pool);
        let again = replay(&pool);
        prop_assert_eq!(again.digest(), pool.state.digest());
        prop_assert_eq!(again, pool.state);
    }

    #[test]
    fn repairs_leave_every_bill_and_every_reserve_as_it_must_be(ops in prop::collection::vec(repair_op(), 60..200)) {
        let mut pool = world();
        for op in ops {
            apply(&mut pool, op);
        }
        for id in pool.state.leases.keys().copied().collect::<Vec<_>>() {
            pool.release(id);
        }
        for node in 1..4 {
            pool.enter(Input::Lost { node: node_id(node), last_seq: 0 });
        }
        pool.pass_ms(HOUR);
        bills_equal_vouchers(&pool);
        nobody_sat_without_a_seat(&pool);
        prop_assert!(pool.state.licences.values().all(|seating| seating.used == 0), "all seats came back");
        // Each run of a rank has one line at most, and a lease as many tokens as its lines.
        let mut lines = BTreeMap::new();
        let mut sums: BTreeMap<LeaseId, u64> = BTreeMap::new();
        for effect in pool.effects() {
            if let Effect::Billed(line) = effect {
                prop_assert!(lines.insert((line.lease, line.attempt, line.member), ()).is_none());
                *sums.entry(line.lease).or_default() += line.amount.0;
            }
        }
        for (id, lease) in &pool.state.leases {
            prop_assert_eq!(lease.state, LeaseState::Ended);
            let paid: u64 = lease.past.iter().map(|(.., amount)| amount.0).sum();
            prop_assert_eq!(paid, sums.get(id).copied().unwrap_or(0));
        }
        for who in 1..4 {
            let reserved = pool.state.ledger.holds(selion_market::Pocket::Reserved(renter(who)));
            prop_assert_eq!(reserved, Amount::ZERO);
        }
        prop_assert_eq!(replay(&pool), pool.state);
    }

    #[test]
    fn any_input_with_any_bytes_changed_never_panics(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        at_ms in any::<u64>(),
        seq in any::<u64>(),
    ) {
        let mut pool = world();
        pool.lease(ask(renter(1), &[mig("1g.10gb")]));
        let samples = crate::golden::inputs();
        let mut data = which.get(&samples).1.clone();
        for (at, byte) in changes {
            let at = at.index(data.len());
            data[at] = byte;
        }
        if let Ok(input) = <Input as borsh::BorshDeserialize>::try_from_slice(&data) {
            let stamp = selion_market::Stamp { seq, at_ms: TimeMs(at_ms), fence: Fence { epoch: 1, term: 1 } };
            step(&mut pool.state, &stamp, &input);
            crate::invariants::check(&pool.state);
        }
    }

    #[test]
    fn hostile_specs_policies_and_requests_never_panic(
        mem_slices in any::<u8>(),
        compute_slices in any::<u8>(),
        size in any::<u8>(),
        starts in prop::collection::vec(any::<u8>(), 0..9),
        compute in any::<u8>(),
        max in any::<u8>(),
        big in any::<u64>(),
        ports in any::<u16>(),
        zero in any::<bool>(),
    ) {
        let mut pool = Pool::new();
        pool.fund(renter(1), u64::MAX);
        let policy = if zero {
            Policy {
                hold_ms: 0,
                prepare_ms: 0,
                start_ms: 0,
                ending_ms: 0,
                grace_ms: 0,
                least_ms: 0,
                voucher_ms: 0,
                claim_margin_ms: 0,
                groups: vec![group("", 0, 0), group("//a//", 0, u16::MAX), group("a/b/c/d/e", 0, 1)],
                accounts: vec![seat(1, "a/b/c/d/e/f", 0), seat(1, "nowhere", 0)],
                half_life_ms: 1,
                min_run_ms: 0,
                bookings: false,
                weighting: Weighting::Random,
                shadow_permille: u16::MAX,
                max_waiting: 1,
                max_waiting_all: 1,
                max_leases: 1,
                max_leases_all: 1,
            }
        } else {
            Policy {
                hold_ms: big,
                prepare_ms: big,
                start_ms: u64::MAX,
                ending_ms: big,
                grace_ms: big,
                least_ms: big,
                voucher_ms: big,
                claim_margin_ms: big,
                groups: vec![group("x", u32::MAX, u16::MAX); 3],
                accounts: vec![seat(1, "x", u32::MAX); 3],
                half_life_ms: big,
                min_run_ms: big,
                bookings: true,
                weighting: Weighting::Fgd,
                shadow_permille: 1,
                max_waiting: u32::MAX,
                max_waiting_all: u32::MAX,
                max_leases: u32::MAX,
                max_leases_all: u32::MAX,
            }
        };
        pool.enter(Input::Opened { delegate: DELEGATE, policy });
        let mut gpu = a100(1, 0);
        gpu.mem_bytes = big;
        gpu.work_milli = u32::MAX;
        gpu.whole = Some(Rate(big));
        if let Some(table) = &mut gpu.mig {
            table.mem_slices = mem_slices;
            table.compute_slices = compute_slices;
            for profile in &mut table.profiles {
                profile.size = size;
                profile.starts.clone_from(&starts);
                profile.compute_slices = compute;
                profile.max_instances = max;
                profile.rate = Rate(big);
            }
        }
        let mut node = spec(1, vec![gpu]);
        node.ports = ports;
        node.port_base = u16::MAX - 2;
        node.cpu_milli = u32::MAX;
        node.ram_bytes = u64::MAX;
        pool.node(node);
        for slices in [vec![mig("1g.10gb"); 5], vec![SliceWant::Whole], vec![share(1000, 1), share(1, big / GIB)], vec![mig("7g.80gb"); 64]] {
            let mut request = ask(renter(1), &slices);
            request.duration_ms = selion_api::lease::MAX_DURATION_MS;
            for member in &mut request.members {
                member.cpu_milli = u32::MAX / 4;
                member.ram_bytes = u64::MAX / 4;
            }
            pool.request(request);
        }
        pool.block(vec![
            ChainEvent::Deposited { renter: renter(1), amount: Amount(big) },
            ChainEvent::KeyGranted { renter: renter(2), key: Address::ZERO, cap: Amount(big), until: TimeMs(big) },
            ChainEvent::Claimed { provider: provider(1), renter: renter(1), cumulative: Amount(big), paid: Amount(u64::MAX), key: None },
        ]);
        pool.now = u64::MAX;
        for _ in 0..6 {
            pool.enter(Input::Tick);
        }
        let _ = (pool.state.shares(), pool.state.group_shares(), pool.state.free(node_id(1), gpu_id(1, 0)));
    }
}
