//! The typed client against the real router, over a loopback socket.

use std::net::SocketAddr;

use futures::StreamExt;
use selion_api::lease::LeaseState;
use selion_api::rest::{NewApiKey, NewLease, Quote, Scope, Session, Whoami};
use selion_client::{Client, ClientError, Keeper, LeaseQuery, PageQuery, Trouble, Turn, fresh_key};

use super::*;

async fn serve(pool: &Pool) -> (Client, SocketAddr) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = pool.router.clone().into_make_service_with_connect_info::<SocketAddr>();
    let stop = pool.stop.clone();
    tokio::spawn(async move {
        axum::serve(listener, service).with_graceful_shutdown(stop.cancelled_owned()).await.unwrap();
    });
    (Client::new(&format!("http://{address}")).unwrap(), address)
}

#[tokio::test]
async fn a_wallet_logs_in_leases_signed_follows_and_releases() {
    let (dir, pool) = pool().await;
    let (client, _) = serve(&pool).await;
    client.login(&wallet(), "test").await.unwrap();
    assert!(matches!(client.whoami().await.unwrap(), Whoami::Renter { account, .. } if account == wallet_account()));
    let terms = client.pool().await.unwrap();
    assert_eq!(client.offers(&Default::default()).await.unwrap().offers.len(), 1);

    let file = dir.path().join("input");
    std::fs::write(&file, vec![3; 2 << 20]).unwrap();
    let dataset = client.upload_dataset(&file, "input").await.unwrap();
    assert_eq!(dataset.bytes, 2 << 20);

    let mut body = want();
    body["datasets"] = json!([{"cid": dataset.cid, "mount": "input"}]);
    (body["name"], body["labels"]) = (json!("train"), json!({ "team": "vision" }));
    let mut body: NewLease = serde_json::from_value(body).unwrap();
    pool.lease(&pool.bob(), "busy").await;
    let Quote::Wait { position, starts_ms, .. } = client.quote(&body).await.unwrap() else {
        panic!("bob is in the way");
    };
    let key = fresh_key().unwrap();
    let lease = client.create_signed_lease(&wallet(), &terms.pool, &key, &mut body).await.unwrap();
    assert!(lease.signed);
    assert_eq!(lease.waiting.as_ref().map(|waiting| waiting.position), Some(position));
    assert_eq!(client.placement(lease.id).await.unwrap().starts_ms, starts_ms);
    assert_eq!(client.create_lease(&key, &body).await.unwrap(), lease, "a repeat is safe");
    assert_eq!(client.leases(&PageQuery::default()).await.unwrap().leases.len(), 1);

    assert_eq!(client.lease_id(&"train".parse().unwrap()).await.unwrap(), lease.id);
    let query = LeaseQuery { label: Some("team:vision".to_owned()), ..LeaseQuery::default() };
    assert_eq!(client.find_leases(&query).await.unwrap().leases[0].name.as_deref(), Some("train"));

    client.sign_with(wallet(), terms.pool);
    for _ in 0..2 {
        let longer = client.extend(lease.id, "longer", 60_000).await.unwrap();
        assert_eq!(longer.duration_ms, lease.duration_ms + 60_000, "once");
    }
    let timeout = client.wait(lease.id, LeaseState::Active, std::time::Duration::from_millis(1)).await;
    assert_eq!(timeout.unwrap_err().code(), Some("wait_timeout"));
    pool.print(&lease.id.to_string(), 0, 0, &["one", "two"]).await;
    let mut lines = client.logs(lease.id, &Default::default());
    assert_eq!(lines.next().await.unwrap().unwrap().text, "one");
    let ended = client.release(lease.id).await.unwrap();
    assert_eq!(ended.state, LeaseState::Ended);
    let events: Vec<_> = client.events(lease.id, None).map(Result::unwrap).collect().await;
    assert_eq!(events.last().unwrap().state, LeaseState::Ended);
    let over = client.placement(lease.id).await.unwrap_err();
    assert_eq!(over.code(), Some("not_live"), "where a lease that is over could go is no question");
    pool.stop.cancel();
}

