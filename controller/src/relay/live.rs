//! Relaying against the embedded development chain and the real contracts.

use std::path::Path;

use selion_api::rest::Hex;
use selion_api::{Account, Amount, Hash32, NodeId};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Permit, Pool, Rpc, Signer};
use tokio_util::sync::CancellationToken;

use super::ground::OnChain;
use super::*;
use crate::keys::Keys;
use crate::loops::chain::AuthoritySender;
use crate::loops::outbox::Outbox;
use crate::mirror::pool::{PoolOptions, create_pool};
use crate::testing::{ETHER, chain, owner};
use crate::wall_clock;

const LATEST: BlockTag = BlockTag::Latest;

/// A pool whose owners need no stake, and a counter in front of it.
struct Scene {
    pool: Pool,
    forwarder: Address,
    keys: Keys,
    store: Store,
    relay: Relay,
}

impl Scene {
    async fn open(url: &str, dir: &Path) -> Self {
        let (rpc, keys) = (Rpc::new(url).unwrap(), Keys::open(dir, None).unwrap());
        rpc.give_coins(keys.authority(), ETHER).await.unwrap();
        let options =
            PoolOptions { min_stake: Amount::ZERO, ..PoolOptions::development(owner().account(), keys.authority()) };
        rpc.give_coins(owner().account(), ETHER).await.unwrap();
        let file = create_pool(&rpc, &owner(), &options).await.unwrap();
        let pool = Pool::open(rpc, file.controller).await.unwrap();
        let forwarder = pool.forwarder(LATEST).await.unwrap();
        let store = Store::open(dir).await.unwrap();
        let relay = counter(&pool, forwarder, &keys, &store);
        Self { pool, forwarder, keys, store, relay }
    }

    /// The same after the end of its process: only what is on disk is left.
    async fn again(self, dir: &Path) -> Self {
        self.store.close().await;
        let store = Store::open(dir).await.unwrap();
        let relay = counter(&self.pool, self.forwarder, &self.keys, &store);
        Self { store, relay, ..self }
    }

    async fn signed(&self, from: &Signer, call: Call) -> NewRelay {
        let nonce = self.pool.forwarder_nonce(self.forwarder, from.account()).await.unwrap();
        let deadline_s = wall_clock().0 / 1_000 + 600;
        let request =
            ForwardRequest { from: from.account(), to: call.to, gas: 300_000, nonce, deadline_s, data: call.data };
        self.with_signature(from, request)
    }

    fn with_signature(&self, by: &Signer, request: ForwardRequest) -> NewRelay {
        let signature = request.sign(by, self.pool.chain_id, self.forwarder).unwrap();
        NewRelay {
            from: request.from,
            to: request.to,
            gas: request.gas,
            nonce: request.nonce,
            deadline_ms: TimeMs(request.deadline_s * 1_000),
            data: Hex(request.data),
            signature: Hex(signature.0.to_vec()),
        }
    }

    async fn take(&self, new: &NewRelay) -> Result<RelayView, Refusal> {
        match self.relay.take(new, None, wall_clock()).await {
            Ok(view) => Ok(view),
            Err(RelayError::Refused(refusal)) => Err(refusal),
            Err(RelayError::Store(error)) => panic!("{error}"),
        }
    }

    fn outbox(&self) -> Outbox {
        let sender = AuthoritySender::new(self.pool.clone(), self.keys.authority_signer().clone());
        Outbox::new(self.store.writer.clone(), Arc::new(sender))
    }

    async fn view(&self, id: u64) -> RelayView {
        view(relay::get(&self.store.readers, i64::try_from(id).unwrap()).await.unwrap().unwrap())
    }

    /// Relays a call to its end: the chain mines what it is sent.
    async fn relays(&self, from: &Signer, call: Call) -> RelayView {
        let taken = self.take(&self.signed(from, call).await).await.unwrap();
        let mut outbox = self.outbox();
        for _ in 0..2 {
            outbox.pass(wall_clock(), 0, |_| None).await.unwrap();
        }
        self.view(taken.id).await
    }
}

