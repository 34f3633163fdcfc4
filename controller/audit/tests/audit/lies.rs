//! A controller that lies and signs: every hash and head fits, so only the rules and the arithmetic can tell.

use selion_api::chain::ChainEvent;
use selion_api::lease::LeaseState;
use selion_api::slice::IsolationClass;
use selion_api::{Amount, GpuId, Hash32, Rate};
use selion_audit::rehearse::Book;
use selion_market::{Effect, Grant, Input, Pocket};

use super::book::{assert_caught, audit, key, named, several, sign, story};

/// The grant of a lease, with the entry and the place of the effect.
fn grant_of(book: &Book, lease: selion_api::LeaseId) -> (usize, usize, Grant) {
    let (entry, at) = book.find(|effect| matches!(effect, Effect::Granted(grant) if grant.lease == lease)).unwrap();
    let Effect::Granted(grant) = &book.drafts[entry].effects[at] else {
        unreachable!("it was just found");
    };
    (entry, at, grant.clone())
}

#[test]
fn a_grant_out_of_turn_is_caught_with_both_readings() {
    let (mut book, [_, second, third]) = story();
    let (entry, at, grant) = grant_of(&book, second);
    book.drafts[entry].effects[at] = Effect::Granted(Grant { lease: third, renter: key(22).account(), ..grant });
    let report = audit(&book.seal().unwrap());
    assert!(named(&report, "heads_signed").ok, "the lie is well signed");
    let detail = assert_caught(&report, "replay_identical", entry);
    assert!(detail.starts_with("grant differs"), "{detail}");
    assert!(detail.contains(&second.to_string()) && detail.contains(&third.to_string()), "{detail}");
}

/// In the entry that grants `second`, everything is granted to `third`: what a controller would sign that favours him.
fn favour_third(book: &mut Book, second: selion_api::LeaseId, third: selion_api::LeaseId) -> usize {
    let (entry, ..) = grant_of(book, second);
    let other = key(22).account();
    for effect in &mut book.drafts[entry].effects {
        match effect {
            Effect::Moved { lease, .. } if *lease == second => *lease = third,
            Effect::Granted(grant) => (grant.lease, grant.renter) = (third, other),
            Effect::Moneyed(transfer) if transfer.to == Pocket::Reserved(key(21).account()) => {
                (transfer.from, transfer.to) = (Pocket::Free(other), Pocket::Reserved(other));
            }
            _ => {}
        }
    }
    entry
}

#[test]
fn who_is_passed_over_is_named_by_the_second_checker() {
    let (mut book, [_, second, third]) = story();
    let entry = favour_third(&mut book, second, third);
    let detail = audit(&book.seal().unwrap());
    let detail = assert_caught(&detail, "decisions_checked", entry).to_owned();
    assert!(detail.starts_with("order") && detail.contains(&second.to_string()), "{detail}");
}

#[test]
fn another_class_than_the_agent_showed_is_caught_by_the_second_checker() {
    let (mut book, [first, ..]) = story();
    let (entry, at, mut grant) = grant_of(&book, first);
    grant.class = IsolationClass::Whole;
    book.drafts[entry].effects[at] = Effect::Granted(grant);
    let report = audit(&book.seal().unwrap());
    let detail = assert_caught(&report, "decisions_checked", entry);
    assert!(detail.starts_with("class"), "{detail}");
    assert!(named(&report, "no_slot_twice").ok);
}

#[test]
fn two_grants_on_one_placement_are_caught_without_the_rules() {
    let (mut book, [_, second, third]) = story();
    let (entry, at, grant) = grant_of(&book, second);
    let twin = Effect::Granted(Grant { lease: third, ..grant });
    book.drafts[entry].effects.insert(at + 1, twin);
    let report = audit(&book.seal().unwrap());
    let detail = assert_caught(&report, "no_slot_twice", entry);
    assert!(detail.contains("same placement"), "{detail}");
    assert_caught(&report, "replay_identical", entry);
}

#[test]
fn a_grant_of_a_gpu_that_no_agent_showed_is_caught() {
    let (mut book, [first, ..]) = story();
    let (entry, at, mut grant) = grant_of(&book, first);
    grant.gpu.0[0] ^= 1;
    book.drafts[entry].effects[at] = Effect::Granted(grant);
    assert_caught(&audit(&book.seal().unwrap()), "no_slot_twice", entry);
}

