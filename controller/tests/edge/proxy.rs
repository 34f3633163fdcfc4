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
    /// Logs or receipts left out: all of them, the last ones, or one of them.
    pub dropped: u64,
    /// A log or a receipt twice.
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

/// What is done with a body: one question or a batch.
#[derive(Clone, Copy)]
enum Turn {
    Forward,
    Elsewhere,
    Silence,
    Nonsense(u64),
}

impl Inner {
    fn turn(&mut self) -> Turn {
        let lies = self.lies;
        if self.elsewhere > 0 {
            self.elsewhere -= 1;
            return self.count("other chain", Turn::Elsewhere);
        }
        if self.dice.chance(lies.other) {
            self.elsewhere = self.dice.below(40);
            self.count("other chain", Turn::Elsewhere)
        } else if self.dice.chance(lies.silence) {
            self.count("silence", Turn::Silence)
        } else if self.dice.chance(lies.nonsense) {
            let kind = self.dice.below(5);
            self.count("nonsense", Turn::Nonsense(kind))
        } else {
            Turn::Forward
        }
    }

    fn count<T>(&mut self, kind: &'static str, what: T) -> T {
        *self.counts.entry(kind).or_default() += 1;
        what
    }

    /// Changes what the chain said to one question.
    fn twist(&mut self, question: &Value, said: &mut Value) {
        let lies = self.lies;
        let method = question["method"].as_str().unwrap_or_default();
        let told = self.told.entry(format!("{method}{}", question["params"])).or_default();
        if told.last() != Some(said) {
            told.push(said.clone());
        }
        // Mostly what it said shortly before, as a node that lags.
        let back = usize::try_from(self.dice.below(6)).unwrap().min(told.len() - 1);
        let old = told[told.len() - 1 - back].clone();
        if method != "eth_chainId" && self.dice.chance(lies.stale) {
            *said = self.count("stale", old);
            return;
        }
        let Some(list) = said.as_array_mut().filter(|list| !list.is_empty()) else {
            return;
        };
        if self.dice.chance(lies.dropped) {
            let kind = self.dice.below(3);
            let one = usize::try_from(self.dice.below(list.len() as u64)).unwrap();
            self.count("dropped", ());
            match (kind, list[one]["logs"].as_array_mut().filter(|logs| !logs.is_empty())) {
                (0, _) => list.clear(),
                (1, Some(logs)) => drop(logs.remove(usize::try_from(self.dice.below(logs.len() as u64)).unwrap())),
                _ => list.truncate(one),
            }
        } else if self.dice.chance(lies.doubled) {
            self.count("doubled", ());
            let first = list[0].clone();
            match list[0]["logs"].as_array_mut() {
                Some(logs) if self.dice.chance(50) => logs.extend(logs.first().cloned()),
                _ => list.push(first),
            }
        }
    }
}

/// What a node says that has nothing to say.
fn nonsense(kind: u64, question: &Value) -> Response {
    let id = &question["id"];
    let error = json!({ "code": -32_005, "message": "limit exceeded" });
    match kind {
        0 => StatusCode::BAD_GATEWAY.into_response(),
        1 => "<html>wait a little</html>".into_response(),
        2 => Json(json!({ "jsonrpc": "2.0", "id": 0, "result": "0x1" })).into_response(),
        3 => Json(json!({ "jsonrpc": "2.0", "id": id })).into_response(),
        // To a batch it is that batches are not taken.
        _ => Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response(),
    }
}

async fn answer(Shared(shared): Shared<Arc<Middle>>, body: Bytes) -> Response {
    let question: Value = serde_json::from_slice(&body).unwrap();
    let turn = shared.inner.lock().unwrap().turn();
    let from = if matches!(turn, Turn::Elsewhere) { &shared.other } else { &shared.chain };
    match turn {
        Turn::Silence => {
            shared.silent.notify_one();
            std::future::pending::<()>().await;
        }
        Turn::Nonsense(kind) => return nonsense(kind, &question),
        Turn::Forward | Turn::Elsewhere => {}
    }
    let sent = shared.http.post(from).header("content-type", "application/json").body(body).send().await;
    let Ok(mut said) = sent.unwrap().json::<Value>().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    if matches!(turn, Turn::Forward) {
        let mut inner = shared.inner.lock().unwrap();
        let twist = |(question, said): (&Value, &mut Value)| {
            if let Some(result) = said.get_mut("result") {
                inner.twist(question, result);
            }
        };
        match (question.as_array(), said.as_array_mut()) {
            (Some(questions), Some(answers)) => questions.iter().zip(answers).for_each(twist),
            _ => [(&question, &mut said)].into_iter().for_each(twist),
        }
    }
    Json(said).into_response()
}
