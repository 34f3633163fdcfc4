//! The library's controller in memory, with keys that are the same in every run.

use selion_api::Address;
use selion_api::LeaseId;
use selion_api::agent::{Report, SignedReport};
use selion_api::commit::PoolId;
use selion_api::rest::LoggedEntry;
use selion_api::slice::NodeSpec;
use selion_audit::rehearse::{self, Book, Cast};
use selion_audit::{Check, Report as Audit, check_log};
use selion_contracts::Signer;

pub const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([9; 20]) };

pub fn key(number: u8) -> Signer {
    Signer::from_bytes(&[number; 32]).unwrap()
}

pub fn cast() -> Cast {
    Cast { authority: key(1), node: key(10), renters: [key(20), key(21), key(22)] }
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
