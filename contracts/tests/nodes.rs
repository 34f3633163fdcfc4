//! What chain nodes of other makes answer, told by a node of this test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use selion_api::{Account, Address, Hash32};
use selion_contracts::history::History;
use selion_contracts::{BlockTag, Rpc, RpcError, TxError, tx};
use serde_json::{Value, json};

const TX: Hash32 = Hash32([7; 32]);
const RICH: &str = "0x71562b71999873db5b286df957af199ec94617f7";

/// Answers a method, with the JSON-RPC error on the right.
type Script = Box<dyn FnMut(&str, &Value) -> Result<Value, Value> + Send>;

/// A node that answers by `script`.
async fn node(script: impl FnMut(&str, &Value) -> Result<Value, Value> + Send + 'static) -> Rpc {
    async fn answer(State(script): State<Arc<Mutex<Script>>>, Json(asked): Json<Value>) -> Json<Value> {
        let answer = script.lock().unwrap()(asked["method"].as_str().unwrap(), &asked["params"]);
        let (kind, value) = match answer {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        Json(json!({ "jsonrpc": "2.0", "id": asked["id"], kind: value }))
    }
    let script: Script = Box::new(script);
    let router = Router::new().route("/", post(answer)).with_state(Arc::new(Mutex::new(script)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Rpc::new(&url).unwrap()
}

fn receipt() -> Value {
    json!({
        "transactionHash": TX.to_string(), "blockNumber": "0x2", "blockHash": Hash32([8; 32]).to_string(),
        "status": "0x1", "gasUsed": "0x5208", "contractAddress": null, "logs": [],
    })
}

fn refused(code: i64, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

/// In the words of geth 1.17.
fn indexing() -> Value {
    let text = "transaction indexing is in progress";
    json!({ "code": -32_000, "message": text, "data": text })
}

#[tokio::test]
async fn a_node_that_still_indexes_its_transactions_has_no_receipt_yet() {
    let mut looks = 0;
    let rpc = node(move |method, _| {
        assert_eq!(method, "eth_getTransactionReceipt");
        looks += 1;
        match looks {
            1 | 2 => Err(indexing()),
            3 => Ok(Value::Null),
            _ => Ok(receipt()),
        }
    });
    let rpc = rpc.await;
    assert_eq!(rpc.receipt(TX).await.unwrap(), None);
    let found = tx::wait(&rpc, TX, tx::PATIENCE).await.unwrap();
    assert_eq!((found.tx, found.block_number, found.gas_used), (TX, 2, 21_000));
}

#[tokio::test]
async fn any_other_refusal_of_a_receipt_is_told() {
    for error in [
        refused(-32_000, "transaction indexing is disabled"),
        refused(-32_000, "missing trie node"),
        refused(-32_601, "the method eth_getTransactionReceipt does not exist/is not available"),
        refused(-32_005, "rate limited while transaction indexing is in progress"),
    ] {
        let said = error["message"].as_str().unwrap().to_owned();
        let rpc = node(move |_, _| Err(error.clone())).await;
        let told = tx::wait(&rpc, TX, tx::PATIENCE).await;
        assert!(matches!(&told, Err(TxError::Rpc(RpcError::Refused { message, .. })) if *message == said), "{told:?}");
    }
}

#[tokio::test]
async fn coins_come_of_the_rich_account_where_none_can_be_made() {
    let mut sent = false;
    let poor = Account([9; 20]);
    let rpc = node(move |method, params| match method {
        "eth_getBalance" => Ok(json!("0x0")),
        "anvil_setBalance" => Err(refused(-32_601, "the method anvil_setBalance does not exist/is not available")),
        "eth_accounts" => Ok(json!([RICH])),
        "eth_sendTransaction" => {
            assert_eq!(params[0], json!({ "from": RICH, "to": poor.to_string(), "value": "0x64" }));
            assert!(!std::mem::replace(&mut sent, true), "sent once");
            Ok(json!(TX.to_string()))
        }
        "eth_getTransactionReceipt" => Ok(receipt()),
        other => panic!("{other} was not to be asked"),
    });
    rpc.await.give_coins(poor, 100).await.unwrap();
}

#[tokio::test]
async fn who_has_enough_coins_is_given_none() {
    let rpc = node(|method, _| match method {
        "eth_getBalance" => Ok(json!("0x64")),
        other => panic!("{other} was not to be asked"),
    });
    rpc.await.give_coins(Account([9; 20]), 100).await.unwrap();
}

#[tokio::test]
async fn a_node_that_gives_no_coins_is_named_and_so_is_who_needs_them() {
    let rpc = node(|method, _| match method {
        "eth_getBalance" => Ok(json!("0x0")),
        "anvil_setBalance" => Err(refused(-32_601, "no such method")),
        "eth_accounts" => Ok(json!([])),
        other => panic!("{other} was not to be asked"),
    });
    let rpc = rpc.await;
    let told = rpc.give_coins(Account([9; 20]), 100).await.unwrap_err().to_string();
    assert!(told.contains(rpc.node()) && told.contains(&Account([9; 20]).to_string()), "{told}");
    assert!(told.contains("gives no coin away"), "{told}");
}

#[tokio::test]
async fn a_node_that_refuses_to_make_coins_for_another_reason_sends_none() {
    let rpc = node(|method, _| match method {
        "eth_getBalance" => Ok(json!("0x0")),
        "anvil_setBalance" => Err(refused(-32_602, "invalid params")),
        other => panic!("{other} was not to be asked"),
    });
    let told = rpc.await.give_coins(Account([9; 20]), 100).await;
    assert!(matches!(told, Err(TxError::Rpc(RpcError::Refused { code: -32_602, .. }))), "{told:?}");
}

const AT: Address = Address([3; 20]);

/// A log of block `block`, at place `index` in it.
fn log(block: u64, index: u64) -> Value {
    json!({
        "address": AT.to_string(), "topics": [TX.to_string()], "data": "0x", "blockNumber": format!("{block:#x}"),
        "blockHash": Hash32([8; 32]).to_string(), "transactionHash": TX.to_string(), "logIndex": format!("{index:#x}"),
        "removed": false,
    })
}

fn number(json: &Value) -> u64 {
    u64::from_str_radix(json.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// All logs of blocks 0 to `last`, by a node that allows so many blocks at once and has a log in every tenth. `topics`: null
/// for all of the logs.
async fn history(topics: Value, last: u64, most: u64, refusal: Value) -> (Result<Vec<u64>, RpcError>, u64) {
    let asked = Arc::new(Mutex::new(0));
    let (count, expected) = (asked.clone(), topics.clone());
    let rpc = node(move |_, params| {
        *count.lock().unwrap() += 1;
        assert_eq!(params[0]["topics"], expected);
        let (from, to) = (number(&params[0]["fromBlock"]), number(&params[0]["toBlock"]));
        if to - from + 1 > most {
            return Err(refusal.clone());
        }
        Ok((from..=to).filter(|block| block % 10 == 0).map(|block| log(block, 0)).collect())
    });
    let rpc = rpc.await;
    let all = topics.is_null();
    let mut history = if all { History::new(&rpc, &[AT]) } else { History::about(&rpc, AT, topics) };
    let (mut from, mut blocks) = (0, Vec::new());
    while from <= last {
        match history.next(from, last).await {
            Ok(told) => {
                assert_eq!(told.fault, None);
                blocks.extend(told.logs.iter().map(|log| log.block_number));
                from = told.to + 1;
            }
            Err(error) => return (Err(error), *asked.lock().unwrap()),
        }
    }
    let asked = *asked.lock().unwrap();
    (Ok(blocks), asked)
}

#[tokio::test]
async fn a_node_that_allows_few_blocks_at_once_is_asked_in_ranges_that_it_allows() {
    let every_tenth: Vec<u64> = (0..=25_000).step_by(10).collect();
    for (code, message) in [
        (-32_005, "query returned more than 10000 results"),
        (-32_602, "eth_getLogs is limited to a 100 blocks range"),
        (-32_000, "block range is too large"),
        (-32_000, "Log response size exceeded"),
    ] {
        let (blocks, asked) = history(Value::Null, 25_000, 100, refused(code, message)).await;
        assert_eq!(blocks.unwrap(), every_tenth, "{message}");
        // 79 blocks at a time, and one try in 17 of more.
        assert!((251..400).contains(&asked), "{message}: {asked} questions");
    }
    let (blocks, asked) = history(Value::Null, 25_000, u64::MAX, refused(0, "never")).await;
    assert_eq!((blocks.unwrap(), asked), (every_tenth, 3));
}

#[tokio::test]
async fn logs_about_somebody_are_asked_for_at_once_and_in_ranges_where_a_node_refuses_that() {
    let (topics, every_tenth) = (json!([[TX.to_string()]]), (0..=25_000).step_by(10).collect::<Vec<u64>>());
    let (blocks, asked) = history(topics.clone(), 25_000, u64::MAX, refused(0, "never")).await;
    assert_eq!((blocks.unwrap(), asked), (every_tenth.clone(), 1));
    let (blocks, asked) = history(topics, 25_000, 100, refused(-32_000, "block range is too large")).await;
    assert_eq!(blocks.unwrap(), every_tenth);
    assert!((251..400).contains(&asked), "{asked} questions");
}

#[tokio::test]
async fn a_limit_of_rate_or_another_refusal_is_told_and_not_split() {
    for (code, message) in [(-32_005, "daily request rate exceeded"), (-32_601, "no such method")] {
        let (blocks, asked) = history(Value::Null, 25_000, 100, refused(code, message)).await;
        assert!(matches!(blocks, Err(RpcError::Refused { .. })) && asked == 1, "{message}: {asked}");
    }
}

#[tokio::test]
async fn logs_that_are_removed_out_of_order_or_not_asked_for_are_told() {
    let mut removed = log(4, 0);
    removed["removed"] = json!(true);
    let mut foreign = log(4, 0);
    foreign["address"] = json!(Address([4; 20]).to_string());
    for (logs, why) in [
        (json!([removed]), "removed"),
        (json!([foreign]), "not asked for"),
        (json!([log(4, 1), log(4, 0)]), "in order"),
        (json!([log(4, 0), log(4, 0)]), "in order"),
        (json!([log(5, 0), log(4, 1)]), "in order"),
        (json!([log(40, 0)]), "blocks 0 to 9"),
    ] {
        let rpc = node(move |_, _| Ok(logs.clone())).await;
        let told = History::new(&rpc, &[AT]).next(0, 9).await.unwrap();
        assert!(told.fault.as_ref().is_some_and(|fault| fault.contains(why)), "{why}: {:?}", told.fault);
        assert!(told.logs.is_sorted_by_key(|log| (log.block_number, log.index)));
    }
    let rpc = node(|_, _| Ok(json!([log(4, 0), log(4, 2), log(7, 0)]))).await;
    assert_eq!(History::new(&rpc, &[AT]).next(0, 9).await.unwrap().fault, None);
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off_and_its_node_named() {
    let endless = || async {
        let piece = axum::body::Bytes::from(vec![b' '; 1 << 20]);
        let pieces = futures::stream::repeat_with(move || Ok::<_, std::convert::Infallible>(piece.clone()));
        axum::body::Body::from_stream(pieces)
    };
    let router = Router::new().route("/", post(endless));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let error = Rpc::new(&url).unwrap().chain_id().await.unwrap_err();
    assert!(matches!(error, RpcError::TooLong { .. }), "{error}");
    assert!(error.to_string().contains(&url) && error.to_string().contains("eth_chainId"), "{error}");
}

/// The first block of Ethereum, before any fork.
fn first_of_ethereum() -> Value {
    json!({
        "parentHash": Hash32::ZERO.to_string(),
        "sha3Uncles": "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
        "miner": Address([0; 20]).to_string(),
        "stateRoot": "0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544",
        "transactionsRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
        "receiptsRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
        "logsBloom": format!("0x{}", "00".repeat(256)),
        "difficulty": "0x400000000", "number": "0x0", "gasLimit": "0x1388", "gasUsed": "0x0", "timestamp": "0x0",
        "extraData": "0x11bbe8db4e347b4e8c937c1c8370e4b5ed33adb3db69cbdb7a38e1e50b1b82fa",
        "mixHash": Hash32::ZERO.to_string(), "nonce": "0x0000000000000042",
        "hash": "0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3",
        "size": "0x21c", "totalDifficulty": "0x400000000", "transactions": [], "uncles": [],
    })
}

/// Block 158 of a network of Erigon and Besu nodes after the fork Prague.
fn after_prague() -> Value {
    let empty = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421";
    json!({
        "parentHash": "0x25c26894165fbde26eea9d1768faccd34c8d586e856744ebf91845b90e04879c",
        "sha3Uncles": "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
        "miner": "0x8943545177806ed17b9f23f0a21ee5948ecaa776",
        "stateRoot": "0xa49e92083814ffba167fb8b841c376b49e0541d9e5821f0366bd7907d247cffc",
        "transactionsRoot": empty, "receiptsRoot": empty, "logsBloom": format!("0x{}", "00".repeat(256)),
        "difficulty": "0x0", "number": "0x9e", "gasLimit": "0x3938700", "gasUsed": "0x0", "timestamp": "0x6a647f8b",
        "extraData": "0x657269676f6e2d332e352e332d6565383635663263",
        "mixHash": "0x309992977fac827b69a5d36b206d6af0923f49d8802782e0fe7ceb5996ce8cc5",
        "nonce": "0x0000000000000000", "baseFeePerGas": "0x7", "withdrawalsRoot": empty, "withdrawals": [],
        "blobGasUsed": "0x0", "excessBlobGas": "0x0",
        "parentBeaconBlockRoot": "0x12762f4d7c5f7c0caee6ba527c41312168789367a150834e04d9b6a9941acc90",
        "requestsHash": "0xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "hash": "0x789bca9613407fc85eb72a7f94a5f2d16178b5efcb8c18e6e77240fc2e603bfc", "transactions": [],
    })
}

/// What is wrong with the header, as the node tells it.
async fn fault(header: Value) -> Option<String> {
    let number = number(&header["number"]);
    let rpc = node(move |_, _| Ok(header.clone())).await;
    rpc.hashed_header(BlockTag::Number(number)).await.unwrap().fault
}

#[tokio::test]
async fn headers_of_every_fork_hash_to_their_hash_and_with_any_field_changed_they_do_not() {
    for header in [first_of_ethereum(), after_prague()] {
        assert_eq!(fault(header.clone()).await, None);
        let beside = ["hash", "size", "totalDifficulty", "transactions", "uncles", "withdrawals", "number"];
        for (name, value) in header.as_object().unwrap().iter().filter(|(name, _)| !beside.contains(&name.as_str())) {
            let mut other = header.clone();
            let text = value.as_str().unwrap();
            let digit = if text.ends_with('1') { "2" } else { "1" };
            other[name] = json!(format!("{}{digit}", &text[..text.len() - 1]));
            let said = fault(other).await;
            assert!(said.as_ref().is_some_and(|said| said.contains("hashes to")), "{name}: {said:?}");
        }
    }
}

#[tokio::test]
async fn a_header_with_a_field_that_is_not_known_is_told_with_its_name_only_if_it_does_not_hash() {
    let mut header = after_prague();
    header["l1BlockNumber"] = json!("0x1");
    assert_eq!(fault(header.clone()).await, None);
    header["hash"] = json!(Hash32([1; 32]).to_string());
    let said = fault(header).await.unwrap();
    assert!(said.contains("l1BlockNumber") && said.contains("use a release"), "{said}");
    let mut header = after_prague();
    header["mixHash"] = Value::Null;
    assert!(fault(header).await.unwrap().contains("no mixHash"));
    let rpc = node(|_, _| Ok(after_prague())).await;
    let other = rpc.hashed_header(BlockTag::Number(7)).await.unwrap().fault;
    assert!(other.unwrap().contains("block 7 was asked for"));
}
