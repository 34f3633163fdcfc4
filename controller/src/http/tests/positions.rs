//! Every answer says what it depends on.

use selion_api::rest::{BLOCK_HEADER, ENTRY_HEADER, HEAD_HEADER, STALE_HEADER};

use super::*;
use crate::http::openapi;
use crate::mirror::{MirrorError, SourceError};

/// Answers that are none of State: a switch to another protocol, and how far a transaction is.
const APART: [&str; 2] = ["/v1/link", "/v1/relay/{id}"];

#[tokio::test]
async fn every_answer_under_v1_names_entry_head_and_block_and_a_stream_does_at_its_start() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let lease = id(&pool.lease(&alice, "k").await);
    let upload = [("content-type", "application/octet-stream")];
    let added = pool.send(ask(Method::POST, &alice, "/v1/datasets", &upload, Body::from("data"))).await;
    let cid = added.json()["cid"].as_str().unwrap().to_owned();
    let described = serde_json::to_value(openapi()).unwrap();
    let paths = described["paths"].as_object().unwrap().iter();
    let gets = paths.filter(|(path, item)| path.starts_with("/v1/") && item["get"].is_object());
    let (mut seen, mut streams) = (0, 0);
    for (path, _) in gets.filter(|(path, _)| !APART.contains(&path.as_str())) {
        let place = if path.starts_with("/v1/nodes/") { NODE.to_string() } else { lease.clone() };
        let mut filled = path.replace("{id}", &place).replace("{cid}", &cid);
        assert!(!filled.contains('{'), "{path}: say here what stands for its parameter");
        if path.ends_with("/wait") {
            filled.push_str("?state=held");
        }
        // A stream stays open: its headers are there before its first event.
        let request = ask(Method::GET, &alice, &filled, &[], Body::empty());
        let response = pool.router.clone().oneshot(request).await.unwrap();
        assert!(response.status().is_success(), "{filled}: {}", response.status());
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let head = pool.app.log.position().head.unwrap().head;
        assert_eq!(header(ENTRY_HEADER), Some(pool.app.log.position().entry.to_string()), "{path}");
        assert_eq!(header(HEAD_HEADER), Some(format!("{}:{}", head.size, head.root)), "{path}");
        assert_eq!(header(BLOCK_HEADER), Some(format!("1:{}", Hash32([1; 32]))), "{path}");
        seen += 1;
        streams += u32::from(header("content-type").as_deref() == Some("text/event-stream"));
    }
    assert!(seen >= 17 && streams >= 2, "{seen} answers, {streams} streams");
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
