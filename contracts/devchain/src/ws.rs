//! WebSocket: every method of the HTTP port, and subscriptions to heads and logs.

use crate::{
    chain::Change,
    door::DevMethods,
    filter::Filter,
    node::Node,
    rpc::{self, Request, error::RpcError, shapes},
};
use axum::extract::ws::{Message, WebSocket};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// Most subscriptions of one connection.
const MAX_SUBSCRIPTIONS: usize = 256;

#[derive(Debug)]
enum Topic {
    NewHeads,
    Logs(Filter),
}

/// The subscriptions of a connection, by id.
#[derive(Debug, Default)]
struct Subscriptions {
    topics: BTreeMap<String, Topic>,
    made: u64,
}

/// Serves one connection until either side ends it.
pub(crate) async fn serve(mut socket: WebSocket, node: Arc<Node>, methods: DevMethods, stop: CancellationToken) {
    let mut changes = node.changes();
    let mut subscriptions = Subscriptions::default();
    loop {
        let messages = tokio::select! {
            () = stop.cancelled() => break,
            received = socket.recv() => match received {
                Some(Ok(Message::Text(text))) => answer((&node, methods), &mut subscriptions, text.as_bytes().to_vec()).await,
                Some(Ok(Message::Binary(bytes))) => answer((&node, methods), &mut subscriptions, bytes.to_vec()).await,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
            },
            change = changes.recv() => match change {
                Ok(change) => subscriptions.notices(&change),
                // A gap would be worse than an end: the client connects again and reads what it missed.
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "a subscriber was too slow and is disconnected");
                    break;
                }
                Err(RecvError::Closed) => break,
            },
        };
        for message in messages {
            if socket.send(Message::text(message.to_string())).await.is_err() {
                return;
            }
        }
    }
    // The other side may be gone already.
    let _ = socket.send(Message::Close(None)).await;
}

async fn answer(
    (node, methods): (&Arc<Node>, DevMethods),
    subscriptions: &mut Subscriptions,
    body: Vec<u8>,
) -> Vec<Value> {
    if let Ok(value @ Value::Object(_)) = serde_json::from_slice(&body)
        && let Ok(Request { id, method, params }) = Request::parse(value)
        && let Some(result) = subscriptions.answer(&method, params.as_ref())
    {
        return vec![rpc::envelope(id, result)];
    }
    let node = node.clone();
    match tokio::task::spawn_blocking(move || rpc::answer_body(&node, methods, &body)).await {
        Ok(answer) => vec![answer],
        Err(error) => {
            tracing::error!(%error, "a request failed");
            vec![rpc::envelope(
                Value::Null,
                Err(RpcError::internal("the dev chain failed at this request; its log says why")),
            )]
        }
    }
}

impl Subscriptions {
    /// Answers the subscription methods; `None` for all others.
    fn answer(&mut self, method: &str, params: Option<&Value>) -> Option<Result<Value, RpcError>> {
        let first = params.and_then(|params| params.get(0)).and_then(Value::as_str);
        match method {
            "eth_subscribe" => Some(self.subscribe(first, params.and_then(|params| params.get(1)))),
            "eth_unsubscribe" => Some(Ok(json!(first.is_some_and(|id| self.topics.remove(id).is_some())))),
            _ => None,
        }
    }

    fn subscribe(&mut self, kind: Option<&str>, filter: Option<&Value>) -> Result<Value, RpcError> {
        let topic = match kind {
            Some("newHeads") => Topic::NewHeads,
            Some("logs") => Topic::Logs(filter.map_or(Ok(Filter::default()), Filter::parse)?),
            other => {
                return Err(RpcError::invalid_params(format!(
                    "cannot subscribe to {other:?}; the dev chain has newHeads and logs"
                )));
            }
        };
        if self.topics.len() >= MAX_SUBSCRIPTIONS {
            return Err(RpcError::server(format!(
                "{MAX_SUBSCRIPTIONS} subscriptions are the most for one connection; end some first"
            )));
        }
        self.made += 1;
        let id = format!("{:#x}", self.made);
        self.topics.insert(id.clone(), topic);
        Ok(json!(id))
    }

    /// What subscribers are told of `change`: removed logs newest first, then each new block.
    fn notices(&self, change: &Change) -> Vec<Value> {
        let notice = |id: &String, result: Value| json!({"jsonrpc": "2.0", "method": "eth_subscription", "params": {"subscription": id, "result": result}});
        let mut notices = Vec::new();
        for (id, topic) in &self.topics {
            match topic {
                Topic::NewHeads => notices.extend(change.added.iter().map(|block| notice(id, shapes::head(block)))),
                Topic::Logs(filter) => {
                    for (blocks, removed) in [
                        (change.removed.iter().rev().collect::<Vec<_>>(), true),
                        (change.added.iter().collect(), false),
                    ] {
                        for block in blocks {
                            notices.extend(
                                filter
                                    .select(block)
                                    .map(|(index, log)| notice(id, shapes::log(block, index, log, removed))),
                            );
                        }
                    }
                }
            }
        }
        notices
    }
}
