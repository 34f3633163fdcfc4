//! What the contracts answer: every stored field is compared with what the events tell.

use std::collections::BTreeSet;

use selion_api::agent::{Fence, Head, SignedHead, SignedReport, SignedVoucher};
use selion_api::chain::ComponentKind;
use selion_api::commit::{PoolId, signing_digest};
use selion_api::{Amount, Hash32, NodeId, TimeMs};
use selion_audit::{LogSource, Options, Report, audit};
use selion_contracts::audited::text_hash;
use selion_contracts::court::Stated;
use selion_contracts::{Signer, Voucher};
use serde_json::{Value, json};

use super::book::{key, named, spec};
use super::chain::{World, person};
use super::rpcs::node;

const FAR: TimeMs = TimeMs(4_000_000_000_000);
const FENCE: Fence = Fence { epoch: 1, term: 1 };
const OF_CHAIN: [&str; 8] = [
    "headers_hashed",
    "code_committed",
    "registry_from_events",
    "renters_from_events",
    "court_from_events",
    "anchor_on_chain",
    "vault_covers",
    "money_conserved",
];

/// What is answered from storage, a check for each word of the answer.
const STORED: [(&str, &[&str]); 22] = [
    ("owner", &["registry_from_events"]),
    ("announced", &["registry_from_events"; 2]),
    ("epochOf", &["registry_from_events"; 3]),
    ("bindingOf", &["registry_from_events"; 2]),
    ("offersOf", &["registry_from_events"]),
    ("authority", &["registry_from_events"]),
    ("component", &["registry_from_events"; 2]),
    ("isStandby", &["registry_from_events"]),
    ("licenceOf", &["registry_from_events"; 2]),
    ("nodeOf", &["registry_from_events"; 2]),
    ("offerOf", &["registry_from_events"; 3]),
    ("provider", &["registry_from_events"; 4]),
    ("authorityOf", &["registry_from_events"; 2]),
    ("head", &["anchor_on_chain"; 4]),
    ("account", &["renters_from_events", "vault_covers", "renters_from_events"]),
    ("keyOf", &["renters_from_events"; 4]),
    ("thawing", &["renters_from_events"; 2]),
    ("pair", &["vault_covers"; 2]),
    ("totals", &["vault_covers"; 3]),
    ("feesOf", &["vault_covers"]),
    ("bondOf", &["court_from_events"; 3]),
    ("convicted", &["court_from_events"]),
];

/// What is fixed for ever, worked out of the question, or said by another answer as well.
const NOT_STORED: [&str; 18] = [
    "config",
    "vault",
    "court",
    "ownerOf",
    "payoutOf",
    "atStake",
    "controller",
    "token",
    "scale",
    "minBond",
    "unbondDelayS",
    "trustedForwarder",
    "isTrustedForwarder",
    "domainSeparator",
    "voucherDigest",
    "batchDigest",
    "nodeBindingDigest",
    "authorityBindingDigest",
];
/// `head` says it too.
const SAID_TWICE: &str = "epoch";

/// A pool in which everything that can be stored is.
async fn busy() -> World {
    let mut world = World::start().await;
    let (owner, renter) = (person(&world.pool.rpc, 30).await, person(&world.pool.rpc, 20).await);
    registry(&world, &owner).await;
    money(&world, &owner, &renter).await;
    court(&world, &owner).await;
    world.mirror().await;
    world.anchor().await;
    let (operator, pool) = (&world.operator, &world.pool);
    world.send(operator, pool.renew()).await;
    let consent = pool.sign_authority_binding(&key(60), operator.account(), 2).unwrap();
    world.send(operator, pool.replace_authority(key(60).account(), &consent)).await;
    world.send(operator, pool.announce_owner(key(61).account())).await;
    world.mirror().await;
    world
}

