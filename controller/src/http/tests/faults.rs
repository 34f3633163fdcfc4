//! What is wrong is named: bodies, paths, methods, sizes, rates, panics.

use axum::Router;
use axum::routing::get;
use serde_json::json;

use super::*;
use crate::http::{JSON_LIMIT, layers};

#[tokio::test]
async fn every_fault_of_a_body_is_a_problem_with_its_place() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let with = |field: &str, value: Value| {
        let mut body = want();
        body[field] = value;
        body.to_string()
    };
    let member = |value: Value| with("members", json!([value]));
    let cases = [
        ("{".to_owned(), 400, "not_json", ""),
        ("[]".to_owned(), 422, "bad_fields", ""),
        (want().to_string() + "x", 400, "not_json", ""),
        (with("colour", json!("red")), 422, "bad_fields", "/colour"),
        (with("duration_ms", json!("60s")), 422, "bad_fields", "/duration_ms"),
        (with("duration_ms", json!(-1)), 422, "bad_fields", "/duration_ms"),
        (with("duration_ms", json!(0)), 422, "bad_fields", "/duration_ms"),
        (with("duration_ms", json!(1.5)), 422, "bad_fields", "/duration_ms"),
        (with("max_rate", json!("0.80")), 422, "bad_fields", "/max_rate"),
        (with("max_rate", json!("-1")), 422, "bad_fields", "/max_rate"),
        (with("max_rate", json!("18446744073709551616")), 422, "bad_fields", "/max_rate"),
        (with("max_rate", json!(800_000)), 422, "bad_fields", "/max_rate"),
        (with("classes", json!(["best"])), 422, "bad_fields", "/classes/0"),
        (with("classes", json!([])), 422, "bad_fields", "/classes"),
        (with("members", json!([])), 422, "bad_fields", "/members"),
        (with("min_nodes", json!(2)), 422, "bad_fields", "/min_nodes"),
        (with("near_data", json!(true)), 422, "bad_fields", "/near_data"),
        (with("command", json!([])), 422, "bad_fields", "/command"),
        (with("command", json!(["a\u{0}b"])), 422, "bad_fields", "/command"),
        (with("env", json!({"A=B": "c"})), 422, "bad_fields", "/env"),
        (with("signature", json!("0x12")), 422, "bad_fields", "/signature"),
        (with("datasets", json!([{"cid": "x", "mount": "../etc"}])), 422, "bad_fields", "/datasets/0/mount"),
        (with("datasets", json!([{"cid": "x", "mount": "a"}])), 422, "bad_fields", "/datasets/0/cid"),
        (member(json!({"slice": {"kind": "half"}})), 422, "bad_fields", "/members/0/slice/kind"),
        (member(json!({"slice": {"kind": "whole"}, "cpu": 1})), 422, "bad_fields", "/members/0/cpu"),
        (member(json!({"slice": {"kind": "whole"}, "node": "0x12"})), 422, "bad_fields", "/members/0/node"),
    ];
    for (body, status, code, pointer) in cases {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        let request = ask(Method::POST, &alice, "/v1/leases", &headers, Body::from(body.clone()));
        let reply = pool.send(request).await;
        assert_eq!(reply.fault(), (status, code.to_owned()), "{body}");
        let place = reply.json()["errors"][0]["pointer"].as_str().unwrap_or_default().to_owned();
        // Of a tagged value the parser knows the whole, not the part.
        assert!(place == pointer || !place.is_empty() && pointer.starts_with(&place), "{body}: {place} not {pointer}");
    }
    assert_eq!(pool.get(&alice, "/v1/leases").await.json()["leases"], json!([]), "nothing came of any of them");
}

