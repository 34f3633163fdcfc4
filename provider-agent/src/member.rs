//! The life of one member: prepare, run, end. One task each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use selion_api::Reason;
use selion_api::agent::{Assignment, LogRecord, LogSource, MemberEvent, Outputs, Peer, Resume, ToController};
use selion_api::commit::{Network, Root};
use selion_api::lease::{UNDECLARED_DISK_BYTES, default_cpu_milli, default_ram_bytes};
use selion_api::seal::{REGISTRY, Sealed, Secret};
use selion_api::slice::{BoxFeature, BoxFeatures, Sandbox};
use selion_api::usage::{Usage, Used};
use selion_dataplane::Store;
use selion_dataplane::image::Image;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::book::Book;
use crate::boxes::{self, Taken};
use crate::courier::now;
use crate::error::chain;
use crate::gpus::{self, Gpus, SliceHandle};
use crate::guard::Guard;
use crate::images::{self, Images, ImagesError};
use crate::logs::Logs;
use crate::member_key::MemberKey;
use crate::meter::Meter;
use crate::outputs::{self, Ended, Uploads};
use crate::reconcile::Order;
use crate::reporter;
use crate::reporter::{Eviction, Reporter};
use crate::runtime::env::environment;
use crate::runtime::spec::Limits;
use crate::runtime::{
    self, Bin, Exit, Gang, Launch, Links, Outlet, Person, Quota, Rooms, RootFs, Running, Runtime, Why, capture, peers,
};
use crate::staging::{self, Staging, blocking};
use crate::status::{Board, Sample};

mod sealed;

use sealed::credentials;

/// How long pipes may stay open after the command's group is gone.
const DRAIN: Duration = Duration::from_secs(1);
/// How long a member waits for what an earlier run left and a node still sends: less than the time that a pool gives to
/// prepare, so that a node that never comes back costs the lease its progress and not its life.
const RESUME_WITHIN: Duration = Duration::from_secs(300);

/// Between two looks at whether memory ran out: the kernel tells version 1's groups of it only by a number.
const LOOK: Duration = Duration::from_millis(500);
/// Processes and threads of a member, with the two of its box.
const PIDS: u32 = 8_192;
/// Open files of each of its processes.
const OPEN_FILES: u32 = 65_536;
/// Least memory of a member, in bytes: a box does not start in less.
const LEAST_MEMORY: u64 = 16 << 20;

/// What all members share.
pub(crate) struct Shared {
    pub(crate) gpus: Arc<Mutex<Box<dyn Gpus>>>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) images: Option<Images>,
    pub(crate) store: Store,
    pub(crate) reporter: Reporter,
    pub(crate) logs: Logs,
    /// To the controller, beside the reports.
    pub(crate) told: mpsc::Sender<ToController>,
    pub(crate) uploads: Uploads,
    pub(crate) guard: Arc<Guard>,
    pub(crate) gateway: String,
    pub(crate) token: watch::Receiver<Option<String>>,
    pub(crate) leases: std::path::PathBuf,
    pub(crate) bin: Bin,
    pub(crate) features: BoxFeatures,
    pub(crate) book: Arc<Book>,
    /// How long a member waits for its secrets.
    pub(crate) secrets_within: Duration,
    pub(crate) meter: Duration,
    pub(crate) board: Arc<Board>,
}

impl Shared {
    /// Uses the GPUs off the async threads.
    async fn with_gpus<T: Send + 'static>(&self, act: impl FnOnce(&mut dyn Gpus) -> T + Send + 'static) -> T {
        let gpus = Arc::clone(&self.gpus);
        blocking(move || act(gpus.lock().unwrap_or_else(PoisonError::into_inner).as_mut())).await
    }
}

/// A member could not be prepared or started.
struct Failure {
    reason: Reason,
    why: String,
}

impl Failure {
    fn new(reason: Reason, why: String) -> Self {
        Self { reason, why }
    }
}

/// What a member runs, before the agent's own variables.
struct Program {
    command: Vec<String>,
    env: Vec<(String, String)>,
    root: RootFs,
}

