//! Lies about whose turn it was where accounts stand in groups.

use selion_api::lease::LeaseState;
use selion_api::{LeaseId, SliceWant};
use selion_checker::Rule;
use selion_market::{Group, Input, Policy, Seat};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, group, renter, seat, spec};
use crate::turns::{states, swap, whole};

/// Four GPUs: renter 1 holds two, renter 2 one, renter 4 one. Renter 5 has the booking; then `first` and `second` want
/// one, and there comes room for two of the three.
fn contest(policy: Policy, first: u8, second: u8) -> (Pool, [LeaseId; 2]) {
    let mut pool = Pool::small();
    pool.enter(Input::Opened { delegate: DELEGATE, policy });
    pool.node(spec(2, vec![a100(2, 0), a100(2, 1), a100(2, 2)]));
    for of in 2..7 {
        pool.fund(renter(of), 1000 * TOKEN);
    }
    pool.lease(ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]));
    pool.lease(whole(2));
    pool.lease(whole(4));
    pool.lease(whole(5));
    let wait = [pool.lease(whole(first)), pool.lease(whole(second))];
    pool.node(spec(3, vec![a100(3, 0), a100(3, 1)]));
    (pool, wait)
}

fn tree(groups: &[Group], seats: &[Seat]) -> Policy {
    Policy { groups: groups.to_vec(), accounts: seats.to_vec(), ..Policy::default() }
}

/// Of the two who asked, the one at `wins` was served; the same given to the other is seen, in its entry.
#[track_caller]
fn only(policy: Policy, first: u8, second: u8, wins: usize) {
    let (pool, leases) = contest(policy, first, second);
    let mut expected = [LeaseState::Waiting; 2];
    expected[wins] = LeaseState::Held;
    assert_eq!(states(&pool, leases), expected);
    let (tape, entry) = swap(&pool, leases[wins], leases[1 - wins]);
    tape.caught(Rule::Order, entry);
}

/// Renter 1 holds two GPUs and renter 2 one: together in a group, or each in one of his own.
#[test]
fn a_grant_to_who_holds_more_of_one_group_is_seen() {
    only(tree(&[group("lab", 1, 0)], &[seat(1, "lab", 1), seat(2, "lab", 1)]), 1, 2, 1);
    only(tree(&[group("lab", 1, 0)], &[seat(1, "lab", 3), seat(2, "lab", 1)]), 1, 2, 0);
}

#[test]
fn a_grant_to_the_group_that_holds_more_is_seen() {
    let each = [seat(1, "firm", 1), seat(2, "lab/vision", 1)];
    only(tree(&[group("firm", 1, 0), group("lab", 1, 0), group("lab/vision", 1, 0)], &each), 1, 2, 1);
    only(tree(&[group("firm", 5, 0), group("lab", 1, 0), group("lab/vision", 1, 0)], &each), 1, 2, 0);
    // Against an account without a group.
    only(tree(&[group("firm", 1, 0)], &[seat(1, "firm", 1)]), 1, 2, 1);
    only(tree(&[group("firm", 5, 0)], &[seat(1, "firm", 1)]), 1, 2, 0);
}

/// Renter 6 holds nothing, but stands in a group with renter 1, who holds two and wants no more: renter 2, who holds
/// one, comes first.
#[test]
fn what_a_colleague_holds_counts_where_he_wants_no_more() {
    let policy = || tree(&[group("lab", 1, 0)], &[seat(1, "lab", 1), seat(6, "lab", 1)]);
    let (pool, leases) = contest(policy(), 6, 2);
    assert_eq!(states(&pool, leases), [LeaseState::Waiting, LeaseState::Held]);
    let (tape, entry) = swap(&pool, leases[1], leases[0]);
    tape.caught(Rule::Order, entry);
}

/// The lab's two GPUs and one more are half of the pool of six.
#[test]
fn a_grant_past_who_is_within_a_quota_is_seen_also_where_past_use_counts() {
    let seats = [seat(1, "lab", 1)];
    only(tree(&[group("lab", 1, 500)], &seats), 1, 2, 0);
    only(tree(&[group("lab", 1, 499)], &seats), 1, 2, 1);
    only(Policy { half_life_ms: HOUR, ..tree(&[group("lab", 1, 500)], &seats) }, 1, 2, 0);
}
