use selion_api::lease::LeaseState;
use selion_api::{Amount, LeaseId, Rate, Reason, TimeMs};
use selion_sim::from_log::{Asked, Asks, Change, PolicyChange, Scale};
use selion_sim::why::{If, WhyError, what_if, why};
use selion_sim::world::node_id;

use crate::made::{TOKEN, at, kept, made};

#[test]
fn a_lease_that_waited_is_told_why_and_for_whom() {
    let made = made();
    let told = why(&made.history, made.leases[1], None).expect("an answer");
    assert_eq!((told.state, told.reason, told.position), (LeaseState::Waiting, Some(Reason::PoolFull), 1));
    let nearest = told.nearest.expect("a nearest miss");
    assert_eq!((nearest.node, nearest.reason), (node_id(1), Reason::PoolFull));
    let said: Vec<(Option<Reason>, u64)> = told.candidates.iter().map(|group| (group.reason, group.gpus)).collect();
    assert_eq!(said, [(Some(Reason::PriceAboveMax), 1), (Some(Reason::PoolFull), 1)]);
    assert_eq!(told.candidates[1].held_by, [made.leases[0]]);
    assert_eq!(told.fate.waited_ms, 121 * 60_000);
    let states: Vec<LeaseState> = told.phases.iter().map(|phase| phase.state).collect();
    assert_eq!(states.first(), Some(&LeaseState::Waiting));
    assert_eq!(states.last(), Some(&LeaseState::Ended));
}

#[test]
fn the_answer_is_for_the_time_in_question() {
    let made = made();
    let ask = |hours| why(&made.history, made.leases[1], Some(at(hours))).expect("an answer").state;
    assert_eq!([ask(1), ask(2), ask(4)], [LeaseState::Waiting, LeaseState::Waiting, LeaseState::Active]);
    let never = why(&made.history, made.leases[0], None).expect("an answer");
    assert_eq!((never.state, never.entry), (LeaseState::Held, made.leases[0].seq), "it never waited");
}

/// 10 % more is 2.09 an hour: node 2 is within it.
#[test]
fn a_tenth_more_would_have_placed_it_at_once() {
    let made = made();
    let told = what_if(&made.history, made.leases[1], &[If::Asked(Asked::MaxRateBy(Scale { permille: 1_100 }))])
        .expect("an answer");
    assert_eq!(told.real.waited_ms, 121 * 60_000);
    assert_eq!(told.before.started, told.real.started, "the model starts it when the log does");
    assert_eq!((told.after.waited_ms, told.after.started), (0, Some(at(1).plus(60_000))));
    assert_eq!(told.after.nodes, [node_id(2)]);
    assert_eq!(told.rate_after, Some(Amount(2 * TOKEN)));

    let little =
        what_if(&made.history, made.leases[1], &[If::Asked(Asked::MaxRate(Some(Rate(TOKEN / 2))))]).expect("an answer");
    assert_eq!(little.after.reason, Some(Reason::PriceAboveMax), "half a token is too little for any node");
    assert_eq!(little.rate_after, None);
}

#[test]
fn a_question_without_an_answer_says_what_is_wrong_with_it() {
    let made = made();
    let nobody = LeaseId { seq: 3, index: 7 };
    let error = why(&made.history, nobody, None).expect_err("no such lease").to_string();
    assert!(error.starts_with("the log knows no lease lease-3-7; it has 3 leases in"), "{error}");
    assert!(matches!(what_if(&made.history, nobody, &[]), Err(WhyError::NoSuchLease { .. })));

    let second = made.leases[1];
    let before = why(&made.history, second, Some(at(0))).expect_err("not yet asked");
    assert!(matches!(before, WhyError::BeforeIt { .. }), "{before}");
    for outside in [TimeMs(5), at(500)] {
        let error = why(&made.history, second, Some(outside)).expect_err("outside");
        assert!(matches!(error, WhyError::OutsideLog { .. }), "{error}");
    }
    let part = what_if(&made.history, made.leases[0], &[If::Asked(Asked::MaxRateBy(Scale { permille: 900 }))]);
    assert_eq!(part.expect_err("no rate"), WhyError::NoMaxRate { lease: made.leases[0] });
}

/// Half of node 2's 2.00 an hour is within what the lease pays: it starts when it asks.
#[test]
fn a_lower_price_would_have_placed_it_at_once_and_the_whole_log_is_run_for_that() {
    let made = made();
    let cheaper = Change::Price(Asks::Model("A100".into()), Scale { permille: 500 });
    let told = what_if(&made.history, made.leases[1], &[If::Pool(cheaper)]).expect("an answer");
    assert_eq!((told.before.waited_ms / 60_000, told.after.waited_ms), (121, 0));
    assert_eq!((told.from, told.rate_after), (0, Some(Amount(TOKEN))));
    let dearer = Change::Price(Asks::All, Scale { permille: 2_000 });
    let told = what_if(&made.history, made.leases[1], &[If::Pool(dearer.clone())]).expect("an answer");
    assert_eq!(told.after.reason, Some(Reason::PriceAboveMax));
    let both = [If::Pool(dearer), If::Asked(Asked::MaxRate(None))];
    let told = what_if(&made.history, made.leases[1], &both).expect("an answer");
    assert_eq!((told.after.waited_ms, told.rate_after), (0, Some(Amount(4 * TOKEN))));
    let nobodys = Change::Price(Asks::Model("B200".into()), Scale { permille: 500 });
    let error = what_if(&made.history, made.leases[1], &[If::Pool(nobodys)]).expect_err("no such model");
    assert!(error.to_string().contains("the log has the models A100"), "{error}");
}

#[test]
fn without_bookings_the_lease_that_was_kept_out_would_have_started() {
    let (history, lease) = kept();
    let off = If::Pool(Change::Policy(PolicyChange::Bookings(false)));
    let told = what_if(&history, lease, &[off]).expect("an answer");
    assert_eq!((told.before.waited_ms, told.after.waited_ms), (11 * 3_600_000, 0));
    assert_eq!(told.before.started, told.real.started);
}
