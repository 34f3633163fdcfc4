//! Questions and refusals: calls, estimates, nonces, balances, and requests that are none.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{BLOCK_NUMBER, EMITTER, REVERTER, TIMESTAMP, quantity, sign, start, tx, wallet, word};
use ethers_core::types::U256;
use ethers_signers::Signer;
use serde_json::{Value, json};

#[tokio::test]
async fn a_nonce_too_low_or_too_high_is_refused_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    let first = sign(&wallet, tx(0).to(wallet.address()));
    chain.send(&first).await;
    let (code, message) =
        chain.err("eth_sendRawTransaction", json!([sign(&wallet, tx(0).to(wallet.address()).value(1))])).await;
    assert_eq!(code, -32_003);
    assert!(message.starts_with("nonce too low: next nonce 1, tx nonce 0"), "{message}");
    let (_, message) = chain.err("eth_sendRawTransaction", json!([sign(&wallet, tx(5).to(wallet.address()))])).await;
    assert!(message.starts_with("nonce too high: next nonce 1, tx nonce 5"), "{message}");
    let (_, message) = chain.err("eth_sendRawTransaction", json!([first])).await;
    assert!(message.starts_with("already known") && message.contains("block 1"), "{message}");
    for tag in ["latest", "pending"] {
        assert_eq!(chain.ok("eth_getTransactionCount", json!([wallet.address(), tag])).await, "0x1");
    }
    chain.stop().await;
}

#[tokio::test]
async fn an_account_without_gas_money_is_told_its_balance_and_the_way_to_get_some() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let poor = wallet(9);
    let (code, message) = chain.err("eth_sendRawTransaction", json!([sign(&poor, tx(0).to(poor.address()))])).await;
    assert_eq!(code, -32_003);
    assert!(message.starts_with("insufficient funds for gas * price + value"), "{message}");
    assert!(message.contains("have 0 want 10000000000000000") && message.contains("anvil_setBalance"), "{message}");
    assert_eq!(chain.number().await, 0, "no account begins with money");
    chain.stop().await;
}

#[tokio::test]
async fn too_little_gas_too_much_gas_and_too_low_a_fee_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    for (request, said) in [
        (tx(0).gas(20_000), "intrinsic gas too low: have 20000, want 21000"),
        (tx(0).gas(30_000_001), "exceeds block gas limit: at most 30000000"),
        (tx(0).max_fee_per_gas(1).max_priority_fee_per_gas(1), "max fee per gas less than block base fee"),
    ] {
        let raw = sign(&wallet, request.to(wallet.address()));
        let (_, message) = chain.err("eth_sendRawTransaction", json!([raw])).await;
        assert!(message.starts_with(said), "{message}");
    }
    chain.stop().await;
}

#[tokio::test]
async fn a_revert_gives_its_data_to_callers_and_a_failed_receipt_to_senders() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    let reverter = chain.deploy(&wallet, 0, REVERTER).await;
    for method in ["eth_call", "eth_estimateGas"] {
        let error = chain.error(method, json!([{"to": reverter}, "latest"])).await;
        assert_eq!(error["code"], 3, "{method}: {error}");
        assert_eq!(error["data"], "0xdeadbeef", "{method}: {error}");
        assert_eq!(error["message"], "execution reverted: custom error 0xdeadbeef");
    }
    let receipt = chain.receipt(chain.send(&sign(&wallet, tx(1).to(reverter))).await).await;
    assert_eq!(receipt["status"], "0x0");
    assert_eq!(receipt["logs"], json!([]));
    assert!(quantity(&receipt["gasUsed"]) < 1_000_000, "a revert returns the gas that is left");
    assert_eq!(quantity(&chain.ok("eth_getTransactionCount", json!([wallet.address(), "latest"])).await), 2);
    chain.stop().await;
}

#[tokio::test]
async fn an_estimate_is_the_least_gas_that_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    let emitter = chain.deploy(&wallet, 0, EMITTER).await;
    let call = json!({"from": wallet.address(), "to": emitter, "data": word(7)});
    let gas = quantity(&chain.ok("eth_estimateGas", json!([call])).await);
    let short = chain.receipt(chain.send(&sign(&wallet, tx(1).gas(gas - 1).to(emitter).data(word(7)))).await).await;
    assert_eq!(short["status"], "0x0", "one less is too little");
    let enough = chain.receipt(chain.send(&sign(&wallet, tx(2).gas(gas).to(emitter).data(word(7)))).await).await;
    assert_eq!(enough["status"], "0x1");
    let transfer = json!([{"from": wallet.address(), "to": wallet.address(), "value": "0x1"}]);
    assert_eq!(quantity(&chain.ok("eth_estimateGas", transfer).await), 21_000);
    chain.stop().await;
}

