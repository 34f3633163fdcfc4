use proptest::prelude::*;
use selion_api::LeaseId;
use selion_api::unit::MS_PER_HOUR;

use super::*;

const RENTER: Account = Account([1; 20]);
const MINUTE: u64 = 60_000;
const CAP: u64 = 15 * MINUTE;
/// One unit a millisecond.
const RATE: Rate = Rate(MS_PER_HOUR);

fn member(seq: u64) -> MemberKey {
    MemberKey { lease: LeaseId { seq, index: 0 }, attempt: 0, member: 0 }
}

/// A member that has run so long.
fn ran(tabs: &mut Tabs, seq: u64, billed: u64, ms: u64) {
    tabs.begin(RENTER, member(seq), RATE, Amount(billed));
    tabs.meter(RENTER, member(seq), ms);
}

fn open(tabs: &Tabs) -> u64 {
    tabs.of(RENTER).0.0
}

fn is_over(tabs: &Tabs) -> bool {
    tabs.excess(RENTER, Rate::ZERO, CAP).is_some()
}

#[test]
fn use_up_to_the_cap_is_open_and_a_millisecond_more_is_too_much() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, CAP);
    assert!(!is_over(&tabs));
    tabs.meter(RENTER, member(1), CAP + 1);
    assert_eq!(tabs.excess(RENTER, Rate::ZERO, CAP), Some(Excess { open: Amount(CAP + 1), most: Amount(CAP) }));
    tabs.cover(RENTER, Amount(MINUTE), 0);
    assert!(!is_over(&tabs));
}

#[test]
fn two_members_of_a_renter_may_have_twice_as_much_open() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, CAP);
    ran(&mut tabs, 2, 0, CAP);
    assert!(!is_over(&tabs));
    tabs.meter(RENTER, member(2), CAP + 1);
    assert!(is_over(&tabs));
}

#[test]
fn a_member_that_runs_no_more_makes_no_room_for_the_next_while_its_end_is_untold() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, CAP);
    tabs.stopped(RENTER, member(1), CAP + 1);
    assert_eq!(tabs.excess(RENTER, RATE, CAP), Some(Excess { open: Amount(CAP + 1), most: Amount(CAP) }));
    tabs.end(RENTER, member(1), 7);
    assert_eq!(tabs.excess(RENTER, RATE, CAP), Some(Excess { open: Amount(CAP + 1), most: Amount(CAP) }));
}

#[test]
fn what_a_voucher_pays_beyond_this_node_is_no_credit_for_later() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, MINUTE);
    tabs.cover(RENTER, Amount(1_000 * CAP), 0);
    assert_eq!(open(&tabs), 0);
    tabs.meter(RENTER, member(1), MINUTE + CAP + 1);
    assert!(is_over(&tabs));
}

#[test]
fn a_voucher_up_to_what_was_billed_before_pays_for_no_later_member() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 50_000, MINUTE);
    tabs.cover(RENTER, Amount(50_000), 0);
    assert_eq!(open(&tabs), MINUTE);
    tabs.cover(RENTER, Amount(50_000 + MINUTE), 0);
    assert_eq!(open(&tabs), 0);
}

#[test]
fn an_old_or_repeated_voucher_pays_nothing() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, 2 * MINUTE);
    for total in [MINUTE, MINUTE, MINUTE - 1] {
        tabs.cover(RENTER, Amount(total), 0);
        assert_eq!(open(&tabs), MINUTE);
    }
}

#[test]
fn short_leases_one_after_the_other_add_up_to_one_cap() {
    let mut tabs = Tabs::default();
    for seq in 1..=3 {
        ran(&mut tabs, seq, 0, 5 * MINUTE);
        assert!(!is_over(&tabs));
        tabs.end(RENTER, member(seq), seq);
    }
    ran(&mut tabs, 4, 0, 1);
    assert!(is_over(&tabs));
}

#[test]
fn a_small_lease_after_a_large_one_is_not_measured_by_its_own_rate_alone() {
    let mut tabs = Tabs::default();
    tabs.begin(RENTER, member(1), Rate(8 * RATE.0), Amount::ZERO);
    tabs.meter(RENTER, member(1), 10 * MINUTE);
    tabs.end(RENTER, member(1), 1);
    assert_eq!(tabs.excess(RENTER, RATE, CAP), None);
    ran(&mut tabs, 2, 0, MINUTE);
    assert!(!is_over(&tabs));
}

