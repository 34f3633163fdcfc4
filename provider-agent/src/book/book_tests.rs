//! The book across restarts, and what it refuses.

use selion_api::agent::{MemberEvent, Outputs, Report, SignedReport, ToController};
use selion_api::{Account, Address, Amount, GpuId, Hash32, LeaseId, NodeId, Reason, Signature, Slot, TimeMs};

use super::*;
use crate::member_key::MemberKey;

fn report(lease: u64, event: MemberEvent) -> Report {
    Report {
        node: NodeId([1; 20]),
        provider: Account([2; 20]),
        seq: 0,
        fence: Fence::default(),
        lease: LeaseId { seq: lease, index: 0 },
        attempt: 0,
        member: 0,
        gpus: vec![GpuId([1; 16])],
        slot: Slot::Whole,
        event,
        metered_ms: 0,
    }
}

fn sign(report: &Report) -> Result<SignedReport, String> {
    Ok(SignedReport { report: report.clone(), signature: Signature::ZERO })
}

/// With a clock that stands: numbers count from 1.
fn opened(path: &Path) -> Result<Outbox, OutboxError> {
    Outbox::open_at(path, || 0)
}

fn add(outbox: &Outbox, lease: u64, event: MemberEvent) -> u64 {
    outbox.add(report(lease, event), None, sign).unwrap()
}

fn exited() -> MemberEvent {
    MemberEvent::Exited { code: 0, outputs: None }
}

fn seqs(outbox: &Outbox, after: u64) -> Vec<u64> {
    outbox.after(after).into_iter().map(|(seq, _)| seq).collect()
}

#[test]
fn reports_survive_a_restart_and_their_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox");
    let outbox = opened(&path).unwrap();
    assert_eq!(add(&outbox, 1, MemberEvent::Accepted), 1);
    assert_eq!(add(&outbox, 1, MemberEvent::Ready), 2);
    drop(outbox);
    let outbox = opened(&path).unwrap();
    assert_eq!(seqs(&outbox, 0), [1, 2]);
    assert_eq!(add(&outbox, 1, MemberEvent::Running), 3);
    outbox.acknowledge(2).unwrap();
    assert_eq!(seqs(&outbox, 0), [3]);
}

#[test]
fn whoever_looks_at_the_reports_that_are_kept_changes_nothing_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox");
    let outbox = opened(&path).unwrap();
    add(&outbox, 1, MemberEvent::Accepted);
    add(&outbox, 1, MemberEvent::Ready);
    // The agent is just writing another one.
    let torn = [fs::read(&path).unwrap(), vec![9; 5]].concat();
    fs::write(&path, &torn).unwrap();
    let kept: Vec<u64> = Outbox::kept(&path).unwrap().iter().map(|signed| signed.report.seq).collect();
    assert_eq!((kept, fs::read(&path).unwrap()), (vec![1, 2], torn));
    assert!(matches!(Outbox::kept(&dir.path().join("none")), Err(OutboxError::Io { .. })));
}

#[test]
fn a_report_torn_by_a_crash_was_never_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox");
    let outbox = opened(&path).unwrap();
    add(&outbox, 1, MemberEvent::Accepted);
    add(&outbox, 1, MemberEvent::Ready);
    drop(outbox);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let outbox = opened(&path).unwrap();
    assert_eq!(seqs(&outbox, 0), [1]);
    assert_eq!(add(&outbox, 1, MemberEvent::Ready), 2, "its number is used by the next");
}

#[test]
fn a_report_that_cannot_be_signed_uses_no_number() {
    let dir = tempfile::tempdir().unwrap();
    let outbox = opened(&dir.path().join("outbox")).unwrap();
    let refused = outbox.add(report(1, MemberEvent::Accepted), None, |_| Err("no".into()));
    assert!(matches!(refused, Err(OutboxError::Sign(_))));
    assert_eq!(add(&outbox, 1, MemberEvent::Accepted), 1);
}

#[test]
fn outputs_go_before_the_report_that_commits_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox");
    let outputs = Outputs {
        lease: LeaseId { seq: 1, index: 0 },
        attempt: 0,
        member: 0,
        state: selion_api::outputs::OutputState::Uploading,
        cid: Some("cid".into()),
        bytes: 0,
        files: 0,
        skipped: 0,
        named: Vec::new(),
        why: None,
    };
    let outbox = opened(&path).unwrap();
    outbox.add(report(1, exited()), Some(outputs.clone()), sign).unwrap();
    drop(outbox);
    let (_, messages) = opened(&path).unwrap().after(0).remove(0);
    assert_eq!(messages[0], ToController::Outputs(outputs));
    assert!(matches!(messages[1], ToController::Report(_)));
}

#[test]
fn what_a_crash_interrupted_is_known_even_when_all_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox");
    let outbox = opened(&path).unwrap();
    for event in [MemberEvent::Accepted, MemberEvent::Ready, MemberEvent::Running] {
        add(&outbox, 1, event);
    }
    add(&outbox, 2, MemberEvent::Accepted);
    let last = add(&outbox, 2, MemberEvent::Failed { reason: Reason::SliceFailed });
    outbox.acknowledge(last).unwrap();
    drop(outbox);
    let (open, ended) = opened(&path).unwrap().members();
    assert_eq!(open.len(), 1);
    assert_eq!((open[0].lease.seq, &open[0].event), (1, &MemberEvent::Running));
    assert_eq!(ended.iter().map(|key: &MemberKey| key.lease.seq).collect::<Vec<_>>(), [2]);
}

