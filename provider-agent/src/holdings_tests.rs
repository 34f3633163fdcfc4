//! What stands in the way of each act, and the way out, without a chain.

use super::*;

const OWNER: Account = Account([1; 20]);
const PAYEE: Address = Address([1; 20]);
const NODE: NodeId = NodeId([2; 20]);
const OTHER: NodeId = NodeId([3; 20]);
const NOW: TimeMs = TimeMs(1_000_000);

/// A provider with a stake of three times the least, and one node on offer.
fn has() -> Holdings {
    Holdings {
        provider: OWNER,
        payee: Some(PAYEE),
        stake: Amount(3_000_000),
        min_stake: Amount(1_000_000),
        unbond_s: 60,
        node: Some(Held { node: NODE, provider: Some(OWNER), on_offer: true }),
        offers: 1,
        ..Holdings::default()
    }
}

fn retired(has: Holdings) -> Holdings {
    Holdings { node: Some(Held { node: NODE, provider: None, on_offer: false }), offers: has.offers - 1, ..has }
}

fn unbonding(has: Holdings, ready: TimeMs) -> Holdings {
    Holdings { stake: Amount::ZERO, unbonding: has.stake, ready_ms: ready, ..has }
}

fn refused(has: &Holdings, act: Act) -> Option<Obstacle> {
    has.allows(act, OWNER, NOW).err()
}

#[test]
fn all_of_the_stake_leaves_only_without_an_offer_of_any_node_and_a_part_leaves_the_least() {
    let all = Act::Unbond(Amount(3_000_000));
    let two = Holdings { offers: 2, others: vec![OTHER], ..has() };
    assert_eq!(refused(&two, all), Some(Obstacle::OffersStand { count: 2, nodes: vec![NODE, OTHER] }));
    let others = Holdings { offers: 2, others: vec![OTHER], ..retired(two) };
    assert_eq!(refused(&others, all), Some(Obstacle::OffersStand { count: 2, nodes: vec![OTHER] }));
    assert_eq!(refused(&retired(has()), all), None);
    assert_eq!(refused(&has(), Act::Unbond(Amount(2_000_000))), None, "the least is left");
    let little = Obstacle::LeavesTooLittle { left: Amount(999_999), least: Amount(1_000_000) };
    assert_eq!(refused(&has(), Act::Unbond(Amount(2_000_001))), Some(little));
    let more = Obstacle::StakeTooLow { asked: Amount(3_000_001), stake: Amount(3_000_000) };
    assert_eq!(refused(&has(), Act::Unbond(Amount(3_000_001))), Some(more));
    let none = Holdings { stake: Amount::ZERO, ..has() };
    assert_eq!(refused(&none, Act::Unbond(Amount::ZERO)), Some(Obstacle::NoStake { provider: OWNER }));
    // A pool without a least stake takes back any part of it.
    let free = Holdings { min_stake: Amount::ZERO, ..has() };
    assert_eq!(refused(&free, Act::Unbond(Amount(2_999_999))), None);
}

#[test]
fn stake_comes_out_at_its_time_and_not_before() {
    assert_eq!(refused(&has(), Act::WithdrawStake), Some(Obstacle::NothingUnbonds { stake: Amount(3_000_000) }));
    let early = unbonding(has(), TimeMs(NOW.0 + 1));
    let not_ready = Obstacle::NotReady { amount: Amount(3_000_000), ready: TimeMs(NOW.0 + 1) };
    assert_eq!(refused(&early, Act::WithdrawStake), Some(not_ready));
    assert_eq!(refused(&unbonding(has(), NOW), Act::WithdrawStake), None);
}

#[test]
fn a_node_is_closed_and_retired_by_its_owner_alone() {
    assert_eq!(refused(&has(), Act::CloseOffer), None);
    assert_eq!(refused(&has(), Act::Retire), None);
    let closed = Holdings { node: Some(Held { node: NODE, provider: Some(OWNER), on_offer: false }), ..has() };
    assert_eq!(refused(&closed, Act::CloseOffer), Some(Obstacle::NoOffer { node: NODE }));
    assert_eq!(refused(&closed, Act::Retire), None);
    for owner in [None, Some(Account([9; 20]))] {
        let foreign = Holdings { node: Some(Held { node: NODE, provider: owner, on_offer: true }), ..has() };
        for act in [Act::CloseOffer, Act::Retire] {
            assert_eq!(refused(&foreign, act), Some(Obstacle::NotBound { node: NODE, provider: OWNER, owner }));
        }
    }
    let nowhere = Holdings { node: None, ..has() };
    assert_eq!(refused(&nowhere, Act::Retire), Some(Obstacle::NoNode));
}

