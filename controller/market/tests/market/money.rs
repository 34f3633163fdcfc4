//! What is reserved, owed, vouched for and given back.

use selion_api::agent::MemberEvent;
use selion_api::chain::{ChainEvent, ComponentKind};
use selion_api::lease::{LeaseState, Resource};
use selion_api::{Amount, Reason, SliceWant, TimeMs};
use selion_market::{Effect, Pocket, VoucherDue};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, ask, kept, mig, provider, renter};

fn holds(pool: &Pool, pocket: Pocket) -> u64 {
    pool.state.ledger.holds(pocket).0
}

fn vouchers(effects: &[Effect]) -> Vec<VoucherDue> {
    let due = effects.iter().filter_map(|effect| match effect {
        Effect::VoucherDue(due) => Some(due.clone()),
        _ => None,
    });
    due.collect()
}

#[test]
fn the_whole_duration_is_reserved_and_what_was_not_used_comes_back() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!(holds(&pool, Pocket::Reserved(renter(1))), kept(TOKEN));
    pool.run_up(id);
    pool.now += HOUR / 4;
    pool.release(id);
    let end = pool.report(id, 0, MemberEvent::Stopped { outputs: None }, HOUR / 4);
    assert_eq!(holds(&pool, Pocket::Reserved(renter(1))), 0);
    assert_eq!(holds(&pool, Pocket::Owed(renter(1), provider(1))), TOKEN / 4);
    assert_eq!(holds(&pool, Pocket::Free(renter(1))), 1000 * TOKEN - TOKEN / 4);
    let due = vouchers(&end.effects);
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].cumulative, Amount(TOKEN / 4));
}

#[test]
fn a_lease_that_its_agent_ended_for_want_of_payment_ends_so_and_what_it_used_is_owed() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.now += HOUR / 4;
    let end = pool.report(id, 0, MemberEvent::Failed { reason: Reason::PaymentRequired }, HOUR / 4);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ended, Some(Reason::PaymentRequired)));
    assert_eq!(vouchers(&end.effects)[0].cumulative, Amount(TOKEN / 4));
    assert_eq!(holds(&pool, Pocket::Owed(renter(1), provider(1))), TOKEN / 4);
}

#[test]
fn a_voucher_is_due_once_an_interval_and_its_total_never_falls() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    let mut totals = Vec::new();
    for second in 1..=150_u64 {
        pool.now += 1000;
        let outcome = pool.report(id, 0, MemberEvent::Metered, second * 1000);
        totals.extend(vouchers(&outcome.effects).iter().map(|due| due.cumulative.0));
    }
    assert_eq!(totals, [TOKEN * 60_000 / HOUR, TOKEN * 120_000 / HOUR]);
    let end = pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, 150_000);
    let bills: Vec<u64> = end
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Billed(line) => Some(line.amount.0),
            _ => None,
        })
        .collect();
    assert_eq!(bills, [TOKEN * 150_000 / HOUR]);
    assert_eq!(vouchers(&end.effects)[0].cumulative.0, TOKEN * 150_000 / HOUR);
    // The next lease of the pair counts on.
    let next = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(next);
    pool.now += HOUR;
    let end = pool.report(next, 0, MemberEvent::Exited { code: 0, outputs: None }, HOUR);
    assert_eq!(vouchers(&end.effects)[0].cumulative.0, TOKEN * 150_000 / HOUR + TOKEN);
}

#[test]
fn two_members_at_one_provider_share_a_voucher() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[mig("1g.10gb"), mig("2g.20gb")]));
    pool.run_up(id);
    pool.now += HOUR;
    pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, HOUR);
    let end = pool.report(id, 1, MemberEvent::Exited { code: 0, outputs: None }, HOUR);
    let due = vouchers(&end.effects);
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].cumulative, Amount(300_000));
}

