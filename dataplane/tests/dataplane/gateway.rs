//! The gateway over a real socket.

use axum::Router;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::routing::get;
use futures::stream;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use selion_dataplane::dag::{self, MAX_BLOCK};
use selion_dataplane::{GatewayUrlError, HttpGateway, RAW_BLOCK, Source, SourceError, Store, gateway};
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
