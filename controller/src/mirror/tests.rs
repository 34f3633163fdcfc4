//! A chain that reorganises, lies, lags and dies under the mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use proptest::prelude::*;
use selion_api::chain::{Block, ChainEvent};
use selion_api::{Account, Amount, Hash32};
use selion_market::state::BlockRef;
use selion_market::{Answer, Input};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tokio::sync::Notify;

use super::follow::SURE_AFTER;
use super::*;
use crate::sequencer::SubmitError;
use crate::store::block;

/// What happens to the chain.
#[derive(Clone, Debug)]
enum Change {
    /// So many blocks; those whose bit is set hold an event.
    Mine(u8, u8),
    /// So many blocks leave (never a final one), then as `Mine`.
    Reorg(u8, u8, u8),
}

/// What happens in a script.
#[derive(Clone, Debug)]
enum Op {
    Change(Change),
    /// A pass of the mirror.
    Pass,
    /// A pass, with a change after so many of its questions.
    PassDuring(u8, Change),
    /// A pass that dies after so many questions; the mirror starts over from the store.
    Crash(u8),
    /// The next questions fail.
    Faults(u8),
    /// For the next passes the node is so many blocks behind.
    Lag(u8),
}

#[derive(Default)]
struct Inner {
    /// Every block that ever was.
    blocks: BTreeMap<Hash32, (Header, Vec<ChainEvent>)>,
    canonical: Vec<Hash32>,
    /// Told by height, when many are asked for, in place of the canonical one.
    swapped: BTreeMap<u64, Hash32>,
    /// Blocks that the node does not know by their hash.
    forgotten: BTreeSet<Hash32>,
    depth: u64,
    /// Highest block that ever was final.
    settled: u64,
    forks: u64,
    faults: u32,
    lag: u64,
    questions: u64,
    during: Option<(u8, Change)>,
    fuse: Option<u8>,
    entered: Vec<Block>,
    broken: Vec<u64>,
}

impl Inner {
    fn mine(&mut self, count: u8, eventful: u8) {
        for place in 0..count {
            self.forks += 1;
            let number = self.canonical.len() as u64;
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&self.forks.to_be_bytes());
            bytes[31] = 1;
            let hash = Hash32(bytes);
            let parent = self.canonical.last().copied().unwrap_or_default();
            let deposit = ChainEvent::Deposited { renter: Account([7; 20]), amount: Amount(self.forks) };
            let events = if eventful >> (place % 8) & 1 == 1 { vec![deposit] } else { Vec::new() };
            // Half of the blocks without events do not say so.
            let silent = events.is_empty() && self.forks.is_multiple_of(2);
            let header = Header { number, hash, parent, silent, bloom: None, transactions: 0 };
            self.blocks.insert(hash, (header, events));
            self.canonical.push(hash);
            self.settled = self.settled.max(number.saturating_sub(self.depth));
        }
    }

    fn change(&mut self, change: &Change) {
        match *change {
            Change::Mine(count, eventful) => self.mine(count, eventful),
            Change::Reorg(leave, count, eventful) => {
                let keep = (self.settled as usize + 1).max(self.canonical.len().saturating_sub(leave.into()));
                self.canonical.truncate(keep);
                self.mine(count, eventful);
            }
        }
    }

    fn at(&self, number: u64) -> Option<Header> {
        let visible = self.canonical.len() as u64 - self.lag.min(self.canonical.len() as u64 - 1);
        let hash = self.canonical.get(usize::try_from(number).ok()?)?;
        (number < visible).then(|| self.blocks[hash].0)
    }

    /// What the log must hold in the end.
    fn expected(&self) -> Vec<(u64, Hash32)> {
        self.canonical
            .iter()
            .map(|hash| &self.blocks[hash])
            .filter(|(header, events)| header.number > 0 && header.number <= self.settled && !events.is_empty())
            .map(|(header, _)| (header.number, header.hash))
            .collect()
    }
}

#[derive(Default)]
struct Fake {
    inner: Mutex<Inner>,
    died: Notify,
}

