//! From the shelf to the pool: one task a member, for as long as it takes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use selion_api::TimeMs;
use selion_api::agent::{Assignment, ToController};
use selion_api::outputs::{OutputState, Outputs};
use selion_dataplane::{Cid, GatewayUrlError, HttpGateway, PushError, Store, StoreError, push};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Ended, GIVE_UP, Record, Shelf, ShelfError, collect};
use crate::error::chain;
use crate::logs::Logs;
use crate::member_key::MemberKey;
use crate::staging::blocking;

/// Folders that are added to the store at once: each reads and hashes on several threads.
const ADDING: usize = 2;
/// Outputs that are sent at once: each has eight blocks on their way.
const SENDING: usize = 4;
/// First and longest pause between two tries to add or to send.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// How long a full disk is waited for.
const FULL: Duration = Duration::from_secs(60);
/// A word that the controller did not confirm for this long is said again.
const UNHEARD: Duration = Duration::from_secs(10);

/// What uploads need of the agent.
pub(crate) struct Parts {
    /// Where the folders lie.
    pub(crate) shelf: Shelf,
    /// The node's content store.
    pub(crate) store: Store,
    /// Base URL of the controller.
    pub(crate) gateway: String,
    /// The newest token for it; a new link brings a new one.
    pub(crate) token: watch::Receiver<Option<String>>,
    /// For lines about what was skipped.
    pub(crate) logs: Logs,
    /// To the controller, whenever there is a link.
    pub(crate) told: mpsc::Sender<ToController>,
}

/// All uploads of this node. Clones share them; they end when the last is dropped or the agent stops.
#[derive(Clone)]
pub(crate) struct Uploads {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Parts,
    /// Whose last word waits to be heard.
    unheard: Mutex<BTreeMap<MemberKey, Arc<Answers>>>,
    adding: Semaphore,
    sending: Semaphore,
    stop: CancellationToken,
}

/// What the controller answers to a last word.
#[derive(Default)]
struct Answers {
    /// It is down.
    heard: Notify,
    /// Not all of the content is there.
    missing: Notify,
}

impl Uploads {
    pub(crate) fn new(parts: Parts, stop: CancellationToken) -> Self {
        let (adding, sending) = (Semaphore::new(ADDING), Semaphore::new(SENDING));
        Self { inner: Arc::new(Inner { parts, unheard: Mutex::default(), adding, sending, stop }) }
    }

    /// The way to the controller, whenever there is a link.
    pub(crate) fn told(&self) -> mpsc::Sender<ToController> {
        self.inner.parts.told.clone()
    }

    /// Where lines of members go.
    pub(crate) fn logs(&self) -> Logs {
        self.inner.parts.logs.clone()
    }

    /// Notes that the member's command is about to run.
    pub(crate) async fn expect(&self, assignment: &Assignment, room: &Path) -> Result<(), ShelfError> {
        let (shelf, record) = (self.inner.parts.shelf.clone(), Record::of(assignment, room, now()));
        blocking(move || shelf.write(&record)).await
    }

    /// The command did not run.
    pub(crate) async fn forget(&self, key: MemberKey) {
        let shelf = self.inner.parts.shelf.clone();
        blocking(move || shelf.forget(key)).await;
    }

    /// Takes the output folder of an ended member and sends it in the background. On return the folder is moved. `None`
    /// if it was empty.
    pub(crate) async fn take(
        &self,
        assignment: &Assignment,
        folder: &Path,
        ended: Ended,
    ) -> Option<watch::Receiver<Outputs>> {
        let record = Record { ended: Some(ended), ..Record::of(assignment, folder, now()) };
        let (shelf, from, noted) = (self.inner.parts.shelf.clone(), folder.to_owned(), record.clone());
        match blocking(move || shelf.take(&noted, &from)).await {
            Ok(true) => Some(self.send(record)),
            Ok(false) => None,
            Err(error) => {
                tracing::error!(member = %record.key, %error, "outputs are lost");
                let lost = record.lost(&chain(&error));
                Some(self.send(Record { said: Some(lost), ..record }))
            }
        }
    }

