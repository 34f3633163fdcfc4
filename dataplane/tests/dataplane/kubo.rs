//! The Kubo client, against a stand-in that speaks the few calls we use, and against the real one where there is one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use selion_dataplane::dag::{self, CHUNK};
use selion_dataplane::{Cid, Kubo, KuboError, Limits, Source, SourceError, fetch};

use crate::support::{Server, pattern, store};

#[derive(Clone, Default)]
struct Node {
    blocks: Arc<Mutex<HashMap<String, Bytes>>>,
    pins: Arc<Mutex<Vec<String>>>,
    misname: bool,
}

type Params = Query<HashMap<String, String>>;

/// The one part of a multipart body: between the first empty line and the last boundary.
fn part(body: &[u8]) -> Bytes {
    let find = |needle: &[u8]| body.windows(needle.len()).position(|window| window == needle);
    let start = find(b"\r\n\r\n").unwrap() + 4;
    let boundary = &body[..find(b"\r\n").unwrap()];
    let end = [b"\r\n".as_slice(), boundary].concat();
    let length = body[start..].windows(end.len()).rposition(|window| window == end).unwrap();
    Bytes::copy_from_slice(&body[start..start + length])
}

async fn block_put(State(node): State<Node>, Query(params): Params, request: Request) -> Response {
    assert_eq!(params["mhtype"], "sha2-256");
    let body = axum::body::to_bytes(request.into_body(), 4 << 20).await.unwrap();
    let bytes = if node.misname { Bytes::from_static(b"something else") } else { part(&body) };
    let leaf = dag::leaf(&bytes).cid;
    let cid = match params["format"].as_str() {
        "raw" => leaf,
        "dag-pb" => Cid::new_v1(dag::DAG_PB, *leaf.hash()),
        other => panic!("format {other}"),
    };
    let size = bytes.len();
    node.blocks.lock().unwrap().insert(cid.to_string(), bytes);
    axum::Json(serde_json::json!({"Key": cid.to_string(), "Size": size})).into_response()
}

async fn block_get(State(node): State<Node>, Query(params): Params) -> Response {
    match node.blocks.lock().unwrap().get(&params["arg"]) {
        Some(bytes) => bytes.clone().into_response(),
        None => {
            let error =
                serde_json::json!({"Message": "block was not found locally (offline)", "Code": 0, "Type": "error"});
            (StatusCode::INTERNAL_SERVER_ERROR, axum::Json(error)).into_response()
        }
    }
}

async fn pin_add(State(node): State<Node>, Query(params): Params) -> Response {
    assert_eq!(params["recursive"], "true");
    node.pins.lock().unwrap().push(params["arg"].clone());
    axum::Json(serde_json::json!({"Pins": [params["arg"]]})).into_response()
}

async fn stand_in(node: &Node) -> (Server, Kubo) {
    let version = || async { axum::Json(serde_json::json!({"Version": "0.43.1", "Commit": "", "Repo": "16"})) };
    // As Kubo 0.43 answers: without the `ProtocolVersion` of older ones.
    let id = || async {
        axum::Json(serde_json::json!({"ID": "12D3Koo", "PublicKey": "", "Addresses": [], "AgentVersion": ""}))
    };
    let router = Router::new()
        .route("/api/v0/version", post(version))
        .route("/api/v0/id", post(id))
        .route("/api/v0/block/put", post(block_put))
        .route("/api/v0/block/get", post(block_get))
        .route("/api/v0/pin/add", post(pin_add))
        .with_state(node.clone());
    let server = Server::start(router).await;
    let kubo = Kubo::new(&server.url).unwrap();
    (server, kubo)
}

#[tokio::test]
async fn a_dag_goes_to_kubo_and_comes_back_by_the_same_cid() {
    let node = Node::default();
    let (_server, kubo) = stand_in(&node).await;
    assert_eq!(kubo.version().await.unwrap(), "0.43.1");
    assert_eq!(kubo.id().await.unwrap(), "12D3Koo");
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let root = from.add_bytes(&pattern(2 * CHUNK + 1)).unwrap();
    let (sender, source) = (kubo.clone(), from.clone());
    let importing = tokio::spawn(async move { sender.import(&source, &root).await });
    assert_eq!(importing.await.unwrap().unwrap().sent_blocks, 4);
    assert_eq!(*node.pins.lock().unwrap(), [root.to_string()]);
    let fetched = fetch(&to, &root, vec![Arc::new(kubo)]).await.unwrap();
    assert_eq!((fetched.fetched_blocks, fetched.banned.len()), (4, 0));
    to.stat(&root, &Limits::default()).unwrap();
}

#[tokio::test]
async fn a_block_that_kubo_changed_is_caught() {
    let node = Node::default();
    let (_server, kubo) = stand_in(&node).await;
    let (_from_dir, from) = store();
    let (_dir, to) = store();
    let root = from.add_bytes(b"honest").unwrap();
    kubo.import(&from, &root).await.unwrap();
    node.blocks.lock().unwrap().insert(root.to_string(), Bytes::from_static(b"hon3st"));
    let error = fetch(&to, &root, vec![Arc::new(kubo)]).await.unwrap_err();
    assert!(error.to_string().contains("was caught"), "{error}");
}

