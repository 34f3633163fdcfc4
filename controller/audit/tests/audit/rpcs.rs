//! Several nodes of the chain, of which one lies or lags.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use selion_audit::{Options, Report, audit};
use serde_json::{Value, json};

use super::book::named;
use super::chain::World;

type Lie = dyn Fn(&Value, &mut Value) + Send + Sync;

/// A node that asks another, and changes its answers to questions.
#[derive(Clone)]
struct Node {
    behind: String,
    lie: Arc<Lie>,
}

async fn answer(State(node): State<Node>, Json(question): Json<Value>) -> Json<Value> {
    let asked = reqwest::Client::new().post(&node.behind).json(&question).send().await;
    let mut answer: Value = asked.unwrap().json().await.unwrap();
    (node.lie)(&question, &mut answer["result"]);
    Json(answer)
}

/// The URL of such a node, with a secret in it as providers have it.
pub async fn node(behind: &str, lie: impl Fn(&Value, &mut Value) + Send + Sync + 'static) -> String {
    let node = Node { behind: behind.into(), lie: Arc::new(lie) };
    let router = Router::new().route("/secret-key", post(answer)).with_state(node);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/secret-key", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// An audit with the chain itself, an honest second node, and one more.
async fn with_third(world: &World, third: &str) -> Report {
    let honest = node(&world.url, |_, _| {}).await;
    let rpcs = vec![world.url.clone(), honest, third.to_owned()];
    audit(&Options { rpcs, ..world.options(world.file()) }).await.unwrap()
}

/// The third node is named, alone, with what it did, and without the secret.
async fn assert_named(lie: impl Fn(&Value, &mut Value) + Send + Sync + 'static, why: &str) {
    let mut world = World::start().await;
    world.anchor().await;
    let url = node(&world.url, lie).await;
    let report = with_third(&world, &url).await;
    let check = named(&report, "rpcs_agree");
    assert!(!check.ok && !report.ok, "{}", check.detail);
    let host = url.strip_suffix("/secret-key").unwrap();
    assert!(check.detail.starts_with(host) && check.detail.contains(why), "{}", check.detail);
    assert!(check.detail.contains("unlike 2 of 3 nodes"), "{}", check.detail);
    assert!(!serde_json::to_string(&report).unwrap().contains("secret-key"));
    let (rpcs, only) = (vec![url, world.url.clone(), node(&world.url, |_, _| {}).await], Some("rpcs_agree"));
    let report = audit(&Options { rpcs, ..world.options(world.file()) }).await.unwrap();
    let mut wrong = report.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str());
    assert_eq!((wrong.next(), wrong.next()), (only, None), "it stands first, and the others are believed: {report:#?}");
}

#[tokio::test]
async fn nodes_of_one_chain_agree() {
    let world = World::start().await;
    let honest = node(&world.url, |_, _| {}).await;
    let report = with_third(&world, &honest).await;
    assert!(report.ok, "{report:#?}");
    assert!(named(&report, "rpcs_agree").detail.starts_with("3 nodes tell the same"));
    assert_eq!(report.rpcs.len(), 3);
    let alone = audit(&world.options(world.file())).await.unwrap();
    assert!(named(&alone, "rpcs_agree").detail.starts_with("only http://127.0.0.1"));
    let rpcs = vec![world.url.clone(), format!("{}/", world.url)];
    let twice = audit(&Options { rpcs, ..world.options(world.file()) }).await.unwrap();
    assert!(named(&twice, "rpcs_agree").detail.starts_with("only "), "a node that is named twice is one");
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_named_and_the_audit_goes_on_by_the_other() {
    let mut world = World::start().await;
    world.anchor().await;
    let odd = |method: &'static str, answer: Value| {
        move |question: &Value, result: &mut Value| {
            if question["method"] == method {
                *result = answer.clone();
            }
        }
    };
    for (method, answer) in
        [("eth_chainId", json!(null)), ("eth_getLogs", json!("<html>")), ("eth_getBlockByHash", json!(null))]
    {
        let bad = node(&world.url, odd(method, answer)).await;
        for rpcs in [vec![world.url.clone(), bad.clone()], vec![bad.clone(), world.url.clone()]] {
            let report = audit(&Options { rpcs, ..world.options(world.file()) }).await.unwrap();
            let wrong: Vec<&str> =
                report.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
            assert_eq!(wrong, ["rpcs_agree"], "{method}");
            let detail = &named(&report, "rpcs_agree").detail;
            let host = bad.strip_suffix("/secret-key").unwrap();
            assert!(detail.contains(host) && detail.contains("the other 1 tell"), "{method}: {detail}");
            assert!(!detail.contains("secret-key"), "{detail}");
        }
    }
}

