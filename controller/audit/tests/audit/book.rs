//! The library's controller in memory, with keys that are the same in every run.

use selion_api::agent::{MemberEvent, Report, SignedReport};
use selion_api::commit::PoolId;
use selion_api::lease::LeaseState;
use selion_api::rest::LoggedEntry;
use selion_api::slice::{GpuSpec, NodeSpec};
use selion_api::{Address, GpuId, LeaseId, MemberWant, Rate, SliceWant};
use selion_audit::rehearse::{self, Book, Cast};
use selion_audit::{Check, Report as Audit, check_log};
use selion_contracts::Signer;

pub const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([9; 20]) };

pub fn key(number: u8) -> Signer {
    Signer::from_bytes(&[number; 32]).unwrap()
}

pub fn cast() -> Cast {
    Cast { authority: key(1), node: key(10), owner: key(11), renters: [key(20), key(21), key(22)] }
}

pub fn spec() -> NodeSpec {
    cast().spec()
}

/// Three renters want the one GPU; the first has it for a while, then the second, for whom nothing is billed yet.
pub fn story() -> (Book, [LeaseId; 3]) {
    let mut book = Book::open(POOL, cast());
    let leases = book.story().unwrap();
    (book, leases)
}

/// A member of two GPUs runs for a minute, in which each ask alone comes to nothing. Of three GPUs the last one is of
/// another model.
pub fn several() -> (Book, LeaseId) {
    let mut book = Book::open(POOL, cast());
    let mut spec = spec();
    let gpu = GpuSpec { whole: Some(Rate(40)), mig: None, ..spec.gpus[0].clone() };
    spec.gpus = [("A100 80GB", 4), ("A100 80GB", 5), ("H100 80GB", 6)]
        .map(|(model, id)| GpuSpec { gpu: GpuId([id; 16]), model: model.into(), ..gpu.clone() })
        .into();
    book.join(spec).unwrap();
    let want = MemberWant { gpus: 2, ..MemberWant::of(SliceWant::Whole) };
    let lease = book.request(&key(20), &want).unwrap();
    book.run(lease).unwrap();
    book.now += 60_000;
    book.report(lease, MemberEvent::Metered, 60_000).unwrap();
    book.release(&key(20), lease).unwrap();
    book.report(lease, MemberEvent::Stopped { outputs: None }, 60_000).unwrap();
    book.expect(lease, LeaseState::Ended).unwrap();
    (book, lease)
}

pub fn sign(key: &Signer, report: Report) -> SignedReport {
    rehearse::book::sign(&POOL, key, report).unwrap()
}

pub fn audit(published: &[LoggedEntry]) -> Audit {
    check_log(&POOL, published, &[], &[])
}

pub fn named<'a>(audit: &'a Audit, name: &str) -> &'a Check {
    let found = audit.checks.iter().find(|check| check.name == name);
    found.expect("no such check")
}

/// The check fails, and at that entry.
#[track_caller]
pub fn assert_caught<'a>(audit: &'a Audit, name: &str, entry: usize) -> &'a str {
    assert!(!audit.ok);
    let check = named(audit, name);
    assert!(!check.ok, "{name} did not see it: {}", check.detail);
    assert_eq!(check.entry, Some(entry as u64), "{}", check.detail);
    &check.detail
}
