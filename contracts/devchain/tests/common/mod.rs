//! A node on a free port, a wallet, raw JSON over HTTP, and two contracts assembled by hand.
#![allow(dead_code, missing_docs, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop there")]

use ethers_core::{
    types::{Address, Bytes, Eip1559TransactionRequest, H256, U256, transaction::eip2718::TypedTransaction},
    utils::hex,
};
use ethers_signers::{LocalWallet, Signer};
use selion_devchain::{Config, DEFAULT_CHAIN_ID, DevMethods, Error, serve};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Stores its first calldata word in slot 0 and logs it, with topics 0xaa and the caller.
pub const EMITTER: &str = "6015600c60003960156000f36000356000523360aa60206000a260003560005500";
/// Reverts with the four bytes 0xdeadbeef.
pub const REVERTER: &str = "6010600c60003960106000f363deadbeef60e01b60005260046000fd";
/// Initcode that returns the block number; for `eth_call` without `to`.
pub const BLOCK_NUMBER: &str = "0x4360005260206000f3";
/// Initcode that returns the block time.
pub const TIMESTAMP: &str = "0x4260005260206000f3";

/// A node and a client of it.
pub struct Chain {
    pub addr: SocketAddr,
    http: reqwest::Client,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), Error>>>,
}

/// Starts a node on a free port, or returns why it would not start.
pub async fn try_start(dir: &Path) -> Result<Chain, Error> {
    try_start_chain(dir, DEFAULT_CHAIN_ID).await
}

pub async fn try_start_chain(dir: &Path, chain_id: u64) -> Result<Chain, Error> {
    try_start_with(dir, Config { chain_id, dev_methods: DevMethods::All, ..Config::default() }).await
}

/// Starts a node so set up, on a free port and in `dir`.
pub async fn try_start_with(dir: &Path, config: Config) -> Result<Chain, Error> {
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), data_dir: dir.to_owned(), ..config };
    let stop = CancellationToken::new();
    let (tell, told) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(serve(config, stop.clone(), move |addr| tell.send(addr).unwrap()));
    match told.await {
        Ok(addr) => Ok(Chain { addr, http: reqwest::Client::new(), stop, task: Some(task) }),
        Err(_) => Err(task.await.unwrap().expect_err("it ended before it was ready")),
    }
}

pub async fn start(dir: &Path) -> Chain {
    try_start(dir).await.unwrap()
}

impl Chain {
    /// A client of a node that runs elsewhere.
    pub fn at(addr: SocketAddr) -> Self {
        Self { addr, http: reqwest::Client::new(), stop: CancellationToken::new(), task: None }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        drop(self.http);
        if let Some(task) = self.task {
            task.await.unwrap().unwrap();
        }
    }

    /// Posts a body as it is.
    pub async fn post(&self, body: String) -> Value {
        self.try_post(body).await.unwrap()
    }

    /// Posts a body to a node that may be gone.
    pub async fn try_post(&self, body: String) -> reqwest::Result<Value> {
        let url = format!("http://{}/", self.addr);
        let request = self.http.post(url).header("content-type", "application/json");
        request.body(body).send().await?.json().await
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        self.post(json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()).await
    }

    /// The result of a method that must succeed.
    pub async fn ok(&self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Code and message of a method that must fail.
    pub async fn err(&self, method: &str, params: Value) -> (i64, String) {
        let answer = self.ask(method, params).await;
        let error = answer.get("error").unwrap_or_else(|| panic!("{method} succeeded: {answer}"));
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }

    /// The whole error of a method that must fail.
    pub async fn error(&self, method: &str, params: Value) -> Value {
        self.ask(method, params).await["error"].take()
    }

    pub async fn number(&self) -> u64 {
        quantity(&self.ok("eth_blockNumber", json!([])).await)
    }

    pub async fn head(&self) -> Value {
        self.ok("eth_getBlockByNumber", json!(["latest", false])).await
    }

    /// Sends raw bytes, and returns the hash.
    pub async fn send(&self, raw: &Bytes) -> H256 {
        serde_json::from_value(self.ok("eth_sendRawTransaction", json!([raw])).await).unwrap()
    }

    pub async fn receipt(&self, hash: H256) -> Value {
        self.ok("eth_getTransactionReceipt", json!([hash])).await
    }

    /// A wallet with gas.
    pub async fn rich(&self, seed: u8) -> LocalWallet {
        let wallet = wallet(seed);
        self.ok("anvil_setBalance", json!([wallet.address(), "0x56bc75e2d63100000"])).await; // 100 ether
        wallet
    }

    /// Deploys initcode and returns the contract's address.
    pub async fn deploy(&self, wallet: &LocalWallet, nonce: u64, code: &str) -> Address {
        let hash = self.send(&sign(wallet, tx(nonce).data(hex::decode(code).unwrap()))).await;
        let receipt = self.receipt(hash).await;
        assert_eq!(receipt["status"], "0x1", "{receipt}");
        serde_json::from_value(receipt["contractAddress"].clone()).unwrap()
    }
}

pub fn wallet(seed: u8) -> LocalWallet {
    LocalWallet::from_bytes(&[seed; 32]).unwrap().with_chain_id(DEFAULT_CHAIN_ID)
}

/// A type 2 transaction with room for everything.
pub fn tx(nonce: u64) -> Eip1559TransactionRequest {
    Eip1559TransactionRequest::new()
        .chain_id(DEFAULT_CHAIN_ID)
        .nonce(nonce)
        .gas(1_000_000)
        .max_fee_per_gas(10_000_000_000u64)
        .max_priority_fee_per_gas(1_000_000_000)
}

pub fn sign(wallet: &LocalWallet, tx: impl Into<TypedTransaction>) -> Bytes {
    let tx = tx.into();
    let signature = wallet.sign_transaction_sync(&tx).unwrap();
    tx.rlp_signed(&signature)
}

pub fn word(number: u64) -> Bytes {
    let mut word = [0; 32];
    U256::from(number).to_big_endian(&mut word);
    word.to_vec().into()
}

pub fn quantity(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// A running Anvil, ended with the test.
pub struct Anvil(Child);

impl Drop for Anvil {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts Anvil with the rules of our chain on a free port, and returns its URL once it listens.
pub fn start_anvil(binary: &str, more: &[&str]) -> (Anvil, String) {
    let mut command = Command::new(binary);
    command.args(["--port", "0", "--hardfork", "cancun"]).args(more).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let anvil = Anvil(child);
    let listening = lines.find_map(|line| line.unwrap().strip_prefix("Listening on ").map(str::to_owned)).unwrap();
    // Keeps the pipe drained, so that anvil never blocks on it.
    std::thread::spawn(move || lines.for_each(drop));
    (anvil, format!("http://{listening}/"))
}
