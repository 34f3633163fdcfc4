//! Money that is about to leave under running leases, and promises whose money has left.

use selion_api::agent::MemberEvent;
use selion_api::chain::ChainEvent;
use selion_api::lease::{LeaseState, OnNodeLoss};
use selion_api::{Amount, LeaseId, LeaseRequest, Reason, SliceWant, TimeMs};
use selion_market::{Effect, Input, Pocket, Policy, VoucherDue};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, kept, mig, node_id, provider, renter, spec};

/// What a pool lets thaw by default.
const THAW: u64 = 72 * HOUR;
const STOPPED: MemberEvent = MemberEvent::Stopped { outputs: None };

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

/// Nodes of so many A100, and a renter with so many tokens.
fn pool(gpus: &[u8], tokens: u64) -> Pool {
    let mut pool = Pool::new();
    for (node, gpus) in (1..).zip(gpus) {
        pool.node(spec(node, (0..*gpus).map(|rank| a100(node, rank)).collect()));
    }
    pool.fund(renter(1), tokens * TOKEN);
    pool
}

fn hours(hours: u64) -> LeaseRequest {
    LeaseRequest { duration_ms: hours * HOUR, ..ask(renter(1), &[SliceWant::Whole]) }
}

fn running(pool: &mut Pool, request: LeaseRequest) -> LeaseId {
    let id = pool.lease(request);
    pool.run_up(id);
    id
}

/// The renter asks for so much of his deposit back. Tells until when what he runs is paid then.
fn thaw(pool: &mut Pool, tokens: u64) -> TimeMs {
    let ready = TimeMs(if tokens == 0 { 0 } else { pool.now + THAW });
    pool.block(vec![ChainEvent::Thawed { renter: renter(1), amount: Amount(tokens * TOKEN), ready }]);
    TimeMs(ready.0.saturating_sub(Policy::default().claim_margin_ms))
}

fn withdraw(pool: &mut Pool, amount: u64) {
    pool.block(vec![ChainEvent::Withdrawn { renter: renter(1), amount: Amount(amount) }]);
}

fn claim(pool: &mut Pool, of: u8, cumulative: Amount, paid: Amount) {
    pool.block(vec![ChainEvent::Claimed { provider: provider(of), renter: renter(1), cumulative, paid, key: None }]);
}

fn notice(pool: &Pool, id: LeaseId) -> Option<(TimeMs, Reason)> {
    pool.get(id).notice.map(|notice| (notice.by, notice.reason))
}

#[test]
fn a_lease_whose_deposit_thaws_is_stopped_in_time_for_its_last_voucher_to_be_claimed() {
    let mut pool = pool(&[1], 200);
    let id = running(&mut pool, hours(100));
    let natural = pool.get(id).deadline.unwrap();
    let by = thaw(&mut pool, 200);
    assert!(by < natural);
    assert_eq!((notice(&pool, id), pool.get(id).deadline), (Some((by, Reason::PaymentRequired)), Some(by)));
    // It runs on meanwhile, and is paid as it goes.
    let began = pool.now;
    pool.now += HOUR;
    let first = vouchers(&pool.report(id, 0, MemberEvent::Metered, HOUR).effects);
    assert_eq!(first[0].cumulative, Amount(TOKEN));
    pool.pass_ms(by.0 - pool.now - 1);
    assert_eq!(pool.state_of(id), LeaseState::Active);
    pool.pass_ms(1);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::PaymentRequired)));
    let end = pool.report(id, 0, STOPPED, by.0 - began);
    let last = &vouchers(&end.effects)[0];
    assert_eq!((last.cumulative, pool.state_of(id)), (Amount((by.0 - began) / HOUR * TOKEN), LeaseState::Ended));
    assert!(last.used_through <= by, "nothing is promised for use after that");
}

