//! What the controller does by itself: signs vouchers, anchors the log, claims, keeps its registration, and
//! sends all of that from one outbox. Each loop compares what should be with what is; see [`drive()`].

pub mod alive;
pub mod anchors;
pub mod chain;
pub mod claims;
mod drive;
pub mod kept;
#[cfg(test)]
mod live;
pub mod outbox;
pub mod outlived;
pub mod registry;
pub mod sender;
#[cfg(test)]
mod tests;
pub mod vouchers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use selion_api::TimeMs;
use selion_api::agent::Fence;
use selion_api::chain::ComponentKind;
use selion_contracts::{BlockTag, Pool};
use selion_market::Effect;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use drive::drive;

use crate::keys::Keys;
use crate::mirror::Mirror;
use crate::sequencer::{Batch, Sequencer};
use crate::store::Store;
use outbox::{Desk, Outbox};
use sender::Sender;
use vouchers::Office;

/// How often the outbox looks what became of its transactions.
const SEND_EVERY: Duration = Duration::from_millis(500);
/// How often due vouchers are looked for, beside every commit that makes one due.
const SIGN_EVERY: Duration = Duration::from_secs(5);
/// How often the controller's registration is looked at.
const REGISTER_EVERY: Duration = Duration::from_secs(60);
const LOOK_ALIVE_EVERY: Duration = Duration::from_secs(60);

/// A loop that can be asked to do its work at once.
#[derive(Clone, Default)]
pub struct Asked {
    nudge: Arc<Notify>,
    at_once: Arc<AtomicBool>,
}

impl Asked {
    /// Asks for the work to be done now, whatever the interval says.
    pub fn now(&self) {
        self.at_once.store(true, Ordering::Release);
        self.nudge.notify_one();
    }

    fn take(&self) -> bool {
        self.at_once.swap(false, Ordering::AcqRel)
    }
}

/// What the loops work with.
#[derive(Clone)]
pub struct Parts {
    /// Tables.
    pub store: Store,
    /// The log.
    pub log: Sequencer,
    /// Secrets.
    pub keys: Arc<Keys>,
    /// The pool's contracts.
    pub pool: Pool,
    /// The authority's transactions.
    pub sender: Arc<dyn Sender>,
    /// Knows which block is final.
    pub mirror: Mirror,
    /// The fence that this process opened.
    pub fence: Fence,
    /// Between two anchors, in milliseconds.
    pub anchor_ms: u64,
    /// What makes a claim due.
    pub claims: claims::choice::Rules,
    /// Whether every node that the log holds as linked is linked to this process. Before that an agent may still show
    /// that this log is a restored copy, and an anchor of it could not be taken back.
    pub agents_back: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Where others reach this controller; `None`: not registered.
    pub public_url: Option<String>,
    /// Wakes the loop that sends.
    pub outbox: Arc<Notify>,
    /// The time.
    pub clock: fn() -> TimeMs,
}

impl Parts {
    fn office(&self) -> Office {
        Office { fence: self.fence, authority: self.keys.authority(), delegate: self.keys.delegate() }
    }
}

/// The running loops.
pub struct Loops {
    /// Anchors the newest head.
    pub anchors: Asked,
    /// Claims everything that is signed.
    pub claims: Asked,
    /// Changes whenever vouchers were signed: time to deliver.
    pub signed: watch::Receiver<u64>,
    /// End with the token that they were started with.
    pub tasks: JoinSet<()>,
}

