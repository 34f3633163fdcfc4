//! `selion evidence`: brings what shows that an authority lied before the pool's court.

use std::path::{Path, PathBuf};

use selion_api::agent::{SignedHead, SignedPromise};
use selion_api::{Account, Amount, Hash32};
use selion_audit::evidence::against;
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Pool, Signer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::onchain::Act;
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::logged;
use crate::output::Output;
use crate::unit;

/// Brings evidence against an authority before the pool's court: what it loses goes to the harmed or is burnt.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Two signed heads of one size that differ
    Heads {
        /// A signed head as JSON, as `GET /v1/log/head` gives it
        #[arg(value_name = "FILE")]
        one: PathBuf,
        /// The other
        #[arg(value_name = "FILE")]
        other: PathBuf,
        #[command(flatten)]
        by: Act,
    },
    /// A signed promise, and a log that has another entry there
    Promise {
        /// The promise as JSON
        #[arg(value_name = "FILE")]
        promise: PathBuf,
        /// The log: a controller's URL, or a file with one published entry a line
        #[arg(long, value_name = "URL|FILE")]
        log: String,
        #[command(flatten)]
        by: Act,
    },
    /// Takes what the court credited the account with
    Collect {
        #[command(flatten)]
        by: Act,
    },
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Outcome {
    tx: Hash32,
    authority: Account,
    bond_left: Amount,
    credit: Amount,
}

/// Sends it and says what came of it.
pub async fn main(out: Output, command: Command) -> Done {
    match command {
        Command::Heads { one, other, by } => {
            let (one, other): (SignedHead, SignedHead) = (read(&one)?, read(&other)?);
            bring(out, &by, |pool, _| pool.prove_two_heads(&one, &other)).await
        }
        Command::Promise { promise, log, by } => {
            let promise: SignedPromise = read(&promise)?;
            let found = against(&logged::published(&log).await?, &promise).map_err(|error| {
                Failure::new(Exit::Failure, "no_evidence", error, "evidence is an entry that differs from the promise")
            })?;
            bring(out, &by, |pool, _| pool.prove_broken_promise(&promise, &found.head, found.leaf, &found.path)).await
        }
        Command::Collect { by } => bring(out, &by, |pool, signer| pool.collect(signer.address())).await,
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Done<T> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    serde_json::from_str(&text).map_err(|error| {
        let suggestion = "a head as `GET /v1/log/head` gives it, or a promise as the client keeps it, as JSON";
        Failure::usage(format!("{}: {error}", path.display()), suggestion)
    })
}

async fn bring(out: Output, by: &Act, call: impl Fn(&Pool, &Signer) -> Call) -> Done {
    let (signer, tx) = by.send(|pool, signer| vec![call(pool, signer)]).await?;
    let pool = by.at.open().await?;
    let authority = pool.authority(BlockTag::Latest).await?;
    let outcome = Outcome {
        tx,
        authority,
        bond_left: pool.bond(authority, BlockTag::Latest).await?.bond,
        credit: pool.credit(signer.account(), BlockTag::Latest).await?,
    };
    out.show(&outcome, |outcome| {
        format!(
            "done in transaction {}: the bond of {} is {} now, {} stands to the sender's credit",
            outcome.tx,
            outcome.authority,
            unit::show_money(outcome.bond_left.0),
            unit::show_money(outcome.credit.0)
        )
    })
}
