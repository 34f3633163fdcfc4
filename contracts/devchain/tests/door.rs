//! Who is let in, over real connections: what a leased command on the same machine, or a page in a browser, could send.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{start, try_start_with};
use futures::{SinkExt, StreamExt};
use selion_devchain::{Config, DevMethods};
use serde_json::{Value, json};
use tokio_tungstenite::{connect_async, tungstenite::Message};

/// What a stranger at the port would ask, and the part of the answer that he must not get.
const HARMFUL: [(&str, &str); 6] = [
    ("dev_reorg", "[1]"),
    ("anvil_reorg", "[1,[]]"),
    ("anvil_setBalance", r#"["0x0000000000000000000000000000000000000001","0x1"]"#),
    ("anvil_mine", "[3]"),
    ("evm_mine", "[]"),
    ("evm_increaseTime", "[100]"),
];

#[tokio::test]
async fn nobody_rewrites_history_or_makes_coins_on_a_chain_that_was_not_started_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let rich = start(dir.path()).await;
    rich.ok("anvil_mine", json!([3])).await;
    rich.stop().await;

    let chain = try_start_with(dir.path(), Config::default()).await.unwrap();
    let head = chain.head().await;
    let (mut socket, _) = connect_async(format!("ws://{}/", chain.addr)).await.unwrap();
    for (method, params) in HARMFUL {
        let request: Value =
            json!({"id": 1, "method": method, "params": serde_json::from_str::<Value>(params).unwrap()});
        let single = chain.post(request.to_string()).await;
        let batch = chain.post(json!([request]).to_string()).await;
        socket.send(Message::text(request.to_string())).await.unwrap();
        let told = socket.next().await.unwrap().unwrap().into_text().unwrap();
        for answer in [&single, &batch[0], &serde_json::from_str(&told).unwrap()] {
            assert_eq!(answer["error"]["code"], -32_004, "{method}: {answer}");
            let said = answer["error"]["message"].as_str().unwrap();
            assert!(said.contains(method) && said.contains("--dev-methods"), "{said}");
        }
    }
    assert_eq!(chain.head().await, head);
    chain.stop().await;
}

#[tokio::test]
async fn a_chain_for_coins_makes_coins_and_no_history() {
    let dir = tempfile::tempdir().unwrap();
    let chain =
        try_start_with(dir.path(), Config { dev_methods: DevMethods::Coins, ..Config::default() }).await.unwrap();
    chain.rich(1).await;
    assert_eq!(chain.err("dev_reorg", json!([0])).await.0, -32_004);
    chain.stop().await;
}

#[tokio::test]
async fn a_page_in_a_browser_is_refused_whatever_name_it_comes_by() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let http = reqwest::Client::new();
    let ask = |host: &'static str, origin: Option<&'static str>| {
        let mut request = http.post(format!("http://{}/", chain.addr)).header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let body = json!({"id": 1, "method": "eth_chainId", "params": []});
        async move { request.json(&body).send().await.unwrap().status().as_u16() }
    };
    assert_eq!(ask("127.0.0.1:8545", None).await, 200);
    assert_eq!(ask("localhost", None).await, 200);
    assert_eq!(ask("evil.example:8545", None).await, 403);
    assert_eq!(ask("evil.example:8545", Some("http://evil.example:8545")).await, 403);
    assert_eq!(ask("127.0.0.1:8545", Some("https://page.example")).await, 403);
    chain.stop().await;
}

#[tokio::test]
async fn a_private_chain_is_reached_through_the_file_in_its_directory_alone() {
    let dir = tempfile::tempdir().unwrap();
    let private = || Config { private: true, ..Config::default() };
    let chain = try_start_with(dir.path(), private()).await.unwrap();
    let http = reqwest::Client::new();
    let status = |url: String| {
        let request = http.post(url).json(&json!({"id": 1, "method": "eth_chainId", "params": []}));
        async move { request.send().await.unwrap().status().as_u16() }
    };
    let url = std::fs::read_to_string(dir.path().join("url")).unwrap().trim().to_owned();
    let (bare, secret) = url.rsplit_once('/').unwrap();
    assert_eq!(bare, format!("http://{}", chain.addr));
    assert_eq!(secret.len(), 32);
    assert_eq!(status(url.clone()).await, 200);
    assert_eq!(status(format!("{bare}/")).await, 404);
    assert_eq!(status(format!("{bare}/{}", "0".repeat(32))).await, 404);
    assert!(connect_async(format!("ws://{}/", chain.addr)).await.is_err());
    assert!(connect_async(url.replace("http://", "ws://")).await.is_ok());
    chain.stop().await;

    let again = try_start_with(dir.path(), private()).await.unwrap();
    let after = std::fs::read_to_string(dir.path().join("url")).unwrap();
    assert_eq!(after.trim().rsplit_once('/').unwrap().1, secret, "who kept the secret gets in again");
    again.stop().await;
}