#[tokio::test]
async fn a_word_is_said_unsigned_and_that_is_told_where_the_clocks_differ() {
    let (_dir, pool) = pool().await;
    let (client, _) = serve(&pool).await;
    client.login(&wallet(), "test").await.unwrap();
    client.sign_with(wallet(), POOL);
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    client.set_watcher(move |trouble| seen.lock().unwrap().push(trouble.clone()));
    let lease = client.create_lease("k", &serde_json::from_value(want()).unwrap()).await.unwrap();
    // The pool's clock stands still in another year.
    assert_eq!(client.release(lease.id).await.unwrap().state, LeaseState::Ending);
    let told = std::mem::take(&mut *told.lock().unwrap());
    let [Trouble::Unsigned { why }] = told.as_slice() else { panic!("{told:?}") };
    assert!(why.contains(&NOW.0.to_string()) && why.contains("set the clock"), "{why}");
    // Another fault is not hidden by a second try.
    assert_eq!(client.release(lease.id).await.unwrap().state, LeaseState::Ending);
    let other = PoolId { chain_id: 1, ..POOL };
    client.sign_with(ethers_signers::LocalWallet::from_bytes(&[0x78; 32]).unwrap(), other);
    assert!(client.pause_node(NODE).await.is_err());
    pool.stop.cancel();
}

/// What a profile's folder does for commands that run at one time.
#[derive(Clone)]
struct Shared(Arc<std::sync::Mutex<Session>>);

impl Keeper for Shared {
    fn turn(&self) -> Result<Box<dyn Turn>, String> {
        Ok(Box::new(self.clone()))
    }
}

impl Turn for Shared {
    fn kept(&self) -> Option<Session> {
        Some(self.0.lock().unwrap().clone())
    }
    fn keep(&self, session: &Session) -> Result<(), String> {
        *self.0.lock().unwrap() = session.clone();
        Ok(())
    }
}

#[tokio::test]
async fn clients_that_share_a_session_renew_it_in_turns_and_a_thief_ends_it() {
    let (_dir, pool) = pool().await;
    let (client, address) = serve(&pool).await;
    let first = client.login(&wallet(), "shared").await.unwrap();
    // As it is when ten minutes have gone: the token is not to be used any more.
    let lapsed = Session { expires_ms: TimeMs(0), ..first.clone() };
    let shared = Shared(Arc::new(std::sync::Mutex::new(lapsed.clone())));
    let sharer = || {
        let client = Client::new(&format!("http://{address}")).unwrap();
        client.set_session(&lapsed);
        client.set_keeper(Arc::new(shared.clone()));
        client
    };
    let (one, two) = (sharer(), sharer());
    one.account().await.unwrap();
    let kept = shared.0.lock().unwrap().clone();
    assert_ne!(kept.refresh_token, first.refresh_token);
    two.account().await.unwrap();
    assert_eq!(*shared.0.lock().unwrap(), kept, "the second took over what the first had renewed");

    let thief = Client::new(&format!("http://{address}")).unwrap();
    thief.set_session(&lapsed);
    assert_eq!(thief.account().await.unwrap_err().code(), Some("refresh_token_reused"));
    assert_eq!(two.account().await.unwrap_err().code(), Some("bad_refresh_token"));
    pool.stop.cancel();
}

