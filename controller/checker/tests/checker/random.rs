//! Random operations on a crowded pool: engine and checker agree on every entry (`Pool::enter` asserts it), at the end
//! nothing is left, and whatever is changed in a grant or a bill is seen.

use proptest::prelude::*;
use selion_api::agent::MemberEvent;
use selion_api::chain::ChainEvent;
use selion_api::lease::{LeaseState, OnNodeLoss, Priority, Within};
use selion_api::{Account, Amount, Hash32, LeaseId, LeaseRequest, Licence, SliceWant, TimeMs};
use selion_market::{Effect, Input, Policy};

use crate::pool::{
    DELEGATE, HOUR, Pool, TOKEN, a100, ask, gpu_id, group, mig, node_id, provider, renter, seat, share, spec,
};
use crate::tape::Tape;

#[derive(Clone, Debug)]
enum Op {
    Ask {
        who: u8,
        want: usize,
        members: usize,
        class: u8,
        loss: OnNodeLoss,
        within: Within,
        needs: u16,
        gpus: u16,
        data: u8,
        licensed: bool,
    },
    /// Seats of renter `who`, for so long.
    Licence(u8, u32, u64),
    Release(usize),
    Extend(usize, u64),
    Step {
        lease: usize,
        meter_ms: u64,
    },
    Lost(u8),
    Link(u8),
    Measured(u8, u32),
    Pause(u8, bool),
    /// The node, or its first GPU.
    Reclaim(u8, bool, u64),
    Pass(u64),
    Fund(u8, u64),
    Thaw(u8, u64),
    Withdraw(u8, u64),
    Open(u32),
}

/// Few wants, so that equal ones compete.
fn wants() -> [SliceWant; 5] {
    [SliceWant::Whole, mig("3g.40gb"), mig("2g.20gb"), share(500, 30), share(600, 10)]
}

fn op() -> impl Strategy<Value = Op> {
    let within = prop::sample::select(vec![Within::Pool, Within::Pool, Within::Region, Within::Rack, Within::Node]);
    let loss = prop::sample::select(vec![OnNodeLoss::End, OnNodeLoss::Requeue, OnNodeLoss::Repair, OnNodeLoss::Repair]);
    let ask = (1_u8..5, 0_usize..5, 1_usize..4, 0_u8..10, loss, within, 1_u16..3, 1_u16..4, 0_u8..12);
    prop_oneof![
        10 => (ask, any::<bool>()).prop_map(|((who, want, members, class, loss, within, needs, gpus, data), licensed)| {
            Op::Ask { who, want, members, class, loss, within, needs, gpus, data, licensed }
        }),
        2 => (1_u8..5, 0_u32..5, prop_oneof![2 => Just(1_000 * HOUR), 1 => 0..2 * HOUR])
            .prop_map(|(who, seats, lasts)| Op::Licence(who, seats, lasts)),
        3 => any::<usize>().prop_map(Op::Release),
        3 => (any::<usize>(), 0..2 * HOUR).prop_map(|(lease, more)| Op::Extend(lease, more)),
        30 => (any::<usize>(), 0..HOUR).prop_map(|(lease, meter_ms)| Op::Step { lease, meter_ms }),
        2 => (1_u8..4).prop_map(Op::Lost),
        2 => (1_u8..4).prop_map(Op::Link),
        3 => (1_u8..4, 1_u32..1_500).prop_map(|(node, rtt_us)| Op::Measured(node, rtt_us)),
        1 => (1_u8..4, any::<bool>()).prop_map(|(node, paused)| Op::Pause(node, paused)),
        1 => (1_u8..4, any::<bool>(), prop_oneof![Just(0), 0..HOUR]).prop_map(|(node, all, ms)| Op::Reclaim(node, all, ms)),
        4 => prop_oneof![0..20_000_u64, 0..HOUR, Just(25 * HOUR)].prop_map(Op::Pass),
        1 => (1_u8..5, 0..5 * TOKEN).prop_map(|(who, sum)| Op::Fund(who, sum)),
        1 => (1_u8..5, 0..5 * TOKEN).prop_map(|(who, sum)| Op::Thaw(who, sum)),
        1 => (1_u8..5, 0..5 * TOKEN).prop_map(|(who, sum)| Op::Withdraw(who, sum)),
        2 => (0_u32..12).prop_map(Op::Open),
    ]
}

const SOLVER: Licence = Licence { issuer: Account([0x15; 20]), product: Hash32([7; 32]) };

