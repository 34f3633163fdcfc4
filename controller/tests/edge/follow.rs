//! The mirror under test between a store on disk, the market's own fold of what it enters, and a node that lies.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use async_trait::async_trait;
use borsh::BorshDeserialize as _;
use selion_api::agent::Fence;
use selion_api::chain::{Block, ChainEvent};
use selion_api::{Address, Hash32, TimeMs};
use selion_contracts::{BlockTag, Pool, Rpc};
use selion_controller::mirror::{Finality, Follower, Log, MirrorError, chain::genesis};
use selion_controller::sequencer::SubmitError;
use selion_controller::store::Store;
use selion_market::state::BlockRef;
use selion_market::{Answer, Input, Policy, Stamp, State, input::RULES, step};
use sqlx::Row as _;

use super::books::Books;
use super::chain::Chain;
use super::proxy::{Lies, Proxy};

/// Polls `work` so many times at most: what is left then is dropped where it waits, as by the end of a process.
pub async fn cut_after<T>(polls: u64, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut left) = (pin!(work), polls);
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// A log in memory, which outlives the mirror: the market itself, and what was entered.
pub struct MarketLog {
    inner: Mutex<Inner>,
    delegate: Address,
}

struct Inner {
    state: State,
    entered: Vec<Block>,
    broken: bool,
}

fn fresh(delegate: Address) -> State {
    let mut state = State::new();
    for input in
        [Input::Rules { version: RULES, digest: Hash32::ZERO }, Input::Opened { delegate, policy: Policy::default() }]
    {
        apply(&mut state, &input);
    }
    state
}

fn apply(state: &mut State, input: &Input) -> Answer {
    let stamp = Stamp { seq: state.next_seq, at_ms: TimeMs(1), fence: Fence { epoch: 1, term: 1 } };
    let mut outcome = step(state, &stamp, input);
    let answer = outcome.answer.clone();
    while outcome.more {
        let stamp = Stamp { seq: state.next_seq, ..stamp };
        outcome = step(state, &stamp, &Input::Continue);
    }
    answer
}

impl MarketLog {
    pub fn new(delegate: Address) -> Self {
        let inner = Inner { state: fresh(delegate), entered: Vec::new(), broken: false };
        Self { inner: Mutex::new(inner), delegate }
    }

    pub fn entered(&self) -> Vec<Block> {
        self.inner.lock().unwrap().entered.clone()
    }

    /// The State that stands is the one that all entries give from nothing, and says what `books` say.
    pub fn assert_agrees(&self, books: &Books) {
        let inner = self.inner.lock().unwrap();
        books.assert_state_agrees(&inner.state, self.delegate);
        let mut again = fresh(self.delegate);
        for block in &inner.entered {
            assert_eq!(apply(&mut again, &Input::Block(block.clone())), Answer::Done);
        }
        assert_eq!(again.digest(), inner.state.digest(), "State is a fold of the log");
    }
}

#[async_trait]
impl Log for MarketLog {
    fn block(&self) -> Option<BlockRef> {
        self.inner.lock().unwrap().state.block
    }

    fn broken(&self) -> bool {
        self.inner.lock().unwrap().broken
    }

    async fn enter(&self, inputs: Vec<Input>) -> Result<Vec<Answer>, SubmitError> {
        // A cut may come before they are in, or after they are in and before that is known.
        tokio::task::yield_now().await;
        let enter = |input: &Input| {
            let mut inner = self.inner.lock().unwrap();
            match input {
                Input::Block(block) => inner.entered.push(block.clone()),
                Input::ChainBroken { .. } => inner.broken = true,
                other => panic!("the mirror entered {other:?}"),
            }
            apply(&mut inner.state, input)
        };
        let answers = inputs.iter().map(enter).collect();
        tokio::task::yield_now().await;
        Ok(answers)
    }
}

/// A block as the chain has it, its events read from receipts.
pub struct Truth {
    pub hash: Hash32,
    pub events: Vec<ChainEvent>,
}

/// The mirror, with all that it stands between.
pub struct Mirrored {
    dir: tempfile::TempDir,
    store: Store,
    pub log: Arc<MarketLog>,
    pub proxy: Proxy,
    /// The pool as the mirror sees it: through the proxy.
    seen: Pool,
    follower: Follower,
    depth: u64,
    birth: BlockRef,
    pub truth: Vec<Truth>,
}

impl Mirrored {
    pub async fn open(pool: &Pool, chain: &Chain, other: &Chain, depth: u64, delegate: Address, seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let proxy = Proxy::open(&chain.url, &other.url, seed).await;
        let seen = Pool { rpc: Rpc::new(&proxy.url).unwrap(), ..pool.clone() };
        let (log, birth) = (Arc::new(MarketLog::new(delegate)), genesis(&seen).await.unwrap());
        let follower = start(&seen, &log, &store, depth, birth).await;
        Self { dir, store, log, proxy, seen, follower, depth, birth, truth: Vec::new() }
    }

