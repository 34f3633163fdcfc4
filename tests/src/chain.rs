//! The chain below a pool: ours, or another make of node.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::process::{PATIENCE, Part};

/// A running chain. Dropping it kills it.
pub struct Chain {
    /// Its JSON-RPC.
    pub url: String,
    #[expect(dead_code, reason = "killed when dropped")]
    running: Running,
}

#[expect(dead_code, reason = "held to be dropped")]
enum Running {
    Ours(Part),
    Another(Child),
}

impl Chain {
    /// Starts `selion chain`, or what `SELION_TEST_CHAIN` says: `anvil` or `geth`, whose binary `SELION_ANVIL` or
    /// `SELION_GETH` names. Both make a block for each transaction, as ours does.
    ///
    /// # Errors
    ///
    /// There is no such binary, or it does not come to listen.
    pub async fn start(home: &Path) -> Result<Self> {
        match std::env::var("SELION_TEST_CHAIN").as_deref() {
            Err(_) => Self::ours(home).await,
            Ok("anvil") => Self::anvil(Command::new(binary("SELION_ANVIL")?)).await,
            Ok("geth") => Self::geth(Command::new(binary("SELION_GETH")?), home).await,
            Ok(other) => bail!("SELION_TEST_CHAIN is `{other}`; it can be `anvil` or `geth`, or be left out"),
        }
    }

    async fn ours(home: &Path) -> Result<Self> {
        let mut part = Part::start(
            home,
            "chain",
            ["chain", "--listen", "127.0.0.1:0", "--data-dir", "chain", "--dev-methods", "coins"],
        )?;
        let ready = part.said("ready").await?;
        let address = ready["address"].as_str().context("an address")?;
        Ok(Self { url: format!("http://{address}"), running: Running::Ours(part) })
    }

    async fn anvil(mut command: Command) -> Result<Self> {
        let mut child = command.args(["--port", "0"]).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let said = child.stdout.take().context("stdout is piped")?;
        Self::listening(child, said, |line| line.strip_prefix("Listening on ")).await
    }

    async fn geth(mut command: Command, home: &Path) -> Result<Self> {
        command.args(["--dev", "--nodiscover", "--ipcdisable", "--port", "0", "--authrpc.port", "0"]);
        command.args(["--http", "--http.port", "0", "--datadir"]).arg(home.join("chain"));
        let mut child = command.stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let said = child.stderr.take().context("stderr is piped")?;
        Self::listening(child, said, |line| {
            let (_, endpoint) = line.split_once("HTTP server started")?.1.split_once("endpoint=")?;
            endpoint.split_whitespace().next().filter(|_| !line.contains("auth=true"))
        })
        .await
    }

    /// Waits for the line that names the address, and reads on for ever so that the node never waits for us.
    async fn listening(
        child: Child,
        said: impl AsyncRead + Unpin + Send + 'static,
        address: impl Fn(&str) -> Option<&str>,
    ) -> Result<Self> {
        let mut lines = BufReader::new(said).lines();
        let wait = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = address(&line) {
                    return Ok(format!("http://{address}"));
                }
            }
            bail!("it ended")
        };
        let url = timeout(PATIENCE, wait).await.context("the chain does not say where it listens")??;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { url, running: Running::Another(child) })
    }
}

fn binary(variable: &str) -> Result<OsString> {
    std::env::var_os(variable).with_context(|| format!("{variable} names no binary"))
}
