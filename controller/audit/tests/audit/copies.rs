//! An honest log passes; a copy that somebody changed without the authority's key does not.

use selion_api::Hash32;
use selion_audit::{Anchor, check_from_anchor, check_log};
use selion_log::Entry;
use selion_market::Input;

use super::book::{POOL, assert_caught, audit, key, named, sign, spec, story};

#[test]
fn an_honest_log_passes_every_check_and_says_how_much_was_unsigned() {
    let (book, _) = story();
    let report = audit(&book.seal().unwrap());
    for check in &report.checks {
        assert!(check.ok, "{}: {}", check.name, check.detail);
    }
    assert!(report.ok);
    assert_eq!(report.entries, book.drafts.len() as u64);
    // Three requests, five reports, a hello, a release, a pause and a resume.
    assert_eq!((report.signatures.inputs, report.signatures.unsigned), (12, 0));
    assert_eq!(report.unsigned_share_ppm, 0);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["ok"], true);
}

#[test]
fn what_nobody_signed_is_counted_whatever_kind_of_word_it_is() {
    let (mut book, [_, second, third]) = story();
    let (provider, node) = (spec().provider, spec().node);
    book.enter(Input::SetPaused { provider, node, paused: true, said: None });
    book.enter(Input::SetPaused { provider, node, paused: false, said: None });
    book.enter(Input::Reclaim { provider, node, gpu: None, notice_ms: 0, said: None });
    for (renter, lease) in [(21, second), (22, third)] {
        book.enter(Input::Release { renter: key(renter).account(), lease, said: None });
    }
    let report = audit(&book.seal().unwrap());
    assert!(report.ok, "it is no fault");
    assert_eq!((report.signatures.inputs, report.signatures.unsigned), (17, 5));
    assert_eq!(report.unsigned_share_ppm, 294_117);
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

#[test]
fn an_entry_that_comes_twice_is_named() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    copy.insert(5, copy[4].clone());
    let report = audit(&copy);
    let detail = assert_caught(&report, "entries_canonical", 5);
    assert!(detail.contains("entry 4 comes again"), "{detail}");
}

#[test]
fn bytes_that_are_no_entry_are_named() {
    let (book, _) = story();
    let honest = book.seal().unwrap();
    let broken = |change: &dyn Fn(&mut selion_api::rest::LoggedEntry), word: &str| {
        let mut copy = honest.clone();
        change(&mut copy[6]);
        let report = audit(&copy);
        let detail = assert_caught(&report, "entries_canonical", 6);
        assert!(detail.contains(word), "{detail}");
        assert!(!named(&report, "replay_identical").ok);
    };
    broken(&|one| one.entry = "not hex".into(), "is not hex");
    broken(&|one| one.entry = String::new(), "do not decode");
    broken(&|one| one.entry.truncate(one.entry.len() - 2), "do not decode");
    broken(&|one| one.effects.push("zz".into()), "is not hex");
    broken(&|one| one.effects.push("00".into()), "have root");
}

#[test]
fn a_log_without_entries_is_no_log() {
    let report = audit(&[]);
    assert!(!report.ok);
    assert!(named(&report, "entries_canonical").detail.contains("no entries"));
}

#[test]
fn the_log_of_another_pool_is_not_signed_for_this_one() {
    let (book, _) = story();
    let other = selion_api::commit::PoolId { chain_id: POOL.chain_id + 1, ..POOL };
    let report = check_log(&other, &book.seal().unwrap(), &[], &[]);
    assert!(named(&report, "entries_canonical").ok);
    assert_caught(&report, "heads_signed", 0);
    assert!(!named(&report, "signatures").ok);
}

#[test]
fn a_log_cut_before_its_anchor_is_caught() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    let head = copy.last().unwrap().head.unwrap().head;
    let anchor = Anchor { block: 77, epoch: 1, size: head.size, root: head.root, digest: head.digest };
    copy.truncate(10);
    let report = check_log(&POOL, &copy, &[anchor], &[]);
    let detail = &named(&report, "anchors_match").detail;
    assert!(!report.ok && detail.contains("the log has 10"), "{detail}");
}

