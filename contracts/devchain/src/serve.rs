//! Starting and stopping the node.

use crate::{
    DevMethods, Error, JournalError,
    door::{self, Door},
    http,
    node::Node,
};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The chain id that development chains share.
pub const DEFAULT_CHAIN_ID: u64 = 31_337;

/// Where the chain listens, where it keeps its journal, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The address of the JSON-RPC port, HTTP and WebSocket; port 0 takes a free one. Use loopback.
    pub listen: SocketAddr,
    /// The directory of the journal; made if it is not there.
    pub data_dir: PathBuf,
    /// The chain id, fixed at the first start in `data_dir`.
    pub chain_id: u64,
    /// Which methods beyond those of a real chain's node are answered.
    pub dev_methods: DevMethods,
    /// Answers only under a secret path. The whole URL is written to `url` in the data directory, for its owner alone.
    pub private: bool,
}

impl Default for Config {
    /// Loopback port 8545, `devchain` under the current directory, chain 31337, no methods of development, no secret.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8545)),
            data_dir: PathBuf::from("devchain"),
            chain_id: DEFAULT_CHAIN_ID,
            dev_methods: DevMethods::Off,
            private: false,
        }
    }
}

/// Runs the chain until `stop` is cancelled. `ready` is called once with the bound address, when the journal
/// is replayed and requests are answered.
///
/// # Errors
///
/// See [`Error`]: a busy port, an unusable directory, a full disk, a corrupt or foreign journal. Each message
/// names the remedy.
pub async fn serve(config: Config, stop: CancellationToken, ready: impl FnOnce(SocketAddr)) -> Result<(), Error> {
    let Config { listen, data_dir, chain_id, dev_methods, private } = config;
    let bind_error = |source| Error::Bind { addr: listen, source };
    let listener = TcpListener::bind(listen).await.map_err(bind_error)?;
    let addr = listener.local_addr().map_err(bind_error)?;
    let path = data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || Node::open(&path, chain_id)).await;
    let broken = |reason: String| Error::Replay { path: data_dir.clone(), reason };
    let node = Arc::new(opened.map_err(|panic| broken(panic.to_string()))??);
    let door = open_door(&data_dir, addr, private)?;
    {
        let head = node.chain().head().clone();
        tracing::warn!(%addr, chain_id, head = head.header.number, hash = %head.hash, %dev_methods, private,
            "development chain: it must never hold real value");
    }
    if !addr.ip().is_loopback() {
        tracing::warn!(%addr, "the dev chain listens beyond this machine; use 127.0.0.1 unless that is meant");
    }
    let router = http::router(node.clone(), dev_methods, door, stop.clone());
    ready(addr);
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    // Even with a record in progress this waits for one disk write only.
    let closed = node.close();
    served.and(closed).map_err(|source| Error::Serve { addr, source })
}

/// The door of the port. A private chain's URL is on disk before the first request is answered.
fn open_door(dir: &Path, addr: SocketAddr, private: bool) -> Result<Door, JournalError> {
    if !private {
        return Ok(Door::new(addr, None));
    }
    let failed = |source| JournalError::Directory { path: dir.to_owned(), source };
    let token = door::token(dir).map_err(failed)?;
    door::write_url(dir, addr, &token).map_err(failed)?;
    Ok(Door::new(addr, Some(&token)))
}
