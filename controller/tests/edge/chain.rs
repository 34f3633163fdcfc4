//! Real chains for the tests: the embedded one, and Anvil and geth where there are any.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use selion_contracts::{Rpc, Signer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// What a person has for gas, in wei.
const COINS: u128 = 1_000_000_000_000_000_000_000;

/// A chain of one process or task, stopped when dropped.
pub struct Chain {
    pub url: String,
    pub rpc: Rpc,
    http: reqwest::Client,
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
    /// The embedded development chain of that id.
    pub async fn embedded(chain_id: u64) -> Self {
        let journal = tempfile::tempdir().unwrap();
        let (listen, data_dir) = (([127, 0, 0, 1], 0).into(), journal.path().to_owned());
        let dev_methods = selion_devchain::DevMethods::All;
        let config = selion_devchain::Config { listen, data_dir, chain_id, dev_methods, private: false };
        let stop = CancellationToken::new();
        let (tell, told) = tokio::sync::oneshot::channel();
        let ready = move |address| tell.send(address).unwrap();
        tokio::spawn(selion_devchain::serve(config, stop.clone(), ready));
        let address = told.await.expect("the development chain starts");
        Self::at(format!("http://{address}"), Running::Embedded { stop, _journal: journal })
    }

    /// Anvil, if `SELION_ANVIL` names its binary.
    pub fn anvil(test: &str) -> Option<Self> {
        let Ok(binary) = std::env::var("SELION_ANVIL") else {
            eprintln!("skipped: {test} on Anvil; set SELION_ANVIL to an anvil binary");
            return None;
        };
        let mut child = Command::new(&binary)
            .args(["--port", "0", "--slots-in-an-epoch", "1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("SELION_ANVIL={binary}: {error}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .find_map(|line| line.unwrap().strip_prefix("Listening on ").map(str::to_owned))
            .expect("anvil says where it listens");
        // Keeps the pipe drained, so that anvil never blocks on it.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self::at(format!("http://{address}"), Running::Anvil(child)))
    }

    /// geth, if `SELION_GETH` names its binary. It makes a block for each transaction, and none without.
    pub fn geth(test: &str) -> Option<Self> {
        let Ok(binary) = std::env::var("SELION_GETH") else {
            eprintln!("skipped: {test} on geth; set SELION_GETH to a geth binary");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        let mut child = Command::new(&binary)
            .args(["--dev", "--nodiscover", "--ipcdisable", "--port", "0", "--authrpc.port", "0"])
            .args(["--http", "--http.port", "0", "--datadir"])
            .arg(home.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("SELION_GETH={binary}: {error}"));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let started = |line: String| {
            let (_, endpoint) = line.split_once("HTTP server started")?.1.split_once("endpoint=")?;
            let address = endpoint.split_whitespace().next()?;
            (!line.contains("auth=true")).then(|| address.to_owned())
        };
        let address = lines.find_map(|line| started(line.unwrap())).expect("geth listens");
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self::at(format!("http://{address}"), Running::Geth(child, home)))
    }

    /// Whether blocks can be made and replaced at will.
    pub fn obeys(&self) -> bool {
        !matches!(self.running, Running::Geth(..))
    }

    fn at(url: String, running: Running) -> Self {
        Self { rpc: Rpc::new(&url).unwrap(), url, http: reqwest::Client::new(), running }
    }

    /// Whether it keeps the state of every block, not only of the head.
    pub fn keeps_states(&self) -> bool {
        !matches!(self.running, Running::Embedded { .. })
    }

    pub async fn ask(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.http.post(&self.url).json(&body).send().await.unwrap();
        let mut answer: Value = answer.json().await.unwrap();
        assert!(answer.get("error").is_none_or(Value::is_null), "{method}: {answer}");
        answer["result"].take()
    }

    /// Mines empty blocks.
    pub async fn mine(&self, count: u64) {
        if self.obeys() {
            self.ask("anvil_mine", json!([format!("{count:#x}")])).await;
            return;
        }
        for _ in 0..count {
            self.rpc.give_coins(Signer::random().unwrap().account(), 1).await.unwrap();
        }
    }

    /// Replaces the newest blocks by as many empty ones.
    pub async fn reorg(&self, depth: u64) {
        self.ask("anvil_reorg", json!([depth, []])).await;
    }

    /// A new account with gas.
    pub async fn person(&self) -> Signer {
        let signer = Signer::random().unwrap();
        self.rpc.give_coins(signer.account(), COINS).await.unwrap();
        signer
    }
}
