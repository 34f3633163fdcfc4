//! Lies about how long leases last.

use selion_api::chain::ChainEvent;
use selion_api::said::{SAID_WITHIN_MS, Said};
use selion_api::{Amount, Hash32, LeaseId, Signature, SliceWant, TimeMs};
use selion_checker::Rule;
use selion_market::{Effect, Input, Pocket, Transfer};

use crate::pool::{HOUR, Pool, TOKEN, ask, node_id, provider, renter};
use crate::tape::Tape;

fn word(lease: LeaseId, for_ms: u64) -> Input {
    Input::Extend { renter: renter(1), lease, for_ms, key: Hash32([1; 32]), said: None }
}

fn longer(lease: LeaseId, duration_ms: u64) -> Effect {
    Effect::Extended { lease, duration_ms }
}

fn keeps(amount: u64) -> Effect {
    let (from, to) = (Pocket::Free(renter(1)), Pocket::Reserved(renter(1)));
    Effect::Moneyed(Transfer { from, to, amount: Amount(amount) })
}

fn running() -> (Pool, LeaseId) {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(id);
    (pool, id)
}

/// A lease that was made an hour longer, and the entry of that.
fn extended() -> (Tape, LeaseId, usize) {
    let (mut pool, id) = running();
    pool.enter(word(id, HOUR));
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let entry = tape.0.len() - 1;
    assert_eq!(tape.0[entry].effects, [longer(id, 2 * HOUR), keeps(TOKEN)]);
    (tape, id, entry)
}

#[test]
fn a_lease_that_its_renter_did_not_make_longer_or_not_by_that_or_not_then_is_seen() {
    let (tape, id, entry) = extended();
    let lie = |change: &dyn Fn(&mut Input)| {
        let mut tape = tape.clone();
        change(&mut tape.0[entry].input);
        tape.caught(Rule::Extended, entry);
    };
    lie(&|input| *input = Input::Tick);
    lie(&|input| *input = word(LeaseId { seq: 77, index: 7 }, HOUR));
    lie(&|input| *input = word(id, HOUR - 1));
    lie(&|input| {
        let Input::Extend { renter: who, .. } = input else { panic!("it is one") };
        *who = renter(2);
    });
    let at = tape.0[entry].stamp.at_ms;
    lie(&|input| {
        let Input::Extend { said, .. } = input else { panic!("it is one") };
        *said = Some(Said { said_ms: at.plus(SAID_WITHIN_MS + 1), signature: Signature::ZERO });
    });
}

#[test]
fn an_extension_that_counts_twice_is_seen() {
    let (mut tape, id, _) = extended();
    let again = tape.push(word(id, HOUR), vec![longer(id, 3 * HOUR), keeps(TOKEN)]);
    tape.caught(Rule::Extended, again);
    let (mut tape, id, entry) = extended();
    tape.0[entry].effects.extend([longer(id, 3 * HOUR), keeps(TOKEN)]);
    tape.caught(Rule::Extended, entry);
}

#[test]
fn a_lease_of_more_than_thirty_days_or_one_that_is_over_is_seen() {
    let (pool, id) = running();
    let mut tape = Tape::of(&pool);
    let days = 30 * 24 * HOUR;
    let entry = tape.push(word(id, days), vec![longer(id, days + HOUR), keeps(720 * TOKEN)]);
    tape.caught(Rule::Extended, entry);
    let (mut pool, id) = running();
    pool.clear(id);
    let mut tape = Tape::of(&pool);
    let entry = tape.push(word(id, HOUR), vec![longer(id, 2 * HOUR)]);
    tape.caught(Rule::Extended, entry);
}

#[test]
fn longer_time_that_is_not_paid_for_or_is_a_unit_too_dear_is_seen() {
    let (tape, _, entry) = extended();
    for amount in [None, Some(TOKEN - 1), Some(TOKEN + 1)] {
        let mut tape = tape.clone();
        tape.0[entry].effects.truncate(1);
        tape.0[entry].effects.extend(amount.map(keeps));
        tape.caught(Rule::Reserve, entry);
    }
    let (pool, id) = running();
    let mut tape = Tape::of(&pool);
    let (for_ms, cost) = (719 * HOUR, 1_000 * TOKEN);
    let entry = tape.push(word(id, for_ms), vec![longer(id, 720 * HOUR), keeps(719 * TOKEN)]);
    assert_eq!(tape.findings(), [], "{cost} would cover it");
    // A key that ends before the lease pays for none of it.
    for leaf in &mut tape.0 {
        if let Input::Block(block) = &mut leaf.input {
            for event in &mut block.events {
                if let ChainEvent::KeyGranted { until, .. } = event {
                    *until = TimeMs(until.0 - 500 * HOUR);
                }
            }
        }
    }
    tape.caught(Rule::Payable, entry);
}

#[test]
fn a_lease_that_is_made_longer_than_a_booking_an_owner_or_its_money_lets_it_is_seen() {
    let (mut pool, id) = running();
    pool.fund(renter(2), 1_000 * TOKEN);
    pool.lease(ask(renter(2), &[SliceWant::Whole]));
    let mut tape = Tape::of(&pool);
    let entry = tape.push(word(id, HOUR), vec![longer(id, 2 * HOUR), keeps(TOKEN)]);
    tape.caught(Rule::Backfill, entry);

    let (mut pool, id) = running();
    let (provider, node) = (provider(1), node_id(1));
    pool.enter(Input::Reclaim { provider, node, gpu: None, notice_ms: HOUR, said: None });
    let mut tape = Tape::of(&pool);
    let entry = tape.push(word(id, HOUR), vec![longer(id, 2 * HOUR), keeps(TOKEN)]);
    tape.caught(Rule::Reclaim, entry);

    let (mut pool, id) = running();
    let ready = TimeMs(pool.now + 3 * HOUR);
    pool.block(vec![ChainEvent::Thawed { renter: renter(1), amount: Amount(1_000 * TOKEN), ready }]);
    let mut tape = Tape::of(&pool);
    let entry = tape.push(word(id, HOUR), vec![longer(id, 2 * HOUR)]);
    tape.caught(Rule::Paid, entry);
}

#[test]
fn more_than_so_many_extensions_and_one_while_nothing_is_granted_are_seen() {
    let (pool, id) = running();
    let mut tape = Tape::of(&pool);
    let mut last = 0;
    for number in 0..=64_u8 {
        let said = Input::Extend { renter: renter(1), lease: id, for_ms: 3_600, key: Hash32([number; 32]), said: None };
        let lasts = HOUR + 3_600 * (u64::from(number) + 1);
        last = tape.push(said, vec![longer(id, lasts), keeps(TOKEN / 1_000)]);
    }
    tape.caught(Rule::Extended, last);
    let (mut pool, id) = running();
    pool.enter(Input::ChainBroken { number: 1, had: Hash32([1; 32]), has: Hash32([2; 32]) });
    let mut tape = Tape::of(&pool);
    let entry = tape.push(word(id, HOUR), vec![longer(id, 2 * HOUR), keeps(TOKEN)]);
    tape.caught(Rule::Halted, entry);
}
