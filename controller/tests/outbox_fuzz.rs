//! The authority's transactions over a node that drops, hides and lies, with another program that signs with the same
//! key, through reorganisations and ends of the process: each order has its effect on chain exactly once, and none
//! hangs. `SELION_FUZZ_STEPS` for more, `SELION_FUZZ_SEED` for another run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod edge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use edge::follow::cut_after;
use edge::{Dice, seed, steps};
use selion_api::commit::sha256_of;
use selion_api::{Address, Hash32, TimeMs};
use selion_contracts::Fees;
use selion_controller::loops::outbox::{Desk, Outbox};
use selion_controller::loops::sender::{Mined, SendError, Sender};
use selion_controller::store::Store;
use selion_controller::store::outbox::{self, Kind, Order, Status};
use selion_market::state::BlockRef;

const KEY: Address = Address([1; 20]);
/// Blocks on top that make one final.
const DEPTH: u64 = 3;
/// Steps over one store.
const STEPS_A_LIFE: u64 = 200;

/// Nonce, price, what it does. Strangers' transactions do nothing of ours.
type Tx = (u64, u128, Vec<u8>);

/// How the node lies, in percent of the questions.
#[derive(Clone, Copy, Debug, Default)]
struct Lies {
    /// No answer, before or after it did what it was asked.
    silence: u64,
    /// Takes a transaction and forgets it.
    drops: u64,
    /// Says that a nonce was used that was not.
    used: u64,
    /// Says that a mined transaction is in no block.
    hides: u64,
    /// Has receipts of a block that left.
    forks: u64,
    /// Counts the key's transactions as they were some blocks ago.
    lags: u64,
}

struct Chain {
    dice: Dice,
    lies: Lies,
    waiting: BTreeMap<u64, (Hash32, Tx)>,
    blocks: Vec<(Hash32, Vec<(Hash32, Tx)>)>,
    /// Where every transaction was mined once.
    once: BTreeMap<Hash32, BlockRef>,
    made: u64,
    /// Height of the highest block that was ever final.
    settled: u64,
    price: u128,
}

impl Chain {
    fn head(&self) -> u64 {
        self.blocks.len() as u64 - 1
    }

    fn nonce_at(&self, height: u64) -> u64 {
        let blocks = &self.blocks[..=usize::try_from(height).unwrap()];
        blocks.iter().map(|(_, txs)| txs.len() as u64).sum()
    }

    fn nonce(&self) -> u64 {
        self.nonce_at(self.head())
    }

    fn next(&self) -> u64 {
        (self.nonce()..).find(|nonce| !self.waiting.contains_key(nonce)).unwrap()
    }

    fn mine(&mut self) {
        self.made += 1;
        let at = BlockRef { number: self.blocks.len() as u64, hash: sha256_of(&self.made) };
        let mut next = self.nonce();
        let mut txs = Vec::new();
        while let Some(tx) = self.waiting.remove(&next) {
            self.once.insert(tx.0, at);
            txs.push(tx);
            next += 1;
        }
        self.waiting.retain(|nonce, _| *nonce >= next);
        self.blocks.push((at.hash, txs));
        self.settled = self.settled.max(self.head().saturating_sub(DEPTH));
    }

    fn reorg(&mut self, depth: u64, keep: bool) {
        for _ in 0..depth.min(self.head() - self.settled) {
            let (_, txs) = self.blocks.pop().unwrap();
            // Nodes put them back into the pool, or not.
            self.waiting.extend(txs.into_iter().filter(|_| keep).map(|tx| (tx.1.0, tx)));
        }
        self.mine();
    }

    fn stranger(&mut self, nonce: u64, price: u128) {
        self.made += 1;
        let tx: Tx = (nonce, price, [b"stranger", &self.made.to_be_bytes()[..]].concat());
        self.waiting.insert(nonce, (sha256_of(&tx), tx));
    }

    fn take(&mut self, tx: Tx) -> Result<(), SendError> {
        let hash = sha256_of(&tx);
        if tx.0 < self.nonce() {
            return Err(SendError::NonceTaken);
        }
        match self.waiting.get(&tx.0) {
            Some((known, _)) if *known == hash => return Err(SendError::Known),
            Some((_, (_, price, _))) if tx.1 < price + price / 10 => return Err(SendError::Underpriced),
            _ => {}
        }
        self.waiting.insert(tx.0, (hash, tx));
        Ok(())
    }

    fn holds(&self, at: BlockRef) -> bool {
        self.blocks.get(usize::try_from(at.number).unwrap()).is_some_and(|(hash, _)| *hash == at.hash)
    }