/// Why an image did not come.
#[derive(Debug, thiserror::Error)]
enum Arrival {
    #[error(transparent)]
    Images(#[from] ImagesError),
    #[error(transparent)]
    Staging(#[from] staging::StagingError),
}

/// How a member's command ended.
enum End {
    Exited(i32),
    Stopped,
    /// The node failed it.
    Lost,
    /// It is to be ended at once.
    Limited(Reason),
}

struct Member {
    shared: Arc<Shared>,
    assignment: Assignment,
    key: MemberKey,
    orders: watch::Receiver<Order>,
    peers: watch::Receiver<Vec<Peer>>,
    resume: watch::Receiver<Resume>,
    /// What it runs in, once that is here; `None` among the machine's own programs.
    image: Option<Image>,
    time: watch::Receiver<u64>,
    /// The meter as it was stated last.
    stated_ms: u64,
    sealed: watch::Receiver<Option<Sealed>>,
    /// What was in it, until the command has it.
    secrets: Vec<Secret>,
}

/// Drives a member from its assignment to its last report. On return its slices and its folders are free.
///
/// # Errors
///
/// [`reporter::ReportError`] if a report cannot be kept: the node can state nothing more, and the agent must end.
pub(crate) async fn drive(
    shared: Arc<Shared>,
    assignment: Assignment,
    told: Followed,
) -> Result<(), reporter::ReportError> {
    shared.logs.open_member(MemberKey::of(&assignment));
    let mut member = Member::new(shared, assignment, told, 0);
    let lived = member.live().await;
    member.leave().await;
    lived
}

/// Drives a member that an earlier life of the agent started, to its last report.
///
/// # Errors
///
/// As [`drive`].
pub(crate) async fn go_on(shared: Arc<Shared>, taken: Taken, told: Followed) -> Result<(), reporter::ReportError> {
    let Taken { assignment, running, last } = taken;
    shared.logs.reopen_member(MemberKey::of(&assignment));
    let mut member = Member::new(shared, assignment, told, last.metered_ms);
    let announced = last.event != MemberEvent::Ready;
    let lived = member.live_on(running, announced).await;
    member.leave().await;
    lived
}

/// What a member follows.
pub(crate) struct Followed {
    pub(crate) orders: watch::Receiver<Order>,
    pub(crate) peers: watch::Receiver<Vec<Peer>>,
    pub(crate) resume: watch::Receiver<Resume>,
    pub(crate) time: watch::Receiver<u64>,
    pub(crate) sealed: watch::Receiver<Option<Sealed>>,
}

impl Member {
    fn new(shared: Arc<Shared>, assignment: Assignment, told: Followed, stated_ms: u64) -> Self {
        let Followed { orders, peers, resume, time, sealed } = told;
        let key = MemberKey::of(&assignment);
        shared.board.came(&assignment, limits(&assignment), disk_bytes(&assignment));
        let secrets = Vec::new();
        Self { shared, assignment, key, orders, peers, resume, time, image: None, stated_ms, sealed, secrets }
    }

    async fn live(&mut self) -> Result<(), reporter::ReportError> {
        self.report(MemberEvent::Accepted, 0, None).await?;
        if let Err(why) = self.shared.guard.admit(&self.assignment).await {
            let failure = Failure::new(Reason::PaymentRequired, format!("{why}; nothing was run"));
            return self.fail(failure, Vec::new(), None).await;
        }
        let (slices, rooms) = match self.make().await {
            Ok(made) => made,
            Err((failure, slices)) => return self.fail(failure, slices, None).await,
        };
        let staged = tokio::select! {
            biased;
            () = until(self.orders.clone(), Order::Stop) => None,
            staged = self.stage(&rooms) => Some(staged),
        };
        match staged {
            Some(Ok(())) => {}
            Some(Err(failure)) => return self.fail(failure, slices, Some(rooms)).await,
            None => {
                self.clear(slices, Some(rooms)).await;
                return self.report(MemberEvent::Stopped { outputs: None }, 0, None).await;
            }
        }
        self.report(MemberEvent::Ready, 0, None).await?;
        until(self.orders.clone(), Order::Start).await;
        if *self.orders.borrow() == Order::Stop {
            self.clear(slices, Some(rooms)).await;
            return self.report(MemberEvent::Stopped { outputs: None }, 0, None).await;
        }
        // Staging may have taken long.
        if let Err(why) = self.shared.guard.judge(&self.assignment, 0) {
            let failure = Failure::new(Reason::PaymentRequired, format!("{why}; nothing was run"));
            return self.fail(failure, slices, Some(rooms)).await;
        }
        let gang = match self.meet().await {
            Ok(gang) => gang,
            Err(why) => return self.fail(Failure::new(Reason::RuntimeFailed, why), slices, Some(rooms)).await,
        };
        self.write_peers(&rooms).await;
        match self.launch(&slices, &rooms, gang).await {
            Ok(mut running) => {
                self.shared.guard.begin(&self.assignment);
                let run_ms = *self.time.borrow();
                running.may_run(run_ms).await;
                self.run(running, slices, rooms, false).await
            }
            Err(failure) => self.fail(failure, slices, Some(rooms)).await,
        }
    }

    /// The rest of the life of a member whose command outlived an agent. Its slices are as they were: nobody else's.
    async fn live_on(&mut self, mut running: Box<dyn Running>, announced: bool) -> Result<(), reporter::ReportError> {
        let (on, slot) = (self.assignment.gpus.clone(), self.assignment.slot.clone());
        let made = self.shared.with_gpus(move |gpus| {
            let slices = gpus::make_all(gpus, &on, &slot)?;
            slices.iter().try_for_each(|slice| gpus.set_busy(slice, true)).map(|()| slices)
        });
        let rooms = Rooms::at(&self.shared.leases.join(self.key.to_string()));
        match made.await {
            Ok(slices) => self.run(running, slices, rooms, announced).await,
            Err(error) => {
                // A GPU is gone, or was cut otherwise: what runs on it is of no use.
                if let Err(error) = running.kill().await {
                    tracing::warn!(member = %self.key, %error, "the command cannot be waited for");
                }
                let metered_ms = running.ran_ms().max(self.stated_ms);
                self.say(format!("its slice is gone: {}", chain(&error)));
                self.remove(rooms).await;
                self.shared.logs.close(self.key);
                self.report(MemberEvent::Failed { reason: Reason::SliceFailed }, metered_ms, None).await?;
                self.shared.guard.end(&self.assignment).await;
                Ok(())
            }
        }
    }

    /// Checks the work, makes the slices and the folders. It is short and never cut off, so that no slice is lost.
    async fn make(&self) -> Result<(Vec<SliceHandle>, Rooms), (Failure, Vec<SliceHandle>)> {
        let assignment = &self.assignment;
        let found = assignment.work.commitment(&assignment.salt);
        if found != assignment.commitment {
            let why = format!(
                "the work does not match its commitment in the log: {found} is not {}; nothing was run",
                assignment.commitment
            );
            return Err((Failure::new(Reason::RuntimeFailed, why), Vec::new()));
        }
        if let Err(why) = self.has_network() {
            return Err((Failure::new(Reason::RuntimeFailed, why.into()), Vec::new()));
        }
        if !assignment.work.secrets.names.is_empty() && !self.shared.features.has(BoxFeature::Secrets) {
            let why = "this node has no sandbox, and so nowhere to keep secrets; nothing was run";
            return Err((Failure::new(Reason::RuntimeFailed, why.into()), Vec::new()));
        }
        if let Err(error) = staging::check(&assignment.work) {
            return Err((Failure::new(Reason::StagingFailed, chain(&error)), Vec::new()));
        }
        let (on, slot) = (assignment.gpus.clone(), assignment.slot.clone());
        let made = self.shared.with_gpus(move |gpus| gpus::make_all(gpus, &on, &slot)).await;
        let slices = made.map_err(|error| (Failure::new(Reason::SliceFailed, chain(&error)), Vec::new()))?;
        let base = self.shared.leases.join(self.key.to_string());
        match blocking(move || Rooms::make(&base)).await {
            Ok(rooms) => Ok((slices, rooms)),
            Err(error) => {
                let why = format!("no room for the member: {error}");
                Err((Failure::new(Reason::RuntimeFailed, why), slices))
            }
        }
    }

    /// Whether the node gives what the work reaches.
    fn has_network(&self) -> Result<(), &'static str> {
        let features = self.shared.features;
        if self.assignment.work.network == Network::Internet && !features.has(BoxFeature::Internet) {
            return Err("this node gives leases no internet; ask for none (--network none), or for another node");
        }
        if self.meets() && !features.has(BoxFeature::Gang) {
            return Err("members of a gang cannot reach each other from this node; ask for another node");
        }
        Ok(())
    }

    /// Whether it reaches other members of its gang.
    fn meets(&self) -> bool {
        self.assignment.peers.len() > 1 && self.assignment.work.network != Network::Apart
    }

    /// Takes the newest word of where its peers are, by the addresses that its box has for them.
    async fn meet(&mut self) -> Result<Option<Gang>, String> {
        self.assignment.peers = self.peers.borrow_and_update().clone();
        if !self.meets() || self.shared.runtime.sandbox() == Sandbox::None {
            return Ok(None);
        }
        let (peers, gang) = runtime::meet(&self.assignment.peers, self.assignment.member).await?;
        self.assignment.peers = peers;
        Ok(Some(gang))
    }

    /// Follows a change of its peers: its box first, then the file that tells the command.
    async fn meet_again(&mut self, running: &mut dyn Running, rooms: &Rooms) {
        let met = match self.meet().await {
            Ok(Some(gang)) => running.meet(gang).await.map_err(|error| error.to_string()),
            Ok(None) => Ok(()),
            Err(why) => Err(why),
        };
        if let Err(why) = met {
            self.say(format!("its peers changed, and it cannot reach them: {why}"));
        }
        self.write_peers(rooms).await;
    }

    async fn stage(&mut self, rooms: &Rooms) -> Result<(), Failure> {
        let failed = |error: &staging::StagingError| Failure::new(Reason::StagingFailed, chain(error));
        self.assignment.resume = self.predecessor().await;
        let resume = match &self.assignment.resume {
            Resume::From { cid, .. } => Some(staging::parse(cid).map_err(|error| failed(&error))?),
            Resume::Nothing | Resume::Coming { .. } => None,
        };
        let token = self.shared.token.borrow().clone();
        let shared = Arc::clone(&self.shared);
        let staging = Staging {
            store: &shared.store,
            gateway: &shared.gateway,
            token: token.as_deref(),
            disk_bytes: self.assignment.disk_bytes,
        };
        let say = |line| self.say(line);
        staging.stage(&self.assignment.work, resume, rooms, say).await.map_err(|error| failed(&error))?;
        let mut secrets = self.unsealed().await?;
        self.image = self.bring_image(&staging, rooms, &secrets).await?;
        secrets.retain(|secret| secret.name != REGISTRY);
        self.secrets = secrets;
        Ok(())
    }

    /// Brings what the command runs in, and keeps it as long as the member lives.
    async fn bring_image(
        &self,
        staging: &Staging<'_>,
        rooms: &Rooms,
        secrets: &[Secret],
    ) -> Result<Option<Image>, Failure> {
        let failed = |error: Arrival| Failure::new(Reason::StagingFailed, chain(&error));
        let work = &self.assignment.work;
        let Some(images) = &self.shared.images else {
            return match work.root {
                Root::Base | Root::Machine => Ok(None),
                Root::Registry(_) | Root::Content(_) => {
                    Err(failed(ImagesError::NotHere("this node has no sandbox, and so no images").into()))
                }
            };
        };
        let (logs, key) = (self.shared.logs.clone(), self.key);
        let place = rooms.base.join("archive");
        let archive = async |cid: &str| {
            staging.archive(&staging::parse(cid)?, &place).await?;
            Ok(place.clone())
        };
        let credentials = credentials(secrets).map_err(|why| Failure::new(Reason::StagingFailed, why))?;
        let bringing = images.bring(work, &credentials, archive, move |line| logs.note(key, line));
        let image = bringing.await.map_err(failed)?;
        if let Some(image) = &image {
            let (images, member, held) = (images.clone(), self.key.to_string(), image.clone());
            blocking(move || images.pin(&member, &held)).await.map_err(|error| failed(error.into()))?;
        }
        Ok(image)
    }

    /// What is the last of it, whatever became of it.
    async fn leave(mut self) {
        self.let_image_go().await;
        self.shared.logs.close(self.key);
        self.shared.board.over(self.key);
    }

    /// The image may go from the node when room is needed.
    async fn let_image_go(&mut self) {
        let Some(images) = self.shared.images.clone() else { return };
        self.image = None;
        let member = self.key.to_string();
        if let Err(error) = blocking(move || images.unpin(&member)).await {
            tracing::warn!(member = %self.key, %error, "an image stays pinned until the agent starts again");
        }
    }

    /// What to go on from, once it is known; nothing if it does not come.
    async fn predecessor(&mut self) -> Resume {
        let mut resume = self.resume.clone();
        let now = resume.borrow_and_update().clone();
        let Resume::Coming { attempt } = now else { return now };
        self.say(format!("waits for the outputs of run {attempt}, which its node is sending"));
        let came = tokio::time::timeout(RESUME_WITHIN, resume.wait_for(|now| !matches!(now, Resume::Coming { .. })));
        // A dropped sender is an order to stop, which ends the staging.
        let came = came.await.map(|known| known.map(|known| known.clone()).unwrap_or_default());
        came.unwrap_or_else(|_| {
            let waited_s = RESUME_WITHIN.as_secs();
            self.say(format!("the outputs of run {attempt} did not come within {waited_s} s; it starts without them"));
            Resume::Nothing
        })
    }

    /// What is executed, with the variables that an image sets and the file system that it is in.
    async fn program(&self) -> Result<Program, Failure> {
        let work = self.assignment.work.clone();
        let Some(image) = self.image.clone() else {
            return Ok(Program { command: work.command, env: Vec::new(), root: RootFs::Machine });
        };
        let started = blocking(move || images::start(&image, &work).map(|start| (start, image))).await;
        let (start, image) = started.map_err(|error| Failure::new(Reason::RuntimeFailed, chain(&error)))?;
        let person = Person { uid: start.user.uid, gid: start.user.gid, groups: start.user.groups };
        let root = RootFs::Image { lower: image.lower(), person, cwd: start.working_dir.into() };
        Ok(Program { command: start.argv, env: start.env, root })
    }

    async fn launch(
        &mut self,
        slices: &[SliceHandle],
        rooms: &Rooms,
        gang: Option<Gang>,
    ) -> Result<Box<dyn Running>, Failure> {
        let failed = |why: String| Failure::new(Reason::RuntimeFailed, why);
        let slices = slices.to_vec();
        let Program { command, env, root } = self.program().await?;
        let built = environment(&self.assignment, &slices, &rooms.seen_in(self.shared.runtime.sandbox()), &env);
        for name in built.left_out {
            self.say(format!("environment variable `{name}` is reserved and was left out"));
        }
        let mbps = self.assignment.net_mbps;
        let launch = Launch {
            command,
            env: built.vars,
            root,
            rooms: rooms.clone(),
            devices: devices(&slices),
            network: Links {
                internet: self.assignment.work.network == Network::Internet,
                gang,
                mbps: (mbps > 0).then_some(mbps),
            },
            limits: limits(&self.assignment),
            secrets: std::mem::take(&mut self.secrets),
        };
        // Whatever ends the agent from here on, its next life looks for outputs.
        self.shared.uploads.expect(&self.assignment, &rooms.output).await.map_err(|error| failed(chain(&error)))?;
        let (base, noted) = (rooms.base.clone(), self.assignment.clone());
        let noted = blocking(move || boxes::note(&base, &noted)).await;
        noted.map_err(|error| failed(chain(&error)))?;
        let all_busy = move |gpus: &mut dyn Gpus| slices.iter().try_for_each(|slice| gpus.set_busy(slice, true));
        let busy = self.shared.with_gpus(all_busy).await;
        let launched = match busy {
            Ok(()) => self.shared.runtime.launch(launch).await.map_err(|error| failed(chain(&error))),
            Err(error) => Err(failed(chain(&error))),
        };
        if launched.is_err() {
            self.shared.uploads.forget(self.key).await;
        }
        launched
    }

    async fn run(
        &mut self,
        mut running: Box<dyn Running>,
        slices: Vec<SliceHandle>,
        rooms: Rooms,
        announced: bool,
    ) -> Result<(), reporter::ReportError> {
        let meter = Meter::of(running.ran_ms(), self.stated_ms);
        let pipes = self.capture(running.as_ref());
        if !announced {
            self.report(MemberEvent::Running, 0, None).await?;
        }
        let quota = Quota::new(rooms.writable(), disk_bytes(&self.assignment), running.head());
        let end = self.watch(running.as_mut(), &meter, &rooms, &quota).await?;
        // What is printed from now on is the last: it is kept, even if nobody takes it now.
        self.shared.logs.hasten(self.key);
        let ended = match end {
            End::Exited(_) | End::Lost => Ok(()),
            End::Stopped => running.stop().await.map(drop),
            End::Limited(_) => running.kill().await.map(drop),
        };
        let metered_ms = running.ran_ms().max(self.stated_ms);
        self.shared.guard.stopped(&self.assignment, metered_ms).await;
        if let Err(error) = ended {
            tracing::warn!(member = %self.key, %error, "the command cannot be waited for");
        }
        if let Some(traffic) = running.traffic() {
            self.say(format!("its network: {} bytes sent, {} received", traffic.sent, traffic.received));
        }
        let ended = self.ended(end, running.as_ref(), metered_ms);
        for pipe in pipes {
            let abort = pipe.abort_handle();
            if tokio::time::timeout(DRAIN, pipe).await.is_err() {
                abort.abort();
            }
        }
        drop(running);
        self.free(slices).await;
        let outputs = self.outputs(&rooms, ended).await;
        self.remove(rooms).await;
        self.shared.logs.close(self.key);
        let event = outputs::event(&ended, &self.assignment.salt, outputs.as_ref());
        self.report(event, metered_ms, outputs).await?;
        self.shared.guard.end(&self.assignment).await;
        Ok(())
    }

    /// Tells the command where its peers are, as far as it reads that.
    async fn write_peers(&self, rooms: &Rooms) {
        let (rooms, told) = (rooms.clone(), self.assignment.peers.clone());
        if let Err(error) = blocking(move || peers::write(&rooms, &told)).await {
            self.say(format!("the file of peers is not written: {error}"));
        }
    }

    /// Waits for the command's end, for the order to stop, for its time to be up, or until nothing covers its use; reports the
    /// meter meanwhile, and tells of other peers.
    async fn watch(
        &mut self,
        running: &mut dyn Running,
        meter: &Meter,
        rooms: &Rooms,
        quota: &Quota,
    ) -> Result<End, reporter::ReportError> {
        let full = quota.exceeded();
        tokio::pin!(full);
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = self.peers.clone();
        let mut time = self.time.clone();
        self.assignment.max_run_ms = *time.borrow_and_update();
        let left = |all: u64| Duration::from_millis(all.saturating_sub(meter.read_ms()));
        let time_is_up = tokio::time::sleep(left(self.assignment.max_run_ms));
        tokio::pin!(time_is_up);
        let mut ticks = tokio::time::interval(self.shared.meter);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                exit = running.wait() => match exit {
                    Ok(exit) => return Ok(self.exited(exit)),
                    Err(error) => {
                        self.say(error.to_string());
                        return Ok(End::Lost);
                    }
                },
                () = until(self.orders.clone(), Order::Stop) => return Ok(End::Stopped),
                () = &mut time_is_up => {
                    self.say(format!("its {} ms are used up", self.assignment.max_run_ms));
                    return Ok(End::Stopped);
                }
                bytes = &mut full => {
                    let (most, bytes) = (quota.most() >> 20, bytes >> 20);
                    self.say(format!("it has written {bytes} MiB of its {most} MiB of disk: it is ended"));
                    return Ok(End::Limited(Reason::DiskFull));
                }
                _ = looks.tick() => {
                    if ran_out(running) {
                        return Ok(End::Limited(Reason::OutOfMemory));
                    }
                    self.show_use(running, quota);
                }
                Ok(()) = time.changed() => {
                    self.assignment.max_run_ms = *time.borrow_and_update();
                    time_is_up.set(tokio::time::sleep(left(self.assignment.max_run_ms)));
                    running.may_run(self.assignment.max_run_ms).await;
                }
                Ok(()) = told.changed() => {
                    told.mark_unchanged();
                    self.meet_again(running, rooms).await;
                }
                _ = ticks.tick() => {
                    let metered_ms = meter.read_ms();
                    self.stated_ms = metered_ms;
                    self.report(MemberEvent::Metered, metered_ms, None).await?;
                    self.tell_use(running, quota);
                    self.shared.guard.meter(&self.assignment, metered_ms).await;
                    if let Err(why) = self.shared.guard.judge(&self.assignment, metered_ms)
                        && self.shared.reporter.evict(self.key, Eviction::Unpaid)
                    {
                        tracing::warn!(member = %self.key, why, "a member is ended: nothing covers its use");
                        self.say(format!("{why}: it is ended"));
                        return Ok(End::Stopped);
                    }
                }
            }
        }
    }

    /// What the end of a command means, which may have come while no agent was there.
    fn exited(&self, exit: Exit) -> End {
        match exit.why {
            Why::Itself => End::Exited(exit.code),
            Why::Asked => End::Stopped,
            Why::Time => {
                self.say(format!("its {} ms are used up", self.assignment.max_run_ms));
                End::Stopped
            }
            Why::Alone => {
                self.say("the agent was away for too long: it was ended by its supervisor".to_owned());
                End::Lost
            }
        }
    }

    /// How it ended, with the limit that it reached, if it did. What that was is in its log.
    fn ended(&self, end: End, running: &dyn Running, metered_ms: u64) -> Ended {
        let (code, limit) = match end {
            // A command whose part was killed may end as if nothing were.
            End::Exited(code) => (Some(code), ran_out(running).then_some(Reason::OutOfMemory)),
            End::Stopped | End::Lost => (None, None),
            End::Limited(reason) => (None, Some(reason)),
        };
        let failed = matches!(end, End::Lost);
        let used = running.used().unwrap_or_default();
        let shown = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        if limit == Some(Reason::OutOfMemory) {
            let (most, peak) = (self.memory() >> 20, shown(used.memory_peak_bytes));
            self.say(format!("it needed more than its {most} MiB of memory: it is ended (peak {peak})"));
        }
        Ended { code, limit, failed, metered_ms }
    }

    fn memory(&self) -> u64 {
        limits(&self.assignment).memory_bytes
    }

    /// Shows what it uses to who asks for the agent's status.
    fn show_use(&self, running: &dyn Running, quota: &Quota) {
        let group = running.used().unwrap_or_default();
        let sample = Sample { at: now(), group, disk_bytes: quota.used(), traffic: running.traffic() };
        self.shared.board.read(self.key, sample);
    }

    /// Tells what it uses, if the link has room for it; the next reading says the same.
    fn tell_use(&self, running: &dyn Running, quota: &Quota) {
        let of_all = running.used().unwrap_or_default();
        let used = Used {
            cpu_ms: of_all.cpu_ms,
            memory_bytes: of_all.memory_bytes,
            memory_peak_bytes: of_all.memory_peak_bytes,
            pids: of_all.pids,
            disk_bytes: Some(quota.used()),
        };
        let MemberKey { lease, attempt, member } = self.key;
        let _ = self.shared.told.try_send(ToController::Usage(Usage { lease, attempt, member, used }));
    }

    /// Follows what it prints, from where an earlier life of the agent had kept it.
    fn capture(&self, running: &dyn Running) -> Vec<JoinHandle<()>> {
        let follow = |source| {
            let outlet = running.outlet(source)?;
            let reader = outlet.taken().and_then(|(bytes, record)| {
                // What was kept and not noted any more is not kept twice.
                let at = bytes + self.shared.logs.kept_since(self.key, source, record);
                outlet.read_from(at).map(|(reader, lost)| (reader, at, lost))
            });
            match reader {
                Ok((reader, at, lost)) => {
                    if lost > 0 {
                        self.say(format!("{lost} bytes that it printed while no agent was there are left out"));
                    }
                    Some(tokio::spawn(keep_records(
                        self.shared.logs.clone(),
                        self.key,
                        source,
                        outlet,
                        reader,
                        at + lost,
                    )))
                }
                Err(error) => {
                    self.say(format!("what it prints cannot be read: {error}"));
                    None
                }
            }
        };
        [LogSource::Stdout, LogSource::Stderr].into_iter().filter_map(follow).collect()
    }

    /// Takes what the command left; it is sent in the background. What is known of it after a moment.
    async fn outputs(&self, rooms: &Rooms, ended: Ended) -> Option<Outputs> {
        let mut progress = self.shared.uploads.take(&self.assignment, &rooms.output, ended).await?;
        // Most are small: the pool has them when it hears of the end.
        let _ = tokio::time::timeout(outputs::TOGETHER, progress.wait_for(|said| said.state.is_final())).await;
        let said = progress.borrow().clone();
        for line in outputs::lines(&said) {
            self.say(line);
        }
        Some(said)
    }

    async fn fail(
        &self,
        failure: Failure,
        slices: Vec<SliceHandle>,
        rooms: Option<Rooms>,
    ) -> Result<(), reporter::ReportError> {
        tracing::warn!(member = %self.key, reason = %failure.reason, why = failure.why, "member failed");
        self.say(failure.why);
        self.clear(slices, rooms).await;
        self.shared.logs.close(self.key);
        self.report(MemberEvent::Failed { reason: failure.reason }, 0, None).await
    }

    async fn clear(&self, slices: Vec<SliceHandle>, rooms: Option<Rooms>) {
        self.free(slices).await;
        if let Some(rooms) = rooms {
            self.remove(rooms).await;
        }
    }

    /// Gives the slices back. Nothing of the member runs any more.
    async fn free(&self, slices: Vec<SliceHandle>) {
        let freed = self.shared.with_gpus(move |gpus| gpus::free_all(gpus, &slices)).await;
        if let Err(error) = freed {
            tracing::error!(member = %self.key, %error, "a slice could not be freed");
        }
    }

    async fn remove(&self, rooms: Rooms) {
        let shared = Arc::clone(&self.shared);
        if let Err(error) = blocking(move || shared.bin.take(&rooms.base)).await {
            tracing::warn!(member = %self.key, %error, "folders stay behind");
        }
    }

    fn say(&self, line: String) {
        self.shared.logs.note(self.key, line);
    }

    async fn report(
        &self,
        event: MemberEvent,
        metered_ms: u64,
        outputs: Option<Outputs>,
    ) -> Result<(), reporter::ReportError> {
        self.shared.reporter.report(&self.assignment, event, metered_ms, outputs).await
    }
}

