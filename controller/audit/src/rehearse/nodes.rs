//! Frauds of a node of the chain: a pool on an embedded chain, and between it and the audit a node that changes one kind of
//! answer.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use selion_api::chain::Block;
use selion_api::commit::PoolId;
use selion_api::{Account, Amount};
use selion_contracts::audited::text_hash;
use selion_contracts::deploy::{create_pool, deploy_factory, deploy_test_token};
use selion_contracts::{BlockTag, Pool, PoolTerms, Rpc, Signer};
use selion_devchain::{Config, DevMethods, serve};
use selion_market::Input;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Book, Cast, Planted, RehearseError};
use crate::run::{LogSource, Options, audit};

/// What a node makes of an answer to a question.
type Change = fn(&Value, &mut Value);

/// A fraud of a node.
struct Fraud {
    name: &'static str,
    planted: &'static str,
    check: &'static str,
    /// Whether an honest node is asked as well.
    beside_honest: bool,
    change: Change,
}

const FRAUDS: [Fraud; 10] = [
    alone("other_code", "code_committed", "the only node has other code at the pool's contracts", other_code),
    alone("other_terms", "registry_from_events", "the only node answers another fee than the pool's", other_terms),
    alone("header_hash", "headers_hashed", "the only node tells another hash in one header", |question, answer| {
        if of_number(question) {
            answer["hash"] = json!(format!("0x{}", "fe".repeat(32)));
        }
    }),
    alone("header_time", "headers_hashed", "the only node tells another time in one header", |question, answer| {
        if of_number(question) {
            answer["timestamp"] = json!("0x7fffffff");
        }
    }),
    alone(
        "header_bloom",
        "headers_hashed",
        "the only node tells an empty bloom of a block with logs",
        |question, answer| {
            if of_number(question) {
                answer["logsBloom"] = json!(format!("0x{}", "00".repeat(256)));
            }
        },
    ),
    alone("removed_log", "headers_hashed", "the only node tells a final log as removed", |question, answer| {
        if question["method"] == "eth_getLogs" {
            answer[0]["removed"] = json!(true);
        }
    }),
    alone("logs_out_of_order", "headers_hashed", "the only node tells logs in another order", |question, answer| {
        if let (true, Some(logs)) = (question["method"] == "eth_getLogs", answer.as_array_mut()) {
            logs.reverse();
        }
    }),
    beside("altered_topic", "one of two nodes tells an event of another kind", |question, answer| {
        if question["method"] == "eth_getLogs" {
            answer[0]["topics"][0] = json!(format!("0x{}", "fe".repeat(32)));
        }
    }),
    beside("omitted_event", "one of two nodes leaves an event out", |question, answer| {
        if let (true, Some(logs)) = (question["method"] == "eth_getLogs", answer.as_array_mut()) {
            logs.pop();
        }
    }),
    beside("no_answer", "one of two nodes answers with something else", |question, answer| {
        if question["method"] == "eth_getLogs" {
            *answer = json!("<html>");
        }
    }),
];

const fn alone(name: &'static str, check: &'static str, planted: &'static str, change: Change) -> Fraud {
    Fraud { name, planted, check, beside_honest: false, change }
}

const fn beside(name: &'static str, planted: &'static str, change: Change) -> Fraud {
    Fraud { name, planted, check: "rpcs_agree", beside_honest: true, change }
}

/// Whether the question is about the block of a number.
fn of_number(question: &Value) -> bool {
    let number = question["params"][0].as_str().is_some_and(|which| which.starts_with("0x"));
    question["method"] == "eth_getBlockByNumber" && number
}

fn other_code(question: &Value, answer: &mut Value) {
    if question["method"] == "eth_getCode" {
        *answer = json!("0x6001");
    }
}

/// The fourth word of the answer is the fee.
fn other_terms(question: &Value, answer: &mut Value) {
    let selector = format!("0x{}", hex::encode(&text_hash("config()").0[..4]));
    let asked = question["params"][0]["data"].as_str();
    if question["method"] != "eth_call" || asked != Some(selector.as_str()) {
        return;
    }
    let Some(Ok(mut bytes)) = answer.as_str().and_then(|text| text.strip_prefix("0x")).map(hex::decode) else { return };
    if let Some(byte) = bytes.get_mut(4 * 32 - 1) {
        *byte ^= 1;
    }
    *answer = json!(format!("0x{}", hex::encode(bytes)));
}

/// A pool on a chain of its own, with its log in a file.
struct Stage {
    url: String,
    pool: Pool,
    dir: TempDir,
    _stop: DropGuard,
}

fn broken(why: impl std::fmt::Display) -> RehearseError {
    RehearseError::Chain(why.to_string())
}

