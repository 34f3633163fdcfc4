//! Secrets of leases: names, to whom they are sealed, what is taken, and that nothing of them is kept in the clear.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use selion_api::seal::{MAX_SEALED, MAX_SECRET};

use super::*;

/// A pool whose node has somewhere to put secrets.
async fn pool_with_secrets() -> (TempDir, Pool) {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::open(dir.path(), 100_000).await;
    let features = selion_api::BoxFeatures::NONE.with(selion_api::BoxFeature::Secrets);
    pool.play_chain_of(NodeSpec { features, ..spec() }).await;
    (dir, pool)
}

fn wants(names: &[&str], pool_may_keep: bool) -> Value {
    let mut body = want();
    body["secrets"] = json!(names);
    body["pool_may_keep_secrets"] = json!(pool_may_keep);
    body
}

fn sealed(rank: u16, attempt: u32, bytes: usize) -> Value {
    let key = Hash32([3; 32]);
    json!({"sealed": [{"rank": rank, "attempt": attempt, "to": key, "enc": key,
        "ciphertext": format!("0x{}", "ab".repeat(bytes))}]})
}

fn kept(name: &str, value: &[u8]) -> Value {
    json!({"kept": [{"name": name, "value": STANDARD.encode(value)}]})
}

impl Pool {
    async fn put(&self, token: &str, path: &str, body: &Value) -> Reply {
        let headers = [("content-type", "application/json")];
        self.send(ask(Method::PUT, token, path, &headers, Body::from(body.to_string()))).await
    }

    async fn asked(&self, body: &Value) -> Reply {
        self.post(&self.alice(), "/v1/leases", &[("idempotency-key", "k")], body).await
    }

    /// A lease of Alice's with this body, and the path of its secrets.
    async fn with_secrets(&self, body: &Value) -> (Value, String) {
        let reply = self.asked(body).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text());
        let lease = reply.json();
        let path = format!("/v1/leases/{}/secrets", id(&lease));
        (lease, path)
    }
}

