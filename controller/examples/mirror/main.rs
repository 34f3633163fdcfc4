//! How fast the mirror is: reading a history, a new block, and the log again from its entries.
//!
//! ```sh
//! cargo run --release -p selion-controller --example mirror -- backfill 20000
//! cargo run --release -p selion-controller --example mirror -- latency 500
//! cargo run --release -p selion-controller --example mirror -- rebuild 1000000
//! ```
//!
//! The chains are the embedded one and, if `SELION_ANVIL` names its binary, Anvil. Node, mirror and log share the machine.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a tool for measuring: a failure ends it")]

mod backfill;
#[path = "../../tests/edge/chain.rs"]
#[expect(dead_code, reason = "the tests' chains: a measure needs no reorganisations and no geth")]
mod chain;
mod latency;
mod rebuild;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use selion_api::commit::PoolId;
use selion_api::{Address, Amount, Signature, TimeMs};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Draft, Pool, Signer};
use selion_controller::mirror::pool::{PoolOptions, create_pool};
use selion_controller::sequencer::{Parts, Sequencer};
use selion_controller::store::Store;
use selion_market::Policy;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use chain::Chain;

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |default: u64| args.get(1).map_or(default, |text| text.parse().expect("a number"));
    match args.first().map(String::as_str) {
        Some("backfill") => backfill::run(number(20_000)).await,
        Some("latency") => latency::run(number(500)).await,
        Some("rebuild") => rebuild::run(number(1_000_000)).await,
        Some("rebuild-part") => rebuild::part(&args[1], Path::new(&args[2]), args[3].parse().unwrap()).await,
        _ => println!("backfill [EVENTS], latency [BLOCKS] or rebuild [EVENTS]"),
    }
}

/// The chains that are to be had, with a name.
async fn chains() -> Vec<(&'static str, Chain)> {
    let mut chains = vec![("dev chain", Chain::embedded(31_337).await)];
    chains.extend(Chain::anvil("it").map(|chain| ("Anvil", chain)));
    chains
}

/// A pool, and renters who have tokens.
async fn pool(chain: &Chain, renters: usize) -> (Pool, Vec<Signer>) {
    let operator = chain.person().await;
    let options = PoolOptions { thaw_delay_s: 0, ..PoolOptions::development(operator.account(), operator.account()) };
    let made = create_pool(&chain.rpc, &operator, &options).await.unwrap();
    let pool = Pool::open(chain.rpc.clone(), made.controller).await.unwrap();
    let mut people = Vec::new();
    for _ in 0..renters {
        let renter = chain.person().await;
        for call in [pool.mint(renter.address(), 1 << 60), pool.approve_vault()] {
            pool.send(&renter, call).await.unwrap();
        }
        people.push(renter);
    }
    (pool, people)
}

/// Sends the same call many times without waiting for blocks: each is one event of the pool.
struct Caller<'a> {
    pool: &'a Pool,
    who: &'a Signer,
    draft: Draft,
    nonce: u64,
}

impl<'a> Caller<'a> {
    async fn new(pool: &'a Pool, who: &'a Signer) -> Self {
        let Call { to, data } = pool.deposit(Amount(1));
        let draft = Draft::new(&pool.rpc, who.account(), Some(to), data).await.unwrap();
        let nonce = pool.rpc.nonce(who.account(), BlockTag::Latest).await.unwrap();
        Self { pool, who, draft, nonce }
    }

    async fn call(&mut self) {
        let tx = self.draft.clone().with_nonce(self.nonce).sign(self.who).unwrap();
        self.nonce += 1;
        self.pool.rpc.send_raw(&tx.raw).await.unwrap();
    }
}

fn clock() -> TimeMs {
    TimeMs(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap())
}

/// The log of a pool, over a store on disk.
async fn log(store: &Store) -> (Sequencer, CancellationToken, JoinHandle<()>) {
    let stop = CancellationToken::new();
    let parts = Parts {
        store: store.clone(),
        pool: PoolId { chain_id: 31_337, controller: Address([1; 20]) },
        epoch: 1,
        delegate: Address([2; 20]),
        policy: Policy::default(),
        sign: Arc::new(|_| Signature([0; 65])),
        clock,
    };
    let (log, task) = Sequencer::start(parts, stop.clone()).await.unwrap();
    (log, stop, task)
}

fn per_second(count: u64, took: Duration) -> u64 {
    (count as f64 / took.as_secs_f64()).round() as u64
}