/// Plants every fraud of a node that is known, on a chain made for it.
///
/// # Errors
///
/// [`RehearseError`] if the chain does not run, or its honest log does not pass.
pub async fn rehearse_nodes() -> Result<Vec<Planted>, RehearseError> {
    let stage = Stage::set().await?;
    let honest = audit(&stage.options(&[&stage.url])).await.map_err(broken)?;
    if let Some(check) = honest.checks.iter().find(|check| !check.ok) {
        return Err(broken(format!("the honest chain fails {}: {}", check.name, check.detail)));
    }
    let mut planted = Vec::with_capacity(FRAUDS.len());
    for fraud in FRAUDS {
        let liar = stage.liar(fraud.change).await?;
        let nodes: &[&str] = if fraud.beside_honest { &[&stage.url, &liar] } else { &[&liar] };
        let report = audit(&stage.options(nodes)).await.map_err(broken)?;
        let check = report.checks.iter().find(|check| check.name == fraud.check);
        let named = !fraud.beside_honest || check.is_some_and(|check| check.detail.contains(&liar));
        planted.push(Planted {
            fraud: fraud.name.into(),
            planted: fraud.planted.into(),
            check: fraud.check.into(),
            entry: None,
            caught: !report.ok && named && check.is_some_and(|check| !check.ok),
            found: check.map_or_else(|| "there is no such check".to_owned(), |check| check.detail.clone()),
        });
    }
    Ok(planted)
}

impl Stage {
    async fn set() -> Result<Self, RehearseError> {
        let dir = tempfile::tempdir().map_err(broken)?;
        let (listen, data_dir) = (([127, 0, 0, 1], 0).into(), dir.path().join("chain"));
        let config = Config { listen, data_dir, dev_methods: DevMethods::Coins, ..Config::default() };
        let stop = CancellationToken::new();
        let (tell, told) = tokio::sync::oneshot::channel();
        // Nobody waits any more if the rehearsal was stopped.
        tokio::spawn(serve(config, stop.clone(), move |address| {
            let _ = tell.send(address);
        }));
        let url = format!("http://{}", told.await.map_err(broken)?);
        let operator = Signer::random()?;
        let pool = made(&url, &operator).await?;
        let stage = Self { url, pool, dir, _stop: stop.drop_guard() };
        stage.write_log(operator).await?;
        Ok(stage)
    }

    /// The log of an honest controller: every block with events of the pool, and a head over each.
    async fn write_log(&self, authority: Signer) -> Result<(), RehearseError> {
        let id = PoolId { chain_id: self.pool.chain_id, controller: self.pool.at.controller };
        let mut book = Book::open(id, Cast { authority, ..Cast::random()? });
        let rpc = &self.pool.rpc;
        let last = rpc.header(BlockTag::Latest).await.map_err(broken)?.number;
        for number in 0..=last {
            let header = rpc.header(BlockTag::Number(number)).await.map_err(broken)?;
            let events = self.pool.events_of_block(header.hash).await.map_err(broken)?;
            if !events.is_empty() {
                book.enter(Input::Block(Block { number, hash: header.hash, parent: header.parent, events }));
            }
        }
        let mut lines = String::new();
        for entry in book.seal()? {
            lines.push_str(&serde_json::to_string(&entry).map_err(broken)?);
            lines.push('\n');
        }
        std::fs::write(self.dir.path().join("log.jsonl"), lines).map_err(broken)
    }

    fn options(&self, nodes: &[&str]) -> Options {
        let log = LogSource::File(self.dir.path().join("log.jsonl"));
        let rpcs = nodes.iter().map(|url| (*url).to_owned()).collect();
        Options { rpcs, ..Options::new(self.url.clone(), self.pool.at.controller, log) }
    }

    /// A node that asks the chain, and changes its answers.
    async fn liar(&self, change: Change) -> Result<String, RehearseError> {
        let liar = Arc::new(Liar { behind: self.url.clone(), http: reqwest::Client::new(), change });
        let router = Router::new().route("/", post(answer)).with_state(liar);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.map_err(broken)?;
        let url = format!("http://{}", listener.local_addr().map_err(broken)?);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(url)
    }
}

/// A pool whose authority renewed its word, so that there are blocks with events beside the first.
async fn made(url: &str, operator: &Signer) -> Result<Pool, RehearseError> {
    let rpc = Rpc::new(url).map_err(broken)?;
    rpc.give_coins(operator.account(), 10_u128.pow(20)).await.map_err(broken)?;
    let token = deploy_test_token(&rpc, operator).await.map_err(broken)?;
    let factory = deploy_factory(&rpc, operator).await.map_err(broken)?;
    let terms = PoolTerms { token, ..terms(operator.account()) };
    let at = create_pool(&rpc, operator, factory, &terms).await.map_err(broken)?;
    let pool = Pool::open(rpc, at.controller).await.map_err(broken)?;
    for _ in 0..2 {
        pool.send(operator, pool.renew()).await.map_err(broken)?;
    }
    Ok(pool)
}

fn terms(authority: Account) -> PoolTerms {
    PoolTerms {
        token: selion_api::Address::ZERO,
        owner: authority,
        authority,
        fee_bps: 200,
        thaw_delay_s: 60,
        unbond_delay_s: 60,
        min_stake: Amount(1_000_000),
        finality_depth: 0,
        grace_s: 3_600,
        allow_simulated: true,
        allow_unsandboxed: true,
        min_bond: Amount(0),
        hand_over_delay_s: 60,
        take_over_after_s: 86_400,
        metadata_cid: String::new(),
    }
}

struct Liar {
    behind: String,
    http: reqwest::Client,
    change: Change,
}

async fn answer(State(liar): State<Arc<Liar>>, Json(question): Json<Value>) -> Result<Json<Value>, StatusCode> {
    let asked = liar.http.post(&liar.behind).json(&question).send().await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let mut answer: Value = asked.json().await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    if let Some(result) = answer.get_mut("result") {
        (liar.change)(&question, result);
    }
    Ok(Json(answer))
}