#[test]
fn the_file_is_written_anew_and_keeps_what_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox");
    let outbox = opened(&path).unwrap();
    add(&outbox, 1, MemberEvent::Running);
    let big =
        |seq| Report { slot: Slot::Mig { profile: "x".repeat(1 << 19), start: 0, size: 1 }, ..report(seq, exited()) };
    for lease in 2..6 {
        outbox.add(big(lease), None, sign).unwrap();
    }
    let before = fs::metadata(&path).unwrap().len();
    outbox.acknowledge(5).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < before / 2, "one big report is left");
    assert_eq!(add(&outbox, 1, exited()), 6);
    drop(outbox);
    let outbox = opened(&path).unwrap();
    assert_eq!(outbox.last_seq(), 6);
    assert_eq!(outbox.members().0.len(), 0, "the first member has ended since");
}

#[test]
fn a_copy_of_the_file_and_its_original_never_sign_one_number() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copied) = (dir.path().join("outbox"), dir.path().join("copy"));
    let original = Outbox::open(&path).unwrap();
    add(&original, 1, MemberEvent::Accepted);
    fs::copy(&path, &copied).unwrap();
    // Both go on, turn by turn, and nobody acknowledges: what the original signed meanwhile, the copy cannot know.
    let copy = Outbox::open(&copied).unwrap();
    let mut numbers: Vec<u64> =
        (0..40).flat_map(|_| [&original, &copy].map(|outbox| add(outbox, 1, MemberEvent::Metered))).collect();
    let made = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), made);
}

#[test]
fn numbers_rise_where_the_clock_went_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox");
    let ahead = Outbox::open_at(&path, || 1_000).unwrap();
    assert_eq!([1, 2].map(|lease| add(&ahead, lease, MemberEvent::Accepted)), [1_000, 1_001]);
    drop(ahead);
    let behind = Outbox::open_at(&path, || 7).unwrap();
    assert_eq!(add(&behind, 3, MemberEvent::Accepted), 1_002);
}

#[test]
fn an_older_state_directory_uses_no_number_twice() {
    let dir = tempfile::tempdir().unwrap();
    let outbox = opened(&dir.path().join("outbox")).unwrap();
    add(&outbox, 1, MemberEvent::Accepted);
    outbox.acknowledge(41).unwrap();
    assert_eq!(seqs(&outbox, 0), [] as [u64; 0]);
    assert_eq!(add(&outbox, 2, MemberEvent::Accepted), 42);
}

fn desired(epoch: u32, term: u64) -> Desired {
    Desired { node: NodeId([1; 20]), fence: Fence { epoch, term }, generation: 1, assignments: Vec::new() }
}

#[test]
fn a_lower_fence_is_refused_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let book = Book::open(dir.path()).unwrap();
    book.admit(&desired(1, 5)).unwrap();
    book.admit(&desired(1, 5)).unwrap();
    drop(book);
    let book = Book::open(dir.path()).unwrap();
    for (epoch, term) in [(1, 4), (0, 9)] {
        let refused = book.admit(&desired(epoch, term));
        assert!(matches!(refused, Err(BookError::StaleFence { .. })), "{epoch} {term}");
    }
    book.admit(&desired(2, 1)).unwrap();
}

fn head(size: u64, root: u8) -> SignedHead {
    SignedHead {
        head: Head { size, root: Hash32([root; 32]), digest: Hash32::ZERO, fence: Fence::default() },
        signature: Signature::ZERO,
    }
}

#[test]
fn a_log_that_shrank_or_changed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let book = Book::open(dir.path()).unwrap();
    book.see_head(head(10, 1)).unwrap();
    book.see_head(head(10, 1)).unwrap();
    book.see_head(head(12, 2)).unwrap();
    drop(book);
    let book = Book::open(dir.path()).unwrap();
    for bad in [head(11, 1), head(12, 3)] {
        let refused = book.see_head(bad).unwrap_err().to_string();
        assert!(refused.contains("no extension"), "{refused}");
    }
    let mut later = head(9, 4);
    later.head.fence.epoch += 1;
    book.see_head(later).unwrap();
    assert!(book.see_head(head(12, 2)).is_err(), "nothing of an earlier epoch any more");
}

#[test]
fn a_state_directory_belongs_to_one_pool_and_one_agent() {
    let dir = tempfile::tempdir().unwrap();
    let book = Book::open(dir.path()).unwrap();
    assert!(matches!(Book::open(dir.path()), Err(BookError::InUse { .. })));
    let pool = |id| PoolId { chain_id: id, controller: Address::ZERO };
    book.pin_pool(pool(1)).unwrap();
    book.pin_pool(pool(1)).unwrap();
    assert!(matches!(book.pin_pool(pool(2)), Err(BookError::OtherPool { .. })));
    assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn the_voucher_worth_most_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let book = Book::open(dir.path()).unwrap();
    let voucher = |cumulative| SignedVoucher {
        renter: Account([1; 20]),
        provider: Account([2; 20]),
        cumulative: Amount(cumulative),
        used_through: TimeMs(0),
        epoch: 1,
        log_size: 1,
        renter_signature: Signature::ZERO,
        authority_signature: Signature::ZERO,
    };
    for cumulative in [5, 9, 7] {
        book.keep_voucher(&voucher(cumulative)).unwrap();
    }
    assert_eq!(book.all_vouchers().unwrap(), [voucher(9)]);
}
