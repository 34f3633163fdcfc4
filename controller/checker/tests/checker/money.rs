//! Lies about money.

use selion_api::agent::MemberEvent;
use selion_api::chain::ChainEvent;
use selion_api::lease::BillLine;
use selion_api::{Amount, LeaseId, SliceWant, TimeMs};
use selion_checker::Rule;
use selion_market::{Effect, Input, Pocket, Transfer, VoucherDue};

use crate::pool::{HOUR, Pool, TOKEN, ask, renter};
use crate::tape::Tape;

/// A lease that ran half an hour and is billed.
fn billed() -> (Tape, LeaseId) {
    let mut pool = Pool::small();
    pool.fund(renter(2), 10 * TOKEN);
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    pool.now += HOUR / 2;
    pool.report(id, 0, MemberEvent::Metered, HOUR / 2);
    pool.now += HOUR / 4;
    pool.release(id);
    pool.report(id, 0, MemberEvent::Stopped { outputs: None }, HOUR * 3 / 4);
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    (tape, id)
}

fn moneyed(effect: &mut Effect) -> &mut Transfer {
    match effect {
        Effect::Moneyed(transfer) => transfer,
        other => panic!("no transfer: {other:?}"),
    }
}

/// Changes the first transfer between such pockets.
#[track_caller]
fn transfer(which: impl Fn(&Transfer) -> bool, rule: Rule, change: impl Fn(&mut Transfer)) {
    let (mut tape, _) = billed();
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Moneyed(transfer) if which(transfer)));
    change(moneyed(&mut tape.0[entry].effects[at]));
    tape.caught(rule, entry);
}

fn reserves(transfer: &Transfer) -> bool {
    matches!(transfer.to, Pocket::Reserved(_))
}

fn gives_back(transfer: &Transfer) -> bool {
    matches!((transfer.from, transfer.to), (Pocket::Reserved(_), Pocket::Free(_)))
}

fn owes(transfer: &Transfer) -> bool {
    matches!(transfer.to, Pocket::Owed(..))
}

#[test]
fn money_that_changes_its_owner_is_seen() {
    transfer(gives_back, Rule::Path, |transfer| transfer.to = Pocket::Free(renter(2)));
    transfer(reserves, Rule::Path, |transfer| transfer.from = Pocket::Free(renter(2)));
    transfer(owes, Rule::Path, |transfer| transfer.from = Pocket::Free(renter(2)));
}

#[test]
fn money_that_a_pocket_does_not_hold_is_seen() {
    transfer(owes, Rule::Short, |transfer| transfer.amount = Amount(500 * TOKEN));
    transfer(gives_back, Rule::Short, |transfer| transfer.amount.0 += 1);
}

#[test]
fn money_that_the_chain_knows_nothing_of_is_seen() {
    let deposits = |transfer: &Transfer| transfer.from == Pocket::Outside;
    transfer(deposits, Rule::Chain, |transfer| transfer.amount.0 += 1);
    transfer(deposits, Rule::Chain, |transfer| transfer.to = Pocket::Free(renter(2)));
    let (mut tape, _) = billed();
    let gone = Transfer { from: Pocket::Free(renter(2)), to: Pocket::Outside, amount: Amount(1) };
    let entry = tape.push(Input::Tick, vec![Effect::Moneyed(gone)]);
    tape.caught(Rule::Chain, entry);
}

#[test]
fn money_that_thaws_without_being_asked_back_is_seen() {
    let (mut tape, _) = billed();
    let thawing = Transfer { from: Pocket::Free(renter(2)), to: Pocket::Thawing(renter(2)), amount: Amount(1) };
    let entry = tape.push(Input::Tick, vec![Effect::Moneyed(thawing)]);
    tape.caught(Rule::Chain, entry);
}

#[test]
fn a_deposit_that_is_kept_out_of_the_books_is_seen() {
    let (mut tape, _) = billed();
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Moneyed(_)));
    tape.0[entry].effects.remove(at);
    tape.caught(Rule::Chain, entry);
}

#[test]
fn a_grant_that_keeps_more_or_less_than_it_costs_is_seen() {
    transfer(reserves, Rule::Reserve, |transfer| transfer.amount.0 -= 1);
    transfer(reserves, Rule::Reserve, |transfer| transfer.amount.0 += 1);
}

