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
    all.retain(|one| memory.may_try(one, Amount::ZERO, &RULES, next));
    assert!(!first[0].items.contains(&good) && choose(&all, &RULES, next)[0].items.contains(&good));
}

#[test]
fn a_claim_that_moved_nothing_waits_longer_each_time_and_one_that_moved_something_does_not() {
    let (mut memory, who) = (Memory::default(), (account(1, 1), account(2, 1)));
    let may = |memory: &Memory, claimed, now| memory.may_try(&owed(1, 1, 9, 0), Amount(claimed), &RULES, TimeMs(now));
    memory.tried(who.0, who.1, Amount(5), TimeMs(0));
    assert!(!may(&memory, 5, HOUR - 1) && may(&memory, 5, HOUR));
    memory.tried(who.0, who.1, Amount(5), TimeMs(HOUR));
    assert!(!may(&memory, 5, 3 * HOUR - 1) && may(&memory, 5, 3 * HOUR));
    assert!(may(&memory, 6, HOUR), "the chain paid a part");
    (0..99).for_each(|_| memory.tried(who.0, who.1, Amount(5), TimeMs(0)));
    assert!(may(&memory, 5, 240 * HOUR), "ten days at most");
}

#[test]
fn what_a_restart_made_of_a_hurry_comes_before_two_hundred_who_owe_more() {
    let mut all: Vec<Owed> = (0..400).map(|renter| owed(renter, 1, 9_000_000, 0)).collect();
    all.push(Owed { haste: Haste::Soon, ..owed(500, 1, 100_000, 1) });
    assert_eq!(chosen(&all, RULES.claim_ms)[0][0], 500);
    // So does its provider before others.
    let others = (0..40).map(|provider| owed(provider, 50 + provider, 90_000_000, 0));
    let first = choose(&all.into_iter().chain(others).collect::<Vec<_>>(), &RULES, TimeMs(HOUR));
    assert_eq!((first.len(), first[0].provider), (ORDERS, account(2, 1)));
}

#[test]
fn two_hundred_in_a_hurry_that_nobody_can_pay_keep_no_other_in_a_hurry_waiting() {
    let mut memory = Memory::default();
    let dead = (0..200).map(|renter| owed(renter, 1, 9_000_000, 0));
    let all: Vec<Owed> = dead.chain([owed(500, 1, 1, 1)]).collect();
    all.iter().for_each(|one| memory.hurry(one.renter, one.provider));
    let mut tried = Vec::new();
    for now in [0, 1] {
        let now = TimeMs(now);
        let haste = |one: &Owed| if memory.is_in_hurry(one.renter, one.provider) { Haste::Now } else { Haste::None };
        let mut ready: Vec<Owed> = all.iter().map(|one| Owed { haste: haste(one), ..*one }).collect();
        ready.retain(|one| memory.may_try(one, Amount::ZERO, &RULES, now));
        let batches = choose(&ready, &RULES, now);
        for one in &batches[0].items {
            memory.tried(one.renter, one.provider, Amount::ZERO, now);
            tried.push(one.renter);
        }
    }
    assert_eq!(tried.len(), 201, "each of them once");
    assert!(tried.contains(&account(1, 500)) && !memory.has_hurry());
}

#[test]
fn a_claim_in_haste_that_failed_is_tried_again_within_the_hour_however_seldom_others_are_claimed() {
    let rules = Rules { claim_ms: 30 * 24 * HOUR, ..RULES };
    let mut memory = Memory::default();
    let soon = Owed { haste: Haste::Soon, ..owed(1, 1, 9, 0) };
    memory.tried(soon.renter, soon.provider, Amount::ZERO, TimeMs(0));
    let may = |one: &Owed, now| memory.may_try(one, Amount::ZERO, &rules, TimeMs(now));
    assert!(!may(&soon, HOUR - 1) && may(&soon, HOUR));
    assert!(may(&Owed { haste: Haste::Now, ..soon }, 1), "there is news of it");
    assert!(!may(&owed(1, 1, 9, 0), HOUR), "who is in no haste waits as long as the operator says");
    // Dust of such a renter does not wait longer either.
    assert_eq!(choose(&[soon], &rules, TimeMs(HOUR)).len(), 1);
}

/// A voucher that is lost a day after its key was revoked, among others of its provider, all of them large.
#[derive(Clone, Debug)]
struct Revoked {
    amount: u64,
    /// Others, and what each of them owes more at every step.
    others: u16,
    grows: u64,
    /// How many of the others nobody can pay; they are in the same haste.
    dead: u16,
    /// Tries of the voucher that fail as transactions.
    fails: u32,
    /// Steps after which the controller forgets all that it does not keep.
    restart: u32,
    claim_ms: u64,
    /// Minutes until a claim is final.
    final_min: u64,
}