#[test]
fn what_was_never_billed_of_an_ended_member_goes_with_the_next_voucher() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, MINUTE);
    tabs.end(RENTER, member(1), 7);
    // 20 s were before the whole gang ran: nobody owes them.
    tabs.cover(RENTER, Amount(30_000), 6);
    assert_eq!(open(&tabs), 30_000, "the log does not have its end");
    tabs.cover(RENTER, Amount(40_000), 7);
    assert_eq!(open(&tabs), 0);
}

#[test]
fn ends_that_are_hardly_paid_for_add_up_to_one_cap_whatever_is_acknowledged() {
    let mut tabs = Tabs::default();
    let mut total = 0;
    for seq in 1..=4 {
        ran(&mut tabs, seq, total, 5 * MINUTE);
        assert_eq!(is_over(&tabs), seq == 4);
        tabs.end(RENTER, member(seq), seq);
        total += 1;
        tabs.cover(RENTER, Amount(total), seq);
        assert_eq!(open(&tabs), seq * 5 * MINUTE - total);
    }
    // Half of it is paid at last: the rest may be of what nobody owes.
    tabs.cover(RENTER, Amount(10 * MINUTE), 4);
    assert_eq!(open(&tabs), 10 * MINUTE);
}

#[test]
fn an_end_that_was_not_paid_for_is_forgotten_after_a_day_if_the_log_has_it() {
    let mut tabs = Tabs::default();
    for (number, seq) in [(1, 5), (2, 9)] {
        ran(&mut tabs, number, 0, MINUTE);
        tabs.end(RENTER, member(number), seq);
    }
    tabs.forget(5, 5 + DOUBTED_US - 1);
    assert_eq!(open(&tabs), 2 * MINUTE);
    tabs.forget(5, 9 + DOUBTED_US);
    assert_eq!(open(&tabs), MINUTE, "the log does not have the other end");
    // After a restart nothing is known of an end until it is told.
    let mut again = Tabs::restore(&tabs.unwritten(0).unwrap(), &[]);
    again.forget(u64::MAX - 1, u64::MAX);
    assert_eq!(open(&again), MINUTE);
}

#[test]
fn another_renter_is_not_touched() {
    let other = Account([2; 20]);
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, CAP + 1);
    tabs.cover(other, Amount(u64::MAX), 0);
    assert!(is_over(&tabs));
    assert_eq!(tabs.excess(other, RATE, CAP), None);
}

#[test]
fn a_restart_forgets_at_most_a_tenth_of_the_cap_and_counts_the_vouchers_it_kept() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, CAP / 10);
    assert_eq!(tabs.unwritten(CAP), None);
    tabs.meter(RENTER, member(1), CAP);
    let kept = tabs.unwritten(CAP).unwrap();
    assert_eq!(
        kept,
        [Unsigned {
            renter: RENTER,
            open: Amount(CAP),
            covered: Amount::ZERO,
            peak: RATE,
            live: vec![(member(1), CAP)]
        }]
    );
    assert_eq!(tabs.unwritten(CAP), None);

    let mut again = Tabs::restore(&kept, &[]);
    again.interrupted(9);
    ran(&mut again, 2, 0, 1);
    assert!(is_over(&again));
    // The voucher was on disk, and the sum was not written any more.
    let paid = Tabs::restore(&kept, &[(RENTER, Amount(MINUTE))]);
    assert_eq!(open(&paid), CAP - MINUTE);
    // Without anything open the kept voucher is where the count begins.
    let mut fresh = Tabs::restore(&[], &[(RENTER, Amount(500))]);
    ran(&mut fresh, 3, 0, MINUTE);
    fresh.cover(RENTER, Amount(600), 9);
    assert_eq!(open(&fresh), MINUTE - 100);
}

#[test]
fn what_an_ended_member_left_open_is_written_down_to_the_last_unit() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, 7);
    tabs.end(RENTER, member(1), 1);
    assert_eq!(tabs.unwritten(CAP).unwrap()[0].open, Amount(7));
}

#[test]
fn what_was_paid_is_written_down() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, CAP);
    assert!(tabs.unwritten(CAP).is_some());
    tabs.cover(RENTER, Amount(CAP), 0);
    assert_eq!(tabs.unwritten(CAP).unwrap()[0].open, Amount::ZERO);
}

