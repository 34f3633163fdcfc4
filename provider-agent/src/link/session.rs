//! One connection, from the challenge to its end.

use std::collections::VecDeque;
use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use selion_api::agent::{HEARTBEAT_MS, Hello, LINK_VERSION, MAX_MESSAGE, SignedHello, ToAgent, ToController};
use selion_api::commit::PoolId;
use selion_api::seal::{SealKey, SignedSealKey};
use selion_api::{Hash32, Signature};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::{Inbound, Link, LinkError, link_url};
use crate::event::Event;
use crate::keys;
use crate::member_key::MemberKey;

/// Longest wait for the connection and for each step of the greeting.
const STEP: Duration = Duration::from_secs(5);
/// A link on which nothing came for this long is given up.
const SILENCE: Duration = Duration::from_secs(10);
/// Longest time that one message may take to leave.
const SEND: Duration = Duration::from_secs(10);
/// Log chunks on their way that the controller has not answered. No more are sent meanwhile, so that a report waits behind
/// half a MiB of what others print, and not behind all that the sockets between hold.
const WINDOW: usize = 8;
/// Highest number that a report may have. No clock comes near; above it there would be none left for those to come.
const MOST_SEQ: u64 = 1 << 62;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

struct Session<'a> {
    link: &'a mut Link,
    wire: Wire,
    /// Reports up to here were sent or are acknowledged.
    sent: u64,
    /// Log chunks that the controller owes an answer.
    unanswered: usize,
    /// In which signatures count; known once the link is greeted.
    pool: Option<PoolId>,
    /// The sealing key that was stated last.
    stated: Option<Hash32>,
}

/// Connects, greets, and holds the link until it ends. `Ok` only if the agent itself is gone.
pub(super) async fn hold(link: &mut Link) -> Result<(), LinkError> {
    let url = link_url(&link.url)?;
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    let connecting = connect_async_with_config(url.as_str(), Some(config), true);
    let silent = |what| LinkError::Silent { what, after: STEP };
    let connected = timeout(STEP, connecting).await.map_err(|_| silent("answer"))?;
    let (socket, _) = connected.map_err(|source| LinkError::Connect { url, source: Box::new(source) })?;
    let (sink, stream) = socket.split();
    let wire = Wire { sink, stream, came: VecDeque::new(), heard: Instant::now() };
    let mut session = Session { link, wire, sent: 0, unanswered: 0, pool: None, stated: None };
    timeout(STEP * 2, session.greet()).await.map_err(|_| silent("finish the greeting"))??;
    (session.link.on_event)(Event::Linked);
    let following = session.pool.map(|pool| tokio::spawn(session.link.authority.clone().follow(pool)));
    let ended = session.talk().await;
    following.inspect(|task| task.abort());
    ended
}

