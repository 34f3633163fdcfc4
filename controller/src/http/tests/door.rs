//! What the door lets in: whose places, whose hosts, how long the pages, and what is told of all that.

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use serde_json::json;

use super::*;
use crate::mirror::{MirrorError, SourceError};

/// A request of `peer`, which says these headers.
fn from(peer: &str, method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = ask(method, "", path, headers, Body::empty());
    request.extensions_mut().insert(ConnectInfo(format!("{peer}:4711").parse::<SocketAddr>().unwrap()));
    request
}

#[tokio::test]
async fn answers_that_nobody_reads_take_a_strangers_places_and_nobody_elses() {
    let (_dir, pool) = pool().await;
    let stranger = pool.token(Caller::Renter(Account([0x57; 20])));
    let open = |token: String| {
        let router = pool.router.clone();
        async move { router.oneshot(ask(Method::GET, &token, "/v1/datasets", &[], Body::empty())).await.unwrap() }
    };
    let mut unread = Vec::new();
    for _ in 0..32 {
        unread.push(open(stranger.clone()).await);
        assert_eq!(unread.last().unwrap().status().as_u16(), 200);
    }
    let more = pool.get(&stranger, "/v1/datasets").await;
    assert_eq!(more.fault(), (429, "too_many_open".to_owned()));
    assert_eq!(more.header("retry-after"), "1");
    assert_eq!(pool.get(&pool.alice(), "/v1/datasets").await.status.as_u16(), 200, "Alice has a deposit");
    for _ in 0..64 {
        unread.push(open(pool.alice()).await);
    }
    assert!(unread.iter().all(|response| response.status().as_u16() == 200));
    drop(unread);
    assert_eq!(pool.get(&stranger, "/v1/datasets").await.status.as_u16(), 200, "given back");
}

