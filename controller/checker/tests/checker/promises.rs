//! Lies about money that leaves, and about promises whose money left.

use selion_api::agent::MemberEvent;
use selion_api::chain::ChainEvent;
use selion_api::lease::LeaseState;
use selion_api::{Amount, LeaseId, LeaseRequest, Reason, SliceWant, TimeMs};
use selion_checker::Rule;
use selion_market::{Effect, Input, Pocket, Policy, Transfer};

use crate::pool::{HOUR, Pool, TOKEN, ask, provider, renter};
use crate::tape::{Tape, moves};

/// A lease of 100 hours, and all the renter's deposit thaws.
fn thawing() -> (Pool, LeaseId, u64) {
    let mut pool = Pool::small();
    let id = pool.lease(LeaseRequest { duration_ms: 100 * HOUR, ..ask(renter(1), &[SliceWant::Whole]) });
    pool.run_up(id);
    let ready = pool.now + 72 * HOUR;
    pool.block(vec![ChainEvent::Thawed { renter: renter(1), amount: Amount(1_000 * TOKEN), ready: TimeMs(ready) }]);
    (pool, id, ready - Policy::default().claim_margin_ms)
}

fn stop(lease: LeaseId) -> Effect {
    let reason = Some(Reason::PaymentRequired);
    Effect::Moved { lease, state: LeaseState::Ending, reason, attempt: 1 }
}

#[test]
fn a_lease_that_runs_on_though_its_money_is_about_to_leave_is_seen() {
    let (mut pool, id, until) = thawing();
    pool.pass_ms(until - pool.now);
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(moves(id, LeaseState::Ending));
    assert_eq!(tape.0[entry].effects.remove(at), stop(id));
    tape.caught(Rule::Paid, entry);
}

#[test]
fn a_stop_for_want_of_money_before_its_time_or_where_there_is_enough_is_seen() {
    let (mut early, id, until) = thawing();
    early.pass_ms(until - early.now - 1);
    let (mut taken_back, _, _) = thawing();
    taken_back.block(vec![ChainEvent::Thawed { renter: renter(1), amount: Amount(0), ready: TimeMs(0) }]);
    taken_back.pass_ms(until - taken_back.now);
    for pool in [early, taken_back] {
        let mut tape = Tape::of(&pool);
        assert_eq!(tape.findings(), []);
        let entry = tape.push(Input::Tick, vec![stop(id)]);
        tape.caught(Rule::Paid, entry);
    }
}

#[test]
fn a_lease_that_runs_on_though_its_reserve_left_is_seen() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.block(vec![ChainEvent::Withdrawn { renter: renter(1), amount: Amount(1_000 * TOKEN) }]);
    pool.now += HOUR / 2;
    pool.report(id, 0, MemberEvent::Metered, HOUR / 2);
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(moves(id, LeaseState::Ending));
    assert_eq!(tape.0[entry].effects.remove(at), stop(id));
    tape.caught(Rule::Paid, entry);
}

/// A promise whose money left, and the deposit that fills it.
fn filled() -> (Tape, usize, usize) {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.now += HOUR / 2;
    pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, HOUR / 2);
    pool.block(vec![ChainEvent::Withdrawn { renter: renter(1), amount: Amount(1_000 * TOKEN) }]);
    pool.fund(renter(1), 10 * TOKEN);
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Moneyed(it) if fills(it)));
    (tape, entry, at)
}

fn fills(transfer: &Transfer) -> bool {
    matches!((transfer.from, transfer.to), (Pocket::Free(_), Pocket::Owed(..)))
}

#[test]
fn a_promise_that_is_forgotten_when_its_money_left_is_seen() {
    let (mut tape, entry, at) = filled();
    tape.0[entry].effects.remove(at);
    tape.caught(Rule::Promise, entry);
}

#[test]
fn a_promise_that_nobody_was_billed_for_is_seen() {
    let (tape, entry, at) = filled();
    let mut more = tape.clone();
    let mut other = tape;
    for (tape, change) in [
        (&mut more, (|it: &mut Transfer| it.amount.0 += 1) as fn(&mut Transfer)),
        (&mut other, |it| it.to = Pocket::Owed(renter(1), provider(2))),
    ] {
        let Effect::Moneyed(transfer) = &mut tape.0[entry].effects[at] else {
            panic!("it was just found");
        };
        change(transfer);
        tape.caught(Rule::Promise, entry);
    }
}
