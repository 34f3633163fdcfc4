//! A pool's contracts and a key: what commands need that make transactions of their own, without a controller.

use std::path::PathBuf;

use selion_api::{Address, Hash32};
use selion_contracts::write::Call;
use selion_contracts::{Pool, Rpc, Signer};

use crate::dev::{give_gas, is_dev_chain};
use crate::failure::{Done, Failure};

/// Which pool.
#[derive(Debug, clap::Args)]
pub struct Where {
    /// JSON-RPC of the chain
    #[arg(long, value_name = "URL", env = "SELION_CHAIN_RPC")]
    chain_rpc: String,
    /// The pool's Controller contract
    #[arg(long, value_name = "ADDRESS")]
    pool: Address,
}

/// As whom.
#[derive(Debug, clap::Args)]
pub struct Act {
    /// The pool.
    #[command(flatten)]
    pub at: Where,
    /// File with the key of who does it
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
}

impl Where {
    /// The pool's contracts.
    pub async fn open(&self) -> Done<Pool> {
        Ok(Pool::open(Rpc::new(&self.chain_rpc)?, self.pool).await?)
    }
}

impl Act {
    /// The key, which has to be there.
    pub fn signer(&self) -> Done<Signer> {
        if !self.key_file.exists() {
            let detail = format!("there is no key file {}", self.key_file.display());
            return Err(Failure::usage(detail, "name the file with the key of who does this"));
        }
        Ok(Signer::open_or_create(&self.key_file)?)
    }

    /// Sends the calls one after the other; the last transaction. On development chains the account is given gas.
    pub async fn send(&self, calls: impl Fn(&Pool, &Signer) -> Vec<Call>) -> Done<(Signer, Hash32)> {
        let (pool, signer) = (self.at.open().await?, self.signer()?);
        if is_dev_chain(pool.chain_id) {
            give_gas(&pool.rpc, signer.account()).await?;
        }
        let mut tx = Hash32::ZERO;
        for call in calls(&pool, &signer) {
            tx = pool.send(&signer, call).await?.tx;
        }
        Ok((signer, tx))
    }
}
