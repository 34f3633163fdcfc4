//! One JSON-RPC exchange over HTTP: ids, timeouts, and errors that name the place, the method and the remedy.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::abi::revert_reason;
use crate::bounded::{self, Unread};
use crate::word::bytes_of;

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a node may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
/// Longest answer that is read, in bytes.
const LONGEST: usize = 64 << 20;
/// Characters of a node's own words that are repeated.
const WORDS: usize = 300;

/// Why a call to the chain's node gave no answer. `node` is scheme, host and port only: the rest of a URL may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// The URL cannot be used.
    #[error("the chain URL is not one: {why}; give it as http://HOST:PORT or https://HOST, or as @FILE that holds it")]
    BadUrl {
        /// What is wrong with it.
        why: String,
    },
    /// Nobody answered.
    #[error("the chain at {node} did not answer {method}: {why}; check that the node runs and that the URL is right")]
    Unreachable {
        /// Where.
        node: String,
        /// What was asked.
        method: &'static str,
        /// What the transport said.
        why: String,
    },
    /// An HTTP error instead of an answer.
    #[error("the chain at {node} answered {method} with HTTP {status}; check the URL, its key and its rate limit")]
    Status {
        /// Where.
        node: String,
        /// What was asked.
        method: &'static str,
        /// HTTP status.
        status: u16,
    },
    /// The node refused.
    #[error("the chain at {node} refused {method}: {message} (code {code})")]
    Refused {
        /// Where.
        node: String,
        /// What was asked.
        method: &'static str,
        /// JSON-RPC error code.
        code: i64,
        /// What the node said.
        message: String,
    },
    /// A contract refused.
    #[error("the contract refused ({method}): {reason}")]
    Reverted {
        /// What was asked.
        method: &'static str,
        /// The error's name and values.
        reason: String,
    },
    /// The answer is not what the method promises.
    #[error("the chain at {node} answered {method} with something that is not {what}; is it an EVM node?")]
    Malformed {
        /// Where.
        node: String,
        /// What was asked.
        method: &'static str,
        /// What was expected.
        what: &'static str,
    },
    /// The answer is longer than any that is read.
    #[error("the chain at {node} answered {method} with more than {most} bytes; ask for less at once")]
    TooLong {
        /// Where.
        node: String,
        /// What was asked.
        method: &'static str,
        /// What is read of an answer.
        most: usize,
    },
    /// The block is not there (yet).
    #[error("the chain at {node} has no block {block}")]
    NoBlock {
        /// Where.
        node: String,
        /// Which.
        block: String,
    },
}

/// A node of the chain, reached by HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    url: reqwest::Url,
    /// What may be shown of the URL.
    pub node: String,
    http: reqwest::Client,
    next_id: Arc<AtomicU64>,
}

