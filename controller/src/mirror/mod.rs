//! The mirror: what happened on chain, into the log, once it is final.
//!
//! Polling is the truth. A block is linked to the one below by its parent's hash and its receipts are asked by its own
//! hash, so that two forks never mix; its header says whether they are whole. Far behind it is the same, only many blocks
//! at a time. Above the last final block everything stands in a [`Window`] and in rows marked
//! as not final; below it nothing changes, and if it does, the log is told that the chain broke.

pub mod chain;
pub mod check;
mod far;
mod follow;
pub mod pool;
mod source;
#[cfg(test)]
mod tests;
mod window;

use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use selion_market::state::BlockRef;
use sqlx::SqlitePool;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use follow::{Finality, Follower, MirrorError, Pass};
pub use source::{At, ChainSource, Log, SourceError};
pub use window::{Header, Seen, Verdict, Window};

/// Longest pause between tries while the chain is out of reach.
const SLOWEST: Duration = Duration::from_secs(10);

/// Where the mirror stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Highest block seen.
    pub seen: u64,
    /// Highest final block that was dealt with.
    pub settled: u64,
    /// True while the chain answers and nothing is wrong with it.
    pub reachable: bool,
    /// True once the mirror has dealt with everything final that there was at some pass.
    pub caught_up: bool,
    /// What is wrong, for people; `None` if nothing is.
    pub trouble: Option<String>,
    /// Since when something is wrong.
    pub troubled_at: Option<Instant>,
    /// When the chain last had a block that was new here.
    pub newest_at: Option<Instant>,
}

impl Status {
    /// How long the chain has not answered as it should; `None` if it does.
    #[must_use]
    pub fn silent_for(&self) -> Option<Duration> {
        self.troubled_at.map(|at| at.elapsed())
    }

    /// Blocks between the newest that was seen and the last final one that was dealt with; `None` while the chain does
    /// not answer, as nobody knows then.
    #[must_use]
    pub fn lag(&self) -> Option<u64> {
        self.trouble.is_none().then(|| self.seen.saturating_sub(self.settled))
    }
}

/// Handle to the running mirror.
#[derive(Clone, Default)]
pub struct Mirror {
    status: Arc<RwLock<Status>>,
    nudge: Arc<Notify>,
}

impl Mirror {
    /// A handle whose mirror has not run yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the mirror stands.
    #[must_use]
    pub fn status(&self) -> Status {
        // A writer cannot panic while it holds the lock: it only assigns.
        self.status.read().map(|status| status.clone()).unwrap_or_default()
    }

    /// As after a pass that failed.
    #[cfg(test)]
    pub(crate) fn fail(&self, error: MirrorError) {
        self.note(Err(error));
    }

    /// Looks at the chain at once, as after a transaction of our own was mined.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// Follows the chain until `stop`, asking for news every `poll`. A chain out of reach only slows it down; it
    /// recovers by itself.
    ///
    /// # Errors
    ///
    /// When the store cannot be read at the start.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a loop runs on, joined in one place; none of it belongs together"
    )]
    pub async fn run(
        &self,
        source: Arc<dyn ChainSource>,
        log: Arc<dyn Log>,
        db: SqlitePool,
        finality: Finality,
        birth: BlockRef,
        poll: Duration,
        stop: CancellationToken,
    ) -> sqlx::Result<()> {
        let mut follower = Follower::open(source, log, db, finality, birth).await?;
        let mut pause = poll;
        loop {
            let outcome = follower.pass().await;
            pause = match &outcome {
                Ok(pass) if pass.more => Duration::ZERO,
                Ok(_) | Err(MirrorError::Inconsistent(_)) => poll,
                // A changed final block is looked at again soon: the log is told after the third look.
                Err(MirrorError::Broken { .. }) => poll.max(pause).min(SLOWEST),
                Err(_) => (pause.max(poll) * 2).min(SLOWEST),
            };
            self.note(outcome);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
                () = self.nudge.notified() => {}
            }
        }
    }

    /// Keeps what a pass said, and says it once.
    fn note(&self, outcome: Result<Pass, MirrorError>) {
        let Ok(mut status) = self.status.write() else {
            return;
        };
        match outcome {
            Ok(pass) => {
                if let Some(trouble) = status.trouble.take() {
                    tracing::info!(after = trouble, "the chain answers again");
                }
                status.troubled_at = None;
                if pass.seen > status.seen || status.newest_at.is_none() {
                    status.newest_at = Some(Instant::now());
                }
                status.seen = pass.seen;
                status.settled = pass.settled;
                status.reachable = true;
                status.caught_up |= !pass.more;
            }
            // A node switch: no trouble unless it stays.
            Err(error @ MirrorError::Inconsistent(_)) => tracing::debug!(%error, "reading again"),
            Err(error) => {
                let trouble = error.to_string();
                if status.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(%error, "the mirror waits; it tries again by itself");
                }
                status.reachable = false;
                status.troubled_at.get_or_insert_with(Instant::now);
                status.trouble = Some(trouble);
            }
        }
    }
}
