//! One bad node of the chain among several, wherever it stands in the list: it is named, and the audit goes on by the others.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures::{StreamExt, stream};
use selion_api::{Amount, Hash32};
use selion_audit::{Options, Report, audit};
use selion_contracts::BlockTag;
use serde_json::{Value, json};

use super::book::named;
use super::chain::{World, person};
use super::rpcs::node;

/// How a node does not answer.
#[derive(Clone, Copy)]
enum Way {
    Hangs,
    Floods,
}

/// A node that asks another, and answers some questions in that way.
async fn mute(behind: &str, way: Way, which: fn(&Value) -> bool) -> String {
    let behind = behind.to_owned();
    let answer = async move |Json(question): Json<Value>| -> Response {
        match way {
            _ if !which(&question) => {
                let asked = reqwest::Client::new().post(&behind).json(&question).send().await;
                asked.unwrap().bytes().await.unwrap().into_response()
            }
            Way::Hangs => std::future::pending().await,
            Way::Floods => {
                let piece = Bytes::from(vec![b' '; 1 << 20]);
                Body::from_stream(stream::repeat(piece).map(Ok::<_, Infallible>)).into_response()
            }
        }
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/secret-key", listener.local_addr().unwrap());
    let router = Router::new().route("/secret-key", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn anchored() -> World {
    let mut world = World::start().await;
    world.anchor().await;
    world
}

async fn asked(world: &World, rpcs: Vec<String>) -> Report {
    let patience = Duration::from_millis(100);
    audit(&Options { rpcs, patience, ..world.options(world.file()) }).await.unwrap()
}

/// Names of the checks that fail.
fn wrong(report: &Report) -> Vec<&str> {
    report.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect()
}

/// The one bad node is named with what it did, and nothing else is found.
fn assert_survived(report: &Report, bad: &str, why: &str) {
    let detail = &named(report, "rpcs_agree").detail;
    assert_eq!(wrong(report), ["rpcs_agree"], "{detail}");
    let host = bad.strip_suffix("/secret-key").unwrap_or(bad);
    assert!(detail.contains(host) && detail.contains(why), "{why}: {detail}");
    assert!(!detail.contains("secret-key"), "{detail}");
}

/// Audits with the bad node first, second and last.
async fn survives(world: &World, bad: &str, why: &str) {
    let honest = node(&world.url, |_, _| {}).await;
    for at in 0..3 {
        let mut rpcs = vec![world.url.clone(), honest.clone()];
        rpcs.insert(at, bad.to_owned());
        assert_survived(&asked(world, rpcs).await, bad, why);
    }
}

/// A node for which the chain ends a block earlier.
async fn stale(world: &World) -> String {
    let newest = world.pool.rpc.header(BlockTag::Latest).await.unwrap();
    let parent = block(&world.url, newest.parent).await;
    node(&world.url, move |question, result| {
        // The pool's rule of finality here is the newest block itself.
        if question["method"] == "eth_getBlockByNumber" && result["hash"] == json!(newest.hash.to_string()) {
            *result = parent.clone();
        }
    })
    .await
}

async fn block(url: &str, hash: Hash32) -> Value {
    let params = json!([hash.to_string(), false]);
    let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByHash", "params": params });
    let asked = reqwest::Client::new().post(url).json(&question).send().await.unwrap();
    asked.json::<Value>().await.unwrap()["result"].take()
}

/// A node that changes what it tells of logs, and nothing of blocks.
async fn of_logs(world: &World, lie: impl Fn(&mut Vec<Value>) + Send + Sync + 'static) -> String {
    node(&world.url, move |question, result| {
        if question["method"] == "eth_getLogs" {
            lie(result.as_array_mut().unwrap());
        }
    })
    .await
}

#[tokio::test]
async fn a_node_that_omits_changes_or_makes_up_events_under_true_headers_is_named_and_survived() {
    let world = anchored().await;
    let omits = of_logs(&world, |logs| {
        let number = logs.first().map(|log| log["blockNumber"].clone());
        logs.retain(|log| Some(&log["blockNumber"]) != number.as_ref());
    });
    survives(&world, &omits.await, "tells other events of the pool in block").await;
    let changes = of_logs(&world, |logs| {
        // Five tokens were paid in.
        let data = logs.iter_mut().map(|log| &mut log["data"]);
        let paid = data.map(|data| (data.as_str().unwrap().replace("4c4b40", "4c4b41"), data));
        let (more, data) = paid.into_iter().find(|(more, data)| data.as_str() != Some(more)).expect("a deposit");
        *data = json!(more);
    });
    survives(&world, &changes.await, "as many, with other contents").await;
    let makes_up = of_logs(&world, |logs| {
        let mut twin = logs.last().expect("an anchor").clone();
        let index = u64::from_str_radix(twin["logIndex"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        twin["logIndex"] = json!(format!("{:#x}", index + 1));
        logs.push(twin);
    });
    survives(&world, &makes_up.await, "tells other events of the pool in block").await;
}

#[tokio::test]
async fn a_node_of_another_chain_with_the_same_id_and_contracts_is_named_and_survived() {
    let (world, other) = (anchored().await, World::start().await);
    assert_eq!(world.pool.at, other.pool.at);
    other.send(&person(&other.pool.rpc, 20).await, other.pool.deposit(Amount(1))).await;
    survives(&world, &other.url, "it is on a fork").await;
}

#[tokio::test]
async fn a_stale_node_hides_nothing_that_came_since_wherever_it_stands() {
    let mut world = anchored().await;
    let (stale, honest) = (stale(&world).await, node(&world.url, |_, _| {}).await);
    let newest = world.pool.rpc.header(BlockTag::Latest).await.unwrap().number;
    for whole in [true, false] {
        if !whole {
            world.book.drafts.pop();
        }
        for at in 0..3 {
            let mut rpcs = vec![world.url.clone(), honest.clone()];
            rpcs.insert(at, stale.clone());
            let report = asked(&world, rpcs).await;
            let (agreed, in_log) = (named(&report, "rpcs_agree"), named(&report, "chain_blocks_in_log"));
            assert!(
                agreed.ok && agreed.detail.contains(&format!("is at block {} of {newest}", newest - 1)),
                "{agreed:?}"
            );
            assert_eq!((report.block, in_log.ok), (Some(newest), whole), "{in_log:?}");
            assert!(whole || in_log.detail.contains("is final and not in the log"), "{in_log:?}");
        }
    }
}

/// A node that asks another and remembers; once it is frozen it answers what it remembers, as if the chain stood still.
async fn freezing(behind: &str, frozen: &Arc<AtomicBool>) -> String {
    let (behind, frozen, memory) = (behind.to_owned(), frozen.clone(), Arc::new(Mutex::new(BTreeMap::new())));
    let answer = async move |Json(question): Json<Value>| -> Json<Value> {
        let key = format!("{} {}", question["method"], question["params"]);
        let known: Option<Value> = memory.lock().unwrap().get(&key).cloned();
        let mut answer = match known.filter(|_| frozen.load(Ordering::Acquire)) {
            Some(known) => known,
            None => {
                let asked = reqwest::Client::new().post(&behind).json(&question).send().await.unwrap();
                let answer: Value = asked.json().await.unwrap();
                memory.lock().unwrap().insert(key, answer.clone());
                answer
            }
        };
        answer["id"] = question["id"].clone();
        Json(answer)
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/secret-key", listener.local_addr().unwrap());
    let router = Router::new().route("/secret-key", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test]
async fn one_node_that_is_ahead_of_all_others_vouches_for_no_block_alone() {
    let (mut world, frozen) = (World::start().await, Arc::new(AtomicBool::new(false)));
    let (one, other) = (freezing(&world.url, &frozen).await, freezing(&world.url, &frozen).await);
    // Each is asked for everything once, also for what the contracts answer.
    for alone in [&one, &other] {
        assert!(asked(&world, vec![alone.clone()]).await.ok);
    }
    frozen.store(true, Ordering::Release);
    world.anchor().await;
    for at in 0..3 {
        let mut rpcs = vec![one.clone(), other.clone()];
        rpcs.insert(at, world.url.clone());
        let report = asked(&world, rpcs).await;
        let details: Vec<&str> = report.checks.iter().map(|check| check.detail.as_str()).collect();
        assert_eq!(wrong(&report), ["chain_blocks_in_log"], "{details:#?}");
        let detail = &named(&report, "chain_blocks_in_log").detail;
        assert!(detail.contains("ask a node that follows the chain"), "{detail}");
    }
}

#[tokio::test]
async fn one_node_that_goes_ahead_once_all_were_compared_vouches_for_no_block_alone() {
    let (mut world, frozen) = (World::start().await, Arc::new(AtomicBool::new(false)));
    let (one, other) = (freezing(&world.url, &frozen).await, freezing(&world.url, &frozen).await);
    let held_back = Arc::new(AtomicBool::new(false));
    let (behind, lets_go) = (freezing(&world.url, &held_back).await, held_back.clone());
    // What contracts answer is asked once the nodes were compared.
    let bad = node(&behind, move |question, _| {
        if question["method"] == "eth_call" && question["params"][1]["blockHash"].is_string() {
            lets_go.store(false, Ordering::Release);
        }
    });
    let bad = bad.await;
    for alone in [&one, &other, &bad] {
        assert!(asked(&world, vec![alone.clone()]).await.ok);
    }
    frozen.store(true, Ordering::Release);
    held_back.store(true, Ordering::Release);
    // A block that two of three nodes never heard of, and the log has it.
    world.anchor().await;
    let report = asked(&world, vec![bad, one, other]).await;
    assert!(!held_back.load(Ordering::Acquire), "it went ahead");
    let details: Vec<&str> = report.checks.iter().map(|check| check.detail.as_str()).collect();
    assert_eq!(wrong(&report), ["chain_blocks_in_log"], "{details:#?}");
}

/// Not the log's fault: it was read before.
#[tokio::test]
async fn what_comes_on_chain_while_the_log_is_read_need_not_be_in_it() {
    let (mut world, held_back) = (World::start().await, Arc::new(AtomicBool::new(false)));
    let (behind, lets_go) = (freezing(&world.url, &held_back).await, held_back.clone());
    let node = node(&behind, move |question, _| {
        if question["method"] == "eth_call" && question["params"][1]["blockHash"].is_string() {
            lets_go.store(false, Ordering::Release);
        }
    });
    let node = node.await;
    assert!(asked(&world, vec![node.clone()]).await.ok);
    held_back.store(true, Ordering::Release);
    // The log has one block more than the node told first, and the chain one more than the log.
    world.anchor().await;
    world.send(&person(&world.pool.rpc, 20).await, world.pool.deposit(Amount(1))).await;
    let report = asked(&world, vec![node]).await;
    assert!(!held_back.load(Ordering::Acquire), "it went ahead");
    let details: Vec<&str> = report.checks.iter().map(|check| check.detail.as_str()).collect();
    assert!(report.ok, "{details:#?}");
}

#[tokio::test]
async fn a_lie_about_the_newest_block_is_not_covered_by_a_node_that_is_behind() {
    let world = anchored().await;
    let (stale, honest) = (stale(&world).await, node(&world.url, |_, _| {}).await);
    let liar = of_logs(&world, |logs| drop(logs.pop())).await;
    let why = "tells other events of the pool in block";
    for first in [[&stale, &liar], [&liar, &stale]] {
        let rpcs = first.into_iter().chain([&world.url, &honest]).cloned().collect();
        assert_survived(&asked(&world, rpcs).await, &liar, why);
    }
}

#[tokio::test]
async fn a_node_whose_contracts_answer_otherwise_than_its_events_tell_is_named_if_it_is_asked() {
    let world = anchored().await;
    let token = world.pool.at.token.to_string();
    let liar = node(&world.url, move |question, result| {
        let asked = &question["params"][0]["to"];
        let of_token = asked.as_str().is_some_and(|to| to.eq_ignore_ascii_case(&token));
        if question["method"] == "eth_call" && of_token {
            *result = json!(format!("0x{}", "00".repeat(32)));
        }
    });
    let liar = liar.await;
    let first = asked(&world, vec![liar.clone(), world.url.clone()]).await;
    assert_survived(&first, &liar, "answers otherwise than its events tell");
    let second = asked(&world, vec![world.url.clone(), liar]).await;
    assert!(second.ok, "nobody asks it: {second:#?}");
}

#[tokio::test]
async fn a_node_that_never_answers_is_given_up_when_the_others_have_long_told() {
    let world = anchored().await;
    let honest = node(&world.url, |_, _| {}).await;
    let whiches: [fn(&Value) -> bool; 4] = [
        |question| question["method"] == "eth_chainId",
        |question| question["method"] == "eth_getLogs",
        |question| question["method"] == "eth_getCode",
        |question| question["method"] == "eth_call" && question["params"][1]["blockHash"].is_string(),
    ];
    let stories = whiches.map(async |which| {
        let bad = mute(&world.url, Way::Hangs, which).await;
        let rpcs = vec![bad.clone(), world.url.clone(), honest.clone()];
        assert_survived(&asked(&world, rpcs).await, &bad, "it takes many times as long as the others");
    });
    futures::future::join_all(stories).await;
}

#[tokio::test]
async fn a_node_whose_answer_never_ends_is_named_and_survived() {
    let world = anchored().await;
    let whiches: [fn(&Value) -> bool; 2] =
        [|question| question["method"] == "eth_chainId", |question| question["method"] == "eth_getLogs"];
    for which in whiches {
        survives(&world, &mute(&world.url, Way::Floods, which).await, "with more than").await;
    }
}

#[tokio::test]
async fn a_node_that_names_a_block_beyond_all_numbers_is_named_and_survived() {
    let world = anchored().await;
    let honest = node(&world.url, |_, _| {}).await;
    for number in ["0xffffffffffffffff", "0xfffffffffffffff"] {
        let liar = node(&world.url, move |question, result| {
            let beyond = question["params"][0]["toBlock"].as_str().is_some_and(|to| to.len() > 10);
            match question["method"].as_str() {
                Some("eth_getBlockByNumber") if question["params"][0] == "latest" => result["number"] = json!(number),
                Some("eth_getLogs") if beyond => *result = json!([]),
                _ => {}
            }
        });
        let liar = liar.await;
        let rpcs = vec![liar.clone(), world.url.clone(), honest.clone()];
        assert_survived(&asked(&world, rpcs).await, &liar, "");
    }
}