impl Session<'_> {
    /// Challenge, hello, welcome.
    async fn greet(&mut self) -> Result<(), LinkError> {
        let (pool, nonce) = match self.wire.receive().await? {
            ToAgent::Challenge { version, pool, nonce } => {
                check_version(version)?;
                (pool, nonce)
            }
            ToAgent::Refused { reason, detail } => return Err(LinkError::Refused { reason, detail }),
            other => return Err(unexpected("before the challenge", &other)),
        };
        self.check_pool(pool)?;
        self.link.authority.prepare(&self.link.book, pool).await;
        let hello = self.hello(&pool, nonce)?;
        let asked = (hello.hello.spec.node, hello.hello.challenge);
        self.wire.send(&ToController::Hello(Box::new(hello))).await?;
        match self.wire.receive().await? {
            ToAgent::Welcome { token, signed, head } => {
                self.link.authority.welcomed(&self.link.book, pool, asked, &signed).await?;
                self.pool = Some(pool);
                if let Some(head) = head {
                    self.link.authority.see(&self.link.book, pool, head)?;
                }
                let last_seq = signed.welcome.last_seq;
                if last_seq > MOST_SEQ {
                    return Err(LinkError::Nonsense(format!("a welcome that knows a report {last_seq}")));
                }
                self.link.book.outbox().acknowledge(last_seq).map_err(crate::book::BookError::from)?;
                self.sent = last_seq;
                self.link.logs.rewind();
                self.link.token.send_replace(Some(token));
                Ok(())
            }
            ToAgent::Refused { reason, detail } => Err(LinkError::Refused { reason, detail }),
            other => Err(unexpected("instead of a welcome", &other)),
        }
    }

    fn check_pool(&self, pool: PoolId) -> Result<(), LinkError> {
        match self.link.pool {
            Some(ours) if ours != pool.controller => Err(LinkError::WrongPool { theirs: pool.controller, ours }),
            _ => Ok(self.link.book.fits_pool(pool)?),
        }
    }

    fn hello(&self, pool: &PoolId, nonce: Hash32) -> Result<SignedHello, LinkError> {
        let book = &self.link.book;
        let seen = book.seen();
        let challenge = super::random().map_err(|error| LinkError::NoRandom(error.to_string()))?;
        let hello = Hello {
            version: LINK_VERSION,
            nonce,
            challenge,
            spec: self.link.spec.clone(),
            fence: seen.fence,
            head: seen.head,
            last_seq: book.outbox().last_seq(),
            life: self.link.life,
        };
        let signature: Signature = keys::sign(book.node_key(), pool, "hello", &hello)?;
        Ok(SignedHello { hello, signature })
    }

    async fn talk(&mut self) -> Result<(), LinkError> {
        let mut beat = interval(Duration::from_millis(HEARTBEAT_MS));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reports = self.link.book.outbox().watch();
        let logs = self.link.logs.clone();
        self.state_seal_key().await?;
        self.send_reports().await?;
        loop {
            tokio::select! {
                _ = beat.tick() => self.beat().await?,
                message = self.wire.receive() => self.obey(message?).await?,
                changed = reports.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    self.send_reports().await?;
                }
                () = logs.changed() => {
                    self.send_logs().await?;
                }
                message = self.link.outbound.recv() => match message {
                    Some(message) => self.wire.send(&message).await?,
                    None => return Ok(()),
                },
            }
        }
    }

    async fn beat(&mut self) -> Result<(), LinkError> {
        let silence = self.wire.heard.elapsed();
        if silence >= SILENCE {
            return Err(LinkError::Silent { what: "say anything", after: SILENCE });
        }
        // A controller with nothing to say answers this.
        if silence >= SILENCE / 4 {
            self.wire.write(Message::Ping(Bytes::new())).await?;
        }
        self.state_seal_key().await?;
        self.link.logs.retry();
        self.send_logs().await?;
        let last_seq = self.link.book.outbox().last_seq();
        self.wire.send(&ToController::Heartbeat { last_seq }).await
    }

    /// States to which key secrets are sealed, if it is another than the last.
    async fn state_seal_key(&mut self) -> Result<(), LinkError> {
        let Some(pool) = self.pool else { return Ok(()) };
        let book = &self.link.book;
        let (key, made_ms) = book.seal_keys().today()?;
        if self.stated.replace(key) == Some(key) {
            return Ok(());
        }
        let key = SealKey { node: self.link.spec.node, key, made_ms };
        let signature = keys::sign(book.node_key(), &pool, SealKey::KIND, &key)?;
        self.wire.send(&ToController::SealKey(SignedSealKey { key, signature })).await
    }

    async fn obey(&mut self, message: ToAgent) -> Result<(), LinkError> {
        match message {
            ToAgent::Desired(signed) => {
                let pool = self.pool.ok_or_else(|| LinkError::Nonsense("a desired state before its welcome".into()))?;
                let Link { authority, book, spec, .. } = &*self.link;
                let desired = authority.desired(book, pool, spec.node, signed).await?;
                book.admit(&desired)?;
                self.pass(Inbound::Desired(desired)).await
            }
            ToAgent::Ack { seq } => {
                // Nobody signs it, and what it covers is forgotten: it covers nothing that was not made.
                let last = self.link.book.outbox().last_seq();
                if seq > last {
                    let what = format!("an acknowledgement of report {seq}, where {last} is the newest");
                    return Err(LinkError::Nonsense(what));
                }
                Ok(self.link.book.outbox().acknowledge(seq).map_err(crate::book::BookError::from)?)
            }
            ToAgent::LinesKept { lease, attempt, member, next, again } => {
                let key = MemberKey { lease, attempt, member };
                if again {
                    // What was sent behind it gets no answer.
                    self.unanswered = 0;
                    self.link.logs.refused(key, next);
                } else {
                    self.unanswered = self.unanswered.saturating_sub(1);
                    self.link.logs.acknowledge(key, next);
                }
                Ok(())
            }
            ToAgent::Echo { nonce } => self.wire.send(&ToController::Echo { nonce }).await,
            ToAgent::Head(head) => match self.pool {
                Some(pool) => self.link.authority.see(&self.link.book, pool, head),
                None => Ok(()),
            },
            ToAgent::Token(token) => {
                self.link.token.send_replace(Some(token));
                Ok(())
            }
            ToAgent::Voucher(voucher) => self.pass(Inbound::Voucher(voucher)).await,
            ToAgent::OutputsHeard { lease, attempt, member, state } => {
                self.pass(Inbound::OutputsHeard(MemberKey { lease, attempt, member }, state)).await
            }
            ToAgent::Secrets { lease, attempt, member, sealed } => {
                self.pass(Inbound::Secrets(MemberKey { lease, attempt, member }, sealed)).await
            }
            ToAgent::Refused { reason, detail } => Err(LinkError::Refused { reason, detail }),
            other @ (ToAgent::Challenge { .. } | ToAgent::Welcome { .. }) => {
                Err(unexpected("in the middle of a link", &other))
            }
        }
    }

    async fn pass(&self, inbound: Inbound) -> Result<(), LinkError> {
        // The agent takes these at once; if it is gone, `stop` ends this link next.
        let _ = self.link.inbound.send(inbound).await;
        Ok(())
    }

    /// Sends what the log may not have yet. Log lines go first, so that a member's last line is mostly there before its
    /// end.
    async fn send_reports(&mut self) -> Result<(), LinkError> {
        for (seq, messages) in self.link.book.outbox().after(self.sent) {
            self.send_logs().await?;
            for message in &messages {
                self.wire.send(message).await?;
            }
            self.sent = seq;
        }
        Ok(())
    }

    /// Sends as many log chunks as the window has room for. An answer makes room, and wakes the link if there are more.
    async fn send_logs(&mut self) -> Result<(), LinkError> {
        let room = WINDOW.saturating_sub(self.unanswered);
        if room == 0 {
            return Ok(());
        }
        for chunk in self.link.logs.take(room) {
            // Parts of a long record are answered together.
            self.unanswered += usize::from(!chunk.more);
            self.wire.send(&ToController::Logs(chunk)).await?;
        }
        Ok(())
    }
}

