//! Who may call what: every route of the description, against every kind of caller that may not.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Method;
use ethers_signers::Signer;
use selion_api::{Hash32, Signature};
use serde_json::json;

use super::*;
use crate::http::openapi;
use crate::http::secrets::TOKEN_MS;

/// What anyone may call.
const PUBLIC: [&str; 12] = [
    "GET /healthz",
    "GET /metrics",
    "GET /openapi.json",
    "GET /readyz",
    "GET /v1/link",
    "GET /v1/log/entries",
    "GET /v1/log/head",
    "GET /v1/pool",
    "GET /v1/registry",
    "POST /v1/api-keys",
    "POST /v1/auth/nonce",
    "POST /v1/auth/token",
];

/// Every operation: method, path pattern, whether it asks for a bearer token.
fn operations() -> Vec<(Method, String, bool)> {
    let description = serde_json::to_value(openapi()).unwrap();
    let mut all = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let bearer = operation["security"].to_string().contains("bearer");
            all.push((method.to_uppercase().parse().unwrap(), path.clone(), bearer));
        }
    }
    all
}

fn filled(path: &str) -> String {
    let id = if path.contains("/nodes/") { NODE.to_string() } else { "lease-1-0".to_owned() };
    let id = if path.contains("/api-keys/") { "1".to_owned() } else { id };
    let path = path.replace("{id}", &id).replace("{cid}", "bafkqaaa");
    if path.ends_with("/wait") { path + "?state=ended" } else { path }
}

#[tokio::test]
async fn every_route_but_the_public_ones_refuses_no_token_an_expired_and_a_forged_one() {
    let (_dir, pool) = pool().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let forger = Secrets::open(elsewhere.path(), &POOL).unwrap();
    let long_ago = TimeMs(NOW.0 - TOKEN_MS);
    let cases = [
        (String::new(), "no_token"),
        (pool.app.secrets.issue(&Caller::Renter(ALICE), long_ago).unwrap().0, "token_expired"),
        (forger.issue(&Caller::Renter(ALICE), NOW).unwrap().0, "bad_token"),
        ("nonsense".to_owned(), "bad_token"),
    ];
    let mut public = BTreeSet::new();
    for (method, path, bearer) in operations() {
        if !bearer {
            public.insert(format!("{method} {path}"));
            continue;
        }
        for (token, code) in &cases {
            let reply = pool.send(ask(method.clone(), token, &filled(&path), &[], Body::empty())).await;
            if method == Method::HEAD {
                assert_eq!(reply.status.as_u16(), 401, "{path} with {code}");
            } else {
                assert_eq!(reply.fault(), (401, (*code).to_owned()), "{method} {path}");
            }
            assert_eq!(reply.header("www-authenticate"), "Bearer");
        }
    }
    assert_eq!(public.iter().map(String::as_str).collect::<Vec<_>>(), PUBLIC);
}

#[tokio::test]
async fn a_node_token_opens_what_is_common_and_nothing_of_an_account() {
    let (_dir, pool) = pool().await;
    let node = pool.token(Caller::Node(NODE));
    let common = ["/v1/whoami", "/v1/offers", "/v1/shares", "/v1/nodes", "/v1/nodes/{id}", "/ipfs/{cid}"];
    for (method, path, bearer) in operations() {
        if !bearer || common.contains(&path.as_str()) {
            continue;
        }
        let reply = pool.send(ask(method.clone(), &node, &filled(&path), &[], Body::empty())).await;
        assert_eq!(reply.fault(), (403, "wrong_caller".to_owned()), "{method} {path}");
    }
    assert_eq!(pool.get(&node, "/v1/whoami").await.json(), json!({"kind": "node", "node": NODE.to_string()}));
}

#[tokio::test]
async fn another_renters_lease_node_dataset_and_key_are_out_of_reach() {
    let (_dir, pool) = pool().await;
    let (alice, bob) = (pool.alice(), pool.bob());
    let lease = id(&pool.lease(&alice, "k").await);
    for tail in ["", "/wait?state=ended", "/placement", "/logs", "/events"] {
        let reply = pool.get(&bob, &format!("/v1/leases/{lease}{tail}")).await;
        assert_eq!(reply.fault(), (403, "not_yours".to_owned()), "{tail}");
    }
    let released = pool.post(&bob, &format!("/v1/leases/{lease}/release"), &[], &json!(null)).await;
    assert_eq!(released.fault(), (403, "not_yours".to_owned()));
    for (verb, body) in [("pause", json!(null)), ("resume", json!(null)), ("reclaim", json!({}))] {
        let reply = pool.post(&bob, &format!("/v1/nodes/{NODE}/{verb}"), &[], &body).await;
        assert_eq!(reply.fault(), (403, "not_yours".to_owned()), "{verb}");
    }
    assert_eq!(pool.get(&bob, "/v1/leases").await.json()["leases"], json!([]));
    assert_eq!(pool.get(&alice, "/v1/leases").await.json()["leases"][0]["id"], json!(lease));
}

#[tokio::test]
async fn the_owner_pauses_and_resumes_his_node() {
    let (_dir, pool) = pool().await;
    let owner = pool.token(Caller::Renter(OWNER));
    let paused = pool.post(&owner, &format!("/v1/nodes/{NODE}/pause"), &[], &json!(null)).await.json();
    assert_eq!((&paused["paused"], &paused["reason"]), (&json!(true), &json!("node_paused")));
    assert_eq!(pool.get(&owner, "/v1/offers").await.json()["offers"], json!([]));
    let resumed = pool.post(&owner, &format!("/v1/nodes/{NODE}/resume"), &[], &json!(null)).await.json();
    assert_eq!(resumed["schedulable"], json!(true));
    let offers = pool.get(&owner, "/v1/offers?slice=whole&max_rate=1000000").await.json();
    assert_eq!(offers["offers"][0]["available"], json!(1));
    assert_eq!(pool.get(&owner, "/v1/offers?max_rate=999999").await.json()["offers"], json!([]));
}

