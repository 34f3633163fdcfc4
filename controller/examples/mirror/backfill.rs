//! A history is read: what a mirror that starts late does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::join_all;
use selion_contracts::{BlockTag, Pool, Signer};
use selion_controller::mirror::{At, ChainSource as _, Finality, Follower, Log, chain::genesis};
use selion_controller::sequencer::{Sequencer, SubmitError};
use selion_controller::store::Store;
use selion_market::state::BlockRef;
use selion_market::{Answer, Input};
use serde_json::json;

use crate::chain::Chain;
use crate::{Caller, chains, log, per_second, pool};

/// Blocks that are read one by one, for comparison.
const FEW: u64 = 2_000;
/// Events in a block of a chain that takes many transactions at a time.
const MANY: u64 = 50;

/// Forgets what is entered.
struct NoLog;

#[async_trait]
impl Log for NoLog {
    fn block(&self) -> Option<BlockRef> {
        None
    }

    fn broken(&self) -> bool {
        false
    }

    async fn enter(&self, inputs: Vec<Input>) -> Result<Vec<Answer>, SubmitError> {
        Ok(vec![Answer::Done; inputs.len()])
    }
}

/// Commits each block by itself.
struct OneByOne(Sequencer);

#[async_trait]
impl Log for OneByOne {
    fn block(&self) -> Option<BlockRef> {
        self.0.read(|state| state.block)
    }

    fn broken(&self) -> bool {
        false
    }

    async fn enter(&self, inputs: Vec<Input>) -> Result<Vec<Answer>, SubmitError> {
        let mut answers = Vec::new();
        for input in inputs {
            answers.push(self.0.submit(input, None).await?.answer().clone());
        }
        Ok(answers)
    }
}

pub async fn run(events: u64) {
    for (name, chain) in chains().await {
        let (pool, renters) = pool(&chain, 8).await;
        if name == "Anvil" {
            for told in [1, MANY] {
                let first = fill(&chain, &pool, &renters, events, Some(told)).await;
                measure(&format!("{name}, {told} in a block"), &pool, first, events).await;
            }
        } else {
            let first = fill(&chain, &pool, &renters, events, None).await;
            measure(&format!("{name}, one in a block"), &pool, first, events).await;
        }
    }
}

/// Makes so many events: so many in a block when it is told to mine, or as the dev chain does, a block of each before it
/// answers. Anvil is told, because by itself it leaves calls lying that come fast. Tells the head before.
async fn fill(chain: &Chain, pool: &Pool, renters: &[Signer], events: u64, told: Option<u64>) -> BlockRef {
    let before = pool.rpc.header(BlockTag::Latest).await.unwrap();
    let mut callers = Vec::new();
    for renter in renters {
        callers.push(Caller::new(pool, renter).await);
    }
    if told.is_some() {
        chain.ask("evm_setAutomine", json!([false])).await;
    }
    let mut left = events;
    while left > 0 {
        let now = left.min(told.unwrap_or(MANY));
        let shares = (0..).zip(&mut callers).map(|(index, caller)| async move {
            for _ in (index..now).step_by(renters.len()) {
                caller.call().await;
            }
        });
        join_all(shares).await;
        if told.is_some() {
            chain.mine(1).await;
        }
        left -= now;
    }
    if told.is_some() {
        chain.ask("evm_setAutomine", json!([true])).await;
    }
    BlockRef { number: before.number, hash: before.hash }
}

async fn measure(what: &str, pool: &Pool, first: BlockRef, events: u64) {
    let head = pool.rpc.header(BlockTag::Latest).await.unwrap().number;
    println!("{what}: {events} events in {} blocks", head - first.number);
    let logs = unchecked(pool, first.number, head).await;
    assert_eq!(logs.0, events, "every call left an event");
    let whole = backfill(pool, first, |log| Arc::new(log)).await;
    let tell = |name: &str, (found, took): (u64, Duration)| {
        let ratio = per_second(found, took) as f64 / per_second(whole.0, whole.1) as f64;
        println!("  {name:58} {:>8} events/s {ratio:>6.2}x", per_second(found, took));
    };
    assert_eq!(whole.0, events, "every event is a row");
    tell("the mirror: rows and log on disk", whole);
    tell("the mirror without the log: rows on disk", backfill(pool, first, |_| Arc::new(NoLog)).await);
    tell("the mirror, a commit of the log for each block", backfill(pool, first, |log| Arc::new(OneByOne(log))).await);
    tell("only read, eth_getLogs over 2,000 blocks, unchecked", logs);
    tell("only read, one header and its receipts after the other", one_by_one(pool, first.number, head).await);
}

/// A mirror that knows the chain up to `first` catches up with its head.
async fn backfill(pool: &Pool, first: BlockRef, keep: impl Fn(Sequencer) -> Arc<dyn Log>) -> (u64, Duration) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let (log, stop, task) = log(&store).await;
    assert_eq!(genesis(pool).await.unwrap().number, 0);
    let source = Arc::new(pool.clone());
    let mut follower =
        Follower::open(source, keep(log), store.writer.clone(), Finality::Depth(0), first).await.unwrap();
    let began = Instant::now();
    while follower.pass().await.unwrap().more {}
    let took = began.elapsed();
    let found: i64 = sqlx::query_scalar("select count(*) from chain_event").fetch_one(&store.readers).await.unwrap();
    drop(follower);
    stop.cancel();
    task.await.unwrap();
    (u64::try_from(found).unwrap(), took)
}

async fn unchecked(pool: &Pool, first: u64, head: u64) -> (u64, Duration) {
    let (began, mut found) = (Instant::now(), 0);
    for from in (first + 1..=head).step_by(2_000) {
        let logs = pool.rpc.logs(from, head.min(from + 1_999), &pool.addresses()).await.unwrap();
        found += pool.decode_all(&logs).unwrap().len() as u64;
    }
    (found, began.elapsed())
}

async fn one_by_one(pool: &Pool, first: u64, head: u64) -> (u64, Duration) {
    let (began, mut found) = (Instant::now(), 0);
    for number in first + 1..=head.min(first + FEW) {
        let header = pool.header(At::Number(number)).await.unwrap().unwrap();
        if !header.silent {
            found += pool.events(&[header]).await.unwrap().remove(0).unwrap().len() as u64;
        }
    }
    (found, began.elapsed())
}