impl Transport {
    /// `url` may be `@FILE`: then the file holds it, so that a URL with a secret stands on no command line.
    pub fn new(url: &str) -> Result<Self, RpcError> {
        let bad = |why: String| RpcError::BadUrl { why };
        let held = match url.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path).map_err(|error| bad(format!("{path}: {error}")))?,
            None => url.to_owned(),
        };
        let url = reqwest::Url::parse(held.trim()).map_err(|error| bad(error.to_string()))?;
        let host = url.host_str().ok_or_else(|| bad(String::from("it has no host")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad(format!("`{}` is not http or https", url.scheme())));
        }
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let node = format!("{}://{host}{port}", url.scheme());
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .build()
            .map_err(|error| bad(error.to_string()))?;
        Ok(Self { url, node, http, next_id: Arc::new(AtomicU64::new(1)) })
    }

    /// Asks once. A null result is `Value::Null`.
    pub async fn ask(&self, method: &'static str, params: Value) -> Result<Value, RpcError> {
        let (id, question) = self.question(method, &params);
        let mut answer = self.post(method, &question).await?;
        if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
            return Err(self.refusal(method, error));
        }
        if answer.get("id").and_then(Value::as_u64) != Some(id) {
            return Err(self.malformed(method, "an answer to this request"));
        }
        answer.get_mut("result").map(Value::take).ok_or_else(|| self.malformed(method, "a JSON-RPC answer"))
    }

    /// Asks the same of many things in one batch; the results in the order of `params`. What a batch leaves without a
    /// result is asked by itself: a node may take no batches, or cut off those whose answer is large.
    pub async fn ask_many(&self, method: &'static str, params: Vec<Value>) -> Result<Vec<Value>, RpcError> {
        let mut results = HashMap::new();
        let (ids, questions): (Vec<u64>, Vec<Value>) =
            params.iter().map(|params| self.question(method, params)).unzip();
        if questions.len() > 1 {
            let answers = match self.post(method, &Value::Array(questions)).await {
                Ok(Value::Array(answers)) => answers,
                Err(error @ RpcError::Unreachable { .. }) => return Err(error),
                Ok(_) | Err(_) => Vec::new(),
            };
            for mut answer in answers {
                let refused = answer.get("error").is_some_and(|error| !error.is_null());
                let id = answer.get("id").and_then(Value::as_u64);
                let result = answer.get_mut("result").map(Value::take);
                if let (false, Some(id), Some(result)) = (refused, id, result) {
                    results.insert(id, result);
                }
            }
        }
        let mut found = Vec::with_capacity(params.len());
        for (id, params) in ids.into_iter().zip(params) {
            found.push(match results.remove(&id) {
                Some(result) => result,
                None => self.ask(method, params).await?,
            });
        }
        Ok(found)
    }

    fn question(&self, method: &'static str, params: &Value) -> (u64, Value) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        (id, json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    async fn post(&self, method: &'static str, body: &Value) -> Result<Value, RpcError> {
        let unreachable = |error: reqwest::Error| RpcError::Unreachable {
            node: self.node.clone(),
            method,
            // The error's own text would print the whole URL.
            why: innermost(&error.without_url()),
        };
        let response = self.http.post(self.url.clone()).json(body).send().await.map_err(unreachable)?;
        let status = response.status();
        let bytes = bounded::body(response, LONGEST).await.map_err(|unread| match unread {
            Unread::Broken(error) => unreachable(error),
            Unread::TooLong(most) => RpcError::TooLong { node: self.node.clone(), method, most },
        })?;
        match serde_json::from_slice(&bytes) {
            // Some nodes refuse in JSON-RPC under an HTTP error; what stands before a node refuses in JSON of its own.
            Ok(answer) if status.is_success() || is_rpc(&answer) => Ok(answer),
            _ if !status.is_success() => {
                Err(RpcError::Status { node: self.node.clone(), method, status: status.as_u16() })
            }
            _ => Err(self.malformed(method, "JSON")),
        }
    }

    pub fn malformed(&self, method: &'static str, what: &'static str) -> RpcError {
        RpcError::Malformed { node: self.node.clone(), method, what }
    }

    fn refusal(&self, method: &'static str, error: &Value) -> RpcError {
        // A revert carries the contract's bytes: plain, or one level deeper, by the kind of node.
        let data = error.get("data");
        let bytes = data.and_then(|data| bytes_of(data).or_else(|| data.get("data").and_then(bytes_of)));
        let message = error.get("message").and_then(Value::as_str).unwrap_or("no message");
        let message: String = message.chars().take(WORDS).collect();
        match bytes {
            Some(bytes) if !bytes.is_empty() => RpcError::Reverted { method, reason: revert_reason(&bytes) },
            _ if message.contains("revert") => RpcError::Reverted { method, reason: message },
            _ => RpcError::Refused {
                node: self.node.clone(),
                method,
                code: error.get("code").and_then(Value::as_i64).unwrap_or(0),
                message,
            },
        }
    }
}

/// Whether that is a JSON-RPC answer, or a batch of them.
fn is_rpc(answer: &Value) -> bool {
    let coded = answer.get("error").and_then(|error| error.get("code")).is_some_and(Value::is_i64);
    coded || answer.get("result").is_some() || answer.is_array()
}