#[test]
fn a_lease_of_thirty_days_is_not_had_for_three() {
    let mut pool = pool(&[1], 721);
    let id = running(&mut pool, hours(720));
    let began = pool.now;
    let by = thaw(&mut pool, 721);
    pool.pass_ms(by.0 - pool.now);
    let end = pool.report(id, 0, STOPPED, by.0 - began);
    let due = vouchers(&end.effects)[0].clone();
    pool.now = began + THAW;
    claim(&mut pool, 1, due.cumulative, due.cumulative);
    withdraw(&mut pool, 721 * TOKEN - due.cumulative.0);
    assert_eq!((pool.state_of(id), holds(&pool, Pocket::Outside)), (LeaseState::Ended, 0));
    assert_eq!(pool.state.promised(renter(1)), Amount::ZERO, "who served was paid for all of it");
}

#[test]
fn a_thaw_of_free_money_alone_stops_nothing() {
    let mut pool = pool(&[1], 300);
    let id = running(&mut pool, hours(100));
    thaw(&mut pool, 199);
    assert_eq!(notice(&pool, id), None);
}

#[test]
fn deadlines_return_when_the_thaw_is_taken_back_or_what_is_missing_is_paid_in_or_another_lease_gives_it_back() {
    let whole = || pool(&[2], 200);
    let mut taken_back = whole();
    let id = running(&mut taken_back, hours(100));
    let natural = taken_back.get(id).deadline;
    thaw(&mut taken_back, 200);
    thaw(&mut taken_back, 0);
    assert_eq!((notice(&taken_back, id), taken_back.get(id).deadline), (None, natural));

    let mut paid_in = whole();
    let id = running(&mut paid_in, hours(100));
    let by = thaw(&mut paid_in, 200);
    let missing = Policy::default().grace_ms * TOKEN / HOUR + 100 * TOKEN + 1;
    let deposit = |amount| vec![ChainEvent::Deposited { renter: renter(1), amount: Amount(amount) }];
    paid_in.block(deposit(missing - 1));
    assert_eq!(notice(&paid_in, id), Some((by, Reason::PaymentRequired)), "a unit is missing still");
    paid_in.block(deposit(1));
    assert_eq!((notice(&paid_in, id), paid_in.get(id).deadline), (None, natural));
    assert_eq!(paid_in.refusal(ask(renter(1), &[mig("1g.10gb")])).reason, Reason::PaymentRequired);

    let mut two = whole();
    let (first, second) = (running(&mut two, hours(100)), running(&mut two, hours(50)));
    let by = thaw(&mut two, 90);
    let both = [first, second].map(|id| notice(&two, id));
    assert_eq!(
        both,
        [Some((by, Reason::PaymentRequired)); 2],
        "both run on what is left until it is known what that is"
    );
    two.clear(second);
    assert_eq!((notice(&two, first), holds(&two, Pocket::Thawing(renter(1)))), (None, 90 * TOKEN));
}

#[test]
fn what_ends_before_the_money_may_leave_runs_to_its_own_end() {
    let mut pool = pool(&[1], 10);
    let id = running(&mut pool, hours(9));
    let natural = pool.get(id).deadline;
    let by = thaw(&mut pool, 10);
    assert_eq!((notice(&pool, id), pool.get(id).deadline), (Some((by, Reason::PaymentRequired)), natural));
    pool.pass_ms(10 * HOUR);
    assert_eq!(pool.reason_of(id), Some(Reason::Expired));
}

#[test]
fn of_an_owners_notice_and_that_of_the_money_the_earlier_holds_and_says_why() {
    let again = || LeaseRequest { on_node_loss: OnNodeLoss::Requeue, ..hours(100) };
    for (notice_ms, reason, then) in
        [(HOUR, Reason::OwnerReclaimed, LeaseState::Waiting), (90 * HOUR, Reason::PaymentRequired, LeaseState::Ended)]
    {
        let mut pool = pool(&[1], 200);
        let id = running(&mut pool, again());
        let by = thaw(&mut pool, 200);
        let owner = TimeMs(pool.now + notice_ms);
        pool.enter(Input::Reclaim { provider: provider(1), node: node_id(1), gpu: None, notice_ms, said: None });
        assert_eq!(notice(&pool, id), Some((by.min(owner), reason)));
        pool.pass_ms(by.min(owner).0 - pool.now);
        assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(reason)));
        pool.report(id, 0, STOPPED, 0);
        assert_eq!(pool.state_of(id), then);
    }
}

