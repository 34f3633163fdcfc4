//! Logs: by range, by block, by address and topic; and how they come and go over a WebSocket.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{Chain, EMITTER, sign, start, tx, word};
use ethers_core::types::{Address, H256, Log};
use ethers_signers::{LocalWallet, Signer};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest},
};

/// The first topic of every log of the emitter.
fn topic() -> H256 {
    H256::from_low_u64_be(0xaa)
}

async fn logs(chain: &Chain, filter: Value) -> Vec<Log> {
    serde_json::from_value(chain.ok("eth_getLogs", json!([filter])).await).unwrap()
}

/// Two emitters and two callers; block 3 is a log of the first by the first, 4 of the second by the second.
async fn scene(chain: &Chain) -> (LocalWallet, LocalWallet, Address, Address) {
    let (one, two) = (chain.rich(1).await, chain.rich(2).await);
    let first = chain.deploy(&one, 0, EMITTER).await;
    let second = chain.deploy(&one, 1, EMITTER).await;
    chain.send(&sign(&one, tx(2).to(first).data(word(10)))).await;
    chain.send(&sign(&two, tx(0).to(second).data(word(20)))).await;
    (one, two, first, second)
}

#[tokio::test]
async fn logs_are_found_by_address_by_topic_and_by_range() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let (_, two, first, second) = scene(&chain).await;
    let all = logs(&chain, json!({"fromBlock": "earliest", "toBlock": "latest"})).await;
    assert_eq!(
        all.iter().map(|log| (log.address, log.data.clone())).collect::<Vec<_>>(),
        [(first, word(10)), (second, word(20))]
    );
    assert_eq!(all[0].block_number.unwrap().as_u64(), 3);
    assert_eq!((all[0].log_index, all[0].removed), (Some(0.into()), Some(false)));

    let by_address = logs(&chain, json!({"fromBlock": "0x0", "address": first})).await;
    assert_eq!(by_address, all[..1]);
    let by_caller = logs(&chain, json!({"fromBlock": "0x0", "topics": [topic(), H256::from(two.address())]})).await;
    assert_eq!(by_caller, all[1..]);
    assert_eq!(logs(&chain, json!({"fromBlock": "0x0", "topics": [[topic(), H256::zero()]]})).await.len(), 2);
    assert_eq!(logs(&chain, json!({"fromBlock": "0x0", "topics": [H256::zero()]})).await, []);
    assert_eq!(logs(&chain, json!({"fromBlock": "0x3", "toBlock": "0x3"})).await, all[..1]);
    assert_eq!(logs(&chain, json!({})).await, all[1..], "the head, where no range is given");
    assert_eq!(
        logs(&chain, json!({"fromBlock": "0x4", "toBlock": "0x99"})).await,
        all[1..],
        "a range past the head ends there"
    );
    chain.stop().await;
}

#[tokio::test]
async fn logs_of_one_block_are_asked_for_by_its_hash_and_an_unknown_hash_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    scene(&chain).await;
    let block = chain.ok("eth_getBlockByNumber", json!(["0x3", false])).await;
    let found = logs(&chain, json!({"blockHash": block["hash"]})).await;
    assert_eq!(found.len(), 1);
    assert_eq!(json!(found[0].block_hash), block["hash"]);
    assert_eq!(json!(found[0].transaction_hash), block["transactions"][0]);
    for (filter, said) in [
        (json!({"blockHash": H256::zero()}), "unknown block"),
        (json!({"blockHash": block["hash"], "fromBlock": "0x0"}), "not both"),
        (json!({"fromBlock": "0x4", "toBlock": "0x3"}), "invalid block range, 4 is after 3"),
        (json!({"address": "0x12"}), "address is no address"),
        (json!("latest"), "must be an object"),
    ] {
        let (_, message) = chain.err("eth_getLogs", json!([filter])).await;
        assert!(message.contains(said), "{message}");
    }
    chain.stop().await;
}

struct Socket(WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>);

impl Socket {
    async fn open(chain: &Chain) -> Self {
        Self(connect_async(format!("ws://{}/", chain.addr)).await.unwrap().0)
    }