#[tokio::test]
async fn every_fault_of_a_path_query_or_method_is_a_problem() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let cases = [
        ("GET", "/v1/nothing", 404, "no_such_path"),
        ("GET", "/", 404, "no_such_path"),
        ("PATCH", "/v1/leases", 405, "method_not_allowed"),
        ("GET", "/v1/leases/7", 404, "not_found"),
        ("GET", "/v1/leases/-7", 422, "bad_path"),
        ("GET", "/v1/leases/lease-01-0", 422, "bad_path"),
        ("GET", "/v1/leases/lease-99-0", 404, "not_found"),
        ("GET", "/v1/nodes/0x12", 422, "bad_path"),
        ("GET", "/v1/nodes/0x0000000000000000000000000000000000000000", 404, "not_found"),
        ("POST", "/v1/leases/lease-99-0/release", 404, "no_such_lease"),
        ("GET", "/v1/datasets/bafynone", 404, "not_found"),
        ("GET", "/v1/leases?page_size=0", 422, "bad_query"),
        ("GET", "/v1/leases?page_size=501", 422, "bad_query"),
        ("GET", "/v1/leases?page_token=%25%25", 422, "bad_query"),
        ("GET", "/v1/leases?page=2", 422, "bad_query"),
        ("GET", "/v1/offers?max_rate=0.5", 422, "bad_query"),
        ("GET", "/v1/leases/lease-1-0/wait", 422, "bad_query"),
        ("GET", "/v1/leases/lease-1-0/wait?state=busy", 422, "bad_query"),
        ("GET", "/v1/leases/lease-1-0/wait?state=active&timeout_ms=300001", 422, "bad_query"),
        ("POST", "/v1/auth/nonce", 415, "media_type"),
        ("POST", "/v1/auth/token", 401, "bad_api_key"),
        ("POST", "/v1/datasets", 415, "media_type"),
        ("GET", "/v1/link", 400, "bad_header"),
    ];
    for (method, path, status, code) in cases {
        let reply = pool.send(ask(method.parse().unwrap(), &alice, path, &[], Body::empty())).await;
        assert_eq!(reply.fault(), (status, code.to_owned()), "{method} {path}");
        assert_eq!(reply.json()["trace_id"], json!(reply.header("x-request-id")), "{method} {path}");
        assert!(!reply.header("selion-entry").is_empty());
    }
    let allowed = pool.send(ask(Method::PATCH, &alice, "/v1/leases", &[], Body::empty())).await;
    assert!(allowed.header("allow").contains("POST"), "{}", allowed.header("allow"));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_announced_or_not() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let big = vec![b' '; JSON_LIMIT + 1];
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    for path in ["/v1/leases", "/v1/datasets"] {
        let length = big.len().to_string();
        let mut announced = headers.to_vec();
        announced.push(("content-length", &length));
        let reply = pool.send(ask(Method::POST, &alice, path, &announced, Body::from(big.clone()))).await;
        assert_eq!(reply.fault(), (413, "too_large".to_owned()), "{path}");
        let chunks = futures::stream::iter([Ok::<_, std::io::Error>(big.clone())]);
        let reply = pool.send(ask(Method::POST, &alice, path, &headers, Body::from_stream(chunks))).await;
        assert_eq!(reply.fault(), (413, "too_large".to_owned()), "{path}, unannounced");
    }
    let text = [("content-type", "text/plain"), ("idempotency-key", "k")];
    let reply = pool.send(ask(Method::POST, &alice, "/v1/leases", &text, Body::from(want().to_string()))).await;
    assert_eq!(reply.fault(), (415, "media_type".to_owned()));
}

