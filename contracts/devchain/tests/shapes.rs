//! The answers that `cast`, a browser wallet and a mirror read have the shapes of Anvil's. Every difference stands in
//! [`DIFFERENCES`] with its reason; one that is not there, or there for nothing, fails the test.
//! Set `SELION_ANVIL` to the path of an `anvil` binary; without it there is nothing to compare with.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{EMITTER, REVERTER, sign, start_anvil, tx, wallet, word};
use ethers_core::utils::{get_contract_address, hex};
use ethers_signers::Signer;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Question, field, and why ours is another than Anvil's.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("eth_accounts", "[]", "the dev chain holds no keys: whoever may sign has a key of their own"),
    ("eth_call at earliest", "", "only the head's state is kept; a wrong answer would be worse than a refusal"),
    ("eth_call at 0x1", "", "only the head's state is kept; a wrong answer would be worse than a refusal"),
    ("eth_getBlockByNumber pending", ".hash", "a block that is not mined has no hash (geth says the same)"),
    ("eth_getBlockByNumber pending", ".nonce", "a block that is not mined has no nonce (geth says the same)"),
    ("eth_getBlockByNumber pending", ".size", "a block that is not mined has no size yet"),
    ("eth_getBlockReceipts", "[].blockTimestamp", "Anvil's own, and not a quantity; the block tells its time"),
    ("eth_getTransactionReceipt", ".blockTimestamp", "Anvil's own, and not a quantity; the block tells its time"),
    ("CORS preflight", "", "no page in a browser may use the dev chain behind its user's back; wallets are no pages"),
];

async fn ask(url: &str, method: &str, params: &Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    reqwest::Client::new().post(url).json(&request).send().await.unwrap().json().await.unwrap()
}

/// Every field by its path with what kind of value it is.
fn shape(value: &Value, at: String, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| shape(field, format!("{at}.{name}"), into));
        }
        Value::Array(items) => {
            into.insert(at.clone(), "a list".into());
            items.iter().for_each(|item| shape(item, format!("{at}[]"), into));
        }
        other => {
            into.insert(at, kind(other));
        }
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "a truth".into(),
        Value::Number(_) => "a number".into(),
        Value::String(text) => match text.strip_prefix("0x") {
            // Words, addresses and blooms have a length; quantities have no leading zero.
            Some(digits) if [40, 64, 512].contains(&digits.len()) => format!("{} bytes", digits.len() / 2),
            Some("0") => "a quantity".into(),
            Some(digits) if digits.len() <= 16 && !digits.starts_with('0') && !digits.is_empty() => "a quantity".into(),
            Some(_) => "bytes".into(),
            None => "text".into(),
        },
        _ => "nested".into(),
    }
}

fn shapes(answer: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    match answer.get("error").filter(|error| !error.is_null()) {
        // The words are each node's own; the code and a revert's bytes are not.
        Some(error) => {
            found.insert(String::new(), format!("refused with {}, data {}", error["code"], error["data"]));
        }
        None => shape(&answer["result"], String::new(), &mut found),
    }
    found
}

/// What `method` is asked beside the plain questions: the tags of `eth_call` and of blocks.
fn questions(who: &Value, emitter: &Value, reverter: &Value, hash: &Value, ours: &Value) -> Vec<(String, Value)> {
    let call = json!({"from": who, "to": emitter, "data": word(9)});
    let refused = json!({"from": who, "to": reverter});
    let mut all: Vec<(String, Value)> = Vec::new();
    for plain in [
        "eth_chainId",
        "net_version",
        "net_listening",
        "eth_accounts",
        "eth_blockNumber",
        "eth_gasPrice",
        "eth_maxPriorityFeePerGas",
        "web3_clientVersion",
        "eth_syncing",
        "eth_noSuchMethod",
    ] {
        all.push((plain.into(), json!([])));
    }
    for tag in ["latest", "pending", "earliest", "safe", "finalized", "0x1", "0x999"] {
        all.push((format!("eth_getBlockByNumber {tag}"), json!([tag, true])));
    }
    for tag in ["latest", "pending", "earliest", "safe", "finalized", "0x1"] {
        all.push((format!("eth_call at {tag}"), json!([call, tag])));
    }
    all.push(("eth_call at hash".into(), json!([call, {"blockHash": ours}])));
    all.push(("eth_call refused".into(), json!([refused, "latest"])));
    all.push(("eth_estimateGas".into(), json!([call])));
    all.push(("eth_estimateGas refused".into(), json!([refused])));
    all.push(("eth_feeHistory".into(), json!(["0x3", "latest", [10.0, 50.0]])));
    all.push(("eth_feeHistory without percentiles".into(), json!(["0x2", "latest", []])));
    for method in ["eth_getTransactionByHash", "eth_getTransactionReceipt"] {
        all.push((method.into(), json!([hash])));
        all.push((format!("{method} unknown"), json!([format!("0x{}", "11".repeat(32))])));
    }
    all.push(("eth_getBlockByHash".into(), json!([ours, false])));
    all.push(("eth_getBlockReceipts".into(), json!(["0x1"])));
    all.push(("eth_getLogs".into(), json!([{"fromBlock": "0x0", "toBlock": "latest", "address": emitter}])));
    all.push(("eth_getLogs by hash".into(), json!([{"blockHash": ours}])));
    for method in ["eth_getBalance", "eth_getTransactionCount", "eth_getCode"] {
        all.push((method.into(), json!([who, "latest"])));
    }
    all.push(("eth_getTransactionCount pending".into(), json!([who, "pending"])));
    all.push(("eth_getStorageAt".into(), json!([emitter, "0x0", "latest"])));
    all
}

