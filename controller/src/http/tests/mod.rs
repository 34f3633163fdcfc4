//! The real router over the real sequencer and store, on a fixed clock. Only the chain and the agents are played.

mod auth;
mod client;
mod datasets;
mod devices;
mod door;
mod extend;
mod faults;
mod keys;
mod leases;
mod licences;
mod login;
mod named;
mod outputs;
mod positions;
mod promises;
mod registry;
mod relay;
mod said;
mod secrets;
mod streams;
mod tiles;
mod vectors;

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use selion_api::agent::{LogChunk, LogRecord};
use selion_api::chain::{Block, ChainEvent};
use selion_api::commit::PoolId;
use selion_api::rest::Terms;
use selion_api::slice::{GpuSpec, NodeSpec, Sandbox};
use selion_api::{Account, Address, Amount, GpuId, Hash32, NodeId, Rate, Signature, TimeMs};
use selion_contracts::Signer;
use selion_market::{Input, Policy};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::origin::Origin;
use super::pass::{Login, Logins, Pass, Scopes};
use super::said::Heard;
use super::{Caller, Metrics, Secrets, router};
use crate::App;
use crate::agents::logs::{Limits, Logs};
use crate::agents::{self, Hub};
use crate::config::Config;
use crate::ipfs::Ipfs;
use crate::mirror::Mirror;
use crate::pen::Pen;
use crate::registry::Registries;
use crate::relay::Relay;
use crate::sequencer::{Parts, Sequencer};
use crate::store::Store;

const NOW: TimeMs = TimeMs(1_800_000_000_000);
const ALICE: Account = Account([0xa1; 20]);
const BOB: Account = Account([0xb0; 20]);
const OWNER: Account = Account([0x0e; 20]);
const OPERATOR: Account = Account([0x09; 20]);
const NODE: NodeId = NodeId([0x4e; 20]);
const POOL: PoolId = PoolId { chain_id: 31337, controller: Address([1; 20]) };
const TERMS: Terms = Terms {
    fee_bps: 200,
    min_stake: Amount(1_000_000),
    unbond_s: 259_200,
    thaw_s: 3_600,
    grace_s: 7_200,
    finality_depth: Some(0),
    min_bond: Amount(0),
    hand_over_s: 259_200,
    take_over_after_s: 86_400,
    allow_simulated: true,
    allow_unsandboxed: true,
};