    /// Takes over what an earlier life of the agent left, before its rooms are cleared: what it had not sent, and the
    /// folders of members that its end interrupted. Those that run on keep theirs. The members, each with its record and what follows.
    pub(crate) async fn recover(&self, run: &[MemberKey]) -> BTreeMap<MemberKey, (Record, watch::Receiver<Outputs>)> {
        let (shelf, run) = (self.inner.parts.shelf.clone(), run.to_vec());
        let records = blocking(move || {
            let mut records = shelf.records();
            records.retain(|record| !run.contains(&record.key));
            records.retain_mut(|record| {
                let aside = record.said.is_none();
                if aside {
                    record.since_ms = now();
                }
                let room = record.room.clone();
                match aside.then(|| shelf.take(record, &room)) {
                    None | Some(Ok(true)) => true,
                    Some(Ok(false)) => false,
                    Some(Err(error)) => {
                        tracing::error!(member = %record.key, %error, "outputs are lost");
                        record.said = Some(record.lost(&chain(&error)));
                        true
                    }
                }
            });
            records
        })
        .await;
        records.into_iter().map(|record| (record.key, (record.clone(), self.send(record)))).collect()
    }

    /// The controller has `state` of the member's outputs down.
    pub(crate) fn heard(&self, key: MemberKey, state: OutputState) {
        if let Some(answers) = self.inner.unheard().get(&key) {
            let answer = if state.is_final() { &answers.heard } else { &answers.missing };
            answer.notify_one();
        }
    }

    fn send(&self, record: Record) -> watch::Receiver<Outputs> {
        let (progress, follow) = watch::channel(record.outputs());
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let stop = inner.stop.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                () = inner.carry(record, progress) => {}
            }
        });
        follow
    }
}

impl Inner {
    fn unheard(&self) -> std::sync::MutexGuard<'_, BTreeMap<MemberKey, Arc<Answers>>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings one member's outputs to the pool, from wherever they are.
    async fn carry(&self, mut record: Record, progress: watch::Sender<Outputs>) {
        if record.said.is_none() {
            let added = self.add(&record).await;
            self.say(&mut record, added, &progress).await;
            if progress.is_closed() {
                self.tell_late(&record).await;
            }
        }
        let said = record.outputs();
        if said.state == OutputState::Uploading {
            let sent = self.deliver(&record, said).await;
            self.say(&mut record, sent, &progress).await;
        }
        drop(progress);
        self.until_heard(&record).await;
        self.forget(&record).await;
    }

    /// Notes `said` in the record, where it survives a power cut, and shows it.
    async fn say(&self, record: &mut Record, said: Outputs, progress: &watch::Sender<Outputs>) {
        record.said = Some(said.clone());
        let (shelf, noted) = (self.parts.shelf.clone(), record.clone());
        // Without the record the next life adds and sends again, which changes nothing.
        let noted = blocking(move || {
            shelf.write(&noted)?;
            shelf.empty(noted.key);
            Ok::<_, ShelfError>(())
        });
        if let Err(error) = noted.await {
            tracing::warn!(member = %record.key, %error, "how far outputs are could not be noted");
        }
        progress.send_replace(said);
    }

    /// Adds the folder to the store, again while the store fails. On a full disk not for long: it may be the folder itself
    /// that fills it, and then no other lease finds room until it is gone.
    async fn add(&self, record: &Record) -> Outputs {
        let (mut pause, began) = (Pause::default(), Instant::now());
        loop {
            let permit = self.adding.acquire().await;
            let (store, noted) = (self.parts.store.clone(), record.clone());
            let folder = self.parts.shelf.folder(record.key);
            let added = blocking(move || collect::add(&noted, &folder, &store)).await;
            drop(permit);
            match added {
                Ok(said) => return said,
                Err(error) if is_over(record) => return record.lost(&chain(&error)),
                Err(error @ StoreError::Full { .. }) if began.elapsed() >= FULL => return record.lost(&chain(&error)),
                Err(error) => {
                    tracing::warn!(member = %record.key, error = %chain(&error), "outputs cannot be kept yet");
                }
            }
            pause.wait().await;
        }
    }

