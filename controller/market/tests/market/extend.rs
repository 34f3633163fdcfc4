//! A lease lasts longer: what that costs is kept, and nobody who was promised its place gets it later.

use selion_api::agent::MemberEvent;
use selion_api::chain::ChainEvent;
use selion_api::lease::{LeaseState, MAX_DURATION_MS, OnNodeLoss, Priority, Resource};
use selion_api::said::{SAID_WITHIN_MS, Said};
use selion_api::{Account, Amount, Hash32, LeaseId, LeaseRequest, Rate, Reason, Signature, SliceWant, TimeMs};
use selion_market::extend::MAX_EXTENSIONS;
use selion_market::{Answer, Effect, Input, Outcome, Pocket};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, kept, node_id, provider, renter, spec};

fn key(number: u64) -> Hash32 {
    let mut key = Hash32::ZERO;
    key.0[..8].copy_from_slice(&number.to_be_bytes());
    key
}

fn say(pool: &mut Pool, who: Account, lease: LeaseId, for_ms: u64, number: u64) -> Outcome {
    pool.enter(Input::Extend { renter: who, lease, for_ms, key: key(number), said: None })
}

fn extend(pool: &mut Pool, lease: LeaseId, for_ms: u64, number: u64) -> Outcome {
    say(pool, renter(1), lease, for_ms, number)
}

#[track_caller]
fn refused(outcome: &Outcome) -> Reason {
    match &outcome.answer {
        Answer::Refused(refusal) => refusal.reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn running(pool: &mut Pool, request: LeaseRequest) -> LeaseId {
    let id = pool.lease(request);
    pool.run_up(id);
    id
}

fn whole(of: u8) -> LeaseRequest {
    ask(renter(of), &[SliceWant::Whole])
}

#[test]
fn a_running_lease_runs_on_past_its_first_end_is_paid_for_that_and_gets_back_the_rest() {
    let mut pool = Pool::small();
    let id = running(&mut pool, whole(1));
    let first_end = pool.get(id).deadline.unwrap();
    let before = pool.state.ledger.holds(Pocket::Free(renter(1)));
    let outcome = extend(&mut pool, id, HOUR, 1);
    assert_eq!(outcome.answer, Answer::Done);
    assert_eq!(outcome.effects[0], Effect::Extended { lease: id, duration_ms: 2 * HOUR });
    assert!(outcome.touched.desired.contains(&node_id(1)) && outcome.touched.leases.contains(&id), "its agent is told");
    let more = Rate(TOKEN).reserve(HOUR);
    assert_eq!(pool.state.ledger.holds(Pocket::Free(renter(1))), Amount(before.0 - more.0));
    assert_eq!(pool.get(id).reserved, Amount(kept(TOKEN) + more.0));
    assert_eq!(pool.get(id).deadline, Some(first_end.plus(HOUR)));
    pool.pass_ms(HOUR + HOUR / 2);
    assert_eq!(pool.state_of(id), LeaseState::Active);
    pool.report(id, 0, MemberEvent::Metered, 3 * HOUR / 2);
    pool.pass_ms(HOUR / 2);
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Ending, Some(Reason::Expired)));
    pool.report(id, 0, MemberEvent::Stopped { outputs: None }, 2 * HOUR);
    assert_eq!(pool.get(id).past, [(1, Reason::Expired, Amount(2 * TOKEN))]);
    assert_eq!(pool.state.ledger.holds(Pocket::Reserved(renter(1))), Amount::ZERO);
}

#[test]
fn the_same_extension_twice_is_one_and_its_key_with_another_time_is_refused() {
    let mut pool = Pool::small();
    let id = running(&mut pool, whole(1));
    extend(&mut pool, id, HOUR, 1);
    let state = pool.get(id).clone();
    let again = extend(&mut pool, id, HOUR, 1);
    assert_eq!((again.answer, again.effects), (Answer::Done, Vec::new()));
    assert_eq!(refused(&extend(&mut pool, id, 2 * HOUR, 1)), Reason::IdempotencyMismatch);
    assert_eq!(*pool.get(id), state);
    extend(&mut pool, id, HOUR, 2);
    assert_eq!(pool.get(id).request.duration_ms, 3 * HOUR);
    // A repeat of the request that made it still is one.
    let mut same = whole(1);
    same.idem = pool.get(id).request.idem;
    assert_eq!(pool.request(same), Answer::Repeated(id));
    // Also when it is over.
    pool.clear(id);
    assert_eq!(extend(&mut pool, id, HOUR, 2).answer, Answer::Done);
    assert_eq!(refused(&extend(&mut pool, id, HOUR, 3)), Reason::NotLive);
}