/// The second grant of a member of two GPUs, changed, comes so many entries later than it did.
#[track_caller]
fn second_gpu(later: usize, why: &str, change: impl Fn(&mut Grant)) {
    let (mut book, lease) = several();
    let (entry, at, first) = grant_of(&book, lease);
    let Effect::Granted(mut grant) = book.drafts[entry].effects.remove(at + 1) else {
        panic!("a grant for each GPU");
    };
    assert_eq!((grant.member, grant.node), (first.member, first.node));
    change(&mut grant);
    let place = if later == 0 { at + 1 } else { 0 };
    book.drafts[entry + later].effects.insert(place, Effect::Granted(grant));
    let report = audit(&book.seal().unwrap());
    let detail = assert_caught(&report, "no_slot_twice", entry + later);
    assert!(detail.contains(why), "{detail}");
}

#[test]
fn gpus_that_do_not_belong_to_one_member_are_caught_without_the_rules() {
    let (book, _) = several();
    let honest = audit(&book.seal().unwrap());
    let failed: Vec<_> =
        honest.checks.iter().filter(|check| !check.ok).map(|check| (&check.name, &check.detail)).collect();
    assert_eq!(failed, [], "the log as it is");
    second_gpu(0, "of another model", |grant| grant.gpu = GpuId([6; 16]));
    second_gpu(0, "same placement", |grant| grant.gpu = GpuId([4; 16]));
    second_gpu(1, "holds a slot already", |_| {});
}

#[test]
fn a_bill_at_the_ask_of_one_gpu_of_two_is_caught() {
    let (mut book, _) = several();
    let (entry, at) = book.find(|effect| matches!(effect, Effect::Billed(_))).unwrap();
    let Effect::Billed(line) = &mut book.drafts[entry].effects[at] else {
        unreachable!("it was just found");
    };
    assert_eq!((line.rate, line.amount), (Rate(80), Amount(1)));
    (line.rate, line.amount) = (Rate(40), Amount(0));
    let report = audit(&book.seal().unwrap());
    let detail = assert_caught(&report, "bills_recomputed", entry);
    assert!(detail.contains("of all its GPUs at the grant was 80"), "{detail}");
}

/// Changes the first bill line and seals.
fn with_bill(change: impl Fn(&mut selion_api::lease::BillLine)) -> (Book, usize) {
    let (mut book, _) = story();
    let (entry, at) = book.find(|effect| matches!(effect, Effect::Billed(_))).unwrap();
    let Effect::Billed(line) = &mut book.drafts[entry].effects[at] else {
        unreachable!("it was just found");
    };
    change(line);
    (book, entry)
}

#[test]
fn the_bill_is_what_the_node_signed_for_and_a_unit_too_high_is_caught() {
    let (book, entry) = with_bill(|line| {
        assert_eq!((line.billable_ms, line.amount), (90_500, Amount(25_138)));
        line.amount.0 += 1;
    });
    let report = audit(&book.seal().unwrap());
    let detail = assert_caught(&report, "bills_recomputed", entry);
    assert!(detail.contains("rounded down it is 25138"), "{detail}");
    assert_caught(&report, "replay_identical", entry);
}

#[test]
fn a_bill_for_more_time_than_lies_between_the_entries_is_caught() {
    let (book, entry) = with_bill(|line| {
        line.billable_ms = 91_001;
        line.amount = line.rate.bill(line.billable_ms);
    });
    let report = audit(&book.seal().unwrap());
    let detail = assert_caught(&report, "bills_recomputed", entry);
    assert!(detail.contains("only 91000 ms"), "{detail}");
}

#[test]
fn a_bill_for_more_time_than_the_node_signed_for_is_caught() {
    let (book, entry) = with_bill(|line| {
        line.billable_ms = 90_501;
        line.amount = line.rate.bill(line.billable_ms);
    });
    let report = audit(&book.seal().unwrap());
    let detail = assert_caught(&report, "bills_recomputed", entry);
    assert!(detail.contains("signed for 90500 ms"), "{detail}");
}

