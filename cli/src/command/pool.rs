//! `selion pool`: makes a pool on a chain, and shows the terms of one.

use std::path::PathBuf;

use selion_api::commit::PoolId;
use selion_api::rest::{PoolView, Terms};
use selion_api::{Account, Address};
use selion_client::Client;
use selion_contracts::{BlockTag, Pool, PoolTerms, Rpc, Signer};
use selion_controller::mirror::pool::{PoolFile, PoolOptions, create_pool};

use crate::dev::{give_gas, is_dev_chain, require_dev_chain};
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::profile::{Home, write_private};
use crate::unit;

/// Makes pools, and shows their terms.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Deploys the contracts of a new pool; its terms are fixed for good
    Create(Create),
    /// Shows a pool's terms [default: those of the profile's pool]
    Show(Show),
}

/// Whose terms.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// JSON-RPC of the chain: the terms as its contracts have them
    #[arg(long, value_name = "URL", requires = "pool")]
    chain_rpc: Option<String>,
    /// The pool's Controller contract
    #[arg(long, value_name = "ADDRESS", requires = "chain_rpc")]
    pool: Option<Address>,
    /// Base URL of a controller: the terms as it states them
    #[arg(long, value_name = "URL", conflicts_with = "chain_rpc")]
    controller: Option<String>,
}

/// A pool and its terms.
#[derive(Debug, serde::Serialize)]
struct Shown {
    pool: PoolId,
    vault: Address,
    token: Address,
    /// As the chain has it; a controller does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Account>,
    authority: Account,
    #[serde(flatten)]
    terms: Terms,
    /// What stands out, a sentence each.
    warnings: Vec<String>,
}

/// The terms of a new pool.
#[derive(Debug, clap::Args)]
pub struct Create {
    /// JSON-RPC of the chain
    #[arg(long, value_name = "URL", env = "SELION_CHAIN_RPC")]
    chain_rpc: String,
    /// File with the key that pays for it; made if it is not there. Keep it away from the controller's machine: it owns the
    /// pool, unless --owner names another account
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Who owns the pool: names its authority, has the bond, takes the fees. A contract may [default: the account of the key
    /// file]
    #[arg(long, value_name = "ACCOUNT")]
    owner: Option<Account>,
    /// Who decides and countersigns: the controller's key
    #[arg(long, value_name = "ACCOUNT", conflicts_with = "authority_key")]
    authority: Option<Account>,
    /// File with the controller's key; made if it is not there [default: authority.key beside the key file]
    #[arg(long, value_name = "FILE")]
    authority_key: Option<PathBuf>,
    /// ERC-20 in which everything is paid [default on development chains: a new test token]
    #[arg(long, value_name = "ADDRESS")]
    token: Option<Address>,
    /// Factory to use [default: a new one]
    #[arg(long, value_name = "ADDRESS")]
    factory: Option<Address>,
    /// Operator's fee in ten-thousandths of every claim
    #[arg(long, value_name = "BPS", default_value_t = 200, value_parser = clap::value_parser!(u16).range(..=5_000))]
    fee_bps: u16,
    /// Blocks on top that make a block final, or `finalized` for the chain's own tag [default: 0 on development
    /// chains, else finalized]
    #[arg(long, value_name = "DEPTH", value_parser = finality)]
    finality_depth: Option<u32>,
    /// Time between a renter's thaw and the withdrawal
    #[arg(long, value_name = "TIME", default_value = "3d", value_parser = seconds)]
    thaw: u32,
    /// Time between unbonding and the return of a provider's stake or the owner's bond
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = seconds)]
    unbond: u32,
    /// Time for which an old authority's vouchers stay claimable
    #[arg(long, value_name = "TIME", default_value = "3d", value_parser = seconds)]
    grace: u32,
    /// Least stake of a provider, in tokens
    #[arg(long, value_name = "AMOUNT", default_value = "1.00", value_parser = unit::amount)]
    min_stake: selion_api::Amount,
    /// Lets simulated GPUs be offered
    #[arg(long)]
    allow_simulated: bool,
    /// Lets nodes without a sandbox be leased
    #[arg(long)]
    allow_unsandboxed: bool,
    /// What an owner must keep at stake for what its authority signs, in tokens
    #[arg(long, value_name = "AMOUNT", default_value = "0.00", value_parser = unit::amount)]
    min_bond: selion_api::Amount,
    /// Time between announcing another owner and its acceptance
    #[arg(long, value_name = "TIME", default_value = "3d", value_parser = seconds)]
    hand_over: u32,
    /// Silence after which a standby may take the authority over; 0: nobody can
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = seconds)]
    take_over_after: u32,
    /// Where the pool's addresses are written
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn finality(text: &str) -> Result<u32, String> {
    match text {
        "finalized" => Ok(PoolTerms::FINALIZED_TAG),
        _ => text.parse().map_err(|_| format!("`{text}` is neither a number of blocks nor `finalized`")),
    }
}