impl Loops {
    /// Starts every loop; they end with `stop`.
    #[must_use]
    pub fn start(parts: &Parts, stop: &CancellationToken) -> Self {
        let (told, signed) = watch::channel(0);
        let mut loops = Self { anchors: Asked::default(), claims: Asked::default(), signed, tasks: JoinSet::new() };
        let wake = Wake {
            vouchers: Arc::default(),
            anchors: loops.anchors.clone(),
            // A start is news: its `Opened` and whatever the last process did not anchor.
            news: Arc::new(AtomicU64::new(parts.log.read(|state| state.next_seq))),
            claims: loops.claims.clone(),
            urgent: claims::Urgent::default(),
            outbox: parts.outbox.clone(),
        };
        let signer = parts.sender.address();
        let desk = Desk::new(parts.store.writer.clone(), signer, wake.outbox.clone());
        loops.tasks.spawn(watch_batches(parts.log.clone(), wake.clone(), stop.clone()));
        loops.tasks.spawn(run_vouchers(parts.clone(), wake.clone(), told, stop.clone()));
        loops.tasks.spawn(run_anchors(parts.clone(), wake.clone(), desk.clone(), stop.clone()));
        loops.tasks.spawn(run_claims(parts.clone(), wake.clone(), desk.clone(), stop.clone()));
        loops.tasks.spawn(run_outbox(parts.clone(), wake.clone(), stop.clone()));
        loops.tasks.spawn(run_alive(parts.clone(), desk.clone(), stop.clone()));
        if let Some(url) = parts.public_url.clone() {
            loops.tasks.spawn(run_registry(parts.clone(), url, desk, stop.clone()));
        }
        loops
    }
}

/// What wakes whom.
#[derive(Clone)]
struct Wake {
    vouchers: Arc<Notify>,
    anchors: Asked,
    /// So many entries, the last of which is worth an anchor.
    news: Arc<AtomicU64>,
    claims: Asked,
    urgent: claims::Urgent,
    outbox: Arc<Notify>,
}

impl Wake {
    fn all(&self, size: u64) {
        self.news.fetch_max(size, Ordering::AcqRel);
        self.vouchers.notify_one();
        self.claims.nudge.notify_one();
    }

    fn batch(&self, batch: &Batch) {
        for step in &batch.steps {
            if anchors::is_news(step) {
                self.news.fetch_max(step.seq + 1, Ordering::AcqRel);
            }
            if let Some(told) = claims::urgent(step) {
                self.urgent.add(told);
                self.claims.nudge.notify_one();
            }
            let effects = &step.outcome.effects;
            if effects.iter().any(|effect| matches!(effect, Effect::VoucherDue(_))) {
                self.vouchers.notify_one();
            }
        }
    }
}

async fn watch_batches(log: Sequencer, wake: Wake, stop: CancellationToken) {
    let mut batches = log.subscribe();
    loop {
        let batch = tokio::select! {
            () = stop.cancelled() => return,
            batch = batches.recv() => batch,
        };
        match batch {
            Ok(batch) => wake.batch(&batch),
            // What was missed is found by a pass, which asks nobody what changed.
            Err(RecvError::Lagged(_)) => wake.all(log.read(|state| state.next_seq)),
            Err(RecvError::Closed) => return,
        }
    }
}

async fn run_vouchers(parts: Parts, wake: Wake, told: watch::Sender<u64>, stop: CancellationToken) {
    let (memory, told) = (Arc::new(Mutex::new(vouchers::Vouchers::default())), Arc::new(told));
    drive("vouchers", SIGN_EVERY, wake.vouchers, stop, move || {
        let (parts, memory, told) = (parts.clone(), memory.clone(), told.clone());
        async move {
            let read = |look: &mut dyn FnMut(&selion_market::State)| parts.log.read(look);
            let mut memory = memory.lock().await;
            let (office, pool, now) = (parts.office(), &parts.pool, (parts.clock)());
            let report = memory.pass(&parts.store, read, &office, &parts.keys, pool, now).await?;
            if report.signed > 0 {
                told.send_modify(|count| *count = count.wrapping_add(1));
            }
            Ok::<_, sqlx::Error>(report)
        }
    })
    .await;
}

async fn run_anchors(parts: Parts, wake: Wake, desk: Desk, stop: CancellationToken) {
    let (asked, news) = (wake.anchors.clone(), wake.news.clone());
    let interval = Duration::from_millis(parts.anchor_ms.max(1));
    drive("anchors", interval, wake.anchors.nudge, stop, move || {
        let (parts, desk) = (parts.clone(), desk.clone());
        let (asked, news) = (asked.clone(), news.clone());
        async move {
            if !(parts.agents_back)() {
                return Ok(None);
            }
            let anchored = parts.log.read(|state| state.pool.as_ref().map_or(0, |pool| pool.anchored));
            let want = if asked.take() { u64::MAX } else { news.load(Ordering::Acquire) };
            let (office, now) = (parts.office(), (parts.clock)());
            anchors::pass(&parts.store, anchored, want, &office, &desk, &parts.pool, now).await
        }
    })
    .await;
}

