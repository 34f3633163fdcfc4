//! A node as the chain has it, and a lease on it.

use std::sync::Arc;

use axum::Router;
use axum::extract::WebSocketUpgrade;
use axum::routing::get;
use selion_api::commit::{Overrides, PoolId, Root, Work};
use selion_api::lease::{LeaseRequest, LeaseState, OnNodeLoss, Priority};
use selion_api::slice::{GpuSpec, IsolationClass, NodeSpec, Sandbox};
use selion_api::{Account, Address, Amount, GpuId, Hash32, LeaseId, NodeId, Rate, Slot, TimeMs};
use selion_market::state::{Held, Progress};
use selion_market::{Lease, Member, Node};
use tokio_util::sync::CancellationToken;

use super::super::hub::Hub;
use super::super::logs::{Limits, Logs};
use super::fake::Fake;
use super::key::Key;

pub(super) const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([9; 20]) };
pub(super) const PROVIDER: Account = Account([5; 20]);
pub(super) const RENTER: Account = Account([6; 20]);
pub(super) const LEASE: LeaseId = LeaseId { seq: 4, index: 0 };
pub(super) const GPU: GpuId = GpuId([1; 16]);
pub(super) const SALT: Hash32 = Hash32([2; 32]);

/// The hub on a loopback port, its fake controller, and the key of a registered node.
pub(super) struct World {
    pub core: Arc<Fake>,
    pub hub: Hub,
    pub key: Key,
    pub url: String,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

impl World {
    /// Serves; the node of key 7 is registered and on offer.
    pub(super) async fn start() -> Self {
        let core = Fake::new();
        let key = Key::new(7);
        register(&core, &spec(key.node()));
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::open(dir.path(), Limits::default()).unwrap();
        let hub = Hub::new(Arc::clone(&core) as _, POOL, logs);
        let stop = CancellationToken::new();
        let url = serve(&hub, &stop).await;
        Self { core, hub, key, url, stop, _dir: dir }
    }
}

/// Runs the hub and serves it on a loopback port; tells its URL.
pub(super) async fn serve(hub: &Hub, stop: &CancellationToken) -> String {
    let (running, token) = (hub.clone(), stop.clone());
    tokio::spawn(async move { running.run(token).await });
    let route = hub.clone();
    let upgrade = move |upgrade: WebSocketUpgrade| async move { route.upgrade(upgrade) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let app = Router::new().route("/", get(upgrade));
    let done = stop.clone().cancelled_owned();
    let server = axum::serve(listener, app).with_graceful_shutdown(done);
    tokio::spawn(server.into_future());
    url
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A machine with one GPU.
pub(super) fn spec(node: NodeId) -> NodeSpec {
    NodeSpec {
        node,
        provider: PROVIDER,
        gpus: vec![GpuSpec {
            gpu: GPU,
            model: "H100 80GB".into(),
            mem_bytes: 80 << 30,
            work_milli: 2_000,
            simulated: true,
            whole: Some(Rate(1_000)),
            mig: None,
            share: None,
        }],
        cpu_milli: 8_000,
        ram_bytes: 64 << 30,
        address: "127.0.0.1".into(),
        port_base: 20_000,
        ports: 100,
        sandbox: Sandbox::None,
        features: selion_api::BoxFeatures::NONE,
        region: String::new(),
        rack: String::new(),
        disk_bytes: 0,
        net_mbps: 0,
    }
}

/// The node as a final block registered it and put it on offer.
pub(super) fn register(core: &Fake, spec: &NodeSpec) {
    let node = Node {
        provider: Some(spec.provider),
        blocked: None,
        rtt_us: None,
        staged: selion_market::staged::Staged::default(),
        offer: Some(spec.hash()),
        spec: None,
        linked: false,
        since: TimeMs(0),
        paused: false,
        reclaimed: std::collections::BTreeMap::new(),
        last_seq: 0,
        held: std::collections::BTreeMap::new(),
    };
    core.state.lock().unwrap().nodes.insert(spec.node, node);
}

/// What the lease runs.
pub(super) fn work() -> Work {
    Work {
        command: vec!["true".into()],
        env: Vec::new(),
        datasets: Vec::new(),
        network: selion_api::commit::Network::None,
        root: Root::Base,
        over: Overrides::default(),
        secrets: selion_api::commit::Expected::default(),
    }
}

/// A lease of one member on the node's GPU, being prepared.
pub(super) fn grant(core: &Fake, node: NodeId) {
    let commitment = work().commitment(&SALT);
    let request = LeaseRequest {
        renter: RENTER,
        idem: Hash32::ZERO,
        members: Vec::new(),
        min_members: 1,
        min_nodes: 1,
        within: selion_api::lease::Within::Pool,
        max_latency_us: None,
        regions: Vec::new(),
        max_rate: None,
        classes: 0x3f,
        needs: selion_api::BoxFeatures::NONE,
        duration_ms: 60_000,
        wait_ms: 0,
        on_node_loss: OnNodeLoss::End,
        priority: Priority::Standard,
        licence: None,
        work: commitment,
        datasets: Vec::new(),
        near_data: false,
    };
    let member = Member {
        attempt: 1,
        node,
        provider: PROVIDER,
        gpus: vec![GPU],
        slot: Slot::Whole,
        class: IsolationClass::Simulated,
        rate: Rate(1_000),
        port: 20_000,
        progress: Progress::Granted,
        since: None,
        billable_ms: 0,
        vouched: Amount(0),
        vouched_at: TimeMs(0),
        exit_code: None,
        outputs: None,
        away: 0,
    };
    let renter = request.renter;
    let lease = Lease {
        request,
        signed: false,
        size: selion_market::tally::Bundle::default(),
        created: TimeMs(0),
        state: LeaseState::Held,
        since: TimeMs(0),
        deadline: Some(TimeMs(10_000)),
        notice: None,
        broken: None,
        wait_until: TimeMs(0),
        reason: None,
        nearest: None,
        position: 0,
        attempt: 1,
        members: vec![member],
        reserved: Amount(0),
        granted: TimeMs(0),
        unpaid: Amount(0),
        active_since: None,
        fixed: Amount(0),
        requeue: false,
        past: Vec::new(),
        extended: Vec::new(),
    };
    let held = Held {
        renter,
        attempt: 1,
        gpus: vec![GPU],
        slot: Slot::Whole,
        beside: [500, 512 << 20, 0, 0],
        port: 20_000,
        licence: None,
    };
    let mut state = core.state.lock().unwrap();
    state.leases.insert(LEASE, lease);
    let holder = state.nodes.get_mut(&node).unwrap();
    holder.held.insert((LEASE, 0), held);
    let mut works = core.works.lock().unwrap();
    works.insert(commitment, (SALT, work()));
}