fn world() -> Pool {
    let mut pool = Pool::new();
    for node in 1..4 {
        pool.node(spec(node, (0..node).map(|rank| a100(node, rank)).collect()));
    }
    for who in 1..5 {
        pool.fund(renter(who), 12 * TOKEN);
        apply(&mut pool, Op::Licence(who, 3, 1_000 * HOUR));
    }
    open(&mut pool, 1);
    pool
}

/// Below 4 all stand side by side; from there on in groups with weights, from 8 on with quotas too.
fn open(pool: &mut Pool, number: u32) {
    let weight = number % 4;
    let mut policy = Policy { min_run_ms: 10_000, ..Policy::default() };
    policy.accounts = vec![seat(2, "", weight)];
    if number >= 4 {
        let quota = if number >= 8 { 350 } else { 0 };
        policy.groups = vec![group("firm", 1, quota), group("lab", weight, 0), group("lab/vision", 2, 2 * quota)];
        policy.accounts = vec![seat(1, "lab/vision", 1), seat(2, "lab/vision", weight), seat(3, "firm/x/y", 2)];
        policy.half_life_ms = if number == 11 { HOUR } else { 0 };
    }
    pool.enter(Input::Opened { delegate: DELEGATE, policy });
}

/// None, one or two of three datasets, of which every second lease wants to be near.
fn data_of(number: u8) -> (Vec<Hash32>, bool) {
    let tags = (0..3).filter(|bit| number & (1 << bit) != 0).map(|bit| Hash32([bit + 1; 32]));
    let tags: Vec<Hash32> = tags.take(2).collect();
    let near = number >= 6 && !tags.is_empty();
    (tags, near)
}

fn pick(pool: &Pool, at: usize, live: impl Fn(LeaseState) -> bool) -> Option<LeaseId> {
    let all = pool.state.leases.iter().filter(|(_, lease)| live(lease.state));
    let all: Vec<LeaseId> = all.map(|(id, _)| *id).collect();
    all.get(at.checked_rem(all.len())?).copied()
}

