//! Blocks, transactions and receipts: their hashes and roots, recomputed with another library, and their shapes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{EMITTER, quantity, sign, start, tx, word};
use ethers_core::{
    types::{
        Block, Bytes, Eip2930TransactionRequest, H256, Transaction, TransactionReceipt, TransactionRequest, U256,
        transaction::eip2930::AccessList,
    },
    utils::{keccak256, rlp::RlpStream},
};
use ethers_signers::Signer;
use serde_json::{Value, json};

/// The hash of a block, from nothing but its JSON. Source: the header layout of Cancun.
fn hash_of(value: &Value) -> H256 {
    let block: Block<H256> = serde_json::from_value(value.clone()).unwrap();
    let mut rlp = RlpStream::new_list(20);
    rlp.append(&block.parent_hash).append(&block.uncles_hash).append(&block.author.unwrap());
    rlp.append(&block.state_root).append(&block.transactions_root).append(&block.receipts_root);
    rlp.append(&block.logs_bloom.unwrap()).append(&block.difficulty).append(&block.number.unwrap());
    rlp.append(&block.gas_limit).append(&block.gas_used).append(&block.timestamp);
    rlp.append(&block.extra_data.to_vec()).append(&block.mix_hash.unwrap()).append(&block.nonce.unwrap());
    rlp.append(&block.base_fee_per_gas.unwrap()).append(&block.withdrawals_root.unwrap());
    rlp.append(&block.blob_gas_used.unwrap()).append(&block.excess_blob_gas.unwrap());
    rlp.append(&block.parent_beacon_block_root.unwrap());
    H256(keccak256(rlp.out()))
}

/// The root of a trie with one item, at index 0.
fn root_of(item: &[u8]) -> H256 {
    let mut leaf = RlpStream::new_list(2);
    leaf.append(&vec![0x20u8, 0x80]).append(&item.to_vec());
    H256(keccak256(leaf.out()))
}

fn receipt_bytes(receipt: &TransactionReceipt) -> Vec<u8> {
    let mut rlp = RlpStream::new_list(4);
    rlp.append(&receipt.status.unwrap()).append(&receipt.cumulative_gas_used).append(&receipt.logs_bloom);
    rlp.begin_list(receipt.logs.len());
    for log in &receipt.logs {
        rlp.begin_list(3).append(&log.address).append_list(&log.topics).append(&log.data.to_vec());
    }
    let kind = receipt.transaction_type.unwrap().as_u64() as u8;
    let envelope = if kind == 0 { vec![] } else { vec![kind] };
    [envelope, rlp.out().to_vec()].concat()
}

#[tokio::test]
async fn the_block_hash_and_both_roots_are_those_of_the_encoded_parts() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    let emitter = chain.deploy(&wallet, 0, EMITTER).await;
    let raw = sign(&wallet, tx(1).to(emitter).data(word(5)));
    let receipt: TransactionReceipt = serde_json::from_value(chain.receipt(chain.send(&raw).await).await).unwrap();
    assert_eq!(receipt.logs.len(), 1);
    let head = chain.head().await;
    assert_eq!(head["transactionsRoot"], json!(root_of(&raw)));
    assert_eq!(head["receiptsRoot"], json!(root_of(&receipt_bytes(&receipt))));
    let mut parent = H256::zero();
    for number in 0..=chain.number().await {
        let block = chain.ok("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await;
        assert_eq!(block["hash"], json!(hash_of(&block)), "block {number}");
        assert_eq!(block["parentHash"], json!(parent), "block {number}");
        parent = hash_of(&block);
    }
    chain.stop().await;
}

#[tokio::test]
async fn every_supported_transaction_type_is_mined_and_reads_back_as_it_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    let to = common::wallet(2).address();
    let plain = TransactionRequest::new().chain_id(31_337).gas(50_000).gas_price(2_000_000_000u64).to(to).value(5);
    let listed = Eip2930TransactionRequest::new(plain.clone().nonce(1), AccessList::default());
    let raws = [sign(&wallet, plain.nonce(0)), sign(&wallet, listed), sign(&wallet, tx(2).to(to).value(5))];
    for (kind, raw) in raws.iter().enumerate() {
        let hash = chain.send(raw).await;
        assert_eq!(hash, H256(keccak256(raw)));
        let sent: Transaction =
            serde_json::from_value(chain.ok("eth_getTransactionByHash", json!([hash])).await).unwrap();
        assert_eq!(sent.hash(), hash, "type {kind} reads back to the same hash");
        assert_eq!(sent.recover_from().unwrap(), wallet.address());
        assert_eq!((sent.from, sent.to), (wallet.address(), Some(to)));
        let receipt: TransactionReceipt = serde_json::from_value(chain.receipt(hash).await).unwrap();
        assert_eq!(receipt.transaction_type.unwrap().as_usize(), kind);
        assert_eq!(receipt.status.unwrap().as_u64(), 1);
        assert_eq!(receipt.effective_gas_price, sent.gas_price);
        let block: Block<Transaction> =
            serde_json::from_value(chain.ok("eth_getBlockByHash", json!([receipt.block_hash, true])).await).unwrap();
        assert_eq!(block.transactions, vec![sent]);
        assert_eq!(block.gas_used, receipt.gas_used.unwrap());
    }
    assert_eq!(chain.number().await, 3, "one transaction, one block");
    assert_eq!(chain.ok("eth_getBalance", json!([to, "latest"])).await, "0xf");
    chain.stop().await;
}

