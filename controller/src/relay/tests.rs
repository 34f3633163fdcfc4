//! Requests over a real store and a played chain.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use async_trait::async_trait;
use selion_api::rest::Hex;
use selion_api::{Account, Amount, Hash32, Signature};
use selion_contracts::write::Call;
use selion_contracts::{Permit, Pool, Rpc, Signer};

use super::*;
use crate::store::outbox;

const NOW: TimeMs = TimeMs(1_800_000_000_000);
const PAYER: Address = Address([0xa0; 20]);
const FORWARDER: Address = Address([7; 20]);
/// The token's, for its permits.
const DOMAIN: Hash32 = Hash32([0xd0; 32]);

/// A chain as its node would answer.
#[derive(Default)]
struct Played {
    nonces: Mutex<BTreeMap<Account, u64>>,
    /// A contract wallet that accepts this signature.
    wallet: Option<(Account, Vec<u8>)>,
    reverts: Option<&'static str>,
    dead: bool,
    /// Permits that the token took of anybody.
    permits: u64,
    /// A token that knows none.
    plain_token: bool,
}

#[async_trait]
impl Ground for Played {
    async fn next_nonce(&self, counter: Address, of: Account) -> Result<u64, Refusal> {
        if self.dead {
            return Err(Refusal::NoAnswer { why: "connection refused".into() });
        }
        if counter != FORWARDER {
            return Ok(self.permits);
        }
        Ok(self.nonces.lock().unwrap().get(&of).copied().unwrap_or(0))
    }

    async fn accepts(&self, who: Account, _: Hash32, signature: &[u8]) -> Result<bool, Refusal> {
        Ok(self.wallet.as_ref().is_some_and(|(wallet, accepted)| (*wallet, &accepted[..]) == (who, signature)))
    }

    async fn permit_domain(&self) -> Result<Option<Hash32>, Refusal> {
        Ok((!self.plain_token).then_some(DOMAIN))
    }

    async fn try_out(&self, _: &ForwardRequest, _: &[u8]) -> Result<(), Refusal> {
        self.reverts.map_or(Ok(()), |reason| Err(Refusal::Reverted { reason: reason.into() }))
    }

    async fn try_call(&self, _: &Call) -> Result<(), Refusal> {
        self.reverts.map_or(Ok(()), |reason| Err(Refusal::Reverted { reason: reason.into() }))
    }
}

pub(super) fn pool() -> Pool {
    let at = PoolAddresses {
        factory: Address::ZERO,
        controller: Address([1; 20]),
        vault: Address([2; 20]),
        court: Address([4; 20]),
        token: Address([3; 20]),
    };
    Pool { rpc: Rpc::new("http://127.0.0.1:1").unwrap(), chain_id: 31_337, at }
}

fn key(byte: u8) -> Signer {
    Signer::from_bytes(&[byte; 32]).unwrap()
}

struct Scene {
    _dir: tempfile::TempDir,
    store: Store,
    relay: Relay,
}

impl Scene {
    async fn open(ground: Played, per_day: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let pool = pool();
        let rules = Rules { at: pool.at, chain_id: pool.chain_id, forwarder: FORWARDER, payer: PAYER, per_day };
        let relay = Relay::new(rules, store.clone(), Arc::new(ground), Arc::default());
        Self { _dir: dir, store, relay }
    }

    async fn take(&self, new: &NewRelay) -> Result<RelayView, Refusal> {
        self.take_from(new, 1).await
    }

    async fn take_from(&self, new: &NewRelay, peer: u8) -> Result<RelayView, Refusal> {
        let peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, peer));
        match self.relay.take(new, Some(peer), NOW).await {
            Ok(view) => Ok(view),
            Err(RelayError::Refused(refusal)) => Err(refusal),
            Err(RelayError::Store(error)) => panic!("{error}"),
        }
    }

    /// Transactions that were ordered.
    async fn ordered(&self) -> usize {
        outbox::newest(&self.store.readers, 999).await.unwrap().len()
    }
}