/// Messages over a socket.
struct Wire {
    sink: SplitSink<Socket, Message>,
    stream: SplitStream<Socket>,
    /// What came while a message of ours was leaving.
    came: VecDeque<ToAgent>,
    /// When anything came last.
    heard: Instant,
}

impl Wire {
    async fn send(&mut self, message: &ToController) -> Result<(), LinkError> {
        let bytes = borsh::to_vec(message)
            .map_err(|error| LinkError::Nonsense(format!("nothing; ours cannot be encoded: {error}")))?;
        self.write(Message::Binary(bytes.into())).await
    }

    /// Reads while it waits: a controller that answers every message must never wait for us while we wait for it.
    async fn write(&mut self, message: Message) -> Result<(), LinkError> {
        let sending = timeout(SEND, self.sink.send(message));
        tokio::pin!(sending);
        loop {
            tokio::select! {
                biased;
                sent = &mut sending => {
                    let sent = sent.map_err(|_| LinkError::Silent { what: "take a message", after: SEND })?;
                    return sent.map_err(|error| LinkError::Broken(Box::new(error)));
                }
                frame = self.stream.next() => {
                    self.heard = Instant::now();
                    self.came.extend(message_in(frame)?);
                }
            }
        }
    }

    /// The next message. Nothing is lost if this is dropped while it waits.
    async fn receive(&mut self) -> Result<ToAgent, LinkError> {
        loop {
            if let Some(message) = self.came.pop_front() {
                return Ok(message);
            }
            let frame = self.stream.next().await;
            self.heard = Instant::now();
            self.came.extend(message_in(frame)?);
        }
    }
}

/// A message of ours out of what the socket gave, if there is one in it.
fn message_in(
    frame: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
) -> Result<Option<ToAgent>, LinkError> {
    match frame {
        None | Some(Ok(Message::Close(_))) => Err(LinkError::Closed),
        Some(Err(error)) => Err(LinkError::Broken(Box::new(error))),
        Some(Ok(Message::Binary(bytes))) => borsh::from_slice(&bytes)
            .map(Some)
            .map_err(|error| LinkError::Nonsense(format!("{} bytes that are no message: {error}", bytes.len()))),
        Some(Ok(Message::Text(_))) => Err(LinkError::Nonsense("text".into())),
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(None),
    }
}

fn check_version(theirs: u16) -> Result<(), LinkError> {
    if theirs == LINK_VERSION {
        return Ok(());
    }
    Err(LinkError::Version { theirs, ours: LINK_VERSION })
}

fn unexpected(when: &str, message: &ToAgent) -> LinkError {
    let what = match message {
        ToAgent::Challenge { .. } => "a challenge",
        ToAgent::Welcome { .. } => "a welcome",
        ToAgent::Desired(_) => "a desired state",
        ToAgent::Ack { .. } => "an acknowledgement",
        ToAgent::Refused { .. } => "a refusal",
        ToAgent::Voucher(_) => "a voucher",
        ToAgent::Head(_) => "a head",
        ToAgent::Token(_) => "a token",
        ToAgent::LinesKept { .. } => "an acknowledgement of log lines",
        ToAgent::Echo { .. } => "an echo",
        ToAgent::OutputsHeard { .. } => "a word on outputs",
        ToAgent::Secrets { .. } => "sealed secrets",
    };
    LinkError::Nonsense(format!("{what} {when}"))
}