async fn registry(world: &World, owner: &Signer) {
    let (operator, pool) = (&world.operator, &world.pool);
    world
        .send(owner, pool.register_component(ComponentKind::Gateway, "https://gateway.example", world.soon().await))
        .await;
    world.send(owner, pool.register_component(ComponentKind::Relay, "https://over.example", TimeMs(1_000))).await;
    world.send(owner, pool.set_payout(owner.account(), key(31).address())).await;
    world.send(owner, pool.register_provider(key(31).address(), Amount(50_000_000))).await;
    world.send(owner, pool.unbond(Amount(10_000_000))).await;
    let gone = NodeId(key(11).account().0);
    let consent = pool.sign_node_binding(&key(11), owner.account(), 0).unwrap();
    world.send(owner, pool.register_node(gone, &consent)).await;
    world.send(owner, pool.set_offer(gone, Hash32([4; 32]), spec().classes(), "")).await;
    world.send(owner, pool.retire_node(gone)).await;
    for (standby, allowed) in [(50, true), (51, true), (51, false)] {
        world.send(operator, pool.set_standby(key(standby).account(), allowed)).await;
    }
    for (product, seats) in [(1, 5), (2, 7), (2, 0)] {
        world.send(owner, pool.set_licence(key(20).account(), Hash32([product; 32]), seats, FAR)).await;
    }
}

async fn money(world: &World, owner: &Signer, renter: &Signer) {
    let (operator, pool) = (&world.operator, &world.pool);
    world.send(renter, pool.enter(Amount(1_000), key(41).address(), FAR)).await;
    world.send(renter, pool.grant(key(43).address(), Amount(500_000), FAR)).await;
    world.send(owner, pool.claim_many(&[voucher(world, 41, 100_000)])).await;
    world.send(owner, pool.claim_many(&[voucher(world, 43, 250_000)])).await;
    world.send(owner, pool.cash_out(owner.account())).await;
    world.send(operator, pool.cash_out_fees(1, operator.address())).await;
    // Of this the key's cap covers a part.
    world.send(owner, pool.claim_many(&[voucher(world, 43, 900_000)])).await;
    world.send(renter, pool.enter(Amount(0), key(42).address(), FAR)).await;
    world.send(renter, pool.revoke(key(43).address())).await;
    world.send(renter, pool.grant(key(44).address(), Amount(5), FAR)).await;
    world.send(renter, pool.thaw(Amount(300))).await;
    world.send(renter, pool.withdraw(renter.address())).await;
    world.send(renter, pool.thaw(Amount(200))).await;
}

async fn court(world: &World, owner: &Signer) {
    let (operator, pool) = (&world.operator, &world.pool);
    world.send(operator, pool.mint(operator.address(), 900_000_000)).await;
    world.send(operator, pool.approve_court()).await;
    world.send(operator, pool.put_bond(Amount(5_000_000))).await;
    world.send(operator, pool.unbond_bond(Amount(1_000))).await;
    let fork = pool.prove_fork(&head(world, 1), &head(world, 2), None, owner.address());
    world.send(owner, fork).await;
    // The liar pays in again, and a node of the owner contradicts itself.
    world.send(operator, pool.put_bond(Amount(3_000_000))).await;
    world.send(operator, pool.unbond_bond(Amount(2_000))).await;
    let twice = pool.prove_two_reports(&report(world, 1), &report(world, 2), operator.address());
    world.send(operator, twice).await;
    world.send(owner, pool.register_provider(key(31).address(), Amount(110_000_000))).await;
}

/// The same number of one node, with another reading.
fn report(world: &World, metered_ms: u64) -> SignedReport {
    let node = key(11);
    let report = selion_api::agent::Report {
        node: NodeId(node.account().0),
        provider: key(30).account(),
        seq: 5,
        fence: FENCE,
        lease: selion_api::LeaseId { seq: 1, index: 0 },
        attempt: 1,
        member: 0,
        gpus: Vec::new(),
        slot: selion_api::Slot::Whole,
        event: selion_api::agent::MemberEvent::Metered,
        metered_ms,
    };
    let digest = signing_digest(&id(world), "report", &report);
    SignedReport { signature: node.sign_text(&digest.0).unwrap(), report }
}

fn id(world: &World) -> PoolId {
    PoolId { chain_id: world.pool.chain_id, controller: world.pool.at.controller }
}

