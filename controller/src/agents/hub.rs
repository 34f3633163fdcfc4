//! The hub: every link, the log lines, and the one task that watches over them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures::Stream;
use selion_api::agent::MAX_TO_CONTROLLER;
use selion_api::commit::PoolId;
use selion_api::lease::LeaseState;
use selion_api::seal::SignedSealKey;
use selion_api::usage::Used;
use selion_api::{Account, LeaseId, NodeId};
use selion_market::{Effect, State};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::core::{Core, read};
use super::counts::{Bad, Counts, Live};
use super::link;
use super::liveness::{SWEEP, Sweeper};
use super::logs::{Begin, Kept, Logs};
use super::registry::{DESIRED, HEAD, Registry, SECRETS, VOUCHERS};
use super::roll::Roll;
use super::usage::Readings;
use crate::sequencer::Batch;

/// Sweeps between two looks at what changes slowly: the newest head, logs of leases that are over.
const SLOW: u32 = 4;

/// The links to all agents; cheap to clone.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub core: Arc<dyn Core>,
    pub pool: PoolId,
    pub registry: Registry,
    pub counts: Counts,
    pub logs: Logs,
    pub roll: Roll,
    pub readings: Readings,
}

impl Hub {
    /// A hub without links. [`run`](Self::run) must be running for nodes to be lost and changes to be sent.
    #[must_use]
    pub fn new(core: Arc<dyn Core>, pool: PoolId, logs: Logs) -> Self {
        let (registry, counts, roll) = (Registry::default(), Counts::default(), Roll::over());
        let readings = Readings::default();
        Self { inner: Arc::new(Inner { core, pool, registry, counts, logs, roll, readings }) }
    }

    /// From here on an agent's hello is judged and then waits: nothing is entered, and nothing is signed for it, before
    /// [`open`](Self::open).
    pub fn hold(&self) {
        self.inner.roll.begin();
    }

    /// Resolves when the agents of all nodes that State has as linked have said which head they were shown, or after
    /// `patience`: to the nodes whose agents have not. A head that our log does not have is a [`Claim`](super::Claim).
    pub async fn heard(&self, patience: Duration) -> Vec<NodeId> {
        let nodes: Vec<NodeId> = read(self.inner.core.as_ref(), |state| {
            state.nodes.iter().filter(|(_, node)| node.linked).map(|(id, _)| *id).collect()
        });
        self.inner.roll.call(&nodes, patience).await
    }

    /// Agents that wait are welcomed.
    pub fn open(&self) {
        self.inner.roll.end();
    }

    /// Answers an agent's upgrade request; the link then runs by itself.
    pub fn upgrade(&self, upgrade: WebSocketUpgrade) -> Response {
        let hub = self.clone();
        upgrade
            .max_message_size(MAX_TO_CONTROLLER)
            .max_frame_size(MAX_TO_CONTROLLER)
            .on_upgrade(move |socket| async move { hub.accept(socket).await })
    }

    /// Runs one link to its end: challenge, hello, reports, desired state.
    pub async fn accept(&self, socket: WebSocket) {
        link::run(Arc::clone(&self.inner), socket).await;
    }

