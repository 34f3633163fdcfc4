use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const HOUR: u64 = 3_600_000;
const RULES: Rules = Rules { claim_min: Amount(5_000_000), claim_ms: 24 * HOUR };

fn account(of: u8, number: u16) -> Account {
    let [high, low] = number.to_be_bytes();
    let mut bytes = [of; 20];
    (bytes[18], bytes[19]) = (high, low);
    Account(bytes)
}

fn owed(renter: u16, provider: u16, amount: u64, since: u64) -> Owed {
    let (renter, provider) = (account(1, renter), account(2, provider));
    Owed { renter, provider, amount: Amount(amount), since: TimeMs(since), haste: Haste::None }
}

/// The renters of each batch, by number.
fn chosen(owed: &[Owed], now: u64) -> Vec<Vec<u16>> {
    let number = |owed: &Owed| u16::from_be_bytes([owed.renter.0[18], owed.renter.0[19]]);
    let batches = choose(owed, &RULES, TimeMs(now));
    batches.iter().map(|batch| batch.items.iter().map(number).collect()).collect()
}

#[test]
fn a_provider_is_claimed_for_when_enough_is_owed_to_him_and_the_largest_comes_first() {
    let few = [owed(1, 1, 1_000_000, 0), owed(2, 1, 3_999_999, 0), owed(3, 2, 4_999_999, 0)];
    assert!(chosen(&few, HOUR).is_empty());
    let more = [owed(1, 1, 1_000_001, 0), few[1], few[2]];
    assert_eq!(chosen(&more, HOUR), [[2, 1]]);
}

#[test]
fn providers_come_in_the_order_of_what_they_are_owed() {
    let all = [owed(1, 1, 5_000_000, 0), owed(2, 2, 9_000_000, 0), owed(3, 3, 7_000_000, 0)];
    assert_eq!(chosen(&all, 1), [[2], [3], [1]]);
}

#[test]
fn dust_calls_for_no_claim_by_its_value_and_is_claimed_when_it_is_old() {
    let dust: Vec<Owed> = (0..400).map(|renter| owed(renter, 1, 99_999, 0)).collect();
    assert!(chosen(&dust, HOUR).is_empty(), "39 tokens of dust are 400 claims of less than they cost");
    assert_eq!(chosen(&dust, RULES.claim_ms)[0].len(), MOST);
}

#[test]
fn dust_rides_on_no_claim_before_it_is_old() {
    let all = [owed(1, 1, 5_000_000, 0), owed(2, 1, 99_999, 0), owed(3, 1, 100_000, 0)];
    assert_eq!(chosen(&all, HOUR), [[1, 3]]);
}

#[test]
fn a_renter_who_takes_his_money_away_is_claimed_at_once_and_nobody_else() {
    let urgent = Owed { haste: Haste::Now, ..owed(1, 1, 1, 0) };
    let all = [urgent, owed(2, 1, 1_000_000, 0), owed(3, 2, 1_000_000, 0)];
    assert_eq!(chosen(&all, 0), [[1]]);
}

#[test]
fn what_such_a_renter_uses_later_is_claimed_as_soon_as_it_is_worth_its_gas() {
    let soon = |amount| Owed { haste: Haste::Soon, ..owed(1, 1, amount, 0) };
    assert_eq!(chosen(&[soon(100_000)], 0), [[1]]);
    assert!(chosen(&[soon(99_999)], HOUR - 1).is_empty());
    assert_eq!(chosen(&[soon(99_999)], HOUR), [[1]]);
}

#[test]
fn two_hundred_old_pairs_that_nobody_can_pay_keep_nothing_else_waiting() {
    let mut memory = Memory::default();
    let dead: Vec<Owed> = (0..200).map(|renter| owed(renter, 1, 9_000_000, 0)).collect();
    let good = owed(500, 1, 5_000_000, 1);
    let now = TimeMs(RULES.claim_ms);
    let mut all = dead.clone();
    all.push(good);
    let first = choose(&all, &RULES, now);
    for one in first.iter().flat_map(|batch| &batch.items) {
        memory.tried(one.renter, one.provider, Amount::ZERO, now);
    }
    let next = now.plus(1);
    all.retain(|one| memory.may_try(one.renter, one.provider, Amount::ZERO, &RULES, next));
    assert!(!first[0].items.contains(&good) && choose(&all, &RULES, next)[0].items.contains(&good));
}