#[test]
fn without_money_or_a_key_a_request_is_refused_with_the_sum_it_needs() {
    let mut pool = Pool::small();
    let refusal = pool.refusal(ask(renter(2), &[SliceWant::Whole]));
    assert_eq!(refusal.reason, Reason::PaymentRequired);
    let nearest = refusal.nearest.unwrap();
    assert_eq!((nearest.resource, nearest.need, nearest.have), (Some(Resource::Deposit), kept(TOKEN), 0));
    // Money alone is not enough: somebody must be able to sign.
    pool.block(vec![ChainEvent::Deposited { renter: renter(2), amount: Amount(10 * TOKEN) }]);
    let grant =
        |key, cap, until| ChainEvent::KeyGranted { renter: renter(2), key, cap: Amount(cap), until: TimeMs(until) };
    let late = pool.now + 100 * HOUR;
    let cap = kept(TOKEN);
    for (key, cap, until, short) in [
        (selion_api::Address([8; 20]), cap, late, Resource::Grant),
        (DELEGATE, cap - 1, late, Resource::Grant),
        (DELEGATE, cap, pool.now + HOUR, Resource::GrantUntilMs),
    ] {
        pool.block(vec![grant(key, cap, until)]);
        let refusal = pool.refusal(ask(renter(2), &[SliceWant::Whole]));
        assert_eq!((refusal.reason, refusal.nearest.unwrap().resource), (Reason::PaymentRequired, Some(short)));
    }
    pool.block(vec![grant(DELEGATE, cap, late)]);
    let id = pool.lease(ask(renter(2), &[SliceWant::Whole]));
    assert_eq!(pool.state_of(id), LeaseState::Held);
    // The cap is promised now, though money is left.
    let refusal = pool.refusal(ask(renter(2), &[mig("1g.10gb")]));
    assert_eq!(refusal.nearest.unwrap().have, 0);
}

#[test]
fn who_waits_and_has_promised_his_money_elsewhere_is_told_so() {
    let mut pool = Pool::small();
    pool.fund(renter(2), TOKEN + 100_000);
    let blocker = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let first = pool.lease(ask(renter(2), &[mig("7g.80gb")]));
    let second = pool.lease(ask(renter(2), &[mig("7g.80gb")]));
    pool.clear(blocker);
    assert_eq!(pool.state_of(first), LeaseState::Held);
    pool.run_up(first);
    pool.now += 1;
    pool.clear(first);
    assert_eq!(pool.state_of(second), LeaseState::Held);
}

#[test]
fn thawing_takes_only_what_no_lease_counts_on_and_the_rest_later() {
    let mut pool = Pool::new();
    pool.node(crate::pool::spec(1, vec![crate::pool::a100(1, 0)]));
    pool.fund(renter(1), 3 * TOKEN);
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.block(vec![ChainEvent::Thawed {
        renter: renter(1),
        amount: Amount(3 * TOKEN),
        ready: TimeMs(pool.now + 72 * HOUR),
    }]);
    assert_eq!(holds(&pool, Pocket::Thawing(renter(1))), 3 * TOKEN - kept(TOKEN));
    assert_eq!(pool.refusal(ask(renter(1), &[mig("1g.10gb")])).reason, Reason::PaymentRequired);
    pool.clear(id);
    assert_eq!(holds(&pool, Pocket::Thawing(renter(1))), 3 * TOKEN);
    pool.block(vec![ChainEvent::Withdrawn { renter: renter(1), amount: Amount(3 * TOKEN) }]);
    assert_eq!(holds(&pool, Pocket::Outside), 0);
    assert_eq!(pool.state.books[&renter(1)].withdrawn, Amount(3 * TOKEN));
}

#[test]
fn a_withdrawal_of_less_than_was_asked_back_ends_the_asking_as_it_does_in_the_contract() {
    let mut pool = Pool::new();
    pool.fund(renter(1), 3 * TOKEN);
    let (amount, ready) = (Amount(3 * TOKEN), TimeMs(pool.now));
    pool.block(vec![ChainEvent::Thawed { renter: renter(1), amount, ready }]);
    // A claim left two of the three.
    let (cumulative, paid) = (Amount(TOKEN), Amount(TOKEN));
    pool.block(vec![ChainEvent::Claimed { provider: provider(1), renter: renter(1), cumulative, paid, key: None }]);
    pool.block(vec![ChainEvent::Withdrawn { renter: renter(1), amount: Amount(2 * TOKEN) }]);
    assert_eq!(pool.state.books[&renter(1)].thawing, Amount(0));
    // What he pays in afterwards is free.
    pool.block(vec![ChainEvent::Deposited { renter: renter(1), amount: Amount(TOKEN) }]);
    assert_eq!((holds(&pool, Pocket::Free(renter(1))), holds(&pool, Pocket::Thawing(renter(1)))), (TOKEN, 0));
}