#[tokio::test]
async fn a_node_of_another_chain_is_named() {
    let lie = |question: &Value, result: &mut Value| {
        if question["method"] == "eth_chainId" {
            *result = json!("0x1");
        }
    };
    assert_named(lie, "serves chain 1, not").await;
}

#[tokio::test]
async fn a_node_that_drops_an_event_is_named() {
    let lie = |question: &Value, result: &mut Value| {
        if question["method"] == "eth_getLogs" {
            result.as_array_mut().unwrap().pop();
        }
    };
    assert_named(lie, "tells other events of the pool in block").await;
}

#[tokio::test]
async fn a_node_that_changes_what_only_the_contracts_keep_is_named() {
    // The place of a spec is in the offer's event and in storage, and never enters the log.
    let lie = |question: &Value, result: &mut Value| {
        if question["method"] == "eth_getLogs" {
            let logs = result.as_array_mut().unwrap().iter_mut();
            let text = hex::encode("bafy-spec");
            let data = logs.map(|log| &mut log["data"]).find(|data| data.as_str().unwrap().contains(&text));
            let data = data.expect("the offer names a CID");
            *data = json!(data.as_str().unwrap().replace(&text, &hex::encode("bafy-lies")));
        }
    };
    assert_named(lie, "tells other data in the logs of the pool in block").await;
}

#[tokio::test]
async fn a_node_on_a_fork_is_named() {
    let lie = |question: &Value, result: &mut Value| {
        let fork = json!(format!("0x{}", "fe".repeat(32)));
        match question["method"].as_str().unwrap() {
            "eth_getBlockByNumber" if question["params"][0] != "latest" => result["hash"] = fork,
            "eth_getLogs" => result.as_array_mut().unwrap().iter_mut().for_each(|log| log["blockHash"] = fork.clone()),
            _ => {}
        }
    };
    assert_named(lie, "hashes to").await;
}

#[tokio::test]
async fn a_node_with_other_code_is_named() {
    let lie = |question: &Value, result: &mut Value| {
        if question["method"] == "eth_getCode" {
            *result = json!("0x6001");
        }
    };
    assert_named(lie, "has other code at the pool's controller").await;
}

#[tokio::test]
async fn two_nodes_that_differ_are_both_named() {
    let world = World::start().await;
    let lie = |question: &Value, result: &mut Value| {
        if question["method"] == "eth_getLogs" {
            result.as_array_mut().unwrap().pop();
        }
    };
    let rpcs = vec![world.url.clone(), node(&world.url, lie).await];
    let report = audit(&Options { rpcs, ..world.options(world.file()) }).await.unwrap();
    let check = named(&report, "rpcs_agree");
    assert!(!check.ok && check.detail.contains("no majority"), "{}", check.detail);
    assert!(check.detail.contains(&world.url), "{}", check.detail);
}

#[tokio::test]
async fn a_node_that_stays_behind_is_said_and_compared_as_far_as_it_is() {
    let world = World::start().await;
    let newest = world.pool.rpc.header(selion_contracts::BlockTag::Latest).await.unwrap();
    let question = json!({
        "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByHash", "params": [newest.parent.to_string(), false],
    });
    let asked = reqwest::Client::new().post(&world.url).json(&question).send().await;
    let parent: Value = asked.unwrap().json().await.unwrap();
    let lie = move |question: &Value, result: &mut Value| {
        // The pool's rule of finality here is the newest block itself.
        if question["method"] == "eth_getBlockByNumber" && result["hash"] == json!(newest.hash.to_string()) {
            *result = parent["result"].clone();
        }
    };
    let report = with_third(&world, &node(&world.url, lie).await).await;
    let check = named(&report, "rpcs_agree");
    assert!(check.ok && check.detail.contains(&format!("is at block {}", newest.number - 1)), "{}", check.detail);
}
