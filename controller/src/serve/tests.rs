//! Real sockets against the real server, its times made short. Nothing sleeps: each test waits for what must happen.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::WebSocketUpgrade;
use axum::routing::{get, post};
use futures::{SinkExt, StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::*;

/// Longest wait for anything: far above every time that the tests set.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the tests set.
const SHORT_MS: u64 = 200;

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Tells when it is dropped.
struct Tell(mpsc::UnboundedSender<()>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn short() -> ServingConfig {
    ServingConfig { head_ms: SHORT_MS, body_ms: SHORT_MS, write_ms: SHORT_MS, ..ServingConfig::default() }
}

async fn start(router: Router, config: ServingConfig) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let server_stop = stop.clone();
    let task = tokio::spawn(async move { serve(listener, router, &config, server_stop).await });
    Server { address, stop, task }
}

fn plain() -> Router {
    Router::new().route("/", get(|| async { "here" })).route(
        "/take",
        post(|body: Result<Bytes, axum::extract::rejection::BytesRejection>| async move {
            match body {
                Ok(body) => (StatusCode::OK, body.len().to_string()),
                Err(_) => (StatusCode::BAD_REQUEST, "cut short".to_owned()),
            }
        }),
    )
}

impl Server {
    async fn connect(&self) -> TcpStream {
        timeout(PATIENCE, TcpStream::connect(self.address)).await.unwrap().unwrap()
    }

    /// A connection that said `text` and nothing more.
    async fn said(&self, text: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    async fn get(&self, path: &str) -> String {
        let ask = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        rest(&mut self.said(&ask).await).await
    }
}

/// Everything until the server closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server closes it");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn whoever_says_nothing_or_half_a_head_is_let_go_of() {
    let server = start(plain(), short()).await;
    assert_eq!(rest(&mut server.said("").await).await, "");
    assert_eq!(rest(&mut server.said("GET / HTTP/1.1\r\nhost: x\r\nx-").await).await, "");
    // After an answer the next head has the same time to come.
    let answer = rest(&mut server.said("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
}

#[tokio::test]
async fn a_body_that_stops_is_an_error_of_the_request() {
    let server = start(plain(), short()).await;
    let head = "POST /take HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{";
    let answer = rest(&mut server.said(head).await).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_let_go_of_and_what_it_held_with_it() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let flood = move || {
        let tell = Tell(tell.clone());
        async move {
            let piece = stream::repeat(Bytes::from(vec![0; 64 << 10])).map(Ok::<_, Infallible>);
            Held::body(Body::from_stream(piece), tell)
        }
    };
    let server = start(Router::new().route("/flood", get(flood)), short()).await;
    let _unread = server.said("GET /flood HTTP/1.1\r\nhost: x\r\n\r\n").await;
    timeout(PATIENCE, told.recv()).await.expect("the answer is given up").unwrap();
}

#[tokio::test]
async fn a_thousand_idle_connections_of_one_address_keep_nobody_out_not_even_at_the_same_address() {
    let config = ServingConfig { connections_per_address: 256, ..ServingConfig::default() };
    let server = start(plain(), config).await;
    let mut idle = Vec::new();
    for _ in 0..1_100 {
        idle.push(server.connect().await);
    }
    assert!(server.get("/").await.ends_with("here"));
    // The oldest made room.
    assert_eq!(rest(&mut idle[0]).await, "");
}

#[tokio::test]
async fn busy_connections_are_never_closed_for_others() {
    let entered = Arc::new(tokio::sync::Semaphore::new(0));
    let leave = CancellationToken::new();
    let slow = {
        let (entered, leave) = (entered.clone(), leave.clone());
        move || {
            let (entered, leave) = (entered.clone(), leave.clone());
            async move {
                entered.add_permits(1);
                leave.cancelled().await;
                "late"
            }
        }
    };
    let config = ServingConfig { connections_per_address: 2, ..ServingConfig::default() };
    let server = start(plain().route("/slow", get(slow)), config).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        waiting.push(server.said("GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await);
    }
    drop(timeout(PATIENCE, entered.acquire_many(2)).await.unwrap().unwrap());
    assert_eq!(rest(&mut server.connect().await).await, "", "no place is left");
    leave.cancel();
    for stream in &mut waiting {
        assert!(rest(stream).await.ends_with("late"));
    }
    assert!(server.get("/").await.ends_with("here"), "their places are free again");
}

#[tokio::test]
async fn a_websocket_outlives_the_time_of_a_head_and_makes_room_for_nobody() {
    let echo = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
        })
    };
    let config = ServingConfig { connections_per_address: 2, ..short() };
    let server = start(plain().route("/link", get(echo)), config).await;
    let url = format!("ws://{}/link", server.address);
    let (mut link, _) = timeout(PATIENCE, tokio_tungstenite::connect_async(url)).await.unwrap().unwrap();
    // Each is closed when a head's time is over, or to make room for the next.
    for _ in 0..4 {
        assert_eq!(rest(&mut server.connect().await).await, "");
    }
    link.send(Message::text("still there")).await.unwrap();
    let back = timeout(PATIENCE, link.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(back, Message::text("still there"));
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_answers_what_is_open_and_ends() {
    let server = start(plain(), ServingConfig::default()).await;
    let mut idle = server.said("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut first = [0; 12];
    timeout(PATIENCE, idle.read_exact(&mut first)).await.unwrap().unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    server.stop.cancel();
    timeout(PATIENCE, server.task).await.expect("it ends").unwrap();
    rest(&mut idle).await;
}