    /// Watches over the links until `stop`, then closes them; agents reconnect to whoever comes next.
    pub async fn run(&self, stop: CancellationToken) {
        let inner = self.inner.as_ref();
        let mut batches = inner.core.batches();
        let mut sweeper = Sweeper::new(Instant::now());
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round = 0_u32;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {
                    sweeper.sweep(inner, Instant::now()).await;
                    round = round.wrapping_add(1);
                    if round.is_multiple_of(SLOW) {
                        inner.nudge_all(HEAD);
                        let core = inner.core.as_ref();
                        inner.logs.tend(|lease| read(core, |state| is_live(state, lease)));
                        inner.readings.tend(|run| read(core, |state| is_held(state, run)));
                        if let Err(error) = core.forget_secrets().await {
                            warn!(%error, "secrets of leases that are over could not be removed; the next round tries again");
                        }
                    }
                }
                batch = batches.recv() => match batch {
                    Ok(batch) => inner.pass_on(&batch),
                    Err(RecvError::Lagged(missed)) => {
                        warn!(missed, "the links fell behind the log; every node is sent its state again");
                        inner.nudge_all(DESIRED);
                    }
                    Err(RecvError::Closed) => break,
                },
            }
        }
        for link in inner.registry.links() {
            link.close(None);
        }
    }

    /// A voucher of this provider was signed: his agents are sent what they lack.
    pub fn vouchers_signed(&self, provider: Account) {
        for link in self.inner.registry.links() {
            if link.provider == provider {
                link.nudge(VOUCHERS);
            }
        }
    }

    /// To which key secrets are sealed for a node; `None` without a link.
    #[must_use]
    pub fn seal_key(&self, node: NodeId) -> Option<SignedSealKey> {
        self.inner.registry.link(node)?.seal_key()
    }

    /// Something was sealed for members of `lease`, or given to be sealed: their nodes are sent it.
    pub fn secrets_came(&self, lease: LeaseId) {
        self.inner.nudge_members(lease, SECRETS);
    }

    /// What is kept of what the members of a lease of `account` printed; then, if asked, what they print, until the lease
    /// has ended and all of it was given.
    pub async fn logs(
        &self,
        account: Account,
        lease: LeaseId,
        from: Begin,
        follow: bool,
    ) -> impl Stream<Item = Kept> + Send + use<> {
        let live = read(self.inner.core.as_ref(), |state| is_live(state, lease));
        self.inner.logs.follow(account, lease, from, follow, live).await
    }

    /// What a member uses in this run of it, as its node last told. `None` if it told nothing, and soon after the end.
    #[must_use]
    pub fn usage(&self, lease: LeaseId, attempt: u32, member: u16) -> Option<Used> {
        self.inner.readings.of((lease, attempt, member))
    }

    /// The links as they are now, for metrics.
    #[must_use]
    pub fn live(&self) -> Live {
        self.inner.counts.live(self.inner.registry.len())
    }

    /// True if the node has a link to this process.
    #[must_use]
    pub fn is_linked(&self, node: NodeId) -> bool {
        self.inner.registry.link(node).is_some()
    }

    /// How many messages were not taken for this cause.
    #[must_use]
    pub fn bad(&self, cause: Bad) -> u64 {
        self.inner.counts.of(cause)
    }

    #[cfg(test)]
    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

fn is_live(state: &State, lease: LeaseId) -> bool {
    let lease = state.leases.get(&lease);
    lease.is_some_and(|lease| lease.state != LeaseState::Ended)
}

/// Whether it is a run of a member of a live lease.
fn is_held(state: &State, (lease, attempt, member): (LeaseId, u32, u16)) -> bool {
    let found = state.leases.get(&lease).filter(|lease| lease.state != LeaseState::Ended);
    let member = found.and_then(|lease| lease.members.get(usize::from(member)));
    member.is_some_and(|member| member.attempt == attempt)
}

impl Inner {
    fn nudge_all(&self, what: u8) {
        for link in self.registry.links() {
            link.nudge(what);
        }
    }

    /// Makes the links of the nodes that hold members of `lease` look at this again.
    pub(super) fn nudge_members(&self, lease: LeaseId, what: u8) {
        let nodes = read(self.core.as_ref(), |state| {
            let members = state.leases.get(&lease).map(|lease| &lease.members[..]).unwrap_or_default();
            members.iter().map(|member| member.node).collect::<Vec<_>>()
        });
        for link in nodes.into_iter().filter_map(|node| self.registry.link(node)) {
            link.nudge(what);
        }
    }

    /// Wakes the links that a committed batch concerns.
    fn pass_on(&self, batch: &Batch) {
        for step in &batch.steps {
            for node in &step.outcome.touched.desired {
                if let Some(link) = self.registry.link(*node) {
                    link.nudge(DESIRED);
                }
            }
            for effect in &step.outcome.effects {
                if let Effect::Moved { lease, state: LeaseState::Ended, .. } = effect {
                    self.logs.finish(*lease);
                }
            }
        }
    }
}