fn unsigned(from: &Signer, call: Call, nonce: u64) -> ForwardRequest {
    let deadline_s = NOW.0 / 1_000 + 600;
    ForwardRequest { from: from.account(), to: call.to, gas: 200_000, nonce, deadline_s, data: call.data }
}

fn with_signature(request: &ForwardRequest, signature: Vec<u8>) -> NewRelay {
    NewRelay {
        from: request.from,
        to: request.to,
        gas: request.gas,
        nonce: request.nonce,
        deadline_ms: TimeMs(request.deadline_s * 1_000),
        data: Hex(request.data.clone()),
        signature: Hex(signature),
    }
}

fn signed(by: &Signer, request: &ForwardRequest) -> NewRelay {
    with_signature(request, request.sign(by, 31_337, FORWARDER).unwrap().0.to_vec())
}

fn thaw(from: &Signer, nonce: u64) -> NewRelay {
    signed(from, &unsigned(from, pool().thaw(Amount(7)), nonce))
}

#[tokio::test]
async fn a_good_request_is_ordered_once_however_often_it_is_sent() {
    let scene = Scene::open(Played::default(), 10).await;
    let first = scene.take(&thaw(&key(9), 0)).await.unwrap();
    assert_eq!((first.state, first.call.as_str(), first.nonce), (RelayState::Waiting, "thaw", 0));
    assert_eq!(scene.take(&thaw(&key(9), 0)).await, Ok(first.clone()));
    let rows = outbox::newest(&scene.store.readers, 9).await.unwrap();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.order.kind, row.order.target, row.status), (Kind::Relay, FORWARDER, Status::Queued));
    let request = unsigned(&key(9), pool().thaw(Amount(7)), 0);
    assert_eq!(row.order.calldata, request.execute(FORWARDER, &thaw(&key(9), 0).signature.0).data);
    let other = signed(&key(9), &unsigned(&key(9), pool().thaw(Amount(8)), 0));
    let id = row.seq;
    assert_eq!(scene.take(&other).await, Err(Refusal::Busy { from: key(9).account(), nonce: 0, id }));
    assert_eq!(scene.ordered().await, 1);
}

#[tokio::test]
async fn requests_of_two_accounts_wait_beside_each_other() {
    let scene = Scene::open(Played::default(), 10).await;
    for byte in [8, 9] {
        assert_eq!(scene.take(&thaw(&key(byte), 0)).await.unwrap().state, RelayState::Waiting);
    }
    let live = outbox::live(&scene.store.readers, PAYER).await.unwrap();
    assert_eq!(live.iter().map(|row| row.status).collect::<Vec<_>>(), [Status::Queued; 2]);
}

#[tokio::test]
async fn what_is_forged_foreign_replayed_late_or_refused_is_named_and_nothing_is_ordered() {
    let (me, thief) = (key(9), key(8));
    let request = unsigned(&me, pool().thaw(Amount(7)), 0);
    let elsewhere = request.sign(&me, 31_337, Address([8; 20])).unwrap().0.to_vec();
    let other_chain = request.sign(&me, 1, FORWARDER).unwrap().0.to_vec();
    let late = ForwardRequest { deadline_s: NOW.0 / 1_000, ..request.clone() };
    let foreign = ForwardRequest { to: Address([5; 20]), ..request.clone() };
    let scene = Scene::open(Played::default(), 10).await;
    for forged in [
        signed(&thief, &request),
        with_signature(&request, elsewhere),
        with_signature(&request, other_chain),
        with_signature(&request, Vec::new()),
        NewRelay { gas: 1, ..signed(&me, &request) },
        NewRelay { data: Hex(pool().thaw(Amount(8)).data), ..signed(&me, &request) },
    ] {
        assert!(matches!(scene.take(&forged).await, Err(Refusal::NotSigned { .. })), "{forged:?}");
    }
    assert!(matches!(scene.take(&signed(&me, &late)).await, Err(Refusal::Lapsed { .. })));
    assert!(matches!(scene.take(&signed(&me, &foreign)).await, Err(Refusal::NotACall(_))));
    let authority = unsigned(&me, pool().announce_owner(me.account()), 0);
    assert!(matches!(scene.take(&signed(&me, &authority)).await, Err(Refusal::NotRelayed { .. })));
    assert_eq!(scene.ordered().await, 0);

    let replayed = Scene::open(Played { nonces: Mutex::new([(me.account(), 1)].into()), ..Played::default() }, 9).await;
    let refused = replayed.take(&signed(&me, &request)).await;
    assert_eq!(refused, Err(Refusal::Nonce { from: me.account(), given: 0, next: 1 }));
    let reverts = Scene::open(Played { reverts: Some("Nothing()"), ..Played::default() }, 9).await;
    assert_eq!(reverts.take(&signed(&me, &request)).await, Err(Refusal::Reverted { reason: "Nothing()".into() }));
    let dead = Scene::open(Played { dead: true, ..Played::default() }, 9).await;
    assert!(matches!(dead.take(&signed(&me, &request)).await, Err(Refusal::NoAnswer { .. })));
    let off = Relay::off().take(&signed(&me, &request), None, NOW).await;
    assert!(matches!(off, Err(RelayError::Refused(Refusal::Off))));
    assert_eq!((replayed.ordered().await, reverts.ordered().await, dead.ordered().await), (0, 0, 0));
}

