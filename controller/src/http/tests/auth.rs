//! Who may call what: every route of the description, against every kind of caller that may not.

use axum::body::Body;
use axum::http::Method;
use selion_api::rest::Scope;
use serde_json::json;

use super::*;
use crate::http::openapi;
use crate::http::rules::{Need, need};
use crate::http::secrets::TOKEN_MS;
use crate::store::session::Ended;

/// Every operation: method, path pattern, and what the table of rules asks for.
fn operations() -> Vec<(Method, String, Need)> {
    let description = serde_json::to_value(openapi()).unwrap();
    let mut all = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let rule = need(&method, path);
            let rule = rule.unwrap_or_else(|| panic!("{method} {path} has no rule: add it to http/rules.rs"));
            all.push((method, path.clone(), rule));
        }
    }
    all
}

fn filled(path: &str) -> String {
    let id = if path.contains("/nodes/") { NODE.to_string() } else { "lease-1-0".to_owned() };
    let id = if path.contains("/api-keys/") { "1".to_owned() } else { id };
    let path = path.replace("{id}", &id).replace("{cid}", "bafkqaaa").replace("{rank}", "0");
    if path.ends_with("/wait") { path + "?state=ended" } else { path }
}

/// Calls with an empty object, as the route may have it.
async fn call(pool: &Pool, method: &Method, path: &str, token: &str) -> Reply {
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    // What is good enough a body to come to the question whose lease it is.
    let body = match *method {
        Method::POST if path.ends_with("/extend") => Body::from(r#"{"for_ms": 60000}"#),
        Method::POST | Method::PUT if !path.starts_with("/ipfs/") => Body::from("{}"),
        _ => Body::empty(),
    };
    pool.send(ask(method.clone(), token, path, &headers, body)).await
}

/// Status and code; of `HEAD`, which has no body, the status alone.
fn told(method: &Method, reply: &Reply, code: &str) -> (u16, String) {
    if *method == Method::HEAD { (reply.status.as_u16(), code.to_owned()) } else { reply.fault() }
}

#[tokio::test]
async fn every_route_but_the_public_ones_refuses_no_token_and_every_bad_one() {
    let (_dir, pool) = pool().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let forger = Secrets::open(elsewhere.path(), &POOL).unwrap();
    let there = tempfile::tempdir().unwrap();
    let other_pool = Secrets::open(there.path(), &PoolId { chain_id: 1, ..POOL }).unwrap();
    let (alice, carol) = (pass(Caller::Renter(ALICE)), Account([0xc0; 20]));
    pool.app.logins.end(Login::Session(77), NOW);
    pool.app.logins.end(Login::Key(78), NOW);
    pool.app.logins.end_all(carol, &Ended { epoch: 1, ..Ended::default() }, NOW);
    let long_ago = TimeMs(NOW.0 - TOKEN_MS);
    let cases = [
        (String::new(), "no_token"),
        (pool.app.secrets.issue(&alice, long_ago, None).unwrap().0, "token_expired"),
        (forger.issue(&alice, NOW, None).unwrap().0, "bad_token"),
        (other_pool.issue(&alice, NOW, None).unwrap().0, "bad_token"),
        ("nonsense".to_owned(), "bad_token"),
        (pool.token_of(Pass { login: Login::Session(77), ..alice }), "token_revoked"),
        (pool.token_of(Pass { login: Login::Key(78), ..alice }), "token_revoked"),
        (pool.token_of(pass(Caller::Renter(carol))), "token_revoked"),
    ];
    for (method, path, rule) in operations() {
        if rule == Need::Nothing {
            continue;
        }
        for (token, code) in &cases {
            let reply = call(&pool, &method, &filled(&path), token).await;
            assert_eq!(told(&method, &reply, code), (401, (*code).to_owned()), "{method} {path}");
            assert_eq!(reply.header("www-authenticate"), "Bearer");
        }
    }
}

#[tokio::test]
async fn every_route_refuses_the_wrong_kind_of_caller_and_a_login_without_its_scope() {
    let (_dir, pool) = pool().await;
    let node = pool.token(Caller::Node(NODE));
    let wrong = (403, "wrong_caller".to_owned());
    for ((method, path, rule), nth) in operations().into_iter().zip(100..) {
        // An account for each: some of these routes end all its logins.
        let alice = pass(Caller::Renter(Account([nth; 20])));
        let key = pool.token_of(Pass { login: Login::Key(5), ..alice });
        let at = |token: String| {
            let (pool, method, path) = (&pool, &method, filled(&path));
            async move { told(method, &call(pool, method, &path, &token).await, "") }
        };
        if matches!(rule, Need::Scope(_) | Need::Session | Need::Operator) {
            assert_eq!(at(node.clone()).await, wrong, "{method} {path} for a node");
        }
        match rule {
            Need::Scope(scope) | Need::ScopeOrNode(scope) => {
                let (status, code) = at(pool.token_of(Pass { scopes: Scopes::ALL.without(scope), ..alice })).await;
                assert_eq!(status, 403, "{method} {path} without {scope:?}");
                assert!(code == "missing_scope" || method == Method::HEAD, "{method} {path}: {code}");
                let only = Pass { scopes: [scope].into_iter().collect(), ..alice };
                let (status, code) = {
                    let reply = call(&pool, &method, &filled(&path), &pool.token_of(only)).await;
                    let code = if method != Method::HEAD && reply.header("content-type").contains("problem") {
                        reply.fault().1
                    } else {
                        String::new()
                    };
                    (reply.status.as_u16(), code)
                };
                let kept_out = ["missing_scope", "wrong_caller", "no_such_path"].contains(&code.as_str());
                assert!(!kept_out && status != 401, "{method} {path} with {scope:?} alone: {status} {code}");
            }
            Need::Session => assert_eq!(at(key.clone()).await, wrong, "{method} {path} with an API key"),
            Need::Operator => {
                assert_eq!(at(pool.alice()).await, wrong, "{method} {path} for a renter");
                let device = Pass { scopes: Scopes::DELEGATED, ..pass(Caller::Renter(OPERATOR)) };
                assert_eq!(at(pool.token_of(device)).await, (403, "missing_scope".to_owned()), "{method} {path}");
                let (status, _) = at(pool.token(Caller::Renter(OPERATOR))).await;
                assert_eq!(status, 422, "{method} {path} lets an operator in, as far as his empty body");
            }
            Need::Watcher => {
                assert_eq!(at(pool.alice()).await, wrong, "{method} {path} for a renter");
                let bare = Pass { scopes: Scopes::default(), ..pass(Caller::Renter(OPERATOR)) };
                assert_eq!(call(&pool, &method, &path, &pool.token_of(bare)).await.status.as_u16(), 200, "{path}");
            }
            Need::Nothing | Need::Token => {}
        }
    }
}

#[tokio::test]
async fn every_object_of_an_account_is_out_of_reach_for_another() {
    let (_dir, pool) = pool().await;
    let lease = id(&pool.lease(&pool.alice(), "k").await);
    let key = json!({"scopes": ["lease:read"]});
    let key = pool.post(&pool.alice(), "/v1/api-keys", &[], &key).await.json()["id"].to_string();
    let bob = pool.bob();
    for (method, path, rule) in operations() {
        if !path.contains('{') || !matches!(rule, Need::Scope(_) | Need::Session) {
            continue;
        }
        let id = if path.contains("/api-keys/") { key.clone() } else { lease.clone() };
        let path =
            if path.contains("/leases/") || path.contains("/api-keys/") { path.replace("{id}", &id) } else { path };
        let (status, code) = call(&pool, &method, &filled(&path), &bob).await.fault();
        assert!(matches!(status, 403 | 404), "{method} {path}: {status} {code}");
        assert!(["not_yours", "not_found", "no_such_lease"].contains(&code.as_str()), "{method} {path}: {code}");
    }
}

#[tokio::test]
async fn what_the_table_does_not_name_is_not_there() {
    let (_dir, pool) = pool().await;
    let unruled = Router::new().route("/v1/new", axum::routing::get(|| async { "open" }));
    let limits = Arc::new(crate::http::limits::Limits::new(10, governor::clock::DefaultClock::default()));
    let router = crate::http::layers::Stack::new(&pool.app).quick(unruled, &limits);
    let open = Pool { router, ..pool };
    assert_eq!(open.get(&open.alice(), "/v1/new").await.fault(), (404, "no_such_path".to_owned()));
    assert_eq!(need(&Method::DELETE, "/v1/leases"), None);
}

#[tokio::test]
async fn auditors_need_no_login() {
    let (_dir, pool) = pool().await;
    for path in ["/v1/log/head", "/v1/log/entries", "/v1/registry", "/v1/pool", "/healthz"] {
        assert_eq!(pool.get("", path).await.status.as_u16(), 200, "{path}");
    }
}

#[tokio::test]
async fn whoami_tells_account_roles_scopes_and_login() {
    let (_dir, pool) = pool().await;
    let node = pool.token(Caller::Node(NODE));
    assert_eq!(pool.get(&node, "/v1/whoami").await.json(), json!({"kind": "node", "node": NODE.to_string()}));
    let roles = |account| {
        let (pool, token) = (&pool, pool.token(Caller::Renter(account)));
        async move { pool.get(&token, "/v1/whoami").await.json()["roles"].clone() }
    };
    assert_eq!(roles(ALICE).await, json!(["renter"]));
    assert_eq!(roles(OWNER).await, json!(["renter", "provider"]));
    assert_eq!(roles(OPERATOR).await, json!(["renter", "operator"]));
    assert_eq!(roles(pool.app.authority).await, json!(["renter", "operator"]));
    let key =
        Pass { login: Login::Key(4), scopes: [Scope::DataRead].into_iter().collect(), ..pass(Caller::Renter(BOB)) };
    let told = pool.get(&pool.token_of(key), "/v1/whoami").await.json();
    assert_eq!((&told["scopes"], &told["login"]), (&json!(["data:read"]), &json!({"kind": "api_key", "id": 4})));
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
    let taken_back =
        || async { pool.get(&alice, &format!("/v1/leases/{lease}")).await.json()["taken_back_ms"].clone() };
    assert_eq!(taken_back().await, json!(null));
    reclaim(json!({ "gpu": gpu, "notice_ms": 3_600_000 })).await;
    assert_eq!(taken_back().await, json!(NOW.0 + 3_600_000));
    let told = reclaim(json!({})).await.json();
    assert_eq!((&told["reason"], &told["schedulable"]), (&json!("owner_reclaimed"), &json!(false)));
    let stopped = pool.get(&alice, &format!("/v1/leases/{lease}")).await.json();
    assert_eq!((&stopped["state"], &stopped["reason"]), (&json!("ending"), &json!("owner_reclaimed")));
    assert_eq!(resume().await["reclaimed"], json!([]));
}