async fn run_claims(parts: Parts, wake: Wake, desk: Desk, stop: CancellationToken) {
    let memory = Arc::new(Mutex::new(claims::Claims::default()));
    let (asked, urgent) = (wake.claims.clone(), wake.urgent.clone());
    let interval = Duration::from_millis(parts.claims.claim_ms.clamp(1, 5_000));
    drive("claims", interval, wake.claims.nudge, stop, move || {
        let (parts, memory, desk) = (parts.clone(), memory.clone(), desk.clone());
        let (asked, urgent) = (asked.clone(), urgent.clone());
        async move {
            let mut told = urgent.take();
            told.all |= asked.take();
            let read = |look: &mut dyn FnMut(&selion_market::State)| parts.log.read(look);
            let mut memory = memory.lock().await;
            let signing = claims::Signing { keys: &parts.keys, epoch: parts.fence.epoch, pool: &parts.pool };
            let when = claims::When { rules: parts.claims, told: told.clone(), now: (parts.clock)() };
            let outcome = memory.pass(&parts.store, read, &desk, &signing, when).await;
            if outcome.is_err() {
                urgent.add(told);
            }
            outcome
        }
    })
    .await;
}

async fn run_outbox(parts: Parts, wake: Wake, stop: CancellationToken) {
    let outbox = Outbox::new(parts.store.writer.clone(), parts.sender.clone());
    let outbox = Arc::new(Mutex::new(outbox));
    let claims = wake.claims.nudge;
    drive("outbox", SEND_EVERY, wake.outbox, stop, move || {
        let (parts, outbox, claims) = (parts.clone(), outbox.clone(), claims.clone());
        async move {
            let settled = parts.mirror.status().settled;
            let done = |order: &crate::store::outbox::Order| parts.log.read(|state| anchors::superseded(state, order));
            let report = outbox.lock().await.pass((parts.clock)(), settled, done).await?;
            if report.mined > 0 {
                parts.mirror.nudge();
            }
            if report.over > 0 {
                // A claim may have waited for the one before it.
                claims.notify_one();
            }
            Ok::<_, outbox::OutboxError>(report)
        }
    })
    .await;
}

async fn run_alive(parts: Parts, desk: Desk, stop: CancellationToken) {
    drive("alive", LOOK_ALIVE_EVERY, Arc::default(), stop, move || {
        let (parts, desk) = (parts.clone(), desk.clone());
        async move {
            let terms = parts.pool.terms(BlockTag::Latest).await.map_err(|error| error.to_string())?;
            let head = parts.pool.head(BlockTag::Latest).await.map_err(|error| error.to_string())?;
            let now = (parts.clock)();
            let due = head.epoch == parts.fence.epoch && alive::is_due(head.seen, terms.take_over_after_s, now);
            alive::pass(due, &desk, &parts.pool, now).await.map_err(|error| error.to_string())
        }
    })
    .await;
}

async fn run_registry(parts: Parts, url: String, desk: Desk, stop: CancellationToken) {
    drive("registry", REGISTER_EVERY, Arc::default(), stop, move || {
        let (parts, url, desk) = (parts.clone(), url.clone(), desk.clone());
        async move {
            let owner = parts.keys.authority();
            let on_chain = parts.pool.component(owner, ComponentKind::Controller, BlockTag::Latest);
            let on_chain = on_chain.await.map_err(|error| error.to_string())?;
            let now = (parts.clock)();
            let current = registry::is_current(on_chain.as_ref(), &url, now);
            let ordered = registry::pass(current, &url, &desk, &parts.pool, now).await;
            ordered.map_err(|error| error.to_string())
        }
    })
    .await;
}
