//! One link from challenge to end. One task, one socket: whatever blocks the socket blocks only this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt};
use selion_api::agent::{
    Hello, LINK_VERSION, LogChunk, Report, SILENCE_MS, SignedHello, SignedReport, ToAgent, ToController,
};
use selion_api::commit::{canonical, signing_digest};
use selion_api::{Account, Amount, LeaseId, Reason};
use selion_contracts::signer::recover_text;
use selion_market::{Answer, Input};
use tokio::time::{Instant, timeout};
use tracing::{debug, error, info, warn};

use super::core::{Claim, CoreError, read};
use super::counts::Bad;
use super::desired::{WorkCache, desired};
use super::distance::Distance;
use super::hello::{self, Refused};
use super::hub::Inner;
use super::logs::{self, Parts};
use super::outputs::{Kept, Pending};
use super::registry::{DESIRED, HEAD, Handle, Nudge, VOUCHERS};
use crate::sequencer::SubmitError;

/// How long an agent may take to answer the challenge.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// How long one message may take to leave.
const SEND_WITHIN: Duration = Duration::from_millis(SILENCE_MS);
/// Reports on their way into the log, per link; then the agent has to wait.
const MAX_IN_FLIGHT: usize = 256;

/// Why a link ended.
#[derive(Debug)]
enum End {
    /// The agent is to be told why.
    Refused(Refused),
    /// The socket closed, failed or was too slow; or the controller lets it go.
    Closed(String),
}

impl End {
    fn why(&self) -> &str {
        match self {
            Self::Refused(refused) => &refused.detail,
            Self::Closed(why) => why,
        }
    }
}

impl From<CoreError> for End {
    fn from(error: CoreError) -> Self {
        Self::Closed(error.to_string())
    }
}

impl From<SubmitError> for End {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Fenced(_) => Self::Refused(Refused::new(Reason::StaleFence, error.to_string())),
            SubmitError::Unavailable(_) | SubmitError::Stopped => Self::Closed(error.to_string()),
        }
    }
}

/// Messages over a socket.
struct Wire(WebSocket);

impl Wire {
    async fn send(&mut self, message: &ToAgent) -> Result<(), End> {
        let frame = Message::Binary(canonical(message).into());
        match timeout(SEND_WITHIN, self.0.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(End::Closed(error.to_string())),
            Err(_) => Err(End::Closed("the agent does not read".into())),
        }
    }

    /// The next message; `None` for a frame that only shows that the agent is there.
    async fn next(&mut self) -> Result<Option<ToController>, End> {
        let frame = self.0.recv().await;
        match frame {
            None | Some(Ok(Message::Close(_))) => Err(End::Closed("the agent closed it".into())),
            Some(Err(error)) => Err(End::Closed(error.to_string())),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
            Some(Ok(Message::Text(_))) => Err(malformed("a text frame")),
            Some(Ok(Message::Binary(bytes))) => {
                borsh::from_slice(&bytes).map(Some).map_err(|_| malformed("bytes that are no message of this version"))
            }
        }
    }
}

fn malformed(what: &str) -> End {
    End::Refused(Refused::new(Reason::BadRequest, format!("the agent sent {what}; run the same release on both sides")))
}

/// Runs a link to its end.
pub(super) async fn run(inner: Arc<Inner>, socket: WebSocket) {
    let mut wire = Wire(socket);
    let welcomed = match greet(&inner, &mut wire).await {
        Ok(hello) => enter(&inner, hello).await,
        Err(end) => Err(end),
    };
    match welcomed {
        Ok((handle, last_seq)) => {
            let mut session = Session {
                inner: &inner,
                handle: &handle,
                wire,
                works: WorkCache::default(),
                pending: Pending::default(),
                acks: FuturesOrdered::new(),
                entered: last_seq,
                head: 0,
                vouchers: BTreeMap::new(),
                unkept: BTreeMap::new(),
                talking: BTreeSet::new(),
                parts: Parts::default(),
                token_at: Instant::now(),
                distance: Distance::new(Instant::now()),
                measuring: None,
            };
            let end = match session.serve(last_seq).await {
                Err(end) => end,
                Ok(never) => match never {},
            };
            inner.registry.leave(&handle, Instant::now());
            for (lease, member) in std::mem::take(&mut session.talking) {
                inner.logs.abandon(lease, member);
            }
            info!(node = %handle.node, why = end.why(), "link ended");
            session.wire.farewell(end).await;
        }
        Err(end) => {
            if matches!(end, End::Refused(_)) {
                inner.counts.bad(Bad::Hello);
            }
            warn!(why = end.why(), "no link");
            wire.farewell(end).await;
        }
    }
}