    /// One pass among lies, cut after so many polls. Starts over from disk if it was cut or left without an answer.
    pub async fn pass(&mut self, lies: Lies, polls: u64, reopen: bool) -> Result<(), MirrorError> {
        self.proxy.lie(lies);
        let outcome = tokio::select! {
            outcome = cut_after(polls, self.follower.pass()) => outcome,
            () = self.proxy.silent() => None,
        };
        self.proxy.lie(Lies::default());
        match outcome {
            Some(outcome) => outcome.map(drop),
            None => {
                if reopen {
                    self.store.close().await;
                    self.store = Store::open(self.dir.path()).await.unwrap();
                }
                self.follower = start(&self.seen, &self.log, &self.store, self.depth, self.birth).await;
                Ok(())
            }
        }
    }

    /// Passes with an honest node until the head is reached.
    pub async fn catch_up(&mut self) {
        let head = self.truth.len() as u64 - 1;
        for _ in 0..40 {
            match self.follower.pass().await {
                Ok(pass) if !pass.more && pass.seen == head => return,
                Ok(_) => {}
                Err(error) => panic!("an honest node is not followed: {error}"),
            }
        }
        panic!("the head is not reached");
    }

    /// Reads what is new on the chain.
    pub async fn look(&mut self, pool: &Pool) {
        let head = pool.rpc.header(BlockTag::Latest).await.unwrap();
        while let Some(last) = self.truth.last() {
            let number = self.truth.len() as u64 - 1;
            if number <= head.number && pool.rpc.header(BlockTag::Number(number)).await.unwrap().hash == last.hash {
                break;
            }
            self.truth.pop();
        }
        for number in self.truth.len() as u64..=head.number {
            let header = pool.rpc.header(BlockTag::Number(number)).await.unwrap();
            let receipts = pool.rpc.receipts_of_block(header.hash).await.unwrap().unwrap();
            let logs: Vec<_> = receipts.into_iter().flat_map(|receipt| receipt.logs).collect();
            self.truth.push(Truth { hash: header.hash, events: pool.decode_all(&logs).unwrap() });
        }
    }

    /// Rows, log, State and contracts say the same, to the block.
    pub async fn assert_equal(&self, pool: &Pool, states: bool) {
        let tip = self.truth.len() as u64 - 1;
        let settled = tip.saturating_sub(self.depth);
        self.assert_blocks(tip, settled).await;
        let rows = self.rows().await;
        let held = |(number, truth): (u64, &Truth)| (!truth.events.is_empty()).then(|| (number, truth.events.clone()));
        let want: Vec<_> = (0..).zip(&self.truth).filter_map(held).collect();
        assert_eq!(rows, want, "the rows are the events of the chain");

        let entered: Vec<_> = self.log.entered().into_iter().map(|block| (block.number, block.hash)).collect();
        let finals = want.iter().filter(|(number, _)| *number <= settled);
        let finals: Vec<_> = finals.map(|(number, _)| (*number, self.truth[*number as usize].hash)).collect();
        assert_eq!(entered, finals, "the log has the final blocks with events, once, in order");

        let head = pool.rpc.header(BlockTag::Latest).await.unwrap();
        assert_eq!(head.hash, self.truth[tip as usize].hash);
        let folded = Books::of(rows.iter().flat_map(|(_, events)| events));
        folded.assert_chain_agrees(pool, BlockTag::Hash(head.hash), TimeMs(head.time_s * 1000)).await;
        let final_books = Books::of(self.log.entered().iter().flat_map(|block| &block.events));
        self.log.assert_agrees(&final_books);
        if states {
            let last = pool.rpc.header(BlockTag::Number(settled)).await.unwrap();
            assert_eq!(last.hash, self.truth[settled as usize].hash);
            if !final_books.authority.0.iter().all(|byte| *byte == 0) {
                let at = BlockTag::Hash(last.hash);
                final_books.assert_chain_agrees(pool, at, TimeMs(last.time_s * 1000)).await;
            }
        }
    }

    async fn assert_blocks(&self, tip: u64, settled: u64) {
        let rows = sqlx::query("select number, hash, final from block order by number")
            .fetch_all(&self.store.readers)
            .await
            .unwrap();
        let mut above = settled;
        for row in rows {
            let (number, last) = (row.get::<i64, _>(0) as u64, row.get::<bool, _>(2));
            assert_eq!(row.get::<&[u8], _>(1), self.truth[number as usize].hash.0.as_slice(), "block {number}");
            assert_eq!(last, number <= settled, "block {number} with {settled} final");
            if number > settled {
                above += 1;
                assert_eq!(number, above);
            }
        }
        assert_eq!(above, tip, "every block that is not final is held");
    }

    async fn rows(&self) -> Vec<(u64, Vec<ChainEvent>)> {
        let rows = sqlx::query("select number, body from chain_event order by number, place")
            .fetch_all(&self.store.readers)
            .await
            .unwrap();
        let mut found: Vec<(u64, Vec<ChainEvent>)> = Vec::new();
        for row in rows {
            let number = row.get::<i64, _>(0) as u64;
            let event = ChainEvent::try_from_slice(row.get::<&[u8], _>(1)).unwrap();
            match found.last_mut() {
                Some((last, events)) if *last == number => events.push(event),
                _ => found.push((number, vec![event])),
            }
        }
        found
    }
}

async fn start(seen: &Pool, log: &Arc<MarketLog>, store: &Store, depth: u64, birth: BlockRef) -> Follower {
    let (source, db) = (Arc::new(seen.clone()), store.writer.clone());
    Follower::open(source, log.clone(), db, Finality::Depth(depth), birth).await.unwrap()
}
