//! `selion login` and `selion whoami`.

use std::path::PathBuf;

use selion_api::rest::Whoami;

use crate::failure::Done;
use crate::output::Output;
use crate::profile::Home;
use crate::session::{Session, login};

/// Logs in at a pool and keeps a profile of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Base URL of the pool's controller
    #[arg(long, value_name = "URL", env = "SELION_CONTROLLER")]
    controller: String,
    /// JSON-RPC of the pool's chain, for deposits and withdrawals
    #[arg(long, value_name = "URL", env = "SELION_CHAIN_RPC")]
    chain_rpc: Option<String>,
    /// File with the account's key; made if it is not there [default: `key` in the profile's folder]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// Logs in. What the old profile of the same pool knows is kept.
pub async fn main(out: Output, args: Args) -> Done {
    let home = Home::find()?;
    let old = home.read()?;
    let key_file = args.key_file.unwrap_or_else(|| home.default_key_file());
    let new_key = !key_file.exists();
    let same = old.filter(|old| old.controller.trim_end_matches('/') == args.controller.trim_end_matches('/'));
    let chain_rpc = args.chain_rpc.or(same.and_then(|old| old.chain_rpc));
    let profile = login(&home, &args.controller, chain_rpc, &key_file).await?;
    let account = crate::session::signer(&profile.key_file)?.account();
    let result = serde_json::json!({ "account": account, "profile": profile, "new_key": new_key });
    out.show(&result, |_| {
        let key = profile.key_file.display();
        let made = if new_key { format!("a new key was made in {key}: keep a copy of it\n") } else { String::new() };
        format!("{made}account {account} is logged in at {}\nnext: selion offers", profile.controller)
    })
}

/// Shows whom the pool takes us for.
pub async fn whoami(out: Output) -> Done {
    let session = Session::open()?;
    let who = session.client.whoami().await?;
    out.show(&who, |who| {
        let who = match who {
            Whoami::Renter { account } => format!("account {account}"),
            Whoami::Node { node } => format!("node {node}"),
        };
        format!(
            "{who} at {}, pool {} on chain {}",
            session.profile.controller, session.profile.pool, session.profile.chain_id
        )
    })
}
