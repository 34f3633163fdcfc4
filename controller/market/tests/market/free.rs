//! No money, no service: what a lease needs, what may be had without a bill, and how many leases there may be.

use selion_api::agent::MemberEvent;
use selion_api::chain::ChainEvent;
use selion_api::lease::{LeaseState, Priority};
use selion_api::{Account, Amount, LeaseId, LeaseRequest, Reason, SliceWant, TimeMs};
use selion_market::{Admission, Answer, Effect, Input, Pocket, Policy};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, renter, spec};

const STOPPED: MemberEvent = MemberEvent::Stopped { outputs: None };
const DAY: u64 = 24 * HOUR;

fn lasting(of: u8, duration_ms: u64) -> LeaseRequest {
    LeaseRequest { duration_ms, ..ask(renter(of), &[SliceWant::Whole]) }
}

fn now_or_never(of: u8, duration_ms: u64) -> LeaseRequest {
    LeaseRequest { wait_ms: 0, ..lasting(of, duration_ms) }
}

fn deposit(pool: &mut Pool, of: Account, amount: u64) {
    pool.block(vec![ChainEvent::Deposited { renter: of, amount: Amount(amount) }]);
}

fn grant(pool: &mut Pool, of: Account, cap: u64) {
    let until = TimeMs(pool.now + 1000 * HOUR);
    pool.block(vec![ChainEvent::KeyGranted { renter: of, key: DELEGATE, cap: Amount(cap), until }]);
}

/// Granted, and prepared for so long.
fn prepared(pool: &mut Pool, id: LeaseId, ms: u64) {
    pool.all(id, &MemberEvent::Accepted);
    pool.now += ms;
}

#[test]
fn without_a_deposit_or_a_live_grant_no_lease_is_short_enough() {
    let mut pool = Pool::small();
    let stranger = renter(9);
    let refused = |pool: &mut Pool| {
        for ms in [1, 9, 1_000, HOUR] {
            let refusal = pool.refusal(lasting(9, ms));
            assert_eq!(refusal.reason, Reason::PaymentRequired, "{ms} ms");
            assert!(refusal.nearest.unwrap().need > 0, "the price is told");
        }
        let admission = pool.state.admit(&lasting(9, 1), TimeMs(pool.now));
        assert!(matches!(admission, Admission::Refused(refusal) if refusal.reason == Reason::PaymentRequired));
    };
    refused(&mut pool);
    deposit(&mut pool, stranger, TOKEN);
    refused(&mut pool);
    pool.block(vec![ChainEvent::KeyGranted {
        renter: stranger,
        key: DELEGATE,
        cap: Amount(TOKEN),
        until: TimeMs(pool.now),
    }]);
    refused(&mut pool);
    grant(&mut pool, stranger, TOKEN);
    assert_eq!(pool.state.admit(&lasting(9, 1), TimeMs(pool.now)), Admission::Enter);
    pool.lease(lasting(9, 1));
}

#[test]
fn what_is_refused_leaves_nothing_in_the_state() {
    let mut pool = Pool::small();
    let size = |pool: &Pool| borsh::to_vec(&pool.state).unwrap().len();
    pool.refusal(lasting(9, 1));
    let before = size(&pool);
    for _ in 0..200 {
        pool.refusal(LeaseRequest { wait_ms: 7 * DAY, ..lasting(9, 1) });
    }
    assert_eq!(size(&pool), before);
}

#[test]
fn a_grant_keeps_the_price_of_the_least_time_and_of_a_stop_rounded_up() {
    let Policy { least_ms, grace_ms, .. } = Policy::default();
    for (asked, kept) in [(1, least_ms + grace_ms), (HOUR, HOUR + grace_ms)] {
        let mut pool = Pool::small();
        let id = pool.lease(lasting(1, asked));
        let exact = TOKEN * kept;
        assert_eq!(pool.get(id).reserved.0, exact.div_ceil(HOUR), "{asked}");
        assert_eq!(pool.state.ledger.holds(Pocket::Reserved(renter(1))), pool.get(id).reserved);
    }
}

#[test]
fn what_a_command_runs_on_after_its_end_is_billed_up_to_the_grace() {
    let mut pool = Pool::small();
    let id = pool.lease(lasting(1, 1));
    pool.run_up(id);
    pool.pass_ms(3_000);
    assert_eq!(pool.reason_of(id), Some(Reason::Expired));
    pool.report(id, 0, STOPPED, 3_001);
    assert_eq!(pool.get(id).past[0].2, Amount(TOKEN * 3_000 / HOUR), "by the log's interval");
    let late = pool.lease(lasting(1, 1_000));
    pool.run_up(late);
    pool.pass_ms(12_000);
    pool.report(late, 0, STOPPED, 12_000);
    let most_ms = 1_000 + Policy::default().grace_ms;
    assert_eq!(pool.get(late).past[0].2, Amount(TOKEN * most_ms / HOUR), "an agent that dawdles is not paid for it");
    assert_eq!(pool.state.ledger.holds(Pocket::Reserved(renter(1))), Amount::ZERO);
}