thread_local! {
    /// How much later it is than [`NOW`] for the test of this thread, in milliseconds.
    static LATER: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn clock() -> TimeMs {
    NOW.plus(LATER.get())
}

fn authority() -> Signer {
    Signer::from_bytes(&[0x05; 32]).unwrap()
}

/// A pool with one node of one whole simulated GPU, and money for Alice and Bob.
struct Pool {
    app: App,
    router: Router,
    logs: Logs,
    stop: CancellationToken,
    writer: tokio::task::JoinHandle<()>,
}

/// An answer, its body read.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Status and code of a problem.
    fn fault(&self) -> (u16, String) {
        let problem = self.json();
        assert_eq!(self.header("content-type"), "application/problem+json", "{problem}");
        assert_eq!(problem["status"], self.status.as_u16());
        assert!(problem["suggestion"].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
        (self.status.as_u16(), problem["code"].as_str().unwrap_or_default().to_owned())
    }
}

async fn pool() -> (TempDir, Pool) {
    LATER.set(0);
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::open(dir.path(), 100_000).await;
    pool.play_chain().await;
    (dir, pool)
}

impl Pool {
    async fn open(dir: &Path, requests_per_minute: u32) -> Self {
        let store = Store::open(dir).await.unwrap();
        let stop = CancellationToken::new();
        let parts = Parts {
            store: store.clone(),
            pool: POOL,
            epoch: 1,
            delegate: Address([2; 20]),
            policy: Policy::default(),
            sign: Arc::new(|head| authority().sign_text(&head.digest_to_sign(&POOL).0).unwrap()),
            clock,
        };
        let (log, writer) = Sequencer::start(parts, stop.clone()).await.unwrap();
        let secrets = Arc::new(Secrets::open(dir, &POOL).unwrap());
        let logs = Logs::open(dir, Limits::default()).unwrap();
        let content = selion_dataplane::Store::open(dir.join("content")).unwrap();
        let ipfs = Ipfs::new(content.clone(), None, false).unwrap();
        let links = agents::Parts {
            log: log.clone(),
            store: store.clone(),
            secrets: secrets.clone(),
            content: content.clone(),
            ipfs: ipfs.clone(),
            sign: Box::new(|text| authority().sign_text(text).unwrap()),
            clock,
            on_claim: Box::new(|claim| panic!("{claim:?}")),
        };
        let config =
            Config { data_dir: dir.to_owned(), requests_per_minute, operators: vec![OPERATOR], ..Config::default() };
        let logins = Logins::load(&store.readers, NOW).await.unwrap();
        let heard = Arc::new(Heard::load(&store.readers, &POOL, NOW).await.unwrap());
        let app = App {
            heard,
            names: Default::default(),
            origin: Arc::new(Origin::of(None, config.listen).unwrap()),
            logins: Arc::new(logins),
            config: Arc::new(config),
            pool: POOL,
            terms: TERMS,
            authority: authority().account(),
            pen: Arc::new(Pen::new(POOL, authority().account(), |text| authority().sign_text(text).unwrap())),
            delegate: Address([2; 20]),
            hub: Hub::new(Arc::new(links), POOL, logs.clone()),
            ipfs,
            registries: Registries::new(&Default::default()).unwrap(),
            content,
            metrics: Arc::new(Metrics::default()),
            mirror: Mirror::new(),
            relay: Relay::off(),
            store,
            log,
            secrets,
            clock,
        };
        Self { router: router(app.clone()), app, logs, stop, writer }
    }

    /// Ends this controller as a kill would, but waits until its files are free.
    async fn close(self) {
        self.stop.cancel();
        self.writer.await.unwrap();
        self.app.store.close().await;
    }

    async fn enter(&self, input: Input) {
        let step = self.app.log.submit(input, None).await.unwrap();
        assert!(!matches!(step.answer(), selion_market::Answer::Refused(_)), "{step:?}");
    }

    async fn play_chain(&self) {
        self.play_chain_of(spec()).await;
    }

    /// The same with this node.
    async fn play_chain_of(&self, spec: NodeSpec) {
        let fund = |renter| {
            let until = NOW.plus(1 << 40);
            [
                ChainEvent::Deposited { renter, amount: Amount(50_000_000) },
                ChainEvent::KeyGranted { renter, key: Address([2; 20]), cap: Amount(50_000_000), until },
            ]
        };
        let mut events = vec![
            ChainEvent::PoolOpened {
                token: Address([3; 20]),
                vault: Address([4; 20]),
                owner: Account([4; 20]),
                authority: authority().account(),
                fee_bps: 200,
                allow_simulated: true,
                allow_unsandboxed: true,
                finality_depth: 0,
                min_stake: Amount(0),
            },
            ChainEvent::ProviderRegistered { provider: OWNER, payout: Address(OWNER.0), stake: Amount(1_000_000) },
            ChainEvent::NodeRegistered { node: NODE, provider: OWNER },
            ChainEvent::OfferSet { node: NODE, spec_hash: spec.hash(), classes: spec.classes() },
        ];
        events.extend([ALICE, BOB, wallet_account()].into_iter().flat_map(fund));
        let block = Block { number: 1, hash: Hash32([1; 32]), parent: Hash32::ZERO, events };
        self.enter(Input::Block(block)).await;
        self.enter(Input::modelled_link(spec, 0)).await;
    }

    fn token(&self, caller: Caller) -> String {
        self.token_of(pass(caller))
    }

    fn token_of(&self, pass: Pass) -> String {
        self.app.secrets.issue(&pass, clock(), None).unwrap().0
    }

    /// A nonce and its message, of which a wallet's signature makes the body of a login.
    async fn signed(&self, ask: &Value) -> Value {
        let nonce = self.post("", "/v1/auth/nonce", &[], ask).await.json();
        sign(&wallet(), nonce["message"].as_str().unwrap()).await
    }

    /// A session of the wallet's account.
    async fn session(&self) -> Value {
        let body = self.signed(&json!({"account": wallet_account()})).await;
        let session = self.post("", "/v1/auth/siwe", &[], &body).await;
        assert_eq!(session.status, StatusCode::OK, "{}", session.text());
        session.json()
    }

    fn alice(&self) -> String {
        self.token(Caller::Renter(ALICE))
    }

    fn bob(&self) -> String {
        self.token(Caller::Renter(BOB))
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = to_bytes(body, 1 << 24).await.unwrap().to_vec();
        Reply { status: head.status, headers: head.headers, body }
    }

    async fn get(&self, token: &str, path: &str) -> Reply {
        self.send(ask(Method::GET, token, path, &[], Body::empty())).await
    }

    async fn post(&self, token: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
        let mut all = vec![("content-type", "application/json")];
        all.extend(headers);
        self.send(ask(Method::POST, token, path, &all, Body::from(body.to_string()))).await
    }

    /// Asks for the GPU; it is granted to the first and the others wait.
    async fn lease(&self, token: &str, key: &str) -> Value {
        let reply = self.post(token, "/v1/leases", &[("idempotency-key", key)], &want()).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text());
        reply.json()
    }

    /// Lines that a member of a lease prints, after which it says no more.
    async fn print(&self, lease: &str, member: u16, first: u64, lines: &[&str]) {
        let lease = lease.parse().unwrap();
        let source = selion_api::agent::LogSource::Stdout;
        let record = |line: &&str| LogRecord { source, bytes: format!("{line}\n").into_bytes() };
        let records = lines.iter().map(record).collect();
        let chunk = LogChunk { lease, attempt: 1, member, first, from: 0, more: false, records, end: true };
        let renter = crate::store::rows::lease(&self.app.store.readers, lease).await.unwrap().unwrap().renter;
        self.logs.append(renter, &chunk).unwrap();
    }
}