/// A head over one entry, whose root is its leaf.
fn head(world: &World, root: u8) -> Stated {
    let head = Head { size: 1, root: Hash32([root; 32]), digest: Hash32([3; 32]), fence: FENCE };
    Stated::Head(SignedHead { head, signature: world.operator.sign_text(&head.digest_to_sign(&id(world)).0).unwrap() })
}

fn voucher(world: &World, by: u8, cumulative: u64) -> SignedVoucher {
    let voucher = Voucher {
        renter: key(20).account(),
        provider: key(30).account(),
        cumulative: Amount(cumulative),
        used_through: TimeMs(1_000_000 + cumulative),
        epoch: 1,
        log_size: 1,
    };
    let sign = |signer: &Signer| voucher.sign(signer, world.pool.chain_id, world.pool.at.vault).unwrap();
    voucher.signed(sign(&key(by)), sign(&world.operator))
}

/// An audit by a node that changes what is answered to calls of that selector.
async fn told(
    world: &World,
    log: &LogSource,
    selector: String,
    lie: impl Fn(&mut Vec<u8>) + Send + Sync + 'static,
) -> Report {
    let url = node(&world.url, move |question, result| {
        let data = question["params"][0]["data"].as_str().unwrap_or_default();
        if question["method"] == "eth_call" && data.starts_with(&selector) {
            let mut answer = hex::decode(result.as_str().unwrap().strip_prefix("0x").unwrap()).unwrap();
            lie(&mut answer);
            *result = json!(format!("0x{}", hex::encode(answer)));
        }
    });
    let rpcs = vec![url.await];
    audit(&Options { rpcs, ..world.options(log.clone()) }).await.unwrap()
}

/// All functions that only read, of all three contracts.
fn views() -> Vec<Value> {
    let texts = [
        include_str!("../../../../contracts/abi/Controller.json"),
        include_str!("../../../../contracts/abi/Vault.json"),
        include_str!("../../../../contracts/abi/Court.json"),
    ];
    let all = texts.into_iter().flat_map(|text| {
        let of_contract: Value = serde_json::from_str(text).unwrap();
        of_contract["abi"].as_array().unwrap().clone()
    });
    all.filter(|one| {
        one["type"] == "function" && (one["stateMutability"] == "view" || one["stateMutability"] == "pure")
    })
    .collect()
}

fn selector(view: &str) -> String {
    let views = views();
    let found = views.iter().find(|one| one["name"] == view).expect("a function of the contracts");
    let kinds: Vec<&str> =
        found["inputs"].as_array().unwrap().iter().map(|input| input["type"].as_str().unwrap()).collect();
    of_text(&format!("{view}({})", kinds.join(",")))
}

fn of_text(signature: &str) -> String {
    format!("0x{}", hex::encode(&text_hash(signature).0[..4]))
}

/// Changes field `at` of an answer: a bit of a word, or of the text that the word leads to.
fn change(answer: &mut [u8], view: &str, at: usize) {
    let is_text = matches!((view, at), ("component", 0) | ("offerOf", 2));
    let word = at * 32;
    let byte = if is_text {
        let from = usize::from(answer[word + 31]);
        // Behind the length; an empty text has nothing to change, and its length is.
        if answer[from + 31] == 0 { return } else { from + 32 }
    } else {
        word + 31
    };
    answer[byte] ^= 1;
}

fn failed(report: &Report) -> BTreeSet<&str> {
    let wrong = report.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str());
    wrong.filter(|name| OF_CHAIN.contains(name)).collect()
}

#[test]
fn every_answer_from_storage_is_compared() {
    for view in views() {
        let name = view["name"].as_str().unwrap();
        let known = NOT_STORED.contains(&name) || name == SAID_TWICE || name == "burnt";
        let outputs = view["outputs"].as_array().unwrap();
        let words = match outputs[0]["components"].as_array() {
            Some(of_tuple) => of_tuple.len(),
            None => outputs.len(),
        };
        let compared = STORED.iter().find(|(stored, _)| *stored == name).map(|(_, checks)| checks.len());
        assert!(known || compared == Some(words), "{name} answers {words} words: is each compared with the events?");
    }
}

