//! Renters do anything at any time with their deposits, keys and leases; whoever follows the rules is paid for what he
//! served. The market, its vouchers and the judge who signs them are the real ones; every entry is checked by the
//! second checker too.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test that fails says so by panicking"
)]

#[allow(dead_code, reason = "shared with the market's tests, which use more of it")]
#[path = "../../market/tests/market/invariants.rs"]
mod invariants;
#[allow(dead_code, reason = "shared with the market's tests, which use more of it")]
#[path = "../../market/tests/market/pool.rs"]
mod pool;
mod vault;
mod world;

use proptest::prelude::*;
use selion_api::lease::OnNodeLoss;
use selion_api::{LeaseRequest, SliceWant};

use pool::{HOUR, TOKEN, ask, renter};
use world::{LAG, MARGIN, MINUTE, RENTERS, World};

/// One thing that a renter does, or the authority, or time.
#[derive(Clone, Debug)]
enum Op {
    Lease {
        who: u8,
        gpus: usize,
        hours: u64,
        again: bool,
    },
    Release(usize),
    Deposit(u8, u64),
    /// So many thousandths of the deposit; 0 takes the last thaw back.
    Thaw(u8, u64),
    Withdraw(u8),
    /// Thaw and withdrawal in one block, where the pool's terms let that be.
    Snatch(u8, u64),
    Revoke(u8),
    /// The key may sign for so much more, and for so many hours from now on at least.
    Grant(u8, u64, u64),
    PassOn,
    Pass(u64),
    /// Whether vouchers are signed from now on.
    Signs(bool),
}

fn op(renters: u8) -> impl Strategy<Value = Op> {
    let who = move || 1..=renters;
    let part = || prop_oneof![2 => Just(1_000_u64), 1 => 0..1_000_u64, 1 => Just(0)];
    prop_oneof![
        6 => (who(), 1..3_usize, 1..30_u64, any::<bool>())
            .prop_map(|(who, gpus, hours, again)| Op::Lease { who, gpus, hours, again }),
        1 => any::<usize>().prop_map(Op::Release),
        3 => (who(), 1..40 * TOKEN).prop_map(|(who, amount)| Op::Deposit(who, amount)),
        4 => (who(), part()).prop_map(|(who, part)| Op::Thaw(who, part)),
        4 => who().prop_map(Op::Withdraw),
        2 => (who(), part()).prop_map(|(who, part)| Op::Snatch(who, part)),
        1 => who().prop_map(Op::Revoke),
        2 => (who(), 1..40 * TOKEN, 1..200_u64).prop_map(|(who, more, hours)| Op::Grant(who, more, hours)),
        1 => Just(Op::PassOn),
        12 => prop_oneof![1..HOUR, 1..8 * HOUR].prop_map(Op::Pass),
    ]
}

fn apply(world: &mut World, op: &Op) {
    let now = world.pool.now;
    match *op {
        Op::Lease { who, gpus, hours, again } => {
            let on_node_loss = if again { OnNodeLoss::Requeue } else { OnNodeLoss::End };
            let slices = vec![SliceWant::Whole; gpus];
            let duration_ms = hours * HOUR;
            world.pool.request(LeaseRequest { duration_ms, on_node_loss, ..ask(renter(who), &slices) });
        }
        Op::Release(at) => {
            let ids: Vec<_> = world.pool.state.leases.keys().copied().collect();
            if let Some(id) = ids.get(at % ids.len().max(1)) {
                world.pool.release(*id);
            }
        }
        Op::Deposit(who, amount) => {
            let event = world.vault.deposit(renter(who), amount);
            world.mine(vec![event]);
        }
        Op::Thaw(who, part) => {
            let event = thaw(world, who, part);
            world.mine(vec![event]);
        }
        Op::Withdraw(who) => {
            let event = world.vault.withdraw(renter(who), now);
            world.mine(event.into_iter().collect());
        }
        Op::Snatch(who, part) => {
            let event = thaw(world, who, part);
            let left = world.vault.withdraw(renter(who), now);
            world.mine([event].into_iter().chain(left).collect());
        }
        Op::Revoke(who) => {
            let event = world.vault.revoke(renter(who), now);
            world.mine(event.into_iter().collect());
        }
        Op::Grant(who, more, hours) => world.grant(renter(who), more, hours),
        Op::PassOn => {
            let event = world.vault.pass_on(now);
            world.mine(vec![event]);
            // Authority does not pass twice within its grace.
            world.pass(6 * HOUR);
        }
        Op::Pass(ms) => world.pass(ms),
        Op::Signs(signs) => world.signs = signs,
    }
    world.pass(1);
}

fn thaw(world: &mut World, who: u8, part: u64) -> selion_api::chain::ChainEvent {
    let balance = world.vault.deposits.get(&renter(who)).map_or(0, |deposit| deposit.balance);
    world.vault.thaw(renter(who), balance / 1_000 * part, world.pool.now)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 256, ..ProptestConfig::default() })]

    /// Where a thaw takes longer than the margin, no use is lost at all, and whatever is signed can be claimed at any time.
    #[test]
    fn every_provider_is_paid_for_all_he_served_where_a_thaw_takes_its_time(
        ops in prop::collection::vec(op(RENTERS), 1..50), more in 1..10 * HOUR,
    ) {
        let mut world = World::new(MARGIN + LAG + more);
        for op in &ops {
            apply(&mut world, op);
            (1..=RENTERS).for_each(|who| world.promises_fit(renter(who)));
        }
        let unpaid = world.settle();
        prop_assert!(unpaid.values().all(|worth| *worth == 0), "{unpaid:?} at {}", world.time().0);
    }

    /// Where deposits may leave at once, a provider loses no more of a lease than what it used in one interval: since
    /// its last claim, and until the controller hears of the withdrawal and the next voucher is due.
    #[test]
    fn no_provider_loses_more_than_one_interval_of_a_lease_where_a_thaw_takes_no_time(
        ops in prop::collection::vec(op(RENTERS), 1..50), thaw_ms in prop_oneof![Just(0), 1..60 * MINUTE],
    ) {
        let mut world = World::new(thaw_ms);
        for op in &ops {
            apply(&mut world, op);
        }
        for (pair, worth) in world.settle() {
            let most: u64 = world.at_risk[&pair].values().sum();
            prop_assert!(worth <= most, "{worth} of {pair:?} is unpaid, of one interval's {most}");
        }
    }

    /// Whatever the terms, while nobody claims, and however late vouchers are signed: once the controller has heard of all, no
    /// total rises above what stays in the vault.
    #[test]
    fn nothing_is_promised_twice_also_while_nobody_claims(
        ops in prop::collection::vec(prop_oneof![12 => op(1), 1 => any::<bool>().prop_map(Op::Signs)], 1..80),
        thaw_ms in prop_oneof![Just(0), Just(8 * HOUR)],
    ) {
        let mut world = World::new(thaw_ms);
        world.has_gas = false;
        for op in &ops {
            apply(&mut world, op);
        }
        world.signs = true;
        world.settle();
    }
}
