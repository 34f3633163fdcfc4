//! API keys: made by a session, shown once, narrow, and over at once when they are revoked.

use selion_api::rest::Scope;

use super::*;

async fn token_of(pool: &Pool, key: &Value) -> Reply {
    let header = format!("ApiKey {}", text(key, "api_key"));
    pool.post("", "/v1/auth/token", &[("authorization", &header)], &json!(null)).await
}

async fn make(pool: &Pool, token: &str, body: Value) -> Reply {
    pool.post(token, "/v1/api-keys", &[], &body).await
}

#[tokio::test]
async fn a_key_is_shown_once_does_what_its_scopes_say_and_ends_at_once_when_it_is_revoked() {
    let (_dir, pool) = pool().await;
    let session = pool.session().await;
    let me = text(&session, "token");
    let made = make(&pool, me, json!({"name": "ci", "scopes": ["lease:read", "data:read", "data:read"]})).await;
    assert_eq!(made.status.as_u16(), 201, "{}", made.text());
    let key = made.json();
    let token = token_of(&pool, &key).await.json();
    let token = text(&token, "token");
    assert_eq!(pool.get(token, "/v1/leases").await.status.as_u16(), 200);
    assert_eq!(pool.get(token, "/v1/bills").await.fault(), (403, "missing_scope".to_owned()));
    assert_eq!(make(&pool, token, json!({"scopes": ["lease:write"]})).await.fault().1, "missing_scope");
    assert_eq!(pool.post(token, "/v1/auth/logout", &[], &json!(null)).await.fault().1, "wrong_caller");

    let listed = pool.get(me, "/v1/api-keys").await;
    let seen = &listed.json()["api_keys"][0];
    assert_eq!((&seen["id"], &seen["name"], &seen["used_ms"]), (&key["id"], &json!("ci"), &json!(NOW.0)));
    assert_eq!(seen["scopes"], json!(["lease:read", "data:read"]));
    assert!(!listed.text().contains(text(&key, "api_key")));
    let path = format!("/v1/api-keys/{}", key["id"]);
    assert_eq!(pool.send(ask(Method::DELETE, &pool.bob(), &path, &[], Body::empty())).await.fault().0, 404);
    assert_eq!(pool.send(ask(Method::DELETE, me, &path, &[], Body::empty())).await.status.as_u16(), 204);
    assert_eq!(pool.get(token, "/v1/leases").await.fault(), (401, "token_revoked".to_owned()));
    assert_eq!(token_of(&pool, &key).await.fault(), (401, "bad_api_key".to_owned()));
}

#[tokio::test]
async fn a_key_without_scopes_with_the_right_to_log_in_or_of_the_past_is_refused() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    for body in [
        json!({"scopes": []}),
        json!({"scopes": ["login"]}),
        json!({"scopes": ["lease:read", "everything"]}),
        json!({"scopes": ["lease:read"], "expires_ms": NOW.0}),
        json!({"name": "no scopes at all"}),
    ] {
        assert_eq!(make(&pool, &alice, body.clone()).await.fault(), (422, "bad_fields".to_owned()), "{body}");
    }
    let soon = json!({"scopes": ["lease:read"], "expires_ms": NOW.0 + 5_000});
    let key = make(&pool, &alice, soon).await.json();
    assert_eq!(token_of(&pool, &key).await.json()["expires_ms"], json!(NOW.0 + 5_000), "not beyond the key's end");
}

#[tokio::test]
async fn only_the_hash_of_a_secret_is_in_the_database() {
    let (dir, pool) = pool().await;
    let session = pool.session().await;
    let scopes: Vec<&str> = Scope::ALL.iter().take(6).map(|scope| scope.code()).collect();
    let key = make(&pool, text(&session, "token"), json!({"scopes": scopes})).await.json();
    let device = pool.post("", "/v1/auth/device", &[], &json!({"name": "box"})).await.json();
    let secrets = [(&session, "refresh_token"), (&key, "api_key"), (&device, "device_code")];
    let secrets = secrets.map(|(value, name)| text(value, name).rsplit('_').next().unwrap().to_owned());
    let files = ["selion.db", "selion.db-wal"].map(|name| std::fs::read(dir.path().join(name)).unwrap_or_default());
    let all = files.concat();
    let holds = |needle: &[u8]| all.windows(needle.len()).any(|window| window == needle);
    assert!(holds(b"lease:read data:read") || holds(b"lease:read lease:write"), "the rows are there");
    for secret in secrets {
        assert!(!holds(secret.as_bytes()) && !holds(&hex::decode(&secret).unwrap()), "{secret}");
    }
}
