//! Whether the configured controller is the pool's: asked before anything is sent to the chain.

use std::time::Duration;

use selion_api::commit::PoolId;
use selion_api::rest::PoolView;
use selion_client::{Client, ClientError};
use tokio::time::{sleep, timeout};

/// Longest wait for an answer, and for a controller that has not read the pool's first block yet.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Status of a controller that is not ready yet.
const NOT_READY: u16 = 503;

/// The controller speaks for another pool.
#[derive(Debug, thiserror::Error)]
#[error(
    "the controller at {url} speaks for pool {} on chain {}, not for {} on chain {}; correct --controller, --pool or \
     --chain-rpc. Nothing was sent", theirs.controller, theirs.chain_id, ours.controller, ours.chain_id
)]
pub struct OtherPool {
    /// Where it answers.
    pub url: String,
    /// What it says.
    pub theirs: PoolId,
    /// What is configured.
    pub ours: PoolId,
}

/// Why a controller is not the one to join.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// Another pool's.
    #[error(transparent)]
    OtherPool(#[from] OtherPool),
    /// No answer, or one that is an error.
    #[error(transparent)]
    Silent(#[from] ClientError),
}

/// What the controller at `url` says of itself, if it speaks for the pool `ours`.
///
/// # Errors
///
/// [`Unfit`].
pub async fn speaks_for(url: &str, ours: PoolId) -> Result<PoolView, Unfit> {
    let client = Client::new(url)?;
    let late = || ClientError::Unreachable {
        url: url.to_owned(),
        why: format!("no answer within {} s", PATIENCE.as_secs()),
        remedy: "start the controller, or correct --controller",
    };
    let view = timeout(PATIENCE, ready(&client)).await.map_err(|_| late())??;
    if view.pool != ours {
        return Err(OtherPool { url: url.to_owned(), theirs: view.pool, ours }.into());
    }
    Ok(view)
}

async fn ready(client: &Client) -> Result<PoolView, ClientError> {
    loop {
        match client.pool().await {
            Err(ClientError::Problem(problem)) if problem.status == NOT_READY => sleep(ASK_AGAIN).await,
            answer => return answer,
        }
    }
}
