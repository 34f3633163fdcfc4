//! What is promised with an answer.

use selion_api::agent::SignedPromise;
use selion_api::rest::PROMISE_HEADER;
use selion_contracts::signer::recover_text;
use selion_log::Entry;
use serde_json::json;

use super::*;
use crate::store::entry;

/// The promise on an answer, and the input that it promises; checked against the log, the caller and the signer.
async fn promised(pool: &Pool, reply: &Reply, account: Account) -> (SignedPromise, Input) {
    let bytes = hex::decode(reply.header(PROMISE_HEADER)).unwrap();
    let signed: SignedPromise = borsh::from_slice(&bytes).unwrap();
    let promise = signed.promise;
    let signer = recover_text(&promise.digest_to_sign(&POOL).0, &signed.signature);
    assert_eq!((signer, promise.account), (Some(authority().account()), account));
    let entry = Entry::read(&entry::bytes(&pool.app.store.readers, promise.seq, 1).await.unwrap()[0]).unwrap();
    assert_eq!((promise.leaf, promise.fence), (entry.leaf(), entry.fence));
    (signed, borsh::from_slice(&entry.input).unwrap())
}

#[tokio::test]
async fn a_request_is_answered_with_a_promise_and_its_repeats_with_the_same_also_after_a_restart() {
    let (dir, pool) = pool().await;
    let ask = async |pool: &Pool| pool.post(&pool.alice(), "/v1/leases", &[("idempotency-key", "k")], &want()).await;
    let first = ask(&pool).await;
    let (promise, input) = promised(&pool, &first, ALICE).await;
    assert!(matches!(input, Input::Request(asked) if asked.request.renter == ALICE));
    assert_eq!(id(&first.json()), format!("lease-{}-0", promise.promise.seq));
    assert_eq!(promised(&pool, &ask(&pool).await, ALICE).await.0, promise);
    pool.close().await;
    let again = Pool::open(dir.path(), 1000).await;
    assert_eq!(promised(&again, &ask(&again).await, ALICE).await.0, promise);
}

#[tokio::test]
async fn a_refused_request_a_release_and_a_pause_are_promised_too() {
    let (_dir, pool) = pool().await;
    let mut dear = want();
    dear["max_rate"] = json!("1");
    let refused = pool.post(&pool.alice(), "/v1/leases", &[("idempotency-key", "k")], &dear).await;
    assert_eq!(refused.fault().0, 409);
    assert!(matches!(promised(&pool, &refused, ALICE).await.1, Input::Request(_)));

    let lease = id(&pool.lease(&pool.bob(), "k").await);
    let release = format!("/v1/leases/{lease}/release");
    let released = pool.post(&pool.bob(), &release, &[], &Value::Null).await;
    assert_eq!(released.status.as_u16(), 200);
    assert!(matches!(promised(&pool, &released, BOB).await.1, Input::Release { renter: BOB, .. }));
    let foreign = pool.post(&pool.alice(), &release, &[], &Value::Null).await;
    assert_eq!(foreign.fault().0, 403);
    assert_eq!(foreign.header(PROMISE_HEADER), "", "what is refused without a search is no entry");

    // What enters nothing is promised nothing.
    let quote = pool.post(&pool.alice(), "/v1/leases?dry_run=true", &[], &want()).await;
    assert_eq!((quote.status.as_u16(), quote.header(PROMISE_HEADER)), (200, ""));
    assert_eq!(pool.post("", "/v1/leases", &[], &want()).await.header(PROMISE_HEADER), "");

    let owner = pool.token(Caller::Renter(OWNER));
    let paused = pool.post(&owner, &format!("/v1/nodes/{NODE}/pause"), &[], &Value::Null).await;
    assert!(matches!(promised(&pool, &paused, OWNER).await.1, Input::SetPaused { paused: true, .. }));
}