impl Fake {
    fn new(depth: u64) -> Arc<Self> {
        let fake = Self::default();
        fake.with(|inner| {
            inner.depth = depth;
            inner.mine(1, 0);
        });
        Arc::new(fake)
    }

    fn with<R>(&self, look: impl FnOnce(&mut Inner) -> R) -> R {
        look(&mut self.inner.lock().unwrap())
    }

    /// Every question passes here; a burnt fuse never answers.
    async fn question(&self) -> Result<(), SourceError> {
        let (dead, fault) = self.with(|inner| {
            inner.questions += 1;
            if let Some((left, change)) = inner.during.take() {
                match left {
                    0 => inner.change(&change),
                    left => inner.during = Some((left - 1, change)),
                }
            }
            let dead = inner.fuse == Some(0);
            inner.fuse = inner.fuse.map(|left| left.saturating_sub(1));
            let fault = inner.faults > 0;
            inner.faults = inner.faults.saturating_sub(1);
            (dead, fault)
        });
        if dead {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
        if fault {
            return Err(SourceError::Node("no answer".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl ChainSource for Fake {
    async fn same_chain(&self) -> Result<(), SourceError> {
        self.question().await
    }

    async fn header(&self, at: At) -> Result<Option<Header>, SourceError> {
        self.question().await?;
        Ok(self.with(|inner| {
            let head = inner.canonical.len() as u64 - 1;
            match at {
                At::Latest => inner.at(head - inner.lag.min(head)),
                At::Finalized => inner.at(head.saturating_sub(inner.depth).min(head - inner.lag.min(head))),
                At::Number(number) => inner.at(number),
            }
        }))
    }

    async fn headers(&self, from: u64, through: u64) -> Result<Vec<Header>, SourceError> {
        self.question().await?;
        let found = self.with(|inner| {
            let at = |number| match inner.swapped.get(&number) {
                Some(other) => Some(inner.blocks[other].0),
                None => inner.at(number),
            };
            (from..=through).map(at).collect::<Option<Vec<_>>>()
        });
        found.ok_or_else(|| SourceError::Node("no such block".into()))
    }

    async fn events(&self, blocks: &[Header]) -> Result<Vec<Option<Vec<ChainEvent>>>, SourceError> {
        self.question().await?;
        Ok(self.with(|inner| {
            let of = |block: &Header| inner.blocks.get(&block.hash).map(|(_, events)| events.clone());
            let known = |block: &&Header| !inner.forgotten.contains(&block.hash);
            blocks.iter().map(|block| Some(block).filter(known).and_then(of)).collect()
        }))
    }
}

#[async_trait]
impl Log for Fake {
    fn block(&self) -> Option<BlockRef> {
        self.with(|inner| inner.entered.last().map(|block| BlockRef { number: block.number, hash: block.hash }))
    }

    fn broken(&self) -> bool {
        self.with(|inner| !inner.broken.is_empty())
    }

    async fn enter(&self, inputs: Vec<Input>) -> Result<Vec<Answer>, SubmitError> {
        // May die before it is in the log.
        self.question().await.map_err(|error| SubmitError::Unavailable(error.to_string()))?;
        let answers = vec![Answer::Done; inputs.len()];
        self.with(|inner| {
            for input in inputs {
                match input {
                    Input::Block(block) => inner.entered.push(block),
                    Input::ChainBroken { number, .. } => inner.broken.push(number),
                    other => panic!("the mirror entered {other:?}"),
                }
            }
        });
        // Or after it is in, or it is in and its answer is lost.
        self.question().await.map_err(|_| SubmitError::Stopped)?;
        Ok(answers)
    }
}

async fn memory() -> SqlitePool {
    let options = SqliteConnectOptions::new().in_memory(true).foreign_keys(true);
    let db = SqlitePoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(options)
        .await
        .unwrap();
    sqlx::migrate!("./migrations").run(&db).await.unwrap();
    db
}

fn birth(fake: &Fake) -> BlockRef {
    fake.with(|inner| inner.at(0).unwrap().reference())
}

async fn follower(fake: &Arc<Fake>, db: &SqlitePool, finality: Finality) -> Follower {
    Follower::open(fake.clone(), fake.clone(), db.clone(), finality, birth(fake)).await.unwrap()
}

/// Runs a script, then lets the mirror catch up with a healthy chain. Returns the follower.
async fn play(fake: &Arc<Fake>, db: &SqlitePool, finality: Finality, script: &[Op]) {
    let mut mirror = follower(fake, db, finality).await;
    for op in script {
        match op {
            Op::Change(change) => fake.with(|inner| inner.change(change)),
            Op::Pass => {
                let _ = mirror.pass().await;
            }
            Op::PassDuring(after, change) => {
                fake.with(|inner| inner.during = Some((*after, change.clone())));
                let _ = mirror.pass().await;
                // One that was never reached happens now.
                fake.with(|inner| {
                    if let Some((_, change)) = inner.during.take() {
                        inner.change(&change);
                    }
                });
            }
            Op::Crash(after) => {
                fake.with(|inner| inner.fuse = Some(*after));
                tokio::select! {
                    _ = mirror.pass() => {}
                    () = fake.died.notified() => {}
                }
                fake.with(|inner| inner.fuse = None);
                mirror = follower(fake, db, finality).await;
            }
            Op::Faults(count) => fake.with(|inner| inner.faults = u32::from(*count)),
            Op::Lag(blocks) => fake.with(|inner| inner.lag = u64::from(*blocks)),
        }
    }
    fake.with(|inner| {
        (inner.faults, inner.lag) = (0, 0);
        // So that all that was ever final is final for a mirror that slept then.
        inner.mine(u8::try_from(inner.depth).unwrap() + 1, 0xff);
    });
    for _ in 0..8 {
        if matches!(mirror.pass().await, Ok(pass) if !pass.more) {
            break;
        }
    }
    let head = fake.with(|inner| inner.canonical.len() as u64 - 1);
    assert_eq!(mirror.pass().await.unwrap().seen, head);
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0_u8..6, any::<u8>()).prop_map(|(count, bits)| Change::Mine(count, bits)),
        (0_u8..8, 0_u8..8, any::<u8>()).prop_map(|(leave, count, bits)| Change::Reorg(leave, count, bits)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => change().prop_map(Op::Change),
        3 => Just(Op::Pass),
        2 => (0_u8..24, change()).prop_map(|(after, change)| Op::PassDuring(after, change)),
        2 => (0_u8..24).prop_map(Op::Crash),
        1 => (1_u8..4).prop_map(Op::Faults),
        1 => (0_u8..4).prop_map(Op::Lag),
    ]
}

fn run<R>(future: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_the_final_canonical_chain_through_reorganisations_faults_and_crashes(
        depth in 0_u64..5,
        tag in any::<bool>(),
        script in prop::collection::vec(op(), 1..40),
    ) {
        let fake = Fake::new(depth);
        run(async {
            let finality = if tag { Finality::Tag } else { Finality::Depth(depth) };
            let db = memory().await;
            play(&fake, &db, finality, &script).await;
            let unconfirmed = block::unconfirmed(&db).await.unwrap();
            fake.with(|inner| {
                // With the head at `n`, what is final now may lie below what was final once; the log has the latter.
                let entered: Vec<_> = inner.entered.iter().map(|block| (block.number, block.hash)).collect();
                assert_eq!(entered, inner.expected());
                for block in &inner.entered {
                    assert_eq!(block.parent, inner.blocks[&block.hash].0.parent);
                    assert_eq!(block.events, inner.blocks[&block.hash].1);
                }
                assert!(inner.broken.is_empty());
                let above: Vec<_> = inner.canonical.iter().map(|hash| &inner.blocks[hash])
                    .filter(|(header, _)| header.number > inner.settled)
                    .flat_map(|(header, events)| events.iter().map(|event| (header.number, event.clone())))
                    .collect();
                assert_eq!(unconfirmed, above);
            });
        });
    }
}

#[tokio::test]
async fn a_reorganisation_deeper_than_final_breaks_the_chain_once_and_rewrites_nothing() {
    let fake = Fake::new(2);
    let db = memory().await;
    fake.with(|inner| inner.mine(8, 0xff)); // head 8, final 6
    let mut mirror = follower(&fake, &db, Finality::Depth(2)).await;
    assert_eq!(mirror.pass().await.unwrap().entered, 6);
    let before = fake.with(|inner| inner.entered.clone());
    fake.with(|inner| {
        inner.canonical.truncate(5);
        inner.mine(9, 0xff);
    });
    for _ in 0..3 {
        let error = mirror.pass().await.unwrap_err();
        assert!(matches!(error, MirrorError::Broken { .. }), "{error}");
    }
    for _ in 0..3 {
        mirror = follower(&fake, &db, Finality::Depth(2)).await;
        assert!(mirror.pass().await.is_err());
    }
    fake.with(|inner| {
        assert_eq!(inner.broken, [6]);
        assert_eq!(inner.entered, before);
    });
}

#[tokio::test]
async fn one_look_at_a_changed_final_block_is_not_yet_believed() {
    let fake = Fake::new(0);
    let db = memory().await;
    fake.with(|inner| inner.mine(3, 0xff));
    let mut mirror = follower(&fake, &db, Finality::Depth(0)).await;
    mirror.pass().await.unwrap();
    let honest = fake.with(|inner| inner.canonical.clone());
    fake.with(|inner| {
        inner.canonical.truncate(2);
        inner.mine(4, 0);
    });
    assert!(mirror.pass().await.is_err());
    fake.with(|inner| inner.canonical = honest);
    assert!(mirror.pass().await.is_ok());
    fake.with(|inner| assert!(inner.broken.is_empty()));
}

#[tokio::test]
async fn another_chain_of_the_same_id_is_named_and_breaks_nothing() {
    let fake = Fake::new(0);
    let db = memory().await;
    fake.with(|inner| inner.mine(3, 0xff));
    let mut mirror = follower(&fake, &db, Finality::Depth(0)).await;
    mirror.pass().await.unwrap();
    let (ours, before) = (birth(&fake).hash, fake.with(|inner| inner.entered.clone()));
    fake.with(|inner| {
        inner.canonical.clear();
        inner.mine(6, 0xff);
    });
    for _ in 0..=SURE_AFTER {
        match mirror.pass().await.unwrap_err() {
            MirrorError::Source(SourceError::OtherGenesis { number: 0, want, .. }) => assert_eq!(want, ours),
            other => panic!("{other}"),
        }
    }
    fake.with(|inner| assert_eq!((&inner.entered, inner.broken.len()), (&before, 0)));
}

#[tokio::test]
async fn a_chain_shorter_than_the_log_is_waited_for() {
    let fake = Fake::new(0);
    let db = memory().await;
    fake.with(|inner| inner.mine(5, 0));
    let mut mirror = follower(&fake, &db, Finality::Depth(0)).await;
    mirror.pass().await.unwrap();
    fake.with(|inner| inner.lag = 2);
    let error = mirror.pass().await.unwrap_err();
    assert!(matches!(error, MirrorError::Behind { head: 3, had: 5 }), "{error}");
    fake.with(|inner| inner.lag = 0);
    assert!(mirror.pass().await.is_ok());
}

/// A chain of 8,000 blocks, every four hundredth with an event.
fn long() -> Arc<Fake> {
    let fake = Fake::new(3);
    fake.with(|inner| {
        for round in 0..1_000_u32 {
            inner.mine(8, u8::from(round % 50 == 0));
        }
    });
    fake
}

#[tokio::test]
async fn a_long_history_is_read_by_ranges_and_only_blocks_that_may_hold_events_are_asked_for() {
    let (fake, db) = (long(), memory().await);
    let mut mirror = follower(&fake, &db, Finality::Depth(3)).await;
    while mirror.pass().await.unwrap().more {}
    fake.with(|inner| {
        let entered: Vec<_> = inner.entered.iter().map(|block| (block.number, block.hash)).collect();
        assert_eq!(entered, inner.expected());
        assert!(inner.questions < 500, "{} questions", inner.questions);
    });
    // A restart resumes where it was, not at the last block with events.
    let asked = fake.with(|inner| inner.questions);
    let mut again = follower(&fake, &db, Finality::Depth(3)).await;
    again.pass().await.unwrap();
    fake.with(|inner| assert!(inner.questions - asked < 12, "{}", inner.questions - asked));
}

/// In a range a block of another fork takes the place of the one with an event: not the first, which stands on the
/// base, nor the last, which is asked for again.
#[tokio::test]
async fn a_range_whose_headers_are_not_linked_is_read_again_and_nothing_of_it_is_kept() {
    let (fake, db) = (long(), memory().await);
    fake.with(|inner| {
        let honest = inner.canonical.clone();
        for (number, hash) in (0..).zip(&honest).filter(|(number, _)| number % 400 == 1 && *number > 1) {
            let mut header = inner.blocks[hash].0;
            (header.hash.0[30], header.silent) = (1, true);
            inner.blocks.insert(header.hash, (header, Vec::new()));
            inner.swapped.insert(number, header.hash);
        }
    });
    let mut mirror = follower(&fake, &db, Finality::Depth(3)).await;
    for _ in 0..3 {
        let error = mirror.pass().await.unwrap_err();
        assert!(matches!(error, MirrorError::Inconsistent(402)), "{error}");
    }
    assert_eq!(block::newest_final(&db).await.unwrap(), Some(birth(&fake)));
    fake.with(|inner| {
        assert!(inner.entered.is_empty());
        inner.swapped.clear();
    });
    while mirror.pass().await.unwrap().more {}
    fake.with(|inner| assert_eq!(inner.entered.len(), inner.expected().len()));
}

#[tokio::test]
async fn a_range_that_stands_on_another_block_than_the_last_final_one_breaks_the_chain() {
    let (fake, db) = (long(), memory().await);
    let birth = birth(&fake);
    let mut mirror = follower(&fake, &db, Finality::Depth(3)).await;
    assert!(mirror.pass().await.unwrap().more);
    fake.with(|inner| {
        inner.canonical.truncate(1_999);
        for _ in 0..40 {
            inner.mine(200, 0);
        }
    });
    for _ in 0..3 {
        let error = mirror.pass().await.unwrap_err();
        assert!(matches!(error, MirrorError::Broken { had } if had.number == 2_000 && had != birth), "{error}");
    }
    fake.with(|inner| assert_eq!(inner.broken.len(), 1));
}

#[tokio::test]
async fn a_block_of_a_range_that_the_node_does_not_know_by_its_hash_is_waited_for() {
    let (fake, db) = (long(), memory().await);
    fake.with(|inner| {
        let hash = inner.canonical[1_201];
        assert!(!inner.blocks[&hash].1.is_empty());
        inner.forgotten.insert(hash);
    });
    let mut mirror = follower(&fake, &db, Finality::Depth(3)).await;
    let error = mirror.pass().await.unwrap_err();
    assert!(matches!(error, MirrorError::Inconsistent(1_201)), "{error}");
    fake.with(|inner| inner.forgotten.clear());
    while mirror.pass().await.unwrap().more {}
    fake.with(|inner| assert_eq!(inner.entered.len(), inner.expected().len()));
}

#[tokio::test]
async fn a_lost_database_resumes_from_the_log_and_enters_nothing_twice() {
    let fake = Fake::new(1);
    fake.with(|inner| inner.mine(7, 0xff));
    let mut mirror = follower(&fake, &memory().await, Finality::Depth(1)).await;
    mirror.pass().await.unwrap();
    fake.with(|inner| inner.mine(3, 0xff));
    let mut mirror = follower(&fake, &memory().await, Finality::Depth(1)).await;
    mirror.pass().await.unwrap();
    fake.with(|inner| {
        let entered: Vec<_> = inner.entered.iter().map(|block| (block.number, block.hash)).collect();
        assert_eq!(entered, inner.expected());
    });
}