#[test]
fn an_account_that_keeps_having_runs_prepared_and_never_pays_is_stopped_and_served_again_a_day_later() {
    let mut pool = Pool::small();
    pool.fund(renter(2), TOKEN / 2);
    let mut held_ms = 0;
    let refusal = loop {
        match pool.request(now_or_never(2, 1)) {
            Answer::Created(id) => {
                prepared(&mut pool, id, 500_000);
                held_ms += 500_000;
                pool.clear(id);
            }
            Answer::Refused(refusal) => break refusal,
            other => panic!("{other:?}"),
        }
        assert!(held_ms < DAY, "it goes on for ever");
    };
    assert_eq!(refusal.reason, Reason::FreeUseSpent);
    assert!(TOKEN * held_ms / HOUR <= TOKEN / 2 + TOKEN * 500_000 / HOUR, "{held_ms} ms for half a token");
    let admission = pool.state.admit(&lasting(2, 1), TimeMs(pool.now));
    assert!(matches!(admission, Admission::Refused(refusal) if refusal.reason == Reason::FreeUseSpent));
    // Others are served, and so is the account when the day has passed.
    let other = pool.lease(now_or_never(1, 1));
    pool.clear(other);
    pool.pass_ms(2 * DAY);
    pool.lease(now_or_never(2, 1));
}

#[test]
fn who_used_up_what_is_free_while_in_the_line_is_served_as_soon_as_it_has_faded() {
    let mut pool = Pool::small();
    pool.fund(renter(2), TOKEN / 5);
    let first = pool.lease(lasting(2, 1));
    prepared(&mut pool, first, 1);
    let waits = pool.lease(LeaseRequest { wait_ms: 7 * DAY, ..lasting(2, 1) });
    pool.now += 599_000;
    pool.clear(first);
    assert_eq!(pool.state_of(waits), LeaseState::Held, "there was some left");
    prepared(&mut pool, waits, 599_000);
    let last = pool.lease(LeaseRequest { wait_ms: 7 * DAY, ..lasting(2, 1) });
    pool.clear(waits);
    assert_eq!((pool.state_of(last), pool.reason_of(last)), (LeaseState::Waiting, Some(Reason::FreeUseSpent)));
    let asked = pool.now;
    while pool.state_of(last) == LeaseState::Waiting {
        let due = pool.state.next_deadline().unwrap();
        pool.pass_ms(due.0 - pool.now);
    }
    assert_eq!(pool.state_of(last), LeaseState::Held);
    assert!(pool.now - asked < 2 * DAY);
}

#[test]
fn time_of_a_run_that_failed_for_no_reason_of_its_renter_does_not_count() {
    let used = |end: &dyn Fn(&mut Pool, LeaseId)| {
        let mut pool = Pool::small();
        let id = pool.lease(lasting(1, HOUR));
        prepared(&mut pool, id, 300_000);
        end(&mut pool, id);
        assert_ne!(pool.state_of(id), LeaseState::Preparing);
        pool.state.free_used(renter(1), TimeMs(pool.now)).0
    };
    let failed = |reason| {
        move |pool: &mut Pool, id: LeaseId| {
            pool.report(id, 0, MemberEvent::Failed { reason }, 0);
        }
    };
    let node = crate::pool::node_id(1);
    assert_eq!(used(&|pool, _| drop(pool.enter(Input::Lost { node, last_seq: 0 }))), 0);
    assert_eq!(used(&failed(Reason::SliceFailed)), 0);
    assert_eq!(used(&failed(Reason::OwnerReclaimed)), 0);
    let spent = TOKEN * 300_000 / HOUR;
    assert_eq!(used(&failed(Reason::StagingFailed)), spent);
    assert_eq!(used(&failed(Reason::RuntimeFailed)), spent);
    assert_eq!(used(&|pool, id| pool.clear(id)), spent);
    let active = |pool: &mut Pool, id| {
        pool.all(id, &MemberEvent::Ready);
        pool.all(id, &MemberEvent::Running);
    };
    assert_eq!(used(&active), spent);
}

#[test]
fn who_has_others_stopped_and_does_not_run_can_do_so_for_as_much_as_his_deposit_and_no_more() {
    let mut pool = Pool::new();
    pool.node(spec(1, (0..4).map(|rank| a100(1, rank)).collect()));
    pool.fund(renter(1), 1_000 * TOKEN);
    pool.fund(renter(2), TOKEN);
    let firm = |duration_ms| LeaseRequest {
        priority: Priority::Firm,
        duration_ms,
        ..ask(renter(2), &vec![SliceWant::Whole; 4])
    };
    let mut stops = 0;
    for _ in 0..12 {
        let running = pool.state.leases.values().filter(|lease| lease.state == LeaseState::Active).count();
        for _ in running..4 {
            let id = pool.lease(lasting(1, 100 * HOUR));
            pool.run_up(id);
        }
        pool.now += 400_000;
        let taker = pool.lease(firm(1_000));
        let stopped: Vec<_> = pool
            .outcomes
            .last()
            .unwrap()
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Preempted { lease, .. } => Some(*lease),
                _ => None,
            })
            .collect();
        stops += stopped.len();
        pool.release(taker);
        for id in stopped {
            pool.report(id, 0, STOPPED, 400_000);
        }
    }
    // Each counts for five minutes of a GPU at a token an hour.
    assert_eq!(stops, 12, "twelve of them are worth a token");
}

