//! Releases, pauses, resumes and reclaims with the account's signature: the right one, every wrong one, and none.

use selion_api::said::{self, SAID_WITHIN_MS, Statement};
use serde_json::json;

use super::*;
use crate::store::entry;

/// Another node, which the wallet's account owns.
const MINE: NodeId = NodeId([0x17; 20]);

/// Something that an account says, and where.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Release(selion_api::LeaseId),
    Pause(bool),
    Reclaim(u64),
}

impl Verb {
    fn path(self) -> String {
        match self {
            Self::Release(lease) => format!("/v1/leases/{lease}/release"),
            Self::Pause(true) => format!("/v1/nodes/{MINE}/pause"),
            Self::Pause(false) => format!("/v1/nodes/{MINE}/resume"),
            Self::Reclaim(_) => format!("/v1/nodes/{MINE}/reclaim"),
        }
    }

    fn digest(self, pool: &PoolId, said_ms: TimeMs) -> Hash32 {
        let me = wallet_account();
        match self {
            Self::Release(lease) => said::Release { renter: me, lease, said_ms }.digest(pool),
            Self::Pause(paused) => said::SetPaused { provider: me, node: MINE, paused, said_ms }.digest(pool),
            Self::Reclaim(notice_ms) => {
                said::Reclaim { provider: me, node: MINE, gpu: None, notice_ms, said_ms }.digest(pool)
            }
        }
    }

    /// Its body without a signature.
    fn plain(self) -> Value {
        match self {
            Self::Reclaim(notice_ms) => json!({ "notice_ms": notice_ms }),
            _ => json!({}),
        }
    }

    /// Its body, said at a time and signed over a digest by a key.
    async fn body(self, said_ms: TimeMs, digest: Hash32, key: &ethers_signers::LocalWallet) -> Value {
        let signature = Signature(ethers_signers::Signer::sign_message(key, digest.0).await.unwrap().into());
        let mut body = self.plain();
        (body["said_ms"], body["signature"]) = (json!(said_ms), json!(signature));
        body
    }

    /// As an honest client says it.
    async fn signed(self, said_ms: TimeMs) -> Value {
        self.body(said_ms, self.digest(&POOL, said_ms), &wallet()).await
    }
}

/// The wallet's account has a node of its own, and waits behind Bob with so many leases.
async fn mine<const N: usize>() -> (TempDir, Pool, String, [Verb; N]) {
    let (dir, pool) = pool().await;
    let spec = NodeSpec { node: MINE, provider: wallet_account(), gpus: Vec::new(), ..spec() };
    let events = vec![
        ChainEvent::ProviderRegistered { provider: spec.provider, payout: Address([5; 20]), stake: Amount(1) },
        ChainEvent::NodeRegistered { node: MINE, provider: spec.provider },
        ChainEvent::OfferSet { node: MINE, spec_hash: spec.hash(), classes: spec.classes() },
    ];
    pool.enter(Input::Block(Block { number: 2, hash: Hash32([2; 32]), parent: Hash32([1; 32]), events })).await;
    pool.enter(Input::modelled_link(spec, 0)).await;
    pool.lease(&pool.bob(), "first").await;
    let me = pool.token(Caller::Renter(wallet_account()));
    let mut leases = Vec::new();
    for at in 0..N {
        let lease = id(&pool.lease(&me, &format!("mine-{at}")).await);
        leases.push(Verb::Release(lease.parse().unwrap()));
    }
    (dir, pool, me, leases.try_into().unwrap())
}

/// The input of the newest entry.
async fn newest(pool: &Pool) -> Input {
    let bytes = entry::bytes(&pool.app.store.readers, pool.app.log.position().entry, 1).await.unwrap();
    borsh::from_slice(&selion_log::Entry::read(&bytes[0]).unwrap().input).unwrap()
}

/// Code of the one faulty field, its place and what is said of it.
fn field(reply: &Reply) -> (String, String, String) {
    assert_eq!(reply.status.as_u16(), 422, "{}", reply.text());
    let fault = &reply.json()["errors"][0];
    (text(fault, "code").to_owned(), text(fault, "pointer").to_owned(), text(fault, "detail").to_owned())
}