fn seconds(text: &str) -> Result<u32, String> {
    if text == "0" {
        return Ok(0);
    }
    let ms = unit::duration(text).map_err(|error| error.to_string())?;
    u32::try_from(ms / 1_000).map_err(|_| format!("`{text}` is longer than 136 years"))
}

/// Runs the sub-command.
pub async fn main(out: Output, command: Command) -> Done {
    match command {
        Command::Create(args) => create(out, args).await,
        Command::Show(args) => show(out, args).await,
    }
}

async fn show(out: Output, args: Show) -> Done {
    let shown = match (&args.chain_rpc, args.pool) {
        (Some(url), Some(at)) => by_chain(url, at).await?,
        _ => by_controller(args.controller).await?,
    };
    out.show(&shown, |shown| {
        let Shown { pool, vault, token, owner, authority, terms, .. } = shown;
        let owner = owner.map(|owner| format!("\nowner {owner}")).unwrap_or_default();
        let at = format!("pool {} on chain {}\nvault {vault}, token {token}{owner}", pool.controller, pool.chain_id);
        format!("{at}\n{}", self::terms(out, &authority.to_string(), terms))
    })
}

async fn by_chain(url: &str, at: Address) -> Done<Shown> {
    let pool = Pool::open(Rpc::new(url)?, at).await?;
    let terms = pool.terms(BlockTag::Latest).await?.shown();
    let id = PoolId { chain_id: pool.chain_id, controller: at };
    let (authority, warnings) = (pool.authority(BlockTag::Latest).await?, terms.warnings());
    let owner = Some(pool.owner(BlockTag::Latest).await?);
    Ok(Shown { pool: id, vault: pool.at.vault, token: pool.at.token, owner, authority, terms, warnings })
}

async fn by_controller(url: Option<String>) -> Done<Shown> {
    let url = match url {
        Some(url) => url,
        None => Home::find()?.profile()?.controller,
    };
    let PoolView { pool, vault, token, authority, terms, .. } = Client::new(&url)?.pool().await?;
    let warnings = terms.warnings();
    Ok(Shown { pool, vault, token, owner: None, authority, terms, warnings })
}

/// The terms as a table, with what stands out below it.
pub fn terms(out: Output, authority: &str, terms: &Terms) -> String {
    let time = |seconds: u32| unit::show_duration(u64::from(seconds) * 1_000);
    let allowed = |allowed: bool| if allowed { "allowed" } else { "refused" }.to_owned();
    let finality = match terms.finality_depth {
        None => "what the chain itself calls final".to_owned(),
        Some(0) => "at once".to_owned(),
        Some(depth) => format!("under {depth} blocks"),
    };
    let take_over = match terms.take_over_after_s {
        0 => "never".to_owned(),
        silence => format!("after {} of silence", time(silence)),
    };
    let row = |name: &str, value: String| [name.to_owned(), value];
    let rows = vec![
        row("authority, who decides and countersigns", authority.to_owned()),
        row("fee, of every claim", format!("{}.{:02} %", terms.fee_bps / 100, terms.fee_bps % 100)),
        row("least stake of a provider", format!("{} tokens", unit::show_money(terms.min_stake.0))),
        row("stake comes back after unbonding", time(terms.unbond_s)),
        row("a renter's deposit comes back after thawing", time(terms.thaw_s)),
        row("an old authority's vouchers stay claimable", time(terms.grace_s)),
        row("deposits, nodes and offers count", finality),
        row("simulated GPUs", allowed(terms.allow_simulated)),
        row("nodes without a sandbox", allowed(terms.allow_unsandboxed)),
        row("least bond of the owner", format!("{} tokens", unit::show_money(terms.min_bond.0))),
        row("another owner can accept", format!("{} after it is announced", time(terms.hand_over_s))),
        row("a standby takes over", take_over),
    ];
    let table = out.table(["TERMS, WHICH NEVER CHANGE", ""], rows, "");
    terms.warnings().into_iter().fold(table, |text, warning| format!("{text}\nWARNING: {warning}"))
}

