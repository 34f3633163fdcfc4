//! `selion chain`: the development chain.

use std::net::SocketAddr;
use std::path::PathBuf;

use selion_devchain::{Config, serve};

use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::layers::layered;
use crate::output::Output;
use crate::serving;

/// Runs a development chain: one process, one block a transaction, nothing of real value.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// TOML file with `listen`, `data_dir` and `chain_id`; SELION_DEVCHAIN_* and flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the JSON-RPC port, HTTP and WebSocket; port 0 takes a free one [default: 127.0.0.1:8545]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where the chain is kept [default: devchain]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// EIP-155 id, fixed at the first start [default: 31337]
    #[arg(long, value_name = "ID")]
    chain_id: Option<u64>,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Layers {
    listen: SocketAddr,
    data_dir: PathBuf,
    chain_id: u64,
}

impl Default for Layers {
    fn default() -> Self {
        let Config { listen, data_dir, chain_id } = Config::default();
        Self { listen, data_dir, chain_id }
    }
}

/// Serves until stopped.
pub async fn main(out: Output, args: Args) -> Done {
    let mut flags = serving::Flags::default();
    flags.set("listen", args.listen).set("data_dir", args.data_dir).set("chain_id", args.chain_id);
    let Layers { listen, data_dir, chain_id } = layered(args.config.as_deref(), "SELION_DEVCHAIN_", &flags)?;
    let stop = crate::stop::token()?;
    let ready = move |address| serving::ready(out, &format!("chain {chain_id}"), address);
    let served = serve(Config { listen, data_dir, chain_id }, stop, ready).await;
    served.map_err(|error| {
        Failure::new(Exit::Failure, "chain", chain(&error), "see what the message names, then start it again")
    })
}
