//! J11: signing in with a wallet (EIP-4361), and sessions: short tokens, rotated refresh tokens, revocation.

use ethers_signers::LocalWallet;
use selion_api::rest::Scope;

use super::*;
use crate::http::secrets::{NONCE_MS, TOKEN_MS};

async fn log_in(pool: &Pool, body: &Value) -> Reply {
    pool.post("", "/v1/auth/siwe", &[], body).await
}

/// Signs the message that the controller offers, changed, and logs in with it.
async fn with(pool: &Pool, change: impl FnOnce(String) -> String) -> Reply {
    let nonce = pool.post("", "/v1/auth/nonce", &[], &json!({"account": wallet_account()})).await.json();
    let body = sign(&wallet(), &change(text(&nonce, "message").to_owned())).await;
    log_in(pool, &body).await
}

async fn refresh(pool: &Pool, session: &Value) -> Reply {
    let body = json!({"refresh_token": session["refresh_token"]});
    pool.post("", "/v1/auth/refresh", &[], &body).await
}

#[tokio::test]
async fn j11_a_wallet_logs_in_with_the_offered_message_and_its_token_lives_ten_minutes() {
    let (_dir, pool) = pool().await;
    let session = pool.session().await;
    assert_eq!(session["account"], json!(wallet_account()));
    assert_eq!(session["expires_ms"], json!(NOW.0 + 10 * 60 * 1000));
    const { assert!(TOKEN_MS <= 10 * 60 * 1000) };
    let me = pool.get(text(&session, "token"), "/v1/whoami").await.json();
    assert_eq!((&me["account"], &me["login"]["kind"]), (&json!(wallet_account()), &json!("session")));
    assert_eq!(me["scopes"].as_array().unwrap().len(), Scope::ALL.len());
}

#[tokio::test]
async fn j11_the_offered_message_is_eip_4361_and_names_site_pool_and_chain() {
    let (_dir, pool) = pool().await;
    let nonce = pool.post("", "/v1/auth/nonce", &[], &json!({"account": wallet_account()})).await.json();
    let message: signinwithethereum::Message = text(&nonce, "message").parse().unwrap();
    assert_eq!((message.domain.as_str(), message.uri.as_str()), ("127.0.0.1:7070", "http://127.0.0.1:7070"));
    assert_eq!((message.address, message.chain_id), (wallet_account().0, POOL.chain_id));
    assert_eq!(message.nonce, text(&nonce, "nonce"));
    assert_eq!(message.resources.len(), 1);
    assert_eq!(message.resources[0].as_str(), format!("urn:selion:pool:31337:{}", POOL.controller));
    let until = message.expiration_time.unwrap().as_ref().unix_timestamp_nanos() / 1_000_000;
    assert_eq!(json!(u64::try_from(until).unwrap()), nonce["expires_ms"]);
    let bare = pool.post("", "/v1/auth/nonce", &[], &json!({})).await.json();
    assert!(bare.get("message").is_none() && text(&bare, "nonce").len() >= 8);
    let no_account = pool.post("", "/v1/auth/nonce", &[], &json!({"user_code": "BCDF-GHJK"})).await;
    assert_eq!(no_account.fault(), (422, "bad_fields".to_owned()));
}

#[tokio::test]
async fn j11_a_message_of_a_wallets_own_making_is_as_good() {
    let (_dir, pool) = pool().await;
    let nonce = pool.post("", "/v1/auth/nonce", &[], &json!({})).await.json();
    let account = signinwithethereum::eip55(&wallet_account().0);
    let message = format!(
        "http://localhost:7070 wants you to sign in with your Ethereum account:\n{account}\n\n\nURI: \
         http://localhost:7070/device\nVersion: 1\nChain ID: 31337\nNonce: {}\nIssued At: 2027-01-15T08:00:00Z",
        text(&nonce, "nonce")
    );
    let reply = log_in(&pool, &sign(&wallet(), &message).await).await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.text());
}

#[tokio::test]
async fn j11_a_replayed_message_is_refused() {
    let (_dir, pool) = pool().await;
    let body = pool.signed(&json!({"account": wallet_account()})).await;
    assert_eq!(log_in(&pool, &body).await.status.as_u16(), 200);
    assert_eq!(log_in(&pool, &body).await.fault(), (401, "bad_nonce".to_owned()));
}

#[tokio::test]
async fn j11_a_forged_message_is_refused_and_spends_no_nonce() {
    let (_dir, pool) = pool().await;
    let honest = pool.signed(&json!({"account": wallet_account()})).await;
    let thief = LocalWallet::from_bytes(&[0x66; 32]).unwrap();
    let forged = sign(&thief, text(&honest, "message")).await;
    assert_eq!(log_in(&pool, &forged).await.fault(), (422, "bad_signature".to_owned()));
    let mut altered = honest.clone();
    altered["message"] = json!(text(&honest, "message").replace("Log in", "Let in"));
    assert_eq!(log_in(&pool, &altered).await.fault(), (422, "bad_signature".to_owned()));
    assert_eq!(log_in(&pool, &honest).await.status.as_u16(), 200);
}