#[test]
fn what_prepares_is_stopped_too_and_nothing_new_begins_on_money_that_thaws() {
    let mut pool = pool(&[2], 200);
    let id = pool.lease(hours(100));
    thaw(&mut pool, 200);
    assert!(notice(&pool, id).is_some());
    assert_eq!(pool.refusal(hours(1)).reason, Reason::PaymentRequired);
    // A thaw that is heard of when its time is all but over stops at once.
    let ready = TimeMs(pool.now + HOUR);
    pool.block(vec![ChainEvent::Thawed { renter: renter(1), amount: Amount(200 * TOKEN), ready }]);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::PaymentRequired)));
}

#[test]
fn another_margin_moves_the_deadlines_of_what_runs() {
    let mut pool = pool(&[1], 200);
    let id = running(&mut pool, hours(100));
    let by = thaw(&mut pool, 200);
    let policy = Policy { claim_margin_ms: Policy::default().claim_margin_ms + HOUR, ..Policy::default() };
    pool.fence.term += 1;
    pool.enter(Input::Opened { delegate: DELEGATE, policy });
    assert_eq!(notice(&pool, id), Some((TimeMs(by.0 - HOUR), Reason::PaymentRequired)));
}

#[test]
fn a_lease_whose_reserve_left_ends_with_the_first_voucher_that_it_cannot_pay() {
    let mut pool = pool(&[1], 101);
    let id = running(&mut pool, hours(100));
    let began = pool.now;
    // No notice was possible: thaw and withdrawal came in one block.
    withdraw(&mut pool, 101 * TOKEN - TOKEN / 2);
    pool.now = began + HOUR / 4;
    let first = pool.report(id, 0, MemberEvent::Metered, HOUR / 4);
    assert_eq!((vouchers(&first.effects)[0].cumulative, pool.state_of(id)), (Amount(TOKEN / 4), LeaseState::Active));
    pool.now = began + HOUR;
    let second = pool.report(id, 0, MemberEvent::Metered, HOUR);
    assert_eq!(vouchers(&second.effects)[0].cumulative, Amount(TOKEN / 2), "what is there is promised, and no more");
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::PaymentRequired)));
}

#[test]
fn a_gang_that_lost_a_member_and_cannot_pay_it_is_not_repaired() {
    let mut pool = pool(&[1, 1, 1], 10);
    let gang = LeaseRequest {
        on_node_loss: OnNodeLoss::Repair,
        min_members: 1,
        ..ask(renter(1), &[SliceWant::Whole, SliceWant::Whole])
    };
    let id = running(&mut pool, gang);
    withdraw(&mut pool, 10 * TOKEN);
    pool.now += HOUR / 2;
    for rank in 0..2 {
        let mut report = pool.report_for(id, rank, MemberEvent::Metered, HOUR / 2);
        report.metered_ms = 0; // nothing is owed yet
        pool.send(report);
    }
    pool.now += 1_000;
    let lost = pool.get(id).members[0].node;
    let last_seq = pool.state.nodes[&lost].last_seq;
    let report = pool.report_for(id, 0, MemberEvent::Metered, HOUR / 2);
    pool.send(report);
    assert_eq!(pool.state_of(id), LeaseState::Active, "its voucher is not due yet");
    pool.enter(Input::Lost { node: lost, last_seq: last_seq + 1 });
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::PaymentRequired)));
}

/// A promise of one token that slept through a withdrawal.
fn unfunded() -> Pool {
    let mut pool = pool(&[1, 1], 1);
    let id = running(&mut pool, LeaseRequest { duration_ms: HOUR - Policy::default().grace_ms, ..hours(1) });
    pool.now += HOUR - Policy::default().grace_ms;
    pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, HOUR - Policy::default().grace_ms);
    thaw(&mut pool, 1);
    pool.now += THAW;
    withdraw(&mut pool, TOKEN);
    pool
}