fn counter(pool: &Pool, forwarder: Address, keys: &Keys, store: &Store) -> Relay {
    let payer = keys.authority();
    let rules = Rules { at: pool.at, chain_id: pool.chain_id, forwarder, payer: Address(payer.0), per_day: 100 };
    let ground = OnChain { pool: pool.clone(), forwarder, payer };
    Relay::new(rules, store.clone(), Arc::new(ground), Arc::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_whose_wallet_has_nothing_registers_provider_node_and_offer() {
    let (dir, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (url, task) = chain(dir.path(), &stop).await;
    let scene = Scene::open(&url, dir.path()).await;
    let (pool, owner, key) = (&scene.pool, Signer::random().unwrap(), Signer::random().unwrap());
    let (me, node, spec) = (owner.account(), NodeId(key.account().0), Hash32([5; 32]));

    // Without a provider there is no node: the pool's own reason is told, and nothing is sent.
    let consent = pool.sign_node_binding(&key, me, 0).unwrap();
    let early = scene.signed(&owner, pool.register_node(node, &consent)).await;
    let refused = scene.take(&early).await.unwrap_err().to_string();
    assert!(refused.contains("NotStaked") && refused.contains(&me.to_string()), "{refused}");

    let calls = [
        pool.register_provider(owner.address(), Amount::ZERO),
        pool.register_node(node, &consent),
        pool.set_offer(node, spec, 1 << 5, ""),
    ];
    for call in calls {
        let done = scene.relays(&owner, call).await;
        assert_eq!((done.state, &done.reason), (RelayState::Mined, &None), "{done:?}");
        assert!(done.transaction.is_some() && done.block_number.is_some());
    }
    assert_eq!(pool.provider(me, LATEST).await.unwrap().unwrap().payout, owner.address());
    assert_eq!(pool.node(node, LATEST).await.unwrap().provider, Some(me));
    assert_eq!(pool.offer(node, LATEST).await.unwrap().unwrap().spec_hash, spec);
    assert_eq!(pool.rpc.balance(me).await.unwrap(), 0);
    assert_eq!(pool.rpc.nonce(me, LATEST).await.unwrap(), 0);
    assert_eq!(pool.forwarder_nonce(scene.forwarder, me).await.unwrap(), 3);
    scene.store.close().await;
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_of_a_wallet_that_has_nothing_counts_once() {
    let (dir, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (url, task) = chain(dir.path(), &stop).await;
    let scene = Scene::open(&url, dir.path()).await;
    let (pool, owner) = (&scene.pool, Signer::random().unwrap());
    let (me, court) = (owner.account(), pool.at.court);
    let domain = pool.permit_domain().await.unwrap().unwrap();
    let deadline_s = wall_clock().0 / 1_000 + 600;
    let signed = |nonce| {
        let permit = Permit::endless(me, court, nonce, deadline_s);
        let signature = permit.sign(&owner, domain).unwrap();
        let call = permit.call(pool.at.token, &signature);
        let request = ForwardRequest { from: me, to: call.to, gas: 100_000, nonce, deadline_s, data: call.data };
        NewRelay { signature: Hex(signature.0.to_vec()), ..scene.with_signature(&owner, request) }
    };
    // A contract without permits, and an account that is none.
    for token in [pool.at.vault, owner.address()] {
        let plain = Pool { at: PoolAddresses { token, ..pool.at }, ..pool.clone() };
        assert_eq!(plain.permit_domain().await.unwrap(), None);
    }
    let early = scene.take(&signed(1)).await;
    assert!(matches!(early, Err(Refusal::Nonce { next: 0, .. })), "{early:?}");
    let taken = scene.take(&signed(0)).await.unwrap();
    let mut outbox = scene.outbox();
    for _ in 0..2 {
        outbox.pass(wall_clock(), 0, |_| None).await.unwrap();
    }
    assert_eq!(scene.view(taken.id).await.state, RelayState::Mined);
    assert_eq!(pool.allowance(owner.address(), court, LATEST).await.unwrap(), u128::MAX);
    assert_eq!((pool.permit_nonce(me).await.unwrap(), pool.rpc.balance(me).await.unwrap()), (1, 0));
    assert_eq!(scene.take(&signed(0)).await.unwrap().state, RelayState::Mined, "the same again is the same answer");
    scene.store.close().await;
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forged_replayed_late_or_of_another_pool_never_reaches_the_chain() {
    let (dir, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (url, task) = chain(dir.path(), &stop).await;
    let scene = Scene::open(&url, dir.path()).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Scene::open(&url, elsewhere.path()).await;
    let (pool, owner, thief) = (&scene.pool, Signer::random().unwrap(), Signer::random().unwrap());
    let (me, join) = (owner.account(), pool.register_provider(owner.address(), Amount::ZERO));

    let request = |deadline_s, nonce| ForwardRequest {
        from: me,
        to: join.to,
        gas: 300_000,
        nonce,
        deadline_s,
        data: join.data.clone(),
    };
    let soon = wall_clock().0 / 1_000 + 600;
    let forged = scene.take(&scene.with_signature(&thief, request(soon, 0))).await;
    assert!(matches!(forged, Err(Refusal::NotSigned { .. })));
    let foreign = other.signed(&owner, other.pool.register_provider(Address(me.0), Amount::ZERO)).await;
    assert!(matches!(scene.take(&foreign).await, Err(Refusal::NotACall(_))));
    // The other pool's forwarder is another one: its signature is none here.
    let theirs = scene.take(&other.with_signature(&owner, request(soon, 0))).await;
    assert!(matches!(theirs, Err(Refusal::NotSigned { .. })));
    let late = scene.take(&scene.with_signature(&owner, request(1, 0))).await;
    assert!(matches!(late, Err(Refusal::Lapsed { .. })));
    let early = scene.take(&scene.with_signature(&owner, request(soon, 1))).await;
    assert!(matches!(early, Err(Refusal::Nonce { next: 0, .. })));
    assert_eq!(scene.outbox().pass(wall_clock(), 0, |_| None).await.unwrap().signed, 0);
    assert_eq!(pool.forwarder_nonce(scene.forwarder, me).await.unwrap(), 0);

    // The forwarder itself refuses what a careless counter would take: signed by a thief.
    let unjudged = request(soon, 0);
    let signature = unjudged.sign(&thief, pool.chain_id, scene.forwarder).unwrap();
    let payer = scene.keys.authority();
    let told = pool.try_request(scene.forwarder, &unjudged, &signature.0, payer).await.unwrap_err().to_string();
    assert!(told.contains("ERC2771ForwarderInvalidSigner"), "{told}");

    let done = scene.relays(&owner, join.clone()).await;
    assert_eq!(done.state, RelayState::Mined);
    let replayed = scene.take(&scene.with_signature(&owner, request(soon + 1, 0))).await;
    assert!(matches!(replayed, Err(Refusal::Busy { .. } | Refusal::Nonce { next: 1, .. })), "{replayed:?}");
    scene.store.close().await;
    other.store.close().await;
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_the_pool_refuses_after_it_was_taken_is_told_with_the_pools_reason_and_costs_nothing() {
    let (dir, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (url, task) = chain(dir.path(), &stop).await;
    let scene = Scene::open(&url, dir.path()).await;
    let (pool, owner, key) = (&scene.pool, Signer::random().unwrap(), Signer::random().unwrap());
    let (me, node) = (owner.account(), NodeId(key.account().0));
    scene.relays(&owner, pool.register_provider(owner.address(), Amount::ZERO)).await;
    let consent = pool.sign_node_binding(&key, me, 0).unwrap();
    let taken = scene.take(&scene.signed(&owner, pool.register_node(node, &consent)).await).await.unwrap();
    // Meanwhile he does it with coins of his own.
    pool.rpc.give_coins(me, ETHER).await.unwrap();
    pool.send(&owner, pool.register_node(node, &consent)).await.unwrap();
    let mut outbox = scene.outbox();
    let report = outbox.pass(wall_clock(), u64::MAX, |_| None).await.unwrap();
    assert_eq!(report.signed, 0);
    let told = scene.view(taken.id).await;
    assert_eq!(told.state, RelayState::Failed);
    assert!(told.reason.as_deref().is_some_and(|reason| reason.starts_with("AlreadyBound")), "{told:?}");
    scene.store.close().await;
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_taken_before_a_crash_is_sent_once_after_it() {
    let (dir, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (url, task) = chain(dir.path(), &stop).await;
    let scene = Scene::open(&url, dir.path()).await;
    let owner = Signer::random().unwrap();
    let join = scene.pool.register_provider(owner.address(), Amount::ZERO);
    let new = scene.signed(&owner, join).await;
    let taken = scene.take(&new).await.unwrap();
    assert_eq!(taken.state, RelayState::Waiting);

    let scene = scene.again(dir.path()).await;
    assert_eq!(scene.take(&new).await, Ok(taken.clone()));
    // Signed and sent, and the process ends before it sees the receipt.
    assert_eq!(scene.outbox().pass(wall_clock(), 0, |_| None).await.unwrap().signed, 1);
    let scene = scene.again(dir.path()).await;
    let mut outbox = scene.outbox();
    for _ in 0..2 {
        outbox.pass(wall_clock(), 0, |_| None).await.unwrap();
    }
    assert_eq!(scene.view(taken.id).await.state, RelayState::Mined);
    assert_eq!(scene.take(&new).await.unwrap().state, RelayState::Mined);
    let me: Account = owner.account();
    assert_eq!(scene.pool.forwarder_nonce(scene.forwarder, me).await.unwrap(), 1);
    assert!(scene.pool.provider(me, LATEST).await.unwrap().is_some());
    scene.store.close().await;
    stop.cancel();
    task.await.unwrap();
}
