//! What the court on chain reads of a log: `contracts/solidity/test/vectors/court.json` is what this crate makes, and
//! the Solidity tests read it. With `SELION_BLESS=1` the file is written.

#![expect(clippy::expect_used, reason = "a test that cannot sign is broken")]

use selion_api::agent::{Fence, Head, Promise};
use selion_api::commit::PoolId;
use selion_api::slice::IsolationClass;
use selion_api::{Account, Address, Amount, GpuId, Hash32, LeaseId, NodeId, Rate, Signature, Slot, TimeMs};
use selion_contracts::Signer;
use selion_log::{Entry, inclusion, leaf_hash, root};
use selion_market::effect::{Effect, Grant, VoucherDue};
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

fn grant(lease: u64) -> Effect {
    Effect::Granted(Grant {
        lease: LeaseId { seq: lease, index: 2 },
        attempt: 1,
        member: 4,
        renter: RENTER,
        provider: PROVIDER,
        node: NodeId([0x33; 20]),
        gpu: GpuId([0x44; 16]),
        slot: Slot::Mig { profile: String::from("1g.10gb"), start: 2, size: 1 },
        class: IsolationClass::Mig,
        rate: Rate(9),
    })
}

/// Entry by entry what was done: a grant, a bill, the slot freed, and granted again.
fn log() -> Vec<Vec<Effect>> {
    let freed = |lease| Effect::Freed { lease: LeaseId { seq: lease, index: 2 }, attempt: 1, member: 4 };
    let due = VoucherDue {
        renter: RENTER,
        provider: PROVIDER,
        cumulative: Amount(123_456_789_012),
        used_through: TimeMs(1_800_000_000_123),
    };
    vec![
        vec![freed(900)],
        vec![grant(0x0a0b_0c0d), freed(901)],
        vec![freed(902), freed(903), Effect::VoucherDue(due)],
        vec![freed(904)],
        vec![freed(905), freed(0x0a0b_0c0d), freed(906), grant(0x0e0f), freed(907)],
    ]
}

fn effect_leaves(effects: &[Effect]) -> Vec<Hash32> {
    effects.iter().map(|effect| leaf_hash(&effect.leaf())).collect()
}

fn entry(seq: usize, effects: &[Effect]) -> Entry {
    Entry {
        rules: 1,
        seq: seq as u64,
        fence: FENCE,
        at_ms: TimeMs(1_800_000_000_000),
        input: vec![7; 3 * seq],
        effects_root: root(&effect_leaves(effects)),
    }
}

fn shown(seq: usize, index: usize) -> Value {
    let log = log();
    let entries: Vec<Entry> = log.iter().enumerate().map(|(seq, effects)| entry(seq, effects)).collect();
    let leaves: Vec<Hash32> = entries.iter().map(Entry::leaf).collect();
    let effects = effect_leaves(&log[seq]);
    json!({
        "entry": hex(&entries[seq].bytes()),
        "path": inclusion(&leaves, seq),
        "effect": hex(&log[seq][index].leaf()),
        "index": index,
        "count": effects.len(),
        "effect_path": inclusion(&effects, index),
    })
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
    let leaves: Vec<Hash32> = log().iter().enumerate().map(|(seq, effects)| entry(seq, effects).leaf()).collect();
    let head = Head { size: 5, root: root(&leaves), digest: Hash32([0x55; 32]), fence: FENCE };
    let other = Head { digest: Hash32([0x66; 32]), ..head };
    let promise = Promise { account: RENTER, seq: 3, leaf: Hash32([0x77; 32]), fence: FENCE };
    let promised = authority.sign_text(&promise.digest_to_sign(&pool).0).expect("signs");
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
        "first": shown(1, 0),
        "due": shown(2, 2),
        "freed": shown(4, 1),
        "second": shown(4, 3),
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
