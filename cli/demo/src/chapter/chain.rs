//! The chain and the pool's contracts on it.

use std::ffi::OsString;
use std::time::Duration;

use selion_api::Hash32;
use selion_api::chain::ChainEvent;
use selion_contracts::{BlockTag, Log, Pool, Rpc, decode, deploy::is_contract};
use serde_json::{Value, json};

use crate::fault::{Expecting, Told, expect, until};
use crate::process::free_port;
use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(15);
/// Time between a renter's thaw and the withdrawal: short, so that the story can show both.
const THAW: &str = "2s";
/// File of the key that makes the pool and decides in it.
pub(super) const AUTHORITY_KEY: &str = "authority.key";

/// The pool on its chain.
#[derive(Clone)]
pub(crate) struct Chain {
    pub rpc_url: String,
    pub pool: Pool,
}

/// A transaction that touched the pool.
pub(crate) struct Deed {
    pub tx: Hash32,
    pub block_number: u64,
    pub block_hash: Hash32,
    pub events: Vec<ChainEvent>,
}

impl Chain {
    /// Every transaction that touched the pool, in order.
    pub async fn deeds(&self) -> Told<Vec<Deed>> {
        let last = self.pool.rpc.header(BlockTag::Latest).await?.number;
        let logs = self.pool.rpc.logs(0, last, &self.pool.addresses()).await?;
        let deed = |logs: &[Log]| {
            let events = decode(&self.pool.at, logs)?;
            let Log { tx, block_number, block_hash, .. } = logs[0];
            Ok(Deed { tx, block_number, block_hash, events })
        };
        logs.chunk_by(|one, other| one.tx == other.tx).map(deed).collect()
    }
}

impl Deed {
    /// The transaction as evidence.
    pub fn evidence(&self) -> Value {
        json!({ "transaction": self.tx, "block_number": self.block_number, "block_hash": self.block_hash })
    }
}

/// Starts a chain unless one was named, and makes a pool on it.
pub(super) async fn deploy(stage: &Stage) -> Told<(Value, Chain)> {
    let (rpc_url, pid) = match &stage.options.chain_rpc {
        Some(url) => (url.clone(), None),
        None => {
            let port = free_port()?;
            let listen = format!("127.0.0.1:{port}");
            let dir = stage.path("chain").into_os_string();
            // Its people get their gas from the chain itself.
            let words = ["chain", "--listen", &listen, "--dev-methods", "coins", "--data-dir"];
            let args: Vec<OsString> = words.map(OsString::from).into_iter().chain([dir]).collect();
            (format!("http://{listen}"), Some(stage.start("chain", args)?))
        }
    };
    let rpc = Rpc::new(&rpc_url)?;
    until(PATIENCE, &format!("a chain at {rpc_url}"), async || {
        let living = stage.crew.obituaries().is_empty();
        expect(living, "the chain to run", "it ended")?;
        Ok(rpc.chain_id().await.map_err(|error| error.to_string()))
    })
    .await?;

    let file = stage.path("pool.json");
    let mut args: Vec<OsString> =
        ["--output", "json", "pool", "create", "--chain-rpc", &rpc_url].map(OsString::from).to_vec();
    args.extend(["--key-file".into(), stage.path("owner.key").into_os_string(), "--out".into(), file.into_os_string()]);
    // Its GPUs are simulated, and an owner may have turned the sandbox off, which nodes say.
    args.extend(
        ["--allow-simulated", "--allow-unsandboxed", "--finality-depth", "0", "--thaw", THAW].map(OsString::from),
    );
    let made = stage.tool(None, args).await?.json("`selion pool create` to make a pool")?;
    let controller = made["controller"].as_str().expecting("the address of the new pool")?;
    let pool = Pool::open(rpc, controller.parse()?).await?;

    for at in [pool.at.controller, pool.at.vault, pool.at.token] {
        expect(is_contract(&pool.rpc, at).await?, format!("a contract at {at}"), "no code")?;
    }
    let terms = pool.terms(BlockTag::Latest).await?;
    expect(
        terms.token == pool.at.token && terms.finality_depth == 0,
        "the terms that were asked for",
        format!("{terms:?}"),
    )?;
    let chain = Chain { rpc_url, pool };
    let deeds = chain.deeds().await?;
    let opened =
        deeds.iter().find(|deed| deed.events.iter().any(|event| matches!(event, ChainEvent::PoolOpened { .. })));
    let opened = opened.expecting("the pool's opening in a block")?;
    let evidence = json!({
        "chain_pid": pid,
        "chain_id": chain.pool.chain_id,
        "factory": made["factory"],
        "controller": chain.pool.at.controller,
        "vault": chain.pool.at.vault,
        "token": chain.pool.at.token,
        "authority": terms.authority,
        "fee_bps": terms.fee_bps,
        "opened": opened.evidence(),
    });
    Ok((evidence, chain))
}