#[tokio::test]
async fn a_kubo_that_names_a_block_otherwise_is_told() {
    let node = Node { misname: true, ..Node::default() };
    let (_server, kubo) = stand_in(&node).await;
    let error = kubo.put(&dag::cid_of(b"x"), Bytes::from_static(b"x")).await.unwrap_err();
    assert!(matches!(error, KuboError::OtherCid { .. }), "{error}");
}

#[tokio::test]
async fn a_block_that_kubo_lacks_is_absent_and_a_dead_kubo_is_told() {
    let node = Node::default();
    let (server, kubo) = stand_in(&node).await;
    let error = kubo.block(&dag::cid_of(b"x")).await.unwrap_err();
    assert!(matches!(error, SourceError::Absent), "{error}");
    drop(server);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = Kubo::new(&format!("http://127.0.0.1:{port}")).unwrap().version().await.unwrap_err();
    assert!(error.to_string().contains("ipfs daemon"), "{error}");
}

#[test]
fn only_this_machine_may_be_asked() {
    for url in
        ["http://10.0.0.1:5001", "http://ipfs.example:5001", "https://127.0.0.1:5001", "http://0.0.0.0:5001", "5001"]
    {
        let error = Kubo::new(url).err().unwrap();
        assert!(matches!(error, KuboError::BadUrl { .. }), "{url}");
        assert!(error.to_string().contains("http://127.0.0.1:PORT"), "{error}");
    }
    for url in ["http://127.0.0.1:5001", "http://localhost:5001/", "http://[::1]:5001", "http://127.0.0.1"] {
        assert!(Kubo::new(url).is_ok(), "{url}");
    }
}

#[tokio::test]
async fn a_kubo_with_a_password_is_reached_by_the_file_that_holds_it_and_by_nobody_else() {
    let locked = async |request: Request| {
        // selion:s3cret
        let known = request.headers().get("authorization").is_some_and(|said| said == "Basic c2VsaW9uOnMzY3JldA==");
        match (known, request.uri().path()) {
            (false, _) => StatusCode::FORBIDDEN.into_response(),
            (true, "/api/v0/id") => axum::Json(serde_json::json!({"ID": "peer"})).into_response(),
            (true, _) => axum::Json(
                serde_json::json!({"Version": "0.43.0", "Commit": "", "Repo": "", "System": "", "Golang": ""}),
            )
            .into_response(),
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(locked)).await });

    let stranger = Kubo::new(&format!("http://{address}")).unwrap();
    assert!(!stranger.answers_strangers().await.unwrap());
    assert!(stranger.version().await.is_err() && stranger.id().await.is_err());

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubo.url");
    std::fs::write(&file, format!("http://selion:s3cret@{address}\n")).unwrap();
    let ours = Kubo::new(&format!("@{}", file.display())).unwrap();
    assert_eq!((ours.version().await.unwrap().as_str(), ours.id().await.unwrap().as_str()), ("0.43.0", "peer"));
    assert!(!ours.answers_strangers().await.unwrap(), "asked as a stranger, whatever we know");

    let typed = Kubo::new(&format!("http://selion:s3cret@{address}")).err().unwrap().to_string();
    assert!(typed.contains("@FILE") && !typed.contains("s3cret"), "{typed}");
    assert!(Kubo::new("@/no/such/file").is_err());
}

#[tokio::test]
async fn a_kubo_without_a_password_is_known_as_one() {
    let (_server, kubo) = stand_in(&Node::default()).await;
    assert!(kubo.answers_strangers().await.unwrap());
}

#[tokio::test]
async fn a_real_kubo_gives_the_same_cids() {
    let Ok(url) = std::env::var("SELION_KUBO_API") else {
        println!("skipped: set SELION_KUBO_API (for example http://127.0.0.1:5001) to test against a real Kubo");
        return;
    };
    let kubo = Kubo::new(&url).unwrap();
    assert!(!kubo.version().await.unwrap().is_empty());
    assert!(!kubo.id().await.unwrap().is_empty());
    for size in [0, 11, CHUNK, CHUNK + 1, 3 * CHUNK + 17] {
        let bytes = pattern(size);
        assert_eq!(kubo.add(bytes.clone().into()).await.unwrap(), dag::cid_of(&bytes), "{size} bytes");
    }
    let (dir, from) = store();
    let data = dir.path().join("data");
    std::fs::create_dir_all(data.join("deep/empty")).unwrap();
    std::fs::write(data.join("deep/large"), pattern(2 * CHUNK + 5)).unwrap();
    std::fs::write(data.join("small"), b"hello world").unwrap();
    let root = from.add_path(&data).unwrap();
    kubo.import(&from, &root).await.unwrap();
    let (_dir, to) = store();
    let fetched = fetch(&to, &root, vec![Arc::new(kubo)]).await.unwrap();
    assert!(fetched.banned.is_empty());
    assert_eq!(to.stat(&root, &Limits::default()).unwrap().bytes, 2 * CHUNK as u64 + 16);
}