#[test]
fn only_its_renter_extends_a_lease_and_not_by_nothing_or_by_a_word_of_another_time() {
    let mut pool = Pool::small();
    let id = running(&mut pool, whole(1));
    assert_eq!(refused(&say(&mut pool, renter(2), id, HOUR, 1)), Reason::NotYours);
    assert_eq!(refused(&extend(&mut pool, LeaseId { seq: 999, index: 0 }, HOUR, 1)), Reason::NoSuchLease);
    assert_eq!(refused(&extend(&mut pool, id, 0, 1)), Reason::BadRequest);
    let said = Some(Said { said_ms: TimeMs(pool.now - SAID_WITHIN_MS - 1), signature: Signature::ZERO });
    let stale = Input::Extend { renter: renter(1), lease: id, for_ms: HOUR, key: key(1), said };
    assert_eq!(refused(&pool.enter(stale)), Reason::StaleWord);
    pool.release(id);
    assert_eq!(refused(&extend(&mut pool, id, HOUR, 1)), Reason::NotLive, "it is ending");
}

#[test]
fn no_lease_lasts_longer_than_thirty_days_or_is_extended_for_ever() {
    let mut pool = Pool::small();
    let id = running(&mut pool, whole(1));
    assert_eq!(refused(&extend(&mut pool, id, MAX_DURATION_MS - HOUR + 1, 1)), Reason::TooLong);
    assert_eq!(refused(&extend(&mut pool, id, u64::MAX, 1)), Reason::TooLong);
    assert_eq!(extend(&mut pool, id, MAX_DURATION_MS - HOUR, 1).answer, Answer::Done);
}

#[test]
fn a_lease_is_extended_at_most_so_often() {
    let mut pool = Pool::small();
    let id = running(&mut pool, whole(1));
    for number in 0..MAX_EXTENSIONS as u64 {
        assert_eq!(extend(&mut pool, id, 60_000, number).answer, Answer::Done);
    }
    assert_eq!(refused(&extend(&mut pool, id, 60_000, 1_000)), Reason::TooLong);
    assert_eq!(extend(&mut pool, id, 60_000, 0).answer, Answer::Done, "a repeat is not one more");
}

#[test]
fn who_cannot_pay_for_it_or_whose_key_ends_before_it_is_refused_and_nothing_changes() {
    let mut pool = Pool::new();
    pool.node(spec(1, vec![a100(1, 0)]));
    pool.fund(renter(1), kept(TOKEN) + TOKEN / 2);
    let id = running(&mut pool, whole(1));
    let (before, ledger) = (pool.get(id).clone(), pool.state.ledger.clone());
    let outcome = extend(&mut pool, id, HOUR, 1);
    let Answer::Refused(refusal) = &outcome.answer else { panic!("{outcome:?}") };
    let nearest = refusal.nearest.clone().unwrap();
    assert_eq!((refusal.reason, nearest.resource), (Reason::PaymentRequired, Some(Resource::Deposit)));
    assert_eq!((nearest.need, nearest.have), (TOKEN, TOKEN / 2));
    assert_eq!(*pool.get(id), before);
    assert!(pool.state.ledger == ledger);
    assert_eq!(extend(&mut pool, id, HOUR / 2, 1).answer, Answer::Done, "for less there is enough");
    // Money is not all: the pool's key signs for a thousand hours.
    pool.block(vec![ChainEvent::Deposited { renter: renter(1), amount: Amount(5_000 * TOKEN) }]);
    let until = TimeMs(pool.now + 2 * HOUR);
    let key_until =
        ChainEvent::KeyGranted { renter: renter(1), key: crate::pool::DELEGATE, cap: Amount(5_000 * TOKEN), until };
    pool.block(vec![key_until]);
    let outcome = extend(&mut pool, id, HOUR, 2);
    let Answer::Refused(refusal) = &outcome.answer else { panic!("{outcome:?}") };
    assert_eq!(refusal.nearest.clone().unwrap().resource, Some(Resource::GrantUntilMs));
}

