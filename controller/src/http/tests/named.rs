//! Leases by names and labels that only their account knows.

use serde_json::json;

use super::*;
use crate::store::entry;

fn called(name: &str) -> Value {
    let mut body = want();
    body["name"] = json!(name);
    body["labels"] = json!({ "team": "vision", "run": "7" });
    body
}

async fn create(pool: &Pool, token: &str, key: &str, body: &Value) -> Reply {
    pool.post(token, "/v1/leases", &[("idempotency-key", key)], body).await
}

/// Ids of the leases that a list shows.
async fn listed(pool: &Pool, token: &str, query: &str) -> Vec<String> {
    let page = pool.get(token, &format!("/v1/leases?{query}")).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text());
    page.json()["leases"].as_array().unwrap().iter().map(id).collect()
}

#[tokio::test]
async fn a_lease_is_found_by_its_name_wherever_an_id_is_taken() {
    let (_dir, pool) = pool().await;
    let (alice, bob) = (pool.alice(), pool.bob());
    let first = create(&pool, &bob, "first", &called("train")).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
    let lease = first.json();
    assert_eq!((&lease["name"], &lease["labels"]["team"]), (&json!("train"), &json!("vision")));
    for path in ["", "/placement", "/outputs", "/wait?state=held", "/logs?follow=false", "/events?follow=false"] {
        let [by_id, by_name] = [id(&lease), "train".to_owned()].map(|lease| format!("/v1/leases/{lease}{path}"));
        let (by_id, by_name) = (pool.get(&bob, &by_id).await, pool.get(&bob, &by_name).await);
        assert_eq!((by_name.status, by_name.text()), (StatusCode::OK, by_id.text()), "{path}");
    }
    let more = json!({ "for_ms": 1 });
    let longer = pool.post(&bob, "/v1/leases/train/extend", &[("idempotency-key", "longer")], &more).await;
    assert_eq!(longer.json()["name"], "train");
    // A name is its account's own: nobody learns from another's that there is one.
    assert_eq!(pool.get(&alice, "/v1/leases/train").await.fault(), (404, "not_found".to_owned()));
    assert_eq!(create(&pool, &alice, "own", &called("train")).await.status, StatusCode::CREATED);
    let released = pool.post(&bob, "/v1/leases/train/release", &[], &json!({})).await;
    assert_eq!(id(&released.json()), id(&lease));
}

#[tokio::test]
async fn of_the_live_leases_of_an_account_one_has_a_name_and_of_those_that_are_over_the_newest() {
    let (_dir, pool) = pool().await;
    let bob = pool.bob();
    pool.lease(&pool.alice(), "before").await;
    let first = id(&create(&pool, &bob, "first", &called("train")).await.json());
    let before = pool.app.log.position().entry;
    let taken = create(&pool, &bob, "second", &called("train")).await;
    let fault = &taken.json()["errors"][0];
    assert_eq!((taken.status.as_u16(), text(fault, "code")), (422, "name_taken"));
    assert!(text(fault, "detail").contains(&first), "{fault}");
    assert_eq!(pool.app.log.position().entry, before);
    // Of many at once one gets it.
    let keys: Vec<String> = (0..8).map(|at| format!("many-{at}")).collect();
    let body = called("many");
    let many = futures::future::join_all(keys.iter().map(|key| create(&pool, &bob, key, &body))).await;
    assert_eq!(many.iter().filter(|reply| reply.status == StatusCode::CREATED).count(), 1);
    pool.post(&bob, "/v1/leases/train/release", &[], &json!({})).await;
    assert_eq!(id(&pool.get(&bob, "/v1/leases/train").await.json()), first, "it is over, and still meant");
    let second = id(&create(&pool, &bob, "third", &called("train")).await.json());
    assert_eq!(id(&pool.get(&bob, "/v1/leases/train").await.json()), second);
    assert_eq!(listed(&pool, &bob, "name=train").await, [second.clone(), first.clone()]);
    pool.post(&bob, &format!("/v1/leases/{second}/release"), &[], &json!({})).await;
    assert_eq!(id(&pool.get(&bob, "/v1/leases/train").await.json()), second, "the newest");
}

