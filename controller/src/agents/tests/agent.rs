//! A scripted agent on a real socket.

use futures::{SinkExt, StreamExt};
use selion_api::agent::{Hello, LINK_VERSION, MemberEvent, Report, SignedHello, SignedReport, ToAgent, ToController};
use selion_api::commit::{canonical, signing_digest};
use selion_api::slice::NodeSpec;
use selion_api::{Hash32, Reason, Slot};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::fake::OURS;
use super::key::Key;
use super::world::{GPU, LEASE, POOL, PROVIDER, World, spec};

pub(super) struct Agent {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub nonce: Hash32,
}

/// What an agent here wants to find in its welcome.
pub(super) const CHALLENGE: Hash32 = Hash32([77; 32]);

impl Agent {
    /// Connects and reads the challenge.
    pub(super) async fn connect(url: &str) -> Self {
        let (socket, _) = connect_async(url).await.unwrap();
        let mut agent = Self { socket, nonce: Hash32::ZERO };
        let Some(ToAgent::Challenge { pool, nonce, .. }) = agent.next().await else {
            panic!("no challenge came");
        };
        assert_eq!(pool, POOL);
        agent.nonce = nonce;
        agent
    }

    /// Connects with a good hello and reads the welcome and the first desired state.
    pub(super) async fn link(world: &World) -> Self {
        let mut agent = Self::connect(&world.url).await;
        let hello = agent.hello(spec(world.key.node()));
        agent.say(&world.key, hello).await;
        let welcome = agent.next().await;
        assert!(matches!(welcome, Some(ToAgent::Welcome { .. })), "{welcome:?}");
        let desired = agent.next().await;
        assert!(matches!(desired, Some(ToAgent::Desired(_))), "{desired:?}");
        agent
    }

    /// What an honest agent says.
    pub(super) fn hello(&self, spec: NodeSpec) -> Hello {
        Hello {
            version: LINK_VERSION,
            nonce: self.nonce,
            challenge: CHALLENGE,
            spec,
            fence: OURS,
            head: None,
            last_seq: 0,
            life: Hash32::ZERO,
        }
    }

    /// Signs the hello with `key` and sends it.
    pub(super) async fn say(&mut self, key: &Key, hello: Hello) {
        let signature = key.sign(&signing_digest(&POOL, "hello", &hello));
        let said = SignedHello { hello, signature };
        self.send(&ToController::Hello(Box::new(said))).await;
    }

    pub(super) async fn send(&mut self, message: &ToController) {
        let frame = Message::Binary(canonical(message).into());
        self.socket.send(frame).await.unwrap();
    }

    /// The next message that is about work, money or the log; `None` once the link is closed.
    pub(super) async fn next(&mut self) -> Option<ToAgent> {
        loop {
            match self.hear().await {
                Some(ToAgent::Echo { .. }) => {}
                other => return other,
            }
        }
    }

    /// The next message; `None` once the link is closed.
    pub(super) async fn hear(&mut self) -> Option<ToAgent> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Binary(bytes))) => {
                    return Some(borsh::from_slice(&bytes).unwrap());
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Why the link was refused.
    pub(super) async fn refusal(&mut self) -> (Reason, String) {
        loop {
            match self.next().await {
                Some(ToAgent::Refused { reason, detail }) => return (reason, detail),
                Some(_) => {}
                None => panic!("the link closed without a reason"),
            }
        }
    }
}

/// A report of the node of `key` about the one lease.
pub(super) fn report(key: &Key, seq: u64, event: MemberEvent) -> Report {
    Report {
        node: key.node(),
        provider: PROVIDER,
        seq,
        fence: OURS,
        lease: LEASE,
        attempt: 1,
        member: 0,
        gpus: vec![GPU],
        slot: Slot::Whole,
        event,
        metered_ms: 0,
    }
}

pub(super) fn signed(key: &Key, report: Report) -> ToController {
    let signature = key.sign(&signing_digest(&POOL, "report", &report));
    ToController::Report(SignedReport { report, signature })
}

/// Waits until everything sent before was heard: the agent gets an answer to its last report.
pub(super) async fn settle(agent: &mut Agent, world: &World, seq: u64) {
    let last = report(&world.key, seq, MemberEvent::Metered);
    agent.send(&signed(&world.key, last)).await;
    loop {
        match agent.next().await {
            Some(ToAgent::Ack { seq: acked }) if acked == seq => return,
            Some(_) => {}
            None => panic!("the link closed"),
        }
    }
}