#[tokio::test]
async fn j11_a_message_for_another_site_chain_or_pool_is_refused() {
    let (_dir, pool) = pool().await;
    let cases = [
        ("127.0.0.1:7070 wants", "evil.example wants", "foreign_domain"),
        ("127.0.0.1:7070 wants", "127.0.0.1:7071 wants", "foreign_domain"),
        ("127.0.0.1:7070 wants", "https://127.0.0.1:7070 wants", "foreign_domain"),
        ("URI: http://127.0.0.1:7070", "URI: https://evil.example", "foreign_domain"),
        ("Chain ID: 31337", "Chain ID: 1", "foreign_chain"),
        ("urn:selion:pool:31337:0x01", "urn:selion:pool:31337:0x02", "foreign_resource"),
        ("urn:selion:pool:31337:0x01", "https://evil.example/0x01", "foreign_resource"),
    ];
    for (ours, theirs, code) in cases {
        let reply = with(&pool, |message| {
            assert!(message.contains(ours), "{message}");
            message.replacen(ours, theirs, 1)
        });
        assert_eq!(reply.await.fault(), (401, code.to_owned()), "{theirs}");
    }
    let device = with(&pool, |message| message + "\n- urn:selion:device:BCDFGHJK").await;
    assert_eq!(device.fault(), (401, "foreign_resource".to_owned()), "an approval is no login");
}

#[tokio::test]
async fn j11_an_expired_and_a_future_message_are_refused() {
    let (_dir, pool) = pool().await;
    let set = |tag: &'static str, date: &'static str| {
        move |message: String| {
            let line = message.lines().find(|line| line.starts_with(tag)).unwrap();
            message.replacen(line, &format!("{tag} {date}"), 1)
        }
    };
    // The clock of this pool stands at 2027-01-15T08:00:00Z.
    let past = with(&pool, set("Expiration Time:", "2027-01-15T08:00:00Z")).await;
    assert_eq!(past.fault(), (401, "message_expired".to_owned()));
    let future = with(&pool, set("Issued At:", "2027-01-15T08:01:00.001Z")).await;
    assert_eq!(future.fault(), (401, "message_early".to_owned()));
    let ahead = with(&pool, set("Issued At:", "2027-01-15T08:01:00Z")).await;
    assert_eq!(ahead.status.as_u16(), 200, "a wallet's clock may be a minute ahead: {}", ahead.text());
    let not_yet =
        |message: String| message.replacen("\nResources:", "\nNot Before: 2027-01-15T08:00:01Z\nResources:", 1);
    assert_eq!(with(&pool, not_yet).await.fault(), (401, "message_early".to_owned()));
}

#[tokio::test]
async fn j11_a_nonce_that_is_not_ours_or_has_lapsed_is_refused() {
    let (_dir, pool) = pool().await;
    let own = |nonce: String| {
        move |message: String| {
            let line = message.lines().find(|line| line.starts_with("Nonce:")).unwrap();
            message.replacen(line, &format!("Nonce: {nonce}"), 1)
        }
    };
    assert_eq!(with(&pool, own("12345678".into())).await.fault(), (401, "bad_nonce".to_owned()));
    let lapsed = pool.app.secrets.nonce(TimeMs(NOW.0 - NONCE_MS)).unwrap().0;
    assert_eq!(with(&pool, own(lapsed)).await.fault(), (401, "bad_nonce".to_owned()));
    let elsewhere = tempfile::tempdir().unwrap();
    let theirs = Secrets::open(elsewhere.path(), &POOL).unwrap().nonce(NOW).unwrap().0;
    assert_eq!(with(&pool, own(theirs)).await.fault(), (401, "bad_nonce".to_owned()));
}

#[tokio::test]
async fn j11_a_malformed_message_is_refused() {
    let (_dir, pool) = pool().await;
    let changes: [fn(String) -> String; 8] = [
        |_| String::new(),
        |_| "Selion: make an API key for this account.".to_owned(),
        |message| message.replace("Version: 1", "Version: 2"),
        |message| message.replace("Chain ID: 31337", "Chain ID: 031337"),
        |message| message.replace("Issued At: ", "Issued At: yesterday "),
        |message| message.replace('\n', "\r\n"),
        |message| message + "\n",
        |message| message + &"\n- urn:x".repeat(700),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        assert_eq!(with(&pool, change).await.fault(), (422, "bad_message".to_owned()), "change {at}");
    }
    let unknown = json!({"message": "", "signature": Signature::ZERO, "colour": "red"});
    assert_eq!(log_in(&pool, &unknown).await.fault(), (422, "bad_fields".to_owned()));
}

