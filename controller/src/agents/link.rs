//! One link from challenge to end. One task, one socket: whatever blocks the socket blocks only this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::WebSocket;
use futures::FutureExt;
use futures::future::BoxFuture;
use selion_api::agent::{
    Hello, LINK_VERSION, LogChunk, Outputs, Report, SignedHello, SignedReport, SignedWelcome, ToAgent, ToController,
    Welcome,
};
use selion_api::commit::signing_digest;
use selion_api::lease::MAX_GPUS;
use selion_api::outputs::OutputState;
use selion_api::{Account, Amount, LeaseId, NodeId, Reason};
use selion_contracts::signer::recover_text;
use selion_market::{Answer, Input};
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};

use super::core::{Claim, read};
use super::counts::Bad;
use super::desired::{WorkCache, desired};
use super::distance::Distance;
use super::hello::{self, Refused};
use super::hub::Inner;
use super::logs::{self, Parts};
use super::outputs::{self, Heard};
use super::pace::{Arrivals, Pace};
use super::registry::{DESIRED, HEAD, Handle, Nudge, SECRETS, VOUCHERS};
use super::reports::Reports;
use super::sealed::{self, Waits};
use super::wire::{Came, End, Wire, malformed};

/// How long an agent may take to answer the challenge.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Runs a link to its end.
pub(super) async fn run(inner: Arc<Inner>, socket: WebSocket) {
    let mut wire = Wire(socket);
    let welcomed = match greet(&inner, &mut wire).await {
        Ok(signed) => {
            inner.roll.answer(signed.hello.spec.node).await;
            enter(&inner, signed).await
        }
        Err(end) => Err(end),
    };
    match welcomed {
        Ok((handle, welcome)) => {
            let last_seq = welcome.last_seq;
            let rtt_us = read(inner.core.as_ref(), |state| state.nodes.get(&handle.node).and_then(|node| node.rtt_us));
            let mut session = Session {
                inner: &inner,
                handle: &handle,
                wire,
                works: WorkCache::default(),
                waits: Vec::new(),
                reports: Reports::new(inner.core.as_ref(), last_seq),
                pace: Pace::new(Instant::now()),
                head: 0,
                vouchers: BTreeMap::new(),
                unkept: BTreeMap::new(),
                talking: BTreeSet::new(),
                parts: Parts::default(),
                token_at: Instant::now(),
                distance: Distance::new(Instant::now(), rtt_us),
                measuring: None,
            };
            let end = match session.serve(welcome).await {
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

/// What the elder of two agents of one node is told.
const TWO_AGENTS: &str = "another agent with this node's key has linked: end one of the two, and never run a copy of a state \
                          directory";

/// Challenge and hello: everything that is judged before the log hears of the node.
async fn greet(inner: &Inner, wire: &mut Wire) -> Result<SignedHello, End> {
    let nonce = inner.core.nonce()?;
    wire.send(&ToAgent::Challenge { version: LINK_VERSION, pool: inner.pool, nonce }).await?;
    let first = timeout(HELLO_WITHIN, first_message(wire)).await;
    let signed = match first {
        Ok(Ok(ToController::Hello(signed))) => *signed,
        Ok(Ok(_)) => return Err(malformed("another message before its hello")),
        Ok(Err(end)) => return Err(end),
        Err(_) => return Err(End::Closed("no hello came".into())),
    };
    hello::check_words(&inner.pool, &nonce, &signed).map_err(End::Refused)?;
    let said = &signed.hello;
    if inner.roll.is_called() {
        // A restored backup may not know the node: a head that the authority signed proves itself, whoever holds it.
        check_promises(inner, said).await?;
    }
    read(inner.core.as_ref(), |state| hello::check_standing(state, said)).map_err(End::Refused)?;
    check_pace(inner, said.spec.node, |arrivals, now| arrivals.hellos.try_take(now))?;
    check_promises(inner, said).await?;
    Ok(signed)
}

/// Refuses a node that connects too often. Called after signature and standing were checked: nobody else uses up its
/// allowance, and no stranger makes a record.
fn check_pace(
    inner: &Inner,
    node: NodeId,
    take: impl FnOnce(&mut Arrivals, Instant) -> Result<(), Duration>,
) -> Result<(), End> {
    let now = Instant::now();
    inner.registry.arrive(node, now, |arrivals| take(arrivals, now)).map_err(|wait| {
        inner.counts.bad(Bad::TooOften);
        let detail = format!("node {node} connects too often: try again in {} ms", wait.as_millis());
        End::Refused(Refused::new(Reason::NodeNotSchedulable, detail))
    })
}

async fn first_message(wire: &mut Wire) -> Result<ToController, End> {
    loop {
        if let Some(message) = wire.next().await?.message {
            return Ok(message);
        }
    }
}

/// What the agent was promised before: a fence not above ours, a log that ours extends.
async fn check_promises(inner: &Inner, said: &Hello) -> Result<(), End> {
    let core = inner.core.as_ref();
    // A later epoch answers to the anchor that it began with, not to what was signed in an earlier one beyond that.
    if let Some(head) = said.head.as_ref().filter(|head| head.head.fence.epoch >= core.position().fence.epoch) {
        let ours = core.root_at(head.head.size).await?;
        let signed = read(core, |state| hello::head_is_signed(state, &inner.pool, head));
        hello::check_head(said.spec.node, head, ours, signed).map_err(|(refused, claim)| {
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

/// Enters `Linked`, if the log does not have just this link as up, and makes this the node's link. Returns it with what
/// the agent is to be told.
async fn enter(inner: &Inner, signed: SignedHello) -> Result<(Arc<Handle>, Welcome), End> {
    let said = &signed.hello;
    let (node, provider, challenge, life) = (said.spec.node, said.spec.provider, said.challenge, said.life);
    let gate = inner.registry.gate(node);
    let held = gate.lock().await;
    let has_link = read(inner.core.as_ref(), |state| state.has_link(&said.spec, said.last_seq));
    if !has_link {
        check_pace(inner, node, |arrivals, now| arrivals.links.try_take(now))?;
        let step = inner.core.submit(Input::Linked(Box::new(signed))).await?;
        if let Answer::Refused(refusal) = step.answer() {
            return Err(End::Refused(Refused::new(refusal.reason, refusal.reason.text())));
        }
    }
    let last_seq = read(inner.core.as_ref(), |state| state.nodes.get(&node).map_or(0, |node| node.last_seq));
    let handle = Handle::new(node, provider, Instant::now());
    let is_another = inner.registry.was_another_life(node, life);
    if let Some(old) = inner.registry.enter(&handle, life) {
        let why = is_another.then(|| (Reason::NodeNotSchedulable, TWO_AGENTS.to_owned()));
        info!(%node, why = why.as_ref().map(|(_, why)| why), "a newer link replaces the node's link");
        old.close(why);
    }
    drop(held);
    inner.counts.linked();
    let fence = inner.core.position().fence;
    Ok((handle, Welcome { node, challenge, fence, last_seq }))
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
    /// Members of the desired state as it was sent that wait for secrets.
    waits: Vec<Waits>,
    reports: Reports<'a>,
    pace: Pace,
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
    async fn serve(&mut self, welcome: Welcome) -> Result<std::convert::Infallible, End> {
        let token = self.fresh_token()?;
        let head = self.inner.core.position().head;
        self.head = head.map_or(0, |head| head.head.size);
        let signature = self.inner.core.sign(&welcome.digest_to_sign(&self.inner.pool));
        let signed = SignedWelcome { welcome, signature };
        self.wire.send(&ToAgent::Welcome { token, signed, head }).await?;
        self.look(DESIRED | VOUCHERS).await?;
        loop {
            let now = Instant::now();
            let free_at = self.pace.free_at(now);
            tokio::select! {
                came = self.wire.next(), if free_at <= now && self.reports.has_room() => {
                    let Came { message, bytes } = came.inspect_err(|end| self.count_malformed(end))?;
                    let now = Instant::now();
                    self.handle.saw(now);
                    self.pace.read(bytes, now);
                    if let Some(message) = message {
                        self.hear(message).await?;
                    }
                }
                () = tokio::time::sleep_until(free_at), if free_at > now => {}
                upto = self.reports.entered() => {
                    let seq = upto?;
                    self.wire.send(&ToAgent::Ack { seq }).await?;
                }
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
            ToController::SealKey(signed) => {
                if !sealed::is_stated_by(&self.inner.pool, self.handle.node, &signed) {
                    self.inner.counts.bad(Bad::Malformed);
                    return Err(malformed("a sealing key that the node did not sign"));
                }
                self.handle.seal_to(signed);
                Ok(())
            }
            ToController::Logs(chunk) => self.keep_records(chunk).await,
            ToController::Usage(told) => {
                read(core, |state| self.inner.readings.take(state, self.handle.node, &told));
                Ok(())
            }
            ToController::Outputs(said) => self.hear_of_outputs(&said).await,
            ToController::VoucherStored { renter, cumulative } => {
                let provider = self.handle.provider;
                if let Err(error) = core.voucher_stored(renter, provider, cumulative).await {
                    // It is sent again with the next link, and stored again.
                    warn!(node = %self.handle.node, %error, "a voucher's delivery could not be noted");
                }
                Ok(())
            }
        }
    }

    /// Takes a report that is the node's own.
    async fn report(&mut self, signed: SignedReport) -> Result<(), End> {
        if let Err((cause, refused)) = self.judge(&signed) {
            self.inner.counts.bad(cause);
            warn!(node = %self.handle.node, detail = refused.detail, "report refused");
            return Err(End::Refused(refused));
        }
        if !self.reports.is_old(&signed.report) {
            if let Some(heard) = outputs::reported(self.inner.core.as_ref(), &signed.report).await {
                self.count_outputs(heard);
            }
            if let Some(cause) = self.reports.take(signed, Instant::now()) {
                self.inner.counts.bad(cause);
            }
        }
        match self.reports.settled() {
            Some(seq) => self.wire.send(&ToAgent::Ack { seq }).await,
            None => Ok(()),
        }
    }

    /// Is it the node's own statement, under a fence not above ours?
    fn judge(&self, signed: &SignedReport) -> Result<(), (Bad, Refused)> {
        let SignedReport { report, signature } = signed;
        let node = self.handle.node;
        let refuse = |cause, reason, detail| Err((cause, Refused::new(reason, detail)));
        if report.gpus.len() > usize::from(MAX_GPUS) {
            let detail = format!("a report of {} GPUs, where {MAX_GPUS} are the most", report.gpus.len());
            return refuse(Bad::Malformed, Reason::BadRequest, detail);
        }
        if report.node != node {
            let detail = format!("a report of node {} on the link of {node}", report.node);
            return refuse(Bad::WrongNode, Reason::NotAssigned, detail);
        }
        if report.provider != self.handle.provider {
            let (said, known) = (report.provider, self.handle.provider);
            let detail = format!("report {} is for provider {said}, the node is {known}'s", report.seq);
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
        read(self.inner.core.as_ref(), |state| {
            let lease = state.leases.get(&chunk.lease)?;
            let member = lease.members.get(usize::from(chunk.member))?;
            (member.node == node && member.attempt == chunk.attempt).then_some(lease.request.renter)
        })
    }

    /// Takes a word on outputs and says that it is down; who waits for it to go on from looks again.
    async fn hear_of_outputs(&mut self, said: &Outputs) -> Result<(), End> {
        let heard = outputs::told(self.inner.core.as_ref(), self.handle.node, said).await;
        self.count_outputs(heard);
        let Outputs { lease, attempt, member, mut state, .. } = *said;
        if heard == Heard::Again {
            state = OutputState::Uploading;
        }
        if state.is_final() {
            self.inner.nudge_members(lease, DESIRED);
        }
        self.wire.send(&ToAgent::OutputsHeard { lease, attempt, member, state }).await
    }

    fn count_outputs(&self, heard: Heard) {
        if heard == Heard::Foreign {
            self.inner.counts.bad(Bad::ForeignOutputs);
            warn!(node = %self.handle.node, "outputs that are not the node's to tell of, or not those of its report");
        }
    }

    /// Sends what is due.
    async fn look(&mut self, due: u8) -> Result<(), End> {
        let core = self.inner.core.as_ref();
        if due & DESIRED != 0 {
            let all = desired(core, &self.inner.pool, self.handle.node, &mut self.works).await?;
            self.waits = sealed::waiting(self.handle.node, &all.desired.assignments, &self.waits);
            self.wire.send(&ToAgent::Desired(all)).await?;
        }
        if due & (DESIRED | SECRETS) != 0 {
            for waits in &mut self.waits {
                if let Some(message) = waits.due(core, &self.inner.pool, self.handle.seal_key()).await? {
                    self.wire.send(&message).await?;
                }
            }
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
