//! The same transactions on this chain and on Anvil must have the same effects and shapes.
//! Set `SELION_ANVIL` to the path of an `anvil` binary; without it there is nothing to compare with.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{BLOCK_NUMBER, EMITTER, REVERTER, sign, start_anvil, tx, wallet, word};
use ethers_core::{types::H256, utils::hex};
use ethers_signers::Signer;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One method on one node: its result, or its error.
async fn ask(url: &str, method: &str, params: &Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut answer: Value = reqwest::Client::new().post(url).json(&request).send().await.unwrap().json().await.unwrap();
    if answer.get("error").is_some() { answer["error"].take() } else { answer["result"].take() }
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

/// Without what rightly differs: times, fees by the block and the hashes that follow from them.
fn comparable(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        for own in ["blockHash", "blockTimestamp", "effectiveGasPrice", "gasPrice", "blobGasPrice"] {
            fields.remove(own);
        }
        for field in fields.values_mut() {
            *field = comparable(field.take());
        }
    } else if let Value::Array(items) = &mut value {
        items.iter_mut().for_each(|item| *item = comparable(item.take()));
    }
    value
}

#[tokio::test]
async fn receipts_logs_roots_gas_and_errors_are_those_of_anvil() {
    let Ok(binary) = std::env::var("SELION_ANVIL") else {
        eprintln!("skipped: SELION_ANVIL names no anvil binary");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let chain = common::start(dir.path()).await;
    let (_anvil, theirs) = start_anvil(&binary, &["--accounts", "0"]);
    let ours = format!("http://{}/", chain.addr);
    let both =
        async |method: &str, params: Value| (ask(&ours, method, &params).await, ask(&theirs, method, &params).await);

    let wallet = wallet(1);
    both("anvil_setBalance", json!([wallet.address(), "0x56bc75e2d63100000"])).await;
    let emitter = ethers_core::utils::get_contract_address(wallet.address(), 0);
    let reverter = ethers_core::utils::get_contract_address(wallet.address(), 1);
    let requests = [
        tx(0).data(hex::decode(EMITTER).unwrap()),
        tx(1).data(hex::decode(REVERTER).unwrap()),
        tx(2).to(emitter).data(word(7)),
        tx(3).to(reverter),
        tx(4).to(emitter).value(3),
    ];
    for (number, request) in (1..).zip(requests) {
        let (our_hash, their_hash) = both("eth_sendRawTransaction", json!([sign(&wallet, request)])).await;
        assert_eq!(our_hash, their_hash);
        let hash: H256 = serde_json::from_value(our_hash).unwrap();
        for method in ["eth_getTransactionReceipt", "eth_getTransactionByHash"] {
            let (our, their) = both(method, json!([hash])).await;
            let missing: Vec<_> = keys(&their).difference(&keys(&our)).cloned().collect();
            assert!(missing.iter().all(|key| key == "blockTimestamp"), "{method} lacks {missing:?}");
            let (our, their) = (comparable(our), comparable(their));
            for key in keys(&our).intersection(&keys(&their)) {
                assert_eq!(our[key], their[key], "{method} {number}: {key}");
            }
        }
        let (our, their) = both("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await;
        let missing: Vec<_> = keys(&their).difference(&keys(&our)).cloned().collect();
        assert_eq!(missing, Vec::<String>::new(), "block");
        for key in [
            "transactionsRoot",
            "receiptsRoot",
            "logsBloom",
            "gasUsed",
            "gasLimit",
            "transactions",
            "sha3Uncles",
            "uncles",
        ] {
            assert_eq!(our[key], their[key], "block {number}: {key}");
        }
    }
    for (method, params) in [
        ("eth_getLogs", json!([{"fromBlock": "0x0", "toBlock": "latest", "address": emitter}])),
        ("eth_getStorageAt", json!([emitter, "0x0", "latest"])),
        ("eth_getCode", json!([emitter, "latest"])),
        ("eth_getTransactionCount", json!([wallet.address(), "latest"])),
        ("eth_estimateGas", json!([{"from": wallet.address(), "to": emitter, "data": word(9)}])),
        ("eth_call", json!([{"data": BLOCK_NUMBER}, "latest"])),
    ] {
        let (our, their) = both(method, params).await;
        assert_eq!(comparable(our), comparable(their), "{method}");
    }
    for method in ["eth_call", "eth_estimateGas"] {
        let (our, their) = both(method, json!([{"from": wallet.address(), "to": reverter}])).await;
        assert_eq!((&our["code"], &our["data"]), (&their["code"], &their["data"]), "{method}: {our} {their}");
    }
    let (our, their) = both("eth_sendRawTransaction", json!([sign(&wallet, tx(0).to(emitter))])).await;
    assert_eq!(our["code"], their["code"], "{our} {their}");
    chain.stop().await;
}
