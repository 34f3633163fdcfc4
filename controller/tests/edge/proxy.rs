//! A node that lies: between the mirror and a chain, in this process. What it forwards is true; what it does instead is
//! what nodes and the address of many nodes have been seen to do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Dice;

/// How often what goes wrong, in percent of the questions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lies {
    /// No answer at all.
    pub silence: u64,
    /// HTTP errors, JSON-RPC errors, no JSON, another question's answer.
    pub nonsense: u64,
    /// What it answered to the same question before: an old head, another fork.
    pub stale: u64,
    /// No logs where there are some, of one block. What is left out of a range far below the head is not seen by the
    /// mirror: it reads no header there that could tell.
    pub dropped: u64,
    /// A log twice.
    pub doubled: u64,
    /// From now on, for some questions, another chain answers.
    pub other: u64,
}

struct Inner {
    lies: Lies,
    dice: Dice,
    told: HashMap<String, Vec<Value>>,
    /// Questions that another chain answers from now on.
    elsewhere: u64,
    counts: HashMap<&'static str, u64>,
}

/// The lying node; it stops when dropped.
pub struct Proxy {
    pub url: String,
    shared: Arc<Middle>,
    stop: CancellationToken,
}

struct Middle {
    inner: Mutex<Inner>,
    http: reqwest::Client,
    chain: String,
    other: String,
    silent: Notify,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Proxy {
    /// In front of the node at `chain`; at times the node at `other`, of another chain, answers.
    pub async fn open(chain: &str, other: &str, seed: u64) -> Self {
        let inner = Inner {
            lies: Lies::default(),
            dice: Dice(seed),
            told: HashMap::new(),
            elsewhere: 0,
            counts: HashMap::new(),
        };
        let shared = Arc::new(Middle {
            inner: Mutex::new(inner),
            http: reqwest::Client::new(),
            chain: chain.to_owned(),
            other: other.to_owned(),
            silent: Notify::new(),
        });
        let router = Router::new().route("/", post(answer)).with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let ended = stop.clone().cancelled_owned();
        tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(ended).await });
        Self { url, shared, stop }
    }

    /// From now on it lies like this.
    pub fn lie(&self, lies: Lies) {
        let mut inner = self.shared.inner.lock().unwrap();
        inner.lies = lies;
        inner.elsewhere = 0;
    }

    /// Resolves once a question was left without an answer.
    pub async fn silent(&self) {
        self.shared.silent.notified().await;
    }

    /// How often it lied, by kind.
    pub fn counts(&self) -> HashMap<&'static str, u64> {
        self.shared.inner.lock().unwrap().counts.clone()
    }
}

/// What is done with a question.
#[derive(Clone, Copy)]
enum Turn {
    Forward,
    Elsewhere,
    Silence,
    Nonsense(u64),
    Stale(u64),
    Dropped,
    Doubled,
}

impl Inner {
    fn turn(&mut self, method: &str, by_hash: bool) -> Turn {
        let lies = self.lies;
        if self.elsewhere > 0 {
            self.elsewhere -= 1;
            return self.count("other chain", Turn::Elsewhere);
        }
        if self.dice.chance(lies.other) {
            self.elsewhere = self.dice.below(40);
            return self.count("other chain", Turn::Elsewhere);
        }
        let logs = method == "eth_getLogs";
        if self.dice.chance(lies.silence) {
            self.count("silence", Turn::Silence)
        } else if self.dice.chance(lies.nonsense) {
            let kind = self.dice.below(5);
            self.count("nonsense", Turn::Nonsense(kind))
        } else if self.dice.chance(lies.stale) && method != "eth_chainId" {
            let which = self.dice.roll();
            self.count("stale", Turn::Stale(which))
        } else if logs && by_hash && self.dice.chance(lies.dropped) {
            self.count("dropped", Turn::Dropped)
        } else if logs && self.dice.chance(lies.doubled) {
            self.count("doubled", Turn::Doubled)
        } else {
            Turn::Forward
        }
    }

    fn count(&mut self, kind: &'static str, turn: Turn) -> Turn {
        *self.counts.entry(kind).or_default() += 1;
        turn
    }
}

async fn answer(Shared(shared): Shared<Arc<Middle>>, body: Bytes) -> Response {
    let question: Value = serde_json::from_slice(&body).unwrap();
    let method = question["method"].as_str().unwrap_or_default().to_owned();
    let key = format!("{method}{}", question["params"]);
    let turn = shared.inner.lock().unwrap().turn(&method, question["params"][0].get("blockHash").is_some());
    let from = if matches!(turn, Turn::Elsewhere) { &shared.other } else { &shared.chain };
    match turn {
        Turn::Silence => {
            shared.silent.notify_one();
            std::future::pending::<()>().await;
        }
        Turn::Nonsense(0) => return StatusCode::BAD_GATEWAY.into_response(),
        Turn::Nonsense(1) => return "<html>wait a little</html>".into_response(),
        Turn::Nonsense(2) => return Json(json!({ "jsonrpc": "2.0", "id": 0, "result": "0x1" })).into_response(),
        Turn::Nonsense(3) => return Json(json!({ "jsonrpc": "2.0", "id": question["id"] })).into_response(),
        Turn::Nonsense(_) => {
            let error = json!({ "code": -32_005, "message": "limit exceeded" });
            return Json(json!({ "jsonrpc": "2.0", "id": question["id"], "error": error })).into_response();
        }
        _ => {}
    }
    let sent = shared.http.post(from).header("content-type", "application/json").body(body).send().await;
    let Ok(mut said) = sent.unwrap().json::<Value>().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let mut inner = shared.inner.lock().unwrap();
    if !matches!(turn, Turn::Elsewhere) && said.get("error").is_none() {
        let told = inner.told.entry(key).or_default();
        if told.last() != Some(&said["result"]) {
            told.push(said["result"].clone());
        }
        if let Turn::Stale(which) = turn {
            // Mostly what it said shortly before, as a node that lags.
            let back = usize::try_from(which % 6).unwrap().min(told.len() - 1);
            said["result"] = told[told.len() - 1 - back].clone();
        }
    }
    match (turn, said["result"].as_array_mut()) {
        (Turn::Dropped, Some(logs)) => logs.clear(),
        (Turn::Doubled, Some(logs)) => logs.extend(logs.first().cloned()),
        _ => {}
    }
    Json(said).into_response()
}