#[tokio::test]
async fn code_and_storage_are_what_was_deployed_and_stored() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    let emitter = chain.deploy(&wallet, 0, EMITTER).await;
    chain.send(&sign(&wallet, tx(1).to(emitter).data(word(77)))).await;
    let code = chain.ok("eth_getCode", json!([emitter, "latest"])).await;
    assert_eq!(code, format!("0x{}", &EMITTER[24..]));
    assert_eq!(chain.ok("eth_getCode", json!([wallet.address(), "latest"])).await, "0x");
    assert_eq!(chain.ok("eth_getStorageAt", json!([emitter, "0x0", "latest"])).await, json!(word(77)));
    assert_eq!(chain.ok("eth_getStorageAt", json!([emitter, "0x1", "latest"])).await, json!(word(0)));
    chain.stop().await;
}

#[tokio::test]
async fn a_call_sees_the_head_or_the_pending_block_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    chain.ok("anvil_mine", json!([3])).await;
    let call = |tag: Value| json!([{"data": BLOCK_NUMBER}, tag]);
    assert_eq!(chain.ok("eth_call", call(json!("latest"))).await, json!(word(3)));
    assert_eq!(chain.ok("eth_call", call(json!("pending"))).await, json!(word(4)));
    let hash = chain.head().await["hash"].clone();
    assert_eq!(chain.ok("eth_call", call(json!({"blockHash": hash}))).await, json!(word(3)));
    let time = quantity(&chain.head().await["timestamp"]);
    assert_eq!(chain.ok("eth_call", json!([{"data": TIMESTAMP}, "latest"])).await, json!(word(time)));
    assert_eq!(chain.number().await, 3);
    chain.stop().await;
}

#[tokio::test]
async fn a_question_about_an_older_block_is_refused_and_never_answered_at_the_head() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let old = chain.head().await["hash"].clone();
    chain.ok("evm_mine", json!([])).await;
    let address = wallet(1).address();
    for at in [json!("earliest"), json!("0x0"), json!({"blockHash": old})] {
        for (method, params) in [
            ("eth_call", json!([{"data": BLOCK_NUMBER}, at])),
            ("eth_estimateGas", json!([{"to": address}, at])),
            ("eth_getBalance", json!([address, at])),
            ("eth_getTransactionCount", json!([address, at])),
            ("eth_getCode", json!([address, at])),
            ("eth_getStorageAt", json!([address, "0x0", at])),
        ] {
            let (_, message) = chain.err(method, params).await;
            assert!(message.starts_with("historical state is not kept"), "{method}: {message}");
        }
    }
    let (_, message) = chain.err("eth_getBalance", json!([address, "0x9"])).await;
    assert_eq!(message, "block 9 not found: the head is 1");
    assert_eq!(chain.ok("eth_getBalance", json!([address, "0x1"])).await, "0x0", "the head by its number");
    chain.stop().await;
}

#[tokio::test]
async fn a_call_spends_no_more_than_the_caller_has() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let (poor, wei) = (wallet(3).address(), U256::one());
    let (_, message) = chain.err("eth_call", json!([{"from": poor, "to": poor, "value": wei}, "latest"])).await;
    assert!(message.starts_with("insufficient funds"), "{message}");
    let (_, message) = chain.err("eth_call", json!([{"to": poor}, "latest", {}])).await;
    assert!(message.starts_with("state overrides are not supported"), "{message}");
    chain.stop().await;
}

#[tokio::test]
async fn requests_that_are_none_get_the_standard_codes() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    assert_eq!(chain.post("{nonsense".into()).await["error"]["code"], -32_700);
    assert_eq!(chain.post("[]".into()).await["error"]["code"], -32_600);
    assert_eq!(chain.post("7".into()).await["error"]["code"], -32_600);
    assert_eq!(chain.post(r#"{"id":1}"#.into()).await["error"]["code"], -32_600);
    assert_eq!(chain.err("eth_mining", json!([])).await.0, -32_601);
    assert_eq!(chain.err("eth_getBalance", json!([])).await, (-32_602, "parameter 0, address, is missing".into()));
    assert_eq!(chain.err("eth_getBalance", json!({"address": 1})).await.0, -32_602);
    assert!(chain.err("eth_subscribe", json!(["newHeads"])).await.1.contains("WebSocket"));
    chain.stop().await;
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order_and_a_bad_part_does_not_spoil_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": "a", "method": "eth_chainId"},
        {"jsonrpc": "2.0", "id": 2, "method": "no_such"},
        {"jsonrpc": "2.0", "id": 3, "method": "net_version", "params": []},
    ]);
    let answers = chain.post(batch.to_string()).await;
    assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": "a", "result": "0x7a69"}));
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(2), &json!(-32_601)));
    assert_eq!(answers[2]["result"], "31337");
    chain.stop().await;
}

#[tokio::test]
async fn only_json_is_taken_so_that_a_web_page_cannot_post() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let url = format!("http://{}/", chain.addr);
    let sent = reqwest::Client::new().post(url).header("content-type", "text/plain").body("{}").send().await.unwrap();
    assert_eq!(sent.status(), 415);
    chain.stop().await;
}