/// A permit of that nonce for the pool's Controller, signed by `by` under `domain`.
fn permit_by(by: &Signer, owner: &Signer, nonce: u64, domain: Hash32) -> NewRelay {
    let permit = Permit::endless(owner.account(), pool().at.controller, nonce, NOW.0 / 1_000 + 600);
    let signature = permit.sign(by, domain).unwrap();
    let call = permit.call(pool().at.token, &signature);
    with_signature(&unsigned(owner, call, nonce), signature.0.to_vec())
}

/// The other signature that the same key could have given: its `s` is the order of secp256k1 less the first one's.
fn twin(of: &Signature) -> Signature {
    let order: [u8; 32] =
        hex::decode("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141").unwrap().try_into().unwrap();
    let (mut twin, mut borrow) = (*of, 0);
    for at in (0..32).rev() {
        let less = i16::from(order[at]) - i16::from(of.0[32 + at]) - borrow;
        borrow = i16::from(less < 0);
        twin.0[32 + at] = u8::try_from(less.rem_euclid(256)).unwrap();
    }
    twin.0[64] = 55 - of.0[64];
    twin
}

fn permit(owner: &Signer, nonce: u64) -> NewRelay {
    permit_by(owner, owner, nonce, DOMAIN)
}

#[tokio::test]
async fn a_permit_is_ordered_once_beside_the_call_with_the_same_nonce() {
    let (scene, me) = (Scene::open(Played::default(), 10).await, key(9));
    let called = scene.take(&thaw(&me, 0)).await.unwrap();
    let taken = scene.take(&permit(&me, 0)).await.unwrap();
    assert_ne!(taken.id, called.id, "the token counts its own nonces");
    assert_eq!((taken.state, taken.call.as_str(), taken.nonce), (RelayState::Waiting, "permit", 0));
    assert_eq!(scene.take(&permit(&me, 0)).await, Ok(taken.clone()));
    assert_eq!(scene.take(&thaw(&me, 0)).await, Ok(called));
    let rows = outbox::newest(&scene.store.readers, 9).await.unwrap();
    let row = rows.iter().find(|row| uint(row.seq) == taken.id).unwrap();
    // Not by way of the forwarder: the token does not ask who calls.
    assert_eq!((row.order.kind, row.order.target), (Kind::Relay, pool().at.token));
    assert_eq!(row.order.calldata, permit(&me, 0).data.0);
    assert_eq!(rows.len(), 2);
}

