//! An outbox over a chain that loses, reverts and reorganises, under a process that dies anywhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use proptest::prelude::*;
use selion_api::commit::sha256_of;
use selion_api::{Address, Hash32, TimeMs};
use selion_contracts::Fees;
use selion_market::state::BlockRef;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tokio::sync::Notify;

use super::outbox::{Desk, Outbox, Report};
use super::sender::{Mined, SendError, Sender};
use crate::store::outbox::{self, Kind, Order, Status};

const KEY: Address = Address([1; 20]);

type Raw = (u64, u128, Vec<u8>);

#[derive(Default)]
struct Inner {
    pool: BTreeMap<u64, (Hash32, Raw)>,
    /// Block by block: transactions, and whether the block is of another fork than the one before it.
    blocks: Vec<(Hash32, Vec<(Hash32, Raw)>)>,
    salt: u64,
    fee: u128,
    faults: u32,
    fuse: Option<u8>,
    sends: u32,
    reverts: bool,
}

impl Inner {
    fn nonce(&self) -> u64 {
        self.blocks.iter().map(|(_, txs)| txs.len() as u64).sum()
    }

    fn mine(&mut self) {
        self.salt += 1;
        let mut txs = Vec::new();
        let mut next = self.nonce();
        while let Some(tx) = self.pool.remove(&next) {
            txs.push(tx);
            next += 1;
        }
        self.blocks.push((sha256_of(&self.salt), txs));
    }

    fn executed(&self) -> Vec<Vec<u8>> {
        self.blocks.iter().flat_map(|(_, txs)| txs.iter().map(|(_, raw)| raw.2.clone())).collect()
    }
}

#[derive(Default)]
struct Fake {
    inner: Mutex<Inner>,
    died: Notify,
}

impl Fake {
    fn with<R>(&self, look: impl FnOnce(&mut Inner) -> R) -> R {
        look(&mut self.inner.lock().unwrap())
    }

