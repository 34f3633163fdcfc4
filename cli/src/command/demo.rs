//! `selion demo`: the whole story of a pool, told by a client.

use std::path::PathBuf;

use selion_demo::{DemoError, Options, run};

use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::output::Output;

/// Tells the whole story of a pool in one run: leases, a gang, killed parts, money, an audit. Needs no network.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File or folder to lease with [default: some made files]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Prints one JSON object at the end instead
    #[arg(long)]
    pub json: bool,
    /// Leaves the pool running, and says how to reach it
    #[arg(long)]
    keep: bool,
    /// JSON-RPC of a development chain that runs already: Anvil, or `geth --dev`
    #[arg(long, value_name = "URL")]
    chain_rpc: Option<String>,
    /// RPC of a Kubo on this machine, through which the data goes
    #[arg(long, value_name = "URL")]
    kubo: Option<String>,
    /// The program of the first lease and its arguments [default: one that reads all data]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Tells it. Exit code 0 only if every step held.
pub async fn main(out: Output, args: Args) -> Done {
    let failed = |error| Failure::new(Exit::Failure, "demo", error, "start this program by its path");
    let exe = std::env::current_exe().map_err(failed)?;
    let Args { data, keep, chain_rpc, kubo, command, .. } = args;
    let options = Options { exe, data, command, json: out.is_json(), keep, chain_rpc, kubo };
    let story = run(options).await.map_err(|error| {
        let (exit, suggestion) = match error {
            DemoError::Interrupted => (Exit::Interrupted, "start it again; nothing was left behind"),
            DemoError::Data { .. } => (Exit::Usage, "name a file or folder after --data"),
            _ => (Exit::Failure, "see what the message names, then start it again"),
        };
        Failure::new(exit, "demo", chain(&error), suggestion)
    })?;
    // The story has told which step did not hold.
    if story.ok { Ok(()) } else { Err(Failure::remote(Exit::Failure.code())) }
}
