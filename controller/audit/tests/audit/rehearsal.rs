//! What parties keep of a log verifies offline; and every known fraud is seen when it is rehearsed.

use selion_api::LeaseId;
use selion_audit::rehearse::{rehearse, rehearse_nodes};
use selion_audit::{Log, Proof, ProofError, check_log};

use super::book::{POOL, assert_caught, named, story};

#[test]
fn every_known_fraud_is_caught_and_named_in_a_story_of_its_own() {
    let rehearsal = rehearse(&[], POOL).unwrap();
    assert_eq!(rehearsal.honest, Vec::<String>::new());
    for fraud in &rehearsal.frauds {
        assert!(fraud.caught, "{fraud:#?}");
    }
    let names: Vec<&str> = rehearsal.frauds.iter().map(|fraud| fraud.fraud.as_str()).collect();
    let known = [
        "favoured_renter",
        "hidden_request",
        "broken_promise",
        "double_lease",
        "inflated_bill",
        "forked_log",
        "altered_price",
        "dropped_event",
        "foreign_block",
        "invented_block",
        "claim_above_bill",
        "over_promise",
        "evidence_of_double_lease",
        "evidence_of_inflated_bill",
        "evidence_of_stretched_bill",
        "evidence_of_inflated_voucher",
        "evidence_of_claim_above_bill",
        "evidence_of_over_promise",
        "evidence_of_nothing",
        "heads_left_out",
        "newest_head_left_out",
        "entry_appended",
        "forged_release",
        "forged_reclaim",
        "altered_resume",
        "altered_hello",
        "repeated_release",
        "repeated_pause",
        "repeated_hello",
        "late_pause",
        "repeated_request",
    ];
    for name in known {
        assert!(names.contains(&name), "{name} is not rehearsed: {names:?}");
    }
    assert!(rehearsal.ok && rehearsal.copied == 0);
}

#[tokio::test]
async fn every_known_fraud_of_a_node_is_caught_and_named() {
    let frauds = rehearse_nodes().await.unwrap();
    for fraud in &frauds {
        assert!(fraud.caught, "{fraud:#?}");
    }
    let names: Vec<&str> = frauds.iter().map(|fraud| fraud.fraud.as_str()).collect();
    for name in ["other_code", "other_terms", "header_time", "header_bloom", "removed_log", "altered_topic"] {
        assert!(names.contains(&name), "{name} is not rehearsed: {names:?}");
    }
}

#[test]
fn a_rehearsal_on_a_copy_of_a_log_keeps_its_history_and_catches_the_same() {
    let (book, _) = story();
    let log = book.seal().unwrap();
    let rehearsal = rehearse(&log, POOL).unwrap();
    assert!(rehearsal.ok, "{rehearsal:#?}");
    assert_eq!(rehearsal.copied, log.len() as u64);
    assert!(rehearsal.entries > rehearsal.copied);
}

#[test]
fn a_log_that_lies_is_not_rehearsed_on() {
    let (mut book, _) = story();
    let entry = book.drafts.iter().position(|draft| !draft.effects.is_empty()).unwrap();
    book.drafts[entry].effects.pop();
    let error = rehearse(&book.seal().unwrap(), POOL).unwrap_err().to_string();
    assert!(error.contains(&format!("entry {entry} ")) && error.contains("without --log"), "{error}");
}

/// The proof of the first lease of the story.
fn proof() -> (Proof, LeaseId) {
    let (book, [first, ..]) = story();
    (Proof::of(&Log::read(&book.seal().unwrap()), &POOL, first).unwrap(), first)
}

#[test]
fn a_proof_shows_request_grant_and_bill_and_survives_a_file() {
    let (proof, lease) = proof();
    let text = serde_json::to_string(&proof).unwrap();
    let proof: Proof = serde_json::from_str(&text).unwrap();
    let shown = proof.verify().unwrap();
    assert_eq!(shown.signed_by, super::book::key(1).account());
    let words: Vec<&str> = shown.shows.iter().map(|(_, word)| word.split(' ').next().unwrap()).collect();
    assert_eq!(words, ["request", "grant", "bill"]);
    assert_eq!(shown.shows[0].0, lease.seq);
    assert!(shown.shows[2].1.ends_with("= 25138"), "{:?}", shown.shows[2]);
}

#[test]
fn a_proof_with_anything_changed_does_not_hold() {
    let (proof, _) = proof();
    let broken = |change: &dyn Fn(&mut Proof)| {
        let mut proof = proof.clone();
        change(&mut proof);
        match proof.verify() {
            Err(ProofError::Broken(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    broken(&|proof| proof.head.signature.0[64] = 5);
    broken(&|proof| proof.entries[0].path[0].0[0] ^= 1);
    broken(&|proof| proof.entries[0].path.truncate(1));
    broken(&|proof| proof.entries[0].entry.push_str("00"));
    broken(&|proof| drop(proof.entries.remove(0)));
    broken(&|proof| proof.entries.clear());
    broken(&|proof| proof.lease.index += 1);
    let last = proof.entries.len() - 1;
    broken(&|proof| proof.entries[last].effects[0].at += 1);
    broken(&|proof| {
        let leaf = &mut proof.entries[last].effects[0].leaf;
        let end = leaf.len() - 1;
        leaf.replace_range(end.., "0");
    });
    // A head of another size or root is signed by somebody else: whoever looks has to compare the signer.
    let mut other = proof.clone();
    other.head.head.fence.term += 1;
    assert_ne!(other.verify().map(|shown| shown.signed_by), Ok(super::book::key(1).account()));
}

#[test]
fn a_log_without_the_lease_or_without_a_head_over_it_gives_no_proof() {
    let (book, [first, ..]) = story();
    let mut log = book.seal().unwrap();
    let none = Proof::of(&Log::read(&log), &POOL, LeaseId { seq: first.seq + 1_000, index: 0 });
    assert!(matches!(none, Err(ProofError::NoSuchLease { .. })), "{none:?}");
    let no_request = Proof::of(&Log::read(&log), &POOL, LeaseId { seq: 0, index: 0 });
    assert!(matches!(no_request, Err(ProofError::NoSuchLease { .. })), "{no_request:?}");
    for entry in &mut log[usize::try_from(first.seq).unwrap()..] {
        entry.head = None;
    }
    assert_eq!(Proof::of(&Log::read(&log), &POOL, first), Err(ProofError::NotCovered(first.seq)));
    log.pop();
    log.remove(3);
    assert!(matches!(Proof::of(&Log::read(&log), &POOL, first), Err(ProofError::Log(_))));
}

#[test]
fn a_log_that_keeps_its_proofs_passes_and_one_that_does_not_is_caught() {
    let (proof, lease) = proof();
    let (book, _) = story();
    let report = check_log(&POOL, &book.seal().unwrap(), &[], std::slice::from_ref(&proof));
    assert!(report.ok, "{:?}", named(&report, "proofs_kept"));
    let entry = usize::try_from(lease.seq).unwrap();
    let other = book.again(|inputs| drop(inputs.remove(entry)));
    let report = check_log(&POOL, &other.seal().unwrap(), &[], std::slice::from_ref(&proof));
    assert_caught(&report, "proofs_kept", entry);
    // Of another pool, or signed by nobody who had the authority: says nothing about this log.
    let mut foreign = proof.clone();
    foreign.pool.chain_id += 1;
    let report = check_log(&POOL, &book.seal().unwrap(), &[], &[foreign]);
    assert!(!named(&report, "proofs_kept").ok);
}