#[test]
fn a_promise_whose_money_left_is_kept_and_the_next_deposit_fills_it_before_any_is_free() {
    let mut pool = unfunded();
    let promise = pool.state.promised(renter(1));
    assert_eq!((promise, holds(&pool, Pocket::Owed(renter(1), provider(1)))), (Amount(TOKEN - 1_389), 0));
    assert_eq!(pool.state.unfunded(renter(1)), promise);
    assert!(pool.state.may_promise(renter(1), pool.state.now).is_err());
    pool.fund(renter(1), TOKEN);
    assert_eq!(holds(&pool, Pocket::Owed(renter(1), provider(1))), promise.0);
    assert_eq!(holds(&pool, Pocket::Free(renter(1))), TOKEN - promise.0);
    assert_eq!(pool.state.may_promise(renter(1), pool.state.now), Ok(()));
    assert_eq!(pool.refusal(hours(1)).reason, Reason::PaymentRequired);
    // The old voucher is claimed at last.
    claim(&mut pool, 1, promise, promise);
    assert_eq!(pool.state.promised(renter(1)), Amount::ZERO);
    assert_eq!(holds(&pool, Pocket::Outside), TOKEN - promise.0);
}

#[test]
fn a_claim_of_what_has_no_money_here_is_no_promise_any_more() {
    let mut pool = unfunded();
    let promise = pool.state.promised(renter(1));
    let half = Amount(promise.0 / 2);
    pool.fund(renter(1), half.0);
    assert_eq!(holds(&pool, Pocket::Owed(renter(1), provider(1))), half.0);
    claim(&mut pool, 1, half, half);
    assert_eq!(pool.state.unfunded(renter(1)).0, promise.0 - half.0);
    pool.fund(renter(1), 10 * TOKEN);
    assert_eq!(holds(&pool, Pocket::Owed(renter(1), provider(1))), promise.0 - half.0);
}

#[test]
fn money_that_a_lease_gives_back_and_money_that_is_not_to_leave_any_more_fill_promises_too() {
    let mut pool = unfunded();
    let promise = pool.state.promised(renter(1)).0;
    pool.fund(renter(1), promise + 3 * TOKEN);
    let id = pool.lease(hours(2));
    assert_eq!(holds(&pool, Pocket::Reserved(renter(1))), kept(TOKEN) + TOKEN);
    // A second provider is paid above its bill, out of what the first one was promised.
    let all = holds(&pool, Pocket::Outside);
    claim(&mut pool, 2, Amount(all - 10), Amount(all - 10));
    assert_eq!(pool.state.unfunded(renter(1)).0, promise - 10);
    pool.clear(id);
    let deposit = |amount| vec![ChainEvent::Deposited { renter: renter(1), amount: Amount(amount) }];
    thaw(&mut pool, 1);
    pool.block(deposit(promise));
    assert_eq!((pool.state.unfunded(renter(1)), holds(&pool, Pocket::Thawing(renter(1)))), (Amount::ZERO, 10));
}

#[test]
fn nothing_more_is_promised_while_what_is_left_may_leave() {
    let mut pool = pool(&[1], 10);
    let id = running(&mut pool, hours(1));
    pool.now += HOUR;
    pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, HOUR);
    thaw(&mut pool, 10);
    assert_eq!(pool.state.may_promise(renter(1), pool.state.now), Ok(()), "it can be claimed until then");
    let ready = pool.state.books[&renter(1)].ready;
    assert!(pool.state.may_promise(renter(1), ready).is_err(), "also while nothing enters the log");
    pool.pass_ms(THAW);
    pool.enter(Input::Tick);
    let short = pool.state.may_promise(renter(1), pool.state.now).unwrap_err();
    assert_eq!((short.promised, short.covered), (Amount(TOKEN), Amount::ZERO));
}
