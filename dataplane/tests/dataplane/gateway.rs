//! The gateway over a real socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::routing::get;
use futures::stream;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use selion_dataplane::dag::{self, MAX_BLOCK};
use selion_dataplane::gateway::Uploader;
use selion_dataplane::{
    GatewayUrlError, HttpGateway, Limits, RAW_BLOCK, Source, SourceError, Store, fetch, gateway, push,
};
use tempfile::TempDir;

use crate::support::{Server, block_file, damage, pattern, store};

struct Pool {
    dir: TempDir,
    store: Store,
    server: Server,
    client: Client,
}

impl Pool {
    async fn start() -> Self {
        let (dir, store) = store();
        let server = Server::start(gateway::router(store.clone())).await;
        Self { dir, store, server, client: Client::builder().no_proxy().build().unwrap() }
    }

    fn ask(&self, method: Method, path: impl std::fmt::Display) -> RequestBuilder {
        self.client.request(method, format!("{}/ipfs/{path}", self.server.url))
    }
}

async fn code(request: RequestBuilder) -> (StatusCode, String) {
    let answer = request.send().await.unwrap();
    let status = answer.status();
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let body: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(body["status"], status.as_u16());
    assert!(!body["suggestion"].as_str().unwrap().is_empty());
    (status, body["code"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_raw_block_is_given_with_what_a_cache_needs() {
    let pool = Pool::start().await;
    let bytes = pattern(5000);
    let cid = pool.store.add_bytes(&bytes).unwrap();
    let by_query = pool.ask(Method::GET, format!("{cid}?format=raw")).send().await.unwrap();
    assert_eq!(by_query.status(), StatusCode::OK);
    let headers = by_query.headers().clone();
    assert_eq!(headers["content-type"], RAW_BLOCK);
    assert_eq!(headers["etag"], format!("\"{cid}.raw\""));
    assert_eq!(headers["x-content-type-options"], "nosniff");
    let cache = headers["cache-control"].to_str().unwrap();
    assert!(cache.contains("immutable") && cache.contains("private"), "{cache}");
    assert_eq!(by_query.bytes().await.unwrap(), bytes);
    let by_header = pool.ask(Method::GET, cid).header("accept", "text/html, application/vnd.ipld.raw;q=0.9");
    assert_eq!(by_header.send().await.unwrap().bytes().await.unwrap(), bytes);
    let again = pool.ask(Method::GET, cid).header("accept", RAW_BLOCK).header("if-none-match", &headers["etag"]);
    assert_eq!(again.send().await.unwrap().status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_head_tells_the_length_and_sends_nothing() {
    let pool = Pool::start().await;
    let cid = pool.store.add_bytes(&pattern(5000)).unwrap();
    let there = pool.ask(Method::HEAD, format!("{cid}?format=raw")).send().await.unwrap();
    assert_eq!((there.status(), there.headers()["content-length"].to_str().unwrap()), (StatusCode::OK, "5000"));
    assert!(there.bytes().await.unwrap().is_empty());
    let absent = dag::cid_of(b"absent");
    let absent = pool.ask(Method::HEAD, format!("{absent}?format=raw")).send().await.unwrap();
    assert_eq!(absent.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_not_a_raw_block_is_refused() {
    let pool = Pool::start().await;
    let cid = pool.store.add_bytes(b"hello").unwrap();
    for path in [format!("{cid}"), format!("{cid}?format=car"), format!("{cid}/a/b?format=raw")] {
        let (status, code) = code(pool.ask(Method::GET, &path)).await;
        assert_eq!((status, code.as_str()), (StatusCode::NOT_ACCEPTABLE, "only_raw_blocks"), "{path}");
    }
    let (status, problem) = code(pool.ask(Method::GET, "not-a-cid?format=raw")).await;
    assert_eq!((status, problem.as_str()), (StatusCode::BAD_REQUEST, "bad_cid"));
}

#[tokio::test]
async fn an_absent_block_is_told_at_once() {
    let pool = Pool::start().await;
    let absent = format!("{}?format=raw", dag::cid_of(b"absent"));
    assert_eq!(code(pool.ask(Method::GET, &absent)).await.0, StatusCode::NOT_FOUND);
    let probe = pool.ask(Method::GET, &absent).header("cache-control", "only-if-cached");
    assert_eq!(code(probe).await.0, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn a_damaged_block_is_not_served_and_can_be_put_again() {
    let pool = Pool::start().await;
    let cid = pool.store.add_bytes(b"precious").unwrap();
    damage(&block_file(pool.dir.path(), &cid));
    let (status, problem) = code(pool.ask(Method::GET, format!("{cid}?format=raw"))).await;
    assert_eq!((status, problem.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "block_corrupt"));
    let put = pool.ask(Method::PUT, cid).body("precious").send().await.unwrap();
    assert_eq!(put.status(), StatusCode::CREATED);
    let got = pool.ask(Method::GET, format!("{cid}?format=raw")).send().await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), "precious");
}

#[tokio::test]
async fn a_put_block_must_be_what_its_cid_names() {
    let pool = Pool::start().await;
    let cid = dag::cid_of(b"true");
    let (status, problem) = code(pool.ask(Method::PUT, cid).body("false")).await;
    assert_eq!((status, problem.as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "hash_mismatch"));
    assert!(!pool.store.has(&cid));
    for expected in [StatusCode::CREATED, StatusCode::OK] {
        assert_eq!(pool.ask(Method::PUT, cid).body("true").send().await.unwrap().status(), expected);
    }
    assert_eq!(pool.store.get(&cid).unwrap().as_ref(), b"true");
}

#[tokio::test]
async fn a_put_over_two_mebibytes_is_refused_with_and_without_an_announced_length() {
    let pool = Pool::start().await;
    let cid = dag::cid_of(b"any");
    // Refused by its length alone: a body that is never sent cannot be the cause.
    let announced = pool.ask(Method::PUT, cid).body(vec![0; MAX_BLOCK + 1]);
    if let Ok(answer) = announced.send().await {
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    let chunks = (0..3).map(|_| Ok::<_, std::io::Error>(vec![0u8; 1 << 20]));
    let streamed = pool.ask(Method::PUT, cid).body(reqwest::Body::wrap_stream(stream::iter(chunks)));
    assert_eq!(code(streamed).await, (StatusCode::PAYLOAD_TOO_LARGE, "block_too_large".to_owned()));
    let full = pattern(MAX_BLOCK);
    let put = pool.ask(Method::PUT, dag::leaf(&full).cid).body(full).send().await.unwrap();
    assert_eq!(put.status(), StatusCode::CREATED, "exactly the limit is taken");
}

#[tokio::test]
async fn the_client_stops_reading_a_body_without_end() {
    let endless = get(|| async {
        let chunks = stream::repeat_with(|| Ok::<_, std::io::Error>(vec![0u8; 64 << 10]));
        Body::from_stream(chunks)
    });
    let server = Server::start(Router::new().route("/ipfs/{cid}", endless)).await;
    let client = HttpGateway::new(&server.url, None).unwrap();
    let error = client.block(&dag::cid_of(b"x")).await.unwrap_err();
    assert!(matches!(error, SourceError::TooLarge), "{error}");
}

#[tokio::test]
async fn the_client_sends_its_token_and_never_shows_it() {
    let guarded = get(|headers: HeaderMap| async move {
        match headers.get("authorization").and_then(|value| value.to_str().ok()) {
            Some("Bearer s3cret") => (StatusCode::OK, "block"),
            _ => (StatusCode::UNAUTHORIZED, "no"),
        }
    });
    let server = Server::start(Router::new().route("/base/ipfs/{cid}", guarded)).await;
    let url = format!("{}/base", server.url);
    let cid = dag::cid_of(b"block");
    let with = HttpGateway::new(&url, Some("s3cret")).unwrap();
    assert_eq!(with.block(&cid).await.unwrap(), "block");
    assert!(!format!("{with:?} {}", with.name()).contains("s3cret"));
    let without = HttpGateway::new(&url, None).unwrap();
    let error = without.block(&cid).await.unwrap_err();
    assert!(matches!(error, SourceError::Refused { status: 401, .. }), "{error}");
}

#[tokio::test]
async fn the_client_follows_no_redirect_and_tells_a_dead_gateway() {
    let elsewhere = get(|| async { axum::response::Redirect::temporary("http://127.0.0.1:9/") });
    let server = Server::start(Router::new().route("/ipfs/{cid}", elsewhere)).await;
    let cid = dag::cid_of(b"x");
    let error = HttpGateway::new(&server.url, None).unwrap().block(&cid).await.unwrap_err();
    assert!(matches!(error, SourceError::Failed(_)), "{error}");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dead = HttpGateway::new(&format!("http://127.0.0.1:{port}"), None).unwrap();
    let error = dead.block(&cid).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("refused"), "{error}");
}

#[test]
fn an_address_with_a_password_is_refused_without_repeating_it() {
    for url in ["http://user:hunter2@host/", "ftp://host/", "http://host/?token=hunter2", "host:80", "http://"] {
        let error = HttpGateway::new(url, None).unwrap_err();
        assert!(matches!(error, GatewayUrlError::BadUrl { .. }), "{url}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert!(matches!(HttpGateway::new("http://host", Some("a\nb")), Err(GatewayUrlError::BadToken)));
}

/// Counts requests on their way to a gateway.
fn counted(store: &Store, seen: &Arc<AtomicUsize>) -> Router {
    let seen = seen.clone();
    gateway::router(store.clone()).layer(axum::middleware::from_fn(move |request, next: axum::middleware::Next| {
        seen.fetch_add(1, Ordering::SeqCst);
        next.run(request)
    }))
}

#[tokio::test]
async fn many_small_files_go_and_come_in_few_requests() {
    let dir = tempfile::tempdir().unwrap();
    let here = Store::scratch(dir.path().join("store")).unwrap();
    let root = dir.path().join("small");
    std::fs::create_dir(&root).unwrap();
    for number in 0..3000 {
        std::fs::write(root.join(format!("{number}.txt")), format!("the file of number {number}")).unwrap();
    }
    let began = std::time::Instant::now();
    let cid = here.add_path(&root).unwrap();
    let added = began.elapsed();
    let ((_there_dir, there), seen) = (store(), Arc::default());
    let uploader = Uploader { owner: "alice".to_owned(), allowance: 1 << 30 };
    let server = Server::start(counted(&there, &seen).layer(axum::Extension(uploader))).await;
    let gateway = HttpGateway::new(&server.url, None).unwrap();

    let began = std::time::Instant::now();
    let pushed = push(&here, &cid, &gateway).await.unwrap();
    let sent = (began.elapsed(), seen.swap(0, Ordering::SeqCst));
    assert_eq!((pushed.sent_blocks, pushed.present_blocks), (3001, 0));
    there.stat(&cid, &Limits::default()).unwrap();
    let again = push(&here, &cid, &gateway).await.unwrap();
    assert_eq!((again.sent_blocks, again.present_blocks, seen.swap(0, Ordering::SeqCst)), (0, 3001, 13));

    let (_back_dir, back) = store();
    let began = std::time::Instant::now();
    let fetched = fetch(&back, &cid, vec![Arc::new(gateway)]).await.unwrap();
    let came = (began.elapsed(), seen.load(Ordering::SeqCst));
    assert_eq!(fetched.fetched_blocks, 3001);
    let began = std::time::Instant::now();
    back.export(&cid, dir.path().join("out")).unwrap();
    println!("3000 files: added {added:?}, sent {sent:?}, came {came:?}, laid out {:?}", began.elapsed());
    assert!(sent.1 < 40 && came.1 < 40, "{sent:?} {came:?}");
}

#[tokio::test]
async fn a_gateway_that_lies_in_a_message_of_many_is_caught_and_changes_nothing() {
    let (dir, here) = store();
    let root = dir.path().join("small");
    std::fs::create_dir(&root).unwrap();
    for number in 0..20 {
        std::fs::write(root.join(format!("{number}")), format!("{number}")).unwrap();
    }
    let cid = here.add_path(&root).unwrap();
    let honest = Server::start(gateway::router(here.clone())).await;
    // Answers every question for many with a block of other bytes under a name that was asked for.
    let liar = Router::new().route(
        "/ipfs/want",
        axum::routing::post(|body: String| async move {
            let asked: serde_json::Value = serde_json::from_str(&body).unwrap();
            let cid: selion_dataplane::Cid = asked["cids"][0].as_str().unwrap().parse().unwrap();
            let name = cid.to_bytes();
            let mut car = b"\x11\xa2eroots\x80gversion\x01".to_vec();
            car.push(name.len() as u8 + 4);
            car.extend(name);
            car.extend(b"evil");
            car
        }),
    );
    let liar = Server::start(liar).await;
    let gateway = |server: &Server| -> Arc<dyn Source> { Arc::new(HttpGateway::new(&server.url, None).unwrap()) };
    let (_there_dir, there) = store();
    let fetched = fetch(&there, &cid, vec![gateway(&liar), gateway(&honest)]).await.unwrap();
    assert_eq!(fetched.fetched_blocks, 21);
    there.stat(&cid, &Limits::default()).unwrap();
    assert!(fetched.banned.iter().all(|bad| bad.source.starts_with(&liar.url)), "{:?}", fetched.banned);
}

#[tokio::test]
async fn questions_and_messages_of_many_are_bounded() {
    let pool = Pool::start().await;
    let cid = dag::cid_of(b"x").to_string();
    for body in ["", "[]", "{\"cids\": 7}", &serde_json::json!({ "cids": vec![cid; 1025] }).to_string()] {
        for verb in ["have", "want"] {
            let (status, code) = code(pool.ask(Method::POST, verb).body(body.to_owned())).await;
            assert_eq!((status.as_u16(), code.as_str()), (422, "bad_cids"), "{verb}");
        }
    }
    let (status, what) = code(pool.ask(Method::POST, "blocks").body("no car")).await;
    assert_eq!((status.as_u16(), what.as_str()), (422, "not_car"));
    let (status, what) = code(pool.ask(Method::POST, "blocks").body(vec![0; 7 << 20])).await;
    assert_eq!((status.as_u16(), what.as_str()), (413, "block_too_large"));
}

#[tokio::test]
async fn an_uploader_over_his_allowance_is_told_which_and_what_to_do() {
    let (_dir, store) = store();
    let owner = Uploader { owner: "alice".to_owned(), allowance: 1000 };
    let server = Server::start(gateway::router(store.clone()).layer(axum::Extension(owner))).await;
    let gateway = HttpGateway::new(&server.url, None).unwrap();
    let put = async |bytes: &'static [u8]| gateway.put(&dag::cid_of(bytes), bytes.into()).await;
    put(&[1; 900]).await.unwrap();
    let error = put(&[2; 900]).await.unwrap_err();
    assert!(matches!(error, SourceError::Refused { status: 413, .. }), "{error}");
    for part in ["900 of the 1000 bytes", "remove a dataset"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let two = [(dag::cid_of(b"3"), "3".into()), (dag::cid_of(&[4; 900]), vec![4; 900].into())];
    assert!(gateway.put_many(&two).await.is_err());
    assert!(store.has(&dag::cid_of(b"3")) && !store.has(&dag::cid_of(&[4; 900])));
}