#[tokio::test]
async fn who_asks_too_often_is_told_how_long_to_wait_and_hinders_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::open(dir.path(), 3).await;
    let (alice, bob) = (pool.alice(), pool.bob());
    for left in ["2", "1", "0"] {
        let reply = pool.get(&alice, "/v1/whoami").await;
        assert_eq!(reply.status.as_u16(), 200);
        assert!(reply.header("ratelimit").starts_with(&format!("\"minute\";r={left};t=")), "{left}");
        assert_eq!(reply.header("ratelimit-policy"), "\"minute\";q=3;w=60");
    }
    let reply = pool.get(&alice, "/v1/whoami").await;
    assert_eq!(reply.fault(), (429, "rate_limited".to_owned()));
    assert!((1..=20).contains(&reply.header("retry-after").parse::<u32>().unwrap()));
    assert_eq!(pool.get(&bob, "/v1/whoami").await.status.as_u16(), 200);
    assert_eq!(pool.get(&alice, "/healthz").await.status.as_u16(), 200, "health has no allowance");
    // A forged token does not spend the allowance of the account that it names, but the peer's.
    for _ in 0..3 {
        assert_eq!(pool.get("forged", "/v1/whoami").await.status.as_u16(), 401);
    }
    assert_eq!(pool.get("forged", "/v1/whoami").await.status.as_u16(), 429);
}

#[tokio::test]
async fn a_panic_is_a_problem_and_shows_nothing_of_its_cause() {
    let (_dir, pool) = pool().await;
    async fn boom() -> &'static str {
        panic!("secret of the house")
    }
    let router = layers::outer(Router::new().route("/boom", get(boom)), &pool.app);
    let broken = Pool { router, ..pool };
    let reply = broken.get("", "/boom").await;
    assert_eq!(reply.fault(), (500, "internal".to_owned()));
    assert!(!reply.text().contains("secret"), "{}", reply.text());
    assert_eq!(reply.json()["trace_id"], json!(reply.header("x-request-id")));
}

#[tokio::test]
async fn a_pool_without_its_first_block_is_alive_but_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::open(dir.path(), 1000).await;
    assert_eq!(pool.get("", "/healthz").await.json()["status"], json!("ok"));
    let ready = pool.get("", "/readyz").await;
    assert_eq!(ready.status.as_u16(), 503);
    assert!(ready.json()["status"].as_str().unwrap().contains("first block"));
    assert_eq!(pool.get("", "/v1/pool").await.fault(), (503, "not_ready".to_owned()));
    pool.play_chain().await;
    let ready = pool.get("", "/readyz").await;
    assert_eq!(ready.status.as_u16(), 200);
    assert!(ready.header("selion-block").starts_with("1:0x"), "{}", ready.header("selion-block"));
    assert!(ready.header("selion-head").contains(":0x"));
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_told_until_it_can() {
    let (_dir, pool) = pool().await;
    let run = async |sql| sqlx::query(sql).execute(&pool.app.store.writer).await.unwrap();
    assert_eq!(pool.get("", "/readyz").await.status.as_u16(), 200);
    run("create trigger full before insert on entry begin select raise(abort, 'disk is full'); end").await;
    let (alice, body) = (pool.alice(), want());
    let refused = pool.post(&alice, "/v1/leases", &[("idempotency-key", "k")], &body).await;
    assert_eq!(refused.status.as_u16(), 503, "{}", refused.text());
    let ready = pool.get("", "/readyz").await;
    assert_eq!(ready.status.as_u16(), 503);
    assert!(ready.json()["status"].as_str().unwrap().contains("the disk may be full"), "{}", ready.text());
    assert_eq!(pool.get(&alice, "/v1/leases").await.status.as_u16(), 200, "what is there can be read");
    run("drop trigger full").await;
    pool.app.log.watch_writable().wait_for(Option::is_none).await.unwrap();
    assert_eq!(pool.get("", "/readyz").await.status.as_u16(), 200);
    assert_eq!(pool.post(&alice, "/v1/leases", &[("idempotency-key", "k")], &body).await.status.as_u16(), 201);
}

#[tokio::test]
async fn a_database_that_fails_is_an_internal_problem_without_its_text() {
    let (_dir, pool) = pool().await;
    pool.app.store.readers.close().await;
    let reply = pool.get(&pool.alice(), "/v1/leases").await;
    assert_eq!(reply.fault(), (500, "internal".to_owned()));
    assert!(!reply.text().contains("pool"), "{}", reply.text());
}