#[tokio::test]
async fn a_permit_that_is_forged_replayed_malleable_late_or_for_a_stranger_is_named_and_nothing_is_ordered() {
    let (me, thief) = (key(9), key(8));
    let scene = Scene::open(Played::default(), 10).await;
    let unsigned_by_me =
        Refusal::PermitNotSigned { owner: me.account(), nonce: 0, token: pool().at.token, chain_id: 31_337 };
    // By another key, for another token or chain, and signed for another nonce.
    let later = NewRelay { nonce: 0, ..permit(&me, 1) };
    for forged in [permit_by(&thief, &me, 0, DOMAIN), permit_by(&me, &me, 0, Hash32([1; 32])), later] {
        assert_eq!(scene.take(&forged).await, Err(unsigned_by_me.clone()));
    }
    // The malleable twin: a high s, which some tokens would take.
    let good = Signature(permit(&me, 0).signature.0.try_into().unwrap());
    let twin = twin(&good);
    let to_me = Permit::endless(me.account(), pool().at.controller, 0, NOW.0 / 1_000 + 600);
    let malleable = with_signature(&unsigned(&me, to_me.call(pool().at.token, &twin), 0), twin.0.to_vec());
    assert_eq!(scene.take(&malleable).await, Err(unsigned_by_me));

    let to = |token, spender, deadline_s| {
        let permit = Permit::endless(me.account(), spender, 0, deadline_s);
        let signature = permit.sign(&me, DOMAIN).unwrap();
        let request = ForwardRequest { deadline_s, ..unsigned(&me, permit.call(token, &signature), 0) };
        with_signature(&request, signature.0.to_vec())
    };
    let (token, spender, soon) = (pool().at.token, pool().at.controller, NOW.0 / 1_000 + 600);
    let foreign = scene.take(&to(Address([5; 20]), spender, soon)).await;
    assert!(matches!(foreign, Err(Refusal::NotACall(_))), "{foreign:?}");
    let stranger = Address(thief.account().0);
    assert_eq!(
        scene.take(&to(token, stranger, soon)).await,
        Err(Refusal::Spender { spender: stranger, at: Box::new(pool().at) })
    );
    let late = scene.take(&to(token, spender, NOW.0 / 1_000)).await;
    assert_eq!(late, Err(Refusal::Lapsed { deadline: NOW.0, now: NOW.0 }));
    assert_eq!(scene.ordered().await, 0);

    let replayed = Scene::open(Played { permits: 1, ..Played::default() }, 9).await;
    let refused = replayed.take(&permit(&me, 0)).await;
    assert_eq!(refused, Err(Refusal::Nonce { from: me.account(), given: 0, next: 1 }));
    let plain = Scene::open(Played { plain_token: true, ..Played::default() }, 9).await;
    assert_eq!(plain.take(&permit(&me, 0)).await, Err(Refusal::NoPermits { token }));
    let reverts = Scene::open(Played { reverts: Some("No()"), ..Played::default() }, 9).await;
    assert_eq!(reverts.take(&permit(&me, 0)).await, Err(Refusal::Reverted { reason: "No()".into() }));
    assert_eq!((replayed.ordered().await, plain.ordered().await, reverts.ordered().await), (0, 0, 0));
}

#[tokio::test]
async fn permits_count_against_the_same_allowances() {
    let scene = Scene::open(Played::default(), 1).await;
    scene.take(&permit(&key(9), 0)).await.unwrap();
    let refused = scene.take(&thaw(&key(8), 0)).await;
    assert!(matches!(refused, Err(Refusal::OverBudget { most: 1, .. })), "{refused:?}");
}

#[tokio::test]
async fn a_wallet_that_is_a_contract_says_itself_whose_signature_it_takes() {
    let wallet = Account([0xc0; 20]);
    let request = ForwardRequest { from: wallet, ..unsigned(&key(9), pool().thaw(Amount(7)), 0) };
    let scene = Scene::open(Played { wallet: Some((wallet, vec![1, 2, 3])), ..Played::default() }, 9).await;
    let refused = scene.take(&with_signature(&request, vec![1, 2, 4])).await;
    assert!(matches!(refused, Err(Refusal::NotSigned { .. })));
    assert_eq!(scene.take(&with_signature(&request, vec![1, 2, 3])).await.unwrap().from, wallet);
}