/// One GPU under a lease of an hour, and who waits for it is booked for its end.
fn booked() -> (Pool, LeaseId, LeaseId) {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1_000 * TOKEN);
    let id = running(&mut pool, whole(1));
    let next = pool.lease(whole(2));
    assert!(pool.state.booking.as_ref().is_some_and(|booking| booking.lease == next));
    (pool, id, next)
}

#[test]
fn a_booking_is_not_put_off() {
    let (mut pool, id, next) = booked();
    let (before, booking) = (pool.get(id).clone(), pool.state.booking.clone());
    let outcome = extend(&mut pool, id, 1, 1);
    let Answer::Refused(refusal) = &outcome.answer else { panic!("{outcome:?}") };
    let nearest = refusal.nearest.clone().unwrap();
    assert_eq!((refusal.reason, nearest.have), (Reason::BookedThen, booking.as_ref().unwrap().at.0));
    assert_eq!((nearest.need, nearest.resource), (nearest.have + 1, Some(Resource::TimeMs)));
    assert_eq!((pool.get(id), &pool.state.booking), (&before, &booking));
    pool.pass_ms(HOUR);
    pool.all(id, &MemberEvent::Stopped { outputs: None });
    assert_eq!(pool.state_of(next), LeaseState::Held, "it starts in time");
}

#[test]
fn a_booked_lease_that_fits_elsewhere_then_goes_there() {
    let mut pool = Pool::new();
    for node in [1, 2] {
        pool.node(spec(node, vec![a100(node, 0)]));
    }
    for of in [1, 2] {
        pool.fund(renter(of), 1_000 * TOKEN);
    }
    let first = running(&mut pool, whole(1));
    let second = running(&mut pool, whole(1));
    let next = pool.lease(whole(2));
    let booking = pool.state.booking.clone().unwrap();
    assert_eq!(booking.lease, next);
    let place = booking.places[0].0;
    let (on, off) = if pool.get(first).members[0].node == place { (first, second) } else { (second, first) };
    assert_eq!(extend(&mut pool, on, HOUR, 1).answer, Answer::Done);
    let moved = pool.state.booking.clone().unwrap();
    assert_eq!((moved.at, moved.places[0].0), (booking.at, pool.get(off).members[0].node));
    // Now the other must end in time.
    assert_eq!(refused(&extend(&mut pool, off, HOUR, 2)), Reason::BookedThen);
}

#[test]
fn a_lease_of_a_higher_class_puts_off_a_booking_of_a_lower_one() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1_000 * TOKEN);
    let id = running(&mut pool, LeaseRequest { priority: Priority::Firm, ..whole(1) });
    let next = pool.lease(whole(2));
    let before = pool.state.booking.clone().unwrap();
    assert_eq!(extend(&mut pool, id, HOUR, 1).answer, Answer::Done);
    let after = pool.state.booking.clone().unwrap();
    assert_eq!((after.lease, after.at), (next, before.at.plus(HOUR)));
}

#[test]
fn an_owner_gets_his_gpu_back_when_he_said() {
    let mut pool = Pool::small();
    let id = running(&mut pool, whole(1));
    let notice_ms = 3 * HOUR / 2;
    let by = TimeMs(pool.now + notice_ms);
    pool.enter(Input::Reclaim { provider: provider(1), node: node_id(1), gpu: None, notice_ms, said: None });
    let outcome = extend(&mut pool, id, HOUR, 1);
    let Answer::Refused(refusal) = &outcome.answer else { panic!("{outcome:?}") };
    assert_eq!((refusal.reason, refusal.nearest.clone().unwrap().have), (Reason::OwnerReclaimed, by.0));
    assert_eq!(extend(&mut pool, id, HOUR / 2, 1).answer, Answer::Done, "up to then it may stay");
    assert_eq!(pool.get(id).deadline, Some(by));
    pool.enter(Input::SetPaused { provider: provider(1), node: node_id(1), paused: false, said: None });
    assert_eq!(extend(&mut pool, id, HOUR, 2).answer, Answer::Done);
    assert_eq!(pool.get(id).deadline, Some(by.plus(HOUR)));
}