/// Keeps what a stream brings from byte `at` on, and notes how far that is.
async fn keep_records(logs: Logs, key: MemberKey, source: LogSource, outlet: Outlet, from: DuplexStream, at: u64) {
    let (at, outlet) = (AtomicU64::new(at), &outlet);
    let (at, logs) = (&at, &logs);
    capture::read_records(from, source, |records: Vec<LogRecord>| async move {
        let bytes: u64 = records.iter().map(|record| record.bytes.len() as u64).sum();
        let next = logs.push(key, records).await;
        let upto = at.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Err(error) = outlet.take(upto, next) {
            tracing::warn!(member = %key, %error, "how far its output is kept cannot be noted");
        }
    })
    .await;
}

/// Whether the kernel killed any of it for want of memory.
fn ran_out(running: &dyn Running) -> bool {
    running.used().is_some_and(|used| used.killed > Some(0))
}

/// How much a member may use, by what was asked for. Nothing asked is what is given where nothing is said.
fn limits(assignment: &Assignment) -> Limits {
    let asked = |asked: u64, usual: u64| if asked == 0 { usual } else { asked };
    let memory_bytes = asked(assignment.ram_bytes, default_ram_bytes()).max(LEAST_MEMORY);
    Limits {
        cpu_milli: if assignment.cpu_milli == 0 { default_cpu_milli() } else { assignment.cpu_milli },
        memory_bytes,
        pids: PIDS,
        open_files: OPEN_FILES,
        // What lies in it is memory of the lease.
        shm_bytes: memory_bytes / 2,
    }
}