#[test]
fn a_bill_at_another_price_than_the_frozen_ask_is_caught() {
    let (book, entry) = with_bill(|line| {
        line.rate.0 += 1;
        line.amount = line.rate.bill(line.billable_ms);
    });
    assert_caught(&audit(&book.seal().unwrap()), "bills_recomputed", entry);
}

#[test]
fn a_report_signed_by_another_nodes_key_is_caught() {
    let (mut book, _) = story();
    let is_report = |draft: &selion_audit::rehearse::Draft| matches!(draft.input, Input::Report(_));
    let entry = book.drafts.iter().position(is_report).unwrap();
    let Input::Report(signed) = &mut book.drafts[entry].input else {
        unreachable!("it was just found");
    };
    *signed = sign(&key(11), signed.report.clone());
    let report = audit(&book.seal().unwrap());
    assert_caught(&report, "signatures", entry);
    assert!(named(&report, "replay_identical").ok, "only the signature is wrong");
}

#[test]
fn a_request_that_another_renter_signed_is_caught() {
    let (mut book, [first, ..]) = story();
    let entry = usize::try_from(first.seq).unwrap();
    let Input::Request(asked) = &mut book.drafts[entry].input else {
        panic!("the lease's first entry is its request");
    };
    asked.signature = Some(selion_api::Signature([7; 65]));
    assert_caught(&audit(&book.seal().unwrap()), "signatures", entry);
}

/// The last entry with such an input.
fn last(book: &Book, which: impl Fn(&Input) -> bool) -> usize {
    book.drafts.iter().rposition(|draft| which(&draft.input)).unwrap()
}

/// A change of a word in the log, with its entry.
type Change = (usize, fn(&mut Input));

#[test]
fn a_word_that_another_signed_or_that_was_altered_is_caught() {
    let (book, _) = story();
    let release = last(&book, |input| matches!(input, Input::Release { .. }));
    let pause = last(&book, |input| matches!(input, Input::SetPaused { .. }));
    let hello = last(&book, |input| matches!(input, Input::Linked(_)));
    let changes: [Change; 7] = [
        (release, |input| {
            let Input::Release { said: Some(said), .. } = input else { unreachable!("it was just found") };
            said.signature = selion_api::Signature([7; 65]);
        }),
        (release, |input| {
            let Input::Release { said: Some(said), .. } = input else { unreachable!("it was just found") };
            said.said_ms.0 += 1;
        }),
        (pause, |input| {
            let Input::SetPaused { said: Some(said), .. } = input else { unreachable!("it was just found") };
            said.said_ms.0 -= 1;
        }),
        (pause, |input| {
            let Input::SetPaused { paused, .. } = input else { unreachable!("it was just found") };
            *paused = !*paused;
        }),
        (hello, |input| {
            let Input::Linked(signed) = input else { unreachable!("it was just found") };
            signed.signature = selion_api::Signature::ZERO;
        }),
        (hello, |input| {
            let Input::Linked(signed) = input else { unreachable!("it was just found") };
            signed.hello.life = Hash32([7; 32]);
        }),
        (hello, |input| {
            let Input::Linked(signed) = input else { unreachable!("it was just found") };
            signed.hello.spec.gpus[0].mem_bytes *= 2;
        }),
    ];
    for (entry, change) in changes {
        let mut other = book.clone();
        change(&mut other.drafts[entry].input);
        let report = audit(&other.seal().unwrap());
        let detail = assert_caught(&report, "signatures", entry);
        assert!(detail.contains(&format!("entry {entry} ")), "{detail}");
    }
}

