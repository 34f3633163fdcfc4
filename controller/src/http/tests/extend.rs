//! A lease that is made longer: with its key once, signed or not, and with what is in the way.

use selion_api::said::{self, Statement, extension_key};
use serde_json::json;

use super::*;
use crate::store::entry;

const KEY: &str = "longer";
const HOUR: u64 = 3_600_000;

fn path(lease: &str) -> String {
    format!("/v1/leases/{lease}/extend")
}

async fn extend(pool: &Pool, token: &str, lease: &str, key: &str, body: &Value) -> Reply {
    pool.post(token, &path(lease), &[("idempotency-key", key)], body).await
}

async fn newest(pool: &Pool) -> Input {
    let bytes = entry::bytes(&pool.app.store.readers, pool.app.log.position().entry, 1).await.unwrap();
    borsh::from_slice(&selion_log::Entry::read(&bytes[0]).unwrap().input).unwrap()
}

#[tokio::test]
async fn a_lease_is_made_longer_once_for_its_key_and_tells_so() {
    let (_dir, pool) = pool().await;
    let bob = pool.bob();
    let lease = pool.lease(&bob, "first").await;
    let lasts = lease["duration_ms"].as_u64().unwrap();
    let body = json!({ "for_ms": HOUR });
    let reply = extend(&pool, &bob, &id(&lease), KEY, &body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    let longer = reply.json();
    assert_eq!(longer["duration_ms"], lasts + HOUR);
    assert!(longer["actions"].as_array().unwrap().contains(&json!("extend")));
    let promised = reply.header("selion-promise").to_owned();
    assert!(!promised.is_empty());
    let kept = |view: &Value| text(view, "reserved").parse::<u64>().unwrap();
    assert!(kept(&longer) > kept(&lease), "its money is kept");
    let before = pool.app.log.position().entry;
    let again = extend(&pool, &bob, &id(&lease), KEY, &body).await;
    assert_eq!((again.status, &again.json()["duration_ms"]), (StatusCode::OK, &longer["duration_ms"]));
    assert_eq!(again.header("selion-promise"), promised, "of the entry that extended it");
    let other = extend(&pool, &bob, &id(&lease), KEY, &json!({ "for_ms": HOUR + 1 })).await;
    assert_eq!(other.fault(), (422, "idempotency_mismatch".to_owned()));
    assert_eq!(pool.app.log.position().entry, before, "a repeat enters nothing");
    let shown = pool.get(&bob, &format!("/v1/leases/{}", id(&lease))).await.json();
    assert_eq!(shown["duration_ms"], lasts + HOUR);
}

#[tokio::test]
async fn what_is_signed_stands_in_the_log_so_and_what_another_signed_is_refused() {
    let (_dir, pool) = pool().await;
    let me = pool.token(Caller::Renter(wallet_account()));
    let lease = id(&pool.lease(&me, "mine").await);
    let statement = said::Extend {
        renter: wallet_account(),
        lease: lease.parse().unwrap(),
        for_ms: HOUR,
        key: extension_key(wallet_account(), KEY),
        said_ms: NOW,
    };
    let digest = statement.digest(&POOL);
    let signed = |digest: Hash32| async move {
        let signature = ethers_signers::Signer::sign_message(&wallet(), digest.0).await.unwrap();
        json!({ "for_ms": HOUR, "said_ms": NOW, "signature": Signature(signature.into()) })
    };
    let before = pool.app.log.position().entry;
    for other in [said::Extend { for_ms: HOUR + 1, ..statement }, said::Extend { key: Hash32::ZERO, ..statement }] {
        let reply = extend(&pool, &me, &lease, KEY, &signed(other.digest(&POOL)).await).await;
        assert_eq!(reply.fault(), (422, "bad_signature".to_owned()));
    }
    assert_eq!(pool.app.log.position().entry, before);
    let body = signed(digest).await;
    let reply = extend(&pool, &me, &lease, KEY, &body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    let input = newest(&pool).await;
    let word = input.word().unwrap();
    assert_eq!((word.what, word.who, word.digest(&POOL)), ("extension", wallet_account(), Some(digest)));
    assert!(crate::http::signed_by(wallet_account(), &digest, word.signature.unwrap()));
    let again = extend(&pool, &me, &lease, KEY, &body).await;
    assert_eq!(again.status, StatusCode::OK, "the same again is answered as it was: {}", again.text());
}

#[tokio::test]
async fn what_is_in_the_way_is_told_and_what_can_be_told_before_enters_nothing() {
    let (_dir, pool) = pool().await;
    let (alice, bob) = (pool.alice(), pool.bob());
    let lease = id(&pool.lease(&bob, "first").await);
    let before = pool.app.log.position().entry;
    let hour = json!({ "for_ms": HOUR });
    let days = json!({ "for_ms": 30 * 24 * HOUR });
    for (token, lease, body, fault) in [
        (&alice, lease.as_str(), &hour, (403, "not_yours")),
        (&bob, "lease-999-0", &hour, (404, "no_such_lease")),
        (&bob, lease.as_str(), &days, (409, "too_long")),
        (&bob, lease.as_str(), &json!({ "for_ms": 0 }), (422, "bad_fields")),
        (&bob, lease.as_str(), &json!({}), (422, "bad_fields")),
    ] {
        let (status, code) = extend(&pool, token, lease, KEY, body).await.fault();
        assert_eq!((status, code.as_str()), fault, "{body}");
    }
    let (status, _) = pool.post(&bob, &path(&lease), &[], &hour).await.fault();
    assert_eq!(status, 400, "a key is needed");
    assert_eq!(pool.app.log.position().entry, before);
    let dear = extend(&pool, &bob, &lease, KEY, &json!({ "for_ms": 29 * 24 * HOUR })).await;
    assert_eq!(dear.fault(), (409, "payment_required".to_owned()));
    assert_eq!(dear.json()["means"]["short"], "deposit", "{}", dear.text());
    // Alice is booked for the end of it.
    pool.lease(&alice, "next").await;
    let late = extend(&pool, &bob, &lease, KEY, &hour).await;
    assert_eq!(late.fault(), (409, "booked_then".to_owned()), "{}", late.text());
    let near = &late.json()["nearest"];
    assert!(near["need"].as_u64() > near["have"].as_u64(), "{near}");
    pool.post(&bob, &format!("/v1/leases/{lease}/release"), &[], &json!({})).await;
    assert_eq!(extend(&pool, &bob, &lease, KEY, &hour).await.fault(), (409, "not_live".to_owned()));
}
