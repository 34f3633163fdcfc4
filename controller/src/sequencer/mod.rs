//! The one place where inputs become entries. A batch is committed in one transaction with its rows; only then is
//! anything answered, sent or visible to a reader.

mod copies;
mod load;
#[cfg(test)]
mod tests;
mod writer;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use selion_api::agent::{Fence, Head, SignedHead};
use selion_api::commit::{PoolId, Work};
use selion_api::rest::Called;
use selion_api::{Address, Hash32, Signature, TimeMs};
use selion_log::Levels;
use selion_market::input::RULES;
use selion_market::state::BlockRef;
use selion_market::{Answer, Input, Outcome, Policy, State};
use tokio::sync::{self, broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::store::{Store, StoreError, head, term};
use writer::Writer;

use copies::Copies;
pub use copies::StateCopy;
pub use load::{Loaded, refold};

/// Private matter that is stored in the same transaction as the entry that names it.
#[derive(Clone, Debug)]
pub enum Private {
    /// What a lease runs, by its commitment.
    Work {
        /// What the log holds.
        commitment: Hash32,
        /// The salt of the commitment.
        salt: Hash32,
        /// What to run.
        work: Work,
        /// What its account calls the lease.
        called: Called,
    },
}

/// Why an input did not enter the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubmitError {
    /// The commit failed; State was rebuilt from the store and nothing of the batch happened.
    #[error("the log could not be written ({0}); nothing was changed, try again")]
    Unavailable(String),
    /// The log is shorter than what was promised, or another controller took over.
    #[error("this controller may not decide: {0}")]
    Fenced(String),
    /// The controller is stopping.
    #[error("the controller is stopping")]
    Stopped,
}

/// One committed entry and what it did.
#[derive(Clone, Debug)]
pub struct Step {
    /// Number of the entry.
    pub seq: u64,
    /// Its time.
    pub at_ms: TimeMs,
    /// What happened.
    pub input: Input,
    /// What it did.
    pub outcome: Outcome,
}

impl Step {
    /// What the one who entered it is told.
    #[must_use]
    pub fn answer(&self) -> &Answer {
        &self.outcome.answer
    }
}

/// Entries that were committed together, with the head signed over them.
#[derive(Clone, Debug)]
pub struct Batch {
    /// In order.
    pub steps: Vec<Arc<Step>>,
    /// Signed after the commit.
    pub head: SignedHead,
}

/// What an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Last committed entry.
    pub entry: u64,
    /// Newest signed head.
    pub head: Option<SignedHead>,
    /// Last chain block in the log.
    pub block: Option<BlockRef>,
    /// The fence in force.
    pub fence: Fence,
}

/// Handle to the sequencer; cheap to clone.
#[derive(Clone)]
pub struct Sequencer {
    jobs: mpsc::Sender<Job>,
    view: Arc<RwLock<View>>,
    publishing: Publishing,
    /// Why the last commit failed; `None` while the store takes commits.
    trouble: watch::Receiver<Option<Arc<str>>>,
    batches: broadcast::Sender<Arc<Batch>>,
    copies: Copies,
    fence: Fence,
    is_open: Arc<AtomicBool>,
}

/// Held by the writer from before a commit until readers see it.
type Publishing = Arc<sync::RwLock<()>>;

/// What readers see: never more than what is committed.
struct View {
    state: State,
    head: Option<SignedHead>,
    levels: Levels,
}

/// A look at the committed State.
struct Committed<'a>(RwLockReadGuard<'a, View>);

impl Deref for Committed<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0.state
    }
}

/// What is entered together: in one commit, in this order, or not at all.
struct Job {
    inputs: Vec<(Input, Option<Private>)>,
    reply: oneshot::Sender<Result<Vec<Arc<Step>>, SubmitError>>,
}

