//! Server-sent events, read to their end.

use serde_json::json;

use super::*;

/// (event, id, data) of every event.
fn parse(text: &str) -> Vec<(String, String, Value)> {
    let block = |block: &str| {
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim_start_matches(':').trim().to_owned()
        };
        (field("event"), field("id"), serde_json::from_str(&field("data")).unwrap_or_default())
    };
    text.split("\n\n").filter(|text| text.contains("event")).map(block).collect()
}

async fn read(pool: &Pool, path: &str, last: Option<&str>) -> Vec<(String, String, Value)> {
    let headers: Vec<_> = last.map(|last| ("last-event-id", last)).into_iter().collect();
    let reply = pool.send(ask(Method::GET, &pool.alice(), path, &headers, Body::empty())).await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), "text/event-stream");
    parse(&reply.text())
}

/// A lease of Alice that waited and was released: it is over.
async fn over(pool: &Pool) -> String {
    pool.lease(&pool.bob(), "first").await;
    let lease = id(&pool.lease(&pool.alice(), "second").await);
    let reply = pool.post(&pool.alice(), &format!("/v1/leases/{lease}/release"), &[], &Value::Null).await;
    assert_eq!(reply.json()["state"], json!("ended"));
    lease
}

#[tokio::test]
async fn log_lines_resume_behind_the_last_one_seen() {
    let (_dir, pool) = pool().await;
    let lease = over(&pool).await;
    pool.print(&lease, 0, 0, &["a", "b"]).await;
    pool.print(&lease, 1, 0, &["x"]).await;
    pool.print(&lease, 0, 2, &["c"]).await;
    let path = format!("/v1/leases/{lease}/logs");
    let text = |events: &[(String, String, Value)]| {
        events.iter().map(|(_, _, data)| data["text"].as_str().unwrap_or("end").to_owned()).collect::<String>()
    };
    let all = read(&pool, &path, None).await;
    assert_eq!(text(&all), "abxcend");
    assert_eq!((all[2].0.as_str(), all[2].1.as_str()), ("line", "1.1.0"));
    for (index, (_, id, _)) in all.iter().enumerate().take(4) {
        let rest = read(&pool, &path, Some(id)).await;
        assert_eq!(rest, all[index + 1..], "resumed behind {id}");
    }
    assert_eq!(text(&read(&pool, &format!("{path}?tail=2"), None).await), "xcend");
    assert_eq!(text(&read(&pool, &format!("{path}?tail=1&follow=false"), None).await), "cend");
    let bad = pool.send(ask(Method::GET, &pool.alice(), &path, &[("last-event-id", "7")], Body::empty())).await;
    assert_eq!(bad.fault(), (400, "bad_header".to_owned()));
}

#[tokio::test]
async fn kept_lines_of_a_live_lease_are_read_out_without_waiting_for_its_end() {
    let (_dir, pool) = pool().await;
    let lease = id(&pool.lease(&pool.alice(), "k").await);
    pool.print(&lease, 0, 0, &["a", "b"]).await;
    let events = read(&pool, &format!("/v1/leases/{lease}/logs?follow=false"), None).await;
    assert_eq!(events.len(), 3);
}

#[tokio::test]
async fn lease_events_run_to_the_end_and_resume_behind_an_entry() {
    let (_dir, pool) = pool().await;
    let lease = over(&pool).await;
    let path = format!("/v1/leases/{lease}/events");
    let all = read(&pool, &path, None).await;
    let states: Vec<_> = all.iter().map(|(_, _, data)| data["state"].clone()).collect();
    assert_eq!(states, [json!("waiting"), json!("ended"), Value::Null]);
    assert_eq!(all[1].2["reason"], json!("released"));
    assert_eq!(read(&pool, &path, Some(&all[0].1)).await, all[1..]);
    assert_eq!(read(&pool, &path, Some(&all[1].1)).await, all[2..]);
}

#[tokio::test]
async fn changes_so_far_of_a_live_lease_are_read_out_without_waiting_for_its_end() {
    let (_dir, pool) = pool().await;
    pool.lease(&pool.bob(), "first").await;
    let lease = id(&pool.lease(&pool.alice(), "second").await);
    let events = read(&pool, &format!("/v1/leases/{lease}/events?follow=false"), None).await;
    let states: Vec<_> = events.iter().map(|(_, _, data)| data["state"].clone()).collect();
    assert_eq!(states, [json!("waiting"), Value::Null]);
}

#[tokio::test]
async fn a_reader_of_events_is_told_of_a_change_while_it_reads() {
    let (_dir, pool) = pool().await;
    pool.lease(&pool.bob(), "first").await;
    let lease = id(&pool.lease(&pool.alice(), "second").await);
    let path = format!("/v1/leases/{lease}/events");
    let release = format!("/v1/leases/{lease}/release");
    let alice = pool.alice();
    let (events, _) = tokio::join!(read(&pool, &path, None), pool.post(&alice, &release, &[], &Value::Null));
    assert_eq!(events.last().unwrap().0, "end");
    assert_eq!(events[events.len() - 2].2["state"], json!("ended"));
}
