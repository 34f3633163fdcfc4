//! The agent's side of the socket.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use selion_api::{Amount, NodeSpec};
use selion_contracts::{BlockTag, Pool};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::{Board, Claimed, Earnings, SOCKET, Status};
use crate::book::Book;
use crate::cards::Cards;
use crate::courier::now;
use crate::gpus::Gpus;
use crate::guard::{self, Guard};
use crate::staging::blocking;

/// Longest wait for the chain.
const CHAIN: Duration = Duration::from_secs(3);
/// Longest time that an answer may take to leave: the next one waits behind it.
const SEND: Duration = Duration::from_secs(5);
/// Between two tries, if the system gives no connection.
const PAUSE: Duration = Duration::from_secs(1);

/// What an answer is made of.
pub(crate) struct Desk {
    pub(crate) board: Arc<Board>,
    pub(crate) book: Arc<Book>,
    pub(crate) gpus: Arc<Mutex<Box<dyn Gpus>>>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) spec: NodeSpec,
    pub(crate) cards: Cards,
    pub(crate) controller: String,
    pub(crate) chain_rpc: String,
    pub(crate) pool: OnceCell<Pool>,
}

/// The path of the socket through an open folder: one of a socket's own may have 107 bytes at most.
pub(super) fn by(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Makes the socket in the state directory, whose lock the caller holds.
///
/// # Errors
///
/// The system's.
pub(crate) fn listen(dir: &Path) -> io::Result<UnixListener> {
    let path = dir.join(SOCKET);
    match fs::remove_file(&path) {
        // That of an earlier life.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let folder = File::open(dir)?;
    let listener = UnixListener::bind(by(&folder))?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl Desk {
    /// Answers whoever connects, one at a time, for as long as the agent lives.
    pub(crate) async fn serve(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((asker, _)) => self.answer(asker).await,
                Err(error) => {
                    tracing::warn!(%error, "nobody can ask for the agent's status");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn answer(&self, mut asker: UnixStream) {
        let said = serde_json::json!(self.status().await).to_string();
        let sent = timeout(SEND, async {
            asker.write_all(said.as_bytes()).await?;
            asker.shutdown().await
        });
        // Whoever asked may be gone.
        let _ = sent.await;
    }

    async fn status(&self) -> Status {
        let (gpus, ids) = (Arc::clone(&self.gpus), self.spec.gpus.iter().map(|gpu| gpu.gpu).collect::<Vec<_>>());
        let readings = blocking(move || {
            let mut gpus = gpus.lock().unwrap_or_else(PoisonError::into_inner);
            ids.into_iter().map(|gpu| (gpu, gpus.read(gpu))).collect()
        });
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            since_ms: self.board.since,
            at_ms: now(),
            controller: crate::scrub::origin(&self.controller),
            link: self.board.link(),
            spec: self.spec.clone(),
            cards: self.cards.clone(),
            readings: readings.await,
            members: self.board.members(),
            earnings: self.earnings().await,
        }
    }

    async fn earnings(&self) -> Earnings {
        let book = Arc::clone(&self.book);
        let vouchers = blocking(move || book.all_vouchers()).await.unwrap_or_default();
        let promised = vouchers.iter().fold(Amount::ZERO, |sum, voucher| sum.saturating_add(voucher.cumulative));
        let claimed = timeout(CHAIN, self.claimed()).await.ok().flatten();
        Earnings { vouchers: vouchers.len(), promised, unsigned: self.guard.unsigned(), claimed }
    }

    async fn claimed(&self) -> Option<Claimed> {
        // Before the first link the state belongs to no pool.
        self.book.seen().pool?;
        let pool = self.pool.get_or_try_init(|| guard::open(&self.book, &self.chain_rpc)).await.ok()?;
        let totals = pool.totals(self.spec.provider, BlockTag::Latest).await.ok()?;
        Some(Claimed { earned: totals.earned, fee: totals.fee, paid_out: totals.paid_out })
    }
}
