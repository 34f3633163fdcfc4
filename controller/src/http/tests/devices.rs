//! Letting in a device without a key: codes, approval by a session or a wallet, denial, and the page for it.

use super::*;

async fn start(pool: &Pool) -> Value {
    let device = pool.post("", "/v1/auth/device", &[], &json!({"name": "build box"})).await;
    assert_eq!(device.status.as_u16(), 200, "{}", device.text());
    device.json()
}

async fn poll(pool: &Pool, device: &Value) -> Reply {
    pool.post("", "/v1/auth/device/token", &[], &json!({"device_code": device["device_code"]})).await
}

async fn post(pool: &Pool, token: &str, what: &str, device: &Value) -> Reply {
    let path = format!("/v1/auth/device/{what}");
    pool.post(token, &path, &[], &json!({"user_code": device["user_code"]})).await
}

#[tokio::test]
async fn j11_a_device_is_let_in_by_a_login_elsewhere_once_and_never_manages_logins() {
    let (_dir, pool) = pool().await;
    let device = start(&pool).await;
    assert_eq!(text(&device, "verification_uri"), "http://127.0.0.1:7070/device");
    assert_eq!((&device["expires_in"], &device["interval"]), (&json!(600), &json!(5)));
    assert_eq!(poll(&pool, &device).await.fault(), (400, "authorization_pending".to_owned()));
    assert_eq!(poll(&pool, &device).await.fault(), (400, "slow_down".to_owned()));
    let seen = post(&pool, "", "look", &device).await.json();
    assert_eq!((&seen["name"], &seen["from"]), (&json!("build box"), &json!("an unknown address")));
    assert_eq!(post(&pool, &pool.alice(), "approve", &device).await.status.as_u16(), 204);
    assert_eq!(post(&pool, &pool.bob(), "approve", &device).await.fault(), (404, "no_such_device".to_owned()));
    let session = poll(&pool, &device).await.json();
    assert_eq!(session["account"], json!(ALICE));
    assert_eq!(poll(&pool, &device).await.fault(), (404, "no_such_device".to_owned()), "its code counts once");
    let token = text(&session, "token");
    assert_eq!(pool.get(token, "/v1/leases").await.status.as_u16(), 200);
    assert_eq!(pool.get(token, "/v1/api-keys").await.fault(), (403, "missing_scope".to_owned()));
    let another = start(&pool).await;
    assert_eq!(post(&pool, token, "approve", &another).await.fault(), (403, "missing_scope".to_owned()));
    assert_eq!(pool.post(token, "/v1/auth/logout", &[], &json!(null)).await.status.as_u16(), 204);
}

#[tokio::test]
async fn j11_a_wallet_lets_a_device_in_by_a_message_that_names_it() {
    let (_dir, pool) = pool().await;
    let device = start(&pool).await;
    let login = pool.signed(&json!({"account": wallet_account()})).await;
    let reply = pool.post("", "/v1/auth/device/siwe", &[], &login).await;
    assert_eq!(reply.fault(), (401, "foreign_resource".to_owned()), "a login approves nothing");
    let body = pool.signed(&json!({"account": wallet_account(), "user_code": device["user_code"]})).await;
    assert!(text(&body, "message").contains("Let the device 'build box' at an unknown address act for this account"));
    assert_eq!(pool.post("", "/v1/auth/siwe", &[], &body).await.fault().1, "foreign_resource", "nor the other way");
    let body = pool.signed(&json!({"account": wallet_account(), "user_code": device["user_code"]})).await;
    assert_eq!(pool.post("", "/v1/auth/device/siwe", &[], &body).await.status.as_u16(), 204);
    assert_eq!(poll(&pool, &device).await.json()["account"], json!(wallet_account()));
}

#[tokio::test]
async fn j11_a_denied_device_is_told_so() {
    let (_dir, pool) = pool().await;
    let device = start(&pool).await;
    assert_eq!(post(&pool, "", "deny", &device).await.fault(), (401, "no_token".to_owned()));
    assert_eq!(post(&pool, &pool.alice(), "deny", &device).await.status.as_u16(), 204);
    assert_eq!(poll(&pool, &device).await.fault(), (400, "access_denied".to_owned()));
    let unknown = json!({"user_code": "BCDF-GHJK", "device_code": "dc_00"});
    assert_eq!(post(&pool, "", "look", &unknown).await.fault(), (404, "no_such_device".to_owned()));
    assert_eq!(poll(&pool, &unknown).await.fault(), (404, "no_such_device".to_owned()));
}

#[tokio::test]
async fn codes_cannot_be_tried_out_by_the_hundred() {
    let (_dir, pool) = pool().await;
    let wrong = json!({"user_code": "BCDF-GHJK"});
    for _ in 0..30 {
        assert_eq!(post(&pool, "", "look", &wrong).await.status.as_u16(), 404);
    }
    assert_eq!(post(&pool, "", "look", &wrong).await.fault(), (429, "rate_limited".to_owned()));
    assert_eq!(pool.get("", "/v1/pool").await.status.as_u16(), 200, "other requests have their own allowance");
}

#[tokio::test]
async fn a_name_that_could_pass_for_something_else_is_refused() {
    let (_dir, pool) = pool().await;
    for name in ["", "box' at 10.0.0.1 with the account's consent '", "two\nlines", "b\u{f6}x", &"x".repeat(65)] {
        let reply = pool.post("", "/v1/auth/device", &[], &json!({ "name": name })).await;
        assert_eq!(reply.fault(), (422, "bad_fields".to_owned()), "{name:?}");
    }
}

#[tokio::test]
async fn the_page_loads_nothing_from_elsewhere() {
    let (_dir, pool) = pool().await;
    let page = pool.get("", "/device").await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").to_owned();
    for rule in ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(rule), "{policy}");
    }
    let script = pool.get("", "/device.js").await;
    for text in [page.text(), script.text()] {
        assert!(!text.contains("://") && !text.contains("innerHTML") && !text.contains("eval"), "{text}");
    }
    assert!(!page.text().contains("onclick") && !page.text().contains("style="), "the policy forbids what is inline");
}