#[tokio::test]
async fn all_that_the_contracts_store_is_what_their_events_tell_and_any_other_answer_is_caught_by_name() {
    let world = busy().await;
    let log = world.file();
    let honest = audit(&world.options(log.clone())).await.unwrap();
    assert_eq!(failed(&honest), BTreeSet::new(), "{honest:#?}");
    let convicted: Vec<_> = honest.convictions.iter().map(|one| (one.who, one.epoch, one.node)).collect();
    let node = NodeId(key(11).account().0);
    let expected = [(world.operator.account(), Some(1), None), (key(30).account(), None, Some(node))];
    assert_eq!(convicted, expected, "the authority of the first epoch and a node contradicted themselves");
    let said = |name| named(&honest, name).detail.clone();
    let registry = said("registry_from_events");
    assert!(
        registry.starts_with("2 epochs, 1 standbys, 1 providers, 2 nodes, 2 components and 2 licences"),
        "{registry}"
    );
    assert!(said("court_from_events").starts_with("1 bonds and 1 convictions"));
    // Court and controller say by one name what each burnt.
    let burnt = told(&world, &log, selector("burnt"), |answer| change(answer, "burnt", 0)).await;
    assert_eq!(failed(&burnt), BTreeSet::from(["court_from_events", "registry_from_events"]));
    for (view, checks) in STORED.iter().copied() {
        for (at, check) in checks.iter().enumerate() {
            let report = told(&world, &log, selector(view), move |answer| change(answer, view, at)).await;
            assert_eq!(failed(&report), BTreeSet::from([*check]), "{view}, word {at}");
            let detail = &named(&report, check).detail;
            assert!(detail.contains("events tell") && detail.contains("the contract says"), "{view}, {at}: {detail}");
        }
    }
}

#[tokio::test]
async fn a_contract_that_lacks_tokens_is_caught_whatever_the_tokens_unit() {
    let world = busy().await;
    let log = world.file();
    let short = ["registry_from_events", "court_from_events", "vault_covers"];
    let empty = told(&world, &log, of_text("balanceOf(address)"), |answer| answer.fill(0)).await;
    assert_eq!(failed(&empty), BTreeSet::from(short));
    // As if a unit were 10^12 base units of the token, as it is with 18 decimals.
    let scale = |answer: &mut Vec<u8>| answer[24..].copy_from_slice(&1_000_000_000_000_u64.to_be_bytes());
    let report = told(&world, &log, selector("scale"), scale).await;
    let with_code = short.into_iter().chain(["code_committed"]).collect();
    assert_eq!(failed(&report), with_code, "the scale is in the code");
    let detail = &named(&report, "vault_covers").detail;
    assert!(detail.starts_with("the vault has ") && detail.ends_with("000000000000"), "{detail}");
}

#[tokio::test]
async fn a_closed_offer_of_which_the_contract_tells_anything_is_caught() {
    let world = busy().await;
    let log = world.file();
    let of_closed = |answer: &mut Vec<u8>| {
        if answer[..32] == [0; 32] {
            answer[63] ^= 1;
        }
    };
    let report = told(&world, &log, selector("offerOf"), of_closed).await;
    assert_eq!(failed(&report), BTreeSet::from(["registry_from_events"]));
}

#[tokio::test]
async fn terms_that_are_not_those_that_the_pool_was_opened_with_are_caught_word_by_word() {
    let world = World::start().await;
    let log = world.file();
    // Behind the place of the tuple and the token's word. Thirteen words follow; the last leads to a text, and another finality would ask for other blocks.
    for word in [2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14] {
        let change = move |answer: &mut Vec<u8>| answer[word * 32 + 31] ^= 1;
        let report = told(&world, &log, selector("config"), change).await;
        let check = named(&report, "registry_from_events");
        assert!(!check.ok && check.detail.starts_with("terms: events tell"), "word {word}: {}", check.detail);
    }
}