/// What a member may write.
fn disk_bytes(assignment: &Assignment) -> u64 {
    if assignment.disk_bytes == 0 { UNDECLARED_DISK_BYTES } else { assignment.disk_bytes }
}

/// Device nodes of all slices, each once.
fn devices(slices: &[SliceHandle]) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for device in slices.iter().flat_map(|slice| &slice.devices) {
        if !all.contains(device) {
            all.push(device.clone());
        }
    }
    all
}

/// Resolves once the order is at least `order`. A dropped sender is an order to stop.
async fn until(mut orders: watch::Receiver<Order>, order: Order) {
    // An error means that the agent is gone, which ends everything.
    let _ = orders.wait_for(|now| *now >= order).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assignment, slices};

    #[test]
    fn a_process_gets_the_device_nodes_of_all_its_gpus_each_once() {
        let mut assignment = assignment(1);
        assignment.gpus = vec![selion_api::GpuId([1; 16]), selion_api::GpuId([2; 16])];
        let mut slices = slices(&assignment);
        slices[0].devices = vec!["/dev/nvidiactl".into(), "/dev/nvidia0".into()];
        slices[1].devices = vec!["/dev/nvidiactl".into(), "/dev/nvidia1".into()];
        let all: Vec<std::path::PathBuf> =
            ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"].into_iter().map(Into::into).collect();
        assert_eq!(devices(&slices), all);
    }
}