#[test]
fn a_member_that_outlives_its_agent_is_counted_once_with_the_time_in_between_and_what_was_paid_stays_paid() {
    let mut tabs = Tabs::default();
    ran(&mut tabs, 1, 0, MINUTE);
    tabs.cover(RENTER, Amount(MINUTE / 2), 0);
    let kept = tabs.unwritten(CAP).unwrap();
    for round in 1..4 {
        // Crashes in a row, without anything written in between, count nothing twice.
        let mut again = Tabs::restore(&kept, &[(RENTER, Amount(MINUTE / 2))]);
        again.resume(RENTER, member(1), RATE, Amount::ZERO);
        again.interrupted(9);
        assert_eq!(open(&again), MINUTE / 2, "round {round}");
        again.meter(RENTER, member(1), 3 * MINUTE);
        assert_eq!(open(&again), 3 * MINUTE - MINUTE / 2);
        again.cover(RENTER, Amount(3 * MINUTE), 9);
        assert_eq!(open(&again), 0);
        let paid = again.unwritten(CAP).unwrap();
        let mut third = Tabs::restore(&paid, &[(RENTER, Amount(3 * MINUTE))]);
        third.resume(RENTER, member(1), RATE, Amount::ZERO);
        third.meter(RENTER, member(1), 3 * MINUTE + 5);
        assert_eq!(open(&third), 5);
        third.end(RENTER, member(1), 12);
        assert_eq!(third.unwritten(CAP).unwrap()[0].open, Amount(5));
    }
}

/// One thing that happens to a renter's members here and elsewhere.
#[derive(Clone, Debug)]
enum Op {
    /// A member begins.
    Begin,
    /// One member's meter goes on.
    Run(usize, u64),
    /// The log bills all that one member ran.
    Bill(usize),
    /// The log bills use on another node of the owner.
    Elsewhere(u64),
    /// The total so far is signed and comes.
    Voucher,
    /// One member ends; the log bills it and has its end.
    End(usize),
    /// The agent starts again after all that runs was written down.
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => Just(Op::Begin),
        6 => (any::<usize>(), 1_u64..300_000).prop_map(|(which, ms)| Op::Run(which, ms)),
        4 => any::<usize>().prop_map(Op::Bill),
        2 => (1_u64..2_000_000).prop_map(Op::Elsewhere),
        3 => Just(Op::Voucher),
        2 => any::<usize>().prop_map(Op::End),
        1 => Just(Op::Restart),
    ]
}

proptest! {
    #[test]
    fn nobody_is_stopped_for_more_than_is_open_in_truth_and_a_silent_signer_covers_nothing(
        script in prop::collection::vec(op(), 1..120),
    ) {
        let (mut tabs, mut seq, mut billed, mut signed) = (Tabs::default(), 0, 0_u64, 0_u64);
        // Members that run: number, meter, billed so far. And what was billed here, and signed of that.
        let mut live: Vec<(u64, u64, u64)> = Vec::new();
        let (mut here, mut here_signed) = (0_u64, 0_u64);
        for op in script {
            let before = open(&tabs);
            let signs = matches!(op, Op::Voucher);
            match op {
                Op::Begin => {
                    seq += 1;
                    live.push((seq, 0, 0));
                    tabs.begin(RENTER, member(seq), RATE, Amount(billed));
                }
                Op::Run(which, ms) if !live.is_empty() => {
                    let place = which % live.len();
                    live[place].1 += ms;
                    tabs.meter(RENTER, member(live[place].0), live[place].1);
                }
                Op::Bill(which) if !live.is_empty() => {
                    let place = which % live.len();
                    let rise = live[place].1 - live[place].2;
                    live[place].2 = live[place].1;
                    billed += rise;
                    here += rise;
                }
                Op::Elsewhere(amount) => billed += amount,
                Op::Voucher => {
                    signed = billed;
                    here_signed = here;
                    tabs.cover(RENTER, Amount(signed), seq);
                }
                Op::End(which) if !live.is_empty() => {
                    let (number, metered, paid) = live.remove(which % live.len());
                    billed += metered - paid;
                    here += metered - paid;
                    tabs.end(RENTER, member(number), number);
                }
                Op::Restart => {
                    for (number, metered, paid) in live.drain(..) {
                        billed += metered - paid;
                        here += metered - paid;
                        tabs.end(RENTER, member(number), number);
                    }
                    let kept: Vec<_> = tabs.unwritten(0).unwrap_or_else(|| vec![Unsigned {
                        renter: RENTER, open: Amount(open(&tabs)), covered: tabs.covered(RENTER), peak: RATE, live: Vec::new(),
                    }]);
                    tabs = Tabs::restore(&kept, &[(RENTER, Amount(signed))]);
                    tabs.interrupted(seq);
                }
                Op::Run(..) | Op::Bill(_) | Op::End(_) => {}
            }
            let running: u64 = live.iter().map(|(_, metered, paid)| metered - paid).sum();
            let truth = here - here_signed + running;
            prop_assert!(open(&tabs) <= truth, "{} is more than {truth}", open(&tabs));
            prop_assert!(signs || open(&tabs) >= before, "it fell without a voucher");
        }
    }
}