#[test]
fn what_an_anchor_covers_is_not_judged_again_and_what_follows_is() {
    let (mut book, _) = story();
    let is_report = |draft: &selion_audit::rehearse::Draft| matches!(draft.input, Input::Report(_));
    let first = book.drafts.iter().position(is_report).unwrap();
    let last = book.drafts.iter().rposition(is_report).unwrap();
    for entry in [first, last] {
        let Input::Report(signed) = &mut book.drafts[entry].input else { unreachable!("it was just found") };
        *signed = sign(&key(11), signed.report.clone());
    }
    let log = book.seal().unwrap();
    let anchor = |size: usize| {
        let head = log[size - 1].head.unwrap().head;
        Anchor { block: 77, epoch: 1, size: head.size, root: head.root, digest: head.digest }
    };
    let size = first + 1;
    let report = check_from_anchor(&POOL, &log, &[anchor(size)], &[], size as u64);
    assert_caught(&report, "signatures", last);
    let size = last + 1;
    let report = check_from_anchor(&POOL, &log, &[anchor(size)], &[], size as u64);
    assert!(report.ok, "{report:#?}");
    assert_eq!(report.judged_from, size as u64);
    // State at the anchor has to be the one on chain all the same.
    let other = Anchor { digest: Hash32([1; 32]), ..anchor(size) };
    assert_caught(&check_from_anchor(&POOL, &log, &[other], &[], size as u64), "state_digests", last);
}

#[test]
fn a_word_from_before_an_anchor_that_is_entered_again_after_it_is_caught() {
    let (mut book, _) = story();
    let is_release = |draft: &selion_audit::rehearse::Draft| matches!(draft.input, Input::Release { .. });
    let first = book.drafts.iter().position(is_release).unwrap();
    let again = book.drafts.len();
    book.enter(book.drafts[first].input.clone());
    let log = book.seal().unwrap();
    let judged_from = |size: usize| {
        let head = log[size - 1].head.unwrap().head;
        let anchor = Anchor { block: 77, epoch: 1, size: head.size, root: head.root, digest: head.digest };
        check_from_anchor(&POOL, &log, &[anchor], &[], size as u64)
    };
    let detail = assert_caught(&judged_from(again), "said_once", again).to_owned();
    assert!(detail.contains(&format!("entry {first}")), "{detail}");
    assert!(judged_from(again + 1).ok, "what was judged before is trusted");
}

#[test]
fn a_log_without_heads_is_not_audited() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    let root = copy[9].head.unwrap().head.root;
    let anchor = copy[9].head.map(|signed| signed.head).unwrap();
    let anchor = Anchor { block: 77, epoch: 1, size: anchor.size, root: anchor.root, digest: anchor.digest };
    let entries = copy.len() as u64;
    copy.iter_mut().for_each(|entry| entry.head = None);
    let report = audit(&copy);
    let detail = assert_caught(&report, "covered_by_heads", 0);
    assert!(detail.contains(&format!("the newest {entries} of {entries} entries")), "{detail}");
    assert_eq!((report.covered, report.newest_head), (0, None));
    // An anchor covers what it covers, and the root is the one that it promises.
    let report = check_log(&POOL, &copy, &[anchor], &[]);
    assert_caught(&report, "covered_by_heads", 10);
    assert_eq!((report.covered, report.root), (10, root));
}

#[test]
fn entries_after_the_newest_head_are_not_audited() {
    let (book, _) = story();
    let mut copy = book.seal().unwrap();
    let last = copy.len() - 1;
    copy[last].head = None;
    let report = audit(&copy);
    let detail = assert_caught(&report, "covered_by_heads", last);
    assert!(detail.contains("--allow-uncovered 1"), "{detail}");
    assert!(report.checks.iter().all(|check| check.ok || check.name == "covered_by_heads"), "{report:#?}");
    assert_eq!((report.entries, report.covered), (last as u64 + 1, last as u64));
    assert_eq!(report.root, copy[last - 1].head.unwrap().head.root);
}

#[test]
fn heads_that_are_not_the_authoritys_cover_nothing() {
    let (mut book, _) = story();
    book.cast.authority = key(2);
    let report = audit(&book.seal().unwrap());
    assert_caught(&report, "covered_by_heads", 0);
}
