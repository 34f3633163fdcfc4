//! The task that owns State: takes what waits, steps through it, commits, and only then lets anybody know.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use selion_api::agent::{Fence, Head, SignedHead};
use selion_api::{Hash32, LeaseId, TimeMs};
use selion_log::Entry;
use selion_market::{Answer, Effect, Input, Stamp, State, step};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::load::{self, Loaded, effect_leaves, effects_root};
use super::{Batch, Job, Parts, Private, Publishing, Step, SubmitError, View};
use crate::store::rows::Pending;
use crate::store::{called, entry, head, term, work};

/// Most jobs in one transaction.
const BATCH: usize = 256;
/// After a commit that failed, this long passes before the store is tried again by itself.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// A snapshot is written when this many entries have come since the last.
const SNAPSHOT_EVERY: u64 = 5_000;

pub(super) struct Writer {
    pub parts: Parts,
    pub fence: Fence,
    pub loaded: Loaded,
    pub view: Arc<RwLock<View>>,
    pub publishing: Publishing,
    pub batches: broadcast::Sender<Arc<Batch>>,
    /// Told why a commit failed, and when one works again.
    pub troubled: watch::Sender<Option<Arc<str>>>,
    pub stop: CancellationToken,
}

/// One entry of a batch, before it is committed.
struct Drafted {
    step: Arc<Step>,
    bytes: Vec<u8>,
    leaf: Hash32,
}

type Reply = oneshot::Sender<Result<Vec<Arc<Step>>, SubmitError>>;