#[test]
fn a_claim_that_moved_nothing_waits_longer_each_time_and_one_that_moved_something_does_not() {
    let (mut memory, who) = (Memory::default(), (account(1, 1), account(2, 1)));
    let may = |memory: &Memory, claimed, now| memory.may_try(who.0, who.1, Amount(claimed), &RULES, TimeMs(now));
    memory.tried(who.0, who.1, Amount(5), TimeMs(0));
    assert!(!may(&memory, 5, HOUR - 1) && may(&memory, 5, HOUR));
    memory.tried(who.0, who.1, Amount(5), TimeMs(HOUR));
    assert!(!may(&memory, 5, 3 * HOUR - 1) && may(&memory, 5, 3 * HOUR));
    assert!(may(&memory, 6, HOUR), "the chain paid a part");
    (0..99).for_each(|_| memory.tried(who.0, who.1, Amount(5), TimeMs(0)));
    assert!(may(&memory, 5, 240 * HOUR), "ten days at most");
}

/// A pool in which some pairs can never be paid, and each may owe more at any time.
#[derive(Clone, Debug)]
struct Pair {
    provider: u16,
    owed: u64,
    haste: Haste,
    is_dead: bool,
    /// What it owes more at every step.
    grows: u64,
}

fn pair() -> impl Strategy<Value = Pair> {
    let haste = prop_oneof![8 => Just(Haste::None), 1 => Just(Haste::Soon), 1 => Just(Haste::Now)];
    let owed = prop_oneof![1_u64..200_000, 1_u64..20_000_000];
    let grows = prop_oneof![3 => Just(0_u64), 1 => 1_u64..9_000_000];
    (0_u16..30, owed, haste, prop::bool::weighted(0.3), grows)
        .prop_map(|(provider, owed, haste, is_dead, grows)| Pair { provider, owed, haste, is_dead, grows })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_pair_that_can_be_paid_is_claimed_in_the_end_whoever_else_owes(
        pairs in prop::collection::vec(pair(), 1..900),
        step_min in 1_u64..120,
    ) {
        let (mut memory, mut paid) = (Memory::default(), BTreeSet::new());
        let mut owes: Vec<Owed> = pairs.iter().zip(0_u16..).map(|(pair, renter)| Owed {
            haste: pair.haste,
            ..owed(renter, pair.provider, pair.owed, 0)
        }).collect();
        let wanted: BTreeSet<Account> =
            owes.iter().zip(&pairs).filter(|(_, pair)| !pair.is_dead).map(|(one, _)| one.renter).collect();
        let mut now = TimeMs(0);
        for _ in 0..4_000 {
            if paid.is_superset(&wanted) {
                break;
            }
            let ready: Vec<Owed> = owes.iter().zip(&pairs).filter(|(one, _)| one.amount > Amount::ZERO)
                .map(|(one, _)| *one)
                .filter(|one| memory.may_try(one.renter, one.provider, Amount::ZERO, &RULES, now)).collect();
            let batches = choose(&ready, &RULES, now);
            prop_assert!(batches.len() <= ORDERS && batches.iter().all(|batch| batch.items.len() <= MOST));
            for one in batches.iter().flat_map(|batch| &batch.items) {
                let place = usize::from(u16::from_be_bytes([one.renter.0[18], one.renter.0[19]]));
                if pairs[place].is_dead {
                    memory.tried(one.renter, one.provider, Amount::ZERO, now);
                } else {
                    paid.insert(one.renter);
                    owes[place].amount = Amount::ZERO;
                }
            }
            now = now.plus(step_min * 60_000);
            for (one, pair) in owes.iter_mut().zip(&pairs) {
                if one.amount == Amount::ZERO && pair.grows > 0 {
                    one.since = now;
                }
                one.amount = one.amount.saturating_add(Amount(pair.grows));
            }
        }
        prop_assert!(paid.is_superset(&wanted), "{} of {} were never paid", wanted.difference(&paid).count(), wanted.len());
    }

    #[test]
    fn nothing_that_is_left_out_for_want_of_room_is_worth_more_than_what_was_chosen_for_its_value(
        pairs in prop::collection::vec(pair(), 1..900),
    ) {
        let owes: Vec<Owed> = pairs.iter().zip(0_u16..).map(|(pair, renter)| Owed {
            haste: pair.haste,
            ..owed(renter, pair.provider % 3, pair.owed, 0)
        }).collect();
        for batch in choose(&owes, &RULES, TimeMs(HOUR)) {
            let risk = |one: &Owed| (one.haste == Haste::Now, one.amount);
            let by_value = batch.items.len().min(MOST - MOST / OLDEST);
            prop_assert!(batch.items[..by_value].is_sorted_by_key(|one| Reverse(risk(one))));
            if batch.items.len() == MOST {
                let least = risk(&batch.items[by_value - 1]);
                let out = owes.iter().filter(|one| one.provider == batch.provider && !batch.items.contains(one));
                prop_assert!(out.filter(|one| one.is_due(&RULES, TimeMs(HOUR))).all(|one| risk(one) <= least));
            }
        }
    }
}