#[tokio::test]
async fn answers_have_the_shapes_of_anvils_but_for_what_is_listed() {
    let Ok(binary) = std::env::var("SELION_ANVIL") else {
        eprintln!("skipped: answers_have_the_shapes_of_anvils; set SELION_ANVIL to an anvil binary");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let chain = common::start(dir.path()).await;
    let (_anvil, theirs) = start_anvil(&binary, &["--slots-in-an-epoch", "1"]);
    let ours = format!("http://{}/", chain.addr);
    let wallet = wallet(1);
    let (emitter, reverter) = (get_contract_address(wallet.address(), 0), get_contract_address(wallet.address(), 1));
    let requests = [
        tx(0).data(hex::decode(EMITTER).unwrap()),
        tx(1).data(hex::decode(REVERTER).unwrap()),
        tx(2).to(emitter).data(word(7)),
    ];
    let mut hash = Value::Null;
    for url in [&ours, &theirs] {
        ask(url, "anvil_setBalance", &json!([wallet.address(), "0x56bc75e2d63100000"])).await;
        for request in requests.clone() {
            hash = ask(url, "eth_sendRawTransaction", &json!([sign(&wallet, request)])).await["result"].take();
        }
        // So that `safe` and `finalized`, which lag in Anvil, are blocks like the head.
        ask(url, "anvil_mine", &json!(["0x4"])).await;
    }
    let mut found = Vec::new();
    let who = json!(wallet.address());
    let asked = async |url: &str| {
        let head = ask(url, "eth_getBlockByNumber", &json!(["latest", false])).await["result"]["hash"].take();
        let mut answers = Vec::new();
        for (name, params) in questions(&who, &json!(emitter), &json!(reverter), &hash, &head) {
            let method = name.split(' ').next().unwrap();
            answers.push((name.clone(), shapes(&ask(url, method, &params).await)));
        }
        answers
    };
    for ((name, our), (_, their)) in asked(&ours).await.into_iter().zip(asked(&theirs).await) {
        // A field of ours that Anvil does not have harms nobody; the other way round is a difference.
        let differ = their.into_iter().filter(|(at, kind)| our.get(at) != Some(kind));
        found.extend(differ.map(|(at, kind)| (name.clone(), at.clone(), kind, our.get(&at).cloned())));
    }
    if preflight(&ours).await != preflight(&theirs).await {
        found.push(("CORS preflight".into(), String::new(), "allowed".into(), None));
    }
    let listed = |name: &str, at: &str| DIFFERENCES.iter().any(|(one, place, _)| (*one, *place) == (name, at));
    let new: Vec<_> = found.iter().filter(|(name, at, ..)| !listed(name, at)).collect();
    assert!(new.is_empty(), "(question, field, Anvil's, ours) not in DIFFERENCES: {new:#?}");
    let gone = |(one, place, _): &&(&str, &str, &str)| {
        !found.iter().any(|(name, at, ..)| (name, at) == (&(*one).to_owned(), &(*place).to_owned()))
    };
    let old: Vec<_> = DIFFERENCES.iter().filter(gone).collect();
    assert!(old.is_empty(), "no difference any more: {old:#?}");
    chain.stop().await;
}

/// Whether a page of another origin may ask.
async fn preflight(url: &str) -> bool {
    let request = reqwest::Client::new().request(reqwest::Method::OPTIONS, url);
    let headers = [("origin", "https://page.example"), ("access-control-request-method", "POST")];
    let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
    request.send().await.unwrap().headers().contains_key("access-control-allow-origin")
}
