//! The edges to the chain together, against the embedded development chain and the real contracts.

mod haste;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selion_api::Amount;
use selion_api::chain::ComponentKind;
use selion_contracts::{BlockTag, Rpc, Signer, Voucher};
use selion_market::{Pocket, Policy, State};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::chain::AuthoritySender;
use super::claims::choice::Rules;
use super::outbox::Outbox;
use super::sender::Sender;
use super::{Asked, Loops, Parts};
use crate::keys::Keys;
use crate::mirror::check::{CheckError, LocalLog, Terms, verify_chain, verify_log};
use crate::mirror::{Finality, Mirror, chain::genesis};
use crate::sequencer::{self, Sequencer};
use crate::store::{Store, outbox, signed_voucher};
use crate::testing::{ETHER, chain, pool, provider};
use crate::wall_clock;

const URL: &str = "http://127.0.0.1:7070";

/// One life of a controller's chain side.
struct Life {
    store: Store,
    log: Sequencer,
    keys: Arc<Keys>,
    claims: Asked,
    anchors: Asked,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    writer: JoinHandle<()>,
}

impl Life {
    async fn begin(dir: &Path, terms: &Terms, keys: Arc<Keys>) -> Self {
        Self::begin_once(dir, terms, keys, Arc::new(|| true)).await
    }

    /// The same; nothing is anchored before `agents_back` says so.
    async fn begin_once(
        dir: &Path,
        terms: &Terms,
        keys: Arc<Keys>,
        agents_back: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        let sender = AuthoritySender::new(terms.pool.clone(), keys.authority_signer().clone());
        Self::begin_by(dir, terms, keys, agents_back, Arc::new(sender)).await
    }

    /// The same; its transactions go out by `sender`.
    async fn begin_by(
        dir: &Path,
        terms: &Terms,
        keys: Arc<Keys>,
        agents_back: Arc<dyn Fn() -> bool + Send + Sync>,
        sender: Arc<dyn Sender>,
    ) -> Self {
        let (store, stop) = (Store::open(dir).await.unwrap(), CancellationToken::new());
        let local = LocalLog::read(&store, &terms.anchor).await.unwrap();
        verify_log(&local, &terms.anchor).unwrap();
        let (signing, pool) = (keys.clone(), terms.id);
        let parts = sequencer::Parts {
            store: store.clone(),
            pool: terms.id,
            epoch: terms.epoch,
            delegate: keys.delegate(),
            policy: Policy::default(),
            sign: Arc::new(move |head| signing.sign_head(head, &pool)),
            clock: wall_clock,
        };
        let (log, writer) = Sequencer::start(parts, stop.clone()).await.unwrap();
        let mirror = Mirror::new();
        let parts = Parts {
            store: store.clone(),
            log: log.clone(),
            keys: keys.clone(),
            pool: terms.pool.clone(),
            sender,
            mirror: mirror.clone(),
            fence: log.position().fence,
            anchor_ms: 3_600_000,
            claims: Rules { claim_min: Amount(5_000_000), claim_ms: 3_600_000 },
            agents_back,
            public_url: Some(URL.into()),
            outbox: Arc::default(),
            clock: wall_clock,
        };
        let Loops { anchors, claims, mut tasks, .. } = Loops::start(&parts, &stop);
        let birth = genesis(&terms.pool).await.unwrap();
        let (source, following, db) = (Arc::new(terms.pool.clone()), Arc::new(log.clone()), store.writer.clone());
        let (poll, mirror_stop) = (Duration::from_millis(20), stop.clone());
        tasks.spawn(async move {
            let finality = Finality::Depth(0);
            mirror.run(source, following, db, finality, birth, poll, mirror_stop).await.unwrap();
        });
        Self { store, log, keys, claims, anchors, stop, tasks, writer }
    }

