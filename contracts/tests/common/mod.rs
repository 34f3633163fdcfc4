//! Real EVMs for the tests.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use selion_api::{Address, Amount};
use selion_contracts::deploy::{create_pool, deploy_factory, deploy_test_token};
use selion_contracts::{Pool, PoolTerms, Rpc, Signer};
use selion_devchain::{Config, DevMethods, serve};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A chain, stopped when dropped.
pub struct Chain {
    pub rpc: Rpc,
    url: String,
    running: Running,
}

enum Running {
    Embedded { stop: CancellationToken, _journal: tempfile::TempDir },
    Anvil(Child),
    Geth(Child, #[expect(dead_code, reason = "removed with the test")] tempfile::TempDir),
}

impl Drop for Chain {
    fn drop(&mut self) {
        match &mut self.running {
            Running::Embedded { stop, .. } => stop.cancel(),
            Running::Anvil(child) | Running::Geth(child, _) => {
                child.kill().expect("it was running");
                child.wait().expect("it ends");
            }
        }
    }
}

impl Chain {
    /// The embedded development chain and, if `SELION_ANVIL` names its binary, Anvil. Without it that half of the test
    /// is skipped, in one line.
    pub async fn each(test: &str) -> Vec<Self> {
        let mut chains = vec![Self::embedded().await];
        match std::env::var("SELION_ANVIL") {
            Ok(anvil) => chains.push(Self::anvil(&anvil)),
            Err(_) => eprintln!("skipped: {test} on Anvil; set SELION_ANVIL to an anvil binary"),
        }
        chains
    }

    /// As [`each`](Self::each) and, if `SELION_GETH` names its binary, geth. Its clock cannot be set.
    pub async fn every(test: &str) -> Vec<Self> {
        let mut chains = Self::each(test).await;
        match std::env::var("SELION_GETH") {
            Ok(geth) => chains.push(Self::geth(&geth)),
            Err(_) => eprintln!("skipped: {test} on geth; set SELION_GETH to a geth binary"),
        }
        chains
    }

    async fn embedded() -> Self {
        let journal = tempfile::tempdir().expect("a folder");
        let (listen, data_dir) = (([127, 0, 0, 1], 0).into(), journal.path().to_owned());
        let config = Config { listen, data_dir, dev_methods: DevMethods::All, ..Config::default() };
        let stop = CancellationToken::new();
        let (tell, told) = tokio::sync::oneshot::channel();
        let ready = move |address| tell.send(address).expect("the test waits");
        tokio::spawn(serve(config, stop.clone(), ready));
        let address = told.await.expect("the development chain starts");
        Self::at(format!("http://{address}"), Running::Embedded { stop, _journal: journal })
    }

    fn anvil(binary: &str) -> Self {
        let mut child = Command::new(binary)
            .args(["--port", "0", "--slots-in-an-epoch", "1"])
            // The embedded chain's rules: later ones have a floor for calldata (EIP-7623), which cheap calls show.
            .args(["--hardfork", "cancun"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("SELION_ANVIL={binary}: {error}"));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let address = lines
            .find_map(|line| line.expect("anvil writes text").strip_prefix("Listening on ").map(str::to_owned))
            .expect("anvil says where it listens");
        // Keeps the pipe drained, so that anvil never blocks on it.
        std::thread::spawn(move || lines.for_each(drop));
        Self::at(format!("http://{address}"), Running::Anvil(child))
    }

    fn geth(binary: &str) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(binary)
            .args(["--dev", "--nodiscover", "--ipcdisable", "--port", "0", "--authrpc.port", "0"])
            .args(["--http", "--http.port", "0", "--datadir"])
            .arg(home.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("SELION_GETH={binary}: {error}"));
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let started = |line: String| {
            let (_, endpoint) = line.split_once("HTTP server started")?.1.split_once("endpoint=")?;
            let address = endpoint.split_whitespace().next()?;
            (!line.contains("auth=true")).then(|| address.to_owned())
        };
        let address = lines.find_map(|line| started(line.expect("geth writes text"))).expect("geth listens");
        std::thread::spawn(move || lines.for_each(drop));
        Self::at(format!("http://{address}"), Running::Geth(child, home))
    }

    fn at(url: String, running: Running) -> Self {
        Self { rpc: Rpc::new(&url).expect("a URL"), url, running }
    }

    /// Whether it runs drafts of rules: `geth --dev` has every fork that it knows, also those to come (EIP-8037 and 8038 among
    /// them, by which state costs several times as much).
    pub fn runs_drafts(&self) -> bool {
        matches!(self.running, Running::Geth(..))
    }

    /// Asks what the house never asks.
    pub async fn ask(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = reqwest::Client::new().post(&self.url).json(&body).send().await.expect("an answer");
        let mut answer: Value = answer.json().await.expect("JSON");
        assert!(answer.get("error").is_none_or(Value::is_null), "{method}: {answer}");
        answer["result"].take()
    }

    /// Gives the next block that time, in seconds.
    pub async fn next_time(&self, at_s: u64) {
        self.ask("evm_setNextBlockTimestamp", json!([at_s])).await;
    }

    /// A new account with gas.
    pub async fn person(&self) -> Signer {
        let signer = Signer::random().expect("randomness");
        self.rpc.give_coins(signer.account(), 10u128.pow(20)).await.expect("a development chain");
        signer
    }

    /// A token and a factory.
    pub async fn ground(&self, operator: &Signer) -> (Address, Address) {
        let token = deploy_test_token(&self.rpc, operator).await.expect("token");
        let factory = deploy_factory(&self.rpc, operator).await.expect("factory");
        (token, factory)
    }

    /// A pool of this operator, without delays.
    pub async fn pool(&self, operator: &Signer, (token, factory): (Address, Address)) -> Pool {
        let at = create_pool(&self.rpc, operator, factory, &terms(operator, token)).await.expect("pool");
        let pool = Pool::open(self.rpc.clone(), at.controller).await.expect("opens");
        assert_eq!((pool.at.vault, pool.at.token), (at.vault, at.token));
        pool
    }
}

/// Terms without delays, so that no test has to wait.
pub fn terms(operator: &Signer, token: Address) -> PoolTerms {
    PoolTerms {
        token,
        owner: operator.account(),
        authority: operator.account(),
        fee_bps: 200,
        thaw_delay_s: 0,
        unbond_delay_s: 0,
        min_stake: Amount(100_000_000),
        finality_depth: 0,
        grace_s: 3600,
        allow_simulated: true,
        allow_unsandboxed: false,
        min_bond: Amount(0),
        hand_over_delay_s: 0,
        take_over_after_s: 86_400,
        metadata_cid: String::from("cid"),
    }
}

/// Mints for `who` and lets vault, controller and court take it.
pub async fn fund(pool: &Pool, who: &Signer, units: u128) {
    let approvals = [pool.approve_vault(), pool.approve_controller(), pool.approve_court()];
    for call in std::iter::once(pool.mint(who.address(), units)).chain(approvals) {
        pool.send(who, call).await.expect("funded");
    }
}