impl Writer {
    pub(super) async fn run(mut self, first: Job, mut inbox: mpsc::Receiver<Job>) {
        let stop = self.stop.clone();
        let mut saved = self.loaded.state.next_seq;
        self.batch(vec![first]).await;
        loop {
            let mut jobs = Vec::new();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                count = inbox.recv_many(&mut jobs, BATCH) => if count == 0 { break },
                () = tokio::time::sleep(TRY_AGAIN), if self.is_troubled() => {
                    // Nothing but a proof that it works: what is due is entered after it.
                    let tried = self.try_store().await;
                    self.tell(tried.err());
                    continue;
                }
                () = due(self.loaded.state.next_deadline(), self.parts.clock), if !self.is_troubled() => {}
            }
            self.batch(jobs).await;
            let size = self.loaded.state.next_seq;
            if size >= saved + SNAPSHOT_EVERY {
                saved = size;
                self.snapshot().await;
            }
        }
        self.snapshot().await;
    }

    fn is_troubled(&self) -> bool {
        self.troubled.borrow().is_some()
    }

    fn tell(&self, trouble: Option<sqlx::Error>) {
        let trouble: Option<Arc<str>> = trouble.map(|error| error.to_string().into());
        self.troubled.send_if_modified(|told| {
            let changed = told.is_some() != trouble.is_some();
            *told = trouble;
            changed
        });
    }

    /// A commit of nothing, through the same journal as every other.
    async fn try_store(&self) -> sqlx::Result<()> {
        sqlx::query("update fence set term = term").execute(&self.parts.store.writer).await.map(drop)
    }

    async fn snapshot(&self) {
        if let Err(error) = load::save(&self.parts.store, &self.loaded).await {
            tracing::warn!(%error, "no snapshot was written; the next start replays more of the log");
        }
    }

    /// Steps through `jobs`, or through a tick if there are none, and commits. If the commit fails, State is built
    /// again from the store and every job is told that nothing happened.
    async fn batch(&mut self, jobs: Vec<Job>) {
        let mut drafted = Vec::new();
        let mut pending = Pending::default();
        let mut privates = Vec::new();
        let mut replies: Vec<(Reply, Vec<Arc<Step>>)> = Vec::new();
        if jobs.is_empty() {
            self.draft(Input::Tick, &mut drafted, &mut pending);
        }
        for job in jobs {
            let mut steps = Vec::with_capacity(job.inputs.len());
            for (input, private) in job.inputs {
                let first = self.draft(input, &mut drafted, &mut pending);
                // What a refused request would have run is nobody's business.
                if let (Answer::Created(id), Some(private)) = (first.answer(), private) {
                    privates.push((*id, private));
                }
                steps.push(first);
            }
            replies.push((job.reply, steps));
        }
        let publishing = self.publishing.clone().write_owned().await;
        match self.commit(&drafted, pending, &privates).await {
            Ok(head) => {
                self.tell(None);
                self.publish(&drafted, head);
                drop(publishing);
                let steps: Vec<Arc<Step>> = drafted.into_iter().map(|drafted| drafted.step).collect();
                for (reply, steps) in replies {
                    // A caller that went away is not told; what it asked for stands in the log all the same.
                    drop(reply.send(Ok(steps)));
                }
                // Nobody may be listening.
                drop(self.batches.send(Arc::new(Batch { steps, head })));
            }
            Err(error) => {
                tracing::error!(%error, "a batch was not committed; rebuilding State from the store");
                match &error {
                    // Whoever took over decides from here on; this process must not try again.
                    SubmitError::Fenced(_) => self.stop.cancel(),
                    SubmitError::Unavailable(why) => drop(self.troubled.send_replace(Some(why.as_str().into()))),
                    SubmitError::Stopped => {}
                }
                for (reply, _) in replies {
                    drop(reply.send(Err(error.clone())));
                }
                self.rebuild().await;
            }
        }
    }

    /// Applies one input, and `Continue` for as long as the step asks for more. Returns the step of the input itself.
    fn draft(&mut self, input: Input, drafted: &mut Vec<Drafted>, pending: &mut Pending) -> Arc<Step> {
        let (first, mut more) = self.draft_one(input, drafted, pending);
        while more {
            more = self.draft_one(Input::Continue, drafted, pending).1;
        }
        first
    }

    fn draft_one(&mut self, input: Input, drafted: &mut Vec<Drafted>, pending: &mut Pending) -> (Arc<Step>, bool) {
        let state = &mut self.loaded.state;
        let at_ms = state.now.max((self.parts.clock)());
        let stamp = Stamp { seq: state.next_seq, at_ms, fence: self.fence };
        let outcome = step(state, &stamp, &input);
        for effect in outcome.effects.iter().filter(|effect| matches!(effect, Effect::Illegal { .. })) {
            tracing::error!(
                seq = stamp.seq,
                ?effect,
                "a lease was to go where it may not; it stays, and this is a fault of this release"
            );
        }
        let more = outcome.more;
        let entry = Entry {
            rules: state.rules,
            seq: stamp.seq,
            fence: stamp.fence,
            at_ms,
            input: selion_api::commit::canonical(&input),
            effects_root: effects_root(&outcome),
        };
        let one = Arc::new(Step { seq: stamp.seq, at_ms, input, outcome });
        // Rules and fences that this State cannot follow are refused without a trace: they are no entry.
        if state.next_seq > stamp.seq {
            let (bytes, leaf) = (entry.bytes(), entry.leaf());
            self.loaded.tree.push(leaf);
            pending.note(&self.loaded.state, &one);
            drafted.push(Drafted { step: one.clone(), bytes, leaf });
        }
        (one, more)
    }

    async fn commit(
        &self,
        drafted: &[Drafted],
        pending: Pending,
        privates: &[(LeaseId, Private)],
    ) -> Result<SignedHead, SubmitError> {
        let unavailable = |error: sqlx::Error| SubmitError::Unavailable(error.to_string());
        let mut tx = self.parts.store.writer.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)?;
        if !term::holds(&mut tx, self.fence).await.map_err(unavailable)? {
            return Err(SubmitError::Fenced("another controller opened this store after it".into()));
        }
        for Drafted { step, bytes, leaf } in drafted {
            let effects = effect_leaves(&step.outcome);
            entry::insert(&mut tx, step.seq, bytes, leaf, &effects).await.map_err(unavailable)?;
        }
        for (id, Private::Work { commitment, salt, work, called }) in privates {
            work::put(&mut tx, &self.parts.store.at_rest, commitment, salt, work).await.map_err(unavailable)?;
            if let Some(lease) = self.loaded.state.leases.get(id) {
                called::put(&mut tx, lease.request.renter, *id, called).await.map_err(unavailable)?;
            }
        }
        let size = self.loaded.state.next_seq;
        pending.write(&mut tx, &self.loaded.state).await.map_err(unavailable)?;
        tx.commit().await.map_err(unavailable)?;
        let head = self.sign(size);
        // The entries are committed whether or not the head is kept: the next head covers them.
        let mut db = self.parts.store.writer.acquire().await.map_err(unavailable);
        if let Ok(db) = &mut db
            && let Err(error) = head::insert(db, &head).await
        {
            tracing::warn!(%error, size, "the head was not kept");
        }
        Ok(head)
    }

    fn sign(&self, size: u64) -> SignedHead {
        let state = &self.loaded.state;
        let head = Head { size, root: self.loaded.tree.root(), digest: state.digest(), fence: self.fence };
        SignedHead { signature: (self.parts.sign)(&head), head }
    }

    /// Lets readers see what was committed: the same steps, applied to the State they look at.
    fn publish(&self, drafted: &[Drafted], head: SignedHead) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        for Drafted { step, leaf, .. } in drafted {
            apply(&mut view.state, step, self.fence);
            view.levels.push(*leaf);
        }
        view.head = Some(head);
    }

    async fn rebuild(&mut self) {
        match load::load(&self.parts.store).await {
            Ok((loaded, levels)) => {
                let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
                view.state = loaded.state.clone();
                view.levels = levels;
                drop(view);
                self.loaded = loaded;
            }
            Err(error) => {
                // State may be ahead of the store, so nothing may be decided on it: the process ends, and its
                // supervisor's restart loads what is committed.
                tracing::error!(%error, "State could not be rebuilt; stopping");
                std::process::abort();
            }
        }
    }
}

fn apply(state: &mut State, one: &Step, fence: Fence) {
    step(state, &Stamp { seq: one.seq, at_ms: one.at_ms, fence }, &one.input);
}

/// Resolves when `deadline` has come; never without one.
async fn due(deadline: Option<TimeMs>, clock: fn() -> TimeMs) {
    match deadline {
        None => std::future::pending().await,
        Some(at) => tokio::time::sleep(Duration::from_millis(at.since(clock()))).await,
    }
}
