//! A pool of real processes in a folder of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use selion_api::commit::PoolId;
use selion_client::Client;
use selion_contracts::Rpc;
use tempfile::TempDir;

use crate::chain::Chain;
use crate::process::{Part, run, until};

/// What makes the allowance of a caller larger than any test's need.
const NO_LIMIT: &str = "requests_per_minute = 1000000\n";

/// A chain with a pool's contracts on it. Controllers and agents are started as a test needs them.
pub struct Pool {
    #[expect(dead_code, reason = "stopped when dropped, before its folder goes")]
    chain: Chain,
    home: TempDir,
    /// JSON-RPC of the chain.
    pub rpc: String,
    /// The contracts.
    pub contracts: selion_contracts::Pool,
}

impl Pool {
    /// Starts a [`Chain`] and makes a pool on it, as an operator would: `selion pool create`.
    ///
    /// # Errors
    ///
    /// One of them failed.
    pub async fn open() -> Result<Self> {
        Self::open_with(&[]).await
    }

    /// The same with more terms of the pool, as flags; money thaws in a second unless they say otherwise.
    ///
    /// # Errors
    ///
    /// One of the commands failed.
    pub async fn open_with(more: &[&str]) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("selion-test-").tempdir()?;
        let chain = Chain::start(home.path()).await?;
        let rpc = chain.url.clone();
        let terms = ["--allow-simulated", "--allow-unsandboxed", "--finality-depth", "0"];
        let thaw: &[&str] = if more.contains(&"--thaw") { &[] } else { &["--thaw", "1s"] };
        let create = ["pool", "create", "--chain-rpc", &rpc, "--key-file", "owner.key"];
        let args = create.into_iter().chain(terms).chain(thaw.iter().chain(more).copied());
        let made = run(home.path(), args).await?.json()?;
        let controller = made["controller"].as_str().context("an address")?.parse()?;
        let contracts = selion_contracts::Pool::open(Rpc::new(&rpc)?, controller).await?;
        Ok(Self { chain, home, rpc, contracts })
    }

    /// The folder of everything.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Chain and Controller contract.
    #[must_use]
    pub fn id(&self) -> PoolId {
        PoolId { chain_id: self.contracts.chain_id, controller: self.contracts.at.controller }
    }

    /// Starts a controller with the limits that it has by default, at a free port, and waits until it answers.
    ///
    /// # Errors
    ///
    /// It does not come up.
    pub async fn controller_limited(&self, data_dir: &Path) -> Result<Controller> {
        let args = self.controller_args(data_dir, "127.0.0.1:0")?;
        let file = self.path("controller.toml");
        let limited = std::fs::read_to_string(&file)?.replace(NO_LIMIT, "");
        std::fs::write(&file, limited)?;
        self.serve(args).await
    }

    /// The command line of a controller of this pool with its data in `data_dir`.
    ///
    /// # Errors
    ///
    /// Its configuration cannot be written.
    pub fn controller_args(&self, data_dir: &Path, listen: &str) -> Result<Vec<String>> {
        let file = self.path("controller.toml");
        // Short intervals: nothing here is about waiting.
        let toml = "poll_ms = 20\nclaim_ms = 100\nanchor_ms = 500\n[policy]\nvoucher_ms = 200\n";
        std::fs::write(&file, format!("{NO_LIMIT}{toml}"))?;
        let shown = |path: &Path| path.display().to_string();
        Ok(vec![
            "controller".into(),
            "--config".into(),
            shown(&file),
            "--listen".into(),
            listen.into(),
            "--data-dir".into(),
            shown(data_dir),
            "--chain-rpc".into(),
            self.rpc.clone(),
            "--pool".into(),
            self.contracts.at.controller.to_string(),
            "--authority-key".into(),
            shown(&self.path("authority.key")),
        ])
    }

    /// Starts a controller and waits until it answers. `listen` as it was before, or port 0 for a free one.
    ///
    /// # Errors
    ///
    /// It does not come up.
    pub async fn controller(&self, data_dir: &Path, listen: &str) -> Result<Controller> {
        self.controller_with(data_dir, listen, &[]).await
    }

    /// The same with more flags.
    ///
    /// # Errors
    ///
    /// It does not come up.
    pub async fn controller_with(&self, data_dir: &Path, listen: &str, more: &[&str]) -> Result<Controller> {
        let mut args = self.controller_args(data_dir, listen)?;
        args.extend(more.iter().map(ToString::to_string));
        self.serve(args).await
    }

    async fn serve(&self, args: Vec<String>) -> Result<Controller> {
        let mut part = Part::start(self.home(), "controller", args)?;
        let ready = part.said("ready").await?;
        let address = ready["address"].as_str().context("an address")?.to_owned();
        let url = format!("http://{address}");
        let client = Client::new(&url)?;
        // Its first start has the pool's first block to enter.
        until("the controller to be ready", async || Ok(client.ready().await.ok())).await?;
        Ok(Controller { part, address, url, client })
    }

    /// The command line of an agent with a simulated GPU of that model, and its state in `state_dir`.
    #[must_use]
    pub fn agent_args(&self, controller: &str, state_dir: &Path, model: &str) -> Vec<String> {
        let state_dir = state_dir.display().to_string();
        let pool = self.contracts.at.controller.to_string();
        ["agent", "up", "--dev-fund", "--controller", controller, "--chain-rpc", &self.rpc, "--pool", &pool]
            .into_iter()
            // A rate at which even milliseconds cost something: 36 tokens an hour are 10,000 base units a second.
            .chain(["--state-dir", &state_dir, "--simulate", model, "--price", "36"])
            .map(str::to_owned)
            .collect()
    }

    /// Joins the pool with an agent and waits until the controller has its link.
    ///
    /// # Errors
    ///
    /// It does not come so far.
    pub async fn agent(&self, controller: &str, name: &str, model: &str) -> Result<Part> {
        let mut part = Part::start(self.home(), name, self.agent_args(controller, &self.path(name), model))?;
        while part.said("event").await? != "linked" {}
        Ok(part)
    }
}

/// A controller that answers.
pub struct Controller {
    /// The process.
    pub part: Part,
    /// Where it listens.
    pub address: String,
    /// The same as a URL.
    pub url: String,
    /// A client that is not logged in.
    pub client: Client,
}