    async fn question(&self) -> Result<(), SendError> {
        let (dead, fault) = self.with(|inner| {
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
            return Err(SendError::Unreachable("no answer".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Sender for Fake {
    fn address(&self) -> Address {
        KEY
    }

    async fn next_nonce(&self) -> Result<u64, SendError> {
        self.question().await?;
        Ok(self.with(|inner| {
            let mut next = inner.nonce();
            while inner.pool.contains_key(&next) {
                next += 1;
            }
            next
        }))
    }

    async fn mined_nonce(&self) -> Result<u64, SendError> {
        self.question().await?;
        Ok(self.with(|inner| inner.nonce()))
    }

    async fn head(&self) -> Result<u64, SendError> {
        self.question().await?;
        Ok(self.with(|inner| inner.blocks.len() as u64 - 1))
    }

    async fn holds(&self, at: BlockRef) -> Result<bool, SendError> {
        self.question().await?;
        Ok(self.with(|inner| inner.blocks.get(at.number as usize).is_some_and(|(hash, _)| *hash == at.hash)))
    }

    async fn fees(&self) -> Result<Fees, SendError> {
        self.question().await?;
        Ok(self.with(|inner| Fees { max: 100 + inner.fee, priority: 1 }))
    }

    async fn gas(&self, _: Address, _: &[u8]) -> Result<u64, SendError> {
        self.question().await?;
        match self.with(|inner| inner.reverts) {
            true => Err(SendError::Reverted("SizeNotAbove(4, 9)".into())),
            false => Ok(50_000),
        }
    }

    fn sign(
        &self,
        _: Address,
        calldata: &[u8],
        nonce: u64,
        _: u64,
        fees: Fees,
    ) -> Result<(Hash32, Vec<u8>), SendError> {
        let raw: Raw = (nonce, fees.max, calldata.to_vec());
        Ok((sha256_of(&raw), borsh::to_vec(&raw).unwrap()))
    }

    async fn send(&self, raw: &[u8]) -> Result<(), SendError> {
        self.question().await?;
        let raw: Raw = borsh::from_slice(raw).unwrap();
        let outcome = self.with(|inner| {
            inner.sends += 1;
            let hash = sha256_of(&raw);
            if raw.0 < inner.nonce() {
                return Err(SendError::NonceTaken);
            }
            match inner.pool.get(&raw.0) {
                Some((known, _)) if *known == hash => return Err(SendError::Known),
                Some((_, (_, fee, _))) if raw.1 < fee + fee / 10 => return Err(SendError::Underpriced),
                _ => {}
            }
            inner.pool.insert(raw.0, (hash, raw));
            Ok(())
        });
        // The node may have taken it while the process dies or the answer is lost.
        self.question().await?;
        outcome
    }

    async fn receipt(&self, hash: Hash32) -> Result<Option<Mined>, SendError> {
        self.question().await?;
        Ok(self.with(|inner| {
            (0_u64..).zip(&inner.blocks).find_map(|(number, (block, txs))| {
                txs.iter()
                    .any(|(mined, _)| *mined == hash)
                    .then_some(Mined { at: BlockRef { number, hash: *block }, ok: true })
            })
        }))
    }

    async fn why(&self, _: Address, _: &[u8], _: u64) -> String {
        "it was reverted".into()
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

fn order(kind: Kind, number: u64) -> Order {
    Order { kind, subject: number.to_string(), target: Address([2; 20]), calldata: number.to_be_bytes().to_vec() }
}

async fn push(db: &SqlitePool, order: &Order, now: u64) -> i64 {
    let desk = Desk::new(db.clone(), KEY, Arc::default());
    desk.order(order, TimeMs(now)).await.unwrap()
}

async fn pass(outbox: &mut Outbox, now: u64, settled: u64) -> Result<Report, outbox_error::Error> {
    outbox.pass(TimeMs(now), settled, |_| None).await
}

mod outbox_error {
    pub type Error = super::super::outbox::OutboxError;
}

#[derive(Clone, Debug)]
enum Op {
    Order(u8),
    Pass,
    /// A pass that dies after so many questions; another process goes on.
    Crash(u8),
    Mine,
    /// The newest block leaves, with what was in it; nodes forget it.
    Reorg,
    /// Nodes forget what is not mined.
    Forget,
    Faults(u8),
    /// Seconds go by, and gas may become dearer.
    Wait(u8, bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0_u8..3).prop_map(Op::Order),
        4 => Just(Op::Pass),
        3 => (0_u8..16).prop_map(Op::Crash),
        2 => Just(Op::Mine),
        1 => Just(Op::Reorg),
        1 => Just(Op::Forget),
        1 => (1_u8..4).prop_map(Op::Faults),
        1 => (0_u8..40, any::<bool>()).prop_map(|(seconds, dearer)| Op::Wait(seconds, dearer)),
    ]
}

async fn play(script: Vec<Op>) {
    let (fake, db) = (Arc::new(Fake::default()), memory().await);
    fake.with(Inner::mine);
    let mut outbox = Outbox::new(db.clone(), fake.clone());
    let (mut now, mut count) = (1_000, 0);
    for op in script {
        match op {
            Op::Order(kind) => {
                let kind = [Kind::Anchor, Kind::Claim, Kind::Register][usize::from(kind)];
                count += 1;
                push(&db, &order(kind, count), now).await;
            }
            // Nothing is final while the script runs, so that any block may leave.
            Op::Pass => drop(pass(&mut outbox, now, 0).await),
            Op::Crash(after) => {
                fake.with(|inner| inner.fuse = Some(after));
                tokio::select! {
                    _ = pass(&mut outbox, now, 0) => {}
                    () = fake.died.notified() => {}
                }
                fake.with(|inner| inner.fuse = None);
                outbox = Outbox::new(db.clone(), fake.clone());
            }
            Op::Mine => fake.with(Inner::mine),
            Op::Reorg => fake.with(|inner| {
                if inner.blocks.len() > 1 {
                    inner.blocks.pop();
                }
            }),
            Op::Forget => fake.with(|inner| inner.pool.clear()),
            Op::Faults(faults) => fake.with(|inner| inner.faults = faults.into()),
            Op::Wait(seconds, dearer) => {
                now += u64::from(seconds) * 1_000;
                fake.with(|inner| inner.fee += u128::from(dearer) * 10);
            }
        }
    }
    fake.with(|inner| inner.faults = 0);
    for _ in 0..40 {
        now += 25_000;
        pass(&mut outbox, now, 0).await.unwrap();
        fake.with(Inner::mine);
    }
    pass(&mut outbox, now, u64::MAX).await.unwrap();
    let rows = outbox::newest(&db, 1_000).await.unwrap();
    let mut wanted: Vec<_> = rows
        .iter()
        .filter(|row| row.status != Status::Dropped)
        .map(|row| {
            assert_eq!(row.status, Status::Final, "{row:?}");
            row.order.calldata.clone()
        })
        .collect();
    let mut executed = fake.with(|inner| inner.executed());
    wanted.sort();
    executed.sort();
    assert_eq!(executed, wanted, "each order is executed once");
    assert_eq!(rows.len() as u64, count);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn every_order_is_executed_once_through_crashes_lost_answers_and_reorganisations(
        script in prop::collection::vec(op(), 1..40),
    ) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(play(script));
    }
}

#[tokio::test]
async fn a_signed_transaction_is_on_disk_before_a_node_has_it() {
    let (fake, db) = (Arc::new(Fake::default()), memory().await);
    let seq = push(&db, &order(Kind::Anchor, 1), 0).await;
    // Gas, fees and nonce are asked; the process dies before the node takes it.
    fake.with(|inner| inner.fuse = Some(3));
    let mut outbox = Outbox::new(db.clone(), fake.clone());
    tokio::select! {
        _ = pass(&mut outbox, 1, 0) => panic!("it should have died"),
        () = fake.died.notified() => {}
    }
    assert_eq!(fake.with(|inner| inner.sends), 0);
    let tries = outbox::tries(&db, seq).await.unwrap();
    assert_eq!((tries.len(), tries[0].sent), (1, None));
    // Its heir sends the same bytes, not new ones.
    fake.with(|inner| inner.fuse = None);
    let mut heir = Outbox::new(db.clone(), fake.clone());
    pass(&mut heir, 2, 0).await.unwrap();
    let sent = fake.with(|inner| inner.pool[&0].0);
    assert_eq!(sent, tries[0].hash);
}

#[tokio::test]
async fn what_the_contract_refuses_is_recorded_with_its_reason_and_burns_no_nonce() {
    let (fake, db) = (Arc::new(Fake::default()), memory().await);
    push(&db, &order(Kind::Anchor, 1), 0).await;
    fake.with(|inner| inner.reverts = true);
    let mut outbox = Outbox::new(db.clone(), fake.clone());
    pass(&mut outbox, 1, 0).await.unwrap();
    let rows = outbox::newest(&db, 9).await.unwrap();
    assert_eq!(rows[0].status, Status::Failed);
    assert_eq!(rows[0].reason.as_deref(), Some("SizeNotAbove(4, 9)"));
    fake.with(|inner| inner.reverts = false);
    push(&db, &order(Kind::Claim, 2), 2).await;
    pass(&mut outbox, 3, 0).await.unwrap();
    assert!(fake.with(|inner| inner.pool.contains_key(&0)));
}

#[tokio::test]
async fn an_order_that_is_done_already_or_overtaken_is_dropped_and_not_sent() {
    let (fake, db) = (Arc::new(Fake::default()), memory().await);
    push(&db, &order(Kind::Anchor, 1), 0).await;
    push(&db, &order(Kind::Anchor, 2), 0).await;
    let mut outbox = Outbox::new(db.clone(), fake.clone());
    outbox.pass(TimeMs(1), 0, |_| Some("anchored already")).await.unwrap();
    let rows = outbox::newest(&db, 9).await.unwrap();
    assert!(rows.iter().all(|row| row.status == Status::Dropped));
    assert_eq!(fake.with(|inner| inner.sends), 0);
}

#[tokio::test]
async fn a_stalled_transaction_is_replaced_by_a_dearer_one_with_the_same_nonce() {
    let (fake, db) = (Arc::new(Fake::default()), memory().await);
    let seq = push(&db, &order(Kind::Claim, 1), 0).await;
    let mut outbox = Outbox::new(db.clone(), fake.clone());
    pass(&mut outbox, 0, 0).await.unwrap();
    pass(&mut outbox, 10_000, 0).await.unwrap();
    assert_eq!(outbox::tries(&db, seq).await.unwrap().len(), 1);
    pass(&mut outbox, 21_000, 0).await.unwrap();
    let tries = outbox::tries(&db, seq).await.unwrap();
    assert_eq!(tries.len(), 2);
    assert!(tries[1].max_fee > tries[0].max_fee);
    fake.with(Inner::mine);
    pass(&mut outbox, 22_000, 9).await.unwrap();
    let row = &outbox::newest(&db, 1).await.unwrap()[0];
    assert_eq!((row.status, row.tx_hash), (Status::Final, Some(tries[1].hash)));
}

#[tokio::test]
async fn an_order_whose_nonce_a_stranger_used_is_sent_again_with_the_next_one() {
    let (fake, db) = (Arc::new(Fake::default()), memory().await);
    push(&db, &order(Kind::Claim, 1), 0).await;
    let mut outbox = Outbox::new(db.clone(), fake.clone());
    pass(&mut outbox, 0, 0).await.unwrap();
    fake.with(|inner| {
        let raw: Raw = (0, 1_000, vec![9]);
        inner.pool.insert(0, (sha256_of(&raw), raw));
        inner.mine();
        inner.mine();
    });
    // The stranger's block is not final: it may leave, and ours be mined with that nonce.
    pass(&mut outbox, 61_000, 0).await.unwrap();
    assert_eq!(outbox::newest(&db, 1).await.unwrap()[0].nonce, Some(0));
    pass(&mut outbox, 62_000, 1).await.unwrap();
    pass(&mut outbox, 63_000, 1).await.unwrap();
    fake.with(Inner::mine);
    pass(&mut outbox, 64_000, 9).await.unwrap();
    let row = outbox::newest(&db, 1).await.unwrap().remove(0);
    assert_eq!((row.status, row.nonce), (Status::Final, Some(1)));
    assert_eq!(fake.with(|inner| inner.executed()), [vec![9], 1_u64.to_be_bytes().to_vec()]);
}