#[tokio::test]
async fn who_is_over_an_allowance_is_told_and_others_are_served() {
    let played = || Played { nonces: Mutex::default(), ..Played::default() };
    // The day's: two of all accounts.
    let scene = Scene::open(played(), 2).await;
    for byte in [1, 2] {
        scene.take(&thaw(&key(byte), 0)).await.unwrap();
    }
    let refused = scene.take(&thaw(&key(3), 0)).await;
    assert!(matches!(refused, Err(Refusal::OverBudget { whose: "all accounts together", most: 2, .. })));
    // What is kept already costs nothing more.
    assert_eq!(scene.take(&thaw(&key(1), 0)).await.unwrap().nonce, 0);
    assert_eq!(scene.ordered().await, 2);

    // A network address: sixty in an hour, each of another account.
    let scene = Scene::open(played(), 1_000).await;
    for byte in 1..=60 {
        scene.take(&thaw(&key(byte), 0)).await.unwrap();
    }
    let refused = scene.take(&thaw(&key(61), 0)).await;
    assert!(matches!(refused, Err(Refusal::OverBudget { whose: "this network address", most: 60, .. })));
    scene.take_from(&thaw(&key(61), 0), 2).await.unwrap();
}

#[tokio::test]
async fn a_failed_request_frees_its_nonce_and_is_told_with_its_reason() {
    let scene = Scene::open(Played::default(), 10).await;
    let first = scene.take(&thaw(&key(9), 0)).await.unwrap();
    let id = i64::try_from(first.id).unwrap();
    outbox::mark_failed(&scene.store.writer, id, "FailedCall()").await.unwrap();
    let told = view(relay::get(&scene.store.readers, id).await.unwrap().unwrap());
    assert_eq!((told.state, told.reason.as_deref()), (RelayState::Failed, Some("FailedCall()")));
    let second = scene.take(&thaw(&key(9), 0)).await.unwrap();
    assert_ne!(second.id, first.id);
    assert_eq!(second.state, RelayState::Waiting);
}

#[tokio::test]
async fn an_older_database_keeps_its_transactions_and_their_forms() {
    let options = sqlx::sqlite::SqliteConnectOptions::new().in_memory(true).foreign_keys(true);
    let db = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    sqlx::raw_sql(include_str!("../../migrations/0003_chain.sql")).execute(&db).await.unwrap();
    let anchor = Order { kind: Kind::Anchor, subject: "7".into(), target: FORWARDER, calldata: vec![1] };
    let seq = outbox::push(&db, PAYER, &anchor, NOW).await.unwrap();
    let form =
        outbox::Try { hash: Hash32([3; 32]), raw: vec![2], max_fee: 9, priority_fee: 1, signed: NOW, sent: None };
    assert!(outbox::sign(&db, seq, 5, 21_000, &form).await.unwrap());
    let before = outbox::live(&db, PAYER).await.unwrap();

    // As the migration runs: in one transaction, with foreign keys on.
    let mut tx = db.begin().await.unwrap();
    sqlx::raw_sql(include_str!("../../migrations/0008_relay.sql")).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(outbox::live(&db, PAYER).await.unwrap(), before);
    assert_eq!(outbox::tries(&db, seq).await.unwrap(), [form]);
    assert_eq!(outbox::next_nonce(&db, PAYER).await.unwrap(), 6);
    let orphans = sqlx::query("pragma foreign_key_check").fetch_all(&db).await.unwrap();
    assert!(orphans.is_empty());
    let stray = sqlx::query("insert into relay values (999, x'00', 0, x'00', '', '', 0)").execute(&db).await;
    assert!(stray.is_err(), "a request has a row of the outbox");
    assert_eq!(outbox::push(&db, PAYER, &anchor, NOW).await.unwrap(), seq + 1);
}

#[test]
fn a_customer_is_one_address_of_ipv4_or_64_bits_of_ipv6() {
    let of = |text: &str| network(Some(text.parse().unwrap()));
    assert_eq!(of("192.0.2.1"), "192.0.2.1");
    assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
    assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:9::"));
    assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
    assert_eq!(network(None), "");
}