#[tokio::test]
async fn what_an_account_signs_stands_in_the_log_with_its_signature() {
    let (_dir, pool, me, [release]) = mine().await;
    for (verb, what) in [
        (release, "release"),
        (Verb::Pause(true), "pause"),
        (Verb::Reclaim(7), "reclaim"),
        (Verb::Pause(false), "resume"),
    ] {
        let reply = pool.post(&me, &verb.path(), &[], &verb.signed(NOW).await).await;
        assert_eq!(reply.status.as_u16(), 200, "{verb:?}: {}", reply.text());
        let input = newest(&pool).await;
        let word = input.word().unwrap();
        let digest = word.digest(&POOL).unwrap();
        assert_eq!((word.what, word.who, digest), (what, wallet_account(), verb.digest(&POOL, NOW)));
        assert!(crate::http::signed_by(wallet_account(), &digest, word.signature.unwrap()));
    }
}

#[tokio::test]
async fn what_nobody_signed_is_taken_and_marked_with_and_without_a_body() {
    let (_dir, pool, me, releases) = mine::<3>().await;
    for verb in [releases[0], Verb::Pause(true), Verb::Pause(false), Verb::Reclaim(7)] {
        let reply = pool.post(&me, &verb.path(), &[], &verb.plain()).await;
        assert_eq!(reply.status.as_u16(), 200, "{verb:?}: {}", reply.text());
        assert_eq!(newest(&pool).await.word().unwrap().signature, None);
    }
    let reply = pool.post(&me, &releases[1].path(), &[], &Value::Null).await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.text());
    let bare = ask(Method::POST, &me, &releases[2].path(), &[], Body::empty());
    assert_eq!(pool.send(bare).await.status.as_u16(), 200);
    let text = ask(Method::POST, &me, &Verb::Pause(true).path(), &[("content-type", "text/plain")], Body::from("{}"));
    assert_eq!(pool.send(text).await.fault().0, 415);
}

#[tokio::test]
async fn a_signature_of_another_or_over_something_else_is_refused_and_enters_nothing() {
    let (_dir, pool, me, [release, other_lease]) = mine().await;
    let before = pool.app.log.position().entry;
    let stranger = ethers_signers::LocalWallet::from_bytes(&[0x78; 32]).unwrap();
    let other_pool = PoolId { chain_id: POOL.chain_id + 1, ..POOL };
    for (verb, other) in [
        (release, other_lease),
        (Verb::Pause(true), Verb::Pause(false)),
        (Verb::Pause(false), Verb::Pause(true)),
        (Verb::Reclaim(7), Verb::Reclaim(8)),
    ] {
        let digest = verb.digest(&POOL, NOW);
        let wrong = [
            verb.body(NOW, digest, &stranger).await,
            verb.body(NOW, other.digest(&POOL, NOW), &wallet()).await,
            verb.body(NOW.plus(1), digest, &wallet()).await,
            verb.body(NOW, verb.digest(&other_pool, NOW), &wallet()).await,
        ];
        for body in wrong {
            let reply = pool.post(&me, &verb.path(), &[], &body).await;
            assert_eq!(reply.fault(), (422, "bad_signature".to_owned()), "{verb:?} {body}");
        }
        let mut half = verb.signed(NOW).await;
        let signature = half["signature"].take();
        assert_eq!(field(&pool.post(&me, &verb.path(), &[], &half).await).1, "/signature");
        (half["said_ms"], half["signature"]) = (Value::Null, signature);
        assert_eq!(field(&pool.post(&me, &verb.path(), &[], &half).await).1, "/said_ms");
    }
    assert_eq!(pool.app.log.position().entry, before);
    // What is wrong was not noted as said: the right one is heard.
    let reply = pool.post(&me, &release.path(), &[], &release.signed(NOW).await).await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.text());
}

