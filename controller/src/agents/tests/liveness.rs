//! When a node is lost: `now` is handed in, so these take no time.

use std::sync::Arc;
use std::time::Duration;

use selion_api::agent::SILENCE_MS;
use tokio::time::Instant;

use super::super::hub::Hub;
use super::super::liveness::{FRESH, RECONNECT, SWEEP, Sweeper};
use super::super::logs::{Limits, Logs};
use super::super::registry::Handle;
use super::fake::Fake;
use super::key::Key;
use super::world::{POOL, PROVIDER, register, spec};

struct Pool {
    core: Arc<Fake>,
    hub: Hub,
    key: Key,
    sweeper: Sweeper,
    now: Instant,
    _dir: tempfile::TempDir,
}

impl Pool {
    /// A pool whose State has the node as linked, as after a restart.
    fn new() -> Self {
        let core = Fake::new();
        let key = Key::new(7);
        register(&core, &spec(key.node()));
        {
            let mut state = core.state.lock().unwrap();
            let node = state.nodes.get_mut(&key.node()).unwrap();
            node.linked = true;
            node.last_seq = 41;
        }
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::open(dir.path(), Limits::default()).unwrap();
        let hub = Hub::new(Arc::clone(&core) as _, POOL, logs);
        let now = Instant::now();
        Self { core, hub, key, sweeper: Sweeper::new(now), now, _dir: dir }
    }

    fn link(&self) -> Arc<Handle> {
        let link = Handle::new(self.key.node(), PROVIDER, self.now);
        self.hub.inner().registry.enter(&link, selion_api::Hash32::ZERO);
        link
    }

    /// Sweeps until the node is lost, at most for `most`; how long that took.
    async fn until_lost(&mut self, most: Duration) -> Option<Duration> {
        let began = self.now;
        while self.now - began <= most {
            self.now += SWEEP;
            self.sweeper.sweep(self.hub.inner(), self.now).await;
            if !self.core.losses().is_empty() {
                return Some(self.now - began);
            }
        }
        None
    }
}

#[tokio::test]
async fn a_silent_node_is_lost_within_three_seconds_once_with_its_last_report_as_evidence() {
    let mut pool = Pool::new();
    let link = pool.link();
    link.saw(pool.now);
    let took = pool.until_lost(Duration::from_secs(10)).await.unwrap();
    assert!(took > Duration::from_millis(SILENCE_MS), "{took:?}");
    assert!(took <= Duration::from_millis(2_500), "{took:?}");
    for _ in 0..40 {
        pool.now += SWEEP;
        pool.sweeper.sweep(pool.hub.inner(), pool.now).await;
    }
    assert_eq!(pool.core.losses(), [(pool.key.node(), 41)]);
}

#[tokio::test]
async fn a_node_that_says_something_every_half_second_is_never_lost() {
    let mut pool = Pool::new();
    let link = pool.link();
    for _ in 0..200 {
        pool.now += SWEEP;
        link.saw(pool.now - Duration::from_millis(500).min(SWEEP));
        pool.sweeper.sweep(pool.hub.inner(), pool.now).await;
    }
    assert!(pool.core.losses().is_empty());
}

#[tokio::test]
async fn a_closed_link_may_come_back_within_seconds_and_is_lost_after_them() {
    let mut pool = Pool::new();
    let link = pool.link();
    pool.hub.inner().registry.leave(&link, pool.now);
    pool.now += SWEEP;
    pool.sweeper.sweep(pool.hub.inner(), pool.now).await;
    let link = pool.link();
    assert_eq!(pool.until_lost(SWEEP).await, None);
    pool.hub.inner().registry.leave(&link, pool.now);
    let took = pool.until_lost(2 * RECONNECT).await.unwrap();
    assert!(took > RECONNECT && took <= RECONNECT + 2 * SWEEP, "{took:?}");
}

#[tokio::test]
async fn after_a_restart_nodes_have_ten_seconds_to_come_back() {
    let mut pool = Pool::new();
    let took = pool.until_lost(Duration::from_secs(30)).await.unwrap();
    assert!(took > FRESH && took <= FRESH + 2 * SWEEP, "{took:?}");
}

#[tokio::test]
async fn a_controller_that_was_held_up_blames_no_node() {
    let mut pool = Pool::new();
    let link = pool.link();
    pool.now += SWEEP;
    pool.sweeper.sweep(pool.hub.inner(), pool.now).await;
    // The whole process stood still for a minute: the agent's heartbeats wait in the socket.
    pool.now += Duration::from_secs(60);
    pool.sweeper.sweep(pool.hub.inner(), pool.now).await;
    assert!(pool.core.losses().is_empty());
    link.saw(pool.now);
    assert_eq!(pool.until_lost(Duration::from_millis(1_500)).await, None);
}

#[tokio::test]
async fn a_link_of_a_node_that_the_log_has_as_lost_is_closed_so_that_it_says_hello_again() {
    let mut pool = Pool::new();
    let link = pool.link();
    {
        let mut state = pool.core.state.lock().unwrap();
        state.nodes.get_mut(&pool.key.node()).unwrap().linked = false;
    }
    pool.now += SWEEP;
    pool.sweeper.sweep(pool.hub.inner(), pool.now).await;
    let nudge = link.nudged().await;
    assert!(matches!(nudge, super::super::registry::Nudge::Close(None)));
}