fn apply(pool: &mut Pool, op: Op) {
    match op {
        Op::Ask { who, want, members, class, loss, within, needs, gpus, data, licensed } => {
            let priority = match class {
                0 => Priority::Interruptible,
                1 => Priority::Firm,
                _ => Priority::Standard,
            };
            let slices = vec![wants()[want].clone(); members];
            let mut request = ask(renter(who), &slices);
            for want in request.members.iter_mut().filter(|want| want.slice == SliceWant::Whole) {
                want.gpus = gpus;
            }
            let min_members = request.min_members.min(needs);
            let (datasets, near_data) = data_of(data);
            let max_latency_us = (data % 3 == 1).then_some(1_000);
            let licence = licensed.then_some(SOLVER);
            let request = LeaseRequest { datasets, near_data, max_latency_us, licence, ..request };
            pool.request(LeaseRequest { priority, on_node_loss: loss, within, min_members, ..request });
        }
        Op::Licence(who, seats, lasts) => {
            let (Licence { issuer, product }, until) = (SOLVER, TimeMs(pool.now + lasts));
            pool.block(vec![ChainEvent::LicenceSet { issuer, holder: renter(who), product, seats, until }]);
        }
        Op::Release(at) => {
            if let Some(id) = pick(pool, at, |state| state != LeaseState::Ended) {
                pool.release(id);
            }
        }
        Op::Extend(at, for_ms) => {
            if let Some(id) = pick(pool, at, |_| true) {
                let (renter, key) = (pool.get(id).request.renter, Hash32([pool.log.len() as u8; 32]));
                pool.enter(Input::Extend { renter, lease: id, for_ms, key, said: None });
            }
        }
        Op::Step { lease, meter_ms } => {
            let runs = |state| !matches!(state, LeaseState::Waiting | LeaseState::Ended);
            let Some(id) = pick(pool, lease, runs) else { return };
            let lease = pool.get(id);
            // The member that is behind.
            let Some((rank, member)) = lease.members.iter().enumerate().min_by_key(|(_, member)| member.progress)
            else {
                return;
            };
            let event = match (lease.state, member.progress as u8) {
                (LeaseState::Ending, _) => MemberEvent::Stopped { outputs: None },
                (_, 0) => MemberEvent::Accepted,
                (_, 1) => MemberEvent::Ready,
                (LeaseState::Starting, _) | (LeaseState::Active, 2) => MemberEvent::Running,
                _ if meter_ms % 5 == 0 => MemberEvent::Exited { code: 0, outputs: None },
                _ => MemberEvent::Metered,
            };
            pool.report(id, rank as u16, event, meter_ms);
        }
        Op::Lost(node) => {
            pool.enter(Input::Lost { node: node_id(node), last_seq: 0 });
        }
        Op::Link(node) => {
            let spec = pool.state.nodes[&node_id(node)].spec.clone().unwrap();
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
        Op::Fund(who, sum) => pool.fund(renter(who), sum),
        Op::Thaw(who, sum) => {
            pool.block(vec![ChainEvent::Thawed { renter: renter(who), amount: Amount(sum), ready: TimeMs(0) }]);
        }
        Op::Withdraw(who, sum) => {
            pool.block(vec![ChainEvent::Withdrawn { renter: renter(who), amount: Amount(sum) }]);
        }
        Op::Open(weight) => open(pool, weight),
    }
}

fn run(ops: Vec<Op>) -> Pool {
    let mut pool = world();
    for op in ops {
        apply(&mut pool, op);
    }
    pool
}

/// One thing of an effect that decides changed; `None` if there is nothing of the kind.
fn twist(effect: &Effect, how: u8) -> Option<Effect> {
    let mut effect = effect.clone();
    match &mut effect {
        Effect::Granted(grant) => match how % 8 {
            0 => grant.rate.0 += 1,
            1 => grant.renter = renter(9),
            2 => grant.provider = renter(9),
            3 => grant.node = node_id(9),
            4 => grant.gpu.0[3] ^= 1,
            5 => grant.attempt += 1,
            6 => grant.member += 1,
            _ => grant.lease.index += 1,
        },
        Effect::Billed(line) => match how % 4 {
            0 => line.amount.0 += 1,
            1 => line.rate.0 += 3_600_000,
            2 => line.member += 1,
            _ => line.provider = renter(9),
        },
        Effect::Moneyed(transfer) => transfer.amount.0 += 1,
        Effect::VoucherDue(due) => due.cumulative.0 += 1,
        Effect::Freed { member, .. } | Effect::Broken { member, .. } => *member += 1,
        Effect::Repaired { attempt, .. } | Effect::Joined { attempt, .. } => *attempt += 1,
        Effect::Extended { duration_ms, .. } => *duration_ms += 1,
        Effect::Reclaimed { by, .. } => *by = Some(TimeMs(by.map_or(0, |by| by.0 + 1))),
        _ => return None,
    }
    Some(effect)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn engine_and_checker_agree_on_every_entry_and_nothing_is_left_when_all_nodes_are_gone(
        ops in prop::collection::vec(op(), 1..160),
    ) {
        let mut pool = run(ops);
        for node in 1..4 {
            pool.enter(Input::Lost { node: node_id(node), last_seq: 0 });
        }
        pool.pass_ms(20 * HOUR);
        prop_assert_eq!(pool.checker.held().count(), 0);
        let live = pool.state.leases.values().filter(|lease| lease.state != LeaseState::Ended).count();
        prop_assert_eq!(live, 0);
    }

    #[test]
    fn a_changed_effect_is_seen_in_its_entry(
        ops in prop::collection::vec(op(), 40..120),
        which in any::<prop::sample::Index>(),
        how in any::<u8>(),
    ) {
        let tape = Tape::of(&run(ops));
        let all = tape.0.iter().enumerate().flat_map(|(entry, leaf)| {
            leaf.effects.iter().enumerate().filter_map(move |(at, effect)| Some((entry, at, twist(effect, how)?)))
        });
        let lies: Vec<_> = all.collect();
        let (entry, at, lie) = which.get(&lies).clone();
        let mut tape = tape;
        tape.0[entry].effects[at] = lie.clone();
        let first = tape.findings().first().map(|finding| finding.entry);
        prop_assert_eq!(first, Some(entry as u64), "{:?}", lie);
    }

    #[test]
    fn a_log_whose_effects_stand_anywhere_is_found_fault_with_and_never_panics(
        ops in prop::collection::vec(op(), 1..60),
        by in 1_usize..40,
    ) {
        let mut tape = Tape::of(&run(ops));
        let effects: Vec<Vec<Effect>> = tape.0.iter().map(|leaf| leaf.effects.clone()).collect();
        for (at, leaf) in tape.0.iter_mut().enumerate() {
            leaf.effects.clone_from(&effects[(at + by) % effects.len()]);
        }
        prop_assert!(!tape.findings().is_empty() || by % effects.len() == 0);
    }
}
