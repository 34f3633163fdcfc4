//! `selion audit tiles`: a copy of the log as static files.

use std::path::PathBuf;

use selion_api::Account;
use selion_audit::{Mirrored, TileSource, TilesError, mirror};

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
}

/// Copies it.
pub async fn main(out: Output, which: Tiles) -> Done {
    let copy = mirror(TileSource::at_url(&which.log).await?, &which.out).await?;
    if let Some(authority) = which.authority.filter(|authority| *authority != copy.signed_by) {
        let detail = format!("the checkpoint is signed by {}, not by {authority}", copy.signed_by);
        return Err(Failure::new(Exit::Failure, "not_the_authority", detail, "ask the chain who the authority is"));
    }
    out.show(&copy, |Mirrored { entries, root, signed_by, written, kept }| {
        let dir = which.out.display();
        format!(
            "{entries} entries with root {root}, signed by {signed_by}, are in {dir}: {written} files new, {kept} kept\n\
             put the folder behind any web server, or add it to IPFS: selion data add {dir}"
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