/// What the sequencer needs from outside.
pub struct Parts {
    /// The database.
    pub store: Store,
    /// The pool.
    pub pool: PoolId,
    /// The authority's epoch on chain.
    pub epoch: u32,
    /// Key for delegated vouchers.
    pub delegate: Address,
    /// The operator's numbers.
    pub policy: Policy,
    /// Signs heads.
    pub sign: Arc<dyn Fn(&Head) -> Signature + Send + Sync>,
    /// Tells the time.
    pub clock: fn() -> TimeMs,
}

/// Why the sequencer could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store was written under a later epoch.
    #[error(
        "the log was continued under a later epoch than {0}: authority has passed on; \
         start with the key of the new authority"
    )]
    OldEpoch(u32),
    /// The first entries could not be written.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// A log that can be read, and to which nothing is added yet: what is submitted waits.
pub struct Opening {
    writer: Writer,
    inbox: mpsc::Receiver<Job>,
    first: Vec<Input>,
    is_open: Arc<AtomicBool>,
}

impl Opening {
    /// Enters `Rules` (once) and `Opened`, then whatever was submitted meanwhile. The task ends with the log.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub async fn open(self) -> Result<JoinHandle<()>, StartError> {
        let (reply, answer) = oneshot::channel();
        let first = Job { inputs: self.first.into_iter().map(|input| (input, None)).collect(), reply };
        let task = tokio::spawn(self.writer.run(first, self.inbox));
        let steps = answer.await.map_err(|_| SubmitError::Stopped)??;
        if let Some(Answer::Refused(refusal)) = steps.last().map(|step| step.answer()) {
            return Err(SubmitError::Fenced(refusal.reason.text().to_owned()).into());
        }
        self.is_open.store(true, Ordering::Release);
        Ok(task)
    }
}

impl Sequencer {
    /// Raises the term, loads State from snapshot and log, and opens the log at once.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the log is unchanged then but for a raised term.
    pub async fn start(parts: Parts, stop: CancellationToken) -> Result<(Self, JoinHandle<()>), StartError> {
        let (log, opening) = Self::load(parts, stop).await?;
        Ok((log, opening.open().await?))
    }

    /// Raises the term and loads State from snapshot and log.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the log is unchanged then.
    pub async fn load(parts: Parts, stop: CancellationToken) -> Result<(Self, Opening), StartError> {
        let mut fence = term::raise(&parts.store.writer, parts.epoch)
            .await
            .map_err(StoreError::Sql)?
            .ok_or(StartError::OldEpoch(parts.epoch))?;
        let opened = Input::Opened { delegate: parts.delegate, policy: parts.policy.clone() };
        let (loaded, levels) = load::load(&parts.store).await?;
        load::check_rows(&parts.store, loaded.state.next_seq).await?;
        let logged = loaded.state.fence;
        if logged.epoch > parts.epoch {
            return Err(StartError::OldEpoch(parts.epoch));
        }
        if logged >= fence {
            tracing::warn!(row = ?fence, log = ?logged, "the fence in the database is below that of the log: somebody altered it");
            fence = term::raise_above(&parts.store.writer, logged).await.map_err(StoreError::Sql)?;
        }
        let before = loaded.state.delegate;
        if loaded.state.next_seq > 1 && before != parts.delegate {
            tracing::warn!(
                %before, now = %parts.delegate,
                "the delegate key is not the one that renters granted: no voucher can be signed for them until they \
                 grant the new one. Restore delegate.key if you have it"
            );
        }
        let (jobs, inbox) = mpsc::channel(4096);
        let (batches, _) = broadcast::channel(4096);
        let head = head::newest(&parts.store.readers).await.map_err(StoreError::Sql)?;
        let (troubled, trouble) = watch::channel(None);
        let is_open = Arc::new(AtomicBool::new(false));
        let (view, copies) = (Arc::new(RwLock::new(View { state: loaded.state.clone(), head, levels })), Copies::new());
        let publishing = Publishing::default();
        let handle = Self {
            jobs,
            view: view.clone(),
            publishing: publishing.clone(),
            trouble,
            batches: batches.clone(),
            copies,
            fence,
            is_open: is_open.clone(),
        };
        let rules = Input::Rules { version: RULES, digest: rules_digest() };
        let first = if loaded.state.next_seq == 0 { vec![rules, opened] } else { vec![opened] };
        let writer = Writer { parts, fence, loaded, view, publishing, batches, troubled, stop };
        Ok((handle, Opening { writer, inbox, first, is_open }))
    }