#[test]
fn a_component_that_moves_leaves_its_old_place_as_it_does_in_the_contract() {
    let mut pool = Pool::new();
    let (owner, kind) = (provider(1), ComponentKind::Gateway);
    for (endpoint, until) in [("http://a", HOUR), ("http://b", 2 * HOUR)] {
        let until = TimeMs(pool.now + until);
        pool.block(vec![ChainEvent::ComponentRegistered { owner, kind, endpoint: endpoint.into(), until }]);
    }
    let known: Vec<_> = pool.state.components.keys().map(|(.., endpoint)| endpoint.as_str()).collect();
    assert_eq!(known, ["http://b"]);
}

#[test]
fn a_claim_settles_what_is_owed_and_is_taken_off_the_cap_once() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.now += HOUR;
    pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, HOUR);
    let left = Amount(999 * TOKEN);
    pool.block(vec![ChainEvent::Claimed {
        provider: provider(1),
        renter: renter(1),
        cumulative: Amount(TOKEN),
        paid: Amount(TOKEN),
        key: Some(DELEGATE),
    }]);
    assert_eq!(holds(&pool, Pocket::Owed(renter(1), provider(1))), 0);
    assert_eq!(pool.state.books[&renter(1)].claimed, Amount(TOKEN));
    assert_eq!(pool.state.grants[&renter(1)].cap, left);
    assert_eq!(pool.state.billed[&(renter(1), provider(1))], Amount(TOKEN));
}

#[test]
fn a_deposit_that_left_under_running_leases_makes_no_money_appear() {
    let mut pool = Pool::new();
    pool.node(crate::pool::spec(1, vec![crate::pool::a100(1, 0)]));
    pool.fund(renter(1), kept(TOKEN));
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.block(vec![ChainEvent::Withdrawn { renter: renter(1), amount: Amount(kept(TOKEN)) }]);
    pool.now += HOUR / 2;
    let end = pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, HOUR / 2);
    assert!(vouchers(&end.effects).is_empty(), "nothing is promised that is not there");
    assert_eq!(pool.state_of(id), LeaseState::Ended);
}

#[test]
fn blocks_rise_and_the_first_terms_stay() {
    let mut pool = Pool::small();
    pool.height -= 1;
    let again = pool.block(Vec::new());
    assert!(matches!(again.answer, selion_market::Answer::Refused(_)));
    let terms = pool.state.pool.clone();
    pool.block(vec![ChainEvent::PoolOpened {
        token: DELEGATE,
        vault: DELEGATE,
        owner: renter(1),
        authority: renter(1),
        fee_bps: 9999,
        allow_simulated: false,
        allow_unsandboxed: false,
        finality_depth: 1,
        min_stake: Amount(0),
    }]);
    assert_eq!(pool.state.pool, terms);
}

#[test]
fn a_revoked_key_pays_for_what_ran_and_for_nothing_new_until_it_is_granted_again() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.now += HOUR / 4;
    let dead_from = TimeMs(pool.now + HOUR);
    pool.block(vec![ChainEvent::KeyRevoked { renter: renter(1), key: DELEGATE, dead_from }]);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::PaymentRequired)));
    let end = pool.report(id, 0, MemberEvent::Stopped { outputs: None }, HOUR / 4);
    assert_eq!(vouchers(&end.effects)[0].cumulative, Amount(TOKEN / 4));
    assert_eq!(pool.refusal(ask(renter(1), &[SliceWant::Whole])).reason, Reason::PaymentRequired);
    let (until, cap) = (TimeMs(pool.now + 1000 * HOUR), Amount(999 * TOKEN));
    pool.block(vec![ChainEvent::KeyGranted { renter: renter(1), key: DELEGATE, cap, until }]);
    let again = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!(pool.state_of(again), LeaseState::Held);
}

#[test]
fn an_owner_whose_stake_fell_below_the_minimum_gets_no_lease() {
    let mut pool = Pool::small();
    pool.block(vec![ChainEvent::StakeChanged { provider: provider(1), stake: Amount(4) }]);
    assert_eq!(pool.refusal(ask(renter(1), &[SliceWant::Whole])).reason, Reason::StakeTooLow);
    pool.block(vec![ChainEvent::StakeChanged { provider: provider(1), stake: Amount(5) }]);
    pool.lease(ask(renter(1), &[SliceWant::Whole]));
}

#[test]
fn nothing_is_granted_once_authority_has_passed_on() {
    let mut pool = Pool::small();
    pool.block(vec![ChainEvent::AuthorityChanged {
        epoch: 2,
        authority: selion_api::Account([8; 20]),
        owner: renter(1),
    }]);
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Waiting, Some(Reason::StaleFence)));
}