    /// Sends every block that the controller does not have, again while it does not take them.
    async fn deliver(&self, record: &Record, said: Outputs) -> Outputs {
        let root: Cid = match said.cid.as_deref().unwrap_or_default().parse() {
            Ok(root) => root,
            Err(error) => return record.lost(&format!("the record of their CID is damaged: {error}")),
        };
        let state = if said.skipped > 0 { OutputState::Partial } else { OutputState::Kept };
        let mut pause = Pause::default();
        loop {
            let permit = self.sending.acquire().await;
            let tried = self.try_once(&root).await;
            drop(permit);
            match tried {
                Ok(()) => return Outputs { state, ..said },
                // The node's own copy is damaged or gone. Other failures of its disk may pass.
                Err(DeliverError::Push(PushError::Store(
                    error @ (StoreError::Missing { .. } | StoreError::Corrupt { .. } | StoreError::Dag(_)),
                ))) => return record.lost(&chain(&error)),
                Err(error) if is_over(record) => {
                    return record.lost(&format!("the pool did not take them within 7 days: {}", chain(&error)));
                }
                // A refused token may be one from before the link was lost: the next try has the new one.
                Err(error) => tracing::debug!(%root, error = %chain(&error), "outputs not taken yet"),
            }
            pause.wait().await;
        }
    }

    async fn try_once(&self, root: &Cid) -> Result<(), DeliverError> {
        let token = self.parts.token.borrow().clone();
        let gateway = HttpGateway::new(&self.parts.gateway, token.as_deref())?;
        push(&self.parts.store, root, &gateway).await?;
        Ok(())
    }

    /// Says the last word until the controller has it down. What was sent long before may be collected there by now: what
    /// the controller misses is sent again.
    async fn until_heard(&self, record: &Record) {
        let answers = Arc::new(Answers::default());
        self.unheard().insert(record.key, Arc::clone(&answers));
        let (mut pause, mut said) = (Pause::default(), record.outputs());
        while !is_long_over(record) {
            // A link that is gone for good ends with the agent, and this with it.
            let _ = self.parts.told.send(ToController::Outputs(said.clone())).await;
            tokio::select! {
                () = answers.heard.notified() => break,
                () = answers.missing.notified() => {
                    pause.wait().await;
                    said = self.deliver(record, said).await;
                }
                () = tokio::time::sleep(UNHEARD) => {}
            }
        }
        self.unheard().remove(&record.key);
    }

    /// The member's report went before this was known.
    async fn tell_late(&self, record: &Record) {
        let said = record.outputs();
        for line in lines(&said) {
            self.parts.logs.note(record.key, line);
        }
        self.parts.logs.close(record.key);
        let _ = self.parts.told.send(ToController::Outputs(said)).await;
    }

    async fn forget(&self, record: &Record) {
        let (parts, key) = (&self.parts, record.key);
        let (shelf, store, cid) = (parts.shelf.clone(), parts.store.clone(), record.outputs().cid);
        blocking(move || {
            shelf.forget(key);
            let root = cid.and_then(|cid| cid.parse().ok());
            if let Some(Err(error)) = root.map(|root| store.unpin(&key.to_string(), &root)) {
                tracing::warn!(member = %key, %error, "outputs stay pinned");
            }
        })
        .await;
    }
}

#[derive(Debug, thiserror::Error)]
enum DeliverError {
    #[error(transparent)]
    Gateway(#[from] GatewayUrlError),
    #[error(transparent)]
    Push(#[from] PushError),
}

/// Grows with every wait.
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(PAUSE.0)
    }
}

impl Pause {
    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSE.1);
    }
}

/// What a member's log says of its outputs: one line an entry that is named, and one of all.
pub(crate) fn lines(said: &Outputs) -> Vec<String> {
    let mut lines: Vec<String> =
        said.named.iter().map(|entry| format!("output {} is not kept: {}", entry.path, entry.why)).collect();
    let more = said.skipped.saturating_sub(said.named.len() as u64);
    if more > 0 {
        lines.push(format!("{more} more entries of the output folder are not kept"));
    }
    if let Some(why) = &said.why {
        lines.push(format!("the outputs are lost: {why}"));
    }
    lines
}

fn is_over(record: &Record) -> bool {
    now().since(record.since_ms) > u64::try_from(GIVE_UP.as_millis()).unwrap_or(u64::MAX)
}

/// Long enough for a controller that is gone for good.
fn is_long_over(record: &Record) -> bool {
    now().since(record.since_ms) / 2 > u64::try_from(GIVE_UP.as_millis()).unwrap_or(u64::MAX)
}

/// This machine's clock.
fn now() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