    /// Whether inputs are entered; before that they wait.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Enters `input`; resolves after the commit.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; nothing happened then.
    pub async fn submit(&self, input: Input, private: Option<Private>) -> Result<Arc<Step>, SubmitError> {
        self.send(vec![(input, private)]).await?.pop().ok_or(SubmitError::Stopped)
    }

    /// Enters `inputs` in this order, all or none; resolves after the commit.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; nothing happened then.
    pub async fn submit_all(&self, inputs: Vec<Input>) -> Result<Vec<Arc<Step>>, SubmitError> {
        self.send(inputs.into_iter().map(|input| (input, None)).collect()).await
    }

    async fn send(&self, inputs: Vec<(Input, Option<Private>)>) -> Result<Vec<Arc<Step>>, SubmitError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job { inputs, reply }).await.map_err(|_| SubmitError::Stopped)?;
        answer.await.map_err(|_| SubmitError::Stopped)?
    }

    /// Why nothing can be committed now, as on a full disk; `None` while commits work. Leases run on meanwhile.
    #[must_use]
    pub fn unwritable(&self) -> Option<Arc<str>> {
        self.trouble.borrow().clone()
    }

    /// Follows [`unwritable`](Self::unwritable).
    #[must_use]
    pub fn watch_writable(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.trouble.clone()
    }

    /// The committed State. Nothing is committed while this is held, so it is held across no wait.
    pub fn state(&self) -> impl Deref<Target = State> + '_ {
        Committed(self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the committed State.
    pub fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.view.read().unwrap_or_else(PoisonError::into_inner).state)
    }

    /// Judges by the committed State. A no is said only by a State that has all that the rows had when this was called:
    /// for the instant between a commit and its publication rows are newer than State, and who has read them would be
    /// refused for what he has just seen mended.
    ///
    /// # Errors
    ///
    /// Those of `judge`.
    pub async fn judge<T, E>(&self, judge: impl Fn(&State) -> Result<T, E>) -> Result<T, E> {
        if let Ok(yes) = self.read(&judge) {
            return Ok(yes);
        }
        drop(self.publishing.read().await);
        self.read(judge)
    }

    /// A copy of the committed State for long work, as soon as one may be had; `None` if that lasts too long.
    pub async fn copy(&self) -> Option<StateCopy> {
        let turn = self.copies.turn().await?;
        Some(self.read(|state| self.copies.of(state, turn)))
    }

    /// As [`Sequencer::copy`], if one may be had now.
    #[must_use]
    pub fn copy_now(&self) -> Option<StateCopy> {
        let turn = self.copies.turn_now()?;
        Some(self.read(|state| self.copies.of(state, turn)))
    }

    /// Reads the upper levels of the tree over all that is committed.
    pub fn levels<R>(&self, read: impl FnOnce(&Levels) -> R) -> R {
        read(&self.view.read().unwrap_or_else(PoisonError::into_inner).levels)
    }

    /// Every batch committed from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Batch>> {
        self.batches.subscribe()
    }

    /// What an answer given now depends on.
    #[must_use]
    pub fn position(&self) -> Position {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        Position {
            entry: view.state.next_seq.saturating_sub(1),
            head: view.head,
            block: view.state.block,
            fence: self.fence,
        }
    }
}

/// Names the rules of this release in the log. It says which version, not that the source is unchanged.
#[must_use]
pub fn rules_digest() -> Hash32 {
    selion_api::commit::sha256_of(&("selion-market", RULES))
}
