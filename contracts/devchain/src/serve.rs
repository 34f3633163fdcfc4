//! Starting and stopping the node.

use crate::{Error, http, node::Node};
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The chain id that development chains share.
pub const DEFAULT_CHAIN_ID: u64 = 31_337;

/// Where the chain listens, where it keeps its journal, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The address of the JSON-RPC port, HTTP and WebSocket; port 0 takes a free one. Use loopback: there is
    /// no authentication, and whoever reaches the port may mint gas.
    pub listen: SocketAddr,
    /// The directory of the journal; made if it is not there.
    pub data_dir: PathBuf,
    /// The chain id, fixed at the first start in `data_dir`.
    pub chain_id: u64,
}

impl Default for Config {
    /// Loopback port 8545, `devchain` under the current directory, chain 31337.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8545)),
            data_dir: PathBuf::from("devchain"),
            chain_id: DEFAULT_CHAIN_ID,
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
    let Config { listen, data_dir, chain_id } = config;
    let bind_error = |source| Error::Bind { addr: listen, source };
    let listener = TcpListener::bind(listen).await.map_err(bind_error)?;
    let addr = listener.local_addr().map_err(bind_error)?;
    let path = data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || Node::open(&data_dir, chain_id)).await;
    let node = Arc::new(opened.map_err(|panic| Error::Replay { path, reason: panic.to_string() })??);
    {
        let head = node.chain().head().clone();
        tracing::warn!(%addr, chain_id, head = head.header.number, hash = %head.hash,
            "development chain: it must never hold real value; whoever reaches this port can mint gas");
    }
    if !addr.ip().is_loopback() {
        tracing::warn!(%addr, "the dev chain listens beyond this machine; use 127.0.0.1 unless that is meant");
    }
    let router = http::router(node.clone(), stop.clone());
    ready(addr);
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    // Even with a record in progress this waits for one disk write only.
    let closed = node.close();
    served.and(closed).map_err(|source| Error::Serve { addr, source })
}