#[test]
fn a_lease_does_not_last_longer_than_its_money_stays() {
    let mut pool = Pool::small();
    let id = running(&mut pool, whole(1));
    let ready = TimeMs(pool.now + 10 * HOUR);
    pool.block(vec![ChainEvent::Thawed { renter: renter(1), amount: Amount(1_000 * TOKEN), ready }]);
    assert_eq!(refused(&extend(&mut pool, id, 9 * HOUR, 1)), Reason::MoneyLeaves);
    assert_eq!(refused(&extend(&mut pool, id, HOUR, 1)), Reason::PaymentRequired, "nothing is free meanwhile");
}

#[test]
fn what_waits_or_prepares_is_extended_too() {
    let (mut pool, id, next) = booked();
    assert_eq!(say(&mut pool, renter(2), next, HOUR, 1).answer, Answer::Done);
    assert_eq!(pool.state.ledger.holds(Pocket::Reserved(renter(2))), Amount::ZERO, "its grant keeps the money");
    pool.clear(id);
    assert_eq!(pool.state_of(next), LeaseState::Held);
    let kept = Rate(TOKEN).reserve(2 * HOUR + 5_000);
    assert_eq!(pool.get(next).reserved, kept);
    assert_eq!(say(&mut pool, renter(2), next, HOUR, 2).answer, Answer::Done);
    assert_eq!(pool.get(next).reserved, Amount(kept.0 + TOKEN));
    pool.run_up(next);
    assert_eq!(pool.get(next).deadline, Some(TimeMs(pool.now + 3 * HOUR)));
}

#[test]
fn of_a_gang_under_repair_the_money_of_those_who_stand_is_kept_and_the_lost_one_gets_the_longer_time() {
    let mut pool = Pool::new();
    for node in 1..=2 {
        pool.node(spec(node, vec![a100(node, 0)]));
    }
    pool.fund(renter(1), 1_000 * TOKEN);
    let gang = LeaseRequest {
        min_members: 1,
        min_nodes: 1,
        on_node_loss: OnNodeLoss::Repair,
        ..ask(renter(1), &[SliceWant::Whole, SliceWant::Whole])
    };
    let id = running(&mut pool, gang);
    pool.now += 60_000;
    let lost = pool.get(id).members[1].node;
    pool.enter(Input::Lost { node: lost, last_seq: pool.state.nodes[&lost].last_seq });
    assert!(pool.get(id).broken.is_some());
    let before = pool.get(id).reserved;
    assert_eq!(extend(&mut pool, id, HOUR, 1).answer, Answer::Done);
    assert_eq!(pool.get(id).reserved, Amount(before.0 + TOKEN), "one of two stands");
    pool.node(spec(3, vec![a100(3, 0)]));
    for event in [MemberEvent::Accepted, MemberEvent::Ready, MemberEvent::Running] {
        pool.report(id, 1, event, 0);
    }
    assert!(pool.get(id).broken.is_none());
    let (expires, first) = (pool.get(id).expires(), pool.get(id).active_since.unwrap());
    assert_eq!((expires, pool.get(id).deadline), (Some(first.plus(2 * HOUR)), Some(first.plus(2 * HOUR))));
}

#[test]
fn after_a_break_of_the_chain_nothing_is_made_longer() {
    let mut pool = Pool::small();
    let id = running(&mut pool, whole(1));
    pool.enter(Input::ChainBroken { number: 1, had: Hash32([1; 32]), has: Hash32([2; 32]) });
    assert_eq!(refused(&extend(&mut pool, id, HOUR, 1)), Reason::ChainBroken);
}