#[tokio::test]
async fn gas_is_paid_exactly_and_the_suggested_prices_are_enough() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    let price = quantity(&chain.ok("eth_gasPrice", json!([])).await);
    let request = TransactionRequest::new().chain_id(31_337).nonce(0).gas(21_000).gas_price(price).to(wallet.address());
    let receipt = chain.receipt(chain.send(&sign(&wallet, request)).await).await;
    assert_eq!(quantity(&receipt["gasUsed"]), 21_000);
    let balance: U256 =
        serde_json::from_value(chain.ok("eth_getBalance", json!([wallet.address(), "latest"])).await).unwrap();
    let full = U256::exp10(20);
    assert_eq!(balance, full - U256::from(21_000) * price);

    let history = chain.ok("eth_feeHistory", json!(["0x5", "latest", [25.0, 75.0]])).await;
    assert_eq!(history["oldestBlock"], "0x0");
    assert_eq!(history["baseFeePerGas"].as_array().unwrap().len(), 3, "two blocks and the next");
    let tip = price - quantity(&history["baseFeePerGas"][1]);
    assert_eq!(history["reward"][1], json!([format!("{tip:#x}"), format!("{tip:#x}")]));
    chain.stop().await;
}

#[tokio::test]
async fn empty_blocks_are_mined_on_request_and_the_clock_can_be_moved() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    chain.ok("evm_mine", json!([])).await;
    chain.ok("anvil_mine", json!(["0x3", "0xa"])).await;
    assert_eq!(chain.number().await, 4);
    let before = quantity(&chain.head().await["timestamp"]);
    chain.ok("evm_increaseTime", json!([86_400])).await;
    chain.ok("evm_mine", json!([])).await;
    let after = quantity(&chain.head().await["timestamp"]);
    assert!(after >= before - 20 + 86_400, "{before} {after}");
    chain.ok("evm_setNextBlockTimestamp", json!([after + 500])).await;
    chain.ok("evm_mine", json!([])).await;
    assert_eq!(quantity(&chain.head().await["timestamp"]), after + 500);
    let (code, message) = chain.err("evm_setNextBlockTimestamp", json!([after])).await;
    assert_eq!(code, -32_602);
    assert!(message.contains("before its parent's"), "{message}");
    let (_, message) = chain.err("anvil_mine", json!([1_000_000])).await;
    assert!(message.contains("1 to 100000"), "{message}");
    chain.stop().await;
}

#[tokio::test]
async fn a_block_may_be_named_by_every_tag() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    chain.ok("anvil_mine", json!([2])).await;
    for tag in ["latest", "safe", "finalized"] {
        assert_eq!(chain.ok("eth_getBlockByNumber", json!([tag, false])).await["number"], "0x2", "{tag}");
    }
    assert_eq!(chain.ok("eth_getBlockByNumber", json!(["earliest", false])).await["number"], "0x0");
    let pending = chain.ok("eth_getBlockByNumber", json!(["pending", false])).await;
    assert_eq!((&pending["number"], &pending["hash"]), (&json!("0x3"), &Value::Null));
    assert_eq!(chain.ok("eth_getBlockByNumber", json!(["0x3", false])).await, Value::Null);
    assert_eq!(chain.ok("eth_getBlockByHash", json!([H256::zero(), false])).await, Value::Null);
    assert_eq!(chain.ok("eth_getTransactionReceipt", json!([H256::zero()])).await, Value::Null);
    chain.stop().await;
}

#[tokio::test]
async fn raw_bytes_that_are_no_transaction_of_ours_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    let good = sign(&wallet, tx(0).to(wallet.address()));
    let cut = Bytes::from(good[..good.len() - 1].to_vec());
    let long = Bytes::from([&good[..], &[0]].concat());
    let blob = Bytes::from([&[3], &good[1..]].concat());
    let foreign = sign(&wallet.clone().with_chain_id(1u64), tx(0).chain_id(1).to(wallet.address()));
    for (raw, said) in [
        (cut, "failed to decode"),
        (long, "failed to decode"),
        (Bytes::default(), "it is empty"),
        (blob, "transaction type 3 is not supported"),
        (foreign, "have 1 want 31337"),
    ] {
        let (_, message) = chain.err("eth_sendRawTransaction", json!([raw])).await;
        assert!(message.contains(said), "{message}");
    }
    assert_eq!(chain.number().await, 0);
    chain.stop().await;
}