fn ask(method: Method, token: &str, path: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

/// What the token of a whole login says: a session's, with all scopes.
fn pass(caller: Caller) -> Pass {
    match caller {
        Caller::Renter(_) => Pass { caller, login: Login::Session(0), scopes: Scopes::ALL, epoch: 0 },
        Caller::Node(node) => Pass::node(node),
    }
}

/// The body of a login: `message` with the wallet's signature.
async fn sign(wallet: &ethers_signers::LocalWallet, message: &str) -> Value {
    let signature = Signature(ethers_signers::Signer::sign_message(wallet, message).await.unwrap().into());
    json!({"message": message, "signature": signature})
}

/// A text of JSON.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn spec() -> NodeSpec {
    let gpu = GpuSpec {
        gpu: GpuId([9; 16]),
        model: "H100 80GB".to_owned(),
        mem_bytes: 80 << 30,
        work_milli: 2000,
        simulated: true,
        whole: Some(Rate(1_000_000)),
        mig: None,
        share: None,
    };
    NodeSpec {
        node: NODE,
        provider: OWNER,
        gpus: vec![gpu],
        cpu_milli: 16_000,
        ram_bytes: 64 << 30,
        address: "127.0.0.1".to_owned(),
        port_base: 20_000,
        ports: 16,
        sandbox: Sandbox::Namespaces,
        features: selion_api::BoxFeatures::NONE,
        region: "eu".to_owned(),
        rack: String::new(),
        disk_bytes: 0,
        net_mbps: 0,
    }
}

fn want() -> Value {
    json!({
        "members": [{"slice": {"kind": "whole"}}],
        "duration_ms": 60_000,
        "wait_ms": 60_000,
        "command": ["true"],
    })
}

fn wallet() -> ethers_signers::LocalWallet {
    ethers_signers::LocalWallet::from_bytes(&[0x77; 32]).unwrap()
}

fn wallet_account() -> Account {
    Account(ethers_signers::Signer::address(&wallet()).0)
}

fn id(lease: &Value) -> String {
    lease["id"].as_str().unwrap().to_owned()
}