#[tokio::test]
async fn a_device_is_let_in_through_the_client_and_logs_out_again() {
    let (_dir, pool) = pool().await;
    let (client, address) = serve(&pool).await;
    client.login(&wallet(), "at home").await.unwrap();
    let device = Client::new(&format!("http://{address}")).unwrap();
    let asked = device.start_device("build box").await.unwrap();
    let pending = device.device_session(&asked).await.unwrap_err();
    assert!(pending.code() == Some("authorization_pending") && pending.is_retryable());
    let seen = client.look_at_device(&asked.user_code.to_lowercase()).await.unwrap();
    assert_eq!((seen.name.as_str(), seen.from.as_str()), ("build box", "127.0.0.1"));
    client.approve_device(&asked.user_code).await.unwrap();
    assert_eq!(device.device_session(&asked).await.unwrap().account, wallet_account());
    device.account().await.unwrap();
    let refused = device.api_keys(&PageQuery::default()).await.unwrap_err();
    assert_eq!(refused.code(), Some("missing_scope"));

    let scopes = vec![Scope::MoneyRead];
    let key = client.create_api_key(&NewApiKey { name: String::new(), scopes, expires_ms: None }).await.unwrap();
    let program = Client::new(&format!("http://{address}")).unwrap();
    program.set_api_key(&key.api_key);
    program.account().await.unwrap();
    client.revoke_api_key(key.id).await.unwrap();
    assert_eq!(program.account().await.unwrap_err().code(), Some("bad_api_key"));

    device.logout().await.unwrap();
    assert!(matches!(device.account().await, Err(ClientError::NoLogin)));
    assert_eq!(client.logout_all().await.unwrap().sessions, 1);
    pool.stop.cancel();
}

#[tokio::test]
async fn a_problem_arrives_with_code_and_remedy_and_an_alien_answer_is_told_apart() {
    let (_dir, pool) = pool().await;
    let (client, address) = serve(&pool).await;
    client.set_api_key("sk_1_00");
    let error = client.account().await.unwrap_err();
    assert_eq!(error.code(), Some("bad_api_key"));
    assert!(error.to_string().contains("POST /v1/auth/nonce"), "{error}");
    assert!(!error.is_retryable());

    let alien = Router::new().route("/v1/pool", axum::routing::get(|| async { "hello" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = listener.local_addr().unwrap();
    assert_ne!(elsewhere, address);
    let stop = pool.stop.clone();
    tokio::spawn(async move {
        axum::serve(listener, alien).with_graceful_shutdown(stop.cancelled_owned()).await.unwrap();
    });
    let client = Client::new(&format!("http://{elsewhere}")).unwrap();
    assert!(matches!(client.pool().await, Err(ClientError::Protocol { .. })));
    assert!(matches!(client.registry().await, Err(ClientError::Protocol { .. })));
    pool.stop.cancel();
}

#[tokio::test]
async fn a_log_stream_goes_on_behind_its_last_line_after_the_connection_broke() {
    let (_dir, pool) = pool().await;
    pool.lease(&pool.bob(), "busy").await;
    let me = pool.token(Caller::Renter(wallet_account()));
    let lease = id(&pool.lease(&me, "k").await);
    pool.print(&lease, 0, 0, &["one", "two", "three"]).await;
    let release = format!("/v1/leases/{lease}/release");
    assert_eq!(pool.post(&me, &release, &[], &Value::Null).await.status.as_u16(), 200);

    // Something on the way that cuts a stream of lines behind its first event, unless the reader resumes.
    let resumed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, inner) = (resumed.clone(), pool.router.clone());
    let cutting = Router::new().fallback(move |request: Request<Body>| async move {
        let last = request.headers().get("last-event-id").map(|id| id.to_str().unwrap().to_owned());
        let logs = request.uri().path().ends_with("/logs");
        let response = inner.oneshot(request).await.unwrap();
        if !logs || last.is_some() {
            seen.lock().unwrap().extend(last);
            return response;
        }
        let (head, body) = response.into_parts();
        let text = String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
        let end = text.find("\n\n").unwrap() + 2;
        axum::response::Response::from_parts(head, Body::from(text[..end].to_owned()))
    });
    let (client, _) = serve(&Pool { router: cutting, ..pool }).await;
    client.login(&wallet(), "").await.unwrap();
    let lines: Vec<_> =
        client.logs(lease.parse().unwrap(), &Default::default()).map(|line| line.unwrap().text).collect().await;
    assert_eq!(lines, ["one", "two", "three"]);
    assert_eq!(*resumed.lock().unwrap(), ["1.0.0"]);
}
