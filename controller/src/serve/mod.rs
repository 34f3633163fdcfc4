//! The TCP door under the REST surface: who may hold a connection, and for how long without saying or taking anything.
//!
//! A request's head must come whole within a time, an open request's body must go on, and an answer must be taken; an
//! idle connection counts as one that sends no head. So no connection is held for nothing, and [`Peers`] bounds those
//! that are held. `docs/adr/0022-the-door.md` says why each limit is what it is.

mod files;
mod io;
mod peers;
#[cfg(test)]
mod tests;

use std::io::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower_http::timeout::TimeoutBody;

use crate::config::ServingConfig;
use crate::held::Held;

pub use files::raise_file_limit;
use io::Watched;
use peers::{Connection, Peers};

/// Most bytes that the server buffers of a connection in each direction; a request's head must fit.
const BUFFER: usize = 64 << 10;
/// Pause after the system refused a connection, as when no file descriptor is left.
const RECOVER: Duration = Duration::from_millis(50);
/// File descriptors that connections leave to the database, the content store and the chain.
const FILES_KEPT: u64 = 512;

/// Answers on `listener` until `stop`; then open requests are answered and their connections closed. Whoever does not
/// want to wait for the slowest of them drops the future.
pub async fn serve(listener: TcpListener, router: Router, config: &ServingConfig, stop: CancellationToken) {
    let all = usize::try_from(raise_file_limit().saturating_sub(FILES_KEPT)).unwrap_or(usize::MAX).max(1);
    let peers = Peers::new(config.connections.min(all), config.connections_per_address);
    let door = Arc::new(Door { router, config: config.clone(), stop: stop.clone() });
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        match accepted {
            Ok((stream, address)) => {
                if let Some(connection) = peers.admit(address.ip()) {
                    tasks.spawn(door.clone().hold(stream, address, connection));
                }
            }
            Err(error) => {
                recover(&peers, &error);
                tokio::time::sleep(RECOVER).await;
            }
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// The system gave no connection. If its tables are full, one that idles makes room.
fn recover(peers: &Peers, error: &Error) {
    let gone = [std::io::ErrorKind::ConnectionAborted, std::io::ErrorKind::ConnectionReset];
    if !gone.contains(&error.kind()) {
        tracing::warn!(%error, "a connection could not be taken; one that idles is closed for it");
        peers.close_one();
    }
}

/// What every connection is served with.
struct Door {
    router: Router,
    config: ServingConfig,
    stop: CancellationToken,
}

impl Door {
    /// Serves one connection to its end.
    async fn hold(self: Arc<Self>, stream: TcpStream, address: SocketAddr, connection: Connection) {
        // A line of a stream is worth more than a full packet; a socket that refuses this still works.
        let _ = stream.set_nodelay(true);
        let closing = connection.closing();
        let stream = Watched::new(stream, Duration::from_millis(self.config.write_ms), connection.clone());
        let service = hyper::service::service_fn({
            let door = self.clone();
            move |request| door.clone().answer(request, address, connection.clone())
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_millis(self.config.head_ms))
            .max_buf_size(BUFFER)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut serving = std::pin::pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = closing.cancelled() => return,
            () = self.stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%address, %error, "a connection ended");
        }
    }

    /// Answers one request. The connection counts as busy until its answer went out whole.
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        address: SocketAddr,
        connection: Connection,
    ) -> Result<axum::http::Response<Body>, std::convert::Infallible> {
        let busy = connection.busy();
        let wait = Duration::from_millis(self.config.body_ms);
        let mut request = request.map(|body| Body::new(TimeoutBody::new(wait, body)));
        request.extensions_mut().insert(ConnectInfo(address));
        let response = self.router.clone().oneshot(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // What it became lives as long as its socket.
            busy.for_good();
            return Ok(response);
        }
        Ok(response.map(|body| Held::body(body, busy)))
    }
}