#[test]
fn who_has_others_stopped_and_runs_pays_for_it_and_may_do_so_again() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 2 * TOKEN);
    for _ in 0..20 {
        let low = pool.lease(lasting(1, HOUR));
        pool.run_up(low);
        pool.now += 300_000;
        let high = pool.lease(LeaseRequest { priority: Priority::Firm, ..lasting(2, 300_000) });
        assert_eq!(pool.state_of(low), LeaseState::Ending);
        pool.report(low, 0, STOPPED, 300_000);
        pool.run_up(high);
        pool.now += 300_000;
        pool.report(high, 0, MemberEvent::Exited { code: 0, outputs: None }, 300_000);
        assert_eq!(pool.get(high).unpaid, Amount::ZERO);
    }
}

#[test]
fn an_account_and_all_together_have_no_more_leases_than_the_policy_allows() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1_000 * TOKEN);
    let few = Policy { max_waiting: 2, max_waiting_all: 3, max_leases: 4, max_leases_all: 6, ..Policy::default() };
    pool.enter(Input::Opened { delegate: DELEGATE, policy: few });
    let holder = pool.lease(lasting(1, HOUR));
    let waiting = [pool.lease(lasting(1, HOUR)), pool.lease(lasting(1, HOUR))];
    assert_eq!(pool.refusal(lasting(1, HOUR)).reason, Reason::TooManyLeases);
    let other = pool.lease(lasting(2, HOUR));
    assert_eq!(pool.refusal(lasting(2, HOUR)).reason, Reason::PoolAtLimit);
    // One that is over counts for a day.
    pool.release(waiting[0]);
    pool.lease(lasting(1, HOUR));
    pool.release(waiting[1]);
    assert_eq!(pool.refusal(lasting(1, HOUR)).reason, Reason::TooManyLeases);
    pool.lease(lasting(2, HOUR));
    pool.release(other);
    assert_eq!(pool.refusal(lasting(2, HOUR)).reason, Reason::PoolAtLimit);
    pool.clear(holder);
    pool.pass_ms(DAY + HOUR);
    pool.lease(lasting(2, HOUR));
}

#[test]
fn a_repeat_is_known_before_it_enters_and_a_refused_request_is_judged_again() {
    let mut pool = Pool::small();
    let request = LeaseRequest { idem: selion_api::Hash32([7; 32]), ..lasting(1, HOUR) };
    let id = pool.lease(request.clone());
    let admit = |pool: &Pool, request: &LeaseRequest| pool.state.admit(request, TimeMs(pool.now));
    assert_eq!(admit(&pool, &request), Admission::Repeated(id));
    assert_eq!(pool.request(request.clone()), Answer::Repeated(id));
    let other = LeaseRequest { duration_ms: 1, ..request };
    assert!(
        matches!(admit(&pool, &other), Admission::Refused(refusal) if refusal.reason == Reason::IdempotencyMismatch)
    );
    let poor = LeaseRequest { idem: selion_api::Hash32([8; 32]), ..lasting(9, HOUR) };
    assert_eq!(pool.refusal(poor.clone()).reason, Reason::PaymentRequired);
    pool.fund(renter(9), 10 * TOKEN);
    assert!(matches!(pool.request(poor), Answer::Created(_)), "the same key, and money came");
}

#[test]
fn who_runs_as_long_as_he_has_runs_prepared_can_use_his_deposit_to_the_last() {
    let mut pool = Pool::small();
    let enough = crate::pool::kept(TOKEN);
    pool.fund(renter(2), enough);
    let mut runs = 0;
    while let Answer::Created(id) = pool.request(now_or_never(2, 60_000)) {
        prepared(&mut pool, id, 60_000);
        pool.all(id, &MemberEvent::Ready);
        pool.all(id, &MemberEvent::Running);
        pool.now += 60_000;
        pool.report(id, 0, MemberEvent::Exited { code: 0, outputs: None }, 60_000);
        runs += 1;
    }
    assert_eq!(
        pool.outcomes.last().map(|outcome| outcome.answer.clone()).map(reason_of),
        Some(Reason::PaymentRequired)
    );
    assert!(runs >= 58, "{runs} minutes of a token an hour");
}

fn reason_of(answer: Answer) -> Reason {
    match answer {
        Answer::Refused(refusal) => refusal.reason,
        other => panic!("{other:?}"),
    }
}
