//! Lies about whose turn it was, who was stopped for whom, and what was booked.

use selion_api::agent::MemberEvent;
use selion_api::lease::{LeaseState, Priority};
use selion_api::{Account, Amount, LeaseId, LeaseRequest, Reason, SliceWant, TimeMs};
use selion_checker::Rule;
use selion_market::accounts::Seat;
use selion_market::{Effect, Input, Pocket, Policy, Transfer};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, renter, share, spec};
use crate::tape::{Tape, moves};

pub fn whole(of: u8) -> LeaseRequest {
    ask(renter(of), &[SliceWant::Whole])
}

fn seat((account, weight): (Account, u32)) -> Seat {
    Seat { account, group: String::new(), weight }
}

/// Renter 1 holds a GPU, renter 2 half of one. Renter 4 has the booking, then `first` and `second` wait for the same,
/// and there comes room for two of the three.
fn contest(weights: Vec<(Account, u32)>, first: u8, second: u8) -> (Pool, [LeaseId; 2]) {
    let mut pool = Pool::small();
    pool.enter(Input::Opened {
        delegate: DELEGATE,
        policy: Policy { accounts: weights.into_iter().map(seat).collect(), ..Policy::default() },
    });
    pool.node(spec(2, vec![a100(2, 0)]));
    for of in 2..7 {
        pool.fund(renter(of), 1000 * TOKEN);
    }
    pool.lease(whole(1));
    for of in [2, 3] {
        pool.lease(ask(renter(of), &[share(500, 10)]));
    }
    pool.lease(whole(4));
    let wait = [pool.lease(whole(first)), pool.lease(whole(second))];
    pool.node(spec(3, vec![a100(3, 0), a100(3, 1)]));
    (pool, wait)
}

/// In the last entry that grants `from`, the same is granted to `to` instead.
pub fn swap(pool: &Pool, from: LeaseId, to: LeaseId) -> (Tape, usize) {
    let mut tape = Tape::of(pool);
    assert_eq!(tape.findings(), []);
    let grants = moves(from, LeaseState::Held);
    let entry = tape.0.iter().rposition(|leaf| leaf.effects.iter().any(&grants)).unwrap();
    let [payer, other] = [from, to].map(|id| pool.get(id).request.renter);
    for effect in &mut tape.0[entry].effects {
        match effect {
            Effect::Moved { lease, state: LeaseState::Held, .. } if *lease == from => *lease = to,
            Effect::Granted(grant) if grant.lease == from => {
                grant.lease = to;
                grant.renter = other;
            }
            Effect::Moneyed(transfer) if transfer.to == Pocket::Reserved(payer) => {
                (transfer.from, transfer.to) = (Pocket::Free(other), Pocket::Reserved(other));
            }
            _ => {}
        }
    }
    tape.0[entry].effects.retain(|effect| !matches!(effect, Effect::Booked { at: Some(_), .. }));
    (tape, entry)
}

pub fn states(pool: &Pool, leases: [LeaseId; 2]) -> [LeaseState; 2] {
    leases.map(|id| pool.state_of(id))
}

#[test]
fn a_grant_to_who_holds_more_while_who_holds_less_waits_is_seen() {
    let (pool, [more, less]) = contest(Vec::new(), 1, 2);
    assert_eq!(states(&pool, [more, less]), [LeaseState::Waiting, LeaseState::Held]);
    let (tape, entry) = swap(&pool, less, more);
    tape.caught(Rule::Order, entry);
    let finding = tape.findings().into_iter().find(|finding| finding.rule == Rule::Order).unwrap();
    assert_eq!(finding.lease, Some(less), "it names who was passed over");
    assert!(finding.need < finding.have, "with both shares: {finding}");
}

#[test]
fn weights_count_in_the_second_opinion_too() {
    let (pool, [heavy, light]) = contest(vec![(renter(1), 4)], 1, 2);
    assert_eq!(states(&pool, [heavy, light]), [LeaseState::Held, LeaseState::Waiting]);
    let (tape, entry) = swap(&pool, heavy, light);
    tape.caught(Rule::Order, entry);
}

#[test]
fn who_could_not_pay_is_not_passed_over() {
    let (pool, [more, less]) = contest(Vec::new(), 1, 2);
    let (mut tape, entry) = swap(&pool, less, more);
    // His money is on its way out of the pool.
    let (from, to) = (Pocket::Free(renter(2)), Pocket::Thawing(renter(2)));
    let thawing = Transfer { from, to, amount: Amount(999 * TOKEN) };
    tape.0[entry].effects.insert(0, Effect::Moneyed(thawing));
    assert!(tape.findings().iter().all(|finding| finding.rule != Rule::Order));
}

#[test]
fn among_equal_renters_a_grant_to_the_younger_is_seen() {
    let (pool, [older, younger]) = contest(Vec::new(), 5, 6);
    assert_eq!(states(&pool, [older, younger]), [LeaseState::Held, LeaseState::Waiting]);
    let (tape, entry) = swap(&pool, older, younger);
    tape.caught(Rule::Order, entry);
}

#[test]
fn a_grant_past_who_has_the_booking_is_seen() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1000 * TOKEN);
    let leaves = pool.lease(whole(1));
    let (booked, later) = (pool.lease(whole(1)), pool.lease(whole(2)));
    pool.release(leaves);
    pool.report(leaves, 0, MemberEvent::Stopped { outputs: None }, 0);
    assert_eq!(states(&pool, [booked, later]), [LeaseState::Held, LeaseState::Waiting]);
    let (tape, entry) = swap(&pool, booked, later);
    tape.caught(Rule::Order, entry);
}