#[test]
fn another_payee_is_named_by_the_one_who_is_paid() {
    let (cold, act) = (Address([7; 20]), Act::SetPayout(Address([7; 20])));
    assert_eq!(refused(&has(), act), None);
    assert_eq!(refused(&has(), Act::SetPayout(PAYEE)), Some(Obstacle::SamePayee { payee: PAYEE }));
    let gone = Holdings { payee: Some(cold), ..has() };
    let not_payee = Obstacle::NotPayee { provider: OWNER, payee: cold, here: OWNER };
    assert_eq!(refused(&gone, act), Some(not_payee), "also for the account that is paid already");
    assert_eq!(gone.allows(Act::SetPayout(PAYEE), Account(cold.0), NOW), Ok(()));
    let stranger = Holdings { payee: None, ..has() };
    assert_eq!(refused(&stranger, act), Some(Obstacle::NotRegistered { provider: OWNER }));
}

#[test]
fn the_way_out_is_retiring_and_unbonding_then_waiting_then_stake_and_earnings() {
    let earned = Holdings { earned: Amount(50), paid_out: Amount(20), ..has() };
    assert_eq!(earned.way_out(NOW), [Act::Retire, Act::Unbond(Amount(3_000_000))], "earnings come with the stake");
    let out = retired(earned);
    assert_eq!(out.way_out(NOW), [Act::Unbond(Amount(3_000_000))]);
    assert_eq!(unbonding(out.clone(), TimeMs(NOW.0 + 1)).way_out(NOW), []);
    let free = unbonding(out, NOW);
    assert_eq!(free.way_out(NOW), [Act::WithdrawStake, Act::CashOut]);
    let paid = Holdings { unbonding: Amount::ZERO, ready_ms: TimeMs(0), paid_out: Amount(50), ..free };
    assert_eq!(paid.way_out(NOW), []);
}

#[test]
fn stake_that_is_free_is_taken_before_more_is_asked_back_which_would_make_it_wait_again() {
    let part = Holdings { unbonding: Amount(500_000), ready_ms: NOW, ..has() };
    assert_eq!(part.way_out(NOW), [Act::WithdrawStake, Act::Retire, Act::Unbond(Amount(3_000_000))]);
}

#[test]
fn with_another_node_on_offer_this_one_goes_and_the_stake_stays() {
    let two = Holdings { offers: 2, others: vec![OTHER], earned: Amount(5), ..has() };
    assert_eq!(two.way_out(NOW), [Act::Retire, Act::CashOut]);
    assert_eq!(Holdings { offers: 1, earned: Amount(0), ..retired(two) }.way_out(NOW), []);
}

#[test]
fn every_step_of_the_way_out_is_one_that_the_contracts_take() {
    for has in [has(), retired(has()), unbonding(has(), NOW), Holdings { earned: Amount(9), ..has() }] {
        let mut has = has;
        for _ in 0..8 {
            let Some(act) = has.way_out(NOW).first().copied() else { break };
            assert_eq!(refused(&has, act), None, "{act:?}");
            has = done(has, act);
        }
        assert_eq!(
            (has.way_out(NOW), has.stake, has.unbonding, has.unpaid()),
            (vec![], Amount(0), Amount(0), Amount(0))
        );
    }
}

/// What an act makes of it in a pool without an unbonding time.
fn done(has: Holdings, act: Act) -> Holdings {
    match act {
        Act::Retire => {
            let offers = has.offers - u32::from(has.node.is_some_and(|held| held.on_offer));
            Holdings { node: Some(Held { node: NODE, provider: None, on_offer: false }), offers, ..has }
        }
        Act::Unbond(amount) => {
            Holdings { stake: has.stake.saturating_sub(amount), unbonding: amount, ready_ms: NOW, ..has }
        }
        Act::WithdrawStake => Holdings { unbonding: Amount::ZERO, ready_ms: TimeMs(0), ..has },
        Act::CashOut => Holdings { paid_out: has.earned, ..has },
        Act::CloseOffer | Act::SetPayout(_) => unreachable!("no step of a way out"),
    }
}