#[test]
fn an_extension_passes_and_one_that_another_signed_or_that_was_altered_or_stands_twice_is_caught() {
    let (mut book, [_, _, third]) = story();
    let answer = book.extend(&key(22), third, 60_000).unwrap();
    assert_eq!(answer, selion_market::Answer::Done);
    let report = audit(&book.seal().unwrap());
    assert!(report.ok, "{:?}", report.checks);
    let entry = book.drafts.len() - 1;
    let changes: [fn(&mut Input); 3] = [
        |input| {
            let Input::Extend { said: Some(said), .. } = input else { unreachable!("it was just entered") };
            said.signature = selion_api::Signature([7; 65]);
        },
        |input| {
            let Input::Extend { key, .. } = input else { unreachable!("it was just entered") };
            key.0[0] ^= 1;
        },
        |input| {
            let Input::Extend { for_ms, .. } = input else { unreachable!("it was just entered") };
            *for_ms += 1;
        },
    ];
    for change in changes {
        let mut other = book.clone();
        change(&mut other.drafts[entry].input);
        assert_caught(&audit(&other.seal().unwrap()), "signatures", entry);
    }
    let again = book.drafts[entry].input.clone();
    book.enter(again);
    assert_caught(&audit(&book.seal().unwrap()), "said_once", entry + 1);
}

#[test]
fn what_was_said_once_and_stands_twice_is_caught_with_both_entries() {
    let (book, _) = story();
    assert_eq!(
        named(&audit(&book.seal().unwrap()), "said_once").detail,
        "7 signed releases, extensions, owners' words, hellos and requests that made a lease, none of them twice"
    );
    let words: [fn(&Input) -> bool; 3] = [
        |input| matches!(input, Input::Release { .. }),
        |input| matches!(input, Input::SetPaused { paused: true, .. }),
        |input| matches!(input, Input::Linked(_)),
    ];
    for word in words {
        let (first, mut other) = (last(&book, word), book.clone());
        let again = other.drafts.len();
        other.enter(book.drafts[first].input.clone());
        // Pieces of the log go to several threads: far apart, the two are seen by different ones.
        for _ in 0..1_100 {
            other.enter(Input::Tick);
        }
        let far = other.drafts.len();
        other.enter(book.drafts[first].input.clone());
        let report = audit(&other.seal().unwrap());
        let detail = assert_caught(&report, "said_once", again);
        assert!(detail.contains(&format!("entry {again} ")) && detail.contains(&format!("entry {first}")), "{detail}");
        assert!(named(&report, "signatures").ok && named(&report, "replay_identical").ok, "nothing else is wrong");
        other.drafts[again].input = Input::Tick;
        let other = other.again(|_| {});
        let report = audit(&other.seal().unwrap());
        let detail = assert_caught(&report, "said_once", far);
        assert!(detail.contains(&format!("entry {first}")), "{detail}");
    }
}

#[test]
fn a_head_that_the_authority_did_not_sign_is_caught() {
    let (mut book, _) = story();
    book.cast.authority = key(2);
    assert_caught(&audit(&book.seal().unwrap()), "heads_signed", 0);
}

#[test]
fn a_state_digest_that_the_rules_do_not_give_is_caught() {
    let (mut book, _) = story();
    book.drafts[5].digest = Some(Hash32([1; 32]));
    assert_caught(&audit(&book.seal().unwrap()), "state_digests", 5);
}

fn claim(cumulative: u64) -> ChainEvent {
    ChainEvent::Claimed {
        provider: key(11).account(),
        renter: key(20).account(),
        cumulative: Amount(cumulative),
        paid: Amount(cumulative),
        key: None,
    }
}

#[test]
fn a_claim_of_what_was_billed_passes_and_a_unit_more_is_caught() {
    let (mut book, _) = story();
    book.block(vec![claim(25_138)]);
    assert!(audit(&book.seal().unwrap()).ok);
    let (mut book, _) = story();
    book.block(vec![claim(25_139)]);
    let entry = book.drafts.len() - 1;
    assert_caught(&audit(&book.seal().unwrap()), "claims_covered", entry);
}

#[test]
fn a_voucher_above_the_bills_is_caught() {
    let (mut book, [first, ..]) = story();
    let ended =
        |effect: &Effect| matches!(effect, Effect::Moved { lease, state: LeaseState::Ended, .. } if *lease == first);
    let (entry, _) = book.find(ended).unwrap();
    let draft = &mut book.drafts[entry];
    let due = draft.effects.iter_mut().find_map(|effect| match effect {
        Effect::VoucherDue(due) => Some(due),
        _ => None,
    });
    due.expect("the final bill calls for a voucher").cumulative.0 += 1;
    assert_caught(&audit(&book.seal().unwrap()), "claims_covered", entry);
}