fn revoked() -> impl Strategy<Value = Revoked> {
    let claim_ms = prop_oneof![Just(HOUR), Just(24 * HOUR), Just(30 * 24 * HOUR)];
    let whose = (1_u64..5_000_000, 0_u16..900, 0_u64..9_000_000, 0_u16..400);
    (whose, 0_u32..3, 0_u32..40, claim_ms, 1_u64..40).prop_map(
        |((amount, others, grows, dead), fails, restart, claim_ms, final_min)| Revoked {
            amount,
            others,
            grows,
            dead,
            fails,
            restart,
            claim_ms,
            final_min,
        },
    )
}

/// Until when the voucher is claimed, in milliseconds since the key was revoked.
fn claimed_after(story: &Revoked) -> Option<u64> {
    let rules = Rules { claim_ms: story.claim_ms, ..RULES };
    let (mut memory, mut fails) = (Memory::default(), story.fails);
    let haste = |renter: u16| if renter < story.dead { Haste::Soon } else { Haste::None };
    let other = |renter: u16| Owed { haste: haste(renter), ..owed(renter, 1, 9_000_000, 0) };
    let mut others: Vec<Owed> = (0..story.others).map(other).collect();
    let ours = Owed { haste: Haste::Soon, ..owed(1_000, 1, story.amount, 0) };
    let hurried = others.iter().chain([&ours]).filter(|one| one.haste == Haste::Soon);
    hurried.for_each(|one| memory.hurry(one.renter, one.provider));
    let mut now = TimeMs(0);
    for step in 0_u32.. {
        if now.0 >= 24 * HOUR {
            break;
        }
        if step == story.restart {
            memory = Memory::default();
        }
        let owing = others.iter().chain([&ours]).filter(|one| one.amount.0 > 0);
        let now_or = |one: &Owed| if memory.is_in_hurry(one.renter, one.provider) { Haste::Now } else { one.haste };
        let mut ready: Vec<Owed> = owing.map(|one| Owed { haste: now_or(one), ..*one }).collect();
        ready.retain(|one| memory.may_try(one, Amount::ZERO, &rules, now));
        // One claim of the provider is on its way at a time; without one the sweeper looks again in a minute.
        let batch = choose(&ready, &rules, now).into_iter().next();
        let pause = if batch.is_some() { story.final_min } else { 1 };
        for one in batch.iter().flat_map(|batch| &batch.items) {
            memory.tried(one.renter, one.provider, Amount::ZERO, now);
            let place = usize::from(u16::from_be_bytes([one.renter.0[18], one.renter.0[19]]));
            match others.get_mut(place) {
                Some(other) if place >= usize::from(story.dead) => other.amount = Amount::ZERO,
                Some(_) => {}
                None if fails == 0 => return Some(now.0),
                None => fails -= 1,
            }
        }
        now = now.plus(pause * 60_000);
        others.iter_mut().for_each(|other| other.amount = other.amount.saturating_add(Amount(story.grows)));
    }
    None
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
        let hurried = owes.iter().filter(|one| one.haste == Haste::Now);
        hurried.for_each(|one| memory.hurry(one.renter, one.provider));
        let mut now = TimeMs(0);
        for _ in 0..4_000 {
            if paid.is_superset(&wanted) {
                break;
            }
            // What was tried in a hurry is in that hurry no more.
            let now_or = |one: &Owed| match memory.is_in_hurry(one.renter, one.provider) {
                true => Haste::Now,
                false => one.haste.min(Haste::Soon),
            };
            let ready: Vec<Owed> = owes.iter().filter(|one| one.amount > Amount::ZERO)
                .map(|one| Owed { haste: now_or(one), ..*one })
                .filter(|one| memory.may_try(one, Amount::ZERO, &RULES, now)).collect();
            let batches = choose(&ready, &RULES, now);
            prop_assert!(batches.len() <= ORDERS && batches.iter().all(|batch| batch.items.len() <= MOST));
            for one in batches.iter().flat_map(|batch| &batch.items) {
                let place = usize::from(u16::from_be_bytes([one.renter.0[18], one.renter.0[19]]));
                memory.tried(one.renter, one.provider, Amount::ZERO, now);
                if !pairs[place].is_dead {
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
    fn a_revoked_keys_voucher_is_claimed_in_its_last_day_whatever_else_is_owed_fails_or_is_forgotten(story in revoked()) {
        prop_assert!(claimed_after(&story).is_some(), "lost");
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
            let risk = |one: &Owed| (one.haste, one.amount);
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
