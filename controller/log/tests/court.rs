//! What the court on chain reads: `contracts/solidity/test/vectors/court.json` is what this crate makes, and
//! the Solidity tests read it. With `SELION_BLESS=1` the file is written.

#![expect(clippy::expect_used, reason = "a test that cannot sign is broken")]

use selion_api::agent::{Fence, Head, MemberEvent, Promise, Report};
use selion_api::commit::{PoolId, canonical, signing_digest};
use selion_api::{Account, Address, GpuId, Hash32, LeaseId, NodeId, Signature, Slot};
use selion_contracts::Signer;
use selion_log::{inclusion, leaf_hash, root};
use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contracts/solidity/test/vectors/court.json");
const RENTER: Account = Account([0x11; 20]);
const PROVIDER: Account = Account([0x22; 20]);
const FENCE: Fence = Fence { epoch: 3, term: 0x0102_0304_0506_0708 };

fn hex(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

/// EIP-2098: r, and s with the parity in its highest bit.
fn compact(signature: &Signature) -> Value {
    let [r @ .., _] = signature.0;
    let (r, s) = r.split_at(32);
    let mut vs = s.to_vec();
    vs[0] |= (signature.0[64] - 27) << 7;
    json!({ "r": hex(r), "vs": hex(&vs) })
}

/// The leaves of a log of five entries.
fn leaves() -> Vec<Hash32> {
    (0..5_u8).map(|entry| leaf_hash(&[7; 3].repeat(usize::from(entry) + 1))).collect()
}

fn report(metered_ms: u64) -> Report {
    Report {
        node: NodeId([0x33; 20]),
        provider: PROVIDER,
        seq: 0x1112_1314_1516_1718,
        fence: FENCE,
        lease: LeaseId { seq: 0x0a0b_0c0d, index: 2 },
        attempt: 1,
        member: 4,
        gpus: vec![GpuId([0x44; 16])],
        slot: Slot::Mig { profile: String::from("1g.10gb"), start: 2, size: 1 },
        event: MemberEvent::Metered,
        metered_ms,
    }
}

fn signed_report(report: &Report, pool: &PoolId, node: &Signer) -> Value {
    let signature = node.sign_text(&signing_digest(pool, "report", report).0).expect("signs");
    json!({ "report": hex(&canonical(report)), "signature": compact(&signature) })
}

fn signed_head(head: &Head, pool: &PoolId, authority: &Signer) -> Value {
    let signature = authority.sign_text(&head.digest_to_sign(pool).0).expect("signs");
    json!({
        "size": head.size, "root": head.root, "digest": head.digest, "signature": compact(&signature),
    })
}

fn vectors() -> Value {
    let pool = PoolId { chain_id: 31_337, controller: Address([0xc0; 20]) };
    let mut key = [0; 32];
    key[30..].copy_from_slice(&[0xa0, 0xa0]);
    let authority = Signer::from_bytes(&key).expect("key");
    let leaves = leaves();
    let head = Head { size: 5, root: root(&leaves), digest: Hash32([0x55; 32]), fence: FENCE };
    let other = Head { digest: Hash32([0x66; 32]), ..head };
    let promise = Promise { account: RENTER, seq: 3, leaf: Hash32([0x77; 32]), fence: FENCE };
    let promised = authority.sign_text(&promise.digest_to_sign(&pool).0).expect("signs");
    let node = Signer::from_bytes(&[0x33; 32]).expect("key");
    let honest = Report { node: NodeId(node.account().0), ..report(1_234) };
    json!({
        "chain_id": pool.chain_id,
        "controller": pool.controller,
        "authority": authority.account(),
        "epoch": FENCE.epoch,
        "term": FENCE.term,
        "renter": RENTER,
        "provider": PROVIDER,
        "head": signed_head(&head, &pool, &authority),
        "other": signed_head(&other, &pool, &authority),
        "promise": { "seq": promise.seq, "leaf": promise.leaf, "signature": compact(&promised) },
        "leaf": leaves[3],
        "path": inclusion(&leaves, 3),
        "node": node.account(),
        "report": signed_report(&honest, &pool, &node),
        "contradiction": signed_report(&Report { node: honest.node, ..report(9_999) }, &pool, &node),
    })
}

#[test]
fn the_committed_vectors_are_what_this_log_makes() {
    let made = serde_json::to_string_pretty(&vectors()).expect("JSON") + "\n";
    if std::env::var_os("SELION_BLESS").is_some() {
        std::fs::write(FILE, &made).expect("writes");
    }
    let committed = std::fs::read_to_string(FILE).expect("the committed vectors");
    assert_eq!(
        committed, made,
        "court.json is not what the log makes: run this test with SELION_BLESS=1 and commit it"
    );
}
