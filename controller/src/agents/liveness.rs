//! Who fell silent. Heartbeats are no inputs; a *change* of liveness is, once an outage, with the number of the node's
//! last report in the log: the evidence up to which it is billed.

use std::time::Duration;

use selion_api::agent::SILENCE_MS;
use selion_api::{NodeId, Reason};
use selion_market::Input;
use tokio::time::Instant;
use tracing::{error, warn};

use super::core::read;
use super::hub::Inner;
use super::registry::{Handle, Reach};

/// How often nodes are looked at.
pub(super) const SWEEP: Duration = Duration::from_millis(250);
/// How long a closed link may take to come back. It was closed by the machine of an agent that ended or was killed, so the
/// machine is there: its commands run on, and the agent that is started again takes them up.
pub(super) const RECONNECT: Duration = Duration::from_secs(5);
/// How long agents have to come back after a start of the controller.
pub(super) const FRESH: Duration = Duration::from_secs(10);
/// A sweep that comes this late was held up with the whole process: nobody was read meanwhile, so nobody was silent.
const HELD_UP: Duration = Duration::from_secs(1);

/// What the sweeper remembers between sweeps.
pub(super) struct Sweeper {
    last: Instant,
    /// Before this nobody is lost.
    mercy: Instant,
    /// When this process began: nodes that never linked to it are lost after [`FRESH`].
    began: Instant,
}

impl Sweeper {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, mercy: now, began: now }
    }

    /// One pass at `now`: enters `Lost` for every node that State has as linked and that is not there. A pass takes no hint,
    /// so it may be repeated or skipped.
    pub(super) async fn sweep(&mut self, inner: &Inner, now: Instant) {
        if now.duration_since(self.last) > SWEEP + HELD_UP {
            self.mercy = now + Duration::from_millis(SILENCE_MS);
        }
        self.last = now;
        let nodes = read(inner.core.as_ref(), |state| {
            let linked = state.nodes.iter().filter(|(_, node)| node.linked);
            linked.map(|(id, _)| *id).collect::<Vec<_>>()
        });
        for link in inner.registry.links() {
            if nodes.binary_search(&link.node).is_err() {
                close_unlinked(inner, &link);
            }
        }
        if now < self.mercy {
            return;
        }
        let lost = nodes.into_iter().filter(|node| self.is_lost(inner, *node, now));
        let entered = futures::future::join_all(lost.map(|node| self.lose(inner, node, now))).await;
        if entered.contains(&Entered::Unwritable) {
            // Agents may have lost their links to the same trouble: they get the time that they have after a start.
            self.mercy = now + FRESH;
        }
    }

    fn is_lost(&self, inner: &Inner, node: NodeId, now: Instant) -> bool {
        match inner.registry.reach(node) {
            Reach::Link(link) => link.silence(now) > Duration::from_millis(SILENCE_MS),
            Reach::Gone(at) => now.saturating_duration_since(at) > RECONNECT,
            Reach::Never => now.saturating_duration_since(self.began) > FRESH,
        }
    }

    async fn lose(&self, inner: &Inner, node: NodeId, now: Instant) -> Entered {
        let gate = inner.registry.gate(node);
        // Held: the node's hello or its loss is being entered right now; the next sweep looks again.
        let Ok(_held) = gate.try_lock() else { return Entered::Not };
        let last_seq = read(inner.core.as_ref(), |state| {
            let node = state.nodes.get(&node)?;
            node.linked.then_some(node.last_seq)
        });
        let Some(last_seq) = last_seq.filter(|_| self.is_lost(inner, node, now)) else {
            return Entered::Not;
        };
        warn!(%node, last_seq, "node fell silent; entering it as lost");
        match inner.core.submit(Input::Lost { node, last_seq }).await {
            Ok(_) => inner.counts.lost(),
            Err(error) => {
                error!(%node, %error, "a lost node could not be entered; a later sweep tries again");
                return Entered::Unwritable;
            }
        }
        if let Some(link) = inner.registry.link(node) {
            let detail = format!("nothing came for {SILENCE_MS} ms: connect again");
            link.close(Some((Reason::NodeLost, detail)));
        }
        Entered::Yes
    }
}

/// What became of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    /// It is in the log.
    Yes,
    /// It was none, or somebody else enters something of the node just now.
    Not,
    /// The log could not be written.
    Unwritable,
}

/// Closes a link whose node State has as not linked, after another look: only a new hello can link it again.
fn close_unlinked(inner: &Inner, link: &Handle) {
    let gate = inner.registry.gate(link.node);
    let Ok(_held) = gate.try_lock() else { return };
    let linked = read(inner.core.as_ref(), |state| state.nodes.get(&link.node).is_some_and(|node| node.linked));
    if !linked {
        link.close(None);
    }
}
