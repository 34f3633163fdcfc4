//! Which node is on which link, and since when a node without one is gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use selion_api::seal::SignedSealKey;
use selion_api::{Account, Hash32, NodeId, Reason};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::pace::Arrivals;

/// What a link has to look at again; a set of bits.
pub(super) const DESIRED: u8 = 1;
pub(super) const VOUCHERS: u8 = 2;
pub(super) const HEAD: u8 = 4;
pub(super) const SECRETS: u8 = 8;

/// Locks; a panic elsewhere leaves these maps whole, since each change is one statement.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The side of a link that others hold: it can be nudged and closed.
#[derive(Debug)]
pub(super) struct Handle {
    /// Whose link.
    pub node: NodeId,
    /// Who is paid for the node.
    pub provider: Account,
    born: Instant,
    seen_ms: AtomicU64,
    due: AtomicU8,
    nudge: Notify,
    closed: AtomicBool,
    why: Mutex<Option<(Reason, String)>>,
    /// To which secrets are sealed, as the node stated it.
    seal_key: Mutex<Option<SignedSealKey>>,
}

impl Handle {
    pub(super) fn new(node: NodeId, provider: Account, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            node,
            provider,
            born: now,
            seen_ms: AtomicU64::new(0),
            due: AtomicU8::new(0),
            nudge: Notify::new(),
            closed: AtomicBool::new(false),
            why: Mutex::new(None),
            seal_key: Mutex::new(None),
        })
    }

    /// To which key secrets of its members are sealed; `None` before it said so.
    pub(super) fn seal_key(&self) -> Option<SignedSealKey> {
        *lock(&self.seal_key)
    }

    /// The node stated this key, its signature checked.
    pub(super) fn seal_to(&self, key: SignedSealKey) {
        *lock(&self.seal_key) = Some(key);
        self.nudge(SECRETS);
    }

    /// Something came from the agent.
    pub(super) fn saw(&self, now: Instant) {
        let age = now.saturating_duration_since(self.born).as_millis();
        let age = u64::try_from(age).unwrap_or(u64::MAX);
        self.seen_ms.store(age, Ordering::Relaxed);
    }

    /// For how long nothing came.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        let seen = Duration::from_millis(self.seen_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(self.born).saturating_sub(seen)
    }

    /// Makes the link look at `what`.
    pub(super) fn nudge(&self, what: u8) {
        self.due.fetch_or(what, Ordering::AcqRel);
        self.nudge.notify_one();
    }

    /// Ends the link; with a reason, the agent is told.
    pub(super) fn close(&self, why: Option<(Reason, String)>) {
        *lock(&self.why) = why;
        self.closed.store(true, Ordering::Release);
        self.nudge.notify_one();
    }

    /// Resolves when there is something to look at, or the link is to end.
    pub(super) async fn nudged(&self) -> Nudge {
        self.nudge.notified().await;
        if self.closed.load(Ordering::Acquire) {
            return Nudge::Close(lock(&self.why).take());
        }
        Nudge::Look(self.due.swap(0, Ordering::AcqRel))
    }
}

/// Why a link woke up.
pub(super) enum Nudge {
    /// These bits are due.
    Look(u8),
    /// The link is to end; the agent is told why, if there is a reason.
    Close(Option<(Reason, String)>),
}

/// One node as the links see it.
struct Record {
    /// Taken while `Linked` or `Lost` of this node is being entered, so that the log has them in the order in which
    /// they were true.
    gate: Arc<tokio::sync::Mutex<()>>,
    link: Option<Arc<Handle>>,
    /// The agent's process behind the newest link.
    life: Option<Hash32>,
    gone: Option<Instant>,
    arrivals: Arrivals,
}

impl Record {
    fn new(now: Instant) -> Self {
        Self { gate: Arc::default(), link: None, life: None, gone: None, arrivals: Arrivals::new(now) }
    }
}

/// All nodes that were ever linked to this process.
#[derive(Default)]
pub(super) struct Registry {
    records: Mutex<BTreeMap<NodeId, Record>>,
}

/// How a node is reached now.
pub(super) enum Reach {
    /// There is a link.
    Link(Arc<Handle>),
    /// The link closed at that time.
    Gone(Instant),
    /// It never linked to this process.
    Never,
}

impl Registry {
    pub(super) fn gate(&self, node: NodeId) -> Arc<tokio::sync::Mutex<()>> {
        let mut records = lock(&self.records);
        Arc::clone(&records.entry(node).or_insert_with(|| Record::new(Instant::now())).gate)
    }

    /// Counts an arrival of the node.
    pub(super) fn arrive<R>(&self, node: NodeId, now: Instant, count: impl FnOnce(&mut Arrivals) -> R) -> R {
        count(&mut lock(&self.records).entry(node).or_insert_with(|| Record::new(now)).arrivals)
    }

    /// Whether the node's newest link was that of another process of its agent.
    pub(super) fn was_another_life(&self, node: NodeId, life: Hash32) -> bool {
        lock(&self.records).get(&node).and_then(|record| record.life).is_some_and(|before| before != life)
    }

    /// Makes `link`, of the process `life`, the node's link and returns the one before.
    pub(super) fn enter(&self, link: &Arc<Handle>, life: Hash32) -> Option<Arc<Handle>> {
        let mut records = lock(&self.records);
        let record = records.entry(link.node).or_insert_with(|| Record::new(Instant::now()));
        record.gone = None;
        record.life = Some(life);
        record.link.replace(Arc::clone(link))
    }

    /// The link ended. If it is still the node's link, the node is gone from now on.
    pub(super) fn leave(&self, link: &Arc<Handle>, now: Instant) {
        if let Some(record) = lock(&self.records).get_mut(&link.node)
            && record.link.as_ref().is_some_and(|held| Arc::ptr_eq(held, link))
        {
            record.link = None;
            record.gone = Some(now);
        }
    }

    pub(super) fn reach(&self, node: NodeId) -> Reach {
        match lock(&self.records).get(&node) {
            Some(Record { link: Some(link), .. }) => Reach::Link(Arc::clone(link)),
            Some(Record { gone: Some(at), .. }) => Reach::Gone(*at),
            _ => Reach::Never,
        }
    }

    pub(super) fn link(&self, node: NodeId) -> Option<Arc<Handle>> {
        lock(&self.records).get(&node)?.link.clone()
    }

    pub(super) fn links(&self) -> Vec<Arc<Handle>> {
        lock(&self.records).values().filter_map(|record| record.link.clone()).collect()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.records).values().filter(|record| record.link.is_some()).count()
    }
}