impl Wire {
    /// Tells why, where there is something to tell, and closes.
    async fn farewell(&mut self, end: End) {
        if let End::Refused(Refused { reason, detail }) = end {
            // An agent that is gone cannot be told.
            drop(self.send(&ToAgent::Refused { reason, detail }).await);
        }
        drop(timeout(SEND_WITHIN, self.0.send(Message::Close(None))).await);
    }
}

/// Challenge and hello: everything that is judged before the log hears of the node.
async fn greet(inner: &Inner, wire: &mut Wire) -> Result<Hello, End> {
    let nonce = inner.core.nonce()?;
    wire.send(&ToAgent::Challenge { version: LINK_VERSION, pool: inner.pool, nonce }).await?;
    let first = timeout(HELLO_WITHIN, first_message(wire)).await;
    let said = match first {
        Ok(Ok(ToController::Hello(said))) => *said,
        Ok(Ok(_)) => return Err(malformed("another message before its hello")),
        Ok(Err(end)) => return Err(end),
        Err(_) => return Err(End::Closed("no hello came".into())),
    };
    hello::check_words(&inner.pool, &nonce, &said).map_err(End::Refused)?;
    let SignedHello { hello: said, .. } = said;
    read(inner.core.as_ref(), |state| hello::check_standing(state, &said)).unwrap_or(Ok(())).map_err(End::Refused)?;
    check_promises(inner, &said).await?;
    Ok(said)
}

async fn first_message(wire: &mut Wire) -> Result<ToController, End> {
    loop {
        if let Some(message) = wire.next().await? {
            return Ok(message);
        }
    }
}

/// What the agent was promised before: a fence not above ours, a log that ours extends.
async fn check_promises(inner: &Inner, said: &Hello) -> Result<(), End> {
    let core = inner.core.as_ref();
    if let Some(head) = &said.head {
        let ours = core.root_at(head.head.size).await?;
        let signed = read(core, |state| hello::head_is_signed(state, &inner.pool, head));
        hello::check_head(said.spec.node, head, ours, signed == Some(true)).map_err(|(refused, claim)| {
            error!(node = %said.spec.node, proof = claim.is_some(), "{}", refused.detail);
            if let Some(claim) = claim {
                core.contradicted(*claim);
            }
            End::Refused(refused)
        })?;
    }
    hello::check_fence(core.position().fence, said).map_err(|(refused, claim)| {
        error!(node = %said.spec.node, "{}", refused.detail);
        core.contradicted(*claim);
        End::Refused(refused)
    })
}

/// Enters `Linked` and makes this the node's link. Returns it with the number of the last report in the log.
async fn enter(inner: &Inner, said: Hello) -> Result<(Arc<Handle>, u64), End> {
    let (node, provider) = (said.spec.node, said.spec.provider);
    let gate = inner.registry.gate(node);
    let held = gate.lock().await;
    let linked = Input::Linked { spec: said.spec, last_seq: said.last_seq };
    let step = inner.core.submit(linked).await?;
    if let Answer::Refused(refusal) = step.answer() {
        return Err(End::Refused(Refused::new(refusal.reason, refusal.reason.text())));
    }
    let last_seq = read(inner.core.as_ref(), |state| state.nodes.get(&node).map_or(0, |node| node.last_seq));
    let handle = Handle::new(node, provider, Instant::now());
    if let Some(old) = inner.registry.enter(&handle) {
        info!(%node, "a newer link replaces the node's link");
        old.close(None);
    }
    drop(held);
    inner.counts.linked();
    Ok((handle, last_seq.unwrap_or(0)))
}