#[test]
fn what_is_left_of_a_reserve_and_not_given_back_is_seen() {
    let (mut tape, _) = billed();
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Moneyed(transfer) if gives_back(transfer)));
    tape.0[entry].effects.remove(at);
    tape.caught(Rule::Reserve, entry);
}

#[test]
fn a_grant_above_the_keys_cap_or_after_its_end_is_seen() {
    let change_key = |change: &dyn Fn(&mut Amount, &mut TimeMs)| {
        let (mut tape, id) = billed();
        for leaf in &mut tape.0 {
            if let Input::Block(block) = &mut leaf.input {
                for event in &mut block.events {
                    if let ChainEvent::KeyGranted { cap, until, .. } = event {
                        change(cap, until);
                    }
                }
            }
        }
        tape.caught(Rule::Payable, id.seq as usize);
    };
    change_key(&|cap, _| *cap = Amount(TOKEN - 1));
    change_key(&|_, until| *until = TimeMs(1_000_000 + HOUR));
}

#[test]
fn a_grant_by_a_key_that_was_revoked_is_seen() {
    let (mut tape, id) = billed();
    let Input::Block(block) = &mut tape.0[id.seq as usize - 1].input else {
        panic!("the renters were funded by blocks");
    };
    let key = crate::pool::DELEGATE;
    block.events.push(ChainEvent::KeyRevoked { renter: renter(1), key, dead_from: TimeMs(u64::MAX) });
    tape.caught(Rule::Payable, id.seq as usize);
}

/// Changes the bill line.
#[track_caller]
fn bill(rule: Rule, change: impl Fn(&mut BillLine)) {
    let (mut tape, _) = billed();
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Billed(_)));
    match &mut tape.0[entry].effects[at] {
        Effect::Billed(line) => change(line),
        _ => unreachable!("it was just found"),
    }
    tape.caught(rule, entry);
}

#[test]
fn a_bill_a_unit_too_high_is_seen() {
    bill(Rule::Bill, |line| line.amount.0 += 1);
}

#[test]
fn a_bill_at_another_rate_or_between_others_is_seen() {
    bill(Rule::Bill, |line| {
        line.rate.0 += 4;
        line.amount = line.rate.bill(line.billable_ms);
    });
    bill(Rule::Bill, |line| line.provider = renter(2));
    bill(Rule::Bill, |line| line.renter = renter(2));
    bill(Rule::Bill, |line| line.member = 1);
    bill(Rule::Bill, |line| line.attempt = 0);
}

#[test]
fn a_bill_for_more_than_the_node_metered_is_seen() {
    bill(Rule::BillTime, |line| {
        line.billable_ms += 1;
        line.amount = line.rate.bill(line.billable_ms);
    });
}

#[test]
fn a_bill_above_what_was_kept_is_seen() {
    bill(Rule::BillSum, |line| {
        line.billable_ms = 2 * HOUR;
        line.amount = line.rate.bill(line.billable_ms);
    });
}

#[test]
fn a_line_that_comes_twice_or_not_at_all_is_seen() {
    let (tape, _) = billed();
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::Billed(_)));
    let mut twice = tape.clone();
    let line = twice.0[entry].effects[at].clone();
    twice.0[entry].effects.insert(at, line);
    twice.caught(Rule::Bill, entry);
    let mut none = tape;
    none.0[entry].effects.remove(at);
    none.caught(Rule::Bill, entry);
}

/// Changes the first voucher.
#[track_caller]
fn voucher(change: impl Fn(&mut VoucherDue)) {
    let (mut tape, _) = billed();
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::VoucherDue(_)));
    match &mut tape.0[entry].effects[at] {
        Effect::VoucherDue(due) => change(due),
        _ => unreachable!("it was just found"),
    }
    tape.caught(Rule::Voucher, entry);
}

#[test]
fn a_voucher_for_more_than_is_owed_or_for_time_to_come_is_seen() {
    voucher(|due| due.cumulative.0 += 1);
    voucher(|due| due.provider = renter(2));
    voucher(|due| due.used_through = due.used_through.plus(1_000 * HOUR));
    let (mut tape, _) = billed();
    let (entry, at) = tape.find(|effect| matches!(effect, Effect::VoucherDue(_)));
    tape.0[entry].effects.remove(at);
    tape.caught(Rule::Voucher, entry);
}
