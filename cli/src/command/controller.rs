//! `selion controller`: one controller of a pool.

use std::net::SocketAddr;
use std::path::PathBuf;

use selion_api::Address;
use selion_controller::config::Config;

use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::layers::layered;
use crate::output::Output;
use crate::serving::{self, Flags};
use crate::unit;

/// Runs a controller: REST, the agents' links, the log.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// TOML file; SELION_CONTROLLER_* and flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where REST and links are served; port 0 takes a free one [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where log, rows, keys and content are kept [default: selion-data/controller]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// JSON-RPC of the chain [default: http://127.0.0.1:8545]
    #[arg(long, value_name = "URL")]
    chain_rpc: Option<String>,
    /// The pool's Controller contract
    #[arg(long, value_name = "ADDRESS")]
    pool: Option<Address>,
    /// RPC of a Kubo on this machine, or @FILE that holds it with user and password
    #[arg(long, value_name = "URL")]
    kubo: Option<String>,
    /// Pins all datasets and outputs in that Kubo, which announces and serves them to everybody
    #[arg(long, requires = "kubo")]
    kubo_publish: bool,
    /// The URL under which others reach this controller
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// File with the authority's key [default: made in the data directory]
    #[arg(long, value_name = "FILE")]
    authority_key: Option<PathBuf>,
    /// Milliseconds between two anchors of a grown log on chain [default: 60000]
    #[arg(long, value_name = "MS")]
    anchor_ms: Option<u64>,
    /// Milliseconds after which an unclaimed voucher is claimed whatever it is worth [default: 86400000]
    #[arg(long, value_name = "MS")]
    claim_ms: Option<u64>,
    /// Tokens owed to one provider at which his vouchers are claimed: about 50 times the gas of a claim [default: 5.00]
    #[arg(long, value_name = "AMOUNT", value_parser = unit::amount)]
    claim_min: Option<selion_api::Amount>,
    /// Calls a day that are sent for accounts without gas, at the operator's cost [default: 0]
    #[arg(long, value_name = "N")]
    relay_per_day: Option<u32>,
    /// Prints the configuration that the layers make, and ends
    #[arg(long)]
    print_config: bool,
}

/// Serves until stopped.
pub async fn main(out: Output, args: Args) -> Done {
    let mut flags = Flags::default();
    flags
        .set("listen", args.listen)?
        .set("data_dir", args.data_dir)?
        .set("chain_rpc", args.chain_rpc)?
        .set("pool", args.pool)?
        .set("kubo", args.kubo)?
        .set("kubo_publish", args.kubo_publish.then_some(true))?
        .set("public_url", args.public_url)?
        .set("authority_key", args.authority_key)?
        .set("anchor_ms", args.anchor_ms)?
        .set("claim_ms", args.claim_ms)?
        .set("claim_min", args.claim_min.map(|amount| amount.0))?
        .set("relay_per_day", args.relay_per_day)?;
    let config: Config = layered(args.config.as_deref(), "SELION_CONTROLLER_", &flags)?;
    if args.print_config {
        return out.json(&config);
    }
    if config.pool.is_none() {
        let suggestion = "give --pool ADDRESS; `selion pool create` makes a pool, `selion up` one with everything";
        return Err(Failure::usage("no pool is set: a controller serves one pool", suggestion));
    }
    let stop = crate::stop::token()?;
    let ran = selion_controller::run(config, stop, move |address| serving::ready(out, "controller", address)).await;
    ran.map_err(|error| {
        let suggestion = "see what the message names, then start it again: what was acknowledged is on disk";
        Failure::new(Exit::Failure, "controller", chain(&error), suggestion)
    })
}