/// What came of it; never, if nothing is on its way.
async fn finished(measuring: &mut Option<BoxFuture<'_, bool>>) -> bool {
    match measuring {
        Some(entering) => entering.await,
        None => std::future::pending().await,
    }
}

/// A link whose hello was accepted.
struct Session<'a> {
    inner: &'a Inner,
    handle: &'a Arc<Handle>,
    wire: Wire,
    works: WorkCache,
    pending: Pending,
    /// Reports on their way into the log, in order; each resolves to its number after its commit.
    acks: FuturesOrdered<BoxFuture<'a, Result<u64, SubmitError>>>,
    /// Highest number that was entered, or is on its way.
    entered: u64,
    /// Size of the newest head sent.
    head: u64,
    /// Vouchers sent on this link, by renter.
    vouchers: BTreeMap<Account, Amount>,
    /// Members whose lines could not be written, from which number on.
    unkept: BTreeMap<(LeaseId, u32, u16), u64>,
    /// Members that printed something, and may print more.
    talking: BTreeSet<(LeaseId, u16)>,
    parts: Parts,
    token_at: Instant,
    distance: Distance,
    /// A measure on its way into the log.
    measuring: Option<BoxFuture<'a, bool>>,
}

impl Session<'_> {
    async fn serve(&mut self, last_seq: u64) -> Result<std::convert::Infallible, End> {
        let token = self.fresh_token()?;
        let head = self.inner.core.position().head;
        self.head = head.map_or(0, |head| head.head.size);
        self.wire.send(&ToAgent::Welcome { token, last_seq, head }).await?;
        self.look(DESIRED | VOUCHERS).await?;
        loop {
            tokio::select! {
                message = self.wire.next(), if self.acks.len() < MAX_IN_FLIGHT => {
                    let message = message.inspect_err(|end| self.count_malformed(end))?;
                    self.handle.saw(Instant::now());
                    if let Some(message) = message {
                        self.hear(message).await?;
                    }
                }
                Some(done) = self.acks.next(), if !self.acks.is_empty() => self.acknowledge(done).await?,
                nudge = self.handle.nudged() => match nudge {
                    Nudge::Look(due) => self.look(due).await?,
                    Nudge::Close(Some((reason, detail))) => {
                        return Err(End::Refused(Refused { reason, detail }));
                    }
                    Nudge::Close(None) => return Err(End::Closed("let go".into())),
                },
                () = tokio::time::sleep_until(self.distance.due) => {
                    let nonce = self.inner.core.nonce()?;
                    self.distance.ask(nonce, Instant::now());
                    self.wire.send(&ToAgent::Echo { nonce }).await?;
                }
                entered = finished(&mut self.measuring) => {
                    self.measuring = None;
                    if !entered {
                        self.distance.not_entered();
                    }
                }
                () = tokio::time::sleep_until(self.token_at) => {
                    let token = self.fresh_token()?;
                    self.wire.send(&ToAgent::Token(token)).await?;
                }
            }
        }
    }

    fn count_malformed(&self, end: &End) {
        if matches!(end, End::Refused(_)) {
            self.inner.counts.bad(Bad::Malformed);
        }
    }

    /// A token, renewed when half its time is over.
    fn fresh_token(&mut self) -> Result<String, End> {
        let token = self.inner.core.token(self.handle.node)?;
        self.token_at = Instant::now() + token.good_for / 2;
        Ok(token.text)
    }

    async fn hear(&mut self, message: ToController) -> Result<(), End> {
        let core = self.inner.core.as_ref();
        match message {
            ToController::Hello(_) => {
                self.inner.counts.bad(Bad::Malformed);
                Err(malformed("a second hello"))
            }
            ToController::Heartbeat { .. } => Ok(()),
            ToController::Echo { nonce } => {
                // While one is on its way, the next waits for the answer after it.
                if self.measuring.is_none()
                    && let Some(rtt_us) = self.distance.answer(nonce, Instant::now())
                {
                    let node = self.handle.node;
                    let entering = async move { core.submit(Input::Measured { node, rtt_us }).await.is_ok() };
                    self.measuring = Some(entering.boxed());
                }
                Ok(())
            }
            ToController::Report(report) => self.report(report).await,
            ToController::Logs(chunk) => self.keep_records(chunk).await,
            ToController::Outputs(outputs) => {
                let kept = self.pending.told(core, self.handle.node, outputs).await;
                self.count_outputs(kept);
                Ok(())
            }
            ToController::VoucherStored { renter, cumulative } => {
                let provider = self.handle.provider;
                core.voucher_stored(renter, provider, cumulative).await?;
                Ok(())
            }
        }
    }

    /// Starts a report on its way into the log, without waiting for the one before.
    async fn report(&mut self, signed: SignedReport) -> Result<(), End> {
        let report = &signed.report;
        if let Err((cause, refused)) = self.judge(&signed) {
            self.inner.counts.bad(cause);
            warn!(node = %self.handle.node, detail = refused.detail, "report refused");
            return Err(End::Refused(refused));
        }
        let seq = report.seq;
        if seq > self.entered.saturating_add(1) {
            self.inner.counts.bad(Bad::Malformed);
            let detail =
                format!("report {seq} came after report {}: connect again and send what is missing", self.entered);
            return Err(End::Refused(Refused::new(Reason::StaleReport, detail)));
        }
        if seq <= self.entered {
            // The log has it, or will before the ones after it are acknowledged.
            self.acks.push_back(async move { Ok(seq) }.boxed());
            return Ok(());
        }
        let kept = self.pending.reported(self.inner.core.as_ref(), report).await;
        if let Some(kept) = kept {
            self.count_outputs(kept);
        }
        self.entered = seq;
        let (core, node) = (self.inner.core.as_ref(), self.handle.node);
        let entering = async move {
            let step = core.submit(Input::Report(signed)).await?;
            debug!(entry = step.seq, seq, "report entered");
            let heard = read(core, |state| state.nodes.get(&node).map_or(0, |node| node.last_seq));
            if heard.unwrap_or(0) < seq {
                let why = "a report before it could not be written".to_owned();
                return Err(SubmitError::Unavailable(why));
            }
            Ok(seq)
        };
        self.acks.push_back(entering.boxed());
        Ok(())
    }

    /// Is it the node's own statement, under a fence not above ours?
    fn judge(&self, signed: &SignedReport) -> Result<(), (Bad, Refused)> {
        let SignedReport { report, signature } = signed;
        let node = self.handle.node;
        let refuse = |cause, reason, detail| Err((cause, Refused::new(reason, detail)));
        if report.node != node {
            let detail = format!("a report of node {} on the link of {node}", report.node);
            return refuse(Bad::WrongNode, Reason::NotAssigned, detail);
        }
        let digest = signing_digest(&self.inner.pool, "report", report);
        match recover_text(&digest.0, signature) {
            Some(who) if who.0 == node.0 => {}
            Some(who) => {
                let detail = format!("report {} is signed by {who}, not by {node}", report.seq);
                return refuse(Bad::ForeignSignature, Reason::BadRequest, detail);
            }
            None => {
                let detail = format!("report {} is not signed", report.seq);
                return refuse(Bad::Unsigned, Reason::BadRequest, detail);
            }
        }
        self.check_fence(report)
    }

    fn check_fence(&self, report: &Report) -> Result<(), (Bad, Refused)> {
        let ours = self.inner.core.position().fence;
        if report.fence <= ours {
            return Ok(());
        }
        self.inner.core.contradicted(Claim::HigherFence { node: report.node, fence: report.fence });
        let detail = format!(
            "report {} was made under epoch {} term {}, this controller has epoch {} term {}",
            report.seq, report.fence.epoch, report.fence.term, ours.epoch, ours.term
        );
        Err((Bad::Malformed, Refused::new(Reason::StaleFence, detail)))
    }

    /// Acknowledges a report, and those after it whose commit is known already, with one message.
    async fn acknowledge(&mut self, done: Result<u64, SubmitError>) -> Result<(), End> {
        let mut seq = done?;
        let mut failed = None;
        while let Some(Some(next)) = self.acks.next().now_or_never() {
            match next {
                Ok(next) => seq = seq.max(next),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.wire.send(&ToAgent::Ack { seq }).await?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Keeps a chunk and says so; the agent has its records until then.
    async fn keep_records(&mut self, chunk: LogChunk) -> Result<(), End> {
        let LogChunk { lease, attempt, member, first, .. } = chunk;
        let key = (lease, attempt, member);
        if self.unkept.get(&key).is_some_and(|missing| first > *missing) {
            // It was sent before the agent knew; it comes again after what is missing.
            return Ok(());
        }
        let Some(chunk) = self.parts.join(chunk).map_err(malformed)? else { return Ok(()) };
        let kept = match self.renter_of(&chunk) {
            Some(renter) => {
                self.note_talking(&chunk);
                self.inner.logs.append(renter, &chunk)
            }
            None => {
                self.inner.counts.bad(Bad::ForeignLogs);
                warn!(node = %self.handle.node, %lease, "log records of a member that the node does not hold");
                Ok(logs::end(&chunk))
            }
        };
        let (next, again) = match kept {
            Ok(next) => {
                self.unkept.remove(&key);
                (next, false)
            }
            Err(error) => {
                if self.unkept.insert(key, chunk.first).is_none() {
                    error!(%lease, %error, "log records cannot be kept; the agent sends them until they can");
                }
                (chunk.first, true)
            }
        };
        self.wire.send(&ToAgent::LinesKept { lease, attempt, member, next, again }).await
    }

    fn note_talking(&mut self, chunk: &LogChunk) {
        let who = (chunk.lease, chunk.member);
        if chunk.end {
            self.talking.remove(&who);
        } else {
            self.talking.insert(who);
        }
    }

    /// Whose lease it is, if the node holds the member in its present run.
    fn renter_of(&self, chunk: &LogChunk) -> Option<Account> {
        let node = self.handle.node;
        let held = read(self.inner.core.as_ref(), |state| {
            let lease = state.leases.get(&chunk.lease)?;
            let member = lease.members.get(usize::from(chunk.member))?;
            (member.node == node && member.attempt == chunk.attempt).then_some(lease.request.renter)
        });
        held.flatten()
    }

    fn count_outputs(&self, kept: Kept) {
        if kept == Kept::Foreign {
            self.inner.counts.bad(Bad::ForeignOutputs);
            warn!(node = %self.handle.node, "a CID of outputs does not match the node's report");
        }
    }

    /// Sends what is due.
    async fn look(&mut self, due: u8) -> Result<(), End> {
        let core = self.inner.core.as_ref();
        if due & DESIRED != 0
            && let Some(all) = desired(core, self.handle.node, &mut self.works).await?
        {
            self.wire.send(&ToAgent::Desired(all)).await?;
        }
        if due & VOUCHERS != 0 {
            for voucher in core.vouchers(self.handle.provider).await? {
                let sent = self.vouchers.insert(voucher.renter, voucher.cumulative);
                if sent != Some(voucher.cumulative) {
                    self.wire.send(&ToAgent::Voucher(voucher)).await?;
                }
            }
        }
        if due & HEAD != 0
            && let Some(head) = core.position().head.filter(|it| it.head.size > self.head)
        {
            self.head = head.head.size;
            self.wire.send(&ToAgent::Head(head)).await?;
        }
        Ok(())
    }
}