/// The deepest cause, which is the one that helps ("connection refused").
fn innermost(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(cause) = at.source() {
        at = cause;
    }
    at.to_string()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// A node that answers `say`, as often as it is asked; its URL. It counts the bodies.
    fn node(say: impl Fn(&Value) -> String + Send + 'static) -> (String, Arc<AtomicU64>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let bodies = Arc::new(AtomicU64::new(0));
        let count = bodies.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut asked) = (stream.expect("a connection"), Vec::new());
                // The body is the JSON at the end of what comes.
                let body: Value = loop {
                    let mut some = [0; 4096];
                    let read = stream.read(&mut some).expect("bytes");
                    asked.extend(&some[..read]);
                    let end = asked.windows(4).position(|four| four == b"\r\n\r\n");
                    if let Some(Ok(body)) = end.map(|end| serde_json::from_slice(&asked[end + 4..])) {
                        break body;
                    }
                    assert!(read > 0, "the connection ended early");
                };
                count.fetch_add(1, Ordering::Relaxed);
                let said = say(&body);
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", said.len());
                stream.write_all((head + &said).as_bytes()).expect("it listens");
            }
        });
        (url, bodies)
    }

    fn echo(question: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": question["params"][0] })
    }

    #[tokio::test]
    async fn a_batch_is_one_exchange_and_its_answers_may_come_in_any_order() {
        let (url, bodies) = node(|body| {
            let answers: Vec<Value> = body.as_array().expect("a batch").iter().rev().map(echo).collect();
            json!(answers).to_string()
        });
        let params = (0..5).map(|number| json!([number])).collect();
        let found = Transport::new(&url).expect("a URL").ask_many("eth_call", params).await.expect("answers");
        assert_eq!(found, [json!(0), json!(1), json!(2), json!(3), json!(4)]);
        assert_eq!(bodies.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_a_batch_leaves_out_is_asked_by_itself() {
        let refused = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32_600, "message": "no batches" } });
        let kinds: [fn(&[Value], &Value) -> String; 3] = [
            |_, refused| refused.to_string(),
            |_, _| String::from("<html>too large</html>"),
            // The second is cut off, the third is not there.
            |batch, _| json!([echo(&batch[0]), { "id": batch[1]["id"], "error": { "code": -32_003 } }]).to_string(),
        ];
        for (kind, singles) in kinds.into_iter().zip([3, 3, 2]) {
            let refused = refused.clone();
            let (url, bodies) = node(move |body| match body.as_array() {
                Some(batch) => kind(batch, &refused),
                None => echo(body).to_string(),
            });
            let params = (0..3).map(|number| json!([number])).collect();
            let found = Transport::new(&url).expect("a URL").ask_many("eth_call", params).await.expect("answers");
            assert_eq!(found, [json!(0), json!(1), json!(2)]);
            assert_eq!(bodies.load(Ordering::Relaxed), 1 + singles);
        }
    }

    #[tokio::test]
    async fn an_unreachable_chain_is_named_without_the_secret_in_its_url() {
        let chain = Transport::new("http://user:hunter2@127.0.0.1:1/v3/apikey").expect("a URL");
        let error = chain.ask("eth_chainId", json!([])).await.expect_err("nobody listens on port 1").to_string();
        assert!(error.contains("http://127.0.0.1:1") && error.contains("eth_chainId"), "{error}");
        assert!(!error.contains("hunter2") && !error.contains("apikey"), "{error}");
        assert!(error.contains("check that the node runs"), "{error}");
    }

    #[tokio::test]
    async fn a_rate_limit_is_told_by_its_status_and_a_refusal_under_an_http_error_by_its_words() {
        let answer_with = |status: &'static str, body: &'static str| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("an address"));
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection");
                let read = stream.read(&mut [0; 4096]).expect("readable");
                assert!(read > 0);
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + body).as_bytes()).expect("it listens");
            });
            url
        };
        let ask = async |url: String| {
            let chain = Transport::new(&url).expect("a URL");
            chain.ask("eth_chainId", json!([])).await.expect_err("refused").to_string()
        };
        let said = ask(answer_with("429 Too Many Requests", r#"{"error":"slow down"}"#)).await;
        assert!(said.contains("HTTP 429") && said.contains("rate limit"), "{said}");
        let refused = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"limit exceeded"}}"#;
        let said = ask(answer_with("400 Bad Request", refused)).await;
        assert!(said.contains("limit exceeded (code -32005)"), "{said}");
    }

    #[tokio::test]
    async fn a_url_with_a_secret_may_stand_in_a_file() {
        let (url, _) = node(|body| echo(body).to_string());
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("url");
        std::fs::write(&file, format!("{url}/secret\n")).expect("written");
        let chain = Transport::new(&format!("@{}", file.display())).expect("a URL");
        assert_eq!(chain.node, url);
        assert_eq!(chain.ask("eth_call", json!([7])).await.expect("an answer"), json!(7));
        let missing = Transport::new("@/no/such/file").expect_err("no file").to_string();
        assert!(missing.contains("/no/such/file"), "{missing}");
    }

    #[test]
    fn a_url_that_is_none_is_refused_with_the_form_it_should_have() {
        for url in ["", "ftp://host", "localhost:8545"] {
            let error = Transport::new(url).expect_err(url).to_string();
            assert!(error.contains("http://HOST:PORT"), "{error}");
        }
    }
}