/// Makes the pool and says where it is.
async fn create(out: Output, args: Create) -> Done {
    if let Some(path) = args.out.as_ref().filter(|path| path.exists()) {
        let suggestion = "a pool is made once: use that one, or name another file";
        return Err(Failure::usage(format!("{} exists already", path.display()), suggestion));
    }
    let rpc = Rpc::new(&args.chain_rpc)?;
    let chain_id = rpc.chain_id().await?;
    if args.token.is_none() {
        require_dev_chain(chain_id, "a new test token that anyone can mint")?;
    }
    let signer = Signer::open_or_create(&args.key_file)?;
    let authority_key = args.authority_key.unwrap_or_else(|| args.key_file.with_file_name("authority.key"));
    let authority = match args.authority {
        Some(authority) => authority,
        None => Signer::open_or_create(&authority_key)?.account(),
    };
    let owner = args.owner.unwrap_or(signer.account());
    if owner == authority {
        out.note("WARNING: one key is owner and authority: who steals it from the controller's machine has the pool");
    }
    if is_dev_chain(chain_id) {
        for account in [signer.account(), authority] {
            give_gas(&rpc, account).await?;
        }
    }
    let default_depth = if is_dev_chain(chain_id) { 0 } else { PoolTerms::FINALIZED_TAG };
    let options = PoolOptions {
        token: args.token,
        factory: args.factory,
        owner,
        authority,
        fee_bps: args.fee_bps,
        thaw_delay_s: args.thaw,
        unbond_delay_s: args.unbond,
        min_stake: args.min_stake,
        finality_depth: args.finality_depth.unwrap_or(default_depth),
        grace_s: args.grace,
        allow_simulated: args.allow_simulated,
        allow_unsandboxed: args.allow_unsandboxed,
        min_bond: args.min_bond,
        hand_over_delay_s: args.hand_over,
        take_over_after_s: args.take_over_after,
        metadata_cid: String::new(),
    };
    for warning in options.terms().warnings() {
        out.note(format!("WARNING to those who will join: {warning}"));
    }
    out.note(format!("making a pool on chain {chain_id} ..."));
    let made = create_pool(&rpc, &signer, &options).await?;
    if let Some(path) = &args.out {
        write_private(path, &(serde_json::json!(made).to_string() + "\n"))?;
    }
    out.show(&made, |pool| {
        let key = authority_key.display();
        let next = format!(
            "next: selion controller --chain-rpc {} --pool {} --authority-key {key}",
            args.chain_rpc, pool.controller
        );
        format!("{}\n{next}", describe(out, pool))
    })
}

/// The pool's addresses as a table.
pub fn describe(out: Output, pool: &PoolFile) -> String {
    let rows = vec![
        ["controller".to_owned(), pool.controller.to_string()],
        ["vault".to_owned(), pool.vault.to_string()],
        ["token".to_owned(), pool.token.to_string()],
        ["factory".to_owned(), pool.factory.to_string()],
        ["chain".to_owned(), pool.chain_id.to_string()],
        ["block".to_owned(), pool.block.to_string()],
    ];
    out.table(["POOL", ""], rows, "")
}
