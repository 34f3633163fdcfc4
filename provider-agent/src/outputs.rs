//! Results: from the output folder into the content store and to the controller's gateway.

use std::fs;
use std::path::Path;
use std::time::Duration;

use selion_dataplane::{AddRules, Cid, GatewayUrlError, HttpGateway, Limits, PushError, Store, StoreError, push};
use tokio::time::Instant;

use crate::staging::blocking;

/// Most that one member may leave: 64 GiB in a hundred thousand files.
const LIMITS: Limits = Limits { bytes: 64 << 30, stored: 72 << 30, entries: 100_000, pieces: 1_000_000, depth: 64 };

/// Why there are no outputs.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The folder cannot be read.
    #[error("the output folder cannot be read: {0}")]
    Read(std::io::Error),
    /// Something in it cannot be kept.
    #[error("the outputs cannot be kept")]
    Add(#[from] StoreError),
    /// The gateway's address cannot be used.
    #[error(transparent)]
    Gateway(#[from] GatewayUrlError),
    /// The controller did not take them.
    #[error("outputs {cid} stay on the node: the controller's gateway did not take them")]
    Push {
        /// Their CID.
        cid: Box<Cid>,
        /// Why.
        #[source]
        source: Box<PushError>,
    },
}

/// Adds the folder to `store`. `None` if it is empty. The command must have stopped.
///
/// # Errors
///
/// [`OutputError::Read`]; [`OutputError::Add`].
pub async fn collect(folder: &Path, store: &Store) -> Result<Option<Cid>, OutputError> {
    let (folder, store) = (folder.to_owned(), store.clone());
    blocking(move || {
        let empty = fs::read_dir(&folder).map_err(OutputError::Read)?.next().is_none();
        if empty {
            return Ok(None);
        }
        let added = store.add(&folder, &AddRules::lenient(LIMITS, vec![folder.clone()]))?;
        Ok(Some(added.cid))
    })
    .await
}

/// Sends outputs `cid` to the gateway, trying again while it cannot be reached, up to `patience`. `token` is asked
/// for before each try, because a new link brings a new one.
///
/// # Errors
///
/// [`OutputError`] of the last try.
pub async fn deliver(
    cid: Cid,
    store: &Store,
    gateway: &str,
    token: impl Fn() -> Option<String>,
    patience: Duration,
) -> Result<(), OutputError> {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(200);
    loop {
        let sink = HttpGateway::new(gateway, token().as_deref())?;
        let left = deadline.saturating_duration_since(Instant::now());
        let tried = tokio::time::timeout(left.max(Duration::from_millis(100)), push(store, &cid, &sink)).await;
        match tried {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(PushError::Store(error))) => return Err(error.into()),
            Ok(Err(source)) if Instant::now() + pause >= deadline => {
                return Err(OutputError::Push { cid: Box::new(cid), source: Box::new(source) });
            }
            Err(_) => {
                let source = PushError::Sink {
                    sink: selion_dataplane::Source::name(&sink),
                    cid: Box::new(cid),
                    source: selion_dataplane::SourceError::Failed(format!("no end within {} s", patience.as_secs())),
                };
                return Err(OutputError::Push { cid: Box::new(cid), source: Box::new(source) });
            }
            // A refused token may be one from before the link was lost: the next try has the new one.
            Ok(Err(error)) => tracing::debug!(%cid, error = %crate::error::chain(&error), "outputs not taken yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}