    /// What has been done so far, strangers' and empty transactions left out; up to that height.
    fn effects(&self, through: u64) -> Vec<Vec<u8>> {
        let txs = self.blocks.iter().take(usize::try_from(through).unwrap() + 1).flat_map(|(_, txs)| txs);
        txs.map(|(_, tx)| tx.2.clone()).filter(|done| done.len() == 8).collect()
    }
}

struct Node(Mutex<Chain>);

impl Node {
    fn with<R>(&self, look: impl FnOnce(&mut Chain) -> R) -> R {
        look(&mut self.0.lock().unwrap())
    }

    fn lies(&self, percent: impl Fn(&Lies) -> u64) -> bool {
        self.with(|chain| {
            let percent = percent(&chain.lies);
            chain.dice.chance(percent)
        })
    }

    async fn question(&self) -> Result<(), SendError> {
        // A cut may come here.
        tokio::task::yield_now().await;
        match self.lies(|lies| lies.silence) {
            true => Err(SendError::Unreachable("no answer".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Sender for Node {
    fn address(&self) -> Address {
        KEY
    }

    async fn next_nonce(&self) -> Result<u64, SendError> {
        self.question().await?;
        Ok(self.with(|chain| chain.next()))
    }

    async fn mined_nonce(&self) -> Result<u64, SendError> {
        self.question().await?;
        let lags = self.lies(|lies| lies.lags);
        Ok(self.with(|chain| chain.nonce_at(chain.head().saturating_sub(if lags { 2 } else { 0 }))))
    }

    async fn head(&self) -> Result<u64, SendError> {
        self.question().await?;
        Ok(self.with(|chain| chain.head()))
    }

    async fn holds(&self, at: BlockRef) -> Result<bool, SendError> {
        self.question().await?;
        Ok(self.with(|chain| chain.holds(at)))
    }

    async fn fees(&self) -> Result<Fees, SendError> {
        self.question().await?;
        Ok(self.with(|chain| Fees { max: 100 + chain.price, priority: 1 }))
    }

    async fn gas(&self, _: Address, _: &[u8]) -> Result<u64, SendError> {
        self.question().await.map(|()| 50_000)
    }

    fn sign(&self, _: Address, data: &[u8], nonce: u64, _: u64, fees: Fees) -> Result<(Hash32, Vec<u8>), SendError> {
        let tx: Tx = (nonce, fees.max, data.to_vec());
        Ok((sha256_of(&tx), borsh::to_vec(&tx).unwrap()))
    }

    async fn send(&self, raw: &[u8]) -> Result<(), SendError> {
        self.question().await?;
        let tx: Tx = borsh::from_slice(raw).unwrap();
        if self.lies(|lies| lies.used) {
            return Err(SendError::NonceTaken);
        }
        if self.lies(|lies| lies.drops) {
            return Ok(());
        }
        let taken = self.with(|chain| chain.take(tx));
        self.question().await?;
        taken
    }

    async fn receipt(&self, hash: Hash32) -> Result<Option<Mined>, SendError> {
        self.question().await?;
        let (hides, forks) = (self.lies(|lies| lies.hides), self.lies(|lies| lies.forks));
        Ok(self.with(|chain| {
            let at = chain.once.get(&hash).copied().filter(|at| !hides && (forks || chain.holds(*at)))?;
            Some(Mined { at, ok: true })
        }))
    }

    async fn why(&self, _: Address, _: &[u8], _: u64) -> String {
        "it was reverted".into()
    }
}

struct Life {
    dir: tempfile::TempDir,
    store: Store,
    node: Arc<Node>,
    outbox: Outbox,
    now: u64,
    ordered: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl Life {
    async fn open(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let mut chain = Chain {
            dice: Dice(!seed),
            lies: Lies::default(),
            waiting: BTreeMap::new(),
            blocks: Vec::new(),
            once: BTreeMap::new(),
            made: seed << 32,
            settled: 0,
            price: 0,
        };
        chain.blocks.push((sha256_of(&seed), Vec::new()));
        let node = Arc::new(Node(Mutex::new(chain)));
        let outbox = Outbox::new(store.writer.clone(), node.clone());
        Self { dir, store, node, outbox, now: 1_000, ordered: 0, counts: BTreeMap::new() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    async fn order(&mut self, dice: &mut Dice) {
        self.ordered += 1;
        let desk = Desk::new(self.store.writer.clone(), KEY, Arc::default());
        let order = Order {
            kind: *dice.pick(&[Kind::Anchor, Kind::Claim, Kind::Register]),
            subject: self.ordered.to_string(),
            target: Address([2; 20]),
            calldata: self.ordered.to_be_bytes().to_vec(),
        };
        desk.order(&order, TimeMs(self.now)).await.unwrap();
        self.count("orders");
    }

    /// A pass, cut after so many polls; then another process goes on.
    async fn pass(&mut self, polls: u64) -> bool {
        let (settled, effects) = self.node.with(|chain| (chain.settled, chain.effects(chain.settled)));
        let effects: BTreeSet<_> = effects.into_iter().collect();
        let done = |order: &Order| effects.contains(&order.calldata).then_some("it is on chain");
        let pass = cut_after(polls, self.outbox.pass(TimeMs(self.now), settled, done)).await;
        match pass {
            Some(outcome) => outcome.is_ok(),
            None => {
                self.count("cuts");
                self.outbox = Outbox::new(self.store.writer.clone(), self.node.clone());
                false
            }
        }
    }

    async fn step(&mut self, dice: &mut Dice) {
        match dice.below(20) {
            0..3 => self.order(dice).await,
            3..5 => {
                let mut some = |most: u64| if dice.chance(35) { dice.below(most) } else { 0 };
                let lies = Lies {
                    silence: some(30),
                    drops: some(100),
                    used: some(100),
                    hides: some(101),
                    forks: some(101),
                    lags: some(80),
                };
                self.node.with(|chain| chain.lies = lies);
            }
            5 => {
                self.count("strangers");
                let (price, dearer) = (500 + u128::from(dice.below(400)), dice.chance(50));
                self.node.with(|chain| {
                    // The next free nonce, or in place of what waits last.
                    let next = chain.next();
                    let nonce = if dearer && next > chain.nonce() { next - 1 } else { next };
                    chain.stranger(nonce, price);
                });
            }
            6 => {
                self.count("reorgs");
                let (depth, keep) = (1 + dice.below(DEPTH), dice.chance(50));
                self.node.with(|chain| chain.reorg(depth, keep));
            }
            7 => self.node.with(|chain| chain.waiting.clear()),
            8..11 => self.node.with(Chain::mine),
            11 => self.now += dice.below(70_000),
            12 => self.node.with(|chain| chain.price = u128::from(dice.below(300))),
            13 => {
                self.count("restarts");
                self.store.close().await;
                self.store = Store::open(self.dir.path()).await.unwrap();
                self.outbox = Outbox::new(self.store.writer.clone(), self.node.clone());
            }
            _ => {
                let polls = if dice.chance(35) { 1 + dice.below(60) } else { u64::MAX };
                self.pass(polls).await;
                self.now += 500;
            }
        }
    }

    /// With an honest node again, everything comes to its end.
    async fn finish(&mut self) {
        self.node.with(|chain| chain.lies = Lies::default());
        for _ in 0..60 {
            self.now += 25_000;
            assert!(self.pass(u64::MAX).await, "an honest node does all that it is asked");
            self.node.with(Chain::mine);
        }
        let live = outbox::live(&self.store.readers, KEY).await.unwrap();
        let settled = self.node.with(|chain| chain.settled);
        assert!(live.is_empty(), "these hang, with {settled} final: {live:#?}");
        let rows = outbox::newest(&self.store.readers, 10_000).await.unwrap();
        assert_eq!(rows.len() as u64, self.ordered);
        let (mut effects, wanted) = (self.node.with(|chain| chain.effects(chain.head())), self.wanted(&rows));
        effects.sort();
        assert_eq!(effects, wanted, "each order has its effect once");
    }

    /// What must be on chain: all but what a newer one overtook before it was signed.
    fn wanted(&self, rows: &[outbox::Outgoing]) -> Vec<Vec<u8>> {
        let overtaken = |row: &&outbox::Outgoing| row.reason.as_deref() != Some("a newer one overtook it");
        let mut wanted: Vec<_> = rows.iter().filter(overtaken).map(|row| row.order.calldata.clone()).collect();
        for row in rows {
            assert_ne!(row.status, Status::Failed, "{row:?}");
        }
        wanted.sort();
        wanted
    }
}

#[tokio::test]
async fn each_order_has_its_effect_once_and_none_hangs() {
    let (mut left, mut seed) = (steps(1_000), seed());
    while left > 0 {
        println!("seed {seed}");
        let (mut dice, mut life) = (Dice(seed), Life::open(seed).await);
        let now = left.min(STEPS_A_LIFE);
        for _ in 0..now {
            life.step(&mut dice).await;
        }
        life.finish().await;
        println!("seed {seed}: {now} steps, {:?}", life.counts);
        (left, seed) = (left - now, seed + 1);
    }
}
