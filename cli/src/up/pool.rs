//! The pool of `selion up`: made once, found again at every later start.

use std::path::{Path, PathBuf};

use selion_api::Address;
use selion_contracts::{Pool, PoolTerms, Rpc, Signer};
use selion_controller::mirror::pool::{PoolFile, PoolOptions, create_pool};

use crate::dev::{give_gas, is_dev_chain, require_dev_chain};
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::profile::write_private;

/// The owner's key in a data directory. What runs does not use it: it can be moved away.
fn owner_key(dir: &Path) -> PathBuf {
    dir.join("owner.key")
}

/// The authority's key in a data directory.
pub fn authority_key(dir: &Path) -> PathBuf {
    dir.join("authority.key")
}

/// The pool in this data directory. On a development chain its authority is given gas.
pub async fn open_or_create(
    out: Output,
    dir: &Path,
    chain_rpc: &str,
    token: Option<Address>,
    simulated: bool,
) -> Done<Pool> {
    let rpc = Rpc::new(chain_rpc)?;
    let chain_id = rpc.chain_id().await?;
    let authority = Signer::open_or_create(&authority_key(dir))?;
    if is_dev_chain(chain_id) {
        give_gas(&rpc, authority.account()).await?;
    }
    let path = dir.join("pool.json");
    let made = match read(&path)? {
        Some(made) => made,
        None => {
            if token.is_none() {
                require_dev_chain(chain_id, "a new test token; give --token ADDRESS elsewhere. It")?;
            }
            out.note(format!("making a pool on chain {chain_id} ..."));
            let owner = Signer::open_or_create(&owner_key(dir))?;
            if is_dev_chain(chain_id) {
                give_gas(&rpc, owner.account()).await?;
            }
            let mut options = PoolOptions { token, ..PoolOptions::development(owner.account(), authority.account()) };
            if !is_dev_chain(chain_id) {
                options.finality_depth = PoolTerms::FINALIZED_TAG;
                options.allow_simulated = simulated;
                options.allow_unsandboxed = false;
            }
            let made = create_pool(&rpc, &owner, &options).await?;
            write_private(&path, &(serde_json::json!(made).to_string() + "\n"))?;
            made
        }
    };
    if made.chain_id != chain_id {
        let detail =
            format!("{} names a pool on chain {}, but {chain_rpc} is chain {chain_id}", path.display(), made.chain_id);
        return Err(Failure::usage(detail, "give the --chain-rpc of that chain, or another --data-dir for a new pool"));
    }
    Pool::open(rpc, made.controller).await.map_err(|error| match error {
        selion_contracts::PoolError::NoPool { .. } => Failure::usage(
            format!("{} names pool {}, which is not on the chain at {chain_rpc}", path.display(), made.controller),
            "the chain was started anew: give another --data-dir, or bring the chain's data back",
        ),
        other => other.into(),
    })
}

fn read(path: &Path) -> Done<Option<PoolFile>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file(path, &error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let suggestion = "restore it from a copy, or give another --data-dir for a new pool";
        Failure::usage(format!("{}: {error}", path.display()), suggestion)
    })
}