#[tokio::test]
async fn names_are_judged_and_told_apart_by_the_commitment() {
    let (_dir, pool) = pool_with_secrets().await;
    for bad in ["", "..", ".x", "a/b", "a b", &"x".repeat(65)] {
        let reply = pool.asked(&wants(&["ok", bad], false)).await;
        assert_eq!(reply.fault(), (422, "bad_fields".to_owned()), "{bad:?}");
        assert_eq!(reply.json()["errors"][0]["pointer"], "/secrets/1", "{bad:?}");
    }
    let many: Vec<String> = (0..65).map(|at| at.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (body, pointer) in [
        (wants(&["a", "a"], false), "/secrets/1"),
        (wants(&many, false), "/secrets"),
        (wants(&[".registry"], false), "/secrets"),
        (wants(&[], true), "/pool_may_keep_secrets"),
    ] {
        let reply = pool.asked(&body).await;
        assert_eq!(
            (reply.fault().0, &reply.json()["errors"][0]["pointer"]),
            (422, &json!(pointer)),
            "{}",
            reply.text()
        );
    }
    let (_, path) = pool.with_secrets(&wants(&["b", "a"], false)).await;
    let again = pool.asked(&wants(&["b"], false)).await;
    assert_eq!(again.fault(), (422, "idempotency_mismatch".to_owned()));
    let view = pool.get(&pool.alice(), &path).await.json();
    assert_eq!(
        (&view["names"], &view["pool_may_keep"], &view["kept"]),
        (&json!(["a", "b"]), &json!(false), &json!(false))
    );
    let [member] = &view["members"].as_array().unwrap()[..] else { panic!("{view}") };
    assert_eq!((&member["rank"], &member["attempt"], &member["node"]), (&json!(0), &json!(1), &json!(NODE)));
    assert!(member["key"].is_null() && member["sealed_to"].is_null(), "no agent has linked: {member}");
}

#[tokio::test]
async fn what_is_sealed_is_taken_for_a_run_that_is_prepared_and_for_no_other() {
    let (_dir, pool) = pool_with_secrets().await;
    let alice = pool.alice();
    let (lease, path) = pool.with_secrets(&wants(&["token"], false)).await;
    for (body, pointer) in [
        (sealed(0, 2, 40), "/sealed/0/attempt"),
        (sealed(1, 1, 40), "/sealed/0/attempt"),
        (sealed(0, 1, MAX_SEALED + 1), "/sealed/0/ciphertext"),
        (kept("token", b"x"), "/kept"),
    ] {
        let reply = pool.put(&alice, &path, &body).await;
        assert_eq!(
            (reply.fault().0, &reply.json()["errors"][0]["pointer"]),
            (422, &json!(pointer)),
            "{}",
            reply.text()
        );
    }
    let taken = pool.put(&alice, &path, &sealed(0, 1, 40)).await.json();
    assert_eq!(taken["members"][0]["sealed_to"], json!(Hash32([3; 32])), "{taken}");
    let largest = pool.put(&alice, &path, &sealed(0, 1, MAX_SEALED)).await;
    assert_eq!(largest.status, StatusCode::OK, "{}", largest.text());

    // Foreign, unknown, over.
    let bob = pool.bob();
    assert_eq!(pool.get(&bob, &path).await.fault(), (403, "not_yours".to_owned()));
    assert_eq!(pool.put(&bob, &path, &sealed(0, 1, 40)).await.fault(), (403, "not_yours".to_owned()));
    assert_eq!(pool.put(&alice, "/v1/leases/lease-999-0/secrets", &sealed(0, 1, 40)).await.fault().0, 404);
    pool.post(&alice, &format!("/v1/leases/{}/release", id(&lease)), &[], &json!(null)).await;
    let late = pool.put(&alice, &path, &sealed(0, 1, 40)).await;
    assert!(matches!(late.fault(), (409, code) if code == "not_live") || late.fault().0 == 422, "{}", late.text());
}

#[tokio::test]
async fn a_lease_that_named_no_secrets_takes_none() {
    let (_dir, pool) = pool_with_secrets().await;
    let (_, path) = pool.with_secrets(&want()).await;
    let view = pool.get(&pool.alice(), &path).await.json();
    assert_eq!((&view["names"], &view["members"]), (&json!([]), &json!([])));
    assert_eq!(pool.put(&pool.alice(), &path, &sealed(0, 1, 40)).await.fault().0, 422);
}

#[tokio::test]
async fn what_the_pool_may_keep_is_exactly_what_was_named_and_no_fault_repeats_it() {
    let (_dir, pool) = pool_with_secrets().await;
    let alice = pool.alice();
    let (_, path) = pool.with_secrets(&wants(&["token"], true)).await;
    let bad_base64 = json!({"kept": [{"name": "token", "value": "hunter2!"}]});
    let not_text = json!({"kept": [{"name": "token", "value": 72}]});
    let twice =
        json!({"kept": [{"name": "token", "value": "aHVudGVyMg=="}, {"name": "token", "value": "aHVudGVyMg=="}]});
    let large = kept("token", &[7; MAX_SECRET + 1]);
    for body in [kept("other", b"hunter2"), bad_base64, not_text, twice, large] {
        let reply = pool.put(&alice, &path, &body).await;
        assert_eq!(reply.fault().0, 422, "{}", reply.text());
        let text = reply.text();
        assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
    }
    let taken = pool.put(&alice, &path, &kept("token", &[7; MAX_SECRET])).await;
    assert_eq!((taken.status, &taken.json()["kept"]), (StatusCode::OK, &json!(true)), "{}", taken.text());
}

#[tokio::test]
async fn command_environment_and_kept_secrets_stand_nowhere_in_the_clear() {
    let (dir, pool) = pool_with_secrets().await;
    let mut body = wants(&["token"], true);
    body["command"] = json!(["echo", "canary-command"]);
    body["env"] = json!({"CANARY_NAME": "canary-value"});
    let (lease, path) = pool.with_secrets(&body).await;
    let given = pool.put(&pool.alice(), &path, &kept("token", b"canary-secret")).await;
    assert_eq!(given.status, StatusCode::OK, "{}", given.text());
    let scan = || {
        let mut files = 0;
        for entry in std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()) {
            let Ok(bytes) = std::fs::read(&entry) else { continue };
            files += 1;
            for canary in
                ["canary-command", "CANARY_NAME", "canary-value", "canary-secret", &STANDARD.encode("canary-secret")]
            {
                let there = bytes.windows(canary.len()).any(|part| part == canary.as_bytes());
                assert!(!there, "{canary} in {}", entry.display());
            }
        }
        files
    };
    assert!(scan() >= 2, "the database and its log were looked at");
    // It is what it was, though, and for a controller that was started again too.
    pool.close().await;
    scan();
    let again = Pool::open(dir.path(), 1_000).await;
    let id = id(&lease).parse().unwrap();
    let commitment = again.app.log.read(|state| state.leases[&id].request.work);
    let (_, work) = crate::store::work::get(&again.app.store, &commitment).await.unwrap().unwrap();
    assert_eq!((&work.command[1][..], &work.env[0].1[..]), ("canary-command", "canary-value"));
    let secrets = crate::store::secret::kept(&again.app.store, id).await.unwrap().unwrap();
    assert_eq!(secrets[0].value, b"canary-secret");
}
