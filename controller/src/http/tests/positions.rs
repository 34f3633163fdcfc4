//! Every answer says what it depends on.

use selion_api::rest::{BLOCK_HEADER, ENTRY_HEADER, HEAD_HEADER, STALE_HEADER};

use super::*;
use crate::http::rules::read_paths;
use crate::mirror::{MirrorError, SourceError};

/// Refused here: a switch to another protocol, figures for a renter, a transaction that nobody sent, an entry that fits its
/// bundle, and a file where only blocks are given. What they answer names the state all the same.
const REFUSED: [&str; 8] = [
    "/v1/link",
    "/metrics",
    "/v1/relay/{id}",
    "/log/long/{seq}",
    "/ipfs/{cid}/{*path}",
    "/v1/leases/{id}/outputs/{rank}",
    "/v1/leases/{id}/outputs/{rank}/{path}",
    "/v1/leases/{id}/outputs/{rank}/{*path}",
];
/// Files that never change, and so depend on no state.
const FOR_EVER: [&str; 4] =
    ["/log/tile/{level}/{index}", "/log/tile/entries/{index}", "/log/effects/{index}", "/log/{*path}"];

/// A path with something that is there for its parameters.
fn filled(path: &str, lease: &str, cid: &str) -> String {
    let of = if path.starts_with("/v1/nodes/") { NODE.to_string() } else { lease.to_owned() };
    let filled = path.replace("{id}", &of).replace("{cid}", cid).replace("{rank}", "0").replace("{path}", "file");
    let filled = filled.replace("{level}", "0").replace("{index}", "000.p/1").replace("{seq}", "000");
    let filled = filled.replace("/log/{*path}", "/log/effects/000.p/1").replace("{*path}", "file");
    assert!(!filled.contains('{'), "{path}: say here what stands for its parameter");
    match path {
        "/v1/leases/{id}/wait" => filled + "?state=held",
        "/ipfs/{cid}" => filled + "?format=raw",
        "/v1/images" => format!("{filled}?name={cid}"),
        _ => filled,
    }
}

#[tokio::test]
async fn every_answer_that_depends_on_state_names_entry_head_and_block_and_a_stream_does_at_its_start() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let lease = id(&pool.lease(&alice, "k").await);
    let upload = [("content-type", "application/octet-stream")];
    let added = pool.send(ask(Method::POST, &alice, "/v1/datasets", &upload, Body::from("data"))).await;
    let cid = added.json()["cid"].as_str().unwrap().to_owned();
    let mut streams = 0;
    for path in read_paths() {
        let filled = filled(path, &lease, &cid);
        // A stream stays open: its headers are there before its first event.
        let request = ask(Method::GET, &alice, &filled, &[], Body::empty());
        let response = pool.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().is_success(), !REFUSED.contains(&path), "{filled}: {}", response.status());
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let head = pool.app.log.position().head.unwrap().head;
        let named = [ENTRY_HEADER, HEAD_HEADER, BLOCK_HEADER].map(header);
        let stands = [
            pool.app.log.position().entry.to_string(),
            format!("{}:{}", head.size, head.root),
            format!("1:{}", Hash32([1; 32])),
        ];
        let stands = stands.map(|text| Some(text).filter(|_| !FOR_EVER.contains(&path)));
        assert_eq!(named, stands, "{path}");
        streams += u32::from(header("content-type").as_deref() == Some("text/event-stream"));
    }
    assert!(streams >= 2, "{streams} streams");
}

#[tokio::test]
async fn answers_are_marked_as_stale_while_the_chain_cannot_be_followed() {
    let (_dir, pool) = pool().await;
    let fresh = pool.get("", "/v1/pool").await;
    assert_eq!(fresh.header(STALE_HEADER), "");
    pool.app.mirror.fail(MirrorError::Source(SourceError::Node("no answer from http://secret.example".into())));
    let stale = pool.get("", "/v1/pool").await;
    assert_eq!((stale.status, stale.header(STALE_HEADER)), (StatusCode::OK, "0"));
}