#[tokio::test]
async fn the_owner_takes_a_gpu_back_and_what_is_there_is_stopped_until_he_resumes() {
    let (_dir, pool) = pool().await;
    let (owner, alice) = (pool.token(Caller::Renter(OWNER)), pool.alice());
    let node = format!("/v1/nodes/{NODE}");
    let (path, resume) = (&format!("{node}/reclaim"), &format!("{node}/resume"));
    let (pool, owner) = (&pool, &owner);
    let reclaim = |body: Value| async move { pool.post(owner, path, &[], &body).await };
    let other = reclaim(json!({ "gpu": "GPU-99999999-0000-0000-0000-000000000000" })).await;
    assert_eq!(other.fault().0, 404);
    assert_eq!(reclaim(json!({ "minutes": 5 })).await.fault().0, 422);
    let gpu = pool.get(owner, &node).await.json()["gpus"][0]["spec"]["gpu"].clone();
    let told = reclaim(json!({ "gpu": gpu, "notice_ms": 3_600_000 })).await.json();
    assert_eq!((&told["reclaimed"][0]["gpu"], &told["schedulable"]), (&gpu, &json!(true)));
    assert_eq!(told["reclaimed"][0]["by_ms"], json!(NOW.0 + 3_600_000));
    let offers = || async move { pool.get(owner, "/v1/offers").await.json()["offers"].as_array().unwrap().len() };
    assert_eq!(offers().await, 0);
    let resume = || async move { pool.post(owner, resume, &[], &json!(null)).await.json() };
    let resumed = resume().await;
    assert_eq!((&resumed["reclaimed"], &resumed["schedulable"]), (&json!([]), &json!(true)));
    assert!(offers().await > 0);
    let lease = id(&pool.lease(&alice, "k").await);
    let told = reclaim(json!({})).await.json();
    assert_eq!((&told["reason"], &told["schedulable"]), (&json!("owner_reclaimed"), &json!(false)));
    let stopped = pool.get(&alice, &format!("/v1/leases/{lease}")).await.json();
    assert_eq!((&stopped["state"], &stopped["reason"]), (&json!("ending"), &json!("owner_reclaimed")));
    assert_eq!(resume().await["reclaimed"], json!([]));
}

async fn new_key(pool: &Pool, nonce: &Value, signature: Signature) -> Reply {
    let body = json!({"account": wallet_account(), "nonce": nonce["nonce"], "signature": signature});
    pool.post("", "/v1/api-keys", &[], &body).await
}

#[tokio::test]
async fn a_nonce_signed_once_gives_a_key_and_a_key_gives_tokens_until_it_is_revoked() {
    let (_dir, pool) = pool().await;
    let ask_nonce = format!("/v1/auth/nonce?account={}", wallet_account());
    let nonce = pool.post("", &ask_nonce, &[], &json!(null)).await.json();
    let signature = Signature(wallet().sign_message(nonce["message"].as_str().unwrap()).await.unwrap().into());
    let made = new_key(&pool, &nonce, signature).await;
    assert_eq!(made.status.as_u16(), 201, "{}", made.text());
    assert_eq!(new_key(&pool, &nonce, signature).await.fault(), (401, "bad_nonce".to_owned()));

    let key = made.json();
    let header = format!("ApiKey {}", key["api_key"].as_str().unwrap());
    let token = pool.post("", "/v1/auth/token", &[("authorization", &header)], &json!(null)).await.json();
    let token = token["token"].as_str().unwrap();
    let me = pool.get(token, "/v1/whoami").await.json();
    assert_eq!(me, json!({"kind": "renter", "account": wallet_account()}));

    let listed = pool.get(token, "/v1/api-keys").await;
    assert_eq!(listed.json()["api_keys"][0]["id"], key["id"]);
    assert!(!listed.text().contains(key["api_key"].as_str().unwrap()));
    let one = format!("/v1/api-keys/{}", key["id"]);
    assert_eq!(pool.send(ask(Method::DELETE, &pool.bob(), &one, &[], Body::empty())).await.fault().0, 404);
    assert_eq!(pool.send(ask(Method::DELETE, token, &one, &[], Body::empty())).await.status.as_u16(), 204);
    let refused = pool.post("", "/v1/auth/token", &[("authorization", &header)], &json!(null)).await;
    assert_eq!(refused.fault(), (401, "bad_api_key".to_owned()));
}

#[tokio::test]
async fn a_nonce_signed_by_another_key_gives_nothing_and_is_spent() {
    let (_dir, pool) = pool().await;
    let ask_nonce = format!("/v1/auth/nonce?account={}", wallet_account());
    let nonce = pool.post("", &ask_nonce, &[], &json!(null)).await.json();
    let thief = ethers_signers::LocalWallet::from_bytes(&[0x66; 32]).unwrap();
    let message = nonce["message"].as_str().unwrap();
    let forged = Signature(thief.sign_message(message).await.unwrap().into());
    assert_eq!(new_key(&pool, &nonce, forged).await.fault(), (422, "bad_signature".to_owned()));
    let honest = Signature(wallet().sign_message(message).await.unwrap().into());
    assert_eq!(new_key(&pool, &nonce, honest).await.fault(), (401, "bad_nonce".to_owned()));
    let unknown = json!({"nonce": Hash32([3; 32])});
    assert_eq!(new_key(&pool, &unknown, honest).await.fault(), (401, "bad_nonce".to_owned()));
}