#[tokio::test]
async fn j11_a_refresh_token_is_exchanged_once_and_its_theft_ends_the_session() {
    let (_dir, pool) = pool().await;
    let first = pool.session().await;
    let second = refresh(&pool, &first).await.json();
    assert_ne!(first["refresh_token"], second["refresh_token"]);
    let third = refresh(&pool, &second).await.json();
    assert_eq!(pool.get(text(&third, "token"), "/v1/leases").await.status.as_u16(), 200);
    assert_eq!(refresh(&pool, &first).await.fault(), (401, "refresh_token_reused".to_owned()));
    assert_eq!(refresh(&pool, &third).await.fault(), (401, "bad_refresh_token".to_owned()));
    for session in [&first, &second, &third] {
        let reply = pool.get(text(session, "token"), "/v1/leases").await;
        assert_eq!(reply.fault(), (401, "token_revoked".to_owned()));
    }
    let nonsense = json!({"refresh_token": "rt_00"});
    assert_eq!(refresh(&pool, &nonsense).await.fault(), (401, "bad_refresh_token".to_owned()));
}

#[tokio::test]
async fn j11_a_logout_ends_its_session_and_a_logout_of_all_ends_every_one() {
    let (_dir, pool) = pool().await;
    let (one, two, three) = (pool.session().await, pool.session().await, pool.session().await);
    let post = |session: &Value, path: &'static str| {
        let (pool, token) = (&pool, text(session, "token").to_owned());
        async move { pool.post(&token, path, &[], &json!(null)).await }
    };
    assert_eq!(post(&one, "/v1/auth/logout").await.status.as_u16(), 204);
    assert_eq!(post(&one, "/v1/auth/logout").await.fault(), (401, "token_revoked".to_owned()));
    assert_eq!(refresh(&pool, &one).await.fault(), (401, "bad_refresh_token".to_owned()));
    assert_eq!(pool.get(text(&two, "token"), "/v1/leases").await.status.as_u16(), 200);
    assert_eq!(post(&two, "/v1/auth/logout-all").await.json(), json!({"sessions": 2, "api_keys": 0}));
    for session in [&two, &three] {
        assert_eq!(pool.get(text(session, "token"), "/v1/leases").await.fault().1, "token_revoked");
    }
    assert_eq!(pool.get(&pool.alice(), "/v1/leases").await.status.as_u16(), 200, "nobody else's");
    assert_eq!(pool.get(text(&pool.session().await, "token"), "/v1/leases").await.status.as_u16(), 200);
}

#[tokio::test]
async fn j11_what_was_ended_stays_ended_over_a_restart_and_what_was_not_goes_on() {
    let (dir, pool) = pool().await;
    let (ended, kept) = (pool.session().await, pool.session().await);
    pool.post(text(&ended, "token"), "/v1/auth/logout", &[], &json!(null)).await;
    pool.post(&pool.alice(), "/v1/auth/logout-all", &[], &json!(null)).await;
    let alice = pool.alice();
    pool.close().await;
    let again = Pool::open(dir.path(), 1000).await;
    assert_eq!(again.get(text(&ended, "token"), "/v1/leases").await.fault().1, "token_revoked");
    assert_eq!(again.get(&alice, "/v1/leases").await.fault().1, "token_revoked");
    assert_eq!(again.get(text(&kept, "token"), "/v1/leases").await.status.as_u16(), 200);
    assert_eq!(refresh(&again, &kept).await.status.as_u16(), 200);
}

#[tokio::test]
async fn an_operator_ends_the_logins_of_an_account_and_nobody_else_does() {
    let (_dir, pool) = pool().await;
    let session = pool.session().await;
    let me = text(&session, "token");
    let key = pool.post(me, "/v1/api-keys", &[], &json!({"scopes": ["lease:read"]})).await.json();
    let header = format!("ApiKey {}", text(&key, "api_key"));
    let body = json!({"account": wallet_account()});
    assert_eq!(pool.post(me, "/v1/operator/revoke", &[], &body).await.fault().1, "wrong_caller");
    let operator = pool.token(Caller::Renter(OPERATOR));
    let ended = pool.post(&operator, "/v1/operator/revoke", &[], &body).await.json();
    assert_eq!(ended, json!({"sessions": 1, "api_keys": 1}));
    assert_eq!(pool.get(me, "/v1/leases").await.fault().1, "token_revoked");
    let token = pool.post("", "/v1/auth/token", &[("authorization", &header)], &json!(null)).await;
    assert_eq!(token.fault(), (401, "bad_api_key".to_owned()));
}
