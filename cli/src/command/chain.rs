//! `selion chain`: the development chain.

use std::net::SocketAddr;
use std::path::PathBuf;

use selion_devchain::{Config, DevMethods, serve};

use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::layers::layered;
use crate::output::Output;
use crate::serving;

/// Runs a development chain: one process, one block a transaction, nothing of real value.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// TOML file with `listen`, `data_dir`, `chain_id`, `dev_methods` and `private`; SELION_DEVCHAIN_* and flags win over it
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
    /// Answers methods that change balances (`coins`: anvil_setBalance), or also history and clock (`all`: dev_reorg,
    /// anvil_*, evm_*) [default: off; `all` if no value is given]
    #[arg(long, value_name = "off|coins|all", num_args = 0..=1, default_missing_value = "all")]
    dev_methods: Option<DevMethods>,
    /// Answers only under a secret path; the URL is in the file `url` of the data directory, for this user alone
    #[arg(long)]
    private: bool,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Layers {
    listen: SocketAddr,
    data_dir: PathBuf,
    chain_id: u64,
    dev_methods: String,
    private: bool,
}

impl Default for Layers {
    fn default() -> Self {
        let Config { listen, data_dir, chain_id, dev_methods, private } = Config::default();
        Self { listen, data_dir, chain_id, dev_methods: dev_methods.to_string(), private }
    }
}

impl Layers {
    fn config(self) -> Done<Config> {
        let Self { listen, data_dir, chain_id, dev_methods, private } = self;
        let methods = dev_methods.parse::<DevMethods>();
        let dev_methods = methods.map_err(|error| Failure::usage(format!("dev_methods: {error}"), "correct it"))?;
        Ok(Config { listen, data_dir, chain_id, dev_methods, private })
    }
}

/// Serves until stopped.
pub async fn main(out: Output, args: Args) -> Done {
    let mut flags = serving::Flags::default();
    flags
        .set("listen", args.listen)?
        .set("data_dir", args.data_dir)?
        .set("chain_id", args.chain_id)?
        .set("dev_methods", args.dev_methods.map(|methods| methods.to_string()))?
        .set("private", args.private.then_some(true))?;
    let config = layered::<Layers>(args.config.as_deref(), "SELION_DEVCHAIN_", &flags)?.config()?;
    let stop = crate::stop::token()?;
    let what = format!("chain {}", config.chain_id);
    let served = serve(config, stop, move |address| serving::ready(out, &what, address)).await;
    served.map_err(|error| {
        Failure::new(Exit::Failure, "chain", chain(&error), "see what the message names, then start it again")
    })
}