    async fn next(&mut self) -> Value {
        let message = self.0.next().await.unwrap().unwrap();
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.0.send(Message::text(request.to_string())).await.unwrap();
        self.next().await["result"].take()
    }
}

#[tokio::test]
async fn subscribers_hear_of_heads_and_of_the_logs_they_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let (one, _, first, second) = scene(&chain).await;
    let (mut heads, mut logs) = (Socket::open(&chain).await, Socket::open(&chain).await);
    let head_id = heads.ask("eth_subscribe", json!(["newHeads"])).await;
    logs.ask("eth_subscribe", json!(["logs", {"address": first}])).await;
    assert_eq!(logs.ask("eth_blockNumber", json!([])).await, "0x4", "every method works here too");
    chain.send(&sign(&one, tx(3).to(second).data(word(1)))).await;
    chain.send(&sign(&one, tx(4).to(first).data(word(2)))).await;
    for number in ["0x5", "0x6"] {
        let notice = heads.next().await;
        assert_eq!(notice["method"], "eth_subscription");
        assert_eq!(notice["params"]["subscription"], head_id);
        assert_eq!(notice["params"]["result"]["number"], number);
    }
    let notice = logs.next().await;
    let log: Log = serde_json::from_value(notice["params"]["result"].clone()).unwrap();
    assert_eq!((log.address, log.data), (first, word(2)), "only the address asked for");
    assert_eq!(heads.ask("eth_unsubscribe", json!([head_id])).await, true);
    assert_eq!(heads.ask("eth_unsubscribe", json!([head_id])).await, false);
    chain.stop().await;
}

#[tokio::test]
async fn a_reorg_replaces_blocks_by_empty_ones_and_tells_subscribers_what_went() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let (one, two, first, second) = scene(&chain).await;
    let mut socket = Socket::open(&chain).await;
    socket.ask("eth_subscribe", json!(["logs", {}])).await;
    let block = |number| chain.ok("eth_getBlockByNumber", json!([number, false]));
    let (kept, gone, head) = (block("0x2").await, block("0x3").await, block("0x4").await);
    assert_eq!(chain.ok("dev_reorg", json!([2])).await, "0x4");

    assert_eq!(block("0x2").await, kept);
    assert_ne!(block("0x3").await["hash"], gone["hash"]);
    assert_ne!(block("0x4").await["hash"], head["hash"]);
    assert_eq!(block("0x3").await["parentHash"], kept["hash"]);
    for (taken, address) in [(&head, second), (&gone, first)] {
        let notice = socket.next().await["params"]["result"].take();
        assert_eq!((&notice["removed"], &notice["blockHash"]), (&json!(true), &taken["hash"]));
        assert_eq!(notice["address"], json!(address));
        assert_eq!(chain.ok("eth_getBlockByHash", json!([taken["hash"], false])).await, Value::Null);
        assert_eq!(chain.ok("eth_getTransactionReceipt", json!([taken["transactions"][0]])).await, Value::Null);
    }
    assert_eq!(
        chain.ok("eth_getStorageAt", json!([first, "0x0", "latest"])).await,
        json!(word(0)),
        "state went back too"
    );
    assert_eq!(chain.ok("eth_getTransactionCount", json!([two.address(), "latest"])).await, "0x0");
    chain.send(&sign(&one, tx(2).to(first).data(word(10)))).await;
    assert_eq!(socket.next().await["params"]["result"]["removed"], false, "the same transaction is mined again");
    let (_, message) = chain.err("dev_reorg", json!([9])).await;
    assert_eq!(message, "cannot reorg 9 blocks of a chain whose head is 5; ask for 1 to 5");
    chain.stop().await;
}

#[tokio::test]
async fn a_web_page_cannot_open_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let mut request = format!("ws://{}/", chain.addr).into_client_request().unwrap();
    let origin = "https://page.example".parse().unwrap();
    request.headers_mut().insert("origin", origin);
    let refused = connect_async(request).await.unwrap_err();
    assert!(refused.to_string().contains("403"), "{refused}");
    chain.stop().await;
}