#[tokio::test]
async fn a_word_that_is_too_old_or_from_times_to_come_is_refused_with_both_times() {
    let (_dir, pool, me, [release, other]) = mine().await;
    let (old, new) = (TimeMs(NOW.0 - SAID_WITHIN_MS), NOW.plus(SAID_WITHIN_MS));
    for verb in [release, Verb::Pause(true), Verb::Pause(false), Verb::Reclaim(7)] {
        for said_ms in [TimeMs(old.0 - 1), new.plus(1)] {
            let reply = pool.post(&me, &verb.path(), &[], &verb.signed(said_ms).await).await;
            let (code, pointer, detail) = field(&reply);
            assert_eq!((code.as_str(), pointer.as_str()), ("stale", "/said_ms"), "{verb:?}");
            let both = detail.contains(&said_ms.0.to_string()) && detail.contains(&NOW.0.to_string());
            assert!(both, "{detail}");
        }
    }
    for (verb, said_ms) in [(release, old), (other, new)] {
        let reply = pool.post(&me, &verb.path(), &[], &verb.signed(said_ms).await).await;
        assert_eq!(reply.status.as_u16(), 200, "{}", reply.text());
    }
}

#[tokio::test]
async fn a_word_is_entered_once_also_after_a_restart() {
    let (dir, pool, me, [release]) = mine().await;
    let verbs = [release, Verb::Pause(true), Verb::Pause(false), Verb::Reclaim(7)];
    // What waited is over with its release, which is seen before the word is.
    let is_again = |verb: Verb, reply: &Reply| match verb {
        Verb::Release(_) if reply.status.as_u16() == 409 => reply.fault().1 == "not_live",
        _ => field(reply).0 == "repeated",
    };
    for verb in verbs {
        let body = verb.signed(NOW).await;
        let path = verb.path();
        let posts = (0..8).map(|_| pool.post(&me, &path, &[], &body));
        let replies = futures::future::join_all(posts).await;
        let (good, again): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status.is_success());
        assert_eq!((good.len(), again.len()), (1, 7), "{verb:?}");
        assert!(again.iter().all(|reply| is_again(verb, reply)), "{verb:?}");
    }
    pool.close().await;
    let pool = Pool::open(dir.path(), 1000).await;
    let before = pool.app.log.position().entry;
    for verb in verbs {
        let reply = pool.post(&me, &verb.path(), &[], &verb.signed(NOW).await).await;
        assert!(is_again(verb, &reply), "{verb:?}: {}", reply.text());
    }
    assert_eq!(pool.app.log.position().entry, before);
    let anew = Verb::Pause(true).signed(NOW.plus(1)).await;
    assert_eq!(pool.post(&me, &Verb::Pause(true).path(), &[], &anew).await.status.as_u16(), 200);
}

#[tokio::test]
async fn a_release_of_a_lease_that_the_caller_does_not_hold_is_neither_remembered_nor_entered() {
    let (_dir, pool, me, [own]) = mine().await;
    let bobs = id(&pool.lease(&pool.bob(), "another").await).parse().unwrap();
    let none = selion_api::LeaseId { seq: 99_999, index: 0 };
    let before = pool.app.log.position().entry;
    for (lease, fault) in [(none, (404, "no_such_lease")), (bobs, (403, "not_yours"))] {
        let verb = Verb::Release(lease);
        for body in [verb.signed(NOW).await, verb.plain()] {
            let (status, code) = pool.post(&me, &verb.path(), &[], &body).await.fault();
            assert_eq!((status, code.as_str()), fault, "{body}");
        }
    }
    assert_eq!(
        pool.app.log.position().entry,
        before,
        "accounts cost nothing, so what they say of others' leases may not"
    );
    assert_eq!(pool.app.heard.remembered(), 0);
    assert_eq!(pool.post(&me, &own.path(), &[], &own.signed(NOW).await).await.status.as_u16(), 200);
    let before = pool.app.log.position().entry;
    for body in [own.signed(NOW.plus(1)).await, own.plain()] {
        assert_eq!(pool.post(&me, &own.path(), &[], &body).await.fault(), (409, "not_live".to_owned()));
    }
    assert_eq!((pool.app.log.position().entry, pool.app.heard.remembered()), (before, 1), "what has ended ends once");
}
