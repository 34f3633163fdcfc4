//! An honest log passes; a copy that somebody changed without the authority's key does not.

use selion_api::Hash32;
use selion_audit::{Anchor, check_log};
use selion_log::Entry;

use super::book::{POOL, assert_caught, audit, named, story};

#[test]
fn an_honest_log_passes_every_check_and_says_how_much_was_unsigned() {
    let (book, _) = story();
    let report = audit(&book.seal().unwrap());
    for check in &report.checks {
        assert!(check.ok, "{}: {}", check.name, check.detail);
    }
    assert!(report.ok);
    assert_eq!(report.entries, book.drafts.len() as u64);
    // Three requests and five reports are signed; one hello and one release are not.
    assert_eq!((report.signatures.inputs, report.signatures.unsigned), (10, 2));
    assert_eq!(report.unsigned_share_ppm, 200_000);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["ok"], true);
}

#[test]
fn an_altered_entry_of_a_copy_is_named() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    let mut entry = Entry::read(&hex::decode(&copy[6].entry).unwrap()).unwrap();
    let last = entry.input.len() - 1;
    entry.input[last] ^= 1;
    copy[6].entry = hex::encode(entry.bytes());
    let report = audit(&copy);
    assert!(!report.ok);
    // Either its input no longer reads, or the head after it no longer fits: both name the entry.
    let first = report.checks.iter().find(|check| !check.ok).unwrap();
    assert_eq!(first.entry, Some(6), "{}", first.detail);
}

#[test]
fn an_entry_whose_time_was_changed_no_longer_fits_the_head_after_it() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    let last = copy.len() - 1;
    let mut entry = Entry::read(&hex::decode(&copy[last].entry).unwrap()).unwrap();
    entry.at_ms.0 += 1;
    copy[last].entry = hex::encode(entry.bytes());
    let report = audit(&copy);
    let detail = assert_caught(&report, "heads_signed", last);
    assert!(detail.contains("root"), "{detail}");
}

#[test]
fn an_effect_changed_beside_its_entry_is_named() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    let at = copy.iter().rposition(|one| !one.effects.is_empty()).unwrap();
    copy[at].effects[0].replace_range(0..2, "ff");
    assert_caught(&audit(&copy), "entries_canonical", at);
}

#[test]
fn a_dropped_entry_is_named() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    copy.remove(7);
    let report = audit(&copy);
    let detail = assert_caught(&report, "entries_canonical", 7);
    assert!(detail.contains("missing"), "{detail}");
}

#[test]
fn swapped_entries_are_named() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    copy.swap(8, 9);
    assert_caught(&audit(&copy), "entries_canonical", 8);
    // Renumbered as well, the bytes still say where they stood.
    copy[8].seq = 8;
    copy[9].seq = 9;
    assert_caught(&audit(&copy), "entries_canonical", 8);
}

#[test]
fn bytes_after_the_end_of_an_entry_are_not_canonical() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    copy[3].entry.push_str("00");
    assert_caught(&audit(&copy), "entries_canonical", 3);
}

#[test]
fn a_log_under_other_rules_is_never_called_identical() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    let mut entry = Entry::read(&hex::decode(&copy[0].entry).unwrap()).unwrap();
    entry.rules = 2;
    copy[0].entry = hex::encode(entry.bytes());
    let report = audit(&copy);
    let detail = assert_caught(&report, "entries_canonical", 0);
    assert!(detail.contains("release that names rules 2"), "{detail}");
    assert!(!named(&report, "replay_identical").ok);
}

#[test]
fn an_anchor_that_is_not_of_this_log_is_caught() {
    let (book, _) = story();
    let published = book.seal().unwrap();
    let head = published[9].head.unwrap().head;
    let mut anchor = Anchor { block: 77, epoch: 1, size: head.size, root: head.root, digest: head.digest };
    assert!(check_log(&POOL, &published, &[anchor], &[]).ok);
    anchor.root = Hash32([1; 32]);
    assert_caught(&check_log(&POOL, &published, &[anchor], &[]), "anchors_match", 9);
    anchor.root = head.root;
    anchor.digest = Hash32([1; 32]);
    assert_caught(&check_log(&POOL, &published, &[anchor], &[]), "state_digests", 9);
    anchor.size = 1_000;
    let report = check_log(&POOL, &published, &[anchor], &[]);
    assert!(!named(&report, "anchors_match").ok, "the log is shorter than its anchor");
}