#[tokio::test]
async fn a_page_of_the_log_ends_when_it_is_long_and_the_pages_are_the_log() {
    let (_dir, pool) = pool().await;
    let mut parent = Hash32([1; 32]);
    for number in 2..42_u8 {
        let deposits = (0..2_000).map(|_| ChainEvent::Deposited { renter: ALICE, amount: Amount(1) }).collect();
        let hash = Hash32([number; 32]);
        pool.enter(Input::Block(Block { number: number.into(), hash, parent, events: deposits })).await;
        parent = hash;
    }
    let (mut from, mut seen, mut pages) = (0, 0, 0);
    loop {
        let reply = pool.get("", &format!("/v1/log/entries?from={from}&limit=1000")).await;
        assert!(reply.body.len() <= 5 << 18, "{} bytes", reply.body.len());
        let page = reply.json();
        for entry in page["entries"].as_array().unwrap() {
            assert_eq!(entry["seq"], json!(seen));
            seen += 1;
        }
        pages += 1;
        match page["next"].as_u64() {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(seen, pool.app.log.position().entry + 1);
    assert!(pages > 3, "{pages} pages");
}

#[tokio::test]
async fn figures_are_for_this_machine_and_for_operators() {
    let (_dir, pool) = pool().await;
    let ask = |peer: &'static str, headers: &'static [(&str, &str)]| {
        let pool = &pool;
        async move { pool.send(from(peer, Method::GET, "/metrics", headers)).await.status.as_u16() }
    };
    assert_eq!(ask("127.0.0.1", &[]).await, 200);
    assert_eq!(ask("[::1]", &[]).await, 200);
    assert_eq!(ask("10.0.0.7", &[]).await, 401);
    assert_eq!(ask("127.0.0.1", &[("x-forwarded-for", "10.0.0.7")]).await, 401, "a proxy asks for somebody");
    let key = pool.token(Caller::Renter(OPERATOR));
    assert_eq!(pool.get(&key, "/metrics").await.status.as_u16(), 200);
    assert_eq!(pool.get("", "/healthz").await.text(), r#"{"status":"ok"}"#, "strangers learn nothing of the process");
}

#[tokio::test]
async fn pages_of_other_sites_get_nowhere() {
    let (_dir, pool) = pool().await;
    let told = |method: Method, headers: &'static [(&str, &str)]| {
        let pool = &pool;
        async move {
            let path = if method == Method::GET { "/v1/pool" } else { "/v1/auth/nonce" };
            let reply = pool.send(from("127.0.0.1", method, path, headers)).await;
            (reply.status.as_u16(), reply.json()["code"].as_str().unwrap_or_default().to_owned())
        }
    };
    let foreign = |status, code: &str| (status, code.to_owned());
    assert_eq!(told(Method::GET, &[("host", "evil.example:7070")]).await, foreign(421, "foreign_host"));
    assert_eq!(told(Method::GET, &[("host", "localhost:7070")]).await.0, 200);
    let elsewhere = [("host", "127.0.0.1:7070"), ("origin", "http://evil.example:7070")];
    assert_eq!(told(Method::POST, Box::leak(Box::new(elsewhere))).await, foreign(403, "foreign_origin"));
    assert_eq!(told(Method::POST, &[("origin", "null")]).await, foreign(403, "foreign_origin"));
    let own = [("host", "127.0.0.1:7070"), ("origin", "http://127.0.0.1:7070")];
    assert_eq!(told(Method::POST, Box::leak(Box::new(own))).await, foreign(415, "media_type"), "as far as its body");
}

#[tokio::test]
async fn a_chain_that_does_not_answer_is_told_by_the_figures_at_once() {
    let (_dir, pool) = pool().await;
    let operator = pool.token(Caller::Renter(OPERATOR));
    let figures = pool.get(&operator, "/metrics").await.text();
    assert!(figures.contains("selion_ready 1") && figures.contains("selion_chain_head_lag_blocks 0"), "{figures}");
    pool.app.mirror.fail(MirrorError::Source(SourceError::Node("no answer".into())));
    let figures = pool.get(&operator, "/metrics").await.text();
    assert!(figures.contains("selion_chain_head_lag_blocks -1"), "{figures}");
    assert!(pool.app.mirror.status().silent_for().is_some());
}

#[tokio::test]
async fn a_loop_that_begins_with_an_empty_token_begins_at_the_first_page() {
    let (_dir, pool) = pool().await;
    pool.lease(&pool.alice(), "k").await;
    let page = pool.get(&pool.alice(), "/v1/leases?page_token=").await;
    assert_eq!(page.json()["leases"].as_array().map(Vec::len), Some(1), "{}", page.text());
    let wrong = pool.get(&pool.alice(), "/v1/leases?state=active&page_size=0").await;
    assert_eq!(wrong.fault(), (422, "bad_query".to_owned()));
    let detail = wrong.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("no parameter `state`") && detail.contains("page_size, page_token"), "{detail}");
    assert!(detail.contains("`page_size`: a whole number from 1 to 500"), "{detail}");
}

#[tokio::test]
async fn every_fault_of_a_request_is_told_at_once() {
    let (_dir, pool) = pool().await;
    let body = json!({"members": [], "duration_ms": 0, "colour": "red", "max_rate": 1});
    let reply = pool.post(&pool.alice(), "/v1/leases", &[("idempotency-key", "k")], &body).await;
    assert_eq!(reply.fault(), (422, "bad_fields".to_owned()));
    let mut pointers: Vec<String> =
        reply.json()["errors"].as_array().unwrap().iter().map(|error| text(error, "pointer").to_owned()).collect();
    pointers.sort();
    assert_eq!(pointers, ["/colour", "/duration_ms", "/max_rate", "/members"]);
    let list = json!([[[{"kind": "whole"}]], null, 1]);
    let reply = pool.post(&pool.alice(), "/v1/leases", &[("idempotency-key", "k")], &list).await;
    assert_eq!(reply.fault(), (422, "bad_fields".to_owned()));
    assert!(reply.text().contains("an object belongs here, not a list"), "{}", reply.text());
}

#[tokio::test]
async fn an_api_key_is_a_token_itself_until_it_is_revoked() {
    let (_dir, pool) = pool().await;
    let made = pool.post(&pool.alice(), "/v1/api-keys", &[], &json!({"scopes": ["lease:read"]})).await.json();
    let key = text(&made, "api_key").to_owned();
    let who = pool.get(&key, "/v1/whoami").await.json();
    assert_eq!((text(&who, "account"), &who["login"]["kind"]), (ALICE.to_string().as_str(), &json!("api_key")));
    assert_eq!(pool.get(&key, "/v1/leases").await.status.as_u16(), 200);
    assert_eq!(pool.get(&key, "/v1/account").await.fault(), (403, "missing_scope".to_owned()));
    assert_eq!(pool.get(&format!("{key}0"), "/v1/leases").await.fault(), (401, "bad_api_key".to_owned()));
    let forged = format!("sk_{}_{}", made["id"], "00".repeat(32));
    assert_eq!(pool.get(&forged, "/v1/leases").await.fault(), (401, "bad_api_key".to_owned()));
    let path = format!("/v1/api-keys/{}", made["id"]);
    let gone = pool.send(ask(Method::DELETE, &pool.alice(), &path, &[], Body::empty())).await;
    assert_eq!(gone.status.as_u16(), 204);
    assert_eq!(pool.get(&key, "/v1/leases").await.status.as_u16(), 401, "at once, though it was known");
}

#[tokio::test]
async fn keys_are_guessed_only_so_often() {
    let (_dir, pool) = pool().await;
    let mut codes = std::collections::BTreeSet::new();
    for number in 0..700 {
        codes.insert(pool.get(&format!("sk_{number}_{}", "00".repeat(32)), "/v1/leases").await.fault().0);
    }
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), [401, 429]);
}