#[tokio::test]
async fn leases_are_listed_by_label_page_by_page_and_never_another_accounts() {
    let (_dir, pool) = pool().await;
    let (alice, bob) = (pool.alice(), pool.bob());
    let mut ids = Vec::new();
    for at in 0..3 {
        ids.insert(0, id(&create(&pool, &bob, &format!("key-{at}"), &called(&format!("name-{at}"))).await.json()));
    }
    pool.lease(&bob, "plain").await;
    create(&pool, &alice, "hers", &called("name-0")).await;
    assert_eq!(listed(&pool, &bob, "label=team:vision").await, ids);
    assert_eq!(listed(&pool, &bob, "label=team:vision&name=name-1").await, ids[1..2]);
    for none in ["label=team:audio", "label=vision:team", "name=name-3"] {
        assert!(listed(&pool, &bob, none).await.is_empty(), "{none}");
    }
    let page = pool.get(&bob, "/v1/leases?label=team:vision&page_size=2").await.json();
    assert_eq!(page["leases"][1]["name"], "name-1");
    let next = format!("label=team:vision&page_size=2&page_token={}", text(&page, "next_page_token"));
    assert_eq!(listed(&pool, &bob, &next).await, ids[2..]);
    let bad = pool.get(&bob, "/v1/leases?label=team").await;
    assert_eq!(bad.fault(), (422, "bad_query".to_owned()));
}

#[tokio::test]
async fn a_repeat_with_another_name_or_label_is_a_mismatch() {
    let (_dir, pool) = pool().await;
    let bob = pool.bob();
    let first = create(&pool, &bob, "key", &called("train")).await;
    let again = create(&pool, &bob, "key", &called("train")).await;
    assert_eq!((again.status, again.text()), (StatusCode::CREATED, first.text()));
    let mut label = called("train");
    label["labels"]["team"] = json!("audio");
    for other in [called("other"), label, want()] {
        let fault = create(&pool, &bob, "key", &other).await.fault();
        assert_eq!(fault, (422, "idempotency_mismatch".to_owned()), "{other}");
    }
    let plain = create(&pool, &bob, "plain", &want()).await;
    assert_eq!(plain.status, StatusCode::CREATED);
    assert_eq!(create(&pool, &bob, "plain", &called("late")).await.fault().0, 422);
}

#[tokio::test]
async fn wrong_names_and_labels_are_refused_each_by_its_place() {
    let (_dir, pool) = pool().await;
    let bob = pool.bob();
    let many: serde_json::Map<String, Value> = (0..17).map(|at| (format!("k{at}"), json!(""))).collect();
    for (name, value, pointer) in [
        ("name", json!("lease-1-0"), "/name"),
        ("name", json!(".."), "/name"),
        ("name", json!(""), "/name"),
        ("name", json!("a".repeat(64)), "/name"),
        ("labels", json!({ "a:b": "c" }), "/labels"),
        ("labels", json!({ "a": "x".repeat(64) }), "/labels"),
        ("labels", Value::Object(many), "/labels"),
    ] {
        let mut body = want();
        body[name] = value.clone();
        let reply = create(&pool, &bob, "key", &body).await;
        assert_eq!(reply.fault(), (422, "bad_fields".to_owned()), "{value}");
        assert_eq!(reply.json()["errors"][0]["pointer"], pointer, "{value}");
    }
    for path in ["/v1/leases/lease-01-0", "/v1/leases/a%20b", "/v1/leases/lease-1"] {
        assert_eq!(pool.get(&bob, path).await.fault(), (422, "bad_path".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn neither_name_nor_label_is_in_the_log() {
    let (_dir, pool) = pool().await;
    create(&pool, &pool.bob(), "key", &called("unheard-of")).await;
    let size = pool.app.log.position().entry + 1;
    for bytes in entry::bytes(&pool.app.store.readers, 0, u32::try_from(size).unwrap()).await.unwrap() {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("unheard-of") && !text.contains("vision"));
    }
}
