//! What chain nodes of other makes answer, told by a node of this test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use selion_api::{Account, Hash32};
use selion_contracts::{Rpc, RpcError, TxError, tx};
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
