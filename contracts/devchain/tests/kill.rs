//! A node in a process of its own, killed with SIGKILL while transactions flow.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{Chain, sign, start, tx};
use ethers_signers::Signer;
use selion_devchain::{Config, DevMethods, serve};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

const DIR: &str = "SELION_DEVCHAIN_TEST_DIR";
const LISTENING: &str = "listening on ";

/// The node's process is this test binary again, running only this.
#[tokio::test]
#[ignore = "it is the child process of the kill test"]
async fn node_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let (listen, data_dir) = (([127, 0, 0, 1], 0).into(), dir.into());
    let config = Config { listen, data_dir, dev_methods: DevMethods::Coins, ..Config::default() };
    let ready = |addr| println!("{LISTENING}{addr}");
    serve(config, Default::default(), ready).await.unwrap();
}

fn spawn(dir: &Path) -> (Child, Chain) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "node_process", "--nocapture"]);
    let mut child = command.env(DIR, dir).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let addr = lines.find_map(|line| Some(line.split_once(LISTENING)?.1.parse().unwrap()));
    (child, Chain::at(addr.unwrap()))
}

#[tokio::test]
async fn a_kill_while_transactions_flow_loses_none_that_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let mut nonce = 0;
    let mut blocks: Vec<Value> = Vec::new();
    for answers_before_kill in [40, 1, 17] {
        let (mut child, chain) = spawn(dir.path());
        let wallet = chain.rich(1).await;
        let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel();
        let sender = tokio::spawn(async move {
            loop {
                let raw = sign(&wallet, tx(nonce).to(wallet.address()));
                let request = json!({"id": 1, "method": "eth_sendRawTransaction", "params": [raw]});
                let Ok(answer) = chain.try_post(request.to_string()).await else {
                    return;
                };
                answered.send(answer["result"].clone()).unwrap();
                nonce += 1;
            }
        });
        let mut hashes = Vec::new();
        for _ in 0..answers_before_kill {
            hashes.push(answers.recv().await.unwrap());
        }
        child.kill().unwrap(); // SIGKILL, while the sender goes on
        child.wait().unwrap();
        sender.await.unwrap();
        while let Some(hash) = answers.recv().await {
            hashes.push(hash);
        }

        let chain = start(dir.path()).await;
        for block in &blocks {
            let number = block["number"].clone();
            let now = chain.ok("eth_getBlockByNumber", json!([number, false])).await;
            assert_eq!(&now, block, "what was replayed once is replayed the same again");
        }
        for hash in hashes {
            let receipt = chain.ok("eth_getTransactionReceipt", json!([hash])).await;
            assert_eq!(receipt["status"], "0x1", "an answered transaction is there: {hash}");
        }
        blocks.push(chain.head().await);
        // The transaction in flight at the kill may be on disk without its answer.
        let address = common::wallet(1).address();
        nonce = common::quantity(&chain.ok("eth_getTransactionCount", json!([address, "latest"])).await);
        chain.stop().await;
    }
}