    /// Waits until the committed State says so.
    async fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let mut batches = self.log.subscribe();
        let wait = async {
            while !self.log.read(&holds) {
                let _ = batches.recv().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    async fn end(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.writer.await.unwrap();
        self.store.close().await;
    }
}

async fn terms(url: &str, controller: selion_api::Address, keys: &Keys) -> Terms {
    verify_chain(url, Some(controller), None, keys.authority(), keys.delegate()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_is_made_followed_registered_claimed_and_anchored_and_a_restart_repeats_nothing() {
    let (dir, chain_stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let (url, chain_task) = chain(dir.path(), &chain_stop).await;
    let rpc = Rpc::new(&url).unwrap();
    let (keys, file) = pool(&url, &data).await;
    let keys = Arc::new(keys);
    let life = Life::begin(&data, &terms(&url, file.controller, &keys).await, keys.clone()).await;
    let pool = terms(&url, file.controller, &keys).await.pool;

    // The first block in the log is the one that made the pool.
    life.until("the pool's terms", |state| state.pool.as_ref().is_some_and(|pool| pool.fee_bps == 200)).await;
    let key = (keys.authority(), ComponentKind::Controller, URL.to_owned());
    life.until("our own registration", |state| state.components.contains_key(&key)).await;

    // A renter pays in and grants; the log sees it.
    let (renter, provider) = (Signer::random().unwrap(), provider(&pool, 9).await);
    rpc.give_coins(renter.account(), ETHER).await.unwrap();
    let until = wall_clock().plus(86_400_000);
    for call in [
        pool.mint(renter.address(), 5_000_000),
        pool.approve_vault(),
        pool.deposit(Amount(5_000_000)),
        pool.grant(keys.delegate(), Amount(3_000_000), until),
    ] {
        pool.send(&renter, call).await.unwrap();
    }
    let who = renter.account();
    life.until("the deposit", |state| state.ledger.holds(Pocket::Free(who)) == Amount(5_000_000)).await;
    life.until("the grant", |state| state.grants.contains_key(&who)).await;

    // A voucher with both signatures is swept in.
    let voucher = Voucher {
        renter: who,
        provider,
        cumulative: Amount(70_000),
        used_through: wall_clock(),
        epoch: 1,
        log_size: 1,
    };
    let (first, second) = life.keys.sign_voucher(voucher.digest(pool.chain_id, pool.at.vault));
    signed_voucher::put(&life.store.writer, &voucher.signed(first, second), wall_clock()).await.unwrap();
    life.claims.now();
    life.until("the claim", |state| state.books.get(&who).is_some_and(|books| books.claimed == Amount(70_000))).await;
    let (claimed, _) = pool.claimed(provider, who, BlockTag::Latest).await.unwrap();
    assert_eq!(claimed, Amount(70_000));

    life.anchors.now();
    let grown = life.log.read(|state| state.next_seq);
    life.until("an anchor", |state| state.pool.as_ref().is_some_and(|pool| pool.anchored >= grown - 1)).await;
    let block = life.log.read(|state| state.block);
    life.end().await;

    // A restart finds its log anchored and goes on behind the last block.
    let after = terms(&url, file.controller, &keys).await;
    assert!(after.anchor.size > 0);
    let life = Life::begin(&data, &after, keys.clone()).await;
    assert_eq!(life.log.read(|state| state.block), block);
    let opened = life.log.read(|state| state.next_seq);
    // A thaw makes everything of the renter due; what is claimed already is not claimed again.
    pool.send(&renter, pool.thaw(Amount(1))).await.unwrap();
    life.until("the thaw", |state| state.books.get(&who).is_some_and(|books| books.thawing == Amount(1))).await;
    assert!(life.log.read(|state| state.next_seq) > opened);
    let rows = outbox::newest(&life.store.readers, 99).await.unwrap();
    let claims = rows.iter().filter(|row| row.order.kind == outbox::Kind::Claim).count();
    assert_eq!(claims, 1, "{rows:?}");
    life.end().await;

    // An empty data directory cannot stand in for the anchored log, nor another key for the authority.
    let other = tempfile::tempdir().unwrap();
    let store = Store::open(other.path()).await.unwrap();
    let local = LocalLog::read(&store, &after.anchor).await.unwrap();
    assert!(matches!(verify_log(&local, &after.anchor), Err(CheckError::Shorter { local: 0, .. })));
    let stranger = Keys::open(other.path(), None).unwrap();
    let refused = verify_chain(&url, Some(file.controller), None, stranger.authority(), stranger.delegate()).await;
    assert!(matches!(refused, Err(CheckError::NotAuthority { .. })));
    let refused = verify_chain(&url, Some(file.controller), Some(1), keys.authority(), keys.delegate()).await;
    assert!(matches!(refused, Err(CheckError::OtherChain { want: 1, .. })));
    chain_stop.cancel();
    chain_task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thaw_makes_the_vouchers_of_that_renter_due_and_large_sums_are_due_without_one() {
    let (dir, chain_stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let (url, chain_task) = chain(dir.path(), &chain_stop).await;
    let rpc = Rpc::new(&url).unwrap();
    let (keys, file) = pool(&url, &data).await;
    let life = Life::begin(&data, &terms(&url, file.controller, &keys).await, Arc::new(keys)).await;
    let pool = terms(&url, file.controller, &life.keys).await.pool;
    let renters = [Signer::random().unwrap(), Signer::random().unwrap()];
    let until = wall_clock().plus(86_400_000);
    for renter in &renters {
        rpc.give_coins(renter.account(), ETHER).await.unwrap();
        for call in [
            pool.mint(renter.address(), 9_000_000),
            pool.approve_vault(),
            pool.deposit(Amount(9_000_000)),
            pool.grant(life.keys.delegate(), Amount(9_000_000), until),
        ] {
            pool.send(renter, call).await.unwrap();
        }
        life.until("the deposit", |state| state.books.contains_key(&renter.account())).await;
    }
    let providers = [provider(&pool, 7).await, provider(&pool, 8).await, provider(&pool, 9).await];
    let keep = async |renter: &Signer, provider: u8, cumulative: u64| {
        let (renter, provider) = (renter.account(), providers[usize::from(provider) - 7]);
        let (cumulative, used_through) = (Amount(cumulative), wall_clock());
        let voucher = Voucher { renter, provider, cumulative, used_through, epoch: 1, log_size: 1 };
        let (first, second) = life.keys.sign_voucher(voucher.digest(pool.chain_id, pool.at.vault));
        signed_voucher::put(&life.store.writer, &voucher.signed(first, second), wall_clock()).await.unwrap();
    };
    // One renter owes two providers little, and one of them much; the other one owes one of them little.
    keep(&renters[0], 8, 70_000).await;
    keep(&renters[0], 9, 80_000).await;
    keep(&renters[1], 9, 90_000).await;
    keep(&renters[1], 7, 5_000_000).await;
    let claimed = |renter: &Signer, sum: u64| {
        let renter = renter.account();
        move |state: &State| state.books.get(&renter).is_some_and(|books| books.claimed == Amount(sum))
    };
    // The sweeper looks every few seconds; the thaw wakes it.
    pool.send(&renters[0], pool.thaw(Amount(1))).await.unwrap();
    life.until("the claims of who thaws", claimed(&renters[0], 150_000)).await;
    life.until("the claim of what is large", claimed(&renters[1], 5_000_000)).await;
    let left = pool.claimed(providers[2], renters[1].account(), BlockTag::Latest).await.unwrap();
    assert_eq!(left.0, Amount::ZERO, "what is small waits, in the same provider's batch too");
    let rows = outbox::newest(&life.store.readers, 99).await.unwrap();
    let mut claims: Vec<_> =
        rows.iter().filter(|row| row.order.kind == outbox::Kind::Claim).map(|row| row.order.subject.clone()).collect();
    claims.sort();
    let mut each = providers.map(|provider| provider.to_string());
    each.sort();
    assert_eq!(claims, each, "one transaction a provider");

    // A voucher whose signature is not the authority's is not claimed, and keeps none of the others.
    sqlx::query("update signed_voucher set authority_signature = renter_signature where cumulative = ?1")
        .bind(90_000_u64.to_be_bytes().to_vec())
        .execute(&life.store.writer)
        .await
        .unwrap();
    keep(&renters[0], 9, 100_000).await;
    life.claims.now();
    life.until("the rest", claimed(&renters[0], 170_000)).await;
    let left = pool.claimed(providers[2], renters[1].account(), BlockTag::Latest).await.unwrap();
    assert_eq!(left.0, Amount::ZERO);
    life.end().await;
    chain_stop.cancel();
    chain_task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_anchored_before_the_agents_are_back_and_then_it_is() {
    let (dir, chain_stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (url, chain_task) = chain(dir.path(), &chain_stop).await;
    let (keys, file) = pool(&url, dir.path()).await;
    let back = Arc::new(AtomicBool::new(false));
    let (asks, mut asked) = mpsc::unbounded_channel();
    let told = back.clone();
    let agents_back = Arc::new(move || {
        let back = told.load(Ordering::Acquire);
        asks.send(back).unwrap();
        back
    });
    let terms = terms(&url, file.controller, &keys).await;
    let life = Life::begin_once(dir.path(), &terms, Arc::new(keys), agents_back).await;

    // Passes follow each other: at the third question two passes are over, of which one was asked for.
    assert_eq!(asked.recv().await, Some(false));
    for _ in 0..2 {
        life.anchors.now();
        assert_eq!(asked.recv().await, Some(false));
    }
    let rows = outbox::newest(&life.store.readers, 99).await.unwrap();
    assert!(rows.iter().all(|row| row.order.kind != outbox::Kind::Anchor), "{rows:?}");

    back.store(true, Ordering::Release);
    life.anchors.now();
    life.until("an anchor", |state| state.pool.as_ref().is_some_and(|pool| pool.anchored > 0)).await;
    life.end().await;
    chain_stop.cancel();
    chain_task.await.unwrap();
}

#[tokio::test]
async fn an_order_that_no_controller_gives_is_never_signed() {
    let (dir, chain_stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let (url, chain_task) = chain(dir.path(), &chain_stop).await;
    let (keys, file) = pool(&url, &data).await;
    let pool = terms(&url, file.controller, &keys).await.pool;
    let store = Store::open(&data).await.unwrap();
    let sender = AuthoritySender::new(pool.clone(), keys.authority_signer().clone());
    // The chain would take the first from this key: the vault may have all its tokens.
    let forged = [pool.approve_vault(), pool.put_bond(Amount(7))];
    for (number, call) in forged.into_iter().enumerate() {
        let (kind, subject) = (outbox::Kind::Relay, number.to_string());
        let order = outbox::Order { kind, subject, target: call.to, calldata: call.data };
        outbox::push(&store.writer, sender.address(), &order, wall_clock()).await.unwrap();
    }
    let mut sending = Outbox::new(store.writer.clone(), Arc::new(sender));
    sending.pass(wall_clock(), 0, |_| None).await.unwrap();
    for row in outbox::newest(&store.readers, 99).await.unwrap() {
        assert_eq!((row.status, row.nonce), (outbox::Status::Failed, None));
        assert!(row.reason.is_some_and(|why| why.contains("somebody altered the outbox")));
    }
    chain_stop.cancel();
    chain_task.await.unwrap();
}
