//! `selion audit tiles`: a copy of the log as static files.

use std::path::PathBuf;

use selion_api::Account;
use selion_audit::{Mirrored, TileSource, TilesError, mirror};

use super::by_cid;
use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::output::Output;

/// Which log, and where to.
#[derive(Debug, clap::Args)]
pub struct Tiles {
    /// A controller's URL, or that of another copy
    #[arg(long, value_name = "URL")]
    log: String,
    /// The folder; what is there is verified and not fetched again
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Who must have signed the checkpoint: the pool's authority, by the chain
    #[arg(long, value_name = "ADDRESS")]
    authority: Option<Account>,
    /// Pins the copy in a Kubo on this machine, by its RPC
    #[arg(long, value_name = "URL")]
    kubo: Option<String>,
}

/// What was copied, and what it is called on IPFS.
#[derive(serde::Serialize)]
struct Copied {
    #[serde(flatten)]
    copy: Mirrored,
    cid: String,
    /// Whether a Kubo has it.
    pinned: bool,
}

/// Copies it.
pub async fn main(out: Output, which: Tiles) -> Done {
    let copy = mirror(TileSource::at_url(&which.log).await?, &which.out).await?;
    if let Some(authority) = which.authority.filter(|authority| *authority != copy.signed_by) {
        let detail = format!("the checkpoint is signed by {}, not by {authority}", copy.signed_by);
        return Err(Failure::new(Exit::Failure, "not_the_authority", detail, "ask the chain who the authority is"));
    }
    let cid = by_cid::publish(&which.out, which.kubo.as_deref()).await?.to_string();
    out.show(&Copied { copy, cid, pinned: which.kubo.is_some() }, |Copied { copy, cid, pinned }| {
        let (Mirrored { entries, root, signed_by, written, kept }, dir) = (copy, which.out.display());
        let next = match *pinned {
            true => format!("pinned in Kubo: --log {cid} names this copy, wherever it is"),
            false => format!(
                "its CID is {cid}: put the folder behind any web server, or on IPFS with --kubo http://127.0.0.1:5001, \
                 and --log takes its URL or that CID"
            ),
        };
        format!(
            "{entries} entries with root {root}, signed by {signed_by}, are in {dir}: {written} files new, {kept} kept\n{next}"
        )
    })
}

impl From<TilesError> for Failure {
    fn from(error: TilesError) -> Self {
        let (exit, code, suggestion) = match &error {
            TilesError::Http { .. } => (Exit::Server, "log_unreadable", "check the URL, and that the server runs"),
            TilesError::File { .. } => (Exit::Failure, "file", "check the folder, its owner and the disk"),
            TilesError::Foreign { .. } => (Exit::Usage, "another_log", "name another --out, or the right --log"),
            TilesError::Split { .. } | TilesError::Shrunk { .. } => {
                (Exit::Failure, "log_split", "keep the folder as it is: it may be evidence")
            }
            _ => {
                (Exit::Failure, "log_damaged", "if the file named is in the folder, delete it there and run this again")
            }
        };
        Self::new(exit, code, chain(&error), suggestion)
    }
}