#[test]
fn who_is_kept_out_by_a_booking_is_tried_again_before_a_newcomer_of_a_lower_class() {
    let mut pool = Pool::small();
    for node in 2..4 {
        pool.node(spec(node, vec![a100(node, 0)]));
    }
    pool.fund(renter(2), 1000 * TOKEN);
    let with = |of, members: usize, priority| {
        let slices = vec![SliceWant::Whole; members];
        LeaseRequest { priority, ..ask(renter(of), &slices) }
    };
    let runs = pool.lease(with(1, 1, Priority::Standard));
    pool.run_up(runs);
    let starts = pool.lease(with(1, 1, Priority::Standard));
    pool.lease(with(1, 2, Priority::Standard));
    let kept = pool.lease(with(2, 1, Priority::Standard));
    assert_eq!(pool.reason_of(kept), Some(Reason::KeptForBooking));
    pool.run_up(starts); // and so is known to end earlier: in time for the gang
    let newcomer = pool.lease(with(1, 1, Priority::Interruptible));
    assert_eq!(states(&pool, [kept, newcomer]), [LeaseState::Held, LeaseState::Waiting]);
}

/// A firm lease stops an interruptible one that ran long enough.
fn preempted() -> (Pool, [LeaseId; 2]) {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1000 * TOKEN);
    let with = |of: u8, priority| LeaseRequest { priority, ..ask(renter(of), &[share(600, 10)]) };
    let victim = pool.lease(with(1, Priority::Interruptible));
    pool.run_up(victim);
    pool.now += HOUR / 2;
    let taker = pool.lease(with(2, Priority::Firm));
    assert_eq!(pool.state_of(victim), LeaseState::Ending);
    (pool, [victim, taker])
}

#[test]
fn a_stop_for_a_lease_of_no_higher_class_is_seen() {
    let (pool, [victim, taker]) = preempted();
    for (id, class) in [(taker, Priority::Interruptible), (victim, Priority::Firm)] {
        let mut tape = Tape::of(&pool);
        assert_eq!(tape.findings(), []);
        if let Input::Request(asked) = &mut tape.0[id.seq as usize].input {
            asked.request.priority = class;
        }
        tape.caught(Rule::Preempt, taker.seq as usize);
    }
}

#[test]
fn a_stop_before_the_minimum_run_is_seen() {
    let (pool, [_, taker]) = preempted();
    let mut tape = Tape::of(&pool);
    let Input::Opened { policy, .. } = &mut tape.0[1].input else {
        panic!("the second entry opens the log");
    };
    policy.min_run_ms = HOUR;
    tape.caught(Rule::Preempt, taker.seq as usize);
}

#[test]
fn a_stop_that_does_not_say_for_whom_and_one_that_does_not_happen_are_seen() {
    let (pool, [victim, taker]) = preempted();
    let entry = taker.seq as usize;
    let mut silent = Tape::of(&pool);
    silent.0[entry].effects.retain(|effect| !matches!(effect, Effect::Preempted { .. }));
    silent.caught(Rule::Preempt, entry);
    let mut idle = Tape::of(&pool);
    idle.0[entry].effects.retain(|effect| !moves(victim, LeaseState::Ending)(effect));
    idle.caught(Rule::Preempt, entry);
}

#[test]
fn a_stop_of_who_could_have_stayed_is_seen() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1000 * TOKEN);
    let with = |of: u8, permille, priority| LeaseRequest { priority, ..ask(renter(of), &[share(permille, 10)]) };
    let needed = pool.lease(with(1, 600, Priority::Interruptible));
    let spared = pool.lease(with(1, 100, Priority::Interruptible));
    pool.run_up(needed);
    pool.run_up(spared);
    pool.now += HOUR / 2;
    let taker = pool.lease(with(2, 800, Priority::Firm));
    assert_eq!((pool.state_of(needed), pool.state_of(spared)), (LeaseState::Ending, LeaseState::Active));
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let entry = taker.seq as usize;
    let reason = Some(Reason::Preempted);
    let more = [
        Effect::Preempted { lease: spared, attempt: 1, by: taker },
        Effect::Moved { lease: spared, state: LeaseState::Ending, reason, attempt: 1 },
    ];
    tape.0[entry].effects.extend(more);
    tape.caught(Rule::Minimal, entry);
    let finding = tape.findings()[0];
    assert_eq!(finding.lease, Some(spared));
}

#[test]
fn a_booking_for_who_does_not_wait_or_for_time_that_is_past_is_seen() {
    let (pool, [_, taker]) = preempted();
    let (entry, at) = Tape::of(&pool).find(|effect| matches!(effect, Effect::Booked { lease, .. } if *lease == taker));
    let lies = [
        Effect::Booked { lease: taker, at: Some(TimeMs(5)) },
        Effect::Booked { lease: LeaseId { seq: 1, index: 0 }, at: Some(TimeMs(u64::MAX)) },
        Effect::Booked { lease: taker, at: None },
    ];
    for lie in lies {
        let mut tape = Tape::of(&pool);
        tape.0[entry].effects[at] = lie;
        tape.caught(Rule::Booking, entry);
    }
}
